"""Members of JSONB objects by their name.

An object is a header word with the number of its members, an entry word for each key, one for
each value, then the keys and the values. Words are big-endian; the lower 28 bits of an entry
are the size of its key or value in bytes.

Specification: "JSON" in ``docs/format/jsonb.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import json_members as compiled
from glaive.types import Int64s, UInt8s

__all__ = ["exercise", "find_members"]

SIZE = 0x0FFF_FFFF
"""The bits of a word that hold a number of members or of bytes."""

_WHERE = "a JSON column"


def find_members(raw: UInt8s, begin: Int64s, end: Int64s, key: bytes) -> tuple[Int64s, Int64s]:
    """Entries of the members called ``key``, and where their values begin.

    Parameters
    ----------
    raw
        ``uint8``: memory of all objects.
    begin, end
        ``int64`` of shape ``(objects,)``: where each object begins and ends.
    key
        UTF-8 name of the member.

    Returns
    -------
    tuple
        Entry words, and positions in ``raw``, -1 for objects without the member.

    Raises
    ------
    CorruptFileError
        An object ends before its entries, its keys or its values do.
    """
    begin, end = np.ascontiguousarray(begin, np.int64), np.ascontiguousarray(end, np.int64)
    wrong = (begin < 0) | (end > len(raw)) | (end < begin)
    # The difference of positions within the memory is exact.
    if np.any(wrong | (end - begin < 4)):
        raise _corrupt("objects of 4 bytes or more within the values", "another range")
    words, positions = np.zeros(len(begin), np.int64), np.full(len(begin), -1)
    if not use_compiled(len(begin)):
        _find_numpy(raw, begin, end, key, words, positions)
        return words, positions
    raw, wanted = np.ascontiguousarray(raw), np.frombuffer(key or b"\0", np.uint8)
    bad = compiled.find_members(
        address(raw), address(begin), address(end), len(begin), address(wanted), len(key),
        address(words), address(positions),
    )  # fmt: skip
    if bad >= 0:
        raise _corrupt("entries, keys and values inside an object", "a shorter object")
    return words, positions


def _find_numpy(
    raw: UInt8s, begin: Int64s, end: Int64s, key: bytes, words: Int64s, positions: Int64s
) -> None:
    if not len(begin):
        return
    # A view with a word at every byte position: words need no alignment.
    word_at = np.ndarray(len(raw) - 3, ">u4", raw, strides=(1,))
    counts = word_at[begin].astype(np.int64) & SIZE
    if np.any(begin + 4 + 8 * counts > end):
        raise _corrupt("an entry for each key and value", "a shorter object")
    owner = np.repeat(np.arange(len(begin)), 2 * counts)
    last = np.cumsum(2 * counts)
    first = last - 2 * counts
    number = np.arange(len(owner)) - first[owner]
    entries = word_at[begin[owner] + 4 + 4 * number].astype(np.int64)
    sizes = entries & SIZE
    before = np.concatenate([[0], np.cumsum(sizes)])
    base = begin + 4 + 8 * counts
    if np.any(base + before[last] - before[first] > end):
        raise _corrupt("keys and values inside an object", "a shorter object")
    at = before[:-1] - before[first][owner] + base[owner]
    keys = np.flatnonzero((number < counts[owner]) & (sizes == len(key)))
    if len(keys) < len(key):  # also none, of a name of megabytes
        same = [raw[start : start + len(key)].tobytes() == key for start in at[keys].tolist()]
        keys = keys[np.array(same, np.bool_)]
    else:
        for i, byte in enumerate(key):
            keys = keys[raw[at[keys] + i] == byte]
    values = (keys + counts[owner[keys]])[::-1]  # of equal keys, the first counts
    words[owner[values]], positions[owner[values]] = entries[values], at[values]


def _corrupt(expected: str, found: str) -> CorruptFileError:
    return CorruptFileError("JSONB", expected=expected, found=found, where=_WHERE)


def exercise() -> None:
    """Call every wrapper once with little data."""
    raw = np.frombuffer(bytes.fromhex("40000001100000012000000161" + "00"), np.uint8)
    find_members(raw, np.array([0]), np.array([len(raw)]), b"a")
