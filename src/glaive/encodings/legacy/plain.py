"""Plain: values of fixed width back to back, booleans as bits.

A read of adjacent pages is a view of the file when its address is aligned for the type; other
reads copy each page once.

Specification: "Plain" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.buffers import flags_of, pack_flags
from glaive.arrow.slices import slice_bits
from glaive.encodings.fetch import Fetch
from glaive.encodings.legacy.pages import Pages, Spans, adjacent
from glaive.kernels.flat import join_bits, take_flat
from glaive.kernels.full_zip import gather_ranges
from glaive.types import Int64s

__all__ = ["encode_plain", "read_plain"]


_MAX_ALIGNMENT = 8
"""Bytes: no Arrow type needs more."""


def read_plain(pages: Pages, spans: Spans, values: int = 1) -> Fetch[FixedWidth] | FixedWidth:
    """The values of spans as one block.

    ``values`` is the size of fixed-size lists of booleans; 1 for all other columns.

    Raises
    ------
    CorruptFileError
        A span leaves its page.
    """
    pages.check(spans)
    bits = pages.bits
    if bits % 8 or values > 1:
        return _read_bits(pages, spans, bits)
    width = bits // 8
    starts = pages.positions[spans.page] + spans.first * width
    sizes = spans.count * width
    then = partial(_join, sizes, bits, spans, pages)
    return pages.data.fetch(starts, sizes, then, pages.where)


def _join(
    sizes: Int64s, bits: int, spans: Spans, pages: Pages, data: pa.Buffer, starts: Int64s
) -> FixedWidth:
    width, total = bits // 8, spans.total
    if not total:
        return FixedWidth(pa.py_buffer(b""), bits, 0)
    if adjacent(starts, sizes):
        view = data.slice(int(starts[0]), total * width)
        if view.address % min(width & -width, _MAX_ALIGNMENT) == 0:
            return FixedWidth(view, bits, total)
    if len(starts) == total and (spans.count == 1).all():
        each = np.arange(total)
        values = take_flat(data, starts, sizes, each, np.zeros_like(each), bits, pages.where)
    else:
        values = gather_ranges(data, starts, sizes, pages.where)
    return FixedWidth(values, bits, total)


def _read_bits(pages: Pages, spans: Spans, bits: int) -> Fetch[FixedWidth] | FixedWidth:
    """Values of ``bits`` bits that begin anywhere in a byte: booleans and lists of them."""
    first, counts = spans.first * bits, spans.count * bits
    shifts = first % 8
    starts = pages.positions[spans.page] + first // 8
    sizes = (shifts + counts + 7) // 8

    def then(data: pa.Buffer, at: Int64s) -> FixedWidth:
        packed = _join_bits(data, at, sizes, shifts, counts, pages)
        return FixedWidth(packed, bits, spans.total)

    return pages.data.fetch(starts, sizes, then, pages.where)


def _join_bits(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, shifts: Int64s, counts: Int64s, pages: Pages
) -> pa.Buffer:
    total = int(counts.sum())
    if not total:
        return pa.py_buffer(b"")
    if not shifts[1:].any():
        # Only the first span begins within a byte, as in any range of rows.
        shift = int(shifts[0])
        if adjacent(starts, sizes) and not ((shifts + counts)[:-1] % 8).any():
            joined = data.slice(int(starts[0]), int(sizes.sum()))
        else:
            joined = join_bits(data, starts, shifts + counts, pages.where)
        return slice_bits(joined, shift, total)
    span = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts - shifts, counts)
    return take_flat(data, starts, sizes, span, within, 1, pages.where)


def encode_plain(block: FixedWidth, bounds: Int64s) -> tuple[pa.Buffer, Int64s]:
    """Cut values into pages at ``bounds``; returns their bytes and the position of each page.

    Pages of bits begin at a whole byte; others are back to back, without a copy.
    """
    bits = block.bits
    if bits % 8 == 0:
        width = bits // 8
        size = int(bounds[-1] - bounds[0]) * width
        return block.values.slice(int(bounds[0]) * width, size), (bounds[:-1] - bounds[0]) * width
    edges = bounds * bits
    if not (edges[:-1] % 8).any():
        first = int(edges[0]) // 8
        size = (int(edges[-1]) + 7) // 8 - first
        return block.values.slice(first, size), edges[:-1] // 8 - first
    counts = np.diff(edges)
    sizes = (counts + 7) // 8
    starts = np.cumsum(sizes) - sizes
    flags = flags_of(block.values, int(edges[-1] - edges[0]), int(edges[0]))
    spread = np.zeros(int(sizes.sum()) * 8, np.bool_)
    gaps = starts * 8 - (edges[:-1] - edges[0])
    spread[np.arange(len(flags)) + np.repeat(gaps, counts)] = flags
    return pack_flags(spread), starts
