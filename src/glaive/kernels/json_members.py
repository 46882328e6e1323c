"""Members of JSONB objects by their name.

An object is a header word with the number of its members, an entry word for each key, one for
each value, then the keys and the values. Words are big-endian; the lower 28 bits of an entry
are the bytes of what it stands for.

Specification: "JSON" in ``docs/format/jsonb.md``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_loops
from glaive.kernels.native import json_members as loops

__all__ = ["exercise", "find_members"]

SIZE = 0x0FFF_FFFF
"""The bits of a word that are a number of children, or of bytes."""

_WHERE = "a JSON column"

Longs = NDArray[np.int64]


def find_members(
    raw: NDArray[np.uint8], begin: Longs, end: Longs, key: bytes
) -> tuple[Longs, Longs]:
    """Entries of the members called ``key``, and where their values begin.

    Parameters
    ----------
    raw
        Bytes that all objects are in.
    begin, end
        Where each object begins and ends. Shape ``(n,)``.

    Returns
    -------
    tuple
        Entry words, and places in ``raw``, -1 for objects without the member.

    Raises
    ------
    CorruptFileError
        An object ends before its entries, its keys or its values do.
    """
    begin, end = np.ascontiguousarray(begin, np.int64), np.ascontiguousarray(end, np.int64)
    wrong = (begin < 0) | (end > len(raw)) | (end < begin)
    # Of places within the memory the difference is exact.
    if np.any(wrong | (end - begin < 4)):
        raise _corrupt("objects of 4 bytes or more within the values", "others")
    words, places = np.zeros(len(begin), np.int64), np.full(len(begin), -1)
    if not use_loops(len(begin)):
        _find_numpy(raw, begin, end, key, words, places)
        return words, places
    raw, wanted = np.ascontiguousarray(raw), np.frombuffer(key or b"\0", np.uint8)
    bad = loops.find_members(
        address(raw), address(begin), address(end), len(begin), address(wanted), len(key),
        address(words), address(places),
    )  # fmt: skip
    if bad >= 0:
        raise _corrupt("entries, keys and values inside an object", "a shorter object")
    return words, places


def _find_numpy(
    raw: NDArray[np.uint8], begin: Longs, end: Longs, key: bytes, words: Longs, places: Longs
) -> None:
    if not len(begin):
        return
    # Words begin at any byte: a window of one is laid over every byte.
    windows = np.ndarray(len(raw) - 3, ">u4", raw, strides=(1,))
    counts = windows[begin].astype(np.int64) & SIZE
    if np.any(begin + 4 + 8 * counts > end):
        raise _corrupt("an entry for each key and value", "a shorter object")
    owner = np.repeat(np.arange(len(begin)), 2 * counts)
    last = np.cumsum(2 * counts)
    first = last - 2 * counts
    number = np.arange(len(owner)) - first[owner]
    entries = windows[begin[owner] + 4 + 4 * number].astype(np.int64)
    sizes = entries & SIZE
    before = np.concatenate([[0], np.cumsum(sizes)])
    base = begin + 4 + 8 * counts
    if np.any(base + before[last] - before[first] > end):
        raise _corrupt("keys and values inside an object", "a shorter object")
    at = before[:-1] - before[first][owner] + base[owner]
    found = np.flatnonzero((number < counts[owner]) & (sizes == len(key)))
    for place, byte in enumerate(key):
        found = found[raw[at[found] + place] == byte]
    values = (found + counts[owner[found]])[::-1]  # of keys that repeat, the first is meant
    words[owner[values]], places[owner[values]] = entries[values], at[values]


def _corrupt(expected: str, found: str) -> CorruptFileError:
    return CorruptFileError("JSONB", expected=expected, found=found, where=_WHERE)


def exercise() -> None:
    """Call every wrapper once with little data."""
    raw = np.frombuffer(bytes.fromhex("40000001100000012000000161" + "00"), np.uint8)
    find_members(raw, np.array([0]), np.array([len(raw)]), b"a")
