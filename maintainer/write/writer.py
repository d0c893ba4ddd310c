"""The writer: rows to sorted level-0 files, one run for each (partition, bucket) and flush (spec 04 §9.5; Java `MergeTreeWriter`).

Invariants of what one flush writes for a bucket:

* keys ascend and are unique; of several rows of a key the last one that arrived is kept, a delete as `-D`;
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
from maintainer.errors import CommitConflict, CommitStateUnknown, MaintainerError, Unsupported, UsageError
from maintainer.merge.order import sort_groups
from maintainer.model.commit import CommitMessage
from maintainer.model.files import BucketKey, DataFileMeta, FileSource
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.model.snapshot import Snapshot
from maintainer.table.state import TableState, load_latest
from maintainer.table.store import TableStore
from maintainer.table.support import check_table
from maintainer.write import rows
from maintainer.write.bucketing import Group, group

INSERT, DELETE = 0, 3
"""Values of `_VALUE_KIND` (spec 02 §2)."""
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
        self._new_files: dict[BucketKey, list[DataFileMeta]] = {}
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

    def write(self, data: Any) -> None:
        """Inserts rows, or replaces those with the same primary key."""
        self._add(data, rows.upserts, INSERT)

    def delete(self, keys: Any) -> None:
        """Deletes the rows with these primary keys; other columns of the table may be there and are ignored."""
        self._add(keys, rows.deletes, DELETE)

    def commit(self) -> int | None:
        """Makes everything visible that was written since the last commit; the snapshot's id, or None when there was nothing."""
        self._check_open()
        try:
            self._flush()
        except BaseException:
            self.abort()
            raise
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

    def _add(self, data: Any, conform: Callable[..., pa.RecordBatch], kind: int) -> None:
        self._check_open()
        for batch in rows.batches(data):
            conformed = conform(batch, self._schema)
            kinds = pa.array(np.full(batch.num_rows, kind, dtype=np.int8))
            self._buffer.append(conformed.append_column(KIND_FIELD.name, kinds))
            self._buffered += conformed.nbytes
            if self._buffered >= FLUSH_BYTES:
                self._flush()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"{self._store.name}: this writer was closed; open another one")

    def _flush(self) -> None:
        if not self._buffer:
            return
        table = pa.Table.from_batches(self._buffer).combine_chunks()  # or each `take` would copy all of it
        self._buffer, self._buffered = [], 0
        state = self._current_state()
        for part in group(table, self._schema, self._options.bucket, self._options.bucket_function):
            self._write_bucket(table, part, state)

    def _write_bucket(self, table: pa.Table, part: Group, state: TableState | None) -> None:
        first = self._first_sequence(part.key, state)
        keys = table.select(list(self._schema.trimmed_primary_keys)).take(part.rows)
        order, starts = sort_groups(keys.columns, self._schema.key_types)
        last_of_key = order[np.append(starts[1:], len(order)) - 1]
        sequences = pa.array(first + last_of_key.astype(np.int64))
        kept = table.take(part.rows[last_of_key])
        kept = kept.add_column(kept.num_columns - 1, SEQUENCE_FIELD.name, sequences)
        writer = DataFileWriter(
            self._store.storage,
            self._store.layout,
            self._schema,
            self._options,
            part.key,
            level=0,
            source=FileSource.APPEND,
        )
        try:
            writer.write(kept)
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        finally:
            self._created.extend(writer.created)
        self._new_files.setdefault(part.key, []).extend(files)
        self._next_sequence[part.key] = first + len(part.rows)

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
            CommitMessage(key.partition, key.bucket, self._options.bucket, new_files=tuple(files)) for key, files in self._new_files.items()
        ]

    def _forget(self) -> None:
        self._buffer, self._buffered = [], 0
        self._new_files, self._created = {}, []
        self._state_is_current = False
