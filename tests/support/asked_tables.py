"""Random tables to ask questions of, made by our own writer and passes, beside a plain model of what a batch reader must see.

A table is drawn from a seed: columns of all types, a merge engine, a kind (with deletion vectors, merged while it is read, both), formats by
level, partitions and buckets. Then it lives: records come, files are compacted in one of several ways, columns are added, renamed and
changed. In the end its indexes are in one of these states:

| state     | what is there                                                                                             |
| --------- | --------------------------------------------------------------------------------------------------------- |
| none      | no definitions                                                                                            |
| unbuilt   | definitions that came after all passes: no group                                                          |
| partial   | groups of some columns, or of some files: APPEND files above level 0, columns without a pass of their own |
| complete  | every visible file in a group of every definition                                                         |
| stale     | groups of files that were compacted while the definition was gone                                         |
| damaged   | as complete, but some payloads are gone, cut off, empty, or have other bytes                              |

After all of it there may be records at level 0. The model is `tests.support.merge_model`: every record that was written is kept, and merged by
the rules of the engine, one at a time. `history` tells for each snapshot what a reader sees of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import maintainer
from maintainer import changes
from maintainer.data.arrow_types import value_schema
from maintainer.data.values import json_rows, to_arrow_array
from maintainer.format.data_formats import unheld
from maintainer.model.schema import KIND_FIELD, TableSchema
from maintainer.model.types import BINARIES, CHARACTERS, TIMESTAMPS, DataField, DataType, TypeRoot
from maintainer.table.options import TableOptions
from tests.support.builders import type_
from tests.support.evolve import set_options
from tests.support.merge_model import ADDS, Record, merge
from tests.support.predicates import order_key
from tests.support.questions import is_array_of_scalars, is_scalar
from tests.support.random_rows import random_value

KEY_TYPES = ("INT", "BIGINT", "STRING", "SMALLINT", "DATE", "DECIMAL(12, 2)", "TIMESTAMP(3)", "TIMESTAMP(6)", "BOOLEAN", "VARBINARY(12)",
             "CHAR(3)", "TIME(3)", "DOUBLE", "FLOAT", "TINYINT")  # fmt: skip
PARTITION_TYPES = ("STRING", "INT", "DATE", "BOOLEAN", "BIGINT")
VALUE_TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT", "STRING", "STRING", "VARCHAR(12)", "CHAR(4)", "DATE", "DECIMAL(10, 2)", "DECIMAL(28, 6)",
               "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIME(0)", "TIME(3)",
               "DOUBLE", "FLOAT", "BOOLEAN", "BYTES", "BINARY(4)", "ARRAY<INT>", "ARRAY<STRING>", "ARRAY<DOUBLE>", "ARRAY<DECIMAL(20, 3)>",
               "ARRAY<DATE>", "ROW<x INT, y STRING>", "MAP<STRING, INT>")  # fmt: skip

STATES = ("complete", "partial", "damaged", "stale", "complete", "unbuilt", "complete")
ALL_FORMATS = ("parquet", "orc", "avro")
FORMATS = (*ALL_FORMATS, "mixed")
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "aggregation": {"merge-engine": "aggregation"},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "deduplicate by a field": {"sequence.field": "s"},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}
ENGINE_OF_SEEDS = (
    "deduplicate", "aggregation", "partial-update", "deduplicate", "first-row", "deduplicate by a field", "deduplicate", "partial-update",
    "aggregation",
)  # fmt: skip
KINDS: Mapping[str, Mapping[str, str]] = {
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "merged": {},
    "merge-on-read": {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "deletion-vectors.bitmap64": ("true", "false"),
    "num-sorted-run.compaction-trigger": ("2", "3", "5"),
    "num-levels": ("3", "4"),
    "target-file-size": ("4 kb", "16 kb"),
    "file.compression": ("none", "snappy", "zstd"),
    "metadata.stats-mode": ("none", "counts", "full", "truncate(2)"),
    "metadata.stats-dense-store": ("false",),
    "btree-index.block-size": ("1 b", "64 b"),
    "btree-index.compression": ("zstd", "lz4"),
    "bitmap-index.dictionary-block-size": ("1 b", "64 b"),
    "multivalue-index.dictionary-block-size": ("64 b",),
    "fm-index.partition-row-count": ("17",),
    "fm-index.locate-cost-ratio": ("1",),
    "data-file.thin-mode": ("true",),
}
CASTS: Mapping[str, tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    "TINYINT": (("INT", int), ("BIGINT", int)),
    "SMALLINT": (("INT", int), ("DOUBLE", float)),
    "INT": (("BIGINT", int), ("STRING", str)),
    "FLOAT": (("DOUBLE", float),),
    "DATE": (("TIMESTAMP(6)", lambda days: days * 86_400 * 10**9),),
    "DECIMAL(10, 2)": (("DECIMAL(14, 4)", lambda value: value.quantize(Decimal("0.0001"))),),
    "VARCHAR(12)": (("STRING", str),),
    "TIMESTAMP(0)": (("TIMESTAMP(3)", int), ("TIMESTAMP(9)", int)),
    "TIMESTAMP(3)": (("TIMESTAMP(6)", int),),
    "BOOLEAN": (("STRING", lambda value: str(value).lower()),),
}
"""Type -> what a column of it may become, and its values with it."""

PEERS_MISREAD = frozenset({"TIMESTAMP(0)", "TIMESTAMP(9)"})
PEERS_MISREAD_AS_TIMES = frozenset({"DATE"})
"""Columns of these types become times beyond what nanoseconds can count."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """What a batch reader sees of a snapshot."""

    schema: TableSchema
    rows: list[Row]


@dataclass(frozen=True)
class Drawn:
    """What a seed makes of a table before there is one; `random` goes on from there."""

    random: Random
    engine: str
    file_format: str
    state: str
    definitions: Mapping[str, str]
    schema: Mapping[str, Any]

    @staticmethod
    def of(seed: int, for_peers: bool = False) -> Drawn:
        random = Random(f"asked {seed}")
        engine = ENGINE_OF_SEEDS[seed % len(ENGINE_OF_SEEDS)]
        file_format = FORMATS[seed % len(FORMATS)]
        state = STATES[seed % len(STATES)]
        kind = "merged" if engine == "first-row" else random.choices(list(KINDS), [10, 1, 1])[0]
        if kind != "deletion vectors":
            state = "none"
        columns = _columns(random, file_format, set(VALUE_TYPES) - PEERS_MISREAD if for_peers else VALUE_TYPES)
        of_engine = {key: text for key, text in ENGINES[engine].items() if key != "ignore-delete" or not for_peers}
        options = {"bucket": random.choice("112"), "write-only": "true", **of_engine, **KINDS[kind]}
        options |= {key: random.choice(values) for key, values in CHOICES.items() if random.random() < 0.2}
        if file_format == "mixed":
            options["file.format.per.level"] = "0:avro,1:orc,2:parquet,3:orc"
        else:
            options["file.format"] = file_format
        if engine == "aggregation":
            options |= _functions(random, columns)
        definitions = _definitions(random, columns) if state != "none" else {}
        if "pk-fm.index.columns" in definitions and random.random() < 0.7:
            options["fm-index.locate-cost-ratio"] = "1"  # else FM tells of such small tables only what is nowhere
        if state in ("complete", "damaged", "stale"):
            options |= definitions
        keys = [name for name in columns if name[0] in "pk"]
        names = list(columns)
        if random.random() < 0.3:
            random.shuffle(names)
        schema = {
            "fields": [{"name": name, "type": str(columns[name])} for name in names],
            "partitionKeys": [name for name in keys if name[0] == "p"],
            "primaryKeys": keys,
            "options": options,
        }
        return Drawn(random, engine, file_format, state, definitions, schema)

    @property
    def families(self) -> list[str]:
        return [key.split(".")[0].removeprefix("pk-") for key in self.definitions]


@dataclass
class AskedTable:
    """A table, and all records that were written into it, by key; values in the order of the latest schema."""

    uri: str
    random: Random
    engine: str
    state: str
    definitions: Mapping[str, str]
    keys: list[tuple[Any, ...]]
    pools: dict[int, list[Any]]
    for_peers: bool = False
    records: dict[Any, list[Record]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0
    visible: list[tuple[Any, ...]] = field(default_factory=list)
    evolved: bool = False
    history: dict[int, Seen] = field(default_factory=dict)

    @staticmethod
    def make(directory: Path, seed: int, for_peers: bool = False) -> AskedTable:
        """The table of a seed; consecutive seeds go through engines, formats and states of coverage at different paces.

        `for_peers`: without times that pypaimon and pypaimon-rust hold as nanoseconds, or cut to microseconds, and without ignored deletes.
        """
        drawn = Drawn.of(seed, for_peers)
        schema = maintainer.create_table(str(directory / "db.db" / "t"), drawn.schema)
        made = AskedTable(schema.store.uri, drawn.random, drawn.engine, drawn.state, drawn.definitions, [], {}, for_peers)
        made._draw_pools(schema.schema)
        return made

    @property
    def table(self) -> maintainer.Table:
        return maintainer.open_table(self.uri)

    @property
    def indexed(self) -> list[str]:
        """The columns that have, or had, a definition."""
        return [name for text in self.definitions.values() for name in text.split(",")]

    def live(self) -> None:
        """All that happens to the table before it is asked."""
        random = self.random
        for _ in range(random.randrange(1, 4)):
            for _ in range(random.randrange(1, 4)):
                self.write(random.choice([3, 30, 150]))
            if random.random() < 0.3:
                self.change_schema()
            self.compact()
        getattr(self, f"_become_{self.state}")()
        if random.random() < 0.5:
            self.write(random.choice([3, 40]))

    def write(self, most: int) -> None:
        random, schema = self.random, self.table.schema
        of_key = {name: at for at, name in enumerate(schema.primary_keys)}
        kinds, rows = [], []
        for _ in range(random.randrange(1, most + 1)):
            key = random.choice(self.keys)
            row = tuple(key[of_key[f.name]] if f.name in of_key else self._value(f) for f in schema.fields)
            kind = random.choice(["+I", "+I", "+U", "-D"] if self._takes_deletes(schema) else ADDS)
            if kind in ADDS or schema.options.get("ignore-delete") != "true":
                self.records[_key(key)].append(Record(kind, self.count, row))
            self.count += 1
            kinds.append(kind)
            rows.append(row)
        with self.table.writer() as writer:
            writer.write(arrow(schema.fields, rows).append_column(KIND_FIELD.name, pa.array(kinds)))
        if not TableOptions.of(schema).hides_level_0:
            self.visible = self._merged(schema)
        self._remember()

    def compact(self, **how: Any) -> None:
        """A pass of some kind; all of them leave nothing at level 0."""
        how = how or self.random.choice([{}, {}, {"full": True}, {"rewrite_append": False}])
        report = self.table.maintain(**how)
        assert report.outcome in ("committed", "nothing"), report
        self.visible = self._merged(self.table.schema)
        self._remember()

    def change_schema(self) -> None:
        """One change of a column that no key, index or function depends on."""
        random, schema = self.random, self.table.schema
        bound = {*schema.primary_keys, "s", *self.indexed}
        bound |= {key.split(".")[1] for key in schema.options if key.startswith("fields.") and key.count(".") > 1}
        free = [f for f in schema.fields if f.name not in bound]
        castable = [f for f in free if str(f.type) in CASTS and not (self.for_peers and str(f.type) in PEERS_MISREAD_AS_TIMES)]
        match random.choice(["add", "rename", "drop", "cast", "cast"]):
            case "rename" if free:
                self._alter(changes.rename_column(random.choice(free).name, f"r{schema.id}"))
            case "drop" if len(free) > 2:
                at = schema.names.index(random.choice(free).name)
                self._alter(changes.drop_column(schema.names[at]), lambda row: row[:at] + row[at + 1 :])
            case "cast" if castable and "merge-engine" not in schema.options:
                chosen = random.choice(castable)
                (name, cast), at = random.choice(CASTS[str(chosen.type)]), schema.names.index(chosen.name)
                if not held(type_(name)):
                    return
                self._alter(
                    changes.alter_type(chosen.name, name),
                    lambda row: (*row[:at], None if row[at] is None else cast(row[at]), *row[at + 1 :]),
                )
                self.pools[chosen.id] = [None if value is None else cast(value) for value in self.pools[chosen.id]]
            case _:
                data_type = type_(random.choice(VALUE_TYPES))
                if self.for_peers and str(data_type) in PEERS_MISREAD:
                    return
                if held(data_type) and is_scalar(data_type):
                    self._alter(changes.add_column(f"a{schema.id}", data_type), lambda row: (*row, None))
        self._draw_pools(self.table.schema)

    def seen(self) -> Seen:
        """What a batch reader sees now."""
        return _seen(self.table.schema, self.visible)

    # states of coverage

    def _become_none(self) -> None:
        """As it is."""

    def _become_complete(self) -> None:
        self.compact(full=self.random.random() < 0.3)

    def _become_unbuilt(self) -> None:
        set_options(self.uri, **self.definitions)

    def _become_partial(self) -> None:
        set_options(self.uri, **self.definitions)
        self.compact(index_only=True, columns=self.indexed[: max(1, len(self.indexed) // 2)])
        self.write(60)
        self.compact(rewrite_append=False)

    def _become_stale(self) -> None:
        self.compact()
        set_options(self.uri, **dict.fromkeys(self.definitions))
        self.write(60)
        self.compact(**self.random.choice([{"full": True}, {}]))
        set_options(self.uri, **self.definitions)

    def _become_damaged(self) -> None:
        self._become_complete()
        self.damage()

    def damage(self) -> list[str]:
        """Spoils some payloads of the latest snapshot; what was done to each."""
        store, done = self.table.store, []
        state = self.table._state()
        for bucket in state.buckets.values():
            for payload in bucket.payloads:
                if self.random.random() < 0.5:
                    path = Path(store.uri) / store.layout.index_file_path(payload, bucket.partition, bucket.bucket)
                    done.append(spoil(self.random, path))
        return done

    # what the model needs

    def _takes_deletes(self, schema: TableSchema) -> bool:
        return self.engine == "deduplicate" or schema.options.get("ignore-delete") == "true"

    def _value(self, of: DataField) -> Any:
        return self.random.choice(self.pools[of.id]) if of.id in self.pools else None

    def _draw_pools(self, schema: TableSchema) -> None:
        """A few values for each column, and keys that come back."""
        random = self.random
        for f in schema.fields:
            if f.name not in schema.primary_keys and f.id not in self.pools:
                small = f.name in ("s", "n")  # which are added up
                draw = (lambda f: random.choice([None, -2, 0, 1, 3])) if small else (lambda f: held_value(random, f.type))
                self.pools[f.id] = [draw(f) for _ in range(random.choice([2, 6, 20]))]
        if not self.keys:
            few = {name: [held_value(random, schema.field(name).type) for _ in range(3)] for name in schema.partition_keys}
            for _ in range(random.choice([8, 40, 120])):
                key = [random.choice(few[n]) if n in few else held_value(random, schema.field(n).type) for n in schema.primary_keys]
                self.keys.append(tuple(key))

    def _merged(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        merged = [merge(schema.options, schema.fields, schema.primary_keys, records) for records in self.records.values() if records]
        return [row.values for row in merged if row is not None and row.kind in ADDS]

    def _alter(self, change: Any, moved: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda row: row) -> None:
        self.table.alter(change)
        self.evolved = True
        for key, records in self.records.items():
            self.records[key] = [replace(record, values=moved(record.values)) for record in records]
        self.visible = [moved(row) for row in self.visible]

    def _remember(self) -> None:
        store = self.table.store
        snapshot = store.latest_snapshot()
        if snapshot is not None and store.schema_of(snapshot).fields == self.table.schema.fields:
            self.history[snapshot.id] = _seen(store.schema_of(snapshot), self.visible)


def held(data_type: DataType, formats: Sequence[str] = ALL_FORMATS) -> bool:
    """Whether files of these formats have such columns."""
    return not any(list(unheld(each, [DataField(0, "x", data_type)])) for each in formats)


def held_value(random: Random, data_type: DataType) -> Any:
    """A value that files of every format can hold: ORC knows no times of the last second before 1970."""
    value = random_value(random, data_type)
    return -value if data_type.root in TIMESTAMPS and value is not None and -(10**9) < value < 0 else value


def spoil(random: Random, path: Path) -> str:
    """Something that happens to a file."""
    data = bytearray(path.read_bytes())
    what = random.choice(["gone", "empty", "cut", "other bytes", "a flipped bit", "longer"])
    at = random.randrange(len(data) or 1)
    match what:
        case "gone":
            path.unlink()
            return what
        case "empty":
            data = bytearray()
        case "cut":
            del data[at:]
        case "other bytes":
            data[at : at + 8] = random.randbytes(8)
        case "a flipped bit" if data:
            data[at] ^= 1 << random.randrange(8)
        case "longer":
            data += random.randbytes(5)
    path.write_bytes(data)
    return what


def arrow(fields: Sequence[DataField], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows of internal values as a table."""
    columns = [to_arrow_array([row[at] for row in rows], f.type) for at, f in enumerate(fields)]
    return pa.table(columns, schema=value_schema(fields))


def as_json(fields: Sequence[DataField], rows: Sequence[Row]) -> list[list[Any]]:
    """The rows as they can be compared."""
    return [list(row.values()) for row in json_rows(arrow(fields, [[row[f.name] for f in fields] for row in rows]), fields)]


def _seen(schema: TableSchema, rows: Sequence[tuple[Any, ...]]) -> Seen:
    return Seen(schema, [dict(zip(schema.names, row, strict=True)) for row in rows])


def _key(key: Sequence[Any]) -> Any:
    return tuple(order_key(value) for value in key)


def _columns(random: Random, file_format: str, value_types: Collection[str]) -> dict[str, DataType]:
    columns = {f"p{i}": type_(random.choice(PARTITION_TYPES)).with_nullable(False) for i in range(random.choice([0, 0, 1, 2]))}
    columns |= {f"k{i}": type_(random.choice(KEY_TYPES)).with_nullable(False) for i in range(random.choice([1, 1, 2]))}
    columns |= {"s": type_("INT"), "n": type_("BIGINT")}
    columns |= {f"v{i}": type_(text) for i, text in enumerate(random.sample(sorted(value_types), random.randrange(4, 12)))}
    formats = ALL_FORMATS if file_format == "mixed" else (file_format,)
    return {name: of if held(of, formats) else type_("INT").with_nullable(of.nullable) for name, of in columns.items()}


def _functions(random: Random, columns: Mapping[str, DataType]) -> dict[str, str]:
    found = {}
    for name, of in columns.items():
        functions = ["last_value", "last_non_null_value", "first_value", "first_non_null_value"]
        if is_scalar(of) and of.root not in BINARIES and of.root is not TypeRoot.BOOLEAN:
            functions += ["max", "min"]
        if of.root is TypeRoot.BOOLEAN:
            functions += ["bool_and", "bool_or"]
        if name == "n":
            functions = ["sum"]
        if name[0] not in "pk":
            found[f"fields.{name}.aggregate-function"] = random.choice(functions)
    return found


def _definitions(random: Random, columns: Mapping[str, DataType]) -> dict[str, str]:
    """Options with some columns of each family, at least one in all."""
    keys = [name for name, of in columns.items() if is_scalar(of) and of.root not in BINARIES and of.root is not TypeRoot.TIME]
    random.shuffle(keys)
    texts = [name for name in keys if columns[name].root in CHARACTERS and random.random() < 0.5][:1]
    keys = [name for name in keys if name not in texts]
    families = {
        "btree": keys[: random.randrange(1, 4)],
        "bitmap": keys[4 : 4 + random.randrange(4)],
        "multivalue": [name for name, of in columns.items() if is_array_of_scalars(of) and random.random() < 0.8],
        "fm": texts,
    }
    return {f"pk-{family}.index.columns": ",".join(names) for family, names in families.items() if names}
