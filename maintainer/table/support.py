"""Which tables this package maintains, and which it reads: the allow-list of options, in one place, each with its reason.

An option is *acted on*, *harmless* (it cannot change the rows of a snapshot or the meaning of a file that we write), or *refused* unless it has
the value that means "off". What is on none of the lists is refused for maintenance and writing: an option nobody thought about could
change rows. Reading is refused only where the rows it gives could be wrong. Later work moves entries from the third list to the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from typing import TYPE_CHECKING

from maintainer.errors import Unsupported, UsageError
from maintainer.model.casting import without_cast
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.types import BINARIES, TypeRoot
from maintainer.table.formats import mistakes as format_mistakes
from maintainer.table.options import TableOptions

if TYPE_CHECKING:
    from maintainer.table.state import TableState
    from maintainer.table.store import TableStore

ACTED_ON: Mapping[str, str] = {
    "kinds of rows that are written": "rowkind.field ignore-update-before",
    "merge engines": (
        "merge-engine sequence.field sequence.field.sort-order ignore-delete deduplicate.ignore-delete first-row.ignore-delete "
        "partial-update.* aggregation.* fields.default-aggregate-function fields.*.aggregate-function fields.*.sequence-group "
        "fields.*.nested-* fields.*.count-limit fields.*.list-agg-delimiter fields.*.ts-field fields.*.ignore-retract fields.*.distinct"
    ),
    "changelogs": (
        "changelog-producer changelog-producer.row-deduplicate changelog-producer.row-deduplicate-ignore-fields changelog-file.* "
        "changelog-producer.compaction-interval"
    ),
    "records that expire": "record-level.expire-time record-level.time-field",
    "number and choice of buckets": "bucket bucket-key bucket-function.type",
    "keys, already taken into the schema itself": "primary-key partition",
    "deletion vectors": "deletion-vectors.enabled deletion-vectors.bitmap64 deletion-vectors.merge-on-read",
    "names and directories of data files": (
        "data-file.prefix data-file.path-directory file.suffix.include.compression partition.default-name partition.legacy-name"
    ),
    "format, size and compression of data files": (
        "file.format file.format.per.level data-file.thin-mode avro.codec orc.timestamp-ltz.legacy.type target-file-size "
        "file.compression file.compression.per.level file.compression.zstd-level"
    ),
    "statistics of data files": (
        "metadata.stats-mode metadata.stats-mode.per.level metadata.stats-dense-store metadata.stats-keep-first-n-columns fields.*.stats-mode"
    ),
    "choice of files to compact": (
        "num-levels num-sorted-run.compaction-trigger compaction.max-size-amplification-percent compaction.size-ratio "
        "compaction.small-file-ratio compaction.optimization-interval compaction.total-size-threshold compaction.incremental-size-threshold "
        "compaction.offpeak-ratio compaction.offpeak.start.hour compaction.offpeak.end.hour compaction.force-up-level-0 "
        "compaction.force-rewrite-all-files force-lookup lookup-compact lookup-compact.max-interval full-compaction.delta-commits"
    ),
    "manifests": "manifest.compression manifest.target-file-size manifest.full-compaction-threshold-size manifest.merge-min-count",
    "commits": (
        "commit.max-retries commit.max-retry-wait commit.min-retry-wait commit.timeout commit.user-prefix "
        "commit.strict-mode.last-safe-snapshot write.sequence-number-init-mode"
    ),
    "index definitions": (
        "pk-btree.index.columns pk-bitmap.index.columns pk-multivalue.index.columns pk-fm.index.columns fields.*.pk-btree.index.options "
        "fields.*.pk-bitmap.index.options fields.*.pk-multivalue.index.options fields.*.pk-fm.index.options btree-index.block-size "
        "btree-index.compression btree-index.compression-level btree-index.fallback-scan-max-size bitmap-index.dictionary-block-size "
        "bitmap-index.compression bitmap-index.compression-level bitmap-index.fallback-scan-max-size multivalue-index.dictionary-block-size "
        "multivalue-index.compression multivalue-index.compression-level fm-index.partition-size fm-index.partition-row-count "
        "fm-index.sa-sample-rate fm-index.compression fm-index.compression-level fm-index.read-cache-size fm-index.demand-page-size "
        "fm-index.locate-cost-ratio"
    ),
    "what is kept": (
        "snapshot.num-retained.* snapshot.time-retained snapshot.expire.limit snapshot.clean-empty-directories "
        "snapshot.expire.clean-empty-directories changelog.num-retained.* changelog.time-retained consumer.expiration-time"
    ),
    "our own": (
        "publish.single-writer publish.verify-delay read.group-acceptance read.index-cache-size read.file-cache-size read.time-zone "
        "maintain.rewrite-append maintain.rewrite-append-budget maintain.commit-interval maintain.ignored-options maintain.bitmap-peer-blocks "
        "maintain.expire maintain.index-mode maintain.incremental-index"
    ),
}
"""What is configured -> the options, separated by spaces; `*` stands for any text."""

HARMLESS: Mapping[str, str] = {
    "description of the table, kept by a catalog or an engine": (
        "path owner provider comment connector external location schema.* is_managed_location transient_lastDdlTime bucketing_version "
        "table_type storage_handler EXTERNAL numFiles numRows rawDataSize totalSize created* updated* uuid materialized-table.* "
        "auto-create branch"
    ),
    "rules for later changes of the schema": (
        "add-column-before-partition alter-column-null-to-not-null.disabled disable-explicit-type-casting deletion-vectors.modifiable "
        "vector-field"
    ),
    "how engines read": (
        "scan.* source.* consumer* continuous.* streaming* incremental-* stream-scan-mode batch-scan-mode log.scan* read.batch-size "
        "read.shuffle-bucket-with-partition read.allow.fullScan read.changelog read.stream.* lookup.* cache-page-size "
        "file-reader-async-threshold file-index.read.enabled key-value.sequence_number.enabled table-read.sequence-number.enabled "
        "legacy-timestamp-mapping.enabled requiredSparkConfsCheck.enabled filesystem.job-level-settings.enabled paimon.* "
        "vector-search.* global-index.enabled global-index.search-mode global-index.thread-num scalar-index.search-mode "
        "vector-index.search-mode full-text-index.search-mode"
    ),
    "how engines write, and with which resources": (
        "sink.* write-only write.compaction-skip write-buffer-* write-max-writers-to-spill write.batch-* write.merge-schema* "
        "write.use-v2-write write.hive-style-dynamic-partition.enabled write.data-evolution.* async-file-write local-* page-size sort-* "
        "spill-* num-sorted-run.stop-trigger commit.force-compact commit.force-create-snapshot commit.discard-duplicate-files "
        "snapshot.ignore-empty-commit bucket-append-ordered dynamic-partition-overwrite overwrite-upgrade cross-partition-upsert.* "
        "delete.force-produce-changelog end-input.* precommit-compact changelog.precommit-compact* "
        "visibility-callback.* file-operation.thread-num delete-file.thread-num zorder.* orc.write.batch-size "
        "compaction.bucket-distribution-strategy compaction.skip-expired-partitions unaware-bucket.*"
    ),
    "choices that compaction of a deletion-vector table makes anyway": (
        "lookup-wait changelog-producer.lookup-wait deletion-vector.index-file.target-size"
    ),
    "how Java's format writers lay out a file; any layout reads the same": "file.block-size parquet.* orc.* avro.* target-file-row-num",
    "how other engines lay out and keep index payloads; ours are of the first version, without Bloom filters, and answer the same": (
        "btree-index.file-version btree-index.bloom-filter.enabled btree-index.cache-size btree-index.high-priority-pool-ratio "
        "btree-index.records-per-range sorted-index.records-per-range sorted-index.records-per-file"
    ),
    "order and statistics inside manifests": "manifest-sort.* manifest.delete-file-drop-stats manifest.merge-optimize.enabled",
    "what is kept, which a compaction does not decide": ("snapshot.* tag.* partition.expiration-* partition.timestamp-*"),
    "partitions in catalogs and for downstream jobs": (
        "partition.idle-* partition.mark-done* partition.end-input-to-done partition.time-interval partition.sink-strategy metastore.* hive.*"
    ),
    "details of what is off": (
        "data-file.external-paths.specific-fs data-file.external-paths.weights file-index.in-manifest-threshold metadata.iceberg.* "
        "data-evolution.* row-tracking.partition-group-on-commit chain-table.* clustering.* blob.* blob-compaction.enabled blob-as-descriptor "
        "blob-view.resolve.enabled blob-write-null-on-* lock-* fields.*.map.shared-shredding.* variant.shredding.*"
    ),
    "other kinds of tables": (
        "format-table.* dynamic-bucket.* postpone.* compaction.min.file-num compaction.file-num-limit compaction.delete-ratio-threshold "
        "global-index.build.* global-index.column-update-action global-index.row-count-per-shard"
    ),
    "options of index families; the table has no index of them": "full-text.* ivf-* hnsw* diskann*",
}

UNSET = frozenset({""})
_OFF = frozenset({"", "false"})


@dataclass(frozen=True)
class Refusal:
    """An option that is accepted only with one of these values (lower case), and why; `reading`: rows could be wrong, too."""

    accepted: frozenset[str]
    reason: str
    reading: bool = False


def _refusals() -> Iterator[tuple[str, Refusal]]:
    def refuse(reason: str, keys: str, accepted: Iterable[str] = _OFF, reading: bool = False) -> Iterator[tuple[str, Refusal]]:
        for key in keys.split():
            yield key, Refusal(frozenset(accepted), reason, reading)

    yield from refuse("records would have to be ordered by their snapshot", "sequence.snapshot-ordering")
    yield from refuse("file-level indexes are not written yet", "file-index.*", UNSET)
    yield from refuse("only Avro manifests are written", "manifest.format", ["avro"])
    yield from refuse("index files beside the data are not written yet", "index-file-in-data-file-dir")
    yield from refuse("index files would have to go elsewhere", "global-index.external-path", UNSET)
    yield from refuse("data files would have to go elsewhere", "data-file.external-paths", UNSET)
    yield from refuse("data files would have to go elsewhere", "data-file.external-paths.strategy", ["none"])
    yield from refuse("null keys are not merged yet", "primary-key.nullable")
    yield from refuse(
        "indexes of this family are not maintained yet",
        "pk-vector.index.columns pk-full-text.index.columns fields.*.pk-vector.* fields.*.pk-full-text.index.*",
        UNSET,
    )
    yield from refuse("Iceberg metadata would not follow our commits", "metadata.iceberg.storage", ["disabled"])
    yield from refuse("classes of a Java engine would have to be called", "commit.callbacks commit.callback.* commit.custom-listeners", UNSET)
    yield from refuse("commits would have to hold the catalog's lock", "lock.enabled")
    yield from refuse("commits would have to hold the catalog's lock", "lock.type", UNSET)
    yield from refuse("Parquet files would have to be encrypted", "parquet.encryption.* parquet.crypto.* encryption.*", UNSET)
    yield from refuse("shredded variants are not written yet", "variant.inferShreddingSchema")
    yield from refuse("shredded variants are not written yet", "variant.shreddingSchema parquet.variant.shreddingSchema", UNSET)
    yield from refuse("maps would have another layout in the files", "fields.*.map.storage-layout", ["default"], reading=True)
    yield from refuse("BLOB columns are not supported", "blob-field blob-descriptor-field blob-view-field blob.stored-descriptor-fields", UNSET)
    yield from refuse("vectors would be in files of their own", "vector.file.format vector.target-file-size", UNSET, reading=True)
    yield from refuse("files are not in the order of the primary key", "pk-clustering-override", reading=True)
    yield from refuse("files are not in the order of the primary key", "clustering.incremental")
    yield from refuse("a chain of branches would have to be merged", "chain-table.enabled", reading=True)
    yield from refuse("rows have ids of their own", "row-tracking.enabled")
    yield from refuse("rows are spread over several files", "data-evolution.enabled", reading=True)
    yield from refuse("the catalog decides who may see which rows and columns", "query-auth.enabled", reading=True)
    yield from refuse("this is not a table of Paimon's own files", "type", ["table", "materialized-table"], reading=True)


REFUSED: Mapping[str, Refusal] = dict(_refusals())

NOT_READ: Mapping[str, str] = {
    "the table's options choose only some rows, or changes between snapshots; unset it for the call (--option KEY=)": (
        "scan.watermark scan.bucket scan.creation-time-millis scan.file-creation-time-millis incremental-between "
        "incremental-between-timestamp incremental-to-auto-tag"
    ),
    "rows would come from another branch, too": (
        "scan.fallback-branch scan.fallback-snapshot-branch scan.fallback-delta-branch scan.primary-branch"
    ),
}
"""Harmless for maintenance, but a reader that does not act on them gives other rows than Java's."""

READ_MODES = frozenset(
    {"", "default", "full", "latest-full", "latest", "compacted-full", "from-snapshot", "from-snapshot-full", "from-timestamp"}
)
"""Values of `scan.mode` that batch reads act on (`maintainer.read.travel`)."""

FORMATS = frozenset({"parquet", "avro", "orc"})
"""File formats that are read."""


@dataclass(frozen=True)
class Finding:
    """Something about a table that is refused: an option or a kind, why, and for what."""

    what: str
    why: str
    reading: bool = False
    maintaining: bool = True

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


def check_maintainable(schema: TableSchema, schemas: Sequence[TableSchema] = ()) -> None:
    """Raises `Unsupported` unless tables like this one are compacted, indexed and written; `schemas` are those of its live files."""
    found = [finding for finding in findings(schema, schemas) if finding.maintaining]
    if found:
        raise Unsupported("this table cannot be maintained: " + "; ".join(map(str, found)))


def check_readable(schema: TableSchema) -> None:
    """Raises `Unsupported` where the rows that reading gives could be wrong."""
    found = [finding for finding in findings(schema) if finding.reading]
    if found:
        raise Unsupported("this table cannot be read: " + "; ".join(map(str, found)))


def check_table(store: TableStore, schema: TableSchema, state: TableState | None = None) -> None:
    """Raises `Unsupported`, naming the table, unless it is maintained and written; with a state, its live files have a say, too."""
    with naming(store.name):
        check_maintainable(schema, [] if state is None else [store.schema(schema_id) for schema_id in sorted(state.schema_ids)])
        check_live_files(() if state is None else state.files())


@contextmanager
def naming(table: str) -> Iterator[None]:
    """Refusals inside of the block name the table."""
    try:
        yield
    except Unsupported as error:
        raise Unsupported(f"{table}: {error}") from None


def findings(schema: TableSchema, schemas: Sequence[TableSchema] = ()) -> list[Finding]:
    """Everything about a table that is refused, kinds before options."""
    formats = (Finding(*mistake) for mistake in format_mistakes(schema))
    return [*_kind_findings(schema), *_type_findings(schema, schemas), *_option_findings(schema), *formats, *_merge_findings(schema)]


def check_live_files(files: Iterable[DataFileMeta]) -> None:
    """Raises `Unsupported` for a data file that cannot be read: its format, its place, or how its rows are spread."""
    for file in files:
        if file_format(file.file_name) not in FORMATS:
            raise Unsupported(
                f"{file.file_name}: data files in format {file_format(file.file_name)!r} are not read, only Parquet, Avro and ORC"
            )
        if file.external_path is not None:
            raise Unsupported(f"{file.file_name}: files outside of the table ({file.external_path}) are not read yet")
        if file.write_cols is not None or file.first_row_id is not None:
            raise Unsupported(f"{file.file_name}: a file with row ids or only some of the columns")


_COMPRESSIONS = frozenset({"zst", "zstd", "gz", "gzip", "bz2", "bzip2", "lz4", "lzo", "snappy", "deflate", "xz"})


def file_format(name: str) -> str:
    """The format that a data file's name says: the text after the last dot, or before it when that is a compression (spec 01 §3.3)."""
    parts = name.lower().split(".")
    if len(parts) > 2 and parts[-1] in _COMPRESSIONS:
        return parts[-2]
    return parts[-1] if len(parts) > 1 else ""


def is_known_option(key: str) -> bool:
    """Whether an option is on one of the lists; what it may be set to is another question."""
    return _refusal(key) is not None or _is_allowed(key)


def meant_option(key: str) -> str | None:
    """The option that is probably meant by a name which is on no list."""
    return next(iter(get_close_matches(key, [name for name in (*_ALLOWED, *REFUSED) if "*" not in name], n=1, cutoff=0.85)), None)


def _kind_findings(schema: TableSchema) -> Iterator[Finding]:
    options = TableOptions.of(schema)
    if not schema.primary_keys:
        yield Finding("no primary key", "only primary-key tables are maintained; others are read")
        return
    if options.bucket == -1:
        yield Finding("bucket = -1", "tables with dynamic buckets are not supported yet (new tables: 'bucket' = '<number>')")
    elif options.bucket == -2:
        yield Finding("bucket = -2", "tables that postpone the choice of buckets are not supported yet")
    elif options.bucket <= 0:
        yield Finding(f"bucket = {options.bucket}", "the number of buckets must be positive")
    if not set(schema.partition_keys) <= set(schema.primary_keys):
        missing = ", ".join(key for key in schema.partition_keys if key not in schema.primary_keys)
        yield Finding(f"partitioned by {missing}", "a primary key without all partition keys may move between partitions")
    if not schema.trimmed_primary_keys:
        yield Finding("primary key", "all of its columns are partition keys")


def _type_findings(schema: TableSchema, schemas: Sequence[TableSchema]) -> Iterator[Finding]:
    for name in schema.partition_keys:
        if schema.field(name).type.root in BINARIES:
            yield Finding(f"partition column {name}", f"type {schema.field(name).type} has no directory name", reading=True)
        if schema.field(name).type.root is TypeRoot.TIMESTAMP_LTZ and not TableOptions.of(schema).boolean("partition.legacy-name", True):
            yield Finding(f"partition column {name}", "its directory names depend on the writer's time zone", reading=True)
    for field in schema.fields:
        if field.type.root in (TypeRoot.BLOB, TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY):
            yield Finding(f"column {field.name}", f"type {field.type} is not supported yet")
        for other in schemas:
            old = other.field_by_id(field.id)
            change = None if old is None else without_cast(old.type, field.type)
            if change is not None:
                yield Finding(f"column {field.name}", f"its type was changed since schema {other.id} ({change}), and there is no cast")
                break


def _option_findings(schema: TableSchema) -> Iterator[Finding]:
    ignored = {name.strip() for name in schema.options.get("maintain.ignored-options", "").split(",")}
    for key, value in sorted(schema.options.items()):
        text = value.strip().lower()
        refusal = _refusal(key)
        if key in _NOT_READ and text:
            yield Finding(f"{key} = {value}", _NOT_READ[key], reading=True, maintaining=False)
        elif key == "scan.mode" and text not in READ_MODES:
            yield Finding(f"{key} = {value}", "batch reads of this mode are not supported", reading=True, maintaining=False)
        elif refusal is not None and text not in refusal.accepted:
            yield Finding(f"{key} = {value}", refusal.reason, refusal.reading)
        elif refusal is None and key not in ignored and not _is_allowed(key):
            meant, why = meant_option(key), "could change rows or files; if it does not, list it in maintain.ignored-options"
            yield Finding(f"{key} = {value}", f"this option is not known here{f' (did you mean {meant}?)' if meant else ''} and {why}")


def _merge_findings(schema: TableSchema) -> Iterator[Finding]:
    """What options of merging cannot mean together (spec 05)."""
    from maintainer.table.merging import MergeRules
    from maintainer.table.record_time import record_time

    try:
        MergeRules.of(schema)
        record_time(schema)
    except UsageError as error:
        yield Finding("merging", str(error))


def _refusal(key: str) -> Refusal | None:
    """The refusal that concerns an option; a name that is on a list in full goes before a pattern."""
    if key in REFUSED:
        return REFUSED[key]
    if key in _ALLOWED:
        return None
    return next((refusal for pattern, refusal in _REFUSED_PATTERNS if pattern.fullmatch(key)), None)


def _is_allowed(key: str) -> bool:
    return key in _ALLOWED or any(pattern.fullmatch(key) for pattern in _ALLOWED_PATTERNS)


def _words(table: Mapping[str, str]) -> dict[str, str]:
    """option -> reason, of a table of reason -> options."""
    return {key: reason for reason, keys in table.items() for key in keys.split()}


_NOT_READ = _words(NOT_READ)
_ALLOWED = {**_words(HARMLESS), **_words(ACTED_ON), **_NOT_READ}
_ALLOWED_PATTERNS = [re.compile(translate(key)) for key in _ALLOWED if "*" in key]
_REFUSED_PATTERNS = [(re.compile(translate(key)), refusal) for key, refusal in REFUSED.items() if "*" in key]
