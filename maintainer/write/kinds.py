"""The kind of each row that is written (spec 05 §1.4; Java `RowKindGenerator`, `RowKindFilter`).

It is, in this order: what the table's column `rowkind.field` says; what a column `_VALUE_KIND` of the data says, as +I, -U, +U and -D or as
0 to 3; what the call says. `ignore-delete` drops -U and -D, `ignore-update-before` drops -U, before a row gets a sequence number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import UsageError
from maintainer.model.row_kind import KINDS, RETRACT_BIT, UPDATE_BEFORE
from maintainer.model.schema import KIND_FIELD
from maintainer.model.types import CHARACTERS
from maintainer.table.merging import MergeRules
from maintainer.table.options import MergeEngine, TableOptions

Kinds = npt.NDArray[np.int8]


class RowKinds:
    """How one table's rows get their kinds, and which of them are dropped."""

    def __init__(self, rules: MergeRules) -> None:
        schema, options = rules.schema, TableOptions.of(rules.schema)
        self._field = options.rowkind_field
        self._ignores_delete = options.ignore_delete
        self._ignores_update_before = options.ignore_update_before
        self._takes_no_retracts = _why_no_retracts(rules)
        if self._field is not None and schema.field(self._field).type.root not in CHARACTERS:
            raise UsageError(
                f"option rowkind.field = {self._field}: the column must be of a character type, not {schema.field(self._field).type}"
            )

    def of(self, batch: pa.RecordBatch, kind: str) -> tuple[pa.RecordBatch, Kinds]:
        """The rows without a column of kinds, and the kind of each."""
        if kind not in KINDS:
            raise UsageError(f"{kind!r} is no kind of a row; the kinds are {', '.join(KINDS)}")
        given = [name for name in batch.schema.names if name == KIND_FIELD.name]
        if self._field is not None:
            if given or kind != "+I":
                raise UsageError(f"the kind of a row comes from column {self._field!r} (rowkind.field); it cannot be given otherwise")
            if self._field not in batch.schema.names:
                raise UsageError(f"the rows have no column {self._field!r}, which says of which kind they are (rowkind.field)")
            return batch, _read(batch.column(self._field), self._field)
        if not given:
            return batch, np.full(batch.num_rows, KINDS[kind], dtype=np.int8)
        if kind != "+I" or len(given) > 1:
            raise UsageError(f"the kinds of the rows are in column {KIND_FIELD.name} already")
        kinds = _read(batch.column(KIND_FIELD.name), KIND_FIELD.name)
        return batch.drop_columns([KIND_FIELD.name]), kinds

    def kept(self, kinds: Kinds) -> npt.NDArray[np.bool_]:
        """Which rows are not dropped."""
        kept = np.ones(len(kinds), dtype=bool)
        if self._ignores_delete:
            kept &= (kinds & RETRACT_BIT) == 0
        if self._ignores_update_before:
            kept &= kinds != UPDATE_BEFORE
        if self._takes_no_retracts and (kinds[kept] & RETRACT_BIT).any():
            raise UsageError(self._takes_no_retracts)
        return kept


def _why_no_retracts(rules: MergeRules) -> str:
    """Why nobody could ever merge -U and -D of this table, so that it would be unreadable with them; empty: they can be merged."""
    if rules.engine is MergeEngine.FIRST_ROW:
        return "a first-row table takes no -U and no -D; set ignore-delete = true to drop them"
    if rules.engine is MergeEngine.PARTIAL_UPDATE and not (rules.groups or rules.remove_record_on_delete):
        return (
            "a partial-update table like this one takes no -U and no -D; set ignore-delete = true to drop them, "
            "partial-update.remove-record-on-delete = true to delete rows, or sequence groups (fields.<sequence field>.sequence-group)"
        )
    return ""


def _read(column: pa.Array, name: str) -> Kinds:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        codes: Any = column.cast(pa.int64())
        good = pc.and_(pc.greater_equal(codes, 0), pc.less(codes, len(KINDS)))
    else:
        try:
            codes = pc.index_in(column.cast(pa.string()), value_set=pa.array(list(KINDS)))
        except pa.ArrowException:
            raise UsageError(f"column {name!r} of type {column.type} cannot say of which kind a row is") from None
        good = codes.is_valid()
    bad = pc.invert(good.fill_null(False))
    if pc.any(bad).as_py():
        raise UsageError(f"column {name!r}: {column.filter(bad)[0].as_py()!r} is no kind of a row; the kinds are {', '.join(KINDS)}")
    return np.asarray(codes.to_numpy(zero_copy_only=False)).astype(np.int8)
