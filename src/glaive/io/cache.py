"""A least-recently-used cache bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Generic, TypeVar

from glaive.forks import renewed

__all__ = ["ByteCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """Values by key, at most ``budget`` bytes of them. Safe to share between threads.

    A value larger than the whole budget is not kept. ``hits`` and ``misses`` count lookups.
    """

    __slots__ = ("_entries", "_lock", "budget", "hits", "misses", "size")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = self.hits = self.misses = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = renewed(Lock())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value and mark it as just used; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.misses += 1
                return None
            self.hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def get_all(self, keys: Iterable[K]) -> list[V | None]:
        """The values of several keys, as :meth:`get` returns them, with one lock for all."""
        entries, used = self._entries, self._entries.move_to_end
        found: list[V | None] = []
        misses = 0
        with self._lock:
            for key in keys:
                entry = entries.get(key)
                if entry is None:
                    misses += 1
                    found.append(None)
                else:
                    used(key)
                    found.append(entry[0])
            self.misses += misses
            self.hits += len(found) - misses
        return found

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value of ``size`` bytes, evicting others to stay within the budget."""
        with self._lock:
            before = self._entries.pop(key, None)
            if before is not None:
                self.size -= before[1]
            if size > self.budget:
                return
            self._entries[key] = (value, size)
            self.size += size
            while self.size > self.budget:
                _, (_, dropped) = self._entries.popitem(last=False)
                self.size -= dropped

    def get_or_load(self, key: K, load: Callable[[], tuple[V, int]]) -> V:
        """Return the value, else load it (value and size in bytes) and keep it.

        Two threads that miss at the same time both load; neither waits for the other.
        """
        cached = self.get(key)
        if cached is not None:
            return cached
        value, size = load()
        self.put(key, value, size)
        return value

    def discard(self, is_useless: Callable[[K], bool]) -> None:
        """Remove the values of keys that nobody will ask for; other threads are not held up."""
        with self._lock:
            keys = list(self._entries)
        useless = [key for key in keys if is_useless(key)]
        with self._lock:
            for key in useless:
                entry = self._entries.pop(key, None)
                if entry is not None:
                    self.size -= entry[1]

    def clear(self) -> None:
        """Remove all values; the counters stay."""
        with self._lock:
            self._entries.clear()
            self.size = 0
