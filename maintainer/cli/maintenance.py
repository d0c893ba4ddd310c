"""Commands that do the work: once, compact, index, plan, execute, commit."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maintainer.cli.invocation import TABLE_HELP, Invocation, TableName, command, key_values
from maintainer.cli.passes import Target, log_failure, run_passes, say_failure
from maintainer.errors import CommitConflict, UsageError

if TYPE_CHECKING:
    from maintainer.api.table import Table
    from maintainer.data.key_cache import KeyCache

Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="K=V,…", help="Only this partition, given by some or all of its columns; may be repeated."),
]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory budget, like 512mb. Default: 1 GB or half of the container.")]
Cache = Annotated[
    str | None,
    typer.Option(metavar="DIRECTORY", help="Keep key columns of data files there, up to 1 GB, for the next pass. Default: nothing is kept."),
]
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
    tables: Annotated[list[str] | None, typer.Argument(metavar="TABLE", help=TABLE_HELP, show_default=False)] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="Instead of TABLE: all tables of a configuration.")] = None,
    rewrite_append: KeepAppend = False,
    memory: Memory = None,
    cache: Cache = None,
) -> int:
    """One complete maintenance pass over tables: compact, index and commit until nothing is left to do.

    With --config, each table's old snapshots are expired after its pass, unless its option maintain.expire is false; of a TABLE they stay.

    A table that was only found in a warehouse and cannot be maintained is no failure.
    """
    if config is not None:
        return _once_configured(call, config, tables, cache, rewrite_append=not rewrite_append, memory=_bytes(memory))
    if not tables:
        raise UsageError("once needs a TABLE, or the tables of a configuration: --config FILE")
    return _passes(call, tables, rewrite_append=not rewrite_append, memory=_bytes(memory), cache=_cache(cache))


def _once_configured(call: Invocation, file: str, tables: Sequence[str] | None, cache: str | None, memory: int | None, **request: Any) -> int:
    """A pass over every table of a configuration. On a terminal there is a progress bar, elsewhere events as the configuration says."""
    given = {"TABLE": tables, "--warehouse": call.warehouse, "--branch": call.branch, "--storage-option": call.storage_options}
    for name, value in given.items():
        if value:
            raise UsageError(f"once --config does not go with {name}: the tables and how to open them are in {file}")
    from maintainer.service.configuration import load

    configuration = load(file)

    from maintainer.data.spill import Spill
    from maintainer.service.discovery import ConfiguredTable, tables_of, why_none
    from maintainer.service.events import log_events
    from maintainer.service.masking import shown_uri

    log_events(configuration, debug=call.debug, quiet=sys.stderr.isatty())
    tell = log_failure if configuration.log.format == "json" and not sys.stderr.isatty() else say_failure

    def target(table: ConfiguredTable) -> Target:
        with_options = replace(table, options={**table.options, **call.options})
        return Target(shown_uri(table.uri), with_options.open, discovered=not table.named, expires=True)

    failed: list[tuple[str, Exception]] = []
    found = list(tables_of(configuration, lambda warehouse, error: failed.append((shown_uri(warehouse.uri), error))))
    if not found and not failed:
        for warehouse in configuration.warehouses:
            call.output.note(f"{shown_uri(warehouse.uri)}: there is no table to maintain: {why_none(warehouse)}")
    spill = Spill(configuration.spill.directory, configuration.spill.limit)
    kept = _cache(cache or configuration.cache.directory, configuration.cache.limit)
    return run_passes(call, map(target, found), failed, tell, memory=memory or configuration.memory, spill=spill, cache=kept, **request)


def compact(
    call: Invocation,
    table: TableName,
    full: Annotated[bool, typer.Option("--full", help="Everything into the highest level.")] = False,
    partition: Partitions = None,
    rewrite_append: KeepAppend = False,
    memory: Memory = None,
    cache: Cache = None,
) -> int:
    """Compact a table now, with the index groups that this touches."""
    request = {"full": full, "partitions": _partitions(partition), "rewrite_append": not rewrite_append, "memory": _bytes(memory)}
    return _passes(call, [table], **request, cache=_cache(cache), repeat=False)


def index(
    call: Invocation,
    table: TableName,
    action: Annotated[str, typer.Argument(metavar="rebuild", help="What to do: rebuild is all there is.", show_default=False)],
    column: Annotated[list[str] | None, typer.Option(metavar="C", help="Only the index of this column; may be repeated.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also groups that are current: what to do when payloads are damaged or lost.")] = False,
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
        stale = [
            {"partition": partition_json(opened.schema, key.partition), "bucket": key.bucket, "file": name, "reason": reason}
            for key, reasons in outcome.discarded.items()
            for name, reason in reasons.items()
        ]
        call.output.document("committed", {**document, "conflicts": lost, "discarded": stale})
    return CommitConflict.exit_code if conflicts else 0


def _passes(call: Invocation, tables: Sequence[str], **request: Any) -> int:
    return run_passes(call, [Target(table, partial(call.open, table)) for table in tables], **request)


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
    from maintainer.service.configuration import LEAST_MEMORY
    from maintainer.table.option_text import parse_memory_size

    if size is None:
        return None
    found = parse_memory_size(size)
    if found < LEAST_MEMORY:
        raise UsageError(f"--memory {size}: a pass needs at least {LEAST_MEMORY >> 20} mb")
    return found


def _cache(directory: str | None, limit: int | None = None) -> KeyCache | None:
    from maintainer.data.key_cache import DEFAULT_LIMIT, KeyCache

    limit = DEFAULT_LIMIT if limit is None else limit
    return KeyCache(directory, limit) if directory and limit else None


def _partitions(given: list[str] | None) -> list[dict[str, str]] | None:
    return None if not given else [key_values(each.split(","), "--partition") for each in given]
