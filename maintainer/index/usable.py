"""Which index definitions queries use: the rule that planning a scan and counting coverage share (spec 07 §4; DESIGN §5 "coverage").

A payload does not tell the type that its keys had when it was built, which is after its files were written. So a definition is used only while
its column has had the values that it has now since the oldest live data file was written: a type that was changed and changed back may have a
payload of between. It is used only when its family can be read, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from maintainer.data.evolution import retyped
from maintainer.errors import Unsupported
from maintainer.index.definition import IndexDefinition
from maintainer.index.family import family
from maintainer.model.schema import TableSchema


def rewrite(table: str = "TABLE") -> str:
    """The command that writes all files anew."""
    return f"maintainer compact {table} --full --option compaction.force-rewrite-all-files=true"


def why_unusable(definition: IndexDefinition, schemas: Iterable[TableSchema]) -> str | None:
    """Why no group of a definition is used, whatever its state; `schemas`: `TableState.schemas_since`."""
    try:
        family(str(definition.family))
    except Unsupported:
        return f"{definition.family} indexes are not read yet"
    for schema in schemas:
        field = schema.field_by_id(definition.field_id)
        change = None if field is None else retyped(field.type, definition.data_type)
        if change is not None:
            return f"the type of the column was changed ({change}) since some files were written: `{rewrite()}` writes them anew"
    return None
