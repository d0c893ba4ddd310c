"""Reading ORC data files (spec 02 §4; Java `OrcReaderFactory`).

A stripe is a row group. The container is parsed here, and the streams of the wanted columns are decompressed here, with limits
(`maintainer.format.orc`); Arrow decodes them from a plain file in memory. Of other stripes not even the footer is read. A remote store is
asked for the footers of all wanted stripes at once, and then for the streams of some of them at once.

Timestamps of Arrow are nanoseconds, which hold 1677 to 2262; what is beyond wraps, or is an error in newer versions. So Arrow decodes
seconds and fractions apart, and they are put together here. In files of a writer whose zone is not UTC it decodes timestamps whole, as it
knows the zones, and the seconds beside them make them exact where it does not refuse.

CHAR values are padded with blanks in the file, and lose them here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data.arrow_types import to_arrow
from maintainer.data.data_file import Column, DataFile, RowGroup, cut
from maintainer.data.orc_bounds import bounds
from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import orc
from maintainer.format.protobuf import Message
from maintainer.model.types import TIMESTAMPS, DataType, TypeRoot

_EPOCH = 1_420_070_400
"""Seconds of 2015-01-01, from which ORC counts."""
_NANOS = 1_000_000_000
_FARTHEST = 3 * 86_400 * _NANOS
"""Between seconds and timestamp: less than a second, and what a zone of the writer makes."""
_MOST_SECONDS = 1 << 62
_OUT_OF_RANGE = "a timestamp that 64-bit numbers in the unit of its type cannot hold"
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": _NANOS}
_UTC = frozenset({"", "GMT", "UTC", "Etc/UTC", "Etc/GMT"})
_MOST_KEPT_NANOS = 999_999
"""A larger fraction of a second before 1970 belongs to the second before (Java `TimestampTreeReader`)."""
_TYPE_BYTES = 600
"""What a type costs in memory, in the tail and once more in the footer of every stripe."""
_PIECE = 4 << 20
"""Decoded bytes of stripes that one thread reads before it looks for other work."""
_AT_ONCE = 8 << 20
"""Bytes of stripes that are fetched together from a remote store."""
_MOST_AT_ONCE = 64 << 20
"""Of a stripe of which more is wanted, streams are fetched one by one, as they are decoded."""
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


class Directory:
    """What is known of a file, and of its stripes as far as anybody asked."""

    def __init__(self, tail: orc.Tail) -> None:
        self.tail = tail
        self.footers: dict[int, orc.StripeFooter] = {}
        self.statistics: tuple[tuple[Message, ...], ...] | None = None
        groups, first = [], 0
        for stripe in tail.stripes:
            groups.append(RowGroup(first, stripe.rows))
            first += stripe.rows
        self.row_groups = tuple(groups)

    @property
    def held(self) -> int:
        """Bytes in memory once everything is known."""
        return _TYPE_BYTES * len(self.tail.types) * (1 + len(self.tail.stripes)) + 4 * self.tail.metadata[1]


class OrcDataFile(DataFile):
    known: Directory | None
    names: Sequence[str] = ()

    def _open(self) -> None:
        self._prefetch: Callable[[Sequence[tuple[int, int]]], None] | None = getattr(self._source, "prefetch", None)
        if self.known is None:
            self.known = Directory(orc.read_tail(self._fetch, self._source.size()))
        self._directory = self.known
        self._tail = tail = self.known.tail
        self.names = tail.names
        self.row_count = tail.rows
        self.row_groups = self.known.row_groups

    def _fetch(self, offset: int, length: int) -> bytes:
        self._source.seek(offset)
        data = bytes(self._source.read(length))
        if len(data) != length:
            raise CorruptFile(f"{len(data)} bytes where {length} should be", offset=offset)
        return data

    def group_bytes(self, group: int, columns: Sequence[str] | None = None) -> int:
        whole = self._tail.stripes[group].data_length * (1 if self._tail.codec == "none" else 3)
        if columns is None:
            return whole
        if group in self._directory.footers:
            return self._stream_bytes(group, columns) * (1 if self._tail.codec == "none" else 3)
        return whole * len(columns) // max(1, len(self.names))

    def pieces(self, groups: Sequence[int], columns: Sequence[str]) -> list[list[int]]:
        if self._prefetch is not None:
            return self.together(groups, columns)
        return cut(groups, {group: self.group_bytes(group, columns) for group in groups}, _PIECE)

    def together(self, groups: Sequence[int], columns: Sequence[str]) -> list[list[int]]:
        if self._prefetch is None:
            return [[group] for group in groups]
        with self._errors():
            self._fetch_footers(groups)
            return cut(groups, {group: self._stream_bytes(group, columns) for group in groups}, _AT_ONCE)

    def _stream_bytes(self, group: int, columns: Sequence[str]) -> int:
        names = [plan.name for plan in map(self._plan_checked, columns) if plan.name is not None]
        return sum(stream.length for name in names for stream in self._streams(group, name))

    def _streams(self, group: int, name: str) -> Iterator[orc.Stream]:
        streams = self._footer(group).streams
        for column in orc.subtree(self._tail.types, self._number(name)):
            yield from streams.get(column, ())

    def _stored_bytes(self, name: str) -> int:
        return sum(stream.length for group in range(len(self.row_groups)) for stream in self._streams(group, name))

    def _split(self, piece: list[int], plans: Sequence[Column]) -> Iterator[list[int]]:
        """The stripes in order, as many at a time as are fetched at once."""
        if self._prefetch is None:
            yield list(piece)
            return
        self._fetch_footers(piece)
        names = [plan.name for plan in plans if plan.name is not None]
        streams = {group: [stream for name in names for stream in self._streams(group, name)] for group in piece}
        sizes = {group: sum(stream.length for stream in some) for group, some in streams.items()}
        for together in cut(piece, sizes, _AT_ONCE):
            spans = [(stream.offset, stream.offset + stream.length) for group in together for stream in streams[group]]
            self._prefetch(spans if sum(map(sizes.__getitem__, together)) <= _MOST_AT_ONCE else ())
            yield together
        self._prefetch(())

    def _fetch_footers(self, groups: Sequence[int]) -> None:
        """Asks a remote store for the footers of stripes that are not known, at once."""
        missing = [self._tail.stripes[group] for group in groups if group not in self._directory.footers]
        if self._prefetch is not None and missing:
            self._prefetch([(stripe.footer_offset, stripe.footer_offset + stripe.footer_length) for stripe in missing])
            for group in groups:
                self._footer(group)

    def _number(self, name: str) -> int:
        root = self._tail.types[0]
        return root.children[root.names.index(name)]

    def _footer(self, group: int) -> orc.StripeFooter:
        found = self._directory.footers.get(group)
        if found is None:
            found = orc.read_stripe_footer(self._fetch, self._tail, self._tail.stripes[group])
            if not _ZONE.fullmatch(found.zone or "GMT"):
                raise CorruptFile(f"{found.zone!r} is no time zone")
            self._directory.footers[group] = found
        return found

    def _bounds(self, plan: Column, groups: Sequence[int]) -> list[tuple[Any, Any] | None]:
        assert plan.name is not None
        if self._directory.statistics is None:
            self._directory.statistics = orc.read_statistics(self._fetch, self._tail)
        statistics, column = self._directory.statistics, self._number(plan.name)
        return [bounds(statistics[group][column], plan.source.type) if statistics else None for group in groups]

    def _read(self, groups: list[int], plans: Sequence[Column]) -> pa.Table:
        batches = [self._stripe(group, plans) for group in groups if self.row_groups[group].rows]
        if batches:
            return pa.Table.from_batches(batches)
        return pa.table({plan.name: pa.nulls(0, to_arrow(plan.source.type)) for plan in plans if plan.name is not None})

    def _raw_batches(self, plans: Sequence[Column], batch_rows: int, piece: list[int], rows: int) -> Iterator[pa.RecordBatch]:
        for group in piece:
            if self.row_groups[group].rows:
                batch = self._stripe(group, plans)
                for start in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)

    def _stripe(self, group: int, plans: Sequence[Column]) -> pa.RecordBatch:
        from pyarrow import orc as arrow_orc

        names = [plan.name for plan in plans if plan.name is not None]
        numbers = [self._number(name) for name in names]
        seconds = [number for number in numbers if orc.has_timestamps(self._tail.types, number)]
        apart = self._footer(group).zone in _UTC
        timestamps = orc.Timestamps.FRACTIONS if apart else orc.Timestamps.WHOLE
        wanted = [*((number, timestamps) for number in numbers), *((number, orc.Timestamps.SECONDS) for number in seconds)]
        data = orc.assemble(self._fetch, self._tail, self._tail.stripes[group], self._footer(group), wanted)
        try:
            stripe = arrow_orc.ORCFile(pa.BufferReader(data)).read_stripe(0)
        except pa.ArrowInvalid as error:
            if "out of range for nanosecond" in str(error):
                raise Unsupported(f"{_OUT_OF_RANGE}, as its writer was not in UTC: {error}") from error
            raise
        if stripe.num_rows != self.row_groups[group].rows:
            raise CorruptFile(f"stripe {group} has {stripe.num_rows} rows where {self.row_groups[group].rows} should be")
        arrays = []
        for index, (number, plan) in enumerate(zip(numbers, plans, strict=True)):
            array = stripe.column(index)
            with self._errors(plan.name):
                array.validate()
                if number in seconds:
                    beside = stripe.column(len(numbers) + seconds.index(number))
                    beside.validate()
                    array = (_joined if apart else _exact)(array, beside, plan.source.type)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _natural(self, array: pa.Array, source: DataType) -> pa.Array:
        return _trimmed(array, source) if _has_char(source) else array


@lru_cache(maxsize=4096)
def _has_char(data_type: DataType) -> bool:
    parts = (data_type.key, data_type.element, *(field.type for field in data_type.fields))
    return data_type.root is TypeRoot.CHAR or any(part is not None and _has_char(part) for part in parts)


def _trimmed(array: pa.Array, source: DataType) -> pa.Array:
    """CHAR values without the blanks at their end."""
    if source.root is TypeRoot.CHAR and (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return pc.ascii_rtrim(array, " ")
    return rebuilt(array, array, source, lambda part, _, data_type: _trimmed(part, data_type))


def _exact(array: pa.Array, seconds: pa.Array, source: DataType) -> pa.Array:
    """Timestamps in the unit of their type. `seconds`: the same column with seconds in the place of timestamps."""
    if source.root in TIMESTAMPS and pa.types.is_timestamp(array.type):
        return _timestamps(array, seconds, to_arrow(source))
    if not pa.types.is_nested(array.type):
        return array
    return rebuilt(array, seconds, source, _exact)


def _joined(array: pa.Array, seconds: pa.Array, source: DataType) -> pa.Array:
    """The same of timestamps that have nothing but their fractions."""
    if source.root in TIMESTAMPS and pa.types.is_timestamp(array.type):
        return _timestamps(_shifted(array, seconds), seconds, to_arrow(source))
    if not pa.types.is_nested(array.type):
        return array
    return rebuilt(array, seconds, source, _joined)


def _shifted(array: pa.Array, seconds: pa.Array) -> pa.Array:
    """Fractions moved to their seconds, modulo 2⁶⁴, as the ORC library does."""
    nanos = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) - _EPOCH * _NANOS
    whole = seconds.fill_null(0).to_numpy(zero_copy_only=False) + _EPOCH
    if np.any(((nanos < 0) | (nanos >= _NANOS)) & np.asarray(array.is_valid())):
        raise CorruptFile("a timestamp has more than a second of fractions")
    whole = whole - ((whole < 0) & (nanos > _MOST_KEPT_NANOS))
    return pa.array(whole * _NANOS + nanos, pa.int64(), mask=np.asarray(array.is_null())).view(array.type)


def _timestamps(array: pa.Array, seconds: pa.Array, arrow: pa.TimestampType) -> pa.Array:
    nanos = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    whole = seconds.fill_null(0).to_numpy(zero_copy_only=False)
    null = np.asarray(array.is_null())
    per = _PER_SECOND[arrow.unit]
    whole = np.where(null, 0, whole)
    if np.any((whole < -_MOST_SECONDS) | (whole > _MOST_SECONDS)):
        raise Unsupported(_OUT_OF_RANGE)
    whole = whole + _EPOCH
    rest = np.where(null, 0, nanos - whole * _NANOS)  # modulo 2⁶⁴
    if np.any((rest <= -_FARTHEST) | (rest >= _FARTHEST)):
        raise CorruptFile("a timestamp is not at its second")
    found = whole * per + np.floor_divide(rest, _NANOS // per)
    wrong = np.floor_divide(found, per) - whole != np.floor_divide(rest, _NANOS)
    if np.any(wrong):
        raise Unsupported(f"{_OUT_OF_RANGE}: second {whole[wrong][0]} since 1970")
    return pa.array(found, pa.int64(), mask=null).view(arrow)


def rebuilt(array: pa.Array, beside: pa.Array, source: DataType, change: Any) -> pa.Array:
    """A nested column with its parts changed; what the schema does not know of it stays."""
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(array.type):
        types = {field.name: field.type for field in source.fields}
        fields = [array.type.field(index) for index in range(array.type.num_fields)]
        parts = [
            change(part, other, types[field.name]) if field.name in types else part
            for part, other, field in zip(array.flatten(), beside.flatten(), fields, strict=True)
        ]
        new = [field.with_type(part.type) for field, part in zip(fields, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=new, mask=mask)
    if pa.types.is_list(array.type) and source.element is not None:
        values = change(array.values, beside.values, source.element)
        return pa.Array.from_buffers(
            pa.list_(array.type.value_field.with_type(values.type)), len(array), array.buffers()[:2], array.null_count, array.offset, [values]
        )
    if pa.types.is_map(array.type) and source.element is not None:
        is_map = source.root is TypeRoot.MAP
        keys = change(array.keys, beside.keys, source.key if is_map else source.element)
        items = change(array.items, beside.items, source.element) if is_map else array.items
        arrow = pa.map_(array.type.key_field.with_type(keys.type), array.type.item_field.with_type(items.type))
        entries = pa.StructArray.from_arrays([keys, items], fields=[arrow.key_field, arrow.item_field])
        return pa.Array.from_buffers(arrow, len(array), array.buffers()[:2], array.null_count, array.offset, [entries])
    return array
