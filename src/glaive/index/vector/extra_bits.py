"""Bits of RaBitQ beside the signs: codes of 1 to 8 bits, in blocks of 64 dimensions.

Specification: "RaBitQ" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.types import UInt8s

__all__ = ["blocked_width", "to_blocked"]

_BLOCK = 64


def blocked_width(dimension: int, bits: int) -> int:
    """Bytes of the codes of a vector."""
    return -(-dimension // _BLOCK) * bits * 8


def to_blocked(codes: UInt8s, bits: int) -> UInt8s:
    """Lay out codes of ``bits`` bits, one byte each, as they are stored.

    Parameters
    ----------
    codes
        Of shape ``(n, dimension)``.
    bits
        From 1 to 8.
    """
    count, dimension = codes.shape
    blocks = -(-dimension // _BLOCK)
    padded = np.zeros((count, blocks * _BLOCK), np.uint8)
    padded[:, :dimension] = codes
    laid_out = _block(padded.reshape(-1, _BLOCK), bits)
    return laid_out.reshape(count, blocks * bits * 8)


def _block(codes: UInt8s, bits: int) -> UInt8s:
    """Codes of 64 dimensions."""
    if bits == 1:
        return np.packbits(codes, axis=1, bitorder="little")
    if bits == 8:
        return codes
    if bits % 2:
        top = np.uint8(bits - 1)
        low = codes & np.uint8((1 << (bits - 1)) - 1)
        planes = _halves(low) if bits == 5 else _block(low, bits - 1)
        return np.concatenate([planes, _top_plane(codes >> top)], axis=1)
    parts = codes.reshape(-1, 4, 16)
    if bits == 2:
        return _merged(parts[:, 0], parts[:, 1], parts[:, 2], parts[:, 3], step=2)
    if bits == 4:
        return _merged(parts[:, :, :8], parts[:, :, 8:], step=4).reshape(len(codes), _BLOCK // 2)
    last = parts[:, 3]
    tops = [last >> np.uint8(2 * k) & np.uint8(3) for k in range(3)]
    return np.concatenate([_merged(parts[:, k], top, step=6) for k, top in enumerate(tops)], axis=1)


def _halves(codes: UInt8s) -> UInt8s:
    """Four bits of dimensions 16 apart in a byte."""
    parts = codes.reshape(-1, 2, 2, 16)
    return _merged(parts[:, :, 0], parts[:, :, 1], step=4).reshape(len(codes), _BLOCK // 2)


def _merged(*codes: UInt8s, step: int) -> UInt8s:
    """Codes side by side in a byte, the first in the lowest bits."""
    merged = codes[0].copy()
    for at, more in enumerate(codes[1:], 1):
        merged |= more << np.uint8(at * step)
    return merged


def _top_plane(bits: UInt8s) -> UInt8s:
    """One bit of each dimension: byte ``b`` has those of dimensions 16 k + b and 16 k + 8 + b."""
    parts = bits.reshape(-1, 8, 8)
    shifted = parts << np.arange(8, dtype=np.uint8)[:, None]
    plane: UInt8s = np.bitwise_or.reduce(shifted, axis=1)
    return plane
