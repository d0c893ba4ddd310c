"""Changes of a schema as people write them: paths as `r.x`, types as SQL text; and as words of the command line.

    table.alter(changes.set_option("snapshot.num-retained.max", "50"), changes.add_column("r.x", "INT", after="y"))

    set k=v …                 unset k …                   comment TEXT | drop-comment
    add-column C TYPE [comment TEXT] [default VALUE] [first | last | after D | before D]
    rename-column C NAME      drop-column C …             alter-type C TYPE
    set-not-null C            drop-not-null C             move-column C first | last | after D | before D
    set-default C VALUE       drop-default C              comment-column C TEXT | drop-column-comment C

Several actions are joined by `and`: they become one schema, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from maintainer.errors import UsageError
from maintainer.format import data_type
from maintainer.model.schema_change import (
    AddColumn,
    AlterType,
    DropColumn,
    MoveColumn,
    Path,
    Position,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetColumnComment,
    SetComment,
    SetDefault,
    SetNullable,
    SetOption,
)
from maintainer.model.types import DataType

JOIN = "and"


def set_option(key: str, value: str) -> SetOption:
    """Set an option of the table."""
    return SetOption(key, value)


def unset_option(key: str) -> RemoveOption:
    """Take an option away, so that its default holds."""
    return RemoveOption(key)


def set_comment(comment: str | None) -> SetComment:
    """The comment of the table; None removes it."""
    return SetComment(comment)


def add_column(
    column: str | Path,
    type: str | DataType,  # noqa: A002 -- as in a schema
    comment: str | None = None,
    *,
    first: bool = False,
    after: str | None = None,
    before: str | None = None,
) -> AddColumn:
    """A new column, or member of a ROW (`r.x`), at the end or where it is said; rows that are there have NULL."""
    position = _position(first, after, before)
    return AddColumn(path(column), _type(type), comment, position)


def rename_column(column: str | Path, name: str) -> RenameColumn:
    """Another name for a column, or a member of a ROW."""
    return RenameColumn(path(column), name)


def drop_column(column: str | Path) -> DropColumn:
    """Take a column, or a member of a ROW, away."""
    return DropColumn(path(column))


def alter_type(column: str | Path, type: str | DataType) -> AlterType:  # noqa: A002 -- as in a schema
    """Another type for a column, a member of a ROW, or what an ARRAY or MAP holds (`l.element`, `m.value`)."""
    return AlterType(path(column), _type(type))


def set_nullable(column: str | Path, nullable: bool) -> SetNullable:
    """Whether a column may be NULL."""
    return SetNullable(path(column), nullable)


def set_column_comment(column: str | Path, comment: str | None) -> SetColumnComment:
    """The comment of a column; None removes it."""
    return SetColumnComment(path(column), comment)


def set_default(column: str, default: str | None) -> SetDefault:
    """The value, as text, that writers give the column when a row leaves it out; None removes it."""
    return SetDefault(column, default)


def move_column(column: str, *, first: bool = False, last: bool = False, after: str | None = None, before: str | None = None) -> MoveColumn:
    """Another place for a column."""
    position = Position("last") if last else _position(first, after, before)
    if position is None:
        raise UsageError(f"column {column}: say where it goes, first, last, or after or before another one")
    return MoveColumn(column, position)


def path(column: str | Path) -> Path:
    """`r.x` as a path; names with dots or other marks stand in backticks."""
    if not isinstance(column, str):
        return tuple(column)
    parts, quoted = [""], False
    for mark in column:
        if mark == "`":
            quoted = not quoted
        elif mark == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += mark
    if quoted or not all(parts):
        raise UsageError(f"{column!r} is no name of a column")
    return tuple(parts)


def parse_actions(words: Sequence[str]) -> list[SchemaChange]:
    """What the words of a command say."""
    found: list[SchemaChange] = []
    action: list[str] = []
    for word in (*words, JOIN):
        if word != JOIN:
            action.append(word)
            continue
        found += _Action(action).changes()
        action = []
    return found


class _Action:
    """One action: its word, and those that follow."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.word = self.words.pop(0) if self.words else ""

    def changes(self) -> list[SchemaChange]:
        known: dict[str, Callable[[], Iterator[SchemaChange]]] = {
            "set": self._set,
            "unset": lambda: (RemoveOption(key) for key in self._all("an option")),
            "comment": lambda: iter([SetComment(self._next("a text"))]),
            "drop-comment": lambda: iter([SetComment(None)]),
            "add-column": self._add,
            "rename-column": lambda: iter([RenameColumn(self._column(), self._name())]),
            "drop-column": lambda: (DropColumn(path(each)) for each in self._all("a column")),
            "alter-type": lambda: iter([AlterType(self._column(), _type(self._next("a type")))]),
            "set-not-null": lambda: iter([SetNullable(self._column(), False)]),
            "drop-not-null": lambda: iter([SetNullable(self._column(), True)]),
            "comment-column": lambda: iter([SetColumnComment(self._column(), self._next("a text"))]),
            "drop-column-comment": lambda: iter([SetColumnComment(self._column(), None)]),
            "set-default": lambda: iter([SetDefault(self._name(), self._next("a value"))]),
            "drop-default": lambda: iter([SetDefault(self._name(), None)]),
            "move-column": lambda: iter([MoveColumn(self._name(), self._position(self._next("first, last, after or before")))]),
        }
        if self.word not in known:
            raise UsageError(f"{self.word!r} is nothing that can be done to a schema; there are {', '.join(known)}")
        found = list(known[self.word]())
        if self.words:
            raise UsageError(f"{self.word}: {self.words[0]!r} is one word too many; texts and types of several words stand in quotes")
        return found

    def _set(self) -> Iterator[SchemaChange]:
        for pair in self._all("key=value"):
            key, given, value = pair.partition("=")
            if not given or not key.strip():
                raise UsageError(f"set {pair!r}: expected key=value")
            yield SetOption(key.strip(), value)

    def _add(self) -> Iterator[SchemaChange]:
        column, data_type = self._column(), _type(self._next("a type"))
        comment = default = position = None
        while self.words:
            match self._next(""):
                case "comment":
                    comment = self._next("a text")
                case "default":
                    default = self._next("a value")
                case word:
                    position = self._position(word)
        yield AddColumn(column, data_type, comment, position)
        if default is not None:
            if len(column) > 1:
                raise UsageError(f"add-column {'.'.join(column)}: members of a ROW have no default values")
            yield SetDefault(column[0], default)

    def _position(self, word: str) -> Position:
        if word in ("first", "last"):
            return Position(word)
        if word in ("after", "before"):
            return Position(word, self._name())
        raise UsageError(f"{self.word}: {word!r} is no place; there are first, last, after C and before C")

    def _next(self, what: str) -> str:
        if not self.words:
            raise UsageError(f"{self.word}: {what} is missing")
        return self.words.pop(0)

    def _column(self) -> Path:
        return path(self._next("a column"))

    def _name(self) -> str:
        name = path(self._next("a name"))
        if len(name) > 1:
            raise UsageError(f"{self.word}: {'.'.join(name)!r} has to be a single name; names with dots stand in backticks")
        return name[0]

    def _all(self, what: str) -> list[str]:
        if not self.words:
            raise UsageError(f"{self.word}: {what} is missing")
        words, self.words = self.words, []
        return words


def _type(given: str | DataType) -> DataType:
    return data_type.parse(given) if isinstance(given, str) else given


def _position(first: bool, after: str | None, before: str | None) -> Position | None:
    if first + (after is not None) + (before is not None) > 1:
        raise UsageError("a column can go to one place only: give one of first, after and before")
    if first:
        return Position("first")
    if after is not None:
        return Position("after", after)
    return None if before is None else Position("before", before)
