"""A version of a table's schema (spec 01 §4; Java `org.apache.paimon.schema.TableSchema`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from maintainer.errors import UsageError
from maintainer.model.types import DataField, DataType, TypeRoot

SYSTEM_FIELD_ID = 1073741823
"""⌊(2³¹−1)/2⌋: ids from here on belong to Paimon; a `_KEY_` column has the id of its column plus this."""
KEY_PREFIX = "_KEY_"
SEQUENCE_FIELD = DataField(2147483646, "_SEQUENCE_NUMBER", DataType(TypeRoot.BIGINT, nullable=False))
KIND_FIELD = DataField(2147483645, "_VALUE_KIND", DataType(TypeRoot.TINYINT, nullable=False))
_MOST_NAMED = 50
SYSTEM_NAMES = frozenset({"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID"})


@dataclass(frozen=True)
class TableSchema:
    """The columns, keys and options that one schema file holds; `extra` keeps JSON members that we do not know."""

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    time_millis: int = 0
    version: int = 3
    extra: Mapping[str, Any] = field(default_factory=dict)

    def field(self, name: str) -> DataField:
        """The column of this name; `UsageError` names those that may be meant, and the columns there are."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        by_lower: dict[str, list[str]] = {}
        for known in self.names:
            by_lower.setdefault(known.lower(), []).append(known)
        close = [meant for lower in get_close_matches(name.lower(), by_lower, n=2, cutoff=0.7) for meant in by_lower[lower]]
        meant = f"; did you mean {' or '.join(close)}? The" if close else "; the"
        more = f" and {len(self.fields) - _MOST_NAMED} more" if len(self.fields) > _MOST_NAMED else ""
        raise UsageError(f"there is no column {name!r}{meant} columns are {', '.join(self.names[:_MOST_NAMED])}{more}")

    def has_field(self, name: str) -> bool:
        return any(candidate.name == name for candidate in self.fields)

    def field_by_id(self, field_id: int) -> DataField | None:
        return next((candidate for candidate in self.fields if candidate.id == field_id), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """Primary keys that are not partition keys, in primary-key order: the key inside one bucket."""
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    @property
    def bucket_keys(self) -> tuple[str, ...]:
        """The columns whose hash chooses the bucket: option `bucket-key`, else the trimmed primary key."""
        names = tuple(name.strip() for name in self.options.get("bucket-key", "").split(",") if name.strip())
        return names or self.trimmed_primary_keys

    def types_of(self, names: tuple[str, ...]) -> tuple[DataType, ...]:
        return tuple(self.field(name).type for name in names)

    @property
    def key_types(self) -> tuple[DataType, ...]:
        """Types of the trimmed primary key: how `_MIN_KEY` and `_MAX_KEY` are decoded."""
        return self.types_of(self.trimmed_primary_keys)

    @property
    def partition_types(self) -> tuple[DataType, ...]:
        """Types of the partition keys: how `_PARTITION` is decoded."""
        return self.types_of(self.partition_keys)
