"""What a store's library means by an exception (spec 03 §9.3). Pure; knows the libraries by what their errors carry, not by importing them.

fsspec's libraries raise `OSError`s of their own making, the errors of their SDK (botocore, azure, google, oss2), those of aiohttp, or time-outs
of fsspec itself, and which one it is differs from version to version. What the store itself answered is somewhere in the chain of causes.

A request that may have been sent more than once (all SDKs repeat requests by themselves) may have happened although its last answer says no:
`certain` is whether a fault excludes that.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from maintainer.errors import MaintainerError


class Fault(Enum):
    """The kinds of faults that callers tell apart."""

    MISSING = "missing"
    EXISTS = "exists"
    BAD_RANGE = "bad range"
    DIRECTORY = "directory"
    NO_CREDENTIALS = "no credentials"
    WRONG_CREDENTIALS = "wrong credentials"
    DENIED = "denied"
    NO_BUCKET = "no bucket"
    UNREACHABLE = "unreachable"
    TIMEOUT = "time-out"
    BUSY = "busy"
    FULL = "full"
    REFUSED = "refused"
    OTHER = "other"


_ADVICE: Mapping[Fault, str] = {
    Fault.DIRECTORY: "a directory stands in its place",
    Fault.NO_CREDENTIALS: "give them as storage options (key and secret of S3; anon=true for a public bucket) or in the environment",
    Fault.WRONG_CREDENTIALS: "check the credentials (key, secret and token of S3), the region, and the clock of this machine",
    Fault.DENIED: "these credentials may not do this; where listing is denied, so is a file that is not there",
    Fault.NO_BUCKET: "there is no such bucket; check its name, the endpoint and the region",
    Fault.UNREACHABLE: "check the endpoint (storage option endpoint_url) and the network",
    Fault.TIMEOUT: "the store did not answer in time; try again",
    Fault.BUSY: "the store asks for fewer requests; try again later",
    Fault.FULL: "make room in the store",
    Fault.REFUSED: "check the URI and the storage options",
}


@dataclass(frozen=True)
class Diagnosis:
    """A fault, the store's or library's own words for it, and whether the request was certainly not carried out."""

    fault: Fault
    words: str
    certain: bool = False

    def __str__(self) -> str:
        advice = _ADVICE.get(self.fault)
        return f"{self.words} ({advice})" if advice else self.words


_CODES: Mapping[str, Fault] = {
    **dict.fromkeys(("NoSuchKey", "NoSuchVersion", "BlobNotFound", "PathNotFound"), Fault.MISSING),
    **dict.fromkeys(("NoSuchBucket", "ContainerNotFound", "FilesystemNotFound", "ContainerBeingDeleted"), Fault.NO_BUCKET),
    **dict.fromkeys(("PreconditionFailed", "FileAlreadyExists", "BlobAlreadyExists", "ConditionNotMet"), Fault.EXISTS),
    **dict.fromkeys(("InvalidRange",), Fault.BAD_RANGE),
    **dict.fromkeys(
        ("AccessDenied", "AllAccessDisabled", "AccountProblem", "AuthorizationPermissionMismatch", "AuthorizationFailure"), Fault.DENIED
    ),
    **dict.fromkeys(
        (
            *("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidSecurity", "TokenRefreshRequired"),
            *("AuthorizationHeaderMalformed", "RequestTimeTooSkewed", "InvalidClientTokenId", "AuthenticationFailed", "RequestExpired"),
        ),
        Fault.WRONG_CREDENTIALS,
    ),
    **dict.fromkeys(("RequestTimeout", "OperationTimedOut"), Fault.TIMEOUT),
    **dict.fromkeys(("SlowDown", "ServiceUnavailable", "ServerBusy", "Throttling", "ThrottlingException", "TooManyRequests"), Fault.BUSY),
    **dict.fromkeys(("QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity", "InsufficientAccountPermissions"), Fault.FULL),
    **dict.fromkeys(
        ("NotImplemented", "InvalidBucketName", "PermanentRedirect", "IllegalLocationConstraintException", "KeyTooLongError", "InvalidRequest"),
        Fault.REFUSED,
    ),
}
_STATUS: Mapping[int, Fault] = {
    401: Fault.WRONG_CREDENTIALS,
    403: Fault.DENIED,
    404: Fault.MISSING,
    408: Fault.TIMEOUT,
    412: Fault.EXISTS,
    416: Fault.BAD_RANGE,
    429: Fault.BUSY,
    501: Fault.REFUSED,
    503: Fault.BUSY,
    507: Fault.FULL,
}
_CLASSES: Mapping[str, Fault] = {
    **dict.fromkeys(
        ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound", "DefaultCredentialsError"),
        Fault.NO_CREDENTIALS,
    ),
    **dict.fromkeys(("TokenRetrievalError", "UnauthorizedSSOTokenError", "SSOTokenLoadError", "RefreshError"), Fault.WRONG_CREDENTIALS),
    **dict.fromkeys(
        (
            "ConnectTimeoutError",
            "ReadTimeoutError",
            "FSTimeoutError",
            "ServerTimeoutError",
            "ConnectionTimeoutError",
            "TimeoutError",
            "ReadTimeout",
        ),
        Fault.TIMEOUT,
    ),
    **dict.fromkeys(
        (
            *("EndpointConnectionError", "ClientConnectorError", "ConnectionClosedError", "ServerDisconnectedError", "ClientConnectorDNSError"),
            *("ConnectionError", "gaierror", "ServiceRequestError", "HTTPClientError", "ProxyError", "SSLError", "ClientOSError"),
        ),
        Fault.UNREACHABLE,
    ),
    **dict.fromkeys(
        ("ParamValidationError", "UnknownServiceError", "NoRegionError", "InvalidEndpointDiscoveryConfigurationError"), Fault.REFUSED
    ),
}
_CERTAIN = frozenset({Fault.NO_CREDENTIALS, Fault.WRONG_CREDENTIALS, Fault.DENIED, Fault.NO_BUCKET, Fault.REFUSED, Fault.DIRECTORY})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def diagnose(error: BaseException) -> Diagnosis:
    """What an exception of a store's library says."""
    chain = list(_chain(error))
    for cause in chain:
        answer = _answer(cause)
        if answer is not None:
            code, status, words, repeated = answer
            fault = _CODES.get(code) or _STATUS.get(status) or (_STATUS.get(int(code)) if code.isdigit() else None) or Fault.OTHER
            text = f"{words} [{code or status}]" if words else str(code or status)
            return Diagnosis(fault, one_line(text), fault in _CERTAIN and not repeated)
    for cause in chain:
        fault_of_class = _of_class(cause)
        if fault_of_class is not None:
            return Diagnosis(fault_of_class, one_line(str(cause) or type(cause).__name__), fault_of_class in _CERTAIN)
    words = str(error) or type(error).__name__
    return Diagnosis(Fault.OTHER, one_line(words if isinstance(error, OSError) else f"{type(error).__name__}: {words}"))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what led to it within the library; an error of ours was handled when the request was made, and says nothing about it."""
    for _ in range(10):
        if error is None or isinstance(error, MaintainerError):
            return
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _answer(error: BaseException) -> tuple[str, int, str, bool] | None:
    """Code, HTTP status, words, and whether the request was repeated, of an error that carries an answer of the store."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping) and isinstance(response.get("Error"), Mapping):  # botocore
        told, meta = response["Error"], response.get("ResponseMetadata") or {}
        words = str(told.get("Message") or "")
        return str(told.get("Code") or ""), int(meta.get("HTTPStatusCode") or 0), words, bool(meta.get("RetryAttempts"))
    code: Any = getattr(error, "error_code", None) or getattr(error, "code", None)  # azure, then google and oss2
    status: Any = getattr(error, "status_code", None) or getattr(error, "status", None)
    if isinstance(code, int):
        code, status = "", status or code
    if not isinstance(status, int) and code is None:
        return None
    number = status if isinstance(status, int) else 0
    if not number and str(getattr(code, "value", code)) not in _CODES:
        return None
    return str(getattr(code, "value", code) or ""), number, str(getattr(error, "message", "") or error), False


def _of_class(error: BaseException) -> Fault | None:
    names = {each.__name__ for each in type(error).__mro__}
    if isinstance(error, OSError) and error.errno in _FULL:
        return Fault.FULL
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Fault.MISSING
    if isinstance(error, FileExistsError):
        return Fault.EXISTS
    if isinstance(error, IsADirectoryError):
        return Fault.DIRECTORY
    if isinstance(error, PermissionError) or str(error).startswith("Forbidden:"):  # gcsfs
        return Fault.DENIED
    if isinstance(error, TypeError | ValueError | KeyError) and not isinstance(error, UnicodeError):
        return Fault.REFUSED
    return next((fault for name, fault in _CLASSES.items() if name in names), None)


def one_line(text: str) -> str:
    """What a library says in many lines, or at length."""
    return " ".join(text.split())[:250]
