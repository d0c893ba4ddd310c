"""What one flush makes of random records, for every merge engine: the same as a plain model of each (spec 05)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.arrow_types import value_schema
from maintainer.errors import MergeError
from maintainer.model.row_kind import KINDS
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.table.merging import MergeRules
from maintainer.write.flush import Flush
from tests.support import builders, merge_model

FIELDS = {"id": "INT", "a": "STRING", "n": "INT", "s": "INT", "b": "STRING", "t": "INT", "m": "BIGINT"}
ENGINES: dict[str, Mapping[str, str]] = {
    "deduplicate": {},
    "deduplicate by a field": {"sequence.field": "s"},
    "deduplicate by two fields, descending": {"sequence.field": "s,t", "sequence.field.sort-order": "descending"},
    "deduplicate without deletes": {"ignore-delete": "true"},
    "first row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "partial update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "partial update, removing": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "partial update by groups": {
        "merge-engine": "partial-update",
        "fields.s.sequence-group": "a,n",
        "fields.t.sequence-group": "b",
        "fields.n.aggregate-function": "sum",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.m.aggregate-function": "max",
        "fields.m.ignore-retract": "true",
        "fields.a.aggregate-function": "last_value",
        "fields.b.aggregate-function": "listagg",
        "fields.b.ignore-retract": "true",
        "sequence.field": "t",
    },
    "aggregation, removing": {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"},
}
small = st.none() | st.integers(-2, 3)
texts = st.none() | st.sampled_from(["", "x", "y", "é😀"])
rows = st.tuples(st.integers(0, 3), texts, small, small, texts, small, small)


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES.keys())
@given(records=st.lists(st.tuples(st.sampled_from(list(KINDS)), rows), min_size=1, max_size=25))
def test_a_flush_is_what_the_model_says(options: Mapping[str, str], records: list[tuple[str, tuple[Any, ...]]]) -> None:
    schema = replace(builders.schema(FIELDS), options=options)
    columns = [list(column) for column in zip(*(row for _, row in records), strict=True)]
    table = pa.table(columns, schema=value_schema(schema.fields))
    table = table.append_column(SEQUENCE_FIELD.name, pa.array(range(len(records)), pa.int64()))
    table = table.append_column(KIND_FIELD.name, pa.array([KINDS[kind] for kind, _ in records], pa.int8()))
    names = {code: kind for kind, code in KINDS.items()}
    expected, refused = [], False
    for key in sorted({row[0] for _, row in records}):
        group = [merge_model.Record(kind, number, row, -1) for number, (kind, row) in enumerate(records) if row[0] == key]
        try:
            found = merge_model.merge(options, schema.fields, ["id"], group)
        except merge_model.Refused:
            refused = True
            continue
        if found is not None:
            expected.append((*found.values, found.sequence, found.kind))
    flush = Flush.of(table, MergeRules.of(schema))
    if refused:
        with pytest.raises(MergeError):
            flush.merged()
        return
    merged = flush.merged().select([*schema.names, SEQUENCE_FIELD.name, KIND_FIELD.name]).to_pylist()
    assert [(*list(row.values())[:-1], names[row[KIND_FIELD.name]]) for row in merged] == expected
