"""By which time of their own the records of a table expire, and when (spec 04 §9.1; Java `RecordLevelExpire.create`)."""

from __future__ import annotations

from maintainer.errors import UsageError
from maintainer.model.schema import TableSchema
from maintainer.model.types import TIMESTAMPS, DataField, TypeRoot
from maintainer.table.options import TableOptions

TIME = "record-level.expire-time"
FIELD = "record-level.time-field"


def record_time(schema: TableSchema) -> tuple[DataField, int] | None:
    """The column with the time of a record, and after how many seconds it expires; None: records do not expire."""
    options = TableOptions.of(schema)
    if not options.text(TIME):
        return None
    expire_after, name = int(options.duration(TIME, 0.0)), options.text(FIELD)
    if not name:
        raise UsageError(f"option {TIME}: {FIELD} must name the column that holds the time of a row")
    if not schema.has_field(name):
        raise UsageError(f"option {FIELD} = {name!r}: there is no such column; the columns are {', '.join(schema.names)}")
    field = schema.field(name)
    if field.type.root not in (TypeRoot.INT, TypeRoot.BIGINT, *TIMESTAMPS):
        raise UsageError(f"option {FIELD} = {name!r}: its type must be INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ, but is {field.type}")
    return field, expire_after
