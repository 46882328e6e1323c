"""Decode, check and cut to rows the levels of chunks of a page with lists, in one pass.

The wrappers support the level encodings that are in use (``records.LevelPage``), and only with
compiled kernels: they return None when levels are damaged, or when compiled kernels are not to be
used. The caller then takes the general path, which reads headers, levels and counts one after the
other and reports the damage.

Specification: "Chunks" and "Repetition index" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels._list_chunks import ListChunks, same_length, sample_chunk
from glaive.kernels._tier import use_compiled
from glaive.kernels.chunks import max_levels
from glaive.kernels.native import list_levels as compiled_list_levels
from glaive.kernels.native import list_rows as compiled_list_rows
from glaive.kernels.records import LevelPage, ReadChunks, ReorderRows, SelectRows, packed
from glaive.memory import allocate, as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s, UInt16s

__all__ = [
    "LocatedRows",
    "ReadLevels",
    "SelectedLevels",
    "exercise",
    "locate_rows",
    "read_levels",
    "select_levels",
]

MAX_LEVELS = (1 << 16) - 1
"""Levels of a chunk at most: their number has 16 bits."""

SLACK = 2048 + 64
"""Bytes behind the levels: a block of 1,024, and what expanding runs writes in excess."""

ROW_ENTRIES = 16
"""Initial capacity in entries for a single row."""

MAX_ROW_ENTRIES = 256
"""Largest initial capacity in entries per row, for several rows."""


class ReadLevels(NamedTuple):
    """Levels of chunks, one after the other; ``firsts`` are the first entries of each.

    Value buffer b of chunk i lies at ``starts[b, i]`` and has ``sizes[b, i]`` bytes.
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
        None when anything differs, or when compiled kernels are not to be used.
    """
    chunks = len(starts)
    if not chunks or not use_compiled(64 * chunks):
        return None
    starts, sizes, counts, row_starts, enters = ListChunks.of(
        starts, sizes, counts, row_starts, enters
    )
    total = compiled_list_levels.count_entries(address(data), data.size, address(starts), chunks)
    if not chunks <= total <= max_levels(counts, row_starts, sizes, max_rep=page.max_rep):
        return None
    buffers = page.value_buffers
    memory = as_array(allocate(8 * chunks * (1 + 2 * buffers)), np.int64)
    rep = allocate_with_slack(2 * total, slack=SLACK)
    definition = allocate_with_slack(2 * total, slack=SLACK) if page.definition else None
    base = address(memory)
    record = packed(page)
    call = ReadChunks(
        data=address(data), data_size=data.size, starts=address(starts), sizes=address(sizes),
        counts=address(counts), row_starts=address(row_starts), enters=address(enters),
        chunks=chunks, page=address(record), buffer_starts=base + 8 * chunks,
        buffer_sizes=base + 8 * chunks * (1 + buffers), firsts=base, rep=address(rep),
        definition=0 if definition is None else address(definition), capacity=total,
    )  # fmt: skip
    done = compiled_list_levels.read_chunks(*call)
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
    """The chunks ``ids`` that hold some rows, ascending.

    Row i begins in chunk ``ids[begin[i]]`` and ends in ``ids[last[i]]``.
    """

    ids: Int64s
    begin: Int64s
    last: Int64s


def locate_rows(rows: Int64s, row_starts: Int64s, enters: Flags) -> LocatedRows:
    """Find the chunks of rows; faster when they ascend.

    Parameters
    ----------
    rows
        ``int64``: row numbers from 0 to below ``row_starts[-1]``.
    row_starts, enters
        As for :func:`read_levels`; both have one item more than there are chunks.
    """
    rows = np.ascontiguousarray(rows, np.int64)
    row_starts, enters = np.ascontiguousarray(row_starts), np.ascontiguousarray(enters)
    chunks, wanted = len(row_starts) - 1, len(rows)
    if not use_compiled(wanted + chunks):
        return _locate_numpy(rows, row_starts, enters)
    memory = as_array(allocate(8 * (2 * wanted + 2 * chunks + 1)), np.int64)
    base = address(memory)
    ids = base + 16 * wanted
    used = compiled_list_rows.locate_rows(
        address(rows) if wanted else 0, wanted, address(row_starts), address(enters), chunks,
        ids + 8 * chunks, base, base + 8 * wanted, ids,
    )  # fmt: skip
    return LocatedRows(
        memory[2 * wanted : 2 * wanted + used], memory[:wanted], memory[wanted : 2 * wanted]
    )


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


class SelectedLevels(NamedTuple):
    """Levels of selected rows, in order, and where the values of visible entries lie.

    Value j is number ``positions[j]`` of chunk ``slots[j]``; value buffers as in
    :class:`ReadLevels`.
    """

    rep: UInt16s
    definition: UInt16s | None
    slots: Int64s
    positions: Int64s
    starts: Int64s
    sizes: Int64s


def select_levels(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    row_starts: Int64s,
    enters: Flags,
    rows: Int64s,
    located: LocatedRows,
    page: LevelPage,
    order: Int64s | None = None,
) -> SelectedLevels | None:
    """Collect the levels of rows from the chunks that hold them.

    Each chunk is decoded once when rows ascend.

    Parameters
    ----------
    data
        Memory of the chunks ``located.ids``.
    starts
        ``int64``: where these chunks begin in ``data``.
    sizes, counts, row_starts, enters, page
        As for :func:`read_levels`, for all chunks of the page.
    rows, located
        ``int64`` row numbers, and the result of :func:`locate_rows` for them.
    order
        ``int64``: the position of each row in the result, a permutation; by default the order
        of ``rows``.
    """
    ids, begin, last = located
    chunks, wanted = len(ids), len(rows)
    if not wanted or not use_compiled(64 * chunks):
        return None
    same_length(chunks, starts)
    same_length(len(sizes), counts, row_starts[1:], enters[1:])
    same_length(wanted, begin, last)
    sizes, counts = np.ascontiguousarray(sizes), np.ascontiguousarray(counts)
    row_starts, enters = np.ascontiguousarray(row_starts), np.ascontiguousarray(enters)
    starts, rows = np.ascontiguousarray(starts), np.ascontiguousarray(rows)
    buffers = page.value_buffers
    has_def = page.definition != 0
    memory = as_array(allocate(8 * (2 * buffers * chunks + 2 * wanted)), np.int64)
    base = address(memory)
    lengths = base + 16 * buffers * chunks
    scratch = allocate(2 * (2 * MAX_LEVELS + SLACK))
    # A capacity for rows of the mean length; for longer rows the kernel is called again.
    mean_entries = ROW_ENTRIES
    if wanted > 1:
        mean_entries = min(int(counts.sum()) // max(int(row_starts[-1]), 1), MAX_ROW_ENTRIES)
    capacity = wanted * (mean_entries + 2) * 5 // 4 + 64
    record = packed(page)
    while True:
        rep = allocate(2 * capacity)
        definition = allocate(2 * capacity) if has_def else None
        values = allocate(16 * (capacity + 1))
        call = SelectRows(
            data=address(data), data_size=data.size, sizes=address(sizes), counts=address(counts),
            row_starts=address(row_starts), enters=address(enters), table_chunks=len(sizes),
            ids=address(ids), starts=address(starts), chunks=chunks, page=address(record),
            rows=address(rows), begin=address(begin), last=address(last), wanted=wanted,
            scratch_rep=address(scratch), scratch_def=address(scratch) + 2 * MAX_LEVELS + SLACK,
            scratch_capacity=MAX_LEVELS, buffer_starts=base,
            buffer_sizes=base + 8 * buffers * chunks, lengths=lengths, values=lengths + 8 * wanted,
            rep_out=address(rep), def_out=0 if definition is None else address(definition),
            slots=address(values), positions=address(values) + 8 * (capacity + 1),
            capacity=capacity,
        )  # fmt: skip
        done, seen = compiled_list_rows.select_rows(*call)
        if done < 0:
            return None
        if done <= capacity:
            break
        capacity = done
    shift = 8 * (capacity + 1)
    if order is not None:
        order = _permutation(order, wanted)
        sorted_rep, sorted_def, sorted_values = rep, definition, values
        rep = allocate(2 * done)
        definition = allocate(2 * done) if has_def else None
        values = allocate(16 * seen)
        begins = allocate(24 * wanted)
        reorder = ReorderRows(
            order=address(order), lengths=lengths, values=lengths + 8 * wanted, wanted=wanted,
            rep=address(sorted_rep), definition=0 if sorted_def is None else address(sorted_def),
            slots=address(sorted_values), positions=address(sorted_values) + shift,
            begins=address(begins), rep_out=address(rep),
            def_out=0 if definition is None else address(definition), slots_out=address(values),
            index_out=address(values) + 8 * seen,
        )  # fmt: skip
        compiled_list_rows.reorder_rows(*reorder)
        shift = 8 * seen
    positions = as_array(values, np.int64)
    ranges = memory[: 2 * buffers * chunks].reshape(2, buffers, chunks)
    return SelectedLevels(
        as_array(rep, np.uint16)[:done],
        None if definition is None else as_array(definition, np.uint16)[:done], positions[:seen],
        positions[shift // 8 : shift // 8 + seen], ranges[0], ranges[1],
    )  # fmt: skip


def _permutation(order: Int64s, length: int) -> Int64s:
    """The order, checked to contain every number from 0 to below ``length`` once."""
    order = np.ascontiguousarray(order, np.int64)
    present = np.zeros(length, np.bool_)
    if len(order) == length and (not length or 0 <= order.min() <= order.max() < length):
        present[order] = True
    if not present.all():
        raise ValueError(f"an order of {len(order)} numbers is no permutation of {length} rows")
    return order


def exercise() -> None:
    """Call every wrapper once with little data."""
    data, chunk, page = sample_chunk()
    rows, enters = np.array([0, 1]), np.zeros(2, np.bool_)
    read_levels(data, *chunk, page)
    located = locate_rows(rows, chunk.row_starts, enters)
    select_levels(data, *chunk[:4], enters, rows, located, page, rows)
