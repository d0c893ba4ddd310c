"""pypaimon-rust builds the same Multivalue payloads, and answers from ours."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maintainer.data.values import from_arrow
from maintainer.model.predicate import Leaf, Op
from tests.support import peers
from tests.support.builders import type_
from tests.support.rust_index import RustTable
from tests.support.sorted_index import ask, build, content, definition, exploded, open_payload

pytestmark = pytest.mark.skipif(peers.absent("pypaimon_rust") is not None, reason=f"pypaimon_rust: {peers.absent('pypaimon_rust')}")

START = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000)
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "STRING": (pa.string(), ["", "a", "a\x00", "ab", "é", "￿", "😀"]),
    "INT": (pa.int32(), [-(2**31), -256, -1, 0, 1, 255, 256, 2**31 - 1]),
    "BIGINT": (pa.int64(), [-(2**63), -1, 0, 255, 2**40]),
    "SMALLINT": (pa.int16(), [-32768, -1, 0, 256]),
    "BOOLEAN": (pa.bool_(), [False, True]),
    "DOUBLE": (pa.float64(), [float("-inf"), -1.5, -0.0, 0.0, 2.0**-40, float("inf"), float("nan")]),
    "DECIMAL(38, 5)": (pa.decimal128(38, 5), [Decimal("-0.00001"), Decimal("0.00000"), Decimal("0.00255"), Decimal(10**30)]),
    "DATE": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(1970, 1, 1)]),
    "TIMESTAMP(6)": (pa.timestamp("us"), [START, START + datetime.timedelta(microseconds=1), START + datetime.timedelta(days=20_000)]),
}


def arrays_of(pool: list[Any], rows: int = 60) -> list[list[Any] | None]:
    """Arrays of none to five elements, with repetitions and nulls."""
    return [
        None if row % 11 == 7 else [None if (row + n) % 13 == 5 else pool[(row * 5 + n * n) % len(pool)] for n in range(row % 6)]
        for row in range(rows)
    ]


@pytest.mark.parametrize("text", POOLS)
def test_both_build_the_same_payload(text: str, tmp_path: Path) -> None:
    arrow_type, pool = POOLS[text]
    index = definition("multivalue", f"ARRAY<{text}>")
    column = pa.array(arrays_of(pool), pa.list_(arrow_type))
    (theirs,) = RustTable(tmp_path, column, column_type=f"ARRAY<{text}>").index("multivalue", {})
    values = from_arrow(column, index.data_type)
    ours = build(index, values)
    assert theirs.index_meta == ours.index_meta
    reader = open_payload(theirs.data, index, theirs.index_meta, theirs.rows)
    assert [(key, list(ids)) for key, ids in reader.entries()] == [(key, list(ids)) for key, ids in exploded(values, type_(text))]
    assert reader.verify() == []
    for value in {repr(value): value for array in values for value in array or () if value is not None}.values():
        leaf = Leaf(Op.ARRAY_CONTAINS, "c", (value,))
        assert list(reader.evaluate(leaf)) == ask(ours, index, leaf)


@pytest.mark.parametrize("nothing", [[None, None], [[], None], [[None], []]])
def test_arrays_without_elements(nothing: list[Any], tmp_path: Path) -> None:
    payloads = RustTable(tmp_path, pa.array(nothing, pa.list_(pa.string())), column_type="ARRAY<STRING>").index("multivalue", {})
    index = definition("multivalue", "ARRAY<STRING>")
    for theirs in payloads:
        assert theirs.index_meta == build(index, nothing).index_meta
        reader = open_payload(theirs.data, index, theirs.index_meta, theirs.rows)
        assert list(reader.entries()) == []
        assert list(reader.evaluate(Leaf(Op.ARRAY_CONTAINS, "c", ("x",)))) == []


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_it_answers_from_our_payload(compression: str, tmp_path: Path) -> None:
    pool = POOLS["STRING"][1] + [f"element-{number}" for number in range(300)]
    arrays = arrays_of(pool, 2000)
    table = RustTable(tmp_path, pa.array(arrays, pa.list_(pa.string())), column_type="ARRAY<STRING>")
    (payload,) = table.index("multivalue", {})
    given = {"multivalue-index.compression": compression, "multivalue-index.dictionary-block-size": "500 b"}
    # half of the rows are missing from it, and so from the answer: it does not come from the data alone
    built = build(definition("multivalue", "ARRAY<STRING>", given), [*arrays[:1000], *[None] * 1000])
    table.replace(payload, content(built), built.index_meta)
    for element in ("element-7", "a", "é", "none"):
        expected = [row for row, array in enumerate(arrays[:1000]) if array and element in array]
        assert table.ids(f"array_has(c, '{element}')") == expected
