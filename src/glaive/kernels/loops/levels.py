"""Loops behind ``glaive.kernels.levels``."""

from __future__ import annotations

from glaive.kernels.loops.memory import load_u16, loop, store_u8, store_u16, store_u32, store_u64


@loop
def resolve_lists(
    rep: int,
    definition: int,
    entries: int,
    visible_max: int,
    resolved_max: int,
    slot_max: int,
    null_level: int,
    offsets: int,
    width: int,
    valid: int,
    next_rep: int,
    next_def: int,
) -> tuple[int, int, int]:
    """Resolve one list layer; returns (slots, entries left, visible items).

    Stores go to the next free place whether or not the entry begins a list, and only the
    position moves: a branch that is taken at random costs more than the store.
    """
    slots = 0
    left = 0
    visible = 0
    if definition == 0 and next_rep == 0:
        if width == 4:
            for i in range(entries):
                store_u32(offsets + 4 * slots, i)
                slots += load_u16(rep + 2 * i) != 0
            store_u32(offsets + 4 * slots, entries)
        else:
            for i in range(entries):
                store_u64(offsets + 8 * slots, i)
                slots += load_u16(rep + 2 * i) != 0
            store_u64(offsets + 8 * slots, entries)
        for i in range(slots):
            store_u8(valid + i, 1)
        return slots, left, entries
    if next_rep == 0 and width == 4:
        for i in range(entries):
            d = int(load_u16(definition + 2 * i))
            store_u32(offsets + 4 * slots, visible)
            store_u8(valid + slots, d != null_level)
            slots += int(load_u16(rep + 2 * i) != 0) & int(d <= slot_max)
            visible += int(d <= visible_max)
        store_u32(offsets + 4 * slots, visible)
        return slots, left, visible
    for i in range(entries):
        r = load_u16(rep + 2 * i)
        d = 0
        if definition != 0:
            d = int(load_u16(definition + 2 * i))
        if width == 4:
            store_u32(offsets + 4 * slots, visible)
        else:
            store_u64(offsets + 8 * slots, visible)
        store_u8(valid + slots, d != null_level)
        begins = r != 0
        if next_rep != 0 and begins:
            store_u16(next_rep + 2 * left, int(r) - 1)
            store_u16(next_def + 2 * left, d if d > resolved_max else 0)
            left += 1
        slots += begins and d <= slot_max
        visible += d <= visible_max
    if width == 4:
        store_u32(offsets + 4 * slots, visible)
    else:
        store_u64(offsets + 8 * slots, visible)
    return slots, left, visible


@loop
def flag_valid(
    definition: int, entries: int, slot_max: int, null_level: int, valid: int
) -> int:
    """Write one byte per entry that has a slot: 0 at ``null_level``; returns the slots."""
    slots = 0
    for i in range(entries):
        d = int(load_u16(definition + 2 * i))
        store_u8(valid + slots, d != null_level)
        slots += int(d <= slot_max)
    return slots
