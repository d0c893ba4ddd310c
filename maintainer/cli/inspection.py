"""Commands that only look: coverage, wait, verify, doctor, snapshots, files."""

from __future__ import annotations

from typing import Annotated

import typer

from maintainer.cli.invocation import Invocation, TableName, command, complain, seconds

NOT_REACHED = 1
PROBLEMS_FOUND = 6


def register(app: typer.Typer) -> None:
    command(app, "coverage")(coverage)
    command(app, "wait")(wait)
    command(app, "verify")(verify)
    command(app, "doctor")(doctor)
    command(app, "snapshots")(snapshots)
    command(app, "files")(files)


def coverage(call: Invocation, table: TableName) -> None:
    """Which share of the rows readers see and indexes cover, and why not all."""
    call.output.document("coverage", call.open(table).coverage().to_dict())


def wait(
    call: Invocation,
    table: TableName,
    coverage: Annotated[float, typer.Option(metavar="RATIO", min=0.0, max=1.0, help="The ratio to wait for.")] = 1.0,
    snapshot: Annotated[int | None, typer.Option(metavar="N", help="Count only the rows that this snapshot holds.")] = None,
    definition: Annotated[str | None, typer.Option(metavar="COLUMN", help="Wait for the index of this column only.")] = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait at most, like 60s or 5 min.")] = "60s",
) -> int:
    """Wait until everything is visible and covered; exit code 1 when it is not in time."""
    patience = seconds(timeout)
    with call.output.progress(f"waiting for coverage of {table}"):
        found = call.open(table).wait_for_coverage(coverage, snapshot=snapshot, definition=definition, timeout=patience)
    call.output.document("coverage", found.to_dict())
    if snapshot is not None and (found.snapshot or 0) < snapshot:
        complain(f"{found.table}: there is no snapshot {snapshot} yet")
    return 0 if found.reached else NOT_REACHED


def verify(
    call: Invocation,
    table: TableName,
    deep: Annotated[bool, typer.Option("--deep", help="Also read the data and compare the indexes with it.")] = False,
) -> int:
    """Check every reference, checksum and count; exit code 6 when there is a problem."""
    with call.output.progress(f"verifying {table}"):
        found = call.open(table).verify(deep=deep)
    call.output.document("verify", found.to_dict())
    return 0 if found.ok else PROBLEMS_FOUND


def doctor(call: Invocation, table: TableName) -> None:
    """Whether this table can be maintained, and what should be set."""
    from maintainer.errors import CorruptFile, CorruptTable, Unsupported, UsageError
    from maintainer.inspect.diagnosis import unopenable

    try:
        found = call.open(table).doctor()
    except (CorruptFile, CorruptTable, Unsupported, UsageError) as error:
        why = unopenable(table, call.warehouse or table, error)
        if why is None:
            raise
        found = why
    call.output.document("doctor", found.to_dict())


def snapshots(call: Invocation, table: TableName) -> None:
    """List the snapshots."""
    call.output.document("snapshots", call.open(table).snapshots().to_dict())


def files(call: Invocation, table: TableName) -> None:
    """List the live data files."""
    call.output.document("files", call.open(table).files().to_dict())
