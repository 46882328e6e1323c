"""Whole objects read into one piece of memory, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore

__all__ = ["Together", "join_objects", "read_together"]

_ALIGNMENT = 64
_ZEROS = bytes(_ALIGNMENT)


class Together(NamedTuple):
    """Objects in ``data``: number ``i`` has ``sizes[i]`` bytes from ``starts[i]`` on.

    Each begins at a multiple of 64 bytes.
    """

    data: pa.Buffer
    starts: list[int]
    sizes: list[int]


def read_together(
    store: ObjectStore, paths: Sequence[str], sizes: Sequence[int]
) -> Together | None:
    """Read objects of known sizes. A request for each.

    ``None`` when an object has another size.

    Raises
    ------
    StoreError
        An object cannot be read.
    """
    if not isinstance(store, LocalStore):
        found = [store.get(path) for path in paths]
        return join_objects(found) if [one.size for one in found] == list(sizes) else None
    together = _room(sizes)
    memory = memoryview(np.frombuffer(together.data, np.uint8))  # type: ignore[call-overload]  # a buffer
    for path, start, size in zip(paths, together.starts, sizes, strict=True):
        if store.get_into(path, memory[start : start + size]) != size:
            return None
        memory[start + size : start + size + -size % _ALIGNMENT] = _ZEROS[: -size % _ALIGNMENT]
    return together


def join_objects(objects: Sequence[pa.Buffer]) -> Together:
    """The same of what is in memory already."""
    sizes = [one.size for one in objects]
    pieces: list[pa.Buffer | bytes] = []
    for one, size in zip(objects, sizes, strict=True):
        pieces += (one, _ZEROS[: -size % _ALIGNMENT])
    return Together(pa.py_buffer(b"".join(pieces)), _starts(sizes)[0], sizes)


def _starts(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each begins, and where all end."""
    ends = list(accumulate([size + -size % _ALIGNMENT for size in sizes], initial=0))
    return ends[:-1], ends[-1]


def _room(sizes: Sequence[int]) -> Together:
    starts, size = _starts(sizes)
    return Together(pa.allocate_buffer(size), starts, list(sizes))
