"""NumPy references of ``glaive.kernels.list_levels``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.list_levels import CODES, MAX_ENTRIES, ListEntries, LocatedRows, _check
from glaive.types import Flags, Int64s, UInt8s, UInt16s, allocate, as_array


def locate_rows(rows: Int64s, row_starts: Int64s, enters: Flags) -> LocatedRows:
    """Find the chunks of rows; ascending rows are faster."""
    rows = np.ascontiguousarray(rows, np.int64)
    row_starts, enters = np.ascontiguousarray(row_starts), np.ascontiguousarray(enters)
    _chunks, _wanted = len(row_starts) - 1, len(rows)
    return _locate_numpy(rows, row_starts, enters)


def _locate_numpy(rows: Int64s, row_starts: Int64s, enters: Flags) -> LocatedRows:
    chunks = len(row_starts) - 1
    begin = row_starts.searchsorted(rows, "right") - 1
    end = row_starts.searchsorted(rows + 1, "right") - 1
    # The next row starts in chunk `end`: that chunk is needed only if this row starts there,
    # too, or continues into it from the chunk before.
    shared = (row_starts[end] <= rows) | enters[end]
    end += (end < chunks) & shared
    edges = np.bincount(begin, minlength=chunks + 1) - np.bincount(end, minlength=chunks + 1)
    used = np.cumsum(edges) > 0
    slots = np.cumsum(used) - 1
    return LocatedRows(np.flatnonzero(used), slots[begin], slots[end - 1])


def spread_lists(
    rep: UInt16s | None,
    ended: UInt8s | None,
    outer: UInt8s | None,
    lengths: Int64s,
    valid: Flags | None,
    *,
    entries: int,
    repeated: int,
    null_code: int,
    empty_code: int,
) -> ListEntries:
    """Make the entries of a list layer: one per item, and one per list without items."""
    for name, array in (("rep", rep), ("ended", ended), ("outer", outer)):
        _check(name, array, entries)
    _check("valid", valid, len(lengths))
    lengths = np.ascontiguousarray(lengths, np.int64)
    slots, total, seen = _measure_numpy(entries, ended, outer, lengths, valid)
    if slots != len(lengths):
        raise ValueError(
            f"{len(lengths)} lists of {lengths.min(initial=0)} to {lengths.max(initial=0)} items "
            f"do not match {entries} entries"
        )
    nulls, empties, ended_outside, dropped = seen
    repeats = as_array(allocate(2 * total), np.uint16)
    repeats[:] = repeated
    ends = None
    if nulls or empties or ended is not None:
        ends = as_array(allocate(total))
        ends[:] = 0
    first, fresh = _spread_numpy(entries, ended, outer, lengths, valid, (null_code, empty_code))
    repeats[first] = 0 if rep is None else rep
    if ends is not None:
        ends[first] = fresh
    return ListEntries(repeats, ends, nulls, empties, ended_outside, dropped)


def _measure_numpy(
    entries: int, ended: UInt8s | None, outer: UInt8s | None, lengths: Int64s, valid: Flags | None
) -> tuple[int, int, list[int]]:
    """Return slots, or -1; inner entries; and nulls, empties, ended_outside, dropped lists."""
    slotted = _zeros(entries, outer) == 0
    slots = int(np.count_nonzero(slotted))
    if slots != len(lengths) or lengths.min(initial=0) < 0 or lengths.max(initial=0) > MAX_ENTRIES:
        return -1, 0, [0] * 4
    goes_on = _zeros(entries, ended)[slotted] == 0
    kept = goes_on if valid is None else goes_on & valid
    total = entries - slots + int(np.maximum(lengths * kept, 1).sum())
    seen = (goes_on & ~kept, kept & (lengths == 0), ~goes_on, ~kept & (lengths > 0))
    return slots, total, [int(np.count_nonzero(flags)) for flags in seen]


def _spread_numpy(
    entries: int,
    ended: UInt8s | None,
    outer: UInt8s | None,
    lengths: Int64s,
    valid: Flags | None,
    codes: tuple[int, int],
) -> tuple[Int64s, UInt8s]:
    """Return the first inner entry of each outer entry, and its code."""
    slotted = _zeros(entries, outer) == 0
    sizes, fresh = np.ones(entries, np.int64), _zeros(entries, ended).copy()
    here = fresh[slotted]
    goes_on = here == 0
    kept = goes_on if valid is None else goes_on & valid
    here[goes_on & ~kept], here[kept & (lengths == 0)] = codes
    fresh[slotted] = here
    sizes[slotted] = np.maximum(lengths * kept, 1)
    return np.cumsum(sizes) - sizes, fresh


def end_slots(
    entries: int, ended: UInt8s | None, outer: UInt8s | None, valid: Flags, code: int
) -> UInt8s:
    """End the entries whose slot is null; return the new ``ended``."""
    for name, array in (("ended", ended), ("outer", outer)):
        _check(name, array, entries)
    valid = np.ascontiguousarray(valid)
    slotted = slice(None) if outer is None else outer == 0
    null, here = np.zeros(entries, np.uint8), np.logical_not(valid).view(np.uint8)
    slots = len(null[slotted])
    if slots == len(valid):
        null[slotted] = here * np.uint8(code)
    ends = null if ended is None else np.where(ended == 0, null, ended)
    if slots != len(valid):
        raise ValueError(f"validity of {len(valid)} slots does not match {entries} entries")
    return ends


def number_ends(ended: UInt8s, levels: UInt16s) -> UInt16s:
    """Return the definition level of each entry: ``levels[code]``, of at most 256 levels."""
    entries = len(ended)
    _check("ended", ended, entries)
    if not 0 < len(levels) <= CODES or int(ended.max(initial=0)) >= len(levels):
        raise ValueError(f"{len(levels)} levels for codes up to {ended.max(initial=0)}")
    return levels[ended]


def _zeros(entries: int, flags: UInt8s | None) -> UInt8s:
    return np.zeros(entries, np.uint8) if flags is None else flags
