"""Bounds of stripes: they enclose what is in the stripe, and stripes that they rule out are not read."""

from __future__ import annotations

import io
import math
import random
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as arrow_orc
import pytest

from maintainer.data.orc_bounds import bounds
from maintainer.data.reader import DataFile, open_data_file
from maintainer.data.values import from_arrow
from maintainer.errors import CorruptFile, MaintainerError
from maintainer.format.protobuf import Message, encode
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.types import TypeRoot
from maintainer.model.values import order_keys
from maintainer.storage.ranges import RangeInput
from maintainer.storage.storage import Storage
from tests.data.test_java_files import case_of, parquet_files
from tests.support import builders
from tests.support.campaign import share
from tests.support.data_files import open_file

ROUNDS = share("damaged statistics of ORC files", short=60, long=5_000)
ROWS, STRIPE = 30_000, 10_000
WORDS = ["", "a", "zebra", "\U0010ffff", "\x7f", "é", None]
COLUMNS: dict[str, tuple[str, Any]] = {
    "id": ("INT", pa.array(range(ROWS), pa.int32())),
    "i8": ("TINYINT", pa.array([i % 256 - 128 for i in range(ROWS)], pa.int8())),
    "i16": ("SMALLINT", pa.array([-i for i in range(ROWS)], pa.int16())),
    "i64": ("BIGINT", pa.array([(-1) ** i * (i << 48) for i in range(ROWS)], pa.int64())),
    "f": ("FLOAT", pa.array([[0.0, -0.0, 1.5, math.nan, None][i % 5] for i in range(ROWS)], pa.float32())),
    "d": ("DOUBLE", pa.array([-i / 3 for i in range(ROWS)])),
    "nan": ("DOUBLE", pa.array([math.nan] * ROWS)),
    "s": ("STRING", pa.array([WORDS[(i // 700 + i) % 7] for i in range(ROWS)])),
    "c": ("CHAR(3)", pa.array(["ab"] * ROWS)),
    "dec": ("DECIMAL(20, 3)", pa.array([Decimal(i - 1500) / 1000 for i in range(ROWS)], pa.decimal128(20, 3))),
    "dt": ("DATE", pa.array([i * 7 - 9000 for i in range(ROWS)], pa.int32()).cast(pa.date32())),
    "tm": ("TIME(3)", pa.array([i * 1000 for i in range(ROWS)], pa.int32())),
    "ts": ("TIMESTAMP(6)", pa.array([i * 86_400_000_000 for i in range(ROWS)], pa.timestamp("us"))),
    "by": ("BYTES", pa.array([b"x"] * ROWS)),
    "bo": ("BOOLEAN", pa.array([True] * ROWS)),
    "nu": ("INT", pa.nulls(ROWS, pa.int32())),
}
SCHEMA = builders.schema({name: text for name, (text, _) in COLUMNS.items()})
UNBOUNDED = {"nan", "c", "by", "bo", "nu"}


def content() -> bytes:
    sink = io.BytesIO()
    table = pa.table({name: column for name, (_, column) in COLUMNS.items()})
    arrow_orc.write_table(table, sink, compression="zstd", stripe_size=1, batch_size=STRIPE)
    return sink.getvalue()


def stored(storage: Storage, data: bytes) -> DataFileMeta:
    storage.write("bucket-0/data-1.orc", data)
    return builders.file_meta("data-1.orc", rows=ROWS, size=len(data))


def check_bounds(data: DataFile, schema: TableSchema) -> set[str]:
    """The columns with bounds; in every stripe all values are between them."""
    found = set()
    for field in schema.fields:
        for group, bound in enumerate(data.group_bounds(field.name)):
            if bound is None:
                continue
            found.add(field.name)
            values = [value for value in from_arrow(data.read([field.name], [group])[field.name], field.type) if value is not None]
            keys = order_keys([*values, *bound])
            assert all(keys[-2] <= key <= keys[-1] for key in keys), (field.name, bound)
    return found


def test_bounds_of_stripes_enclose_their_values(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    with open_file(storage, stored(storage, content()), SCHEMA) as data:
        assert len(data.row_groups) == 3
        assert check_bounds(data, SCHEMA) == set(COLUMNS) - UNBOUNDED
        assert data.group_bounds("id") == [(0, 9_999), (10_000, 19_999), (20_000, 29_999)]
        assert data.group_bounds("id", [2, 0]) == [(20_000, 29_999), (0, 9_999)]
        assert data.group_bounds("dec")[1] == (Decimal("8.500"), Decimal("18.499"))
        assert data.group_bounds("f")[0] == (-0.0, pytest.approx(math.nan, nan_ok=True))
        low, high = data.group_bounds("ts")[0] or (0, 0)
        assert low <= 0 and 9_999 * 86_400 * 10**9 <= high <= 10_001 * 86_400 * 10**9


@pytest.mark.parametrize("archive", ["types_orc.after", "nested_orc.after", "per_level_format.after"])
def test_bounds_of_files_that_java_wrote_enclose_their_values(archive: str) -> None:
    case = case_of(archive)
    bounded: set[str] = set()
    for entry, schema in parquet_files(case, (".orc",)):
        with open_data_file(case.storage, case.path(entry), entry.file, schema, schema) as data:
            bounded |= check_bounds(data, schema)
    roots = {field.type.root for field in case.latest_schema.fields if field.name in bounded}
    assert roots >= {TypeRoot.INT}
    if archive == "types_orc.after":
        expected = {TypeRoot.BIGINT, TypeRoot.VARCHAR, TypeRoot.DOUBLE, TypeRoot.DECIMAL, TypeRoot.DATE, TypeRoot.TIMESTAMP}
        assert roots >= expected and TypeRoot.CHAR not in roots


def test_stripes_are_asked_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a remote store: the end of the file, the footers of the wanted stripes, and their columns are a request each, or some at once."""
    chance = random.Random(1)
    texts = [f"{chance.getrandbits(80)}" for _ in range(300_000)]
    table = pa.table({"id": pa.array(range(300_000), pa.int32()), "s": texts, "x": texts})
    sink = io.BytesIO()
    arrow_orc.write_table(table, sink, compression="zstd", stripe_size=1, batch_size=50_000)
    data = sink.getvalue()
    assert len(data) > 2 << 20
    storage = Storage.open(f"memory://{uuid.uuid4()}/t")
    schema = builders.schema({"id": "INT", "s": "STRING", "x": "STRING"})
    storage.write("bucket-0/data-1.orc", data)
    meta = builders.file_meta("data-1.orc", rows=300_000, size=len(data))
    asked: list[list[tuple[int, int]]] = []
    monkeypatch.setattr(RangeInput, "__init__", spying(RangeInput.__init__, asked))
    with open_file(storage, meta, schema) as opened:
        known = opened.known
        asked.clear()
        assert opened.group_bounds("id", [0])
        statistics, asked[:] = list(asked), []
        found = [batch.num_rows for _, batch in opened.batches(["s"], 1 << 20, [0, 2, 4])]
        assert found == [50_000] * 3
        assert len(asked) == 2 and len(asked[0]) == 3, "the footers of three stripes, then their columns"
        columns = sum(end - start for start, end in asked[1])
    assert len(statistics) <= 1
    assert columns < len(data) / 3
    again = open_data_file(storage, "bucket-0/data-1.orc", meta, schema, schema)
    again.close()
    asked.clear()
    with type(again)(storage, "bucket-0/data-1.orc", meta, schema, schema, known) as opened:
        assert sum(batch.num_rows for _, batch in opened.batches(["s"], 1 << 20, [0, 2, 4])) == 150_000
    assert len(asked) == 1, "what is known is not read again"


def spying(plain: Any, asked: list[list[tuple[int, int]]]) -> Any:
    def init(self: RangeInput, fetch: Any, *rest: Any, **more: Any) -> None:
        plain(self, lambda spans: (asked.append(list(spans)), fetch(spans))[1], *rest, **more)

    return init


def test_damaged_statistics_are_corrupt_or_others(tmp_path: Path) -> None:
    storage, chance, refused = Storage.open(str(tmp_path)), random.Random(2), 0
    sink = io.BytesIO()
    table = pa.table({name: column for name, (_, column) in COLUMNS.items()})
    arrow_orc.write_table(table, sink, compression="uncompressed", stripe_size=1, batch_size=STRIPE)
    data = sink.getvalue()
    with open_file(storage, stored(storage, data), SCHEMA) as opened:
        start, length = opened._tail.metadata  # type: ignore[attr-defined]
    for number in range(ROUNDS):
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 1, 3])):
            damaged[start + chance.randrange(length)] = chance.choice([0, 8, 10, 127, 255, chance.randrange(256)])
        meta = builders.file_meta(f"data-x{number}.orc", rows=ROWS, size=len(data))
        storage.write(f"bucket-0/{meta.file_name}", damaged)
        try:
            with open_file(storage, meta, SCHEMA) as opened:
                for name in COLUMNS:
                    opened.group_bounds(name)
        except MaintainerError:
            refused += 1
        storage.delete(f"bucket-0/{meta.file_name}")
    assert refused


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("STRING", (4, encode((1, "a"), (5, "c"))), ("a", "c")),
        ("STRING", (4, encode((4, "a"), (5, "c"))), ("a", "c")),
        ("STRING", (4, encode((1, "a"))), None),
        ("STRING", (2, encode((1, 2), (2, 4))), None),
        ("INT", (2, encode((1, 3), (2, 4))), (-2, 2)),
        ("INT", (2, encode((1, 3))), None),
        ("DATE", (7, encode((1, 3), (2, 4))), (-2, 2)),
        ("DOUBLE", (3, encode((1, 3), (2, 4))), CorruptFile),
        ("DECIMAL(3, 1)", (6, encode((1, "-1.5"), (2, "2"))), (Decimal("-1.5"), Decimal(2))),
        ("DECIMAL(3, 1)", (6, encode((1, "NaN"), (2, "2"))), None),
        ("DECIMAL(3, 1)", (6, encode((1, "x"), (2, "2"))), CorruptFile),
        ("TIMESTAMP(3)", (9, encode((1, 2), (2, 4))), None),
        ("CHAR(3)", (4, encode((1, "a  "), (2, "b  "))), None),
    ],
)
def test_what_a_writer_says(text: str, fields: tuple[int, bytes], expected: Any) -> None:
    message = Message(encode((1, 5), fields))
    if expected is CorruptFile:
        with pytest.raises(CorruptFile):
            bounds(message, builders.type_(text))
    else:
        assert bounds(message, builders.type_(text)) == expected


def test_bounds_that_are_no_number_say_nothing() -> None:
    for low, high in ((math.nan, 1.0), (1.0, math.nan)):
        values = b"".join(bytes([field << 3 | 1]) + struct.pack("<d", value) for field, value in ((1, low), (2, high)))
        assert bounds(Message(encode((1, 5), (3, values))), builders.type_("DOUBLE")) is None
