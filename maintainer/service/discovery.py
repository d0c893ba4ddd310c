"""Which tables there are to maintain: those that the configuration names, and those found in its warehouses (spec 01 §2).

A table of a warehouse is a directory `<warehouse>/<db>.db/<table>` with a schema in it. It is taken when `db.table` matches one of the patterns
of `include` and none of `exclude`. The entry of a warehouse speaks for its tables, also for one that is named in `tables`: what that says
itself goes before it. A table is taken once, by the first entry that has it; named ones come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from maintainer.errors import MaintainerError, StorageError
from maintainer.service.configuration import Configuration, Warehouse, place_key
from maintainer.storage.layout import Layout
from maintainer.storage.storage import Storage, join_uri

if TYPE_CHECKING:
    from maintainer.api.table import Table

OnFailure = Callable[[Warehouse, MaintainerError], None]

SHOWN_NAMES = 5
_DATABASE = ".db"


@dataclass(frozen=True)
class ConfiguredTable:
    """A table to maintain, and how to open it."""

    uri: str
    storage_options: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, str] = field(repr=False)
    named: bool
    """False: it was only found in a warehouse."""
    store: str
    """What it shares with other tables: they hang or fail together."""

    @property
    def key(self) -> str:
        return place_key(self.uri)

    def open(self) -> Table:
        from maintainer.api.table import open_table

        return open_table(self.uri, storage_options=self.storage_options, options=self.options)


def tables_of(configuration: Configuration, on_failure: OnFailure | None = None) -> Iterator[ConfiguredTable]:
    """All tables to maintain now, each once. A warehouse that cannot be listed raises, unless somebody else is told of it."""
    seen = set()
    for table in named_tables(configuration):
        seen.add(table.key)
        yield table
    for warehouse in configuration.warehouses:
        unlisted: list[MaintainerError] = []
        try:
            found = tables_in(warehouse, unlisted=unlisted)
        except MaintainerError as error:
            unlisted, found = [error], []
        for failure in unlisted:
            if on_failure is None:
                raise failure
            on_failure(warehouse, failure)
        for table in found:
            if table.key not in seen:
                seen.add(table.key)
                yield table


def named_tables(configuration: Configuration) -> list[ConfiguredTable]:
    """The tables that the configuration names, whether they are there or not."""
    found = []
    for entry in configuration.tables:
        around = _warehouse_of(entry.uri, configuration)
        storage_options = {**(around.storage_options if around else {}), **entry.storage_options}
        options = {**(around.options if around else {}), **entry.options}
        store = place_key(around.uri if around else entry.uri)
        found.append(ConfiguredTable(entry.uri, storage_options, options, named=True, store=store if around else _bucket_of(store)))
    return found


def tables_in(
    warehouse: Warehouse, known: frozenset[str] = frozenset(), unlisted: list[MaintainerError] | None = None
) -> list[ConfiguredTable]:
    """The tables of a warehouse that its patterns select. Of those with a `known` key the schema is not looked for again.

    What cannot be looked into is no reason not to find the rest: a directory that may be a table counts as one, and says itself what is wrong
    with it; why a database could not be listed goes to `unlisted`, and is raised without that.
    """
    storage = Storage.open(warehouse.uri, warehouse.storage_options)
    found = []
    for database in _directories(storage, ""):
        if not database.endswith(_DATABASE):
            continue
        try:
            members = _directories(storage, database)
        except StorageError as error:
            if unlisted is None:
                raise
            unlisted.append(error)
            continue
        for name in members:
            if not selects(warehouse, f"{database.removesuffix(_DATABASE)}.{name}"):
                continue
            uri = join_uri(warehouse.uri, database, name)
            table = ConfiguredTable(uri, warehouse.storage_options, warehouse.options, named=False, store=place_key(warehouse.uri))
            if table.key in known or _may_have_schema(storage, f"{database}/{name}"):
                found.append(table)
    return found


def why_none(warehouse: Warehouse) -> str:
    """In words why `tables_in` finds nothing: most often it is the place or a pattern that is wrong."""
    try:
        names = [table_name(each) for each in tables_in(warehouse.model_copy(update={"include": ("*",), "exclude": ()}))]
        if names:
            some = ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")
            return f"include and exclude select none of its tables, which are {some}"
        storage = Storage.open(warehouse.uri, warehouse.storage_options)
        if any(name.endswith(_DATABASE) for name in _directories(storage, "")):
            return "its databases hold no table"
        if warehouse.uri.rstrip("/").endswith(_DATABASE):
            return "this is a database; the warehouse is the directory above it"
        return "it holds no database <db>.db" if storage.list("") else "there is no such directory, or it is empty"
    except MaintainerError as error:
        return str(error)


def table_name(table: ConfiguredTable) -> str:
    """`db.table` of a table that was found in a warehouse."""
    above, _, name = table.uri.rstrip("/").rpartition("/")
    return f"{above.rpartition('/')[2].removesuffix(_DATABASE)}.{name}"


def selects(warehouse: Warehouse, name: str) -> bool:
    """Whether a warehouse's patterns take the table `db.table`."""
    return any(fnmatchcase(name, pattern) for pattern in warehouse.include) and not any(
        fnmatchcase(name, pattern) for pattern in warehouse.exclude
    )


def _warehouse_of(uri: str, configuration: Configuration) -> Warehouse | None:
    """The first warehouse that has this table."""
    key = place_key(uri)
    for warehouse in configuration.warehouses:
        directory, _, name = key.rpartition("/")
        above, _, database = directory.rpartition("/")
        is_below = above == place_key(warehouse.uri) and database.endswith(_DATABASE)
        if is_below and selects(warehouse, f"{database.removesuffix(_DATABASE)}.{name}"):
            return warehouse
    return None


def _bucket_of(place: str) -> str:
    """The bucket or host of a URI; a local path is a store of its own, for there may be a mount anywhere on the way to it."""
    scheme, separator, rest = place.partition("://")
    return f"{scheme}{separator}{rest.partition('/')[0]}" if separator else place


def _directories(storage: Storage, path: str) -> list[str]:
    return [entry.name for entry in storage.list(path) if entry.is_directory and not entry.name.startswith((".", "_"))]


def _may_have_schema(storage: Storage, path: str) -> bool:
    """Whether there is a schema; a store that does not say may hold one."""
    prefix = "schema-"
    try:
        entries = storage.list(f"{path}/{Layout().schema_directory}")
    except StorageError:
        return True
    return any(entry.name.startswith(prefix) for entry in entries if not entry.is_directory)
