"""Default values are texts, cast as Java's writers cast them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from maintainer.errors import Unsupported, UsageError
from maintainer.model.types import DataField
from maintainer.write.default_value import default_value
from tests.support.builders import type_


def column(text: str, default: str | None) -> DataField:
    return DataField(1, "c", type_(text), default_value=default)


@pytest.mark.parametrize(
    ("text", "default", "expected"),
    [
        ("INT", "7", 7),
        ("INT", "'7'", 7),
        ("STRING", "abc", "abc"),
        ("STRING", "'it is'", "it is"),
        ("STRING", "", ""),
        ("BOOLEAN", "TRUE", True),
        ("BOOLEAN", "n", False),
        ("DOUBLE", "1.5", 1.5),
        ("DECIMAL(5, 1)", "1.25", Decimal("1.3")),
        ("DECIMAL(30, 2)", "7", Decimal("7.00")),
        ("DECIMAL(38, 2)", "123456789012345678901234567890123456.12", Decimal("123456789012345678901234567890123456.12")),
        ("DATE", "2024-01-02", date(2024, 1, 2)),
        ("TIMESTAMP(3)", "2024-01-02 03:04:05.678", datetime(2024, 1, 2, 3, 4, 5, 678000)),
        ("BYTES", "ab", b"ab"),
    ],
)
def test_a_default_is_cast_to_the_column(text: str, default: str, expected: Any) -> None:
    found = default_value(column(text, default))
    assert found is not None
    assert found.as_py() == expected


def test_no_default_is_none() -> None:
    assert default_value(column("INT", None)) is None


@pytest.mark.parametrize(
    ("text", "default"), [("INT", "x"), ("DATE", "soon"), ("BOOLEAN", "perhaps"), ("DECIMAL(5, 1)", "x"), ("TINYINT", "300")]
)
def test_a_default_that_is_no_value_is_refused(text: str, default: str) -> None:
    with pytest.raises(UsageError, match="column 'c': the default value"):
        default_value(column(text, default))


def test_defaults_of_nested_types_are_refused() -> None:
    with pytest.raises(Unsupported, match="ARRAY"):
        default_value(column("ARRAY<INT>", "[1]"))
