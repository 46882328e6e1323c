"""Locks that a forked child finds free, though a thread of its parent held them.

A fork copies the locks, and of the threads only the one that forked: a lock that another thread
held would be held for ever. What the locks of this library keep is whole between any two
instructions, so that a child may take them.

So may a handler of a signal, and what is done at the end of an object that is garbage: Python runs
both in the middle of other calls, in a thread that may hold locks. These are reentrant, therefore.
The handler may also wait for other threads, which do without a lock that only spares work
(:func:`patiently`).

A child that a function or an iterator of a user forked leaves the calls that its parent was in, by
``sys.exit`` or an error, and each of them cleans up then. The files are those of the parent, which
goes on with them (:class:`Origin`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import RLock
from typing import Any, Final, TypeVar
from weakref import WeakSet

__all__ = ["Origin", "patiently", "renewed"]

T = TypeVar("T")

_PATIENCE: Final = 1.0
"""Seconds to wait for a lock that only spares work."""

_KNOWN: WeakSet[Any] = WeakSet()


class Origin:
    """The process that began something: a fork of it removes nothing of what was written for it."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it is this process."""
        return self._process == os.getpid()

    @staticmethod
    def leave(file: object) -> None:
        """Never end a file of the parent, in a fork: its end would write what waits in it."""
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(file))  # also when the interpreter ends


def renewed(lock: T) -> T:
    """The lock, which is free in every child that is forked while a thread holds it.

    For those of objects that several calls share; what one call makes, no child goes on with.
    """
    _KNOWN.add(lock)
    return lock


@contextmanager
def patiently(lock: RLock) -> Iterator[None]:
    """Hold a lock so that work is not done twice; after a second, go on without it."""
    held = lock.acquire(timeout=_PATIENCE)
    try:
        yield
    finally:
        if held:
            lock.release()


def _after_fork() -> None:
    for lock in list(_KNOWN):
        lock._at_fork_reinit()  # noqa: SLF001  # as in the standard library's own modules
    if sys.version_info < (3, 12):
        _renew_properties()


def _renew_properties() -> None:
    """Replace the locks of cached properties, which Python 3.12 no longer has."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("glaive"):
            continue
        classes = [one for one in vars(module).values() if isinstance(one, type)]
        for one in classes:
            for member in list(vars(one).values()):
                if type(member) is cached_property:
                    member.lock = RLock()  # type: ignore[attr-defined]  # not in the stubs


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
