"""Tables of metadata only: files that are committed but do not exist, since committing never reads them. And stores that fail on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from maintainer.commit.committer import CommitOutcome, Committer
from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta, ordered
from maintainer.model.bucket import BucketState
from maintainer.model.commit import CommitMessage
from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta, IndexFileMeta
from maintainer.model.snapshot import Snapshot
from maintainer.model.work import Result, WorkKind
from maintainer.storage.local import LocalStorage
from maintainer.table.opening import create_store
from maintainer.table.state import TableState, load_state
from maintainer.table.store import TableStore
from tests.support import builders

OPTIONS = {"bucket": "2", "deletion-vectors.enabled": "true", "commit.min-retry-wait": "1 ms"}


def empty_table(path: Path, options: Mapping[str, str] | None = None, partition_keys: Sequence[str] = ()) -> TableStore:
    """`id INT` (and string partition keys) as primary key, `v STRING`; two buckets with deletion vectors."""
    columns = {**dict.fromkeys(partition_keys, "STRING NOT NULL"), "id": "INT", "v": "STRING"}
    schema = builders.schema(columns, [*partition_keys, "id"], partition_keys, {**OPTIONS, **(options or {})})
    return create_store(str(path / "t"), schema)


def latest(store: TableStore) -> Snapshot:
    snapshot = store.latest_snapshot()
    assert snapshot is not None
    return snapshot


def state(store: TableStore) -> TableState:
    """Read anew, by nobody's cache."""
    return load_state(TableStore(store.storage, store.branch, store.dynamic_options), latest(store))


def bucket(store: TableStore, number: int = 0, partition: bytes = EMPTY_ROW) -> BucketState:
    return state(store).bucket(BucketKey(partition, number))


def names(files: Iterable[DataFileMeta]) -> Counter[tuple[str, int]]:
    return Counter((file.file_name, file.level) for file in files)


def append(
    store: TableStore, *files: DataFileMeta, number: int = 0, partition: bytes = EMPTY_ROW, total_buckets: int | None = None
) -> Snapshot:
    """What a writer does, with a committer of its own."""
    message = CommitMessage(partition, number, total_buckets, new_files=files)
    snapshot = Committer(store, "writer").commit_append([message])
    assert snapshot is not None
    return snapshot


def result(
    store: TableStore,
    before: Sequence[DataFileMeta] = (),
    after: Sequence[DataFileMeta] = (),
    *,
    new_index: Sequence[IndexFileMeta] = (),
    deleted_index: Sequence[IndexFileMeta] = (),
    number: int = 0,
    partition: bytes = EMPTY_ROW,
    total_buckets: int | None = 2,
    base: Snapshot | None = None,
    deletion_file: str | None = None,
) -> Result:
    """The result of a compaction, or of an index build when no data file changes; based on the latest snapshot unless told otherwise."""
    base = base or latest(store)
    new, deleted = tuple(new_index), tuple(deleted_index)
    if before or after:
        message = CommitMessage(
            partition,
            number,
            total_buckets,
            compact_before=tuple(before),
            compact_after=tuple(after),
            compact_new_index_files=new,
            compact_deleted_index_files=deleted,
        )
    else:
        message = CommitMessage(partition, number, total_buckets, new_index_files=new, deleted_index_files=deleted)
    kind = WorkKind.COMPACT if before or after else WorkKind.INDEX
    return Result(store.uri, base.id, base.uuid, 0, kind, "test", deletion_file, message)


def commit(store: TableStore, *results: Result) -> CommitOutcome:
    """With a committer of its own."""
    return Committer(store, "compactor").commit_results(results)


def group(name: str, *files: DataFileMeta, index_type: str = "btree", field_id: int = 1) -> IndexFileMeta:
    """The payload over these files, which are of one level."""
    meta = SourceMeta(files[0].level, ordered((file.file_name, file.row_count) for file in files))
    rows = sum(file.row_count for file in files)
    return builders.payload(name, index_type, rows, field_id, source_meta.encode(meta))


class FaultyStorage(LocalStorage):
    """The local file system, with `before` and `after` called around each request: they may raise, or do something meanwhile."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.before: Callable[[str, str], None] = lambda request, path: None
        self.after: Callable[[str, str], None] = lambda request, path: None

    def create_if_absent(self, path: str, data: bytes, exclusive: bool = True) -> bool:
        self.before("create_if_absent", path)
        created = super().create_if_absent(path, data, exclusive)
        self.after("create_if_absent", path)
        return created

    def read(self, path: str) -> bytes:
        self.before("read", path)
        return super().read(path)

    def write(self, path: str, data: bytes | bytearray | memoryview) -> None:
        self.before("write", path)
        super().write(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self.before("replace", path)
        super().replace(path, data)


def faulty(store: TableStore) -> tuple[TableStore, FaultyStorage]:
    """The same table, opened once more over a store that can be made to fail."""
    storage = FaultyStorage(store.uri)
    return TableStore(storage, store.branch, store.dynamic_options), storage
