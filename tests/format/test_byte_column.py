from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from maintainer.format import byte_column
from maintainer.format.byte_column import ByteColumn

_UNIFORM = st.integers(1, 9).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size)))
ROWS = st.lists(st.binary(max_size=5), max_size=8)


def rows_of(column: ByteColumn) -> list[bytes]:
    return [column[i] for i in range(len(column))]


@given(ROWS, ROWS)
def test_rows_are_joined_and_put_behind_one_another(first: list[bytes], second: list[bytes]) -> None:
    size = min(len(first), len(second))
    joined = byte_column.join(ByteColumn.of_rows(first[:size]), ByteColumn.of_rows(second[:size]))
    assert rows_of(joined) == [a + b for a, b in zip(first, second, strict=False)]
    assert rows_of(byte_column.concat(ByteColumn.of_rows(first), ByteColumn.of_rows(second))) == first + second


@given(ROWS, st.integers(0, 8), st.integers(0, 8))
def test_slices_of_slices_hold_their_rows(rows: list[bytes], start: int, stop: int) -> None:
    start, stop = sorted((min(start, len(rows)), min(stop, len(rows))))
    column = ByteColumn.of_rows(rows).slice(start, stop)
    assert rows_of(column) == rows[start:stop]
    assert column.lengths.tolist() == [len(row) for row in rows[start:stop]]
    assert rows_of(column.slice(0, len(column))) == rows[start:stop]
    assert byte_column.of_arrow(column.to_arrow()).data.tobytes() == b"".join(rows[start:stop])


def test_rows_of_one_width_need_no_offsets() -> None:
    column = ByteColumn.of_matrix(np.arange(6, dtype=np.uint8).reshape(3, 2))
    assert column.width == 2
    assert rows_of(column) == [b"\x00\x01", b"\x02\x03", b"\x04\x05"]
    assert rows_of(column.slice(1, 3)) == rows_of(column)[1:]


def test_sliced_arrow_arrays_keep_their_rows() -> None:
    array = pa.array(["a", "bb", "", "cccc"]).slice(1, 2)
    assert rows_of(byte_column.of_arrow(array)) == [b"bb", b""]


@given(st.lists(st.binary(max_size=9)) | _UNIFORM, st.data())
def test_rows_are_taken_and_cut_out(rows: list[bytes], draw: st.DataObject) -> None:
    gaps = [draw.draw(st.binary(max_size=3)) for _ in rows]
    data = np.frombuffer(b"".join(gap + row for gap, row in zip(gaps, rows, strict=True)), np.uint8)
    sizes = np.array([len(row) for row in rows], np.int64)
    begins = np.cumsum([len(gap) + len(row) for gap, row in zip(gaps, rows, strict=True)]).astype(np.int64) - sizes
    column = ByteColumn.of_pieces(data, begins, sizes)
    assert rows_of(column) == rows
    places = draw.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else []
    taken = column.take(np.array(places, np.int64))
    assert rows_of(taken) == [rows[i] for i in places]
    many = byte_column.concat(column, taken, column)
    assert rows_of(many) == [*rows, *(rows[i] for i in places), *rows]
