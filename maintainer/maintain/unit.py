"""What becomes of each file of a compaction unit (spec 04 §4.1–§4.5, §5, §6.2, §8.3; Java `MergeTreeCompactTask`,
`LookupMergeTreeCompactRewriter`, `FullChangelogMergeTreeCompactRewriter`).

A unit is taken apart into steps, in key order:

    Rewrite   sections of files are merged into new files of the output level
    Upgrade   a file moves to the output level as it is; `evaluate`: its records are gone through all the same, because the older versions of
              its keys have to be found and marked, or because there is a changelog to write
    Keep      a file is at the output level already, and nothing is done to it

Small neighbours are merged even where they do not overlap; a large file that overlaps nothing only moves. Every file of the unit is in exactly
one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from maintainer.merge.sections import KeyRange, Section, sections
from maintainer.model.files import DataFileMeta, FileSource
from maintainer.model.work import CompactionUnit

_NONE: Mapping[str, tuple[Any, Any]] = MappingProxyType({})


class Rewriter(Enum):
    """Who does the steps of a table (spec 04 §4.5)."""

    PLAIN = "plain"
    LOOKUP = "lookup"
    """Older versions above the output level are looked up for what comes from level 0."""
    FULL_CHANGELOG = "full-compaction"
    """A changelog is written by compactions into the highest level."""


@dataclass(frozen=True)
class Rewrite:
    """Merge these sections into one rolling sequence of new files; `drop_deletes`: without retracts."""

    sections: tuple[Section, ...]
    drop_deletes: bool = True

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for section in self.sections for run in section for file in run)

    @property
    def takes_level_0(self) -> bool:
        """Whether a lookup rewriter has to look up keys without a record above level 0 in the levels above the output level (spec 04 §6)."""
        return any(file.level == 0 for file in self.files)


@dataclass(frozen=True)
class Upgrade:
    file: DataFileMeta
    evaluate: bool

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return (self.file,)


@dataclass(frozen=True)
class Keep:
    file: DataFileMeta

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return (self.file,)


Step = Rewrite | Upgrade | Keep


@dataclass(frozen=True)
class UnitOptions:
    """What the steps of a unit depend on besides its files.

    `highest_level` is the highest level with files before the compaction. `last_wins`: of the records of a key the last one written is what
    remains (deduplicate without a sequence field), but with `ignore_delete` the last one that is no delete. `lookup_changelog`: a compaction of
    level 0 writes the changelog. `vector_index`: the table has an index of the family that takes no other files than those of a compaction.
    `file_format`, and `file_formats` of levels that have another. `rewrite_append`: files that another program's flush wrote are rewritten, as
    no index may cover them where they are (decision 5). `expire_files` are, by name, those with expired records. `without_vectors` are
    the ids of schemas under which there were no deletion vectors, though there are now: a file of such a schema that moved above older rows
    would be taken for one that marked none of them dead (`maintainer.maintain.unmarked`), so it is rewritten.
    """

    max_level: int
    highest_level: int
    small_file_size: int
    rewriter: Rewriter = Rewriter.LOOKUP
    deletion_vectors: bool = True
    last_wins: bool = True
    ignore_delete: bool = False
    lookup_changelog: bool = False
    vector_index: bool = False
    file_format: str = "parquet"
    file_formats: Mapping[int, str] = field(default_factory=dict)
    rewrite_append: bool = False
    force_rewrite_all_files: bool = False
    expire_files: frozenset[str] = frozenset()
    without_vectors: frozenset[int] = frozenset()

    def drops_deletes(self, output_level: int) -> bool:
        """Whether a rewrite leaves out deleted keys (spec 04 §4.1). With deletion vectors there is nothing left for a delete to hide, as the
        older version was marked."""
        return output_level != 0 and (output_level >= self.highest_level or self.deletion_vectors)

    def reads(self, step: Step) -> bool:
        """Whether all columns of the files of a step are read: to be rewritten, or for the changelog of a file that moves as it is."""
        if isinstance(step, Upgrade):
            return step.evaluate and (self.lookup_changelog or self.rewriter is Rewriter.FULL_CHANGELOG)
        return isinstance(step, Rewrite)

    def format_of(self, level: int) -> str:
        return self.file_formats.get(level, self.file_format)


def steps(unit: CompactionUnit, key: KeyRange, options: UnitOptions, disordered: Mapping[str, tuple[Any, Any]] = _NONE) -> list[Step]:
    """The steps of a unit, in order.

    `disordered` are the level-0 files, by name, whose rows are not in key order or not within the bounds of their metadata, with their real key
    ranges (`maintainer.merge.stream.scan`). Such a file is never moved as it is: above level 0 it would be corrupt.
    """
    drop = options.drops_deletes(unit.output_level)
    if unit.file_rewrite:
        return [_rewrite_alone(file, drop) for file in unit.files]
    found = sections(unit.files, lambda file: disordered.get(file.file_name) or key(file))
    return [
        _rewrite_alone(step.file, drop) if isinstance(step, Upgrade) and step.file.file_name in disordered else step
        for step in _steps(found, unit.output_level, options)
    ]


def _steps(found: list[Section], output_level: int, options: UnitOptions) -> Iterator[Step]:
    pending: list[Section] = []
    for section in found:
        if len(section) > 1:
            pending.append(section)
            continue
        for file in section[0]:
            if file.file_size < options.small_file_size:
                pending.append(((file,),))
            else:
                yield from _flush(pending, output_level, options)
                pending = []
                yield _upgrade(file, output_level, options)
    yield from _flush(pending, output_level, options)


def _flush(pending: list[Section], output_level: int, options: UnitOptions) -> Iterator[Step]:
    if len(pending) == 1 and len(pending[0]) == 1:
        yield from (_upgrade(file, output_level, options) for file in pending[0][0])
    elif pending:
        yield Rewrite(tuple(pending), options.drops_deletes(output_level))


def _upgrade(file: DataFileMeta, output_level: int, options: UnitOptions) -> Step:
    drop = options.drops_deletes(output_level)
    if (output_level == options.max_level and file.may_hold_deletes) or options.force_rewrite_all_files:
        return _rewrite_alone(file, drop)
    if file.file_name in options.expire_files:
        return _rewrite_alone(file, drop)
    if options.rewrite_append and file.file_source != FileSource.COMPACT:
        return _rewrite_alone(file, drop)
    if file.level == output_level:
        return Keep(file)
    if options.rewriter is Rewriter.FULL_CHANGELOG:
        return Upgrade(file, evaluate=output_level == options.max_level)
    if options.rewriter is Rewriter.LOOKUP and file.level == 0:
        return _lookup_upgrade(file, output_level, options)
    return Upgrade(file, evaluate=False)


def _lookup_upgrade(file: DataFileMeta, output_level: int, options: UnitOptions) -> Step:
    """A file of level 0 that a lookup rewriter is to move (spec 04 §6.2)."""
    if (
        options.vector_index
        or options.format_of(file.level) != options.format_of(output_level)
        or ((options.deletion_vectors or options.ignore_delete) and file.may_hold_deletes)
        or not (output_level == options.max_level or options.last_wins)
        or (output_level != options.max_level and file.schema_id in options.without_vectors)
    ):
        return _rewrite_alone(file, options.deletion_vectors)
    has_older = options.deletion_vectors and output_level != options.max_level
    return Upgrade(file, evaluate=has_older or options.lookup_changelog)


def _rewrite_alone(file: DataFileMeta, drop_deletes: bool) -> Rewrite:
    return Rewrite((((file,),),), drop_deletes)
