"""Commands that take away what is not needed any more: expire."""

from __future__ import annotations

from typing import Annotated

import typer

from maintainer.cli.invocation import Invocation, TableName, command, complain, seconds


def register(app: typer.Typer) -> None:
    command(app, "expire")(expire)


def expire(
    call: Invocation,
    table: TableName,
    retain_max: Annotated[int | None, typer.Option(metavar="N", help="Keep at most so many snapshots, however young.")] = None,
    retain_min: Annotated[int | None, typer.Option(metavar="N", help="Keep at least so many snapshots, however old.")] = None,
    time_retained: Annotated[str | None, typer.Option(metavar="DURATION", help="Keep snapshots of this time, like 1h or 30 min.")] = None,
    most: Annotated[int | None, typer.Option("--max", metavar="N", help="Expire at most so many snapshots now.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
) -> None:
    """Expire old snapshots and delete the files that only they need. Without options, the table's own decide what is kept.

    Tags, consumers and other branches keep what they need.
    """
    retained = None if time_retained is None else seconds(time_retained)
    with call.output.progress(f"expiring snapshots of {table}") as advance:
        found = call.open(table).expire(retain_max, retain_min, retained, most, dry_run, progress=advance)
    call.output.document("expire", found.to_dict())
    for reason in found.skipped:
        complain(f"{found.table}: {reason}")
