"""Coverage: which share of a snapshot's rows a batch reader sees, and which share it finds in files with an active index group (DESIGN §1,
§5; spec 06 §16).

    rows          Σ (row count − cardinality of the deletion vector) over all live data files, level 0 as it is
    visible_rows  the same over what a batch reader sees: levels above 0 where deletion vectors or the first-row engine hide level 0, and all
                  of them where files are merged while they are read, also those that newer ones of the same key replace
    covered_rows  of a definition: visible rows in the files of its active groups

Ratios divide by `rows` and are 1.0 when there are none. A file that is not visible is listed once, with column null; a visible file that is
not covered once for each definition that misses it. The state of groups is evaluated on all files of the bucket, by the strict rule unless
the table asks for the relaxed one. A definition that queries do not use (`maintainer.index.usable`) covers nothing, whatever its groups are.
Where a group is missing because it could not be built, the reason is what went wrong then, as passes leave it for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from maintainer.data.deletions import read_deletions
from maintainer.data.values import partition_json
from maintainer.errors import UsageError
from maintainer.index.definition import IndexDefinition, definitions
from maintainer.index.groups import NOT_VISIBLE, POSTPONED, evaluate
from maintainer.index.usable import why_unusable
from maintainer.maintain.quarantine import Failed, load, still_failed
from maintainer.model.bucket import BucketState
from maintainer.model.report import Entry, Report
from maintainer.model.schema import TableSchema
from maintainer.model.work import Group
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

NOT_BUILT = "the group could not be built: "


@dataclass(frozen=True)
class DefinitionCoverage(Entry):
    """Of one indexed column."""

    column: str
    family: str
    covered_rows: int
    ratio: float


@dataclass(frozen=True)
class Uncovered(Entry):
    """A file that a batch reader does not see (column is None), or that the index of a column does not cover."""

    partition: Mapping[str, Any]
    bucket: int
    file: str
    level: int
    rows: int
    column: str | None
    reason: str


@dataclass(frozen=True)
class Coverage(Report):
    """Of one snapshot."""

    snapshot: int | None
    rows: int
    visible_rows: int
    visible_ratio: float
    definitions: tuple[DefinitionCoverage, ...]
    uncovered: tuple[Uncovered, ...]

    def ratio(self, column: str | None = None) -> float:
        """The smallest of all ratios, or that of one definition."""
        found = [definition.ratio for definition in self.definitions if column in (None, definition.column)]
        if column is None:
            found.append(self.visible_ratio)
        elif not found:
            columns = ", ".join(definition.column for definition in self.definitions)
            raise UsageError(f"{self.table}: there is no index on {column!r}; indexed columns: {columns or 'none'}")
        return min(found)


@dataclass(frozen=True)
class AwaitedCoverage(Coverage):
    """What waiting for coverage ended with."""

    reached: bool

    @classmethod
    def of(cls, found: Coverage, reached: bool) -> AwaitedCoverage:
        return cls(**{each.name: getattr(found, each.name) for each in fields(found)}, reached=reached)


def coverage(store: TableStore, state: TableState | None, ignored_files: Iterable[str] = ()) -> Coverage:
    """The coverage of a state; data files named in `ignored_files` are left out, as if they were not there yet."""
    schema = store.latest_schema() if state is None else state.schema
    relaxed = store.options(schema).relaxed_group_acceptance
    hides_level_0 = store.options(schema).hides_level_0 and bool(schema.primary_keys)
    defined = definitions(schema)
    ignored = frozenset(ignored_files)
    unused = unusable(store, state, defined)
    failures = _Failures(store, state, schema)
    rows = visible = 0
    covered = [0] * len(defined)
    uncovered: list[Uncovered] = []
    for bucket in () if state is None else sorted(state.buckets.values(), key=lambda bucket: bucket.key):
        groups = [evaluate(bucket, definition, relaxed) for definition in defined]
        alive = live_rows(store, bucket)
        partition = partition_json(schema, bucket.partition)
        for file in bucket.files:
            if file.file_name in ignored:
                continue
            count = alive[file.file_name]
            rows += count
            found = Uncovered(partition, bucket.bucket, file.file_name, file.level, count, None, NOT_VISIBLE)
            if bucket.bucket < 0 or (file.level == 0 and hides_level_0):
                uncovered.append(replace(found, reason=POSTPONED) if bucket.bucket < 0 else found)
                continue
            visible += count
            for number, (definition, group) in enumerate(zip(defined, groups, strict=True)):
                reason = unused.get(definition.column) or group.reason(file)
                if reason is None:
                    covered[number] += count
                else:
                    if file.is_index_source and definition.column not in unused:
                        reason = failures.reason(Group(bucket.key, definition.column, file.level)) or reason
                    uncovered.append(replace(found, column=definition.column, reason=reason))
    return Coverage(
        table=store.name,
        snapshot=None if state is None else state.snapshot.id,
        rows=rows,
        visible_rows=visible,
        visible_ratio=_ratio(visible, rows),
        definitions=tuple(_of_definition(definition, count, rows) for definition, count in zip(defined, covered, strict=True)),
        uncovered=tuple(uncovered),
    )


class _Failures:
    """Why groups could not be built; looked up when the first one is missing."""

    def __init__(self, store: TableStore, state: TableState | None, schema: TableSchema) -> None:
        self._store, self._state, self._schema = store, state, schema
        self._failed: Failed | None = None

    def reason(self, group: Group) -> str | None:
        if self._failed is None:
            self._failed = still_failed(load(self._store), self._state, self._schema)
        one = self._failed.get(group)
        return None if one is None else f"{NOT_BUILT}{one.reason}"


def unusable(store: TableStore, state: TableState | None, defined: Iterable[IndexDefinition]) -> dict[str, str]:
    """The columns whose index no query of this state uses, with the reason."""
    defined = tuple(defined)
    schemas = () if state is None or not defined else state.schemas_since(store)
    return {definition.column: why for definition in defined if (why := why_unusable(definition, schemas)) is not None}


def live_rows(store: TableStore, bucket: BucketState) -> dict[str, int]:
    """Rows of each file that its deletion vector leaves."""
    deleted = deleted_rows(store, bucket)
    return {file.file_name: max(0, file.row_count - deleted.get(file.file_name, 0)) for file in bucket.files}


def deleted_rows(store: TableStore, bucket: BucketState) -> dict[str, int]:
    """Cardinalities of the bucket's deletion vectors; the vectors are read only where an old writer left the number out."""
    ranges = () if bucket.deletion_file is None else bucket.deletion_file.deletion_ranges or ()
    if any(found.cardinality is None for found in ranges):
        vectors = read_deletions(store.storage, store.layout, bucket.deletion_file, bucket.partition, bucket.bucket)
        return {name: len(vector) for name, vector in vectors.items()}
    return {found.data_file: found.cardinality or 0 for found in ranges}


def _of_definition(definition: IndexDefinition, covered: int, rows: int) -> DefinitionCoverage:
    return DefinitionCoverage(definition.column, str(definition.family), covered, _ratio(covered, rows))


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
