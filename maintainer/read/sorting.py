"""Rows in the order of ORDER BY, within a budget (DESIGN rule 5; Java sorts in the engine that reads).

    batches ──▶ chunks that fit, each sorted ──▶ one chunk: done
                                             └─▶ runs in a temporary file ──▶ merged, a window at a time

With a limit, what cannot be among the first rows is left out on the way: of a chunk only the first `limit` rows stay, and rows that come
behind the last of them are dropped as they arrive. So the usual limit takes one chunk, however many rows there are.

A window holds the first unread batch of each run, up to the smallest key that one of them ends with: no row that is still unread comes before
it. Of the runs after that one, rows with just this key wait, so that ties stay in the order they had.

Memory: a chunk has a third of the budget, as sorting copies it. A run's batches are so small that those of all runs have a quarter; where there
are more than `MOST_RUNS`, they are merged in several passes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from maintainer.merge.spilling import Spill, SpillFile
from maintainer.model.schema import TableSchema
from maintainer.read.order import SortKey, before, sorted_rows

MOST_RUNS = 64
LEAST_BATCH = 64 << 10
LARGEST_CHUNK = 1 << 30
"""A column of texts of one chunk stays below 2 GiB."""
OUT_ROWS = 65_536


@dataclass(frozen=True)
class Sorter:
    """How the rows of one scan are sorted: `limit` of them (None: all), by `keys`, in about `memory` bytes."""

    schema: TableSchema
    keys: tuple[SortKey, ...]
    limit: int | None
    memory: int
    spill: Spill

    def sorted(self, batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
        """All rows of `batches` in order. Nothing comes out before everything went in."""
        with ExitStack() as stack:
            file: SpillFile | None = None
            runs: list[list[int]] = []
            last: pa.Table | None = None
            held: list[pa.Table] = []
            size = rows = 0
            for batch in batches:
                table = pa.Table.from_batches([batch])
                if last is not None and not (kept := before(table, last, self.keys, self.schema)).all():
                    table = table.filter(pa.array(kept))
                if not table.num_rows:
                    continue
                held.append(table)
                size, rows = size + table.nbytes, rows + table.num_rows
                too_large = size > self._chunk
                if not too_large and (self.limit is None or rows < max(4 * self.limit, 4 * OUT_ROWS)):
                    continue
                chunk = self._sort(held)
                if self.limit is not None and chunk.num_rows == self.limit:
                    last = chunk.slice(chunk.num_rows - 1)
                if too_large and chunk.nbytes > self._chunk // 2:
                    file = file or stack.enter_context(self.spill.file())
                    runs.append(self._append(file, [chunk]))
                    held, size, rows = [], 0, 0
                else:
                    held, size, rows = [chunk], chunk.nbytes, chunk.num_rows
                del chunk, table
            chunk = self._sort(held) if held else None
            del held
            if file is None:
                if chunk is not None:
                    yield from chunk.to_batches(max_chunksize=OUT_ROWS)
                return
            if chunk is not None:
                runs.append(self._append(file, [chunk]))
                del chunk
            while len(runs) > self._most_runs:
                with ExitStack() as done:
                    done.push(stack.pop_all())  # the runs so far go when those that they make up are there
                    larger = stack.enter_context(self.spill.file())
                    several = [runs[start : start + self._most_runs] for start in range(0, len(runs), self._most_runs)]
                    runs = [self._append(larger, self._merged(file, some)) for some in several]
                    file = larger
            for window in self._merged(file, runs):
                yield from window.to_batches(max_chunksize=OUT_ROWS)

    @property
    def _chunk(self) -> int:
        return min(self.memory // 3, LARGEST_CHUNK)

    @property
    def _most_runs(self) -> int:
        return max(2, min(MOST_RUNS, self.memory // 4 // LEAST_BATCH))

    def _sort(self, held: Sequence[pa.Table]) -> pa.Table:
        return sorted_rows(pa.concat_tables(held), self.keys, self.schema, self.limit).combine_chunks()

    def _append(self, file: SpillFile, tables: Iterable[pa.Table]) -> list[int]:
        """Write a run, in batches of which one is held for each of the runs that are merged; the numbers of these."""
        numbers: list[int] = []
        for table in tables:
            rows = max(1, int(self.memory // 4 // self._most_runs * table.num_rows // max(1, table.nbytes)))
            numbers += [file.append(batch) for batch in table.to_batches(max_chunksize=rows)]
        return numbers

    def _merged(self, file: SpillFile, runs: Sequence[list[int]]) -> Iterator[pa.Table]:
        """The rows of several runs in order, the first `limit` of them."""
        left = self.limit
        unread = [iter(numbers) for numbers in runs]
        held: list[pa.Table | None] = [None] * len(runs)
        while True:
            for at, numbers in enumerate(unread):
                if held[at] is None and (number := next(numbers, None)) is not None:
                    held[at] = pa.Table.from_batches([file.read(number)])
            present = [(at, table) for at, table in enumerate(held) if table is not None]
            if not present:
                return
            ends = pa.concat_tables([table.slice(table.num_rows - 1) for _, table in present])
            first_end = self._first(ends)
            owner, end = present[first_end][0], ends.slice(first_end, 1)
            ready = []
            for at, table in present:
                rows = table.num_rows if at == owner else np.count_nonzero(before(table, end, self.keys, self.schema, ties=at < owner))
                ready.append(table.slice(0, rows))
                held[at] = table.slice(rows) if rows < table.num_rows else None
            window = sorted_rows(pa.concat_tables(ready), self.keys, self.schema, left)
            yield window
            if left is not None:
                left -= window.num_rows
                if not left:
                    return

    def _first(self, table: pa.Table) -> int:
        numbered = table.append_column("", pa.array(np.arange(table.num_rows)))
        return int(sorted_rows(numbered, self.keys, self.schema, 1).column(table.num_columns)[0].as_py())
