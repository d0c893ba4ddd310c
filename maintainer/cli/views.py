"""Documents as people read them: one function for each kind, found by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Document = Mapping[str, Any]

MOST_LISTED = 50
"""Entries of a list that are shown; the JSON output has all."""


def _table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def _heading(document: Document, console: Console, *facts: str) -> None:
    from rich.text import Text

    snapshot = document.get("snapshot")
    place = f"  snapshot {snapshot}" if snapshot is not None else ""
    console.print(Text(f"{document['table']}{place}", style="bold"))
    for fact in facts:
        console.print(Text(fact))


def _more(console: Console, count: int) -> None:
    if count > MOST_LISTED:
        console.print(f"… and {count - MOST_LISTED} more (--json has all)", style="dim")


def partition(values: Mapping[str, Any]) -> str:
    return "/".join(f"{key}={value}" for key, value in values.items()) or "-"


def size(count: int | None) -> str:
    """Bytes in the unit that people read."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"


def cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def rows(columns: Sequence[str], found: Sequence[Mapping[str, Any]], console: Console) -> None:
    from rich.text import Text

    table = _table(*columns)
    for row in found:
        table.add_row(*(Text(cell(row[column])) for column in columns))
    console.print(table)


def _coverage(document: Document, console: Console) -> None:
    _heading(document, console, f"{document['rows']} rows, {document['visible_rows']} visible ({document['visible_ratio']:.1%})")
    if document["definitions"]:
        table = _table("index on", "family", "covered rows", "ratio", numbers=("covered rows", "ratio"))
        for each in document["definitions"]:
            table.add_row(each["column"], each["family"], str(each["covered_rows"]), f"{each['ratio']:.1%}")
        console.print(table)
    missing = document["uncovered"]
    if missing:
        table = _table("partition", "bucket", "level", "rows", "not covered for", "reason", "file", numbers=("bucket", "level", "rows"))
        for each in missing[:MOST_LISTED]:
            column = each["column"] or "(not visible)"
            table.add_row(
                partition(each["partition"]), str(each["bucket"]), str(each["level"]), str(each["rows"]), column, each["reason"], each["file"]
            )
        console.print(table)
        _more(console, len(missing))
    if document.get("reached") is False:
        console.print("The wanted coverage was not reached in time.", style="yellow")


def _passes(document: Document, console: Console) -> None:
    table = _table(
        "table", "outcome", "snapshot", "files", "groups", "read", "written", "seconds", "reason", numbers=("files", "groups", "seconds")
    )
    for each in document["passes"]:
        before, after = each["snapshot_before"], each["snapshot_after"]
        table.add_row(
            each["table"],
            each["outcome"],
            "-" if after is None else str(after) if before == after else f"{'-' if before is None else before} → {after}",
            f"{each['input_files']} → {each['output_files']}",
            f"+{each['groups_built']} −{each['groups_dropped']}",
            size(each["bytes_read"]),
            size(each["bytes_written"]),
            f"{each['seconds']:.2f}",
            each["reason"] or "",
        )
    console.print(table)


def _plan(document: Document, console: Console) -> None:
    _heading(document, console)
    if not document["work"]:
        console.print(f"Nothing to do: {document['idle_reason']}")
        return
    table = _table("partition", "bucket", "kind", "files", "to level", "rebuilds", "bytes", "reason", numbers=("bucket", "files", "to level"))
    for each in document["work"]:
        rebuilds = ", ".join(f"{rebuild['column']}@{rebuild['level']}" for rebuild in each["rebuilds"])
        level = "-" if each["output_level"] is None else str(each["output_level"])
        table.add_row(
            partition(each["partition"]),
            str(each["bucket"]),
            each["kind"],
            str(len(each["input_files"])),
            level,
            rebuilds or "-",
            size(each["estimated_bytes"]),
            each["reason"],
        )
    console.print(table)


def _verify(document: Document, console: Console) -> None:
    _heading(document, console)
    table = _table("rule", "checked", "problems", numbers=("checked", "problems"))
    problems = document["problems"]
    for rule, count in document["checked"].items():
        table.add_row(rule, str(count), str(sum(problem["rule"] == rule for problem in problems)))
    console.print(table)
    if not problems:
        console.print("No problem was found.", style="green")
        return
    listed = _table("rule", "where", "problem")
    for problem in problems[:MOST_LISTED]:
        listed.add_row(problem["rule"], problem["where"], problem["message"])
    console.print(listed)
    _more(console, len(problems))


def _files(document: Document, console: Console) -> None:
    _heading(document, console, f"{len(document['files'])} data files")
    table = _table(
        "partition", "bucket", "level", "rows", "deleted", "size", "source", "sequence", "indexes", "name",
        numbers=("bucket", "level", "rows", "deleted", "size"),
    )  # fmt: skip
    for each in document["files"]:
        table.add_row(
            partition(each["partition"]),
            str(each["bucket"]),
            str(each["level"]),
            str(each["rows"]),
            str(each["deleted_rows"]),
            size(each["size"]),
            each["source"] or "-",
            f"{each['min_sequence']}–{each['max_sequence']}",
            ", ".join(each["covered_by"]) or "-",
            each["name"],
        )
    console.print(table)


def _snapshots(document: Document, console: Console) -> None:
    _heading(document, console)
    table = _table("id", "kind", "time", "schema", "records", "change", "user", numbers=("id", "schema", "records", "change"))
    for each in document["snapshots"]:
        table.add_row(
            str(each["id"]),
            each["kind"],
            each["time"],
            str(each["schema_id"]),
            str(each["total_records"]),
            f"{each['delta_records']:+}",
            each["user"],
        )
    console.print(table)


def _doctor(document: Document, console: Console) -> None:
    _heading(document, console, "This table can be maintained." if document["fit"] else "This table cannot be maintained.")
    if document["findings"]:
        table = _table("severity", "what", "why", "what to do")
        for each in document["findings"]:
            table.add_row(each["severity"], each["what"], each["why"], each["do"])
        console.print(table)


def _explain(document: Document, console: Console) -> None:
    _heading(document, console)
    table = _table("partition", "bucket", "decision", "column", "rows", "reason", "file", numbers=("bucket", "rows"))
    for each in document["files"]:
        rows_found = "-" if each["rows"] is None else str(each["rows"])
        table.add_row(
            partition(each["partition"]),
            str(each["bucket"]),
            each["decision"],
            each["column"] or "-",
            rows_found,
            each["reason"] or "",
            each["file"],
        )
    console.print(table)


def _created(document: Document, console: Console) -> None:
    console.print(f"Created {document['table']} with schema {document['schema_id']}.")


def _written(document: Document, console: Console) -> None:
    if document["snapshot"] is None:
        console.print(f"No rows, so no snapshot of {document['table']}.")
    else:
        verb = "Deleted" if document["deleted"] else "Wrote"
        rows = f"{document['rows']:,} row{'' if document['rows'] == 1 else 's'}"
        console.print(f"{verb} {rows}; snapshot {document['snapshot']} of {document['table']}.")


def _committed(document: Document, console: Console) -> None:
    ids = ", ".join(map(str, document["snapshots"]))
    console.print(f"Committed {document['table']}: snapshot {ids}." if ids else f"Nothing was committed to {document['table']}.")
    for each in document["conflicts"]:
        console.print(f"Lost: {partition(each['partition'])} bucket {each['bucket']}: {each['reason']}", style="yellow")


def _demo(document: Document, console: Console) -> None:
    table = _table("", "")
    table.show_header = False
    for what, value in (
        ("rows written", f"{document['written']:,} in {document['snapshots']} snapshots"),
        ("rows now", f"{document['rows']:,}"),
        ("passes", str(document["passes"])),
        ("visible", f"{document['visible_ratio']:.1%}"),
        ("indexed", f"{document['covered_ratio']:.1%}"),
        ("answers", f"{document['right']} of {document['queries']} equal the model's"),
        ("read for queries", f"{document['rows_read']:,} of {document['rows_asked']:,} rows, {document['files_read_raw']} files in full"),
        ("verification", "no problem" if not document["problems"] else f"{document['problems']} problems"),
        ("seconds", str(document["seconds"])),
    ):
        table.add_row(what, value)
    console.print(table)
    if document["ok"]:
        console.print("All answers were right, and everything is visible and indexed.", style="green")
    else:
        console.print("Something was wrong; see above.", style="bold red")


VIEWS: Mapping[str, Callable[[Document, Console], None]] = {
    "coverage": _coverage,
    "passes": _passes,
    "plan": _plan,
    "verify": _verify,
    "files": _files,
    "snapshots": _snapshots,
    "doctor": _doctor,
    "explain": _explain,
    "created": _created,
    "written": _written,
    "committed": _committed,
    "demo": _demo,
}
