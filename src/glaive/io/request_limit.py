"""A limit on the requests that one store has in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

__all__ = ["RequestLimit"]


class RequestLimit:
    """A semaphore: callers go on while their requests together stay within ``most``.

    A caller that wants more than ``most`` goes on alone.
    """

    __slots__ = ("_available", "_changed", "most")

    def __init__(self, most: int) -> None:
        self.most = self._available = max(1, most)
        self._changed = Condition()

    @contextmanager
    def taking(self, requests: int) -> Iterator[None]:
        """Wait until so many requests may begin; they are in flight within."""
        wanted = min(max(1, requests), self.most)
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
