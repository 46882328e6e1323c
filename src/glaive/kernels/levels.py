"""Turn repetition and definition levels into list offsets and validity.

One call resolves one list layer. It reads the levels of all entries once. It writes the offsets
and validity of the lists that begin there, and the remaining levels for the outer layers.

Specification: "Levels" in ``docs/format/levels.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.dataclass import NamedTuple
from glaive.kernels._addresses import address, allocate_bits, given
from glaive.kernels.native import levels as levels_loops
from glaive.types import Int64s, UInt16s, allocate, as_array


class ListLayer(NamedTuple):
    """The lists of one layer.

    ``offsets`` has ``slots + 1`` values of ``offset_bits``; ``validity`` is an Arrow bitmap or
    ``None``; ``rep`` and ``definition`` are the remaining levels for the outer layers, if
    requested.
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
        Levels, one per entry; ``None`` as ``definition`` means all 0.
    visible_max
        Entries with a definition level up to this one are items of the lists.
    resolved_max
        Highest definition level that this layer and the inner ones resolve.
    slot_max
        Entries with a definition level up to this one have a slot in the array of lists.
    null_level
        The definition level of a null list; 0 when all lists are valid.
    offset_bits
        32 or 64; the caller has checked that the number of entries fits.
    outer
        Whether there are outer layers, which need the remaining levels.
    capacity
        Largest number of lists; the number of entries by default.

    Returns
    -------
    ListLayer or None
        ``None`` if the entries have more lists. Also ``None`` if an entry without a slot continues
        a list or is continued, because its items would be in the list before. Such an entry is
        inside a null or empty list.
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
    bitmap = allocate_bits(capacity if null_level else 0)
    rep = np.ascontiguousarray(rep)
    if definition is not None:
        definition = np.ascontiguousarray(definition)
    slots, remaining, visible, nulls = levels_loops.resolve_lists(
        rep=given(rep),
        definition=given(definition),
        entries=entries, visible_max=visible_max, resolved_max=resolved_max, slot_max=slot_max,
        null_level=null_level, offsets=address(offsets), width=width, valid=address(bitmap),
        next_rep=given(next_rep),
        next_def=given(next_def),
        capacity=capacity,
    )  # fmt: skip
    if slots < 0:
        return None
    return ListLayer(
        offsets.slice(0, (slots + 1) * width),
        # Cut off the unwritten rest, because callers use whole buffers.
        bitmap.slice(0, (slots + 7) // 8) if nulls else None, nulls, slots, visible,
        next_rep[:remaining] if next_rep is not None else None,
        next_def[:remaining] if next_def is not None else None,
    )  # fmt: skip


def validity_from_levels(
    definition: UInt16s, *, slot_max: int, null_level: int
) -> tuple[pa.Buffer | None, int, int]:
    """Return the validity of an item layer: ``(bitmap or None, null count, slots)``.

    Entries with a definition level above ``slot_max`` lack a slot; entries at ``null_level`` ≥ 1
    are null.
    """
    entries = len(definition)
    bitmap = allocate_bits(entries)
    definition = np.ascontiguousarray(definition)
    slots, nulls = levels_loops.validity(
        given(definition), entries, slot_max, null_level, address(bitmap)
    )
    return (bitmap.slice(0, (slots + 7) // 8) if nulls else None), nulls, slots


LEVEL_BITS = 16


# --- Cut the levels of a page into chunks, and count the rows that start in each --------
#
# Specification: "Mini-block pages" and "Repetition index" in ``docs/format/pages.md``.


def cut_visible(definition: UInt16s, visible_max: int, counts: Int64s) -> Int64s:
    """Find where chunks end; invisible entries after the last visible one begin the next chunk.

    Parameters
    ----------
    definition
        ``uint16`` of shape ``(entries,)``; entries up to ``visible_max`` have a value.
    visible_max
        The highest definition level of an entry with a value.
    counts
        ``int64`` of shape ``(chunks,)``, above 0: values of each chunk.

    Returns
    -------
    ndarray
        ``int64`` of shape ``(chunks,)``: the entry after the last value of each chunk.

    Raises
    ------
    ValueError
        A chunk lacks values, or visible entries are fewer than values.
    """
    counts = np.ascontiguousarray(counts, np.int64)
    definition = np.ascontiguousarray(definition, np.uint16)
    if counts.min(initial=1) < 1:
        raise ValueError(f"a chunk of {counts.min()} values")
    visible = (definition <= visible_max).nonzero()[0]
    places = counts.cumsum()
    if len(counts) and not 0 < places[-1] <= len(visible):
        raise ValueError(f"{len(definition)} levels have too few values for {len(counts)} chunks")
    ends: Int64s = visible[places - 1] + 1
    return ends


def count_starts(rep: UInt16s, cuts: Int64s, max_rep: int) -> tuple[Int64s, Int64s]:
    """Count the rows that start in each chunk.

    Parameters
    ----------
    rep
        ``uint16`` of shape ``(entries,)``; rows start at ``max_rep`` ≥ 1, the highest level.
    cuts
        ``int64`` of shape ``(chunks + 1,)``, ascending: chunk i has the entries ``cuts[i]`` to
        ``cuts[i + 1]``.

    Returns
    -------
    tuple
        Two arrays of ``int64`` and shape ``(chunks,)``. The first has the number of rows that start
        in each chunk. The second has the number of its entries from the last such row on, or of
        all its entries.

    Raises
    ------
    ValueError
        Cuts descend, or leave the entries.
    """
    cuts = np.ascontiguousarray(cuts, np.int64)
    rep = np.ascontiguousarray(rep, np.uint16)
    ascend = len(cuts) > 0 and cuts[0] >= 0 and cuts[-1] <= len(rep)
    if not ascend or (cuts[1:] < cuts[:-1]).any() or max_rep < 1:
        raise ValueError(f"cuts {cuts} of {len(rep)} entries, and the highest level {max_rep}")
    begin, end = cuts[:-1], cuts[1:]
    places = (rep >= max_rep).nonzero()[0]
    first = places.searchsorted(begin, "left")
    stop = places.searchsorted(end, "left")
    last = begin.copy()
    some = stop > first
    last[some] = places[stop[some] - 1]
    return stop - first, end - last
