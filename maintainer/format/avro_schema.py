"""The schema of an Avro file from outside, made safe to decode with and compared with what is expected (spec 01 §7; Java `FieldReaderFactory`).

Fields are found by name, as Java does it: what is missing is null, what is unknown is skipped, int and long are the same, and a value may be
nullable in the file where it is required, as long as it is not null. There is no schema resolution beyond that.

First the schema is brought into a plain form: logical types removed (timestamps stay numbers), named types written out, and types of no size or
of unbounded recursion refused, so that no record can be larger than the bytes it comes from. Then it is compared with the expected schema, once
for the file, so that values have the types that they are used as.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from maintainer.errors import CorruptFile

MAX_TYPES = 2000
"""Types in a schema of a file, after named types are written out; Paimon's have about 50."""

Schema = Any
Check = Callable[[Any], bool]


@lru_cache(maxsize=64)
def reader_schema(text: str, expected: str, what: str) -> tuple[Schema, Check | None]:
    """The schema for fastavro of a block of a file with the schema `text`, and a test for nulls where no null may be (None: the schema
    rules them out)."""
    from fastavro import parse_schema

    try:
        plain = _Plain().type(json.loads(text), {})
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise CorruptFile(f"the {what} has a schema that cannot be read: {error}", offset=4) from None
    check = _compare(json.loads(expected), plain, what)
    try:
        return parse_schema({"type": "array", "items": plain}), check
    except Exception as error:  # fastavro's rules for names, defaults, …
        raise CorruptFile(f"the {what} has a schema that cannot be read: {error}", offset=4) from None


class _Plain:
    """Rewrites a schema of a file: no logical types, no aliases and defaults, every named type written out under a fresh name."""

    def __init__(self) -> None:
        self.count = 0

    def type(self, schema: Any, named: dict[str, Any]) -> Schema:
        """`named` are the complete definitions so far; one that is not complete cannot be referred to, so nothing is recursive."""
        self.count += 1
        if self.count > MAX_TYPES:
            raise ValueError("it is too large")
        if isinstance(schema, list):
            if not schema or any(isinstance(branch, list) for branch in schema):
                raise ValueError("it has an empty or nested union")
            return [branch if branch == "null" else self.type(branch, named) for branch in schema]
        if isinstance(schema, str):
            if schema in ("boolean", "int", "long", "float", "double", "bytes", "string"):
                return schema
            if schema in named:
                return self.type(named[schema], named)
            raise ValueError(f"it has the unknown, recursive or empty type {schema!r}")
        kind = schema["type"]
        match kind:
            case "array":
                return {"type": "array", "items": self.type(schema["items"], named)}
            case "map":
                return {"type": "map", "values": self.type(schema["values"], named)}
            case "record" | "error":
                if not schema["fields"]:
                    raise ValueError("it has a record without fields")
                name = f"r{self.count}"
                fields = [{"name": field["name"], "type": self.type(field["type"], named)} for field in schema["fields"]]
                plain: Schema = {"type": "record", "name": name, "fields": fields}
            case "enum":
                plain = {"type": "enum", "name": f"e{self.count}", "symbols": list(schema["symbols"])}
            case "fixed":
                if type(schema["size"]) is not int or schema["size"] < 1:
                    raise ValueError("it has a fixed type without a size")
                plain = {"type": "fixed", "name": f"f{self.count}", "size": schema["size"]}
            case _:
                return self.type(kind, named)
        if "name" in schema:
            named[schema["name"]] = schema
            if schema.get("namespace"):
                named[f"{schema['namespace']}.{schema['name']}"] = schema
        return plain


def _compare(expected: Schema, actual: Schema, where: str) -> Check | None:
    """Raises if values of the actual schema cannot be used as those of the expected one; returns what must be tested for each value."""
    nullable = isinstance(expected, list)
    wanted = _without_null(expected, where)
    found = _without_null(actual, where)
    check = _compare_values(wanted, found, where)
    if isinstance(actual, list) and not nullable:
        return _is_present if check is None else lambda value: value is not None and check(value)
    if check is None or not isinstance(actual, list):
        return check
    return lambda value: value is None or check(value)


def _compare_values(wanted: Schema, found: Schema, where: str) -> Check | None:
    wanted_kind, found_kind = _kind(wanted), _kind(found)
    if wanted_kind != found_kind and {wanted_kind, found_kind} != {"int", "long"}:
        raise CorruptFile(f"{where} is {found_kind} where {wanted_kind} is expected", offset=4)
    if wanted_kind == "array":
        items = _compare(wanted["items"], found["items"], f"an item of {where}")
        return None if items is None else lambda values: all(map(items, values))
    if wanted_kind != "record":
        return None
    present = {field["name"]: field["type"] for field in found["fields"]}
    checks: list[tuple[str, Check]] = []
    for field in wanted["fields"]:
        name = field["name"]
        if name not in present:
            if not isinstance(field["type"], list):
                raise CorruptFile(f"{where} has no {name}", offset=4)
            continue
        check = _compare(field["type"], present[name], name)
        if check is not None:
            checks.append((name, check))
    return (lambda record: all(check(record[name]) for name, check in checks)) if checks else None


def _is_present(value: Any) -> bool:
    return value is not None


def _without_null(schema: Schema, where: str) -> Schema:
    if not isinstance(schema, list):
        return schema
    branches = [branch for branch in schema if branch != "null"]
    if len(branches) != 1:
        raise CorruptFile(f"{where} is a union of {len(branches)} types", offset=4)
    return branches[0]


def _kind(schema: Schema) -> Any:
    return schema["type"] if isinstance(schema, dict) else schema
