"""Rows as Avro records, a column at a time (Avro 1.11 specification "Binary Encoding").

A record is its values one after another, so records are what comes of joining the rows of columns of bytes, which Arrow does. Every value is
some *pieces*, each a column of bytes with one entry, maybe empty, for each row:

* `Digits`: few bytes (numbers, lengths, the branch of a union) as a matrix of bytes and a mask of those that are there; what is masked, row
  by row, is the encoding. Pieces of this kind that follow one another are put side by side and become bytes at once.
* a binary array: texts, and the items of a collection, which are encoded as rows of their own and then cut by the collection's offsets.

| type                     | bytes                                                              |
| ------------------------ | ------------------------------------------------------------------ |
| nullable                 | 0 for NULL, else 2 and the value                                   |
| integers, dates, times   | zigzag varint                                                      |
| FLOAT, DOUBLE, BOOLEAN   | 4 and 8 bytes, little-endian; one byte                             |
| texts, binaries          | varint of the length, bytes                                        |
| DECIMAL                  | the same, of the unscaled value: big-endian, no longer than needed |
| ARRAY, MAP, MULTISET     | if there are items: varint of their number, the items; then 0      |
| ROW                      | its members                                                        |

Below a ROW that is NULL, members have no bytes: `there` says which rows have any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.format.avro_record import map_parts
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, DataField, DataType, TypeRoot

_BINARY = pa.large_binary()

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Digits:
    """`kept`: which of the bytes are there."""

    bytes: npt.NDArray[np.uint8]
    kept: Mask


Piece = Any
"""`Digits`, or a large-binary array without nulls."""


def encode(columns: Sequence[pa.Array], fields: Sequence[DataField]) -> pa.Array:
    """The records as a large-binary array: the columns have as many rows, and the record's fields are these."""
    rows = len(columns[0])
    pieces = [piece for column, field in zip(columns, fields, strict=True) for piece in _pieces(column, field.type, field.type.nullable, None)]
    return _joined(pieces, rows)


def _pieces(array: pa.Array, data_type: DataType, nullable: bool, there: Mask | None) -> list[Piece]:
    pieces: list[Piece] = []
    if nullable:
        valid = _valid(array)
        branch = np.full((len(array), 1), 2, np.uint8)
        if valid is not None:
            branch[~valid] = 0
        pieces.append(Digits(branch, _kept(there, len(array), 1)))
        there = valid if there is None else there if valid is None else there & valid
    return pieces + _values(array, data_type, there)


def _values(array: pa.Array, data_type: DataType, there: Mask | None) -> list[Piece]:
    root = data_type.root
    if root in CHARACTERS or root in BINARIES:
        return _texts(array, there)
    if root in FLOATS:
        return [_little_endian(_numbers(array, None), there)]
    match root:
        case TypeRoot.BOOLEAN:
            return [_little_endian(_numbers(array.cast(pa.uint8()), None), there)]
        case TypeRoot.DECIMAL:
            return [_decimals(array, there)]
        case TypeRoot.ROW:
            return [
                piece
                for child, field in zip(array.flatten(), data_type.fields, strict=True)
                for piece in _pieces(child, field.type, field.type.nullable, there)
            ]
        case TypeRoot.ARRAY | TypeRoot.VECTOR:
            assert data_type.element is not None
            element = data_type.element
            return _collection(array, there, [(array.values, element, element.nullable)])
        case TypeRoot.MAP | TypeRoot.MULTISET:
            key, value = map_parts(data_type)
            has_null_keys = key.root not in CHARACTERS  # a union in the schema, though there are none
            return _collection(array, there, [(array.keys, key, has_null_keys), (array.items, value, value.nullable)])
        case _:
            return [_varints(_numbers(array, np.int64), there)]


def _numbers(array: pa.Array, kind: Any) -> npt.NDArray[Any]:
    """Zero for NULL."""
    plain = array.type
    if not (pa.types.is_integer(plain) or pa.types.is_floating(plain)):
        plain = pa.int32() if plain.bit_width == 32 else pa.int64()
        array = array.view(plain)
    if array.null_count:
        array = array.fill_null(0)
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers if kind is None else numbers.astype(kind, copy=False)


def _little_endian(numbers: npt.NDArray[Any], there: Mask | None) -> Digits:
    width = numbers.dtype.itemsize
    return Digits(np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, width), _kept(there, len(numbers), width))


def _varints(numbers: npt.NDArray[np.int64], there: Mask | None) -> Digits:
    rest = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    largest = int(rest.max()) if len(rest) else 0
    width = max(1, -(-largest.bit_length() // 7))
    found = np.empty((len(rest), width), np.uint8)
    kept = np.empty((len(rest), width), np.bool_)
    kept[:, 0] = True if there is None else there
    for place in range(width):
        found[:, place] = rest & 0x7F
        rest = rest >> np.uint64(7)
        if place + 1 < width:
            more = rest != 0
            kept[:, place + 1] = more if there is None else more & there
            found[:, place] |= more.view(np.uint8) << 7
    return Digits(found, kept)


def _texts(array: pa.Array, there: Mask | None) -> list[Piece]:
    array = array.cast(pa.binary())
    if array.null_count:
        array = array.fill_null(b"")
    if there is not None and not there.all():
        array = pc.if_else(pa.array(there), array, pa.scalar(b"", array.type))
    lengths = pc.binary_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    return [_varints(lengths, there), array.cast(_BINARY)]


def _decimals(array: pa.Array, there: Mask | None) -> Digits:
    """As Java's `BigInteger.toByteArray`: as many bytes as hold the value and its sign."""
    rows = len(array)
    digits = np.frombuffer(array.buffers()[1], np.uint8, 16 * rows, 16 * array.offset).reshape(rows, 16)[:, ::-1]
    signs = (digits[:, :1] >> 7) * np.uint8(0xFF)
    plain = digits ^ signs
    valid = _valid(array)
    if valid is not None:  # what lies under a NULL is anything
        plain = np.where(valid[:, None], plain, 0)
    full = plain != 0
    first = np.where(full.any(axis=1), full.argmax(axis=1), 15)
    lengths = 16 - first + (plain[np.arange(rows), first] >> 7)
    if rows and lengths.max() > 16:
        raise ValueError("a decimal of more than 128 bits")
    width = int(lengths.max()) if rows else 1
    kept = np.arange(16 - width, 16) >= (16 - lengths)[:, None]
    if there is not None:
        kept &= there[:, None]
    length = Digits((2 * lengths).astype(np.uint8)[:, None], _kept(there, rows, 1))
    return _side_by_side([length, Digits(digits[:, 16 - width :], kept)])


def _collection(array: pa.Array, there: Mask | None, parts: Sequence[tuple[pa.Array, DataType, bool]]) -> list[Piece]:
    rows = len(array)
    offsets = array.offsets.to_numpy()
    first, stop = (int(offsets[0]), int(offsets[-1])) if rows else (0, 0)
    pieces = [piece for items, data_type, nullable in parts for piece in _pieces(items.slice(first, stop - first), data_type, nullable, None)]
    items = _joined(pieces, stop - first)
    ends = np.frombuffer(items.buffers()[1], np.int64, len(items) + 1)
    counts = np.diff(offsets).astype(np.int64)
    has_items = counts > 0
    cut = ends[offsets.astype(np.int64) - first]
    shown = has_items if there is None else has_items & there
    if bool((has_items & ~shown).any()):  # a NULL need not be empty
        keep = np.flatnonzero(shown)
        lengths = np.where(shown, np.diff(cut), 0)
        chosen = pa.Array.from_buffers(_BINARY, rows, [None, pa.py_buffer(cut), items.buffers()[2]]).take(pa.array(keep))
        cut, items = np.concatenate([[0], np.cumsum(lengths)]), chosen
    data = items.buffers()[2] or pa.py_buffer(b"")
    content = pa.Array.from_buffers(_BINARY, rows, [None, pa.py_buffer(np.ascontiguousarray(cut, np.int64)), data])
    return [_varints(counts, shown), content, Digits(np.zeros((rows, 1), np.uint8), _kept(there, rows, 1))]


def _joined(pieces: Sequence[Piece], rows: int) -> pa.Array:
    columns: list[pa.Array] = []
    digits: list[Digits] = []
    for piece in [*pieces, None]:
        if isinstance(piece, Digits):
            digits.append(piece)
            continue
        if digits:
            columns.append(_bytes(_side_by_side(digits)))
            digits = []
        if piece is not None:
            columns.append(piece)
    if not columns:
        return pa.array([b""] * rows, _BINARY)
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, pa.scalar(b"", _BINARY))


def _side_by_side(digits: Sequence[Digits]) -> Digits:
    if len(digits) == 1:
        return digits[0]
    return Digits(np.hstack([one.bytes for one in digits]), np.hstack([one.kept for one in digits]))


def _bytes(digits: Digits) -> pa.Array:
    offsets = np.zeros(len(digits.bytes) + 1, np.int64)
    np.cumsum(digits.kept.sum(axis=1), out=offsets[1:])
    data = digits.bytes[digits.kept]
    return pa.Array.from_buffers(_BINARY, len(digits.bytes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _valid(array: pa.Array) -> Mask | None:
    return np.asarray(array.is_valid()) if array.null_count else None


def _kept(there: Mask | None, rows: int, width: int) -> Mask:
    if there is None:
        return np.ones((rows, width), np.bool_)
    return np.repeat(there[:, None], width, axis=1)
