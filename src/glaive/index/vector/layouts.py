"""Layouts of the codes of a partition, and selecting rows in each.

Codes are stored row by row, with two exceptions. Product codes may be *transposed*: first byte 0
of all rows of the partition, then byte 1, and so on. Bits of RaBitQ may be *packed*: 32 rows
side by side, so that a search looks up 32 nibbles at a time.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from glaive.types import Flags, UInt8s

__all__ = [
    "packed",
    "row_major",
    "select_packed",
    "select_transposed",
    "transposed",
    "unpacked",
]

Codes = UInt8s
"""The bytes of a partition, as (rows, width) in every layout."""

BLOCK: Final = 32
_ORDER: Final = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
"""Which of the first 16 rows, and of the last 16, a byte of a block holds."""


def select_transposed(codes: Codes, kept: Flags) -> Codes:
    """Select rows of transposed codes."""
    rows, width = codes.shape
    surviving = codes.reshape(width, rows)[:, kept]
    return np.ascontiguousarray(surviving).reshape(-1, width)


def row_major(codes: Codes) -> Codes:
    """Turn transposed codes into rows."""
    rows, width = codes.shape
    return np.ascontiguousarray(codes.reshape(width, rows).T)


def transposed(codes: Codes) -> Codes:
    """Turn rows into transposed codes."""
    return np.ascontiguousarray(codes.T).reshape(codes.shape)


def select_packed(codes: Codes, kept: Flags) -> Codes:
    """Select rows of packed bits."""
    return packed(unpacked(codes)[kept])


def unpacked(codes: Codes) -> Codes:
    """Turn packed bits into rows."""
    rows, width = codes.shape
    block_rows = rows // BLOCK * BLOCK
    flat = codes.reshape(-1)
    blocks = flat[: block_rows * width].reshape(-1, width, 2, BLOCK // 2)
    # Of each byte column: low nibbles of 32 rows, then high ones; 16 bytes each.
    values = np.empty((len(blocks), BLOCK, width), np.uint8)
    low, high = blocks[:, :, 0].transpose(0, 2, 1), blocks[:, :, 1].transpose(0, 2, 1)
    values[:, _ORDER] = (low & 15) | (high & 15) << 4
    values[:, _ORDER + BLOCK // 2] = low >> 4 | high & 0xF0
    rest = flat[block_rows * width :].reshape(width, rows - block_rows).T
    return np.concatenate([values.reshape(-1, width), rest])


def packed(values: Codes) -> Codes:
    """Turn rows of bits into packed ones."""
    rows, width = values.shape
    block_rows = rows // BLOCK * BLOCK
    blocks = values[:block_rows].reshape(-1, BLOCK, width)
    first, last = blocks[:, _ORDER], blocks[:, _ORDER + BLOCK // 2]
    packed = np.empty((len(blocks), width, 2, BLOCK // 2), np.uint8)
    packed[:, :, 0] = ((first & 15) | (last & 15) << 4).transpose(0, 2, 1)
    packed[:, :, 1] = (first >> 4 | last & 0xF0).transpose(0, 2, 1)
    rest = np.ascontiguousarray(values[block_rows:].T)
    return np.concatenate([packed.reshape(-1), rest.reshape(-1)]).reshape(-1, width)
