"""pypaimon 2.1 reads our payloads and answers as ours do; we read what it writes (spec 08 §8.5)."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from maintainer.model.predicate import Leaf, Op
from tests.support import peers
from tests.support.builders import type_
from tests.support.sorted_index import ask, build, content, definition, open_payload

pytestmark = pytest.mark.skipif(peers.absent("pypaimon") is not None, reason=f"pypaimon: {peers.absent('pypaimon')}")

EPOCH = datetime.datetime(1970, 1, 1)
DATE = datetime.date(1970, 1, 1)

# Type -> distinct values, smallest first; the peer's form of a value
COLUMNS: dict[str, list[Any]] = {
    "STRING": ["", "a", "a\x00", "ab", "é", "￿", "😀"],
    "VARCHAR(10)": ["x", "xyz", "y"],
    "BOOLEAN": [False, True],
    "TINYINT": [-128, -1, 0, 127],
    "SMALLINT": [-32768, -1, 0, 255, 256, 32767],
    "INT": [-(2**31), -256, -1, 0, 1, 255, 256, 65536, 2**31 - 1],
    "BIGINT": [-(2**63), -1, 0, 255, 256, 2**40, 2**63 - 1],
    "DATE": [-719162, -1, 0, 255, 256, 20000],
    "DECIMAL(10, 2)": [Decimal("-99.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("2.55"), Decimal("2.56")],
    "DECIMAL(38, 5)": [Decimal(-(10**30)), Decimal("-0.00001"), Decimal(0), Decimal("0.00255"), Decimal("0.00256"), Decimal(10**30)],
    "TIMESTAMP(3)": [-1_000_000, 0, 255_000_000, 256_000_000, 1_700_000_000_123_000_000],
    "TIMESTAMP(6)": [-1_000, 0, 1_000, 256_000_000, 1_700_000_000_123_456_000],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [-1_000, 0, 1_700_000_000_123_456_000],
    "DOUBLE": [float("-inf"), -1.5, 2.0**-40, 1.5, float("inf")],
}


def of_peer(value: Any, text: str) -> Any:
    if value is None:
        return None
    if text == "DATE":
        return DATE + datetime.timedelta(days=value)
    if text.startswith("TIMESTAMP"):
        return EPOCH + datetime.timedelta(microseconds=value // 1000)
    return value


def column_of(text: str) -> list[Any]:
    """Each value several times, in no order, with nulls."""
    pool = COLUMNS[text]
    return [None if i % 11 == 7 else pool[i * 5 % len(pool)] for i in range(60)]


def leaves(text: str) -> Iterator[Leaf]:
    pool = COLUMNS[text]
    for value in pool:
        yield from (Leaf(op, "c", (value,)) for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE))
    yield from (Leaf(op, "c", (pool[0], pool[-1])) for op in (Op.IN, Op.NOT_IN, Op.BETWEEN, Op.NOT_BETWEEN))
    yield from (Leaf(op, "c") for op in (Op.IS_NULL, Op.IS_NOT_NULL))


def names_of(family: str) -> tuple[Any, Any]:
    if family == "btree":
        from pypaimon.globalindex.btree.btree_index_writer import BTreeIndexWriter
        from pypaimon.globalindex.btree.lazy_filtered_btree_reader import LazyFilteredBTreeReader

        return LazyFilteredBTreeReader, BTreeIndexWriter
    from pypaimon.globalindex.bitmap.bitmap_index_writer import BitmapIndexWriter
    from pypaimon.globalindex.bitmap.lazy_filtered_bitmap_reader import LazyFilteredBitmapReader

    return LazyFilteredBitmapReader, BitmapIndexWriter


def serializer(text: str) -> Any:
    from pypaimon.globalindex.key_serializer import create_serializer
    from pypaimon.schema.data_types import DataTypeParser

    return create_serializer(DataTypeParser.parse_data_type(str(type_(text))))


def file_io() -> Any:
    from pypaimon.common.options.options import Options
    from pypaimon.filesystem.local_file_io import LocalFileIO

    return LocalFileIO("file:///", Options({}))


class Peer:
    """The peer's reader of one payload."""

    def __init__(self, family: str, text: str, directory: Path, data: bytes, meta: bytes) -> None:
        from pypaimon.globalindex.global_index_meta import GlobalIndexIOMeta
        from pypaimon.globalindex.global_index_reader import FieldRef

        (directory / "payload").write_bytes(data)
        self.text = text
        self.field = FieldRef(0, "c", str(type_(text)))
        self.pool = ThreadPoolExecutor(1)
        reader = names_of(family)[0]
        self.reader = reader(serializer(text), file_io(), str(directory), [GlobalIndexIOMeta("payload", len(data), meta)], self.pool, 2**40)

    def ask(self, leaf: Leaf) -> list[int] | None:
        peers.asked["pypaimon"] += 1
        literals = [of_peer(value, self.text) for value in leaf.literals]
        names = {
            Op.EQ: "equal", Op.NE: "not_equal", Op.LT: "less_than", Op.LE: "less_or_equal", Op.GT: "greater_than", Op.GE: "greater_or_equal",
            Op.IN: "in", Op.NOT_IN: "not_in", Op.BETWEEN: "between", Op.NOT_BETWEEN: "not_between", Op.IS_NULL: "is_null",
            Op.IS_NOT_NULL: "is_not_null",
        }  # fmt: skip
        visit = getattr(self.reader, f"visit_{names[leaf.op]}")
        found = visit(self.field, literals) if leaf.op in (Op.IN, Op.NOT_IN) else visit(self.field, *literals)
        result = found.result(timeout=20)
        return None if result is None else sorted(result.results())


@pytest.mark.parametrize("family", ["btree", "bitmap"])
@pytest.mark.parametrize("text", COLUMNS)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_pypaimon_answers_from_our_payloads_as_we_do(family: str, text: str, compression: str, tmp_path: Path) -> None:
    index = definition(family, text, {f"{family}-index.compression": compression, "btree-index.block-size": "60 b"})
    column = column_of(text)
    built = build(index, column)
    peer = Peer(family, text, tmp_path, content(built), built.index_meta)
    for leaf in leaves(text):
        assert peer.ask(leaf) == ask(built, index, leaf), leaf


def test_java_order_alone_makes_pypaimon_lose_rows(tmp_path: Path) -> None:
    """Why there is one entry per dictionary block by default."""
    index = definition("bitmap", "INT", {"maintain.bitmap-peer-blocks": "off"})
    built = build(index, column_of("INT"))
    peer = Peer("bitmap", "INT", tmp_path, content(built), built.index_meta)
    assert any(peer.ask(leaf) != ask(built, index, leaf) for leaf in leaves("INT") if leaf.op is Op.EQ)


@pytest.mark.parametrize("family", ["btree", "bitmap"])
@pytest.mark.parametrize("text", COLUMNS)
def test_payloads_of_pypaimon_are_read(family: str, text: str, tmp_path: Path) -> None:
    column = column_of(text)
    options = {"bitmap": {"dictionary_block_size": 40}, "btree": {"block_size": 60}}[family]
    writer = names_of(family)[1](file_io(), str(tmp_path), serializer(text), **options)
    order = {value: rank for rank, value in enumerate(COLUMNS[text])}
    rows = sorted((value is not None, order.get(value, 0), i) for i, value in enumerate(column))
    for _, _, ordinal in rows:
        writer.write(of_peer(column[ordinal], text), ordinal)
    (result,) = writer.finish()
    data = (tmp_path / result.file_name).read_bytes()
    index = definition(family, text)
    built = build(index, column)
    for leaf in leaves(text):
        found = open_payload(data, index, result.meta, len(column)).evaluate(leaf)
        assert found is not None
        assert list(found) == ask(built, index, leaf), leaf
    assert open_payload(data, index, result.meta, len(column)).verify() == []


def test_bloom_filters_of_pypaimon_are_no_hindrance(tmp_path: Path) -> None:
    writer = names_of("btree")[1](file_io(), str(tmp_path), serializer("STRING"), block_size=60, bloom_filter_enabled=True)
    for ordinal in range(30):
        writer.write(f"key-{ordinal:02}", ordinal)
    (result,) = writer.finish()
    data = (tmp_path / result.file_name).read_bytes()
    index = definition("btree", "STRING")
    assert list(open_payload(data, index, result.meta, 30).evaluate(Leaf(Op.EQ, "c", ("key-17",)))) == [17]
