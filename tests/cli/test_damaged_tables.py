"""Damaged tables: every kind of file missing, cut short, or with flipped bytes, and hostile metadata.

A command gives the right rows or an error of the documented exit code that names the file; it never publishes anything built on damage that
it noticed, never crashes, and never gives other rows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import Result

import maintainer
from maintainer.format import index_manifest, manifest, manifest_list, snapshot_json
from maintainer.model.snapshot import Snapshot
from tests.support.campaign import share
from tests.support.command import run

FLIPS = share("damaged tables: flipped bytes a kind of file", short=12, long=300)
KINDS = ["schema", "snapshot", "base list", "delta list", "manifest", "index manifest", "data file", "deletion vectors", "btree", "bitmap"]
READ_ERRORS = {3, 7}
"""Exit codes of a command that meets damage: corrupt, or a format version that we refuse."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a file at the highest level, one above it with deletion vectors below, groups of both families, and level-0 files on top."""
    directory = tmp_path_factory.mktemp("warehouse") / "db.db" / "t"
    table = maintainer.create_table(
        str(directory),
        {
            "fields": [{"name": "id", "type": "INT NOT NULL"}, {"name": "name", "type": "STRING"}, {"name": "n", "type": "INT"}],
            "primaryKeys": ["id"],
            "options": {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "name", "pk-bitmap.index.columns": "n"},
        },
    )
    for numbers, full in ((range(3000), True), (range(0, 200, 7), False), (range(100, 130), None)):
        with table.writer() as writer:
            writer.write(
                pa.table(
                    {
                        "id": pa.array(numbers, pa.int32()),
                        "name": [f"name-{i}" for i in numbers],
                        "n": pa.array([i % 9 for i in numbers], pa.int32()),
                    }
                )
            )
        if full is not None:
            table.maintain(full=full)
    return directory


@pytest.fixture
def table(sound: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "db.db" / "t"
    shutil.copytree(sound, copy)
    return copy


def files_of(table: Path) -> dict[str, Path]:
    """One file of each kind that the latest snapshot refers to."""
    snapshot = latest(table)
    listed = manifest_list.decode((table / "manifest" / snapshot.delta_manifest_list).read_bytes())
    entries = index_manifest.decode((table / "manifest" / str(snapshot.index_manifest)).read_bytes())
    payloads = {entry.file.index_type: table / "index" / entry.file.file_name for entry in entries}
    live = maintainer.open_table(str(table)).files().files
    data = table / "bucket-0" / max(live, key=lambda file: file.rows).name
    return {
        "schema": table / "schema" / "schema-0",
        "snapshot": table / "snapshot" / f"snapshot-{snapshot.id}",
        "base list": table / "manifest" / snapshot.base_manifest_list,
        "delta list": table / "manifest" / snapshot.delta_manifest_list,
        "manifest": table / "manifest" / listed[0].file_name,
        "index manifest": table / "manifest" / str(snapshot.index_manifest),
        "data file": data,
        "deletion vectors": payloads["DELETION_VECTORS"],
        "btree": payloads["btree"],
        "bitmap": payloads["bitmap"],
    }


def latest(table: Path) -> Snapshot:
    ids = [int(path.name.removeprefix("snapshot-")) for path in (table / "snapshot").glob("snapshot-*")]
    return snapshot_json.decode((table / "snapshot" / f"snapshot-{max(ids)}").read_bytes())


def published(table: Path) -> set[str]:
    return {path.name for path in (table / "snapshot").glob("snapshot-*")}


QUERIES = {
    "all": [],
    "by name": ["--where", "name IN ('name-7', 'name-105', 'name-2999')"],
    "by n": ["--where", "n = 4 AND id < 300"],
    "by key": ["--where", "id BETWEEN 10 AND 40"],
}


def rows(result: Result) -> list[Any]:
    return sorted((json.loads(line) for line in result.stdout.splitlines()), key=lambda row: row["id"])


@pytest.fixture(scope="module")
def answers(sound: Path) -> dict[str, list[Any]]:
    found = {name: rows(run("query", str(sound), "--json", *words)) for name, words in QUERIES.items()}
    assert len(found["all"]) == 3000
    assert len(found["by name"]) == 3
    return found


def check_reads(table: Path, answers: dict[str, list[Any]], damaged: Path | None) -> None:
    """Every query gives the right rows, or an error that names the table or the file, without a traceback."""
    for name, words in QUERIES.items():
        result = run("query", str(table), "--json", *words)
        if result.exit_code == 0:
            assert rows(result) == answers[name], f"{name} after damage to {damaged}"
        else:
            check_error(result, READ_ERRORS, damaged)


def check_error(result: Result, codes: set[int], damaged: Path | None) -> None:
    assert result.exit_code in codes, (result.exit_code, result.stderr, damaged)
    assert "should not have happened" not in result.stderr, result.stderr
    if damaged is not None:
        assert damaged.name in result.stderr, (result.stderr, damaged)


def check_nothing_published_on_error(table: Path, damaged: Path) -> None:
    before = published(table)
    result = run("once", str(table), "--json")
    if result.exit_code != 0:
        check_error(result, {1, *READ_ERRORS}, None)
        assert damaged.name in result.stderr + result.stdout, (result.stderr, result.stdout)
        assert published(table) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_named(kind: str, table: Path, answers: dict[str, list[Any]]) -> None:
    path = files_of(table)[kind]
    path.unlink()
    if kind in ("schema", "snapshot"):
        # Without its schema a directory is no table; without its newest snapshot file a table is what it was before.
        assert run("query", str(table)).exit_code == (2 if kind == "schema" else 0)
        return
    check_reads(table, answers, path)
    verified = run("verify", str(table), "--json")
    assert verified.exit_code in (3, 6), verified.stderr
    assert path.name in verified.stdout + verified.stderr
    check_nothing_published_on_error(table, path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share_left", [0, 0.5, 0.97])
def test_a_truncated_file_is_named(kind: str, share_left: float, table: Path, answers: dict[str, list[Any]]) -> None:
    path = files_of(table)[kind]
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share_left)])
    check_reads(table, answers, path)
    verified = run("verify", str(table), "--json")
    assert verified.exit_code in (3, 6), (verified.exit_code, verified.stdout)
    assert path.name in verified.stdout + verified.stderr
    check_nothing_published_on_error(table, path)


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bytes_never_give_wrong_rows_silently(kind: str, table: Path, answers: dict[str, list[Any]]) -> None:
    path = files_of(table)[kind]
    data = path.read_bytes()
    random = Random(kind)
    for _ in range(FLIPS):
        flipped = bytearray(data)
        at = random.randrange(len(data))
        flipped[at] ^= random.randrange(1, 256)
        path.write_bytes(flipped)
        for name, words in QUERIES.items():
            result = run("query", str(table), "--json", *words)
            context = (kind, at, data[at], flipped[at], name)
            if result.exit_code != 0:
                assert result.exit_code in {1, 2, *READ_ERRORS}, (result.stderr, context)
                assert "should not have happened" not in result.stderr, (result.stderr, context)
            elif kind in CHECKED:
                assert rows(result) == answers[name], context
    path.write_bytes(data)
    check_reads(table, answers, None)


CHECKED = {"deletion vectors", "btree", "data file"}
"""Files whose content is covered by checksums. JSON, Avro blocks and the postings of a bitmap payload have none: a flipped digit there is
another number."""


def rewrite_manifest(table: Path, change: Callable[[Any], Any]) -> None:
    """The first entry of the newest delta manifest, changed; sizes in the lists are kept right."""
    snapshot = latest(table)
    path = table / "manifest" / snapshot.delta_manifest_list
    listed = manifest_list.decode(path.read_bytes())
    entries = manifest.decode((table / "manifest" / listed[0].file_name).read_bytes())
    data = manifest.encode([change(entries[0]), *entries[1:]])
    (table / "manifest" / listed[0].file_name).write_bytes(data)
    encoded = manifest_list.encode([replace(listed[0], file_size=len(data)), *listed[1:]])
    path.write_bytes(encoded)
    changed = replace(snapshot, delta_manifest_list_size=len(encoded))
    (table / "snapshot" / f"snapshot-{snapshot.id}").write_bytes(snapshot_json.encode(changed))


@pytest.mark.parametrize("name", ["../x.parquet", "/etc/passwd", "a/../../x.parquet", "", "..", "x\x00.parquet", "..\\x.parquet"])
def test_a_hostile_file_name_never_becomes_a_path(name: str, table: Path) -> None:
    rewrite_manifest(table, lambda entry: replace(entry, file=replace(entry.file, file_name=name)))
    before = published(table)
    for words in (["query"], ["once"], ["verify"]):
        result = run(*words, str(table), "--json")
        assert result.exit_code in (3, 6), (words, result.exit_code, result.stderr, result.stdout)
        assert "manifest" in result.stderr + result.stdout
    assert published(table) == before


@pytest.mark.parametrize(
    "change",
    [
        {"file_size": 2**62},
        {"file_size": -1},
        {"row_count": 2**62},
        {"row_count": -5},
        {"level": -1},
        {"min_key": b"\xff" * 40},
        {"min_key": b""},
        {"schema_id": 99},
    ],
    ids=lambda change: next(iter(change.items())).__repr__()[:40],
)
def test_hostile_numbers_in_metadata_are_an_error(change: dict[str, Any], table: Path) -> None:
    rewrite_manifest(table, lambda entry: replace(entry, file=replace(entry.file, **change)))
    before = published(table)
    result = run("once", str(table), "--json")
    assert result.exit_code in (1, 3), (result.exit_code, result.stdout, result.stderr)
    assert "should not have happened" not in result.stderr + result.stdout, result.stderr
    assert published(table) == before
    assert run("verify", str(table), "--json").exit_code in (3, 6)


@pytest.mark.parametrize(
    "member, value", [("version", 4), ("commitKind", "REWRITE"), ("version", "x"), ("id", 77), ("baseManifestList", "../../x")]
)
def test_a_snapshot_that_we_do_not_understand_is_refused(member: str, value: Any, table: Path) -> None:
    path = table / "snapshot" / f"snapshot-{latest(table).id}"
    path.write_text(json.dumps({**json.loads(path.read_text()), member: value}))
    for words in (["query"], ["once"], ["verify"], ["plan"], ["coverage"]):
        result = run(*words, str(table), "--json")
        assert result.exit_code in {*READ_ERRORS, 6}, (words, result.exit_code, result.stderr)
        said = result.stderr + result.stdout
        assert str(table) in said, (words, said)
        assert path.name in said.replace("snapshot ", "snapshot-"), (words, said)


def test_what_is_no_table_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "nothing", tmp_path, tmp_path / "file"):
        for command in ("query", "once", "plan", "coverage", "verify", "files", "snapshots"):
            result = run(command, str(place))
            assert result.exit_code == 2, (command, place, result.exit_code, result.stderr)
            assert str(place) in result.stderr


@pytest.mark.parametrize("kind", ["base list", "delta list", "manifest"])
def test_metadata_cut_between_two_blocks_is_noticed(kind: str, table: Path) -> None:
    """An Avro file without its last blocks is a valid file: believing it would lose rows."""
    path = files_of(table)[kind]
    encode = manifest.encode if kind == "manifest" else manifest_list.encode
    path.write_bytes(encode([]))
    before = published(table)
    for words in (["query"], ["once"]):
        result = run(*words, str(table), "--json")
        assert result.exit_code == 3, (words, result.stdout, result.stderr)
        assert path.name in result.stderr + result.stdout
    assert published(table) == before
    assert run("verify", str(table)).exit_code in (3, 6)
