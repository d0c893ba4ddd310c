"""What the index groups of a bucket say about its files (spec 07 §3–§7; Java `PrimaryKeySortedIndexScan`).

A leaf is asked once per group. Files that the same groups cover are looked at together, whatever their number: all answers about them are
sets of ordinals, which are cut into positions of each file at the end. Answers are sets, or *unknown*:

    leaf   the group of its column that covers the files answers; no such group, or no answer: unknown
    AND    the intersection of the sets; unknown only if all are
    OR     the union, if all are sets; else unknown

A set never lacks a position whose row matches, so an unknown AND-branch may be ignored. Whatever is wrong with a payload makes all of its
answers unknown, also those that it gave before, and is logged once; the files are then read raw, and the rows are right.

On a remote store all payloads of all buckets are asked at the same time, each by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog
from pyroaring import BitMap64

from maintainer.errors import CorruptFile, MaintainerError
from maintainer.format.kept import Cache
from maintainer.index.cache import forget, open_payload
from maintainer.index.definition import IndexDefinition
from maintainer.index.family import ConjunctionReader, FamilyReader
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, IndexFileMeta
from maintainer.model.like import reduced
from maintainer.model.predicate import And, Leaf, Predicate
from maintainer.read.covering import Covering, Group
from maintainer.read.ordinals import moved, window
from maintainer.read.project import conjuncts, disjuncts, without_implied
from maintainer.storage.ahead import in_turn
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)

Numbers = npt.NDArray[np.int64]
_Asked = tuple[tuple[Leaf, ...], IndexDefinition, Group]


@dataclass(frozen=True)
class Answer:
    """What the indexes say about one file: positions (None: unknown), the (column, payload) pairs that were used, and why others were not."""

    positions: BitMap64 | None
    used: tuple[tuple[str, str], ...] = ()
    why_unknown: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Answers:
    """The same about files that the same groups cover: `places` among the files of the bucket, the ordinals of all of them (None: unknown),
    and the ordinal of the first row of each file."""

    places: Numbers
    ordinals: BitMap64 | None
    first: Numbers
    used: tuple[tuple[str, str], ...]
    why_unknown: tuple[str, ...]


class BucketIndexes:
    """The groups of one bucket. `coverings` are those of its definitions; what is read of payloads is kept in `cache`."""

    def __init__(
        self,
        store: TableStore,
        bucket: BucketState,
        definitions: Sequence[IndexDefinition],
        coverings: Sequence[Covering],
        cache: Cache,
        gate: AbstractContextManager[Any] | None = None,
    ) -> None:
        """At most so many payloads are asked at the same time as the `gate` lets in."""
        self._store = store
        self._bucket = bucket
        self._cache = cache
        self._covered = {each.column: (each, covering) for each, covering in zip(definitions, coverings, strict=True)}
        self._readers: dict[str, FamilyReader | None] = {}
        self._answers: dict[tuple[str, tuple[int, ...]], BitMap64 | None] = {}
        self._rejected: set[str] = set()
        self._gate = gate or nullcontext()

    def ask(self, predicate: Predicate, file: DataFileMeta) -> Answer:
        """The positions of the file at which the predicate, a projection to the indexed columns, can be true."""
        place = next(place for place, each in enumerate(self._bucket.files) if each.file_name == file.file_name)
        (found,) = self.answers(predicate, np.array([place]))
        if found.ordinals is None:
            return Answer(None, (), found.why_unknown)
        return Answer(window(found.ordinals, int(found.first[0]), file.row_count), found.used, found.why_unknown)

    def answers(self, predicate: Predicate, places: Numbers) -> list[Answers]:
        """The same of some files of the bucket; files that are covered alike together."""
        alike = np.zeros(len(places), np.int64)
        for _, covering in self._covered.values():
            numbers = covering.of_file[places]
            if (numbers[:1] != numbers).any():
                _, groups = np.unique(numbers, return_inverse=True)
                alike = np.unique(alike * len(places) + groups.reshape(-1), return_inverse=True)[1].reshape(-1)
        every = [places[alike == number] for number in range(int(alike.max(initial=-1)) + 1)]
        if self._store.storage.remote:
            self._ask_ahead(predicate, every)
        while True:
            rejected = len(self._rejected)
            found = [self._together(predicate, files) for files in every]
            if rejected == len(self._rejected):  # else what a payload said before something was found to be wrong with it means nothing
                return found

    def _ask_ahead(self, predicate: Predicate, every: Sequence[Numbers]) -> None:
        """Asks all payloads at the same time what they will be asked, unless what others say makes it needless."""
        needed = (each for places in every for each in _Question(self, places).needed(predicate) or ())
        of_payload: dict[str, list[_Asked]] = {}
        for each in needed:
            of_payload.setdefault(each[2].payload.file_name, []).append(each)
        if len(of_payload) > 1:
            calls = (partial(self._ask_each, several) for several in of_payload.values())
            list(in_turn(self._store.storage, calls, len(of_payload)))

    def _ask_each(self, several: Sequence[_Asked]) -> None:
        for each in several:
            self.asked(*each)

    def _together(self, predicate: Predicate, places: Numbers) -> Answers:
        question = _Question(self, places)
        ordinals = question.ordinals(predicate)
        used = tuple(question.used) if ordinals is not None else ()
        return Answers(places, ordinals, question.first, used, tuple(question.why))

    def covered(self, column: str) -> tuple[IndexDefinition, Covering]:
        return self._covered[column]

    def asked(self, leaves: tuple[Leaf, ...], definition: IndexDefinition, group: Group) -> BitMap64 | None:
        """The ordinals of a group whose rows satisfy all of these leaves; None: unknown."""
        # by the identity of the leaves, which the caller keeps: tuples of literals may be equal and differ (0.0 and -0.0)
        key = group.payload.file_name, tuple(map(id, leaves))
        if key not in self._answers:
            self._answers[key] = self._ask(leaves, definition, group)
        return self._answers[key]

    def why_not(self, leaves: tuple[Leaf, ...], payload: IndexFileMeta) -> list[str]:
        """Why a group did not answer these leaves."""
        reader = self._readers.get(payload.file_name)
        reasons = []
        for leaf in leaves:
            if leaf.negated:  # nothing was asked
                reasons.append(f"does not answer not {leaf.op}")
            else:
                reasons.append("cannot be read" if reader is None else reader.why_not(reduced(leaf)))
        return reasons

    def reader(self, definition: IndexDefinition, group: Group) -> FamilyReader | None:
        payload = group.payload
        if payload.file_name not in self._readers:
            try:
                self._readers[payload.file_name] = open_payload(self._store, self._bucket, payload, definition, group.total, self._cache)
            except MemoryError:
                raise
            except Exception as error:
                self._reject(payload, definition, error)
        return self._readers[payload.file_name]

    def _ask(self, leaves: tuple[Leaf, ...], definition: IndexDefinition, group: Group) -> BitMap64 | None:
        reader = self.reader(definition, group)
        if reader is None:
            return None
        asked = [reduced(leaf) for leaf in leaves]
        try:
            with self._gate:
                ordinals = reader.evaluate_all(asked) if isinstance(reader, ConjunctionReader) else reader.evaluate(asked[0])
            if ordinals and ordinals.max() >= group.total:
                raise CorruptFile(f"ordinal {ordinals.max()} of {group.total} rows", path=group.payload.file_name)
            return ordinals
        except MemoryError:
            raise
        except Exception as error:
            self._reject(group.payload, definition, error)
            return None

    def _reject(self, payload: IndexFileMeta, definition: IndexDefinition, error: Exception) -> None:
        """The payload answers nothing any more in this plan; the next one looks at it afresh, as it may have been repaired."""
        with suppress(MaintainerError):
            forget(self._store, self._bucket, payload, self._cache)
        self._rejected.add(payload.file_name)
        self._readers[payload.file_name] = None
        for key in [key for key in list(self._answers) if key[0] == payload.file_name]:
            self._answers[key] = None
        log.warning(  # its files are read raw
            "index.unusable",
            table=self._store.name,
            bucket=self._bucket.bucket,
            column=definition.column,
            payload=payload.file_name,
            error=str(error) or type(error).__name__,
        )


class _Question:
    """One predicate about files that are covered alike. Ordinals are those of the first group that covers them; groups of other columns are
    over the same files in the same order, unless they may name files that are gone."""

    def __init__(self, indexes: BucketIndexes, places: Numbers) -> None:
        self._indexes = indexes
        self._places = places
        self.used: dict[tuple[str, str], None] = {}
        self.why: dict[str, None] = {}
        coverings = [covering for _, covering in indexes._covered.values()]
        covers = [each for each in coverings if len(places) and each.of_file[places[0]] >= 0]
        self.first: Numbers = covers[0].first[places] if covers else np.zeros(len(places), np.int64)

    def ordinals(self, node: Predicate) -> BitMap64 | None:
        """The ordinals at which the node can be true; None: unknown."""
        if isinstance(node, Leaf):
            return self._leaves((node,))
        found: BitMap64 | None = None
        if isinstance(node, And):
            for child in self._at_once(without_implied(list(conjuncts(node)))):
                one = self._leaves(child) if isinstance(child, tuple) else self.ordinals(child)
                if one is not None:
                    found = one if found is None else found & one
                    if not found:
                        return found
            return found
        found = BitMap64()
        for child in disjuncts(node):
            one = self.ordinals(child)
            if one is None:
                return None
            found |= one
        return found

    def needed(self, node: Predicate) -> list[_Asked] | None:
        """What groups may have to be asked for the ordinals of a node; None: they are unknown whatever is asked."""
        if isinstance(node, Leaf):
            return self._needed((node,))
        if isinstance(node, And):
            children = self._at_once(without_implied(list(conjuncts(node))))
            found = [self._needed(child) if isinstance(child, tuple) else self.needed(child) for child in children]
        else:
            found = [self.needed(child) for child in disjuncts(node)]
            if None in found:
                return None
        known = [each for each in found if each is not None]
        return list(chain.from_iterable(known)) if known else None

    def _needed(self, leaves: tuple[Leaf, ...]) -> list[_Asked] | None:
        definition, covering = self._indexes.covered(leaves[0].field)
        group = covering.group(int(self._places[0]))
        return None if isinstance(group, str) or leaves[0].negated else [(leaves, definition, group)]

    def _at_once(self, children: Sequence[Predicate]) -> Iterator[Predicate | tuple[Leaf, ...]]:
        """The children of an AND; several leaves of a column as one where its index answers them at once."""
        leaves: dict[str, list[Leaf]] = {}
        for child in children:
            if isinstance(child, Leaf) and not child.negated:
                leaves.setdefault(child.field, []).append(child)
        for child in children:
            several = leaves.get(child.field, []) if isinstance(child, Leaf) and not child.negated else []
            if len(several) < 2 or not self._answers_at_once(several[0].field):
                yield child
            elif child is several[0]:
                yield tuple(several)

    def _answers_at_once(self, column: str) -> bool:
        definition, covering = self._indexes.covered(column)
        group = covering.group(int(self._places[0]))
        return isinstance(group, Group) and isinstance(self._indexes.reader(definition, group), ConjunctionReader)

    def _leaves(self, leaves: tuple[Leaf, ...]) -> BitMap64 | None:
        """The answer about leaves of one column that all must be true; of several the index answers those that it can."""
        leaf = leaves[0]
        definition, covering = self._indexes.covered(leaf.field)
        group = covering.group(int(self._places[0]))
        if isinstance(group, str):
            self.why[f"{leaf.field}: {group}"] = None
            return None
        ordinals = None if leaf.negated else self._indexes.asked(leaves, definition, group)
        if ordinals is None:
            self.why |= {
                f"{leaf.field}: the {definition.family} index {reason}": None for reason in self._indexes.why_not(leaves, group.payload)
            }
            return None
        self.used[leaf.field, group.payload.file_name] = None
        return moved(ordinals, covering.first[self._places], self.first, covering.rows[self._places])
