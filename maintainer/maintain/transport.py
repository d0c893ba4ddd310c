"""Plans and results as JSON (DESIGN §5), so that another process or host can execute a plan, and another one commit its result.

Besides the fields for people, a work item carries the whole state of its bucket, and a result the commit message; both as base64 of

    int32 version, int32 length, commit-message body          (spec 03 §5)

where the state of a bucket is written as a message that adds all its files. Neither holds secrets: who executes or commits opens the table with
its own storage options. What comes back from outside is checked here, before anything acts on it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from maintainer.data.values import partition_json
from maintainer.errors import CorruptFile, UsageError
from maintainer.format import commit_message
from maintainer.model.bucket import BucketState
from maintainer.model.commit import CommitMessage
from maintainer.model.files import DELETION_VECTORS, IndexFileMeta
from maintainer.model.report import VERSION
from maintainer.model.schema import TableSchema
from maintainer.model.work import Clock, CompactionUnit, IndexFailure, PickMemory, Plan, Rebuild, Result, Work, WorkKind
from maintainer.storage.layout import check_file_name


def plan_to_json(plan: Plan, schema: TableSchema) -> dict[str, Any]:
    """The document of `maintainer plan --json`, which `maintainer execute` reads."""
    return {
        "version": VERSION,
        "table": plan.table,
        "snapshot": plan.snapshot_id,
        "uuid": plan.snapshot_uuid,
        "schema_id": plan.schema_id,
        "work": [_work_to_json(work, schema) for work in plan.work],
        "idle_reason": plan.idle_reason,
        "held": [
            {"partition": partition_json(schema, key.partition), "bucket": key.bucket, "reason": plan.held[key]} for key in sorted(plan.held)
        ],
        "quarantined": [
            {
                "partition": partition_json(schema, group.key.partition),
                "bucket": group.key.bucket,
                "column": group.column,
                "level": group.level,
                "reason": plan.quarantined[group],
            }
            for group in sorted(plan.quarantined)
        ],
        "definition_changes": [change.to_dict() for change in plan.definition_changes],
        "estimated_bytes": plan.estimated_bytes,
        "estimated_memory": plan.estimated_memory,
    }


def plan_from_json(document: Any) -> Plan:
    """The plan that a document describes; `UsageError` for anything else."""
    fields = _Fields(document, "plan")
    fields.version()
    return Plan(
        table=fields.text("table"),
        snapshot_id=None if fields.get("snapshot") is None else fields.snapshot_id(),
        snapshot_uuid=fields.optional_text("uuid"),
        schema_id=fields.integer("schema_id"),
        work=tuple(_work_from_json(work) for work in fields.items("work")),
        idle_reason=fields.optional_text("idle_reason"),
    )


def result_to_json(result: Result, schema: TableSchema) -> dict[str, Any]:
    """One line of `maintainer execute`, which `maintainer commit` reads."""
    return {
        "version": VERSION,
        "table": result.table,
        "snapshot": result.snapshot_id,
        "uuid": result.snapshot_uuid,
        "schema_id": result.schema_id,
        "work": {
            "partition": partition_json(schema, result.message.partition),
            "bucket": result.message.bucket,
            "kind": str(result.kind),
            "reason": result.reason,
        },
        "deletion_file": result.deletion_file,
        "created": list(result.created),
        "counts": dict(result.counts),
        "failures": [failure.to_dict() for failure in result.failures],
        "message": _encode(result.message),
    }


def result_from_json(document: Any) -> Result:
    """The result that a document describes; `UsageError` for anything else."""
    fields = _Fields(document, "result")
    fields.version()
    work = _Fields(fields.get("work"), "work of a result")
    counts = fields.get("counts")
    if not isinstance(counts, Mapping) or not all(isinstance(count, int) for count in counts.values()):
        raise UsageError("result: 'counts' must be an object of numbers")
    failures = [_Fields(item, "failure") for item in fields.items("failures")]
    return Result(
        table=fields.text("table"),
        snapshot_id=fields.snapshot_id(),
        snapshot_uuid=fields.optional_text("uuid"),
        schema_id=fields.integer("schema_id"),
        kind=_kind(work),
        reason=work.text("reason"),
        deletion_file=fields.optional_text("deletion_file"),
        message=_decode(fields.text("message")),
        created=tuple(fields.texts("created")),
        counts={str(name): count for name, count in counts.items()},
        failures=tuple(
            IndexFailure(one.text("column"), one.integer("level"), one.text("reason"), one.text("sources"), one.boolean("about_values"))
            for one in failures
        ),
    )


def _work_to_json(work: Work, schema: TableSchema) -> dict[str, Any]:
    unit = work.unit
    return {
        "partition": partition_json(schema, work.bucket.partition),
        "bucket": work.bucket.bucket,
        "kind": str(work.kind),
        "reason": work.reason,
        "input_files": [file.file_name for file in unit.files] if unit else [],
        "output_level": unit.output_level if unit else None,
        "rebuilds": _groups_to_json(work.rebuilds),
        "quarantined": _groups_to_json(work.quarantined),
        "estimated_bytes": work.estimated_bytes,
        "estimated_memory": work.estimated_memory,
        "file_rewrite": unit.file_rewrite if unit else None,
        "rewrite_append": work.rewrite_append,
        "rewrite_elsewhere": work.rewrite_elsewhere,
        "second_round": work.second_round,
        "gentle": work.gentle,
        "clock": {"now": work.clock.now, "local_hour": work.clock.local_hour},
        "last_full": work.memory.last_full,
        "state": _encode(_state_message(work.bucket)),
    }


def _work_from_json(document: Any) -> Work:
    fields = _Fields(document, "work")
    bucket = _state_of(_decode(fields.text("state")))
    files = {file.file_name: file for file in bucket.files}
    names = fields.texts("input_files")
    unknown = [name for name in names if name not in files]
    if unknown:
        raise UsageError(f"work: input file {unknown[0]!r} is not a file of its bucket")
    kind = _kind(fields)
    level = fields.optional_integer("output_level")
    if (level is None) != (kind is WorkKind.INDEX):
        raise UsageError(f"work: kind {kind} with output level {level}")
    clock = _Fields(fields.get("clock"), "clock of a work")
    return Work(
        kind=kind,
        bucket=bucket,
        reason=fields.text("reason"),
        unit=None if level is None else CompactionUnit(level, tuple(files[name] for name in names), fields.boolean("file_rewrite")),
        rewrite_append=fields.boolean("rewrite_append"),
        rewrite_elsewhere=fields.boolean("rewrite_elsewhere"),
        second_round=fields.boolean("second_round"),
        gentle=fields.boolean("gentle"),
        clock=Clock(clock.integer("now"), clock.integer("local_hour")),
        memory=PickMemory(fields.optional_integer("last_full")),
        rebuilds=_groups_from_json(fields, "rebuilds"),
        quarantined=_groups_from_json(fields, "quarantined"),
        estimated_bytes=fields.integer("estimated_bytes"),
        estimated_memory=fields.integer("estimated_memory"),
    )


def _groups_to_json(groups: Sequence[Rebuild]) -> list[dict[str, Any]]:
    return [{"column": group.column, "level": group.level} for group in groups]


def _groups_from_json(fields: _Fields, name: str) -> tuple[Rebuild, ...]:
    found = [_Fields(item, f"one of {name}") for item in fields.items(name)]
    return tuple(Rebuild(one.text("column"), one.integer("level")) for one in found)


def _state_message(bucket: BucketState) -> CommitMessage:
    deletions = () if bucket.deletion_file is None else (bucket.deletion_file,)
    return CommitMessage(
        partition=bucket.partition,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        new_files=bucket.files,
        new_index_files=(*deletions, *bucket.payloads),
        deleted_index_files=bucket.other_index_files,  # a list of their own: what is carried along may look like anything
    )


def _state_of(message: CommitMessage) -> BucketState:
    deletions: list[IndexFileMeta] = [file for file in message.new_index_files if file.index_type == DELETION_VECTORS]
    if len(deletions) > 1 or message.total_buckets is None:
        raise UsageError("work: 'state' is not the state of a bucket")
    return BucketState(
        partition=message.partition,
        bucket=message.bucket,
        total_buckets=message.total_buckets,
        files=message.new_files,
        deletion_file=deletions[0] if deletions else None,
        payloads=tuple(file for file in message.new_index_files if file.index_type != DELETION_VECTORS),
        other_index_files=message.deleted_index_files,
    )


def _encode(message: CommitMessage) -> str:
    return base64.b64encode(commit_message.frame(message)).decode("ascii")


def _decode(text: str) -> CommitMessage:
    try:
        message = commit_message.unframe(base64.b64decode(text, validate=True))
        for data in (*message.added_files, *message.removed_files):
            for name in (data.file_name, *data.extra_files):
                check_file_name(name)
        for index in (*message.added_index_files, *message.removed_index_files):
            check_file_name(index.file_name)
        return message
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"not base64: {error}") from None
    except CorruptFile as error:
        raise UsageError(f"not a commit message: {error.reason}") from None


def _kind(fields: _Fields) -> WorkKind:
    text = fields.text("kind")
    try:
        return WorkKind(text)
    except ValueError:
        raise UsageError(f"{fields.what}: unknown kind {text!r}") from None


class _Fields:
    """A JSON object that must have certain members."""

    def __init__(self, document: Any, what: str) -> None:
        if not isinstance(document, Mapping):
            raise UsageError(f"{what}: expected a JSON object")
        self.document = document
        self.what = what

    def version(self) -> None:
        if self.integer("version") != VERSION:
            raise UsageError(f"{self.what}: version {self.document['version']} is not version {VERSION}")

    def snapshot_id(self) -> int:
        found = self.integer("snapshot")
        if found < 1:
            raise UsageError(f"{self.what}: there can be no snapshot {found}")
        return found

    def get(self, name: str) -> Any:
        if name not in self.document:
            raise UsageError(f"{self.what}: {name!r} is missing")
        return self.document[name]

    def _typed(self, name: str, kind: type | tuple[type, ...], word: str) -> Any:
        value = self.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise UsageError(f"{self.what}: {name!r} must be {word}, but is {value!r}")
        return value

    def text(self, name: str) -> str:
        return str(self._typed(name, str, "a text"))

    def integer(self, name: str) -> int:
        return int(self._typed(name, int, "a whole number"))

    def boolean(self, name: str) -> bool:
        return bool(self._typed(name, bool, "true or false"))

    def optional_text(self, name: str) -> str | None:
        return None if self.get(name) is None else self.text(name)

    def optional_integer(self, name: str) -> int | None:
        return None if self.get(name) is None else self.integer(name)

    def items(self, name: str) -> Sequence[Any]:
        value: Sequence[Any] = self._typed(name, list, "a list")
        return value

    def texts(self, name: str) -> list[str]:
        values = self.items(name)
        if not all(isinstance(value, str) for value in values):
            raise UsageError(f"{self.what}: {name!r} must be a list of texts")
        return list(values)
