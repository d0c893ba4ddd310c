"""Building payloads from values: the examples of the specification, and the row-by-row writers of tests/support/sorted_index."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import MaintainerError, Unsupported
from maintainer.format import index_meta
from maintainer.index import family
from maintainer.index.family import bitmap, column_sort, ordering
from maintainer.model.predicate import Leaf, Op
from maintainer.model.types import BINARIES, DataType
from tests.support.builders import type_
from tests.support.sorted_index import (
    arrow,
    ask,
    build,
    build_arrays,
    content,
    definition,
    grouped,
    open_payload,
    reference_bitmap,
    reference_btree,
)
from tests.support.strategies import scalar_types, values

KEY_TYPES = scalar_types(st.just(True)).filter(lambda t: t.root not in BINARIES)
SMALL_POOLS = KEY_TYPES.flatmap(
    lambda t: st.lists(values(t), min_size=1, max_size=6).flatmap(
        lambda pool: st.tuples(st.just(t), st.lists(st.sampled_from(pool), min_size=1, max_size=60))
    )
)
COLUMNS = SMALL_POOLS | KEY_TYPES.flatmap(lambda t: st.tuples(st.just(t), st.lists(values(t), min_size=1, max_size=60)))
BLOCK_SIZES = st.sampled_from([1, 5, 6, 7, 20, 40, 100, 300, 65536])
REFERENCES = {"btree": reference_btree, "bitmap": reference_bitmap}


@pytest.fixture
def few_rows_per_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "BATCH_ROWS", 7)
    monkeypatch.setattr(ordering, "BATCH_KEY_BYTES", 40)


def options(name: str, block_size: int, compression: str = "none") -> dict[str, str]:
    block = "block-size" if name == "btree" else "dictionary-block-size"
    return {f"{name}-index.{block}": f"{block_size} b", f"{name}-index.compression": compression, "maintain.bitmap-peer-blocks": "off"}


TWELVE = ["a" * 24 + f"{i:02}" for i in range(12)]
EXAMPLES = [
    # spec 08 §4.11 A, B, D, E
    (
        "btree", "STRING", {}, [f"name-{i}" for i in (1, 2, 3, 4)],
        "066e616d652d3102 0100 066e616d652d3202 0101 066e616d652d3302 0102 066e616d652d3402 0103 0a00000000 0097ae9d07"
        "066e616d652d34 02002d 0a00000000 006e038cf5" + "00" * 20 + "32000000000000000f000000" + "00" * 12 + "0100000049544250",
        "06000000 6e616d652d31 06000000 6e616d652d34 00 01 00",
    ),
    (
        "btree", "INT", {}, [7, -1, 7, None],
        "04ffffffff020101 0407000000030200 02 00000000 08000000 02000000 01 00 a1c33428"
        "0100000000000000 00000000 3a300000 01000000 0000 0000 10000000 0300 b3e702d1 0407000000 02 00 1e 08000000 00 00 fcbd2040"
        + "00" * 20 + "4500000000000000 0d000000 2300000000000000 1e000000 01000000 49544250",
        "04000000ffffffff0400000007000000010100",
    ),
    (
        "btree", "STRING", {}, [None] * 3,
        "0100000000000000000000003a3000000100000000000200100000000000010002005b91e9a1000000000100e290d9a8" + "00" * 20
        + "26000000000000000500000000000000000000002200000001000000 49544250",
        "0000000000000000010103",
    ),
    (
        "btree", "STRING", {"btree-index.compression": "zstd"}, TWELVE,
        "ed0228b52ffd0048cd0200c4031a6130300201001a6130310201013202010233020103340201043502010536020106370201073802010839020109313002010a3102"
        "010b1e000000000c00c0d66021c026c026c026c026c026c026c02641d91ad4a6065801949e486b2328b52ffd0048950000601a6131310200641e00000000010035c0"
        "0201c8bc5e71" + "00" * 20 + "69000000000000001c000000" + "00" * 12 + "0100000049544250",
        None,
    ),
    # spec 08 §7.7 A, B
    (
        "bitmap", "STRING", {}, ["odd", "even", "odd", "even"],
        "0100000000000000000000003a300000010000000000010010000000010003000100000000000000000000003a300000010000000000010010000000000002000204"
        "6576656e0020036f64642020005268fc1400000000000000000100000000000000000000003b300000010000030001000000030001046576656e400e00ca5bff1500"
        "0000000000005300000008000000000000005b0000001b000000000000007600000008000000020000000142474958",
        None,
    ),
    (
        "bitmap", "INT", {"maintain.bitmap-peer-blocks": "off"}, [7, -1, 7, None],
        "0100000000000000000000003a30000001000000000000001000000001000100000000000000000000003a300000010000000000010010000000000002000204ffff"
        "ffff001e04070000001e2000228ef0690100000000000000000000003a30000001000000000000001000000003000100000000000000000000003a30000001000000"
        "00000200100000000000010002000104ffffffff3e0f00c3fac6be00000000000000520000001e000000000000007000000022000000000000009200000008000000"
        "020000000142474958",
        "04000000ffffffff0400000007000000010100",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "given_options", "column", "expected", "meta"), EXAMPLES)
def test_examples_of_the_specification(
    name: str, text: str, given_options: dict[str, str], column: list[Any], expected: str | None, meta: str | None
) -> None:
    built = build(definition(name, text, given_options), column)
    if expected is not None:
        assert content(built).hex() == expected.replace(" ", "")
    if meta is not None:
        assert built.index_meta == bytes.fromhex(meta)
    assert built.row_count == len(column)


def test_example_of_two_blocks() -> None:
    # spec 08 §4.11 C: the ids 0, 1 and 200, 3, 4, 5 of 201 rows
    column: list[Any] = ["zzz"] * 201
    for key, ids in {"a": [0], "bb": [1, 200], "ccc": [3], "dddd": [4], "eeeee": [5]}.items():
        for ordinal in ids:
            column[ordinal] = key
    entries = [(key, ids) for key, ids in grouped(column, type_("STRING"))[0] if key != b"zzz"]
    assert reference_btree(entries, [], 40).hex() == (
        "0161020100026262040201c80103636363020103046464646402010400000000050000000d0000001400000004000000010001d13f01056565656565020105090000"
        "000000448d21ce046464646402003105656565656502360e0000000008000000020000000100026cfb68000000000000000000000000000000000000000049000000"
        "000000001e0000000000000000000000000000000100000049544250"
    )
    index = definition("btree", "STRING", {"btree-index.block-size": "40 b"})
    assert content(build(index, column)) == reference_btree(*grouped(column, type_("STRING")), 40)


@pytest.mark.parametrize("name", ["btree", "bitmap"])
@given(column=COLUMNS, block_size=BLOCK_SIZES, compression=st.sampled_from(["none", "none", "zstd", "lz4"]))
def test_bytes_equal_those_of_a_row_by_row_writer(name: str, column: tuple[DataType, list[Any]], block_size: int, compression: str) -> None:
    data_type, rows = column
    built = build(definition(name, data_type, options(name, block_size, compression)), rows)
    entries, nulls = grouped(rows, data_type)
    assert content(built) == REFERENCES[name](entries, nulls, block_size, compression)
    meta = index_meta.decode(built.index_meta)
    assert meta.has_nulls == bool(nulls)
    assert (meta.first_key, meta.last_key) == ((entries[0][0], entries[-1][0]) if entries else (None, None))


@pytest.mark.parametrize("name", ["btree", "bitmap"])
@pytest.mark.usefixtures("few_rows_per_batch")
@pytest.mark.parametrize("block_size", [1, 40, 500])
def test_batches_leave_no_trace(name: str, block_size: int) -> None:
    random = np.random.default_rng(block_size)
    for distinct in (1, 5, 60, 1000):
        for text in ("INT", "STRING", "DECIMAL(38, 0)", "TIMESTAMP(6)"):
            numbers = random.integers(0, distinct, 120).tolist()
            make = {"STRING": lambda n: f"key {n}", "TIMESTAMP(6)": lambda n: n * 1000}.get(text, int)
            rows = [None if i % 11 == 3 else Decimal(n) if "DEC" in text else make(n) for i, n in enumerate(numbers)]
            built = build(definition(name, text, options(name, block_size)), rows)
            assert content(built) == REFERENCES[name](*grouped(rows, type_(text)), block_size)


@pytest.mark.parametrize("name", ["btree", "bitmap"])
@pytest.mark.usefixtures("few_rows_per_batch")
@pytest.mark.parametrize("seed", range(8))
def test_texts_that_repeat_in_some_chunks_leave_no_trace(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    chunks: list[list[str | None]] = []
    for _ in range(random.integers(1, 8)):
        distinct, size = int(random.choice([1, 2, 3, 1000])), int(random.integers(0, 40))
        texts: list[str | None] = [f"text {number}" for number in random.integers(0, distinct, size)]
        chunks.append([None if random.random() < 0.1 else text for text in texts])
    chunks.append(["text 1"])
    rows = [text for chunk in chunks for text in chunk]
    built = build_arrays([pa.array(chunk, pa.string()) for chunk in chunks], definition(name, "STRING", options(name, 40)), len(rows))
    assert content(built) == REFERENCES[name](*grouped(rows, type_("STRING")), 40)


def test_a_long_text_that_repeats_is_held_once() -> None:
    chunk = pa.array([f"{'x' * 1000}{row % 3}" for row in range(10_000)])
    column = column_sort.Column(type_("STRING"))
    for start in range(0, 50_000, 10_000):
        column.add(column_sort.Pairs(chunk, range(start, start + 10_000)))
    assert column.memory < 50_000 * 60
    assert column_sort.SortedColumn(column).distinct == 3


@pytest.mark.parametrize("name", ["btree", "bitmap"])
def test_columns_come_in_any_chunks(name: str) -> None:
    index = definition(name, "STRING")
    whole = ["b", None, "a", "b", None, "c", "a"]
    expected = content(build(index, whole))
    parts = [arrow(whole[:2], "STRING"), arrow([], "STRING"), arrow(whole[2:], "STRING")]
    for column in (parts, iter(parts), [arrow(whole, "STRING").dictionary_encode()]):
        assert content(build_arrays(column, index, 7)) == expected


@pytest.mark.parametrize("name", ["btree", "bitmap"])
def test_a_wrong_number_of_rows_fails_the_build(name: str) -> None:
    with pytest.raises(MaintainerError, match="hold 2 rows instead of the 3"):
        build_arrays([arrow([1, 2], "INT")], definition(name, "INT"), 3)
    with pytest.raises(MaintainerError, match="at least one row"):
        build_arrays([], definition(name, "INT"), 0)


@pytest.mark.parametrize("name", ["btree", "bitmap"])
def test_types_without_keys_are_refused(name: str) -> None:
    with pytest.raises(Unsupported, match="not supported by global index"):
        build_arrays([pa.array([b"a"])], definition(name, "BYTES"), 1)


def test_unknown_families_are_refused() -> None:
    for name in ("vector", "nothing"):
        with pytest.raises(Unsupported, match=name):
            family.family(name)


@pytest.mark.parametrize("name", ["btree", "bitmap"])
def test_zeros_and_nans(name: str) -> None:
    rows = [0.0, -0.0, math.nan, -math.inf, -math.nan, math.inf, None]
    index = definition(name, "DOUBLE")
    built = build(index, rows)
    entries = [(key, list(ids)) for key, ids in open_payload(content(built), index, built.index_meta, 7).entries()]
    assert [ids for _, ids in entries] == [[3], [1], [0], [5], [2, 4]]


def test_milliseconds_of_a_finer_column_are_grouped() -> None:
    column = pa.array([1_999, 1_000, -1, 2_000], pa.timestamp("us"))
    for name in ("btree", "bitmap"):
        index = definition(name, "TIMESTAMP(3)")
        built = build_arrays([column], index, 4)
        entries = [list(ids) for _, ids in open_payload(content(built), index, built.index_meta, 4).entries()]
        assert entries == [[2], [0, 1], [3]]


@pytest.mark.parametrize(("asked", "written"), [("LZ4", "lz4"), ("lzo", "zstd"), ("ZSTD", "zstd")])
def test_compressions_have_any_case_and_lzo_becomes_zstd(asked: str, written: str) -> None:
    rows = ["a" * 50 + str(i % 10) for i in range(100)]
    entries, nulls = grouped(rows, type_("STRING"))
    for name in ("btree", "bitmap"):
        built = build(definition(name, "STRING", options(name, 16 << 10, asked)), rows)
        assert content(built) == REFERENCES[name](entries, nulls, 16 << 10, written)


PEER_TYPES = {"INT": [-1, 0, 1, 256], "STRING": ["a", "b", "é"], "BOOLEAN": [True, False], "TINYINT": [0, 1, 2], "SMALLINT": [1, 256]}


@pytest.mark.parametrize("text", PEER_TYPES)
def test_one_entry_per_block_only_where_orders_differ(text: str) -> None:
    rows = PEER_TYPES[text]
    entries, nulls = grouped(rows, type_(text))
    differs = [key for key, _ in entries] != sorted(key for key, _ in entries)
    assert differs == (text in ("INT", "SMALLINT"))
    expected = reference_bitmap(entries, nulls, 1 if differs else 16384)
    assert content(build(definition("bitmap", text), rows)) == expected
    assert content(build(definition("bitmap", text, {"maintain.bitmap-peer-blocks": "off"}), rows)) == reference_bitmap(entries, nulls)


def test_too_many_keys_for_peers_stay_in_normal_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(range(255, 259))
    monkeypatch.setattr(bitmap, "MAX_PEER_KEYS", 3)
    assert content(build(definition("bitmap", "INT"), rows)) == reference_bitmap(*grouped(rows, type_("INT")))


def test_ids_above_four_bytes_of_varint() -> None:
    rows: list[Any] = [None] * 2_200_000
    rows[-1], rows[0] = 5, 6
    index = definition("btree", "INT")
    built = build(index, rows)
    assert ask(built, index, Leaf(Op.EQ, "c", (5,))) == [2_199_999]
    assert ask(built, index, Leaf(Op.IS_NOT_NULL, "c")) == [0, 2_199_999]
