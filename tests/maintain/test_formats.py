"""Tables of every format, of formats by level, and of formats that change: written, indexed, compacted, looked up in and verified."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.format import data_formats
from tests.support.evolve import set_options

FORMATS = sorted(data_formats.CODECS)
COLUMNS = [
    {"name": "id", "type": "BIGINT"},
    {"name": "city", "type": "STRING"},
    {"name": "price", "type": "DECIMAL(9, 2)"},
    {"name": "at", "type": "TIMESTAMP(6)"},
    {"name": "tags", "type": "ARRAY<STRING>"},
]
TYPES = [pa.int64(), pa.string(), pa.decimal128(9, 2), pa.timestamp("us"), pa.list_(pa.string())]
ROUNDS = 5
KEYS = 600

LAYOUTS: Mapping[str, list[dict[str, str]]] = {
    **{file_format: [{"file.format": file_format}] for file_format in FORMATS},
    **{f"thin {file_format}": [{"file.format": file_format, "data-file.thin-mode": "true"}] for file_format in FORMATS},
    "by level": [{"file.format.per.level": "0:avro,2:parquet", "file.format": "avro", "file.compression.per.level": "0:snappy"}],
    "changing": [
        *({"file.format": file_format, "data-file.thin-mode": thin} for file_format in FORMATS for thin in ("false", "true")),
    ],
}
"""Name -> options of one round after another."""
KINDS: Mapping[str, dict[str, str]] = {
    "deletion vectors": {"deletion-vectors.enabled": "true", "pk-btree.index.columns": "city,price", "pk-bitmap.index.columns": "at"},
    "merging": {},
    "full compaction changelog": {"changelog-producer": "full-compaction"},
    "lookup changelog": {"changelog-producer": "lookup", "changelog-file.format": "avro", "changelog-file.compression": "deflate"},
}

Row = tuple[Any, ...]


def some_rows(chance: random.Random) -> dict[int, Row]:
    return {
        key: (
            key,
            chance.choice(["Ulm", "Jena", None, "x" * 300]),
            chance.choice([None, Decimal(chance.randrange(10**6)).scaleb(-2)]),
            chance.choice([None, chance.randrange(10**12)]),
            chance.choice([None, [], ["a", None], ["b"]]),
        )
        for key in chance.sample(range(KEYS), KEYS // 4)
    }


def arrow(rows: list[Row]) -> pa.Table:
    columns = [pa.array(list(values), kind) for values, kind in zip(zip(*rows, strict=True), TYPES, strict=True)]
    return pa.table(columns, names=[column["name"] for column in COLUMNS])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_tables_of_every_format(layout: str, kind: str, tmp_path: Path) -> None:
    steps = LAYOUTS[layout]
    chance = random.Random(f"{layout} {kind}")
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "2", **KINDS[kind], **steps[0]}
    maintainer.create_table(str(tmp_path / "t"), {"fields": COLUMNS, "primaryKeys": ["id"], "options": options})
    expected: dict[int, Row] = {}
    extensions = set()
    for step in range(ROUNDS):
        if step and len(steps) > 1:
            set_options(str(tmp_path / "t"), **steps[step % len(steps)])
        table = maintainer.open_table(str(tmp_path / "t"))
        rows = some_rows(chance)
        gone = chance.sample(sorted(expected), min(20, len(expected)))
        with table.writer() as writer:
            writer.write(arrow(list(rows.values())))
            if gone:
                writer.delete(pa.table({"id": pa.array(gone, pa.int64())}))
        expected |= rows
        for key in gone:
            expected.pop(key)
        report = table.maintain(full=step == ROUNDS - 1)
        assert report.outcome in ("committed", "nothing"), report
        table = maintainer.open_table(str(tmp_path / "t"))
        if kind == "deletion vectors" or step == ROUNDS - 1:
            found = table.scan().to_arrow().sort_by("id")
            assert found == arrow([expected[key] for key in sorted(expected)]).cast(found.schema)
            few = table.scan("city = 'Ulm' AND price IS NOT NULL").to_arrow()
            assert sorted(few["id"].to_pylist()) == sorted(key for key, row in expected.items() if row[1] == "Ulm" and row[2] is not None)
        verified = table.verify(deep=True)
        assert verified.ok, verified.problems
        extensions |= {path.suffix for path in (tmp_path / "t" / "bucket-0").glob("data-*")}
        assert all(definition.ratio == 1.0 for definition in table.coverage().definitions)
    formats = {step.get("file.format", "parquet") for step in steps} if layout != "by level" else {"avro", "parquet"}
    assert extensions == {f".{file_format}" for file_format in formats}
    if kind == "lookup changelog":
        assert list((tmp_path / "t" / "bucket-0").glob("changelog-*.avro"))
