"""A scan finds the same rows with indexes, without them, and in a plain model, for random predicates over every type that can be indexed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from structlog.testing import capture_logs

from maintainer.format.key_bytes import KEY_TYPES
from maintainer.model.files import FileSource
from maintainer.model.predicate import And, Leaf, Op, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.types import CHARACTERS, DataField, DataType, TypeRoot
from maintainer.read.decisions import INDEXED, PRUNED
from maintainer.read.expression import col
from maintainer.read.scan import Scan
from tests.support.built_tables import BuiltTable
from tests.support.campaign import share
from tests.support.predicates import ELEMENTS, SCHEMA, VALUES, WORDS, holds, predicates

ROUNDS = share("indexes against the model", short=40, long=3_000)
INDEXABLE = [name for name, (data_type, _) in VALUES.items() if data_type.root in KEY_TYPES]
POOLS: dict[str, list[Any]] = {"ai": VALUES["i"][1], "as_": WORDS, "ad": VALUES["d"][1]}
TEXTS = [name for name in INDEXABLE if VALUES[name][0].root in CHARACTERS]
KEY = DataField(100, "id", DataType(TypeRoot.INT, nullable=False))


@dataclass
class Table:
    built: BuiltTable
    rows: list[dict[str, Any]]
    """What a batch reader sees."""


def schema_with(btree: list[str], bitmap: list[str], fm: list[str]) -> TableSchema:
    options = {
        "bucket": "2",
        "deletion-vectors.enabled": "true",
        "pk-btree.index.columns": ",".join(btree),
        "pk-bitmap.index.columns": ",".join(bitmap),
        "pk-multivalue.index.columns": ",".join(ELEMENTS),
        "pk-fm.index.columns": ",".join(fm),
        "fm-index.locate-cost-ratio": "1",  # so that they answer about few rows
        "fm-index.sa-sample-rate": "1",
        "fm-index.partition-row-count": "17",
        "btree-index.block-size": "64 b",
        "bitmap-index.dictionary-block-size": "64 b",
        "multivalue-index.dictionary-block-size": "64 b",
        "metadata.stats-mode": "none",  # so that files reach the indexes
    }
    return replace(SCHEMA, fields=(KEY, *SCHEMA.fields), primary_keys=("id",), options=options, highest_field_id=100)


def random_row(source: random.Random, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {name: None if source.random() < 0.15 else source.choice(pool) for name, (_, pool) in VALUES.items()}
    for name in ELEMENTS:
        row[name] = None if source.random() < 0.2 else [source.choice([None, *POOLS[name]]) for _ in range(source.randrange(4))]
    return {"id": number, **row}


@pytest.fixture(scope="module", params=[0, 1, 2], ids=["btree first", "bitmap first", "fm"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    source = random.Random(request.param)
    fm = TEXTS if request.param == 2 else []
    others = [name for name in INDEXABLE if name not in fm]
    halves = [others[::2], others[1::2]]
    lists = (halves[request.param % 2], halves[1 - request.param % 2], fm)
    built = BuiltTable(tmp_path_factory.mktemp("indexed") / "t", schema_with(*lists))
    seen = []
    number = 0
    for level, size, kind in ((5, 60, FileSource.COMPACT), (5, 30, FileSource.COMPACT), (3, 25, FileSource.COMPACT), (2, 8, FileSource.APPEND)):
        rows = [random_row(source, number + i) for i in range(size)]
        number += size
        metas = built.put(rows, level=level, source=kind)
        for meta in metas:
            if source.random() < 0.8:
                gone = set(source.sample(range(meta.row_count), k=max(1, meta.row_count // 7)))
                positions = built.delete(meta, gone)
                rows = [row for row in rows if row["id"] not in positions]
        seen += rows
    built.put([random_row(source, number + i) for i in range(10)], level=0, source=FileSource.APPEND)
    built.index()
    built.publish()
    return Table(built, seen)


def found(table: Table, predicate: Predicate, **how: Any) -> list[int]:
    with capture_logs() as logs:
        ids = Scan(table.built.store, predicate, ["id"], **how).to_arrow()["id"].to_pylist()
    assert logs == []
    return sorted(ids)


@settings(max_examples=ROUNDS, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(predicates([*INDEXABLE, *ELEMENTS]))
def test_random_predicates_of_indexed_columns(table: Table, predicate: Predicate) -> None:
    expected = sorted(row["id"] for row in table.rows if holds(predicate, row))
    assert found(table, predicate) == expected
    assert found(table, predicate, use_index=False) == expected


@settings(max_examples=ROUNDS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(predicates())
def test_random_predicates_of_all_columns(table: Table, predicate: Predicate) -> None:
    expected = sorted(row["id"] for row in table.rows if holds(predicate, row))
    assert found(table, predicate) == expected


@pytest.mark.parametrize("name", INDEXABLE)
def test_every_value_is_found_through_the_index(table: Table, name: str) -> None:
    for value in VALUES[name][1]:
        for op in (Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.NE):
            leaf = Leaf(op, name, (value,))
            assert found(table, leaf) == sorted(row["id"] for row in table.rows if holds(leaf, row))
    plan = Scan(table.built.store, Leaf(Op.EQ, name, (VALUES[name][1][0],))).explain()
    decisions = [file.decision for file in plan.files if file.reason.startswith("index:")]
    assert len(decisions) == 6  # two buckets with three covered files each
    assert set(decisions) <= {INDEXED, PRUNED}


@pytest.mark.parametrize("needle", [b"", b"a", b"\xc3", b"\xa9", b"\xf0\x9f", b"\x98\x80b", b"\xff", "é".encode(), "a😀b".encode()])
def test_bytes_of_texts_that_are_no_text_by_themselves_are_found(table: Table, needle: bytes) -> None:
    for test, holds_for in (("contains", bytes.__contains__), ("startswith", bytes.startswith), ("endswith", bytes.endswith)):
        for name in TEXTS:
            expected = sorted(row["id"] for row in table.rows if row[name] is not None and holds_for(row[name].encode(), needle))
            condition = getattr(col(name), test)(needle)
            for use_index in (True, False):
                assert sorted(Scan(table.built.store, condition, ["id"], use_index=use_index).to_arrow()["id"].to_pylist()) == expected


@pytest.mark.parametrize("name", ELEMENTS)
def test_every_element_is_found_through_the_index(table: Table, name: str) -> None:
    pool = POOLS[name]
    leaves = [Leaf(Op.ARRAY_CONTAINS, name, (value,)) for value in pool]
    leaves += [
        Leaf(op, name, (first, second)) for op in (Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL) for first in pool[:2] for second in pool[::3]
    ]
    for leaf in leaves:
        expected = sorted(row["id"] for row in table.rows if holds(leaf, row))
        assert found(table, leaf) == expected
        decisions = [file.decision for file in Scan(table.built.store, leaf).explain().files if file.reason.startswith("index")]
        assert len(decisions) == 6  # two buckets with three covered files each
        assert set(decisions) <= {INDEXED, PRUNED}
    for leaf in (Leaf(Op.ARRAY_CONTAINS_ALL, name), Leaf(Op.IS_NULL, name), replace(leaves[0], negated=True)):
        assert not any(file.reason.startswith("index:") for file in Scan(table.built.store, leaf).explain().files)


@pytest.mark.parametrize("prefix", ["", "a", "￿", "😀", "é", "\U0010ffff", "\x7f", "¿"])
def test_prefixes_lose_no_row(table: Table, prefix: str) -> None:
    for leaf in (Leaf(Op.STARTS_WITH, "s", (prefix,)), Leaf(Op.LIKE, "s", (prefix + "%",))):
        assert found(table, leaf) == sorted(row["id"] for row in table.rows if holds(leaf, row))


def test_a_small_fallback_limit_makes_ranges_raw_and_leaves_equality_indexed(table: Table) -> None:
    store = BuiltTable.opened(table.built, {"btree-index.fallback-scan-max-size": "1 b", "bitmap-index.fallback-scan-max-size": "1 b"})
    for leaf, indexed in ((Leaf(Op.EQ, "i", (1,)), True), (Leaf(Op.GT, "i", (0,)), False), (And((Leaf(Op.GT, "i", (0,)),)), False)):
        files = Scan(store, leaf).explain().files
        assert any(file.decision == INDEXED for file in files) == indexed
        ids = sorted(Scan(store, leaf, ["id"]).to_arrow()["id"].to_pylist())
        assert ids == sorted(row["id"] for row in table.rows if holds(leaf, row))
