"""Global indexes of pypaimon-rust on Data Evolution tables: payloads to compare ours with, and a table to put ours into (spec 13 §4, §11)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from maintainer.format import index_manifest
from tests.support import peers


@dataclass(frozen=True)
class RustPayload:
    """One file of an index, over the rows [first, first + rows)."""

    path: Path
    data: bytes
    index_meta: bytes
    first: int
    rows: int


class RustTable:
    """A table of an `id`, which counts from 0, and a column `c`."""

    def __init__(self, warehouse: Path, values: pa.Array, options: Mapping[str, str] | None = None, column_type: str = "STRING") -> None:
        from pypaimon_rust.datafusion import SQLContext

        self.path = warehouse / "default.db" / "t"
        self.sql = SQLContext()
        self.sql.register_catalog("p", {"warehouse": str(warehouse)})
        self.sql.set_current_catalog("p")
        self.sql.set_current_database("default")
        given = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "global-index.enabled": "true", **(options or {})}
        with_options = ", ".join(f"'{key}'='{value}'" for key, value in given.items())
        self.sql.sql(f"CREATE TABLE t (id INT, c {column_type}) WITH ({with_options})")
        self.sql.sql("SET datafusion.execution.target_partitions = 1")  # rows stay in order
        self.sql.register_batch("src", pa.record_batch({"id": pa.array(range(len(values)), pa.int32()), "c": values}))
        self.sql.sql("INSERT INTO t (id, c) SELECT id, c FROM src")

    def index(self, index_type: str, options: Mapping[str, str]) -> list[RustPayload]:
        """Build an index of `c`; its payloads in the order of their rows."""
        peers.asked["pypaimon_rust"] += 1
        text = ",".join(f"{key}={value}" for key, value in options.items())
        self.sql.sql(
            f"CALL sys.create_global_index(table => 'default.t', index_column => 'c', index_type => '{index_type}', options => '{text}')"
        )
        found = []
        for entry in index_manifest.decode(self._index_manifest().read_bytes()):
            file = entry.file
            if file.index_type == index_type and file.global_index is not None:
                path = self.path / "index" / file.file_name
                meta = file.global_index
                assert meta.index_meta is not None
                found.append(RustPayload(path, path.read_bytes(), meta.index_meta, meta.row_range_start, file.row_count))
        return sorted(found, key=lambda payload: payload.first)

    def replace(self, payload: RustPayload, data: bytes, index_meta: bytes) -> None:
        """Put another payload in the place of one of its own."""
        payload.path.write_bytes(data)
        manifest = self._index_manifest()
        entries = []
        for entry in index_manifest.decode(manifest.read_bytes()):
            file = entry.file
            if file.file_name == payload.path.name:
                assert file.global_index is not None
                file = replace(file, file_size=len(data), global_index=replace(file.global_index, index_meta=index_meta))
            entries.append(replace(entry, file=file))
        manifest.write_bytes(index_manifest.encode(entries))

    def drop_index(self, index_type: str) -> None:
        """Forget an index."""
        self.sql.sql(f"CALL sys.drop_global_index(table => 'default.t', index_column => 'c', index_type => '{index_type}')")

    def ids(self, condition: str) -> list[int]:
        """The ids of the rows that satisfy a condition."""
        peers.asked["pypaimon_rust"] += 1
        found: list[Any] = [batch.column(0).to_pylist() for batch in self.sql.sql(f"SELECT id FROM t WHERE {condition}")]
        return sorted(value for column in found for value in column)

    def _index_manifest(self) -> Path:
        latest = (self.path / "snapshot" / "LATEST").read_text()
        snapshot = json.loads((self.path / "snapshot" / f"snapshot-{latest}").read_text())
        return self.path / "manifest" / snapshot["indexManifest"]
