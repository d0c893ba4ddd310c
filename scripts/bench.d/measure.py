"""The measurements of `scripts/bench`.

    compaction.*   full compaction of 5 runs, 2.2 million rows, BIGINT key, 35 % of the rows replaced by newer ones, five value columns; the
                   yardstick is pyarrow, which decodes the same files and encodes all their rows with the same writer settings
    pass.small     `maintainer once` over an indexed table with 5 small level-0 files, process start included
    help           `maintainer --help`

CPU is what a process uses in all its threads for the work, after the modules are imported; each side runs in processes of its own, in turns,
and the best of the rounds counts. `….process_cpu` is that of the whole processes: `maintainer compact --full`, and Python with pyarrow.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

import maintainer
from maintainer.data.encoding import writer_options
from maintainer.data.writer import GROUP_ROWS

RUNS, ROWS, KEYS = 5, 440_000, 2_030_000
"""5 times 440,000 of 2.03 million keys: 35 % of the rows have a newer version in another run."""
ROUNDS = 5
COMMAND = str(Path(sys.executable).with_name("maintainer"))
CHILD = [sys.executable, __file__, "--child"]

Measurement = tuple[str, float, str, float | None, bool]
"""name, value, unit, versus, whether `versus` is a limit."""


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a command that compiles its modules each time is not what users run
    if sys.argv[1:2] == ["--child"]:
        print(CHILDREN[sys.argv[2]](sys.argv[3]))
        return 0
    exceeded = False
    for prefix, measure in (("compaction", compaction), ("pass.small", small_pass), ("help", start_up)):
        if sys.argv[1:] and not any(prefix.startswith(wanted) or wanted.startswith(prefix) for wanted in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory(prefix="maintainer-bench-") as directory:
            for name, value, unit, versus, is_limit in measure(Path(directory)):
                print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, "versus": versus and round(versus, 3)}), flush=True)
                exceeded = exceeded or (is_limit and versus is not None and value > versus)
    return int(exceeded)


def compaction(directory: Path) -> Iterator[Measurement]:
    table = directory / "bench.db" / "orders"
    write_runs(table, RUNS, ROWS, KEYS)
    write_runs(directory / "bench.db" / "warm", RUNS, 1000, 3000)
    ours, our_processes, theirs, their_processes = [], [], [], []
    for number in range(ROUNDS):
        for spent, process, command in (
            (ours, None, [*CHILD, "compact"]),
            (None, our_processes, [COMMAND, "compact", "--full"]),
            (theirs, their_processes, [*CHILD, "recode"]),
        ):
            copy = directory / "bench.db" / f"orders_{number}"
            shutil.copytree(table, copy)
            said, cpu = run([*command, str(copy)])
            shutil.rmtree(copy)
            if spent is not None:
                spent.append(float(said))
            if process is not None:
                process.append(cpu)
    yield "compaction.full.cpu", min(ours), "s", min(theirs), False
    yield "compaction.full.cpu_ratio", min(ours) / min(theirs), "x", 1.25, True
    yield "compaction.full.process_cpu", min(our_processes), "s", min(their_processes), False
    yield "compaction.full.rows_per_cpu_second", RUNS * ROWS / min(ours), "1/s", RUNS * ROWS / min(theirs), False


def small_pass(directory: Path) -> Iterator[Measurement]:
    table = directory / "bench.db" / "small"
    indexes = "'pk-btree.index.columns'='amount', 'pk-bitmap.index.columns'='state', "
    write_runs(table, 5, 1000, 3000, indexes)
    copies = iter([shutil.copytree(table, directory / "bench.db" / f"small_{number}") for number in range(ROUNDS)])
    yield "pass.small.wall", best_wall(lambda: [COMMAND, "once", str(next(copies))]), "s", 1.0, True


def start_up(directory: Path) -> Iterator[Measurement]:
    yield "help.wall", best_wall(lambda: [COMMAND, "--help"]), "s", 0.3, True


def write_runs(uri: Path, runs: int, rows: int, keys: int, options: str = "") -> None:
    """A table of one bucket with this many level-0 files, each of that many rows with keys of a range."""
    table = maintainer.create_table(
        str(uri),
        "CREATE TABLE t (id BIGINT, amount INT, price DOUBLE, name STRING, state STRING, changed TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED) "
        f"WITH ({options}'bucket'='1', 'deletion-vectors.enabled'='true', 'write-only'='true')",
    )
    random = np.random.default_rng(7)
    states = np.array(["open", "paid", "shipped", "returned"])
    for run in range(runs):
        ids = np.sort(random.choice(keys, rows, replace=False))
        batch = {
            "id": ids,
            "amount": pa.array(random.integers(0, 100_000, rows), pa.int32()),
            "price": random.random(rows) * 1000,
            "name": pa.array(np.char.add("customer-", (ids * 7919 % keys).astype(str))),
            "state": pa.array(states[random.integers(0, len(states), rows)]),
            "changed": pa.array(1_750_000_000_000 + run * 86_400_000 + np.sort(random.integers(0, 86_400_000, rows)), pa.timestamp("ms")),
        }
        with table.writer() as writer:
            writer.write(pa.table(batch))


def compact(table: str) -> float:
    """CPU seconds of a full compaction."""
    maintainer.open_table(str(Path(table).with_name("warm"))).maintain(full=True)
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


def run(command: list[str]) -> tuple[str, float]:
    """What a command says last, and the CPU seconds of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return said.splitlines()[-1], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def best_wall(command: Callable[[], list[str]]) -> float:
    """The best wall-clock time of some rounds of a command, after one that warms the caches."""
    subprocess.run([COMMAND, "--help"], check=True, capture_output=True)
    times = []
    for _ in range(ROUNDS):
        words = command()
        start = time.perf_counter()
        subprocess.run(words, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    raise SystemExit(main())
