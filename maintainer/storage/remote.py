"""Every other store, through fsspec (imported only here: it costs start-up time); spec 03 §9.3.

* **Nothing is remembered.** A listing cache would answer for files of other writers: it is switched off, and every question goes to the store.
* **A question is one request.** Whether a file is there is answered by a ranged GET, which tells a missing file from a missing bucket; a HEAD
  does not, and libraries follow it by a listing.
* **Files are made by streaming** parts of `PART` bytes; small ones are a single PUT. Where the store can create conditionally, both do.
* **Which schemes are trusted to create exclusively** is in `maintainer.storage.schemes`; `prove_exclusive_create` tries it out.
* **Errors** of the libraries become ours in one place (`maintainer.storage.faults`).
"""

from __future__ import annotations

import io
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, BinaryIO, cast

from maintainer.errors import CorruptFile, MaintainerError, MissingFile, StorageError, Unsupported, UsageError
from maintainer.storage import schemes
from maintainer.storage.faults import Diagnosis, Fault, diagnose, one_line
from maintainer.storage.storage import MAKING, Entry, OutcomeUnknown, Storage, check_path

PART = 8 << 20
"""Bytes of an object in the making that are held; the parts of an upload, of which S3 takes 10,000."""
CONNECTIONS = 64
"""To S3, where the library's 10 would make what is asked at the same time wait."""
_PROMPT = 1.0
"""Seconds within which a refusal is that of the first request. One that came later may follow a time-out after which the library asked again
by itself, and the first request may be done still."""
_PROBE_DIRECTORY = "snapshot"
"""Where the rights to publish are; a name that begins with a dot is a temporary file to all readers."""

_proved: set[tuple[str, str, str]] = set()
_proving: defaultdict[tuple[str, str, str], threading.Lock] = defaultdict(threading.Lock)
"""By store: one that does not answer must not keep the others waiting."""


class RemoteStorage(Storage):
    """Files below a URI that fsspec understands. `filesystem` is a ready one to use in place of what the options describe."""

    remote = True

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None, filesystem: Any = None) -> None:
        self.root = uri.rstrip("/")
        given, separator, rest = self.root.partition(":")
        self._scheme = schemes.library_scheme(given.lower())
        self._fs, base = _open(self.root, f"{self._scheme}{separator}{rest}", self._scheme, storage_options or {}, filesystem)
        self._base = base.rstrip("/")
        self._options = repr(sorted((storage_options or {}).items(), key=lambda item: item[0]))
        self._opened_with = (uri, dict(storage_options or {}), filesystem)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteStorage, self._opened_with  # in another process; with its secrets, which are in no `repr`

    def _path(self, path: str) -> str:
        return f"{self._base}/{check_path(path)}"

    def read(self, path: str) -> bytes:
        whole = {"start": 0} if self._scheme == "s3" else {}  # without a range, s3fs of 2026 asks for the size first
        try:
            with self._errors("read", path):
                return bytes(self._fs.cat_file(self._path(path), **whole))
        except _BeyondTheEnd:  # of an empty file
            return b""

    def read_start(self, path: str, most: int) -> bytes:
        try:
            with self._errors("read", path):
                return bytes(self._fs.cat_file(self._path(path), start=0, end=most))
        except _BeyondTheEnd:  # of an empty file
            return b""

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise CorruptFile(f"a range of {length} bytes", path=self.display(path), offset=offset)
        data = b""
        if length:
            with suppress(_BeyondTheEnd), self._errors("read", path):
                data = bytes(self._fs.cat_file(self._path(path), start=offset, end=offset + length))
        if len(data) != length:
            raise CorruptFile(f"{length} bytes expected, {len(data)} found", path=self.display(path), offset=offset)
        return data

    def read_end(self, path: str, offset: int, size: int) -> bytes:
        data = self._read_spans(path, [(offset, size + 1)])[0]
        if len(data) != size - offset:
            found = f"more than {size}" if len(data) > size - offset else "fewer"
            raise CorruptFile(f"it has {found} bytes, its metadata says {size}", path=self.display(path))
        return data

    def _read_spans(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Ranges (start, end) of a file, at the same time where the library can do that; what would lie behind its end is left out."""
        try:
            with self._errors("read", path):
                if len(spans) == 1:
                    return [bytes(self._fs.cat_file(self._path(path), start=spans[0][0], end=spans[0][1]))]
                starts, ends = ([span[side] for span in spans] for side in (0, 1))
                found = self._fs.cat_ranges([self._path(path)] * len(spans), starts, ends, on_error="raise")
                return [bytes(data) for data in found]
        except _BeyondTheEnd:
            return [b""] * len(spans)

    def size(self, path: str) -> int:
        with self._errors("look at", path):
            info = self._fs.info(self._path(path))
        if info["type"] != "file":
            raise MissingFile(f"{self.display(path)}: there is no such file")
        return int(info["size"])

    def exists(self, path: str) -> bool:
        try:
            self.read_start(path, 1)
        except (MissingFile, _IsADirectory):
            return False
        return True

    def list(self, path: str) -> list[Entry]:
        directory = self._path(path) if path else self._base
        try:
            with self._errors("list", path):
                infos = [*_s3_members(self._fs, directory)] if self._scheme == "s3" else self._fs.ls(directory, detail=True)
        except FileNotFoundError:
            return []
        entries = [
            Entry(info["name"].rstrip("/").rsplit("/", 1)[-1], int(info.get("size") or 0), info["type"] == "directory", _modified_ms(info))
            for info in infos
            if info["name"].rstrip("/") != directory.rstrip("/")
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def open_input(self, path: str, size: int | None = None, known: bool = False) -> Any:
        from maintainer.storage.ranges import RangeFile, RangeInput

        exact = self.size(path) if size is None else size
        return RangeFile(RangeInput(lambda spans: self._read_spans(path, spans), exact, self.display(path), known))

    def create(self, path: str) -> BinaryIO:
        target = self._path(path)
        scheme = schemes.TRUSTED.get(self._scheme)
        exclusive = scheme is not None and scheme.opens_exclusively
        with self._errors("create", path):
            if not exclusive and self._fs.exists(target):
                raise FileExistsError(path)
            output = self._fs.open(target, "xb" if exclusive else "wb", block_size=PART)
        return cast(BinaryIO, _NewObject(self, path, output, not exclusive))

    def create_if_absent(self, path: str, data: bytes, exclusive: bool = True) -> bool:
        target = self._path(path)
        extra: Mapping[str, Any] = {}
        if exclusive:
            extra = schemes.check_trusted(self._scheme, self.display(path)).create
        elif self.exists(path):
            return False
        started = time.monotonic()
        try:
            self._fs.pipe_file(target, data, **extra)
        except MaintainerError:
            raise
        except Exception as error:
            found = diagnose(error)
            if found.fault is Fault.EXISTS:
                return False
            if found.certain and time.monotonic() - started < _PROMPT:
                raise self._error("publish", path, found) from error
            raise OutcomeUnknown(f"{self.display(path)}: cannot publish: {found}") from error
        return True

    def prove_exclusive_create(self) -> None:
        schemes.check_trusted(self._scheme, self.root)
        store = (self._scheme, self._base.partition("/")[0], self._options)
        with _proving[store]:
            if store in _proved:
                return
            path = f"{_PROBE_DIRECTORY}/.probe.{uuid.uuid4()}.tmp"
            try:
                self._prove(path)
            finally:
                with suppress(StorageError):
                    self.delete(path)
            _proved.add(store)

    def _prove(self, path: str) -> None:
        first, second = b"first", b"second"
        if not self.create_if_absent(path, first) and self.read(path) != first:  # a lost answer may look like somebody else's file
            raise StorageError(f"{self.display(path)}: cannot try out whether the store creates exclusively: the file was there already")
        if not self.create_if_absent(path, second) and self.read(path) == first:
            return
        raise Unsupported(
            f"{self.root}: this store ignores the condition to create a file only if it is absent, so two writers could publish the same "
            f"snapshot; set the table's option {schemes.SINGLE_WRITER} = true if nothing else ever commits to the table"
        )

    def replace(self, path: str, data: bytes) -> None:
        with self._errors("write", path):
            self._fs.pipe_file(self._path(path), data)

    def delete(self, path: str) -> None:
        try:
            with self._errors("delete", path):
                self._fs.rm_file(self._path(path))
        except FileNotFoundError:
            pass

    @contextmanager
    def _errors(self, doing: str, path: str) -> Iterator[None]:
        try:
            yield
        except MaintainerError:
            raise
        except Exception as error:
            raise self._error(doing, path, diagnose(error)) from error

    def _error(self, doing: str, path: str, found: Diagnosis) -> MaintainerError:
        where = self.display(path)
        match found.fault:
            case Fault.MISSING if doing not in MAKING:
                return MissingFile(f"{where}: there is no such file")
            case Fault.EXISTS:
                return StorageError(f"{where}: there is such a file already, and files are never replaced")
            case Fault.BAD_RANGE:
                return _BeyondTheEnd(f"{where}: cannot {doing}: {found}")
            case Fault.DIRECTORY:
                return _IsADirectory(f"{where}: cannot {doing}: {found}")
        return StorageError(f"{where}: cannot {doing}: {found}")


class _BeyondTheEnd(StorageError):
    """A range begins where the file ends, or later."""


class _IsADirectory(StorageError):
    """There are files below this path, and none of this name."""


class _NewObject(io.RawIOBase):
    """An object in the making, of which `PART` bytes are held. Closing it makes it appear, an exception in its `with` block prevents that."""

    def __init__(self, storage: RemoteStorage, path: str, output: Any, appears_early: bool) -> None:
        """`appears_early`: whether there is a file before this is closed."""
        self._storage = storage
        self._path = path
        self._output: Any = output
        self._appears_early = appears_early
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any, /) -> int:
        with self._storage._errors("write", self._path):
            self._output.write(data)
        self._size += len(data)
        return len(data)

    def close(self) -> None:
        if self.closed:
            return
        output, self._output = self._output, None
        super().close()
        try:
            with self._storage._errors("write", self._path):
                output.close()
        except BaseException as error:
            fault = None if error.__cause__ is None else diagnose(error.__cause__).fault
            if not (fault in (Fault.EXISTS, Fault.MISSING) and self._is_ours()):
                _discard(output)
                if fault in (Fault.TIMEOUT, Fault.BUSY, Fault.OTHER, None):  # it may have appeared
                    self._remove()
                raise

    def _is_ours(self) -> bool:
        """Whether an earlier answer was lost: names are made of uuids, so an object of this name and size is this one."""
        try:
            return self._storage.size(self._path) == self._size and self._size > 0
        except MaintainerError:
            return False

    def _remove(self) -> None:
        with suppress(MaintainerError):
            self._storage.delete(self._path)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()

    def _abandon(self) -> None:
        output, self._output = self._output, None
        super().close()
        if output is not None:
            _discard(output)
            if self._appears_early:
                self._remove()

    def __del__(self) -> None:
        with suppress(Exception):
            self._abandon()


def _discard(output: Any) -> None:
    """Makes fsspec's file forget what it holds and what it sent."""
    with suppress(Exception):
        output.discard()
    with suppress(Exception):
        output.closed = True  # or it sends what it holds when it is collected


def _open(root: str, uri: str, scheme: str, given: Mapping[str, Any], filesystem: Any) -> tuple[Any, str]:
    """The file system and the directory's path in it."""
    import fsspec

    if not uri.startswith(f"{scheme}://") or (scheme in schemes.TRUSTED and not uri.partition("://")[2].strip("/")):
        raise UsageError(f"{root}: expected a URI like {scheme}://bucket/path")
    if filesystem is not None:
        _forget_listings(filesystem)
        return filesystem, filesystem._strip_protocol(uri)
    try:
        options = schemes.typed_options(given, scheme, fsspec.get_filesystem_class(scheme).__init__)
    except ImportError as error:
        raise UsageError(f"{root}: the library for {scheme}: URIs is not installed: {schemes.install_hint(scheme)} ({error})") from error
    except ValueError as error:
        raise UsageError(f"{root}: {error}") from error
    if scheme in schemes.TRUSTED:
        options["use_listings_cache"] = False  # file systems are shared by their options
    if scheme == "s3":
        options["config_kwargs"] = {"max_pool_connections": CONNECTIONS, **(options.get("config_kwargs") or {})}
    try:
        fs, base = fsspec.core.url_to_fs(uri, **options)
    except (ImportError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{root}: cannot open: {one_line(str(error))}; check the URI and the storage options") from error
    except OSError as error:  # Arrow's says where it looked for a JVM, a hundred times
        raise StorageError(f"{root}: cannot open: {one_line(error.strerror or str(error))}") from error
    except Exception as error:
        raise StorageError(f"{root}: cannot open: {diagnose(error)}") from error
    _forget_listings(fs)
    return fs, base


def _forget_listings(filesystem: Any) -> None:
    """Listings that a file system keeps are of no use where others write."""
    cache: Any = getattr(filesystem, "dircache", None)
    if hasattr(cache, "use_listings_cache"):
        cache.use_listings_cache = False


def _s3_members(fs: Any, directory: str) -> Iterator[Mapping[str, Any]]:
    """A page of 1,000 members is a request. s3fs's own `ls` asks a second time, for the directory above, when there are none."""
    bucket, _, prefix = directory.partition("/")
    prefix = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
    more: dict[str, str] = {}
    while True:
        page = fs.call_s3("list_objects_v2", fs.req_kw, Bucket=bucket, Prefix=prefix, Delimiter="/", **more)
        for each in page.get("CommonPrefixes", ()):
            yield {"name": each["Prefix"], "type": "directory"}
        for each in page.get("Contents", ()):
            yield {"name": f"{bucket}/{each['Key']}", "type": "file", "size": each["Size"], "LastModified": each["LastModified"]}
        if not page.get("IsTruncated"):
            return
        more = {"ContinuationToken": page["NextContinuationToken"]}


def _modified_ms(info: Mapping[str, Any]) -> int:
    for key in ("LastModified", "mtime", "last_modified", "modified", "created"):
        value = info.get(key)
        if isinstance(value, int | float):
            return int(value * 1000)
        if value is not None and hasattr(value, "timestamp"):
            return int(value.timestamp() * 1000)
    return 0
