"""Drive fetches: read until a result is there.

Codecs only say which bytes they need. Joining the fetches of all columns of a batch before
reading is what makes one request out of many; see :mod:`glaive.encodings.plan`.
"""

from __future__ import annotations

from typing import TypeVar

from glaive.encodings.plan import chain, join
from glaive.encodings.protocol import Fetch
from glaive.io.store import RangeReader

__all__ = ["chain", "drive", "join"]

T = TypeVar("T")


def drive(reader: RangeReader, step: Fetch[T] | T) -> T:
    """Read what a step asks for until it is a result."""
    while isinstance(step, Fetch):
        step = step.resume(reader.read(step.ranges))
    return step
