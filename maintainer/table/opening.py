"""Finding a table by what people call it, making a new one, and the options of a call (DESIGN §5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike, fspath

from maintainer.errors import CorruptFile, MaintainerError, NotATable, UsageError
from maintainer.model.schema import TableSchema
from maintainer.storage.layout import check_file_name
from maintainer.storage.storage import Entry, Storage, join_uri
from maintainer.table.store import TableStore
from maintainer.table.support import is_known_option, meant_option

_TABLE_NAME = re.compile(r"([^./\\\s]+)\.([^/\\]+)")


def open_store(
    uri_or_name: str | PathLike[str],
    warehouse: str | PathLike[str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    branch: str | None = None,
    options: Mapping[str, str | int | float] | None = None,
    catalog: str | None = None,
) -> TableStore:
    """The table at a URI or path, or `db.t` of a warehouse."""
    uri_or_name, warehouse = fspath(uri_or_name), None if warehouse is None else fspath(warehouse)
    if catalog is not None:
        raise UsageError("catalog files are not supported yet: name the table by its URI, or give the warehouse")
    uri = table_uri(uri_or_name, warehouse)
    branch = check_branch(branch)
    store = TableStore(Storage.open(uri, storage_options), branch, {key: _option_text(key, value) for key, value in (options or {}).items()})
    store.guess_latest()
    newest = store.newest_schema_id()
    if newest is None:
        raise NotATable(_why_not_a_table(store, uri_or_name, warehouse, storage_options))
    check_dynamic_options(store.schema(newest), store.dynamic_options)
    return store


def create_store(
    uri: str | PathLike[str],
    schema: TableSchema,
    warehouse: str | PathLike[str] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> TableStore:
    """Makes an empty table with this first schema; fails when there is one at this place already."""
    place = table_uri(fspath(uri), None if warehouse is None else fspath(warehouse))
    store = TableStore(Storage.open(place, storage_options))
    if schema.id != 0:
        raise UsageError(f"the first schema of a table has id 0, not {schema.id}")
    if store.schema_ids() or not store.publish_schema(schema):
        raise UsageError(f"{store.uri}: there is a table already")
    return store


def _option_text(key: str, value: object) -> str:
    """An option of a call as a schema would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise UsageError(f"option {key} = {value!r}: the value of an option is text, a number, or true or false")


def table_uri(uri_or_name: str, warehouse: str | None = None) -> str:
    """Where a table is: `db.t` of a warehouse is `<warehouse>/db.db/t`; anything else is its place already."""
    if warehouse is None:
        return uri_or_name
    name = _TABLE_NAME.fullmatch(uri_or_name)
    if name is None:
        raise UsageError(f"{uri_or_name!r}: with a warehouse, a table is named like db.t")
    return join_uri(warehouse, f"{name[1]}.db", name[2])


def check_branch(branch: str | None) -> str | None:
    """The branch's name, None for main; Java's rules for names."""
    if branch is None or not branch.strip() or branch.strip() == "main":
        return None
    name = branch.strip()
    if name.isdigit():
        raise UsageError(f"{branch!r} cannot be the name of a branch: it is a number")
    try:
        return check_file_name(name)
    except CorruptFile:
        raise UsageError(f"{branch!r} cannot be the name of a branch: it is a path") from None


IMMUTABLE = frozenset(
    {
        "bucket",
        "bucket-key",
        "bucket-function.type",
        "merge-engine",
        "primary-key",
        "partition",
        "sequence.field",
        "data-file.path-directory",
        "partition.default-name",
        "partition.legacy-name",
        "index-file-in-data-file-dir",
        "deletion-vectors.enabled",
        "branch",
    }
)
"""Options that say what the table's files mean: they cannot differ from call to call."""


_DEFINITION = re.compile(r"pk-.+\.index\.columns|fields\..+\.pk-vector\.index\.type")
"""What defines indexes: for one call without them, a pass would drop their payloads."""


def check_dynamic_options(schema: TableSchema, options: Mapping[str, str]) -> None:
    """Raises for an option of a call that only the table itself may have, or whose name is mistaken."""
    for key, value in options.items():
        meant = None if key in schema.options or is_known_option(key) else meant_option(key)
        if meant is not None:
            raise UsageError(f"option {key} = {value!r}: there is no such option; did you mean {meant}?")
        if (key in IMMUTABLE or _DEFINITION.fullmatch(key)) and schema.options.get(key) != value:
            raise UsageError(f"option {key} = {value!r}: this option belongs to the table and cannot be set for one call")


def _why_not_a_table(store: TableStore, given: str, warehouse: str | None, storage_options: Mapping[str, object] | None) -> str:
    message = f"{store.name}: not a Paimon table: there is no {store.schema_directory}/schema-<id>"
    if store.branch is not None:
        branches = [other.branch for other in store.on_every_branch()[1:] if other.branch is not None]
        return f"{message}; the branches are: {', '.join(branches) or 'only main'}"
    members = [entry.name for entry in store.storage.list("")]
    directory, _, name = store.uri.rpartition("/")
    beside = {entry.name: entry for entry in _listed(directory, storage_options)}
    if not members:
        if name not in beside:
            from difflib import get_close_matches

            tables = [other for other, entry in beside.items() if entry.is_directory]
            close = get_close_matches(name, tables, n=1)
            message += "; there is no such directory" + (f", did you mean {join_uri(directory, close[0])}?" if close else "")
            if tables and not close and directory.endswith(".db"):
                message += f"; the database has {', '.join(tables[:5])}{', …' if len(tables) > 5 else ''}"
        else:
            message += "; the directory is empty" if beside[name].is_directory else "; this is a file"
    elif any(member.endswith(".db") for member in members):
        message += "; this is a warehouse, its tables are named by db.t with the warehouse, or by <warehouse>/<db>.db/<table>"
    elif store.uri.endswith(".db"):
        message += f"; this is a database with {', '.join(members[:5])}"
    elif "_delta_log" in members:
        message += "; it is a Delta table"
    elif "metadata" in members:
        message += "; it looks like an Iceberg table"
    elif "schema" in beside:
        message += f"; the table may be {directory}"
    if warehouse is None and not members and name not in beside and "/" not in given and _TABLE_NAME.fullmatch(given):
        message += "; a name like db.t needs a warehouse"
    return message


def _listed(directory: str, storage_options: Mapping[str, object] | None) -> list[Entry]:
    """What a directory holds, where one may look."""
    try:
        return Storage.open(directory, storage_options).list("") if directory else []
    except MaintainerError:
        return []
