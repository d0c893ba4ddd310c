"""How a payload of sorted keys answers predicates (spec 07 §4.1, 08 §8; Java `SortedFileGlobalIndexReader`, `SortedFileMetaSelector`).

| predicate                 | answer                                                          | when                       |
| ------------------------- | --------------------------------------------------------------- | -------------------------- |
| IS [NOT] NULL, =, <>      | exact; = and <> with null: none                                 | always                     |
| [NOT] IN                  | exact; nulls of IN never match, NOT IN with a null matches none | always                     |
| <, <=, >, >=, BETWEEN     | exact; unknown with a null bound                                | within the limit           |
| startsWith                | exact                                                           | text columns               |
| endsWith, contains, LIKE  | as the family can, else all rows with a value                   | text columns, within the limit |
| everything else           | unknown                                                         |                            |

The limit is `<family>-index.fallback-scan-max-size` bytes of payload (256 mb). The metadata's smallest and largest key answer what they can
before anything is read. Negations are complements of `[0, total)`, so that they keep what a damaged payload does not mention.

Zeros: the payload orders −0.0 below 0.0 as Java does, while others take them for equal. Equality looks up both, bounds that include one zero
include both, and negations exclude only the one that was named: answers are right for both readings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar

from pyroaring import BitMap64

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.format import index_meta, key_bytes
from maintainer.format.index_meta import IndexMeta
from maintainer.format.key_bytes import Comparable
from maintainer.index.definition import IndexDefinition
from maintainer.index.options import memory_size
from maintainer.model.like import reduced
from maintainer.model.predicate import Leaf, Op
from maintainer.model.types import CHARACTERS, FLOATS, DataType

DEFAULT_FALLBACK_SCAN = 256 << 20
_TEXT = frozenset({Op.STARTS_WITH, Op.ENDS_WITH, Op.CONTAINS, Op.LIKE})
_SCANNED = (_TEXT - {Op.STARTS_WITH}) | {Op.LT, Op.LE, Op.GT, Op.GE, Op.BETWEEN, Op.NOT_BETWEEN}


class KeyedReader:
    """A payload of keys of a type, with the ordinals of `total_rows` rows, and what the index manifest says of it."""

    def __init__(self, key_type: DataType, meta: bytes | None, total_rows: int) -> None:
        self._type = key_type
        self._meta_bytes = meta
        self._total = total_rows

    @cached_property
    def _meta(self) -> IndexMeta | None:
        return None if self._meta_bytes is None else index_meta.decode(self._meta_bytes)

    def why_not(self, leaf: Leaf) -> str:
        """See `FamilyReader.why_not`."""
        return f"does not answer {leaf.op}"

    def _checked(self, ordinals: BitMap64) -> BitMap64:
        if ordinals and ordinals.max() >= self._total:
            raise CorruptFile(f"ordinal {ordinals.max()} in the payload of a group of {self._total} rows")
        return ordinals

    def _comparable(self, key: bytes) -> Comparable:
        return key_bytes.comparable(key, self._type)


class SortedReader(KeyedReader, ABC):
    """The predicates, in terms of the few questions that a family answers about its keys."""

    answered: ClassVar = frozenset({Op.EQ, Op.NE, Op.IN, Op.NOT_IN, Op.IS_NULL, Op.IS_NOT_NULL})

    def __init__(self, size: int, definition: IndexDefinition, meta: bytes | None, total_rows: int) -> None:
        super().__init__(definition.data_type, meta, total_rows)
        self._size = size
        self._definition = definition

    @abstractmethod
    def _null_rows(self) -> BitMap64:
        """Ordinals of nulls."""

    @abstractmethod
    def _lookup(self, keys: Iterable[bytes]) -> BitMap64:
        """Ordinals of any of these keys."""

    @abstractmethod
    def _between(self, low: Comparable | None, low_inclusive: bool, high: Comparable | None, high_inclusive: bool) -> BitMap64:
        """Ordinals of the keys between two bounds; None is open."""

    @abstractmethod
    def _starting_with(self, prefix: bytes) -> BitMap64:
        """Ordinals of the keys with a prefix."""

    @abstractmethod
    def _matching(self, leaf: Leaf) -> BitMap64 | None:
        """Ordinals of the keys that satisfy an endsWith, contains or LIKE; None when the keys cannot be looked through."""

    @abstractmethod
    def verify(self) -> list[str]:
        """See `FamilyReader.verify`."""

    def why_not(self, leaf: Leaf) -> str:
        """See `FamilyReader.why_not`."""
        if leaf.op in _SCANNED and None not in leaf.literals and not self._may_scan:
            return f"is larger than {self._limit} says for {leaf.op}"
        return super().why_not(leaf)

    def evaluate(self, leaf: Leaf) -> BitMap64 | None:
        """See `FamilyReader.evaluate`."""
        if leaf.negated:
            return None
        try:
            return self._evaluate(reduced(leaf) if self._is_text else leaf)
        except (Unsupported, UsageError):
            return None

    def _evaluate(self, leaf: Leaf) -> BitMap64 | None:
        match leaf.op:
            case Op.IS_NULL:
                return self._nulls()
            case Op.IS_NOT_NULL:
                return self._with_value()
            case Op.EQ | Op.IN:
                return self._equal(leaf.literals)
            case Op.NE | Op.NOT_IN:
                if None in leaf.literals:
                    return BitMap64()
                return self._with_value() - self._lookup_in_range(self._key(value) for value in leaf.literals)
            case Op.LT | Op.LE | Op.GT | Op.GE | Op.BETWEEN | Op.NOT_BETWEEN:
                return None if None in leaf.literals else self._range(leaf)
            case op if op in _TEXT and self._is_text and leaf.literal is not None:
                return self._text(leaf)
            case _:
                return None

    def _equal(self, values: tuple[Any, ...]) -> BitMap64:
        keys = {key for value in values if value is not None for key in self._equal_keys(value)}
        return self._lookup_in_range(keys)

    def _lookup_in_range(self, keys: Iterable[bytes]) -> BitMap64:
        """`_lookup` without the keys that the metadata excludes, in key order so that neighbours share a block."""
        bounds = self._bounds
        if bounds is None:
            return BitMap64()
        low, high = bounds
        found = sorted((self._comparable(key), key) for key in keys)
        keep = [key for value, key in found if low <= value <= high]
        return self._checked(self._lookup(keep)) if keep else BitMap64()

    def _range(self, leaf: Leaf) -> BitMap64 | None:
        keys = [self._key(value) for value in leaf.literals]
        first, last = self._comparable(keys[0]), self._comparable(keys[-1])
        lowest, highest = (self._comparable(self._zero(key, negative)) for key, negative in ((keys[0], True), (keys[-1], False)))
        match leaf.op:
            case Op.LT:
                return self._scan((None, True, first, False))
            case Op.LE:
                return self._scan((None, True, highest, True))
            case Op.GT:
                return self._scan((first, False, None, True))
            case Op.GE:
                return self._scan((lowest, True, None, True))
            case Op.BETWEEN:
                return self._scan((lowest, True, highest, True))
            case _:
                if first > last:
                    return self._with_value()
                return self._scan((None, True, first, False), (last, False, None, True))

    def _scan(self, *ranges: tuple[Comparable | None, bool, Comparable | None, bool]) -> BitMap64 | None:
        bounds = self._bounds
        if bounds is None:
            return BitMap64()
        asked = [interval for interval in ranges if _overlaps(interval, *bounds)]
        if not asked:
            return BitMap64()
        if not self._may_scan:
            return None
        result = BitMap64()
        for interval in asked:
            result |= self._between(*interval)
        return self._checked(result)

    def _text(self, leaf: Leaf) -> BitMap64 | None:
        bounds = self._bounds
        if bounds is None:
            return BitMap64()
        needle = leaf.literal if isinstance(leaf.literal, bytes) else self._key(leaf.literal)
        if leaf.op is Op.STARTS_WITH:
            if not needle:
                return self._with_value()
            end = after_prefix(needle)
            if bounds[1] < needle or (end is not None and bounds[0] >= end):
                return BitMap64()
            return self._checked(self._starting_with(needle))
        if not self._may_scan:
            return None
        found = self._matching(leaf) if needle or leaf.op is Op.LIKE else None
        return self._with_value() if found is None else self._checked(found)

    def _nulls(self) -> BitMap64:
        meta = self._meta
        if meta is not None and not meta.has_nulls:
            return BitMap64()
        return self._checked(self._null_rows())

    def _with_value(self) -> BitMap64:
        return self._all_rows() - self._nulls()

    def _all_rows(self) -> BitMap64:
        rows = BitMap64()
        rows.add_range(0, self._total)
        return rows

    @cached_property
    def _bounds(self) -> tuple[Comparable, Comparable] | None:
        """Smallest and largest key; None when there is none."""
        if self._meta is None:
            raise Unsupported("a sorted payload without metadata")
        first, last = self._meta.first_key, self._meta.last_key
        return None if first is None or last is None else (self._comparable(first), self._comparable(last))

    @property
    def _is_text(self) -> bool:
        return self._type.root in CHARACTERS

    @property
    def _may_scan(self) -> bool:
        return 0 < self._size <= memory_size(self._definition.options, self._limit, DEFAULT_FALLBACK_SCAN)

    @property
    def _limit(self) -> str:
        return f"{self._definition.family}-index.fallback-scan-max-size"

    def _key(self, value: Any) -> bytes:
        try:
            return key_bytes.encode(value, self._type)
        except ValueError as error:
            raise Unsupported(f"the index cannot be asked for {value!r}") from error

    def _equal_keys(self, value: Any) -> list[bytes]:
        key = self._key(value)
        return [self._zero(key, True), self._zero(key, False)] if self._is_zero(key) else [key]

    def _zero(self, key: bytes, negative: bool) -> bytes:
        """The key of −0.0 or 0.0 when the key is one of them; else the key."""
        return bytes(len(key) - 1) + (b"\x80" if negative else b"\x00") if self._is_zero(key) else key

    def _is_zero(self, key: bytes) -> bool:
        return self._type.root in FLOATS and not any(key[:-1]) and key[-1] in (0x00, 0x80)


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest byte string above all that start with `prefix`; None when there is none. It need not be text."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


def _overlaps(interval: tuple[Comparable | None, bool, Comparable | None, bool], first: Comparable, last: Comparable) -> bool:
    low, low_inclusive, high, high_inclusive = interval
    if low is not None and (last < low or (last == low and not low_inclusive)):
        return False
    return high is None or not (first > high or (first == high and not high_inclusive))
