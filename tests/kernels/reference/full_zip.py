"""NumPy references of ``glaive.kernels.full_zip``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels.full_zip import (
    _MIN_VIEWED,
    EntryLayout,
    Unzipped,
    _damaged_entry,
    _in_parts,
    _offset_width,
    check_ranges,
)
from glaive.kernels.strings import _gather_strings, check_offsets
from glaive.types import Flags, Int64s, UInt8s, UInt16s, allocate, as_array, as_buffer


def _unzip_numpy(
    data: UInt8s, starts: Int64s, stops: Int64s, layout: EntryLayout, where: object
) -> Unzipped:
    """Split rows: the first entries of all rows, then the second, …"""
    rows, at, ends = np.arange(len(starts)), starts, stops
    walked: list[tuple[Int64s, Int64s, Int64s, Int64s, Int64s]] = []
    while len(rows):
        first = not walked

        def check(bad: Flags, damage: int, rows: Int64s = rows) -> None:
            if bad.any():
                raise _damaged_entry(damage, layout, int(rows[np.argmax(bad)]), where)

        check(ends - at < layout.control, 1)
        word = _load(data, at, layout.control)
        at = at + layout.control
        rep, level = word >> layout.bits_def, word & ((1 << layout.bits_def) - 1)
        check(level > layout.max_def, 3)
        check(np.full(len(rows), not first and layout.max_rep == 0), 4)
        check(rep != layout.max_rep if first else rep >= layout.max_rep, 2)
        size = np.where(level <= layout.visible_def, layout.width, 0)
        if layout.prefix:
            valued = level == 0
            check(valued & (ends - at < layout.prefix), 1)
            size[valued] = _load(data, at[valued], layout.prefix)
            at = at + np.where(valued, layout.prefix, 0)
        check((size < 0) | (size > ends - at), 1)
        walked.append((rows, rep, level, at, size))
        at = at + size
        more = at < ends
        rows, at, ends = rows[more], at[more], ends[more]
    if not walked:
        walked = [(np.zeros(0, np.int64),) * 5]
    rows, rep, level, at, size = (np.concatenate(part) for part in zip(*walked, strict=True))
    order = np.argsort(rows, kind="stable")
    rep, level, at, size = rep[order], level[order], at[order], size[order]
    visible = level <= layout.visible_def
    at, size = at[visible], size[visible]
    total = int(size.sum())
    width = _offset_width(layout, total)
    offsets = None
    if layout.prefix:
        offsets = allocate((len(size) + 1) * width)
        ends = as_array(offsets, f"<i{width}")
        ends[0] = 0
        np.cumsum(size, out=ends[1:])
    values = _gather_strings(as_buffer(data), at, np.cumsum(size), 64).data
    return Unzipped(
        rep.astype(np.uint16) if layout.bits_rep else None,
        level.astype(np.uint16) if layout.bits_def else None, len(level), len(size), offsets,
        width * 8, values,
    )  # fmt: skip


def _load(data: UInt8s, at: Int64s, width: int) -> Int64s:
    """Read a little-endian number of ``width`` bytes at every position."""
    if width == 0:
        return np.zeros(len(at), np.int64)
    dtype = "<i8" if width == 8 else f"<u{width}"
    words: Int64s = data[at[:, None] + np.arange(width)].view(dtype).reshape(-1).astype(np.int64)
    return words


def unzip(
    data: pa.Buffer,
    starts: Int64s,
    stops: Int64s,
    layout: EntryLayout,
    where: object,
    rows: Int64s | None = None,
) -> Unzipped:
    """Split the entries of rows: one per row, or, with lists, one or more."""
    check_ranges(starts, stops, data.size, where, rows)
    starts = np.ascontiguousarray(starts, np.int64)
    stops = np.ascontiguousarray(stops, np.int64)
    return _unzip_numpy(as_array(data), starts, stops, layout, where)


def zip_entries(
    rep: UInt16s | None,
    definition: UInt16s | None,
    layout: EntryLayout,
    values: pa.Buffer,
    offsets: NDArray[np.int32] | Int64s | None,
    rows: int,
) -> tuple[tuple[pa.Buffer, ...], Int64s]:
    """Interleave levels and values."""
    levels = rep if rep is not None else definition
    entries = rows if levels is None else len(levels)
    words = np.zeros(entries, np.uint32)
    if rep is not None:
        words |= rep.astype(np.uint32) << np.uint32(layout.bits_def)
    visible, valued = entries, entries
    if definition is not None:
        if int(definition.max(initial=0)) >> layout.bits_def:
            raise ValueError(f"levels up to {definition.max()} in {layout.bits_def} bits")
        words |= definition
        visible = int(np.count_nonzero(definition <= layout.visible_def))
        valued = int(np.count_nonzero(definition == 0))
    starts_row = entries if rep is None else int(np.count_nonzero(rep == layout.max_rep))
    slots = visible if offsets is not None else values.size // layout.width if layout.width else 0
    if offsets is not None:
        slots = len(offsets) - 1
    if starts_row != rows or slots < visible:
        raise ValueError(
            f"levels of {starts_row} rows and {visible} values do not match {rows} rows "
            f"and {slots} values"
        )
    if offsets is not None:
        check_offsets(as_buffer(offsets), 8 * offsets.itemsize, values, visible)
        lengths = np.diff(offsets[: visible + 1].astype(np.int64))
        if definition is not None:
            lengths = lengths[definition[definition <= layout.visible_def] == 0]
        value_bytes = int(lengths.sum())
        if valued and value_bytes >= _MIN_VIEWED * valued:
            return _in_parts(words, layout, values, offsets, rows)
    if offsets is None:
        offsets = np.arange(visible + 1) * layout.width
    parts, row_starts = _in_parts(words, layout, values, offsets, rows)
    return (pa.py_buffer(b"".join(parts)),), row_starts
