"""Table options, typed (spec 01 §16, 04 §2; Java `CoreOptions`): text in the schema, parsed where it is asked for.

Every property names its option, its default as in Java 2.1, and says so in its error: "option num-levels = 'x': …".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

from maintainer.errors import UsageError
from maintainer.model.schema import TableSchema
from maintainer.table.option_text import (
    LARGEST,
    parse_boolean,
    parse_duration,
    parse_integer,
    parse_memory_size,
    parse_number,
    parse_per_level,
)

T = TypeVar("T")

MOST_VERIFY_DELAY = 600.0
"""Seconds: every commit of a table waits for so long."""


class MergeEngine(StrEnum):
    """The value of `merge-engine`."""

    DEDUPLICATE = "deduplicate"
    FIRST_ROW = "first-row"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"


class TableOptions(Mapping[str, str]):
    """The options of a table: a mapping of their texts, with a typed property for each one that this package acts on."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    @classmethod
    def of(cls, schema: TableSchema, dynamic: Mapping[str, str] | None = None) -> TableOptions:
        """The options of a schema, with those of this call above them."""
        return cls({**schema.options, **(dynamic or {})})

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"TableOptions({self._values!r})"

    def parse(self, key: str, parser: Callable[[str], T], default: T, *fallback_keys: str) -> T:
        """The option's value, or the default; a value that cannot be understood is an error that names the option."""
        for name in (key, *fallback_keys):
            text = self._values.get(name)
            if text is not None:
                try:
                    return parser(text)
                except UsageError as error:
                    raise UsageError(f"option {name} = {text!r}: {error}") from None
        return default

    def boolean(self, key: str, default: bool, *fallback_keys: str) -> bool:
        return self.parse(key, parse_boolean, default, *fallback_keys)

    def integer(self, key: str, default: int, minimum: int | None = None, maximum: int = LARGEST) -> int:
        value = self.parse(key, parse_integer, default)
        if minimum is not None and value < minimum:
            raise UsageError(f"option {key} = {self._values[key]!r}: must be at least {minimum}")
        if value > maximum:
            raise UsageError(f"option {key} = {self._values[key]!r}: must be at most {maximum}")
        return value

    def size(self, key: str, default: int) -> int:
        return self.parse(key, parse_memory_size, default)

    def duration(self, key: str, default: float) -> float:
        """Seconds."""
        return self.parse(key, parse_duration, default)

    def _milliseconds(self, key: str) -> int | None:
        return self.parse(key, lambda text: round(parse_duration(text) * 1e6) // 1000, None)

    def text(self, key: str, default: str = "") -> str:
        return self._values.get(key, default).strip()

    def _one_of(self, key: str, values: tuple[str, ...]) -> str:
        """One of a few words, the first by default."""
        found = self.text(key, values[0]).lower()
        if found not in values:
            raise UsageError(f"option {key} = {self._values[key]!r}: must be {', '.join(values[:-1])} or {values[-1]}")
        return found

    def mistakes(self) -> Iterator[UsageError]:
        """Values that cannot be understood, all of those with a property here."""
        for name, member in vars(TableOptions).items():
            if isinstance(member, cached_property):
                try:
                    getattr(self, name)
                except UsageError as error:
                    yield error

    # the table

    @cached_property
    def bucket(self) -> int:
        """Number of buckets; −1 dynamic, −2 postponed."""
        return self.integer("bucket", -1)

    @cached_property
    def bucket_function(self) -> str:
        return self.text("bucket-function.type", "default").lower()

    @cached_property
    def merge_engine(self) -> MergeEngine:
        """How rows of one key become one."""
        text = self.text("merge-engine", MergeEngine.DEDUPLICATE).lower()
        if text not in set(MergeEngine):
            raise UsageError(f"option merge-engine = {text!r}: there are {', '.join(MergeEngine)}")
        return MergeEngine(text)

    @cached_property
    def deletion_vectors_enabled(self) -> bool:
        return self.boolean("deletion-vectors.enabled", False)

    @cached_property
    def hides_level_0(self) -> bool:
        """Whether batch readers leave level 0 out (spec 04 §7.2)."""
        if self.merge_engine is MergeEngine.FIRST_ROW:
            return True
        return self.deletion_vectors_enabled and not self.boolean("deletion-vectors.merge-on-read", False)

    @cached_property
    def bitmap64(self) -> bool:
        return self.boolean("deletion-vectors.bitmap64", False)

    @cached_property
    def data_file_prefix(self) -> str:
        return self.text("data-file.prefix", "data-")

    @cached_property
    def file_format(self) -> str:
        return self.text("file.format", "parquet").lower()

    @cached_property
    def file_format_per_level(self) -> Mapping[int, str]:
        return self.parse("file.format.per.level", parse_per_level, {})

    @cached_property
    def suffix_includes_compression(self) -> bool:
        return self.boolean("file.suffix.include.compression", False)

    # data files

    @cached_property
    def file_compression(self) -> str:
        return self.text("file.compression", "zstd").lower()

    @cached_property
    def file_compression_per_level(self) -> Mapping[int, str]:
        return self.parse("file.compression.per.level", parse_per_level, {})

    @cached_property
    def changelog_file_prefix(self) -> str:
        return self.text("changelog-file.prefix", "changelog-")

    @cached_property
    def changelog_file_format(self) -> str | None:
        """None: as data files of the same level."""
        return self.text("changelog-file.format").lower() or None

    @cached_property
    def changelog_file_compression(self) -> str | None:
        """None: as data files of the same level."""
        return self.text("changelog-file.compression").lower() or None

    @cached_property
    def avro_codec(self) -> str | None:
        """None: as the table says for all formats."""
        return self.text("avro.codec").lower() or None

    @cached_property
    def thin_mode(self) -> bool:
        """Whether data files have no columns that repeat the key."""
        return self.boolean("data-file.thin-mode", False)

    @cached_property
    def zstd_level(self) -> int:
        return self.integer("file.compression.zstd-level", 1)

    @cached_property
    def target_file_size(self) -> int:
        return self.size("target-file-size", 128 << 20)

    @cached_property
    def small_file_ratio(self) -> float:
        return self.parse("compaction.small-file-ratio", parse_number, 0.7)

    @cached_property
    def target_file_row_num(self) -> int | None:
        return self.parse("target-file-row-num", parse_integer, None)

    # changelogs

    @cached_property
    def changelog_producer(self) -> str:
        """Who makes the changelog: none, input (the writers), lookup or full-compaction (compactions)."""
        return self._one_of("changelog-producer", ("none", "input", "lookup", "full-compaction"))

    @cached_property
    def needs_lookup(self) -> bool:
        """Whether compactions look older rows up, and leave nothing in level 0 (spec 04 §1 "lookup table")."""
        is_first_row = self.merge_engine is MergeEngine.FIRST_ROW
        is_forced = self.boolean("force-lookup", False)
        return self.deletion_vectors_enabled or is_first_row or self.changelog_producer == "lookup" or is_forced

    @cached_property
    def full_compaction_delta_commits(self) -> int | None:
        """After so many commits into a bucket all of it is compacted; None: never for their number."""
        least = self.changelog_producer == "full-compaction" or self.full_compaction_interval is not None
        return max(int(least), self.integer("full-compaction.delta-commits", 0, minimum=0)) or None

    @cached_property
    def full_compaction_interval(self) -> int | None:
        """Milliseconds after a full compaction in which there is none for the sake of commits; None: only their number counts, as where the
        table gives one, too."""
        interval = self._milliseconds("changelog-producer.compaction-interval")
        return None if self.text("full-compaction.delta-commits") else interval

    # compaction

    @cached_property
    def compaction_trigger(self) -> int:
        return self.integer("num-sorted-run.compaction-trigger", 5, minimum=1)

    @cached_property
    def num_levels(self) -> int:
        return self.integer("num-levels", self.compaction_trigger + 1, minimum=1)

    @cached_property
    def max_size_amplification_percent(self) -> int:
        return self.integer("compaction.max-size-amplification-percent", 200, minimum=0)

    @cached_property
    def size_ratio(self) -> int:
        return self.integer("compaction.size-ratio", 1, minimum=0)

    @cached_property
    def offpeak_hours(self) -> tuple[int, int]:
        """The first off-peak hour and the one after the last; −1: there are none."""
        return self.integer("compaction.offpeak.start.hour", -1, -1, 23), self.integer("compaction.offpeak.end.hour", -1, -1, 24)

    @cached_property
    def offpeak_ratio(self) -> int:
        """Percent that the size ratio is larger by in off-peak hours."""
        return self.integer("compaction.offpeak-ratio", 0, minimum=0)

    @cached_property
    def optimization_interval(self) -> int | None:
        """Milliseconds after which all runs are compacted together; None: not by time."""
        return self._milliseconds("compaction.optimization-interval")

    @cached_property
    def total_size_threshold(self) -> int | None:
        return self.parse("compaction.total-size-threshold", parse_memory_size, None)

    @cached_property
    def incremental_size_threshold(self) -> int | None:
        return self.parse("compaction.incremental-size-threshold", parse_memory_size, None)

    @cached_property
    def force_up_level_0(self) -> bool:
        return self.boolean("compaction.force-up-level-0", False)

    @cached_property
    def force_rewrite_all_files(self) -> bool:
        return self.boolean("compaction.force-rewrite-all-files", False)

    @cached_property
    def lookup_compact_gentle(self) -> bool:
        """Whether the daemon leaves files in level 0 until there are enough of them."""
        return self._one_of("lookup-compact", ("radical", "gentle")) == "gentle"

    @cached_property
    def lookup_compact_max_interval(self) -> int:
        """A gentle compaction takes level 0 every so many times."""
        trigger = self.compaction_trigger
        return max(trigger, self.integer("lookup-compact.max-interval", 2 * trigger))

    # writing

    @cached_property
    def rowkind_field(self) -> str | None:
        """The column that says of which kind a row is."""
        return self.text("rowkind.field") or None

    @cached_property
    def ignore_delete(self) -> bool:
        """Whether -U and -D are dropped."""
        return self.boolean("ignore-delete", False, "first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete")

    @cached_property
    def ignore_update_before(self) -> bool:
        """Whether -U are dropped when they are written."""
        return self.boolean("ignore-update-before", False)

    # manifests and commits

    @cached_property
    def manifest_compression(self) -> str:
        return self.text("manifest.compression", "zstd").lower()

    @cached_property
    def manifest_target_file_size(self) -> int:
        return self.size("manifest.target-file-size", 8 << 20)

    @cached_property
    def manifest_full_compaction_threshold_size(self) -> int:
        return self.size("manifest.full-compaction-threshold-size", 16 << 20)

    @cached_property
    def manifest_merge_min_count(self) -> int:
        return self.integer("manifest.merge-min-count", 30)

    @cached_property
    def commit_max_retries(self) -> int:
        return self.integer("commit.max-retries", 10, minimum=0)

    @cached_property
    def commit_timeout(self) -> float | None:
        """Seconds; None: no limit."""
        return self.parse("commit.timeout", parse_duration, None)

    @cached_property
    def commit_min_retry_wait(self) -> float:
        return self.duration("commit.min-retry-wait", 0.010)

    @cached_property
    def commit_max_retry_wait(self) -> float:
        return self.duration("commit.max-retry-wait", 10.0)

    @cached_property
    def commit_user_prefix(self) -> str | None:
        return self.text("commit.user-prefix") or None

    @cached_property
    def last_safe_snapshot(self) -> int | None:
        """`commit.strict-mode.last-safe-snapshot`; None: no strict mode."""
        return self.parse("commit.strict-mode.last-safe-snapshot", parse_integer, None)

    @cached_property
    def sequence_number_in_snapshot(self) -> bool:
        """Whether writers take their next sequence number from the snapshot's properties."""
        return self.text("write.sequence-number-init-mode", "scan").lower() == "snapshot"

    # what is kept

    @cached_property
    def snapshot_retained_min(self) -> int:
        return self.integer("snapshot.num-retained.min", 10, minimum=1)

    @cached_property
    def snapshot_retained_max(self) -> int:
        return self.integer("snapshot.num-retained.max", 2**31 - 1, minimum=1)

    @cached_property
    def snapshot_time_retained(self) -> float:
        """Seconds."""
        return self.duration("snapshot.time-retained", 3600.0)

    @cached_property
    def snapshot_expire_limit(self) -> int:
        """Snapshots that one expiration takes away at most."""
        return self.integer("snapshot.expire.limit", 50, minimum=0)

    @cached_property
    def clean_empty_directories(self) -> bool:
        return self.boolean("snapshot.clean-empty-directories", False, "snapshot.expire.clean-empty-directories")

    @cached_property
    def changelog_retained(self) -> tuple[int | None, int | None, float | None]:
        """Least and largest number of changelogs and seconds; None: as the snapshots."""
        key = "changelog.num-retained"
        least, most = (self.parse(f"{key}.{end}", parse_integer, None) for end in ("min", "max"))
        return least, most, self.parse("changelog.time-retained", parse_duration, None)

    @cached_property
    def consumer_expiration_time(self) -> float | None:
        """Seconds after its last progress for which a consumer keeps its snapshots; None: for ever."""
        return self.parse("consumer.expiration-time", parse_duration, None)

    # our own

    @cached_property
    def expire(self) -> bool:
        """Whether the daemon expires snapshots."""
        return self.boolean("maintain.expire", True)

    @cached_property
    def publish_verify_delay(self) -> float | None:
        """Seconds after which a published snapshot is read again; None: what suits the store (decision 10)."""
        delay = self.parse("publish.verify-delay", parse_duration, None)
        if delay is not None and delay > MOST_VERIFY_DELAY:
            raise UsageError(f"option publish.verify-delay = {self._values['publish.verify-delay']!r}: must be at most {MOST_VERIFY_DELAY:g} s")
        return delay

    @cached_property
    def write_only(self) -> bool:
        """Whether writers leave compaction and expiration to others; we compact in either case."""
        return self.boolean("write-only", False)

    @cached_property
    def single_writer(self) -> bool:
        """Whether nothing else ever commits to the table, so that a store may do which cannot create exclusively (decision 10)."""
        return self.boolean("publish.single-writer", False)

    @cached_property
    def time_zone(self) -> str:
        """Of the session: what times without a zone mean in literals (decision 15)."""
        return self.text("read.time-zone", "UTC")

    @cached_property
    def relaxed_group_acceptance(self) -> bool:
        """Whether index groups count by 2.1's rule instead of the strict one (decision 4)."""
        value = self.text("read.group-acceptance", "strict").lower()
        if value not in ("strict", "relaxed"):
            raise UsageError(f"option read.group-acceptance = {value!r}: must be strict or relaxed")
        return value == "relaxed"

    @cached_property
    def index_cache_size(self) -> int:
        """Bytes of index payloads that are kept in memory between queries; 0 keeps nothing."""
        return self.size("read.index-cache-size", 128 << 20)

    @cached_property
    def file_cache_size(self) -> int:
        """Bytes of footers and deletion vectors that are kept in memory between queries; 0 keeps nothing."""
        return self.size("read.file-cache-size", 64 << 20)

    @cached_property
    def rewrite_append(self) -> bool:
        """Whether APPEND files are rewritten so that indexes may cover them (decision 5)."""
        return self.boolean("maintain.rewrite-append", True)

    @cached_property
    def rewrite_append_budget(self) -> int:
        """Bytes of APPEND files above level 0 that the daemon rewrites within an hour (decision 5)."""
        return self.size("maintain.rewrite-append-budget", 10 << 30)

    @cached_property
    def index_mode(self) -> str:
        """Whether the groups of a compaction are committed with its data (wait), or after it in a commit of their own (async)."""
        return self._one_of("maintain.index-mode", ("wait", "async"))

    @cached_property
    def incremental_index(self) -> bool:
        """Whether a group is built from the payload that it had before, as far as that has its files, instead of from all of its rows."""
        return self.boolean("maintain.incremental-index", True)

    @cached_property
    def commit_interval(self) -> float:
        """Seconds that the finished buckets of a pass wait for others to be committed with them."""
        return self.duration("maintain.commit-interval", 60.0)
