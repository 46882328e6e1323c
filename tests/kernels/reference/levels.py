"""NumPy references of ``glaive.kernels.levels``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels.levels import ListLayer
from glaive.types import UInt16s, allocate, as_array, as_buffer


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
    """Turn the levels of all entries into the lists of one layer."""
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
        return -1, 0, 0, 0, pa.py_buffer(b"\0")
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
    """Validity of an item layer: ``(bitmap or None, null count, slots)``."""
    entries = len(definition)
    if entries == 1:  # a take of one row
        level = definition.item()
        null = level == null_level and level <= slot_max
        return (pa.py_buffer(b"\0") if null else None), int(null), int(level <= slot_max)
    slotted = definition[definition <= slot_max]
    slots, nulls = len(slotted), int(np.count_nonzero(slotted == null_level))
    bitmap = as_buffer(np.packbits(slotted != null_level, bitorder="little"))
    return (bitmap.slice(0, (slots + 7) // 8) if nulls else None), nulls, slots
