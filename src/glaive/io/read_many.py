"""Read whole objects into one buffer, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from glaive.io.store import ObjectStore
from glaive.named_tuple import NamedTuple

__all__ = ["JoinedObjects", "read_many"]

_ALIGNMENT = 64
_ZEROS = bytes(_ALIGNMENT)


class JoinedObjects(NamedTuple):
    """Objects in ``data``: number ``i`` has ``sizes[i]`` bytes from ``starts[i]`` on.

    Starts are multiples of 64.
    """

    data: pa.Buffer
    starts: list[int]
    sizes: list[int]


def read_many(
    store: ObjectStore, paths: Sequence[str], sizes: Sequence[int]
) -> JoinedObjects | None:
    """Read objects of known sizes in bytes, with a request for each.

    ``None`` when the size of an object differs.

    Raises
    ------
    StoreError
        An object cannot be read.
    """
    *starts, end = accumulate([size + -size % _ALIGNMENT for size in sizes], initial=0)
    data = pa.allocate_buffer(end)
    memory = memoryview(np.frombuffer(data, np.uint8))  # type: ignore[call-overload]  # a buffer
    for path, start, size in zip(paths, starts, sizes, strict=True):
        if store.get_into(path, memory[start : start + size]) != size:
            return None
        memory[start + size : start + size + -size % _ALIGNMENT] = _ZEROS[: -size % _ALIGNMENT]
    return JoinedObjects(data, starts, list(sizes))
