"""Which bucket a row goes to (spec 01 §12; Java `FixedBucketRowKeyExtractor`, `BucketFunction`), a batch at a time.

    default: |murmur3(BinaryRow of the bucket key)| mod n        mod: floorMod(the one INT or BIGINT bucket key, n)

The hash is over the bytes of the row without its arity prefix. Java takes the absolute value of the remainder, not of the hash, so −2³¹ does
no harm; in 64 bits both are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import Unsupported, UsageError
from maintainer.format import murmur
from maintainer.format.binary_row_columns import encode_columns
from maintainer.model.files import EMPTY_ROW, BucketKey
from maintainer.model.schema import TableSchema
from maintainer.model.types import TypeRoot


@dataclass(frozen=True)
class Group:
    """The rows of a batch that go to one bucket, as row numbers in arrival order."""

    key: BucketKey
    rows: npt.NDArray[np.int64]


def group(table: pa.Table, schema: TableSchema, buckets: int, function: str = "default") -> list[Group]:
    """The rows of a table by partition and bucket; groups are in order of (first appearance of the partition, bucket)."""
    if not table.num_rows:
        return []
    partitions, partition_of = _partitions(table, schema)
    group_of = partition_of * buckets + bucket_numbers(table, schema, buckets, function)
    order = np.argsort(group_of, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group_of[order]) != 0])
    found = []
    for rows in np.split(order, starts[1:]):
        partition, bucket = divmod(int(group_of[rows[0]]), buckets)
        found.append(Group(BucketKey(partitions[partition], bucket), rows))
    return found


def bucket_numbers(table: pa.Table, schema: TableSchema, buckets: int, function: str = "default") -> npt.NDArray[np.int64]:
    """The bucket of each row."""
    keys = schema.bucket_keys
    types = schema.types_of(keys)  # the option may name what is no column
    match function:
        case "default":
            hashes = murmur.hash_rows(*encode_columns(_columns(table, keys), types)).astype(np.int64)
            return np.abs(hashes) % buckets
        case "mod":
            if len(keys) != 1 or types[0].root not in (TypeRoot.INT, TypeRoot.BIGINT):
                raise UsageError(f"option bucket-function.type = mod needs one bucket key of type INT or BIGINT, not {', '.join(keys)}")
            values: npt.NDArray[np.int64] = _columns(table, keys)[0].to_numpy(zero_copy_only=False).astype(np.int64)
            return values % buckets
        case _:
            raise Unsupported(f"option bucket-function.type = {function}: writing with this bucket function is not supported")


def _partitions(table: pa.Table, schema: TableSchema) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """The serialized partitions of a table's rows, and for each row the number of its own."""
    if not schema.partition_keys:
        return [EMPTY_ROW], np.zeros(table.num_rows, dtype=np.int64)
    data, offsets = encode_columns(_columns(table, schema.partition_keys), schema.partition_types)
    rows = pa.LargeBinaryArray.from_buffers(pa.large_binary(), table.num_rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    distinct = rows.dictionary_encode()
    arity = len(schema.partition_keys).to_bytes(4, "big")
    return [arity + row for row in distinct.dictionary.to_pylist()], distinct.indices.to_numpy().astype(np.int64)


def _columns(table: pa.Table, names: tuple[str, ...]) -> list[pa.Array]:
    """Whole columns, in which every NaN has the bits of Java's: NaN is one key, and one partition."""
    columns = [table.column(name).combine_chunks() for name in names]
    return [pc.if_else(pc.is_nan(one), pa.scalar(math.nan, one.type), one) if pa.types.is_floating(one.type) else one for one in columns]
