"""A least-recently-used cache bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from threading import RLock
from typing import Generic, TypeVar

from glaive.process import fork_safe

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """Values by key, at most ``budget`` bytes in total. Safe to share between threads.

    Only values within the whole budget are kept. ``hits`` and ``misses`` count lookups.

    The lock is held only for a dictionary operation. It is atomic, because keys have built-in
    types, which are compared in C. Between two operations a signal handler or a finaliser may use
    the cache, and wait for threads that use it.
    """

    __slots__ = ("_entries", "_lock", "budget", "hits", "misses", "size")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = self.hits = self.misses = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = fork_safe(RLock())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value and mark it as just used; ``None`` if the key is missing."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        try:
            self._entries.move_to_end(key)
        except KeyError:  # it was removed meanwhile
            return entry[0]
        return entry[0]

    def get_all(self, keys: Iterable[K]) -> list[V | None]:
        """Return the values of several keys, as :meth:`get` does."""
        keys = [*keys]
        entries = [] if len(keys) < 3 else [*map(self._entries.get, keys)]
        if not entries or None in entries:
            return [self.get(key) for key in keys]
        self.hits += len(keys)
        with suppress(KeyError):  # one was removed meanwhile
            deque(map(self._entries.move_to_end, keys), 0)
        return [entry[0] for entry in entries if entry is not None]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value of ``size`` bytes. Evict other values to stay within the budget."""
        if size > self.budget:
            self._remove(key)
            return
        entry = (value, size)
        while self._entries.setdefault(key, entry) is not entry:
            self._remove(key)
        self._add(size)
        while self.size > self.budget and self._entries:
            self._evict()
        if not self._entries:  # Ctrl-C may have come between a removal and its count
            with self._lock:
                self.size = 0

    def _add(self, size: int) -> None:
        with self._lock:
            self.size += size

    def _remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._add(-entry[1])

    def _evict(self) -> None:
        with suppress(KeyError):  # another thread has removed the last one
            _, (_, size) = self._entries.popitem(last=False)
            self._add(-size)

    def get_or_load(self, key: K, load: Callable[[], tuple[V, int]]) -> V:
        """Return the value. If it is missing, load it (value and size in bytes) and keep it.

        Two threads that miss at the same time both load.
        """
        cached = self.get(key)
        if cached is not None:
            return cached
        value, size = load()
        self.put(key, value, size)
        return value

    def discard(self, is_useless: Callable[[K], bool]) -> None:
        """Remove the values of useless keys; other threads may use the cache meanwhile."""
        for key in self._entries.copy():
            if is_useless(key):
                self._remove(key)

    def clear(self) -> None:
        """Remove all values; the counters stay."""
        while self._entries:
            self._evict()
