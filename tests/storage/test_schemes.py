"""What storage options mean, and which stores are trusted to create exclusively."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from maintainer.errors import Unsupported, UsageError
from maintainer.storage import schemes


def s3fs_like(
    self: Any,
    anon: bool = False,
    endpoint_url: str | None = None,
    key: str | None = None,
    secret: str | None = None,
    token: str | None = None,
    use_ssl: bool = True,
    client_kwargs: dict[str, Any] | None = None,
    default_block_size: int | None = None,
    max_concurrency: int = 10,
    **kwargs: Any,
) -> None: ...


def typed(**options: Any) -> dict[str, Any]:
    return schemes.typed_options(options, "s3", s3fs_like)


def test_texts_of_a_command_line_get_the_types_of_the_library() -> None:
    assert typed(
        anon="true",
        use_ssl="False",
        endpoint_url="http://localhost:9000",
        client_kwargs='{"region_name": "eu-west-1", "verify": false}',
        default_block_size="8388608",
        max_concurrency="4",
    ) == {
        "anon": True,
        "use_ssl": False,
        "endpoint_url": "http://localhost:9000",
        "client_kwargs": {"region_name": "eu-west-1", "verify": False},
        "default_block_size": 8388608,
        "max_concurrency": 4,
    }


def test_credentials_stay_texts_whatever_they_look_like() -> None:
    assert typed(key="12345", secret="true", token="{}") == {"key": "12345", "secret": "true", "token": "{}"}
    assert typed(key=12345) == {"key": "12345"}, "an unquoted number of a configuration file"


def test_values_that_have_a_type_already_are_left_alone() -> None:
    given = {"anon": True, "client_kwargs": {"region_name": "x"}, "max_concurrency": 3}
    assert typed(**given) == given


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"anon": "maybe"}, "anon = 'maybe': must be true or false"),
        ({"max_concurrency": "many"}, "must be a number"),
        ({"client_kwargs": "region=x"}, "must be JSON like"),
        ({"client_kwargs": "[1]"}, "must be a JSON object"),
        ({"endpoint": "x"}, "'endpoint' is not known to s3fs: it is called endpoint_url there"),
        ({"s3.access-key": "x"}, "it is called key there"),
        ({"fs.s3a.secret.key": "x"}, "it is called secret there"),
        ({"region": "x"}, 'it is called client_kwargs={"region_name": …} there'),
        ({"endpoint_urll": "x"}, "did you mean endpoint_url"),
    ],
)
def test_what_is_wrong_with_an_option_is_said(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        typed(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize("scheme", ["memory", "sftp", "hdfs", "webhdfs", "smb", "ftp", "http", "dbfs", "cosn"])
def test_a_store_that_looks_before_it_writes_is_refused_by_name(scheme: str) -> None:
    with pytest.raises(Unsupported) as caught:
        schemes.check_trusted(scheme, f"{scheme}://x/t")
    assert f"'{scheme}'" in str(caught.value) and "publish.single-writer = true" in str(caught.value)


@pytest.mark.parametrize(("scheme", "library"), [("s3", "s3fs"), ("gs", "gcsfs"), ("abfs", "adlfs"), ("oss", "ossfs")])
def test_a_library_that_is_too_old_is_refused(scheme: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: {library: "2023.9.2"}[name])
    with pytest.raises(Unsupported) as caught:
        schemes.check_trusted(scheme, "here")
    assert f"{library} 2023.9.2" in str(caught.value) and "pip install" in str(caught.value)
    monkeypatch.setattr(metadata, "version", lambda name: {library: "2026.1.0.post1"}[name])
    assert schemes.check_trusted(scheme, "here").library == library


def test_the_extras_ask_for_the_versions_that_are_trusted() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for scheme in schemes.TRUSTED.values():
        if scheme.extra:
            assert extras[scheme.extra] == [f"{scheme.library}>={'.'.join(map(str, scheme.least_version))}"]
