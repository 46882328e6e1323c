"""A file system of fsspec for each thread: several of them, or processes, must not share one.

Some have one connection, or one open file: of two that use it at once, one reads what the other
asked for. So fsspec itself makes one for each thread and each process. Those that make requests in
the background (``async_impl``) serve all threads of a process.
"""

from __future__ import annotations

import os
from copy import copy
from threading import get_ident
from typing import Any

__all__ = ["Systems"]


class Systems:
    """Equal file systems, opened when they are needed."""

    __slots__ = ("_first", "_opened")

    def __init__(self, first: Any) -> None:
        self._first = first
        self._opened = {self._user(): first}

    def mine(self) -> Any:
        """The one of this thread; errors are those of fsspec."""
        user = self._user()
        if user not in self._opened:
            self._opened[user] = copy(self._first)
        return self._opened[user]

    def _user(self) -> tuple[int, int]:
        return os.getpid(), 0 if self._first.async_impl else get_ident()
