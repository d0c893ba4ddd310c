"""Commands about what a table is: create, alter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maintainer.cli.invocation import Invocation, TableName, command


def register(app: typer.Typer) -> None:
    command(app, "create", without=("branch", "option"))(create)
    command(app, "alter")(alter)


def create(
    call: Invocation,
    table: TableName,
    schema: Annotated[Path, typer.Option(metavar="FILE", help="JSON schema, or a SQL file with CREATE TABLE … WITH (…).")],
) -> None:
    """Create a table from a JSON schema or a SQL CREATE TABLE statement."""
    from maintainer.api.table import create_table
    from maintainer.model.report import VERSION

    created = create_table(table, schema, warehouse=call.warehouse, storage_options=call.storage_options)
    call.output.document("created", {"version": VERSION, "table": created.name, "schema_id": created.schema.id})


def alter(
    call: Invocation,
    table: TableName,
    action: Annotated[
        list[str],
        typer.Argument(
            metavar="ACTION…",
            help="set K=V… | unset K… | add-column C TYPE \\[comment TEXT] \\[default VALUE] \\[PLACE] | "
            "rename-column C NAME | drop-column C… | alter-type C TYPE | set-not-null C | drop-not-null C | set-default C VALUE | "
            "drop-default C | comment-column C TEXT | drop-column-comment C | move-column C PLACE | comment TEXT | "
            "drop-comment; PLACE is first, last, after D or before D. Several actions are joined by the word and.",
            show_default=False,
        ),
    ],
) -> None:
    """Change options and columns of a table: a new schema, by Java's rules, with guards for indexed columns.

    A column C may be a path: r.x is a member of a ROW, l.element what an ARRAY holds, m.value what a MAP holds.

    Texts and types of several words stand in quotes; -- goes before a value that begins with a dash. Several actions make one schema, or none.
    """
    from maintainer.api.changes import parse_actions

    done = call.open(table).alter(*parse_actions(action))
    call.output.document("altered", done.to_dict())
