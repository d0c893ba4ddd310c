"""Files of rows: what is wrong with one is said by file, line, column and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from maintainer.api.create import schema_of
from maintainer.api.row_files import read_rows
from maintainer.errors import UsageError

SCHEMA = schema_of("""
    CREATE TABLE t (id BIGINT, v STRING, d DECIMAL(10, 2), y BOOLEAN, l ARRAY<INT>, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('bucket' = '1', 'deletion-vectors.enabled' = 'true')
""")


def read(path: Path) -> list[dict[str, object]]:
    return [row for batch in read_rows(str(path), SCHEMA) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"id,v\n1,a\nabc,b\n", "x.csv, column 'id' of type BIGINT NOT NULL: invalid value 'abc'"),
        ("x.csv", b"id,y\n1,perhaps\n", "x.csv, column 'y' of type BOOLEAN: invalid value 'perhaps'"),
        ("x.csv", b"7;ada\n", "x.csv: the table has no column '7;ada'; its columns are id, v, d, y, l; the first line of a CSV file names"),
        ("x.csv", b"id, v\n", "x.csv: the table has no column ' v'"),
        ("x.csv", b"", "x.csv: the first line of a CSV file names the columns, and it is empty"),
        ("x.csv", b"id,v\n1,\xff\n", "x.csv, column 'v' of type STRING: invalid UTF8 data"),
        ("x.csv", b"id,l\n1,[]\n", "x.csv: a CSV field cannot hold column 'l' of type ARRAY<INT>"),
        ("x.json", b'{"id": 1}\n\n{"id": "2"}\n', """x.json, line 3, column 'id' of type BIGINT NOT NULL: expected a whole number, not "2"$"""),
        ("x.json", b'{"id": 1, "v": 5}', "x.json, line 1, column 'v' of type STRING: expected a text, not 5"),
        ("x.json", b'{"id": 1, "d": true}', "column 'd' of type DECIMAL.*: unexpected true"),
        ("x.json", b'{\n"id": 1}', "x.json, line 1: no JSON: Expecting property name.*; every line is an object of its own"),
        ("x.json", b"[" * 100_000, "x.json, line 1: no JSON"),
        ("x.json", b'[{"id": 1}]', "a row must be a JSON object, one on every line"),
        ("x.json", b'{"id": 1, "v": "\xff"}', "x.json: not a text in UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read(tmp_path / name)


def test_a_header_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbfid,v\n1,a\n2,\n")
    assert read(tmp_path / "x.csv") == [{"id": 1, "v": "a"}, {"id": 2, "v": None}]


def test_a_header_alone_is_no_rows(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"id,v\n")
    assert read(tmp_path / "x.csv") == []
