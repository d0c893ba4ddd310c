"""All entries of a BTree payload of version 1, many blocks at a time and without a loop over them (layout in `maintainer.format.btree`).

    key length | key | value length | number of ids | ids        all but the key are variable-length numbers

Most payloads have one row per key and keys shorter than 128 bytes. Of such an entry all that follows the key lies in the eight bytes behind it:
value length, 01, and an id of up to six bytes. They are fetched as one number for all entries and taken apart there. Every other entry is read
number by number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from maintainer.format.btree import Ids
from maintainer.format.btree_file import Block, BTreeFile, id_lists
from maintainer.format.byte_column import ByteColumn

CHUNK_BYTES = 1 << 20
"""Arrays of what is taken apart at once should stay in the processor's cache."""
_PADDING = 8
_MOST_ID_BYTES = 6
_CONTINUED = 0x80_80_80_80_80_80
_OCTETS = np.array([(1 << 8 * size) - 1 for size in range(_MOST_ID_BYTES + 1)])
"""An id of so many bytes."""
_FOLLOWED = np.array([0, *(_CONTINUED & ((1 << 8 * size) - 1) for size in range(_MOST_ID_BYTES))])
"""All of its bytes but the last say that another one follows."""

Positions = npt.NDArray[np.int64]


def read_entries(file: BTreeFile) -> Iterator[tuple[ByteColumn, Ids, Positions]]:
    """Keys in file order, the row ids of all of them, and where those of each key start."""
    return map(entries, file.chunks(CHUNK_BYTES))


def entries(blocks: Sequence[Block]) -> tuple[ByteColumn, Ids, Positions]:
    """The entries of some blocks, one block behind the other."""
    if not blocks:
        return ByteColumn.of_rows(()), np.empty(0, np.int64), np.empty(0, np.int64)
    data = np.frombuffer(b"".join([*(block.raw for block in blocks), bytes(_PADDING)]), np.uint8)
    bases = np.cumsum([0, *(len(block.raw) for block in blocks)])
    begins = np.concatenate([block.bounds[:-1] + base for block, base in zip(blocks, bases, strict=False)])
    ends = np.concatenate([block.bounds[1:] + base for block, base in zip(blocks, bases, strict=False)])
    found = _single_ids(data, begins, ends)
    if found is None:
        return _lists_of_ids(data[:-_PADDING], begins, ends)
    return found


def _single_ids(data: npt.NDArray[np.uint8], begins: Positions, ends: Positions) -> tuple[ByteColumn, Ids, Positions] | None:
    """The entries when each has one short id; None when some have not, or are malformed."""
    key_sizes = data[begins]
    if not len(begins) or int(key_sizes.max()) >= 0x80:
        return None
    key_size = int(key_sizes[0]) if bool((key_sizes == key_sizes[0]).all()) else key_sizes.astype(np.int64)
    key_begins = begins + 1
    sizes = ends - key_begins - (key_size + 2)  # of the id
    if int(sizes.min()) < 1 or int(sizes.max()) > _MOST_ID_BYTES:
        return None
    behind = np.ndarray((len(data) - 7,), "<i8", data, strides=(1,))[key_begins + key_size]
    if bool(((behind & 0xFFFF) != sizes + 0x101).any()):
        return None
    octets = behind >> 16 & _OCTETS[sizes]
    if bool(((octets & _CONTINUED) != _FOLLOWED[sizes]).any()):
        return None
    ids = octets & 0x7F
    for column in range(1, int(sizes.max())):
        ids |= octets >> column & 0x7F << 7 * column
    return ByteColumn.of_pieces(data, key_begins, key_sizes.astype(np.int64)), ids, np.arange(len(ids))


def _lists_of_ids(data: npt.NDArray[np.uint8], begins: Positions, ends: Positions) -> tuple[ByteColumn, Ids, Positions]:
    key_begins, key_sizes, ids, counts = id_lists(data, begins, ends)
    return ByteColumn.of_pieces(data, key_begins, key_sizes), ids, np.cumsum(counts) - counts
