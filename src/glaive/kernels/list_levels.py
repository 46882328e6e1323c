"""Levels of chunks of a page with lists: decoded, checked and cut to rows in one pass.

The wrappers here serve the encodings of levels that are in use (``records.LevelPage``) and only as
compiled kernels: they answer None when the levels are not as they must be, or when compiled
kernels are not to be used. The caller then goes the slower way, which reads headers, levels and
counts one after the other, and says what is wrong.

Specification: "Chunks" and "Repetition index" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels._tier import use_loops
from glaive.kernels.chunks import most_levels
from glaive.kernels.native import list_levels as list_levels_loops
from glaive.kernels.native import list_rows as list_rows_loops
from glaive.kernels.records import LevelPage, PickRows, ReadChunks, ReorderRows, packed
from glaive.memory import allocate, as_array

__all__ = [
    "Located",
    "PickedLevels",
    "ReadLevels",
    "exercise",
    "locate_rows",
    "pick_levels",
    "read_levels",
]

Int64s = NDArray[np.int64]
Levels = NDArray[np.uint16]

MAX_LEVELS = (1 << 16) - 1
"""Levels of a chunk at most: their number has 16 bits."""

SLACK = 2048 + 64
"""Bytes behind the levels: a block of 1,024, and what expanding runs writes too many."""

ROW_ENTRIES = 16
"""Entries of a single row to make room for at first."""

MOST_ROW_ENTRIES = 256
"""Entries per row to make room for at first, at most, when several rows are picked."""


class ReadLevels(NamedTuple):
    """Levels of chunks, one after the other; ``firsts`` are the first entries of each.

    ``starts[p, i]`` and ``sizes[p, i]`` are those of value piece p of chunk i.
    """

    rep: Levels
    definition: Levels | None
    firsts: Int64s
    starts: Int64s
    sizes: Int64s


def read_levels(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    row_starts: Int64s,
    enters: NDArray[np.bool_],
    page: LevelPage,
) -> ReadLevels | None:
    """Decode the levels of the chunks ``data[starts[i] : starts[i] + sizes[i]]``.

    Parameters
    ----------
    counts, row_starts, enters
        What each chunk must hold: visible entries, and starts of rows
        (``row_starts[i + 1] - row_starts[i]``); ``enters`` says whether it begins in the
        middle of a row.
    page
        Encodings of levels, and what chunks must hold.

    Returns
    -------
    ReadLevels or None
        None when anything differs, or when the loops are not to be used.
    """
    chunks = len(starts)
    if not chunks or not use_loops(64 * chunks):
        return None
    _same_length(chunks, sizes, counts, row_starts[1:], enters)
    starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
    counts, row_starts = np.ascontiguousarray(counts), np.ascontiguousarray(row_starts)
    enters = np.ascontiguousarray(enters)
    total = list_levels_loops.count_entries(address(data), data.size, address(starts), chunks)
    if not chunks <= total <= most_levels(counts, row_starts, sizes, max_rep=page.max_rep):
        return None
    pieces = page.value_pieces
    places = as_array(allocate(8 * chunks * (1 + 2 * pieces)), np.int64)
    rep = allocate_with_slack(2 * total, slack=SLACK)
    definition = allocate_with_slack(2 * total, slack=SLACK) if page.definition else None
    base = address(places)
    record = packed(page)
    call = ReadChunks(
        data=address(data),
        data_size=data.size,
        starts=address(starts),
        sizes=address(sizes),
        counts=address(counts),
        row_starts=address(row_starts),
        enters=address(enters),
        chunks=chunks,
        page=address(record),
        piece_starts=base + 8 * chunks,
        piece_sizes=base + 8 * chunks * (1 + pieces),
        firsts=base,
        rep=address(rep),
        definition=0 if definition is None else address(definition),
        room=total,
    )
    done = list_levels_loops.read_chunks(*call)
    if done != total:
        return None
    return ReadLevels(
        as_array(rep, np.uint16),
        None if definition is None else as_array(definition, np.uint16),
        places[:chunks],
        places[chunks : chunks * (1 + pieces)].reshape(pieces, chunks),
        places[chunks * (1 + pieces) :].reshape(pieces, chunks),
    )


class Located(NamedTuple):
    """The chunks ``ids`` that hold some rows, ascending.

    Row i begins in chunk ``ids[begin[i]]`` and ends in ``ids[last[i]]``.
    """

    ids: Int64s
    begin: Int64s
    last: Int64s


def locate_rows(rows: Int64s, row_starts: Int64s, enters: NDArray[np.bool_]) -> Located:
    """Find the chunks of rows; quicker when they ascend.

    Parameters
    ----------
    rows
        Row numbers from 0 to below ``row_starts[-1]``.
    row_starts, enters
        Rows ``row_starts[i]`` to ``row_starts[i + 1]`` start in chunk i; ``enters[i]`` says
        whether it begins in the middle of a row. One item more than there are chunks.
    """
    rows = np.ascontiguousarray(rows, np.int64)
    row_starts, enters = np.ascontiguousarray(row_starts), np.ascontiguousarray(enters)
    chunks, wanted = len(row_starts) - 1, len(rows)
    if not use_loops(wanted + chunks):
        return _locate_numpy(rows, row_starts, enters)
    memory = as_array(allocate(8 * (2 * wanted + 2 * chunks + 1)), np.int64)
    base = address(memory)
    ids = base + 16 * wanted
    touched = list_rows_loops.locate_rows(
        address(rows) if wanted else 0,
        wanted,
        address(row_starts),
        address(enters),
        chunks,
        ids + 8 * chunks,
        base,
        base + 8 * wanted,
        ids,
    )
    return Located(
        memory[2 * wanted : 2 * wanted + touched],
        memory[:wanted],
        memory[wanted : 2 * wanted],
    )


def _locate_numpy(rows: Int64s, row_starts: Int64s, enters: NDArray[np.bool_]) -> Located:
    chunks = len(row_starts) - 1
    begin = row_starts.searchsorted(rows, "right") - 1
    end = row_starts.searchsorted(rows + 1, "right") - 1
    # The row after starts in chunk `end`: that chunk is needed only when the row starts
    # there too, or reaches into it from the chunk before.
    shared = (row_starts[end] <= rows) | enters[end]
    end += (end < chunks) & shared
    edges = np.bincount(begin, minlength=chunks + 1) - np.bincount(end, minlength=chunks + 1)
    touched = np.cumsum(edges) > 0
    slots = np.cumsum(touched) - 1
    return Located(np.flatnonzero(touched), slots[begin], slots[end - 1])


class PickedLevels(NamedTuple):
    """Levels of picked rows, in order, and where the values of visible entries lie.

    Value j is number ``places[j]`` of chunk ``slots[j]``; pieces of values as in
    :class:`ReadLevels`.
    """

    rep: Levels
    definition: Levels | None
    slots: Int64s
    places: Int64s
    starts: Int64s
    sizes: Int64s


def pick_levels(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    row_starts: Int64s,
    enters: NDArray[np.bool_],
    rows: Int64s,
    located: Located,
    page: LevelPage,
    order: Int64s | None = None,
) -> PickedLevels | None:
    """Collect the levels of rows out of the chunks that hold them.

    Each chunk is decoded once when rows ascend.

    Parameters
    ----------
    starts
        Where the chunks ``located.ids`` begin in ``data``.
    sizes, counts, row_starts, enters, page
        As for :func:`read_levels`, for all chunks of the page.
    rows, located
        What to collect, and what :func:`locate_rows` says of it.
    order
        Where each row comes in the result, a permutation; in the order of ``rows`` when
        omitted.
    """
    ids, begin, last = located
    chunks, wanted = len(ids), len(rows)
    if not wanted or not use_loops(64 * chunks):
        return None
    _same_length(chunks, starts)
    _same_length(len(sizes), counts, row_starts[1:], enters[1:])
    _same_length(wanted, begin, last)
    sizes, counts = np.ascontiguousarray(sizes), np.ascontiguousarray(counts)
    row_starts, enters = np.ascontiguousarray(row_starts), np.ascontiguousarray(enters)
    starts, rows = np.ascontiguousarray(starts), np.ascontiguousarray(rows)
    pieces = page.value_pieces
    has_def = page.definition != 0
    memory = as_array(allocate(8 * (2 * pieces * chunks + 2 * wanted)), np.int64)
    base = address(memory)
    lengths = base + 16 * pieces * chunks
    scratch = allocate(2 * (2 * MAX_LEVELS + SLACK))
    # Rows of about the usual length; when they are longer it is done again.
    usual = ROW_ENTRIES
    if wanted > 1:
        usual = min(int(counts.sum()) // max(int(row_starts[-1]), 1), MOST_ROW_ENTRIES)
    room = wanted * (usual + 2) * 5 // 4 + 64
    record = packed(page)
    while True:
        rep = allocate(2 * room)
        definition = allocate(2 * room) if has_def else None
        values = allocate(16 * (room + 1))
        call = PickRows(
            data=address(data),
            data_size=data.size,
            sizes=address(sizes),
            counts=address(counts),
            row_starts=address(row_starts),
            enters=address(enters),
            table_chunks=len(sizes),
            ids=address(ids),
            starts=address(starts),
            chunks=chunks,
            page=address(record),
            rows=address(rows),
            begin=address(begin),
            last=address(last),
            wanted=wanted,
            scratch_rep=address(scratch),
            scratch_def=address(scratch) + 2 * MAX_LEVELS + SLACK,
            scratch_room=MAX_LEVELS,
            piece_starts=base,
            piece_sizes=base + 8 * pieces * chunks,
            lengths=lengths,
            values=lengths + 8 * wanted,
            rep_out=address(rep),
            def_out=0 if definition is None else address(definition),
            slots=address(values),
            positions=address(values) + 8 * (room + 1),
            room=room,
        )
        done, seen = list_rows_loops.pick_rows(*call)
        if done < 0:
            return None
        if done <= room:
            break
        room = done
    shift = 8 * (room + 1)
    if order is not None:
        order = _permutation(order, wanted)
        sorted_rep, sorted_def, sorted_values = rep, definition, values
        rep = allocate(2 * done)
        definition = allocate(2 * done) if has_def else None
        values = allocate(16 * seen)
        begins = allocate(24 * wanted)
        call_again = ReorderRows(
            order=address(order),
            lengths=lengths,
            values=lengths + 8 * wanted,
            wanted=wanted,
            rep=address(sorted_rep),
            definition=0 if sorted_def is None else address(sorted_def),
            slots=address(sorted_values),
            positions=address(sorted_values) + shift,
            begins=address(begins),
            rep_out=address(rep),
            def_out=0 if definition is None else address(definition),
            slots_out=address(values),
            index_out=address(values) + 8 * seen,
        )
        list_rows_loops.reorder_rows(*call_again)
        shift = 8 * seen
    positions = as_array(values, np.int64)
    piece_places = memory[: 2 * pieces * chunks].reshape(2, pieces, chunks)
    return PickedLevels(
        as_array(rep, np.uint16)[:done],
        None if definition is None else as_array(definition, np.uint16)[:done],
        positions[:seen],
        positions[shift // 8 : shift // 8 + seen],
        piece_places[0],
        piece_places[1],
    )


def _permutation(order: Int64s, length: int) -> Int64s:
    """The order as the loop takes it; every number from 0 to below ``length`` occurs once."""
    order = np.ascontiguousarray(order, np.int64)
    found = np.zeros(length, np.bool_)
    if len(order) == length and (not length or 0 <= order.min() <= order.max() < length):
        found[order] = True
    if not found.all():
        raise ValueError(f"an order of {len(order)} places that is no permutation of {length} rows")
    return order


def _same_length(length: int, *arrays: NDArray[np.int64] | NDArray[np.bool_]) -> None:
    if any(len(array) != length for array in arrays):
        raise ValueError(f"arrays of {[len(array) for array in arrays]} items, not {length}")


def exercise() -> None:
    """Call every wrapper once; used to warm up the compiled None_loops."""
    # One chunk: two rows of two entries each, their plain levels, one value piece.
    header = np.array([4, 8, 8, 4], "<u2").tobytes()
    rep = np.array([1, 0, 1, 0], "<u2").tobytes()
    data = pa.py_buffer(header + rep + bytes(8) + bytes(8))
    page = LevelPage(
        rep=1,
        rep_width=16,
        definition=1,
        def_width=16,
        value_pieces=1,
        value_width=2,
        max_rep=1,
        visible_max=0,
        max_def=1,
    )
    zero, size, count = np.array([0]), np.array([32]), np.array([4])
    row_starts, enters = np.array([0, 2]), np.zeros(2, np.bool_)
    rows = np.array([0, 1])
    read_levels(data, zero, size, count, row_starts, enters[:1], page)
    found = locate_rows(rows, row_starts, enters)
    pick_levels(data, zero, size, count, row_starts, enters, rows, found, page, rows)
