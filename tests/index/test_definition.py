from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from maintainer.errors import UsageError
from maintainer.index.definition import FamilyName, definitions
from maintainer.index.family import rules
from maintainer.index.options import memory_size, peer_blocks
from maintainer.index.validation import validate
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataType, TypeRoot
from tests.support.builders import schema

VECTOR = DataType(TypeRoot.VECTOR, element=DataType(TypeRoot.FLOAT), length=4)
DOUBLES = DataType(TypeRoot.VECTOR, element=DataType(TypeRoot.DOUBLE), length=4)
COLUMNS: dict[str, Any] = {
    "id": "INT", "a": "INT", "s": "STRING", "t": "ARRAY<STRING>", "v": VECTOR, "w": DOUBLES, "b": "BYTES", "m": "MAP<INT, INT>",
    "ab": "ARRAY<BYTES>",
}  # fmt: skip
BTREE, BITMAP, MULTI = "pk-btree.index.columns", "pk-bitmap.index.columns", "pk-multivalue.index.columns"
FM, VEC, TEXT = "pk-fm.index.columns", "pk-vector.index.columns", "pk-full-text.index.columns"
IVF = {VEC: "v", "fields.v.pk-vector.index.type": "ivf-flat"}


def table(options: dict[str, str], **changes: Any) -> TableSchema:
    made = schema(COLUMNS, ["id"], options={"bucket": "1", "deletion-vectors.enabled": "true", **options})
    return replace(made, **changes)


def one(options: dict[str, str]) -> dict[str, str]:
    (found,) = definitions(table(options))
    return dict(found.options)


def test_definitions_come_in_the_order_of_the_fields() -> None:
    found = definitions(table({BITMAP: "s", BTREE: " a ", MULTI: "t", **IVF, TEXT: "x"}))
    assert [(d.column, d.field_id, d.index_type, d.family) for d in found] == [
        ("a", 1, "btree", FamilyName.BTREE),
        ("s", 2, "bitmap", FamilyName.BITMAP),
        ("t", 3, "multivalue", FamilyName.MULTIVALUE),
        ("v", 4, "ivf-flat", FamilyName.VECTOR),
    ]
    assert str(found[0].data_type) == "INT"
    assert found[0].identity == ("btree", 1)


def test_no_option_means_no_definition() -> None:
    assert definitions(table({})) == ()
    validate(table({}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        # across families, in this order (spec 06 §4.1)
        ({BTREE: "a,a"}, "pk-btree.index.columns must not contain duplicate columns, but is [a, a]."),
        ({BTREE: "a, a", BITMAP: "s,s", VEC: "v,v"}, "pk-vector.index.columns must not contain duplicate columns, but is [v, v]."),
        ({BTREE: "a", BITMAP: "a"}, "Column 'a' can own at most one primary-key index."),
        ({BTREE: "s", TEXT: "s"}, "Column 's' can own at most one primary-key index."),
        ({BTREE: "a", BITMAP: "a", "deletion-vectors.enabled": "false"}, "can own at most one"),
        # sorted families (spec 06 §4.2)
        ({BTREE: "a", "deletion-vectors.enabled": "false", "bucket": "-1"}, "indexes require deletion-vectors.enabled = true."),
        ({BTREE: "a", "bucket": "-1"}, "require fixed or postpone bucket mode (bucket > 0 or bucket = -2), but bucket is -1."),
        ({BTREE: "a", "bucket": "0"}, "but bucket is 0."),
        ({BITMAP: "a", "deletion-vectors.merge-on-read": "true"}, "indexes require deletion-vectors.merge-on-read = false."),
        ({MULTI: "t", "pk-clustering-override": "true"}, "indexes do not support pk-clustering-override."),
        ({BTREE: "nope"}, "pk-btree.index.columns entry 'nope' must reference an existing column."),
        (
            {BTREE: ""},
            "pk-btree.index.columns entry '' must reference an existing column. Name a column there, or unset the option",
        ),
        ({BITMAP: "a,,s"}, "pk-bitmap.index.columns entry '' must reference an existing column."),
        ({BITMAP: "a,"}, "pk-bitmap.index.columns entry '' must reference an existing column."),
        ({BTREE: "b"}, "DataType: BYTES is not supported by global index now."),
        ({BITMAP: "t"}, "DataType: ARRAY<STRING> is not supported by global index now."),
        ({BTREE: "m"}, "DataType: MAP<INT, INT> is not supported by global index now."),
        ({MULTI: "s"}, "Multivalue index requires an ARRAY column"),
        ({MULTI: "ab"}, "DataType: BYTES is not supported by global index now."),
        ({FM: "a"}, "FM index requires a character string column"),
        ({FM: "s", "fm-index.partition-row-count": "0"}, "FM index partition row count must be positive"),
        ({FM: "s", "fm-index.sa-sample-rate": "3"}, "must be a power of two"),
        ({FM: "s", "fm-index.partition-size": "1 b"}, "partition size"),
        ({BTREE: "a", "btree-index.block-size": "large"}, "btree-index.block-size = 'large' is not a memory size"),
        ({BTREE: "a", "btree-index.compression": "gzip"}, "Unknown CompressionMethod gzip"),
        ({BTREE: "a", "btree-index.compression": ""}, "Unknown CompressionMethod"),
        ({BTREE: "a", "btree-index.compression-level": "x"}, "is not a whole number"),
        ({BITMAP: "a", "bitmap-index.dictionary-block-size": "0 b"}, "Bitmap dictionary block size must be greater than 0."),
        ({BITMAP: "a", "maintain.bitmap-peer-blocks": "on"}, "neither auto nor off"),
        ({BTREE: "a", "btree-index.block-size": "2 gb"}, "btree-index.block-size must be below 2 gb"),
        ({BTREE: "a", "btree-index.fallback-scan-max-size": "much"}, "btree-index.fallback-scan-max-size = 'much' is not a memory size"),
        ({MULTI: "t", "multivalue-index.compression": "brotli"}, "multivalue-index.compression: Unknown CompressionMethod brotli"),
        ({MULTI: "t", "multivalue-index.compression-level": "high"}, "multivalue-index.compression-level = 'high' is not a whole number"),
        ({MULTI: "t", "multivalue-index.dictionary-block-size": "0"}, "dictionary block size must be greater than 0"),
        ({MULTI: "m"}, "Multivalue index requires an ARRAY column, but column 'm' is MAP<INT, INT>"),
        ({FM: "t"}, "FM index requires a character string column, but column 't' is ARRAY<STRING>"),
        ({FM: "s", "fm-index.partition-row-count": "2147483648"}, "FM index partition row count must be positive and below 2^31"),
        ({FM: "s", "fm-index.partition-size": "2147483647"}, "FM index partition size must be between 2 bytes and 2147483646 bytes"),
        ({FM: "s", "fm-index.sa-sample-rate": "2048"}, "must be a power of two between 1 and 1024, but is 2048"),
        ({FM: "s", "fm-index.sa-sample-rate": "0"}, "must be a power of two"),
        ({FM: "s", "fm-index.compression": "snappy"}, "fm-index.compression: Unknown CompressionMethod snappy"),
        ({FM: "s", "fm-index.compression-level": "1.5"}, "fm-index.compression-level = '1.5' is not a whole number"),
        ({FM: "s", "fm-index.read-cache-size": "-1"}, "fm-index.read-cache-size = '-1' is not a memory size"),
        ({FM: "s", "fm-index.demand-page-size": "63 kb"}, "fm-index.demand-page-size must be between 64 kb and 64 mb, but is 64512 bytes"),
        ({FM: "s", "fm-index.demand-page-size": "65 mb"}, "fm-index.demand-page-size must be between 64 kb and 64 mb"),
        ({FM: "s", "fm-index.locate-cost-ratio": "0"}, "fm-index.locate-cost-ratio must be above 0 and at most 1, but is 0.0"),
        ({FM: "s", "fm-index.locate-cost-ratio": "1.1"}, "fm-index.locate-cost-ratio must be above 0 and at most 1"),
        ({FM: "s", "fm-index.locate-cost-ratio": "nan"}, "fm-index.locate-cost-ratio = 'nan': "),
        ({FM: "s", "fields.s.pk-fm.index.options": '{"sa-sample-rate": 3}'}, "must be a power of two"),
        # options that there are not
        (
            {BTREE: "a", "btree-index.blok-size": "1 kb"},
            "btree-index.blok-size: this option is not known here; did you mean btree-index.block-size",
        ),
        (
            {FM: "s", "fm-index.store-verification-values": "true"},
            "fm-index.store-verification-values: this option is not known here",
        ),
        ({BITMAP: "a", "fields.a.pk-bitmap.index.options": '{"block": 1}'}, "bitmap-index.block: this option is not known here"),
        ({MULTI: "t", "fields.t.pk-multivalue.index.options": '{"level": 1}'}, "multivalue-index.level: this option is not known here"),
        # existence comes before types, whatever the families
        ({BTREE: "b", MULTI: "nope"}, "pk-multivalue.index.columns entry 'nope' must reference an existing column."),
        ({BTREE: "a", "fields.a.pk-btree.index.options": "{bad"}, "fields.a.pk-btree.index.options must be a JSON object"),
        # Vector (spec 06 §4.3)
        ({**IVF, VEC: "v,w"}, "pk-vector.index.columns must contain exactly one column in the first release, but is [v, w]."),
        ({VEC: ""}, "pk-vector.index.columns must contain a non-empty column."),
        ({VEC: "v"}, "fields.v.pk-vector.index.type must be configured when a primary-key vector index is defined."),
        ({**IVF, "deletion-vectors.enabled": "false"}, "Primary-key vector index requires deletion-vectors.enabled = true."),
        (
            {**IVF, "deletion-vectors.merge-on-read": "true", "merge-engine": "aggregation"},
            "with merge-engine = aggregation requires deletion-vectors.merge-on-read = false.",
        ),
        ({**IVF, "bucket": "-1"}, "requires fixed or postpone bucket mode"),
        ({**IVF, "pk-clustering-override": "true"}, "does not support pk-clustering-override."),
        ({**IVF, "fields.v.pk-vector.index.options": "[1]"}, "must be a JSON object"),
        ({VEC: "x", "fields.x.pk-vector.index.type": "ivf-pq"}, "pk-vector.index.columns entry 'x' must reference a VECTOR column."),
        ({VEC: "a", "fields.a.pk-vector.index.type": "ivf-pq"}, "pk-vector.index.columns entry 'a' must reference a VECTOR column."),
        ({VEC: "w", "fields.w.pk-vector.index.type": "ivf-pq"}, "pk-vector.index.columns entry 'w' must use FLOAT elements."),
        ({**IVF, "fields.v.pk-vector.distance.metric": "hamming"}, "must be one of l2, cosine, inner_product, but is hamming"),
        # Full Text (spec 06 §4.4)
        ({TEXT: ""}, "pk-full-text.index.columns must contain a non-empty column."),
        ({TEXT: "s", "deletion-vectors.enabled": "false"}, "Primary-key full-text index requires deletion-vectors.enabled = true."),
        (
            {TEXT: "s", "deletion-vectors.merge-on-read": "true"},
            "Primary-key full-text index requires deletion-vectors.merge-on-read = false.",
        ),
        ({TEXT: "s", "bucket": "-1"}, "Primary-key full-text index requires fixed or postpone bucket mode"),
        ({TEXT: "s", "pk-clustering-override": "true"}, "Primary-key full-text index does not support pk-clustering-override."),
        ({TEXT: "s", "fields.s.pk-full-text.index.options": "7"}, "must be a JSON object"),
        ({TEXT: "a,s"}, "pk-full-text.index.columns must contain exactly one column"),
        ({TEXT: "a"}, "pk-full-text.index.columns entry 'a' must reference a CHAR/VARCHAR/STRING column."),
        ({TEXT: "x"}, "pk-full-text.index.columns entry 'x' must reference an existing column."),
    ],
)
def test_rejected_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        validate(table(options))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {BTREE: " a , id ", BITMAP: "s"},
        {BTREE: "a", "bucket": "-2"},
        {MULTI: "t", FM: "s"},
        {FM: "s", "fm-index.sa-sample-rate": "1024", "fm-index.partition-size": "2 b"},
        {**IVF, "fields.v.pk-vector.distance.metric": "Inner-Product"},
        {**IVF, "deletion-vectors.enabled": "false", "merge-engine": "first-row", "deletion-vectors.merge-on-read": "true"},
        {TEXT: "s"},
        {BTREE: "a", "btree-index.compression": "LZ4", "btree-index.block-size": "0"},
        {BTREE: "a", "merge-engine": "aggregation"},
        {BITMAP: "s", "merge-engine": "partial-update"},
        {MULTI: "t", "fields.t.pk-multivalue.index.options": '{"dictionary-block-size": "1", "compression": "ZSTD", "compression-level": -5}'},
        {FM: "s", "fm-index.sa-sample-rate": "1", "fm-index.read-cache-size": "0", "fm-index.demand-page-size": "64 mb"},
        {FM: "s", "fm-index.locate-cost-ratio": "1", "fm-index.partition-row-count": "1", "fm-index.compression": "none"},
        {TEXT: "s", "deletion-vectors.enabled": "false", "merge-engine": "first-row", "full-text.tokenizer": "whatever"},
        {VEC: "v", "fields.v.pk-vector.index.type": "no-such-index", "no-such-index.x": "y"},
        {"pk-vector.index.column": "v", "pk-vector.distance.metric": "hamming"},
        {BTREE: "a", "btree-index.file-version": "2", "fields.a.pk-btree.index.options": '{"bloom-filter.enabled": true}'},
        {BTREE: "a", "btree-index.new": "1", "maintain.ignored-options": "x, btree-index.new", "bitmap-index.dictionary": "of no index here"},
    ],
)
def test_accepted_options(options: dict[str, str]) -> None:
    validate(table(options))


def test_a_table_without_primary_key_has_no_indexes() -> None:
    with pytest.raises(UsageError, match="indexes require a primary-key table"):
        validate(table({BTREE: "a"}, primary_keys=()))
    with pytest.raises(UsageError, match="Primary-key vector index requires a primary-key table"):
        validate(table(IVF, primary_keys=()))
    with pytest.raises(UsageError, match="must not contain duplicate columns"):
        validate(table({BTREE: "a,a"}, primary_keys=()))


def test_a_first_row_table_has_no_exact_index() -> None:
    """Vectors are demanded by the family, and refused by the engine (`maintainer.table.merging`)."""
    with pytest.raises(UsageError, match=r"require deletion-vectors\.enabled = true"):
        validate(table({BTREE: "a", "merge-engine": "first-row", "deletion-vectors.enabled": "false"}))


def test_an_engine_that_is_none_is_named() -> None:
    with pytest.raises(UsageError, match="option merge-engine = 'last-row': there are deduplicate"):
        validate(table({TEXT: "s", "merge-engine": "last-row"}))


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({BTREE: "a,a"}, "Name each column once."),
        ({BTREE: "a", BITMAP: "a"}, "It is in pk-btree.index.columns and pk-bitmap.index.columns: take it out of one of them."),
        ({BTREE: "a", FM: "s", "deletion-vectors.enabled": "false"}, "Set it, or leave out pk-btree.index.columns, pk-fm.index.columns."),
        ({MULTI: "t", "bucket": "-1"}, "Set bucket, or leave out pk-multivalue.index.columns."),
        ({FM: "nope"}, "The columns are id, a, s, t, v, w, b, m, ab."),
        ({BTREE: "b"}, "DataType: BYTES is not supported by global index now. Take column 'b' out of pk-btree.index.columns."),
        (
            {FM: "s", "merge-engine": "first-row", "deletion-vectors.enabled": "false"},
            "A table with merge-engine = first-row has none: leave out pk-fm.index.columns.",
        ),
        ({MULTI: "ab"}, "Take column 'ab' out of pk-multivalue.index.columns."),
        ({MULTI: "s"}, "but column 's' is STRING. Take it out of pk-multivalue.index.columns."),
        ({FM: "a"}, "but column 'a' is INT. Take it out of pk-fm.index.columns."),
        ({TEXT: "s", "deletion-vectors.merge-on-read": "true"}, "Unset it, or unset pk-full-text.index.columns."),
        ({VEC: "v"}, "Set it, to ivf-flat for example."),
        ({BTREE: "a", "fields.a.pk-btree.index.options": "[]"}, 'Write it like {"compression": "zstd"}.'),
        ({BTREE: "a", "fields.a.pk-btree.index.options": '{"compression": null}'}, "Give a value, or leave it out."),
        (
            {BTREE: "a", "btree-index.compression": "none", "fields.a.pk-btree.index.options": '{"compression": "zstd"}'},
            "They are 'none' and 'zstd', and none goes before the other: leave one out.",
        ),
    ],
)
def test_a_refusal_says_what_to_change(options: dict[str, str], advice: str) -> None:
    with pytest.raises(UsageError) as raised:
        validate(table(options))
    assert str(raised.value).endswith(advice)


def test_every_family_judges_its_columns() -> None:
    for family in FamilyName:
        judge = rules(family)
        assert judge.TAKES
        with pytest.raises(UsageError):
            judge.validate("b", table({}).field("b").type, {})


OPTIONS = "fields.a.pk-btree.index.options"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("  ", {}),
        ('{"block-size": "4 kb"}', {"btree-index.block-size": "4 kb"}),
        ('{"btree-index.block-size": "4 kb", "block-size": "4 kb"}', {"btree-index.block-size": "4 kb"}),
        ('{"n": 64, "f": true, "s": "é"}', {"btree-index.n": "64", "btree-index.f": "true", "btree-index.s": "é"}),
        ('{"o": {"k": [1, null]}}', {"btree-index.o": '{"k":[1,null]}'}),
        ('{"fields.x.y": "z"}', {"fields.x.y": "z"}),
    ],
)  # fmt: skip
def test_json_options_are_laid_over_the_table(text: str, expected: dict[str, str]) -> None:
    base = {BTREE: "a", "x": "y", "sorted-index.records-per-range": "5", "sorted-index.records-per-file": "6", OPTIONS: text}
    found = one(base)
    assert {k: v for k, v in found.items() if k not in base and k not in ("bucket", "deletion-vectors.enabled")} == expected
    assert found["x"] == "y"
    assert "sorted-index.records-per-range" not in found
    assert "sorted-index.records-per-file" not in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", f"{OPTIONS} must be a JSON object of option key-value pairs."),
        ("{bad", f"{OPTIONS} must be a JSON object of option key-value pairs."),
        ("[" * 100_000, "must be a JSON object"),
        ('{"": 1}', f"{OPTIONS} contains an empty option key."),
        ('{" ": 1}', f"{OPTIONS} contains an empty option key."),
        ('{"k": null}', f"{OPTIONS} value for key k must not be null."),
        ('{"block-size": "1", "btree-index.block-size": "2"}', f"{OPTIONS} defines conflicting values for btree-index.block-size."),
        ('{"compression": "zstd"}', f"{OPTIONS} defines conflicting values for btree-index.compression."),
    ],
)
def test_json_options_that_are_wrong(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        definitions(table({BTREE: "a", OPTIONS: text, "btree-index.compression": "none"}))
    assert message in str(raised.value)


def test_the_metric_of_a_vector_is_the_field_scoped_one() -> None:
    found = one({**IVF, "ivf-flat.metric": "l2"})
    assert found["ivf-flat.metric"] == "inner_product"
    found = one(
        {**IVF, "ivf-flat.nlist": "1", "fields.v.pk-vector.distance.metric": "COSINE", "fields.v.pk-vector.index.options": '{"nlist": 1}'}
    )
    assert (found["ivf-flat.metric"], found["ivf-flat.nlist"]) == ("cosine", "1")
    with pytest.raises(UsageError, match=r"conflicting values for ivf-flat\.nlist"):
        one({**IVF, "ivf-flat.nlist": "2", "fields.v.pk-vector.index.options": '{"nlist": 1}'})


def test_full_text_options_hold_nothing_else() -> None:
    found = one(
        {TEXT: "s", "full-text.tokenizer": "ngram", "x": "y", "fields.s.pk-full-text.index.options": '{"fields.x": "1", "lower": true}'}
    )
    assert found == {"full-text.tokenizer": "ngram", "full-text.fields.x": "1", "full-text.lower": "true"}


def test_sizes_and_switches() -> None:
    assert memory_size({"k": "64 kb"}, "k", 1) == 65536
    assert memory_size({}, "k", 7) == 7
    assert peer_blocks({})
    assert not peer_blocks({"maintain.bitmap-peer-blocks": "OFF"})
