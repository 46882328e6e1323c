"""NumPy references of ``glaive.kernels.bitpack``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from tests.kernels.reference import _bitpack as reference

from glaive.errors import CorruptFileError
from glaive.kernels import _bitpack as checks
from glaive.kernels._bitpack import BLOCK, BLOCK_BYTES_PER_BIT, out_of_line_sizes
from glaive.kernels.bitpack import check_blocks
from glaive.types import Int64s, UInt8s, allocate, as_array


def unpack_inline(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, word_bits: int, where: object
) -> pa.Buffer:
    """Unpack the first ``counts[i]`` ≤ 1,024 values of every inline chunk, back to back."""
    starts, sizes, counts = checks.aligned(word_bits, starts, sizes, counts)
    total = checks.total_values(counts, BLOCK * len(counts), where)
    target = allocate(total * word_bits // 8)
    bad = reference.unpack_inline(data, starts, sizes, counts, word_bits, as_array(target))
    if bad >= 0:
        raise checks.damaged_inline(data, starts[bad], sizes[bad], counts[bad], word_bits, where)
    return target


def take_inline(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    chunk: Int64s,
    index: Int64s,
    word_bits: int,
    where: object,
) -> pa.Buffer:
    """Unpack single values of inline chunks; only these chunks are checked."""
    starts, sizes = checks.aligned(word_bits, starts, sizes)
    chunk, index = checks.aligned(word_bits, chunk, index)
    size = len(chunk) * word_bits // 8
    target = allocate(size)
    bad = reference.take_inline(data, starts, sizes, chunk, index, word_bits, as_array(target))
    if bad >= 0:
        c, at = int(chunk[bad]), int(index[bad])
        if not (0 <= c < len(starts) and 0 <= at < BLOCK):
            raise CorruptFileError(
                "position in a bit-packed chunk",
                expected=f"chunk below {len(starts)} and index below {BLOCK}",
                found=f"chunk {c}, index {at}",
                where=where,
            )
        raise checks.damaged_inline(data, starts[c], sizes[c], at + 1, word_bits, where)
    return target


def unpack_out_of_line(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    word_bits: int,
    width: int,
    where: object,
) -> pa.Buffer:
    """Unpack the ``counts[i]`` values of every out-of-line block, back to back."""
    starts, sizes, counts = checks.aligned(word_bits, starts, sizes, counts)
    total = check_blocks(data, starts, sizes, counts, word_bits, width, where)
    target = allocate(total * word_bits // 8)
    reference.unpack_out_of_line(data, starts, counts, word_bits, width, as_array(target))
    return target


def chunk_widths(values: pa.Buffer, count: int, word_bits: int) -> UInt8s:
    """Bits that the largest of every 1,024 values needs; one item per chunk."""
    checks.check_values(values, count, word_bits)
    widths = np.empty(-(-count // BLOCK), np.uint8)
    reference.chunk_widths(values, count, word_bits, widths)
    return widths


def pack_inline(values: pa.Buffer, count: int, word_bits: int) -> tuple[UInt8s, Int64s]:
    """Pack every 1,024 values into an inline chunk."""
    checks.check_values(values, count, word_bits)
    widths = chunk_widths(values, count, word_bits)
    sizes = widths.astype(np.int64) * BLOCK_BYTES_PER_BIT + word_bits // 8
    target = as_array(allocate(int(sizes.sum())))
    reference.pack_inline(values, count, word_bits, widths, target)
    return target, sizes


def pack_out_of_line(
    values: pa.Buffer, counts: Int64s, word_bits: int, width: int
) -> tuple[UInt8s, Int64s]:
    """Pack values into out-of-line blocks."""
    (counts,) = checks.aligned(word_bits, counts)
    if (len(counts) and int(counts.min()) < 0) or not 0 <= width <= word_bits:
        raise ValueError(f"counts {counts} of width {width} in words of {word_bits} bits")
    checks.check_values(values, int(counts.sum()), word_bits)
    sizes = out_of_line_sizes(counts, word_bits, width)
    target = as_array(allocate(int(sizes.sum())))
    reference.pack_out_of_line(values, counts, word_bits, width, target)
    return target, sizes
