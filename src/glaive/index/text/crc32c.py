"""CRC-32C, the checksum at the end of a token set, computed in parallel lanes.

Specification: "Token sets" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from math import isqrt

import numpy as np

from glaive.types import UInt8s, UInt32s

__all__ = ["masked_crc32c"]

_POLYNOMIAL = np.uint32(0x82F63B78)
_ONES = 0xFFFF_FFFF
_STEP_COST = 2
"""What a step of all lanes takes, as a multiple of what adding the sum of a lane takes, about."""


def _table() -> UInt32s:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (_POLYNOMIAL * (table & np.uint32(1)))
    return table


def masked_crc32c(data: UInt8s) -> int:
    """The checksum of at least four bytes, rotated and offset as it is stored."""
    table = _table()
    # The initial value goes into the first four bytes; then leading zeros change nothing.
    lanes = isqrt(_STEP_COST * len(data))
    length = -(-len(data) // lanes)
    padded = np.zeros((lanes + 32, length), np.uint8)
    content = padded[:lanes].reshape(-1)
    content = content[len(content) - len(data) :]
    content[:] = data
    content[:4] ^= 0xFF
    # The last 32 lanes: how ``length`` zero bytes change each bit, and so any sum.
    sums = np.zeros(lanes + 32, np.uint32)
    sums[lanes:] = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for column in padded.T:
        sums = table[(sums ^ column) & np.uint32(255)] ^ (sums >> np.uint32(8))
    shifted_bits = sums[lanes:].tolist()
    total = 0
    for lane_sum in sums[:lanes].tolist():
        shifted = lane_sum
        while total:
            lowest = total & -total
            shifted ^= shifted_bits[lowest.bit_length() - 1]
            total ^= lowest
        total = shifted
    total ^= _ONES
    rotated = (total >> 15) | (total << 17) & _ONES
    return (rotated + 0xA282EAD8) & _ONES
