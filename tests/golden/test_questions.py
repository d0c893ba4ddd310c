"""Random questions to the tables that Java wrote: of Java's own rows of a snapshot, we give those for which a plain model says yes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from maintainer.data.values import json_rows
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataType
from maintainer.read.scan import Scan
from maintainer.table.opening import open_store
from tests.golden.test_rows import LEFT
from tests.peers.readers import bag
from tests.support import golden
from tests.support.campaign import share
from tests.support.predicates import holds
from tests.support.questions import Questions, is_array_of_scalars, is_scalar

QUESTIONS = share("random questions to each of Java's tables", short=3, long=200)
MOST_ROWS = 400
"""Larger snapshots are asked less: the model looks at one row after the other."""


@pytest.mark.parametrize("name", [name for name, why in LEFT.items() if why is None])
def test_rows_are_those_of_java_that_match(name: str, tmp_path: Path) -> None:
    found = golden.case(name)
    if found is None:
        pytest.skip(f"case {name} is not here")
    store = open_store(str(golden.unpack(name, tmp_path)))
    random = Random(name)
    states = [(snapshot, rows) for snapshot, _, rows in golden.rows_of(found) if rows]
    for number in range(QUESTIONS if states else 0):
        snapshot, rows = states[-1] if number % 2 == 0 else random.choice(states)
        if len(rows) > MOST_ROWS and number > 1:
            continue
        schema = store.schema_of(store.snapshot(snapshot))
        known = [internal(row, schema) for row in rows]
        predicate = Questions(random, schema.fields, known).tree()
        expected = bag(row for row, values in zip(rows, known, strict=True) if holds(predicate, values))
        for use_index in (True, False):
            scan = Scan(store, predicate, snapshot_id=snapshot, use_index=use_index)
            assert bag(list(row.values()) for row in json_rows(scan.to_arrow(), scan.fields)) == expected, (snapshot, predicate, use_index)


def internal(row: list[Any], schema: TableSchema) -> dict[str, Any]:
    """A row of the JSON as internal values; of maps and rows only whether they are there."""
    return {field.name: _value(value, field.type) for field, value in zip(schema.fields, row, strict=True)}


def _value(value: Any, data_type: DataType) -> Any:
    if value is None or is_scalar(data_type):
        return golden.value_of(value, data_type)
    if is_array_of_scalars(data_type):
        assert data_type.element is not None
        return [golden.value_of(each, data_type.element) for each in value]
    return value
