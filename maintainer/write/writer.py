"""The writer: rows to sorted level-0 files, one run for each (partition, bucket) and flush (spec 04 §9.5; Java `MergeTreeWriter`).

Invariants of what one flush writes for a bucket:

* keys ascend and are unique; several rows of a key are one record of the table's merge engine, by sequence fields and then by arrival;
* with changelog-producer = input, all rows as they came are in changelog files beside them, ordered by key, sequence fields and arrival;
* the sequence number of a row is the bucket's next number plus the row's place in its arrival order; the next number starts at the largest
  `_MAX_SEQUENCE_NUMBER` of the bucket's live files plus one (0 for an empty bucket), or at what this writer gave out before if that is larger;
  writers that fill a bucket at the same time therefore give out the same numbers, as Java's do. Of two rows of a key with one number an insert
  wins over a delete, and else the one in the file with the larger maximum, smaller minimum, or earlier creation, whichever was committed
  first (spec 04 §2, §14.4): the first compaction settles that for all readers. Where the order of such writes matters, one writer must do them;
* files are of level 0 and source APPEND.

Nothing is visible before `commit`. Leaving the `with` block commits, an exception aborts: then the files that this writer made are deleted,
unless a snapshot may already refer to them. A writer that made several flushes before its commit commits them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from maintainer.data.writer import DataFileWriter
from maintainer.errors import CommitConflict, CommitStateUnknown, MaintainerError, MergeError, Unsupported, UsageError
from maintainer.model.commit import CommitMessage
from maintainer.model.files import BucketKey, DataFileMeta, FileRole, FileSource
from maintainer.model.row_kind import RETRACT_BIT
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.model.snapshot import Snapshot
from maintainer.table.merging import MergeRules
from maintainer.table.options import MergeEngine
from maintainer.table.state import TableState, load_latest
from maintainer.table.store import TableStore
from maintainer.table.support import check_table
from maintainer.write import rows
from maintainer.write.bucketing import Group, group
from maintainer.write.flush import Flush
from maintainer.write.kinds import RowKinds

FLUSH_BYTES = 256 << 20
"""Buffered rows are written out at this size, as Java's `write-buffer-size`."""
MAX_SEQUENCE_PROPERTY = "sequence.generation.max-sequence-number"

Publish = Callable[[Sequence[CommitMessage]], Snapshot | None]
"""Commits messages as one APPEND snapshot; handed in, as committing is not this room's business."""


class Writer:
    """Appends to one table. Not safe to share between threads; several writers of one table may run side by side."""

    def __init__(self, store: TableStore, publish: Publish) -> None:
        self._store = store
        self._publish = publish
        self._schema = store.latest_schema()
        check_table(store, self._schema)
        self._options = store.options(self._schema)
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0
        self._rules = MergeRules.of(self._schema)
        self._kinds = RowKinds(self._rules)
        self._keys_are_enough = self._rules.engine in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW)
        self._writes_changelog = self._options.changelog_producer == "input"
        self._new_files: dict[BucketKey, list[DataFileMeta]] = {}
        self._changelog: dict[BucketKey, list[DataFileMeta]] = {}
        self._created: list[str] = []
        self._next_sequence: dict[BucketKey, int] = {}
        self._state: TableState | None = None
        self._state_is_current = False
        self._total_buckets: dict[bytes, int] = {}
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is not None:
            self.abort()
        elif not self._closed:
            self.commit()
            self._closed = True

    def write(self, data: Any, kind: str = "+I") -> None:
        """Rows that replace those with the same primary key; or records of another kind: -U, +U or -D, for all of them or, in a column
        `_VALUE_KIND`, for each. What a table does with kinds says `maintainer.write.kinds`."""
        self._check_open()
        for batch in rows.batches(data):
            batch, kinds = self._kinds.of(batch, kind)
            kept = self._kinds.kept(kinds)
            if not kept.all():
                batch, kinds = batch.filter(pa.array(kept)), kinds[kept]
            retracts = (kinds & RETRACT_BIT) != 0
            conformed = rows.mixed(batch, self._schema, retracts) if self._keys_are_enough else rows.upserts(batch, self._schema)
            self._buffer.append(conformed.append_column(KIND_FIELD.name, pa.array(kinds)))
            self._buffered += conformed.nbytes
            if self._buffered >= FLUSH_BYTES:
                self._flush()

    def delete(self, keys: Any) -> None:
        """Deletes the rows with these primary keys; other columns of the table may be there, and matter only to readers of a changelog."""
        self.write(keys, "-D")

    def commit(self) -> int | None:
        """Makes everything visible that was written since the last commit; the snapshot's id, or None when there was nothing."""
        self._check_open()
        self._flush()
        if not self._new_files:
            return None
        try:
            snapshot = self._publish(self._messages())
        except BaseException as error:
            if not isinstance(error, MaintainerError) or isinstance(error, CommitStateUnknown):
                self._forget()  # a snapshot may refer to the files: they stay
            self.abort()
            raise
        self._forget()
        return None if snapshot is None else snapshot.id

    def abort(self) -> None:
        """Drops what was not committed, with its files; what cannot be deleted is an orphan. The writer cannot be used any more."""
        created, self._created = self._created, []
        self._forget()
        self._closed = True
        self._store.delete_abandoned(created)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"{self._store.name}: this writer was closed; open another one")

    def _flush(self) -> None:
        """Write out what is buffered. What fails aborts the writer: a later commit would lack some of the rows."""
        try:
            self._write_buffer()
        except BaseException:
            self.abort()
            raise

    def _write_buffer(self) -> None:
        if not self._buffer:
            return
        table = pa.Table.from_batches(self._buffer).combine_chunks()  # or each `take` would copy all of it
        if not table.num_rows:
            self._buffer, self._buffered = [], 0
            return
        self._buffer, self._buffered = [], 0
        state = self._current_state()
        for part in group(table, self._schema, self._options.bucket, self._options.bucket_function):
            self._write_bucket(table, part, state)

    def _write_bucket(self, table: pa.Table, part: Group, state: TableState | None) -> None:
        first = self._first_sequence(part.key, state)
        arrived = table if len(part.rows) == table.num_rows else table.take(pa.array(part.rows))  # which would copy all of it
        sequences = pa.array(np.arange(first, first + len(part.rows)))
        arrived = arrived.add_column(arrived.num_columns - 1, SEQUENCE_FIELD.name, sequences)
        flush = Flush.of(arrived, self._rules)
        if self._writes_changelog:
            self._changelog.setdefault(part.key, []).extend(self._write_files(part.key, flush.changes(), FileRole.CHANGELOG))
        try:
            merged = flush.merged()
        except MergeError as error:
            raise MergeError(f"{self._store.name}: {error}") from error
        self._new_files.setdefault(part.key, []).extend(self._write_files(part.key, merged, FileRole.DATA))
        self._next_sequence[part.key] = first + len(part.rows)

    def _write_files(self, key: BucketKey, rows: pa.Table, role: FileRole) -> Sequence[DataFileMeta]:
        store = self._store
        writer = DataFileWriter(store.storage, store.layout, self._schema, self._options, key, level=0, source=FileSource.APPEND, role=role)
        try:
            writer.write(rows)
            return writer.close()
        except BaseException:
            writer.abort()
            raise
        finally:
            self._created.extend(writer.created)

    def _current_state(self) -> TableState | None:
        """The table as of now; asked once for each commit, so that numbers follow those of other writers."""
        if not self._state_is_current:
            if self._store.latest_schema().id < self._schema.id or self._store.schema(self._schema.id).fields != self._schema.fields:
                raise CommitConflict(f"{self._store.name}: another table was made in the place of the one that this writer was opened for")
            self._state = load_latest(self._store, self._state, self._schema)
            check_table(self._store, self._schema, self._state)
            self._total_buckets = {} if self._state is None else {key.partition: b.total_buckets for key, b in self._state.buckets.items()}
            self._state_is_current = True
        return self._state

    def _first_sequence(self, key: BucketKey, state: TableState | None) -> int:
        first = self._next_sequence.get(key, 0)
        if state is None:
            return first
        total = self._total_buckets.get(key.partition, self._options.bucket)
        if total != self._options.bucket:
            raise Unsupported(
                f"{self._store.name}: the partition was written with {total} buckets and option bucket is {self._options.bucket}: "
                "changing the number of buckets needs a rewrite of the partition, which is not supported"
            )
        if self._options.sequence_number_in_snapshot:
            first = max(first, int((state.snapshot.properties or {}).get(MAX_SEQUENCE_PROPERTY, "-1")) + 1)
        bucket = state.buckets.get(key)
        return max([first, *(file.max_sequence_number + 1 for file in bucket.files)]) if bucket else first

    def _messages(self) -> list[CommitMessage]:
        return [
            CommitMessage(
                key.partition, key.bucket, self._options.bucket, new_files=tuple(files), changelog_files=tuple(self._changelog.get(key, ()))
            )
            for key, files in self._new_files.items()
        ]

    def _forget(self) -> None:
        self._buffer, self._buffered = [], 0
        self._new_files, self._changelog, self._created = {}, {}, []
        self._state_is_current = False
