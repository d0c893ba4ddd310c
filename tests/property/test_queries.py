"""Random tables and random questions to them: the same rows with indexes, without them, and in a plain model of tables and predicates.

`tests.support.asked_tables` makes the tables (every merge engine, format and state of coverage), `tests.support.questions` the predicates
(every type and function), `tests.support.predicates` says of each row whether it matches.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import maintainer
from maintainer.data.values import json_rows
from maintainer.index.definition import FamilyName
from maintainer.model.predicate import Leaf, Op, Predicate
from maintainer.read.plan import RAW
from tests.peers.readers import Rows, bag
from tests.support.asked_tables import AskedTable, Seen, as_json
from tests.support.campaign import share
from tests.support.predicates import holds
from tests.support.questions import Questions, as_expression, as_people_mean_it, as_sql

SEEDS = share("random tables that are asked", short=14, long=1500)
QUESTIONS = share("random questions to each table", short=12, long=40)
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


def expected(seen: Seen, predicate: Predicate, columns: list[str]) -> Rows:
    fields = [seen.schema.field(name) for name in columns]
    return bag(as_json(fields, [row for row in seen.rows if holds(predicate, row)]))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rows_are_those_of_the_model_with_indexes_and_without(seed: int, tmp_path: Path) -> None:
    made = AskedTable.make(tmp_path, seed)
    made.live()
    random = Random(seed)
    if made.state == "complete":
        assert_every_index_is_used(made)
    for number in range(QUESTIONS):
        now = number % 3 < 2
        snapshot = None if now else random.choice(list(made.history))
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
        wanted = expected(seen, predicate, columns)
        options = random.choice(WAYS)
        table = maintainer.open_table(made.uri, options=options)
        for use_index in (True, False):
            found = rows_of(table.scan(question, columns, snapshot_id=snapshot, use_index=use_index))
            assert found == wanted, (question, snapshot, options, use_index)
        COUNTED[f"questions, {made.state}"] += 1
        COUNTED.update(f"{file.decision}, {file.reason.split(' ')[0]}" for file in table.scan(question, snapshot_id=snapshot).explain().files)


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
