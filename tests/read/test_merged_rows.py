"""Scans of tables whose files are merged while they are read, against the plain model of merging and of predicates: the same rows, whatever is
pruned, pushed below the merge or spilled."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maintainer.data.spill import Spill, SpillFile
from maintainer.model.files import FileSource
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType, TypeRoot
from maintainer.read.decisions import MERGED
from maintainer.read.scan import Scan
from tests.support.built_tables import ONLY_BUCKET, BuiltTable
from tests.support.campaign import share
from tests.support.merge_model import Record, merge
from tests.support.predicates import SCHEMA, holds, predicates

ROUNDS = share("merged scans against the model", short=12, long=400)
KEY = DataField(100, "id", DataType(TypeRoot.INT, nullable=False))
COLUMNS = ("i", "l", "s", "d")
KINDS = ("+I", "-U", "+U", "-D")
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate, deletes ignored": {"ignore-delete": "true"},
    "deduplicate, by a column": {"sequence.field": "l"},
    "deduplicate, by a column, descending": {"sequence.field": "l", "sequence.field.sort-order": "descending"},
    "deduplicate, deletion vectors": {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "partial-update, removing": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "partial-update, groups": {"merge-engine": "partial-update", "ignore-delete": "true", "fields.l.sequence-group": "i,s"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.i.aggregate-function": "last_value",
        "fields.l.aggregate-function": "max",
        "fields.l.ignore-retract": "true",
        "fields.d.aggregate-function": "last_non_null_value",
    },
    "aggregation, lookup": {"merge-engine": "aggregation", "force-lookup": "true", "fields.i.aggregate-function": "last_value"},
}


def schema_of(options: Mapping[str, str]) -> TableSchema:
    fields = (KEY, *(SCHEMA.field(name) for name in COLUMNS))
    return replace(SCHEMA, fields=fields, primary_keys=("id",), options={"bucket": "1", **options})


@dataclass
class Table:
    built: BuiltTable
    rows: list[dict[str, Any]]
    """What a batch reader sees, by the model."""


def build(directory: Path, options: Mapping[str, str], seed: int, keys: int = 60) -> Table:
    """Random files: two levels of which the older one has two files, and some in level 0."""
    source = random.Random(seed)
    schema = schema_of(options)
    built = BuiltTable(directory / "t", schema)
    records: dict[int, list[Record]] = defaultdict(list)
    spans = [(5, 0, keys // 2), (5, keys // 2, keys), (3, 0, keys), *[(0, 0, keys)] * source.randrange(1, 5)]
    vectors = options.get("deletion-vectors.enabled") == "true"
    live: set[int] = set()
    sequence = 0
    for level, low, high in spans:
        picked = sorted(source.sample(range(low, high), source.randrange(1, high - low)))
        if vectors and level:
            picked = [key for key in picked if key not in live] or [-1 - sequence]
            live |= set(picked)
        rows = [{"id": key, **{name: _value(source, name) for name in COLUMNS}} for key in picked]
        kinds = [0 if (level == 5 or (vectors and level)) else source.choice([0, 0, 0, 2, 1, 3]) for _ in picked]
        deleted = source.sample(range(len(picked)), len(picked) // 5) if vectors and level else []
        built.put(
            rows,
            level=level,
            source=FileSource.COMPACT if level else FileSource.APPEND,
            deleted=deleted,
            key=ONLY_BUCKET,
            kinds=kinds,
            first_sequence=sequence,
        )
        for position, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
            if position not in deleted:
                records[row["id"]].append(Record(KINDS[kind], sequence + position, tuple(row.values()), level))
        sequence += len(rows)
    built.publish()
    names = schema.names
    merged = (merge(schema.options, schema.fields, schema.primary_keys, found) for found in records.values())
    return Table(built, [dict(zip(names, row.values, strict=True)) for row in merged if row is not None and row.kind in ("+I", "+U")])


def _value(source: random.Random, name: str) -> Any:
    from tests.support.predicates import VALUES

    return None if source.random() < 0.2 else source.choice(VALUES[name][1])


def bag(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> list[str]:
    return sorted(repr([row[name] for name in columns]) for row in rows)


@pytest.fixture(scope="module", params=ENGINES, ids=list(ENGINES))
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return build(tmp_path_factory.mktemp("merged"), ENGINES[request.param], seed=7)


def test_all_rows_are_those_of_the_model(table: Table) -> None:
    names = table.built.schema.names
    assert bag(Scan(table.built.store).to_arrow().to_pylist(), names) == bag(table.rows, names)
    assert MERGED in {file.decision for file in Scan(table.built.store).explain().files}


def of_splits(scan: Scan) -> list[dict[str, Any]]:
    """The rows of the scan by splits that travelled as bytes."""
    return [row for split in scan.splits() for row in scan.of_split(split.to_bytes()).to_arrow().to_pylist()]


KEY_LEAVES = st.builds(
    lambda op, value: Leaf(op, "id", (value,)), st.sampled_from([Op.EQ, Op.LT, Op.GE, Op.NE]), st.integers(min_value=-2, max_value=61)
) | st.builds(lambda low, size: Leaf(Op.BETWEEN, "id", (low, low + size)), st.integers(0, 60), st.integers(0, 20))


@settings(max_examples=ROUNDS, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(predicates(COLUMNS), KEY_LEAVES, st.sampled_from([And, Or, None]), st.sampled_from([None, ("id",), ("s",), ("d", "id"), ()]))
def test_conditions_and_columns(table: Table, predicate: Predicate, of_key: Leaf, join: Any, columns: tuple[str, ...] | None) -> None:
    where = of_key if join is None else join((predicate, of_key))
    expected = [row for row in table.rows if holds(where, row)]
    found = Scan(table.built.store, where, columns).to_arrow()
    assert found.num_rows == len(expected)
    names = table.built.schema.names if columns is None else columns
    assert bag(found.to_pylist() if names else [], names) == bag(expected if names else [], names)
    if names:
        assert bag(of_splits(Scan(table.built.store, where, columns)), names) == bag(expected, names)


@pytest.mark.parametrize("seed", range(share("merged tables of a random shape", short=3, long=200)))
def test_random_tables(seed: int, tmp_path: Path) -> None:
    for number, (name, options) in enumerate(ENGINES.items()):
        (tmp_path / str(number)).mkdir()
        table = build(tmp_path / str(number), options, seed * 100 + number, keys=20 + seed % 40)
        names = table.built.schema.names
        assert bag(Scan(table.built.store).to_arrow().to_pylist(), names) == bag(table.rows, names), (name, seed)
        assert bag(of_splits(Scan(table.built.store)), names) == bag(table.rows, names), (name, seed)


class CountingSpill(Spill):
    """How many files it was asked for, and how much went there."""

    files = written = 0

    def file(self) -> SpillFile:
        self.files += 1
        made = super().file()
        append = made.append

        def counted(batch: pa.RecordBatch) -> int:
            self.written += batch.nbytes
            return append(batch)

        made.append = counted  # type: ignore[method-assign]
        return made


def test_what_does_not_fit_is_spilled(tmp_path: Path) -> None:
    """Wide rows of several runs, and a budget of far fewer bytes than they have."""
    schema = schema_of({"merge-engine": "partial-update", "ignore-delete": "true"})
    built = BuiltTable(tmp_path / "t", schema)
    expected: dict[Any, dict[str, Any]] = {}
    for run in range(40):
        rows = [{"id": key, "i": run, "l": None, "s": f"{run} {key} " * 150 if key % 40 == run else None, "d": None} for key in range(1500)]
        built.put(rows, level=0, source=FileSource.APPEND, key=ONLY_BUCKET, kinds=[0] * len(rows), first_sequence=run * len(rows))
        expected |= {row["id"]: {**expected.get(row["id"], {}), **{k: v for k, v in row.items() if v is not None}} for row in rows}
    built.publish()
    spill = CountingSpill(str(tmp_path))
    found = Scan(built.store, memory=1 << 20, spill=spill).to_arrow().to_pylist()
    assert {row["id"]: {k: v for k, v in row.items() if v is not None} for row in found} == expected
    assert len(found) == 1500
    assert spill.files and spill.written > 1 << 20


def test_deletes_that_nobody_counted_are_taken_out_of_files_that_overlap_nothing(tmp_path: Path) -> None:
    """Old writers did not count them."""
    built = BuiltTable(tmp_path / "t", schema_of({}))
    for level, first in ((0, 0), (3, 10)):
        rows = [{"id": first + i, "i": i, "l": None, "s": None, "d": None} for i in range(6)]
        (file,) = built.put(rows, level=level, kinds=[3 if i % 2 else 0 for i in range(6)])
        built.change(file, delete_row_count=None)
    built.publish()
    scan = Scan(built.store, columns=["id"])
    assert {file.decision for file in scan.plan().files} == {MERGED}
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [0, 2, 4, 10, 12, 14]
    assert sorted(id_ for split in scan.splits() for id_ in split.to_arrow()["id"].to_pylist()) == [0, 2, 4, 10, 12, 14]


@pytest.mark.parametrize(
    "options, older, newer, where",
    [
        ({"merge-engine": "partial-update"}, (5, None), (None, "x"), "i = 5 AND s = 'x'"),
        ({"merge-engine": "aggregation", "fields.i.aggregate-function": "sum"}, (1, None), (2, None), "i = 3"),
    ],
)
def test_what_files_do_not_hold_by_themselves_may_come_out_of_them_together(
    tmp_path: Path, options: Mapping[str, str], older: tuple[Any, Any], newer: tuple[Any, Any], where: str
) -> None:
    """Statistics of single files say nothing of it, unless they are about the key."""
    built = BuiltTable(tmp_path / "t", schema_of(options))
    for level, (i, s) in ((5, older), (3, newer)):
        built.put([{"id": id_, "i": i, "l": None, "s": s, "d": None} for id_ in (1, 2)], level=level, first_sequence=10 - level)
    built.publish()
    assert Scan(built.store, where, columns=["id"]).to_arrow()["id"].to_pylist() == [1, 2]
    assert Scan(built.store, f"({where}) AND id = 2", columns=["id"]).to_arrow()["id"].to_pylist() == [2]
    scan = Scan(built.store, f"({where}) AND id = 3")
    assert scan.to_arrow().num_rows == 0 and not scan.plan().to_read
