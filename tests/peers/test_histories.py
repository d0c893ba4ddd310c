"""One history, compacted by released Java and by us side by side, on two copies of a table that get the same writes.

After every compaction both copies have the same rows and the same changelog; and the same records in every level, deleted ones included, as
long as both pick the same files, which the sizes of files decide, that are not quite the same. At the end each side goes on with what the other
one made.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import maintainer
from maintainer.data.deletions import read_deletions
from maintainer.data.reader import open_data_file
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.model.snapshot import CommitKind
from maintainer.table.state import load_latest, load_state
from tests.peers import readers
from tests.support.campaign import share

pytestmark = pytest.mark.skipif(readers.JAVA_ABSENT is not None, reason=str(readers.JAVA_ABSENT))

ROUNDS = share("histories beside Java", short=3, long=360)
FIELDS = [("k", "INT NOT NULL"), ("a", "BIGINT"), ("b", "STRING"), ("s", "INT"), ("c", "BIGINT"), ("l", "ARRAY<INT>")]
DV = {"deletion-vectors.enabled": "true"}
LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction"}
FORCED = {"compaction.force-up-level-0": "true"}
SILENT = {"changelog-producer.row-deduplicate": "true"}
PARTIAL = {"merge-engine": "partial-update"}
GROUPS = {**PARTIAL, "fields.s.sequence-group": "a,c,l", "fields.c.aggregate-function": "sum", "fields.l.aggregate-function": "collect"}
SUMS = {
    "merge-engine": "aggregation",
    "fields.a.aggregate-function": "sum",
    "fields.b.aggregate-function": "last_value",
    "fields.c.aggregate-function": "sum",
    "fields.l.aggregate-function": "collect",
}
EXTREMES = {
    "merge-engine": "aggregation",
    "fields.a.aggregate-function": "max",
    "fields.b.aggregate-function": "listagg",
    "fields.c.aggregate-function": "first_non_null_value",
}


@dataclass(frozen=True)
class Kind:
    """Of a table. `deletes`: its writes have some; `bare`: of the key alone; `late`: of keys that are there. Java 1.3.1 forgets what else a
    removal says, and a retract that comes first."""

    options: dict[str, str] = field(default_factory=dict)
    deletes: bool = True
    bare: bool = False
    late: bool = False


KINDS = {
    "plain": Kind(FORCED),
    "plain, unforced": Kind({"num-sorted-run.compaction-trigger": "2"}),
    "vectors": Kind(DV),
    "vectors, lookup": Kind({**DV, **LOOKUP}),
    "vectors, lookup, silent": Kind({**DV, **LOOKUP, **SILENT, "changelog-producer.row-deduplicate-ignore-fields": "a,c"}),
    "forced lookup": Kind({"force-lookup": "true"}),
    "lookup": Kind(LOOKUP),
    "lookup, silent": Kind({**LOOKUP, **SILENT}),
    "full changelog": Kind({**FULL, **FORCED}),
    "full changelog, silent": Kind({**FULL, **SILENT, "num-sorted-run.compaction-trigger": "2"}),
    "small files": Kind({**LOOKUP, **DV, "target-file-size": "4kb"}),
    "sequence": Kind({**FORCED, "sequence.field": "s"}),
    "sequence, vectors": Kind({**DV, "sequence.field": "s"}),
    "sequence, lookup": Kind({**LOOKUP, "sequence.field": "s,a", "sequence.field.sort-order": "descending"}),
    "sequence, full changelog": Kind({**FULL, **FORCED, "sequence.field": "s"}),
    "ignored deletes": Kind({**DV, **LOOKUP, "ignore-delete": "true"}),
    "first row": Kind({"merge-engine": "first-row"}, deletes=False),
    "first row, lookup": Kind({"merge-engine": "first-row", **LOOKUP, "ignore-delete": "true"}),
    "partial": Kind({**PARTIAL, **FORCED}, deletes=False),
    "partial, removing, vectors": Kind({**PARTIAL, **DV, "partial-update.remove-record-on-delete": "true"}, bare=True),
    "partial, removing, lookup": Kind({**PARTIAL, **LOOKUP, "partial-update.remove-record-on-delete": "true"}, bare=True),
    "groups": Kind({**GROUPS, **FORCED}, deletes=False),
    "groups, vectors, lookup": Kind({**GROUPS, **DV, **LOOKUP}, late=True),
    "groups, full changelog": Kind({**GROUPS, **FULL}, late=True),
    "sums": Kind({**SUMS, **FORCED}),
    "sums, vectors": Kind({**SUMS, **DV}),
    "sums, lookup": Kind({**SUMS, **LOOKUP}),
    "sums, vectors, lookup, sequence": Kind({**SUMS, **DV, **LOOKUP, **SILENT, "sequence.field": "s"}),
    "sums, full changelog": Kind({**SUMS, **FULL, **FORCED}),
    "extremes, lookup": Kind({**EXTREMES, **LOOKUP}, deletes=False),
}


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_both_compactors_go_the_same_way(seed: int, tmp_path: Path) -> None:
    name = list(KINDS)[7 * seed % len(KINDS)]  # one of each family comes first
    kind = KINDS[name]
    generator = random.Random(f"{name} {seed}")
    theirs = created(tmp_path / "java", kind)
    ours = tmp_path / "ours" / "db.db" / "t"
    shutil.copytree(theirs, ours)
    known: set[int] = set()
    batches = [400, 50, *generator.choices([3, 12, 60], k=4)]
    for number, size in enumerate(batches):
        lines = tmp_path / "rows.jsonl"
        lines.write_text("\n".join(written(generator, kind, size, known)))
        for directory in (theirs, ours):
            readers.java().run("write", directory, lines)
        if generator.random() < 0.8:
            side_by_side(theirs, ours, full=number == 3 or generator.random() < 0.15, context=f"{name} {seed}, after write {number}")
    # each goes on with what the other one made
    side_by_side(ours, theirs, full=False, context=f"{name} {seed}, exchanged")
    side_by_side(ours, theirs, full=True, context=f"{name} {seed}, exchanged, in full")
    for directory in (theirs, ours):
        verified = maintainer.open_table(str(directory)).verify(deep=True)
        assert verified.ok, verified.problems


def created(warehouse: Path, kind: Kind) -> Path:
    warehouse.mkdir()
    fields = [{"name": column, "type": sql} for column, sql in FIELDS]
    options = {"bucket": "1", "write-only": "true", **kind.options}
    definition = warehouse / "schema.json"
    definition.write_text(json.dumps({"fields": fields, "primaryKeys": ["k"], "options": options}))
    (answer,) = readers.java().run("create", warehouse, "db.t", definition)
    return Path(answer["table"])


def written(generator: random.Random, kind: Kind, size: int, known: set[int]) -> list[str]:
    def maybe(value: Any) -> Any:
        return None if generator.random() < 0.3 else value

    kinds = ["+I", "+U"] * 3 + (["-D", "-U"] if kind.deletes else [])
    lines = []
    for _ in range(size):
        key = generator.randrange(max(size, 20))
        row = [
            key,
            maybe(generator.randrange(6)),
            maybe(generator.choice("xyz")),
            maybe(generator.randrange(9)),
            maybe(generator.randrange(6)),
            maybe([generator.randrange(3)]),
        ]
        of_row = generator.choice(kinds)
        if kind.late and key not in known:
            of_row = "+I"
        known.add(key)
        if kind.bare and of_row in ("-D", "-U"):
            row[1:] = [None] * (len(row) - 1)
        lines.append(json.dumps({"kind": of_row, "row": row}))
    return lines


def side_by_side(java_does: Path, we_do: Path, full: bool, context: str) -> None:
    """A compaction of each table by its side; normal ones are repeated until there is nothing left to do. Where changes are told of by full
    compactions, each of ours is one."""
    full = full or maintainer.open_table(str(we_do)).schema.options.get("changelog-producer") == "full-compaction"
    before = {directory: snapshot_id(directory) for directory in (java_does, we_do)}
    java = readers.java()
    if full:
        java.run("compact", java_does, "--full")
    else:
        while java.run("compact", java_does)[0]["newSnapshot"]:
            pass
    report = maintainer.open_table(str(we_do)).maintain(full=full)
    assert report.outcome in ("committed", "nothing"), (report, context)
    rows = {directory: readers.java_rows(directory) for directory in before}
    assert rows[we_do] == rows[java_does], f"{context}: {difference(rows[we_do], rows[java_does])}"
    told = {directory: changelog(directory, after) for directory, after in before.items()}
    assert told[we_do] == told[java_does], f"{context}: {difference(told[we_do], told[java_does])}"
    held = {directory: records(directory) for directory in before}
    if {text.split()[1] for text in held[we_do]} == {text.split()[1] for text in held[java_does]}:
        assert held[we_do] == held[java_does], f"{context}: {difference(held[we_do], held[java_does])}"


def difference(mine: Counter[str], java: Counter[str]) -> str:
    return f"only ours {sorted(mine - java)[:3]}, only Java's {sorted(java - mine)[:3]}"


def snapshot_id(directory: Path) -> int:
    return maintainer.open_table(str(directory)).store.latest_snapshot_id() or 0


def records(directory: Path) -> Counter[str]:
    """Level, source and schema of the files, and every record in them."""
    store = maintainer.open_table(str(directory)).store
    state = load_latest(store)
    found: Counter[str] = Counter()
    for bucket in () if state is None else state.buckets.values():
        dead = read_deletions(store.storage, store.layout, bucket.deletion_file)
        for file in bucket.files:
            vector = dead.get(file.file_name, ())
            for position, row in enumerate(rows_of(directory, bucket, file)):
                deleted = " deleted" if position in vector else ""
                found[f"level {file.level} {file.file_source.name if file.file_source is not None else ''}{deleted} {row}"] += 1
    return found


def changelog(directory: Path, after: int) -> Counter[str]:
    """What the compactions after a snapshot tell."""
    store = maintainer.open_table(str(directory)).store
    found: Counter[str] = Counter()
    for number in (number for number in store.snapshot_ids() if number > after):
        snapshot = store.snapshot(number)
        assert snapshot.commit_kind is CommitKind.COMPACT
        name = snapshot.changelog_manifest_list
        metas = () if name is None else store.manifests.files_of(name, "", snapshot.changelog_manifest_list_size)
        told: Counter[str] = Counter()
        state = load_state(store, snapshot)
        for entry in (entry for meta in metas for entry in store.manifests.entries(meta.file_name, "")):
            told.update(map(str, rows_of(directory, state.bucket(entry.bucket_key), entry.file)))
        assert told.total() == (snapshot.changelog_record_count or 0)
        found += told
    return found


def rows_of(directory: Path, bucket: BucketState, file: DataFileMeta) -> list[list[Any]]:
    table = maintainer.open_table(str(directory))
    store = table.store
    path = store.layout.data_file_path(bucket.partition, bucket.bucket, file)
    columns = [SEQUENCE_FIELD.name, KIND_FIELD.name, *table.schema.names]
    with open_data_file(store.storage, path, file, store.schema(file.schema_id), table.schema) as opened:
        return [list(row.values()) for row in opened.read(columns).to_pylist()]
