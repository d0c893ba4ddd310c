"""A small table with the rows that it should have: a dict model, and what the table's metadata say, in short form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import maintainer
from maintainer.api.account import PassReport
from maintainer.api.maintenance import run_pass
from maintainer.data.deletions import read_deletions
from maintainer.data.reader import open_data_file
from maintainer.index import groups
from maintainer.index.definition import definitions
from maintainer.maintain.reclaim import names_in_use
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.model.snapshot import CommitKind
from maintainer.table.opening import open_store
from maintainer.table.state import TableState, load_state
from maintainer.table.store import TableStore

KINDS = ("+I", "-U", "+U", "-D")


class SmallTable:
    """`id INT` is the key, `v BIGINT` and `s STRING` are values; one bucket unless the options say otherwise."""

    def __init__(self, directory: Path, indexes: bool = False, **options: str) -> None:
        given = {"bucket": "1", "deletion-vectors.enabled": "true"} | named(options)
        if indexes:
            given |= {"pk-btree.index.columns": "v", "pk-bitmap.index.columns": "s"}
        fields = [{"name": "id", "type": "INT"}, {"name": "v", "type": "BIGINT"}, {"name": "s", "type": "STRING"}]
        self.path = str(directory / "t")
        self.table = maintainer.create_table(self.path, {"fields": fields, "primaryKeys": ["id"], "options": given})
        self.rows: dict[int, tuple[int | None, str | None]] = {}

    @property
    def store(self) -> TableStore:
        return self.table.store

    def with_options(self, **options: str) -> TableStore:
        """The same table with dynamic options."""
        return open_store(self.path, options=named(options))

    def seen_with(self, **options: str) -> TableStore:
        """The same table to somebody for whom it has other options, also such as belong to the table."""
        return TableStore(self.store.storage, options=named(options))

    def write(self, rows: Mapping[int, Any] = {}, delete: Iterable[int] = ()) -> int | None:
        """One commit of level-0 files: keys to delete, and keys with their `v` (`s` follows from it)."""
        whole = {key: value if isinstance(value, tuple) else (value, None if value is None else f"s{value % 7}") for key, value in rows.items()}
        dead = list(delete)
        with self.table.writer() as writer:
            if dead:
                writer.delete(pa.table([pa.array(dead, pa.int32())], names=["id"]))
            if whole:
                writer.write(arrow_of(whole))
            snapshot = writer.commit()
        for key in dead:
            self.rows.pop(key, None)
        self.rows |= whole
        return snapshot

    def maintain(self, **request: Any) -> PassReport:
        return run_pass(self.store, **request)

    def state(self) -> TableState:
        snapshot = self.store.latest_snapshot()
        assert snapshot is not None
        return load_state(self.store, snapshot)

    def bucket(self, number: int = 0) -> BucketState:
        return self.state().bucket(BucketKey(EMPTY_ROW, number))

    def files(self) -> list[tuple[int, str, int]]:
        """(level, source, rows) of bucket 0, by level."""
        return sorted(
            (file.level, file.file_source.name if file.file_source is not None else "", file.row_count) for file in self.bucket().files
        )

    def file(self, level: int) -> DataFileMeta:
        """The only file of a level."""
        (file,) = [file for file in self.bucket().files if file.level == level]
        return file

    def deleted(self, file: DataFileMeta | str) -> list[int]:
        name = file if isinstance(file, str) else file.file_name
        return sorted(read_deletions(self.store.storage, self.store.layout, self.bucket().deletion_file).get(name, ()))

    def records(self, file: DataFileMeta) -> list[tuple[str, int, int]]:
        """(kind, sequence number, key) of each physical row."""
        path = self.store.layout.data_file_path(EMPTY_ROW, 0, file)
        with open_data_file(self.store.storage, path, file, self.store.schema(file.schema_id), self.table.schema) as opened:
            rows = opened.read([KIND_FIELD.name, SEQUENCE_FIELD.name, "id"]).to_pydict()
        return [(KINDS[kind], number, key) for kind, number, key in zip(*rows.values(), strict=True)]

    def groups(self) -> dict[str, list[int]]:
        """Levels with an active group, by column."""
        bucket = self.bucket()
        return {one.column: sorted(groups.evaluate(bucket, one).active) for one in definitions(self.table.schema)}

    def paths(self) -> set[str]:
        """Every data and index file of the table's directory."""
        root = Path(self.path)
        return {str(path.relative_to(root)) for folder in ("bucket-*", "index") for path in root.glob(f"{folder}/*")}

    def unreferenced(self) -> set[str]:
        """Those that no snapshot names."""
        named = names_in_use(self.store)
        return {path for path in self.paths() if path.rpartition("/")[2] not in named}

    def kinds(self, after: int) -> list[CommitKind]:
        """Of the snapshots after this one."""
        return [self.store.snapshot(number).commit_kind for number in self.store.snapshot_ids() if number > after]

    def check(self) -> None:
        """A batch reader sees exactly the model, with the indexes and without them; every file that is visible is covered."""
        for use_index in (True, False):
            rows = self.table.scan(use_index=use_index).to_arrow().to_pydict()
            assert dict(zip(rows["id"], zip(rows["v"], rows["s"], strict=True), strict=True)) == self.rows
            assert len(rows["id"]) == len(self.rows)
        coverage = self.table.coverage()
        assert coverage.visible_ratio == 1.0
        assert all(one.ratio == 1.0 for one in coverage.definitions)
        verified = self.table.verify(deep=True)
        assert verified.ok, verified.problems


def arrow_of(rows: Mapping[int, tuple[int | None, str | None]]) -> pa.Table:
    """Rows as the writer takes them."""
    arrays = [
        pa.array(rows.keys(), pa.int32()),
        pa.array([value for value, _ in rows.values()], pa.int64()),
        pa.array([text for _, text in rows.values()], pa.string()),
    ]
    return pa.table(arrays, names=["id", "v", "s"])


def named(options: Mapping[str, str]) -> dict[str, str]:
    """Table options from the names of arguments."""
    dotted = {
        "deletion_vectors_bitmap64": "deletion-vectors.bitmap64",
        "num_sorted_run_compaction_trigger": "num-sorted-run.compaction-trigger",
    }
    return {dotted.get(name, name.replace("_", "-")): text for name, text in options.items()}
