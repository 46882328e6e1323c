"""A bound on the requests that one store has in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

__all__ = ["Gate"]


class Gate:
    """Lets callers through while their requests together stay within ``width``.

    A caller that wants more than ``width`` is let through alone.
    """

    __slots__ = ("_free", "_room", "width")

    def __init__(self, width: int) -> None:
        self.width = self._free = max(1, width)
        self._room = Condition()

    @contextmanager
    def passing(self, requests: int) -> Iterator[None]:
        """Wait until there is room for so many requests; they are under way within."""
        wanted = min(max(1, requests), self.width)
        with self._room:
            while self._free < wanted:
                self._room.wait()
            self._free -= wanted
        try:
            yield
        finally:
            with self._room:
                self._free += wanted
                self._room.notify_all()
