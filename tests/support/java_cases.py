"""The tables that Java wrote (tests/fixtures/java): unpacked once per process, with what their metadata says."""

from __future__ import annotations

import atexit
import json
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from maintainer.format import manifest, schema_json
from maintainer.model.files import FileKind, ManifestEntry
from maintainer.model.schema import TableSchema
from maintainer.storage.layout import Layout
from maintainer.storage.storage import Storage

CASES = Path(__file__).parents[1] / "fixtures" / "java"


@dataclass(eq=False)
class JavaCase:
    """One case: its JSON, and its table directory (not to be written to)."""

    name: str
    directory: Path

    @cached_property
    def json(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((CASES / f"{self.name}.json").read_text("utf-8"))
        return loaded

    @cached_property
    def storage(self) -> Storage:
        return Storage.open(str(self.directory))

    @cached_property
    def schemas(self) -> dict[int, TableSchema]:
        found = [schema_json.decode(path.read_bytes()) for path in (self.directory / "schema").glob("schema-*")]
        return {schema.id: schema for schema in found}

    @property
    def latest_schema(self) -> TableSchema:
        return self.schemas[max(self.schemas)]

    @cached_property
    def data_files(self) -> dict[str, ManifestEntry]:
        """The entry of every data file that any manifest adds, by name, if the file is still there."""
        entries: dict[str, ManifestEntry] = {}
        for path in sorted((self.directory / "manifest").glob("manifest-*")):
            if not path.name.startswith("manifest-list-"):
                found = (entry for entry in manifest.decode(path.read_bytes()) if entry.kind is FileKind.ADD)
                entries |= {entry.file.file_name: entry for entry in found if (self.directory / self.path(entry)).exists()}
        return entries

    def path(self, entry: ManifestEntry) -> str:
        """Of a data file, relative to the table."""
        return Layout.of(self.latest_schema).data_file_path(entry.partition, entry.bucket, entry.file)


@lru_cache
def java_case(name: str, after: bool = False) -> JavaCase:
    """The table of a case; `after`: as Java's compaction left it."""
    directory = Path(tempfile.mkdtemp(prefix="java-case-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with tarfile.open(CASES / f"{name}{'.after' if after else ''}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return JavaCase(name, directory / name)


def has_after(name: str) -> bool:
    """Whether the case is one of compaction, so that its latest snapshot is in the archive `after`."""
    return (CASES / f"{name}.after.tar.gz").exists()
