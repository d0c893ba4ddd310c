"""A YAML file as plain values that remember where they stand, so that a mistake is named by its line and a value by its origin (DESIGN §5).

Two things that YAML lets pass are mistakes here: a key that stands twice in one mapping, and a key that is not a text. A value may refer to
environment variables by `${NAME}` (`$${` stands for `${`); this happens after the file was understood, so what a variable holds is never
syntax. Such values are texts, and they are secrets to whoever shows a configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from maintainer.errors import UsageError

MOST_BYTES = 1 << 20
MOST_NODES = 100_000
"""Values of a file: aliases of aliases grow without limit."""
MOST_DEPTH = 30

Place = tuple[str | int, ...]
"""Where a value stands: keys of mappings and positions in lists, from the outside in."""

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Document:
    """The values of a file; `lines` knows the line of each, and `written` how a value that refers to variables is written."""

    path: str
    values: Any
    lines: Mapping[Place, int]
    written: Mapping[Place, str]

    def where(self, place: Place) -> str:
        """The file, and the line of a value or of what is around it."""
        for length in range(len(place), 0, -1):
            line = self.lines.get(place[:length])
            if line is not None:
                return f"{self.path}:{line}"
        return self.path


def read(path: str, environment: Mapping[str, str]) -> Document:
    """The YAML file at a path; `UsageError` says what is wrong with it, and where."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: the configuration cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path}: this is no configuration: it has more than {MOST_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: this is no UTF-8 text: {error.reason} at byte {error.start}") from None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        reading = _Reading(path, environment, loader)
        values = None if node is None else reading.value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        raise UsageError(f"{path}{line}: this is no YAML: {error.problem or error.context}") from None
    except RecursionError:
        raise UsageError(f"{path}: this is no configuration: it has too many values, one inside of the other") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: this is no YAML: {error}") from None
    return Document(path, values, reading.lines, reading.written)


def name_of(place: Place) -> str:
    """How people write a place: `warehouses[0].storage-options.endpoint_url`."""
    name = ""
    for part in place:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


@dataclass
class _Reading:
    path: str
    environment: Mapping[str, str]
    loader: yaml.SafeLoader
    lines: dict[Place, int] = field(default_factory=dict)
    written: dict[Place, str] = field(default_factory=dict)
    nodes: int = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.nodes += 1
        line = self.lines.setdefault(place, node.start_mark.line + 1)
        if self.nodes > MOST_NODES or len(place) > MOST_DEPTH:
            raise UsageError(f"{self.path}:{line}: this is no configuration: it has too many values, one inside of the other")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, number)) for number, item in enumerate(node.value)]
        try:
            plain = self.loader.construct_object(node)
        except ValueError as error:  # 2026-13-45 looks like a date
            raise UsageError(f"{self.path}:{line}: {name_of(place)}: {error}; quote it if it is a text") from None
        return self._with_variables(plain, place, line) if isinstance(plain, str) else plain

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        keys: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise UsageError(f"{self.path}:{line}: a key must be a text")
            if key.value in keys:
                raise UsageError(f"{self.path}:{line}: {name_of((*place, key.value))}: this key stands in line {keys[key.value]} already")
            keys[key.value] = line
        self.loader.flatten_mapping(node)
        values = {}
        for key, item in node.value:
            inner = (*place, str(key.value))
            self.lines[inner] = key.start_mark.line + 1
            values[str(key.value)] = self.value(item, inner)
        return values

    def _with_variables(self, text: str, place: Place, line: int) -> str:
        def replaced(match: re.Match[str]) -> str:
            if match[1]:
                return match[1]
            where = f"{self.path}:{line}: {name_of(place)}"
            if match[2] is None or not _NAME.fullmatch(match[2]):
                raise UsageError(f"{where}: ${{…}} must hold the name of an environment variable (write $${{ for a text with ${{)")
            if match[2] not in self.environment:
                raise UsageError(f"{where}: the environment variable {match[2]} is not set")
            self.written[place] = text
            return self.environment[match[2]]

        return _REFERENCE.sub(replaced, text)
