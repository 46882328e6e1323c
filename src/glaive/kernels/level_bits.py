"""Decode definition levels of 0 and 1 to a validity bitmap, without an array of the levels.

A column that is rarely null has long runs, or blocks of width 0: a few bytes stand for a whole
bitmap, and expanding them to levels first would cost more than everything else.

Specification: "Bit-packing" and "Run-length encoding" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from glaive.kernels import _bitpack_checks as checks
from glaive.kernels._addresses import address, allocate_bits
from glaive.kernels._bitpack_checks import BLOCK
from glaive.kernels._tier import use_compiled
from glaive.kernels.bitpack import (
    pack_inline,
    pack_out_of_line,
    unpack_inline,
    unpack_out_of_line,
)
from glaive.kernels.flat import join_bits
from glaive.kernels.native import level_bits as compiled
from glaive.kernels.runs import MAX_RUN, expand_runs
from glaive.memory import as_array, as_buffer
from glaive.types import Int64s, UInt16s

__all__ = ["exercise", "unpack_level_bits", "unpack_run_bits"]

LEVEL_BITS = 16

LevelEncoding = Literal["inline", "out_of_line", "flat"]


def unpack_level_bits(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    encoding: LevelEncoding,
    where: object,
    width: int = 1,
) -> tuple[pa.Buffer, int] | None:
    """Turn 16-bit levels that are 0 (valid) or 1 (null) into an Arrow validity bitmap.

    Parameters
    ----------
    data, starts, sizes, counts, where
        Chunks as for :func:`unpack_inline`.
    encoding
        How each chunk of levels is stored: ``inline`` or ``out_of_line`` bit-packing (the
        latter with ``width`` bits per level), or ``flat`` words.

    Returns
    -------
    tuple or None
        The bitmap over all chunks, bit set = valid, and the number of nulls. None when
        there are levels above 1, or widths that allow them: read the levels instead.

    Raises
    ------
    CorruptFileError
        The size of a chunk does not match its count and width.
    """
    starts, sizes, counts = checks.aligned(LEVEL_BITS, starts, sizes, counts)
    if encoding == "inline":
        total = checks.total(counts, BLOCK * len(counts), where)
    else:
        width = LEVEL_BITS if encoding == "flat" else width
        if 1 < width < LEVEL_BITS:
            return None
        checks.check_blocks(data, starts, sizes, counts, LEVEL_BITS, width, where)
        total = int(counts.sum())
    if use_compiled(total):
        target = allocate_bits(total)
        nulls = np.zeros(1, np.int64)
        if encoding == "inline":
            bad = compiled.validity_inline(
                address(data), data.size, address(starts), address(sizes), address(counts),
                len(starts), address(target), total, address(nulls),
            )  # fmt: skip
            if bad >= 0:
                raise checks.damaged_inline(
                    data, starts[bad], sizes[bad], counts[bad], LEVEL_BITS, where
                )
        else:
            compiled.validity_out_of_line(
                address(data), address(starts), address(counts), len(starts), width,
                address(target), address(nulls),
            )  # fmt: skip
        return None if nulls[0] < 0 else (target, int(nulls[0]))
    if encoding == "inline":
        words = unpack_inline(data, starts, sizes, counts, LEVEL_BITS, where)
    elif encoding == "flat":
        words = join_bits(data, starts, counts * LEVEL_BITS, where)
    else:
        words = unpack_out_of_line(data, starts, sizes, counts, LEVEL_BITS, width, where)
    return _validity_numpy(as_array(words, "<u2"))


def _validity_numpy(levels: UInt16s) -> tuple[pa.Buffer, int] | None:
    if levels.size and levels.max() > 1:
        return None
    return as_buffer(np.packbits(levels == 0, bitorder="little")), int(np.count_nonzero(levels))


def unpack_run_bits(
    data: pa.Buffer, values: Int64s, lengths: Int64s, runs: Int64s, counts: Int64s, where: object
) -> tuple[pa.Buffer, int] | None:
    """Turn runs of 16-bit levels that are 0 (valid) or 1 (null) into an Arrow bitmap.

    Parameters
    ----------
    data, values, lengths, runs, counts, where
        As for :func:`glaive.kernels.runs.expand_runs`.

    Returns
    -------
    tuple or None
        The bitmap over all chunks, bit set = valid, and the number of nulls. None when
        there are levels above 1: read the levels instead.

    Raises
    ------
    CorruptFileError
        Runs lie outside ``data``, or lengths do not add up.
    """
    total = int(counts.sum())
    values, lengths = np.ascontiguousarray(values), np.ascontiguousarray(lengths)
    runs, counts = np.ascontiguousarray(runs), np.ascontiguousarray(counts, np.int64)
    if _within(data, values, lengths, runs, counts) and use_compiled(total):
        target = allocate_bits(total)
        nulls = np.zeros(1, np.int64)
        bad = compiled.validity_of_runs(
            address(data), address(values), address(lengths), address(runs), address(counts),
            len(counts), address(target), address(nulls),
        )  # fmt: skip
        if bad < 0:
            return None if nulls[0] < 0 else (target, int(nulls[0]))
    # This also reports what is wrong with runs that do not add up.
    words = expand_runs(data, values, lengths, runs, counts, LEVEL_BITS, where)
    return _validity_numpy(as_array(words, "<u2"))


def _within(data: pa.Buffer, values: Int64s, lengths: Int64s, runs: Int64s, counts: Int64s) -> bool:
    good = len(values) == len(lengths) == len(runs) == len(counts) > 0
    return good and bool(
        (
            (values >= 0)
            & (lengths >= 0)
            & (runs >= 0)
            & (counts >= 0)
            & (counts <= runs * MAX_RUN)
            & (runs <= data.size - lengths)
            & (runs <= (data.size - values) // 2)
        ).all()
    )


def exercise() -> None:
    """Call every wrapper once with little data."""
    data = pa.py_buffer(np.array([0, 1], "<u2").tobytes() + bytes([200, 3]))
    zero = np.zeros(1, np.int64)
    unpack_run_bits(data, zero, zero + 4, zero + 2, zero + 203, "warm-up")
    levels, counts = as_buffer(np.zeros(1500, "<u2")), np.array([1024, 476])
    packed, sizes = pack_out_of_line(levels, counts, 16, 1)
    starts = np.cumsum(sizes) - sizes
    unpack_level_bits(as_buffer(packed), starts, sizes, counts, "out_of_line", "warm-up")
    packed, sizes = pack_inline(levels, 1500, 16)
    starts = np.cumsum(sizes) - sizes
    unpack_level_bits(as_buffer(packed), starts, sizes, counts, "inline", "warm-up")
