"""What a scan would do, for people and programs: with each file and why, what each step of planning leaves, and which rows cannot be seen yet
(DESIGN §5, `query --explain`; spec 07 §10.3).

Steps come in the order of planning, each with what is left after it; `files` is what there is. Rows are physical ones, deleted rows included,
and after the last step, which narrows files to positions, those that are selected; bytes are the sizes of the files that are left.

A row that was written may be invisible, whatever the condition is: it is still in level 0 of a table whose readers do not look there, or was
postponed. `hidden` has, bucket by bucket, the files of that kind that may hold rows of the answer. Partition, bucket, keys and statistics were
asked about them as about all others, so what is not listed cannot be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from maintainer.data.values import partition_json
from maintainer.model.files import BucketKey
from maintainer.model.report import Entry, Report
from maintainer.read.decisions import FilePlan, ScanPlan
from maintainer.table.store import TableStore
from maintainer.table.support import findings

MOST_SHOWN = 50
"""Files, and buckets with hidden rows, of an explanation as text."""


@dataclass(frozen=True)
class FileDecision(Entry):
    """One file of an explanation."""

    partition: Mapping[str, Any]
    bucket: int
    file: str
    level: int
    size: int
    decision: str
    reason: str
    column: str | None
    group: str | None
    ranges: tuple[tuple[int, int], ...] | None
    rows: int


@dataclass(frozen=True)
class StepLeft(Entry):
    """What is left to be read after a step of planning."""

    step: str
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Hidden(Entry):
    """Files of a bucket that may hold rows of the answer and are not read; their rows may also be deletes."""

    partition: Mapping[str, Any]
    bucket: int
    files: int
    rows: int
    reason: str
    do: str


@dataclass(frozen=True)
class Explanation(Report):
    """What a scan would do with each file of its snapshot, and why."""

    snapshot: int | None
    files: tuple[FileDecision, ...]
    steps: tuple[StepLeft, ...]
    hidden: tuple[Hidden, ...]

    def __str__(self) -> str:
        """For people: what the steps leave, the files that are read, and what is hidden; everything else is in the members."""
        lines = [self.table if self.snapshot is None else f"{self.table}  snapshot {self.snapshot}"]
        for number, step in enumerate(self.steps):
            if number in (0, len(self.steps) - 1) or step.files < self.steps[number - 1].files:
                lines.append(f"{step.step:<12}{step.files:>9,} files left {step.rows:>15,} rows left")
        read = [file for file in self.files if file.rows]
        for file in read[:MOST_SHOWN]:
            home = "".join(f"{name}={value}/" for name, value in file.partition.items()) + f"bucket-{file.bucket}/{file.file}"
            lines.append(f"{file.decision:<8} {file.rows:>12,} rows  {home}  {file.reason}")
        if len(read) > MOST_SHOWN:
            lines.append(f"… and {len(read) - MOST_SHOWN:,} more files")
        lines += [f"hidden   {each.rows:>12,} rows  bucket {each.bucket}: {each.reason}; {each.do}" for each in self.hidden[:MOST_SHOWN]]
        return "\n".join(lines)


def explained(store: TableStore, plan: ScanPlan) -> Explanation:
    """A plan in words."""
    partitions: dict[bytes, Mapping[str, Any]] = {}

    def partition(of: bytes) -> Mapping[str, Any]:
        if of not in partitions:
            partitions[of] = partition_json(plan.schema, of)
        return partitions[of]

    return Explanation(
        table=store.name,
        snapshot=None if plan.snapshot is None else plan.snapshot.id,
        files=tuple(_decision(partition(each.bucket.partition), each) for each in plan.files),
        steps=tuple(StepLeft(step.name, step.files, step.rows, step.bytes) for step in plan.steps),
        hidden=tuple(_hidden(plan, partition, _remedy(store, plan))),
    )


def _decision(partition: Mapping[str, Any], plan: FilePlan) -> FileDecision:
    file = plan.file
    return FileDecision(
        partition=partition,
        bucket=plan.bucket.bucket,
        file=file.file_name,
        level=file.level,
        size=file.file_size,
        decision=plan.decision,
        reason=plan.reason,
        column=plan.column,
        group=plan.group,
        ranges=plan.ranges,
        rows=plan.rows,
    )


def _hidden(plan: ScanPlan, partition: Any, do: str) -> Iterator[Hidden]:
    def home(each: FilePlan) -> tuple[BucketKey, str]:
        return each.bucket.key, each.reason

    for (key, reason), found in groupby(plan.hidden, key=home):
        files = [each.file for each in found]
        yield Hidden(partition(key.partition), key.bucket, len(files), sum(file.row_count for file in files), reason, do)


def _remedy(store: TableStore, plan: ScanPlan) -> str:
    once = f"maintainer once {store.uri}" + (f" --branch {store.branch}" if store.branch else "")
    refused = next((finding for finding in findings(plan.schema) if finding.maintaining), None) if plan.hidden else None
    if refused is not None:
        once = f"CALL sys.compact in Flink or Spark, as maintainer does not compact this table: {refused}"
    latest = store.latest_snapshot() if plan.hidden else None
    if latest is None or plan.snapshot is None or latest.id <= plan.snapshot.id:
        return once
    return f"read a later snapshot than {plan.snapshot.id}, in which nothing becomes visible any more; where it is not visible either: {once}"
