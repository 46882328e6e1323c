"""The process: its time, its random bytes, locks that survive a fork, and listeners of events.

What is written with a time or under a random name asks here, so that a simulated run
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
        """Nanoseconds since 1970 UTC."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds since any moment, never going back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


_clock = Clock()


def now_ns() -> int:
    """Nanoseconds since 1970 UTC."""
    return _clock.now_ns()


def now() -> datetime:
    """The time, UTC."""
    return datetime.fromtimestamp(_clock.now_ns() / 1e9, UTC)


def monotonic() -> float:
    """Seconds since any moment, never going back."""
    return _clock.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    _clock.sleep(seconds)


@contextmanager
def replaced_clock(clock: Clock) -> Iterator[None]:
    """Use another clock in all threads of this process, for a simulation."""
    global _clock  # noqa: PLW0603  # the one place that it is changed
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before


# --- Random names and waiting times of this process: the system's, or those of a simulation
# What is written under a random name asks here, so that a simulated run
# (``tests.kit.simulation``) is the same each time.

_draw: Callable[[int], bytes] = os.urandom


def random_bytes(count: int) -> bytes:
    """So many random bytes, which nobody can predict."""
    return _draw(count)


def new_uuid() -> UUID:
    """A random uuid, version 4."""
    return UUID(bytes=_draw(16), version=4)


def fraction() -> float:
    """A random number in [0, 1)."""
    return int.from_bytes(_draw(4), "little") / 2**32


def hash_secret() -> int:
    """An odd factor of 64 bits, as a signed number, for the hashes of one table.

    Each table keeps its own, also where it is sent to another process. Nothing that is written
    depends on it, so a simulation has it from the system, too.
    """
    return int.from_bytes(os.urandom(8), "little", signed=True) | 1


@contextmanager
def replaced_entropy(draw: Callable[[int], bytes]) -> Iterator[None]:
    """Take random bytes from ``draw`` in all threads of this process, for a simulation."""
    global _draw  # noqa: PLW0603  # the one place that it is changed
    before, _draw = _draw, draw
    try:
        yield
    finally:
        _draw = before


# --- Locks that a forked child finds free, though a thread of its parent held them ------
# A fork copies the locks, and of the threads only the one that forked: a lock that another thread
# held would be held for ever. What the locks of this library keep is whole between any two
# instructions, so that a child may take them.
#
# So may a handler of a signal, and what is done at the end of an object that is garbage: Python
# runs both in the middle of other calls, in a thread that may hold locks. These are reentrant,
# therefore. The handler may also wait for other threads, which do without a lock that only spares
# work (:func:`patiently`).
#
# A child that a function or an iterator of a user forked leaves the calls that its parent was in,
# by ``sys.exit`` or an error, and each of them cleans up then. The files are those of the parent,
# which goes on with them (:class:`Origin`).

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


# --- What happens to datasets, for those who listen: see :mod:`glaive.tracing` ----------
# Targets and fields have the names of ``lance.tracing``, because programs sort events by them.

DATASETS: Final = "lance::dataset_events"
"""A dataset is opened, written, committed, compacted, cleaned up; or loses columns."""

EXECUTION: Final = "lance::execution"
"""A scan or a search has ended, with its figures."""

FILES: Final = "lance::file_audit"
"""A file is created or deleted."""

INDICES: Final = "lance::io_events"
"""An index is opened."""

Listener = Callable[[str, dict[str, str]], None]
"""Called with a target and the fields."""

_listeners: list[Listener] = []
_thread = threading.local()


def listen(listener: Listener) -> None:
    """Call a function with each event from now on, in the thread that it happens in."""
    _listeners.append(listener)


def stop_listening() -> None:
    """No events any more for any listener."""
    _listeners.clear()


def anyone_listens() -> bool:
    """Whether there is a listener, for events whose fields take time to find out."""
    return bool(_listeners)


def emit(target: str, **fields: object) -> None:
    """Call the listeners with an event, its fields as texts. Does nothing if there are none.

    An error of a listener is logged: it is not one of the change that the event is about. What a
    listener does itself is no event: it would be called without end. Passwords and keys in URLs
    are left out.
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
            _tell(listener, target, texts)
    finally:
        _thread.listens = False


def _tell(listener: Listener, target: str, fields: dict[str, str]) -> None:
    try:
        listener(target, fields)
    except Exception:
        import logging

        logging.getLogger("glaive.process").exception("a listener of events failed")
