"""Released Java merges the same random records while it reads: aggregation tables of all functions, but for what 1.3.1 does in another way than
2.1 (spec 05 §5, §6): it joins blank texts, keeps nested rows that are NULL, and leaves a list of them as it is
where it meets no other."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from maintainer.data.arrow_types import to_arrow, value_schema
from maintainer.data.values import json_rows
from maintainer.format.data_type import parse
from maintainer.merge.aggregate import Verdict
from maintainer.model.types import DataField, DataType, TypeRoot
from tests.peers.readers import JAVA_ABSENT, JAVA_PEER, java
from tests.support import peers
from tests.support.campaign import share
from tests.support.folding import folded
from tests.support.merge_model import Record

pytestmark = pytest.mark.skipif(bool(JAVA_ABSENT), reason=str(JAVA_ABSENT))
SEEDS = share("aggregation tables against Java, seeds", short=2, long=60)

ROW = DataType(TypeRoot.ROW, fields=tuple(DataField(index + 50, name, parse("INT")) for index, name in enumerate("xyz")))
ROWS = DataType(TypeRoot.ARRAY, element=ROW)
NUMBERS = ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(20, 2)")
RETRACTING: list[tuple[str, DataType, Mapping[str, str]]] = [
    *((name, parse(kind), {}) for name in ("sum", "last_value", "last_non_null_value") for kind in NUMBERS),
    *((name, parse("STRING"), {"ignore-retract": "true"}) for name in ("max", "listagg", "first_value", "last_value")),
    ("collect", parse("ARRAY<INT>"), {}),
    ("merge_map", parse("MAP<STRING, INT>"), {}),
    ("nested_update", ROWS, {}),
]
ADDING: list[tuple[str, DataType, Mapping[str, str]]] = [
    *((name, parse(kind), {}) for name in ("sum", "product", "max", "min", "first_value", "first_non_null_value") for kind in NUMBERS),
    *((name, parse("STRING"), {}) for name in ("max", "min", "listagg", "first_value", "first_non_null_value")),
    *(("listagg", parse("STRING"), {"list-agg-delimiter": delimiter}) for delimiter in ("--", " ")),
    *((name, parse("BOOLEAN"), {}) for name in ("bool_and", "bool_or")),
    *((name, parse("TIMESTAMP(6)"), {}) for name in ("max", "min")),
    ("collect", parse("ARRAY<STRING>"), {"distinct": "true"}),
    ("merge_map", parse("MAP<INT, STRING>"), {}),
]


def value(random: Random, data_type: DataType) -> Any:
    if data_type.root is not TypeRoot.ROW and random.random() < 0.25:
        return None
    match data_type.root:
        case TypeRoot.TINYINT | TypeRoot.INT | TypeRoot.BIGINT:
            return random.randrange(-2, 3)
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return random.choice([0.5, -0.25, 1.5, 3.0, 1e10, -0.0])
        case TypeRoot.DECIMAL:
            return random.choice([Decimal("1.05"), Decimal("-0.33"), Decimal("99.99"), Decimal("0.00")])
        case TypeRoot.VARCHAR:
            return random.choice(["a", "b", "é", "\uffff", "\U0001f600", "zz--a", "x y"])
        case TypeRoot.BOOLEAN:
            return random.random() < 0.5
        case TypeRoot.TIMESTAMP:
            return random.randrange(10**15)
        case TypeRoot.MAP:
            keys: list[Any] = [0, 1, 2] if data_type.key is not None and data_type.key.root is TypeRoot.INT else ["a", "b", "c"]
            assert data_type.element is not None
            return [(key, value(random, data_type.element)) for key in keys if random.random() < 0.6]
        case TypeRoot.ARRAY:
            assert data_type.element is not None
            return [value(random, data_type.element) for _ in range(random.randrange(4))]
    return {field.name: random.randrange(3) for field in data_type.fields}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("columns", "kinds"), [(ADDING, ["+I", "+U"]), (RETRACTING, ["+I", "+U", "-U"])], ids=["adds", "retracts"])
def test_java_reads_what_we_merge(tmp_path: Path, seed: int, columns: Any, kinds: list[str]) -> None:
    random = Random(seed)
    peers.asked["java"] += 1
    fields = [DataField(0, "k", parse("INT NOT NULL"))]
    options = {"bucket": "1", "merge-engine": "aggregation", "write-only": "true"}
    for index, (name, data_type, more) in enumerate(columns, 1):
        fields.append(DataField(index, f"f{index}", data_type))
        options[f"fields.f{index}.aggregate-function"] = name
        options |= {f"fields.f{index}.{key}": text for key, text in more.items()}
    declared = [{"name": field.name, "type": str(field.type)} for field in fields]
    (tmp_path / "schema.json").write_text(json.dumps({"fields": declared, "primaryKeys": ["k"], "partitionKeys": [], "options": options}))
    subprocess.run([JAVA_PEER, "create", tmp_path, "db.t", tmp_path / "schema.json"], check=True, capture_output=True)

    groups: list[list[Record]] = [[] for _ in range(40)]
    lines = []
    for number in range(5):
        records = [Record(random.choice(kinds), number, (key, *(value(random, field.type) for field in fields[1:]))) for key in range(40)]
        records = [record for record in records if random.random() < 0.8]
        rows = as_json(fields, [[record.values[index] for record in records] for index in range(len(fields))])
        lines += [json.dumps({"kind": record.kind, "row": row}) for record, row in zip(records, rows, strict=True)]
        lines.append(json.dumps({"commit": True}))
        for record in records:
            groups[record.values[0]].append(record)
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    java().run("write", tmp_path / "db.db" / "t", tmp_path / "rows.jsonl", "--write-only")

    groups = [group for group in groups if len(group) > 1 or (group and group[0].kind != "-U")]
    merged = [[group[0].values[0] for group in groups]]
    for index, (name, data_type, more) in enumerate(columns, 1):
        steps = [[(verdict(record, group), record.values[index]) for record in group] for group in groups]
        merged.append(folded(name, data_type, steps, more))
    ours = as_json(fields, merged)
    theirs = java().run("read", tmp_path / "db.db" / "t")
    names = ["k", *(f"f{index} {name} {data_type}" for index, (name, data_type, _) in enumerate(columns, 1))]
    for our, their in zip(by_key(ours), by_key(theirs), strict=True):
        assert dict(zip(names, our, strict=True)) == dict(zip(names, their, strict=True))


def verdict(record: Record, group: list[Record]) -> Verdict:
    """A record that is alone is the result as it is."""
    return Verdict.REPLACE if len(group) == 1 else Verdict.RETRACT if record.kind == "-U" else Verdict.APPLY


def as_json(fields: list[DataField], columns: list[list[Any]]) -> list[list[Any]]:
    table = pa.table(
        [pa.array(column, to_arrow(field.type)) for field, column in zip(fields, columns, strict=True)], schema=value_schema(fields)
    )
    return [list(row.values()) for row in json_rows(table, fields)]


def by_key(rows: list[Any]) -> list[Any]:
    """Rows by key, the elements of lists in one order (Java's is that of its hash tables)."""
    return sorted(([sorted(part, key=json.dumps) if isinstance(part, list) else part for part in row] for row in rows), key=lambda row: row[0])
