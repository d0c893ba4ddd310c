"""How much memory an item of work should have: an estimate from metadata alone (DESIGN §4 rule 5).

It is what the work does well with. With less it spills, and what it really takes never goes beyond what it is told it may use; with the
estimates, buckets that are worked on side by side are chosen so that together they keep within the budget.
"""

from __future__ import annotations

from collections.abc import Sequence

from maintainer.index.definition import IndexDefinition
from maintainer.index.groups import GroupPlan
from maintainer.index.payload import DEFAULT_MEMORY
from maintainer.maintain.evaluation import wants_older_rows
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.types import CHARACTERS
from maintainer.model.work import CompactionUnit
from maintainer.table.merging import MergeRules
from maintainer.table.options import TableOptions

LEAST_MEMORY = 32 << 20
MERGE_FACTOR = 4
"""Decoded rows take about this many times the bytes of their compressed files."""
_MOST_FOR_MERGING = 224 << 20
"""Merging uses more when it may, and makes do with this."""
_MOST_FOR_LOOKING_UP = 64 << 20
"""Decoded row groups of older files, of which one is held at a time."""
_CHANGELOG_WRITER = 32 << 20
_COLUMN = 32 << 10
"""Of each column what readers and a writer hold whatever its size: pages, statistics, dictionaries."""
_ROW_GROUP = 32 << 10
"""Rows of a row group, as this package writes them (decision 12)."""
_INDEX_BYTES_PER_ROW = 80
"""A value, its place in the order, and what these are made from (`maintainer.index.family.column_sort`)."""
_TEXT_FACTOR = 5
"""A text is held twice while it is sorted, and is wider than in its file; what does not repeat takes no more than the file of all columns."""


def merging_memory(
    schema: TableSchema, options: TableOptions, bucket: BucketState, unit: CompactionUnit, merged: Sequence[DataFileMeta]
) -> int:
    """Of merging, of looking up, and of writing a changelog beside the data."""
    size = sum(file.file_size for file in merged)
    looked_up = min(MERGE_FACTOR * _looked_up(schema, options, bucket, unit), _MOST_FOR_LOOKING_UP)
    vectors = 0 if bucket.deletion_file is None else 2 * bucket.deletion_file.file_size
    writes_changelog = options.changelog_producer in ("lookup", "full-compaction") and size > 0
    changelog = min(MERGE_FACTOR * size, _CHANGELOG_WRITER) if writes_changelog else 0
    columns = (1 + writes_changelog) * _COLUMN * len(schema.fields) if size else 0
    return LEAST_MEMORY + min(MERGE_FACTOR * size, _MOST_FOR_MERGING) + looked_up + vectors + changelog + columns


def index_memory(bucket: BucketState, plans: Sequence[tuple[IndexDefinition, GroupPlan]]) -> int:
    """Of building the largest of these groups: all of its values, or where these are too many, what sorting them in runs makes do with."""
    sizes = {file.file_name: file.file_size for file in bucket.files}
    values = max((sum(_held(definition, rows, sizes[name]) for name, rows in plan.sources) for definition, plan in plans), default=0)
    return LEAST_MEMORY + min(values, DEFAULT_MEMORY)


def _held(definition: IndexDefinition, rows: int, file_size: int) -> int:
    """What the values of a file take while they are sorted; an array may have any number of them."""
    wide = definition.data_type.root in CHARACTERS or definition.data_type.element is not None
    return _INDEX_BYTES_PER_ROW * rows + (_TEXT_FACTOR * file_size if wide else 0)


def _looked_up(schema: TableSchema, options: TableOptions, bucket: BucketState, unit: CompactionUnit) -> int:
    """What looking up may read of the files above the output level: their keys, or all columns where the older row itself is wanted.

    No more of a file than its share by rows, had each key that is looked up a row group to itself.
    """
    keys = sum(file.row_count for file in unit.files if file.level == 0)
    if not options.needs_lookup or not keys:
        return 0
    wants_rows = wants_older_rows(MergeRules.of(schema), options.changelog_producer == "lookup")
    share = 1.0 if wants_rows else min(1.0, (len(schema.trimmed_primary_keys) + 1) / (len(schema.fields) + 2))
    older = (file for file in bucket.files if file.level > unit.output_level)
    return sum(int(file.file_size * share * min(1.0, keys * _ROW_GROUP / max(file.row_count, 1))) for file in older)
