"""Random operations on one table against a dict model.

Operations: write, update, delete, a pass, a full compaction, schema changes, queries with and without indexes. What a batch reader sees of a
deletion-vector table is the state of the last pass: level 0 is invisible. So the model holds two dicts, all rows written and the rows visible,
and a pass makes the second equal to the first.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import maintainer
from maintainer.data.arrow_types import value_schema
from maintainer.data.values import json_rows, to_arrow_array
from maintainer.model.schema import TableSchema
from maintainer.model.types import CHARACTERS, FLOATS, INTEGERS, TIMESTAMPS, DataField, DataType, TypeRoot
from maintainer.model.values import order_key, order_keys
from tests.peers.readers import bag
from tests.support.builders import type_
from tests.support.campaign import is_long, share
from tests.support.evolve import add_column, drop_column, rename_column
from tests.support.random_rows import random_row, random_value

KEY_TYPES = [
    "INT", "BIGINT", "STRING", "SMALLINT", "TINYINT", "DATE", "DECIMAL(12, 2)", "DECIMAL(25, 3)", "TIMESTAMP(3)", "TIMESTAMP(6)", "DOUBLE",
    "BOOLEAN", "VARBINARY(12)", "CHAR(3)", "TIME(3)", "FLOAT", "BINARY(4)", "TIMESTAMP(9)", "TIMESTAMP(3) WITH LOCAL TIME ZONE",
]  # fmt: skip
PARTITION_TYPES = ["STRING", "INT", "DATE", "BOOLEAN", "BIGINT", "DECIMAL(10, 2)", "DOUBLE", "TIMESTAMP(6)", "TIME(3)"]
VALUE_TYPES = [
    "INT", "BIGINT", "STRING", "SMALLINT", "DATE", "DECIMAL(10, 2)", "DECIMAL(28, 6)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIME(0)", "DOUBLE", "FLOAT", "BOOLEAN", "BYTES", "ARRAY<INT>", "ARRAY<STRING>", "ARRAY<DOUBLE>",
    "ARRAY<DECIMAL(20, 3)>", "ARRAY<TIMESTAMP(6)>", "ARRAY<DATE>", "ARRAY<BOOLEAN>", "ARRAY<ROW<a INT, b STRING>>",
    "ROW<x INT, y STRING>", "MAP<STRING, INT>", "MULTISET<STRING>",
]  # fmt: skip
INDEXABLE = {*INTEGERS, *FLOATS, *CHARACTERS, *TIMESTAMPS, TypeRoot.DATE, TypeRoot.TIME, TypeRoot.DECIMAL, TypeRoot.BOOLEAN}
EXAMPLES = share("random operations: tables", short=30, long=400)
STEPS = share("random operations: steps a table", short=25, long=40)


class Operations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="operations-"))
        self.written: dict[Any, tuple[Any, ...]] = {}
        self.visible: dict[Any, tuple[Any, ...]] = {}

    def teardown(self) -> None:
        if hasattr(self, "path"):
            self.check_rows()
            verified = self.table.verify(deep=True)
            assert verified.ok, verified.problems
        shutil.rmtree(self.directory, ignore_errors=True)

    @initialize(seed=st.integers(0, 2**32))
    def create(self, seed: int) -> None:
        random = Random(seed)
        partitions = [f"p{i}" for i in range(random.choice([0, 0, 1, 2]))]
        keys = [f"k{i}" for i in range(random.choice([1, 1, 2]))]
        values = [f"v{i}" for i in range(random.randrange(1, 6))]
        columns: dict[str, DataType] = {name: type_(random.choice(PARTITION_TYPES)).with_nullable(False) for name in partitions}
        columns |= {name: type_(random.choice(KEY_TYPES)).with_nullable(False) for name in keys}
        columns |= {name: type_(random.choice(VALUE_TYPES)) for name in values}
        options = {"bucket": str(random.choice([1, 1, 2, 3])), "deletion-vectors.enabled": "true"}
        for key, choices in {
            "deletion-vectors.bitmap64": ["true", "false"],
            "num-sorted-run.compaction-trigger": ["2", "3", "5"],
            "target-file-size": ["8 kb", "64 kb"],
            "file.compression": ["none", "snappy", "zstd"],
            "metadata.stats-mode": ["none", "counts", "full", "truncate(2)"],
            "btree-index.block-size": ["1 b", "64 b"],
            "btree-index.compression": ["zstd"],
            "bitmap-index.dictionary-block-size": ["1 b", "64 b"],
            "write-only": ["true"],
        }.items():
            if random.random() < 0.3:
                options[key] = random.choice(choices)
        indexable = [name for name, data_type in columns.items() if data_type.root in INDEXABLE]
        random.shuffle(indexable)
        btree, bitmap = indexable[: random.randrange(3)], indexable[3 : 3 + random.randrange(3)]
        arrays = [name for name, data_type in columns.items() if holds_keys(data_type) and random.random() < 0.7]
        families = {"btree": btree, "bitmap": bitmap, "multivalue": arrays}
        options |= {f"pk-{family}.index.columns": ",".join(names) for family, names in families.items() if names}
        names = list(columns)
        if random.random() < 0.3:
            random.shuffle(names)
        self.path = str(self.directory / "db.db" / "t")
        schema = maintainer.create_table(
            self.path,
            {
                "fields": [{"name": name, "type": str(columns[name])} for name in names],
                "partitionKeys": partitions,
                "primaryKeys": partitions + keys,
                "options": options,
            },
        ).schema
        self.key_pool = [random_row(random, tuple(schema.field(n) for n in schema.primary_keys)) for _ in range(random.choice([6, 40, 200]))]

    @property
    def table(self) -> Any:
        return maintainer.open_table(self.path)

    @rule(seed=st.integers(0, 2**32), count=st.sampled_from([1, 3, 30, 200]))
    def write(self, seed: int, count: int) -> None:
        random = Random(seed)
        table = self.table
        rows = [self.row(random, table.schema, random.choice(self.key_pool)) for _ in range(count)]
        with table.writer() as writer:
            writer.write(arrow(table.schema.fields, rows))
        for row in rows:
            self.written[self.key(table.schema, row)] = row

    @rule(seed=st.integers(0, 2**32), count=st.sampled_from([1, 5, 60]))
    def delete(self, seed: int, count: int) -> None:
        random = Random(seed)
        schema = self.table.schema
        keys = [random.choice(self.key_pool) for _ in range(count)]
        fields = tuple(schema.field(name) for name in self.key_names(schema))
        with self.table.writer() as writer:
            writer.delete(arrow(fields, keys))
        for key in keys:
            self.written.pop(order_keys(key), None)

    @rule()
    def maintain(self) -> None:
        assert self.table.maintain().outcome in ("committed", "nothing")
        self.visible = dict(self.written)
        self.check_rows()
        coverage = self.table.coverage()
        assert coverage.visible_ratio == 1.0, coverage
        assert all(definition.ratio == 1.0 for definition in coverage.definitions), coverage
        assert self.table.maintain().outcome == "nothing"

    @rule()
    def compact_fully(self) -> None:
        assert self.table.maintain(full=True).outcome in ("committed", "nothing")
        self.visible = dict(self.written)
        self.check_rows()

    @rule(seed=st.integers(0, 2**32))
    def query(self, seed: int) -> None:
        random = Random(seed)
        schema = self.table.schema
        candidates = [field for field in schema.fields if field.type.root in INDEXABLE or holds_keys(field.type)]
        if not candidates:
            return
        expression, test = self.condition(random, schema, random.choice(candidates))
        if random.random() < 0.4:
            other, other_test = self.condition(random, schema, random.choice(candidates))
            if random.random() < 0.5:
                expression, test = expression & other, lambda row, a=test, b=other_test: a(row) and b(row)
            else:
                expression, test = expression | other, lambda row, a=test, b=other_test: a(row) or b(row)
        expected = bag(as_json(schema.fields, [row for row in self.visible.values() if test(row)]))
        for use_index in (True, False):
            found = self.table.scan(where=expression, use_index=use_index).to_arrow()
            assert bag(list(row.values()) for row in json_rows(found, schema.fields)) == expected, (expression, use_index)

    def condition(self, random: Random, schema: TableSchema, field: DataField) -> tuple[Any, Callable[[tuple[Any, ...]], bool]]:
        if not holds_keys(field.type):
            return condition(random, schema, field)
        at = schema.names.index(field.name)
        arrays = [row[at] for row in self.visible.values() if row[at]] or [[]]
        elements = [value for value in random.choice(arrays)[:2] if value is not None]
        return array_condition(random, at, field, [*elements, random_value(random, field.type.element.with_nullable(False))])

    @precondition(lambda self: getattr(self, "changes", 0) < 3)
    @rule(seed=st.integers(0, 2**32))
    def change_schema(self, seed: int) -> None:
        random = Random(seed)
        schema = self.table.schema
        self.changes = getattr(self, "changes", 0) + 1
        indexed = {n for option, names in schema.options.items() if option.endswith(".index.columns") for n in names.split(",")}
        free = [f.name for f in schema.fields if f.name not in indexed and f.name not in schema.primary_keys]
        match random.choice(["add", "rename", "drop"]):
            case "rename" if free:
                rename_column(self.path, random.choice(free), f"r{self.changes}")
            case "drop" if len(free) > 1:
                name = random.choice(free)
                at = schema.names.index(name)
                drop_column(self.path, name)
                for rows in (self.written, self.visible):
                    rows.update({key: row[:at] + row[at + 1 :] for key, row in rows.items()})
            case _:
                add_column(self.path, f"a{self.changes}", type_(random.choice(VALUE_TYPES)))
                for rows in (self.written, self.visible):
                    rows.update({key: (*row, None) for key, row in rows.items()})

    def key_names(self, schema: TableSchema) -> tuple[str, ...]:
        return schema.primary_keys

    def row(self, random: Random, schema: TableSchema, key: tuple[Any, ...]) -> tuple[Any, ...]:
        of_key = dict(zip(schema.primary_keys, key, strict=True))
        return tuple(of_key[f.name] if f.name in of_key else random_value(random, f.type) for f in schema.fields)

    def key(self, schema: TableSchema, row: tuple[Any, ...]) -> Any:
        return order_keys(row[schema.names.index(name)] for name in schema.primary_keys)

    def check_rows(self) -> None:
        table = self.table
        found = bag(list(row.values()) for row in json_rows(table.scan().to_arrow(), table.schema.fields))
        expected = bag(as_json(table.schema.fields, list(self.visible.values())))
        assert found == expected, f"only found {list(found - expected)[:3]}, missing {list(expected - found)[:3]}"


def arrow(fields: tuple[DataField, ...], rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [to_arrow_array([row[i] for row in rows], field.type) for i, field in enumerate(fields)]
    return pa.table(columns, schema=value_schema(fields))


def as_json(fields: tuple[DataField, ...], rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(row.values()) for row in json_rows(arrow(fields, rows), fields)]


def condition(random: Random, schema: TableSchema, field: DataField) -> tuple[Any, Callable[[tuple[Any, ...]], bool]]:
    """A condition on one column, and the same as a test of a row of internal values."""
    at = schema.names.index(field.name)
    column = maintainer.col(field.name)
    a, b = (random_value(random, field.type.with_nullable(False)) for _ in range(2))

    def on_value(test: Callable[[Any], bool]) -> Callable[[tuple[Any, ...]], bool]:
        return lambda row: row[at] is not None and test(order_key(row[at]))

    x, y = order_key(a), order_key(b)
    literal, other = as_literal(a, field.type), as_literal(b, field.type)
    choices: list[tuple[Any, Callable[[tuple[Any, ...]], bool]]] = [
        (column == literal, on_value(lambda v: v == x)),
        (column != literal, on_value(lambda v: v != x)),
        (column < literal, on_value(lambda v: v < x)),
        (column >= literal, on_value(lambda v: v >= x)),
        (column.isin([literal, other]), on_value(lambda v: v in (x, y))),
        (column.notin([literal, other]), on_value(lambda v: v not in (x, y))),
        (column.between(literal, other), on_value(lambda v: x <= v <= y)),
        (column.is_null(), lambda row: row[at] is None),
        (column.is_not_null(), lambda row: row[at] is not None),
    ]
    if field.type.root in CHARACTERS:
        prefix = a[:2]
        choices.append((column.startswith(prefix), lambda row: row[at] is not None and row[at].startswith(prefix)))
        choices.append((column.contains(prefix), lambda row: row[at] is not None and prefix in row[at]))
    return random.choice(choices)


def holds_keys(data_type: DataType) -> bool:
    return data_type.root is TypeRoot.ARRAY and data_type.element is not None and data_type.element.root in INDEXABLE


def array_condition(random: Random, at: int, field: DataField, elements: list[Any]) -> tuple[Any, Callable[[tuple[Any, ...]], bool]]:
    """As `condition`, for a column of arrays."""
    column = maintainer.col(field.name)
    keys = {order_key(value) for value in elements}
    literals = [as_literal(value, field.type.element) for value in elements]

    def on_elements(test: Callable[[set[Any]], bool]) -> Callable[[tuple[Any, ...]], bool]:
        return lambda row: row[at] is not None and test({order_key(value) for value in row[at] if value is not None})

    first = order_key(elements[0])
    return random.choice(
        [
            (column.array_contains(literals[0]), on_elements(lambda found: first in found)),
            (column.arrays_overlap(literals), on_elements(lambda found: bool(keys & found))),
            (column.array_contains_all(literals), on_elements(lambda found: keys <= found)),
            (column.array_contains_all(literals[:-1]), on_elements(lambda found: {order_key(value) for value in elements[:-1]} <= found)),
            (column.is_null(), lambda row: row[at] is None),
        ]
    )


def as_literal(value: Any, data_type: DataType) -> Any:
    """What a Python user would write for an internal value."""
    return to_arrow_array([value], data_type)[0]


TestOperations = Operations.TestCase
TestOperations.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    derandomize=not is_long(),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
