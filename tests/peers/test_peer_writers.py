"""Tables whose level-0 files pypaimon, pypaimon-rust, Java and our own writer append in turn, maintained by us between the commits.

After each pass every reader that is here returns the rows of a dict model. pypaimon writes deletes through the dynamic option `rowkind.field`
(its table keeps a plain string column `op`), Java and we write real deletes, pypaimon-rust only upserts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.data.arrow_types import value_schema
from maintainer.data.values import json_rows, to_arrow_array
from maintainer.model.schema import TableSchema
from tests.peers import readers
from tests.peers.test_java_tables import judge
from tests.support.campaign import share

Batch = tuple[list[tuple[Any, ...]], list[str]]
"""Rows of internal values, and the kind of each (+I or -D)."""

SHAPES: dict[str, dict[str, Any]] = {
    "int key, one bucket, both families": {
        "fields": [("id", "INT NOT NULL"), ("name", "STRING"), ("n", "BIGINT"), ("op", "STRING")],
        "keys": ["id"],
        "options": {"bucket": "1", "pk-btree.index.columns": "name", "pk-bitmap.index.columns": "n"},
    },
    "composite key, partitions, three buckets": {
        "fields": [
            ("p", "STRING NOT NULL"), ("b", "STRING NOT NULL"), ("a", "BIGINT NOT NULL"), ("d", "DATE"), ("x", "DECIMAL(10, 2)"),
            ("op", "STRING"),
        ],
        "partitions": ["p"],
        "keys": ["p", "a", "b"],
        "options": {"bucket": "3", "bucket-key": "a", "pk-btree.index.columns": "d,x"},
    },
    "string key, nested values, many small files": {
        "fields": [("k", "STRING NOT NULL"), ("t", "TIMESTAMP(6)"), ("l", "ARRAY<INT>"), ("f", "DOUBLE"), ("y", "BOOLEAN"), ("op", "STRING")],
        "keys": ["k"],
        "options": {
            "bucket": "2", "num-sorted-run.compaction-trigger": "3", "target-file-size": "8 kb", "pk-btree.index.columns": "t",
            "pk-bitmap.index.columns": "y", "pk-multivalue.index.columns": "l",
        },
    },
    "64-bit deletion vectors": {
        "fields": [("id", "BIGINT NOT NULL"), ("v", "STRING"), ("op", "STRING")],
        "keys": ["id"],
        "options": {"bucket": "1", "deletion-vectors.bitmap64": "true", "pk-bitmap.index.columns": "v"},
    },
}  # fmt: skip
ROUNDS = share("peer writers: rounds a table", short=6, long=40)
SEEDS = share("peer writers: seeds a shape", short=1, long=12)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("shape", SHAPES)
def test_files_of_every_writer_are_compacted_right(shape: str, seed: int, tmp_path: Path) -> None:
    random = Random(f"{shape}/{seed}")
    form = SHAPES[shape]
    directory = tmp_path / "db.db" / "t"
    options = {"deletion-vectors.enabled": "true", "write-only": "true", **form["options"]}
    definition = {
        "fields": [{"name": name, "type": text} for name, text in form["fields"]],
        "partitionKeys": form.get("partitions", []),
        "primaryKeys": form["keys"],
        "options": options,
    }
    schema = maintainer.create_table(str(directory), definition).schema
    model: dict[str, list[Any]] = {}
    seen = readers.bag([])
    for round_ in range(ROUNDS):
        writer = random.choice(list(WRITERS))
        batch = random_batch(random, schema, deletes=writer != "pypaimon-rust")
        WRITERS[writer](directory, schema, batch)
        apply(model, schema, batch)
        context = f"{shape}, seed {seed}, round {round_} by {writer}"
        judge(directory, seen, f"before the pass: {context}")
        if random.random() < 0.7:
            report = maintainer.open_table(str(directory)).maintain(full=random.random() < 0.2)
            assert report.outcome == "committed", (report, context)
            seen = readers.bag(model.values())
            judge(directory, seen, f"after the pass: {context}")
    maintainer.open_table(str(directory)).maintain()
    judge(directory, readers.bag(model.values()), f"at the end: {shape}, seed {seed}")
    verified = maintainer.open_table(str(directory)).verify()
    assert verified.ok, verified.problems


def random_batch(random: Random, schema: TableSchema, *, deletes: bool) -> Batch:
    """Up to 200 rows over few keys, later ones updating or deleting earlier ones of the same batch too."""
    count = random.choice([1, 5, 40, 200])
    kinds = ["-D" if deletes and random.random() < 0.25 else "+I" for _ in range(count)]
    rows = [tuple(_value(random, str(field.type), field.name, kind) for field in schema.fields) for kind in kinds]
    return rows, kinds


def _value(random: Random, text: str, name: str, kind: str) -> Any:
    if name == "op":
        return kind
    number = random.randrange(60)
    match text.removesuffix(" NOT NULL"):
        case _ if not text.endswith("NOT NULL") and random.random() < 0.1:
            return None
        case "INT" | "BIGINT":
            return (number - 10) * 7
        case "STRING" if name == "p":
            return random.choice(["x", "y", "Größe 1"])
        case "STRING":
            return f"s-{number}"
        case "DATE":
            return 19_000 + number
        case "DECIMAL(10, 2)":
            from decimal import Decimal

            return Decimal(number * 101 - 777).scaleb(-2)
        case "TIMESTAMP(6)":
            return (1_700_000_000_000_000 + number * 1_234_567) * 1000
        case "ARRAY<INT>":
            return [number, None, 3][: random.randrange(4)]
        case "DOUBLE":
            return number / 4
        case "BOOLEAN":
            return number % 2 == 0
    raise AssertionError(text)


def to_arrow(schema: TableSchema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [to_arrow_array([row[i] for row in rows], field.type) for i, field in enumerate(schema.fields)]
    return pa.table(columns, schema=value_schema(schema.fields))


def as_json(schema: TableSchema, rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(row.values()) for row in json_rows(to_arrow(schema, rows), schema.fields)]


def apply(model: dict[str, list[Any]], schema: TableSchema, batch: Batch) -> None:
    at = [schema.names.index(name) for name in schema.primary_keys]
    for row, kind in zip(as_json(schema, batch[0]), batch[1], strict=True):
        key = json.dumps([row[i] for i in at])
        if kind == "-D":
            model.pop(key, None)
        else:
            model[key] = row


def write_ours(directory: Path, schema: TableSchema, batch: Batch) -> None:
    """Rows in order: runs of one kind, each as its own call."""
    rows, kinds = batch
    keys = list(schema.primary_keys)
    with maintainer.open_table(str(directory)).writer() as writer:
        start = 0
        for end in [i for i in range(1, len(rows)) if kinds[i] != kinds[i - 1]] + [len(rows)]:
            part = to_arrow(schema, rows[start:end])
            if kinds[start] == "-D":
                writer.delete(part.select(keys))
            else:
                writer.write(part)
            start = end


def write_pypaimon(directory: Path, schema: TableSchema, batch: Batch) -> None:
    table = readers.pypaimon_table(directory).copy({"rowkind.field": "op"})
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(to_arrow(schema, batch[0]))
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()


def write_rust(directory: Path, schema: TableSchema, batch: Batch) -> None:
    from pypaimon_rust.datafusion import PaimonCatalog

    catalog = PaimonCatalog({"warehouse": str(directory.parent.parent)})
    builder = catalog.get_table(f"{directory.parent.name.removesuffix('.db')}.{directory.name}").new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    for part in to_arrow(schema, batch[0]).to_batches():
        write.write_arrow(part)
    commit.commit(write.prepare_commit())


def write_java(directory: Path, schema: TableSchema, batch: Batch) -> None:
    lines = [json.dumps({"kind": kind, "row": row}) for row, kind in zip(as_json(schema, batch[0]), batch[1], strict=True)]
    path = directory.parent.parent / "rows.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    readers.java().run("write", directory, path, "--write-only")


WRITERS: dict[str, Callable[[Path, TableSchema, Batch], None]] = {"ours": write_ours}
if readers.PYPAIMON_ABSENT is None:
    WRITERS["pypaimon"] = write_pypaimon
if readers.RUST_ABSENT is None:
    WRITERS["pypaimon-rust"] = write_rust
if readers.JAVA_ABSENT is None:
    WRITERS["java"] = write_java
