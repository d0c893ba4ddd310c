"""Is this table fit for us, and what should be set (DESIGN §5 "doctor")?

error    this package refuses to maintain the table as it is
warning  it works, but something beside it may not: another writer compacts too, a peer cannot read it, rows stay invisible for long
info     good to know
"""

from __future__ import annotations

from dataclasses import dataclass

from maintainer.errors import MaintainerError, Unsupported
from maintainer.index import definition
from maintainer.inspect.coverage import Coverage, coverage
from maintainer.model.report import Entry, Report
from maintainer.model.schema import TableSchema
from maintainer.table.options import TableOptions
from maintainer.table.state import TableState, load_state
from maintainer.table.store import TableStore
from maintainer.table.support import check_live_files, findings

SHORTEST_RETENTION = 600.0
"""Seconds; readers of a snapshot that is gone earlier than this may fail in the middle."""


@dataclass(frozen=True)
class Finding(Entry):
    severity: str
    what: str
    why: str
    do: str


@dataclass(frozen=True)
class Diagnosis(Report):
    fit: bool
    findings: tuple[Finding, ...]


def diagnose(store: TableStore) -> Diagnosis:
    """Everything that is worth saying about the table."""
    schema = store.latest_schema()
    snapshot = store.latest_snapshot()
    state = None if snapshot is None else load_state(store, snapshot)
    schemas = [] if state is None else [store.schema(schema_id) for schema_id in sorted(state.schema_ids)]
    found = [Finding("error", finding.what, finding.why, _remedy(finding.what)) for finding in findings(schema, schemas) if finding.maintaining]
    try:
        check_live_files(() if state is None else state.files())
    except Unsupported as error:
        found.append(Finding("error", "data files", str(error), _remedy("data files")))
    try:
        definition.validate(schema)
        found += _of_options(schema, store.options(schema))
        found += _of_state(store, state)
    except MaintainerError as error:
        found.append(Finding("error", "options", str(error), "correct the option in the table"))
    return Diagnosis(store.name, not any(finding.severity == "error" for finding in found), tuple(found))


def _remedy(what: str) -> str:
    option = what.split(" = ")[0]
    return (
        f"change {option}, or maintain the table with the engine that writes it"
        if " = " in what
        else "maintain the table with the engine that writes it"
    )


def _of_options(schema: TableSchema, options: TableOptions) -> list[Finding]:
    found = []
    if not options.boolean("write-only", False):
        remedy = "set write-only = true in the table, or for every writer job"
        why = "writers compact and expire on their own, beside us: both sides do the work, and commits conflict"
        found.append(Finding("warning", "write-only = false", why, remedy))
        if definition.definitions(schema):
            why = "when they compact, Java Paimon 1.x fails on index groups, or carries them over although their files are gone"
            found.append(Finding("warning", "writers of Java Paimon 1.x", why, remedy))
    if options.bitmap64:
        found.append(
            Finding(
                "warning",
                "deletion-vectors.bitmap64 = true",
                "pypaimon 2.1 cannot read 64-bit deletion vectors and fails; Java and pypaimon-rust can",
                "read the table with those, or leave the option unset in tables that pypaimon reads",
            )
        )
    retained = options.duration("snapshot.time-retained", 3600.0)
    if retained < SHORTEST_RETENTION:
        found.append(
            Finding(
                "warning",
                f"snapshot.time-retained = {options['snapshot.time-retained']}",
                "a query or compaction that takes longer loses the files that it reads",
                "keep snapshots for at least ten minutes",
            )
        )
    if not definition.definitions(schema):
        found.append(
            Finding(
                "info",
                "no index",
                "the table defines no primary-key index",
                "name columns in pk-btree.index.columns or pk-bitmap.index.columns",
            )
        )
    return found


def _of_state(store: TableStore, state: TableState | None) -> list[Finding]:
    if state is None:
        return [Finding("info", "no snapshot", "nothing was written yet", "write, then run a pass")]
    found: Coverage = coverage(store, state)
    hidden = found.rows - found.visible_rows
    if hidden:
        files = sum(each.column is None for each in found.uncovered)
        return [Finding("info", "level 0", f"{hidden} rows in {files} files are not visible to batch readers", f"maintainer once {store.uri}")]
    if found.ratio() < 1.0:
        return [Finding("info", "coverage", f"indexes cover {found.ratio():.1%} of the rows", f"maintainer once {store.uri}")]
    return []
