"""NumPy references of ``glaive.kernels._bitpack``."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels._addresses import outside
from glaive.kernels._bitpack import BLOCK
from glaive.types import Flags, Int64s, UInt8s, as_array

Words = NDArray[Any]

ORDER = (0, 4, 2, 6, 1, 5, 3, 7)
"""The order of the groups of 8 rows in a block."""


@cache
def _positions(word_bits: int) -> tuple[Int64s, Int64s]:
    """Row and lane of each of the 1,024 values."""
    lanes = BLOCK // word_bits
    rows, lane = np.divmod(np.arange(BLOCK), lanes)
    start = np.array([ORDER[row // 8] * 16 + row % 8 * 128 for row in range(word_bits)])
    index = start[rows] + lane
    row_of, lane_of = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    row_of[index], lane_of[index] = rows, lane
    return row_of, lane_of


def _dtype(word_bits: int) -> np.dtype[Any]:
    return np.dtype(f"<u{word_bits // 8}")


def _mask(word_bits: int, width: int) -> Any:
    return _dtype(word_bits).type((1 << width) - 1)


def _gather(data: pa.Buffer, starts: Int64s, size: int) -> UInt8s:
    """``size`` bytes from each start, shape (starts, size)."""
    gathered: UInt8s = as_array(data)[starts[:, None] + np.arange(size)]
    return gathered


def _unpack(words: Words, word_bits: int, width: int) -> Words:
    """Packed words, shape (blocks, width * lanes), to values, shape (blocks, 1024)."""
    if width == 0:
        return np.zeros((len(words), BLOCK), _dtype(word_bits))
    row, lane = _positions(word_bits)
    lanes = BLOCK // word_bits
    low = row * width // word_bits * lanes + lane
    high = np.minimum(low + lanes, width * lanes - 1)
    shift = (row * width % word_bits).astype(_dtype(word_bits))
    unit, top = shift.dtype.type(1), shift.dtype.type(word_bits - 1)
    # Shifting by a whole word is undefined: the high part goes up in two steps.
    values = (words[:, low] >> shift) | ((words[:, high] << unit) << (top - shift))
    return np.asarray(values & _mask(word_bits, width))


def _pack(values: Words, word_bits: int, width: int) -> Words:
    """Values, shape (blocks, 1024), to packed words, shape (blocks, width * lanes)."""
    lanes = BLOCK // word_bits
    dtype = _dtype(word_bits)
    words = np.zeros((len(values), width, lanes), dtype)
    values = values & _mask(word_bits, width)
    for row in range(word_bits if width else 0):
        start = ORDER[row // 8] * 16 + row % 8 * 128
        lane_values = values[:, start : start + lanes]
        word, shift = divmod(row * width, word_bits)
        words[:, word] |= lane_values << dtype.type(shift)
        if shift + width > word_bits:
            words[:, word + 1] |= lane_values >> dtype.type(word_bits - shift)
    return words.reshape(len(values), width * lanes)


def unpack_inline(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, word_bits: int, target: UInt8s
) -> int:
    """Return the first damaged chunk, or -1."""
    good = (counts >= 0) & (counts <= BLOCK)
    widths, sound = _inline_widths(data, starts, sizes, word_bits)
    good &= sound
    if not good.all():
        return int(np.argmin(good))
    word = word_bits // 8
    values = np.empty((len(starts), BLOCK), _dtype(word_bits))
    for width in np.flatnonzero(np.bincount(widths)):
        chunks = np.flatnonzero(widths == width)
        packed = _gather(data, starts[chunks] + word, int(width) * 128)
        values[chunks] = _unpack(packed.view(values.dtype), word_bits, int(width))
    target.view(values.dtype)[:] = values[np.arange(BLOCK) < counts[:, None]]
    return -1


def _inline_widths(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, word_bits: int
) -> tuple[Int64s, Flags]:
    """Widths of inline chunks, and which chunks are sound."""
    word = word_bits // 8
    sound = ~outside(starts, sizes, data.size) & (sizes >= word)
    widths = np.zeros(len(starts), np.int64)
    heads = _gather(data, starts[sound], word).view(_dtype(word_bits))[:, 0]
    widths[sound] = np.minimum(heads, word_bits + 1)
    sound &= (widths <= word_bits) & (sizes == word + widths * 128)
    return widths, sound


def take_inline(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    chunk: Int64s,
    index: Int64s,
    word_bits: int,
    target: UInt8s,
) -> int:
    """Return the first value that cannot be read, or -1."""
    good = (chunk >= 0) & (chunk < len(starts)) & (index >= 0) & (index < BLOCK)
    if not good.all():
        return int(np.argmin(good))
    used, which = np.unique(chunk, return_inverse=True)
    starts, sizes = starts[used], sizes[used]
    _, sound = _inline_widths(data, starts, sizes, word_bits)
    if not sound.all():
        return int(np.argmin(sound[which]))
    values = np.empty((len(used), BLOCK), _dtype(word_bits))
    counts = np.full(len(used), BLOCK)
    unpack_inline(data, starts, sizes, counts, word_bits, values.reshape(-1).view(np.uint8))
    target.view(values.dtype)[:] = values[which, index]
    return -1


def unpack_out_of_line(
    data: pa.Buffer, starts: Int64s, counts: Int64s, word_bits: int, width: int, target: UInt8s
) -> None:
    dtype, memory, out, done = _dtype(word_bits), as_array(data), target.view(_dtype(word_bits)), 0
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        tail = count & (BLOCK - 1)
        packed = tail > 0 and width * (BLOCK - tail) < (word_bits - width) * tail
        values = count if packed else count - tail
        blocks = -(-values // BLOCK)
        end = start + blocks * width * 128
        raw = memory[end : end + (count - values) * dtype.itemsize].copy().view(dtype)
        words = memory[start:end].copy().view(dtype).reshape(blocks, width * BLOCK // word_bits)
        block = _unpack(words, word_bits, width).reshape(-1)[:values]
        out[done : done + count] = np.concatenate([block, raw])
        done += count


def chunk_widths(values: pa.Buffer, count: int, word_bits: int, target: UInt8s) -> None:
    words = as_array(values, _dtype(word_bits))[:count]
    if count:
        most = np.bitwise_or.reduceat(words, np.arange(0, count, BLOCK)).astype(np.uint64)
        powers = np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64))
        target[:] = np.searchsorted(powers, most, side="right")


def pack_inline(
    values: pa.Buffer, count: int, word_bits: int, widths: UInt8s, target: UInt8s
) -> None:
    dtype, word = _dtype(word_bits), word_bits // 8
    padded = np.zeros((len(widths), BLOCK), dtype)
    padded.reshape(-1)[:count] = as_array(values, dtype)[:count]
    sizes = widths.astype(np.int64) * 128 + word
    starts = np.cumsum(sizes) - sizes
    for width in np.flatnonzero(np.bincount(widths)):
        chunks = np.flatnonzero(widths == width)
        head = np.full((len(chunks), 1), width, dtype)
        words = np.hstack([head, _pack(padded[chunks], word_bits, int(width))])
        target[starts[chunks][:, None] + np.arange(sizes[chunks[0]])] = words.view(np.uint8)


def pack_out_of_line(
    values: pa.Buffer, counts: Int64s, word_bits: int, width: int, target: UInt8s
) -> None:
    dtype = _dtype(word_bits)
    words = as_array(values, dtype)
    at = done = 0
    for count in counts.tolist():
        tail = count & (BLOCK - 1)
        packed = tail > 0 and width * (BLOCK - tail) < (word_bits - width) * tail
        block_values = count if packed else count - tail
        padded = np.zeros((-(-block_values // BLOCK), BLOCK), dtype)
        padded.reshape(-1)[:block_values] = words[done : done + block_values]
        raw = words[done + block_values : done + count]
        block = np.concatenate([_pack(padded, word_bits, width).reshape(-1), raw])
        size = block.size * block.itemsize
        target[at : at + size] = block.view(np.uint8)
        at, done = at + size, done + count
