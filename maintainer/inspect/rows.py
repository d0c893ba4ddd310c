"""The rows of a data file as verification reads them: in batches of bounded size (DESIGN §4 rule 5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.data.reader import DataFile, open_data_file
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

BATCH_BYTES = 16 << 20
BATCH_ROWS = 1 << 16
_FEWEST_ROWS = 64


def open_file(store: TableStore, state: TableState, bucket: BucketState, file: DataFileMeta) -> DataFile:
    """A live data file, to be read with the schema of the state."""
    path = store.layout.data_file_path(bucket.partition, bucket.bucket, file)
    return open_data_file(store.storage, path, file, store.schema(file.schema_id), state.schema)


def batch_rows(data: DataFile, most: int = BATCH_ROWS) -> int:
    """How many rows to read at a time, so that a batch of wide rows takes no more memory than another."""
    size = sum(map(data.group_bytes, range(len(data.row_groups))))
    return max(_FEWEST_ROWS, min(most, BATCH_BYTES * max(1, data.row_count) // max(1, size)))


def alive(deleted: BitMap64, first: int, rows: int) -> npt.NDArray[np.bool_]:
    """Which of the rows first … first + rows − 1 a deletion vector leaves."""
    mask = np.ones(rows, bool)
    if deleted:
        window = BitMap64()
        window.add_range(first, first + rows)
        found = deleted & window
        mask[np.fromiter(found, np.int64, len(found)) - first] = False
    return mask
