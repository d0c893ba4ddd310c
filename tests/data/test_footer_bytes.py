from __future__ import annotations

import pytest

from maintainer.data import footer_bytes
from maintainer.errors import CorruptFile
from tests.support.java_cases import java_case


def footers(name: str) -> list[bytes]:
    case = java_case(name)
    files = [case.storage.read(case.path(entry)) for entry in case.data_files.values()]
    return [data[-8 - int.from_bytes(data[-8:-4], "little") : -8] for data in files]


def test_there_and_back_again() -> None:
    for footer in footers("types_parquet"):
        fixed = footer_bytes.int96_to_fixed(footer)
        assert len(fixed) == len(footer) + 2 * 2  # the lengths of two columns
        assert footer_bytes.fixed_to_int96(fixed) == footer


def test_footers_without_such_columns_stay_as_they_are() -> None:
    for footer in footers("nested_parquet"):
        assert footer_bytes.int96_to_fixed(footer) == footer_bytes.fixed_to_int96(footer) == footer


def test_cut_footers_are_corrupt() -> None:
    footer = footers("types_parquet")[0]
    for length in range(len(footer) - 200):  # what follows the row groups is not looked at
        with pytest.raises(CorruptFile):
            footer_bytes.fixed_to_int96(footer[:length])


@pytest.mark.parametrize(
    ("footer", "reason"),
    [
        ("", "ends too early"),
        ("00", "field 2"),
        ("1506 00", "field 2"),
        ("29", "ends too early"),
        ("29 15", "kind 5"),
        ("29 fc ffffffffffffffffffff", "does not end"),
        ("29 fc ffffff7f 00", "ends too early"),
        ("18 ffffffffffffffff7f", "ends too early"),
        ("1d", "kind 13"),
        ("1c" * 40, "nests too deep"),
    ],
)
def test_footers_that_are_none(footer: str, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        footer_bytes.int96_to_fixed(bytes.fromhex(footer))
