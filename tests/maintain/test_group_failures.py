"""Groups that cannot be built, as the table sees it: what is committed all the same, what stays, who tells, and when it is tried again.

A review of another implementation had four findings; each is a test here: a failure of one column and level took the others with it, a sort
that had no room deleted payloads that were good, one family's name stood where any family is meant, and after a restart all was built again.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

import maintainer
from maintainer.api.exchange import commit_results, execute_plan
from maintainer.api.maintenance import Known, plan_pass, run_pass
from maintainer.api.table import Table
from maintainer.data.spill import Spill
from maintainer.errors import CorruptFile, MaintainerError, SpillError, UsageError
from maintainer.index import groups
from maintainer.index.definition import FamilyName
from maintainer.index.family import bitmap, btree
from maintainer.inspect.doctor import diagnose
from maintainer.maintain import quarantine
from maintainer.maintain.plan import PlanRequest
from maintainer.maintain.quarantine import FailedGroup
from maintainer.model.files import EMPTY_ROW, BucketKey
from maintainer.model.work import Group
from tests.support.command import run
from tests.support.small_table import SmallTable

PACKAGE = Path(maintainer.__file__).parent
NO_LIBRARY = MaintainerError("pip install a library")
NO_LIBRARY.__cause__ = ImportError("no library")


class Broken:
    """A family whose builds fail, for one level or all of them; `tried` are the rows of each attempt."""

    def __init__(self, module: Any, error: Exception, rows: int | None = None) -> None:
        self.error, self.rows = error, rows
        self.build = module.build
        self.tried: list[int] = []

    def __call__(self, rows: Any, definition: Any, total_rows: int, *rest: Any, **others: Any) -> Any:
        if self.rows in (None, total_rows):
            self.tried.append(total_rows)
            raise self.error
        return self.build(rows, definition, total_rows, *rest, **others)


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Broken]:
    def broken(module: Any, error: Exception, rows: int | None = None) -> Broken:
        found = Broken(module, error, rows)
        monkeypatch.setattr(module, "build", found)
        return found

    return broken


def heal(monkeypatch: pytest.MonkeyPatch, broken: Broken, module: Any = btree) -> None:
    monkeypatch.setattr(module, "build", broken.build)


def with_files(tmp_path: Path) -> SmallTable:
    """Several files on the highest level, so that one of them can change."""
    table = SmallTable(tmp_path, indexes=True, target_file_size="6 kb")
    table.write({key: key * 1_000_003 % 2**40 for key in range(3000)})
    table.maintain(full=True)
    assert len(table.files()) == 3
    return table


class TestIsolation:
    @pytest.mark.parametrize("error", [ValueError("a value"), CorruptFile("torn"), SpillError("no room"), MemoryError(), RecursionError()])
    def test_a_column_that_fails_keeps_neither_data_nor_other_groups(self, error: Exception, tmp_path: Path, breaks: Any) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        breaks(btree, error)
        with capture_logs() as events:
            report = table.maintain()
        assert report.outcome == "committed"
        assert [(one.partition, one.bucket, one.column, one.level) for one in report.failures] == [({}, 0, "v", 5)]
        assert table.groups() == {"v": [], "s": [5]}
        (told,) = [event for event in events if event["event"] == "pass.index-failed"]
        assert (told["column"], told["data_level"], told["log_level"]) == ("v", 5, "warning")
        assert (str(error) if isinstance(error, MaintainerError) else type(error).__name__) in told["reason"]
        assert table.table.scan(where="v = 1").to_arrow().num_rows == 1

    def test_a_level_that_fails_keeps_no_other_level_of_its_column(self, tmp_path: Path, breaks: Any) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({key: key for key in range(50)})
        broken = breaks(btree, ValueError("no"), rows=50)
        table.maintain()
        table.write({99: 1})
        table.maintain()
        assert table.groups() == {"v": [4], "s": [4, 5]}
        assert broken.tried == [50]

    @pytest.mark.parametrize("damage", ["torn", "lost", "a directory"])
    def test_a_source_file_that_is_damaged_concerns_its_own_level(self, damage: str, tmp_path: Path) -> None:
        """Its rows cannot be read, but those that are new can be compacted and found."""
        table = SmallTable(tmp_path, indexes=True)
        table.write({key: key for key in range(50)})
        table.maintain()
        run_pass(table.seen_with(**{"pk-btree.index.columns": "", "pk-bitmap.index.columns": ""}), index_only=True)
        file = Path(table.path, "bucket-0", table.file(5).file_name)
        kept = file.read_bytes()
        file.unlink()
        if damage == "torn":
            file.write_bytes(kept[: len(kept) // 2])
        elif damage == "a directory":
            file.mkdir()
        table.write({99: 1})
        report = table.maintain(full=False)
        assert report.outcome == "committed"
        assert {(one.column, one.level) for one in report.failures} == {("v", 5), ("s", 5)}
        assert table.groups() == {"v": [4], "s": [4]}
        if damage == "a directory":
            file.rmdir()
        file.write_bytes(kept)
        assert table.maintain(index_only=True).failures == ()
        table.check()

    def test_the_store_is_asked_whether_it_is_away(self, tmp_path: Path, breaks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        before = table.paths()
        breaks(btree, maintainer.StorageError("cannot read"))
        real = table.store.schema_ids
        monkeypatch.setattr("maintainer.maintain.execute._check_store", _away)
        with pytest.raises(maintainer.StorageError, match="nobody answers"):
            table.maintain()
        assert real()
        assert table.paths() == before
        assert not Path(table.path, "maintainer").exists()


def _away(store: Any) -> None:
    raise maintainer.StorageError("nobody answers")


class TestWhatStays:
    def test_no_room_to_sort_deletes_no_payload_that_is_good(self, tmp_path: Path, breaks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        table = with_files(tmp_path)
        before = {payload.file_name for payload in table.bucket().payloads}
        table.write(delete=range(10))
        broken = breaks(btree, SpillError("the limit of spilling is reached"))
        report = table.maintain(full=True)
        assert [one.column for one in report.failures] == ["v"]
        assert table.groups() == {"v": [], "s": [5]}
        kept = {payload.index_type for payload in table.bucket().payloads if payload.file_name in before}
        assert kept == {"btree"}, "the superseded payload has most of the files"
        relaxed = Table(table.with_options(**{"read.group-acceptance": "relaxed"})).coverage()
        assert [one.ratio > 0.6 for one in relaxed.definitions] == [True, True]
        heal(monkeypatch, broken)
        assert table.maintain(index_only=True).groups_dropped == 1
        assert not {payload.file_name for payload in table.bucket().payloads} & before
        table.check()

    def test_a_disk_that_is_full_in_earnest(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path)
        with table.table.writer() as writer:
            ids = pa.array(range(200_000), pa.int32())
            writer.write(pa.table([ids, pc.multiply(ids.cast(pa.int64()), 7919), pa.nulls(len(ids), pa.string())], names=["id", "v", "s"]))
        table.write(delete=[1])
        table.maintain(full=True)
        store = table.seen_with(**{"pk-btree.index.columns": "v", "pk-bitmap.index.columns": "s"})
        report = run_pass(store, index_only=True, memory=1 << 20, spill=Spill(limit=1000))
        assert [one.column for one in report.failures] == ["v"]
        assert "raise `spill.limit`" in report.failures[0].reason
        assert not table.unreferenced()
        assert run_pass(store, index_only=True, memory=1 << 20).failures == ()

    def test_a_value_that_cannot_be_indexed_takes_the_superseded_payload_with_it(self, tmp_path: Path, breaks: Any) -> None:
        table = with_files(tmp_path)
        table.write(delete=range(10))
        breaks(btree, ValueError("a value"))
        table.maintain(full=True)
        assert {payload.index_type for payload in table.bucket().payloads} == {"bitmap"}

    @pytest.mark.parametrize("error", [ValueError("a value"), MemoryError()])
    def test_a_current_group_that_was_to_be_built_again_stays(self, error: Exception, tmp_path: Path, breaks: Any) -> None:
        table = with_files(tmp_path)
        before = table.bucket().payloads
        broken = breaks(btree, error)
        report = table.maintain(index_only=True, force=True, columns=["v"])
        assert (report.outcome, [one.column for one in report.failures]) == ("nothing", ["v"])
        assert len(broken.tried) == 1
        assert table.bucket().payloads == before
        table.check()
        assert table.maintain().failures == (), "it is there"


class TestQuarantine:
    def test_it_is_not_tried_again_with_the_bucket_but_when_its_own_sources_change(
        self, tmp_path: Path, breaks: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({key: key * 1_000_003 % 2**40 for key in range(2000)})
        broken = breaks(btree, ValueError("no"), rows=2000)
        for turn in range(3):
            report = table.maintain()
            assert [one.level for one in report.failures] == [5]
            assert broken.tried == [2000], turn
            table.write({100 + turn: 1})
        heal(monkeypatch, broken)
        table.maintain(full=True)
        table.check()
        assert table.maintain().failures == ()

    def test_the_process_that_follows_knows(self, tmp_path: Path, breaks: Any) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        broken = breaks(btree, ValueError("no"))
        table.maintain(known=Known())
        for _ in range(2):
            report = table.maintain(known=Known())
            assert (report.outcome, len(report.failures)) == ("nothing", 1)
        assert run("once", table.path).exit_code == 0
        assert broken.tried == [1]

    def test_results_that_travel_tell_of_it_too(self, tmp_path: Path, breaks: Any) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        broken = breaks(btree, ValueError("no"))
        for work in (1, 0):
            plan = plan_pass(table.store, PlanRequest())
            assert len(plan.work) == work
            commit_results(table.store, list(execute_plan(table.store, plan)))
        assert broken.tried == [1]

    def test_a_pass_that_fails_remembers_what_else_it_found(self, tmp_path: Path, breaks: Any) -> None:
        """One bucket is damaged for good, and raises in each pass; a group of another cannot be built."""
        table = SmallTable(tmp_path, indexes=True, bucket="2")
        table.write({key: key for key in range(50)})
        damaged = Path(table.path, "bucket-0", table.bucket(0).files[0].file_name)
        damaged.write_bytes(b"PAR1")
        broken = breaks(btree, ValueError("no"))
        for _ in range(3):
            with pytest.raises(CorruptFile):
                table.maintain(known=Known())
        assert len(broken.tried) == 1
        assert Table(table.store).coverage().uncovered[-1].reason == "the group could not be built: ValueError: no"

    @pytest.mark.parametrize("what", ["by", "schema_id", "sources"])
    def test_another_schema_or_package_is_a_reason_to_try(self, what: str, tmp_path: Path, breaks: Any) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        broken = breaks(btree, ValueError("no"))
        table.maintain()
        file = Path(table.path, "maintainer", "index-failures.json")
        document = json.loads(file.read_text())
        document["groups"][0] |= {what: 7 if what == "schema_id" else "another"}
        file.write_text(json.dumps(document))
        for _ in range(2):
            table.maintain()
        assert broken.tried == [1, 1]

    @pytest.mark.parametrize("error", [SpillError("no room"), MemoryError(), OSError(24, "too many files"), NO_LIBRARY], ids=str)
    def test_what_is_not_about_values_is_tried_again_after_an_hour(
        self, error: Exception, tmp_path: Path, breaks: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = SmallTable(tmp_path, indexes=True, bucket="2")
        table.write({key: key for key in range(50)})
        broken = breaks(btree, error)
        assert len(table.maintain().failures) == 2
        heal(monkeypatch, broken)
        assert len(table.maintain().failures) == 2
        monkeypatch.setattr(quarantine, "RETRY_AFTER", 0)
        assert table.maintain().failures == ()
        table.check()
        assert json.loads(Path(table.path, "maintainer", "index-failures.json").read_text())["groups"] == []

    @pytest.mark.parametrize("ahead", [2 * quarantine.RETRY_AFTER, 10**400])
    def test_a_clock_that_was_wrong(self, ahead: int, tmp_path: Path, breaks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        broken = breaks(btree, SpillError("no room"))
        table.maintain()
        file = Path(table.path, "maintainer", "index-failures.json")
        document = json.loads(file.read_text())
        document["groups"][0]["since"] += ahead
        file.write_text(json.dumps(document))
        known = Known(failed=quarantine.decode(file.read_bytes()))
        now = time.time() * 1000
        assert known.retry_at is not None and now < known.retry_at <= now + 2 * quarantine.RETRY_AFTER
        heal(monkeypatch, broken)
        assert table.maintain().failures == ()
        table.check()

    def test_a_note_about_what_is_not_there_is_no_news(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        table.maintain()
        nothing = FailedGroup(groups.fingerprint([]), table.table.schema.id, "no", True, 0)
        quarantine.save(table.store, {Group(BucketKey(b"\x00", 3), "v", 4): nothing})
        table.write({2: 2})
        assert table.maintain().failures == ()
        assert table.table.coverage().ratio() == 1.0

    def test_everybody_says_why(self, tmp_path: Path, breaks: Any) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        breaks(btree, ValueError("a value without an order"))
        table.maintain()
        reason = "the group could not be built: ValueError: a value without an order"
        assert [(one.column, one.reason) for one in table.table.coverage().uncovered] == [("v", reason)]
        (finding,) = [one for one in diagnose(table.store).findings if one.what == "index on v"]
        assert finding.severity == "warning"
        assert "a value without an order" in finding.why
        assert "rebuild --column v" in finding.do
        planned = json.loads(run("plan", table.path, "--json").stdout)
        assert planned["work"] == []
        assert planned["idle_reason"] == "no file is to be compacted, 1 group could not be built"
        assert planned["quarantined"] == [
            {"partition": {}, "bucket": 0, "column": "v", "level": 5, "reason": "ValueError: a value without an order"}
        ]
        for command in (("plan", table.path), ("once", table.path), ("compact", table.path), ("coverage", table.path)):
            assert "a value without an order" in re.sub(r"\s+", " ", run(*command).stdout.replace("│", "")), command

    def test_a_rebuild_tries_at_once(self, tmp_path: Path, breaks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        broken = breaks(btree, UsageError("no, as it is said to users"))
        table.maintain()
        (told,) = json.loads(run("index", table.path, "rebuild", "--json").stdout)["passes"]
        assert (told["outcome"], told["reason"]) == ("nothing", "1 group could not be built")
        assert [(each["column"], each["reason"]) for each in told["failures"]] == [("v", "no, as it is said to users")]
        assert broken.tried == [1, 1]
        heal(monkeypatch, broken)
        assert run("index", table.path, "rebuild", "--column", "v").exit_code == 0
        table.check()


def test_a_build_that_is_told_to_stop_stops_between_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it would go on; it is no failure, and leaves nothing."""
    table = SmallTable(tmp_path)
    table.write({key: key for key in range(40_000)})
    table.write(delete=[1])
    table.maintain(full=True)
    stop, batches, real = threading.Event(), [], btree.build

    def build(rows: Any, *rest: Any) -> Any:
        def some() -> Any:
            for each in rows:
                batches.append(len(each.values))
                stop.set()
                yield each

        return real(some(), *rest)

    monkeypatch.setattr(btree, "build", build)
    before = table.paths()
    report = run_pass(table.seen_with(**{"pk-btree.index.columns": "v"}), stop=stop)
    assert (report.outcome, report.reason, report.complete, report.failures) == ("nothing", "stopped", False, ())
    assert len(batches) == 1 and batches[0] < 39_999
    assert table.paths() == before


class TestRestart:
    def test_nothing_that_is_current_is_built_again(self, tmp_path: Path, breaks: Any) -> None:
        """Not by a process that knows nothing of the table, nor beside a compaction that leaves the level alone."""
        table = with_files(tmp_path)
        rows = table.state().bucket(BucketKey(EMPTY_ROW, 0)).files
        total = sum(file.row_count for file in rows)
        broken = [breaks(module, ValueError("built again"), rows=total) for module in (btree, bitmap)]
        shutil.rmtree(Path(table.path, "maintainer"), ignore_errors=True)
        for _ in range(3):
            assert table.maintain(known=Known()).failures == ()
            table.write({10_000: 1})
            assert table.maintain(known=Known()).failures == ()
        assert [one.tried for one in broken] == [[], []]
        assert table.groups() == {"v": [4, 5], "s": [4, 5]}


@pytest.mark.parametrize("room", ["maintain", "commit", "api", "service", "inspect"])
def test_no_family_is_named_outside_of_its_own_module(room: str) -> None:
    names = "|".join(re.escape(str(name)) for name in FamilyName)
    for path in sorted((PACKAGE / room).rglob("*.py")):
        code = re.sub(r'"""[\s\S]*?"""|#.*', "", path.read_text())
        found = re.findall(rf'["\'](?:{names})["\']', code)
        assert not found, (path, found)


GROUPS = st.builds(
    Group, st.builds(BucketKey, st.binary(max_size=20), st.integers(-2, 2**31 - 1)), st.text(st.characters(codec="utf-8")), st.integers(1, 200)
)
FAILED = st.builds(FailedGroup, st.text(), st.integers(0, 2**31), st.text(), st.booleans(), st.integers(0, 2**63 - 1), st.text())


class TestFile:
    @settings(max_examples=50, deadline=None)
    @given(st.dictionaries(GROUPS, FAILED, max_size=4))
    def test_what_is_written_is_read(self, failed: dict[Group, FailedGroup]) -> None:
        assert quarantine.decode(quarantine.encode(failed)) == failed

    @pytest.mark.parametrize(
        "text",
        [
            *("", "[]", "{", "null", "[" * 100_000, "\x00\xff", '{"version": 2}', '{"version": 1}', '{"version": 1, "groups": [1]}'),
            '{"version": 1, "groups": [{"partition": "?", "bucket": 0}]}',
        ],
    )
    def test_anything_else_is_as_if_there_were_none(self, text: str, tmp_path: Path, breaks: Any) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        broken = breaks(btree, ValueError("no"))
        table.maintain()
        Path(table.path, "maintainer", "index-failures.json").write_bytes(text.encode("latin-1"))
        assert table.table.coverage().uncovered[0].reason == "no group for level 5"
        assert len(table.maintain().failures) == 1
        assert broken.tried == [1, 1]
