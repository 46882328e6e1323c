"""Turn list lengths and validity into entries, and entries into levels: shredding, layer by layer.

An *entry* becomes one level. It has ended where a null or an empty list stands in for items: then
``ended`` is a code from 1 to 255 that the caller chooses. ``outer`` is ``ended`` as it was at the
innermost list so far: an entry that had ended there has no *slot* in the arrays inside of it.

Specification: "Levels" in ``docs/format/levels.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import list_entries as compiled
from glaive.kernels.records import SpreadLists
from glaive.memory import allocate, as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s, UInt8s, UInt16s

__all__ = ["ListEntries", "end_slots", "exercise", "number_ends", "spread_lists"]

CODES = 256
"""Codes of entries that have ended, and 0 for those that go on."""

MAX_ENTRIES = 1 << 46
"""More than there is memory for; their sizes in bytes do not overflow."""


class ListEntries(NamedTuple):
    """The entries inside of a list layer, and what the lists were.

    ``rep`` and ``ended`` have one item per entry; ``ended`` is None when none has ended. ``nulls``
    and ``empties`` are among the lists that go on; ``ended_outside`` are those whose entry has
    ended further out; ``dropped`` have items although they are null or their entry has ended.
    """

    rep: UInt16s
    ended: UInt8s | None
    nulls: int
    empties: int
    ended_outside: int
    dropped: int


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
    """Make the entries of a list layer: one per item, and one per list without any.

    Parameters
    ----------
    rep
        ``uint16`` of shape ``(entries,)``: where each entry outside repeats; None for zeros.
    ended, outer
        ``uint8`` of shape ``(entries,)``; None for zeros.
    lengths, valid
        ``int64`` and ``bool`` of shape ``(slots,)``: items of the list in each slot, and whether it
        is not null; None when all are valid.
    entries
        Entries outside of the layer.
    repeated
        The value in ``rep`` of items after the first of a list; the first keeps that of the list.
    null_code, empty_code
        How null and empty lists end, 1 to 255.

    Raises
    ------
    ValueError
        The arrays do not match, or a list has fewer than 0 items or more than memory could hold.
    """
    for name, array in (("rep", rep), ("ended", ended), ("outer", outer)):
        _check(name, array, entries)
    _check("valid", valid, len(lengths))
    lengths = np.ascontiguousarray(lengths, np.int64)
    if use_compiled(entries):
        counts = np.zeros(5, np.int64)
        limit = min(entries + max(int(lengths.sum()), 0), MAX_ENTRIES)
        slots = compiled.measure_lists(
            _given(ended), _given(outer), entries, _given(lengths), _given(valid), len(lengths),
            limit, address(counts),
        )  # fmt: skip
        total, *seen = counts.tolist()
    else:
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
    if use_compiled(total):
        call = SpreadLists(
            rep=_given(rep), ended=_given(ended), outer=_given(outer), entries=entries,
            lengths=_given(lengths), valid=_given(valid), null_code=null_code,
            empty_code=empty_code, rep_out=_given(repeats), ended_out=_given(ends),
        )  # fmt: skip
        compiled.spread_lists(*call)
    else:
        first, fresh = _spread_numpy(entries, ended, outer, lengths, valid, (null_code, empty_code))
        repeats[first] = 0 if rep is None else rep
        if ends is not None:
            ends[first] = fresh
    return ListEntries(repeats, ends, nulls, empties, ended_outside, dropped)


def _measure_numpy(
    entries: int, ended: UInt8s | None, outer: UInt8s | None, lengths: Int64s, valid: Flags | None
) -> tuple[int, int, list[int]]:
    """Slots, or -1; entries inside; nulls, empties, ended_outside and dropped lists."""
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
    """The first entry inside of each entry outside, and how that has ended."""
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
    """End the entries whose slot is null; returns ``ended`` with them.

    Parameters
    ----------
    entries, ended, outer
        As for :func:`spread_lists`.
    valid
        ``bool`` of shape ``(slots,)``: whether the slot is not null.
    code
        How null slots end, 1 to 255.

    Raises
    ------
    ValueError
        The arrays do not match.
    """
    for name, array in (("ended", ended), ("outer", outer)):
        _check(name, array, entries)
    valid = np.ascontiguousarray(valid)
    if outer is not None and use_compiled(entries):
        ends = as_array(allocate(entries))
        slots = compiled.end_slots(
            _given(ended), _given(outer), entries, _given(valid), len(valid), code, _given(ends)
        )
    else:
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
    """Return the definition level of each entry: ``levels[code]``, of 256 levels at most.

    Raises
    ------
    ValueError
        There are more levels than codes, or a code has none.
    """
    entries = len(ended)
    _check("ended", ended, entries)
    if not 0 < len(levels) <= CODES or int(ended.max(initial=0)) >= len(levels):
        raise ValueError(f"{len(levels)} levels for codes up to {ended.max(initial=0)}")
    if not use_compiled(entries):
        return levels[ended]
    table = np.zeros(CODES, np.uint16)
    table[: len(levels)] = levels
    numbered = as_array(allocate(2 * entries), np.uint16)
    compiled.number_ends(_given(ended), entries, address(table), _given(numbered))
    return numbered


def exercise() -> None:
    """Call every wrapper once with little data."""
    valid = np.array([True, True, False])
    lists = spread_lists(
        None, None, None, np.array([2, 0, 0], np.int64), valid,
        entries=3, repeated=1, null_code=1, empty_code=2,
    )  # fmt: skip
    ends = end_slots(4, lists.ended, lists.ended, valid[1:], 3)
    number_ends(ends, np.arange(4, dtype=np.uint16))


def _zeros(entries: int, flags: UInt8s | None) -> UInt8s:
    return np.zeros(entries, np.uint8) if flags is None else flags


def _check(name: str, array: UInt8s | UInt16s | Flags | None, count: int) -> None:
    if array is not None and (array.shape != (count,) or not array.flags.c_contiguous):
        raise ValueError(f"{name!r} has shape {array.shape}, expected {count} contiguous items")


def _given(memory: UInt8s | UInt16s | Int64s | Flags | None) -> int:
    """The address of an array; 0 for none, or one without items."""
    return 0 if memory is None or not len(memory) else address(memory)
