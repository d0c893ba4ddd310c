"""Casts of columns whose type was changed (spec 02 §13.2), against the answers of released Java for every pair of types.

`tests/fixtures/casts/java-1.3.1.json.gz` is what `peer.sh casts` answered, in UTC and in Europe/Berlin. Where 1.3.1 differs from what 2.1 does
and the specification says, or gives a value that its type cannot hold, `differs` says so.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from maintainer.data import casts
from maintainer.data.arrow_types import to_arrow
from maintainer.data.values import from_arrow, json_value, to_arrow_array
from maintainer.errors import CastError
from maintainer.model.casting import castable, without_cast
from maintainer.model.types import DataType, TypeRoot
from tests.support.builders import type_

JAVA = json.loads(gzip.decompress((Path(__file__).parents[1] / "fixtures" / "casts" / "java-1.3.1.json.gz").read_bytes()))
REFUSED = {"error": True}


def internal(value: Any, data_type: DataType) -> Any:
    """The internal value of one in the JSON form of the fixtures."""
    match data_type.root:
        case _ if value is None:
            return None
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return float(value)
        case TypeRoot.DECIMAL:
            return Decimal(value)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return base64.b64decode(value)
        case TypeRoot.DATE:
            return int(np.datetime64(value, "D").astype(int))
        case TypeRoot.TIME:
            hours, minutes, seconds = value.split(":")
            return (int(hours) * 60 + int(minutes)) * 60_000 + round(float(seconds) * 1000)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            moment, fraction = value.rstrip("Z").split(".")
            return int(np.datetime64(moment, "s").astype(int)) * 10**9 + int(fraction)
        case TypeRoot.ARRAY:
            return [internal(item, data_type.element) for item in value]  # type: ignore[arg-type]
        case TypeRoot.MAP:
            return [(internal(key, data_type.key), internal(item, data_type.element)) for key, item in value]  # type: ignore[arg-type]
        case TypeRoot.ROW:
            return tuple(internal(value[field.name], field.type) for field in data_type.fields)
        case _:
            return value


def differs(source: DataType, target: DataType, value: Any, java: Any) -> bool:
    """Whether Java 1.3.1 is no referee for this value."""
    text = str(value)
    if target.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        beyond = re.match(r"-?9007199254740993|-?9223372036854775\d{3}$", text)  # years that wrap around in Java
        if beyond or (target.precision > 6 and re.match(r"0001|9999|-2147483648$|1099511627779|2147483647|-?\d{12,}", text)):
            return True
        if source.root in (TypeRoot.CHAR, TypeRoot.VARCHAR) and "T" in text:
            return True  # 2.1 reads these
        if source.precision > target.precision and re.search(r"\.000001000|\.000000001", text):
            return True  # a defect of 1.3.1: digits after leading zeros are not cut
    if source.root is TypeRoot.TIMESTAMP and text.startswith("1969") and target.root in (TypeRoot.DATE, TypeRoot.TIME):
        return True  # 2.1 rounds towards the past
    return target.root is TypeRoot.TIME and isinstance(java, dict) != (text in ("25:00:00", "2024-05"))  # no time of a day: refused here


def outcome(value: Any, source: DataType, target: DataType, zone: str) -> Any:
    array = to_arrow_array([internal(value, source)], source)
    try:
        found = casts.cast(array, source, target, zone)
    except CastError:
        return REFUSED
    return json_value(from_arrow(found, target)[0], target)


def test_every_pair_and_value_that_java_has() -> None:
    compared, wrong = 0, []
    for case in JAVA["casts"]:
        source, target = type_(case["from"]), type_(case["to"])
        if case["UTC"] is None:
            continue
        assert castable(source, target), case
        for zone in ("UTC", "Europe/Berlin"):
            for value, java in zip(JAVA["values"][case["from"]], case.get(zone, case["UTC"]), strict=True):
                ours = outcome(value, source, target, zone)
                compared += 1
                if ours != java and not differs(source, target, value, java):
                    wrong.append((case["from"], case["to"], zone, value, java, ours))
    assert not wrong
    assert compared > 14_000


def test_what_java_does_not_cast_is_refused_but_for_dates_and_times_as_short_texts() -> None:
    more = {
        (case["from"], case["to"])
        for case in JAVA["casts"]
        if case["UTC"] is None and type_(case["from"]) != type_(case["to"]) and castable(type_(case["from"]), type_(case["to"]))
    }
    assert {target for _, target in more} == {"VARCHAR(3)", "CHAR(2)", "CHAR(8)"}
    assert {type_(source).root for source, _ in more} <= {TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}


def test_a_column_is_cast_as_its_values_are() -> None:
    compared = 0
    for case in JAVA["casts"]:
        if case["UTC"] is None or REFUSED in case["UTC"]:
            continue
        source, target = type_(case["from"]), type_(case["to"])
        values = [internal(value, source) for value in JAVA["values"][case["from"]]]
        try:
            single = [from_arrow(casts.cast(to_arrow_array([value], source), source, target), target)[0] for value in values]
        except CastError:  # some value has none, which other tests look at
            continue
        compared += 1
        array = to_arrow_array([*values, values[0]], source)
        found = casts.cast(array, source, target)
        found.validate(full=True)
        assert found.type == to_arrow(target)
        assert repr(from_arrow(found, target)) == repr([*single, single[0]]), case
        assert repr(from_arrow(casts.cast(array.slice(1, 2), source, target), target)) == repr(single[1:3]), case
        assert casts.cast(array.slice(0, 0), source, target).type == to_arrow(target)
    assert compared > 400


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        ("STRING", "INT", "x7"),
        ("DOUBLE", "DECIMAL(5, 2)", float("nan")),
        ("STRING", "DECIMAL(5, 2)", "1.2.3"),
        ("STRING", "DATE", "2024-02-30"),
    ],
)
def test_a_value_that_cannot_be_cast_is_named(source: str, target: str, value: Any) -> None:
    with pytest.raises(CastError, match=re.escape(f"{value!r} is no {target}")):
        casts.cast(to_arrow_array([None, value], type_(source)), type_(source), type_(target))


def test_long_numbers_in_texts_are_numbers() -> None:
    texts = [
        "1" * 40,
        "0." + "3" * 60,
        "1e-60",
        "9" * 38 + "." + "4" * 50,
        "9" * 38 + ".5",
        "-1e37",
        "1e999999999999",
        "1E+2",
        "00000000000000000000000000000000000000000012",
    ]
    found = casts.cast(pa.array(texts), type_("STRING"), type_("DECIMAL(38, 0)"))
    expected = [None, 0, 0, Decimal("9" * 38), None, Decimal(-(10**37)), None, 100, 12]
    assert found.to_pylist() == expected


def test_floats_have_the_texts_of_java() -> None:
    rng = np.random.default_rng(7)
    values = np.concatenate([10.0 ** rng.uniform(-12, 18, 500) * rng.choice([-1, 1], 500), rng.integers(-(10**9), 10**9, 200) / 100])
    for dtype, name in ((np.float64, "DOUBLE"), (np.float32, "FLOAT")):
        column = pa.array(values.astype(dtype))
        for text, value in zip(casts.cast(column, type_(name), type_("STRING")).to_pylist(), column.to_numpy(), strict=True):
            assert dtype(text) == value
            digits, _, exponent = text.partition("E")
            assert bool(exponent) == (not 1e-3 <= abs(value) < 1e7)
            assert re.fullmatch(r"-?\d\.\d+" if exponent else r"-?\d+\.\d+", digits), text
            assert len(digits.strip("-0.").replace(".", "")) <= len(np.format_float_scientific(value, unique=True).split("e")[0].strip("-"))


@pytest.mark.parametrize(
    ("source", "target", "change"),
    [
        ("ARRAY<INT>", "ARRAY<BIGINT>", None),
        ("MAP<STRING, INT>", "MAP<STRING, STRING>", None),
        ("MAP<INT, INT>", "MAP<BIGINT, INT>", "INT to BIGINT"),
        ("MULTISET<INT>", "MULTISET<BIGINT>", "INT to BIGINT"),
        ("VECTOR<FLOAT, 3>", "VECTOR<FLOAT, 4>", "VECTOR<FLOAT, 3> to VECTOR<FLOAT, 4>"),
        ("VECTOR<FLOAT, 3>", "VECTOR<DOUBLE, 3>", "FLOAT to DOUBLE"),
        ("VECTOR<FLOAT, 3>", "ARRAY<FLOAT>", "VECTOR<FLOAT, 3> to ARRAY<FLOAT>"),
        ("ROW<a INT, b DATE>", "STRING", None),
        ("ROW<a VECTOR<FLOAT, 3>>", "STRING", "ROW<a VECTOR<FLOAT, 3>> to STRING"),
        ("STRING", "ARRAY<INT>", "STRING to ARRAY<INT>"),
        ("INT", "DATE", "INT to DATE"),
        ("DOUBLE", "TIMESTAMP(3)", "DOUBLE to TIMESTAMP(3)"),
        ("TIME(3)", "TIME(0)", "TIME(3) to TIME(0)"),
    ],
)
def test_what_a_type_may_be_changed_to(source: str, target: str, change: str | None) -> None:
    assert without_cast(type_(source), type_(target)) == change
