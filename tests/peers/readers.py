"""The peers as plain functions: each takes a table directory and returns the rows that the peer's batch reader sees.

Java is released Paimon in one JVM for the whole test run (`tests/java-peer`, command `serve`), pypaimon and pypaimon-rust are libraries. Rows
come back as JSON values (see `tests/fixtures/java/README.md`), so that they can be compared with one another and with Java's own lists. A peer
that is not here says why in `JAVA_ABSENT`, `PYPAIMON_ABSENT`, `RUST_ABSENT`; tests skip with that reason.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from maintainer.data.values import json_rows
from maintainer.model.schema import TableSchema
from tests.support import peers

JAVA_PEER = Path(__file__).parent.parent / "java-peer" / "peer.sh"
JAVA_ABSENT = peers.absent("java")
PYPAIMON_ABSENT = peers.absent("pypaimon")
RUST_ABSENT = peers.absent("pypaimon_rust")

Rows = Counter[str]
"""A bag of rows, each as JSON text of its list of values."""


class JavaError(AssertionError):
    """Java refused, with its stack trace."""


class JavaPeer:
    """Released Java Paimon, answering commands over a pipe."""

    def __init__(self) -> None:
        bash = shutil.which("bash")
        assert bash
        self._process = subprocess.Popen(
            [bash, str(JAVA_PEER), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        atexit.register(self._process.kill)

    def run(self, *words: str | Path) -> list[Any]:
        """One command; the JSON lines of its answer."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self._process.stdin.flush()
        answer: list[Any] = []
        for line in self._process.stdout:
            value = json.loads(line)
            if isinstance(value, dict) and value.get("done") is True:
                if "error" in value:
                    raise JavaError(value["error"])
                return answer
            answer.append(value)
        raise JavaError(f"the JVM ended while it ran {words}")


@cache
def java() -> JavaPeer:
    return JavaPeer()


def bag(rows: Iterable[Sequence[Any]]) -> Rows:
    """Rows as a bag that can be compared; objects compare without regard to the order of their members."""
    return Counter(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows)


def bag_of_lines(path: Path) -> Rows:
    """The rows of a file of JSON lists, one a line."""
    return bag(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def bag_of_arrow(table: pa.Table, schema: TableSchema) -> Rows:
    """The rows of an Arrow table whose columns carry the names of `schema`; peers' own Arrow types are cast to ours first."""
    return bag(_lists(json_rows(conformed(table, schema), schema.fields)))


def conformed(table: pa.Table, schema: TableSchema) -> pa.Table:
    """The columns of `schema`, of our Arrow types."""
    from maintainer.data.arrow_types import value_schema

    wanted = value_schema(schema.fields)
    return pa.table([_cast(table.column(field.name), field.type) for field in wanted], schema=wanted)


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == wanted else column.cast(wanted)


def _lists(rows: Iterator[dict[str, Any]]) -> Iterator[list[Any]]:
    return (list(row.values()) for row in rows)


def java_rows(table: Path, snapshot: int | None = None) -> Rows:
    peers.asked["java"] += 1
    return bag(java().run("read", table, *(("--snapshot", str(snapshot)) if snapshot else ())))


def pypaimon_table(table: Path) -> Any:
    """The pypaimon table object of a directory `<warehouse>/<db>.db/<table>`."""
    from pypaimon import CatalogFactory

    catalog = CatalogFactory.create({"warehouse": str(table.parent.parent)})
    return catalog.get_table(f"{table.parent.name.removesuffix('.db')}.{table.name}")


def pypaimon_rows(table: Path, schema: TableSchema) -> Rows:
    peers.asked["pypaimon"] += 1
    opened = pypaimon_table(table)
    builder = opened.new_read_builder()
    return bag_of_arrow(builder.new_read().to_arrow(builder.new_scan().plan().splits()), schema)


def rust_rows(table: Path, schema: TableSchema) -> Rows:
    peers.asked["pypaimon_rust"] += 1
    from pypaimon_rust.datafusion import PaimonCatalog

    catalog = PaimonCatalog({"warehouse": str(table.parent.parent)})
    opened = catalog.get_table(f"{table.parent.name.removesuffix('.db')}.{table.name}")
    builder = opened.new_read_builder()
    splits = builder.new_scan().plan().splits()
    batches = builder.new_read().read(splits)
    if not batches:
        return Counter()
    return bag_of_arrow(pa.Table.from_batches(batches), schema)
