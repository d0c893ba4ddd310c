"""Index payloads: what they cost on one core, beside pypaimon-rust, where that is installed.

    index.build.*        from an Arrow array in memory to the finished file: CPU of one core, with 1 GiB as in a pass. `….ratio` is to
                         pypaimon-rust's build for the same rows in the same order, which it reads from a table. FM: also MB of text per CPU
                         second, and memory beside the text
    index.rebuild.*      one of ten files of a level was replaced: a new payload from the old one and the new file, by what reading all files
                         and building anew costs; CPU, and bytes of data files
    index.lookup.*       one of 10 million keys of a BTree: range reads of a reader that knows nothing, milliseconds of one that has the blocks
    memory.index.*       peak memory of a process that builds a payload of 50 million rows, or elements, with 256 MB

Rows are random, and the same each time. Builds run in processes of their own, on one core; the best of the rounds counts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rounds import CHILD, Measurement, peak_memory, run

import maintainer
from maintainer.api.maintenance import DEFAULT_MEMORY
from maintainer.data.spill import Spill
from maintainer.format import data_type
from maintainer.index.definition import FamilyName, IndexDefinition
from maintainer.index.payload import Resources, Rows
from maintainer.model.predicate import Leaf, Op

ROWS, MANY_ROWS, BATCH = 10_000_000, 50_000_000, 200_000
TEXT_BYTES = 64_000_000
ROUNDS = 3
MEMORY = 256 << 20
EXTRA = 300e6
LOOKUPS = 1000

Random = np.random.Generator
Values = Callable[[Random, int], pa.Array]


def numbers(random: Random, rows: int) -> pa.Array:
    """All different."""
    return pa.array(random.integers(-(2**63), 2**63, rows))


def words(random: Random, rows: int) -> pa.Array:
    """All different: 20 random letters each."""
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEF", np.uint8)[random.integers(0, 32, 20 * rows, np.uint8)]
    return _text(letters, np.arange(0, 20 * rows + 1, 20))


def one_of(count: int) -> Values:
    """Each of so many texts as often as the others, more or less."""
    return lambda random, rows: _numbered("value", random.integers(0, count, rows))


def arrays(random: Random, elements: int) -> pa.Array:
    """Four of 100,000 texts in each."""
    return pa.ListArray.from_arrays(pa.array(range(0, elements + 1, 4), pa.int32()), _numbered("word", random.integers(0, 100_000, elements)))


def lines(random: Random, size: int) -> pa.Array:
    """Lines of a log, so many bytes of them."""
    rows = size // 80
    kinds = np.array(["GET /orders", "PUT /orders", "GET /customers", "POST /payments", "DELETE /baskets"])
    numbered = (_numbered(name, random.integers(0, most, rows)) for name, most in (("user", 50_000), ("item", 1_000_000), ("took", 900)))
    return pc.binary_join_element_wise(pa.array(kinds[random.integers(0, 5, rows)]), *numbered, "status=200 cache=miss region=eu", " ")


def _text(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.integer]) -> pa.Array:
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data))


def _numbered(name: str, of: npt.NDArray[np.integer]) -> pa.Array:
    """`name-0000042`"""
    width = len(name) + 8
    whole = np.empty((len(of), width), np.uint8)
    whole[:, :-7] = np.frombuffer(f"{name}-".encode(), np.uint8)
    for at in range(width - 1, width - 8, -1):
        of, whole[:, at] = np.divmod(of, 10)
    whole[:, -7:] += ord("0")
    return _text(whole.reshape(-1), np.arange(0, whole.size + 1, width))


@dataclass(frozen=True)
class Case:
    """A column to index. `limit` is in CPU seconds for `ROWS` rows, or elements; of FM in MB of text per CPU second."""

    family: FamilyName
    data_type: str
    values: Values
    limit: float

    @property
    def definition(self) -> IndexDefinition:
        return IndexDefinition("c", 1, str(self.family), self.family, {}, data_type.parse(self.data_type))


CASES: Mapping[str, Case] = {
    "btree_int64": Case(FamilyName.BTREE, "BIGINT", numbers, 5.0),
    "btree_text": Case(FamilyName.BTREE, "STRING", words, 8.0),
    "bitmap_100": Case(FamilyName.BITMAP, "STRING", one_of(100), 3.0),
    "bitmap_10k": Case(FamilyName.BITMAP, "STRING", one_of(10_000), 4.0),
    "bitmap_1m": Case(FamilyName.BITMAP, "STRING", one_of(1_000_000), 8.0),
    "multivalue_text": Case(FamilyName.MULTIVALUE, "ARRAY<STRING>", arrays, 6.0),
    "fm_lines": Case(FamilyName.FM, "STRING", lines, 6.0),
}
LONG = ("btree_int64", "btree_text", "bitmap_1m", "multivalue_text")
"""What is built of 50 million rows."""


def builds(directory: Path) -> Iterator[Measurement]:
    for name, case in CASES.items():
        is_fm = case.family is FamilyName.FM
        size = TEXT_BYTES if is_fm else ROWS
        said = [run([*CHILD, "index-build", name, str(size), str(directory / name)])[0].split() for _ in range(ROUNDS)]
        ours, extra = min(float(cpu) for cpu, _ in said), min(float(memory) for _, memory in said)
        theirs = None
        if importlib.util.find_spec("pypaimon_rust") is not None:
            theirs = float(run([*CHILD, "index-build-rust", name, str(size), str(directory / f"{name}_rust")])[0])
        if is_fm:
            yield f"index.build.{name}.mb_per_cpu_second", size / 1e6 / ours, "MB/s", case.limit, False
            yield f"index.build.{name}.cpu", ours, "s", size / 1e6 / case.limit, True
            yield f"index.build.{name}.extra_memory", extra / 1e6, "MB", EXTRA / 1e6, True
        else:
            yield f"index.build.{name}.cpu", ours, "s", case.limit, True
        if theirs is not None:
            yield f"index.build.{name}.ratio", ours / theirs, "x", 1.0, False


def build(name: str, size: str, path: str) -> str:
    """CPU seconds of a build, and the most memory that it had besides its rows."""
    case = CASES[name]
    values = case.values(np.random.default_rng(1), int(size))
    _on_one_core()
    family = import_module(f"maintainer.index.family.{case.family}")
    before = _settled_memory()
    start = time.process_time()
    with open(path, "wb") as file:
        built = family.build([Rows(0, values)], case.definition, len(values), file.write, Resources(DEFAULT_MEMORY))
    spent = time.process_time() - start
    if built.size != os.path.getsize(path) or built.row_count != len(values):
        raise SystemExit(f"the build did not do what it should: {built}")
    return f"{spent} {peak_memory() - before}"


def build_with_rust(name: str, size: str, warehouse: str) -> float:
    """CPU seconds of pypaimon-rust's build of a global index over a table of the same rows."""
    from pypaimon_rust.datafusion import SQLContext

    case = CASES[name]
    values = case.values(np.random.default_rng(1), int(size))
    _on_one_core()
    sql = SQLContext()
    sql.register_catalog("p", {"warehouse": warehouse})
    sql.set_current_catalog("p")
    sql.set_current_database("default")
    given = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "global-index.enabled": "true", "target-file-size": "4 gb"}
    said = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    sql.sql(f"CREATE TABLE t (id INT, c {case.data_type}) WITH ({said})")
    sql.sql("SET datafusion.execution.target_partitions = 1")  # rows stay in order
    sql.register_batch("src", pa.record_batch({"id": pa.array(np.arange(len(values), dtype=np.int32)), "c": values}))
    sql.sql("INSERT INTO t (id, c) SELECT id, c FROM src")
    start = time.process_time()
    sql.sql(
        f"CALL sys.create_global_index(table => 'default.t', index_column => 'c', index_type => '{case.family}', "
        "options => 'sorted-index.records-per-range=1000000000')"
    )
    return time.process_time() - start


def memory(directory: Path) -> Iterator[Measurement]:
    for name in LONG:
        peak = float(run([*CHILD, "index-build-long", name, str(MANY_ROWS), str(directory / name)])[0])
        yield f"memory.index.{name}", peak / 1e6, "MB", (MEMORY + EXTRA) / 1e6, True


def build_long(name: str, size: str, path: str) -> int:
    """Peak memory of this process after a build of rows that come in batches."""
    case = CASES[name]
    batch = min(BATCH, int(size))
    _on_one_core()

    def batches() -> Iterator[Rows]:
        first = 0
        for number in range(int(size) // batch):
            values = case.values(np.random.default_rng(number), batch)
            yield Rows(first, values)
            first += len(values)

    rows = int(size) // (4 if case.family is FamilyName.MULTIVALUE else 1)
    family = import_module(f"maintainer.index.family.{case.family}")
    with open(path, "wb") as file:
        built = family.build(batches(), case.definition, rows, file.write, Resources(MEMORY, Spill(str(Path(path).parent / "spill"))))
    if built.row_count != rows:
        raise SystemExit(f"the build did not do what it should: {built}")
    os.unlink(path)
    return peak_memory()


def lookups(directory: Path) -> Iterator[Measurement]:
    said, _ = run([*CHILD, "index-lookup", str(ROWS), str(directory / "lookup")])
    reads, millis = map(float, said.split())
    yield "index.lookup.cold_reads", reads, "reads", 3.0, True
    yield "index.lookup.warm_wall", millis, "ms", 1.0, True


def look_up(size: str, path: str) -> str:
    """The most range reads of a lookup by a new reader, and the mean milliseconds of lookups by one that was asked for the same keys before."""
    case = CASES["btree_int64"]
    values = case.values(np.random.default_rng(1), int(size))
    family = import_module(f"maintainer.index.family.{case.family}")
    with open(path, "wb") as file:
        built = family.build([Rows(0, values)], case.definition, len(values), file.write)
    reads = 0
    with open(path, "rb") as source:

        def read(offset: int, length: int) -> bytes:
            nonlocal reads
            reads += 1
            source.seek(offset)
            return source.read(length)

        def reader() -> Any:
            return family.open(read, built.size, case.definition, built.index_meta, len(values))

        rows = np.random.default_rng(2).integers(0, len(values), LOOKUPS).tolist()
        leaves = [Leaf(Op.EQ, "c", (values[row].as_py(),)) for row in rows]
        most = 0
        for leaf in leaves[:20]:
            reads = 0
            reader().evaluate(leaf)
            most = max(most, reads)
        warm = reader()
        found = [warm.evaluate(leaf) for leaf in leaves[:20]]
        start = time.perf_counter()
        for _ in range(LOOKUPS // 20):
            found = [warm.evaluate(leaf) for leaf in leaves[:20]]
        millis = (time.perf_counter() - start) * 1000 / LOOKUPS
    if [list(each) for each in found] != [[row] for row in rows[:20]]:
        raise SystemExit("the lookups did not find what they should")
    return f"{most} {millis}"


FILES, FILE_ROWS = 10, 195_000
INDEXED = {"btree": "name", "bitmap": "kind", "multivalue": "tags"}


def rebuilds(directory: Path) -> Iterator[Measurement]:
    table = directory / "bench.db" / "rebuild"
    ten_files(table)
    spent: dict[str, dict[str, tuple[float, float]]] = {}
    for way in ("true", "false"):
        rounds = []
        for number in range(ROUNDS):
            copy = shutil.copytree(table, directory / "bench.db" / f"rebuild_{way}_{number}")
            rounds.append([float(word) for word in run([*CHILD, "index-rebuild", way, str(copy)])[0].split()])
            shutil.rmtree(copy)
        best = [min(values) for values in zip(*rounds, strict=True)]
        spent[way] = {family: (best[2 * at], best[2 * at + 1]) for at, family in enumerate(INDEXED)}
    for family in INDEXED:
        (ours, size), (whole, whole_size) = spent["true"][family], spent["false"][family]
        yield f"index.rebuild.{family}.cpu_ratio", ours / whole, "x", 0.8, True
        yield f"index.rebuild.{family}.bytes_ratio", size / whole_size, "x", 0.15, True


def ten_files(uri: Path) -> None:
    """A table of ten files on its highest level, and new rows for one of them."""
    columns = "id BIGINT, name STRING, kind STRING, tags ARRAY<STRING>, PRIMARY KEY (id) NOT ENFORCED"
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "write-only": "true", "target-file-size": "6 mb"}
    options |= {f"pk-{family}.index.columns": column for family, column in INDEXED.items()}
    said = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    table = maintainer.create_table(str(uri), f"CREATE TABLE t ({columns}) WITH ({said})")
    random = np.random.default_rng(5)

    def write(ids: npt.NDArray[np.int64]) -> None:
        count = len(ids)
        tags = arrays(random, 4 * count)
        with table.writer() as writer:
            writer.write(pa.table({"id": ids, "name": words(random, count), "kind": one_of(10_000)(random, count), "tags": tags}))

    write(np.arange(FILES * FILE_ROWS))
    table.maintain(full=True)
    write(np.arange(3 * FILE_ROWS + 10, 3 * FILE_ROWS + 1000))


def rebuild(incremental: str, uri: str) -> str:
    """CPU seconds, and bytes of data files, of building the payload of each family."""
    from maintainer.maintain import rebuild as groups

    _on_one_core()
    cpu = dict.fromkeys(INDEXED, 0.0)
    size = dict.fromkeys(INDEXED, 0)
    build_group = groups.build_group

    def measured(definition: IndexDefinition, plan: Any, files: Any, site: Any, *others: Any) -> Any:
        def opened(meta: Any) -> Any:
            file = site.open_file(meta)
            size[definition.family] += file.stored_bytes(definition.column)
            return file

        start = time.process_time()
        built = build_group(definition, plan, files, groups.replace(site, open_file=opened), *others)
        cpu[definition.family] += time.process_time() - start
        return built

    groups.build_group = measured
    report = maintainer.open_table(uri, options={"maintain.incremental-index": incremental}).maintain(full=True)
    if report.outcome != "committed" or not all(cpu.values()):
        raise SystemExit(f"the pass did not do what it should: {report}")
    return " ".join(f"{cpu[family]} {size[family]}" for family in INDEXED)


def _on_one_core() -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _settled_memory() -> int:
    """What this process has now; its peak starts from here, where the system can do that."""
    pa.default_memory_pool().release_unused()
    if not os.path.exists("/proc/self/clear_refs"):
        return peak_memory()
    Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


CHILDREN = {
    "index-build": build,
    "index-build-rust": build_with_rust,
    "index-build-long": build_long,
    "index-lookup": look_up,
    "index-rebuild": rebuild,
}
