"""Varints: seven bits a byte, lowest first, the upper bit set on all but the last byte (LEB128).

Specification: "Numbers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from glaive.types import Int64s, UInt8s

__all__ = ["MAX_VARINT", "decode_varints", "encode_varints"]

MAX_VARINT: Final = 5
"""Bytes of the largest varint of 32 bits."""


def decode_varints(data: UInt8s) -> tuple[Int64s, Int64s] | None:
    """All integers and where each ends; ``None`` if the last is cut off or one is too long."""
    last = np.flatnonzero(data < 128)
    ends = last + 1
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    if (len(ends) and int(ends[-1]) != len(data)) or (not len(ends) and len(data)):
        return None
    sizes = ends - starts
    if len(sizes) and sizes.max() > MAX_VARINT:
        return None
    values = np.zeros(len(ends), np.int64)
    for at in range(int(sizes.max(initial=0))):
        more = sizes > at
        values[more] |= (data[starts[more] + at].astype(np.int64) & 127) << (7 * at)
    return values, ends


def encode_varints(values: Int64s) -> tuple[UInt8s, Int64s]:
    """The bytes of all integers, one after the other, and how many each has."""
    sizes = np.ones(len(values), np.int64)
    for at in range(1, MAX_VARINT):
        sizes += values >= np.int64(1) << (7 * at)
    starts = np.cumsum(sizes) - sizes
    data = np.zeros(int(sizes.sum()), np.uint8)
    for at in range(int(sizes.max(initial=0))):
        more = sizes > at
        goes_on = (sizes[more] > at + 1).astype(np.int64) << 7
        data[starts[more] + at] = ((values[more] >> (7 * at)) & 127) | goes_on
    return data, sizes
