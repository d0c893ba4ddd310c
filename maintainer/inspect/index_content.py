"""Deep verification of index groups: does an index say what the data says (DESIGN §5 "verify")?

| rule          | holds when                                                                                                         |
| ------------- | ------------------------------------------------------------------------------------------------------------------ |
| index-content | the payload of an active group has every value of its source files, at every position, and nothing else            |
| index-answer  | queries are answered from the group as from the data: every kind of condition, on edges, special values, a sample   |

`index-content` compares *all* (key, ordinal) pairs without holding them: each pair is hashed, and the hashes are added up for each source file,
once in the order of the data and once in that of the payload. Different pairs give the same sums once in 2⁶⁴ times.

`index-answer` goes the way of a scan (`maintainer.read.evaluate`): an index may give rows that do not match, since the scan looks at them, but
must never lack one; and equality is exact. Payloads of FLOAT and DOUBLE may hold −0.0 and 0.0 as one key, and so both rules take them for one
(as elements of arrays they are always two).

Memory: the column streams; of the payload a block, or a bitmap, at a time; of the answers the bitmaps of one group.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from maintainer.data.elements import explode
from maintainer.data.values import to_arrow_array
from maintainer.errors import CorruptFile, CorruptTable
from maintainer.format import key_bytes, posting
from maintainer.format.byte_column import ByteColumn
from maintainer.format.kept import Cache
from maintainer.index.definition import MAINTAINED, IndexDefinition, definitions
from maintainer.index.family import FamilyReader
from maintainer.index.groups import evaluate
from maintainer.inspect.coverage import unusable
from maintainer.inspect.findings import Findings
from maintainer.inspect.payload import open_group
from maintainer.inspect.rows import batch_rows, open_file
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta
from maintainer.model.predicate import Leaf, Op
from maintainer.model.types import CHARACTERS, FLOATS, DataType, TypeRoot
from maintainer.read.covering import Covering
from maintainer.read.evaluate import BucketIndexes
from maintainer.read.residual import comparable, mask
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

SAMPLED_KEYS = 200
"""Keys asked of each payload, beside the special ones: those with the smallest hashes, so the same ones every time."""
_LONG_KEY = 4096
_HASHED_BYTES = 1 << 20
_POSTING_PART = 1 << 20
_CACHE = 16 << 20
_EXACT = frozenset({Op.EQ, Op.IN, Op.IS_NULL, Op.ARRAY_CONTAINS, Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL})

Uint64s = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.int64]

_BASE = 0x9E3779B97F4A7C15
with np.errstate(over="ignore"):
    _POWERS = np.cumprod(np.full(_LONG_KEY + 1, _BASE, np.uint64))


def verify_indexes(store: TableStore, state: TableState, bucket: BucketState, files: Sequence[DataFileMeta], findings: Findings) -> None:
    """Both rules on every active group whose source files are among `files`, which can be opened."""
    by_name = {file.file_name: file for file in files}
    defined = [definition for definition in definitions(state.schema) if definition.family in MAINTAINED]
    unused = unusable(store, state, defined)
    for definition in defined:
        if definition.column in unused:
            continue  # nobody asks it
        groups = evaluate(bucket, definition)
        for level, payload in groups.active.items():
            names = [name for name, _ in groups.sources[level].files]
            if not all(name in by_name for name in names):
                continue
            group = _Group(store, state, bucket, definition, [by_name[name] for name in names], groups.sources[level].first_ordinals)
            samples: list[Any] = []
            before = len(findings.problems)
            with findings.rule("index-content", payload.file_name):
                reader = open_group(store, bucket, groups, definition, level)
                samples = group.compare(reader)
            if len(findings.problems) == before:
                with findings.rule("index-answer", payload.file_name):
                    group.ask(samples, reader.answered)


@dataclass(frozen=True)
class _Group:
    """A column of some files, whose rows have consecutive ordinals."""

    store: TableStore
    state: TableState
    bucket: BucketState
    definition: IndexDefinition
    files: Sequence[DataFileMeta]
    first_ordinals: Sequence[int]

    @property
    def column(self) -> str:
        return self.definition.column

    @property
    def of_elements(self) -> bool:
        """Whether the column holds arrays, which are found by their elements."""
        return self.definition.data_type.root is TypeRoot.ARRAY

    @property
    def key_type(self) -> DataType:
        """The type of what rows are found by."""
        element = self.definition.data_type.element
        return element if self.of_elements and element is not None else self.definition.data_type

    @property
    def total(self) -> int:
        return sum(file.row_count for file in self.files)

    def compare(self, reader: FamilyReader) -> list[Any]:
        """Raises unless payload and data hold the same pairs; else the values to ask for."""
        samples = _Samples(self.key_type)
        said = _Sums(self.first_ordinals, self.total)
        for keys, ids, counts in reader.batches():
            column = ByteColumn.of_rows(keys)
            hashes = self._hashes(column)
            said.add(np.repeat(hashes, counts), ids)
            samples.look_at(keys, hashes)
        nulls = BitMap64() if self.of_elements else reader.evaluate(Leaf(Op.IS_NULL, self.column))
        if nulls is None:
            raise CorruptTable("the index does not tell which rows are NULL")
        said_nulls = _Sums(self.first_ordinals, self.total)
        for ids in posting.parts(nulls, _POSTING_PART):
            said_nulls.add(np.zeros(len(ids), np.uint64), ids)
        found, found_nulls = _Sums(self.first_ordinals, self.total), _Sums(self.first_ordinals, self.total)
        for file, first in zip(self.files, self.first_ordinals, strict=True):
            for start, batch in self.batches(file):
                array = batch.column(0)
                if self.of_elements:
                    found.add(*self._elements(array, first + start))
                    continue
                ids = np.arange(first + start, first + start + len(array))
                valid = np.asarray(array.is_valid())
                found.add(self._hashes(_keys(array.drop_null(), self.key_type)), ids[valid])
                found_nulls.add(np.zeros(int((~valid).sum()), np.uint64), ids[~valid])
        wrong = [
            f"of {file.file_name} the index has {said.counts[i]} values and {said_nulls.counts[i]} NULLs, "
            f"the data {found.counts[i]} and {found_nulls.counts[i]}"
            + (", at other positions or of other values" if said.counts[i] == found.counts[i] else "")
            for i, file in enumerate(self.files)
            if (said.sums[i], said_nulls.sums[i]) != (found.sums[i], found_nulls.sums[i])
        ]
        if wrong:
            raise CorruptTable(f"column {self.column}: {'; '.join(wrong)}")
        return samples.values()

    def _hashes(self, keys: ByteColumn) -> Uint64s:
        return key_hashes(keys, self.key_type, zeros_are_one=not self.of_elements)

    def _elements(self, arrays: pa.Array, first: int) -> tuple[Uint64s, Ids]:
        """The hash of each element and the ordinal of its row; what a row has twice counts once."""
        elements, ids = explode(arrays, first)
        hashes = self._hashes(_keys(elements, self.key_type))
        order = np.lexsort((hashes, ids))
        hashes, ids = hashes[order], ids[order]
        new = np.ones(len(ids), bool)
        new[1:] = (ids[1:] != ids[:-1]) | (hashes[1:] != hashes[:-1])
        return hashes[new], ids[new]

    def batches(self, file: DataFileMeta) -> Iterator[tuple[int, pa.RecordBatch]]:
        with open_file(self.store, self.state, self.bucket, file) as data:
            yield from data.batches([self.column], batch_rows(data))

    def ask(self, samples: Sequence[Any], answered: frozenset[Op]) -> None:
        """Raises when the reader's way to an answer loses rows, or is not exact where it has to be: where all of such payloads answer."""
        equal = [Leaf(Op.ARRAY_CONTAINS if self.of_elements else Op.EQ, self.column, (value,)) for value in samples]
        others = (_array_conditions if self.of_elements else _conditions)(self.column, samples, self.key_type)
        indexes = BucketIndexes(self.store, self.bucket, [self.definition], [Covering.of(self.bucket, self.definition)], Cache(_CACHE))
        for file in self.files:
            expected = self._expected(file, samples, others)
            for number, leaf in enumerate([*equal, *others]):
                self._judge(leaf, file, indexes.ask(leaf, file), expected[number], leaf.op in answered)

    def _expected(self, file: DataFileMeta, samples: Sequence[Any], others: Sequence[Leaf]) -> list[BitMap64]:
        """For each sample the positions of rows that have it, then for each condition those that satisfy it."""
        data_type = self.key_type
        found = [BitMap64() for _ in range(len(samples) + len(others))]
        wanted = comparable(to_arrow_array(samples, data_type), data_type)
        for start, batch in self.batches(file):
            values = batch.column(0)
            rows = np.arange(start, start + len(values))
            if self.of_elements:
                values, rows = explode(values, start)
            numbers = np.asarray(pc.fill_null(pc.index_in(comparable(values, data_type), value_set=wanted), -1))
            order = np.argsort(numbers, kind="stable")
            cuts = np.searchsorted(numbers[order], np.arange(len(samples) + 1))
            for number in np.unique(numbers[numbers >= 0]):
                found[number] |= posting.to_bitmap(rows[order[cuts[number] : cuts[number + 1]]])
            for number, leaf in enumerate(others, len(samples)):
                found[number] |= posting.to_bitmap(np.flatnonzero(mask(leaf, batch, self.state.schema)) + start)
        return found

    def _judge(self, leaf: Leaf, file: DataFileMeta, answer: Any, expected: BitMap64, certain: bool) -> None:
        about = f"column {self.column}, {leaf.op} {', '.join(str(each)[:80] for each in map(repr, leaf.literals))}, {file.file_name}"
        if answer.positions is None:
            if certain:
                raise CorruptTable(f"{about}: the index is not used: {'; '.join(answer.why_unknown)}")
            return
        lost = len(expected - answer.positions)
        if lost:
            raise CorruptTable(f"{about}: the index loses {lost} of {len(expected)} rows")
        extra = len(answer.positions) - len(expected)
        if extra and certain and leaf.op in _EXACT and self.key_type.root not in FLOATS:
            raise CorruptTable(f"{about}: the index gives {extra} rows that do not match")


class _Sums:
    """For each source file the sum of the hashes of its (key, ordinal) pairs, and how many there are."""

    def __init__(self, first_ordinals: Sequence[int], total: int) -> None:
        self._firsts = np.array(first_ordinals, np.int64)
        self._total = total
        self.sums = np.zeros(len(first_ordinals), np.uint64)
        self.counts = np.zeros(len(first_ordinals), np.int64)

    def add(self, hashes: Uint64s, ids: Ids) -> None:
        if not len(ids):
            return
        if ids.min() < 0 or ids.max() >= self._total:
            raise CorruptFile(f"ordinals {ids.min()} to {ids.max()} in the payload of a group of {self._total} rows")
        with np.errstate(over="ignore"):
            pairs = _mix(hashes + _mix(ids.astype(np.uint64) + np.uint64(1)))
            files = np.searchsorted(self._firsts, ids, "right") - 1
            np.add.at(self.sums, files, pairs)
        self.counts += np.bincount(files, minlength=len(self.counts))


class _Samples:
    """Which keys of a payload are asked for: the first, the last, special ones, and those with the smallest hashes."""

    def __init__(self, data_type: DataType) -> None:
        self._type = data_type
        self._heap: list[tuple[int, bytes]] = []
        self._held: set[bytes] = set()
        self._special: dict[bytes, None] = {}
        self._bounds: list[tuple[Any, bytes]] = []
        self._longest = b""

    def look_at(self, keys: Sequence[bytes], hashes: Uint64s) -> None:
        if not keys:
            return
        numbered = hashes.tolist()
        for number in np.argsort(hashes)[:SAMPLED_KEYS].tolist():
            if keys[number] not in self._held:
                self._held.add(keys[number])
                heapq.heappush(self._heap, (-numbered[number], keys[number]))
                if len(self._heap) > SAMPLED_KEYS:
                    self._held.remove(heapq.heappop(self._heap)[1])
        bounds = [*self._bounds, *((key_bytes.comparable(key, self._type), key) for key in (keys[0], keys[-1]))]  # payloads are in order
        self._bounds = [min(bounds), max(bounds)]
        if self._type.root in CHARACTERS:
            self._longest = max(self._longest, *keys, key=len)
            if b"" in keys:
                self._special[b""] = None
        elif self._type.root in FLOATS:
            self._special.update(dict.fromkeys(key for key in keys if _is_special_float(key, self._type)))

    def values(self) -> list[Any]:
        """The sampled values, ascending."""
        keys = dict.fromkeys([*(key for _, key in self._bounds), *self._special, *(key for _, key in self._heap)])
        if self._longest:
            keys[self._longest] = None
        return [key_bytes.decode(key, self._type) for key in sorted(keys, key=lambda key: key_bytes.comparable(key, self._type))]


def _is_special_float(key: bytes, data_type: DataType) -> bool:
    value = key_bytes.decode(key, data_type)
    return bool(value != value or value in (0.0, float("inf"), float("-inf")))


def _conditions(column: str, samples: Sequence[Any], data_type: DataType) -> list[Leaf]:
    """Every kind of condition that a sorted index may answer, on the edges and in the middle."""
    found = [Leaf(Op.IS_NULL, column), Leaf(Op.IS_NOT_NULL, column)]
    if not samples:
        return found
    low, quarter, middle, last_quarter, high = (samples[(len(samples) - 1) * number // 4] for number in range(5))
    found += [Leaf(op, column, (middle,)) for op in (Op.NE, Op.LT, Op.GE)]
    found += [Leaf(op, column, (low,)) for op in (Op.LT, Op.LE)] + [Leaf(op, column, (high,)) for op in (Op.GT, Op.GE)]
    some = tuple(samples[:: max(1, len(samples) // 5)])
    found += [Leaf(Op.IN, column, some), Leaf(Op.NOT_IN, column, some)]
    found += [Leaf(op, column, (quarter, last_quarter)) for op in (Op.BETWEEN, Op.NOT_BETWEEN)]
    if data_type.root in CHARACTERS:
        for text in (middle, high):
            found += [Leaf(Op.STARTS_WITH, column, (text[: max(1, len(text) // 2)],)), Leaf(Op.STARTS_WITH, column, (text,))]
            found += [Leaf(Op.ENDS_WITH, column, (text[len(text) // 2 :],)), Leaf(Op.CONTAINS, column, (text[1:-1],))]
    return found


def _array_conditions(column: str, samples: Sequence[Any], data_type: DataType) -> list[Leaf]:
    """Conditions on several elements: all of them of neighbours, and any of some from the first to the last."""
    some = tuple(samples[:: max(1, len(samples) // 5)])
    pairs = [Leaf(Op.ARRAY_CONTAINS_ALL, column, tuple(samples[at : at + 2])) for at in range(0, len(samples), max(1, len(samples) // 5))]
    return [Leaf(Op.ARRAYS_OVERLAP, column, some), *pairs]


def key_hashes(keys: ByteColumn, data_type: DataType, zeros_are_one: bool = True) -> Uint64s:
    """64 bits for each key, equal for equal keys."""
    if zeros_are_one and data_type.root in FLOATS:
        keys = _without_sign_of_zero(keys)
    hashes = np.empty(len(keys), np.uint64)
    lengths, offsets = keys.lengths, keys.offsets
    start = 0
    while start < len(keys):
        end = max(start + 1, int(np.searchsorted(offsets, offsets[start] + _HASHED_BYTES, "right")) - 1)
        long = lengths[start:end] > _LONG_KEY
        if long.any():
            end = start + max(1, int(long.argmax()))
        if lengths[start] > _LONG_KEY:
            hashes[start] = int.from_bytes(blake2b(keys[start], digest_size=8).digest(), "little")
        else:
            hashes[start:end] = _hashed(keys.data[offsets[start] : offsets[end]], offsets[start : end + 1] - offsets[start])
        start = end
    return hashes


def _hashed(data: npt.NDArray[np.uint8], offsets: Ids) -> Uint64s:
    lengths = np.diff(offsets)
    within = np.arange(len(data)) - np.repeat(offsets[:-1], lengths)
    with np.errstate(over="ignore"):
        sums = np.zeros(len(data) + 1, np.uint64)
        np.cumsum((data.astype(np.uint64) + np.uint64(1)) * _POWERS[within], out=sums[1:])
        return _mix(sums[offsets[1:]] - sums[offsets[:-1]] + lengths.astype(np.uint64) * np.uint64(_BASE))


def _mix(words: Uint64s) -> Uint64s:
    """Every bit of the result depends on every bit of the word (the finalizer of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _without_sign_of_zero(keys: ByteColumn) -> ByteColumn:
    lengths = keys.lengths
    if not len(keys) or (lengths != lengths[0]).any():
        return keys  # no keys of floats; whoever decodes them says so
    width = int(lengths[0])
    matrix = keys.data.reshape(-1, width).copy()
    zero = ~matrix[:, :-1].any(axis=1) & (matrix[:, -1] == 0x80)
    matrix[zero] = 0
    return ByteColumn.of_matrix(matrix)


def _keys(array: pa.Array, data_type: DataType) -> ByteColumn:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return key_bytes.encode_column(array, data_type)
