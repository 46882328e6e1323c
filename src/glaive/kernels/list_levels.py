"""Decode, check and cut the levels of chunks of a page with lists to rows, in one pass.

The wrappers support the level encodings in use (``records.LevelPage``). They return ``None`` if
levels are damaged or compiled kernels are disabled. The caller then uses the general path, which
reads headers, levels and counts in turn and reports the damage.

Specification: "Chunks" and "Repetition index" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.dataclass import NamedTuple
from glaive.kernels._addresses import address, allocate_with_slack, given
from glaive.kernels.chunks import max_levels
from glaive.kernels.native import list_levels as list_levels_loops
from glaive.kernels.records import LevelPage, packed
from glaive.types import Flags, Int64s, UInt8s, UInt16s, allocate, as_array


# --- Chunks of pages with lists ---------------------------------------------------------
def same_length(length: int, *arrays: Int64s | Flags) -> None:
    """Raise ``ValueError`` unless all arrays have ``length`` items."""
    for array in arrays:  # a generator would take as long as the call of a kernel
        if len(array) != length:
            raise ValueError(f"arrays of {[len(array) for array in arrays]} items, not {length}")


SLACK = 2048 + 64
"""Bytes to allocate after the levels: kernels write whole blocks of 1,024, and past runs."""


class ReadLevels(NamedTuple):
    """Concatenated levels of chunks; ``firsts`` has the first entry of each chunk.

    Value buffer b of chunk i starts at ``starts[b, i]`` and has ``sizes[b, i]`` bytes.
    """

    rep: UInt16s
    definition: UInt16s | None
    firsts: Int64s
    starts: Int64s
    sizes: Int64s


def read_levels(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    row_starts: Int64s,
    enters: Flags,
    page: LevelPage,
) -> ReadLevels | None:
    """Decode the levels of chunks.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, sizes, counts
        ``int64`` of shape ``(chunks,)``: first byte, bytes and visible entries of each chunk.
    row_starts
        ``int64`` of shape ``(chunks + 1,)``: rows ``row_starts[i]`` to ``row_starts[i + 1]``
        start in chunk i.
    enters
        ``bool`` of shape ``(chunks,)``: whether the chunk begins in the middle of a row.
    page
        Encodings and limits of the levels.

    Returns
    -------
    ReadLevels or None
        ``None`` if levels are damaged or compiled kernels are disabled.
    """
    chunks = len(starts)
    if not chunks:
        return None
    same_length(chunks, sizes, counts, row_starts[1:], enters)
    starts, sizes, counts, row_starts = (
        np.ascontiguousarray(numbers) for numbers in (starts, sizes, counts, row_starts)
    )
    enters = np.ascontiguousarray(enters)
    total = list_levels_loops.count_entries(address(data), data.size, address(starts), chunks)
    if not chunks <= total <= max_levels(counts, row_starts, sizes, max_rep=page.max_rep):
        return None
    buffers = page.value_buffers
    memory = as_array(allocate(8 * chunks * (1 + 2 * buffers)), np.int64)
    rep = allocate_with_slack(2 * total, slack=SLACK)
    definition = allocate_with_slack(2 * total, slack=SLACK) if page.definition else None
    base = address(memory)
    record = packed(page)
    done = list_levels_loops.read_chunks(
        data=address(data), data_size=data.size, starts=address(starts), sizes=address(sizes),
        counts=address(counts), row_starts=address(row_starts), enters=address(enters),
        chunks=chunks, page=address(record), buffer_starts=base + 8 * chunks,
        buffer_sizes=base + 8 * chunks * (1 + buffers), firsts=base, rep=address(rep),
        definition=given(definition), capacity=total,
    )  # fmt: skip
    if done != total:
        return None
    return ReadLevels(
        as_array(rep, np.uint16),
        None if definition is None else as_array(definition, np.uint16),
        memory[:chunks],
        memory[chunks : chunks * (1 + buffers)].reshape(buffers, chunks),
        memory[chunks * (1 + buffers) :].reshape(buffers, chunks),
    )


class LocatedRows(NamedTuple):
    """The ids of the chunks that hold some rows, ascending, and the range of each row.

    Row i begins in chunk ``ids[begin[i]]`` and ends in ``ids[last[i]]``.
    """

    ids: Int64s
    begin: Int64s
    last: Int64s


def locate_rows(rows: Int64s, row_starts: Int64s, enters: Flags) -> LocatedRows:
    """Find the chunks of rows; ascending rows are faster.

    Parameters
    ----------
    rows
        ``int64``: row numbers from 0 to below ``row_starts[-1]``.
    row_starts, enters
        As for :func:`read_levels`; both have ``chunks + 1`` items.
    """
    rows = np.ascontiguousarray(rows, np.int64)
    row_starts, enters = np.ascontiguousarray(row_starts), np.ascontiguousarray(enters)
    chunks, wanted = len(row_starts) - 1, len(rows)
    memory = as_array(allocate(8 * (2 * wanted + 2 * chunks + 1)), np.int64)
    base = address(memory)
    ids = base + 16 * wanted
    used = list_levels_loops.locate_rows(
        given(rows), wanted, address(row_starts), address(enters), chunks,
        ids + 8 * chunks, base, base + 8 * wanted, ids,
    )  # fmt: skip
    return LocatedRows(
        memory[2 * wanted : 2 * wanted + used], memory[:wanted], memory[wanted : 2 * wanted]
    )


# --- Turn list lengths and validity into entries, and entries into levels, layer by layer
#
# An *entry* becomes one level. It has ended if a null or an empty list replaces items: then
# ``ended`` is a code from 1 to 255 that the caller chooses. ``outer`` is the value of ``ended`` at
# the innermost list so far. An entry that had ended there has no *slot* in the arrays inside this
# list.
#
# Specification: "Levels" in ``docs/format/levels.md``.

CODES = 256
"""Number of codes: one per kind of end, and 0 for entries that continue."""

MAX_ENTRIES = 1 << 46
"""Maximum entries: more than fits in memory, with sizes in bytes below 2^63."""


class ListEntries(NamedTuple):
    """The entries inside a list layer, and counts of lists.

    - ``rep`` and ``ended`` have one item per entry. ``ended`` is ``None`` if all entries continue.
    - ``nulls`` and ``empties`` count lists whose entry continues.
    - ``ended_outside`` counts lists whose entry has ended in an outer layer.
    - ``dropped`` counts lists with items that are null or whose entry has ended.
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
    """Make the entries of a list layer: one per item, and one per empty or null list.

    Parameters
    ----------
    rep
        ``uint16`` of shape ``(entries,)``: the repetition level of each outer entry. ``None`` for
        zeros.
    ended, outer
        ``uint8`` of shape ``(entries,)``. ``None`` for zeros.
    lengths
        ``int64`` of shape ``(slots,)``: the items of the list in each slot.
    valid
        ``bool`` of shape ``(slots,)``: whether the list is valid. ``None`` if all are valid.
    entries
        Number of outer entries.
    repeated
        The repetition level of items after the first. The first item has the level of its list.
    null_code, empty_code
        The codes of null and empty lists, 1 to 255.

    Raises
    ------
    ValueError
        The arrays differ in length. Or a list has less than 0 items, or more than fit in memory.
    """
    for name, array in (("rep", rep), ("ended", ended), ("outer", outer)):
        _check(name, array, entries)
    _check("valid", valid, len(lengths))
    lengths = np.ascontiguousarray(lengths, np.int64)
    counts = np.zeros(5, np.int64)
    limit = min(entries + max(int(lengths.sum()), 0), MAX_ENTRIES)
    slots = list_levels_loops.measure_lists(
        given(ended), given(outer), entries, given(lengths), given(valid), len(lengths),
        limit, address(counts),
    )  # fmt: skip
    total, *seen = counts.tolist()
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
    list_levels_loops.spread_lists(
        rep=given(rep), ended=given(ended), outer=given(outer), entries=entries,
        lengths=given(lengths), valid=given(valid), null_code=null_code,
        empty_code=empty_code, rep_out=given(repeats), ended_out=given(ends),
    )  # fmt: skip
    return ListEntries(repeats, ends, nulls, empties, ended_outside, dropped)


def end_slots(
    entries: int, ended: UInt8s | None, outer: UInt8s | None, valid: Flags, code: int
) -> UInt8s:
    """End the entries whose slot is null; return the new ``ended``.

    Parameters
    ----------
    entries, ended, outer
        As for :func:`spread_lists`.
    valid
        ``bool`` of shape ``(slots,)``: whether the slot is valid.
    code
        The code of null slots, 1 to 255.

    Raises
    ------
    ValueError
        The arrays differ in length.
    """
    for name, array in (("ended", ended), ("outer", outer)):
        _check(name, array, entries)
    valid = np.ascontiguousarray(valid)
    ends = as_array(allocate(entries))
    slots = list_levels_loops.end_slots(
        given(ended), given(outer), entries, given(valid), len(valid), code, given(ends)
    )
    if slots != len(valid):
        raise ValueError(f"validity of {len(valid)} slots does not match {entries} entries")
    return ends


def number_ends(ended: UInt8s, levels: UInt16s) -> UInt16s:
    """Return the definition level of each entry: ``levels[code]``, of at most 256 levels.

    Raises
    ------
    ValueError
        There are more levels than codes, or a code lacks a level.
    """
    entries = len(ended)
    _check("ended", ended, entries)
    if not 0 < len(levels) <= CODES or int(ended.max(initial=0)) >= len(levels):
        raise ValueError(f"{len(levels)} levels for codes up to {ended.max(initial=0)}")
    table = np.zeros(CODES, np.uint16)
    table[: len(levels)] = levels
    numbered = as_array(allocate(2 * entries), np.uint16)
    list_levels_loops.number_ends(given(ended), entries, address(table), given(numbered))
    return numbered


def _check(name: str, array: UInt8s | UInt16s | Flags | None, count: int) -> None:
    if array is not None and (array.shape != (count,) or not array.flags.c_contiguous):
        raise ValueError(f"{name!r} has shape {array.shape}, expected {count} contiguous items")
