"""What the doctor says."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import maintainer
from tests.support.evolve import set_options
from tests.support.java_cases import java_case
from tests.support.tables import append, make_table


def said(table: maintainer.Table) -> dict[str, str]:
    return {finding.what: finding.severity for finding in table.doctor().findings}


def test_a_table_in_good_shape_needs_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, 0, 10)
    table.maintain()
    found = table.doctor()
    assert found.fit
    assert found.findings == ()


@pytest.mark.parametrize(
    ("options", "what", "severity"),
    [
        ({"write-only": None}, "write-only = false", "warning"),
        ({"write-only": "false"}, "write-only = false", "warning"),
        ({"write-only": None}, "writers of Java Paimon 1.x", "warning"),
        ({"deletion-vectors.bitmap64": "true"}, "deletion-vectors.bitmap64 = true", "warning"),
        ({"snapshot.time-retained": "10 s"}, "snapshot.time-retained = 10 s", "warning"),
        ({"pk-btree.index.columns": None, "pk-bitmap.index.columns": None}, "no index", "info"),
    ],
)
def test_options_that_deserve_a_word(options: Mapping[str, str | None], what: str, severity: str, tmp_path: Path) -> None:
    table = make_table(tmp_path, options)
    assert said(table)[what] == severity
    assert table.doctor().fit


def test_rows_that_nobody_sees_are_mentioned(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert said(table) == {"no snapshot": "info"}
    append(table, 0, 10)
    assert said(table) == {"level 0": "info"}
    table.maintain()
    set_options(table.store.uri, **{"pk-btree.index.columns": "id"})
    assert said(table) == {"coverage": "info"}


@pytest.mark.parametrize(
    ("name", "what"), [("me_agg", "merge-engine = aggregation"), ("append_only", "no primary key"), ("types_orc", "file.format = orc")]
)
def test_a_table_outside_of_the_scope_is_not_fit(name: str, what: str) -> None:
    found = maintainer.open_table(str(java_case(name).directory)).doctor()
    assert not found.fit
    assert what in {finding.what for finding in found.findings if finding.severity == "error"}
    assert all(finding.why and finding.do for finding in found.findings)


def test_files_that_no_pass_could_read_are_an_error(tmp_path: Path) -> None:
    """The option may have been corrected since they were written."""
    directory = tmp_path / "t"
    shutil.copytree(java_case("nested_orc").directory, directory)
    set_options(str(directory), **{"file.format": "parquet"})
    found = maintainer.open_table(str(directory)).doctor()
    assert not found.fit
    assert any("'orc'" in finding.why for finding in found.findings if finding.what == "data files")


def test_writers_that_leave_compaction_to_us_need_no_word(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"write-only": "true"})
    assert said(table) == {"no snapshot": "info"}


def test_a_broken_definition_is_an_error_of_its_own(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    set_options(table.store.uri, **{"pk-btree.index.columns": "nothing"})
    found = table.doctor()
    assert not found.fit
    assert any("must reference an existing column" in finding.why for finding in found.findings)
