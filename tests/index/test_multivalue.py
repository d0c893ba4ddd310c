"""The elements of ARRAY columns: payloads equal those of an element-by-element writer, and answers what the predicates mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.spill import Spill
from maintainer.data.values import to_arrow_array
from maintainer.errors import CorruptFile, MaintainerError, Unsupported, UsageError
from maintainer.format import index_meta
from maintainer.index.family import multivalue, ordering
from maintainer.index.payload import Move, Resources, Rows
from maintainer.model.predicate import Leaf, Op
from maintainer.model.types import BINARIES, FLOATS, DataType, TypeRoot
from tests.support.builders import type_
from tests.support.predicates import VALUES, holds
from tests.support.sorted_index import (
    ask,
    bitmap,
    build,
    build_arrays,
    content,
    definition,
    exploded,
    open_payload,
    reference_multivalue,
)
from tests.support.strategies import mutated, scalar_types, values

ELEMENT_TYPES = scalar_types(st.booleans()).filter(lambda t: t.root not in BINARIES)
NAMES = [name for name, (data_type, _) in VALUES.items() if data_type.root not in BINARIES]
BLOCK_SIZES = st.sampled_from([1, 6, 7, 20, 100, 65536])


def array_of(element: DataType) -> DataType:
    return DataType(TypeRoot.ARRAY, element=element)


def options(block_size: int, compression: str = "none") -> dict[str, str]:
    return {"multivalue-index.dictionary-block-size": f"{block_size} b", "multivalue-index.compression": compression}


def arrays_of(element: st.SearchStrategy[Any], max_size: int = 20) -> st.SearchStrategy[list[list[Any] | None]]:
    return st.lists(st.none() | st.lists(element, max_size=6), min_size=1, max_size=max_size)


def columns() -> st.SearchStrategy[tuple[DataType, list[list[Any] | None]]]:
    """Element types with arrays of few or of many different values."""

    def of_type(element: DataType) -> st.SearchStrategy[tuple[DataType, list[list[Any] | None]]]:
        pools = st.lists(values(element), min_size=1, max_size=5).flatmap(lambda pool: arrays_of(st.sampled_from(pool)))
        return st.tuples(st.just(element), pools | arrays_of(values(element)))

    return ELEMENT_TYPES.flatmap(of_type)


def test_examples_of_the_specification() -> None:
    index = definition("multivalue", "ARRAY<STRING>")
    built = build(index, [["x", "y", "x"], None, ["y"]])  # spec 08 §7.7 C
    assert content(built).hex() == (
        "0100000000000000000000003a30000001000000000000001000000000000100000000000000000000003a300000010000000000010010000000000002000201"
        "78001e01791e2000b829061e000000000000000000000000000000000101783e090016a04216000000000000004c000000080000000000000054000000080000"
        "00000000005c00000005000000020000000142474958"
    )
    assert built.index_meta.hex() == "01000000780100000079000100"
    assert build(index, [["x", "y", "x"], [], ["y"]]) == built
    for nothing in ([None, [], [None]], [[], [], []]):  # D
        built = build(index, nothing)
        assert content(built).hex() == (
            "000000000000000000000000000000000000ff12d941000000000000000000000008000000000000000800000008000000000000001000000001000000000000"
            "000142474958"
        )
        assert built.index_meta.hex() == "0000000000000000000103"
        assert built.row_count == 3


@given(column=columns(), block_size=BLOCK_SIZES, compression=st.sampled_from(["none", "zstd", "lz4"]))
def test_bytes_equal_those_of_an_element_by_element_writer(
    column: tuple[DataType, list[list[Any] | None]], block_size: int, compression: str
) -> None:
    element, arrays = column
    index = definition("multivalue", array_of(element), options(block_size, compression))
    built = build(index, arrays)
    entries = exploded(arrays, element)
    assert content(built) == reference_multivalue(entries, block_size, compression)
    meta = index_meta.decode(built.index_meta)
    assert (meta.first_key, meta.last_key, meta.has_nulls) == ((entries[0][0], entries[-1][0], False) if entries else (None, None, False))
    assert built.row_count == len(arrays)
    reader = open_payload(content(built), index, built.index_meta, built.row_count)
    assert [(key, list(ids)) for key, ids in reader.entries()] == [(key, list(ids)) for key, ids in entries]
    found = [
        (key, part.tolist())
        for keys, ids, counts in reader.batches()
        for key, part in zip(keys, np.split(ids, np.cumsum(counts)[:-1]), strict=True)
    ]
    assert found == [(key, list(ids)) for key, ids in entries]
    assert reader.verify() == []


@given(data=st.data(), name=st.sampled_from(NAMES), block_size=BLOCK_SIZES)
def test_answers_are_exactly_what_array_predicates_mean(data: st.DataObject, name: str, block_size: int) -> None:
    element, pool = VALUES[name]
    index = definition("multivalue", array_of(element), options(block_size))
    value = st.none() | st.sampled_from(pool)
    arrays = data.draw(arrays_of(value, 30))
    built = build(index, arrays)
    reader = open_payload(content(built), index, built.index_meta, built.row_count)
    for op, size in ((Op.ARRAY_CONTAINS, 1), (Op.ARRAYS_OVERLAP, 4), (Op.ARRAY_CONTAINS_ALL, 4)):
        leaf = Leaf(op, "c", tuple(data.draw(st.lists(value, min_size=1 if op == Op.ARRAY_CONTAINS else 0, max_size=size))))
        answer = reader.evaluate(leaf)
        if op == Op.ARRAY_CONTAINS_ALL and not leaf.literals:
            assert answer is None
        else:
            assert list(answer) == [i for i, array in enumerate(arrays) if holds(leaf, {"c": array})], leaf


COLORS = [["red", "blue", "red"], None, [], ["", None], ["blue"], [None], ["red"]]


@pytest.mark.parametrize(
    ("op", "literals", "expected"),
    [
        (Op.ARRAY_CONTAINS, ("red",), [0, 6]),
        (Op.ARRAY_CONTAINS, ("",), [3]),
        (Op.ARRAY_CONTAINS, ("zzz",), []),
        (Op.ARRAY_CONTAINS, ("c",), []),
        (Op.ARRAY_CONTAINS, (None,), []),
        (Op.ARRAYS_OVERLAP, ("red", "none", None), [0, 6]),
        (Op.ARRAYS_OVERLAP, ("red", "", "blue"), [0, 3, 4, 6]),
        (Op.ARRAYS_OVERLAP, (), []),
        (Op.ARRAYS_OVERLAP, (None,), []),
        (Op.ARRAY_CONTAINS_ALL, ("red", "blue", "red"), [0]),
        (Op.ARRAY_CONTAINS_ALL, ("red", "zzz"), []),
        (Op.ARRAY_CONTAINS_ALL, ("red", None), []),
        (Op.ARRAY_CONTAINS_ALL, (), None),
        (Op.ARRAY_CONTAINS, (7,), None),
        (Op.IS_NULL, (), None),
        (Op.IS_NOT_NULL, (), None),
        (Op.EQ, ("red",), None),
        (Op.NE, ("red",), None),
        (Op.IN, ("red",), None),
        (Op.GE, ("red",), None),
        (Op.BETWEEN, ("a", "z"), None),
        (Op.STARTS_WITH, ("re",), None),
        (Op.CONTAINS, ("e",), None),
        (Op.LIKE, ("red",), None),
    ],
)
def test_answers_of_the_specification(op: Op, literals: tuple[Any, ...], expected: list[int] | None) -> None:
    index = definition("multivalue", "ARRAY<STRING>")
    built = build(index, COLORS)
    assert ask(built, index, Leaf(op, "c", literals)) == expected
    assert ask(built, index, Leaf(op, "c", literals, negated=True)) is None


def test_zeros_are_two_elements_and_nans_are_one() -> None:
    index = definition("multivalue", "ARRAY<DOUBLE>")
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    arrays = pa.ListArray.from_arrays([0, 2, 4], pa.array([-0.0, 0.0, *nans]))
    built = build_arrays([arrays, pa.array([[0.0]])], index, 3)
    assert ask(built, index, Leaf(Op.ARRAY_CONTAINS, "c", (0.0,))) == [0, 2]
    assert ask(built, index, Leaf(Op.ARRAY_CONTAINS, "c", (-0.0,))) == [0]
    assert ask(built, index, Leaf(Op.ARRAY_CONTAINS, "c", (math.nan,))) == [1]
    reader = open_payload(content(built), index, built.index_meta, 3)
    assert [list(ids) for _, ids in reader.entries()] == [[0], [0, 2], [1]]


def test_milliseconds_of_finer_elements_are_one_element() -> None:
    index = definition("multivalue", "ARRAY<TIMESTAMP(3)>")
    built = build_arrays([pa.array([[1_000, 1_999], [1_500]], pa.list_(pa.timestamp("us")))], index, 2)
    reader = open_payload(content(built), index, built.index_meta, 2)
    assert [list(ids) for _, ids in reader.entries()] == [[0, 1]]


ROWS: list[list[int | None] | None] = [[3, 1, 3], None, [], [None, 2], [1], None, [2, 2]]


def kinds_of_lists() -> dict[str, list[pa.Array]]:
    plain = pa.array(ROWS, pa.list_(pa.int32()))
    padded = pa.array([[9, 9], *ROWS, [8], None], pa.list_(pa.int32()))
    # the values of a null array may be there
    behind_nulls = pa.ListArray.from_arrays(
        [0, 3, 5, 5, 7, 8, 9, 11],
        pa.array([3, 1, 3, 77, 78, None, 2, 1, 79, 2, 2], pa.int32()),
        mask=pa.array([False, True, False, False, False, True, False]),
    )
    return {
        "list": [plain],
        "large_list": [plain.cast(pa.large_list(pa.int32()))],
        "sliced": [padded.slice(1, 7)],
        "chunks": [plain.slice(0, 2), plain.slice(2, 0), plain.slice(2)],
        "dictionary elements": [pa.ListArray.from_arrays(plain.offsets, plain.values.dictionary_encode(), mask=plain.is_null())],
        "values behind nulls": [behind_nulls],
    }


@pytest.mark.parametrize("kind", kinds_of_lists())
def test_arrays_come_in_every_form_of_arrow(kind: str) -> None:
    index = definition("multivalue", "ARRAY<INT>")
    assert build_arrays(kinds_of_lists()[kind], index, len(ROWS)) == build(index, ROWS)


def test_arrays_of_one_size_may_be_sliced_and_null() -> None:
    index = definition("multivalue", "ARRAY<INT>")
    rows = [[1, 2], None, [2, 2], [None, 1]]
    fixed = pa.array([[9, 9], *rows, [7, 7]], pa.list_(pa.int32(), 2)).slice(1, 4)
    assert build_arrays([fixed], index, 4) == build(index, rows)
    assert build_arrays([pa.array(rows, pa.list_(pa.int32(), 2))], index, 4) == build(index, rows)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("memory", [1 << 28, 4_000])
def test_batches_and_runs_leave_no_trace(seed: int, memory: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ordering, "BATCH_ROWS", 7)
    monkeypatch.setattr(ordering, "BATCH_KEY_BYTES", 40)
    monkeypatch.setattr(ordering, "_PIECE", 5)
    spill = Spill(str(tmp_path))
    random = np.random.default_rng(seed)
    for distinct in (1, 5, 60, 1000):
        for text in ("INT", "STRING", "DECIMAL(38, 0)", "TIMESTAMP(6)"):
            make: Any = {"STRING": lambda n: f"key {n}", "TIMESTAMP(6)": lambda n: n * 1000, "DECIMAL(38, 0)": Decimal}.get(text, int)
            rows = [[None if n % 11 == 3 else make(int(n)) for n in random.integers(0, distinct, random.integers(0, 5))] for _ in range(60)]
            element = type_(text)
            index = definition("multivalue", array_of(element), options(40))
            chunks = [to_arrow_array(rows[at : at + 13], index.data_type) for at in range(0, 60, 13)]
            built = build_arrays(chunks, index, 60, Resources(memory, spill))
            assert content(built) == reference_multivalue(exploded(rows, element), 40)
    assert not list(tmp_path.rglob("*.*"))


def test_rows_that_are_missing_fail_the_build() -> None:
    index = definition("multivalue", "ARRAY<INT>")
    with pytest.raises(MaintainerError, match="hold 7 rows instead of the 8"):
        build_arrays([pa.array(ROWS, pa.list_(pa.int32()))], index, 8)
    with pytest.raises(MaintainerError, match="at least one row"):
        build_arrays([], index, 0)


@pytest.mark.parametrize(
    ("text", "given_options", "message"),
    [
        ("STRING", {}, "Multivalue index requires an ARRAY column, but column 'c' is STRING"),
        ("ARRAY<BYTES>", {}, "DataType: BYTES is not supported by global index now."),
        ("ARRAY<ARRAY<INT>>", {}, "DataType: ARRAY<INT> is not supported"),
        ("ARRAY<INT>", {"multivalue-index.compression": "gzip"}, "Unknown CompressionMethod gzip"),
        ("ARRAY<INT>", {"multivalue-index.compression-level": "high"}, "not a whole number"),
        ("ARRAY<INT>", {"multivalue-index.dictionary-block-size": "0 b"}, "must be greater than 0"),
    ],
)
def test_what_cannot_be_indexed_is_refused(text: str, given_options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        multivalue.validate("c", type_(text), given_options)
    assert message in str(raised.value)
    multivalue.validate("c", type_("ARRAY<INT NOT NULL>"), {"multivalue-index.compression": "LZO"})
    if "INT>" not in text or "ARRAY<ARRAY" in text:
        with pytest.raises(Unsupported):
            build(definition("multivalue", text), [None])


@given(column=columns(), data=st.data(), block_size=BLOCK_SIZES)
def test_a_payload_is_made_from_an_older_one_and_the_rows_that_it_does_not_have(
    column: tuple[DataType, list[list[Any] | None]], data: st.DataObject, block_size: int
) -> None:
    element, older = column
    index = definition("multivalue", array_of(element), options(block_size))
    old = build(index, older)
    # files of the older group, some of which are left, among new ones
    ends = sorted({*data.draw(st.lists(st.integers(0, len(older)), max_size=4)), 0, len(older)})
    whole: list[list[Any] | None] = []
    moves, new = [], []
    for start, end in pairwise(ends):
        if data.draw(st.booleans()):
            moves.append(Move(start, len(whole), end - start))
            whole += older[start:end]
        added = data.draw(st.lists(st.none() | st.lists(values(element) | st.sampled_from([None]), max_size=3), max_size=4))
        if added:
            new.append(Rows(len(whole), to_arrow_array(added, index.data_type)))
            whole += added
    if not whole:
        return
    carried = multivalue.carry(open_payload(content(old), index, old.index_meta, old.row_count), moves)
    found = bytearray()
    built = multivalue.build(new, index, len(whole), found.extend, carried=carried)
    expected = build(index, whole)
    assert bytes(found) == content(expected)
    assert (built.index_meta, built.row_count) == (expected.index_meta, expected.row_count)


def test_rows_are_neither_missing_nor_twice_beside_an_older_payload() -> None:
    index = definition("multivalue", "ARRAY<INT>")
    old = build(index, ROWS)
    column = pa.array([[1]], pa.list_(pa.int32()))
    for total, first in ((9, 7), (7, 6), (8, 8)):
        carried = multivalue.carry(open_payload(content(old), index, old.index_meta, 7), [Move(0, 0, 7)])
        with pytest.raises(MaintainerError, match="rows instead of"):
            multivalue.build([Rows(first, column)], index, total, lambda data: None, carried=carried)
    assert multivalue.carry(open_payload(content(old), index, None, 7), [Move(0, 0, 7)]) is None


# ------------------------------------------------------------------------------------------------------------------ damaged payloads

INDEX = definition("multivalue", "ARRAY<STRING>", options(100))
BUILT = build(INDEX, [None if i % 9 == 4 else [f"key-{i * number % 50}" for number in range(i % 5)] for i in range(120)])
LEAVES = [
    *(Leaf(Op.ARRAY_CONTAINS, "c", (f"key-{number}",)) for number in (0, 7, 48)),
    Leaf(Op.ARRAYS_OVERLAP, "c", ("key-1", "key-3")),
    Leaf(Op.ARRAY_CONTAINS_ALL, "c", ("key-0", "key-2")),
]


def check(data: bytes, meta: bytes, total: int) -> None:
    """Nothing but `CorruptFile` comes out, and no ordinal that is not there."""
    for leaf in LEAVES:
        with suppress(CorruptFile):
            found = open_payload(data, INDEX, meta, total).evaluate(leaf)
            assert found is not None
            assert not found or found.max() < total
    with suppress(CorruptFile):
        open_payload(data, INDEX, meta, total).verify()
    with suppress(CorruptFile):
        for _ in open_payload(data, INDEX, meta, total).batches():
            pass


@given(data=st.data())
def test_changed_bytes_do_no_harm(data: st.DataObject) -> None:
    check(data.draw(mutated(content(BUILT))), BUILT.index_meta, BUILT.row_count)


@given(data=st.data())
def test_changed_metadata_does_no_harm(data: st.DataObject) -> None:
    check(content(BUILT), data.draw(mutated(BUILT.index_meta)), BUILT.row_count)


def test_every_changed_byte_of_dictionary_index_and_footer_is_noticed_or_harmless() -> None:
    whole = content(BUILT)
    right = [ask(BUILT, INDEX, leaf) for leaf in LEAVES]
    postings = sum(len(bitmap(ids)) for _, ids in open_payload(whole, INDEX, BUILT.index_meta, 120).entries())
    wrong = 0
    for at in range(len(whole)):
        changed = whole[:at] + bytes((whole[at] ^ 0x01,)) + whole[at + 1 :]
        try:
            reader = open_payload(changed, INDEX, BUILT.index_meta, 120)
            wrong += [list(reader.evaluate(leaf)) for leaf in LEAVES] != right
        except CorruptFile:
            continue
    assert wrong < postings  # bare postings have no checksum


def test_verify_says_what_is_wrong() -> None:
    def problems(entries: Any, meta: bytes, rows: bytes | None = None, total: int = 3) -> Sequence[str]:
        data = reference_multivalue(entries) if rows is None else rows
        found: Sequence[str] = open_payload(data, INDEX, meta, total).verify()
        return found

    meta = build(INDEX, [["a", "b"], ["b"], None]).index_meta
    assert problems([(b"a", [0]), (b"b", [0, 1])], meta) == []
    assert problems([(b"a", [0]), (b"c", [0, 1])], meta) == ["the payload does not hold what its metadata says"]
    assert "elements are not in order" in problems([(b"b", [0]), (b"a", [0, 1])], meta)
    with pytest.raises(CorruptFile, match=r"ordinal 3 in the payload of a group of 3 rows|not below 3"):
        problems([(b"a", [0]), (b"b", [0, 3])], meta)
    as_bitmap = definition("bitmap", "STRING")
    of_bitmap = build(as_bitmap, ["a", "b", None])
    assert "a payload of elements says which rows are null" in problems((), meta, content(of_bitmap))
    with pytest.raises(CorruptFile, match="ordinal 1 in"):
        open_payload(content(of_bitmap), INDEX, meta, 1).evaluate(Leaf(Op.ARRAY_CONTAINS, "c", ("b",)))


def test_floats_are_looked_up_by_their_bits() -> None:
    assert {VALUES[name][0].root for name in NAMES} >= FLOATS  # so that the answers above speak of them
