"""Cut the levels of a page into chunks, and count the rows that start in each.

Specification: "Mini-block pages" and "Repetition index" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import level_cuts as compiled
from glaive.types import Int64s, UInt16s

__all__ = ["count_starts", "cut_visible", "exercise"]


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
        A chunk has no values, or there are fewer visible entries than values.
    """
    counts = np.ascontiguousarray(counts, np.int64)
    definition = np.ascontiguousarray(definition, np.uint16)
    if counts.min(initial=1) < 1:
        raise ValueError(f"a chunk of {counts.min()} values")
    ends = np.empty(len(counts), np.int64)
    if use_compiled(len(definition)) and len(definition) and len(counts):
        filled = compiled.cut_visible(
            address(definition), len(definition), visible_max, address(counts), len(counts),
            address(ends),
        )  # fmt: skip
    else:
        visible = np.flatnonzero(definition <= visible_max)
        places = np.cumsum(counts)
        filled = int(np.count_nonzero((places > 0) & (places <= len(visible))))
        if filled == len(counts):
            ends[:] = visible[places - 1] + 1
    if filled < len(counts):
        raise ValueError(f"{len(definition)} levels have too few values for {len(counts)} chunks")
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
        Two of ``int64`` and shape ``(chunks,)``: the rows that start in each chunk, and its entries
        from the last of these on, all of them if none does.

    Raises
    ------
    ValueError
        Cuts do not ascend within the entries.
    """
    cuts = np.ascontiguousarray(cuts, np.int64)
    rep = np.ascontiguousarray(rep, np.uint16)
    ascend = len(cuts) > 0 and cuts[0] >= 0 and cuts[-1] <= len(rep)
    if not ascend or (cuts[1:] < cuts[:-1]).any() or max_rep < 1:
        raise ValueError(f"cuts {cuts} of {len(rep)} entries, and the highest level {max_rep}")
    begin, end = cuts[:-1], cuts[1:]
    if use_compiled(len(rep)) and len(rep) and len(begin):
        starts, behind = np.empty(len(begin), np.int64), np.empty(len(begin), np.int64)
        compiled.count_starts(
            address(rep), address(cuts), len(begin), max_rep, address(starts), address(behind)
        )
        return starts, behind
    places = np.flatnonzero(rep >= max_rep)
    first = np.searchsorted(places, begin, "left")
    stop = np.searchsorted(places, end, "left")
    last = begin.copy()
    some = stop > first
    last[some] = places[stop[some] - 1]
    return stop - first, end - last


def exercise() -> None:
    """Call every wrapper once with little data."""
    levels = np.array([1, 0, 1, 0], np.uint16)
    ends = cut_visible(levels, 0, np.array([1, 1], np.int64))
    count_starts(levels, np.append(0, ends), 1)
