"""Runs of keys are merged into what one sort of all their rows gives."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.data.values import to_arrow_array
from maintainer.errors import CorruptFile
from maintainer.format import key_bytes
from maintainer.format.byte_column import ByteColumn
from maintainer.index.family.key_runs import KeyBatch, merge_runs
from maintainer.model.types import CHARACTERS, DataType
from tests.support.builders import type_
from tests.support.campaign import share
from tests.support.random_rows import random_value
from tests.support.sorted_index import grouped

TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(38, 4)", "STRING", "DATE", "TIME(3)",
    "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)",
)  # fmt: skip

Entry = tuple[bytes, list[int]]


def batches(entries: Sequence[Entry], sizes: Iterator[int]) -> Iterator[KeyBatch]:
    """Entries as a run of batches of these sizes."""
    at = 0
    while at < len(entries):
        some = entries[at : at + next(sizes)]
        at += len(some)
        counts = [len(ids) for _, ids in some]
        starts = np.cumsum(counts) - counts if counts else np.empty(0)
        keys = ByteColumn.of_rows([key for key, _ in some])
        yield KeyBatch(uniform(keys), np.array([i for _, ids in some for i in ids], np.int64), starts.astype(np.int64))


def uniform(keys: ByteColumn) -> ByteColumn:
    """The column as the encoders give it: with a width where all keys have one."""
    lengths = set(keys.lengths.tolist())
    return ByteColumn(keys.data, None, width=lengths.pop()) if len(lengths) == 1 and 0 not in lengths else keys


def entries_of(merged: Iterator[KeyBatch]) -> list[Entry]:
    found = []
    for batch in merged:
        ends = [*batch.starts.tolist(), len(batch.ids)]
        found += [(batch.keys[i], batch.ids[ends[i] : ends[i + 1]].tolist()) for i in range(len(batch.keys))]
    return found


def check(columns: Sequence[Sequence[Any]], data_type: DataType, sizes: Iterator[int], mixed: bool, rng: np.random.Generator) -> None:
    """Rows of several runs; their ordinals follow one another, or are mixed."""
    total = sum(map(len, columns))
    ordinals = rng.permutation(total) if mixed else np.arange(total)
    everything: list[Any] = [None] * total
    runs = []
    at = 0
    for column in columns:
        mine = np.sort(ordinals[at : at + len(column)]).tolist()
        at += len(column)
        for ordinal, value in zip(mine, column, strict=True):
            everything[ordinal] = value
        local, _ = grouped(column, data_type)
        runs.append(batches([(key, [mine[i] for i in ids]) for key, ids in local], sizes))
    assert entries_of(merge_runs(runs, data_type)) == [(key, sorted(ids)) for key, ids in grouped(everything, data_type)[0]]


def values(data_type: DataType, count: int, seed: int) -> list[Any]:
    chance = random.Random(seed)
    return [random_value(chance, data_type, nulls=0) for _ in range(count)]


def random_sizes(rng: np.random.Generator, most: int) -> Iterator[int]:
    while True:
        yield int(rng.integers(1, most + 1))


@pytest.mark.parametrize("name", TYPES)
def test_runs_of_every_type_are_one_run(name: str) -> None:
    data_type = type_(name)
    for seed in range(share("key runs", short=12, long=300)):
        rng = np.random.default_rng(seed)
        columns = [values(data_type, int(rng.integers(0, 60)), int(rng.integers(1 << 30))) for _ in range(int(rng.integers(1, 6)))]
        check(columns, data_type, random_sizes(rng, 25), seed % 2 == 1, rng)


@settings(max_examples=share("key runs of texts", short=150, long=5_000), deadline=None)
@given(
    st.lists(st.lists(st.text(st.sampled_from("a\0bé"), max_size=20), max_size=12), min_size=1, max_size=4),
    st.text(st.sampled_from("ab"), max_size=12),
    st.integers(1, 5),
    st.booleans(),
)
def test_texts_that_begin_alike_or_end_in_zeros_are_in_order(columns: list[list[str]], prefix: str, size: int, mixed: bool) -> None:
    rng = np.random.default_rng(len(columns))
    check([[prefix + text for text in column] for column in columns], type_("STRING"), iter(lambda: size, 0), mixed, rng)


def test_runs_are_read_as_far_as_they_are_needed() -> None:
    """A batch of each run is loaded, and no more than it takes to reach the smallest last key."""
    read = [0, 0]

    def run(number: int, first: int) -> Iterator[KeyBatch]:
        for start in range(first, first + 100, 10):
            read[number] += 1
            ids = np.arange(start, start + 10)
            yield KeyBatch(ByteColumn(ids.astype("<i8").view(np.uint8), None, width=8), ids, np.arange(10))

    merged = merge_runs([run(0, 0), run(1, 50)], type_("BIGINT"))
    first = next(merged)
    assert first.ids.tolist() == list(range(10)) and read == [1, 1]
    rest = entries_of(merged)
    assert [ids for _, ids in rest] == [[i] for i in range(10, 50)] + [[i, i] for i in range(50, 100)] + [[i] for i in range(100, 150)]


@pytest.mark.parametrize("name", [name for name in TYPES if type_(name).root not in CHARACTERS])
def test_words_compare_as_keys_do(name: str) -> None:
    data_type = type_(name)
    entries, _ = grouped(values(data_type, 400, 5), data_type)
    rows = list(
        zip(*(word.tolist() for word in key_bytes.words(uniform(ByteColumn.of_rows([key for key, _ in entries])), data_type)), strict=True)
    )
    assert rows == sorted(set(rows))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("INT", "0000000000"),
        ("BOOLEAN", "02"),
        ("FLOAT", "0100c07f"),
        ("DOUBLE", "000000000000f8ff"),
        ("TIMESTAMP(9)", "0000000000000000"),
        ("TIMESTAMP(9)", "00000000000000008000"),
        ("TIMESTAMP(9)", "0000000000000000c0843d"),
        ("TIMESTAMP(9)", "000000000000000080"),
        ("TIMESTAMP(9)", "00000000000000000001"),
        ("DECIMAL(38, 0)", ""),
        ("DECIMAL(38, 0)", "0001"),
        ("DECIMAL(38, 0)", "ff80"),
        ("DECIMAL(38, 0)", "01" * 17),
    ],
)
def test_a_key_that_no_value_has_is_refused(name: str, key: str) -> None:
    with pytest.raises(CorruptFile):
        key_bytes.words(ByteColumn.of_rows([bytes.fromhex(key)]), type_(name))


def test_arrow_arrays_without_rows_have_no_words() -> None:
    empty = key_bytes.encode_column(to_arrow_array([], type_("BIGINT")), type_("BIGINT"))
    assert [len(word) for word in key_bytes.words(empty, type_("BIGINT"))] == [0]
