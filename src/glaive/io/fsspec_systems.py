"""A file system of fsspec for each thread: several of them, or processes, must not share one.

Some have one connection, or one open file: of two that use it at once, one reads what the other
asked for. So fsspec itself makes one for each thread and each process. Those that make requests in
the background (``async_impl``) serve all threads of a process, if those below them do as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import copy
from threading import get_ident
from typing import Any, TypeVar

from glaive.io.fsspec_chain import chain_of
from glaive.io.retry import is_transient

__all__ = ["Systems"]

T = TypeVar("T")


class Systems:
    """Equal file systems, opened when they are needed."""

    __slots__ = ("_first", "_opened", "_serves_all")

    def __init__(self, first: Any) -> None:
        self._first = first
        self._serves_all = all(one.async_impl for one in chain_of(first))
        self._opened: dict[tuple[int, int], Any] = (
            {} if self._is_shared() else {self._user(): first}
        )

    def mine(self) -> Any:
        """The one of this thread; errors are those of fsspec."""
        user = self._user()
        if user not in self._opened:
            self._opened[user] = self._another()
        return self._opened[user]

    def using(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, which uses the one of this thread.

        Where its connection has ended, as servers do after some minutes, this thread gets another
        one when it needs it next.
        """
        try:
            return work()
        except Exception as error:
            if is_transient(error) and not self._serves_all:
                self._opened.pop(self._user(), None)
                self._forget()
            raise

    def _forget(self) -> None:
        """Have fsspec make others: it would give the same ones."""
        for one in chain_of(self._first):
            forget = getattr(one, "clear_instance_cache", None)
            if forget is not None:  # others are of Arrow
                forget()

    def _another(self) -> Any:
        first = self._first
        if not self._is_shared():
            return copy(first)
        options = {**first.storage_options, "skip_instance_cache": True}
        return type(first)(*first.storage_args, **options)

    def _is_shared(self) -> bool:
        """Whether all threads have it from fsspec, which does not look at what is below it."""
        return self._first.async_impl and not self._serves_all

    def _user(self) -> tuple[int, int]:
        return os.getpid(), 0 if self._serves_all else get_ident()
