"""Column statistics: decoding and truncated bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile
from maintainer.format.simple_stats import decode_stats, truncate
from maintainer.model.files import SimpleStats
from maintainer.model.values import order_key
from tests.support.builders import row, stats, types


def test_columns_with_their_bounds_and_null_counts() -> None:
    known = stats((1, "a"), (9, None), [0, None], ["INT", "STRING"])
    assert decode_stats(known, types("INT", "STRING")) == [(1, 9, 0), ("a", None, None)]


@pytest.mark.parametrize("counts", [None, ()])
def test_missing_null_counts_are_unknown(counts: tuple[int, ...] | None) -> None:
    assert decode_stats(SimpleStats(row(1), row(2), counts), types("INT")) == [(1, 2, None)]


def test_no_columns() -> None:
    assert decode_stats(SimpleStats(), ()) == []


def test_stats_of_other_columns_are_corrupt() -> None:
    with pytest.raises(CorruptFile):
        decode_stats(SimpleStats(), types("INT"))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (b"\x01" * 15 + b"\xff\x01", b"\x01" * 15 + b"\xff\x01", (b"\x01" * 15 + b"\xff", b"\x01" * 14 + b"\x02")),
        ("日本" * 9, "日本" * 9, (("日本" * 8), "日本" * 7 + "日" + "\u672d")),
        ("\U0010ffff" * 17, "\U0010ffff" * 17, (None, None)),
        (b"\xff" * 17, b"\xff" * 17, (None, None)),
        ("a" * 16, "b" * 16, ("a" * 16, "b" * 16)),
        ("a" * 17, "b" * 16, ("a" * 16, "b" * 16)),
        ("a", "b" * 15 + "\U0010ffffx", ("a", "b" * 14 + "c")),
        ("", "", ("", "")),
        (None, None, (None, None)),
        (1, 2, (1, 2)),
    ],
)
def test_truncation_to_sixteen(low: object, high: object, expected: tuple[object, object]) -> None:
    assert truncate(low, high, 16) == expected


def test_upper_bound_never_becomes_a_lone_surrogate() -> None:
    """Java makes U+D800 of U+D7FF and stores it as a question mark, which is less than the value."""
    assert truncate("", "\ud7ff" * 2, 1)[1] == "\ue000"


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\U0010ffff\ud7ff")), st.integers(1, 5))
def test_truncated_texts_are_bounds(text: str, length: int) -> None:
    low, high = truncate(text, text, length)
    assert (low is None) == (high is None)
    if high is not None:
        assert len(low) <= length
        assert len(high) <= length
        assert order_key(low) <= order_key(text) <= order_key(high)


@given(st.binary() | st.binary().map(lambda data: b"\xff" * 3 + data), st.integers(1, 5))
def test_truncated_binaries_are_bounds(data: bytes, length: int) -> None:
    low, high = truncate(data, data, length)
    assert (low is None) == (high is None)
    if high is not None:
        assert len(high) <= length
        assert low <= data <= high
