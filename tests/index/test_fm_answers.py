"""What an FM payload answers is what a search through the values finds (spec 09 §10, §11, §20)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.format.kept import Cache
from maintainer.format.stored_block import KeepingRanges
from maintainer.index import family
from maintainer.index.family.fm_reader import LEAST_CACHE, FMReader
from maintainer.model.predicate import Leaf, Op
from tests.support import fm_reference
from tests.support.campaign import share
from tests.support.fm_reference import Value
from tests.support.sorted_index import Built, build_arrays, definition, reading

EXACT = {"fm-index.locate-cost-ratio": "1", "fm-index.sa-sample-rate": "1"}
"""Every needle is located unless it occurs as often as there are bytes."""


def built(values: Sequence[Value], options: dict[str, str] | None = None) -> Built:
    return build_arrays([pa.array(values, pa.binary())], definition("fm", "STRING", options or {}), len(values))


def reader(payload: Built, options: dict[str, str] | None = None) -> FMReader:
    opened = family.family("fm").open(
        reading(payload.data), len(payload.data), definition("fm", "STRING", options or {}), payload.index_meta, payload.row_count
    )
    assert isinstance(opened, FMReader)
    return opened


def asked(reader: FMReader, op: Op, *literals: Any) -> list[int] | None:
    found = reader.evaluate(Leaf(op, "c", literals))
    return None if found is None else list(found)


TESTS: dict[Op, Callable[[bytes, bytes], bool]] = {
    Op.CONTAINS: lambda value, needle: needle in value,
    Op.STARTS_WITH: lambda value, needle: value.startswith(needle),
    Op.ENDS_WITH: lambda value, needle: value.endswith(needle),
    Op.EQ: lambda value, needle: value == needle,
}


def assert_right(reader: FMReader, values: Sequence[Value], partitions: Sequence[int], op: Op, needle: bytes) -> bool:
    """Whether all partitions answered; those that did not answer with all of their rows."""
    right = {row for row, value in enumerate(values) if value is not None and TESTS[op](value, needle)}
    found = asked(reader, op, needle)
    if found is None:
        return False
    exact = True
    for start, end in zip([0, *partitions], partitions, strict=False):
        here, expected = {row for row in found if start <= row < end}, {row for row in right if start <= row < end}
        if here != expected:
            assert here == set(range(start, end)), (op, needle)
            exact = False
    return exact


def ends(payload: Built, reader: FMReader) -> list[int]:
    return list(accumulate(part.rows for part in reader.places))


values_of = st.lists(
    st.none()
    | st.text("ab", max_size=6).map(str.encode)
    | st.binary(max_size=4)
    | st.sampled_from([b"", b"\0", b"\1", b"\2", b"\xff", b"\xff\xff"]),
    min_size=1,
    max_size=12,
)
needles_of = st.text("ab", max_size=4).map(str.encode) | st.binary(max_size=2) | st.sampled_from([b"\0", b"\1", b"\2", b"\xff", b"\xff\xff"])


@settings(max_examples=share("FM answers about any bytes", short=40, long=1000))
@given(values_of, st.lists(needles_of, max_size=4), st.sampled_from(["1", "4", "1024"]), st.sampled_from([3, 12]))
def test_any_needle_in_any_bytes(values: list[Value], needles: list[bytes], rate: str, rows: int) -> None:
    options = {"fm-index.sa-sample-rate": rate, "fm-index.partition-row-count": str(rows), "fm-index.locate-cost-ratio": "1"}
    payload = built(values, options)
    opened = reader(payload, options)
    for needle in {*needles, *filter(None, values[:2])}:
        for op in TESTS:
            assert_right(opened, values, ends(payload, opened), op, needle)
    assert asked(opened, Op.IS_NULL) == [row for row, value in enumerate(values) if value is None]
    with_value = [row for row, value in enumerate(values) if value is not None]
    assert asked(opened, Op.IS_NOT_NULL) == with_value
    for op in (Op.CONTAINS, Op.STARTS_WITH, Op.ENDS_WITH):
        assert asked(opened, op, b"") == with_value
    assert [value.as_py() for part in opened.values() for value in part] == values
    assert opened.verify() == []


PIECES = ["alpha", "be", "é", "日本", "😀", "😁", "𝒳", "\0", "\1", "\2", "\x7f", "aa", "a", "\n", " "]


@pytest.mark.parametrize("seed", range(share("FM answers about texts", short=12, long=400)))
def test_texts(seed: int) -> None:
    chosen = random.Random(seed)
    pool = chosen.sample(PIECES, chosen.randint(2, len(PIECES)))
    rows = chosen.choice([5, 300, 2000])
    values = [None if chosen.random() < 0.1 else "".join(chosen.choices(pool, k=chosen.randint(0, 12))).encode() for _ in range(rows)]
    options = {
        "fm-index.compression": chosen.choice(["none", "lz4", "zstd"]),
        "fm-index.sa-sample-rate": chosen.choice(["1", "2", "32"]),
        "fm-index.partition-row-count": str(chosen.choice([rows // 3 + 1, 100_000])),
        "fm-index.locate-cost-ratio": chosen.choice(["0.001", "0.1", "1"]),
        "fm-index.read-cache-size": chosen.choice(["33808 b", "64 mb"]),
    }
    payload = built(values, options)
    opened = reader(payload, options)
    exact = 0
    for _ in range(30):
        value = chosen.choice(values) or b""
        start = chosen.randint(0, len(value))
        needle = value[start : chosen.randint(start, len(value))] or chosen.choice(PIECES).encode()[: chosen.randint(1, 4)]
        exact += sum(assert_right(opened, values, ends(payload, opened), op, needle) for op in TESTS)
    assert exact
    assert [value.as_py() for part in opened.values() for value in part] == values
    parts = list(opened.batches())
    assert [key for keys, _, _ in parts for key in keys] == [value for value in values if value is not None]
    assert [row for _, ids, _ in parts for row in ids] == [row for row, value in enumerate(values) if value is not None]


def large() -> list[Value]:
    chosen = random.Random(3)
    values: list[Value] = [b"%07d %s" % (row % 70_000, b"xyz"[: chosen.randint(0, 3)] * chosen.randint(0, 3)) for row in range(90_000)]
    for row in range(0, 90_000, 97):
        values[row] = None if row % 2 else b""
    values[4711] = "Größe 😀".encode() * 9
    return values


@pytest.mark.parametrize("cache", ["33808 b", "300 kb", "64 mb"])
def test_many_blocks_however_few_of_them_are_held(cache: str) -> None:
    values = large()
    options = {"fm-index.partition-row-count": "60000", "fm-index.sa-sample-rate": "8", "fm-index.compression": "zstd"}
    payload = built(values, options)
    opened = reader(payload, {**options, "fm-index.read-cache-size": cache, "fm-index.locate-cost-ratio": "1"})
    for op, needle in [
        (Op.CONTAINS, b"0012345"), (Op.CONTAINS, b"2345 xyx"), (Op.STARTS_WITH, b"00123"), (Op.ENDS_WITH, b"99 xyzxyzxyz"),
        (Op.EQ, b"0000099 "), (Op.CONTAINS, "ße 😀".encode()), (Op.CONTAINS, b"\x98\x80Gr"), (Op.CONTAINS, b"456"),
    ]:  # fmt: skip
        assert assert_right(opened, values, ends(payload, opened), op, needle), (op, needle)
    assert asked(opened, Op.IS_NULL) == [row for row, value in enumerate(values) if value is None]
    assert opened.verify() == []


# ----------------------------------------------------------------------------------------------------------------- single predicates

GOLDEN = [b"banana", None, b"\x00\xffbanana", b""]
QUARTER = {"fm-index.sa-sample-rate": "4", "fm-index.locate-cost-ratio": "1"}


def golden(options: dict[str, str] | None = None) -> FMReader:
    """A reader of Java's golden file (spec 09 §15)."""
    data, meta = fm_reference.write(GOLDEN, 4)
    return reader(Built(data, len(data), 4, meta), {**QUARTER, **(options or {})})


@pytest.mark.parametrize(
    ("op", "needle", "rows"),
    [
        (Op.CONTAINS, "banana", [0, 2]), (Op.CONTAINS, b"\xff", [2]), (Op.CONTAINS, "x", []), (Op.CONTAINS, "", [0, 2, 3]),
        (Op.CONTAINS, "ab", []), (Op.CONTAINS, "bananab", []), (Op.CONTAINS, "a" * 100, []), (Op.CONTAINS, None, []),
        (Op.STARTS_WITH, "ban", [0]), (Op.STARTS_WITH, b"\0", [2]), (Op.STARTS_WITH, "a", []), (Op.STARTS_WITH, "", [0, 2, 3]),
        (Op.ENDS_WITH, "nana", [0, 2]), (Op.ENDS_WITH, b"\xffbanana", [2]), (Op.ENDS_WITH, "n", []), (Op.ENDS_WITH, None, []),
        (Op.EQ, "banana", [0]), (Op.EQ, "", [3]), (Op.EQ, "banan", []), (Op.EQ, None, []),
        (Op.LIKE, "%nan%", [0, 2]), (Op.LIKE, "b%na", [0]), (Op.LIKE, "%", [0, 2, 3]), (Op.LIKE, "_____", [0, 2, 3]), (Op.LIKE, "banana", [0]),
        (Op.LIKE, "b_n%", [0]), (Op.LIKE, "%x%nan%", []), (Op.LIKE, r"banan\_", []), (Op.LIKE, None, []), (Op.LIKE, "", [3]),
    ],
)  # fmt: skip
def test_the_golden_file(op: Op, needle: Any, rows: list[int]) -> None:
    assert asked(golden(), op, needle) == rows


def test_in_lists() -> None:
    opened = golden()
    assert asked(opened, Op.IN, "banana", "", None, "x", b"\0\xffbanana") == [0, 2, 3]
    assert asked(opened, Op.IN, "x", None) == []
    assert asked(opened, Op.IN) == []


@pytest.mark.parametrize("op", [Op.NE, Op.NOT_IN, Op.LT, Op.LE, Op.GT, Op.GE, Op.BETWEEN, Op.NOT_BETWEEN])
def test_what_is_not_answered(op: Op) -> None:
    assert asked(golden(), op, "a", "b") is None


def test_negations_and_what_is_no_text_are_not_answered() -> None:
    opened = golden()
    assert opened.evaluate(Leaf(Op.CONTAINS, "c", ("x",), negated=True)) is None
    assert asked(opened, Op.CONTAINS, "\ud800") is None
    assert asked(opened, Op.EQ, 5) is None


def test_needles_do_not_match_across_rows() -> None:
    values = [b"xa", b"bx", b"", b"ab", None, b"a", b"b"] * 3
    opened = reader(built(values, EXACT), EXACT)
    assert asked(opened, Op.CONTAINS, b"ab") == [3, 10, 17]
    assert asked(opened, Op.CONTAINS, b"a\x01b") == []


def test_overlapping_occurrences_are_one_row() -> None:
    values = [b"aaaa", b"aa", b"a", b"b" * 20]
    assert asked(reader(built(values, EXACT), EXACT), Op.CONTAINS, b"aa") == [0, 1]


def test_all_256_bytes_and_both_ends_of_text() -> None:
    values = [bytes(range(256)), None, bytes(range(255, -1, -1)), b"\0\1\2"]
    opened = reader(built(values, EXACT), EXACT)
    for start in range(254):
        assert asked(opened, Op.CONTAINS, bytes(range(start, start + 3))) == ([0, 3] if not start else [0])
    assert asked(opened, Op.STARTS_WITH, b"\xff\xfe") == [2]
    assert asked(opened, Op.ENDS_WITH, b"\1\0") == [2]


@pytest.mark.parametrize(("values", "op", "needle", "rows"), [
    ([None], Op.CONTAINS, b"", []), ([b""], Op.CONTAINS, b"", [0]), ([None], Op.EQ, b"", []), ([b""], Op.EQ, b"", [0]),
    ([None] * 5, Op.CONTAINS, b"a", []), ([b""] * 5, Op.CONTAINS, b"\0", []), ([None, b"", None], Op.IS_NULL, None, [0, 2]),
    ([None, b"", None], Op.IS_NOT_NULL, None, [1]), ([b"", b"", None, b"ab", b""], Op.STARTS_WITH, b"a", [3]),
])  # fmt: skip
def test_null_and_empty(values: list[Value], op: Op, needle: bytes | None, rows: list[int]) -> None:
    assert asked(reader(built(values, EXACT), EXACT), op, *([] if op in (Op.IS_NULL, Op.IS_NOT_NULL) else [needle])) == rows


# ------------------------------------------------------------------------------------------------------------------------ the cost rule


def test_a_needle_that_occurs_too_often_is_declined_and_one_that_does_not_occur_is_not() -> None:
    """Rate 32, ratio 0.001: one occurrence needs more than 32000 bytes of values."""
    for size, answer in ((32_000, None), (32_001, [1])):
        values = [b"y" * (size - 1), b"x"]
        opened = reader(built(values))
        assert asked(opened, Op.CONTAINS, b"x") == answer
        assert asked(opened, Op.CONTAINS, b"z") == []
        assert asked(opened, Op.CONTAINS, b"xy") == []
        assert asked(opened, Op.CONTAINS, b"") == [0, 1]


def test_the_option_moves_the_limit() -> None:
    values = [b"y" * 31_999, b"x"] * 3
    assert asked(reader(built(values)), Op.CONTAINS, b"x") is None
    for ratio, answer in (("0.0009", None), ("0.0011", [1, 3, 5])):
        assert asked(reader(built(values), {"fm-index.locate-cost-ratio": ratio}), Op.CONTAINS, b"x") == answer


def test_too_little_cache_declines_needles_and_nothing_else() -> None:
    values = [b"y" * 40_000, b"x", None]
    assert asked(reader(built(values), {"fm-index.read-cache-size": f"{LEAST_CACHE} b"}), Op.CONTAINS, b"x") == [1]
    for size in ("0 b", f"{LEAST_CACHE - 1} b"):
        opened = reader(built(values), {"fm-index.read-cache-size": size})
        assert asked(opened, Op.CONTAINS, b"x") is None
        assert asked(opened, Op.EQ, b"q") is None
        assert asked(opened, Op.CONTAINS, b"") == [0, 1]
        assert asked(opened, Op.IS_NULL) == [2]


def test_partitions_that_answer_narrow_beside_one_that_declines() -> None:
    options = {"fm-index.partition-row-count": "3"}
    values = [b"y" * 40_000, b"x", b"", b"x" * 5000, b"x", None, b"z" * 9, b"", b"z"]
    assert asked(reader(built(values, options)), Op.CONTAINS, b"x") == [1, 3, 4, 5]
    assert asked(reader(built(values[3:6], options)), Op.CONTAINS, b"x") is None


def test_needles_that_all_must_occur_narrow_as_far_as_they_can() -> None:
    values = [b"y" * 40_000, b"xy", b"y", b"x", b"w", b"wyx"]
    opened = reader(built(values))
    assert asked(opened, Op.CONTAINS, b"y") is None
    assert asked(opened, Op.CONTAINS, b"wyx") == [5]
    leaves = [Leaf(Op.CONTAINS, "c", (needle,)) for needle in ("y", "wyx")]
    assert list(opened.evaluate_all(leaves) or ()) == [5]
    assert list(opened.evaluate_all([*leaves, Leaf(Op.CONTAINS, "c", ("v",))]) or ()) == []
    assert list(opened.evaluate_all([*leaves, Leaf(Op.NE, "c", ("v",))]) or ()) == [5]
    assert list(opened.evaluate_all([leaves[1], Leaf(Op.IS_NULL, "c")]) or ()) == []
    assert opened.evaluate_all([leaves[0], Leaf(Op.NE, "c", ("v",))]) is None
    assert asked(opened, Op.LIKE, "%y%wyx%") == [5]
    assert asked(opened, Op.LIKE, "%y%v%") == []


@settings(max_examples=share("FM answers about LIKE", short=40, long=1000))
@given(st.lists(st.text("ab%", max_size=5), min_size=1, max_size=12), st.text("ab%_", max_size=6))
def test_like_never_loses_a_row(texts: list[str], pattern: str) -> None:
    options = {**EXACT, "fm-index.partition-row-count": "4"}
    opened = reader(built([text.encode() for text in texts], options), options)
    expression = re.compile("".join({"%": ".*", "_": "."}.get(character, re.escape(character)) for character in pattern), re.DOTALL)
    found = asked(opened, Op.LIKE, pattern)
    assert found is None or {row for row, text in enumerate(texts) if expression.fullmatch(text)} <= set(found)


def test_threads_ask_one_payload() -> None:
    values = large()
    payload = built(values, {"fm-index.partition-row-count": "60000"})
    cache = Cache(64 << 20)
    options = {"fm-index.read-cache-size": "1 mb", "fm-index.locate-cost-ratio": "1"}

    def ask(number: int) -> bool:
        read = KeepingRanges(reading(payload.data), cache.of("payload"))
        opened = FMReader(read, len(payload.data), definition("fm", "STRING", options), payload.index_meta, payload.row_count)
        needle = b"%06d " % (number * 37)
        return asked(opened, Op.CONTAINS, needle) == [row for row, value in enumerate(values) if value is not None and needle in value]

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(ask, range(24)))


@pytest.mark.parametrize("length", [2, 31, 32, 33, 64, 65, 2048, 131_071, 131_072, 131_073, 262_143, 262_144, 262_145])
def test_texts_that_end_where_words_and_blocks_do(length: int) -> None:
    """A text of one value has two symbols more than it."""
    value = bytes(random.Random(length).choices(b"abcd", k=length - 2))
    payload = built([value, None], {**EXACT, "fm-index.partition-row-count": "1"})
    opened = reader(payload, EXACT)
    assert [row for part in opened.values() for row in part.to_pylist()] == [value, None]
    if len(value) > 32:
        assert asked(opened, Op.EQ, value) == [0]
        assert asked(opened, Op.EQ, value + b"a") == []
        assert asked(opened, Op.CONTAINS, value[:20]) == asked(opened, Op.CONTAINS, value[-20:]) == [0]
    assert asked(opened, Op.CONTAINS, b"dcbae") == []


def test_of_long_needles_an_end_is_looked_for() -> None:
    long, other = b"x" * 50_000 + b"y", b"z" + b"x" * 60_000 + b"y"
    values = [long, other, b"y", long[:-1], None, long + b"w"]
    opened = reader(built(values, EXACT), EXACT)
    assert asked(opened, Op.EQ, long) == [0, 1]
    assert asked(opened, Op.IN, long, b"y") == [0, 1, 2]
    assert asked(opened, Op.STARTS_WITH, long) == [0, 3, 5]
    assert asked(opened, Op.ENDS_WITH, long) == [0, 1]
    assert asked(opened, Op.CONTAINS, long) == [0, 1, 5]
    assert asked(opened, Op.CONTAINS, b"x" * 100_000_000) == [0, 1, 3, 5]
    assert asked(opened, Op.EQ, b"x" * 1022) == []
    assert asked(opened, Op.LIKE, "z%" + "x" * 5000 + "y") == [1]
