"""Random tables and random questions to them: the same rows with indexes, without them, and in a plain model of tables and predicates; the
same order, too.

`tests.support.asked_tables` makes the tables (every merge engine, format and state of coverage), `tests.support.questions` the predicates
(every type and function), `tests.support.predicates` says of each row whether it matches.
"""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest

import maintainer
from maintainer.data import new_avro_file, writer
from maintainer.data.values import json_rows
from maintainer.index.definition import MAINTAINED, FamilyName
from maintainer.model.predicate import Leaf, Op
from maintainer.read.decisions import RAW
from tests.peers.readers import Rows, bag
from tests.support.asked_tables import ENGINES, FORMATS, STATES, AskedTable, Drawn, Row, Seen, arrow, as_json
from tests.support.campaign import share
from tests.support.predicates import holds, order_key
from tests.support.questions import Questions, as_arrow, as_expression, as_people_mean_it, as_sql, is_scalar

LONG = 1500
SEEDS = share("random tables that are asked", short=10, long=LONG)
QUESTIONS = share("random questions to each table", short=10, long=40)
WAYS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"read.group-acceptance": "relaxed"},
    {"btree-index.fallback-scan-max-size": "1 b", "bitmap-index.fallback-scan-max-size": "0"},
    {"read.index-cache-size": "0"},
    {"global-index.enabled": "false"},
)
"""Options of a query, none of which changes its rows."""


COUNTED: Counter[str] = Counter()
"""What happened to files, by decision and first word of the reason, and how many questions were asked."""


def rows_of(scan: Any) -> Rows:
    return bag(list(row.values()) for row in json_rows(scan.to_arrow(), scan.fields))


def rows_of_splits(scan: Any) -> Rows:
    """Every split by itself, as another process has it."""
    found: Rows = Counter()
    for split in pickle.loads(pickle.dumps(scan.splits())):
        found += bag(list(row.values()) for row in json_rows(split.to_arrow(), scan.fields))
    return found


def bag_of(rows: list[Row], columns: list[str], seen: Seen) -> Rows:
    return bag(as_json([seen.schema.field(name) for name in columns], rows))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rows_are_those_of_the_model_with_indexes_and_without(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 3:
        files_of_many_groups(monkeypatch)
    made = AskedTable.make(tmp_path, seed)
    made.live()
    random = Random(seed)
    if made.state == "complete":
        assert_every_index_is_used(made)
    tables = [maintainer.open_table(made.uri, options=options) for options in WAYS]
    ask(random, made, tables, QUESTIONS - QUESTIONS // 3)
    made.write(40)
    if random.random() < 0.5:
        made.compact()
    ask(random, made, tables, QUESTIONS // 3)


def test_a_long_run_has_every_family_with_every_engine_format_and_state_of_coverage() -> None:
    """First-row tables, and those that are merged while they are read, have no index."""
    drawn = [Drawn.of(seed) for seed in range(LONG)]
    indexed = set(ENGINES) - {"first-row"}
    with_family = {(family, each.engine, each.file_format, each.state) for each in drawn for family in each.families}
    assert set(product(MAINTAINED, indexed, FORMATS, STATES)) - with_family == set()
    assert set(product(ENGINES, FORMATS)) - {(each.engine, each.file_format) for each in drawn if each.state == "none"} == set()


def files_of_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few dozen rows are written as those of millions are: Parquet in row groups, ORC in stripes, Avro in blocks."""
    monkeypatch.setattr(writer, "GROUP_ROWS", 5)
    monkeypatch.setattr(writer, "MAX_CHUNKS", 1 << 30)
    monkeypatch.setattr(new_avro_file, "_BLOCK", 150)


def ask(random: Random, made: AskedTable, tables: list[maintainer.Table], count: int) -> None:
    """Questions of the latest snapshot and of older ones, to tables that stay open."""
    for number in range(count):
        snapshot = random.choice(list(made.history)) if number % 4 == 3 else None
        seen = made.seen() if snapshot is None else made.history[snapshot]
        indexed = [seen.schema.field(name) for name in made.indexed if seen.schema.has_field(name)]
        questions = Questions(random, random.choice([indexed or seen.schema.fields, seen.schema.fields]), seen.rows)
        predicate = questions.tree()
        columns = random.sample(seen.schema.names, random.randrange(1, len(seen.schema.names) + 1))
        if random.random() < 0.5:
            predicate = as_people_mean_it(predicate)
            question = random.choice([as_sql, as_expression])(predicate, seen.schema)
        else:
            question = predicate
        selected = [row for row in seen.rows if holds(predicate, row)]
        wanted = bag_of(selected, columns, seen)
        table = random.choice(tables)
        for use_index in (True, False):
            found = rows_of(table.scan(question, columns, snapshot_id=snapshot, use_index=use_index))
            assert found == wanted, (question, snapshot, use_index)
        match number % 3:
            case 0:
                assert rows_of_splits(table.scan(question, columns, snapshot_id=snapshot)) == wanted, (question, snapshot)
            case 1:
                assert_in_order(random, table, question, selected, seen, snapshot)
            case _:
                arrow_question = as_arrow(predicate, seen.schema)
                if arrow_question is not None:
                    assert_as_pyarrow_says(table, arrow_question, columns, seen, snapshot)
                    COUNTED["pyarrow questions"] += 1
        COUNTED[f"questions, {made.state}"] += 1
        COUNTED.update(f"{file.decision}, {file.reason.split(' ')[0]}" for file in table.scan(question, snapshot_id=snapshot).explain().files)


def assert_in_order(random: Random, table: maintainer.Table, question: Any, selected: list[Row], seen: Seen, snapshot: int | None) -> None:
    """Sorted by some columns, perhaps with a limit: NULLs come first upwards and last downwards; of equal rows any may come first."""
    keys = random.sample([f.name for f in seen.schema.fields if is_scalar(f.type)], random.randrange(1, 3))
    order = [(name, random.choice(["asc", "desc"])) for name in keys]
    limit = random.choice([None, 0, 1, 5, len(selected), 10_000])
    columns = list(dict.fromkeys((*keys, *random.sample(seen.schema.names, 2))))
    fields = [seen.schema.field(name) for name in columns]
    for name, way in reversed(order):
        selected = sorted(selected, key=lambda row: (row[name] is not None, order_key(row[name])), reverse=way == "desc")
    wanted = as_json(fields, selected)
    found = [list(row.values()) for row in json_rows(table.scan(question, columns, order, limit, snapshot_id=snapshot).to_arrow(), fields)]
    assert [row[: len(keys)] for row in found] == [row[: len(keys)] for row in wanted[:limit]], (question, order, limit)
    assert bag(found) <= bag(wanted), (question, order, limit)


def assert_as_pyarrow_says(table: maintainer.Table, question: pc.Expression, columns: list[str], seen: Seen, snapshot: int | None) -> None:
    """The rows that pyarrow keeps of the model's."""
    fields = seen.schema.fields
    kept = arrow(fields, [list(row.values()) for row in seen.rows]).filter(question)
    wanted = bag(list(row.values()) for row in json_rows(kept, [seen.schema.field(name) for name in columns]))
    assert rows_of(table.scan(question, columns, snapshot_id=snapshot)) == wanted, question


def assert_every_index_is_used(made: AskedTable) -> None:
    """Of the visible files none is read without the answer of an index that knows the function."""
    table, seen = made.table, made.seen()
    assert table.index_definitions
    for column, definition in table.index_definitions.items():
        match definition.family:
            case FamilyName.MULTIVALUE:
                known = [element for row in seen.rows for element in row[column] or () if element is not None]
                leaf = Leaf(Op.ARRAY_CONTAINS, column, tuple(known[:1]))
            case FamilyName.FM:
                known = [row[column] for row in seen.rows if row[column]]
                leaf = Leaf(Op.IS_NULL, column)
            case _:
                known = [row[column] for row in seen.rows if row[column] is not None]
                leaf = Leaf(Op.EQ, column, tuple(known[:1]))
        if known:
            decisions = [file for file in table.scan(leaf).explain().files if file.decision == RAW]
            assert not decisions, (leaf, decisions)
