"""A file of a remote store, read in few requests (DESIGN §5 rule 5: bounded).

A request takes as long as reading a few megabytes, so what is read and how is decided here, and not by a library's read-ahead:

* The size is known from the metadata. A first request takes the end of the file, with one byte more than there should be: it brings the footer,
  and proves the size. A file of at most `WHOLE` bytes is read by it altogether. Whoever has kept the footer of an earlier time needs no such
  request (`known`).
* A caller that knows what it will read says so (`prefetch`): ranges with small gaps are joined, fetched at the same time, and held until the
  next call.
* Anything else is read as it is asked for.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from maintainer.errors import CorruptFile

WHOLE = 1 << 20
"""A file up to this size is one request."""
_TAIL = 64 << 10
"""As much as Arrow reads to find a footer."""
_GAP = 128 << 10
"""Bytes that are read in vain to save a request."""

Span = tuple[int, int]
"""Start and end of a range."""


class RangeInput(io.RawIOBase):
    """A seekable file of a known size. Not for several threads at once."""

    def __init__(self, fetch: Callable[[Sequence[Span]], list[bytes]], size: int, where: str, known: bool = False) -> None:
        self._fetch = fetch
        self._size = size
        self._where = where
        self._position = 0
        self._end: bytes | None = None
        self._held: list[tuple[int, bytes]] = []
        if not known:
            self._tail()

    def _tail(self) -> tuple[int, bytes]:
        """Where the end of the file begins, and what it is."""
        start = 0 if self._size <= WHOLE else self._size - _TAIL
        if self._end is None:
            end = self._fetch([(start, self._size + 1)])[0]
            if len(end) != self._size - start:
                found = f"more than {self._size}" if len(end) > self._size - start else "fewer"
                raise CorruptFile(f"it has {found} bytes, its metadata says {self._size}", path=self._where)
            self._end = end
        return start, self._end

    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, length: int | None = -1, /) -> bytes:
        end = self._size if length is None or length < 0 else min(self._position + length, self._size)
        data = self._between(self._position, end) if end > self._position else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def prefetch(self, spans: Sequence[Span]) -> None:
        """Holds these ranges instead of the earlier ones."""
        self._held = []
        tail = self._size if self._end is None else self._tail()[0]
        joined = join((start, min(end, tail)) for start, end in spans if 0 <= start < tail)
        if joined:
            found = self._fetch(joined)
            self._held = [(start, data) for (start, _), data in zip(joined, found, strict=True)]
            for (start, end), data in zip(joined, found, strict=True):
                self._check(start, end, data)

    def _between(self, start: int, end: int) -> bytes:
        for held, data in self._held:
            if held <= start and end <= held + len(data):
                return data[start - held : end - held]
        first, tail = self._tail()
        if start >= first:
            return tail[start - first : end - first]
        if end > first:
            return self._between(start, first) + tail[: end - first]
        data = self._fetch([(start, end)])[0]
        self._check(start, end, data)
        return data

    def _check(self, start: int, end: int, data: bytes) -> None:
        if len(data) != end - start:
            raise CorruptFile(f"{end - start} bytes expected, {len(data)} found", path=self._where, offset=start)


class RangeFile(pa.PythonFile):  # type: ignore[misc]
    """The same for Arrow."""

    def __init__(self, ranges: RangeInput) -> None:
        super().__init__()  # Arrow takes `ranges` when it makes the object
        self.prefetch = ranges.prefetch


def join(spans: Iterable[Span]) -> list[Span]:
    """The ranges in order, those that are close to one another as one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start - joined[-1][1] <= _GAP:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > start:
            joined.append((start, end))
    return joined
