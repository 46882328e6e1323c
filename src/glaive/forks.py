"""Locks that a forked child finds free, though a thread of its parent held them.

A fork copies the locks, and of the threads only the one that forked: a lock that another thread
held would be held for ever. What the locks of this library keep is whole between any two
instructions, so that a child may take them.
"""

from __future__ import annotations

import os
import sys
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakSet

__all__ = ["renewed"]

T = TypeVar("T")

_KNOWN: WeakSet[Any] = WeakSet()


def renewed(lock: T) -> T:
    """The lock, which is free in every child that is forked while a thread holds it.

    For those of objects that several calls share; what one call makes, no child goes on with.
    """
    _KNOWN.add(lock)
    return lock


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
