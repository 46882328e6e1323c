"""Run fetches: read what they need until a result is there.

Codecs only say which bytes they need. Joining the fetches of all columns of a batch before
reading is what makes one request out of many; see :mod:`glaive.encodings.fetch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pyarrow as pa

from glaive.encodings.fetch import Fetch, and_then, join
from glaive.io.store import RangeReader

__all__ = ["and_then", "join", "run_fetch", "run_fetches"]

T = TypeVar("T")


def run_fetch(reader: RangeReader, step: Fetch[T] | T) -> T:
    """Read what a step needs until it is a result."""
    while isinstance(step, Fetch):
        step = step.resume(reader.read(step.ranges))
    return step


def run_fetches(steps: Iterable[tuple[RangeReader, Fetch[T] | T]]) -> list[T]:
    """Results of steps on several files.

    All steps request their bytes before any of them resumes: for readers that answer at once
    and read in the background.
    """
    pending = [(reader, step, _request(reader, step)) for reader, step in steps]
    while any(isinstance(step, Fetch) for _, step, _ in pending):
        resumed = (
            (reader, step.resume(buffers) if isinstance(step, Fetch) else step)
            for reader, step, buffers in pending
        )
        pending = [(reader, step, _request(reader, step)) for reader, step in resumed]
    return [step for _, step, _ in pending if not isinstance(step, Fetch)]


def _request(reader: RangeReader, step: Fetch[T] | T) -> list[pa.Buffer]:
    return reader.read(step.ranges) if isinstance(step, Fetch) else []
