"""Find values inside JSONB bytes in all rows at once.

A ``JsonItems`` holds any number of values, each with the range of its bytes in the JSONB, its
type and its row. The steps of a path return items of items; only headers, and the keys of
objects in which a member is searched, are parsed.

Specification: "JSON" in ``docs/format/jsonb.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.expr.functions.untyped import pa
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.json_members import find_members
from glaive.memory import as_buffer

__all__ = [
    "ARRAY",
    "FALSE",
    "NULL",
    "NUMBER",
    "OBJECT",
    "STRING",
    "TRUE",
    "JsonItems",
    "items_of",
]

NULL, STRING, NUMBER, FALSE, TRUE, _CONTAINER = range(6)
OBJECT, ARRAY = 6, 7
"""Types of items: those of the entries, where a container is an object or an array."""

_SIZE = 0x0FFF_FFFF
_HEADERS = {4: OBJECT, 8: ARRAY}

Longs = NDArray[np.int64]


def _corrupt(expected: str, found: str) -> CorruptFileError:
    return CorruptFileError("JSONB", expected=expected, found=found, where="a JSON column")


@dataclass(frozen=True, slots=True)
class JsonItems:
    """Items, in the order of their rows.

    Parameters
    ----------
    raw
        Bytes of all rows.
    rows
        The row of each item, ascending. Shape ``(n,)``.
    kinds
        ``NULL`` … ``ARRAY``. Shape ``(n,)``.
    begin, end
        The byte range of each item's payload. Shape ``(n,)``.
    """

    raw: NDArray[np.uint8]
    rows: Longs
    kinds: Longs
    begin: Longs
    end: Longs

    def __len__(self) -> int:
        return len(self.rows)

    def keep(self, wanted: Any) -> JsonItems:
        """Return the items at these positions, or where a mask is true."""
        return JsonItems(
            self.raw, self.rows[wanted], self.kinds[wanted], self.begin[wanted], self.end[wanted]
        )

    def words(self, at: Longs) -> Longs:
        """Return the big-endian 32-bit words at these byte positions."""
        if not len(at):
            return np.zeros(0, np.int64)
        # Words are not aligned: view a word at every byte.
        windows = np.ndarray(len(self.raw) - 3, ">u4", self.raw, strides=(1,))
        return windows[at].astype(np.int64)

    def counts(self) -> Longs:
        """Return the number of children of each container: members or elements."""
        if np.any(self.end - self.begin < 4):
            raise _corrupt("a header of 4 bytes", "fewer")
        counts = self.words(self.begin) & _SIZE
        entries = np.where(self.kinds == OBJECT, 2, 1) * counts
        if np.any(self.begin + 4 + 4 * entries > self.end):
            raise _corrupt("an entry for each child", "a shorter value")
        return counts

    def entries(self, counts: Longs) -> tuple[Longs, Longs, Longs]:
        """Return all entries: index of the container, entry word, start of the payload."""
        which = np.repeat(np.arange(len(self)), counts)
        last = np.cumsum(counts)
        first = last - counts
        # Entries of a container are 4 bytes apart.
        at = np.arange(len(which)) * 4 + (self.begin + 4 - 4 * first)[which]
        words = self.words(at)
        sizes = words & _SIZE
        after = np.cumsum(sizes)
        before = after - sizes
        inner = np.flatnonzero(counts)
        start = np.zeros(len(self), np.int64)
        start[inner] = before[first[inner]]
        total = np.zeros(len(self), np.int64)
        total[inner] = after[last[inner] - 1] - start[inner]
        payloads = self.begin + 4 + 4 * counts
        if np.any(payloads + total > self.end):
            raise _corrupt("payloads inside the value", "one that is longer")
        return which, words, before + (payloads - start)[which]

    def children(self, which: Longs, words: Longs, positions: Longs) -> JsonItems:
        """Return the items of some entries of these containers."""
        kinds, sizes = words >> 28, words & _SIZE
        if np.any(kinds > _CONTAINER):
            raise _corrupt(f"types 0 to {_CONTAINER}", f"{int(kinds.max())}")
        return _typed(self.raw, self.rows[which], kinds, positions, positions + sizes)

    def members(self, key: str) -> JsonItems:
        """Return the member of this name of each object that has it."""
        is_object = self.kinds == OBJECT
        objects = self if is_object.all() else self.keep(is_object)
        wanted = key.encode("utf-8", "surrogatepass")
        words, positions = find_members(self.raw, objects.begin, objects.end, wanted)
        present = np.flatnonzero(positions >= 0)
        return objects.children(present, words[present], positions[present])

    def all_members(self) -> JsonItems:
        """Return the values of all members of each object."""
        objects = self.keep(self.kinds == OBJECT)
        counts = objects.counts()
        which, words, positions = objects.entries(2 * counts)
        first = np.concatenate([[0], np.cumsum(2 * counts)])[:-1]
        values = np.arange(len(which)) - first[which] >= counts[which]
        return objects.children(which[values], words[values], positions[values])

    def elements(self) -> JsonItems:
        """Return all elements of each array, and other items unchanged."""
        arrays = np.flatnonzero(self.kinds == ARRAY)
        others = self.keep(self.kinds != ARRAY)
        inner = self.keep(arrays)
        elements = inner.children(*inner.entries(inner.counts()))
        return _merged(elements, others)

    def element(self, number: Any) -> JsonItems:
        """Return one element of each array that has it.

        Parameters
        ----------
        number
            Index from 0, or a function from the lengths of the arrays to indices.
        """
        arrays = self.keep(self.kinds == ARRAY)
        counts = arrays.counts()
        wanted = number(counts) if callable(number) else np.full(len(arrays), number)
        present = (wanted >= 0) & (wanted < counts)
        which, words, positions = arrays.entries(counts)
        first = np.concatenate([[0], np.cumsum(counts)])[:-1]
        at = (first + wanted)[present]
        return arrays.children(which[at], words[at], positions[at])

    def chosen(self, owners: Longs, positions: Longs) -> JsonItems:
        """Return elements of these items, which are arrays: of which, and at which positions."""
        counts = self.counts()
        which, words, starts = self.entries(counts)
        at = (np.cumsum(counts) - counts)[owners] + positions
        return self.children(which[at], words[at], starts[at])

    def documents(self) -> tuple[Longs, Any]:
        """Return the items' rows, and each item as a JSONB document (``large_binary``)."""
        scalar = self.kinds < OBJECT
        sizes = self.end - self.begin
        heads = np.where(scalar, 8, 0)
        offsets = np.concatenate([[0], np.cumsum(sizes + heads)])
        content = np.empty(offsets[-1], np.uint8)
        at = offsets[:-1][scalar]
        words = self.kinds[scalar] << 28 | sizes[scalar]
        for index, byte in enumerate((0x20, 0, 0, 0)):
            content[at + index] = byte
            content[at + 4 + index] = words >> 24 - 8 * index & 0xFF
        start = np.concatenate([[0], np.cumsum(sizes)])
        inside = np.arange(start[-1]) - np.repeat(start[:-1], sizes)
        content[np.repeat(offsets[:-1] + heads, sizes) + inside] = self.raw[
            np.repeat(self.begin, sizes) + inside
        ]
        buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(content)]
        return self.rows, pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    def payloads(self) -> Any:
        """Return the payload of each item, as ``large_binary``."""
        sizes = self.end - self.begin
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        content = gather_ranges(as_buffer(self.raw), self.begin, sizes, "a JSON column")
        buffers = [None, pa.py_buffer(offsets), content]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)


def _typed(
    raw: NDArray[np.uint8], rows: Longs, kinds: Longs, begin: Longs, end: Longs
) -> JsonItems:
    """Items whose containers are typed as objects or arrays."""
    items = JsonItems(raw, rows, kinds.copy(), begin, end)
    inner = np.flatnonzero(kinds == _CONTAINER)
    if len(inner):
        if np.any(end[inner] - begin[inner] < 4):
            raise _corrupt("a header of 4 bytes", "fewer")
        heads = raw[begin[inner]] >> 4
        items.kinds[inner] = np.where(heads == 4, OBJECT, ARRAY)
        if np.any((heads != 4) & (heads != 8)):
            raise _corrupt("an object or an array", "another header")
    return items


def _merged(left: JsonItems, right: JsonItems) -> JsonItems:
    rows = np.concatenate([left.rows, right.rows])
    order = np.argsort(rows, kind="stable")
    return JsonItems(
        left.raw,
        rows[order],
        np.concatenate([left.kinds, right.kinds])[order],
        np.concatenate([left.begin, right.begin])[order],
        np.concatenate([left.end, right.end])[order],
    )


def items_of(values: Any) -> JsonItems:
    """Return the top-level value of each row that is not null and is JSONB.

    Parameters
    ----------
    values
        ``large_binary`` with JSONB.
    """
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(values) + 1, values.offset * 8)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    begin, end = bounds[:-1][rows], bounds[1:][rows]
    long = end - begin >= 4
    heads = np.zeros(len(rows), np.int64)
    heads[long] = raw[begin[long]] >> 4
    # A scalar follows a header and its entry.
    scalar = (heads == 2) & (end - begin >= 8)
    items = JsonItems(raw, rows, np.full(len(rows), NULL), begin, end)
    words = items.words(begin[scalar] + 4)
    items.kinds[scalar] = words >> 28
    if np.any(items.kinds[scalar] >= _CONTAINER) or np.any(
        (words & _SIZE) + 8 != (end - begin)[scalar]
    ):
        raise _corrupt("one scalar after its header", "other bytes")
    items.kinds[heads == 4], items.kinds[heads == 8] = OBJECT, ARRAY
    known = scalar | (heads == 4) | (heads == 8) | (end == begin)
    begin = np.where(scalar, begin + 8, begin)
    result = JsonItems(raw, rows, items.kinds, begin, end)
    return result if known.all() else result.keep(known)
