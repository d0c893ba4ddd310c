"""Commands that do the work: once, compact, index, plan, execute, commit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maintainer.cli.invocation import TABLE_HELP, Invocation, TableName, command, complain, explained, key_values
from maintainer.errors import CommitConflict, UsageError

if TYPE_CHECKING:
    from maintainer.api.table import Table
    from maintainer.model.work import Work

SEVERITY = (3, 5, 7, 4, 1)
"""Exit codes of several tables: the first of these that occurred."""

Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="K=V,…", help="Only this partition, given by some or all of its columns; may be repeated."),
]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory budget, like 512mb. Default: 1 GB or half of the container.")]
KeepAppend = Annotated[
    bool, typer.Option("--no-rewrite-append", help="Move written files to higher levels as Java does; indexes cannot cover them there.")
]


def register(app: typer.Typer) -> None:
    command(app, "once")(once)
    command(app, "compact")(compact)
    command(app, "index")(index)
    command(app, "plan")(plan)
    command(app, "execute")(execute)
    command(app, "commit")(commit)


def once(
    call: Invocation,
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help=TABLE_HELP, show_default=False)],
    rewrite_append: KeepAppend = False,
    memory: Memory = None,
) -> int:
    """One complete maintenance pass over tables: compact, index and commit until nothing is left to do."""
    return _passes(call, tables, rewrite_append=not rewrite_append, memory=_bytes(memory))


def compact(
    call: Invocation,
    table: TableName,
    full: Annotated[bool, typer.Option("--full", help="Everything into the highest level.")] = False,
    partition: Partitions = None,
    rewrite_append: KeepAppend = False,
    memory: Memory = None,
) -> int:
    """Compact a table now, with the index groups that this touches."""
    partitions = _partitions(partition)
    return _passes(call, [table], full=full, partitions=partitions, rewrite_append=not rewrite_append, memory=_bytes(memory), repeat=False)


def index(
    call: Invocation,
    table: TableName,
    action: Annotated[str, typer.Argument(metavar="rebuild", help="What to do: rebuild is all there is.", show_default=False)],
    column: Annotated[list[str] | None, typer.Option(metavar="C", help="Only the index of this column; may be repeated.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also groups that are in order.")] = False,
    memory: Memory = None,
) -> int:
    """Build missing or stale index groups; the data stays as it is."""
    if action != "rebuild":
        raise UsageError(f"index TABLE rebuild is all that index does, with the table first; it cannot {action!r}")
    return _passes(call, [table], index_only=True, columns=column, force=force, memory=_bytes(memory), repeat=False)


def plan(
    call: Invocation,
    table: TableName,
    full: Annotated[bool, typer.Option("--full", help="Everything into the highest level.")] = False,
    partition: Partitions = None,
    rewrite_append: KeepAppend = False,
) -> None:
    """What a pass would do, and why; does nothing. `execute` takes its JSON."""
    from maintainer.api.maintenance import plan_pass
    from maintainer.maintain.plan import PlanRequest
    from maintainer.maintain.transport import plan_to_json

    opened = call.open(table)
    request = PlanRequest(full=full, partitions=_partitions(partition), rewrite_append=not rewrite_append)
    call.output.document("plan", plan_to_json(plan_pass(opened.store, request), opened.schema))


OtherPlace = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="Where the table is, when not where the document says.", show_default=False)
]


def execute(call: Invocation, table: OtherPlace = None, memory: Memory = None) -> None:
    """Do the work of a plan from stdin (`plan --json`); one result a line on stdout, nothing is visible yet."""
    from maintainer.api.exchange import execute_plan
    from maintainer.maintain.transport import plan_from_json, result_to_json

    documents = list(_documents("execute", "maintainer plan TABLE --json | maintainer execute"))
    if len(documents) != 1:
        raise UsageError(f"execute reads one plan from stdin, not {len(documents)}")
    given = plan_from_json(documents[0])
    opened = _open(call, table, given.table)
    schema = opened.schema
    for result in execute_plan(opened.store, given, _bytes(memory)):
        call.output.line(result_to_json(result, schema))


def commit(call: Invocation, table: OtherPlace = None) -> int:
    """Make results visible that come from stdin, one a line; all of one table in one snapshot."""
    from maintainer.api.exchange import commit_results
    from maintainer.data.values import partition_json
    from maintainer.maintain.transport import result_from_json
    from maintainer.model.report import VERSION

    documents = _documents("commit", "maintainer plan TABLE --json | maintainer execute | maintainer commit")
    results = sorted(map(result_from_json, documents), key=lambda result: result.table)
    if not results:  # what an idle table's plan ends in
        call.output.note("There are no results on stdin; nothing is committed.")
    conflicts = 0
    for name, of_table in groupby(results, key=lambda result: result.table):
        opened = _open(call, table, name)
        outcome = commit_results(opened.store, list(of_table))
        conflicts += len(outcome.conflicts)
        lost = [
            {"partition": partition_json(opened.schema, key.partition), "bucket": key.bucket, "reason": reason}
            for key, reason in outcome.conflicts.items()
        ]
        snapshots = [snapshot.id for snapshot in outcome.snapshots]
        document = {"version": VERSION, "table": opened.name, "snapshot": snapshots[-1] if snapshots else None, "snapshots": snapshots}
        call.output.document("committed", {**document, "conflicts": lost})
    return CommitConflict.exit_code if conflicts else 0


def _passes(call: Invocation, tables: Sequence[str], **request: Any) -> int:
    """A pass over each table; one that fails does not keep the others from theirs."""
    from maintainer.model.report import VERSION

    passes: list[Mapping[str, Any]] = []
    codes: list[int] = []
    for table in tables:
        try:
            with call.output.progress(f"maintaining {table}") as advance:
                report = call.open(table).maintain(progress=partial(_advance, advance), **request)
        except Exception as error:
            if call.debug and len(tables) == 1:
                raise
            message, code = explained(error, table)
            complain(message)
            passes.append(_failed(table, message))
            codes.append(code)
        else:
            passes.append(report.to_dict())
            codes.append(CommitConflict.exit_code if report.outcome == "conflict" else 0)
    call.output.document("passes", {"version": VERSION, "passes": passes})
    return next((code for code in (*SEVERITY, *codes) if code and code in codes), 0)


def _advance(advance: Callable[[int], None], work: Work, size: int) -> None:
    advance(size)


def _failed(table: str, reason: str) -> Mapping[str, Any]:
    from maintainer.api.account import PassReport

    return PassReport(table, None, None, "failed", reason).to_dict()


def _open(call: Invocation, given: str | None, named: str) -> Table:
    from maintainer.api.exchange import place_of

    if given is not None:
        return call.open(given)
    place = place_of(named)
    return call.on_branch(place.branch).open(place.uri)


def _documents(command: str, usage: str) -> Iterator[Any]:
    """The JSON documents on stdin, one a line."""
    if sys.stdin.isatty():
        raise UsageError(f"{command} reads JSON from stdin: {usage}")
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"stdin, line {number}: no JSON: {error}; {usage}") from None


def _bytes(size: str | None) -> int | None:
    from maintainer.table.options import parse_memory_size

    return None if size is None else parse_memory_size(size)


def _partitions(given: list[str] | None) -> list[dict[str, str]] | None:
    return None if not given else [key_values(each.split(","), "--partition") for each in given]
