"""Java's modified UTF-8 and the order of Java texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile
from maintainer.format.modified_utf8 import MAX_ENCODED_LENGTH, decode, encode, utf16_key

any_text = st.text(st.characters() | st.sampled_from("\x00\ud800\udfff😀\uffff"))


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("\u0000", "c080"),
        ("\u007f", "7f"),
        ("\u0080", "c280"),
        ("\u07ff", "dfbf"),
        ("\u0800", "e0a080"),
        ("\uffff", "efbfbf"),
        ("\U0001f600", "eda0bdedb880"),
        ("x\u0000é中😀", "78c080c3a9e4b8adeda0bdedb880"),
        ("", ""),
        ("\ud83d", "eda0bd"),
    ],
)
def test_vectors(text: str, encoded: str) -> None:
    assert encode(text).hex() == encoded
    assert decode(bytes.fromhex(encoded)) == text


def test_length_is_counted_in_encoded_bytes() -> None:
    assert len(encode("中" * 21845)) == MAX_ENCODED_LENGTH
    assert len(encode("中" * 21846)) > MAX_ENCODED_LENGTH


@given(any_text)
def test_round_trip(text: str) -> None:
    # Two halves that stand side by side are one character, in Java as here.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert decode(encode(text)) == whole


@given(any_text)
def test_every_code_unit_is_encoded_on_its_own(text: str) -> None:
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H").tolist()
    expected = b""
    for unit in units:
        if 1 <= unit <= 0x7F:
            expected += bytes([unit])
        elif unit <= 0x7FF:
            expected += bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
        else:
            expected += bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])
    assert encode(text) == expected


def test_decoding_accepts_what_java_accepts() -> None:
    assert decode(b"a\x00b") == "a\x00b"
    assert decode(bytes.fromhex("c3a900")) == "é\x00"
    assert decode(bytes.fromhex("c1a1")) == "a"


@pytest.mark.parametrize("encoded", ["80", "bf", "f09f9880", "ff", "c3", "c341", "e4b8", "e4b841", "e441ad", "61c3"])
def test_malformed_bytes_are_refused(encoded: str) -> None:
    with pytest.raises(CorruptFile):
        decode(bytes.fromhex(encoded))


@given(st.binary())
def test_any_bytes_decode_or_are_corrupt(data: bytes) -> None:
    try:
        text = decode(data)
    except CorruptFile:
        return
    assert decode(encode(text)) == text


@given(any_text, any_text)
def test_order_is_that_of_code_units(left: str, right: str) -> None:
    def units(text: str) -> list[int]:
        return list(memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H").tolist())

    assert (utf16_key(left) < utf16_key(right)) == (units(left) < units(right))


def test_supplementary_characters_come_before_private_ones() -> None:
    assert sorted(["\ue000", "😀", "z"], key=utf16_key) == ["z", "😀", "\ue000"]
