"""Other implementations of Paimon: pypaimon, pypaimon-rust and released Java, to write tables for us and to judge ours."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

NAMES = ("pypaimon", "pypaimon_rust", "java")
ROOT = Path(__file__).parents[2]
JAVA_PEER = ROOT / "tests" / "java-peer"


def missing(name: str) -> str | None:
    """Why a peer cannot take part; None when it can."""
    return java_missing() if name == "java" else module_missing(name)


def version(name: str) -> str:
    if name == "java":
        return f"Paimon {_java_paimon_version()} on Java {_java_major()}"
    return importlib.metadata.version(name.replace("_", "-"))


def module_missing(name: str) -> str | None:
    if importlib.util.find_spec(name):
        return None
    note = ROOT / ".venv" / "peers-missing"
    return note.read_text().strip() if note.exists() else f"{name} is not installed (extra 'peers')"


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


@functools.cache
def java_missing() -> str | None:
    """Java 17 and Maven are asked for; the first call builds the peer, and a failure to build it is a reason, too."""
    for command in ("java", "mvn"):
        if not shutil.which(command):
            return f"there is no {command} on the PATH (Java 17 and Maven are needed)"
    major = _java_major()
    if major is None or major < 17:
        return f"Java {major} is too old (17 is needed)"
    built = subprocess.run(["bash", "-c", f". {JAVA_PEER}/common.sh"], capture_output=True, text=True, timeout=900)
    if built.returncode:
        return f"the peer could not be built: {(built.stderr or built.stdout).strip().splitlines()[-1:] or 'no output'}"
    return None


@functools.cache
def _java_major() -> int | None:
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True)
    match = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    return int(match[1]) if match else None


def _java_paimon_version() -> str:
    match = re.search(r"<paimon\.version>([^<]+)<", (JAVA_PEER / "pom.xml").read_text())
    return match[1] if match else "unknown"


class Java:
    """The commands of tests/java-peer/peer.sh."""

    def run(self, *arguments: str, timeout: float = 600) -> str:
        done = subprocess.run([str(JAVA_PEER / "peer.sh"), *arguments], capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise AssertionError(f"peer.sh {' '.join(arguments)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.run(*arguments).splitlines() if line.strip()]

    def read(self, table: Path | str, snapshot: int | None = None) -> list[list[Any]]:
        """The rows that a batch reader returns, as JSON lists in schema order."""
        return self.lines("read", str(table), *([] if snapshot is None else ["--snapshot", str(snapshot)]))

    def create(self, warehouse: Path, name: str, schema: Mapping[str, Any]) -> Path:
        """A table; the schema is {"fields": [{"name", "type"}], "primaryKeys", "partitionKeys", "options"}."""
        file = warehouse / f"{name}.schema.json"
        warehouse.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(schema))
        self.run("create", str(warehouse), name, str(file))
        database, table = name.split(".")
        return warehouse / f"{database}.db" / table

    def write(self, table: Path, batches: Iterable[Iterable[tuple[str, list[Any]]]], *options: str) -> None:
        """One commit for each batch of (kind, row)."""
        file = table.parent / f"{table.name}.rows.jsonl"
        with file.open("w") as out:
            for batch in batches:
                for kind, row in batch:
                    out.write(json.dumps({"kind": kind, "row": row}) + "\n")
                out.write('{"commit": true}\n')
        self.run("write", str(table), str(file), *options)
