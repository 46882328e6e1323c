"""Fetches put together: one after the other, or several at once.

Nothing here reads. What is at hand already is passed on without a ``Fetch`` in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from glaive.encodings.protocol import Fetch
from glaive.types import ByteRange

__all__ = ["chain", "join"]

T = TypeVar("T")
U = TypeVar("U")


def chain(step: Fetch[T] | T, then: Callable[[T], Fetch[U] | U]) -> Fetch[U] | U:
    """Go on with ``then`` once ``step`` has its result."""
    if not isinstance(step, Fetch):
        return then(step)
    resume = step.resume
    return Fetch(step.ranges, lambda buffers: chain(resume(buffers), then))


def join(steps: Sequence[Any], then: Callable[[list[Any]], Fetch[U] | U]) -> Fetch[U] | U:
    """Go on with ``then`` once all steps have results; what they need is asked for at once."""
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
