"""Arrays in a spill file: those that belong together are a record batch of one row, each the bytes in one of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def pack(arrays: Sequence[npt.NDArray[Any]]) -> pa.RecordBatch:
    """A row for `SpillFile.append`."""
    return pa.RecordBatch.from_arrays([_column(array) for array in arrays], [str(number) for number in range(len(arrays))])


def unpack(row: pa.RecordBatch, dtypes: Sequence[type]) -> list[npt.NDArray[Any]]:
    """The arrays of a row that was read again."""
    return [np.frombuffer(column.buffers()[2] or b"", dtype) for column, dtype in zip(row.columns, dtypes, strict=True)]


def _column(array: npt.NDArray[Any]) -> pa.Array:
    data = np.ascontiguousarray(array).view(np.uint8)
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data)])
