"""CRC-32C, the checksum at the end of a token set, computed in parallel lanes.

Specification: "Token sets" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.types import UInt8s, UInt32s

__all__ = ["masked_crc32c"]

_POLYNOMIAL = np.uint32(0x82F63B78)
_ONES = 0xFFFF_FFFF
_LANES = 1024


def _table() -> UInt32s:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (_POLYNOMIAL * (table & np.uint32(1)))
    return table


def masked_crc32c(data: UInt8s) -> int:
    """The checksum of at least four bytes, rotated and offset as it is stored."""
    table = _table()
    # The initial value goes into the first four bytes; then leading zeros change nothing.
    lanes = min(_LANES, len(data))
    length = -(-len(data) // lanes)
    padded = np.zeros(lanes * length, np.uint8)
    padded[len(padded) - len(data) :] = data
    padded[len(padded) - len(data) :][:4] ^= 0xFF
    columns = padded.reshape(lanes, length)
    sums = np.zeros(lanes, np.uint32)
    for at in range(length):
        sums = table[(sums ^ columns[:, at]) & np.uint32(255)] ^ (sums >> np.uint32(8))
    # How ``length`` zero bytes change each bit, and so any sum.
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(length):
        bits = table[bits & np.uint32(255)] ^ (bits >> np.uint32(8))
    shifted_bits = [int(bit) for bit in bits]
    total = 0
    for lane_sum in sums.tolist():
        shifted = 0
        for bit in range(32):
            if total >> bit & 1:
                shifted ^= shifted_bits[bit]
        total = shifted ^ lane_sum
    total ^= _ONES
    rotated = (total >> 15) | (total << 17) & _ONES
    return (rotated + 0xA282EAD8) & _ONES
