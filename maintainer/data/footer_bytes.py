"""Parquet footers as bytes, for the one thing that Arrow cannot do: INT96 columns (see `maintainer.data.int96`).

A column of 12-byte values and an INT96 column have the same encoding; only the footer tells them apart. These functions exchange the two in
the footer, which is Thrift in the compact protocol:

    FileMetaData   { …  2: list<SchemaElement>  …  4: list<RowGroup>  … }
    SchemaElement  { 1: type (3 INT96, 7 FIXED_LEN_BYTE_ARRAY)  2: type_length  …  5: children  6: annotation  …  10: annotation }
    RowGroup       { 1: list<ColumnChunk> … }     ColumnChunk { …  3: ColumnMetaData … }     ColumnMetaData { 1: type … }

A field is one byte, (difference to the number of the field before) << 4 | kind, and the value; a struct ends with a zero byte; integers are
zigzag varints. Column chunks are in the order of the schema elements that have no children.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from maintainer.errors import CorruptFile

WIDTH = 12
_INT96 = 3 << 1
_FIXED = 7 << 1
_TYPE_LENGTH = bytes([0x15, WIDTH << 1])  # field 2, one after field 1, i32
_LIST, _STRUCT = 9, 12
_ANNOTATIONS = (6, 10)
_DEEPEST = 16

Edit = tuple[int, int, bytes]
"""Bytes start … end − 1 are replaced."""


class _Field(NamedTuple):
    number: int
    kind: int
    header: int
    value: int
    end: int


def int96_to_fixed(footer: bytes) -> bytes:
    """For reading: INT96 columns as columns of 12 bytes. Only the schema is changed, which is what Arrow reads by."""
    edits: list[Edit] = []
    for element in _Walk(footer).schema():
        if 1 not in element or footer[element[1].value] != _INT96:
            continue
        if 2 in element:
            edits += [(element[1].value, element[1].end, bytes([_FIXED])), (element[2].value, element[2].end, _TYPE_LENGTH[1:])]
        else:
            edits.append((element[1].value, element[1].end, bytes([_FIXED]) + _TYPE_LENGTH))
            edits += _moved(footer, element, behind=1, number=2)
    return _apply(footer, edits)


def fixed_to_int96(footer: bytes) -> bytes:
    """For writing: columns of 12 bytes without annotation as INT96 columns."""
    edits: list[Edit] = []
    chosen = []
    walk = _Walk(footer)
    for element in walk.schema():
        if 5 not in element:  # a column
            length = element.get(2)
            is_fixed = footer[element[1].value] == _FIXED and length is not None and footer[length.value] == WIDTH << 1
            chosen.append(is_fixed and not any(number in element for number in _ANNOTATIONS))
            if chosen[-1] and length is not None:
                edits += [(element[1].value, element[1].end, bytes([_INT96])), (length.header, length.end, b"")]
                edits += _moved(footer, element, behind=2, number=1)
    for chunks in walk.row_groups():
        edits += [(at, at + 1, bytes([_INT96])) for at, is_chosen in zip(chunks, chosen, strict=True) if is_chosen]
    return _apply(footer, edits)


def _moved(footer: bytes, element: dict[int, _Field], behind: int, number: int) -> Iterator[Edit]:
    """The header of the field behind field `behind`, if that were field `number`."""
    following = next((field for field in element.values() if field.number > behind), None)
    if following is not None and footer[following.header] >> 4:
        yield following.header, following.value, bytes([(following.number - number) << 4 | following.kind])


def _apply(data: bytes, edits: list[Edit]) -> bytes:
    pieces, copied = [], 0
    for start, end, replacement in edits:
        pieces += [data[copied:start], replacement]
        copied = end
    return b"".join([*pieces, data[copied:]])


class _Walk:
    """One way through a footer, from its start."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.fields = self._fields()

    def schema(self) -> Iterator[dict[int, _Field]]:
        """The fields of each schema element, by number."""
        self._find(2)
        for _ in range(self._list()):
            element = {}
            for number, kind, header in self._fields():
                value = self.at
                self._skip(kind)
                element[number] = _Field(number, kind, header, value, self.at)
            yield element

    def row_groups(self) -> Iterator[list[int]]:
        """Where the types of the column chunks of each row group are."""
        self._find(4)
        for _ in range(self._list()):
            types: list[int] = []
            for number, kind, _ in self._fields():
                if number != 1:
                    self._skip(kind)
                    continue
                for _ in range(self._list()):
                    types += self._chunk()
            yield types

    def _chunk(self) -> Iterator[int]:
        for number, kind, _ in self._fields():
            if number != 3 or kind != _STRUCT:
                self._skip(kind)
                continue
            for inner, inner_kind, _ in self._fields():
                if inner == 1:
                    yield self.at
                self._skip(inner_kind)

    def _find(self, wanted: int) -> None:
        """Up to the value of a field of the footer itself."""
        for number, kind, _ in self.fields:
            if number == wanted and kind == _LIST:
                return
            self._skip(kind)
        raise CorruptFile(f"a footer without its field {wanted}")

    def _fields(self) -> Iterator[tuple[int, int, int]]:
        """Number, kind and place of the fields of a struct; whoever asks reads or skips each value before the next."""
        number = 0
        while True:
            header = self.at
            byte = self._byte()
            if not byte:
                return
            delta = byte >> 4
            number = number + delta if delta else self._zigzag()
            yield number, byte & 15, header

    def _byte(self) -> int:
        if self.at >= len(self.data):
            raise CorruptFile("the footer ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise CorruptFile("a number of the footer does not end")

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _list(self, kind: int = _STRUCT) -> int:
        """The number of elements."""
        byte = self._byte()
        if byte & 15 != kind:
            raise CorruptFile(f"a list of kind {byte & 15} in the footer")
        return byte >> 4 if byte >> 4 < 15 else self._varint()

    def _skip(self, kind: int, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise CorruptFile("the footer nests too deep")
        match kind:
            case 1 | 2:  # a boolean is its field's kind
                return
            case 3:
                self.at += 1
            case 4 | 5 | 6:
                self._varint()
            case 7:
                self.at += 8
            case 8:
                length = self._varint()
                self.at += length
            case 9 | 10:
                inner = self.data[self.at] & 15 if self.at < len(self.data) else 0
                for _ in range(self._list(inner)):
                    self._skip(3 if inner in (1, 2) else inner, depth + 1)
            case 12:
                for _, inner, _ in self._fields():
                    self._skip(inner, depth + 1)
            case _:
                raise CorruptFile(f"kind {kind} in the footer")
        if self.at > len(self.data):
            raise CorruptFile("the footer ends too early")
