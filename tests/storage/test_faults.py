"""What the exceptions of libraries mean."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from maintainer.storage.faults import Fault, diagnose


class ClientError(Exception):
    """Like botocore's."""

    def __init__(self, code: str, status: int, message: str = "words", repeated: int = 0) -> None:
        super().__init__(f"An error occurred ({code})")
        self.response = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status, "RetryAttempts": repeated},
        }


class HttpError(Exception):
    """Like gcsfs's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class HttpResponseError(Exception):
    """Like Azure's."""

    def __init__(self, error_code: str | None, status_code: int) -> None:
        super().__init__("words")
        self.error_code, self.status_code, self.message = error_code, status_code, "words"


class OssError(Exception):
    """Like oss2's."""

    def __init__(self, code: str, status: int) -> None:
        self.code, self.status, self.message = code, status, "words"


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def named(name: str, base: type[Exception] = Exception, *arguments: Any) -> Exception:
    error: Exception = type(name, (base,), {})(*arguments)
    return error


@pytest.mark.parametrize(
    ("error", "fault", "certain"),
    [
        (caused(FileNotFoundError("x"), ClientError("NoSuchKey", 404)), Fault.MISSING, False),
        (caused(FileNotFoundError("x"), ClientError("NoSuchBucket", 404)), Fault.NO_BUCKET, True),
        (caused(FileNotFoundError("x"), ClientError("404", 404)), Fault.MISSING, False),
        (FileNotFoundError("gs://x"), Fault.MISSING, False),
        (caused(FileExistsError("x"), ClientError("PreconditionFailed", 412)), Fault.EXISTS, False),
        (caused(OSError(errno.EINVAL, "x"), ClientError("PreconditionFailed", 412)), Fault.EXISTS, False),
        (caused(OSError(errno.EIO, "x"), ClientError("ConditionalRequestConflict", 409)), Fault.OTHER, False),
        (caused(OSError(errno.EINVAL, "x"), ClientError("InvalidRange", 416)), Fault.BAD_RANGE, False),
        (caused(PermissionError("x"), ClientError("AccessDenied", 403)), Fault.DENIED, True),
        (caused(PermissionError("x"), ClientError("AccessDenied", 403, repeated=1)), Fault.DENIED, False),
        (caused(PermissionError("x"), ClientError("SignatureDoesNotMatch", 403)), Fault.WRONG_CREDENTIALS, True),
        (caused(PermissionError("x"), ClientError("ExpiredToken", 400)), Fault.WRONG_CREDENTIALS, True),
        (caused(OSError(errno.EBUSY, "x"), ClientError("SlowDown", 503)), Fault.BUSY, False),
        (caused(OSError(errno.EIO, "x"), ClientError("InternalError", 500)), Fault.OTHER, False),
        (caused(OSError(errno.ENOSYS, "x"), ClientError("NotImplemented", 501)), Fault.REFUSED, True),
        (named("NoCredentialsError"), Fault.NO_CREDENTIALS, True),
        (named("EndpointConnectionError"), Fault.UNREACHABLE, False),
        (named("ReadTimeoutError"), Fault.TIMEOUT, False),
        (TimeoutError(), Fault.TIMEOUT, False),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Fault.UNREACHABLE, False),
        (OSError(errno.ENOSPC, "No space left on device"), Fault.FULL, False),
        (ValueError("Invalid endpoint"), Fault.REFUSED, True),
        (OSError("Forbidden: b/x"), Fault.DENIED, True),
        (HttpError(429, "words"), Fault.BUSY, False),
        (HttpError(401, "words"), Fault.WRONG_CREDENTIALS, True),
        (HttpResponseError("ContainerNotFound", 404), Fault.NO_BUCKET, True),
        (HttpResponseError("BlobNotFound", 404), Fault.MISSING, False),
        (HttpResponseError(None, 503), Fault.BUSY, False),
        (caused(OSError(errno.EIO, "x"), OssError("FileAlreadyExists", 409)), Fault.EXISTS, False),
        (IsADirectoryError("x"), Fault.DIRECTORY, True),
        (RuntimeError("what"), Fault.OTHER, False),
    ],
    ids=lambda value: repr(value) if isinstance(value, Exception) else None,
)
def test_faults_are_told_apart(error: Exception, fault: Fault, certain: bool) -> None:
    found = diagnose(error)
    assert (found.fault, found.certain) == (fault, certain)
    assert found.words


def test_the_words_of_the_store_and_what_to_do_are_said() -> None:
    assert str(diagnose(caused(PermissionError("x"), ClientError("AccessDenied", 403, "Access Denied")))) == (
        "Access Denied [AccessDenied] (these credentials may not do this; where listing is denied, so is a file that is not there)"
    )
    assert "RuntimeError: what" in str(diagnose(RuntimeError("what")))
    assert len(str(diagnose(OSError("x" * 10_000)))) < 400
