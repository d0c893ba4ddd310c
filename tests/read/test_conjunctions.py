"""Several conditions of an AND on one column are one question to an FM index (spec 09 §11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer import col
from maintainer.errors import CorruptFile
from maintainer.index.family.fm_reader import FMReader
from maintainer.model.predicate import Leaf

SCHEMA = {
    "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "text", "type": "STRING"}, {"name": "name", "type": "STRING"}],
    "primaryKeys": ["id"],
    "options": {
        "bucket": "1", "deletion-vectors.enabled": "true", "pk-fm.index.columns": "text", "pk-btree.index.columns": "name",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> maintainer.Table:
    found = maintainer.create_table(str(tmp_path_factory.mktemp("warehouse") / "t"), SCHEMA)
    texts = ["y" * 60_000, *(f"often {number}" for number in range(3000)), "often needle 7", "needle 7", None]
    with found.writer() as writer:
        writer.write(pa.table({"id": range(len(texts)), "text": texts, "name": [f"n{number % 2}" for number in range(len(texts))]}))
    found.maintain(full=True)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The literals of each question."""
    questions: list[list[Any]] = []
    answer = FMReader.evaluate_all

    def evaluate_all(self: FMReader, leaves: Iterable[Leaf]) -> Any:
        leaves = list(leaves)
        questions.append([leaf.literal for leaf in leaves])
        return answer(self, leaves)

    monkeypatch.setattr(FMReader, "evaluate_all", evaluate_all)
    return questions


def ids(table: maintainer.Table, condition: Any) -> list[int]:
    return sorted(table.scan(where=condition).to_arrow().column("id").to_pylist())


def narrowed(table: maintainer.Table, condition: Any) -> int | None:
    """How many rows of the one file are looked at; None: all."""
    (file,) = table.scan(where=condition).explain().files
    return file.rows if file.decision == "indexed" else None


def test_rare_needles_narrow_beside_one_that_is_declined(table: maintainer.Table, asked: list[list[Any]]) -> None:
    often, rare = col("text").contains("often"), col("text").contains("needle 7")
    assert narrowed(table, often) is None
    assert narrowed(table, often & rare) == 2
    assert asked == [["often"], ["often", "needle 7"]]
    assert (
        "the fm index has it too often to be better than reading (fm-index.locate-cost-ratio)"
        in table.scan(where=often).explain().files[0].reason
    )
    assert ids(table, often & rare) == [3001]
    assert ids(table, rare & (often & col("text").endswith("7"))) == [3001]
    assert ids(table, often & rare & (col("name") == "n1")) == [3001]
    assert ids(table, (often & rare) | (rare & col("text").startswith("n"))) == [3001, 3002]


def test_one_needle_that_does_not_occur_is_enough(table: maintainer.Table) -> None:
    assert table.scan(where=col("text").contains("often") & col("text").contains("q")).explain().files[0].decision == "pruned"


def test_negated_conditions_stay_by_themselves(table: maintainer.Table, asked: list[list[Any]]) -> None:
    condition = col("text").contains("needle") & ~col("text").contains("often") & col("text").endswith("7")
    assert ids(table, condition) == [3002]
    assert asked == [["needle", "7"]]


def test_an_index_that_fails_answers_nothing_and_the_rows_are_right(table: maintainer.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise CorruptFile("broken")

    monkeypatch.setattr(FMReader, "evaluate_all", broken)
    condition = col("text").contains("needle") & col("text").contains("often")
    assert narrowed(table, condition) is None
    assert ids(table, condition) == [3001]
