"""Kernels behind ``glaive.kernels.locate``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel_of, load_i64, store_u64, wrapping_sub
from glaive.kernels.records import LocateValues


@kernel_of(LocateValues)
def locate_values(
    values: int, wanted: int, starts: int, first_chunks: int, pages: int, shift: int, firsts: int,
    chunks: int, numbers: int, slots: int, places: int, ids: int,
) -> int:  # fmt: skip
    """Find the chunk of each value; returns how many chunks hold any of them.

    Page p begins with value ``starts[p]`` and chunk ``first_chunks[p]``; its chunks have
    ``1 << shift`` values each, or more in the last. ``numbers`` has room for a word per chunk.
    ``ids`` receives the numbers of the chunks, ``slots`` that of each value as an index into
    ``ids``, ``places`` its number within the chunk.
    """
    for chunk in range(chunks):
        store_u64(numbers + 8 * chunk, 0)
    for i in range(wanted):
        value = load_i64(values + 8 * i)
        # The last page that begins with a value of at most this one: no branch to mispredict.
        page = np.int64(0)
        left = np.int64(pages)
        while left > 1:
            half = left >> 1
            page += half * np.int64(load_i64(starts + 8 * (page + half)) <= value)
            left -= half
        chunk = load_i64(first_chunks + 8 * page)
        last = load_i64(first_chunks + 8 * page + 8)
        within = wrapping_sub(value, load_i64(starts + 8 * page)) >> shift
        # Compared before they are added: numbers of a page may be any.
        chunk = chunk + within if within < wrapping_sub(last, chunk) else wrapping_sub(last, 1)
        chunk = min(max(chunk, np.int64(0)), np.int64(chunks - 1))
        store_u64(slots + 8 * i, chunk)
        store_u64(places + 8 * i, wrapping_sub(value, load_i64(firsts + 8 * chunk)))
        store_u64(numbers + 8 * chunk, 1)
    used = np.int64(0)
    for chunk in range(chunks):
        is_used = load_i64(numbers + 8 * chunk)
        store_u64(numbers + 8 * chunk, used)
        store_u64(ids + 8 * used, chunk)
        used += is_used
    for i in range(wanted):
        store_u64(slots + 8 * i, load_i64(numbers + 8 * load_i64(slots + 8 * i)))
    return used
