"""Drive fetches: join several into one, and read until a result is there.

Codecs only say which bytes they need. Joining the fetches of all columns of a batch before
reading is what makes one request out of many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from glaive.encodings.protocol import Fetch
from glaive.io.store import RangeReader
from glaive.types import ByteRange

__all__ = ["chain", "drive", "join"]

T = TypeVar("T")
U = TypeVar("U")


def drive(reader: RangeReader, step: Fetch[T] | T) -> T:
    """Read what a step asks for until it is a result."""
    while isinstance(step, Fetch):
        step = step.resume(reader.read(step.ranges))
    return step


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
