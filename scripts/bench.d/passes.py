"""The everyday passes.

pass.small     `maintainer once` over an indexed table with 5 small level-0 files, process start included
pass.buckets   a pass over 100 buckets of 5 files of 1,000 rows
pass.updates   10,000 updates, spread evenly over 10 million older rows; a second pass finds the keys in the cache
help           `maintainer --help`
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tables
from rounds import CHILD, COMMAND, ROUNDS, Measurement, best_wall, run
from tables import Shape

import maintainer
from maintainer.data.key_cache import KeyCache
from maintainer.maintain import lookup_file

OLDER, UPDATES = 10_000_000, 10_000
INDEXES = {"pk-btree.index.columns": "amount", "pk-bitmap.index.columns": "state"}


def small(directory: Path) -> Iterator[Measurement]:
    table = directory / "bench.db" / "small"
    tables.write(table, Shape(5, 1000, 3000, options=INDEXES))
    copies = iter([shutil.copytree(table, directory / "bench.db" / f"small_{number}") for number in range(ROUNDS)])
    yield "pass.small.wall", best_wall(lambda: [COMMAND, "once", str(next(copies))]), "s", 1.0, True


def buckets(directory: Path) -> Iterator[Measurement]:
    table = directory / "bench.db" / "buckets"
    tables.write(table, Shape(5, 100_000, 300_000, options={"bucket": "100"}))
    copies = iter([shutil.copytree(table, directory / "bench.db" / f"buckets_{number}") for number in range(2)])
    yield "pass.buckets.wall", best_wall(lambda: [COMMAND, "once", str(next(copies))], rounds=2), "s", 10.0, True


def updates(directory: Path) -> Iterator[Measurement]:
    table = directory / "bench.db" / "updates"
    tables.write(table, Shape(1, OLDER, OLDER)).maintain(full=True)
    said, _ = run([*CHILD, "updates", str(table)])
    first, second, first_bytes, second_bytes = map(float, said.split())
    yield "pass.updates.cpu", first, "s", 1.0, True
    yield "pass.updates.second_cpu", second, "s", first, False
    yield "pass.updates.second_bytes", second_bytes, "B", first_bytes / 5, True


def start_up(directory: Path) -> Iterator[Measurement]:
    yield "help.wall", best_wall(lambda: [COMMAND, "--help"]), "s", 0.3, True


def two_updates(uri: str) -> str:
    """CPU seconds of two passes over new updates, and the bytes that they read: new files, and what lookups read of older ones."""
    table = maintainer.open_table(uri)
    cache = KeyCache(f"{uri}_keys")
    random = np.random.default_rng(11)
    looked_up = []
    release = lookup_file.LookupFile.release

    def counting(file: lookup_file.LookupFile, complete: bool = True) -> None:
        release(file, complete)
        looked_up.append(file.bytes_read)
        file.bytes_read = 0

    lookup_file.LookupFile.release = counting  # type: ignore[method-assign]
    times, sizes = [], []
    for run_number in range(2):
        before = {file.name for file in table.files().files}
        tables.append(table, "int64", np.sort(random.choice(OLDER, UPDATES, replace=False)), run_number, random)
        new = sum(file.size for file in table.files().files if file.name not in before)
        start = time.process_time()
        report = table.maintain(cache=cache)
        times.append(time.process_time() - start)
        if report.outcome != "committed":
            raise SystemExit(f"the pass did not do what it should: {report}")
        sizes.append(new + sum(looked_up))
        looked_up.clear()
    return f"{times[0]} {times[1]} {sizes[0]} {sizes[1]}"


CHILDREN = {"updates": two_updates}
