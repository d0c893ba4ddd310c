"""An opened table: reading, writing, maintaining and inspecting in one place (DESIGN §5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any

from maintainer.errors import UsageError
from maintainer.model.schema import TableSchema
from maintainer.quiet import log_quietly
from maintainer.table.opening import create_store, open_store
from maintainer.table.store import TableStore

if TYPE_CHECKING:
    from maintainer.api.account import PassReport
    from maintainer.api.alter import Alteration
    from maintainer.api.create import Definition
    from maintainer.api.maintenance import OnEvent
    from maintainer.data.key_cache import KeyCache
    from maintainer.data.spill import Spill
    from maintainer.index.definition import IndexDefinition
    from maintainer.inspect.contents import Files, Snapshots
    from maintainer.inspect.coverage import AwaitedCoverage, Coverage
    from maintainer.inspect.diagnosis import Diagnosis
    from maintainer.inspect.verify import Verification
    from maintainer.maintain.execute import Progress
    from maintainer.maintain.reclaim.expire import Expiry
    from maintainer.model.predicate import Predicate
    from maintainer.model.schema_change import SchemaChange
    from maintainer.model.split import Split
    from maintainer.read.scan import Scan
    from maintainer.read.scan_split import ScanSplit
    from maintainer.table.state import TableState
    from maintainer.write.writer import Writer


def open_table(
    uri_or_name: str | PathLike[str],
    warehouse: str | PathLike[str] | None = None,
    catalog: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    branch: str | None = None,
    options: Mapping[str, str | int | float] | None = None,
) -> Table:
    """The table at a URI or path, or `db.t` of a warehouse; `options` are dynamic table options for what is done through it."""
    log_quietly()
    return Table(open_store(uri_or_name, warehouse, storage_options, branch, options, catalog))


def create_table(
    uri: str | PathLike[str],
    schema: Definition,
    warehouse: str | PathLike[str] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Table:
    """A new, empty table.

    `schema` is Paimon's schema JSON or its essence {"fields": [{"name", "type"}], "primaryKeys", "partitionKeys", "options"} as an object
    or text, a SQL `CREATE TABLE` statement, or the path (`pathlib.Path`) of a file with one of them.
    """
    from maintainer.api.create import schema_of

    log_quietly()
    return Table(create_store(uri, schema_of(schema), warehouse, storage_options))


def _again(store: TableStore) -> Table:
    """A table that came from another process."""
    log_quietly()
    return Table(store)


class Table:
    """A table, always as it is now: every call looks at the latest snapshot and schema."""

    def __init__(self, store: TableStore) -> None:
        self.store = store

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.store,)

    @property
    def name(self) -> str:
        return self.store.name

    @property
    def schema(self) -> TableSchema:
        """The latest schema, dynamic options included."""
        return self.store.latest_schema()

    @property
    def index_definitions(self) -> Mapping[str, IndexDefinition]:
        """The indexes of the latest schema by their columns, in the order of its fields."""
        from maintainer.index.definition import definitions

        return {definition.column: definition for definition in definitions(self.schema)}

    def alter(self, *changes: SchemaChange, set: Mapping[str, str] | None = None, unset: str | Sequence[str] = ()) -> Alteration:  # noqa: A002
        """Change the schema: options by `set` and `unset`, columns by `maintainer.changes`. All changes together are one schema, or none.

        What a changed index definition means for the table's groups is in the answer; the next pass does it.
        """
        from maintainer.api.alter import alter
        from maintainer.api.changes import set_option, unset_option

        asked: list[SchemaChange] = [unset_option(key) for key in ([unset] if isinstance(unset, str) else unset)]
        asked += [set_option(key, value) for key, value in (set or {}).items()]
        return alter(self.store, [*asked, *changes])

    def scan(
        self,
        where: str | Predicate | Any = None,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[Any] | None = None,
        limit: int | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        as_of: Any = None,
        use_index: bool = True,
        *,
        memory: int | None = None,
        spill: Spill | None = None,
    ) -> Scan:
        """Rows that a batch reader sees; nothing is read before the scan is asked for its plan or its rows.

        Where files have to be merged for it, `memory` is a budget in bytes (256 MB by default), and what does not fit goes to `spill`.
        """
        from maintainer.read.scan import Scan

        return Scan(
            self.store,
            where=where,
            columns=columns,
            order_by=order_by,
            limit=limit,
            snapshot_id=snapshot_id,
            tag=tag,
            as_of=as_of,
            use_index=use_index,
            memory=memory,
            spill=spill,
        )

    def read_split(
        self,
        split: bytes | Split | ScanSplit,
        columns: Sequence[str] | None = None,
        where: str | Predicate | Any = None,
        *,
        memory: int | None = None,
        spill: Spill | None = None,
    ) -> ScanSplit:
        """The rows of a split of this table that anybody planned: `ScanSplit.to_bytes`, Java's `SplitSerializer`, pypaimon, Rust.

        It is read with the latest schema, or the one that the table's options choose, and `where` is tested on its rows: nobody knows what it
        was planned for. `__paimon_search_score` among the `columns` are the scores of a search. Reading starts when rows are asked for.
        """
        from maintainer.read.scan import Scan

        return Scan(self.store, where=where, columns=columns, memory=memory, spill=spill).of_split(split)

    def writer(self) -> Writer:
        """A context manager that appends: leaving the block commits, an exception aborts."""
        from maintainer.commit.committer import Committer
        from maintainer.write.writer import Writer

        return Writer(self.store, Committer(self.store).commit_append)

    def maintain(
        self,
        full: bool = False,
        *,
        partitions: Sequence[Mapping[str, str]] | None = None,
        index_only: bool = False,
        columns: Sequence[str] | None = None,
        force: bool = False,
        rewrite_append: bool = True,
        repeat: bool = True,
        memory: int | None = None,
        progress: Progress | None = None,
        on_event: OnEvent | None = None,
        commit_interval: float | None = None,
        stop: threading.Event | None = None,
        spill: Spill | None = None,
        cache: KeyCache | None = None,
        rewrite_append_bytes: int | None = None,
    ) -> PassReport:
        """One maintenance pass, until nothing is left to do: compacts, builds the index groups that this touches, and commits both.

        `full`: everything into the highest level. `partitions`: only these, each by some or all of its columns. `index_only`: index groups,
        no data; of these `columns` only, with `force` also current ones. `rewrite_append=False` moves files as Java does where no index can
        cover them, and `rewrite_append_bytes` limits what is rewritten of those that are there already. Without `repeat` one round is enough.
        `memory` is a budget in bytes; what does not fit goes to `spill`. `cache` is for passes over the same table again and again: the keys
        of files that do not change are kept there. What is finished is committed in groups, each `commit_interval`
        seconds (by default what `maintain.commit-interval` says) and before an error is raised. Setting `stop` ends the pass early.

        The callbacks are called from several threads: `progress(work, bytes)` while files are read, `on_event(name, fields)` for what is
        logged; the last event is `pass.finished`, also of a pass that fails.
        """
        from maintainer.api.maintenance import run_pass

        return run_pass(
            self.store,
            full=full,
            partitions=partitions,
            index_only=index_only,
            columns=columns,
            force=force,
            rewrite_append=rewrite_append,
            repeat=repeat,
            memory=memory,
            progress=progress,
            on_event=on_event,
            commit_interval=commit_interval,
            stop=stop,
            spill=spill,
            cache=cache,
            rewrite_append_bytes=rewrite_append_bytes,
        )

    def expire(
        self,
        retain_max: int | None = None,
        retain_min: int | None = None,
        time_retained: float | str | timedelta | None = None,
        max_expires: int | None = None,
        dry_run: bool = False,
        *,
        keep_from: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Expiry:
        """Expire old snapshots, with the files that nothing needs any more; what a tag, a consumer or another branch needs stays.

        The table's options say what is kept (`snapshot.num-retained.min`, `snapshot.num-retained.max`, `snapshot.time-retained`) and how many
        snapshots go at a time (`snapshot.expire.limit`), unless this call does; `time_retained` in seconds or like "1 h". Snapshots from
        `keep_from` on stay in any case. `dry_run` deletes nothing and tells what would go. `progress(bytes)` is called from several threads.
        """
        from maintainer.maintain.reclaim.expire import expire
        from maintainer.table.option_text import parse_duration

        if isinstance(time_retained, str):
            bare = time_retained.strip().isdigit()  # milliseconds in an option, which would let nearly all snapshots go
            time_retained = float(time_retained) if bare else parse_duration(time_retained)
        elif isinstance(time_retained, timedelta):
            time_retained = time_retained.total_seconds()
        return expire(
            self.store,
            retain_min=retain_min,
            retain_max=retain_max,
            seconds=time_retained,
            limit=max_expires,
            keep_from=keep_from,
            dry_run=dry_run,
            progress=progress,
        )

    def coverage(self) -> Coverage:
        """Which share of the rows a batch reader sees, and finds through each index."""
        from maintainer.inspect.coverage import coverage

        return coverage(self.store, self._state())

    def wait_for_coverage(
        self, ratio: float = 1.0, snapshot: int | None = None, definition: str | None = None, timeout: float = 60.0
    ) -> AwaitedCoverage:
        """Waits until visibility and the coverage of every definition (or of one) have reached `ratio`, at most `timeout` seconds.

        With `snapshot`, rows that arrived after that snapshot do not count while they wait in level 0. That snapshots expire meanwhile does
        not matter.
        """
        from maintainer.api.waiting import wait_for_coverage

        self._check_definition(definition)
        return wait_for_coverage(self.store, ratio, snapshot, definition, timeout)

    def files(self) -> Files:
        """The live data files."""
        from maintainer.inspect.contents import files

        return files(self.store, self._state())

    def snapshots(self) -> Snapshots:
        """All snapshots, oldest first."""
        from maintainer.inspect.contents import snapshots

        return snapshots(self.store)

    def verify(self, deep: bool = False) -> Verification:
        """Checks every reference, checksum and count; `deep` reads the data and compares the indexes with it, too."""
        from maintainer.inspect.verify import verify

        return verify(self.store, deep)

    def doctor(self) -> Diagnosis:
        """Whether this package can maintain the table, and what should be set."""
        from maintainer.inspect.doctor import diagnose

        return diagnose(self.store)

    def _state(self) -> TableState | None:
        from maintainer.table.state import load_latest

        return load_latest(self.store)

    def _check_definition(self, column: str | None) -> None:
        if column is not None and column not in self.index_definitions:
            raise UsageError(f"{self.name}: column {column!r} has no index definition")
