"""Groups that are built from an older payload: as a build from all rows, without reading the files that the older payload has."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

import maintainer
from maintainer.api.maintenance import run_pass
from maintainer.format import source_meta
from maintainer.maintain import compact
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, BucketKey, IndexFileMeta
from maintainer.table.opening import open_store
from maintainer.table.state import load_state
from tests.support.builders import type_
from tests.support.campaign import share
from tests.support.evolve import retype_column, set_options

TYPES = {"id": "INT", "n": "BIGINT", "t": "STRING", "d": "DOUBLE", "b": "STRING", "x": "INT", "a": "ARRAY<STRING>"}
OPTIONS = {
    "bucket": "1",
    "deletion-vectors.enabled": "true",
    "target-file-size": "6 kb",
    "pk-btree.index.columns": "n,t,d",
    "pk-bitmap.index.columns": "b,x",
    "pk-multivalue.index.columns": "a",
    "btree-index.block-size": "2 kb",
}
INDEXED = {"n", "t", "d", "b", "x", "a"}


class Table:
    """A table of several files on its highest level; which data files are opened for the groups is written down."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = str(directory / "t")
        fields = [{"name": name, "type": text} for name, text in TYPES.items()]
        self.table = maintainer.create_table(self.path, {"fields": fields, "primaryKeys": ["id"], "options": OPTIONS})
        self.read: list[tuple[str, str]] = []
        real = compact.open_data_file

        def noted(storage: Any, path: str, *others: Any) -> Any:
            opened = real(storage, path, *others)
            batches = opened.batches

            def counted(columns: Sequence[str], *rest: Any, **others: Any) -> Iterator[Any]:
                if len(columns) == 1:
                    self.read.append((columns[0], path.rpartition("/")[2]))
                yield from batches(columns, *rest, **others)

            object.__setattr__(opened, "batches", counted)
            return opened

        monkeypatch.setattr(compact, "open_data_file", noted)

    def write(self, ids: Sequence[int], chance: random.Random) -> None:
        def some(value: Any) -> Any:
            return None if chance.random() < 0.1 else value

        rows = [
            {
                "id": number,
                "n": some(chance.randrange(-(10**6), 10**6)),
                "t": some(f"text-{chance.randrange(3000)}"),
                "d": some(chance.choice([0.0, -0.0, float("nan"), chance.random()])),
                "b": some(f"{chance.randrange(5)}"),
                "x": some(chance.randrange(400)),
                "a": some([some(f"w{chance.randrange(50)}") for _ in range(chance.randrange(4))]),
            }
            for number in ids
        ]
        with self.table.writer() as writer:
            writer.write(pa.Table.from_pylist(rows, maintainer_schema()))

    def delete(self, ids: Sequence[int]) -> None:
        with self.table.writer() as writer:
            writer.delete(pa.table([pa.array(ids, pa.int32())], names=["id"]))

    def maintain(self, **options: str) -> Any:
        """A pass with full compactions; what it read of columns for the groups is left in `read`."""
        self.read.clear()
        return run_pass(open_store(self.path, options={name.replace("_", "-"): value for name, value in options.items()}), full=True)

    def force(self) -> None:
        """Build every group again, from all rows."""
        self.read.clear()
        run_pass(self.table.store, index_only=True, force=True)

    def bucket(self) -> BucketState:
        snapshot = self.table.store.latest_snapshot()
        assert snapshot is not None
        return load_state(self.table.store, snapshot).bucket(BucketKey(EMPTY_ROW, 0))

    def payloads(self) -> dict[tuple[str, int], IndexFileMeta]:
        """By column and level."""
        found = {}
        for payload in self.bucket().payloads:
            assert payload.global_index is not None and payload.global_index.source_meta is not None
            column = next(field.name for field in self.table.schema.fields if field.id == payload.global_index.index_field_id)
            found[column, source_meta.decode(payload.global_index.source_meta).level] = payload
        return found

    def bytes_of(self, payload: IndexFileMeta) -> bytes:
        return self.place(payload).read_bytes()

    def place(self, payload: IndexFileMeta) -> Path:
        return Path(self.path, "index", payload.file_name)

    def names(self) -> set[str]:
        return {file.file_name for file in self.bucket().files}


def maintainer_schema() -> pa.Schema:
    kinds = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string(), "DOUBLE": pa.float64(), "ARRAY<STRING>": pa.list_(pa.string())}
    return pa.schema([(name, kinds[text]) for name, text in TYPES.items()])


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    made = Table(tmp_path, monkeypatch)
    made.write(range(7000), random.Random(1))
    made.maintain()
    assert len(made.names()) >= 6 and len(made.payloads()) == len(INDEXED)
    return made


def check_as_if_forced(table: Table) -> None:
    """What groups hold is what they would hold if all rows had been read."""
    before = {place: table.bytes_of(payload) for place, payload in table.payloads().items()}
    metas = {place: payload.global_index for place, payload in table.payloads().items()}
    table.force()
    assert {name for _, name in table.read if _ in INDEXED} == table.names()
    after = table.payloads()
    assert metas == {place: payload.global_index for place, payload in after.items()}
    for place, payload in after.items():
        assert before[place] == table.bytes_of(payload), place


def read_of(table: Table) -> dict[str, set[str]]:
    return {column: {name for read, name in table.read if read == column} for column in INDEXED}


def test_only_files_that_are_new_are_read(table: Table) -> None:
    chance = random.Random(2)
    for _ in range(3):
        before = table.names()
        table.delete(chance.sample(range(100), 3))
        with capture_logs() as events:
            table.maintain()
        new = table.names() - before
        assert 0 < len(new) <= 2 < len(before)
        assert read_of(table) == dict.fromkeys(INDEXED, new)
        assert not [event for event in events if event["event"] == "group.built-anew"]
        check_as_if_forced(table)


def test_random_changes_leave_what_all_rows_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(share("incremental groups", short=3, long=100)):
        chance = random.Random(seed)
        table = Table(tmp_path / str(seed), monkeypatch)
        table.write(range(5000), chance)
        table.maintain()
        for _ in range(3):
            if chance.random() < 0.7:
                start = chance.randrange(5000)
                table.write(sorted({chance.randrange(start, start + 400) for _ in range(chance.choice([1, 30, 300]))}), chance)
            if chance.random() < 0.5:
                table.delete(chance.sample(range(5000), 5))
            if chance.random() < 0.5:
                run_pass(table.table.store)  # into whatever level it picks
            table.maintain()
            check_as_if_forced(table)


def test_switched_off_all_files_are_read(table: Table) -> None:
    table.delete([5])
    table.maintain(**{"maintain.incremental-index": "false"})
    assert read_of(table) == dict.fromkeys(INDEXED, table.names())


@pytest.mark.parametrize("column", sorted(INDEXED))
def test_a_damaged_payload_is_replaced_by_what_all_rows_give(table: Table, column: str) -> None:
    place = table.place(table.payloads()[column, 5])
    data = place.read_bytes()
    damaged = 0
    for seed in range(share("damaged older payloads", short=3, long=200)):
        chance = random.Random(seed)
        changed = bytearray(data)
        if seed:
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            place.write_bytes(changed)
        else:
            place.unlink()
        table.delete([seed])
        with capture_logs() as events:
            table.maintain()
        anew = [event["column"] for event in events if event["event"] == "group.built-anew"]
        assert anew in ([], [column])
        damaged += anew == [column]
        assert read_of(table)[column] == table.names() or not anew
        if column != "a":  # nothing protects which rows have an element
            check_as_if_forced(table)
        place = table.place(table.payloads()[column, 5])
        data = place.read_bytes()
    assert damaged


@pytest.mark.parametrize("wider", ["BIGINT", "FLOAT"])  # keys of FLOAT have as many bytes as those of INT, and look like some
def test_after_a_column_was_retyped_all_files_are_read(wider: str, table: Table) -> None:
    retype_column(table.path, "x", type_(wider))
    table.delete([5])
    before = table.names()
    table.table = maintainer.open_table(table.path)
    table.maintain()
    assert read_of(table) == {**dict.fromkeys(INDEXED, table.names() - before), "x": table.names()}
    check_as_if_forced(table)


def test_options_that_changed_apply_to_all_keys(table: Table) -> None:
    set_options(table.path, **{"btree-index.block-size": "700 b", "bitmap-index.compression": "zstd"})
    before = table.names()
    table.delete([5])
    table.table = maintainer.open_table(table.path)
    table.maintain()
    assert read_of(table) == dict.fromkeys(INDEXED, table.names() - before)
    check_as_if_forced(table)
