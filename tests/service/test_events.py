"""What the daemon logs, line by line."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from maintainer.service.configuration import load
from maintainer.service.events import log_events


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """The logging of this process is as it was."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def configured(tmp_path: Path, text: str = "", debug: bool = False, **environment: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text or "tables: [{uri: /t}]\nlog: {format: json}")
    log_events(load(str(path), environment), debug)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_every_line_is_an_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    configured(tmp_path)
    structlog.get_logger().info("table.found", table="/t", rows=5, names=("a", "b"), nothing=None, other=Path("/x"))
    structlog.get_logger().debug("not.shown")
    logging.getLogger("library").warning("first line\nsecond %s", "line")
    logging.getLogger("library").info("not shown")
    logging.getLogger("apscheduler.scheduler").warning("not shown")
    warnings.warn("of a library", UserWarning, stacklevel=1)
    found = lines(capsys)
    assert [each["event"] for each in found] == ["table.found", "library.message", "library.message"]
    assert {key: found[0][key] for key in ("level", "rows", "names", "nothing", "other")} == {
        "level": "info",
        "rows": 5,
        "names": ["a", "b"],
        "nothing": None,
        "other": "/x",
    }
    assert str(found[0]["timestamp"]).endswith("Z")
    assert (found[1]["library"], found[1]["message"]) == ("library", "first line second line")


def test_secrets_never_appear(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = (
        "tables: [{uri: 's3://me:in-uri@b/t', storage-options: {secret: secret-of-file, nested: {password: deep-secret}, x: '${V}'}}]\n"
        "log: {format: json}"
    )
    configured(tmp_path, text, V="secret-of-variable")
    said = "s3://me:in-uri@b/t secret-of-file secret-of-variable deep-secret"
    structlog.get_logger().error("table.failed", error=said, inside={"list": [said]}, exception=ValueError(said))
    try:
        raise ValueError(said)
    except ValueError:
        structlog.get_logger().error("table.failure", exc_info=True)
    logging.getLogger("library").error(said)
    output = capsys.readouterr().err
    assert len(output.splitlines()) == 3
    assert not any(secret in output for secret in ("in-uri", "secret-of-file", "secret-of-variable", "deep-secret"))
    assert "s3://***@b/t" in output


def test_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    configured(tmp_path, "tables: [{uri: /t}]\nlog: {format: json, level: error}")
    structlog.get_logger().warning("not.shown")
    structlog.get_logger().error("shown")
    configured(tmp_path, "tables: [{uri: /t}]\nlog: {format: json, level: error}", debug=True)
    structlog.get_logger().debug("shown.too")
    assert [each["event"] for each in lines(capsys)] == ["shown", "shown.too"]


def test_work_goes_on_when_nobody_reads_the_log(tmp_path: Path):
    (tmp_path / "c.yaml").write_text("tables: [{uri: /t}]")
    program = """if True:
        import os, sys, structlog
        from maintainer.service.configuration import load
        from maintainer.service.events import log_events
        log_events(load(sys.argv[1], {}))
        reading, writing = os.pipe()
        os.dup2(writing, 2)
        os.close(reading)
        for _ in range(3):
            structlog.get_logger().info("event")
        print("done")
        sys.stdout.flush()
        os._exit(0)
    """
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "c.yaml")], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0)
