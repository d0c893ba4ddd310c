"""The cases that Java wrote, with Java's own answers (`tests/fixtures/java/README.md`): archives, rows, and predicates as our values."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.types import BINARIES, FLOATS, TIMESTAMPS, DataType, TypeRoot
from maintainer.read.literals import parse_date, parse_time, parse_timestamp

_HERE = Path(__file__).resolve()
_PLACES = (_HERE.parents[1] / "fixtures" / "java", _HERE.parents[3] / "shared" / "golden" / "java")
"""In the repository; else beside it."""

PK_JAVA = _HERE.parents[3] / "shared" / "golden" / "pk-java.tar.gz"
"""Three small tables of a public project's test data, which are not ours to keep: beside the repository, if anywhere."""


def directory() -> Path:
    """Where the cases are."""
    return next(place for place in _PLACES if place.is_dir())


def find(name: str) -> Path | None:
    """A file of the set, wherever it is."""
    return next((place / name for place in _PLACES if (place / name).exists()), None)


@cache
def case(name: str) -> dict[str, Any] | None:
    """The JSON of a case; None when it is not here."""
    path = find(f"{name}.json")
    return None if path is None else json.loads(path.read_text())


def unpack(name: str, directory: Path, archive: str | None = None) -> Path:
    """The table of a case, in its last state unless an archive is named."""
    found = case(name)
    assert found is not None
    archives: Mapping[str, str] = found["archives"]
    archive = archive or archives.get("after") or archives.get("table") or archives["input"]
    path = find(archive)
    assert path is not None, f"{archive} is missing"
    with tarfile.open(path) as tar:
        tar.extractall(directory, filter="data")
    return directory / name


def rows_of(found: Mapping[str, Any]) -> Iterator[tuple[int, Sequence[str], list[Any]]]:
    """(snapshot id, columns, rows) of every snapshot whose rows are known."""
    by_id = {snapshot["id"]: snapshot.get("rows") for snapshot in found["snapshots"]}
    for snapshot in found["snapshots"]:
        rows = snapshot.get("rows")
        while rows is not None and "sameAs" in rows:
            rows = by_id[rows["sameAs"]]
        if rows is not None:
            yield snapshot["id"], rows["columns"], rows["data"]


def predicate_of(tree: Mapping[str, Any], schema: TableSchema) -> Predicate:
    """A predicate of the JSON as ours."""
    if "children" in tree:
        children = tuple(predicate_of(child, schema) for child in tree["children"])
        return And(children) if tree["op"] == "and" else Or(children)
    data_type = schema.field(tree["field"]).type
    if tree["op"].startswith("array"):
        assert data_type.element is not None
        data_type = data_type.element
    literals = tree["literals"] if "literals" in tree else [tree["literal"]] if "literal" in tree else []
    return Leaf(Op(tree["op"]), tree["field"], tuple(value_of(literal, data_type) for literal in literals))


def value_of(value: Any, data_type: DataType) -> Any:
    """A scalar of the JSON as an internal value."""
    if value is None:
        return None
    root = data_type.root
    if root in FLOATS:
        return float(value)
    if root in BINARIES:
        return base64.b64decode(value)
    if root in TIMESTAMPS:
        return parse_timestamp(value).nanos
    match root:
        case TypeRoot.DECIMAL:
            return Decimal(value)
        case TypeRoot.DATE:
            return parse_date(value).days
        case TypeRoot.TIME:
            return parse_time(value).nanos // 1_000_000
        case _:
            return value
