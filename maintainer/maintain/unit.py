"""What becomes of each file of a compaction unit (spec 04 §4.1–§4.3, §6.2; Java `MergeTreeCompactTask`, `LookupMergeTreeCompactRewriter`).

A unit is taken apart into steps, in key order:

    Rewrite   sections of files are merged into new files of the output level
    Upgrade   a file moves to the output level as it is; `lookup`: the older versions of its keys have to be found and marked
    Keep      a file is at the output level already, and nothing is done to it

Small neighbours are merged even where they do not overlap; a large file that overlaps nothing only moves. Every file of the unit is in exactly
one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from maintainer.merge.sections import KeyRange, Section, sections
from maintainer.model.files import DataFileMeta, FileSource
from maintainer.model.work import CompactionUnit

_NONE: Mapping[str, tuple[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class Rewrite:
    """Merge these sections into one rolling sequence of new files."""

    sections: tuple[Section, ...]

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for section in self.sections for run in section for file in run)

    @property
    def lookup(self) -> bool:
        """Whether keys without a record above level 0 have to be looked up in the levels above the output level (spec 04 §6)."""
        return any(file.level == 0 for file in self.files)


@dataclass(frozen=True)
class Upgrade:
    file: DataFileMeta
    lookup: bool

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
    """`rewrite_append`: files that another program's flush wrote are rewritten, as no index may cover them where they are (decision 5)."""

    max_level: int
    small_file_size: int
    deletion_vectors: bool = True
    rewrite_append: bool = False
    force_rewrite_all_files: bool = False


def steps(unit: CompactionUnit, key: KeyRange, options: UnitOptions, disordered: Mapping[str, tuple[Any, Any]] = _NONE) -> list[Step]:
    """The steps of a unit, in order.

    `disordered` are the level-0 files, by name, whose rows are not in key order or not within the bounds of their metadata, with their real key
    ranges (`maintainer.merge.stream.scan`). Such a file is never moved as it is: above level 0 it would be corrupt.
    """
    if unit.file_rewrite:
        return [_rewrite_alone(file) for file in unit.files]
    found = sections(unit.files, lambda file: disordered.get(file.file_name) or key(file))
    return [
        _rewrite_alone(step.file) if isinstance(step, Upgrade) and step.file.file_name in disordered else step
        for step in _steps(found, unit.output_level, options)
    ]


def drops_deletes(output_level: int, highest_level: int, deletion_vectors: bool) -> bool:
    """Whether a rewrite leaves out deleted keys; `highest_level` is the highest level with files before the compaction.

    With deletion vectors there is nothing left for a delete to hide, as the older version was marked.
    """
    return output_level != 0 and (output_level >= highest_level or deletion_vectors)


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
        yield Rewrite(tuple(pending))


def _upgrade(file: DataFileMeta, output_level: int, options: UnitOptions) -> Step:
    if (output_level == options.max_level and file.may_hold_deletes) or options.force_rewrite_all_files:
        return _rewrite_alone(file)
    if options.rewrite_append and file.file_source != FileSource.COMPACT:
        return _rewrite_alone(file)
    if file.level == output_level:
        return Keep(file)
    if file.level == 0 and options.deletion_vectors:
        if file.may_hold_deletes:
            return _rewrite_alone(file)
        return Upgrade(file, lookup=output_level != options.max_level)
    return Upgrade(file, lookup=False)


def _rewrite_alone(file: DataFileMeta) -> Rewrite:
    return Rewrite((((file,),),))
