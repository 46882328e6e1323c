"""Compiled kernels over the entries of nested arrays; wrappers: ``glaive.kernels.list_entries``.

``outer`` and ``ended`` have one byte per entry, other than 0 where it has no slot, and where it has
ended; an address of 0 stands for zeros. ``valid`` has one byte per slot, 0 for all of them valid.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    load_i64,
    load_u8,
    load_u16,
    load_u64,
    store_u8,
    store_u16,
    store_u64,
)
from glaive.kernels.records import SpreadLists

ZEROS = 8
"""Entries that are looked at together: most are not at the end of anything."""


@kernel
def has_slot(outer: int, entry: int) -> bool:
    """Whether an entry has a slot in the array of this layer."""
    return outer == 0 or load_u8(outer + entry) == 0


@kernel
def measure_lists(
    ended: int, outer: int, entries: int, lengths: int, valid: int, slots: int, limit: int,
    result: int,
) -> int:  # fmt: skip
    """Count what the lists of a layer become; the counts are stored at ``result``.

    In this order: entries inside, null lists, empty lists, lists that have ended outside, lists
    with items that are dropped. Returns the number of slots seen; -1 when there are more than
    ``slots``, or a list with fewer than 0 items or more than are left of ``limit``.
    """
    slot = np.int64(0)
    total = np.int64(0)
    nulls = np.int64(0)
    empties = np.int64(0)
    ended_outside = np.int64(0)
    dropped = np.int64(0)
    for entry in range(entries):
        if not has_slot(outer, entry):
            total += 1
            continue
        if slot == slots:
            return -1
        length = load_i64(lengths + 8 * slot)
        goes_on = np.int64(ended == 0 or load_u8(ended + entry) == 0)
        is_valid = np.int64(valid == 0 or load_u8(valid + slot) != 0)
        kept = goes_on & is_valid
        has_items = np.int64(length > 0)
        if length < 0 or length * kept > limit - total:
            return -1
        total += max(length * kept, 1)
        ended_outside += 1 - goes_on
        nulls += goes_on & (1 - is_valid)
        empties += kept & (1 - has_items)
        dropped += has_items & (1 - kept)
        slot += 1
    store_u64(result, total)
    store_u64(result + 8, nulls)
    store_u64(result + 16, empties)
    store_u64(result + 24, ended_outside)
    store_u64(result + 32, dropped)
    return slot


@kernel_of(SpreadLists)
def spread_lists(
    rep: int, ended: int, outer: int, entries: int, lengths: int, valid: int, null_code: int,
    empty_code: int, rep_out: int, ended_out: int,
) -> None:  # fmt: skip
    """Store the first entry of each list; the others have been filled in.

    The lists have been measured: there is room for all entries.
    """
    slot = np.int64(0)
    at = np.int64(0)
    for entry in range(entries):
        level = np.int64(0)
        end = np.int64(0)
        size = np.int64(1)
        if rep != 0:
            level = np.int64(load_u16(rep + 2 * entry))
        if ended != 0:
            end = np.int64(load_u8(ended + entry))
        if has_slot(outer, entry):
            if end == 0:
                if valid != 0 and load_u8(valid + slot) == 0:
                    end = null_code
                else:
                    size = load_i64(lengths + 8 * slot)
                    if size == 0:
                        end = empty_code
                        size = np.int64(1)
            slot += 1
        store_u16(rep_out + 2 * at, level)
        if ended_out != 0:
            store_u8(ended_out + at, end)
        at += size


@kernel
def end_slots(
    ended: int, outer: int, entries: int, valid: int, slots: int, code: int, ended_out: int
) -> int:
    """Store ``code`` for entries whose slot is not valid, else what there was.

    Returns the number of slots seen, -1 when there are more than ``slots``.
    """
    slot = np.int64(0)
    for entry in range(entries):
        end = np.int64(0)
        if ended != 0:
            end = np.int64(load_u8(ended + entry))
        if has_slot(outer, entry):
            if slot == slots:
                return -1
            if end == 0 and load_u8(valid + slot) == 0:
                end = code
            slot += 1
        store_u8(ended_out + entry, end)
    return slot


@kernel
def number_ends(ended: int, entries: int, table: int, levels: int) -> None:
    """Store the level of each entry: that of its code in a ``table`` of 256 levels."""
    at = np.int64(0)
    while at < entries:
        if at + ZEROS <= entries and load_u64(ended + at) == np.uint64(0):
            store_u64(levels + 2 * at, np.uint64(0))
            store_u64(levels + 2 * at + 8, np.uint64(0))
            at += ZEROS
            continue
        stop = np.int64(min(at + ZEROS, entries))
        while at < stop:
            store_u16(levels + 2 * at, load_u16(table + 2 * np.int64(load_u8(ended + at))))
            at += 1
