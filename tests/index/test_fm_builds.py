"""How an FM payload is built from rows: where partitions end, what options do, what is refused (spec 09 §2, §3, §20)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.errors import MaintainerError, UsageError
from maintainer.format.fm_layout import Metadata, PartitionFooter
from maintainer.index import family
from maintainer.index.payload import Resources, Rows
from tests.support import fm_reference
from tests.support.builders import type_
from tests.support.campaign import share
from tests.support.fm_reference import Value
from tests.support.sorted_index import Built, build_arrays, definition

PLAIN = {"fm-index.compression": "none"}


def built(values: Sequence[Value], options: dict[str, str] | None = None, *cuts: int, memory: int | None = None) -> Built:
    """A payload of bytes, which come in several arrays."""
    ends = [0, *sorted(cuts), len(values)]
    arrays = [pa.array(values[start:end], pa.binary()) for start, end in pairwise(ends)]
    resources = None if memory is None else Resources(memory)
    return build_arrays(arrays, definition("fm", "STRING", {**PLAIN, **(options or {})}), len(values), resources)


def partition_rows(payload: Built) -> list[int]:
    return [part.rows for part in Metadata.decode(payload.index_meta).partitions]


def footers(payload: Built) -> list[PartitionFooter]:
    return [PartitionFooter.decode(payload.data[part.end - 64 : part.end], part) for part in Metadata.decode(payload.index_meta).partitions]


# ----------------------------------------------------------------------------------------------------------------------- partitions


@settings(max_examples=share("FM payloads written symbol by symbol", short=40, long=2000))
@given(
    st.lists(st.none() | st.binary(max_size=6), min_size=1, max_size=30),
    st.integers(8, 40),
    st.integers(1, 12),
    st.sampled_from([1, 4, 32, 1024]),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_rows_become_partitions_however_they_come(values: list[Value], size: int, rows: int, rate: int, cuts: list[int]) -> None:
    options = {"fm-index.partition-size": f"{size} b", "fm-index.partition-row-count": str(rows), "fm-index.sa-sample-rate": str(rate)}
    payload = built(values, options, *(min(cut, len(values)) for cut in cuts))
    assert (payload.data, payload.index_meta) == fm_reference.write(values, rate, size, rows)


@pytest.mark.parametrize(("size", "rows"), [(8, [2, 2, 1]), (10, [2, 3]), (14, [3, 2]), (15, [4, 1]), (17, [5])])
def test_partitions_of_the_specification(size: int, rows: list[int]) -> None:
    payload = built([b"abc", b"de", b"fghij", None, b"k"], {"fm-index.partition-size": str(size)})
    assert partition_rows(payload) == rows
    assert max(footer.length for footer in footers(payload)) <= size


def test_default_limits_and_sample_rate() -> None:
    payload = built([b"x" * 40] * 100_001)
    assert partition_rows(payload) == [100_000, 1]
    assert {footer.rate for footer in footers(payload)} == {32}
    full = built([b"x" * ((8 << 20) - 2)] * 2 + [b"", b"y"])
    assert [(footer.rows, footer.length) for footer in footers(full)] == [(3, 16 << 20), (1, 3)]


def test_longest_value() -> None:
    options = {"fm-index.partition-size": "100 b"}
    assert partition_rows(built([b"a", b"x" * 98, b"b"], options)) == [1, 1, 1]
    with pytest.raises(MaintainerError, match=r"row 2 has 99 bytes.* 98 at most.*partition-size above 101") as caught:
        built([b"a", b"x" * 98, b"x" * 99], options, 1)
    assert type(caught.value) is MaintainerError


def test_partitions_are_smaller_where_memory_is_small() -> None:
    values = [b"x" * 1000] * 3000 + [b"y" * (2 << 20)] + [b"z"] * 10
    payload = built(values, memory=1)
    assert partition_rows(payload) == [1047, 1047, 906, 1, 10]  # a megabyte; a longer value is not refused
    assert partition_rows(built(values)) == [3011]


# ----------------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "b", "a"]),
        pa.array(["a", None, "b", "a"], pa.large_string()),
        pa.array(["x", "a", None, "b", "a", "x"]).slice(1, 4),
        pa.array(["a", None, "b", "a"]).dictionary_encode(),
        pa.array(["a", None, "b", "a"], pa.string_view()),
        pa.array([b"a", None, b"b", b"a"]),
        pa.StringArray.from_buffers(  # bytes under a null
            4,
            pa.py_buffer(np.array([0, 1, 5, 6, 7], np.int32)),
            pa.py_buffer(b"axxxxba"),
            pa.py_buffer(b"\x0d"),
            1,
        ),
    ],
    ids=["string", "large", "slice", "dictionary", "view", "binary", "bytes under a null"],
)  # fmt: skip
def test_layouts_of_text(column: pa.Array) -> None:
    found = build_arrays([column], definition("fm", "STRING", PLAIN), 4)
    assert found.data == fm_reference.write([b"a", None, b"b", b"a"])[0]


def test_rows_without_values() -> None:
    assert (
        build_arrays([pa.array([None, None], pa.string()), pa.array([], pa.string())], definition("fm", "STRING", PLAIN), 2).data
        == (fm_reference.write([None, None])[0])
    )
    assert built([b""] * 3).data == fm_reference.write([b""] * 3)[0]


def test_null_and_empty_differ_in_nothing_but_the_null_bits() -> None:
    assert len(built([None]).data) == len(built([b""]).data) == 1672
    assert built([None]).index_meta == built([b""]).index_meta


@pytest.mark.parametrize("total", [1, 3])
def test_wrong_number_of_rows(total: int) -> None:
    with pytest.raises(MaintainerError, match=f"hold 2 rows instead of the {total}"):
        build_arrays([pa.array(["a", "b"])], definition("fm", "STRING"), total)


def test_missing_rows() -> None:
    rows = [Rows(0, pa.array(["a"])), Rows(2, pa.array(["c"]))]
    with pytest.raises(MaintainerError, match="rows from 1 on are missing"):
        family.family("fm").build(rows, definition("fm", "STRING"), 3, bytearray().extend)


def test_no_rows() -> None:
    with pytest.raises(MaintainerError, match="at least one row"):
        build_arrays([], definition("fm", "STRING"), 0)


def test_bytes_go_out_while_rows_come_in() -> None:
    data = bytearray()
    sizes = []

    def rows() -> Iterator[Rows]:
        for number in range(6):
            sizes.append(len(data))
            yield Rows(number, pa.array([str(number) * (2 << 20)]))

    options = {**PLAIN, "fm-index.partition-size": str((2 << 20) + 2)}
    family.family("fm").build(rows(), definition("fm", "STRING", options), 6, data.extend)
    assert sizes[2] > 0
    assert all(later > earlier for earlier, later in pairwise(sizes[2:]))


# ----------------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "codecs"), [({}, {0, 2}), ({"compression": "LZ4"}, {0, 2}), ({"compression": "zstd"}, {0, 1}), ({"compression": "lzo"}, {0, 1})]
)
def test_compression(options: dict[str, str], codecs: set[int]) -> None:
    index = definition("fm", "STRING", {f"fm-index.{key}": value for key, value in options.items()})
    data = build_arrays([pa.array(["abcabc" * 3000, "d"])], index, 2)
    directory = footers(data)[0].directory
    assert directory.codec in codecs - {0}
    assert len(data.data) < len(built([b"abcabc" * 3000, b"d"]).data) / 2


def test_compression_level() -> None:
    text = pa.array([" ".join(str(number * number % 9973) for number in range(6000))])
    sizes = [
        len(build_arrays([text], definition("fm", "STRING", {"fm-index.compression": "zstd", "fm-index.compression-level": level}), 1).data)
        for level in ("-5", "1", "19", "99")
    ]
    assert sizes[0] > sizes[1] > sizes[2] >= sizes[3]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partition-size", "1 b"),
        ("partition-size", "2147483647 b"),
        ("partition-size", "large"),
        ("partition-row-count", "0"),
        ("partition-row-count", "-1"),
        ("sa-sample-rate", "0"),
        ("sa-sample-rate", "3"),
        ("sa-sample-rate", "2048"),
        ("compression", "gzip"),
        ("compression-level", "high"),
        ("read-cache-size", "-1"),
        ("demand-page-size", "63 kb"),
        ("demand-page-size", "65 mb"),
        ("locate-cost-ratio", "0"),
        ("locate-cost-ratio", "1.1"),
        ("locate-cost-ratio", "NaN"),
    ],
)
def test_options_out_of_range(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"fm-index.{key}"):
        family.family("fm").validate("c", type_("STRING"), {f"fm-index.{key}": value})


def test_columns() -> None:
    for text in ("STRING", "CHAR(3)", "VARCHAR(9)"):
        family.family("fm").validate("c", type_(text), {"fm-index.partition-size": "2 b", "fm-index.locate-cost-ratio": "1"})
    with pytest.raises(UsageError, match="column 'c' is INT"):
        family.family("fm").validate("c", type_("INT"), {})


def test_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydivsufsort", None)
    with pytest.raises(MaintainerError, match="pip install pydivsufsort"):
        built([b"a"])


def test_library_is_loaded_when_it_is_needed() -> None:
    code = "import sys; import maintainer.index.family.fm; sys.exit('pydivsufsort' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
