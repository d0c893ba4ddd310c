"""Buckets of a table that got deletion vectors after it had been compacted without them (spec 04 §7.2, the warning).

With deletion vectors each key has at most one live row above level 0, since whoever puts a newer one there marks the older one dead. Levels
that were compacted before `deletion-vectors.enabled` was set know nothing of that: where they overlap, both rows of a key are alive. One
compaction of all levels heals the bucket. Until then readers have to merge it, and a compaction of some levels would hide what is wrong instead
of curing it: it marks the newest of the older rows, and its output looks like any other file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from maintainer.merge.sections import KeyRange, key_range
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.table.merging import MergeRules
from maintainer.table.options import MergeEngine, TableOptions

HEAL = "compact it in full once (maintainer compact TABLE --full)"


def schemas_without_vectors(schemas: Iterable[TableSchema]) -> frozenset[int]:
    """The ids of those schemas under which compactions marked nothing."""
    return frozenset(schema.id for schema in schemas if not TableOptions.of(schema).deletion_vectors_enabled)


def schemas_without_lookup(schemas: Iterable[TableSchema]) -> frozenset[int]:
    """The ids of those schemas under which nobody looked for older versions of a key above the level that was written."""
    return frozenset(schema.id for schema in schemas if not TableOptions.of(schema).needs_lookup)


def unmarked(files: Collection[DataFileMeta], without_vectors: frozenset[int], key: KeyRange) -> tuple[DataFileMeta, DataFileMeta] | None:
    """Two files of different levels above 0, both made without deletion vectors, that may hold rows of the same keys; None: there are none."""
    old = [file for file in files if file.level > 0 and file.schema_id in without_vectors]
    if len({file.level for file in old}) < 2:
        return None
    furthest: dict[int, DataFileMeta] = {}  # of each level the last file so far, which reaches furthest: files of a level do not overlap
    for file in sorted(old, key=lambda file: key(file)[0]):
        low = key(file)[0]
        for level, other in furthest.items():
            if level != file.level and low <= key(other)[1]:
                return other, file
        furthest[file.level] = file
    return None


def bucket_rules(schema: TableSchema, files: Collection[DataFileMeta], schema_of: Callable[[int], TableSchema]) -> MergeRules:
    """The rules by which the records of a bucket are merged; `schema_of` has the schemas of its files.

    Where versions are looked up, a record above level 0 contains those of its key in higher levels. Levels that were made when nothing was
    looked up do not contain one another: each of their records counts. What was made later either contains such a record, which is marked
    dead then, or has nothing to do with it. Without deletion vectors nobody can tell, so that this is for buckets of which nothing was made
    later (`unmerged` keeps them so until they are compacted in full).
    """
    rules = MergeRules.of(schema)
    if not rules.needs_lookup:
        return rules
    schemas = [schema_of(id_) for id_ in {file.schema_id for file in files if file.level > 0} - {schema.id}]
    without_lookup = schemas_without_lookup(schemas)
    if not TableOptions.of(schema).deletion_vectors_enabled and any(file.level > 0 and file.schema_id not in without_lookup for file in files):
        return rules
    return rules if unmarked(files, without_lookup, key_range(schema.key_types)) is None else replace(rules, needs_lookup=False)


def unmerged(files: Collection[DataFileMeta], without_lookup: frozenset[int], schema: TableSchema) -> tuple[DataFileMeta, DataFileMeta] | None:
    """Two files of a table that looks up without deletion vectors, which were made before it did, and may hold records of the same keys, all of
    which count; no file above level 0 was made later. What a compaction of some levels makes of one of them would stand for both, and the
    other one would be lost."""
    rules = MergeRules.of(schema)
    newest_wins = rules.engine is MergeEngine.DEDUPLICATE and not rules.sequence_fields and not rules.ignore_delete
    without_lookup -= {schema.id}
    if not rules.needs_lookup or newest_wins or any(file.level > 0 and file.schema_id not in without_lookup for file in files):
        return None
    return unmarked(files, without_lookup, key_range(schema.key_types))
