"""A column of byte strings as two arrays, and the row-wise concatenation of several (spec 08 §9.1): entries of sorted payloads without a loop.

Rows lie back to back in `data`; row i is `data[offsets[i]:offsets[i + 1]]`. Arrow's `binary_join_element_wise` copies row after row in C,
and the data buffer of what it returns *is* the stream of entries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.format import varint

_WHOLE = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Rows of so many bytes are moved as numbers."""
_NOTHING = pa.scalar(b"", pa.large_binary())


class ByteColumn:
    """Byte strings back to back. `width` is set when all rows have that many bytes."""

    __slots__ = ("_offsets", "count", "data", "width")

    def __init__(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64] | None, *, width: int | None = None) -> None:
        self.data = data
        self.width = width
        self._offsets = offsets
        if offsets is not None:
            self.count = len(offsets) - 1
        else:
            assert width
            self.count = len(data) // width

    @classmethod
    def of_matrix(cls, matrix: npt.NDArray[np.uint8], sizes: npt.NDArray[np.integer] | None = None) -> ByteColumn:
        """The rows of a matrix; with `sizes` only so many bytes of each."""
        width = matrix.shape[1]
        if sizes is None or bool((sizes == width).all()):
            return cls(np.ascontiguousarray(matrix).reshape(-1), None, width=width)
        return cls(matrix[np.arange(width, dtype=np.uint8) < sizes[:, None]], _offsets(sizes))

    @classmethod
    def of_rows(cls, rows: Sequence[bytes]) -> ByteColumn:
        """A column of a few rows."""
        data = np.frombuffer(b"".join(rows), np.uint8)
        return cls(data, _offsets(np.fromiter(map(len, rows), np.int64, len(rows))))

    @classmethod
    def of_pieces(cls, data: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> ByteColumn:
        """Pieces of `data`, copied; each begins behind the end of the one before."""
        width = int(sizes[0]) if len(sizes) and bool((sizes == sizes[0]).all()) else 0
        if width in _WHOLE:
            numbers = np.ndarray((len(data) - width + 1,), _WHOLE[width], data, strides=(1,))
            return cls(numbers[begins].view(np.uint8), None, width=width)
        # Pieces and what lies between them take turns as rows.
        bounds = np.empty(2 * len(begins), np.int64)
        bounds[::2] = begins
        np.add(begins, sizes, out=bounds[1::2])
        if not len(bounds):
            return cls.of_rows(())
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
        rows = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
        found = of_arrow(rows.take(pa.array(np.arange(0, len(bounds), 2))))
        return cls(found.data, None, width=width) if width else found

    @classmethod
    def varints(cls, values: npt.NDArray[np.integer]) -> ByteColumn:
        """One variable-length number per row."""
        sizes = varint.lengths(values)
        matrix = np.empty((len(values), int(sizes.max(initial=1))), np.uint8)
        varint.fill(matrix, values, sizes)
        return cls.of_matrix(matrix, sizes)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        if self._offsets is None:
            assert self.width
            self._offsets = np.arange(0, len(self.data) + 1, self.width, dtype=np.int64)
        return self._offsets

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        if self.width is not None:
            return np.full(self.count, self.width, np.int64)
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> bytes:
        if row < 0:
            row += self.count
        if self.width is not None:
            return self.data[row * self.width : (row + 1) * self.width].tobytes()
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def uniform(self) -> ByteColumn:
        """The same column, with a width where all rows have that many bytes."""
        width = len(self.data) // self.count if self.count else 0
        if self.width is None and width and len(self.data) == width * self.count and bool((self.lengths == width).all()):
            return ByteColumn(self.data, None, width=width)
        return self

    def slice(self, start: int, stop: int) -> ByteColumn:
        """Rows [start, stop) without a copy of their bytes."""
        if self.width is not None:
            return ByteColumn(self.data[start * self.width : stop * self.width], None, width=self.width)
        offsets = self.offsets[start : stop + 1]
        return ByteColumn(self.data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def take(self, rows: npt.NDArray[np.integer]) -> ByteColumn:
        """These rows, copied."""
        if self.width is None:
            return of_arrow(self.to_arrow().take(pa.array(rows)))
        if self.width in _WHOLE:
            return ByteColumn(np.ascontiguousarray(self.data).view(_WHOLE[self.width]).take(rows).view(np.uint8), None, width=self.width)
        return ByteColumn(self.data.reshape(-1, self.width).take(rows, axis=0).reshape(-1), None, width=self.width)

    def to_arrow(self) -> pa.LargeBinaryArray:
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(),
            self.count,
            [None, pa.py_buffer(np.ascontiguousarray(self.offsets)), pa.py_buffer(np.ascontiguousarray(self.data))],
        )


def of_arrow(array: pa.Array) -> ByteColumn:
    """The bytes of a text or binary array without nulls; shares its buffers."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offset_buffer, data_buffer = array.buffers()
    dtype = np.dtype(np.int64 if wide else np.int32)
    if offset_buffer is None or not len(array):
        return ByteColumn(np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64))
    offsets = np.frombuffer(offset_buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    return ByteColumn(data[offsets[0] : offsets[-1]], offsets.astype(np.int64) - int(offsets[0]))


def join(*columns: ByteColumn) -> ByteColumn:
    """Row i of the result is row i of each column, one behind the other."""
    return of_arrow(pc.binary_join_element_wise(*(column.to_arrow() for column in columns), _NOTHING))


def concat(*columns: ByteColumn) -> ByteColumn:
    """The rows of all columns, one column behind the other; the bytes are copied."""
    data = np.concatenate([column.data for column in columns])
    if columns[0].width is not None and all(column.width == columns[0].width for column in columns):
        return ByteColumn(data, None, width=columns[0].width)
    ends = np.cumsum([len(column.data) for column in columns])
    later = (column.offsets[1:] + end for column, end in zip(columns[1:], ends.tolist(), strict=False))
    return ByteColumn(data, np.concatenate((columns[0].offsets, *later)))


def _offsets(sizes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
