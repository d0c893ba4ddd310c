"""Payloads that Java wrote: their content, our bytes for the same content, and Java's own answers to predicates (tests/fixtures/java)."""

from __future__ import annotations

import base64
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from maintainer.data.values import to_arrow_array
from maintainer.format import key_bytes, schema_json
from maintainer.index import family
from maintainer.index.definition import MAINTAINED, FamilyName, IndexDefinition, definitions
from maintainer.index.payload import Move, Rows
from maintainer.model.predicate import Leaf
from maintainer.model.schema import TableSchema
from maintainer.model.types import FLOATS
from tests.support import golden
from tests.support.sorted_index import build, content, definition, open_payload

CASES = [
    "idx_added_later", "idx_bitmap_blocks", "idx_bitmap_types", "idx_btree_blocks", "idx_btree_types", "idx_full_compaction", "idx_levels",
    "idx_multivalue", "idx_multivalue_empty", "idx_partial", "idx_partial_update", "idx_partitioned", "idx_stale", "async_index",
    "data_file_names", "de_global_index", "hy_basic", "index_in_data_dir", "inline_compaction", "schema_evolution",
]  # fmt: skip
WITHOUT_PREDICATES = {"hy_basic"}


@cache
def _archive(name: str) -> dict[str, bytes]:
    """All files of an archive by their path in the table."""
    path = golden.find(name)
    assert path is not None, f"{name} is missing"
    with tarfile.open(path) as tar:
        return {m.name.split("/", 1)[1]: tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]


def _files(case: Mapping[str, Any]) -> dict[str, bytes]:
    return {path: data for name in case["archives"].values() for path, data in _archive(name).items()}


def _groups(case: Mapping[str, Any]) -> Iterator[tuple[TableSchema, IndexDefinition, Mapping[str, Any], bytes]]:
    """Each payload of a maintained family with the definition that it was built by."""
    files = _files(case)
    by_name = {path.rpartition("/")[2]: data for path, data in files.items()}
    schemas = {s.id: s for path, data in files.items() if path.startswith("schema/schema-") for s in (schema_json.decode(data),)}
    seen = set()
    for snapshot in case["snapshots"]:
        for group in snapshot.get("indexGroups", ()):
            if group["type"] not in MAINTAINED or group["file"] in seen:
                continue
            seen.add(group["file"])
            data = by_name[group["file"]]
            if "level" not in group:  # over row ids: no option of the table names it
                schema = schemas[snapshot["schemaId"]]
                column, name = schema.field(group["field"]), group["type"]
                yield schema, IndexDefinition(column.name, column.id, name, FamilyName(name), {}, column.type), group, data
                continue
            for schema in (schemas[snapshot["schemaId"]], *schemas.values()):
                found = [d for d in definitions(schema) if d.identity == (group["type"], group["fieldId"])]
                if found:
                    yield schema, found[0], group, data
                    break


def _case(name: str) -> dict[str, Any]:
    case = golden.case(name)
    assert case is not None, f"case {name} is missing"
    return case


@pytest.mark.parametrize("name", CASES)
def test_content_of_java_payloads_is_read_and_rewritten_identically(name: str) -> None:
    groups = list(_groups(_case(name)))
    assert groups
    for _, index, group, data in groups:
        meta = base64.b64decode(group["indexMeta"])
        reader = open_payload(data, index, meta, group["rowCount"])
        key_type = index.data_type.element or index.data_type
        expected = [(golden.value_of(key, key_type), ids) for key, ids in group["content"]["entries"]]
        in_order = True
        found = {}
        for key, ids in reader.entries():
            found[key] = sorted(ids)
            in_order &= found[key] == list(ids)  # Java 2.0 leaves the ordinals of one key in any order
        assert found == {key_bytes.encode(key, key_type): ids for key, ids in expected}
        assert reader.verify() == []
        for op, ids in (("isnull", "nulls"), ("notnull", "notNulls")):
            answer = reader.evaluate(Leaf(op, index.column))
            assert (None if answer is None else list(answer)) == group["content"].get(ids)

        values = _values(group, index)
        options = {**index.options, "maintain.bitmap-peer-blocks": "off"}
        own = IndexDefinition(index.column, index.field_id, index.index_type, index.family, options, index.data_type)
        built = build(own, values)
        assert (built.index_meta, built.row_count) == (meta, group["rowCount"])
        if in_order and options.get(f"{index.family}-index.compression", "none") != "lz4":
            assert content(built) == data


def _values(group: Mapping[str, Any], index: IndexDefinition) -> list[Any]:
    """Values that give what Java found in a payload."""
    key_type = index.data_type.element or index.data_type
    values: list[Any] = [None] * group["rowCount"]
    for key, ids in group["content"]["entries"]:
        value = golden.value_of(key, key_type)
        for ordinal in ids:
            values[ordinal] = value if key_type is index.data_type else [*(values[ordinal] or ()), value]
    return values


@pytest.mark.parametrize("name", CASES)
def test_rows_are_taken_over_from_java_payloads(name: str) -> None:
    """As if the first half of the rows were of a file that is gone, and others had come before and behind the rest."""
    for _, index, group, data in _groups(_case(name)):
        module: Any = family.family(index.family)
        values = _values(group, index)
        gone = len(values) // 2
        reader = open_payload(data, index, base64.b64decode(group["indexMeta"]), len(values))
        carried = module.carry(reader, [Move(gone, 1, len(values) - gone)])
        assert carried is not None
        now = [values[0], *values[gone:], values[-1]]
        rows = [Rows(ordinal, to_arrow_array([now[ordinal]], index.data_type)) for ordinal in (0, len(now) - 1)]
        found = bytearray()
        built = module.build(rows, index, len(now), found.extend, carried=carried)
        expected = build(index, now)
        assert (bytes(found), built.index_meta, built.row_count) == (content(expected), expected.index_meta, len(now))


@pytest.mark.parametrize("name", [name for name in CASES if name not in WITHOUT_PREDICATES])
def test_predicates_are_answered_as_by_java(name: str) -> None:
    case = _case(name)
    payloads = {group["file"]: (index, group, data) for _, index, group, data in _groups(case)}
    schema = next(schema for schema, *_ in _groups(case))
    answered = 0
    for question in case["predicates"]:
        tree = question["predicate"]
        for answer in question.get("groups") or ():
            if answer["file"] not in payloads:
                continue
            index, group, data = payloads[answer["file"]]
            leaf = golden.predicate_of(tree, schema)
            assert isinstance(leaf, Leaf)
            found = open_payload(data, index, base64.b64decode(group["indexMeta"]), group["rowCount"]).evaluate(leaf)
            if answer["ordinals"] is None:
                assert found is None, leaf
            elif index.data_type.root in FLOATS and 0.0 in leaf.literals:
                assert set(answer["ordinals"]) <= set(found), leaf  # both zeros are looked up
            else:
                assert list(found) == answer["ordinals"], leaf
            answered += 1
    assert answered


def _pk_java() -> dict[str, bytes]:
    if not golden.PK_JAVA.exists():
        pytest.skip(f"{golden.PK_JAVA.name} is not here (public test data that is not kept in this repository)")
    with tarfile.open(golden.PK_JAVA) as tar:
        return {m.name.split("/", 1)[1]: tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]


def test_payloads_of_the_golden_table_are_read_and_rewritten_identically() -> None:
    files = _pk_java()
    prefix = "default.db/test_pk_global_index_golden/index/"
    payloads = {path: data for path, data in files.items() if path.startswith(prefix)}
    found = {}
    for data in payloads.values():
        name = "btree" if data[-4:] == bytes.fromhex("49544250") else "bitmap"
        index = definition(name, "STRING")
        values = ["name-1", "name-2", "name-3", "name-4"] if name == "btree" else ["odd", "even", "odd", "even"]
        built = build(index, values)
        assert content(built) == data
        reader = open_payload(data, index, built.index_meta, 4)
        found[name] = {key.decode(): list(ids) for key, ids in reader.entries()}
        assert reader.verify() == []
    assert found == {"btree": {"name-1": [0], "name-2": [1], "name-3": [2], "name-4": [3]}, "bitmap": {"even": [1, 3], "odd": [0, 2]}}


def test_case_list_names_every_case_with_maintained_payloads() -> None:
    place = Path(golden.find("README.md") or "").parent
    with_payloads = set()
    for path in place.glob("*.json"):
        text = path.read_text()
        if '"indexGroups"' in text and any(f'"type": "{name}"' in text or f'"type":"{name}"' in text for name in MAINTAINED):
            with_payloads.add(path.stem)
    assert with_payloads == set(CASES)
