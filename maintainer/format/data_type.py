"""Data types from and to their JSON and SQL forms (spec 01 §4.2; Java `DataTypeJsonParser`, `DataType.serializeJson`).

A type without members is a text, a constructed one an object:

| JSON                                                  | type                                              |
| ----------------------------------------------------- | ------------------------------------------------- |
| `"DECIMAL(10, 2) NOT NULL"`                           | any root without members                          |
| `{"type": "ARRAY", "element": T}`                     | also MULTISET, and VECTOR with `"length": n`      |
| `{"type": "MAP NOT NULL", "key": T, "value": T}`      |                                                   |
| `{"type": "ROW", "fields": [{"id", "name", "type"}]}` | members have ids of the table's id space          |

The texts are accepted in any case and spacing, and nested as SQL writes them (`MAP<INT, ROW<a INT, b ARRAY<STRING>>>`), which is how a CREATE
TABLE statement gives a constructed type. Members of a ROW that came as text have no ids yet; `assign_ids` gives them as Java does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from maintainer.errors import UsageError
from maintainer.model.types import MAX_LENGTH, DataField, DataType, TypeRoot

NO_ID = -1
"""The id of a ROW member whose type came as text."""
MAX_DEPTH = 64
"""Deepest accepted nesting; a guard for the stack, far above what a table has."""

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>\d+)|`(?P<quoted>(?:[^`]|``)+)`|'(?P<text>(?:[^']|'')*)'|(?P<mark>[<>(),:]))"
)
_SYNONYMS = {
    "INTEGER": TypeRoot.INT,
    "DEC": TypeRoot.DECIMAL,
    "NUMERIC": TypeRoot.DECIMAL,
    "STRING": TypeRoot.VARCHAR,
    "BYTES": TypeRoot.VARBINARY,
}
_FOREIGN = {
    "TEXT": "STRING",
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "BOOL": "BOOLEAN",
    "REAL": "FLOAT",
    "DATETIME": "TIMESTAMP(3)",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ(3)",
    "JSON": "STRING",
    "STRUCT": "ROW<name TYPE, …>",
    "LIST": "ARRAY<TYPE>",
}
"""Names of other systems, and what to write instead."""
_LENGTHS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
_VECTOR_ELEMENTS = frozenset(
    {TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.FLOAT, TypeRoot.DOUBLE}
)
_CONSTRUCTED = re.compile(r"\s*(ARRAY|VECTOR|MULTISET|MAP|ROW)(\s+NOT\s+NULL|\s+NULL)?\s*", re.IGNORECASE)


def parse(value: str | Mapping[str, Any]) -> DataType:
    """The type of a JSON value or SQL text; `UsageError` names the text that is not a type."""
    return _parse(value, 0)


def render(data_type: DataType) -> str | dict[str, Any]:
    """The JSON value that Java writes for a type."""
    suffix = "" if data_type.nullable else " NOT NULL"
    match data_type.root:
        case TypeRoot.ARRAY | TypeRoot.MULTISET | TypeRoot.VECTOR:
            document: dict[str, Any] = {"type": data_type.root + suffix, "element": render(_member(data_type.element))}
            if data_type.root == TypeRoot.VECTOR:
                document["length"] = data_type.length
            return document
        case TypeRoot.MAP:
            key, element = render(_member(data_type.key)), render(_member(data_type.element))
            return {"type": f"MAP{suffix}", "key": key, "value": element}
        case TypeRoot.ROW:
            return {"type": f"ROW{suffix}", "fields": [render_field(field) for field in data_type.fields]}
        case _:
            return str(data_type)


def parse_field(document: Any, depth: int = 0) -> DataField:
    """A column, or a member of a ROW, of a schema document."""
    if not isinstance(document, Mapping):
        raise UsageError(f"a field must be a JSON object, not {document!r}")
    known = {key: value for key, value in document.items() if value is not None}
    name, field_id = known.pop("name", None), known.pop("id", None)
    if not isinstance(name, str):
        raise UsageError(f"a field needs a name: {document!r}")
    if not isinstance(field_id, int) or isinstance(field_id, bool) or not -(2**31) <= field_id < 2**31:
        raise UsageError(f"field {name!r} needs an integer id, not {field_id!r}")
    if "type" not in known:
        raise UsageError(f"field {name!r} needs a type")
    try:
        data_type = _parse(known.pop("type"), depth)
    except UsageError as error:
        raise UsageError(f"field {name!r}: {error}") from None
    description, default_value = known.pop("description", None), known.pop("defaultValue", None)
    for text in (description, default_value):
        if text is not None and not isinstance(text, str):
            raise UsageError(f"field {name!r}: {text!r} must be a string")
    return DataField(field_id, name, data_type, description, default_value, known)


def render_field(field: DataField) -> dict[str, Any]:
    document: dict[str, Any] = {"id": field.id, "name": field.name, "type": render(field.type)}
    if field.description is not None:
        document["description"] = field.description
    if field.default_value is not None:
        document["defaultValue"] = field.default_value
    return {**document, **field.extra}


def assign_ids(data_type: DataType, highest: int) -> tuple[DataType, int]:
    """The type with fresh ids for all members of ROWs, and the highest id given. Inner members come before the member that holds them
    (Java `ReassignFieldId`)."""
    key = element = None
    if data_type.key is not None:
        key, highest = assign_ids(data_type.key, highest)
    if data_type.element is not None:
        element, highest = assign_ids(data_type.element, highest)
    fields = []
    for field in data_type.fields:
        member, highest = assign_ids(field.type, highest)
        highest += 1
        fields.append(replace(field, id=highest, type=member))
    return replace(data_type, key=key, element=element, fields=tuple(fields)), highest


def _member(data_type: DataType | None) -> DataType:
    if data_type is None:
        raise ValueError("a constructed type without a member type")
    return data_type


def _parse(value: Any, depth: int) -> DataType:
    if depth > MAX_DEPTH:
        raise UsageError(f"types are nested deeper than {MAX_DEPTH}")
    if isinstance(value, str):
        return _TextParser(value, depth).whole()
    if not isinstance(value, Mapping):
        raise UsageError(f"a type must be a text or a JSON object, not {value!r}")
    kind = value.get("type")
    matched = _CONSTRUCTED.fullmatch(kind) if isinstance(kind, str) else None
    if matched is None:
        raise UsageError(f"unknown constructed type {kind!r}")
    root = TypeRoot(matched[1].upper())
    nullable = "NOT" not in (matched[2] or "").upper()

    def part(name: str) -> DataType:
        if value.get(name) is None:
            raise UsageError(f"type {kind!r} needs {name!r}")
        return _parse(value[name], depth + 1)

    match root:
        case TypeRoot.MAP:
            return DataType(root, nullable, key=part("key"), element=part("value"))
        case TypeRoot.ROW:
            fields = value.get("fields")
            if not isinstance(fields, list):
                raise UsageError(f"type {kind!r} needs a list of fields")
            return DataType(root, nullable, fields=tuple(parse_field(field, depth + 1) for field in fields))
        case TypeRoot.VECTOR:
            return _vector(part("element"), value.get("length"), nullable)
        case _:
            return DataType(root, nullable, element=part("element"))


def _vector(element: DataType, length: Any, nullable: bool) -> DataType:
    if element.root not in _VECTOR_ELEMENTS:
        raise UsageError(f"a VECTOR cannot hold {element}")
    if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MAX_LENGTH:
        raise UsageError(f"a VECTOR needs a length from 1 to {MAX_LENGTH}, not {length!r}")
    return DataType(TypeRoot.VECTOR, nullable, element=element, length=length)


class _TextParser:
    """Recursive descent over the tokens of one text: `root [parameters] [NOT NULL | NULL] {ARRAY | MULTISET [NOT NULL | NULL]}`."""

    def __init__(self, text: str, depth: int) -> None:
        self.text = text
        self.depth = depth
        self.tokens: list[tuple[str, str]] = []
        self.position = 0
        self.postfixes = 0
        # The parameters of GEOMETRY and GEOGRAPHY are free text (a coordinate system), kept as one token.
        position = 0
        while position < len(text.rstrip()):
            matched = _TOKEN.match(text, position)
            if matched is None or matched.lastgroup is None:
                raise self.error(f"unexpected {text[position:].strip()[:20]!r}")
            self.tokens.append((matched.lastgroup, matched[matched.lastgroup]))
            position = matched.end()
            if matched.lastgroup == "word" and matched["word"].upper() in ("GEOMETRY", "GEOGRAPHY"):
                parameters = re.compile(r"\s*\(([^()]*)\)").match(text, position)
                if parameters is not None:
                    self.tokens.append(("parameters", parameters[1].strip()))
                    position = parameters.end()

    def error(self, what: str) -> UsageError:
        return UsageError(f"cannot parse type {self.text!r}: {what}")

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.position] if self.position < len(self.tokens) else ("end", "")

    def next(self) -> tuple[str, str]:
        token = self.peek()
        self.position += 1
        return token

    def take_words(self, *words: str) -> bool:
        """Consumes these keywords if they are what follows."""
        following = self.tokens[self.position : self.position + len(words)]
        if [(kind, text.upper()) for kind, text in following] != [("word", word) for word in words]:
            return False
        self.position += len(words)
        return True

    def take_mark(self, mark: str) -> bool:
        if self.peek() != ("mark", mark):
            return False
        self.position += 1
        return True

    def expect_mark(self, mark: str) -> None:
        if not self.take_mark(mark):
            raise self.error(f"expected {mark!r} before {self.peek()[1]!r}" if self.peek()[0] != "end" else f"expected {mark!r} at the end")

    def whole(self) -> DataType:
        data_type = self.type()
        if self.peek()[0] != "end":
            raise self.error(f"unexpected {self.peek()[1]!r} after the type")
        return data_type

    def type(self) -> DataType:
        self.depth += 1
        if self.depth > MAX_DEPTH + 1:
            raise self.error(f"nested deeper than {MAX_DEPTH}")
        data_type = self.suffix(self.plain())
        while self.take_words("ARRAY") or self.take_words("MULTISET"):
            self.postfixes += 1
            if self.postfixes > MAX_DEPTH:
                raise self.error(f"nested deeper than {MAX_DEPTH}")
            root = TypeRoot(self.tokens[self.position - 1][1].upper())
            data_type = self.suffix(DataType(root, element=data_type))
        self.depth -= 1
        return data_type

    def suffix(self, data_type: DataType) -> DataType:
        if self.take_words("NOT", "NULL"):
            return data_type.with_nullable(False)
        self.take_words("NULL")
        return data_type

    def plain(self) -> DataType:
        kind, word = self.next()
        name = word.upper()
        if kind != "word" or (name not in _SYNONYMS and name not in TypeRoot.__members__):
            paimons = f", Paimon has {_FOREIGN[name]}" if name in _FOREIGN else ""
            raise self.error(f"unknown type {word!r}{paimons}" if kind == "word" else "a type name is missing")
        root = _SYNONYMS.get(name) or TypeRoot(name)
        match root:
            case _ if name in ("STRING", "BYTES"):
                return DataType(root, length=MAX_LENGTH)
            case _ if root in _LENGTHS:
                (length,) = self.numbers(1, (1,))
                return DataType(root, length=self.within(length, 1, MAX_LENGTH, "length"))
            case TypeRoot.DECIMAL:
                precision, scale = self.numbers(2, (10, 0))
                self.within(precision, 1, 38, "precision")
                return DataType(root, precision=precision, scale=self.within(scale, 0, precision, "scale"))
            case TypeRoot.DOUBLE:
                self.take_words("PRECISION")
                return DataType(root)
            case TypeRoot.TIME | TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
                (precision,) = self.numbers(1, (0,) if root == TypeRoot.TIME else (6,))
                self.within(precision, 0, 9, "precision")
                if root != TypeRoot.TIMESTAMP_LTZ and not self.take_words("WITHOUT", "TIME", "ZONE"):
                    local = root == TypeRoot.TIMESTAMP and self.take_words("WITH", "LOCAL", "TIME", "ZONE")
                    root = TypeRoot.TIMESTAMP_LTZ if local else root
                return DataType(root, precision=precision)
            case TypeRoot.GEOMETRY | TypeRoot.GEOGRAPHY:
                kind, parameters = self.peek()
                if kind == "parameters":
                    self.position += 1
                return DataType(root, parameters=parameters if kind == "parameters" else "")
            case TypeRoot.ARRAY | TypeRoot.MULTISET:
                self.expect_mark("<")
                element = self.type()
                self.expect_mark(">")
                return DataType(root, element=element)
            case TypeRoot.VECTOR:
                self.expect_mark("<")
                element = self.type()
                self.expect_mark(",")
                length = self.number()
                self.expect_mark(">")
                return _vector(element, length, nullable=True)
            case TypeRoot.MAP:
                self.expect_mark("<")
                key = self.type()
                self.expect_mark(",")
                element = self.type()
                self.expect_mark(">")
                return DataType(root, key=key, element=element)
            case TypeRoot.ROW:
                return DataType(root, fields=self.members())
            case _:
                return DataType(root)

    def members(self) -> tuple[DataField, ...]:
        """`<name type ['comment'], …>`; parentheses and `name: type` are other dialects' forms of the same."""
        closing = ">" if self.take_mark("<") else ")"
        if closing == ")":
            self.expect_mark("(")
        fields: list[DataField] = []
        while not self.take_mark(closing):
            if fields:
                self.expect_mark(",")
            kind, name = self.next()
            if kind not in ("word", "quoted"):
                raise self.error("a ROW member needs a name")
            self.take_mark(":")
            data_type = self.type()
            self.take_words("COMMENT")
            description = None
            if self.peek()[0] == "text":
                description = self.next()[1].replace("''", "'")
            fields.append(DataField(NO_ID, name.replace("``", "`"), data_type, description))
        return tuple(fields)

    def numbers(self, most: int, defaults: tuple[int, ...]) -> tuple[int, ...]:
        """`[(n [, n])]`, filled up with the defaults."""
        given: list[int] = []
        if self.take_mark("("):
            given.append(self.number())
            while len(given) < most and self.take_mark(","):
                given.append(self.number())
            self.expect_mark(")")
        return (*given, *defaults[len(given) :])

    def number(self) -> int:
        kind, text = self.next()
        if kind != "number" or len(text) > 10:
            raise self.error(f"expected a number, not {text!r}")
        return int(text)

    def within(self, value: int, least: int, most: int, what: str) -> int:
        if not least <= value <= most:
            raise self.error(f"{what} {value} is not between {least} and {most}")
        return value
