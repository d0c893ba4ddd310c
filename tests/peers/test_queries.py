"""Random questions to random tables that we keep: pypaimon and pypaimon-rust give the rows that we give, and so does a plain model.

pypaimon is asked twice: as it is, when it never uses an index, and with its index scan put right (spec 07 §14.1). Then its plans are compared
with ours, too: which files are left out, read as they are, or narrowed, and to which positions.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.data.values import json_rows, to_arrow_array
from maintainer.model.predicate import And, Leaf, Op, Predicate, fields_of, leaves
from maintainer.model.schema import TableSchema
from maintainer.model.types import BINARIES, FLOATS, TypeRoot
from maintainer.read.decisions import INDEXED, PRUNED, RAW
from tests.peers import readers
from tests.peers.readers import Rows, bag
from tests.support import peers
from tests.support.asked_tables import AskedTable, Seen, as_json
from tests.support.campaign import share
from tests.support.predicates import holds
from tests.support.questions import TEXT_TESTS, Questions, is_scalar

SEEDS = share("random tables that peers are asked about", short=5, long=600)
QUESTIONS = share("random questions to peers", short=6, long=40)
COUNTED: Counter[str] = Counter()
METHODS = {
    Op.EQ: "equal", Op.NE: "notEqual", Op.LT: "lessThan", Op.LE: "lessOrEqual", Op.GT: "greaterThan", Op.GE: "greaterOrEqual", Op.IN: "in",
    Op.NOT_IN: "notIn", Op.BETWEEN: "between", Op.NOT_BETWEEN: "notBetween", Op.IS_NULL: "isNull", Op.IS_NOT_NULL: "isNotNull",
    Op.STARTS_WITH: "startsWith", Op.ENDS_WITH: "endsWith", Op.CONTAINS: "contains", Op.LIKE: "like",
}  # fmt: skip
"""A leaf function -> what both peers call it."""


def questions(random: Random, seen: Seen) -> Iterator[Predicate]:
    """What can be asked of a peer at all: scalars, no negated leaves, no NULL literals, texts by texts."""
    asked = Questions(random, [field for field in seen.schema.fields if is_scalar(field.type)], seen.rows, nulls=0)
    while True:
        predicate = asked.tree(4)
        if all(_is_asked(leaf, seen.schema) for leaf in leaves(predicate)):
            yield predicate


def _is_asked(leaf: Leaf, schema: TableSchema) -> bool:
    of_binary = schema.field(leaf.field).type.root in BINARIES
    texts = not of_binary and not any(isinstance(literal, bytes) for literal in leaf.literals)
    return leaf.op in METHODS and not leaf.negated and (leaf.op not in TEXT_TESTS or texts)


def as_nested(predicate: Predicate, schema: TableSchema) -> dict[str, Any]:
    """The form in which pypaimon-rust takes predicates."""
    if not isinstance(predicate, Leaf):
        children = [as_nested(child, schema) for child in predicate.children]
        return {"method": "and" if isinstance(predicate, And) else "or", "children": children}
    data_type = schema.field(predicate.field).type
    literals = [
        literal if isinstance(literal, str | bytes) else to_arrow_array([literal], data_type)[0].as_py() for literal in predicate.literals
    ]
    return {"method": METHODS[predicate.op], "field": predicate.field, "literals": literals}


def rows_of_rust(path: Path, predicate: Predicate, schema: TableSchema) -> Rows:
    from pypaimon_rust.datafusion import PaimonCatalog

    peers.asked["pypaimon_rust"] += 1
    table = PaimonCatalog({"warehouse": str(path.parent.parent)}).get_table(f"{path.parent.name.removesuffix('.db')}.{path.name}")
    builder = table.new_read_builder().with_filter(as_nested(predicate, schema))
    batches = builder.new_read().read(builder.new_scan().plan().splits())
    return readers.bag_of_arrow(pa.Table.from_batches(batches), schema) if batches else bag([])


def rust_refuses(predicate: Predicate) -> bool:
    return any(leaf.op in (Op.IN, Op.NOT_IN) and not leaf.literals for leaf in leaves(predicate))


def of_pypaimon(predicate: Predicate, schema: TableSchema) -> Any:
    from pypaimon.common.predicate import Predicate as Theirs

    def build(node: dict[str, Any]) -> Any:
        if "children" in node:
            return Theirs(node["method"], None, None, [build(child) for child in node["children"]])
        return Theirs(node["method"], schema.names.index(node["field"]), node["field"], node["literals"])

    return build(as_nested(predicate, schema))


def compares_floats(predicate: Predicate, schema: TableSchema) -> bool:
    """Peers differ there: pypaimon compares as IEEE says, and pypaimon-rust when it leaves out files by their statistics."""
    return any(schema.field(leaf.field).type.root in FLOATS and leaf.op not in (Op.IS_NULL, Op.IS_NOT_NULL) for leaf in leaves(predicate))


def asked_of_pypaimon(table: Any, predicate: Predicate, schema: TableSchema) -> tuple[Rows, dict[str, Any]]:
    """Rows, and for each file of the plan its ranges, or that it is raw."""
    peers.asked["pypaimon"] += 1
    builder = table.new_read_builder().with_filter(of_pypaimon(predicate, schema))
    splits = builder.new_scan().plan().splits()
    plan: dict[str, Any] = {}
    for split in splits:
        ranges = tuple((each.from_, each.to) for each in split.row_ranges()) if hasattr(split, "row_ranges") else RAW
        files = split.data_split().files if hasattr(split, "data_split") else split.files
        plan |= {file.file_name: ranges for file in files}
    return readers.bag_of_arrow(builder.new_read().to_arrow(splits), schema), plan


@pytest.mark.skipif(readers.RUST_ABSENT is not None, reason=str(readers.RUST_ABSENT))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_pypaimon_rust_gives_the_same_rows(seed: int, tmp_path: Path) -> None:
    made, random, seen = _made(seed, tmp_path)
    if rust_cannot_read(made):
        return
    for predicate, _ in zip(questions(random, seen), range(QUESTIONS), strict=False):
        if not rust_refuses(predicate) and not compares_floats(predicate, seen.schema):
            COUNTED["pypaimon-rust"] += 1
            assert rows_of_rust(Path(made.uri), predicate, seen.schema) == _ours(made, predicate, seen), predicate


@pytest.mark.skipif(readers.PYPAIMON_ABSENT is not None, reason=str(readers.PYPAIMON_ABSENT))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_pypaimon_gives_the_same_rows_and_plans(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pypaimon.table.source import primary_key_sorted_index_scan as index_scan

    made, random, seen = _made(seed, tmp_path)
    if pypaimon_cannot_read(made):
        return
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    table = readers.pypaimon_table(Path(made.uri))
    chosen = [each for each, _ in zip(questions(random, seen), range(QUESTIONS), strict=False) if not compares_floats(each, seen.schema)]
    stock = [asked_of_pypaimon(table, predicate, seen.schema)[0] for predicate in chosen]
    with ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(index_scan, "_create_inner_readers", functools.partial(index_scan._create_inner_readers, executor=pool))
        for predicate, without in zip(chosen, stock, strict=True):
            rows, plan = asked_of_pypaimon(table, predicate, seen.schema)
            COUNTED["pypaimon"] += 1
            assert without == rows == _ours(made, predicate, seen), predicate
            if made.state not in ("none", "damaged") and not asks_fm(made, predicate):
                assert_same_plan(made, predicate, plan)


def assert_same_plan(made: AskedTable, predicate: Predicate, theirs: dict[str, Any]) -> None:
    """Of all files but those that we leave out without an index; its rule for groups is the relaxed one."""
    for file in maintainer.open_table(made.uri, options={"read.group-acceptance": "relaxed"}).scan(predicate).explain().files:
        if file.decision == PRUNED and not file.reason.startswith("index:"):
            COUNTED["files that are left out without an index"] += 1
            continue
        mine = file.ranges if file.decision == INDEXED else file.decision
        COUNTED[f"files, {file.decision}"] += 1
        assert mine == theirs.get(file.file, PRUNED), (predicate, file)


def asks_fm(made: AskedTable, predicate: Predicate) -> bool:
    """pypaimon has no such index."""
    return bool(fields_of(predicate) & set(made.definitions.get("pk-fm.index.columns", "").split(",")))


def rust_cannot_read(made: AskedTable) -> bool:
    """It panics where it filters ORC files that have deletion vectors. In an Avro file whose first record has no value in a ROW column, the
    fields of all other values of the column are NULL."""
    files, rows = made.table.files().files, any(field.type.root is TypeRoot.ROW for field in made.table.schema.fields)
    return any((file.name.endswith(".orc") and file.deleted_rows) or (file.name.endswith(".avro") and rows) for file in files)


def pypaimon_cannot_read(made: AskedTable) -> bool:
    """Deletion vectors of 64 bits; statistics of files of an older schema are taken for those of other columns."""
    return made.evolved or made.table.schema.options.get("deletion-vectors.bitmap64") == "true"


def _made(seed: int, directory: Path) -> tuple[AskedTable, Random, Seen]:
    made = AskedTable.make(directory, seed, for_peers=True)
    made.live()
    return made, Random(seed), made.seen()


def _ours(made: AskedTable, predicate: Predicate, seen: Seen) -> Rows:
    """Our rows, which are those of the model."""
    scan = made.table.scan(predicate)
    found = bag(list(row.values()) for row in json_rows(scan.to_arrow(), scan.fields))
    assert found == bag(as_json(seen.schema.fields, [row for row in seen.rows if holds(predicate, row)])), predicate
    return found
