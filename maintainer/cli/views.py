"""Documents as people read them: one function for each kind, found by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maintainer.cli.listing import NOTHING, Column, say, show, show_records, text

if TYPE_CHECKING:
    from rich.console import Console

Document = Mapping[str, Any]

MOST_LISTED = 50
"""Entries of a list that are shown; the JSON output has all."""

PARTITION = Column("partition", hides=True)
BUCKET = Column("bucket", number=True)
LEVEL = Column("level", number=True)


def _heading(document: Document, console: Console, *facts: str) -> None:
    snapshot = document.get("snapshot")
    say(console, document["table"] if snapshot is None else f"{document['table']}  snapshot {snapshot}", "bold")
    for fact in facts:
        say(console, fact)


def _more(console: Console, count: int) -> None:
    if count > MOST_LISTED:
        say(console, f"… and {count - MOST_LISTED} more (--json has all)", "dim")


def partition(values: Mapping[str, Any]) -> str:
    return "/".join(f"{key}={value}" for key, value in values.items()) or NOTHING


def size(count: int | None) -> str:
    """Bytes in the unit that people read."""
    if count is None:
        return NOTHING
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"


def duration(seconds: float) -> str:
    """A time in the two units that people read."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _signed(number: int) -> str:
    return f"{number:+,}".replace("-", "−")


def cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def rows(columns: Sequence[str], found: Sequence[Mapping[str, Any]], console: Console) -> None:
    show_records(console, columns, [[cell(row[column]) for column in columns] for row in found])


def _coverage(document: Document, console: Console) -> None:
    _heading(document, console, f"{count(document['rows'], 'row')}, {document['visible_rows']:,} visible ({document['visible_ratio']:.1%})")
    if document["definitions"]:
        columns = [Column("index on"), Column("family"), Column("covered rows", number=True), Column("ratio", number=True)]
        found = document["definitions"]
        show(console, columns, [(each["column"], each["family"], f"{each['covered_rows']:,}", f"{each['ratio']:.1%}") for each in found])
    missing = document["uncovered"]
    if missing:
        show(
            console,
            [PARTITION, BUCKET, LEVEL, Column("rows", number=True), Column("missing"), Column("reason", wraps=True), Column("file")],
            [
                (
                    partition(each["partition"]),
                    str(each["bucket"]),
                    str(each["level"]),
                    f"{each['rows']:,}",
                    "visibility" if each["column"] is None else f"index on {each['column']}",
                    each["reason"],
                    each["file"],
                )
                for each in missing[:MOST_LISTED]
            ],
        )
        _more(console, len(missing))
    if document.get("reached") is False:
        say(console, "The wanted coverage was not reached in time.", "yellow")


def _passes(document: Document, console: Console) -> None:
    """What the passes did. Why one failed is on stderr already; what it committed before is only here."""
    for each in document["passes"]:
        before, after = each["snapshot_before"], each["snapshot_after"]
        outcome = "nothing to do" if each["outcome"] == "nothing" else each["outcome"]
        if outcome == "failed" and before == after:
            continue
        snapshot = "" if after is None else f"  snapshot {after}" if before == after else f"  snapshot {before} → {after}"
        say(console, f"{each['table']}{snapshot}", "bold")
        reason = "this was committed before" if outcome == "failed" else each["reason"]
        say(console, f"{outcome}: {reason}", "yellow" if outcome in ("conflict", "failed") else "")
        if before != after:
            files = f"files {each['input_files']:,} → {each['output_files']:,}"
            groups = f"index groups +{each['groups_built']} −{each['groups_dropped']}"
            took = f"{size(each['bytes_read'])} read, {size(each['bytes_written'])} written, {each['seconds']:.2f} s"
            say(console, f"{files}, {groups}, {took}")
        for failure in each["failures"]:
            _not_built(failure, console)
        expired = each["expired"]
        if expired is not None and expired["snapshots"]:
            gone = f"{count(expired['snapshots'], 'snapshot')} expired, {count(expired['files'], 'file')} deleted"
            say(console, f"{gone} ({size(expired['bytes'])})")


def _plan(document: Document, console: Console) -> None:
    work = document["work"]
    if not work:
        _heading(document, console)
        say(console, f"Nothing to do: {document['idle_reason']}")
        _held(document, console)
        return
    amount = (
        f"{count(len(work), 'bucket')}, {size(document['estimated_bytes'])} to read, up to {size(document['estimated_memory'])} of memory each"
    )
    _heading(document, console, amount)
    columns = [
        PARTITION,
        BUCKET,
        Column("kind"),
        Column("files", number=True),
        Column("bytes", number=True),
        Column("to level", number=True),
        Column("indexes to build", wraps=True, hides=True),
        Column("reason", wraps=True),
    ]
    show(
        console,
        columns,
        [
            (
                partition(each["partition"]),
                str(each["bucket"]),
                each["kind"],
                str(len(each["input_files"])),
                size(each["estimated_bytes"]),
                NOTHING if each["output_level"] is None else str(each["output_level"]),
                ", ".join(_rebuild(rebuild, each["output_level"]) for rebuild in each["rebuilds"]) or NOTHING,
                each["reason"],
            )
            for each in document["work"]
        ],
    )
    _held(document, console)


def _held(document: Document, console: Console) -> None:
    """Buckets that wait for somebody, and groups that could not be built."""
    for each in document["held"]:
        where = f"{partition(each['partition'])} bucket {each['bucket']}" if each["partition"] else f"bucket {each['bucket']}"
        say(console, f"Nothing is done in {where}: {each['reason']}", "yellow")
    for each in document["quarantined"]:
        _not_built(each, console)


def _not_built(each: Document, console: Console) -> None:
    where = f"{partition(each['partition'])} bucket {each['bucket']}" if each["partition"] else f"bucket {each['bucket']}"
    say(console, f"The index on {each['column']} of level {each['level']} in {where} could not be built: {each['reason']}", "yellow")


def _rebuild(rebuild: Mapping[str, Any], output_level: int | None) -> str:
    column: str = rebuild["column"]
    return column if rebuild["level"] == output_level else f"{column} (level {rebuild['level']})"


def _verify(document: Document, console: Console) -> None:
    _heading(document, console)
    problems = document["problems"]
    counts = {rule: sum(problem["rule"] == rule for problem in problems) for rule in document["checked"]}
    show(
        console,
        [Column("rule"), Column("checked", number=True), Column("problems", number=True)],
        [(rule, f"{checked:,}", str(counts[rule])) for rule, checked in document["checked"].items()],
    )
    if problems:
        listed = [(problem["rule"], problem["where"], problem["message"]) for problem in problems[:MOST_LISTED]]
        show(console, [Column("rule"), Column("where", wraps=True), Column("problem", wraps=True)], listed)
        _more(console, len(problems))
    else:
        console.print()
        say(console, "No problem was found.", "green")


def _files(document: Document, console: Console) -> None:
    _heading(document, console, count(len(document["files"]), "data file"))
    columns = [
        PARTITION,
        BUCKET,
        LEVEL,
        Column("rows", number=True),
        Column("deleted", number=True, spare=1),
        Column("size", number=True),
        Column("source", spare=2),
        Column("sequence", spare=3),
        Column("indexes", wraps=True),
        Column("name"),
    ]
    show(
        console,
        columns,
        [
            (
                partition(each["partition"]),
                str(each["bucket"]),
                str(each["level"]),
                f"{each['rows']:,}",
                f"{each['deleted_rows']:,}",
                size(each["size"]),
                each["source"] or NOTHING,
                f"{each['min_sequence']}–{each['max_sequence']}",
                ", ".join(each["covered_by"]) or NOTHING,
                each["name"],
            )
            for each in document["files"]
        ],
    )


def _snapshots(document: Document, console: Console) -> None:
    _heading(document, console)
    columns = [
        Column("id", number=True),
        Column("kind"),
        Column("time (UTC)"),
        Column("schema", number=True, spare=2),
        Column("records", number=True),
        Column("change", number=True),
        Column("user", spare=1),
    ]
    show(
        console,
        columns,
        [
            (
                str(each["id"]),
                each["kind"],
                each["time"].replace("T", " ")[:23],
                str(each["schema_id"]),
                f"{each['total_records']:,}",
                _signed(each["delta_records"]),
                each["user"],
            )
            for each in document["snapshots"]
        ],
    )


def _doctor(document: Document, console: Console) -> None:
    from rich.table import Table

    _heading(document, console, "This table can be maintained." if document["fit"] else "This table cannot be maintained.")
    listed = Table.grid(padding=(0, 2, 0, 0))
    for each in document["findings"]:
        listed.add_row(text(""), text(""))
        listed.add_row(text(each["severity"], _SEVERITY[each["severity"]]), text(each["what"], "bold"))
        listed.add_row(text(""), text(each["why"]))
        listed.add_row(text(""), text(f"→ {each['do']}"))
    console.print(listed)


_SEVERITY = {"error": "bold red", "warning": "yellow", "info": "dim"}


def _explain(document: Document, console: Console) -> None:
    if not document["files"]:
        _heading(document, console, "Nothing was written to this table yet." if document["snapshot"] is None else "There are no rows in it.")
        return
    _heading(document, console)
    steps = document["steps"]
    telling = [step for number, step in enumerate(steps) if number in (0, len(steps) - 1) or step["files"] < steps[number - 1]["files"]]
    columns = [Column("step"), *(Column(title, number=True) for title in ("files left", "rows left", "bytes left"))]
    if steps:
        show(console, columns, [(each["step"], f"{each['files']:,}", f"{each['rows']:,}", size(each["bytes"])) for each in telling])
    columns = [
        PARTITION,
        BUCKET,
        LEVEL,
        Column("decision"),
        Column("indexes", wraps=True, hides=True),
        Column("rows", number=True),
        Column("reason", wraps=True),
        Column("file"),
    ]
    files = document["files"]
    if len(files) > MOST_LISTED:  # what is read goes first
        files = sorted(files, key=lambda each: bool(each["decision"] == "pruned"))
    show(
        console,
        columns,
        [
            (
                partition(each["partition"]),
                str(each["bucket"]),
                str(each["level"]),
                each["decision"],
                each["column"] or NOTHING,
                f"{each['rows']:,}",
                each["reason"],
                each["file"],
            )
            for each in files[:MOST_LISTED]
        ],
    )
    _more(console, len(files))
    _hidden(document["hidden"], console)


def _hidden(hidden: Sequence[Document], console: Console) -> None:
    """Rows that may belong to the answer, and which nobody sees yet."""
    if not hidden:
        return
    console.print()
    for reason in dict.fromkeys(each["reason"] for each in hidden):
        found = [each for each in hidden if each["reason"] == reason]
        files, held = (sum(each[what] for each in found) for what in ("files", "rows"))
        say(
            console, f"{count(held, 'row')} in {count(files, 'file')} may belong to the answer, too. {reason[0].upper()}{reason[1:]}.", "yellow"
        )
    say(console, f"→ {hidden[0]['do']}")


def _created(document: Document, console: Console) -> None:
    say(console, f"Created {document['table']} with schema {document['schema_id']}.")


def _altered(document: Document, console: Console) -> None:
    before, now = document["previous_schema_id"], document["schema_id"]
    _heading(document, console)
    say(console, f"schema {now}" if before == now else f"schema {before} → {now}")
    for each in document["indexes"]:
        say(console, f"index on {each['column']} ({each['family']}), {each['change']}: {each['what']}")
    for note in document["notes"]:
        say(console, note, "yellow")


def _written(document: Document, console: Console) -> None:
    if document["snapshot"] is None:
        dropped = count(document["rows"], "row")
        why = f"{dropped} dropped (ignore-delete or ignore-update-before)" if document["rows"] else "No rows"
        say(console, f"{why}, so no snapshot of {document['table']}.")
        return
    done = f"Appended deletes of {count(document['rows'], 'key')}" if document["deleted"] else f"Wrote {count(document['rows'], 'row')}"
    say(console, f"{done}; snapshot {document['snapshot']} of {document['table']}.")
    if not document["visible"]:
        say(console, "This becomes visible when it is compacted; `maintainer once` does that.", "dim")


def _committed(document: Document, console: Console) -> None:
    ids = ", ".join(map(str, document["snapshots"]))
    say(console, f"Committed {document['table']}: snapshot {ids}." if ids else f"Nothing was committed to {document['table']}.")
    for each in document["conflicts"]:
        place = "" if not each["partition"] else f"{partition(each['partition'])} "
        say(console, f"Lost: {place}bucket {each['bucket']}: {each['reason']}", "yellow")
    for each in document["discarded"]:
        place = "" if not each["partition"] else f"{partition(each['partition'])} "
        say(console, f"An index group was left out: {place}bucket {each['bucket']}: {each['reason']}", "yellow")


def _demo(document: Document, console: Console) -> None:
    from rich.table import Table

    facts = Table.grid(padding=(0, 2, 0, 0))
    for what, value in (
        ("rows written", f"{document['written']:,} in {document['snapshots']} snapshots"),
        ("rows now", f"{document['rows']:,}"),
        ("passes", str(document["passes"])),
        ("visible", f"{document['visible_ratio']:.1%}"),
        ("indexed", f"{document['covered_ratio']:.1%}"),
        ("answers", f"{document['right']} of {document['queries']} equal the model's"),
        ("read for queries", f"{document['rows_read']:,} of {document['rows_asked']:,} rows, {document['files_read_raw']} files in full"),
        ("verification", "no problem" if not document["problems"] else count(document["problems"], "problem")),
        ("seconds", str(document["seconds"])),
    ):
        facts.add_row(text(what), text(value))
    console.print()
    console.print(facts)
    console.print()
    if document["ok"]:
        say(console, "All answers were right, and everything is visible and indexed.", "green")
    else:
        say(console, "Something was wrong; see above.", "bold red")


def _config(document: Document, console: Console) -> None:
    values = document["values"]
    rows = [[each["key"], "none" if each["value"] is None else cell(each["value"]), each["origin"]] for each in values]
    show(console, [Column("key"), Column("value", wraps=True), Column("origin", wraps=True)], rows)


_KINDS = {"snapshot": "snapshots", "manifest": "manifests", "index": "index files", "statistics": "statistics", "consumer": "consumers"}
"""What lies in a table's directories; everything else is in a bucket."""


def _expire(document: Document, console: Console) -> None:
    """How many files went, by kind."""
    snapshots, paths = document["snapshots"], document["found"] if document["deleted"] is None else document["deleted"]
    say(console, document["table"], "bold")
    if snapshots:
        ids = f"snapshot {snapshots[0]}" if len(snapshots) == 1 else f"snapshots {snapshots[0]} to {snapshots[-1]}"
        would = "would expire" if document["deleted"] is None else "expired"
        say(console, f"{ids} {would} with {count(len(paths), 'file')}, {size(document['bytes'])}")
    else:
        say(console, "nothing to expire")
    if document["latest"] is not None:
        kept = document["latest"] if document["earliest"] == document["latest"] else f"{document['earliest']} to {document['latest']}"
        say(console, f"kept: {kept}")
    kinds: dict[str, int] = {}
    for path in paths:
        below = path.split("/")[2 if path.startswith("branch/") else 0]
        kind = _KINDS.get(below, "data files")
        kinds[kind] = kinds.get(kind, 0) + 1
    if kinds:
        show(console, [Column("kind"), Column("files", number=True)], [(kind, f"{number:,}") for kind, number in kinds.items()])


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
    "altered": _altered,
    "written": _written,
    "committed": _committed,
    "demo": _demo,
    "config": _config,
    "expire": _expire,
}
