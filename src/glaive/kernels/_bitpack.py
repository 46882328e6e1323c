"""Sizes of bit-packed blocks, and checks before they are unpacked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.types import Int64s

BLOCK = 1024


# --- Checks of the wrappers of ``glaive.kernels.bitpack``, and their errors -------------

BLOCK_BYTES_PER_BIT = BLOCK // 8
WORD_BITS = (8, 16, 32, 64)

MAX_VALUES = 1 << 56
"""Largest number of values in a page: their size in bytes fits 64 bits."""


def out_of_line_sizes(counts: Int64s, word_bits: int, width: int) -> Int64s:
    """Return the bytes of out-of-line blocks with these counts of values."""
    tails = counts & (BLOCK - 1)
    packed = (tails > 0) & (width * (BLOCK - tails) < (word_bits - width) * tails)
    blocks = (counts >> 10) + packed
    return blocks * (width * BLOCK_BYTES_PER_BIT) + np.where(packed, 0, tails * (word_bits // 8))


def check_word_bits(word_bits: int) -> None:
    if word_bits not in WORD_BITS:
        raise ValueError(f"words of {word_bits} bits; expected one of {WORD_BITS}")


def aligned(word_bits: int, *arrays: Int64s) -> tuple[Int64s, ...]:
    check_word_bits(word_bits)
    result = tuple([np.ascontiguousarray(array, np.int64) for array in arrays])
    if len(set(map(len, result))) > 1:
        raise ValueError(f"arrays of {[len(array) for array in result]} items for the same chunks")
    return result


def check_values(values: pa.Buffer, count: int, word_bits: int) -> None:
    check_word_bits(word_bits)
    if not 0 <= count * word_bits // 8 <= values.size:
        raise ValueError(f"{count} values of {word_bits} bits in a buffer of {values.size} bytes")


def total_values(counts: Int64s, limit: int, where: object) -> int:
    """Return the sum of the counts, after a check that the chunks can contain it."""
    total = int(counts.sum())
    if not 0 <= total <= limit:
        raise CorruptFileError(
            "number of values in bit-packed chunks",
            expected=f"0 to {limit}",
            found=str(total),
            where=where,
        )
    return total


def damaged_inline(
    data: pa.Buffer, start: Any, size: Any, count: Any, word_bits: int, where: object
) -> CorruptFileError:
    """Return the error for an inline chunk that a kernel has rejected."""
    word = word_bits // 8
    if not (start >= 0 and word <= size <= data.size - start and 0 <= count <= BLOCK):
        return CorruptFileError(
            "bit-packed chunk",
            expected=f"up to {BLOCK} values in at least {word} bytes, within {data.size} bytes",
            found=f"{count} values in {size} bytes at byte {start}",
            where=where,
        )
    width = int.from_bytes(data.slice(int(start), word).to_pybytes(), "little")
    if width > word_bits:
        expected, found = f"0 to {word_bits} bits", f"{width} bits"
    else:
        expected = f"{word + width * BLOCK_BYTES_PER_BIT} bytes for values of {width} bits"
        found = f"{size} bytes"
    return CorruptFileError("bit-packed chunk", expected=expected, found=found, where=where)
