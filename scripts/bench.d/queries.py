"""Queries of 10 million rows in 4 buckets, with BTree and Bitmap indexes (`query_tables`), beside pypaimon-rust and pypaimon on the same table.

    query.equality.*   one value that stands in 10 rows, all columns of them, another value each time on the same `Table`: at least 4 times as
                       fast as pypaimon-rust's filtered scan and 50 times as pypaimon's, and little slower in 30 million rows than in one.
                       `….text` by a STRING, `….repeated` the same value again, `….first` the first query of an opened table, `….updated`
                       where 1 % of the rows was written again
    query.range.*      0.1 % of the rows: by a column that ascends with the key, beside reading all row groups of the same files; by one that
                       does not, beside a scan without indexes
    query.scan.*       all rows and columns, beside pypaimon-rust, also with deletion vectors (`….updated`); seconds to the first batch
    query.plan.*       planning on 100,000 files, again on the same `Table`: without condition, on the key, on an indexed column, on one with
                       statistics only; the first plan, and peak memory of a process that makes these plans
    query.requests.*   the longest chain of requests of an equality query, each waiting for the one before it, on S3 with 20 ms for each:
                       opening the table included, the same value again, and another one. Needs moto (`.venv-s3`, `MAINTAINER_TEST_MOTO`),
                       or an endpoint (`MAINTAINER_TEST_S3_ENDPOINT`)
    memory.query.*     peak memory of a process that reads all rows as batches, or asks for values or a range

Times are those of a wall clock, except `….cpu`, which says more where the machine is busy with something else; files are in the cache of the
system. Each side runs in processes of its own, in turns; of the queries in a process the median counts, of processes the best. What the peers
find is counted, too: it must be the same number of rows.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import query_tables as tables
from rounds import CHILD, Measurement, peak_memory, run

import maintainer
from maintainer.read import rows as row_reading
from maintainer.read.scan import MEMORY

ROOT = Path(__file__).parents[2]
PYPAIMON = os.environ.get("MAINTAINER_BENCH_PYPAIMON") or str(ROOT / ".venv-bench-pypaimon" / "bin" / "python")
SIZE, SMALL, LARGE = 10, 1, 30
ROWS = SIZE * tables.MILLION
ROUNDS, ASKED = 3, 15
LATENCY, FAR_ROWS = 0.02, 1_000_000
FAR = {"cold": 1, "warm": 1, "another": 2}
"""The queries of a far table: for which number."""
LIMIT = (MEMORY + (300 << 20)) / 1e6


@dataclass(frozen=True)
class Query:
    """What a child asks, once for each condition. `how`: all rows as a table, as batches that are let go, only the first batch, or the plan."""

    name: str
    where: tuple[str | None, ...] = (None,)
    how: str = "arrow"
    use_index: bool = True
    group_pruning: bool = True


@dataclass(frozen=True)
class Took:
    """Seconds of the first query, the median of the others, the least; CPU seconds of the least; rows, or files, of the last."""

    first: float
    median: float
    least: float
    cpu: float
    count: int


def equality(_: Path) -> Iterator[Measurement]:
    uri = str(tables.many_rows(SIZE))
    numbers = [tables.number_of(row, ROWS) for row in range(1, ASKED + 1)]
    queries = (
        Query("number", _numbers(numbers)),
        Query("text", tuple(f"name = '{tables.name_of(number)}'" for number in numbers)),
        Query("repeated", _numbers(numbers[:1] * ASKED)),
    )
    ours, theirs = _in_turns(lambda: _ask(uri, *queries), lambda: _ask_rust(uri, *_numbers(numbers[:5])))
    warm = ours["number"].median
    _check(ours, 10)
    yield "query.equality.cpu", 1000 * ours["number"].cpu, "ms", 1000 * min(took.cpu for took in theirs.values()) / 4 if theirs else None, False
    yield "query.equality.text", 1000 * ours["text"].median, "ms", None, False
    yield "query.equality.repeated", 1000 * ours["repeated"].median, "ms", None, False
    yield "query.equality.first", 1000 * ours["number"].first, "ms", None, False
    _check(theirs, 10)
    yield "query.equality.wall", 1000 * warm, "ms", 1000 * _fastest(theirs) / 4 if theirs else None, True
    if Path(PYPAIMON).exists():
        slow = float(run([PYPAIMON, str(Path(__file__).with_name("query_pypaimon.py")), str(uri), "number", str(numbers[0]), "10"])[0])
        yield "query.equality.pypaimon", 1000 * warm, "ms", 1000 * slow / 50, True
    updated, _ = _in_turns(lambda: _ask(str(tables.updated_rows(SIZE)), queries[0]))
    _check(updated, 10)
    yield "query.equality.updated", 1000 * updated["number"].median, "ms", None, False
    growing = []
    for millions in (SMALL, LARGE):
        table = str(tables.many_rows(millions))
        rows = millions * tables.MILLION
        query = Query("number", _numbers(tables.number_of(row, rows) for row in range(1, ASKED + 1)))
        found, _ = _in_turns(lambda table=table, query=query: _ask(table, query))
        _check(found, 10)
        growing.append(found["number"].median)
    yield "query.equality.growth", growing[1] / growing[0], "x", 1.5, True


def ranges(_: Path) -> Iterator[Measurement]:
    uri = str(tables.many_rows(SIZE))
    share = ROWS // 1000
    near = (_between("moment", tables.moment_of(ROWS // 2), tables.moment_of(ROWS // 2 + share) - 1),) * 5
    far = (_between("number", ROWS // 20, ROWS // 20 + share // 10 - 1),) * 3
    queries = (
        Query("near", near),
        Query("near_unindexed", near, use_index=False),
        Query("near_whole", near, use_index=False, group_pruning=False),
        Query("far", far),
        Query("far_unindexed", far, use_index=False),
    )
    took, _ = _in_turns(lambda: _ask(uri, *queries))
    _check(took, share)
    yield "query.range.correlated", 1000 * took["near"].median, "ms", 1000 * took["near_unindexed"].median, False
    yield "query.range.correlated_ratio", took["near"].median / took["near_whole"].median, "x", 1 / 3, True
    yield "query.range.uncorrelated", 1000 * took["far"].median, "ms", 1000 * took["far_unindexed"].median, False
    yield "query.range.uncorrelated_ratio", took["far"].median / took["far_unindexed"].median, "x", 1.2, True


def scan(_: Path) -> Iterator[Measurement]:
    uri = str(tables.many_rows(SIZE))
    queries = (Query("batches", (None,) * 3, "batches"), Query("first", (None,) * 3, "first"))
    ours, theirs = _in_turns(lambda: _ask(uri, *queries), lambda: _ask_rust(uri, None, None))
    _check({"batches": ours["batches"], **theirs}, ROWS)
    yield "query.scan.wall", ours["batches"].least, "s", min(took.least for took in theirs.values()) if theirs else None, False
    yield "query.scan.cpu", ours["batches"].cpu, "s", min(took.cpu for took in theirs.values()) if theirs else None, False
    if theirs:
        yield "query.scan.ratio", ours["batches"].least / min(took.least for took in theirs.values()), "x", 1.3, True
    yield "query.scan.first_batch", ours["first"].first, "s", 0.3, True
    updated = str(tables.updated_rows(SIZE))
    ours, theirs = _in_turns(lambda: _ask(updated, queries[0]), lambda: _ask_rust(updated, None, None))
    _check(ours | theirs, ROWS)
    yield "query.scan.updated", ours["batches"].least, "s", min(took.least for took in theirs.values()) if theirs else None, False
    if theirs:
        yield "query.scan.updated_ratio", ours["batches"].least / min(took.least for took in theirs.values()), "x", 1.3, True


def memory(_: Path) -> Iterator[Measurement]:
    uri = str(tables.many_rows(SIZE))
    peaks = {
        "scan": Query("scan", how="batches"),
        "equality": Query("equality", _numbers(tables.number_of(row, ROWS) for row in range(100))),
        "range": Query("range", (_between("number", ROWS // 20, ROWS // 20 + ROWS // 10_000 - 1),)),
    }
    for name, query in peaks.items():
        yield f"memory.query.{name}", float(run([*CHILD, "query-peak", uri, json.dumps(asdict(query))])[0]) / 1e6, "MB", LIMIT, True


def plans(_: Path) -> Iterator[Measurement]:
    uri = str(tables.many_files())
    keys = tables.PARTITIONS * tables.FILES * tables.BUCKETS * tables.FILE_ROWS
    where = {
        "unconditional": None,
        "key": f"id = {keys // 3}",
        "indexed": "number = 4711",
        "statistics": _between("moment", tables.moment_of(keys // 2), tables.moment_of(keys // 2 + keys // 1000) - 1),
    }
    took, _ = _in_turns(lambda: _ask(uri, *(Query(name, (each,) * 4, "plan") for name, each in where.items())))
    for name in where:
        yield f"query.plan.{name}", took[name].median, "s", 0.3, True
    yield "query.plan.first", took["unconditional"].first, "s", None, False
    peak = run([*CHILD, "query-peak", uri, *(json.dumps(asdict(Query(name, (each,), "plan"))) for name, each in where.items())])[0]
    yield "query.plan.memory", float(peak) / 1e6, "MB", None, False


def requests(_: Path) -> Iterator[Measurement]:
    if importlib.util.find_spec("s3fs") is None:
        return
    with _s3() as endpoint:
        if endpoint is None:
            return
        sys.path.append(str(ROOT))
        from tests.support.distant_endpoint import DistantEndpoint

        with DistantEndpoint(endpoint, LATENCY) as distant:
            options = {"endpoint_url": distant.url, "key": "test", "secret": "test"}
            uri = f"s3://bench/{time.time_ns()}.db/t"
            run([*CHILD, "query-write", uri, json.dumps({**options, "endpoint_url": endpoint}), str(FAR_ROWS)])
            rounds = [_far_queries(distant, uri, options) for _ in range(ROUNDS)]
    for name, *figures in zip(FAR, *rounds, strict=True):
        trips, asked, wall = (min(values) for values in zip(*figures, strict=True))
        yield f"query.requests.{name}", trips, "round trips", 12, True
        yield f"query.requests.{name}_all", asked, "requests", None, False
        yield f"query.requests.{name}_wall", wall, "s", None, False


def _far_queries(distant: Any, uri: str, options: Mapping[str, str]) -> list[tuple[int, int, float]]:
    """Round trips, requests and seconds of each query of a new process."""
    found = []
    command = [*CHILD, "query-far", uri, json.dumps(options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        for row in FAR.values():
            distant.clear()
            child.stdin.write(f"{tables.number_of(row, FAR_ROWS)}\n")
            child.stdin.flush()
            said = child.stdout.readline()
            if not said:
                raise SystemExit("the query of a far table failed")
            found.append((distant.round_trips, len(distant.asked), float(said)))
        child.communicate()
    return found


def ask(uri: str, *queries: str) -> str:
    """Asks all of them, and says how long each of them took."""
    table = maintainer.open_table(uri)
    found = {}
    for said in queries:
        query = Query(**json.loads(said))
        found[query.name] = asdict(_timed(query, table))
    return json.dumps(found)


def peak(uri: str, *queries: str) -> int:
    """Peak memory of this process after them."""
    table = maintainer.open_table(uri)
    for said in queries:
        query = Query(**json.loads(said))
        for where in query.where:
            _asked(query, table, where)
    return peak_memory()


def ask_rust(uri: str, *conditions: str) -> str:
    """The same of pypaimon-rust, by SQL and by its own interface; a condition is a number, or none."""
    from pypaimon_rust.datafusion import PaimonCatalog, SQLContext

    database, table = Path(uri).parts[-2:]
    options = {"warehouse": str(Path(uri).parents[1])}
    sql = SQLContext()
    sql.register_catalog("p", options)
    sql.set_current_catalog("p")
    sql.set_current_database(database.removesuffix(".db"))
    opened = PaimonCatalog(options).get_table((database.removesuffix(".db"), table))

    def by_sql(number: str) -> int:
        return sum(batch.num_rows for batch in sql.sql(f"SELECT * FROM {table}" + (f" WHERE number = {number}" if number else "")))

    def by_builder(number: str) -> int:
        builder = opened.new_read_builder()
        if number:
            builder = builder.with_filter({"method": "equal", "field": "number", "literals": [int(number)]})
        return sum(batch.num_rows for batch in builder.new_read().read_arrow(builder.new_scan().plan().splits()))

    ways: Mapping[str, Callable[[str], int]] = {"sql": by_sql, "builder": by_builder}
    return json.dumps({name: asdict(_timed_each([lambda way=way, each=each: way(each) for each in conditions])) for name, way in ways.items()})


def write_far(uri: str, options: str, rows: str) -> str:
    import s3fs

    storage = json.loads(options)
    s3fs.S3FileSystem(**storage).call_s3("create_bucket", Bucket=uri.split("/")[2])
    tables.write_rows(uri, int(rows), **storage)
    return ""


def ask_far(uri: str, options: str) -> str:
    """Seconds of an equality query for each number that comes in, the first with opening the table."""
    table = None
    for number in sys.stdin:
        start = time.perf_counter()
        table = table or maintainer.open_table(uri, storage_options=json.loads(options))
        rows = table.scan(where=f"number = {number}").to_arrow().num_rows
        print(time.perf_counter() - start, flush=True)
        if rows != 10:
            raise SystemExit(f"found {rows} rows")
    return ""


CHILDREN = {"query-ask": ask, "query-peak": peak, "query-rust": ask_rust, "query-write": write_far, "query-far": ask_far}


def _numbers(numbers: Any) -> tuple[str, ...]:
    return tuple(f"number = {number}" for number in numbers)


def _between(column: str, low: int, high: int) -> str:
    return f"{column} BETWEEN {low} AND {high}"


def _ask(uri: str, *queries: Query) -> dict[str, Took]:
    said, _ = run([*CHILD, "query-ask", uri, *(json.dumps(asdict(query)) for query in queries)])
    return {name: Took(**took) for name, took in json.loads(said).items()}


def _ask_rust(uri: str, *conditions: str | None) -> dict[str, Took]:
    if importlib.util.find_spec("pypaimon_rust") is None:
        return {}
    said, _ = run([*CHILD, "query-rust", uri, *("" if each is None else each.rpartition(" ")[2] for each in conditions)])
    return {name: Took(**took) for name, took in json.loads(said).items()}


def _in_turns(*sides: Callable[[], dict[str, Took]]) -> tuple[dict[str, Took], dict[str, Took]]:
    """The best of some rounds of two sides, or one."""
    best: list[dict[str, Took]] = [{}, {}]
    for _ in range(ROUNDS):
        for found, side in zip(best, sides, strict=False):
            for name, took in side().items():
                other = found.get(name, took)
                found[name] = Took(*(min(mine, other) for mine, other in zip(asdict(took).values(), asdict(other).values(), strict=True)))
    return best[0], best[1]


def _fastest(sides: Mapping[str, Took]) -> float:
    return min(took.median for took in sides.values())


def _check(found: Mapping[str, Took], rows: int) -> None:
    wrong = {name: took.count for name, took in found.items() if took.count != rows}
    if wrong:
        raise SystemExit(f"there should be {rows} rows: {wrong}")


def _timed(query: Query, table: maintainer.Table) -> Took:
    compiled = row_reading.compiled
    if not query.group_pruning:
        row_reading.compiled = lambda predicate: lambda bounds: True
    try:
        return _timed_each([lambda where=where: _asked(query, table, where) for where in query.where])
    finally:
        row_reading.compiled = compiled


def _timed_each(asks: list[Callable[[], int]]) -> Took:
    took = []
    for each in asks:
        cpu, start = time.process_time(), time.perf_counter()
        count = each()
        took.append((time.perf_counter() - start, time.process_time() - cpu))
    later = took[1:] or took
    return Took(took[0][0], statistics.median(wall for wall, _ in later), min(later)[0], min(cpu for _, cpu in later), count)


def _asked(query: Query, table: maintainer.Table, where: str | None) -> int:
    scan = table.scan(where=where, use_index=query.use_index)
    match query.how:
        case "arrow":
            return scan.to_arrow().num_rows
        case "batches":
            return sum(batch.num_rows for batch in scan.to_batches())
        case "first":
            return next(iter(scan.to_batches())).num_rows
        case _:
            return len(scan.plan().to_read)


@contextmanager
def _s3() -> Iterator[str | None]:
    """An endpoint, or None where there is none."""
    given = os.environ.get("MAINTAINER_TEST_S3_ENDPOINT")
    python = Path(os.environ.get("MAINTAINER_TEST_MOTO") or ROOT / ".venv-s3") / "bin" / "python"
    if given or not python.exists():
        yield given
        return
    directory = tempfile.mkdtemp(prefix="moto-")
    port = Path(directory) / "port"
    server = subprocess.Popen([python, ROOT / "tests" / "support" / "moto_server.py", "0", port], stderr=subprocess.DEVNULL)
    try:
        while not port.exists():
            if server.poll() is not None:
                raise SystemExit("moto's server does not start")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port.read_text()}"
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
