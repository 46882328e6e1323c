"""Drive fetches: read until a result is there.

Codecs only say which bytes they need. Joining the fetches of all columns of a batch before
reading is what makes one request out of many; see :mod:`glaive.encodings.fetch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pyarrow as pa

from glaive.encodings.fetch import chain, join
from glaive.encodings.protocol import Fetch
from glaive.io.store import RangeReader

__all__ = ["chain", "drive", "drive_together", "join"]

T = TypeVar("T")


def drive(reader: RangeReader, step: Fetch[T] | T) -> T:
    """Read what a step asks for until it is a result."""
    while isinstance(step, Fetch):
        step = step.resume(reader.read(step.ranges))
    return step


def drive_together(steps: Iterable[tuple[RangeReader, Fetch[T] | T]]) -> list[T]:
    """Results of steps on several files.

    What a step reads is asked for before the next one is looked at, and before any goes on:
    for readers that answer at once and read behind the scenes.
    """
    begun = [(reader, step, _ask(reader, step)) for reader, step in steps]
    while any(isinstance(step, Fetch) for _, step, _ in begun):
        gone_on = (
            (reader, step.resume(buffers) if isinstance(step, Fetch) else step)
            for reader, step, buffers in begun
        )
        begun = [(reader, step, _ask(reader, step)) for reader, step in gone_on]
    return [step for _, step, _ in begun if not isinstance(step, Fetch)]


def _ask(reader: RangeReader, step: Fetch[T] | T) -> list[pa.Buffer]:
    return reader.read(step.ranges) if isinstance(step, Fetch) else []
