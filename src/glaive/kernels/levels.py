"""Turn repetition and definition levels into list offsets and validity.

One call resolves one list layer: it reads the levels of all entries once and writes the
offsets and validity of the lists that begin there, and the remaining levels for the outer
layers.

Specification: "Levels" in ``docs/format/levels.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels._addresses import address, allocate_bits
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import levels as compiled
from glaive.kernels.records import ResolveLists
from glaive.memory import allocate, as_array, as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import UInt16s

__all__ = ["ListLayer", "exercise", "resolve_lists", "validity_from_levels"]


_NULL_BIT = pa.py_buffer(b"\0")
"""Validity of a single null."""


class ListLayer(NamedTuple):
    """The lists of one layer.

    ``offsets`` has ``slots + 1`` values of ``offset_bits``; ``validity`` is an Arrow bitmap or
    None; ``rep`` and ``definition`` are the remaining levels for the outer layers (None when not
    requested).
    """

    offsets: pa.Buffer
    validity: pa.Buffer | None
    null_count: int
    slots: int
    visible: int
    rep: UInt16s | None
    definition: UInt16s | None


def resolve_lists(
    rep: UInt16s,
    definition: UInt16s | None,
    *,
    visible_max: int,
    resolved_max: int,
    slot_max: int,
    null_level: int,
    offset_bits: int,
    outer: bool,
    capacity: int | None = None,
) -> ListLayer | None:
    """Turn the levels of all entries into the lists of one layer.

    Parameters
    ----------
    rep, definition
        Levels, one per entry; ``definition`` None means all 0.
    visible_max
        Entries with a definition level up to this one are items of the lists.
    resolved_max
        Highest definition level that this layer and the inner ones resolve.
    slot_max
        Entries with a definition level up to this one have a slot in the array of lists.
    null_level
        The definition level of a null list; 0 when no list is null.
    offset_bits
        32 or 64; the caller has checked that the number of entries fits.
    outer
        Whether there are outer layers, which need the remaining levels.
    capacity
        Lists at most; the number of entries by default.

    Returns
    -------
    ListLayer or None
        None if there are more lists, or if an entry that has no slot, because something outside
        is null or empty, continues a list or is continued: its items would be in the list before.
    """
    entries = len(rep)
    if definition is None:
        null_level = 0
    elif len(definition) != entries:
        raise ValueError(f"{len(definition)} definition levels for {entries} entries")
    capacity = entries if capacity is None else min(capacity, entries)
    width = offset_bits // 8
    # The kernel stores up to three offsets too many.
    offsets = allocate((capacity + 4) * width)
    next_rep = next_def = None
    if outer:
        next_rep = as_array(allocate(2 * entries), np.uint16)
        next_def = as_array(allocate(2 * entries), np.uint16)
    if use_compiled(entries):
        bitmap = allocate_bits(capacity if null_level else 0)
        rep = np.ascontiguousarray(rep)
        if definition is not None:
            definition = np.ascontiguousarray(definition)
        call = ResolveLists(
            rep=address(rep) if entries else 0,
            definition=address(definition) if definition is not None and entries else 0,
            entries=entries, visible_max=visible_max, resolved_max=resolved_max, slot_max=slot_max,
            null_level=null_level, offsets=address(offsets), width=width, valid=address(bitmap),
            next_rep=address(next_rep) if next_rep is not None and entries else 0,
            next_def=address(next_def) if next_def is not None and entries else 0,
            capacity=capacity,
        )  # fmt: skip
        slots, remaining, visible, nulls = compiled.resolve_lists(*call)
    else:
        slots, remaining, visible, nulls, bitmap = _resolve_lists_numpy(
            rep, definition, (visible_max, resolved_max, slot_max, null_level),
            as_array(offsets, f"<i{width}"), next_rep, next_def,
        )  # fmt: skip
    if slots < 0:
        return None
    return ListLayer(
        offsets.slice(0, (slots + 1) * width),
        # The rest of it was never written, and buffers are handed on whole.
        bitmap.slice(0, (slots + 7) // 8) if nulls else None, nulls, slots, visible,
        next_rep[:remaining] if next_rep is not None else None,
        next_def[:remaining] if next_def is not None else None,
    )  # fmt: skip


def _resolve_lists_numpy(
    rep: UInt16s,
    definition: UInt16s | None,
    levels: tuple[int, int, int, int],
    offsets: NDArray[np.signedinteger],
    next_rep: UInt16s | None,
    next_def: UInt16s | None,
) -> tuple[int, int, int, int, pa.Buffer]:
    visible_max, resolved_max, slot_max, null_level = levels
    if definition is None:
        definition = np.zeros(len(rep), np.uint16)
    visible = definition <= visible_max
    before = np.cumsum(visible, dtype=np.int64) - visible
    starts = rep > 0
    closed = definition > slot_max
    slot = starts & ~closed
    if (closed & ~starts).any() or (closed[:-1] & ~starts[1:]).any():
        return -1, 0, 0, 0, _NULL_BIT
    slots, total = int(np.count_nonzero(slot)), int(np.count_nonzero(visible))
    null = definition[slot] == null_level if null_level else np.zeros(slots, np.bool_)
    bitmap = as_buffer(np.packbits(~null, bitorder="little"))
    nulls = int(np.count_nonzero(null))
    if slots > len(offsets) - 4:
        return -1, 0, total, nulls, bitmap
    offsets[:slots] = before[slot]
    offsets[slots] = total
    remaining = int(np.count_nonzero(starts))
    if next_rep is not None and next_def is not None:
        next_rep[:remaining] = rep[starts] - 1
        rest = definition[starts]
        next_def[:remaining] = np.where(rest > resolved_max, rest, 0)
    return slots, remaining, total, nulls, bitmap


def validity_from_levels(
    definition: UInt16s, *, slot_max: int, null_level: int
) -> tuple[pa.Buffer | None, int, int]:
    """Validity of an item layer: ``(bitmap or None, null count, slots)``.

    Entries with a definition level above ``slot_max`` have no slot; those at ``null_level`` ≥ 1
    are null.
    """
    entries = len(definition)
    if entries == 1:  # a take of one row
        level = definition.item()
        null = level == null_level and level <= slot_max
        return (_NULL_BIT if null else None), int(null), int(level <= slot_max)
    if use_compiled(entries):
        bitmap = allocate_bits(entries)
        definition = np.ascontiguousarray(definition)
        slots, nulls = compiled.validity(
            address(definition) if entries else 0, entries, slot_max, null_level, address(bitmap)
        )
    else:
        slotted = definition[definition <= slot_max]
        slots, nulls = len(slotted), int(np.count_nonzero(slotted == null_level))
        bitmap = as_buffer(np.packbits(slotted != null_level, bitorder="little"))
    return (bitmap.slice(0, (slots + 7) // 8) if nulls else None), nulls, slots


def exercise() -> None:
    """Call every wrapper once with little data."""
    rep = np.array([1, 0, 1], np.uint16)
    for outer in (False, True):
        resolve_lists(
            rep, np.zeros(3, np.uint16), visible_max=0, resolved_max=0, slot_max=0, null_level=0,
            offset_bits=32, outer=outer,
        )  # fmt: skip
    validity_from_levels(rep, slot_max=1, null_level=1)
