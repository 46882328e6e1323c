"""Bit-packing in FastLanes blocks of 1,024 values; a width header is optional.

Values are unsigned words of 8, 16, 32 or 64 bits. An *inline* chunk is one word that holds
the width ``W``, followed by one block of ``128 * W`` bytes. An *out-of-line* block has one
width for all its values: full blocks back to back, then a tail. The tail is packed or raw,
whichever is smaller.

Specification: "Bit-packing" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.kernels import _bitpack as checks
from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels._bitpack import BLOCK, out_of_line_sizes
from glaive.kernels.native import bitpack as bitpack_loops
from glaive.types import Int64s, UInt8s, allocate, as_array


def unpack_inline(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, word_bits: int, where: object
) -> pa.Buffer:
    """Unpack the first ``counts[i]`` ≤ 1,024 values of every inline chunk, back to back.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, sizes, counts
        ``int64`` of shape ``(chunks,)``: first byte, bytes and values of each chunk.
    word_bits
        Width of a value: 8, 16, 32 or 64.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk lies outside ``data``, its width is above ``word_bits``, or its size
        contradicts its width.
    """
    starts, sizes, counts = checks.aligned(word_bits, starts, sizes, counts)
    total = checks.total_values(counts, BLOCK * len(counts), where)
    target = allocate(total * word_bits // 8)
    scratch = pa.allocate_buffer(BLOCK * 8)
    bad = bitpack_loops.unpack_inline(
        address(data), data.size, address(starts), address(sizes), address(counts),
        len(starts), word_bits, address(target), total, address(scratch),
    )  # fmt: skip
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
    """Unpack single values of inline chunks; only these chunks are checked.

    Costs about 4 µs plus 8 ns per value with kernels loaded, or 20 ns from slow memory.

    Parameters
    ----------
    data, starts, sizes, word_bits, where
        Chunks as for :func:`unpack_inline`.
    chunk, index
        ``int64`` of shape ``(values,)``: value ``index[i]`` of chunk ``chunk[i]``, in any order.

    Raises
    ------
    CorruptFileError
        As for :func:`unpack_inline`, or an index is 1,024 or more.
    """
    starts, sizes = checks.aligned(word_bits, starts, sizes)
    chunk, index = checks.aligned(word_bits, chunk, index)
    size = len(chunk) * word_bits // 8
    target = allocate_with_slack(size, slack=len(starts))
    bad = bitpack_loops.take_inline(
        address(data), data.size, address(starts), address(sizes), len(starts), address(chunk),
        address(index), len(chunk), word_bits, address(target),
    )  # fmt: skip
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


def check_blocks(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    word_bits: int,
    width: int,
    where: object,
) -> int:
    """Return the values of all blocks, after a check that each has the size of its values."""
    if not 0 <= width <= word_bits:
        raise CorruptFileError(
            "width of bit-packed values",
            expected=f"0 to {word_bits} bits",
            found=f"{width} bits",
            where=where,
        )
    total: int = bitpack_loops.block_values(
        data.size, address(starts), address(sizes), address(counts), len(starts), word_bits, width,
        checks.MAX_VALUES,
    )  # fmt: skip
    if total >= 0:
        return total
    i = -1 - total
    expected = out_of_line_sizes(counts[i : i + 1], word_bits, width).item()
    raise CorruptFileError(
        "bit-packed block",
        expected=f"{expected} bytes for {counts[i]} values of {width} bits, at most "
        f"{checks.MAX_VALUES} in all blocks",
        found=f"{sizes[i]} bytes at {starts[i]} of {data.size} bytes",
        where=where,
    )


def unpack_out_of_line(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    word_bits: int,
    width: int,
    where: object,
) -> pa.Buffer:
    """Unpack the ``counts[i]`` values of every out-of-line block, back to back.

    Parameters
    ----------
    data, starts, sizes, counts, word_bits, where
        As for :func:`unpack_inline`.
    width
        Packed bits per value. With 0, a small ``data`` allows a result of any size: bound
        ``counts`` first.

    Raises
    ------
    CorruptFileError
        A block lies outside ``data``, or its size contradicts its count.
    """
    starts, sizes, counts = checks.aligned(word_bits, starts, sizes, counts)
    total = check_blocks(data, starts, sizes, counts, word_bits, width, where)
    target = allocate(total * word_bits // 8)
    scratch = pa.allocate_buffer(BLOCK * 8)
    bitpack_loops.unpack_out_of_line(
        address(data), address(starts), address(counts), len(starts), word_bits, width,
        address(target), address(scratch),
    )  # fmt: skip
    return target


def chunk_widths(values: pa.Buffer, count: int, word_bits: int) -> UInt8s:
    """Return the bits that the largest of every 1,024 values needs; one item per chunk."""
    checks.check_values(values, count, word_bits)
    widths = np.empty(-(-count // BLOCK), np.uint8)
    bitpack_loops.chunk_widths(address(values), count, word_bits, address(widths))
    return widths


def pack_inline(values: pa.Buffer, count: int, word_bits: int) -> tuple[UInt8s, Int64s]:
    """Pack every 1,024 values into an inline chunk.

    Parameters
    ----------
    values, count
        ``count`` values of ``word_bits`` bits: 8, 16, 32 or 64.
    word_bits
        Width of a value.

    Returns
    -------
    tuple
        The chunks back to back, and the size of each in bytes.
    """
    checks.check_values(values, count, word_bits)
    chunks, word = -(-count // BLOCK), word_bits // 8
    sizes = np.empty(chunks, np.int64)
    target = as_array(allocate(chunks * (word + BLOCK * word)))
    scratch = pa.allocate_buffer(BLOCK * 8)
    size = bitpack_loops.pack_inline(
        address(values), count, word_bits, address(target), address(sizes), address(scratch)
    )  # fmt: skip
    return target[:size], sizes


def pack_out_of_line(
    values: pa.Buffer, counts: Int64s, word_bits: int, width: int
) -> tuple[UInt8s, Int64s]:
    """Pack values into out-of-line blocks.

    Parameters
    ----------
    values
        Words of ``word_bits`` bits: 8, 16, 32 or 64.
    counts
        ``int64`` of shape ``(blocks,)``: values of each block.
    word_bits, width
        Width of a value, and packed bits per value.

    Returns
    -------
    tuple
        The blocks back to back, and the size of each in bytes.
    """
    (counts,) = checks.aligned(word_bits, counts)
    if (len(counts) and int(counts.min()) < 0) or not 0 <= width <= word_bits:
        raise ValueError(f"counts {counts} of width {width} in words of {word_bits} bits")
    checks.check_values(values, int(counts.sum()), word_bits)
    sizes = out_of_line_sizes(counts, word_bits, width)
    target = as_array(allocate(int(sizes.sum())))
    scratch = pa.allocate_buffer(BLOCK * 8)
    bitpack_loops.pack_out_of_line(
        address(values), address(counts), len(counts), word_bits, width, address(target),
        address(scratch),
    )  # fmt: skip
    return target, sizes
