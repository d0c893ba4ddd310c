"""Random tables of every merge engine and random options of compactions: rows are those of the plain model, and a pass on the result of a pass
does nothing (`test_operations` has all types and schema changes for one engine, `tests.maintain.test_liveness` files of any shape).

Records are such that merging some of them before others changes nothing, as it would where a delete is forgotten that a late record should
have met: so it does not matter what a compaction takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.api.maintenance import plan_pass
from maintainer.data.arrow_types import value_schema
from maintainer.maintain.plan import PlanRequest
from maintainer.model.schema import KIND_FIELD
from maintainer.table.options import TableOptions
from tests.support.campaign import share
from tests.support.consumer import followed
from tests.support.merge_model import Record, merge

SEEDS = share("tables of every engine", short=18, long=2000)
ADDS = ("+I", "+U")
COLUMNS = {"p": "STRING", "id": "INT", "a": "STRING", "n": "INT", "s": "INT", "b": "STRING", "t": "INT", "m": "BIGINT", "at": "INT"}
LONG_AGO, FAR_AWAY = 1_000_000_000, 2_000_000_000
"""Seconds: of a record that expires, and of one that does not."""


@dataclass(frozen=True)
class Engine:
    options: Mapping[str, str]
    kinds: tuple[str, ...] = ADDS
    retracts: bool = False
    """Whether what was added before may be retracted."""
    is_first_row: bool = False


ENGINES: Mapping[str, Engine] = {
    "deduplicate": Engine({}, kinds=(*ADDS, "-D", "-U")),
    "deduplicate by a field": Engine({"sequence.field": "s"}),
    "deduplicate by two fields, descending": Engine({"sequence.field": "s,t", "sequence.field.sort-order": "descending"}),
    "deduplicate without deletes": Engine({"ignore-delete": "true"}, kinds=(*ADDS, "-D")),
    "first row": Engine({"merge-engine": "first-row", "ignore-delete": "true"}, kinds=(*ADDS, "-D"), is_first_row=True),
    "partial update": Engine({"merge-engine": "partial-update", "ignore-delete": "true"}, kinds=(*ADDS, "-D")),
    "partial update by groups": Engine(
        {
            "merge-engine": "partial-update",
            "fields.s.sequence-group": "a,n",
            "fields.t.sequence-group": "b",
            "fields.n.aggregate-function": "sum",
        }
    ),
    "aggregation": Engine(
        {
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "fields.m.aggregate-function": "max",
            "fields.b.aggregate-function": "listagg",
            **{f"fields.{column}.ignore-retract": "true" for column in ("m", "a", "b", "s", "t", "at")},
        },
        retracts=True,
    ),
    "aggregation by a field": Engine(
        {
            "merge-engine": "aggregation",
            "sequence.field": "t",
            "fields.default-aggregate-function": "max",
            "fields.n.aggregate-function": "sum",
            "fields.m.aggregate-function": "min",
            "fields.a.aggregate-function": "last_value",
        }
    ),
}
KINDS_OF_TABLES: tuple[Mapping[str, str], ...] = (
    {},
    {"deletion-vectors.enabled": "true"},
    {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
    {"force-lookup": "true"},
    {"compaction.force-up-level-0": "true"},
)
PRODUCERS = {
    (False, False): ("none", "input", "lookup", "full-compaction"),
    (False, True): ("none", "input", "lookup"),
    (True, False): ("none", "lookup"),
}
"""By whether the engine is first-row, and whether there are deletion vectors."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    "bucket": ("2",),
    "num-sorted-run.compaction-trigger": ("1", "2", "3"),
    "num-levels": ("2", "3"),
    "compaction.optimization-interval": ("0 ms", "1 h"),
    "compaction.total-size-threshold": ("10 kb", "1 tb"),
    "compaction.incremental-size-threshold": ("0", "5 kb"),
    "compaction.force-rewrite-all-files": ("true",),
    "compaction.max-size-amplification-percent": ("0", "100000"),
    "lookup-compact": ("gentle",),
    "full-compaction.delta-commits": ("1", "3"),
    "changelog-producer.compaction-interval": ("1 h",),
    "changelog-producer.row-deduplicate": ("true",),
    "target-file-size": ("1 b", "2 kb", "8 kb"),
    "file.compression": ("none",),
    "file.format": ("avro",),
    "data-file.thin-mode": ("true",),
    "metadata.stats-mode": ("none", "counts", "full"),
    "metadata.stats-dense-store": ("false",),
    "deletion-vectors.bitmap64": ("true",),
}


@dataclass
class EveryKind:
    """A table, and all records that were written into it."""

    path: str
    engine: Engine
    random: Random
    records: dict[tuple[Any, ...], list[Record]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0
    visible: list[dict[str, Any]] | None = None
    """What a reader sees that sees nothing of level 0."""

    @staticmethod
    def make(directory: Path, name: str, seed: int, given: Mapping[str, str] | None = None) -> EveryKind:
        """`given`: options that are not left to chance; records do not expire then."""
        random, engine = Random(f"{name} {seed}"), ENGINES[name]
        options = {"bucket": "1", **engine.options}
        if not engine.is_first_row:
            kinds = KINDS_OF_TABLES
            if given is not None and given.get("changelog-producer") == "full-compaction":
                kinds = tuple(kind for kind in kinds if "deletion-vectors.enabled" not in kind)
            options |= random.choice(kinds)
        takes = engine.is_first_row, "deletion-vectors.enabled" in options
        options["changelog-producer"] = random.choice(PRODUCERS[takes])
        options |= {key: random.choice(values) for key, values in CHOICES.items() if random.random() < 0.25}
        has_level_0_hidden = "deletion-vectors.enabled" in options and "deletion-vectors.merge-on-read" not in options
        if has_level_0_hidden and random.random() < 0.4:
            options |= {"pk-btree.index.columns": "n", "pk-bitmap.index.columns": "b"}
        if given is None and random.random() < 0.15:
            options |= {"record-level.expire-time": "1 h", "record-level.time-field": "at"}
        options |= given or {}
        table = maintainer.create_table(
            str(directory / "t"),
            {
                "fields": [{"name": column, "type": kind} for column, kind in COLUMNS.items()],
                "primaryKeys": ["p", "id"],
                "partitionKeys": ["p"] if random.random() < 0.3 else [],
                "options": options,
            },
        )
        return EveryKind(table.store.uri, engine, random)

    @property
    def table(self) -> maintainer.Table:
        return maintainer.open_table(self.path)

    @property
    def expires(self) -> bool:
        return "record-level.expire-time" in self.table.schema.options

    def write(self, most: int) -> None:
        random, schema = self.random, self.table.schema
        rows, kinds = [], []
        for _ in range(random.randrange(1, most)):
            key = (random.choice("xy"), random.randrange(40))
            n, s, t, m = (random.choice([None, -2, 0, 1, 3]) for _ in range(4))
            if "fields.s.sequence-group" in schema.options:
                s, t = s or 0, t or 0  # a group without a number is lost where it meets another record, and kept where it is alone
            texts = [random.choice([None, "x", "yy", "é😀"]) for _ in range(2)]
            at = LONG_AGO if self.expires and random.random() < 0.1 else FAR_AWAY
            row = (*key, texts[0], n, s, texts[1], t, m, at)
            kind = random.choice([*self.engine.kinds, *(["-U"] if self.engine.retracts and self.records[key] else [])])
            kinds.append(kind)
            rows.append(row)
            if kind in ADDS or schema.options.get("ignore-delete") != "true":
                self.records[key].append(Record(kind, self.count, row))
            self.count += 1
        data = pa.table([list(column) for column in zip(*rows, strict=True)], schema=value_schema(schema.fields))
        with self.table.writer() as writer:
            writer.write(data.append_column(KIND_FIELD.name, pa.array(kinds)))

    def expected(self) -> list[dict[str, Any]]:
        schema = self.table.schema
        merged = [merge(schema.options, schema.fields, schema.primary_keys, records) for records in self.records.values() if records]
        return [dict(zip(schema.names, row.values, strict=True)) for row in merged if row is not None and row.kind in ADDS]

    def check(self, after: str) -> None:
        """What a batch reader sees; with records that expire, of the keys none of which does."""
        table = self.table
        expected = self.expected() if self.visible is None else self.visible
        found = table.scan().to_arrow().to_pylist()
        if self.expires:
            mortal = {key for key, records in self.records.items() if any(record.values[-1] == LONG_AGO for record in records)}
            options = table.schema.options
            has_bounds = options.get("metadata.stats-mode", "full") == "full" and "file.format" not in options
            if after == "full" and has_bounds:  # or a file may have been moved that nobody knows to hold such a row
                assert not [row for row in found if row["at"] == LONG_AGO]
            found, expected = ([row for row in rows if (row["p"], row["id"]) not in mortal] for rows in (found, expected))
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), (after, table.schema.options)

    def maintain(self, full: bool) -> None:
        assert self.table.maintain(full=full).outcome in ("committed", "nothing")
        options = TableOptions.of(self.table.schema)
        self.visible = self.expected() if options.hides_level_0 else None
        self.check("full" if full else "once")
        if options.changelog_producer in ("lookup", "full-compaction") and not self.expires:
            assert sorted(map(repr, followed(self.table.store))) == sorted(map(repr, self.expected())), self.table.schema.options
        latest = self.table.store.latest_snapshot_id()
        again = self.table.maintain()
        assert (again.outcome, self.table.store.latest_snapshot_id()) == ("nothing", latest), (again, self.table.schema.options)
        assert not plan_pass(self.table.store, PlanRequest()).work


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_pass_gives_the_rows_of_the_model_and_the_next_one_does_nothing(seed: int, tmp_path: Path) -> None:
    name = list(ENGINES)[seed % len(ENGINES)]
    made = EveryKind.make(tmp_path, name, seed)
    if TableOptions.of(made.table.schema).hides_level_0:
        made.visible = []
    for _ in range(made.random.randrange(2, 6)):
        for _ in range(made.random.randrange(1, 5)):
            made.write(made.random.choice([3, 30, 200]))
            made.check("a write")
        made.maintain(full=made.random.random() < 0.25)
    made.maintain(full=True)
    verified = made.table.verify(deep=True)
    assert verified.ok, (verified.problems, made.table.schema.options)
