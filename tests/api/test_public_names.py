"""The public surface is a list, and it is the one that DESIGN §5 promises."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import maintainer
from maintainer.api.table import Table

NAMES = {
    "CommitConflict", "CommitStateUnknown", "CorruptFile", "CorruptTable", "KeyCache", "MaintainerError", "MissingFile", "NotATable",
    "Resources", "ScanSplit", "Spill", "StorageError", "Table", "Unsupported", "UsageError", "build_payload", "build_sorted",
    "changes", "col", "create_table", "open_table",
}  # fmt: skip
METHODS = {
    "alter": ["changes", "set", "unset"],
    "scan": ["where", "columns", "order_by", "limit", "snapshot_id", "tag", "as_of", "use_index", "memory", "spill"],
    "read_split": ["split", "columns", "where", "memory", "spill"],
    "coverage": [],
    "writer": [],
    "files": [],
    "snapshots": [],
    "verify": ["deep"],
    "maintain": [
        "full",
        "partitions",
        "index_only",
        "columns",
        "force",
        "rewrite_append",
        "repeat",
        "memory",
        "progress",
        "on_event",
        "commit_interval",
        "stop",
        "spill",
        "cache",
        "rewrite_append_bytes",
    ],
    "expire": ["retain_max", "retain_min", "time_retained", "max_expires", "dry_run", "keep_from", "progress"],
    "wait_for_coverage": ["ratio", "snapshot", "definition", "timeout"],
}


def test_the_package_exports_exactly_these_names() -> None:
    assert set(maintainer.__all__) == NAMES
    assert set(dir(maintainer)) >= NAMES
    for name in NAMES:
        assert getattr(maintainer, name).__name__.rpartition(".")[2] == name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(maintainer, "nothing")


def test_parameters_keep_their_names() -> None:
    for name, parameters in METHODS.items():
        assert list(inspect.signature(getattr(Table, name)).parameters)[1:] == parameters
    assert list(inspect.signature(maintainer.open_table).parameters) == [
        "uri_or_name", "warehouse", "catalog", "storage_options", "branch", "options"
    ]  # fmt: skip
    assert list(inspect.signature(maintainer.create_table).parameters)[:2] == ["uri", "schema"]
    assert "full" in inspect.signature(Table.maintain).parameters


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys, maintainer; print(sorted(name for name in sys.modules if name.startswith(('maintainer', 'pyarrow', 'numpy'))))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "['maintainer']"


def test_a_program_that_uses_the_library_gets_no_logs_on_stdout(tmp_path: Path) -> None:
    code = (
        "import maintainer, pyarrow as pa\n"
        f'table = maintainer.create_table({str(tmp_path / "t")!r}, "CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED) '
        "WITH ('bucket' = '1', 'deletion-vectors.enabled' = 'true')\")\n"
        "with table.writer() as writer: writer.write(pa.table({'id': [1]}))\n"
        "print(table.maintain().outcome)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (shown.stdout, shown.stderr) == ("committed\n", "")
