"""Commands about rows: write, query."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from maintainer.cli.invocation import Invocation, TableName, command


def register(app: typer.Typer) -> None:
    command(app, "write")(write)
    command(app, "query")(query)


def write(
    call: Invocation,
    table: TableName,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Parquet, CSV with a header, or JSON lines; by its extension.", show_default=False)
    ],
    delete: Annotated[bool, typer.Option("--delete", help="Delete the rows with these primary keys instead; as --kind -D.")] = False,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Kind of the rows: +I (default), -U, +U or -D. A column _VALUE_KIND gives each its own.")
    ] = None,
) -> None:
    """Append rows from files, all in one snapshot. The table's merge-engine says what a row does to the one with its key; columns that a file
    lacks have their default, or NULL."""
    from maintainer.api.row_files import read_rows
    from maintainer.errors import UsageError
    from maintainer.model.report import VERSION

    if delete and kind not in (None, "-D"):
        raise UsageError(f"--delete writes rows of kind -D, and --kind says {kind}: give one of them")
    of_kind = "-D" if delete else kind or "+I"
    opened = call.open(table)
    schema, rows = opened.schema, 0
    with call.output.progress(f"writing to {table}") as advance, opened.writer() as writer:
        for file in files:
            for batch in read_rows(file, schema):
                try:
                    writer.write(batch, of_kind)
                except UsageError as error:
                    raise UsageError(f"{file}: {error}") from None
                rows += batch.num_rows
                advance(batch.nbytes)
        snapshot = writer.commit()
    document = {"version": VERSION, "table": opened.name, "snapshot": snapshot, "rows": rows, "deleted": of_kind == "-D"}
    document["visible"] = not opened.store.options(schema).hides_level_0
    call.output.document("written", document)


def query(
    call: Invocation,
    table: TableName,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Condition, like \"price > 10 AND name LIKE 'a%'\".")] = None,
    select: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Columns, separated by commas (`a,b` in backticks is one); by default all.")
    ] = None,
    order_by: Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns to sort by, each with an optional DESC.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=0, help="At most so many rows.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say for each file how it is read and why, instead of reading it.")] = False,
    snapshot: Annotated[int | None, typer.Option(metavar="N", help="Read this snapshot.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="NAME", help="Read the snapshot of this tag.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="TIME", help="Read the snapshot of this time, like 2026-08-01 12:00:00.")] = None,
    no_index: Annotated[bool, typer.Option("--no-index", help="Do not use the indexes.")] = False,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory to merge files and to sort rows with; the rest goes to a temporary file. Default: 256 MB."),
    ] = None,
) -> None:
    """Query the rows that a batch reader sees, narrowed by the indexes."""
    from maintainer.data.values import json_rows
    from maintainer.errors import UsageError
    from maintainer.read.order import split_names, unquoted
    from maintainer.service.configuration import LEAST_MEMORY
    from maintainer.table.option_text import parse_memory_size

    budget = None if memory is None else parse_memory_size(memory)
    if budget is not None and budget < LEAST_MEMORY:
        raise UsageError(f"--memory {memory}: to merge and to sort takes at least {LEAST_MEMORY >> 20} mb")
    columns = None if select is None or select.strip() == "*" else [unquoted(name) for name in split_names(select)]
    opened = call.open(table)
    scan: Any = opened.scan(
        where=where,
        columns=columns,
        order_by=order_by,
        limit=call.output.most_rows if limit is None and not explain else limit,
        snapshot_id=snapshot,
        tag=tag,
        as_of=as_of,
        use_index=not no_index,
        memory=budget,
    )
    if explain:
        call.output.document("explain", scan.explain().to_dict())
        return
    answer = scan.answer()
    rows = (row for batch in answer.batches for row in json_rows(batch, answer.fields))

    def why_none() -> str:
        return "Nothing was written to this table yet." if answer.plan.snapshot is None else ""

    call.output.rows([field.name for field in answer.fields], rows, limit is not None, why_none)
    hidden = sum(file.file.row_count for file in answer.plan.hidden)
    if hidden:
        reason = "; ".join(dict.fromkeys(file.reason for file in answer.plan.hidden))
        travels = snapshot is not None or tag is not None or as_of is not None
        what = "--explain says more" if travels else "`maintainer once` changes that, and --explain says more"
        call.output.note(f"{hidden:,} row{'s' if hidden > 1 else ''} that may match cannot be seen ({reason}); {what}.")
