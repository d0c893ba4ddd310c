"""Java's modified UTF-8 and UTF-16 order (spec 06 §7, 03 §1; `java.io.DataOutput.writeUTF`, `String.compareTo`).

Java texts are UTF-16 code units, and each unit is encoded on its own:

| code unit                      | bytes                          |
| ------------------------------ | ------------------------------ |
| 0001–007F                      | 0xxxxxxx                       |
| 0000, 0080–07FF                | 110xxxxx 10xxxxxx              |
| 0800–FFFF, surrogates included | 1110xxxx 10xxxxxx 10xxxxxx     |

So U+0000 is `c0 80`, and a supplementary character is two surrogates of three bytes each.
"""

from __future__ import annotations

import struct

from maintainer.errors import CorruptFile

MAX_ENCODED_LENGTH = 65535
"""What a length prefix of two bytes can say; a longer text cannot be written and is never truncated."""


def encode(text: str) -> bytes:
    """The encoded code units, without a length prefix."""
    if text.isascii():
        return text.encode("ascii").replace(b"\x00", b"\xc0\x80")
    units = text.encode("utf-16-le", "surrogatepass")
    alone = "".join(map(chr, struct.unpack(f"<{len(units) // 2}H", units)))
    return alone.encode("utf-8", "surrogatepass").replace(b"\x00", b"\xc0\x80")


def decode(data: bytes) -> str:
    """Accepts what Java accepts: a bare zero byte, unpaired surrogates and overlong forms too."""
    if data.isascii():
        return data.decode("ascii")
    units: list[int] = []
    position, end = 0, len(data)
    while position < end:
        lead = data[position]
        if lead < 0x80:
            units.append(lead)
            position += 1
            continue
        size = 2 if 0xC0 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 0
        tail = data[position + 1 : position + size]
        if size == 0 or len(tail) != size - 1 or any(byte & 0xC0 != 0x80 for byte in tail):
            raise CorruptFile("malformed modified UTF-8", offset=position)
        if size == 2:
            units.append((lead & 0x1F) << 6 | tail[0] & 0x3F)
        else:
            units.append((lead & 0x0F) << 12 | (tail[0] & 0x3F) << 6 | tail[1] & 0x3F)
        position += size
    return struct.pack(f"<{len(units)}H", *units).decode("utf-16-le", "surrogatepass")


def utf16_key(text: str) -> bytes:
    """Sorts as `String.compareTo`: by UTF-16 code unit, so supplementary characters come before U+E000."""
    return text.encode("utf-16-be", "surrogatepass")
