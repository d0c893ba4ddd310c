"""Our expiration and Java's leave the same files of the same table; and the peers read what ours leaves."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

import maintainer
from maintainer.model.schema import TableSchema
from tests.peers import readers
from tests.support import golden, kept
from tests.support.campaign import share
from tests.support.changelogs import changes
from tests.support.small_table import SmallTable
from tests.support.striking_storage import files_below, referenced

SEEDS = share("expiration: java tables", short=12, long=400)
CHUNK = 6
UNBOUNDED = 2**31 - 1


def files(path: str) -> set[str]:
    root = Path(path)
    return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file() and not file.name.endswith(".crc")}


@pytest.mark.skipif(readers.JAVA_ABSENT is not None, reason=str(readers.JAVA_ABSENT))
@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_java_leaves_the_same_files(first: int, tmp_path: Path) -> None:
    """Tables of any engine, format and changelog producer, with tags and consumers: expiration only looks at metadata."""
    kind = ["--plain"] if first // CHUNK % 2 else []
    for description in readers.java().run("random", tmp_path, "db.t", str(first), "--count", str(CHUNK), *kind):
        path = str(tmp_path / "db.db" / description["table"])
        random = Random(description["seed"])
        store = maintainer.open_table(path).store
        for number in range(random.choice([0, 1, 3])):
            kept.make_tag(path, f"t{number}", random.choice(store.snapshot_ids()))
        if random.random() < 0.2:
            kept.make_consumer(path, "c", random.choice(store.snapshot_ids()))
        by_java = str(shutil.copytree(path, f"{path}_java"))
        for _ in range(2):
            least = random.randint(1, 3)
            most, limit = random.choice([least, least + 2, UNBOUNDED]), random.choice([1, 3, 50])
            options = {
                "snapshot.num-retained.min": str(least),
                "snapshot.num-retained.max": str(most),
                "snapshot.time-retained": "1 ms",
                "snapshot.expire.limit": str(limit),
            }
            ours = maintainer.open_table(path, options=options).expire()
            words = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
            (answer,) = readers.java().run("expire", by_java, *words)
            context = (description, options)
            assert files(path) == files(by_java), context
            assert len(ours.snapshots) == answer["expired"], context


@pytest.mark.skipif(readers.JAVA_ABSENT is not None, reason=str(readers.JAVA_ABSENT))
def test_java_leaves_the_same_files_of_an_indexed_table(tmp_path: Path) -> None:
    table = SmallTable(tmp_path / "db.db", indexes=True)
    for number in range(6):
        table.write({key: key + number for key in range(number, 20)}, delete=[number])
        table.maintain()
    readers.java().run("tag", table.path, "mine", "4")
    by_java = str(shutil.copytree(table.path, tmp_path / "db.db" / "by_java"))
    table.table.expire(retain_min=2, time_retained=0)
    readers.java().run("expire", by_java, "--set", "snapshot.num-retained.min=2", "--set", "snapshot.time-retained=1 ms")
    assert files(table.path) == files(by_java)
    check_readers(Path(table.path), table.table.schema)
    table.check()


@pytest.mark.skipif(readers.JAVA_ABSENT is not None, reason=str(readers.JAVA_ABSENT))
@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_java_leaves_the_same_files_of_a_changelog_that_we_wrote(producer: str, tmp_path: Path) -> None:
    """A changelog goes with its snapshot, and what the others tell stays."""
    options = {"deletion-vectors.enabled": "false", "changelog-producer": producer, "num-sorted-run.compaction-trigger": "2"}
    table = SmallTable(tmp_path / "db.db", bucket="2", **options)
    for number in range(5):
        table.write({key: key + number for key in range(number, 20)}, delete=[number])
        table.maintain(full=number % 2 == 1)
    before = changes(table.store)
    by_java = str(shutil.copytree(table.path, tmp_path / "db.db" / "by_java"))
    terms = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3", "snapshot.time-retained": "1 ms"}
    words = [word for key, value in terms.items() for word in ("--set", f"{key}={value}")]
    maintainer.open_table(table.path, options=terms).expire()
    readers.java().run("expire", by_java, *words)
    assert files(table.path) == files(by_java)
    there = table.store.snapshot_ids()
    assert changes(table.store) == [change for change in before if change.snapshot in there]
    assert files_below(table.path) == referenced(table.store)
    check_readers(Path(table.path), table.table.schema)


@pytest.mark.skipif(readers.JAVA_ABSENT is not None, reason=str(readers.JAVA_ABSENT))
def test_a_branch_made_by_java_stays_readable_for_java(tmp_path: Path) -> None:
    table = SmallTable(tmp_path / "db.db", indexes=True)
    for number in range(4):
        table.write({key: key + number for key in range(20)})
        table.maintain()
    readers.java().run("tag", table.path, "mine", "2")
    readers.java().run("branch", table.path, "b", "mine")
    Path(table.path, "tag", "tag-mine").unlink()
    rows = kept.rows_at(table.path, 2, branch="b")
    table.table.expire(retain_min=1, time_retained=0)
    assert kept.rows_at(table.path, 2, branch="b") == rows
    found = readers.java().run("read", table.path, "--set", "branch=b")
    assert sorted(row[0] for row in found) == rows["id"]


def check_readers(path: Path, schema: TableSchema) -> None:
    answers: dict[str, Any] = {"ours": readers.bag_of_arrow(maintainer.open_table(str(path)).scan().to_arrow(), schema)}
    if readers.JAVA_ABSENT is None:
        answers["java"] = readers.java_rows(path)
    if readers.PYPAIMON_ABSENT is None:
        answers["pypaimon"] = readers.pypaimon_rows(path, schema)
    if readers.RUST_ABSENT is None:
        answers["pypaimon-rust"] = readers.rust_rows(path, schema)
    assert all(rows == answers["ours"] for rows in answers.values()), {name: len(rows) for name, rows in answers.items()}


GOLDEN = sorted(path.stem for path in golden.directory().glob("*.json"))


@pytest.mark.parametrize("name", GOLDEN[:: share("expiration: golden tables, each n-th", short=8, long=1)])
def test_golden_tables_stay_as_they_are_read(name: str, tmp_path: Path) -> None:
    """Tables of Java 2.0 and 2.1; those that are not read here at least keep every file that their last snapshot names."""
    path = str(golden.unpack(name, tmp_path))
    table = maintainer.open_table(path)
    if not table.store.snapshot_ids():
        return
    before = visible(path)
    found = table.expire(retain_min=1, retain_max=1)
    assert found.latest == found.earliest
    assert visible(path) == before
    assert kept.kept_files(path) <= {str(file.relative_to(path)) for file in Path(path).rglob("*")}


def visible(path: str) -> Any:
    try:
        table = maintainer.open_table(path)
        return readers.bag_of_arrow(table.scan().to_arrow(), table.schema)
    except maintainer.errors.Unsupported as error:
        return str(error)
