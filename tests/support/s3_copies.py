"""Directories copied into a bucket and back, with many requests at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def upload(filesystem: Any, directory: Path, uri: str) -> None:
    filesystem.pipe({f"{uri}/{file.relative_to(directory)}": file.read_bytes() for file in directory.rglob("*") if file.is_file()})


def download(filesystem: Any, uri: str, directory: Path) -> None:
    """What is there now, without the empty objects that some make for directories."""
    prefix = filesystem._strip_protocol(uri)
    names = [name for name in filesystem.find(prefix) if not name.endswith("/")]
    for name, data in filesystem.cat(names, on_error="raise").items():
        file = directory / name.removeprefix(f"{prefix}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
