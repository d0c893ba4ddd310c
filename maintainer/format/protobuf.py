"""Protobuf messages as far as ORC needs them: fields in, fields out, without generated code."""

from __future__ import annotations

from collections.abc import Iterator

from maintainer.errors import CorruptFile
from maintainer.format import varint

_BYTES = 2
_LONGEST_VARINT = 10


class Message:
    """The fields of a message: numbers and bytes by field number, in their order."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in _fields(data):
            self._fields.setdefault(number, []).append(value)

    def number(self, field: int, default: int = 0) -> int:
        value = self._fields.get(field, [default])[-1]
        if not isinstance(value, int):
            raise CorruptFile(f"field {field} is no number")
        return value

    def text(self, field: int) -> str:
        return self.texts(field)[-1] if field in self._fields else ""

    def texts(self, field: int) -> list[str]:
        try:
            return [value.decode() for value in self.messages_bytes(field)]
        except UnicodeDecodeError as error:
            raise CorruptFile(f"field {field} is no text") from error

    def messages_bytes(self, field: int) -> list[bytes]:
        values = self._fields.get(field, [])
        found = [value for value in values if isinstance(value, bytes)]
        if len(found) != len(values):
            raise CorruptFile(f"field {field} is a number")
        return found

    def messages(self, field: int) -> list[Message]:
        return [Message(value) for value in self.messages_bytes(field)]

    def numbers(self, field: int) -> list[int]:
        """Repeated numbers, packed or not."""
        found: list[int] = []
        for value in self._fields.get(field, []):
            if isinstance(value, int):
                found.append(value)
            else:
                position = 0
                while position < len(value):
                    number, position = _varint(value, position)
                    found.append(number)
        return found

    def __contains__(self, field: int) -> bool:
        return field in self._fields


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, position = _varint(data, position)
            case 5:
                length = 4
            case wire:
                raise CorruptFile(f"a field of wire type {wire}")
        if length > len(data) - position:
            raise CorruptFile("a message ends within a field")
        yield tag >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        if position + index >= len(data):
            break
        byte = data[position + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value & (1 << 64) - 1, position + index + 1
    raise CorruptFile("a message ends within a number, or it is too long")


def encode(*fields: tuple[int, int | bytes | str]) -> bytes:
    """A message of these fields."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [varint.encode(number << 3), varint.encode(value)]
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [varint.encode(number << 3 | _BYTES), varint.encode(len(data)), data]
    return b"".join(parts)
