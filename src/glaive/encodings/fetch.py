"""Fetches: the bytes that are needed next, one after the other or several at once.

Nothing here reads. A result that is ready is passed on without a ``Fetch`` in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.types import ByteRange

__all__ = ["Fetch", "and_then", "join"]

T = TypeVar("T")
U = TypeVar("U")


@dataclass(slots=True)
class Fetch(Generic[T]):
    """Bytes that are needed next, and what to do with them.

    ``resume`` takes the buffers in the order of ``ranges`` and returns the result or a
    further ``Fetch``. Pure: it may be called on any thread.
    """

    ranges: Sequence[ByteRange]
    resume: Callable[[list[pa.Buffer]], Fetch[T] | T]


def and_then(step: Fetch[T] | T, then: Callable[[T], Fetch[U] | U]) -> Fetch[U] | U:
    """Call ``then`` with the result of ``step``, once it is there."""
    if not isinstance(step, Fetch):
        return then(step)
    resume = step.resume
    return Fetch(step.ranges, lambda buffers: and_then(resume(buffers), then))


def join(steps: Sequence[Any], then: Callable[[list[Any]], Fetch[U] | U]) -> Fetch[U] | U:
    """Call ``then`` with the results of all steps; what they need is requested at once."""
    waiting = [at for at, step in enumerate(steps) if isinstance(step, Fetch)]
    if not waiting:
        return then(list(steps))
    ranges: list[ByteRange] = []
    for at in waiting:
        ranges.extend(steps[at].ranges)

    def resume(buffers: list[pa.Buffer]) -> Fetch[U] | U:
        after = list(steps)
        first = 0
        for at in waiting:
            count = len(steps[at].ranges)
            after[at] = steps[at].resume(buffers[first : first + count])
            first += count
        return join(after, then)

    return Fetch(ranges, resume)
