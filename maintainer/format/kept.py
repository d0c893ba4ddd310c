"""What is made of the bytes of payloads and kept for later questions: one bounded memory for all payloads, by least recent use.

Payload files never change, so what was read and decoded once stays true. Whoever keeps something says how many bytes it holds; what is too
large, or was used longest ago, is let go. Values are shared by threads and questions: nobody may change one that was kept or found here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

ENTRY = 256
"""Bytes that an entry costs beside its value."""


class Cache:
    """Values of any number of payloads, `limit` bytes of them together. For all threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._used = 0
        self._entries: OrderedDict[tuple[Hashable, Hashable], tuple[Any, int]] = OrderedDict()
        self._payloads: dict[Hashable, _Payload] = {}

    @property
    def used(self) -> int:
        """Bytes that are held."""
        return self._used

    def of(self, payload: Hashable) -> Kept:
        """What is kept of one payload."""
        return Kept(self, payload)

    def forget(self, payload: Hashable) -> None:
        """Let go of all that is kept of a payload."""
        with self._lock:
            found = self._payloads.get(payload)
            for key in () if found is None else tuple(found.keys):
                self._drop(payload, key)

    def _get(self, payload: Hashable, key: Hashable) -> Any:
        with self._lock:
            entry = self._entries.get((payload, key))
            if entry is None:
                return None
            self._entries.move_to_end((payload, key))
            self._payloads[payload].keys.move_to_end(key)
            return entry[0]

    def _put(self, payload: Hashable, key: Hashable, value: Any, size: int, most: int | None) -> None:
        if size + ENTRY > self.limit or (most is not None and size > most):
            return
        with self._lock:
            if (payload, key) in self._entries:
                self._drop(payload, key)
            while most is not None and (found := self._payloads.get(payload)) is not None and found.size + size > most:
                self._drop(payload, next(iter(found.keys)))
            while self._used + size + ENTRY > self.limit:
                self._drop(*next(iter(self._entries)))
            self._entries[payload, key] = value, size
            self._used += size + ENTRY
            found = self._payloads.setdefault(payload, _Payload(OrderedDict()))
            found.keys[key] = None
            found.size += size

    def _drop(self, payload: Hashable, key: Hashable) -> None:
        _, size = self._entries.pop((payload, key))
        self._used -= size + ENTRY
        found = self._payloads[payload]
        del found.keys[key]
        found.size -= size
        if not found.keys:
            del self._payloads[payload]


@dataclass
class _Payload:
    keys: OrderedDict[Hashable, None]
    size: int = 0


@dataclass(frozen=True)
class Kept:
    """What is kept of one payload, under keys of the reader's own; with `most`, at most so many bytes of it."""

    cache: Cache
    payload: Hashable
    most: int | None = None

    @property
    def share(self) -> int:
        """Bytes that one question should keep at most, so that others find what they kept."""
        return (self.cache.limit if self.most is None else min(self.most, self.cache.limit)) // 4

    def limited(self, most: int) -> Kept:
        """The same, where what is put in makes way for earlier things of the payload when there would be more than `most` bytes of them."""
        return Kept(self.cache, self.payload, most)

    def get(self, key: Hashable) -> Any:
        """The value, or None: it is not there, or not there any more."""
        return self.cache._get(self.payload, key)

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value that holds `size` bytes, if there is a place for it."""
        self.cache._put(self.payload, key, value, size, self.most)

    def made(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """The value; when it is not there, `make` gives it and its size in bytes."""
        found: T | None = self.get(key)
        if found is None:
            found, size = make()
            self.put(key, found, size)
        return found
