"""Replace the clock and the random bytes of this process, in all its threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from glaive import process


@contextmanager
def replaced_clock(clock: process.Clock) -> Iterator[None]:
    """Use another clock."""
    before, process._clock = process._clock, clock  # noqa: SLF001  # what is replaced
    try:
        yield
    finally:
        process._clock = before  # noqa: SLF001  # same


@contextmanager
def replaced_entropy(draw: Callable[[int], bytes]) -> Iterator[None]:
    """Take random bytes from ``draw``."""
    before, process._draw = process._draw, draw  # noqa: SLF001  # what is replaced
    try:
        yield
    finally:
        process._draw = before  # noqa: SLF001  # same
