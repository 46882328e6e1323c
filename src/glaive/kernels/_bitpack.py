"""Sizes of bit-packed blocks, and checks before they are unpacked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import outside
from glaive.types import Flags, Int64s, allocate

BLOCK = 1024


def tail_is_packed(tails: Int64s, word_bits: int, width: int) -> Flags:
    """Return whether the last, partial block of each count is packed (otherwise raw words)."""
    return (tails > 0) & (width * (BLOCK - tails) < (word_bits - width) * tails)


# --- Checks of the wrappers of ``glaive.kernels.bitpack``, and their errors -------------

BLOCK_BYTES_PER_BIT = BLOCK // 8
WORD_BITS = (8, 16, 32, 64)

MAX_VALUES = 1 << 56
"""Largest number of values in a page: their size in bytes fits 64 bits."""


def out_of_line_sizes(counts: Int64s, word_bits: int, width: int) -> Int64s:
    """Return the bytes of out-of-line blocks with these counts of values."""
    tails = counts & (BLOCK - 1)
    packed = tail_is_packed(tails, word_bits, width)
    blocks = (counts >> 10) + packed
    return blocks * (width * BLOCK_BYTES_PER_BIT) + np.where(packed, 0, tails * (word_bits // 8))


def check_word_bits(word_bits: int) -> None:
    if word_bits not in WORD_BITS:
        raise ValueError(f"words of {word_bits} bits; expected one of {WORD_BITS}")


def aligned(word_bits: int, *arrays: Int64s) -> tuple[Int64s, ...]:
    check_word_bits(word_bits)
    result = tuple(np.ascontiguousarray(array, np.int64) for array in arrays)
    if any(len(array) != len(result[0]) for array in result):
        raise ValueError(f"arrays of {[len(array) for array in result]} items for the same chunks")
    return result


def check_values(values: pa.Buffer, count: int, word_bits: int) -> None:
    check_word_bits(word_bits)
    if not 0 <= count * word_bits // 8 <= values.size:
        raise ValueError(f"{count} values of {word_bits} bits in a buffer of {values.size} bytes")


def target_of(out: pa.Buffer | None, offset: int, size: int) -> pa.Buffer:
    if out is None:
        return allocate(size)
    if not out.is_mutable or offset < 0 or offset > out.size - size:
        raise ValueError(f"{size} bytes do not fit at {offset} of a buffer of {out.size} bytes")
    return out.slice(offset, size)


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


def check_blocks(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    word_bits: int,
    width: int,
    where: object,
) -> None:
    if not 0 <= width <= word_bits:
        raise CorruptFileError(
            "width of bit-packed values",
            expected=f"0 to {word_bits} bits",
            found=f"{width} bits",
            where=where,
        )
    expected = out_of_line_sizes(counts, word_bits, width)
    good = ~outside(starts, sizes, data.size) & (counts >= 0) & (sizes == expected)
    if not good.all():
        i = int(np.argmin(good))
        raise CorruptFileError(
            "bit-packed block",
            expected=f"{expected[i]} bytes for {counts[i]} values of {width} bits",
            found=f"{sizes[i]} bytes at {starts[i]} of {data.size} bytes",
            where=where,
        )
    # Blocks of width 0 take zero bytes for any number of values: the sum of counts may wrap.
    values = float(counts.sum(dtype=np.float64))
    if values > MAX_VALUES:
        raise CorruptFileError(
            "bit-packed blocks",
            expected=f"at most {MAX_VALUES} values",
            found=f"about {values:.3g}",
            where=where,
        )


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
