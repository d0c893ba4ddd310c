"""Full compactions of 5 runs; the yardstick is pyarrow, which decodes the same files and encodes their rows with the same writer settings.

    compaction.full.*     deduplicate, BIGINT key, 35 % of the rows replaced by newer ones, five value columns; `….process_cpu` is that of the
                          whole processes: `maintainer compact --full`, and Python with pyarrow
    compaction.<case>.*   other keys, without duplicates, other engines

CPU is what a process uses in all its threads for the work, after the modules are imported; each side runs in processes of its own, in turns,
and the best of the rounds counts.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tables
from rounds import CHILD, COMMAND, ROUNDS, Measurement, run
from tables import Shape

import maintainer
from maintainer.data.encoding import writer_options
from maintainer.data.writer import GROUP_ROWS

RUNS = 5
BIG = Shape(RUNS, 440_000, 2_030_000)
"""5 times 440,000 of 2.03 million keys: 35 % of the rows have a newer version in another run."""
ROWS, KEYS = 200_000, 923_000
PLAIN = {"deletion-vectors.enabled": "false"}
FUNCTIONS = {"amount": "sum", "price": "max", "name": "last_non_null_value", "state": "last_non_null_value", "changed": "max"}
AGGREGATION = {**PLAIN, "merge-engine": "aggregation", **{f"fields.{name}.aggregate-function": what for name, what in FUNCTIONS.items()}}
CASES = {
    "full": (BIG, 1.2),
    "text": (Shape(RUNS, ROWS, KEYS, key="text"), 1.6),
    "composite": (Shape(RUNS, ROWS, KEYS, key="composite"), 1.6),
    "distinct_int64": (Shape(RUNS, ROWS, KEYS, distinct=True), 1.5),
    "distinct_text": (Shape(RUNS, ROWS, KEYS, key="text", distinct=True), 1.7),
    "distinct_composite": (Shape(RUNS, ROWS, KEYS, key="composite", distinct=True), 1.7),
    "partial_update": (Shape(RUNS, ROWS, KEYS, options={**PLAIN, "merge-engine": "partial-update"}), 2.0),
    "aggregation": (Shape(RUNS, ROWS, KEYS, options=AGGREGATION), 2.0),
}


def measure(directory: Path) -> Iterator[Measurement]:
    for case, (shape, limit) in CASES.items():
        yield from _case(directory / "bench.db", case, shape, limit)


def _case(database: Path, case: str, shape: Shape, limit: float) -> Iterator[Measurement]:
    table, warm = database / case, database / f"{case}_warm"
    tables.write(table, shape)
    tables.write(warm, Shape(RUNS, 1000, 3000, shape.key, shape.distinct, shape.options))
    commands = {"ours": [*CHILD, "compact", str(warm)], "theirs": [*CHILD, "recode"]}
    if case == "full":
        commands["process"] = [COMMAND, "compact", "--full"]
    said: dict[str, list[float]] = {name: [] for name in commands}
    whole: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(ROUNDS):
        for name, command in commands.items():
            copy = database / f"{case}_{number}"
            shutil.copytree(table, copy)
            words, cpu = run([*command, str(copy)])
            shutil.rmtree(copy)
            whole[name].append(cpu)
            said[name].append(0.0 if name == "process" else float(words))
    ours, theirs = min(said["ours"]), min(said["theirs"])
    size = sum(path.stat().st_size for path in table.glob("bucket-0/*"))
    yield f"compaction.{case}.cpu", ours, "s", theirs, False
    yield f"compaction.{case}.cpu_ratio", ours / theirs, "x", limit, True
    yield f"compaction.{case}.mb_per_cpu_second", size / 1e6 / ours, "MB/s", size / 1e6 / theirs, False
    rows = shape.runs * shape.rows
    yield f"compaction.{case}.rows_per_cpu_second", rows / ours, "1/s", rows / theirs, False
    if "process" in whole:
        yield f"compaction.{case}.process_cpu", min(whole["process"]), "s", min(whole["theirs"]), False
    shutil.rmtree(table)


def compact(warm: str, table: str) -> float:
    """CPU seconds of a full compaction."""
    maintainer.open_table(warm).maintain(full=True)
    opened = maintainer.open_table(table)
    start = time.process_time()
    report = opened.maintain(full=True)
    spent = time.process_time() - start
    if report.outcome != "committed" or report.input_files != RUNS:
        raise SystemExit(f"the compaction did not do what it should: {report}")
    return spent


def recode(table: str) -> float:
    """CPU seconds of pyarrow for decoding and encoding all rows of the data files of a table."""
    files = sorted(Path(table).glob("bucket-0/*.parquet"))
    start = time.process_time()
    for path in files:
        source = pq.ParquetFile(path)
        options = writer_options(pa.Table.from_batches([next(source.iter_batches(GROUP_ROWS))]), "zstd", 1)
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, source.schema_arrow, **options) as writer:
            for batch in source.iter_batches(GROUP_ROWS, use_threads=False):
                writer.write_batch(batch, row_group_size=GROUP_ROWS)
    return time.process_time() - start


CHILDREN = {"compact": compact, "recode": recode}
