"""Rows as callers hand them over, as batches of the table's columns (spec 01 §4.3, §15).

Columns are matched by name and cast without loss: what would change a value is an error that names the column, the member and the value's
type. Order of the rules for a column, as in Java's `TableWriteImpl`: an explicit null in a NOT NULL column is refused, then nulls and
missing columns take the column's default value; a missing column without one is null, which a NOT NULL column refuses.

A delete needs the primary key only. Its other columns are null, or, where the table allows no nulls, an arbitrary value that nobody ever reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maintainer.data.arrow_types import value_schema
from maintainer.errors import UsageError
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField
from maintainer.write.casting import cast, holds_forbidden_null
from maintainer.write.default_value import default_value, zero_value

BATCH_ROWS = 65_536
BATCH_BYTES = 64 << 20
"""Larger batches are cut, so that memory stays bounded and no column outgrows 32-bit offsets when its type changes."""


def batches(data: Any) -> Iterator[pa.RecordBatch]:
    """Arrow batches of anything that speaks Arrow: tables, batches, readers, pandas and polars frames, iterables of batches."""
    for batch in _as_batches(data):
        rows = max(1, min(BATCH_ROWS, batch.num_rows * BATCH_BYTES // _bytes(batch)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _bytes(batch: pa.RecordBatch) -> int:
    try:
        return max(1, int(batch.nbytes))
    except pa.ArrowTypeError:  # older versions cannot tell for views of texts
        return 1


def _as_batches(data: Any) -> Any:
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Table):
        return data.to_batches()
    if isinstance(data, pa.RecordBatchReader):
        return data
    library = type(data).__module__.split(".")[0]
    if library == "pandas":
        # Its own Arrow stream would carry the index as a column.
        return pa.Table.from_pandas(data, preserve_index=False).to_batches()
    if library == "polars" and hasattr(data, "to_arrow"):
        import polars

        # Its own Arrow stream would hold texts as views, which Arrow casts since version 18 only.
        return data.to_arrow(compat_level=polars.CompatLevel.oldest()).to_batches()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return [pa.record_batch(data)]
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        return (batch for part in data for batch in _as_batches(part))
    raise UsageError(
        "rows must be Arrow data (a table, batches, a reader, a pandas or polars frame or anything with __arrow_c_stream__), "
        f"not {type(data).__name__}"
    )


def mixed(batch: pa.RecordBatch, schema: TableSchema, retracts: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows of a batch of which some, the retracts, are deletes."""
    if not retracts.any():
        return upserts(batch, schema)
    if retracts.all():
        return deletes(batch, schema)
    added, taken = np.flatnonzero(~retracts), np.flatnonzero(retracts)
    parts = pa.Table.from_batches([upserts(batch.take(pa.array(added)), schema), deletes(batch.take(pa.array(taken)), schema)])
    places = np.empty(batch.num_rows, np.int64)
    places[np.concatenate([added, taken])] = np.arange(batch.num_rows)
    return parts.combine_chunks().take(pa.array(places)).combine_chunks().to_batches()[0]


def upserts(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """The batch with exactly the table's columns, in their order and types."""
    given = _columns(batch, schema)
    columns = []
    for field, arrow_field in zip(schema.fields, value_schema(schema.fields), strict=True):
        column = given.get(field.name)
        if column is None:
            if field.name in schema.primary_keys and field.default_value is None:
                raise UsageError(f"the rows have no column {field.name!r}, which is part of the primary key")
            column = _repeat(default_value(field), arrow_field.type, batch.num_rows)
        else:
            column = cast(column, arrow_field.type, field.name)
            if not field.type.nullable:
                _refuse_nulls(column, field)
            elif column.null_count and field.default_value is not None:
                column = column.fill_null(default_value(field))
        if holds_forbidden_null(column, arrow_field):
            _refuse_nulls(column, field)
            raise UsageError(f"column {field.name!r}: a NOT NULL member of {field.type} is null")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=value_schema(schema.fields))


def deletes(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """The same for rows to be deleted, of which only the primary key must be given."""
    given = _columns(batch, schema)
    columns = []
    for field, arrow_field in zip(schema.fields, value_schema(schema.fields), strict=True):
        column = given.get(field.name)
        if column is not None:
            column = cast(column, arrow_field.type, field.name)
        if field.name in schema.primary_keys:
            if column is None:
                raise UsageError(f"the keys have no column {field.name!r}, which is part of the primary key")
            _refuse_nulls(column, field)
        elif column is None or holds_forbidden_null(column, arrow_field):
            column = _repeat(None if field.type.nullable else zero_value(field.type), arrow_field.type, batch.num_rows)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=value_schema(schema.fields))


def _columns(batch: pa.RecordBatch, schema: TableSchema) -> dict[str, pa.Array]:
    names = batch.schema.names
    known = set(schema.names)
    for name in names:
        if name not in known:
            raise UsageError(f"the table has no column {name!r}; its columns are {', '.join(schema.names)}")
        if names.count(name) > 1:
            raise UsageError(f"the rows have two columns {name!r}")
    for column in batch.columns:
        try:
            column.validate(full=True)  # batches may come over a C interface, and strings that are no UTF-8 must not reach a file
        except pa.ArrowInvalid as error:
            raise UsageError(f"the rows are not valid Arrow data: {error}") from None
    return dict(zip(names, batch.columns, strict=True))


def _refuse_nulls(column: pa.Array, field: DataField) -> None:
    if column.null_count and not field.type.nullable:
        raise UsageError(f"cannot write null to the non-null column {field.name!r}")


def _repeat(value: Any, data_type: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, data_type)
    one = value if isinstance(value, pa.Scalar) else pa.scalar(value, data_type)
    return pa.repeat(one, rows)
