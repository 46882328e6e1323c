"""Repetition and definition levels into list offsets and validity.

One call resolves one list layer: it reads the levels of all entries once and writes the
offsets and validity of the lists that begin there, and the levels that remain for the layers
outside.

Specification: "Levels" in ``docs/format/levels.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels._tier import address, allocate, use_loops

__all__ = ["ListLayer", "exercise", "resolve_lists", "validity_from_levels"]


class ListLayer(NamedTuple):
    """What one list layer resolves to.

    ``offsets`` has ``slots + 1`` values of ``offset_bits``; ``validity`` is an Arrow bitmap or
    None; ``rep`` and ``definition`` are the levels of the entries left for the layers outside
    (None when not asked for).
    """

    offsets: pa.Buffer
    validity: pa.Buffer | None
    null_count: int
    slots: int
    visible: int
    rep: NDArray[np.uint16] | None
    definition: NDArray[np.uint16] | None


def resolve_lists(
    rep: NDArray[np.uint16],
    definition: NDArray[np.uint16] | None,
    *,
    visible_max: int,
    resolved_max: int,
    slot_max: int,
    null_level: int,
    offset_bits: int,
    outer: bool,
) -> ListLayer:
    """Turn the levels of all entries into the lists of one layer.

    Parameters
    ----------
    rep, definition
        Levels, one per entry; ``definition`` None means all 0.
    visible_max
        Entries with a definition level up to this one are items of the lists.
    resolved_max
        Highest definition level that is spent up to and including this layer.
    slot_max
        Entries with a definition level up to this one have a slot in the array of lists.
    null_level
        The definition level of a null list; 0 when no list is null.
    offset_bits
        32 or 64; the caller has checked that the number of entries fits.
    outer
        Whether there are layers outside that need the remaining levels.
    """
    entries = len(rep)
    width = offset_bits // 8
    offsets = allocate((entries + 2) * width)
    valid = np.empty(entries + 1, np.uint8)
    next_rep = np.empty(entries if outer else 0, np.uint16)
    next_def = np.empty(entries if outer else 0, np.uint16)
    if use_loops(entries):
        from glaive.kernels.loops import levels as loops

        rep = np.ascontiguousarray(rep)
        if definition is not None:
            definition = np.ascontiguousarray(definition)
        packed = loops.resolve_lists(
            address(rep),
            address(definition) if definition is not None else 0,
            entries,
            visible_max,
            resolved_max,
            slot_max,
            null_level,
            address(offsets),
            width,
            address(valid),
            address(next_rep) if outer else 0,
            address(next_def) if outer else 0,
        )
        slots, left, visible = packed
    else:
        slots, left, visible = _resolve_lists_numpy(
            rep,
            definition,
            (visible_max, resolved_max, slot_max, null_level),
            np.frombuffer(offsets, f"<i{width}"),
            valid,
            next_rep,
            next_def,
        )
    bitmap, nulls = None, 0
    if null_level:
        flags = valid[:slots]
        nulls = slots - int(np.count_nonzero(flags))
        if nulls:
            bitmap = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return ListLayer(
        offsets.slice(0, (slots + 1) * width),
        bitmap,
        nulls,
        slots,
        visible,
        next_rep[:left] if outer else None,
        next_def[:left] if outer else None,
    )


def _resolve_lists_numpy(
    rep: NDArray[np.uint16],
    definition: NDArray[np.uint16] | None,
    levels: tuple[int, int, int, int],
    offsets: NDArray[np.signedinteger],
    valid: NDArray[np.uint8],
    next_rep: NDArray[np.uint16],
    next_def: NDArray[np.uint16],
) -> tuple[int, int, int]:
    visible_max, resolved_max, slot_max, null_level = levels
    if definition is None:
        definition = np.zeros(len(rep), np.uint16)
    visible = definition <= visible_max
    before = np.cumsum(visible, dtype=np.int64) - visible
    starts = rep > 0
    slot = starts & (definition <= slot_max)
    slots, total = int(np.count_nonzero(slot)), int(np.count_nonzero(visible))
    offsets[:slots] = before[slot]
    offsets[slots] = total
    valid[:slots] = definition[slot] != null_level
    left = 0
    if len(next_rep):
        left = int(np.count_nonzero(starts))
        next_rep[:left] = rep[starts] - 1
        rest = definition[starts]
        next_def[:left] = np.where(rest > resolved_max, rest, 0)
    return slots, left, total


def validity_from_levels(
    definition: NDArray[np.uint16], *, slot_max: int, null_level: int
) -> tuple[pa.Buffer | None, int, int]:
    """Validity bitmap of an item layer: ``(bitmap or None, null count, slots)``.

    Entries with a definition level above ``slot_max`` have no slot; ``null_level`` marks the
    null ones among the others.
    """
    valid = np.empty(len(definition) + 1, np.uint8)
    if use_loops(len(definition)):
        from glaive.kernels.loops import levels as loops

        definition = np.ascontiguousarray(definition)
        slots = loops.flag_valid(
            address(definition), len(definition), slot_max, null_level, address(valid)
        )
    else:
        slots = _flag_valid_numpy(definition, slot_max, null_level, valid)
    nulls = slots - int(np.count_nonzero(valid[:slots]))
    if not nulls:
        return None, 0, slots
    return pa.py_buffer(np.packbits(valid[:slots], bitorder="little")), nulls, slots


def _flag_valid_numpy(
    definition: NDArray[np.uint16], slot_max: int, null_level: int, valid: NDArray[np.uint8]
) -> int:
    slotted = definition[definition <= slot_max]
    valid[: len(slotted)] = slotted != null_level
    return len(slotted)


def exercise() -> None:
    """Call every door once; used to warm up the compiled loops."""
    rep = np.array([1, 0, 1], np.uint16)
    for outer in (False, True):
        resolve_lists(
            rep,
            np.zeros(3, np.uint16),
            visible_max=0,
            resolved_max=0,
            slot_max=0,
            null_level=0,
            offset_bits=32,
            outer=outer,
        )
    validity_from_levels(rep, slot_max=1, null_level=1)
