"""Find the chunks that hold some values of pages without lists.

Specification: "Chunk words" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from glaive.errors import RowIndexError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import locate as compiled
from glaive.kernels.records import LocateValues
from glaive.memory import allocate, as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["LocatedValues", "exercise", "locate_values"]

_FEW: Final = 64
"""Chunks for each value from which on values are sorted rather than chunks marked."""


class LocatedValues(NamedTuple):
    """The chunks ``ids`` that hold some values, ascending.

    Value i has number ``places[i]`` in chunk ``ids[slots[i]]``.
    """

    ids: Int64s
    slots: Int64s
    places: Int64s


def locate_values(
    values: Int64s, firsts: Int64s, first_chunks: Int64s | None, shift: int
) -> LocatedValues:
    """Find the chunks of values, given by number.

    Parameters
    ----------
    values
        ``int64``: numbers from 0 to below ``firsts[-1]``, in any order.
    firsts
        ``int64`` of shape ``(chunks + 1,)``: number of the first value of each chunk, ascending
        from 0, and of all values.
    first_chunks
        ``int64`` of shape ``(pages + 1,)``: number of the first chunk of each page, and of all
        chunks; None for one page.
    shift
        Chunks have ``1 << shift`` values, but for the last of each page; -1 if they differ.

    Raises
    ------
    RowIndexError
        A number is not among the values.

    Notes
    -----
    About 8 ns per value, and 1 ns per chunk where there are many values.
    """
    values = np.ascontiguousarray(values, np.int64)
    firsts = np.ascontiguousarray(firsts, np.int64)
    chunks, wanted = len(firsts) - 1, len(values)
    if not wanted:
        return LocatedValues(values, values, values)
    if int(values.min()) < 0 or int(values.max()) >= firsts[-1]:
        raise RowIndexError(f"values {values.min()}..{values.max()} of {firsts[-1]} in all")
    if wanted * _FEW < chunks or not use_compiled(wanted):
        return _locate_numpy(values, firsts)
    if shift < 0:  # each chunk is searched for as if it were a page
        first_chunks, shift = np.arange(chunks + 1), 62
    elif first_chunks is None:
        first_chunks = np.array([0, chunks])
    first_chunks = np.ascontiguousarray(first_chunks, np.int64)
    starts = firsts[first_chunks]
    memory = as_array(allocate(8 * (2 * wanted + 2 * chunks + 1)), np.int64)
    slots, places = memory[:wanted], memory[wanted : 2 * wanted]
    ids = memory[2 * wanted : 2 * wanted + chunks + 1]
    base = address(memory)
    call = LocateValues(
        values=address(values), wanted=wanted, starts=address(starts),
        first_chunks=address(first_chunks), pages=len(starts) - 1, shift=min(shift, 62),
        firsts=address(firsts), chunks=chunks, numbers=base + 8 * (2 * wanted + chunks + 1),
        slots=base, places=base + 8 * wanted, ids=base + 16 * wanted,
    )  # fmt: skip
    used = compiled.locate_values(*call)
    return LocatedValues(ids[:used], slots, places)


def _locate_numpy(values: Int64s, firsts: Int64s) -> LocatedValues:
    chunk = firsts[1:-1].searchsorted(values, "right")
    ids, slots = np.unique(chunk, return_inverse=True)
    return LocatedValues(ids, slots, values - firsts[chunk])


def exercise() -> None:
    """Call every wrapper once with little data."""
    for shift in (-1, 10):
        locate_values(np.array([7, 1500]), np.array([0, 1024, 2000]), None, shift)
