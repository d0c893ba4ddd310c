"""The stores that are reached through fsspec: their libraries, and what their options mean (spec 03 §9.3).

Publication needs a create that fails when the file exists. fsspec calls it `pipe_file(…, mode="create")`, but what that does differs: most
libraries look whether the file exists and then write, and some ignore `mode`. Trusted are those that let the store decide:

| scheme          | library ≥     | what it sends for a conditional create                                                                   |
| s3, s3a, s3n    | s3fs 2025.7   | `If-None-Match: *`; 2024.12 does in `pipe_file`, but not for small files that are opened with "xb"       |
| gs, gcs         | gcsfs 2024.12 | `ifGenerationMatch=0`                                                                                    |
| abfs, abfss, az | adlfs 2024.12 | `overwrite=False`, for which the SDK sends `If-None-Match: *`                                            |
| oss             | ossfs 2023.12 | nothing of its own; it hands on the header `x-oss-forbid-overwrite: true`                                |

That a library sends the condition does not say that the store heeds it: an old botocore drops a parameter that it does not know, many stores
that speak S3 ignore the header, OSS does where versioning is on. So it is tried out once per process, too. Not trusted, for they look first and
write then: memory, sftp, hdfs and what else Arrow wraps, webdav, smb, ftp, and every library that is not named here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from maintainer.errors import Unsupported, UsageError

SINGLE_WRITER = "publish.single-writer"


@dataclass(frozen=True)
class Scheme:
    """A scheme of URIs."""

    library: str
    """The distribution that provides it."""
    least_version: tuple[int, ...]
    extra: str
    """What to install of this package to have it; empty: there is no such extra."""
    create: Mapping[str, Any] = field(default_factory=lambda: {"mode": "create"})
    """What `pipe_file` is called with to create a file only if it is absent."""
    opens_exclusively: bool = True
    """Whether the same holds for files that are opened with "xb"."""


_S3 = Scheme("s3fs", (2025, 7), "s3")
_GCS = Scheme("gcsfs", (2024, 12), "gcs")
_AZURE = Scheme("adlfs", (2024, 12), "azure")
_OSS = Scheme("ossfs", (2023, 12), "", {"headers": {"x-oss-forbid-overwrite": "true"}}, opens_exclusively=False)
TRUSTED: Mapping[str, Scheme] = {
    "s3": _S3,
    **dict.fromkeys(("gs", "gcs"), _GCS),
    **dict.fromkeys(("abfs", "abfss", "az"), _AZURE),
    "oss": _OSS,
}
"""By scheme, as its library knows it, the libraries that create conditionally."""

_SAME = {"s3a": "s3", "s3n": "s3"}
"""Names that Hadoop gave to later clients of the same store."""
_OF_FSSPEC = ("use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache", "profile")
"""Options of all file systems, and the one that s3fs hands on to the SDK."""
_NUMBERS = frozenset({"default_block_size", "max_concurrency", "listings_expiry_time", "max_paths", "timeout", "port", "requests_timeout"})
_TEXTS = frozenset({"key", "secret", "token", "username", "password", "account_key", "sas_token", "client_secret"})
"""Options that are texts whatever they look like."""
_HADOOP = {
    "endpoint": "endpoint_url",
    "access-key": "key",
    "access.key": "key",
    "secret-key": "secret",
    "secret.key": "secret",
    "session.token": "token",
    "region": 'client_kwargs={"region_name": …}',
}


def library_scheme(scheme: str) -> str:
    """The scheme as fsspec's library knows it."""
    return _SAME.get(scheme, scheme)


def install_hint(scheme: str) -> str:
    """What to install for a scheme whose library is missing."""
    known = TRUSTED.get(scheme)
    if known is None:
        return "install the fsspec library of this scheme"
    return f"pip install 'paimon-maintainer[{known.extra}]'" if known.extra else f"pip install {known.library}"


def check_trusted(scheme: str, where: str) -> Scheme:
    """The scheme's way to create conditionally; `Unsupported` names the store and says what to do."""
    known = TRUSTED.get(scheme)
    do = f"set the table's option {SINGLE_WRITER} = true if nothing else ever commits to the table"
    if known is None:
        raise Unsupported(
            f"{where}: stores of kind {scheme!r} cannot be written safely: their library looks whether a file exists and then writes, so two "
            f"writers could publish the same snapshot; {do}"
        )
    version = _version(known.library)
    if version < known.least_version:
        least, found = (".".join(map(str, numbers)) for numbers in (known.least_version, version))
        raise Unsupported(
            f"{where}: {known.library} {found} cannot create a file only if it is absent, {least} can: {install_hint(scheme)} --upgrade; "
            f"or {do}"
        )
    return known


def _version(library: str) -> tuple[int, ...]:
    from importlib import metadata

    try:
        text = metadata.version(library)
    except metadata.PackageNotFoundError:  # vendored, or a file system that was handed in
        return (9999,)
    numbers = []
    for part in text.split(".")[:3]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def typed_options(options: Mapping[str, Any], scheme: str, constructor: Callable[..., Any]) -> dict[str, Any]:
    """Storage options as the library wants them: what came as text (from a command line) gets the type that the library's parameter has.

    Raises `UsageError` for a text that does not have this type, and for options that an S3 library does not know.
    """
    parameters = inspect.signature(constructor).parameters
    typed = {}
    for name, value in options.items():
        if scheme == "s3" and name not in parameters and name not in _OF_FSSPEC:
            raise UsageError(f"storage option {name!r} is not known to {TRUSTED[scheme].library}{_meant(name, [*parameters, *_OF_FSSPEC])}")
        default = parameters[name].default if name in parameters else None
        try:
            typed[name] = _typed(name, value, default)
        except ValueError as error:
            raise UsageError(f"storage option {name} = {value!r}: {error}") from None
    return typed


def _typed(name: str, value: Any, default: Any) -> Any:
    if name in _TEXTS and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # an unquoted number in a configuration file
    if not isinstance(value, str) or name in _TEXTS:
        return value
    text = value.strip()
    if isinstance(default, bool) or (default is None and text.lower() in ("true", "false")):
        if text.lower() not in ("true", "false"):
            raise ValueError("must be true or false")
        return text.lower() == "true"
    if name in _NUMBERS or isinstance(default, int | float):
        try:
            return int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError:
            raise ValueError("must be a number") from None
    if name.endswith("_kwargs"):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f'must be JSON like {{"region_name": "eu-west-1"}}: {error}') from None
        if not isinstance(value, dict):
            raise ValueError('must be a JSON object like {"region_name": "eu-west-1"}')
        return value
    if text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"is no JSON: {error}") from None
    return None if default is None and text == "null" else value


def _meant(name: str, known: list[str]) -> str:
    for ending, meant in _HADOOP.items():
        if name.endswith(ending):
            return f": it is called {meant} there"
    close = get_close_matches(name, known, n=1)
    return f": did you mean {close[0]}?" if close else ""
