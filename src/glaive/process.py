"""The process: its time, its random bytes, locks that survive a fork, and listeners of events.

Code that writes a time or a random name calls these functions, so that a simulated run
(``tests.kit.simulation``) is the same each time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from threading import RLock
from typing import Any, Final, TypeVar
from uuid import UUID
from weakref import WeakSet


class Clock:
    """The clock of the system."""

    def now_ns(self) -> int:
        """Return the nanoseconds since 1970 UTC."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment; they never decrease."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


_clock = Clock()


def now_ns() -> int:
    """Return the nanoseconds since 1970 UTC."""
    return _clock.now_ns()


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.fromtimestamp(_clock.now_ns() / 1e9, UTC)


def monotonic() -> float:
    """Return the seconds since a fixed moment; they never decrease."""
    return _clock.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    _clock.sleep(seconds)


# --- Random names and waiting times of this process: the system's, or a simulation's ------
# Code that writes a random name calls these functions, so that a simulated run
# (``tests.kit.simulation``) is the same each time.

_draw: Callable[[int], bytes] = os.urandom


def random_bytes(count: int) -> bytes:
    """Return ``count`` random bytes, which nobody can predict."""
    return _draw(count)


def new_uuid() -> UUID:
    """Return a random UUID, version 4."""
    return UUID(bytes=_draw(16), version=4)


def fraction() -> float:
    """Return a random number in [0, 1)."""
    return int.from_bytes(_draw(4), "little") / 2**32


def hash_secret() -> int:
    """Return an odd, signed 64-bit factor for the hashes of one table.

    Each table keeps its factor, also when it is sent to another process. Written data is
    independent of it, so a simulation gets it from the system, too.
    """
    return int.from_bytes(os.urandom(8), "little", signed=True) | 1


# --- Locks that a forked child finds free, even if a thread of its parent held them -------
# A fork copies all locks, but only the thread that forked. So a lock that another thread held would
# be held forever. Data that the locks of this library protect is valid between any two
# instructions, so a child may take the locks.
#
# A signal handler, or a finaliser of garbage, may take the locks as well. Python runs both in the
# middle of other calls, in a thread that may hold locks. Therefore the locks are reentrant. The
# handler may also wait for other threads. These wait a second for a lock that only avoids repeated
# work (:func:`lock_with_timeout`).
#
# If a user's function or iterator forks a child, the child leaves its parent's calls by
# ``sys.exit`` or an error. Then each call cleans up in the child, too. But the files belong to the
# parent, which continues with them (:class:`Origin`).

T = TypeVar("T")

_LOCK_TIMEOUT_SECONDS: Final = 1.0
"""Seconds to wait for a lock that only avoids repeated work."""

_LOCKS: WeakSet[Any] = WeakSet()


class Origin:
    """The process that began some work: only this process may remove the files of that work."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def is_this_process(self) -> bool:
        """Whether it is this process."""
        return self._process == os.getpid()

    @staticmethod
    def leave(file: object) -> None:
        """Keep a parent's file alive in a fork, because closing it would write its buffer."""
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(file))  # also at the end of the interpreter


def fork_safe(lock: T) -> T:
    """Return the lock, which will be free in every child that is forked while a thread holds it.

    Use it for locks of objects that several calls share. Objects of a single call stay in
    the parent.
    """
    _LOCKS.add(lock)
    return lock


@contextmanager
def lock_with_timeout(lock: RLock) -> Iterator[None]:
    """Hold a lock that only avoids repeated work, or give up after a second and continue."""
    held = lock.acquire(timeout=_LOCK_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        if held:
            lock.release()


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # noqa: SLF001  # as in the standard library's own modules
    if sys.version_info < (3, 12):
        _renew_properties()


def _renew_properties() -> None:
    """Replace the locks of cached properties in Python 3.11."""
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


# --- Events of datasets, for listeners: see :mod:`glaive.tracing` -------------------------
# Targets and fields have the names of ``lance.tracing``, because programs sort events by them.

DATASETS: Final = "lance::dataset_events"
"""A dataset is opened, written, committed, compacted or cleaned up, or loses columns."""

EXECUTION: Final = "lance::execution"
"""A scan or a search has ended; the event has its figures."""

FILES: Final = "lance::file_audit"
"""A file is created or deleted."""

INDICES: Final = "lance::io_events"
"""An index is opened."""

Listener = Callable[[str, dict[str, str]], None]
"""Function of a target and the fields."""

_listeners: list[Listener] = []
_thread = threading.local()


def listen(listener: Listener) -> None:
    """Call a function with each event from now on, in the thread of the event."""
    _listeners.append(listener)


def stop_listening() -> None:
    """Remove all listeners."""
    _listeners.clear()


def anyone_listens() -> bool:
    """Return whether a listener exists, for events whose fields are expensive."""
    return bool(_listeners)


def emit(target: str, **fields: object) -> None:
    """Call all listeners with an event; its fields become strings.

    An exception of a listener is logged, because the change itself succeeded. Operations of
    listeners are skipped, as their events would go on forever. Passwords and keys in URLs are
    omitted.
    """
    if not _listeners or getattr(_thread, "listens", False):
        return
    from glaive.errors import GlaiveError

    public = GlaiveError.without_secrets
    texts = {name: public(str(value)) for name, value in fields.items() if value is not None}
    texts["timestamp"] = now().strftime("%Y-%m-%dT%H:%M:%SZ")
    _thread.listens = True
    try:
        for listener in _listeners[:]:
            _notify(listener, target, texts)
    finally:
        _thread.listens = False


def _notify(listener: Listener, target: str, fields: dict[str, str]) -> None:
    try:
        listener(target, fields)
    except Exception:
        import logging

        logging.getLogger("glaive.process").exception("a listener of events failed")
