"""Splitting files into sections and runs by their key ranges (spec 04 §4.3; Java `IntervalPartition`).

    section   files whose key ranges overlap, directly or through others; sections are disjoint and in ascending key order
    run       files of a section, in key order, that do not overlap one another; a section has as few runs as possible

The order of the runs of a section has no meaning: the age of a record comes from its sequence number.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from maintainer.errors import CorruptFile
from maintainer.format import binary_row
from maintainer.merge.order import comparable
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.types import FLOATS, DataType

KeyRange = Callable[[DataFileMeta], tuple[Any, Any]]
"""The smallest and the largest key of a file, as objects that compare in key order."""

Section = tuple[tuple[DataFileMeta, ...], ...]
"""The runs of a section, each a tuple of files in key order."""


def key_range(types: Sequence[DataType]) -> KeyRange:
    """How to get at the key range of files whose key has these types; `CorruptFile` names a file whose metadata holds no such key."""

    @cache
    def decoded(data: bytes) -> tuple[Any, ...]:
        values = binary_row.deserialize(data, types)
        if None in values:
            raise CorruptFile("its metadata has a key with a NULL in it")
        return comparable(values, types)

    def of(file: DataFileMeta) -> tuple[Any, Any]:
        try:
            return decoded(file.min_key), decoded(file.max_key)
        except CorruptFile as error:
            raise error.at(file.file_name) from None

    return of


def newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    """Sorts the files of level 0 by age (spec 04 §2); the name decides between files that are alike in everything else."""
    return -file.max_sequence_number, file.min_sequence_number, file.creation_time or 0, file.file_name


def sections(files: Iterable[DataFileMeta], key: KeyRange) -> list[Section]:
    """The sections of some files, ascending by key."""
    found: list[Section] = []
    heap: list[tuple[Any, int]] = []  # (largest key, index in `runs`): the run with the smallest of these takes the next file
    runs: list[list[DataFileMeta]] = []
    bound: Any = None
    for smallest, largest, file in sorted(((*key(file), file) for file in files), key=lambda item: item[:2]):
        if runs and smallest > bound:
            found.append(tuple(map(tuple, runs)))
            heap, runs, bound = [], [], None
        if heap and heap[0][0] < smallest:
            run = heap[0][1]
            heapq.heapreplace(heap, (largest, run))
            runs[run].append(file)
        else:
            heapq.heappush(heap, (largest, len(runs)))
            runs.append([file])
        bound = largest if bound is None or largest > bound else bound
    if runs:
        found.append(tuple(map(tuple, runs)))
    return found


def overlapping(schema: TableSchema, files: Iterable[DataFileMeta]) -> list[Section]:
    """Files of one bucket in sections; those of a section with more than one run have to be merged.

    A level-0 file with FLOAT or DOUBLE keys may lie outside of what its metadata says (spec 02 §17), so it is taken to overlap all others.
    """
    bounds = key_range(schema.key_types)
    if not any(data_type.root in FLOATS for data_type in schema.key_types):
        return sections(files, bounds)
    ranges = {file.file_name: bounds(file) for file in files}
    keys = [key for ends in ranges.values() for key in ends]
    wide = (min(keys), max(keys)) if keys else None
    return sections(files, lambda file: ranges[file.file_name] if file.level > 0 or wide is None else wide)
