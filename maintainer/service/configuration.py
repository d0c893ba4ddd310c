"""The configuration file of the daemon (DESIGN §5): a YAML file, checked as a whole before anything is started.

    warehouses: [{uri: s3://bucket/wh, include: ["db.*"], exclude: [], storage-options: {endpoint_url: …}, options: {}}]
    tables: [{uri: /wh/db.db/t, storage-options: {}, options: {}}]
    poll-interval: 5 s
    memory: 1 gb
    spill: {directory: /var/tmp/maintainer, limit: 20 gb}
    cache: {directory: /var/cache/maintainer, limit: 1 gb}
    log: {format: console, level: info}

* Single values may come from the environment, which goes before the file: `MAINTAINER_POLL_INTERVAL`, `MAINTAINER_SPILL_DIRECTORY`, … .
* Values of the file may refer to environment variables by `${NAME}`; one that is not set is an error.
* A path that is not absolute begins at the directory of the file (one from the environment: at the working directory); `~` is the home.
* Sizes and times have units. A bare number would be bytes or milliseconds elsewhere in Paimon; as a time it is refused.
* Secrets are never shown: of `storage-options` only values that are known to be none, of `options` none whose name looks like one.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from maintainer.data.key_cache import DEFAULT_LIMIT
from maintainer.errors import UsageError
from maintainer.service import document
from maintainer.service.document import Document, Place, name_of
from maintainer.service.masking import LEAST_SECRET, MASK, is_secret, leaves, secret_texts, shown_uri
from maintainer.storage.schemes import library_scheme
from maintainer.table.opening import IMMUTABLE
from maintainer.table.option_text import parse_duration, parse_memory_size
from maintainer.table.options import TableOptions
from maintainer.table.support import is_known_option, meant_option

LEAST_POLL, MOST_POLL = 0.05, 86400.0
LEAST_MEMORY = 64 << 20
LEAST_SPILL = 16 << 20

VARIABLES: Mapping[str, tuple[str, ...]] = {
    "MAINTAINER_POLL_INTERVAL": ("poll-interval",),
    "MAINTAINER_MEMORY": ("memory",),
    "MAINTAINER_SPILL_DIRECTORY": ("spill", "directory"),
    "MAINTAINER_SPILL_LIMIT": ("spill", "limit"),
    "MAINTAINER_CACHE_DIRECTORY": ("cache", "directory"),
    "MAINTAINER_CACHE_LIMIT": ("cache", "limit"),
    "MAINTAINER_LOG_FORMAT": ("log", "format"),
    "MAINTAINER_LOG_LEVEL": ("log", "level"),
}
"""Environment variables that go before the file."""


def _size(least: int) -> BeforeValidator:
    def parse(given: object) -> object:
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise ValueError("must be a size like 512 mb")
        try:
            size = parse_memory_size(str(given))
        except UsageError as error:
            raise ValueError(f"{error}; no fractions") from None
        if size < least:
            raise ValueError(f"must be at least {size_text(least)}, not {given}" + (" (bytes)" if size == given else ""))
        return size

    return BeforeValidator(parse)


def _duration(given: object) -> object:
    if isinstance(given, bool) or not isinstance(given, int | float | str) or not re.search(r"[a-zµ]", str(given), re.IGNORECASE):
        raise ValueError("must be a time with its unit, like 5 s or 500 ms")
    try:
        seconds = parse_duration(str(given))
    except UsageError as error:
        raise ValueError(f"{error} (units: ms, s, min, h, d; no fractions)") from None
    if not LEAST_POLL <= seconds <= MOST_POLL:
        raise ValueError(f"must be between 50 ms and 1 d, not {given}")
    return seconds


def _lower(given: object) -> object:
    return given.strip().lower() if isinstance(given, str) else given


def _texts(given: object) -> object:
    """Table options are texts; YAML has its own idea of `true` and `10`."""
    if not isinstance(given, dict):
        raise ValueError("must be a mapping of option names to values")
    texts = {}
    for key, value in given.items():
        if isinstance(value, bool):
            texts[key] = str(value).lower()
        elif isinstance(value, str | int | float):
            texts[key] = str(value)
        else:
            raise ValueError(f"{key}: the value of an option must be a text, a number, true or false")
    return texts


def _table_options(given: Mapping[str, str]) -> Mapping[str, str]:
    for key in given:
        if key in IMMUTABLE:
            raise ValueError(f"{key}: this option belongs to the table and cannot be set for one process")
        if not is_known_option(key):
            meant = meant_option(key)
            raise ValueError(f"{key}: there is no such option" + (f"; did you mean {meant}?" if meant else ""))
    for mistake in TableOptions(given).mistakes():
        raise ValueError(str(mistake))
    return given


def _uri(given: str) -> str:
    if not given.strip():
        raise ValueError("must be a path or URI, like /wh/db.db/t or s3://bucket/wh/db.db/t")
    return given.strip().rstrip("/") or "/"


def _pattern(given: str) -> str:
    if not given.strip() or ("." not in given and not re.search(r"[*?\[]", given)):
        raise ValueError(f"must be a pattern for db.table, like 'db.*' or 'db.orders_*', not {given!r}")
    return given.strip()


Uri = Annotated[str, BeforeValidator(lambda given: _uri(given) if isinstance(given, str) else given)]
Pattern = Annotated[str, BeforeValidator(lambda given: _pattern(given) if isinstance(given, str) else given)]
Options = Annotated[dict[str, str], BeforeValidator(lambda given: _table_options(_texts(given)))]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=lambda name: name.replace("_", "-"))


class _Place(_Section):
    uri: Uri
    storage_options: dict[str, Any] = Field(default_factory=dict)
    """For the file system's library (fsspec)."""
    options: Options = Field(default_factory=dict)
    """Dynamic table options."""


class TableEntry(_Place):
    """A table that is named."""


class Warehouse(_Place):
    """A directory of databases, whose tables are found."""

    include: tuple[Pattern, ...] = Field(default=("*",), strict=False)
    exclude: tuple[Pattern, ...] = Field(default=(), strict=False)


class SpillSettings(_Section):
    directory: str | None = Field(default=None, min_length=1)
    """Where what does not fit the memory goes for a while; None: the system's temporary directory."""
    limit: Annotated[int, _size(LEAST_SPILL)] | None = None
    """Bytes; None: as much as the directory holds."""


class CacheSettings(_Section):
    directory: str | None = Field(default=None, min_length=1)
    """Where key columns of data files are kept for the next pass; None: the daemon takes one below the system's temporary directory, and `once`
    keeps nothing."""
    limit: Annotated[int, _size(0)] = DEFAULT_LIMIT
    """Bytes; 0: nothing is kept."""


class LogSettings(_Section):
    format: Annotated[Literal["console", "json"], BeforeValidator(_lower)] = "console"
    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = "info"


class Configuration(_Section):
    """What the daemon does, and with what."""

    warehouses: tuple[Warehouse, ...] = Field(default=(), strict=False)
    tables: tuple[TableEntry, ...] = Field(default=(), strict=False)
    poll_interval: Annotated[float, BeforeValidator(_duration)] = 5.0
    """Seconds between two looks at a table."""
    memory: Annotated[int, _size(LEAST_MEMORY)] | None = None
    """Bytes that all passes together may use; None: 1 GB, or half of the container."""
    spill: SpillSettings = Field(default_factory=SpillSettings)
    cache: CacheSettings = Field(default_factory=CacheSettings)
    log: LogSettings = Field(default_factory=LogSettings)

    _source: _Source = PrivateAttr()

    @property
    def path(self) -> str:
        return self._source.document.path

    def values(self) -> list[dict[str, Any]]:
        """`{"key", "value", "origin"}` of everything that is in effect; secrets are masked."""
        return [{"key": name_of(place), "value": value, "origin": self._source.origin(place)} for place, value in _shown(self, self._source)]

    def secrets(self) -> frozenset[str]:
        """Texts that no log may hold; short ones are words like others."""
        return frozenset(
            text
            for place, value in leaves(self._source.values, ())
            for text in secret_texts(place, value, place in self._source.document.written)
            if len(text) >= LEAST_SECRET
        )


@dataclass(frozen=True)
class _Source:
    """Where values come from: the file, with those of the environment put in."""

    document: Document
    values: Mapping[str, Any]
    from_environment: Mapping[Place, str]

    def origin(self, place: Place) -> str:
        for length in range(len(place), 0, -1):
            if place[:length] in self.from_environment:
                return f"environment {self.from_environment[place[:length]]}"
        return self.document.where(place) if place in self.document.lines else "default"


Configuration.model_rebuild()


def load(path: str, environment: Mapping[str, str] | None = None) -> Configuration:
    """The configuration in a file; `UsageError` names every key that is wrong, its line, and what is allowed."""
    environment = os.environ if environment is None else environment
    read = document.read(path, environment)
    if read.values is None:
        raise UsageError(f"{path}: the configuration is empty; it needs at least one table or warehouse, like tables: [{{uri: /wh/db.db/t}}]")
    if not isinstance(read.values, dict):
        raise UsageError(f"{path}: a configuration is a mapping with the keys {', '.join(_keys_of(Configuration))}")
    source = _with_environment(read, environment)
    try:
        configuration = Configuration.model_validate(source.values)
    except ValidationError as error:
        raise UsageError("; ".join(_problems(error, source))) from None
    _check_tables(configuration, read)
    configuration._source = source
    return configuration


def size_text(size: int) -> str:
    """A size as it may be written."""
    for unit, factor in (("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} b"


def place_key(uri: str) -> str:
    """The same text for URIs of the same place."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return os.path.abspath(uri.removeprefix("file:"))
    if scheme.lower() == "file":
        return os.path.abspath("/" + rest.partition("/")[2])
    return f"{library_scheme(scheme.lower())}://{rest.rstrip('/')}"


def _with_environment(read: Document, environment: Mapping[str, str]) -> _Source:
    values = _absolute(read.values, os.path.dirname(os.path.abspath(read.path)))
    used: dict[Place, str] = {}
    for variable, place in VARIABLES.items():
        text = environment.get(variable)
        if not text:
            continue
        holder: Any = values
        for key in place[:-1]:
            holder = holder.setdefault(key, {}) if isinstance(holder, dict) else {}
        if isinstance(holder, dict):
            holder[place[-1]] = os.path.abspath(os.path.expanduser(text)) if place[-1] == "directory" else text
            used[place] = variable
    return _Source(read, values, used)


def _absolute(values: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """The values with their paths made absolute; what has the wrong type stays for the check."""

    def whole(path: object) -> object:
        if not isinstance(path, str) or not path.strip() or re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path):
            return path
        return os.path.normpath(os.path.join(directory, os.path.expanduser(path.strip())))

    def placed(entries: object, key: str) -> object:
        if isinstance(entries, list):
            return [placed(entry, key) for entry in entries]
        return {name: whole(value) if name == key else value for name, value in entries.items()} if isinstance(entries, dict) else entries

    keys = {"warehouses": "uri", "tables": "uri", "spill": "directory", "cache": "directory"}
    return {name: placed(value, keys[name]) if name in keys else _copied(value) for name, value in values.items()}


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def _check_tables(configuration: Configuration, read: Document) -> None:
    if not configuration.tables and not configuration.warehouses:
        raise UsageError(f"{read.path}: there is nothing to maintain: name a table in tables, or a warehouse in warehouses")
    seen: dict[str, int] = {}
    for number, table in enumerate(configuration.tables):
        first = seen.setdefault(place_key(table.uri), number)
        if first != number:
            where = f"{read.where(('tables', number, 'uri'))}: tables[{number}].uri"
            raise UsageError(f"{where}: the table {shown_uri(table.uri)} stands in tables[{first}] already")


def _problems(error: ValidationError, source: _Source) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = tuple(problem["loc"])
        variable = source.from_environment.get(place)
        where = f"environment variable {variable}" if variable else source.document.where(place)
        yield f"{where}: {name_of(place)}: {_said(problem['type'], problem['msg'], place)}"


def _said(kind: str, message: str, place: Place) -> str:
    """pydantic's words as ours."""
    if kind == "extra_forbidden":
        allowed = _keys_of(_section_of(place))
        close = get_close_matches(str(place[-1]).replace("_", "-"), allowed, n=1)
        return "there is no such key" + (f"; did you mean {close[0]}?" if close else "") + f" (the keys here are {', '.join(allowed)})"
    if kind == "missing":
        return "this key is missing"
    known = {
        "tuple_type": "must be a list",
        "list_type": "must be a list",
        "dict_type": "must be a mapping",
        "model_type": f"must be a mapping with the keys {', '.join(_keys_of(_section_of((*place, ''))))}",
        "model_attributes_type": f"must be a mapping with the keys {', '.join(_keys_of(_section_of((*place, ''))))}",
        "string_type": "must be a text (quote it)",
        "string_too_short": "must not be empty",
    }
    if kind == "literal_error":
        return message.replace("Input should be", "must be")
    return known.get(kind, message.removeprefix("Value error, "))


_SECTIONS: Mapping[str, type[_Section]] = {
    "warehouses": Warehouse,
    "tables": TableEntry,
    "spill": SpillSettings,
    "cache": CacheSettings,
    "log": LogSettings,
}


def _section_of(place: Place) -> type[_Section]:
    """The section in which the last part of a place is a key."""
    return _SECTIONS.get(str(place[0]), Configuration) if len(place) > 1 else Configuration


def _keys_of(section: type[_Section]) -> list[str]:
    return [name.replace("_", "-") for name in section.model_fields]


def _shown(configuration: Configuration, source: _Source) -> Iterator[tuple[Place, Any]]:
    for name, value in configuration:
        key = name.replace("_", "-")
        if isinstance(value, tuple):
            for number, entry in enumerate(value):
                yield from _shown_section(entry, (key, number), source)
        elif isinstance(value, _Section):
            yield from _shown_section(value, (key,), source)
        else:
            yield (key,), _plain((key,), value, source)


def _shown_section(section: _Section, place: Place, source: _Source) -> Iterator[tuple[Place, Any]]:
    for name, value in section:
        inner = (*place, name.replace("_", "-"))
        if isinstance(value, dict):
            for leaf, text in leaves(value, inner):
                yield leaf, _masked(leaf, text, source)
        elif isinstance(value, tuple):
            yield inner, list(value)
        else:
            yield inner, _plain(inner, value, source)


def _plain(place: Place, value: Any, source: _Source) -> Any:
    """A value as it was written; a default as it might be."""
    if value is None and place == ("memory",):
        from maintainer.api.maintenance import default_memory

        return size_text(default_memory())
    if value is None and place == ("spill", "directory"):
        return tempfile.gettempdir()
    if source.origin(place) == "default":
        return f"{value:g} s" if isinstance(value, float) else value
    written: Any = source.values
    for part in place:
        written = written[part]
    return _masked(place, str(written) if isinstance(written, int | float) else written, source)


def _masked(place: Place, value: Any, source: _Source) -> Any:
    if place in source.document.written and place not in source.from_environment:
        return source.document.written[place]
    if isinstance(value, str) and place[-1] == "uri":
        return shown_uri(value)
    return MASK if is_secret(place, value) else shown_uri(value) if isinstance(value, str) else value
