"""A limit on the requests that one store has in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from glaive.forks import renewed

__all__ = ["RequestLimit"]


class RequestLimit:
    """A counting semaphore over requests.

    A caller that needs more than ``limit`` requests runs alone.
    """

    __slots__ = ("__weakref__", "_available", "_changed", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = self._available = max(1, limit)
        self._changed = Condition()
        renewed(self)

    def _at_fork_reinit(self) -> None:
        """In a forked child, no request of the parent is in flight."""
        self._available = self.limit
        self._changed = Condition()

    @contextmanager
    def acquire(self, requests: int) -> Iterator[None]:
        """Wait until so many requests may begin; they may be in flight inside the block."""
        wanted = min(max(1, requests), self.limit)
        with self._changed:
            while self._available < wanted:
                self._changed.wait()
            self._available -= wanted
        try:
            yield
        finally:
            with self._changed:
                self._available += wanted
                self._changed.notify_all()
