"""A limit on the requests that one store has in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

__all__ = ["RequestLimit"]


class RequestLimit:
    """A counting semaphore over requests.

    A caller that needs more than ``limit`` requests runs alone.
    """

    __slots__ = ("_available", "_changed", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = self._available = max(1, limit)
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
