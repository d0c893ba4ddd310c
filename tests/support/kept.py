"""What keeps files of a table besides its snapshots: tags, consumers and branches, made as Java makes them; and what all of them need."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

import maintainer
from maintainer.commit.manifest_files import ManifestWriter
from maintainer.format import snapshot_json
from maintainer.model.files import FileKind
from maintainer.model.snapshot import CommitKind
from maintainer.table.opening import open_store
from tests.support.small_table import arrow_of
from tests.support.striking_storage import named_by

Rows = dict[str, list[object]]


def make_tag(path: str, name: str, snapshot: int, branch: str | None = None) -> None:
    root = Path(path, f"branch/branch-{branch}" if branch else "")
    document = json.loads((root / f"snapshot/snapshot-{snapshot}").read_text("utf-8"))
    (root / "tag").mkdir(exist_ok=True)
    (root / f"tag/tag-{name}").write_text(json.dumps({**document, "tagCreateTime": [2026, 1, 1, 0, 0], "tagTimeRetained": None}), "utf-8")


def make_branch(path: str, name: str, tag: str) -> None:
    """Java's `createBranch` from a tag: copies of the tag, of its snapshot and of the schemas."""
    root, branch = Path(path), Path(path, "branch", f"branch-{name}")
    for folder in ("snapshot", "tag"):
        (branch / folder).mkdir(parents=True)
    shutil.copytree(root / "schema", branch / "schema")
    shutil.copy(root / f"tag/tag-{tag}", branch / "tag")
    document = json.loads((root / f"tag/tag-{tag}").read_text("utf-8"))
    del document["tagCreateTime"], document["tagTimeRetained"]
    (branch / f"snapshot/snapshot-{document['id']}").write_text(json.dumps(document), "utf-8")


def make_consumer(path: str, name: str, following: int) -> Path:
    file = Path(path, "consumer", f"consumer-{name}")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"nextSnapshot": following}), "utf-8")
    return file


def rows_at(path: str, snapshot: int | None = None, tag: str | None = None, branch: str | None = None) -> Rows:
    """Rows in the order of the key, by every index and without them."""
    table = maintainer.open_table(path, branch=branch)
    found = [table.scan(snapshot_id=snapshot, tag=tag, use_index=use).to_arrow() for use in (True, False)]
    assert found[0].num_rows == found[1].num_rows
    keys = [(key, "ascending") for key in table.schema.primary_keys]
    first, second = (rows.sort_by(keys).to_pydict() for rows in found)
    assert first == second
    return first


def kept_files(path: str) -> set[str]:
    """Every file that a snapshot or a tag of any branch needs, and those of the table itself, without the hints."""
    root = Path(path)
    always = ("schema/*", "branch/*/schema/*", "branch/*/snapshot/[EL]*", "consumer/*")
    kept = {str(file.relative_to(root)) for pattern in always for file in root.glob(pattern)}
    for store in open_store(path).on_every_branch():
        folder = "" if store.branch is None else f"branch/branch-{store.branch}/"
        for number in store.snapshot_ids():
            snapshot = store.snapshot(number)
            kept |= {f"{folder}snapshot/snapshot-{number}", *named_by(store, snapshot)}
            if snapshot.statistics is not None:
                kept.add(f"statistics/{snapshot.statistics}")
        for name in store.tag_names():
            kept |= {f"{folder}tag/tag-{name}", *named_by(store, store.tag(name))}
    return kept


def restore(path: str, target: int) -> None:
    """Java's rollback that is committed as a new snapshot (`rollbackToAsLatest`): the delta takes the new files away and brings the old ones
    back, and the index manifest is that of the target."""
    store = open_store(path)
    latest = store.latest_snapshot()
    old = store.snapshot(target)
    assert latest is not None
    schema = store.latest_schema()
    writer = ManifestWriter(store.storage, store.layout, schema.partition_types, store.options())
    before, after = store.manifests.live_entries(latest), store.manifests.live_entries(old)
    delta = [replace(entry, kind=FileKind.DELETE) for identity, entry in before.items() if identity not in after]
    delta += [entry for identity, entry in after.items() if identity not in before]
    base_list, base_size = writer.write_list(writer.write_entries(list(before.values())))
    delta_list, delta_size = writer.write_list(writer.write_entries(delta))
    snapshot = replace(
        old,
        id=latest.id + 1,
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_size,
        commit_kind=CommitKind.OVERWRITE,
        time_millis=int(time.time() * 1000),
        delta_record_count=old.total_record_count - latest.total_record_count,
        uuid=str(uuid4()),
    )
    assert store.storage.create_if_absent(store.snapshot_path(snapshot.id), snapshot_json.encode(snapshot))


def key_table(keys: list[int]) -> pa.Table:
    """Keys to delete from a `SmallTable`."""
    return pa.table([pa.array(keys, pa.int32())], names=["id"])


def rows_table(values: Mapping[int, int]) -> pa.Table:
    """Rows for a `SmallTable`: the keys with their `v`."""
    return arrow_of({key: (value, f"s{value % 7}") for key, value in values.items()})
