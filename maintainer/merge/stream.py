"""Merging sorted runs by key range, in bounded memory (spec 04 §4.4, §6.1; Java `MergeTreeReaders`, `MergeSorter`).

Invariant: rows of a run are strictly ascending by key, over all its files. A level-0 file that is not in key order (spec 02 §17; `scan` tells)
is sorted before it takes part; any other disorder is a corrupt file. The budget is shared out here: what buffers may hold, how large batches
are, and which runs and files have to make do with a temporary file (`maintainer.merge.spilling`) for it to be kept.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

from maintainer.merge.candidates import Candidates, Source
from maintainer.merge.passes import reduced, runs_at_a_time
from maintainer.merge.spilling import Sorting, Spill, SpillFile, appended, copied, spilled, width_of
from maintainer.merge.windows import BATCH_ROWS, WINDOW_ROWS, Cursor, Merge, ages, batch_rows_of, keys_of, windows
from maintainer.model.files import DataFileMeta
from maintainer.model.types import DataType
from maintainer.table.merging import MergeRules

SHARE_OF_BUDGET = 6
"""Buffers may hold one part in six: a window is held up to three times while its survivors are gathered, and what decodes, encodes and frees
memory late needs the rest."""
SHARE_OF_OPEN_FILES = 4
LEAST_FOR_OPEN_FILES = 64 << 20
"""Files that are open for reading may hold one part in four, or this, which is not of the budget."""
PAGE_BYTES = 1 << 20
"""What writers make a page of, as a rule."""
REMOTE_BYTES = 16 << 20
"""What is fetched at a time from a remote store, and held, is no more than this."""
KEY_BATCH_BYTES = 16 << 20
"""Of keys that are read without their rows."""
LARGEST_BUFFER = 1 << 30
"""Arrow's string arrays cannot hold more than 2 GiB."""
EXPANSION = 8
"""How much larger than its file a row may be in memory, unless the first rows show more."""
PROBE_ROWS = 512
PROBED_ROWS = 8 * 1024
"""Of the longest file of a run the first rows are looked at, if it has more than this: texts that repeat take next to nothing in a file."""
PROBED = 2
PROBED_EXPANSION = 3
"""How much larger than the first rows, and than in the file, rows may be if they were looked at."""


@dataclass(frozen=True)
class Scan:
    """What the key columns of a file say: whether it is strictly in order, and its real smallest and largest key in comparable form."""

    ordered: bool
    smallest: tuple[Any, ...] | None
    largest: tuple[Any, ...] | None


def merge_runs(
    runs: Sequence[Sequence[Source]],
    columns: Sequence[str],
    rules: MergeRules,
    key_names: Sequence[str],
    key_types: Sequence[DataType],
    budget: int,
    spill: Spill,
    joined: float = 0.0,
) -> Generator[Candidates, None, None]:
    """The runs of one section, window by window; `columns` are what records consist of, keys, system columns and what the merge function
    needs included; `budget` is in bytes, and the caller may add `joined` bytes to each row that it gets.
    Close the generator if it is left early, as it may hold temporary files."""
    limit = max(1, min(budget // SHARE_OF_BUDGET, LARGEST_BUFFER))
    merge = Merge(tuple(columns), tuple(key_names), tuple(key_types), ages(runs), rules)
    buffers = _Buffers(merge, limit, max(LEAST_FOR_OPEN_FILES, budget // SHARE_OF_OPEN_FILES), spill, joined)
    with ExitStack() as files:
        widths = [max(row_width(run, merge.columns, limit // max(len(runs), 1)), joined) for run in runs]
        runs = [[replace(source, width=width) for source in run] for run, width in zip(runs, widths, strict=True)]
        if len(runs) > 2:
            sizes = [width * sum(source.file.row_count for source in run) for run, width in zip(runs, widths, strict=True)]
            fan = runs_at_a_time(sizes, max(widths), len(merge.columns), limit)
            runs = reduced(runs, sizes, fan, lambda some, file: buffers.merged(some, file, fan), spill, files)
        yield from files.enter_context(closing(buffers.windows(runs, merge, files)))


@dataclass(frozen=True)
class _Buffers:
    """What the parts of a merge have: `limit` for windows and batches, `open_files` for what files hold while they are read."""

    merge: Merge
    limit: int
    open_files: int
    spill: Spill
    joined: float

    def windows(self, runs: Sequence[Sequence[Source]], merge: Merge, files: ExitStack) -> Generator[Candidates, None, None]:
        """The windows of some runs; runs that have to be copied are in `files`."""
        limit = self.limit
        to_sort = sum(not all(source.ordered for source in run) for run in runs)
        sorting = Sorting(self.spill, limit, limit // 2 // max(to_sort, 1))
        if to_sort:
            limit -= limit // 2
        share = limit // max(len(runs), 1)
        too_many = _too_many(runs, self.open_files)
        cursors = []
        for number, run in enumerate(runs):
            width = max((source.width for source in run), default=1.0)
            batch_rows = batch_rows_of(share // 2, width)
            if number in too_many:
                run = copied(run, merge.columns, files.enter_context(self.spill.file()), batch_rows_of(limit // 2, width), share // 2)
            cursors.append(Cursor([sorting.ordered(source, merge) for source in run], merge, batch_rows))
        return windows(cursors, merge, limit, min(WINDOW_ROWS, int(limit / max(self.joined, 1.0))))

    def merged(self, runs: Sequence[Sequence[Source]], file: SpillFile, fan: int) -> list[Source]:
        """Some runs as one, in a temporary file, of which so many are read at a time."""
        aged = replace(self.merge, aged=True)
        rows = sum(source.file.row_count for run in runs for source in run)
        with ExitStack() as files:
            found = files.enter_context(closing(self.windows(runs, aged, files)))
            numbers = appended(found, aged, file, self.limit // (3 * fan), self.joined)
        return [spilled(file, numbers, replace(runs[0][0].file, row_count=rows), max(source.width for run in runs for source in run))]


def scan(source: Source, key_names: Sequence[str], key_types: Sequence[DataType]) -> Scan:
    """Read the keys of a level-0 file before it is merged, as its order and the bounds in its metadata cannot be relied on."""
    ordered = True
    smallest: tuple[Any, ...] | None = None
    largest: tuple[Any, ...] | None = None
    for batch in source.read(key_names, key_batch_rows(source.file, BATCH_ROWS)):
        if not batch.num_rows:
            continue
        keys = keys_of(batch, key_names, key_types, source.file)
        first, last = keys.at(0), keys.at(len(keys) - 1)
        ordered = ordered and (largest is None or largest < first) and keys.ascending()
        if not ordered:
            by_key, _ = keys.sort()
            first, last = keys.at(int(by_key[0])), keys.at(int(by_key[-1]))
        smallest = first if smallest is None else min(smallest, first)
        largest = last if largest is None else max(largest, last)
    return Scan(ordered, smallest, largest)


def held_bytes(file: DataFileMeta, columns: int, remote: bool) -> int:
    """About what a file holds in memory while so many columns of it are read, beside the batches: a page of each."""
    pages = min(columns * PAGE_BYTES, EXPANSION * file.file_size)
    return pages + (min(REMOTE_BYTES, file.file_size) if remote else 0)


def key_batch_rows(file: DataFileMeta, most: int) -> int:
    """Rows, at most so many, of a batch of nothing but keys, which are about as long as the smallest and the largest one."""
    return max(1, min(most, KEY_BATCH_BYTES // max(len(file.min_key), len(file.max_key), 1)))


def _too_many(runs: Sequence[Sequence[Source]], most: int) -> set[int]:
    """The runs, the smallest ones, that have to be copied so that the others together hold no more than `most` bytes while they are read."""
    held = {number: max((source.held for source in run if source.ordered), default=0) for number, run in enumerate(runs)}
    left = sum(held.values())
    chosen: set[int] = set()
    for number in sorted((number for number in held if held[number]), key=lambda number: sum(source.file.file_size for source in runs[number])):
        if left <= most:
            break
        left -= held[number]
        chosen.add(number)
    return chosen


def row_width(run: Sequence[Source], columns: Sequence[str], share: int) -> float:
    """Bytes of a row in memory, as far as can be told. `share`: how many bytes there are for the run; if all of it fits, it matters little."""
    width = max((EXPANSION * source.file.file_size / max(source.file.row_count, 1) for source in run), default=0.0)
    longest = max(run, key=lambda source: source.file.row_count, default=None)
    if longest is not None and (longest.file.row_count > PROBED_ROWS or width * longest.file.row_count > share):
        first = next(longest.read(columns, min(PROBE_ROWS, batch_rows_of(LEAST_FOR_OPEN_FILES, width))), None)
        if first is not None and first.num_rows:
            width = max(PROBED * width_of(first), width * PROBED_EXPANSION / EXPANSION)
    return width
