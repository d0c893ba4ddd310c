"""What the index groups of a bucket say about each of its files (spec 07 §3–§7; Java `PrimaryKeySortedIndexScan`).

A leaf is asked once per group; the answer is a set of ordinals of the group's sources, which are cut into positions of each file. Answers are
sets, or *unknown*:

    leaf   the group of its column that covers the file answers; no such group, or no answer: unknown
    AND    the intersection of the sets; unknown only if all are
    OR     the union, if all are sets; else unknown

A set never lacks a position whose row matches, so an unknown AND-branch may be ignored. Whatever is wrong with a payload makes its answers
unknown and is logged once; the file is then read raw, and the rows are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog
from pyroaring import BitMap64

from maintainer.errors import CorruptFile, MaintainerError
from maintainer.format.kept import Cache
from maintainer.format.source_meta import SourceMeta
from maintainer.index.cache import forget, open_payload
from maintainer.index.definition import IndexDefinition
from maintainer.index.family import ConjunctionReader, FamilyReader
from maintainer.index.groups import GroupState, evaluate
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, IndexFileMeta
from maintainer.model.like import reduced
from maintainer.model.predicate import And, Leaf, Predicate
from maintainer.read.project import conjuncts, disjuncts, without_implied
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Answer:
    """What the indexes say about one file: positions (None: unknown), the (column, payload) pairs that were used, and why others were not."""

    positions: BitMap64 | None
    used: tuple[tuple[str, str], ...] = ()
    why_unknown: tuple[str, ...] = ()


class BucketIndexes:
    """The groups of one bucket, evaluated on all of its files. What is read of their payloads is kept in `cache`."""

    def __init__(self, store: TableStore, bucket: BucketState, definitions: Sequence[IndexDefinition], relaxed: bool, cache: Cache) -> None:
        self._store = store
        self._bucket = bucket
        self._cache = cache
        self._groups: dict[str, tuple[IndexDefinition, GroupState]] = {
            definition.column: (definition, evaluate(bucket, definition, relaxed)) for definition in definitions
        }
        self._readers: dict[str, FamilyReader | None] = {}
        self._answers: dict[tuple[str, tuple[int, ...]], BitMap64 | None] = {}
        self._offsets: dict[str, dict[str, int]] = {}

    def ask(self, predicate: Predicate, file: DataFileMeta) -> Answer:
        """The positions of the file at which the predicate, a projection to the indexed columns, can be true."""
        used: dict[tuple[str, str], None] = {}
        why: dict[str, None] = {}
        positions = self._positions(predicate, file, used, why)
        return Answer(positions, tuple(used) if positions is not None else (), tuple(why))

    def _positions(self, node: Predicate, file: DataFileMeta, used: dict[tuple[str, str], None], why: dict[str, None]) -> BitMap64 | None:
        if isinstance(node, Leaf):
            return self._leaves((node,), file, used, why)
        found: BitMap64 | None = None
        if isinstance(node, And):
            for child in self._together(without_implied(list(conjuncts(node))), file):
                ask = self._leaves if isinstance(child, tuple) else self._positions
                positions = ask(child, file, used, why)  # type: ignore[arg-type]
                if positions is not None:
                    found = positions if found is None else found & positions
                    if not found:
                        return found
            return found
        found = BitMap64()
        for child in disjuncts(node):
            positions = self._positions(child, file, used, why)
            if positions is None:
                return None
            found |= positions
        return found

    def _together(self, children: Sequence[Predicate], file: DataFileMeta) -> Iterator[Predicate | tuple[Leaf, ...]]:
        """The children of an AND; several leaves of a column as one where its index answers them at once."""
        leaves: dict[str, list[Leaf]] = {}
        for child in children:
            if isinstance(child, Leaf) and not child.negated:
                leaves.setdefault(child.field, []).append(child)
        for child in children:
            several = leaves.get(child.field, []) if isinstance(child, Leaf) and not child.negated else []
            if len(several) < 2 or not self._answers_at_once(several[0].field, file):
                yield child
            elif child is several[0]:
                yield tuple(several)

    def _answers_at_once(self, column: str, file: DataFileMeta) -> bool:
        definition, group = self._groups[column]
        payload = group.covered.get(file.file_name)
        return payload is not None and isinstance(self._reader(definition, group, payload), ConjunctionReader)

    def _leaves(self, leaves: tuple[Leaf, ...], file: DataFileMeta, used: dict[tuple[str, str], None], why: dict[str, None]) -> BitMap64 | None:
        """The answer about leaves of one column that all must be true; of several the index answers those that it can."""
        leaf = leaves[0]
        definition, group = self._groups[leaf.field]
        payload = group.covered.get(file.file_name)
        if payload is None:
            why[f"{leaf.field}: {group.reason(file) or 'not covered'}"] = None
            return None
        ordinals = None if leaf.negated else self._ordinals(leaves, definition, group, payload)
        if ordinals is None:
            reader = self._readers.get(payload.file_name)
            for each in leaves:
                reason = "cannot be read" if reader is None else reader.why_not(reduced(each))
                if each.negated:  # nothing was asked
                    reason = f"does not answer not {each.op}"
                why[f"{leaf.field}: the {definition.family} index {reason}"] = None
            return None
        used[leaf.field, payload.file_name] = None
        window = BitMap64()
        first = self._offsets_of(group, payload)[file.file_name]
        window.add_range(first, first + file.row_count)
        return (ordinals & window).shift(-first)

    def _offsets_of(self, group: GroupState, payload: IndexFileMeta) -> dict[str, int]:
        """The ordinal of each source's first row."""
        known = self._offsets.get(payload.file_name)
        if known is None:
            meta = _sources(group, payload)
            names = (name for name, _ in meta.files)
            known = self._offsets[payload.file_name] = dict(zip(names, meta.first_ordinals, strict=True))
        return known

    def _ordinals(self, leaves: tuple[Leaf, ...], definition: IndexDefinition, group: GroupState, payload: IndexFileMeta) -> BitMap64 | None:
        # by the identity of the leaves, which the caller keeps: tuples of literals may be equal and differ (0.0 and -0.0)
        key = payload.file_name, tuple(map(id, leaves))
        if key not in self._answers:
            self._answers[key] = self._ask(leaves, definition, group, payload)
        return self._answers[key]

    def _reader(self, definition: IndexDefinition, group: GroupState, payload: IndexFileMeta) -> FamilyReader | None:
        if payload.file_name not in self._readers:
            total = _sources(group, payload).total_rows
            try:
                self._readers[payload.file_name] = open_payload(self._store, self._bucket, payload, definition, total, self._cache)
            except MemoryError:
                raise
            except Exception as error:
                self._reject(payload, definition, error)
        return self._readers[payload.file_name]

    def _ask(self, leaves: tuple[Leaf, ...], definition: IndexDefinition, group: GroupState, payload: IndexFileMeta) -> BitMap64 | None:
        total = _sources(group, payload).total_rows
        reader = self._reader(definition, group, payload)
        if reader is None:
            return None
        asked = [reduced(leaf) for leaf in leaves]
        try:
            ordinals = reader.evaluate_all(asked) if isinstance(reader, ConjunctionReader) else reader.evaluate(asked[0])
            if ordinals and ordinals.max() >= total:
                raise CorruptFile(f"ordinal {ordinals.max()} of {total} rows")
            return ordinals
        except MemoryError:
            raise
        except Exception as error:
            self._reject(payload, definition, error)
            return None

    def _reject(self, payload: IndexFileMeta, definition: IndexDefinition, error: Exception) -> None:
        """The payload answers nothing any more in this plan; the next one looks at it afresh, as it may have been repaired."""
        with suppress(MaintainerError):
            forget(self._store, self._bucket, payload, self._cache)
        self._readers[payload.file_name] = None
        for key in [key for key in self._answers if key[0] == payload.file_name]:
            self._answers[key] = None
        log.warning(  # its files are read raw
            "index.unusable",
            table=self._store.name,
            bucket=self._bucket.bucket,
            column=definition.column,
            payload=payload.file_name,
            error=str(error) or type(error).__name__,
        )


def _sources(group: GroupState, payload: IndexFileMeta) -> SourceMeta:
    level = next(level for level, active in group.active.items() if active.file_name == payload.file_name)
    return group.sources[level]
