"""The FM family: exact search for substrings (spec 09; bytes in `maintainer.format.fm_encode`; Java `FMGlobalIndexer`, `FMGlobalIndexWriter`).

Values are not sorted. They are taken in the order of their ordinals, and consecutive rows make a partition until one of its limits is reached:

    fm-index.partition-size         16 mb    symbols of a partition: its bytes, one for each row, one at the end
    fm-index.partition-row-count    100000   rows of a partition
    fm-index.sa-sample-rate         32       one position of so many is sampled: a lower one finds rows faster, and takes space
    fm-index.compression            lz4      of each block: none, zstd, lz4; lzo, which no library of ours writes, is written as zstd
    fm-index.compression-level      1        of zstd

`fm-index.read-cache-size`, `demand-page-size` and `locate-cost-ratio` are the reader's (`maintainer.index.family.fm_reader`). A value that
fills a partition by itself is refused: the build fails, and its group stays without a payload. One partition at a time is in memory; where
there is less than `BYTES_PER_SYMBOL` for each symbol, partitions are smaller than they might be: there are more, in the same format.

When a group changes, its partitions before the first change are copied from the older payload (`maintainer.index.family.fm_carried`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import MaintainerError, UsageError
from maintainer.format.byte_column import ByteColumn, of_arrow
from maintainer.format.fm_encode import BYTES_PER_SYMBOL, Coding, Limits, PayloadWriter, Text, text_of
from maintainer.format.fm_layout import MAX_RATE
from maintainer.format.stored_block import ReadRange, Sink
from maintainer.index.definition import FamilyName, IndexDefinition
from maintainer.index.family.fm_carried import CarriedPartitions, carried_partitions
from maintainer.index.family.fm_reader import FMReader
from maintainer.index.options import block_compressor, check_names, integer, memory_size, number
from maintainer.index.payload import BuiltPayload, Move, PayloadOutput, Resources, Rows
from maintainer.model.types import CHARACTERS, DataType

if TYPE_CHECKING:
    from maintainer.index.family import FamilyReader

PREFIX = "fm-index."
TAKES = "a CHAR/VARCHAR/STRING column"
_LEAST_LIMIT = 1 << 20
"""Symbols of a partition that memory is never too little for."""


def validate(column: str, data_type: DataType, options: Mapping[str, str]) -> None:
    """See `Family.validate`."""
    if data_type.root not in CHARACTERS:
        raise UsageError(
            f"FM index requires a character string column, but column '{column}' is {data_type}. Take it out of {FamilyName.FM.columns_key}."
        )
    check_names(PREFIX, options)
    limits(options)
    coding(options)
    memory_size(options, f"{PREFIX}read-cache-size", 64 << 20)
    page = memory_size(options, f"{PREFIX}demand-page-size", 512 << 10)
    if not 64 << 10 <= page <= 64 << 20:
        raise UsageError(f"{PREFIX}demand-page-size must be between 64 kb and 64 mb, but is {page} bytes.")
    ratio = number(options, f"{PREFIX}locate-cost-ratio", 0.001)
    if not 0 < ratio <= 1:
        raise UsageError(f"{PREFIX}locate-cost-ratio must be above 0 and at most 1, but is {ratio}.")


def limits(options: Mapping[str, str], memory: int | None = None) -> Limits:
    """The limits that the options set, and so many bytes of memory."""
    size = memory_size(options, f"{PREFIX}partition-size", 16 << 20)
    if not 2 <= size < 2**31 - 1:
        raise UsageError(f"FM index partition size must be between 2 bytes and 2147483646 bytes, but {PREFIX}partition-size is {size}.")
    rows = integer(options, f"{PREFIX}partition-row-count", 100_000)
    if not 0 < rows < 2**31:
        raise UsageError(f"FM index partition row count must be positive and below 2^31, but {PREFIX}partition-row-count is {rows}.")
    return Limits(size, size if memory is None else min(size, max(memory // BYTES_PER_SYMBOL, _LEAST_LIMIT)), rows)


def coding(options: Mapping[str, str]) -> Coding:
    """How the options want partitions to be written."""
    rate = integer(options, f"{PREFIX}sa-sample-rate", 32)
    if not 1 <= rate <= MAX_RATE or rate & (rate - 1):
        raise UsageError(f"FM index {PREFIX}sa-sample-rate must be a power of two between 1 and {MAX_RATE}, but is {rate}.")
    return Coding(rate, block_compressor(options, PREFIX, "lz4"))


def build(
    rows: Iterable[Rows],
    definition: IndexDefinition,
    total_rows: int,
    sink: Sink,
    resources: Resources | None = None,
    carried: CarriedPartitions | None = None,
) -> BuiltPayload:
    """See `Family.build`."""
    output = PayloadOutput(sink)
    writer = PayloadWriter(output.write, coding(definition.options))
    if carried is not None:
        for partition in carried.partitions:
            writer.copy(partition, carried.stored(partition))
    for text in _texts(_from(rows, writer.rows), limits(definition.options, (resources or Resources()).memory), writer.rows):
        writer.add(text)
    if writer.rows != total_rows:
        raise MaintainerError(f"the source files hold {writer.rows} rows instead of the {total_rows} that their metadata says")
    if not total_rows:
        raise MaintainerError("an index payload needs at least one row")
    return output.built(total_rows, writer.finish())


def carry(reader: FamilyReader, moves: Sequence[Move]) -> CarriedPartitions | None:
    """See `Family.carry`."""
    assert isinstance(reader, FMReader)
    options = reader.definition.options
    return carried_partitions(reader, moves, limits(options), coding(options))


def open(read: ReadRange, size: int, definition: IndexDefinition, index_meta: bytes | None, total_rows: int) -> FMReader:  # noqa: A001
    """See `Family.open`."""
    return FMReader(read, size, definition, index_meta, total_rows)


def _from(rows: Iterable[Rows], start: int) -> Iterator[Rows]:
    """The rows that are not before `start`."""
    for first, values in rows:
        known = max(0, min(start - first, len(values)))
        yield Rows(first + known, values.slice(known))


def _texts(rows: Iterable[Rows], bounds: Limits, after: int) -> Iterator[Text]:
    """The texts of all partitions; the first row is number `after`."""
    columns: list[ByteColumn] = []
    nulls: list[npt.NDArray[np.bool_]] = []
    held = symbols = 0

    def close() -> Text:
        nonlocal held, symbols
        text = text_of(columns, np.concatenate(nulls))
        columns.clear()
        nulls.clear()
        held = symbols = 0
        return text

    for first, values in rows:
        if first != after and len(values):
            raise MaintainerError(f"rows from {after} on are missing: the next is {first}")
        after += len(values)
        column, missing = _bytes_of(values)
        lengths = column.lengths
        longest = int(lengths.max(initial=0))
        if longest > bounds.size - 2:
            raise MaintainerError(
                f"the value of row {first + int(lengths.argmax())} has {longest} bytes, and an FM index takes {bounds.size - 2} at most:"
                f" raise {PREFIX}partition-size above {longest + 2} bytes"
            )
        ends = np.cumsum(lengths + 1)
        at = 0
        while at < len(column):
            before = int(ends[at - 1]) if at else 0
            fitting = int(np.searchsorted(ends, before + bounds.symbols - 1 - symbols, "right"))
            stop = min(max(fitting, at if held else at + 1), at + bounds.rows - held)
            if stop == at:
                yield close()
                continue
            columns.append(column.slice(at, stop))
            nulls.append(missing[at:stop])
            held += stop - at
            symbols += int(ends[stop - 1]) - before
            at = stop
    if held:
        yield close()


def _bytes_of(values: pa.Array) -> tuple[ByteColumn, npt.NDArray[np.bool_]]:
    """The stored bytes of texts, those of a null being none; and which are null."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type not in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        values = values.cast(pa.large_binary())
    nulls: npt.NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    if values.null_count:
        values = pc.fill_null(values, pa.scalar("", values.type))
    return of_arrow(values), nulls
