"""Table definitions in SQL: one `CREATE TABLE` statement as Flink writes it, read into the same document as a JSON definition.

    CREATE TABLE [IF NOT EXISTS] [[catalog.]database.]name (
        column TYPE [NOT NULL] [PRIMARY KEY NOT ENFORCED] [DEFAULT literal] [COMMENT 'text'], …
        [[CONSTRAINT name] PRIMARY KEY (column, …) NOT ENFORCED]
    ) [COMMENT 'text'] [PARTITIONED BY (column, …)] [WITH ('key' = 'value', …)] [;]

The name in the statement is not used: the caller says where the table goes. Spark's `USING paimon` and `TBLPROPERTIES (…)` are understood, too.
Computed columns, metadata columns and watermarks belong to an engine's catalog and are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from maintainer.errors import UsageError

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>`(?:[^`]|``)+`|"(?:[^"]|"")+")
    | (?P<word>[^\W\d]\w*)
    | (?P<number>[+-]?\d+(?:\.\d+)?)
    | (?P<mark>[(),;<>=.:])
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENING, _CLOSING = {"(", "<"}, {")", ">"}
_AFTER_TYPE = {"COMMENT", "DEFAULT", "PRIMARY", "METADATA", "AS"}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind == "word" else ""


def parse_create_table(sql: str) -> dict[str, Any]:
    """The statement as {"fields", "primaryKeys", "partitionKeys", "options", "comment"}; types stay SQL text."""
    return _Parser(sql).statement()


class _Parser:
    """Reads one statement from its tokens, left to right; `at` is the next token."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens = list(_tokens(sql))
        self.at = 0
        self.fields: list[dict[str, Any]] = []
        self.primary_keys: list[str] = []

    def statement(self) -> dict[str, Any]:
        self.expect("CREATE", "TABLE")
        self.take("IF", "NOT", "EXISTS")
        self.name()
        while self.take_mark("."):
            self.name()
        self.expect_mark("(")
        self.member()
        while self.take_mark(","):
            self.member()
        self.expect_mark(")")
        document: dict[str, Any] = {"fields": self.fields, "partitionKeys": [], "options": {}}
        while self.at < len(self.tokens):
            if self.take_mark(";"):
                break
            if self.take("COMMENT"):
                self.take_mark("=")
                document["comment"] = self.text()
            elif self.take("PARTITIONED", "BY"):
                document["partitionKeys"] = self.names()
            elif self.take("WITH") or self.take("TBLPROPERTIES"):
                document["options"].update(self.options())
            elif self.take("USING"):
                self.expect("PAIMON")
            else:
                raise self.error("expected COMMENT, PARTITIONED BY, WITH or the end")
        if self.at < len(self.tokens):
            raise self.error("expected one statement only")
        document["primaryKeys"] = self.primary_keys
        return document

    def member(self) -> None:
        """A column or a constraint."""
        constraint = self.take("CONSTRAINT")
        if constraint:
            self.name()
        if constraint or [token.keyword for token in self.tokens[self.at : self.at + 2]] == ["PRIMARY", "KEY"]:
            self.expect("PRIMARY", "KEY")
            self.set_primary_key(self.names())
            self.take("NOT", "ENFORCED")
            return
        if self.take("WATERMARK"):
            raise UsageError("the table definition has a watermark: watermarks are kept by an engine's catalog, not by the table")
        field: dict[str, Any] = {"name": self.name(), "type": self.type_text()}
        self.fields.append(field)
        while not self.ends_member():
            if self.take("PRIMARY", "KEY"):
                self.take("NOT", "ENFORCED")
                self.set_primary_key([field["name"]])
            elif self.take("COMMENT"):
                field["description"] = self.text()
            elif self.take("DEFAULT"):
                field["defaultValue"] = self.literal()
            elif self.take("NOT", "NULL"):
                field["type"] += " NOT NULL"
            else:
                raise self.error(f"unexpected in the definition of column {field['name']!r}; computed and metadata columns are not supported")

    def set_primary_key(self, names: list[str]) -> None:
        if self.primary_keys:
            raise UsageError("the table definition has two primary keys")
        self.primary_keys = names

    def type_text(self) -> str:
        """The text from here to the end of the type, for the parser of types."""
        first, depth = self.at, 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if depth == 0 and (self.ends_member() or token.keyword in _AFTER_TYPE):
                break
            depth += (token.text in _OPENING) - (token.text in _CLOSING) if token.kind == "mark" else 0
            self.at += 1
        if first == self.at:
            raise self.error("expected a type")
        return self.sql[self.tokens[first].start : self.tokens[self.at - 1].end]

    def ends_member(self) -> bool:
        return self.at >= len(self.tokens) or (self.tokens[self.at].kind == "mark" and self.tokens[self.at].text in (",", ")"))

    def options(self) -> dict[str, str]:
        self.expect_mark("(")
        options: dict[str, str] = {}
        while True:
            key = self.text()
            self.expect_mark("=")
            options[key] = self.literal()
            if not self.take_mark(","):
                break
        self.expect_mark(")")
        return options

    def names(self) -> list[str]:
        self.expect_mark("(")
        names = [self.name()]
        while self.take_mark(","):
            names.append(self.name())
        self.expect_mark(")")
        return names

    def name(self) -> str:
        token = self.next("a name")
        if token.kind == "name":
            quote = token.text[0]
            return token.text[1:-1].replace(quote * 2, quote)
        if token.kind != "word":
            self.at -= 1
            raise self.error("expected a name")
        return token.text

    def text(self) -> str:
        token = self.next("a text in single quotes")
        if token.kind != "text":
            self.at -= 1
            raise self.error("expected a text in single quotes")
        return token.text[1:-1].replace("''", "'")

    def literal(self) -> str:
        """A text without its quotes, a number or a word such as TRUE, as text."""
        if self.at < len(self.tokens) and self.tokens[self.at].kind in ("number", "word"):
            self.at += 1
            return self.tokens[self.at - 1].text
        return self.text()

    def next(self, what: str) -> _Token:
        if self.at >= len(self.tokens):
            raise self.error(f"expected {what}")
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, *words: str) -> bool:
        if [token.keyword for token in self.tokens[self.at : self.at + len(words)]] != list(words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            raise self.error(f"expected {' '.join(words)}")

    def take_mark(self, mark: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at].kind == "mark" and self.tokens[self.at].text == mark:
            self.at += 1
            return True
        return False

    def expect_mark(self, mark: str) -> None:
        if not self.take_mark(mark):
            raise self.error(f"expected {mark!r}")

    def error(self, what: str) -> UsageError:
        if self.at >= len(self.tokens):
            return UsageError(f"the table definition ends too early: {what}")
        token = self.tokens[self.at]
        line = self.sql.count("\n", 0, token.start) + 1
        return UsageError(f"the table definition, line {line}, at {token.text[:40]!r}: {what}")


def _tokens(sql: str) -> list[_Token]:
    tokens, position = [], 0
    while position < len(sql):
        match = _TOKEN.match(sql, position)
        if match is None:
            line = sql.count("\n", 0, position) + 1
            raise UsageError(f"the table definition, line {line}: cannot read {sql[position : position + 20]!r}")
        if match.lastgroup != "space":
            tokens.append(_Token(str(match.lastgroup), match[0], match.start(), match.end()))
        position = match.end()
    return tokens
