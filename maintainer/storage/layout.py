"""Where the files of a table are (spec 01 §2, §3; Java `FileStorePathFactory`, `PartitionPathUtils`). Pure.

    schema/schema-<id>  snapshot/snapshot-<id>  tag/tag-<name>      below branch/branch-<name>/ for a branch
    maintainer/index-failures.json  of this package                 below branch/branch-<name>/ for a branch
    manifest/…  index/index-<uuid>-<n>  statistics/…                shared by all branches
    [<data-file.path-directory>/]<p1=v1>/…/bucket-<n>/<data file>   shared by all branches

Names come from metadata, and metadata is not to be trusted: a name becomes a path only through `check_file_name`.
"""

from __future__ import annotations

import itertools
import re
import struct
import threading
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.format import binary_row
from maintainer.model.files import DataFileMeta, IndexFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.types import BINARIES, DataType, TypeRoot

POSTPONE_BUCKET = -2
DEFAULT_PARTITION = "__DEFAULT_PARTITION__"

_ESCAPED = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{}\\[\\]^]")
_BLANK = re.compile("[\t-\r\x1c- \u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]*")
"""Java's `Character.isWhitespace`."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, which no file system can encode."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_file_name(name: str, where: str = "") -> str:
    """The name itself, if it can only be a member of the directory it is looked for in; `where` is the file that says the name."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name or _SURROGATE.search(name):
        raise CorruptFile(f"{name!r} is not a file name", path=where)
    return name


def escape(text: str) -> str:
    """A name or value as part of a partition directory's name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def partition_path(
    names: Sequence[str],
    types: Sequence[DataType],
    values: Sequence[Any],
    *,
    legacy_name: bool = True,
    default_name: str = DEFAULT_PARTITION,
) -> str:
    """The directory of a partition, without a slash at the end; empty for a table without partitions."""
    parts = []
    for name, data_type, value in zip(names, types, values, strict=True):
        text = None if value is None else partition_text(value, data_type, legacy_name)
        parts.append(f"{escape(name)}={escape(default_name if text is None or _BLANK.fullmatch(text) else text)}")
    return "/".join(parts)


def partition_text(value: Any, data_type: DataType, legacy_name: bool = True) -> str:
    """A partition value as Java writes it into the directory's name: its `toString` (legacy) or its SQL cast to a string."""
    root = data_type.root
    if root in BINARIES:
        raise Unsupported(f"a partition column of type {data_type} has no directory name")
    match root:
        case TypeRoot.BOOLEAN:
            return "true" if value else "false"
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return java_float_text(value, single=root is TypeRoot.FLOAT)
        case TypeRoot.DECIMAL:
            return f"{Decimal(value):.{data_type.scale}f}"
        case TypeRoot.DATE if not legacy_name:
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        case TypeRoot.TIME if not legacy_name:
            seconds, millis = divmod(value, 1000)
            fraction = "." + (f"{millis:03d}"[: data_type.precision].rstrip("0") or "0") if data_type.precision else ""
            return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _timestamp_text(value, data_type.precision, legacy_name)
        case _:
            return str(value)


def _timestamp_text(nanoseconds: int, precision: int, legacy_name: bool) -> str:
    seconds, nanos = divmod(nanoseconds, 1_000_000_000)
    moment = _EPOCH + timedelta(seconds=seconds)
    digits = f"{nanos:09d}"
    if not legacy_name:
        fraction = digits[:precision]
        return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{fraction}" if fraction else "")
    text = f"{moment:%Y-%m-%dT%H:%M}"
    if moment.second or nanos:
        text += f":{moment.second:02d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}" if digits else text


def java_float_text(value: float, single: bool) -> str:
    """`Double.toString` and `Float.toString`: the shortest digits that give the value back, plain from 10⁻³ to 10⁷, else with an exponent."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if struct.pack(">d", value)[0] else "0.0"
    shortest = _shortest_single(value) if single else repr(value)
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)  # the value is 0.<text> · 10^point
    if -3 < point <= 7:
        plain = "0." + "0" * -point + text if point <= 0 else text[:point].ljust(point, "0") + "." + (text[point:] or "0")
    else:
        plain = f"{text[0]}.{text[1:] or '0'}E{point - 1}"
    return "-" + plain if sign else plain


def _shortest_single(value: float) -> str:
    exact = struct.pack(">f", value)
    for precision in range(1, 9):
        text = f"{value:.{precision}g}"
        try:
            if struct.pack(">f", float(text)) == exact:
                return text
        except OverflowError:  # rounded up beyond the largest
            continue
    return f"{value:.9g}"


class FileNames:
    """New file names of one kind: a uuid of their own and a counter (spec 01 §3.3). One instance per writer; safe between threads."""

    def __init__(self, prefix: str, extension: str = "") -> None:
        self.prefix = f"{prefix}{uuid.uuid4()}-"
        self.extension = extension
        self._count = itertools.count()
        self._lock = threading.Lock()

    def next(self) -> str:
        with self._lock:
            return f"{self.prefix}{next(self._count)}{self.extension}"


class Layout:
    """The paths of one table and branch, relative to the table's directory."""

    def __init__(
        self,
        partition_keys: Sequence[str] = (),
        partition_types: Sequence[DataType] = (),
        *,
        branch: str | None = None,
        data_directory: str = "",
        legacy_name: bool = True,
        default_name: str = DEFAULT_PARTITION,
        index_in_data_directory: bool = False,
    ) -> None:
        self.partition_keys = tuple(partition_keys)
        self.partition_types = tuple(partition_types)
        self._metadata = f"branch/branch-{check_file_name(branch)}/" if branch else ""
        self._data = f"{data_directory.strip('/')}/" if data_directory.strip("/") else ""
        if any(part in (".", "..", "") for part in self._data.split("/")[:-1]):
            raise UsageError(f"option data-file.path-directory: {data_directory!r} leads out of the table's directory")
        self._legacy_name = legacy_name
        self._default_name = default_name
        self.index_in_data_directory = index_in_data_directory
        self._directories: dict[tuple[bytes, int], str] = {}

    @classmethod
    def of(cls, schema: TableSchema, branch: str | None = None, options: Mapping[str, str] | None = None) -> Layout:
        """The layout that a schema's options ask for."""
        given = schema.options if options is None else options
        return cls(
            schema.partition_keys,
            schema.partition_types,
            branch=branch,
            data_directory=given.get("data-file.path-directory", ""),
            legacy_name=given.get("partition.legacy-name", "true").strip().lower() != "false",
            default_name=given.get("partition.default-name", DEFAULT_PARTITION),
            index_in_data_directory=given.get("index-file-in-data-file-dir", "false").strip().lower() == "true",
        )

    # metadata of the branch

    @property
    def schema_directory(self) -> str:
        return f"{self._metadata}schema"

    @property
    def snapshot_directory(self) -> str:
        return f"{self._metadata}snapshot"

    @property
    def tag_directory(self) -> str:
        return f"{self._metadata}tag"

    @property
    def consumer_directory(self) -> str:
        return f"{self._metadata}consumer"

    @property
    def index_failures_path(self) -> str:
        """Of our own; no other program looks into this directory, or deletes it."""
        return f"{self._metadata}maintainer/index-failures.json"

    @property
    def changelog_directory(self) -> str:
        """Of the changelogs that outlive their snapshots."""
        return f"{self._metadata}changelog"

    def schema_path(self, schema_id: int) -> str:
        return f"{self.schema_directory}/schema-{schema_id}"

    def snapshot_path(self, snapshot_id: int) -> str:
        return f"{self.snapshot_directory}/snapshot-{snapshot_id}"

    def hint_path(self, hint: str) -> str:
        """LATEST or EARLIEST."""
        return f"{self.snapshot_directory}/{hint}"

    def tag_path(self, name: str) -> str:
        return f"{self.tag_directory}/tag-{check_file_name(name)}"

    # shared by all branches

    def manifest_path(self, name: str, where: str = "") -> str:
        """Of a manifest, a manifest list or an index manifest."""
        return f"manifest/{check_file_name(name, where)}"

    def statistics_path(self, name: str, where: str = "") -> str:
        return f"statistics/{check_file_name(name, where)}"

    def partition_values(self, partition: bytes) -> tuple[Any, ...]:
        """The internal values of a serialized partition row."""
        return tuple(binary_row.deserialize(partition, self.partition_types))

    def partition_directory(self, partition: bytes) -> str:
        """Relative path of a partition, empty for a table without partitions; `data-file.path-directory` is not part of it."""
        values = self.partition_values(partition) if self.partition_keys else ()
        return partition_path(self.partition_keys, self.partition_types, values, legacy_name=self._legacy_name, default_name=self._default_name)

    def bucket_directory(self, partition: bytes, bucket: int) -> str:
        known = self._directories.get((partition, bucket))
        if known is None:
            directory = self.partition_directory(partition)
            name = "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"
            known = self._directories[partition, bucket] = f"{self._data}{directory}/{name}" if directory else f"{self._data}{name}"
        return known

    def data_file_path(self, partition: bytes, bucket: int, file: DataFileMeta | str) -> str:
        """Of a data file, or of the extra file of this name."""
        if isinstance(file, DataFileMeta):
            _refuse_external(file.file_name, file.external_path)
            file = file.file_name
        return f"{self.bucket_directory(partition, bucket)}/{check_file_name(file)}"

    def index_file_path(self, file: IndexFileMeta | str, partition: bytes | None = None, bucket: int | None = None) -> str:
        """Of a deletion-vector file or an index payload; with `index-file-in-data-file-dir` the bucket must be given."""
        if isinstance(file, IndexFileMeta):
            _refuse_external(file.file_name, file.external_path)
            file = file.file_name
        if not self.index_in_data_directory:
            return f"index/{check_file_name(file)}"
        if partition is None or bucket is None:
            raise Unsupported("option index-file-in-data-file-dir = true: index files beside the data files are not supported here")
        return f"{self.bucket_directory(partition, bucket)}/{check_file_name(file)}"


def bucket_directory(schema: TableSchema, partition: bytes, bucket: int) -> str:
    """The directory of a bucket, for callers that have no `Layout` at hand."""
    return Layout.of(schema).bucket_directory(partition, bucket)


def _refuse_external(name: str, path: str | None) -> None:
    if path is not None:
        raise Unsupported(f"{name} lies outside of the table at {path}: files on external paths (data-file.external-paths) are not supported")
