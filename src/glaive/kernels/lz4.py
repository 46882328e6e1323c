"""Measure blocks of LZ4: Arrow does not say how many bytes it made of one.

It takes some blocks for longer than they are; the bytes behind theirs have what was in this memory
before.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from glaive.kernels._addresses import address
from glaive.kernels._bounds import check_within
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import lz4 as compiled
from glaive.memory import as_array
from glaive.types import Int64s, UInt8s

__all__ = ["exercise", "lz4_sizes"]

_FULL: Final = 15
_SHORTEST: Final = 4


def lz4_sizes(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, limits: Int64s, where: object
) -> Int64s:
    """What ``data[starts[i] : starts[i] + sizes[i]]`` decompresses to, for every i, in bytes.

    -1 for what is no block, and for blocks of more than ``limits[i]`` bytes.

    Raises
    ------
    CorruptFileError
        A range leaves ``data``.
    """
    check_within("blocks of LZ4", starts, sizes, data.size, where)
    starts, sizes, limits = (
        np.ascontiguousarray(numbers, np.int64) for numbers in (starts, sizes, limits)
    )
    found = np.full(min(map(len, (starts, sizes, limits))), -1, np.int64)
    if not use_compiled(int(sizes.sum())):
        content = as_array(data)
        for at, (start, size, limit) in enumerate(
            zip(starts.tolist(), sizes.tolist(), limits.tolist(), strict=False)
        ):
            found[at] = _size_of(content[start : start + size], limit)
        return found
    compiled.measure(
        address(data), address(starts), address(sizes), address(limits), len(found),
        address(found),
    )  # fmt: skip
    return found


def _size_of(block: UInt8s, limit: int) -> int:
    """The size of one block: a step for each sequence."""
    data, at, made = block.tobytes(), 0, 0
    try:
        while True:
            token, at = data[at], at + 1
            count, at = _length(token >> 4, data, at)
            at, made = at + count, made + count
            if at > len(data) or made > limit:
                return -1
            if at == len(data):
                return made
            back, at = data[at] | data[at + 1] << 8, at + 2
            if not 0 < back <= made:
                return -1
            count, at = _length(token & _FULL, data, at)
            made += count + _SHORTEST
            if made > limit:
                return -1
    except IndexError:
        return -1


def _length(count: int, data: bytes, at: int) -> tuple[int, int]:
    """A length, of which a token has the first 4 bits, and the place behind it."""
    if count == _FULL:
        while (byte := data[at]) == 255:
            count, at = count + byte, at + 1
        count, at = count + byte, at + 1
    return count, at


def exercise() -> None:
    """Call every wrapper once with little data."""
    one = np.ones(1, np.int64)
    lz4_sizes(pa.py_buffer(b"\x10a"), 0 * one, 2 * one, one, "")
