"""Tables with indexes of all families over a history of writes, deletes, passes and damage: what is built is what all rows give, byte for
byte, however many generations of payloads it was taken over from, and scans find what a dictionary of the rows says."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

import maintainer
from maintainer.api.maintenance import run_pass
from maintainer.data import writer as data_file_writer
from maintainer.data.reader import open_data_file
from maintainer.format import source_meta
from maintainer.format.bitmap_file import BitmapFile
from maintainer.format.stored_block import PayloadBytes
from maintainer.index.build import build_payload
from maintainer.index.definition import IndexDefinition, definitions
from maintainer.maintain import rebuild
from maintainer.model.bucket import BucketState
from maintainer.model.files import IndexFileMeta
from maintainer.model.predicate import And, Leaf, Or, Predicate
from maintainer.model.types import DataType
from maintainer.read.scan import Scan
from maintainer.table.opening import open_store
from maintainer.table.state import load_state
from tests.support.campaign import share
from tests.support.plain_values import KINDS, Kind, Question, array_matches, array_of, array_questions, matches, questions
from tests.support.sorted_index import reading

HISTORIES = share("tables through time", short=1, long=300)
DAMAGES = share("tables with damaged payloads", short=1, long=300)
ROUNDS = 8
FILE_ROWS = 30
UNPROTECTED = "multivalue"
"""Of postings of elements nothing tells that they are wrong."""


class History:
    """A table and the rows that it should have."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.chance = chance
        groups = sorted({text.partition("(")[0] for text in KINDS})

        def some(texts: bool) -> Kind:
            group = chance.choice(["STRING", "VARCHAR", "CHAR"] if texts else groups)
            return chance.choice([kind for kind in KINDS.values() if kind.text.partition("(")[0] == group])

        self.kinds = {"b1": some(False), "b2": some(True), "m1": some(False), "m2": some(True), "f1": some(True), "f2": some(True)}
        self.elements = {"a1": some(False), "a2": some(True)}
        self.keys = chance.choice([40, 300, 300])
        self.partitions = chance.choice([1, 2])
        types = {name: kind.text for name, kind in self.kinds.items()} | {name: f"ARRAY<{kind.text}>" for name, kind in self.elements.items()}
        block = f"{chance.choice([100, 4096])} b"
        options = {
            "bucket": str(chance.choice([1, 2])),
            "deletion-vectors.enabled": "true",
            "target-file-size": chance.choice(["2 kb", "2 kb", "128 mb"]),  # 2 kb: a file has `FILE_ROWS` rows
            "num-sorted-run.compaction-trigger": "3",
            "metadata.stats-mode": chance.choice(["none", "full", "truncate(4)"]),
            "pk-btree.index.columns": "b1,b2",
            "pk-bitmap.index.columns": "m1,m2",
            "pk-multivalue.index.columns": "a1,a2",
            "pk-fm.index.columns": "f1,f2",
            "btree-index.block-size": block,
            "fields.b2.pk-btree.index.options": json.dumps({"compression": "zstd"}),
            "bitmap-index.dictionary-block-size": block,
            "fields.m2.pk-bitmap.index.options": json.dumps({"compression": "lz4"}),
            "multivalue-index.dictionary-block-size": block,
            "multivalue-index.compression": chance.choice(["none", "zstd", "lz4"]),
            "fm-index.locate-cost-ratio": "1",
            "fm-index.sa-sample-rate": "2",
            "fields.f2.pk-fm.index.options": json.dumps({"partition-row-count": "20"}),
        }
        fields = [{"name": "p", "type": "INT"}, {"name": "id", "type": "INT"}] + [{"name": n, "type": t} for n, t in types.items()]
        schema = {"fields": fields, "partitionKeys": ["p"], "primaryKeys": ["p", "id"], "options": options}
        self.table = maintainer.create_table(str(path), schema)
        self.rows: dict[tuple[int, int], dict[str, Any]] = {}
        self.pools = {
            name: [kind.draw(chance) for _ in range(chance.choice([3, 60]))] for name, kind in [*self.kinds.items(), *self.elements.items()]
        }

    def row(self) -> dict[str, Any]:
        chance = self.chance

        def value(name: str) -> Any:
            return None if chance.random() < 0.1 else chance.choice(self.pools[name])

        arrays = {name: None if chance.random() < 0.1 else [value(name) for _ in range(chance.randrange(4))] for name in self.elements}
        return {name: value(name) for name in self.kinds} | arrays

    def write(self) -> None:
        """Changes of rows with keys near one another, and some deletes."""
        chance = self.chance
        keys = [(partition, number) for partition in range(self.partitions) for number in range(self.keys)]
        if self.rows:
            start = chance.randrange(len(keys))
            near = keys[start : start + self.keys // chance.choice([4, 20, 20])]
            keys = chance.sample(near, chance.randint(0, len(near)))
        changed = {key: self.row() for key in keys}
        gone = chance.sample(sorted(self.rows), min(len(self.rows), chance.choice([0, 0, 5])))
        with self.table.writer() as writer:
            if gone:
                writer.delete(self.key_columns(gone))
            if changed:
                given = self.key_columns(keys)
                for name, kind in self.kinds.items():
                    given = given.append_column(name, kind.arrow([row[name] for row in changed.values()]))
                for name, kind in self.elements.items():
                    given = given.append_column(name, array_of(kind, [row[name] for row in changed.values()]))
                writer.write(given)
        for key in gone:
            self.rows.pop(key)
        self.rows |= changed

    @staticmethod
    def key_columns(keys: list[tuple[int, int]]) -> pa.Table:
        return pa.table({"p": pa.array([p for p, _ in keys], pa.int32()), "id": pa.array([number for _, number in keys], pa.int32())})

    def maintain(self) -> None:
        """A pass of any kind; with `async` groups come in a commit of their own."""
        chance = self.chance
        options = {"maintain.index-mode": chance.choice(["wait", "wait", "async"])}
        run_pass(open_store(self.table.store.uri, options=options), full=chance.random() < 0.7, memory=chance.choice([None, 64 << 20]))
        run_pass(self.table.store)

    def payloads(self) -> Iterator[tuple[str, BucketState, IndexFileMeta]]:
        """All of them, with their columns."""
        snapshot = self.table.store.latest_snapshot()
        assert snapshot is not None
        for bucket in load_state(self.table.store, snapshot).buckets.values():
            for payload in bucket.payloads:
                assert payload.global_index is not None
                yield next(f.name for f in self.table.schema.fields if f.id == payload.global_index.index_field_id), bucket, payload

    def place(self, bucket: BucketState, payload: IndexFileMeta) -> Path:
        return Path(self.table.store.uri, self.table.store.layout.index_file_path(payload, bucket.partition, bucket.bucket))

    def damage(self) -> dict[Path, bytes]:
        """Change, cut off or remove some payloads; what they were."""
        chance = self.chance
        found = {}
        for _, bucket, payload in self.payloads():
            if chance.random() < 0.3:
                place = self.place(bucket, payload)
                data = found[place] = place.read_bytes()
                how = chance.choice(["gone", "cut", "bit", "bit"] if payload.index_type != UNPROTECTED else ["gone", "cut"])
                if how == "gone":
                    place.unlink()
                elif how == "cut":
                    place.write_bytes(data[: chance.randrange(len(data))])
                else:
                    changed = bytearray(data)
                    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                    place.write_bytes(changed)
        return found

    def check_payloads(self, about: str) -> int:
        """Each is what its column gives, read from its files; how many there are."""
        count = 0
        store, schema = self.table.store, self.table.schema
        defined = {definition.column: definition for definition in definitions(schema)}
        for column, bucket, payload in self.payloads():
            count += 1
            assert payload.global_index is not None and payload.global_index.source_meta is not None
            files = {file.file_name: file for file in bucket.files}
            arrays = []
            for name, rows in source_meta.decode(payload.global_index.source_meta).files:
                path = store.layout.data_file_path(bucket.partition, bucket.bucket, files[name])
                with open_data_file(store.storage, path, files[name], store.schema(files[name].schema_id), schema) as data:
                    arrays.append(data.read([column]).column(column).combine_chunks())
                assert len(arrays[-1]) == rows
            whole = bytearray()
            built = build_payload(defined[column], arrays, sum(map(len, arrays)), whole.extend)
            assert payload.global_index.index_meta == built.index_meta, f"{about}: {column}"
            assert self.place(bucket, payload).read_bytes() == whole, f"{about}: {column}"
        return count

    def ask(self, count: int, about: str, sound: bool = True) -> None:
        """Random predicates; of sound payloads nothing is logged."""
        for _ in range(count):
            predicate, right = self.predicate()
            with capture_logs() as logs:
                found = Scan(self.table.store, predicate, ["p", "id"]).to_arrow().to_pydict()
            assert sorted(zip(found["p"], found["id"], strict=True)) == sorted(right), f"{about}: {predicate}"
            assert not sound or logs == [], f"{about}: {logs}"

    def predicate(self, most: int = 2) -> tuple[Predicate, set[tuple[int, int]]]:
        """A leaf, or a few of them under AND or OR, and the keys of the rows that it selects."""
        chance = self.chance
        if not most or chance.random() < 0.5:
            return self.leaf(chance.choice([*self.kinds, *self.elements]))
        parts = [self.predicate(most - 1) for _ in range(chance.randint(2, 3))]
        sets = [selected for _, selected in parts]
        children = tuple(child for child, _ in parts)
        return (And(children), set.intersection(*sets)) if chance.random() < 0.5 else (Or(children), set.union(*sets))

    def leaf(self, name: str) -> tuple[Leaf, set[tuple[int, int]]]:
        """A question about one column."""
        values = [row[name] for row in self.rows.values()]
        kind = self.kinds.get(name) or self.elements[name]
        question: Question = self.chance.choice((array_questions if name in self.elements else questions)(self.chance, kind, values))
        test = array_matches if name in self.elements else matches
        leaf = Leaf(question.op, name, question.leaf.literals)
        return leaf, {key for key, row in self.rows.items() if test(kind, question, row[name])}


def test_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file_writer, "_CHECK_ROWS", FILE_ROWS)
    taken_over: Counter[str] = Counter()
    real = rebuild._carried

    def carried(definition: IndexDefinition, *others: Any) -> Any:
        found = real(definition, *others)
        taken_over[definition.index_type] += found is not None
        return found

    monkeypatch.setattr(rebuild, "_carried", carried)
    for seed in range(11, 11 + HISTORIES):  # of 11 and 12 older payloads are of use
        chance = random.Random(seed)
        history = History(tmp_path / str(seed) / "t", chance)
        for round_ in range(ROUNDS):
            about = f"seed {seed}, round {round_}"
            history.write()
            damaged = history.damage() if round_ and chance.random() < 0.3 else {}
            history.maintain()
            for place, data in damaged.items():
                place.write_bytes(data)  # of groups that did not change: nobody asked for these
            assert history.check_payloads(about) or not history.rows
            history.ask(5, about)
    assert min(taken_over[name] for name in ("btree", "bitmap", "multivalue")) > 0, taken_over  # FM: by chance


def protected(payload: IndexFileMeta, data: bytes, data_type: DataType) -> list[int]:
    """The bytes of a payload that a checksum or a cross-check protects: all but the postings of a bitmap."""
    if payload.index_type not in ("bitmap", "multivalue"):
        return list(range(len(data)))
    bitmap = BitmapFile(PayloadBytes(reading(data), len(data)), data_type.element or data_type)
    places = [(entry.offset, entry.length) for entry in bitmap.entries()]
    postings = {at for offset, length in places for at in range(offset, offset + length)}
    return [at for at in range(len(data)) if at not in postings]


def test_scans_of_damaged_payloads_find_the_right_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file_writer, "_CHECK_ROWS", FILE_ROWS)
    for seed in range(DAMAGES):
        chance = random.Random(seed)
        history = History(tmp_path / str(seed) / "t", chance)
        for _ in range(3):
            history.write()
            history.maintain()
        noticed: Counter[str] = Counter()
        found = list(history.payloads())
        for number in range(60):
            column, bucket, payload = found[number % len(found)]
            place = history.place(bucket, payload)
            data = place.read_bytes()
            changed = bytearray(data)
            at = chance.sample(protected(payload, data, history.table.schema.field(column).type), chance.choice([1, 1, 1, 8]))
            for each in at:
                changed[each] = changed[each] ^ 1 << chance.randrange(8) if chance.random() < 0.7 else chance.choice([0, 127, 128, 255])
            if chance.random() < 0.2:
                del changed[chance.randrange(len(changed)) :]
            elif chance.random() < 0.1:
                changed += data[: chance.randint(1, 100)]
            place.write_bytes(changed)
            store = open_store(history.table.store.uri)
            for _ in range(2):
                leaf, right = history.leaf(column)
                other, both = history.leaf(chance.choice(list(history.kinds)))
                asked: list[tuple[Predicate, set[tuple[int, int]]]] = [(leaf, right), (And((leaf, other)), right & both)]
                for predicate, expected in asked:
                    with capture_logs() as logs:
                        rows = Scan(store, predicate, ["p", "id"]).to_arrow().to_pydict()
                    assert sorted(zip(rows["p"], rows["id"], strict=True)) == sorted(expected), f"seed {seed}, {number}: {at} {predicate}"
                    assert {log["event"] for log in logs} <= {"index.unusable"}
                    noticed[payload.index_type] += bool(logs)
            place.write_bytes(data)
        assert min(noticed.values()) > 0 and len(noticed) == 4, noticed
