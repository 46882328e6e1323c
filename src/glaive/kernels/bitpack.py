"""Bit-packing in FastLanes blocks of 1,024 values, with and without a width header.

Values are unsigned words of 8, 16, 32 or 64 bits. An *inline* chunk is one word that holds
the width ``W`` followed by one block of ``128 * W`` bytes. An *out-of-line* block has one
width for all its values: whole blocks back to back, then a tail that is packed or raw,
whichever is smaller.

Specification: "Bit-packing" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import struct
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels import _bitpack_checks as checks
from glaive.kernels import _bitpack_reference as reference
from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels._bitpack_checks import BLOCK, BLOCK_BYTES_PER_BIT, out_of_line_sizes
from glaive.kernels._tier import use_loops
from glaive.kernels.flat import join_bits
from glaive.kernels.native import bitpack as bitpack_loops
from glaive.kernels.native import level_bits as level_bits_loops
from glaive.memory import allocate, as_array, as_buffer

__all__ = [
    "BLOCK",
    "chunk_widths",
    "exercise",
    "out_of_line_sizes",
    "pack_inline",
    "pack_out_of_line",
    "take_inline",
    "unpack_inline",
    "unpack_level_bits",
    "unpack_one",
    "unpack_out_of_line",
]

LEVEL_BITS = 16

_WORDS = {
    bits: struct.Struct(f"<{code}") for bits, code in zip((8, 16, 32, 64), "BHIQ", strict=True)
}

Int64s = NDArray[np.int64]
LevelForm = Literal["inline", "out_of_line", "flat"]


def unpack_inline(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    word_bits: int,
    where: object,
    out: pa.Buffer | None = None,
    offset: int = 0,
) -> pa.Buffer:
    """Unpack the first ``counts[i]`` ≤ 1,024 values of every inline chunk, back to back.

    Parameters
    ----------
    data, starts, sizes
        Chunk ``i`` is ``data[starts[i] : starts[i] + sizes[i]]``, in bytes.
    out, offset
        Where to write: ``out`` from byte ``offset`` on; a new buffer when omitted.

    Raises
    ------
    CorruptFileError
        A chunk lies outside ``data``, its width is above ``word_bits``, or its size is not
        the one its width asks for.
    """
    starts, sizes, counts = checks.aligned(word_bits, starts, sizes, counts)
    total = checks.total(counts, BLOCK * len(counts), where)
    target = checks.target(out, offset, total * word_bits // 8)
    if use_loops(total):
        scratch = pa.allocate_buffer(BLOCK * 8)
        bad = bitpack_loops.unpack_inline(
            address(data), data.size, address(starts), address(sizes), address(counts),
            len(starts), word_bits, address(target), total, address(scratch),
        )  # fmt: skip
    else:
        into = checks.writable(target, out, offset)
        bad = reference.unpack_inline(data, starts, sizes, counts, word_bits, into)
    if bad >= 0:
        raise checks.damaged_inline(data, starts[bad], sizes[bad], counts[bad], word_bits, where)
    return target


def unpack_one(
    data: pa.Buffer, start: int, size: int, count: int, index: int, word_bits: int, where: object
) -> int:
    """Value ``index`` of one inline bit-packed chunk of ``count`` values, in plain Python.

    The chunk is ``data[start : start + size]``.

    Raises
    ------
    CorruptFileError
        The width is too large for the word, or the chunk has another size than it says.
    """
    word = _WORDS[word_bits]
    width = word.size
    if not 0 <= index < count <= BLOCK or size < width or start < 0 or start + size > data.size:
        raise _not_in_chunk(index, count, size, where)
    (packed,) = word.unpack_from(data, start)
    if packed > word_bits or size != width + packed * (BLOCK // 8):
        raise CorruptFileError(
            "bit-packed chunk",
            expected=f"a width up to {word_bits} bits and {BLOCK_BYTES_PER_BIT} bytes per bit",
            found=f"{packed} bits in {size} bytes",
            where=where,
        )
    if not packed:
        return 0
    row, lane = _place(index, word_bits)
    lanes = BLOCK // word_bits
    first, shift = divmod(row * packed, word_bits)
    at = start + width + (first * lanes + lane) * width
    value = word.unpack_from(data, at)[0] >> shift
    if shift + packed > word_bits:
        value |= word.unpack_from(data, at + lanes * width)[0] << (word_bits - shift)
    return int(value & ((1 << packed) - 1))


def _place(index: int, word_bits: int) -> tuple[int, int]:
    """Row and lane of a value in a FastLanes block."""
    row, rest = divmod(index, 128)
    lane = rest % (BLOCK // word_bits)
    return reference.ORDER.index((rest - lane) // 16) * 8 + row, lane


def _not_in_chunk(index: int, count: int, size: int, where: object) -> CorruptFileError:
    return CorruptFileError(
        "bit-packed chunk",
        expected=f"value {index} within 1..{BLOCK} values",
        found=f"{count} values in {size} bytes",
        where=where,
    )


def take_inline(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    chunk: Int64s,
    index: Int64s,
    word_bits: int,
    where: object,
) -> pa.Buffer:
    """Unpack value ``index[i]`` of inline chunk ``chunk[i]`` for every i.

    Reads the header and one or two words per value; checks only the chunks it touches.
    Costs about 4 µs plus 10 ns per value with loops loaded.

    Raises
    ------
    CorruptFileError
        As for :func:`unpack_inline`, or an index is not below 1,024.
    """
    starts, sizes = checks.aligned(word_bits, starts, sizes)
    chunk, index = checks.aligned(word_bits, chunk, index)
    target = allocate(len(chunk) * word_bits // 8)
    if use_loops(len(chunk)):
        bad = bitpack_loops.take_inline(
            address(data), data.size, address(starts), address(sizes), len(starts),
            address(chunk), address(index), len(chunk), word_bits, address(target),
        )  # fmt: skip
    else:
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
    out: pa.Buffer | None = None,
    offset: int = 0,
) -> pa.Buffer:
    """Unpack the ``counts[i]`` values of every out-of-line block, back to back.

    Parameters as for :func:`unpack_inline`; ``width`` ≤ ``word_bits`` bits per value. With
    a width of 0 the result is not bounded by the size of ``data``: bound ``counts`` first.

    Raises
    ------
    CorruptFileError
        A block lies outside ``data``, or its size is not the one its count asks for.
    """
    starts, sizes, counts = checks.aligned(word_bits, starts, sizes, counts)
    checks.check_blocks(data, starts, sizes, counts, word_bits, width, where)
    total = int(counts.sum())
    target = checks.target(out, offset, total * word_bits // 8)
    if use_loops(total):
        scratch = pa.allocate_buffer(BLOCK * 8)
        bitpack_loops.unpack_out_of_line(
            address(data), address(starts), address(counts), len(starts), word_bits, width,
            address(target), address(scratch),
        )  # fmt: skip
    else:
        into = checks.writable(target, out, offset)
        reference.unpack_out_of_line(data, starts, sizes, counts, word_bits, width, into)
    return target


def unpack_level_bits(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    form: LevelForm,
    where: object,
    width: int = 1,
) -> tuple[pa.Buffer, int] | None:
    """Turn 16-bit levels that are 0 (valid) or 1 (null) into an Arrow validity bitmap.

    Parameters
    ----------
    form
        How each chunk of levels is stored: ``inline`` or ``out_of_line`` bit-packing (the
        latter with ``width``), or ``flat`` words.

    Returns
    -------
    tuple or None
        The bitmap over all chunks, bit set = valid, and the number of nulls. None when
        there are levels above 1, or widths that allow them: read the levels then.

    Raises
    ------
    CorruptFileError
        A chunk does not have the size that its count and width ask for.
    """
    starts, sizes, counts = checks.aligned(LEVEL_BITS, starts, sizes, counts)
    if form == "inline":
        total = checks.total(counts, BLOCK * len(counts), where)
    else:
        width = LEVEL_BITS if form == "flat" else width
        if 1 < width < LEVEL_BITS:
            return None
        checks.check_blocks(data, starts, sizes, counts, LEVEL_BITS, width, where)
        total = int(counts.sum())
    if use_loops(total):
        # The loop stores whole words, up to 16 bytes from the word of the last bit on.
        target = allocate_with_slack((total + 7) // 8, slack=24)
        nulls = np.zeros(1, np.int64)
        if form == "inline":
            bad = level_bits_loops.validity_inline(
                address(data), data.size, address(starts), address(sizes), address(counts),
                len(starts), address(target), total, address(nulls),
            )  # fmt: skip
            if bad >= 0:
                raise checks.damaged_inline(
                    data, starts[bad], sizes[bad], counts[bad], LEVEL_BITS, where
                )
        else:
            level_bits_loops.validity_out_of_line(
                address(data), address(starts), address(counts), len(starts), width,
                address(target), address(nulls),
            )  # fmt: skip
        return None if nulls[0] < 0 else (target, int(nulls[0]))
    if form == "inline":
        words = unpack_inline(data, starts, sizes, counts, LEVEL_BITS, where)
    elif form == "flat":
        words = join_bits(data, starts, counts * LEVEL_BITS, where)
    else:
        words = unpack_out_of_line(data, starts, sizes, counts, LEVEL_BITS, width, where)
    levels = as_array(words, "<u2")
    if levels.size and levels.max() > 1:
        return None
    bitmap = np.packbits(levels == 0, bitorder="little")
    return as_buffer(bitmap), int(np.count_nonzero(levels))


def chunk_widths(values: pa.Buffer, count: int, word_bits: int) -> NDArray[np.uint8]:
    """Bits that the largest of every 1,024 values needs; one item per chunk."""
    checks.room(values, count, word_bits)
    widths = np.empty(-(-count // BLOCK), np.uint8)
    if use_loops(count):
        bitpack_loops.chunk_widths(address(values), count, word_bits, address(widths))
    else:
        reference.chunk_widths(values, count, word_bits, widths)
    return widths


def pack_inline(
    values: pa.Buffer, count: int, word_bits: int, widths: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], Int64s]:
    """Pack every 1,024 values into an inline chunk of the width given for it.

    Returns
    -------
    tuple
        The chunks back to back, and the size of each in bytes. Values are cut to the width:
        pass what :func:`chunk_widths` says.
    """
    checks.room(values, count, word_bits)
    widths = np.ascontiguousarray(widths, np.uint8)
    if len(widths) != -(-count // BLOCK) or (count and int(widths.max()) > word_bits):
        raise ValueError(f"{len(widths)} widths for {count} values of {word_bits} bits")
    sizes = widths.astype(np.int64) * BLOCK_BYTES_PER_BIT + word_bits // 8
    target = as_array(allocate(int(sizes.sum())))
    if use_loops(count):
        scratch = pa.allocate_buffer(BLOCK * 8)
        bitpack_loops.pack_inline(
            address(values), count, word_bits, address(widths), address(target), address(scratch)
        )
    else:
        reference.pack_inline(values, count, word_bits, widths, target)
    return target, sizes


def pack_out_of_line(
    values: pa.Buffer, counts: Int64s, word_bits: int, width: int
) -> tuple[NDArray[np.uint8], Int64s]:
    """Pack the first ``counts[0]`` values into one out-of-line block, the next into another, …

    Returns the blocks back to back, and the size of each in bytes.
    """
    (counts,) = checks.aligned(word_bits, counts)
    if (len(counts) and int(counts.min()) < 0) or not 0 <= width <= word_bits:
        raise ValueError(f"counts {counts} of width {width} in words of {word_bits} bits")
    checks.room(values, int(counts.sum()), word_bits)
    sizes = out_of_line_sizes(counts, word_bits, width)
    target = as_array(allocate(int(sizes.sum())))
    if use_loops(int(counts.sum())):
        scratch = pa.allocate_buffer(BLOCK * 8)
        bitpack_loops.pack_out_of_line(
            address(values), address(counts), len(counts), word_bits, width, address(target),
            address(scratch),
        )  # fmt: skip
    else:
        reference.pack_out_of_line(values, counts, word_bits, width, target)
    return target, sizes


def exercise() -> None:
    """Call every wrapper once with little data."""
    values = as_buffer(np.arange(1500, dtype="<u2"))
    widths = chunk_widths(values, 1500, 16)
    packed, sizes = pack_inline(values, 1500, 16, widths)
    starts = np.cumsum(sizes) - sizes
    counts = np.array([1024, 476], np.int64)
    unpack_inline(as_buffer(packed), starts, sizes, counts, 16, "warm-up")
    zeros = np.zeros(2, np.int64)
    take_inline(as_buffer(packed), starts, sizes, zeros, zeros, 16, "warm-up")
    levels = as_buffer(np.zeros(1500, "<u2"))
    packed, sizes = pack_out_of_line(levels, counts, 16, 1)
    starts = np.cumsum(sizes) - sizes
    block = as_buffer(packed)
    unpack_out_of_line(block, starts, sizes, counts, 16, 1, "warm-up")
    unpack_level_bits(block, starts, sizes, counts, "out_of_line", "warm-up")
    packed, sizes = pack_inline(levels, 1500, 16, np.zeros(2, np.uint8))
    starts = np.cumsum(sizes) - sizes
    unpack_level_bits(as_buffer(packed), starts, sizes, counts, "inline", "warm-up")
