"""Hypothesis strategies for Paimon's types, internal values, rows and file metas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st

from maintainer.format import binary_row, data_type
from maintainer.model.commit import CommitMessage
from maintainer.model.files import (
    DELETION_VECTORS,
    EMPTY_ROW,
    DataFileMeta,
    DeletionRange,
    FileKind,
    FileSource,
    GlobalIndexMeta,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from maintainer.model.types import MAX_LENGTH, DataField, DataType, TypeRoot

EXACT = Context(prec=60)
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 as days since the epoch."""
DAY_NANOS = 86_400 * 10**9

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=12)


# ----------------------------------------------------------------------------------------------------------------------- types


def scalar_types(nullable: st.SearchStrategy[bool] | None = None) -> st.SearchStrategy[DataType]:
    """Every scalar root that Parquet can hold; precisions and lengths near the limits of the encodings."""
    lengths = st.sampled_from([1, 7, 8, 20, MAX_LENGTH])
    simple = [
        TypeRoot.BOOLEAN,
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DATE,
    ]
    decimals = st.sampled_from([1, 5, 9, 10, 18, 19, 28, 38]).flatmap(
        lambda p: st.integers(0, p).map(lambda s: DataType(TypeRoot.DECIMAL, precision=p, scale=s))
    )
    types = st.one_of(
        st.sampled_from(simple).map(DataType),
        st.sampled_from(sorted(LENGTHS)).flatmap(lambda root: lengths.map(lambda n: DataType(root, length=n))),
        decimals,
        st.integers(0, 3).map(lambda p: DataType(TypeRoot.TIME, precision=p)),
        st.builds(
            lambda root, p: DataType(root, precision=p),
            st.sampled_from([TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ]),
            st.sampled_from([0, 3, 4, 6, 7, 9]),
        ),
    )
    return st.builds(DataType.with_nullable, types, st.just(True) if nullable is None else nullable)


LENGTHS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
NOT_KEYS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})


def key_types() -> st.SearchStrategy[DataType]:
    """Types of primary-key columns, NOT NULL."""
    return scalar_types(st.just(False))


def data_types(nullable: st.SearchStrategy[bool] | None = None, variants: bool = False) -> st.SearchStrategy[DataType]:
    """Scalar and nested types; members of ROWs have the ids 1, 2, …"""
    allowed = st.just(True) if nullable is None else nullable
    vectors = st.builds(
        lambda root, n, null: DataType(TypeRoot.VECTOR, null, length=n, element=DataType(root)),
        st.sampled_from(
            [TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.FLOAT, TypeRoot.DOUBLE]
        ),
        st.integers(1, 5),
        allowed,
    )
    leaves = scalar_types(allowed) | vectors
    if variants:
        leaves |= allowed.map(lambda null: DataType(TypeRoot.VARIANT, null))

    def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        keys = scalar_types(st.just(False))
        return st.one_of(
            st.builds(lambda t, null: DataType(TypeRoot.ARRAY, null, element=t), inner, allowed),
            st.builds(lambda k, t, null: DataType(TypeRoot.MAP, null, key=k, element=t), keys, inner, allowed),
            st.builds(lambda k, null: DataType(TypeRoot.MULTISET, null, element=k), keys, allowed),
            st.builds(
                lambda members, null: DataType(
                    TypeRoot.ROW, null, fields=tuple(DataField(data_type.NO_ID, f"f{i}", t) for i, t in enumerate(members))
                ),
                st.lists(inner, min_size=1, max_size=3),
                allowed,
            ),
        )

    return st.recursive(leaves, nested, max_leaves=4).map(lambda t: data_type.assign_ids(t, 0)[0])


# ---------------------------------------------------------------------------------------------------------------------- values


def values(of: DataType, nan: bool = True) -> st.SearchStrategy[Any]:
    """Internal values of a type, None included where the type is nullable. Times are from year 1 to 9999 (TIMESTAMP(7–9): what int64 holds)."""
    present = _present(of, nan)
    return st.none() | present if of.nullable else present


def rows(of: Sequence[DataType], nan: bool = True) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(values(t, nan) for t in of))


def typed_rows(of: st.SearchStrategy[DataType], max_size: int = 6) -> st.SearchStrategy[tuple[tuple[DataType, ...], tuple[Any, ...]]]:
    """Types, and a row of them."""
    return st.lists(of, max_size=max_size).map(tuple).flatmap(lambda types: st.tuples(st.just(types), rows(types)))


def _present(of: DataType, nan: bool) -> st.SearchStrategy[Any]:
    match of.root:
        case TypeRoot.BOOLEAN:
            return st.booleans()
        case TypeRoot.TINYINT:
            return st.integers(-(2**7), 2**7 - 1)
        case TypeRoot.SMALLINT:
            return st.integers(-(2**15), 2**15 - 1)
        case TypeRoot.INT:
            return int32s
        case TypeRoot.BIGINT:
            return int64s
        case TypeRoot.FLOAT:
            return st.floats(width=32, allow_nan=False) | (st.just(float("nan")) if nan else st.nothing())
        case TypeRoot.DOUBLE:
            return st.floats(allow_nan=False) | (st.just(float("nan")) if nan else st.nothing())
        case TypeRoot.DECIMAL:
            limit = 10**of.precision - 1
            return st.integers(-limit, limit).map(lambda number: Decimal(number).scaleb(-of.scale, EXACT))
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=min(of.length, 20))
        case TypeRoot.BINARY | TypeRoot.VARBINARY | TypeRoot.BLOB | TypeRoot.GEOMETRY | TypeRoot.GEOGRAPHY:
            return st.binary(max_size=min(of.length or 20, 20))
        case TypeRoot.DATE:
            return st.integers(FIRST_DAY, LAST_DAY)
        case TypeRoot.TIME:
            step = 10 ** max(3 - of.precision, 0)
            return st.integers(0, (86_400_000 - 1) // step).map(lambda n: n * step)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            step = 10 ** (9 - of.precision)
            low, high = (FIRST_DAY * DAY_NANOS, (LAST_DAY + 1) * DAY_NANOS - 1) if of.precision <= 6 else (-(2**63), 2**63 - 1)
            return st.integers(-(-low // step), high // step).map(lambda n: n * step)
        case TypeRoot.VARIANT:
            return st.tuples(st.binary(min_size=1, max_size=12), st.binary(min_size=1, max_size=12))
        case TypeRoot.ROW:
            return rows([field.type for field in of.fields], nan)
    assert of.element is not None
    match of.root:
        case TypeRoot.VECTOR:
            return st.lists(_present(of.element, nan), min_size=of.length, max_size=of.length)
        case TypeRoot.MAP:
            assert of.key is not None
            return _pairs(of.key, values(of.element, nan))
        case TypeRoot.MULTISET:
            return _pairs(of.element, st.integers(1, 2**31 - 1))
        case _:
            return st.lists(values(of.element, nan), max_size=5)


def _pairs(key: DataType, elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, Any]]]:
    return st.lists(st.tuples(_present(key, nan=False), elements), max_size=4, unique_by=lambda pair: pair[0])


# ------------------------------------------------------------------------------------------------------------------ file metas


def serialized_rows(columns: int | None = None) -> st.SearchStrategy[bytes]:
    """Serialized rows of a few INT and STRING columns."""
    sizes = st.integers(0, 3) if columns is None else st.just(columns)
    column = st.sampled_from([DataType(TypeRoot.INT), DataType(TypeRoot.VARCHAR, length=MAX_LENGTH)])
    return (
        sizes.flatmap(lambda n: st.lists(column, min_size=n, max_size=n).map(tuple))
        .flatmap(lambda types: st.tuples(rows(types), st.just(types)))
        .map(lambda pair: binary_row.serialize(*pair))
    )


def simple_stats() -> st.SearchStrategy[SimpleStats]:
    nulls = st.none() | st.lists(st.none() | counts, max_size=3).map(tuple)
    return st.just(SimpleStats()) | st.builds(SimpleStats, serialized_rows(), serialized_rows(), nulls)


def _names_tuple() -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(names, max_size=3).map(tuple)


def file_metas(sequences_of_columns: bool = False) -> st.SearchStrategy[DataFileMeta]:
    """Data files with every member set or not; `write_cols_sequences` only on request, since version 12 messages cannot hold it."""
    return st.builds(
        DataFileMeta,
        file_name=names,
        file_size=counts,
        row_count=counts,
        min_key=serialized_rows(),
        max_key=serialized_rows(),
        key_stats=simple_stats(),
        value_stats=simple_stats(),
        min_sequence_number=int64s,
        max_sequence_number=int64s,
        schema_id=counts,
        level=st.integers(0, 20),
        extra_files=_names_tuple(),
        creation_time=st.none() | st.integers(-(2**50), 2**50),
        delete_row_count=st.none() | counts,
        embedded_file_index=st.none() | st.binary(max_size=12),
        file_source=st.none() | st.sampled_from(list(FileSource)),
        value_stats_cols=st.none() | _names_tuple(),
        external_path=st.none() | names,
        first_row_id=st.none() | counts,
        write_cols=st.none() | _names_tuple(),
        write_cols_sequences=st.none() | st.lists(int64s, max_size=3).map(tuple) if sequences_of_columns else st.none(),
    )


def deletion_ranges() -> st.SearchStrategy[DeletionRange]:
    sizes = st.integers(0, 2**31 - 1)
    return st.builds(DeletionRange, names, sizes, sizes, st.none() | counts)


def index_files(build_schema: bool = False) -> st.SearchStrategy[IndexFileMeta]:
    """Deletion-vector files, payloads and files of unknown kinds."""
    index = st.builds(
        GlobalIndexMeta,
        int64s,
        int64s,
        int32s,
        st.none() | st.lists(int32s, max_size=3).map(tuple),
        st.none() | st.binary(max_size=12),
        st.none() | st.binary(max_size=12),
        st.none() | counts if build_schema else st.none(),
    )
    return st.builds(
        IndexFileMeta,
        index_type=st.sampled_from([DELETION_VECTORS, "HASH", "btree", "bitmap", "not-known-yet"]),
        file_name=names,
        file_size=counts,
        row_count=counts,
        deletion_ranges=st.none() | st.lists(deletion_ranges(), max_size=3).map(tuple),
        external_path=st.none() | names,
        global_index=st.none() | index,
    )


def manifest_entries() -> st.SearchStrategy[ManifestEntry]:
    buckets = st.integers(-2, 2**31 - 1)
    return st.builds(ManifestEntry, st.sampled_from(list(FileKind)), serialized_rows(), buckets, buckets, file_metas(True))


def index_manifest_entries() -> st.SearchStrategy[IndexManifestEntry]:
    return st.builds(
        IndexManifestEntry, st.sampled_from(list(FileKind)), serialized_rows(), st.integers(-2, 2**31 - 1), index_files(build_schema=True)
    )


def manifest_files() -> st.SearchStrategy[ManifestFileMeta]:
    return st.builds(
        ManifestFileMeta,
        names,
        counts,
        counts,
        counts,
        simple_stats(),
        counts,
        *([st.none() | int32s] * 4),
        *([st.none() | counts] * 2),
    )


@st.composite
def commit_messages(draw: st.DrawFn, version: int = 12) -> CommitMessage:
    """Messages that the version can hold without loss; their lists repeat one data file, under two names, and one index file."""
    file, index_file = draw(file_metas(version >= 13)), draw(index_files())
    files = st.sampled_from([(), (file,), (replace(file, file_name="other"), file)])
    indexes = st.sampled_from([(), (index_file,), (index_file, replace(index_file, file_name="other"))])
    return draw(
        st.builds(
            CommitMessage,
            st.just(EMPTY_ROW) | serialized_rows(),
            st.integers(-2, 2**31 - 1),
            st.none() | int32s,
            files,
            files,
            files,
            indexes,
            indexes,
            files,
            files,
            files,
            indexes,
            indexes,
            st.none() | int64s if version >= 14 else st.none(),
        )
    )


# ---------------------------------------------------------------------------------------------------------------- hostile bytes


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with a few of them changed, cut out, repeated or cut off."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        match draw(st.integers(0, 4)):
            case 0 | 1 if changed:
                changed[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
            case 2:
                del changed[at : at + draw(st.integers(1, 8))]
            case 3:
                changed[at:at] = changed[at : at + draw(st.integers(1, 8))]
            case _:
                del changed[at:]
    return bytes(changed)
