"""Tokens that are few edits away from another one.

An edit inserts, deletes or replaces a character.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from glaive.arrow.buffers import integer_array
from glaive.arrow.chunked import as_numpy
from glaive.memory import as_array
from glaive.types import Flags, Int64s

__all__ = ["near_tokens"]

_FIRST, _MOST_AT_A_TIME = 1 << 10, 1 << 15
"""Tokens that are compared at a time: few first, as often these are enough."""


def near_tokens(tokens: Any, wanted: str, distance: int, prefix_length: int, most: int) -> Int64s:
    """Places of the first tokens that are at most ``distance`` edits away from one.

    Parameters
    ----------
    tokens
        Array of type ``large_string``, ascending.
    wanted
        The token they are compared with.
    prefix_length
        Characters at the start that have to be equal; of a shorter token, all.
    most
        Places, at most.

    Notes
    -----
    Time is proportional to the tokens that have about that length.
    """
    kept = wanted[:prefix_length]
    lengths = as_numpy(pc.utf8_length(tokens))
    near = abs(lengths - len(wanted)) <= distance
    if kept:
        near &= as_numpy(pc.starts_with(tokens, kept))
    candidates = np.flatnonzero(near)
    found: list[Int64s] = []
    count = 0
    start, step = 0, _FIRST
    while start < len(candidates):
        places = candidates[start : start + step]
        start, step = start + step, min(2 * step, _MOST_AT_A_TIME)
        within = _within(tokens.take(integer_array(places)), wanted, distance)
        found.append(places[within])
        count += len(found[-1])
        if count >= most:
            break
    return np.concatenate([np.zeros(0, np.int64), *found])[:most]


def _within(tokens: Any, wanted: str, distance: int) -> Flags:
    """Which tokens are at most ``distance`` edits away: all rows of the table at a time."""
    _, offsets, data = tokens.buffers()
    ends = as_array(offsets, np.int64)[tokens.offset : tokens.offset + len(tokens) + 1]
    joined = data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes().decode()
    characters = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
    lengths = as_numpy(pc.utf8_length(tokens)).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    columns = np.arange(len(wanted) + 1, dtype=np.int32)
    goal = np.array([ord(character) for character in wanted], np.uint32)
    row = np.repeat(columns[None], len(tokens), axis=0)
    for place in range(int(lengths.max(initial=0))):
        going = np.flatnonzero(lengths > place)
        before = row[going]
        differs = characters[starts[going] + place][:, None] != goal
        after = np.empty_like(before)
        after[:, 0] = before[:, 0] + 1
        after[:, 1:] = np.minimum(before[:, 1:] + 1, before[:, :-1] + differs)
        # Insertions: a running minimum of what each column would be without them.
        after = np.minimum.accumulate(after - columns, axis=1) + columns
        row[going] = after
    within: Flags = row[:, -1] <= distance
    return within
