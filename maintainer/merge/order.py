"""The order of keys, for whole columns (spec 04 §2, 08 §2.1; Java `KeyComparatorSupplier` over `BinaryRow` keys).

`maintainer.model.values.order_key` says how two values compare; here the same order is computed for millions of rows. Every key column becomes
something that numpy or Arrow compares natively:

| type                                          | becomes                                                                  |
| --------------------------------------------- | ------------------------------------------------------------------------ |
| BOOLEAN, integers, DATE, TIME, TIMESTAMP(_LTZ)| one int64 word: the value in the unit of the Arrow column                |
| FLOAT, DOUBLE                                 | one int64 word: the bits, NaN made canonical, negatives flipped          |
| DECIMAL(p ≤ 18)                               | one int64 word: the unscaled value                                       |
| DECIMAL(p ≥ 19)                               | two int64 words: high half, low half with its sign bit flipped           |
| CHAR, VARCHAR, BINARY, VARBINARY              | large_binary, sorted by words of 7 bytes and a count (`_TextSource`)     |

Sorting is most-significant-word first: leading words are packed into one int64 while their value ranges fit, one stable argsort orders the
rows, and only the rows that are still tied are looked at again with the words that follow. Rows of concatenated sorted runs, the usual input,
are nearly in order already, which numpy's stable sort (timsort) exploits.

Key columns hold no nulls.
"""

from __future__ import annotations

import decimal
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import CorruptFile
from maintainer.model.types import BINARIES, CHARACTERS, TIMESTAMPS, DataType, TypeRoot

Int64s = npt.NDArray[np.int64]
Column = Any
"""A key column in comparable form: `Int64s` or a `pa.LargeBinaryArray` (pyarrow has no types for mypy)."""

_EXACT = decimal.Context(prec=60)
_SIGN = np.int64(-(2**63))
_WORD_BYTES = 7
_WORDS_BEFORE_RANKING = 8
_MASKS = np.array([0] + [(1 << 64) - (1 << (64 - 8 * min(count, _WORD_BYTES))) for count in range(1, 9)], dtype=np.uint64)
_NEARLY_SORTED = 32
"""At most every n-th neighbour out of order: timsort beats everything else."""


class Keys:
    """The key columns of some rows in comparable form; as many columns as words, so a wide decimal counts twice."""

    __slots__ = ("columns", "size")

    def __init__(self, columns: Sequence[Column], size: int) -> None:
        self.columns = tuple(columns)
        self.size = size

    @classmethod
    def of(cls, columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType]) -> Keys:
        """Arrow columns in key order; `CorruptFile` when one holds a null."""
        parts: list[Column] = []
        for column, data_type in zip(columns, types, strict=True):
            if column.null_count:
                raise CorruptFile("a key column holds a null")
            parts.extend(comparable_columns(column, data_type))
        return cls(parts, len(columns[0]))

    @classmethod
    def concat(cls, many: Sequence[Keys]) -> Keys:
        if len(many) == 1:
            return many[0]
        columns = [_concat([keys.columns[i] for keys in many]) for i in range(len(many[0].columns))]
        return cls(columns, sum(keys.size for keys in many))

    def __len__(self) -> int:
        return self.size

    def slice(self, start: int, stop: int) -> Keys:
        return Keys([column[start:stop] for column in self.columns], stop - start)

    def take(self, rows: npt.NDArray[Any]) -> Keys:
        """The keys of `rows`, which are indices or a mask."""
        indices = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Keys([c[indices] if isinstance(c, np.ndarray) else c.take(pa.array(indices)) for c in self.columns], len(indices))

    def at(self, row: int) -> tuple[Any, ...]:
        """One key as a tuple that compares like keys do, with that of any other row and with `comparable(…)`."""
        return tuple(int(column[row]) if isinstance(column, np.ndarray) else column[row].as_py() for column in self.columns)

    def search(self, key: tuple[Any, ...], side: Literal["left", "right"]) -> int:
        """How many rows (of keys in order) are smaller than `key`, or not larger when `side` is right."""
        if len(self.columns) == 1 and isinstance(self.columns[0], np.ndarray):
            return int(np.searchsorted(self.columns[0], np.int64(key[0]), side))
        bisect = bisect_left if side == "left" else bisect_right
        return bisect(range(self.size), key, key=self.at)

    def ascending(self) -> bool:
        """Whether each key is larger than the one before it."""
        undecided: Any = None
        for column in self.columns:
            before, after = column[:-1], column[1:]
            words = isinstance(column, np.ndarray)
            larger = after > before if words else _bools(pc.greater(after, before))
            if undecided is not None:
                larger = larger | ~undecided
            if larger.all():
                return True
            equal = after == before if words else _bools(pc.equal(after, before))
            if not (larger | equal).all():
                return False
            undecided = ~larger
        return self.size < 2

    def sort(self) -> tuple[Int64s, Int64s]:
        """A stable order of the rows by key, and where in that order each distinct key starts."""
        if self.size == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        sources = [_WordSource(column) if isinstance(column, np.ndarray) else _TextSource(column) for column in self.columns]
        order, new = _sort_stage(sources, None, None, self.size)
        while sources and not new.all():
            tied = _tied(new)
            rows = order[tied]
            group = np.cumsum(new[tied]) - 1
            inner, inner_new = _sort_stage(sources, rows, group, len(rows))
            order[tied] = rows[inner]
            new[tied] = inner_new
        return order, np.flatnonzero(new)


def sort_groups(columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType]) -> tuple[Int64s, Int64s]:
    """(order, starts): a stable argsort in key order, and the index in `order` at which each distinct key starts."""
    return Keys.of(columns, types).sort()


def comparable(key: Sequence[Any], types: Sequence[DataType]) -> tuple[Any, ...]:
    """A key given as internal values (`maintainer.model.values`) as a tuple that compares with `Keys.at`."""
    parts: list[Any] = []
    for value, data_type in zip(key, types, strict=True):
        match data_type.root:
            case TypeRoot.FLOAT:
                parts.append(int(_float_words(np.array([value], np.float32))[0]))
            case TypeRoot.DOUBLE:
                parts.append(int(_float_words(np.array([value], np.float64))[0]))
            case TypeRoot.DECIMAL:
                unscaled = int(value.scaleb(data_type.scale, _EXACT))
                parts.extend([unscaled] if data_type.precision <= 18 else [unscaled >> 64, (unscaled & (2**64 - 1)) - 2**63])
            case root if root in TIMESTAMPS:
                parts.append(value // 10 ** (9 - _timestamp_digits(data_type)))
            case root if root in CHARACTERS:
                parts.append(value.encode("utf-8", "surrogatepass"))
            case root if root in BINARIES:
                parts.append(bytes(value))
            case _:
                parts.append(int(value))
    return tuple(parts)


def stable_argsort(words: Int64s) -> Int64s:
    """`words.argsort(kind="stable")`, by the fastest way for what they are: timsort for nearly sorted rows, radix sort for narrow ranges, else
    a sort of values that carry their index, else timsort again."""
    size = len(words)
    if np.count_nonzero(words[1:] < words[:-1]) * _NEARLY_SORTED > size:
        low, width = _range(words)
        if width <= 16:
            return (words - low).astype(np.uint16).argsort(kind="stable")
        index_bits = (size - 1).bit_length()
        if width + index_bits <= 63:
            packed = ((words - low) << index_bits) | np.arange(size, dtype=np.int64)
            packed.sort()
            return cast(Int64s, packed & ((1 << index_bits) - 1))
    return words.argsort(kind="stable")


def _sort_stage(
    sources: list[_WordSource | _TextSource], rows: Int64s | None, group: Int64s | None, size: int
) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Order `rows` (None: all) by their group, then by as many of the next words as fit into one; used-up sources are removed.

    Returns the order as indices into `rows`, and which rows of that order differ from the one before them.
    """
    packed, width = group, 0 if group is None else int(group[-1]).bit_length()
    while sources:
        word = sources[0].word(rows, group)
        if word is not None:
            if packed is None and (len(sources) == 1 and isinstance(sources[0], _WordSource)):
                packed = word
            else:
                low, bits = _range(word)
                if packed is not None and width + bits > 63:
                    if packed is not group:
                        break
                    word, low = _dense_ranks(word), np.int64(0)
                    bits = int(word.max()).bit_length()
                packed = (word - low if bits <= 63 else word) if packed is None else (packed << bits) | (word - low)
                width += bits
            sources[0].advance()
        if sources[0].used_up:
            sources.pop(0)
    if packed is None:
        packed = np.zeros(size, np.int64)
    order = stable_argsort(packed)
    ordered = packed[order]
    new = np.empty(size, np.bool_)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return order, new


class _WordSource:
    """The one word of a fixed-width column."""

    def __init__(self, words: Int64s) -> None:
        self.words = words
        self.used_up = False

    def word(self, rows: Int64s | None, group: Int64s | None) -> Int64s | None:
        return self.words if rows is None else self.words[rows]

    def advance(self) -> None:
        self.used_up = True


class _TextSource:
    """Words of a binary column, most significant first: 7 bytes and, in the low 4 bits, how many of them exist, 8 when more follow.

    The count makes a word decide between "a" and "a\\0", and says when a value is over. Bytes that all values share are skipped. Rows that are
    still tied are often equal, which is one comparison of neighbours; values that differ late are ranked by Arrow.
    """

    def __init__(self, column: Any) -> None:
        self.column = column
        self.depth = 0
        self.open = True
        bounds = pc.min_max(column)
        self.prefix = common_prefix(bounds["min"].as_py(), bounds["max"].as_py())
        _, offset_buffer, data_buffer = column.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
        self.starts = offsets[:-1] - offsets[0]
        self.lengths = np.diff(offsets)
        data = np.zeros(int(offsets[-1] - offsets[0]) + 8, np.uint8)
        if len(data) > 8:
            data[:-8] = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
        self.words = np.ndarray((len(data) - 7,), np.uint64, data, strides=(1,))

    @property
    def used_up(self) -> bool:
        return not self.open

    def word(self, rows: Int64s | None, group: Int64s | None) -> Int64s | None:
        """The next word of `rows`; None when they need no more."""
        if self.depth and rows is not None and group is not None:
            values = self.column.take(pa.array(rows))
            if (_bools(pc.equal(values[1:], values[:-1])) | (group[1:] != group[:-1])).all():
                self.open = False
                return None
            if self.depth >= _WORDS_BEFORE_RANKING:
                self.open = False
                return cast(Int64s, pc.rank(values, "ascending", tiebreaker="dense").to_numpy().astype(np.int64))
        start, length = (self.starts, self.lengths) if rows is None else (self.starts[rows], self.lengths[rows])
        done = self.prefix + _WORD_BYTES * self.depth
        left = np.clip(length - done, 0, 8)
        self.open = bool((left == 8).any())
        found = self.words[np.minimum(start + done, len(self.words) - 1)].byteswap() & _MASKS[left]
        return cast(Int64s, (found >> np.uint64(4)).view(np.int64) | left)

    def advance(self) -> None:
        self.depth += 1


def _tied(new: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows of an order share their key with a neighbour."""
    tied = ~new
    tied[:-1] |= tied[1:]
    return tied


def common_prefix(first: bytes, second: bytes) -> int:
    """How many bytes two values, and so all between them, start with alike."""
    size = min(len(first), len(second))
    differ = np.flatnonzero(np.frombuffer(first, np.uint8, size) != np.frombuffer(second, np.uint8, size))
    return int(differ[0]) if len(differ) else size


def _range(words: Int64s) -> tuple[np.int64, int]:
    """The smallest word, and how many bits the difference to the largest has."""
    low, high = words.min(), words.max()
    return low, (int(high) - int(low)).bit_length()


def _dense_ranks(words: Int64s) -> Int64s:
    order = stable_argsort(words)
    ordered = words[order]
    ranks = np.empty(len(words), np.int64)
    ranks[order] = np.concatenate(([0], np.cumsum(ordered[1:] != ordered[:-1])))
    return ranks


def comparable_columns(column: pa.Array | pa.ChunkedArray, data_type: DataType) -> Iterator[Column]:
    """The words, or the bytes, of a column without nulls (what is said of rows that are null means nothing)."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if data_type.root in CHARACTERS | BINARIES:
        yield _concat([_as_binary(chunk) for chunk in chunks], pa.large_binary())
    elif data_type.root == TypeRoot.DECIMAL:
        halves = [decimal_halves(chunk) for chunk in chunks]
        if data_type.precision > 18:
            yield _concat([half[:, 1] for half in halves])
            yield _concat([half[:, 0] ^ _SIGN for half in halves])
        else:
            yield _concat([np.ascontiguousarray(half[:, 0]) for half in halves])
    else:
        yield _concat([_words(chunk, data_type) for chunk in chunks])


def _words(chunk: pa.Array, data_type: DataType) -> Int64s:
    match data_type.root:
        case TypeRoot.BOOLEAN:
            return cast(Int64s, chunk.cast(pa.int8()).to_numpy(zero_copy_only=False).astype(np.int64))
        case TypeRoot.FLOAT:
            return _float_words(fixed_width(chunk, np.dtype(np.float32)))
        case TypeRoot.DOUBLE:
            return _float_words(fixed_width(chunk, np.dtype(np.float64)))
        case root if root in TIMESTAMPS:
            unit = {3: "ms", 6: "us", 9: "ns"}[_timestamp_digits(data_type)]
            if chunk.type.unit != unit:
                chunk = chunk.cast(pa.timestamp(unit, chunk.type.tz))
    words = fixed_width(chunk, np.dtype(f"i{chunk.type.bit_width // 8}"))
    return cast(Int64s, words.astype(np.int64, copy=False))


def fixed_width(chunk: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values of a fixed-width array, not copied; whatever they are where it is NULL."""
    if len(chunk) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize)


def _float_words(values: npt.NDArray[Any]) -> Int64s:
    """Java's `floatToIntBits` and `doubleToLongBits`, made to sort as signed integers."""
    integer: Any = np.int32 if values.dtype == np.float32 else np.int64
    bits = np.where(np.isnan(values), values.dtype.type(np.nan), values).view(integer)
    return cast(Int64s, (bits ^ ((bits >> (bits.dtype.itemsize * 8 - 1)) & np.iinfo(integer).max)).astype(np.int64, copy=False))


def decimal_halves(chunk: pa.Array) -> npt.NDArray[Any]:
    """A row (low half, high half) for each decimal128."""
    if len(chunk) == 0:
        return np.empty((0, 2), np.int64)
    return np.frombuffer(chunk.buffers()[1], np.int64, 2 * len(chunk), 16 * chunk.offset).reshape(-1, 2)


def _as_binary(chunk: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_decode()
    return chunk if pa.types.is_large_binary(chunk.type) else chunk.cast(pa.large_binary())


def _concat(parts: Sequence[Column], empty: pa.DataType | None = None) -> Column:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.empty(0, np.int64) if empty is None else pa.array([], empty)
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)


def _bools(array: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    return cast("npt.NDArray[np.bool_]", array.to_numpy(zero_copy_only=False))


def _timestamp_digits(data_type: DataType) -> int:
    return 3 if data_type.precision <= 3 else 6 if data_type.precision <= 6 else 9
