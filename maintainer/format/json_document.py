"""The JSON objects of schema, snapshot and tag files (spec 01 §4.1, §5.1): typed members; an explicit null counts as absent.

Decoding takes the known members one by one, with the type they must have; what is left over is kept and written back, since other engines
and later versions store members that we do not know.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from maintainer.errors import CorruptFile

T = TypeVar("T")


class Document:
    """The members of one JSON object that were not taken yet; `what` names the object in errors."""

    def __init__(self, data: bytes, what: str) -> None:
        self.what = what
        try:
            document = json.loads(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise CorruptFile(f"the {what} is not UTF-8", offset=error.start) from None
        except json.JSONDecodeError as error:
            raise CorruptFile(f"the {what} is not JSON: {error.msg}", offset=error.pos) from None
        except (RecursionError, ValueError) as error:
            raise CorruptFile(f"the {what} is not readable JSON: {error}") from None
        if not isinstance(document, dict):
            raise CorruptFile(f"the {what} is not a JSON object")
        self.members: dict[str, Any] = {name: value for name, value in document.items() if value is not None}

    def take(self, name: str, kind: type[T]) -> T:
        """The member of this name, which must be there and of this kind; `int` means 64 bits."""
        value = self.take_if_present(name, kind)
        if value is None:
            raise CorruptFile(f"the {self.what} has no {name!r}")
        return value

    def take_if_present(self, name: str, kind: type[T]) -> T | None:
        value = self.members.pop(name, None)
        if value is None:
            return None
        if type(value) is not kind or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            raise CorruptFile(f"{name!r} of the {self.what} is not {_KINDS[kind]}: {_shown(value)}")
        return value

    def take_texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self.take(name, list)
        if not all(type(value) is str for value in values):
            raise CorruptFile(f"{name!r} of the {self.what} is not a list of strings: {_shown(values)}")
        return tuple(values)

    def take_text_map(self, name: str) -> dict[str, str] | None:
        """An object whose values are strings, if it is there."""
        values = self.take_if_present(name, dict)
        for key, value in (values or {}).items():
            if type(value) is not str:
                raise CorruptFile(f"{key!r} in {name!r} of the {self.what} is not a string: {_shown(value)}")
        return values


def dump(members: dict[str, Any]) -> bytes:
    """The document as Java's reader takes it: UTF-8, two spaces of indent, no member without a value."""
    present = {name: value for name, value in members.items() if value is not None}
    text = json.dumps(present, indent=2, separators=(",", " : "), ensure_ascii=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # an unpaired surrogate can only be written as an escape
        return json.dumps(present, indent=2, separators=(",", " : ")).encode("ascii")


_KINDS = {int: "a 64-bit integer", str: "a string", list: "a list", dict: "an object"}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
