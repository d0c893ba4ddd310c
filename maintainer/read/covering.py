"""Which index group covers each file of a bucket, for questions about many files at once (spec 06 §16, 07 §5; `maintainer.index.groups`).

It depends on nothing but the state of the bucket and the definition, so it is kept with the state of the table, some 20 bytes for each file,
and taken over into the next one for buckets in which nothing changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maintainer.format.kept import Cache
from maintainer.index.definition import IndexDefinition
from maintainer.index.groups import evaluate
from maintainer.model.bucket import BucketState
from maintainer.model.files import IndexFileMeta

MOST_KEPT = 32 << 20
"""Bytes of coverings that are taken over into the next state: those of some million files."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Group:
    """An active payload, and the rows of all of its sources."""

    payload: IndexFileMeta
    total: int


@dataclass(frozen=True, eq=False, slots=True)
class Covering:
    """Of one definition. `of_file` has for each file of the bucket the number of its group, or −1 − the number of the reason why it has none;
    `first` the ordinal of its first row, 0 without a group; `rows` how many it has."""

    groups: tuple[Group, ...]
    reasons: tuple[str, ...]
    of_file: npt.NDArray[np.int32]
    first: Numbers
    rows: Numbers

    def group(self, place: int) -> Group | str:
        """The group of a file, or why there is none."""
        number = int(self.of_file[place])
        return self.groups[number] if number >= 0 else self.reasons[-1 - number]

    @classmethod
    def kept(cls, cache: Cache, bucket: BucketState, definition: IndexDefinition, relaxed: bool) -> Covering:
        """That of the bucket as it was asked about last, if this is still the same state of it."""
        known, key = cache.of(bucket.key), (definition.family, definition.identity, relaxed)
        found: tuple[BucketState, Covering] | None = known.get(key)
        if found is not None and found[0] is bucket:
            return found[1]
        made = cls.of(bucket, definition, relaxed)
        known.put(key, (bucket, made), made.of_file.nbytes + made.first.nbytes + made.rows.nbytes)
        return made

    @classmethod
    def of(cls, bucket: BucketState, definition: IndexDefinition, relaxed: bool = False) -> Covering:
        """Evaluated on all files of the bucket, before any pruning."""
        state = evaluate(bucket, definition, relaxed)
        groups = [Group(payload, state.sources[level].total_rows) for level, payload in state.active.items()]
        known: dict[str, tuple[int, int]] = {}
        for number, (level, payload) in enumerate(state.active.items()):
            meta = state.sources[level]
            known |= {
                name: (number, first)
                for (name, _), first in zip(meta.files, meta.first_ordinals, strict=True)
                if state.covered.get(name) is payload
            }
        reasons: dict[str, int] = {}
        found = []
        for file in bucket.files:
            covered = known.get(file.file_name)
            if covered is None:
                reason = state.reason(file) or "not covered"
                covered = -1 - reasons.setdefault(reason, len(reasons)), 0
            found.append(covered)
        columns = np.array(found, np.int64).reshape(-1, 2)
        rows = np.array([file.row_count for file in bucket.files], np.int64)
        return cls(tuple(groups), tuple(reasons), columns[:, 0].astype(np.int32), np.ascontiguousarray(columns[:, 1]), rows)
