"""Elements of arrays with the rows that they stand in (spec 08 §2.2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import CorruptFile


def explode(arrays: pa.Array, first: int = 0) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """All elements that are not null, and for each the number of its row, where `first` is that of the first one.

    Null arrays have no elements. A row that has an element twice gives it twice.
    """
    lengths = pc.fill_null(pc.list_value_length(arrays), 0).to_numpy(zero_copy_only=False)
    elements = arrays.flatten()  # knows offsets and nulls of every kind of list
    rows = np.repeat(np.arange(first, first + len(arrays)), lengths)
    if len(rows) != len(elements):
        raise CorruptFile(f"{len(arrays)} arrays have {len(elements)} elements instead of {len(rows)}")
    if elements.null_count:
        rows = rows[np.asarray(elements.is_valid())]
        elements = elements.drop_null()
    return elements, rows
