"""Bytes as Java's `DataOutput` writes them: numbers big-endian, texts as modified UTF-8 behind two bytes of length."""

from __future__ import annotations

import struct

from maintainer.errors import CorruptFile, UsageError
from maintainer.format import modified_utf8

INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
_LENGTH = struct.Struct(">H")


def sized(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data


def optional(form: struct.Struct, value: int | None) -> bytes:
    """Byte 0, or byte 1 and the value."""
    return b"\0" if value is None else b"\1" + form.pack(value)


def text(value: str) -> bytes:
    """`writeUTF`; a longer text cannot be written and is never cut off."""
    encoded = modified_utf8.encode(value)
    if len(encoded) > modified_utf8.MAX_ENCODED_LENGTH:
        raise UsageError(f"{value[:40]!r}… takes {len(encoded)} bytes, more than {modified_utf8.MAX_ENCODED_LENGTH}")
    return _LENGTH.pack(len(encoded)) + encoded


class DataInput:
    """Bytes that are read front to back, with every size checked before it is used; `what` they are is named in errors."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.what = what
        self.position = 0

    def take(self, size: int) -> bytes:
        start = self.position
        if not 0 <= size <= len(self.data) - start:
            raise CorruptFile(f"the {self.what} claims {size} more bytes and has {len(self.data) - start}", offset=start)
        self.position += size
        return self.data[start : self.position]

    def number(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def flag(self) -> bool:
        return self.take(1) != b"\0"

    def optional(self, form: struct.Struct) -> int | None:
        return self.number(form) if self.flag() else None

    def sized(self) -> bytes:
        return self.take(self.number(INT32))

    def text(self) -> str:
        start = self.position
        encoded = self.take(self.number(_LENGTH))
        try:
            return modified_utf8.decode(encoded)
        except CorruptFile as error:
            raise CorruptFile(f"the {self.what} has a text that is none: {error.reason}", offset=start) from None

    def count(self, least: int = 4) -> int:
        """A number of elements, each of which takes so many bytes or more."""
        count = self.number(INT32)
        if not 0 <= count <= (len(self.data) - self.position) // least:
            raise CorruptFile(f"the {self.what} claims a list of {count}", offset=self.position - 4)
        return count

    def end(self) -> None:
        """Nothing follows."""
        if self.position != len(self.data):
            raise CorruptFile(f"{len(self.data) - self.position} bytes follow the {self.what}", offset=self.position)
