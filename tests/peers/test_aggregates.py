"""pypaimon's aggregators, where they do what Java does (spec 05 §10): adds only, no DECIMAL, no FLOAT, no NaN and no −0.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.format.data_type import parse
from maintainer.merge.aggregate import Verdict
from maintainer.model.types import DataField, DataType, TypeRoot
from tests.support import peers
from tests.support.campaign import share
from tests.support.folding import alike, folded

ABSENT = peers.absent("pypaimon")
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=str(ABSENT))
ROUNDS = share("aggregate functions against pypaimon, examples of each", short=15, long=2000)

ROW = DataType(TypeRoot.ROW, fields=tuple(DataField(index, name, parse("INT")) for index, name in enumerate("kvs")))
ROWS = DataType(TypeRoot.ARRAY, element=ROW)
numbers = st.none() | st.integers(-5, 5)
rows = st.none() | st.lists(st.tuples(st.integers(1, 3), numbers, numbers).map(lambda row: dict(zip("kvs", row, strict=True))), max_size=3)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT": numbers,
    "BIGINT": numbers,
    "DOUBLE": st.none() | st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 2.5]),
    "STRING": st.none() | st.sampled_from(["", " ", "a", "b", "a,b", "b,,c", "zz"]),
    "BOOLEAN": st.none() | st.booleans(),
    "ARRAY<INT>": st.none() | st.lists(st.integers(0, 3), max_size=3),
}
POSITIONS = ("last_value", "last_non_null_value", "first_value", "first_non_null_value")
CASES: list[tuple[str, str, Mapping[str, str]]] = [
    *((name, kind, {}) for name in (*POSITIONS, "sum", "product", "max", "min") for kind in ("INT", "BIGINT", "DOUBLE")),
    *((name, "STRING", {}) for name in (*POSITIONS, "max", "min")),
    *((name, "BOOLEAN", {}) for name in ("bool_and", "bool_or")),
    *(("listagg", "STRING", {"list-agg-delimiter": text, "distinct": distinct}) for text in (",", ",,") for distinct in ("true", "false")),
    *(("collect", "ARRAY<INT>", {"distinct": distinct}) for distinct in ("true", "false")),
    *(
        ("nested_update", "ROWS", options)
        for options in ({"nested-key": "k"}, {"nested-key": "k", "nested-sequence-field": "s"}, {"nested-key": "k", "count-limit": "2"})
    ),
    ("nested_partial_update", "ROWS", {"nested-key": "k"}),
]


def peer_value(name: str, kind: str, options: Mapping[str, str], group: list[Any]) -> Any:
    from pypaimon.common.options import CoreOptions, Options
    from pypaimon.read.reader.aggregate import create_field_aggregator
    from pypaimon.schema import data_types as peer_types

    if kind == "ROWS":
        members = [peer_types.DataField(index, member, peer_types.AtomicType("INT")) for index, member in enumerate("kvs")]
        peer_type = peer_types.ArrayType(True, peer_types.RowType(True, members))
    elif kind.startswith("ARRAY"):
        peer_type = peer_types.ArrayType(True, peer_types.AtomicType("INT"))
    else:
        peer_type = peer_types.AtomicType(kind)
    full = CoreOptions(Options({f"fields.f.{key}": value for key, value in options.items()}))
    aggregator = create_field_aggregator(peer_type, "f", name, full)
    aggregator.reset()
    acc = None
    for value in group:
        acc = aggregator.agg(acc, value)
    return acc


@pytest.mark.parametrize(("name", "kind", "options"), CASES, ids=str)
def test_pypaimon_folds_the_same(name: str, kind: str, options: Mapping[str, str]) -> None:
    values = rows if kind == "ROWS" else VALUES[kind]
    data_type = ROWS if kind == "ROWS" else parse(kind)
    peers.asked["pypaimon"] += 1

    @settings(max_examples=ROUNDS, deadline=None, database=None)
    @given(st.lists(st.lists(values, min_size=1, max_size=5), max_size=4))
    def run(groups: list[list[Any]]) -> None:
        found = folded(name, data_type, [[(Verdict.APPLY, value) for value in group] for group in groups], options)
        expected = [peer_value(name, kind, options, group) for group in groups]
        assert [alike(value) for value in found] == [alike(as_dicts(value)) for value in expected]

    run()


def as_dicts(value: Any) -> Any:
    """Rows of the peer as `to_pylist` gives rows."""
    if isinstance(value, list) and value and not isinstance(value[0], int | dict):
        return [{name: row.get_field(index) for index, name in enumerate("kvs")} for row in value]
    return value
