"""The time and waiting of this process: those of the system, or of a simulation.

What is written with a time, expires, or waits asks here, so that a simulated run
(``tests.kit.simulation``) is the same each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

__all__ = ["Clock", "monotonic", "now", "now_ns", "replaced_clock", "sleep"]


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
