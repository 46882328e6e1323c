"""Where the characters of texts begin, found in blocks of bytes.

A text of a gigabyte has a billion positions of eight bytes: no more than those of a block are in
memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.expr.functions.untyped import pa, pc
from glaive.expr.sizes import check_bytes

__all__ = ["Characters"]

_BLOCK: Final = 1 << 21
"""Bytes of text whose characters have positions in memory at a time."""


class Characters:
    """Where the characters of each string begin, for substrings at different positions per row.

    Positions of a call count from the first character of the row.

    Parameters
    ----------
    text
        ``string``, ``large_string`` or ``string_view``. Nulls count as empty strings.

    Raises
    ------
    CapacityError
        Process fewer rows at a time.
    """

    def __init__(self, text: Any) -> None:
        if text.type != pa.large_string():
            text = text.cast(pa.large_string())
        rows = len(text)
        _, offsets, data = text.buffers()
        bounds = np.frombuffer(offsets, np.int64, rows + 1, text.offset * 8)
        self._first, self._last = int(bounds[0]), int(bounds[-1])
        check_bytes("a function of characters", self._last - self._first, rows, text.type)
        self._valid = text.is_valid()
        self._raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        self._bounds = bounds
        self._row_starts = bounds[:-1][np.diff(bounds) > 0]
        self._block: tuple[int, NDArray[np.int64]] = (-1, bounds[:0])
        self._numbers = self._count(bounds)
        self.counts: NDArray[np.int64] = np.diff(self._numbers)
        """Characters of each string."""

    def number(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the character that begins at this byte offset in each string."""
        return self._count(self._bounds[:-1] + offsets) - self._numbers[:-1]

    def cut(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> Any:
        """Return characters ``begin`` to ``end`` of each string; positions are clipped to it."""
        begin = np.clip(begin, 0, self.counts)
        end = np.maximum(np.clip(end, 0, self.counts), begin)
        first = self._numbers[:-1]
        start, stop = self._find(first + begin, first + end)
        offsets = np.concatenate([[0], np.cumsum(stop - start)])
        strings = pa.Array.from_buffers(
            pa.large_string(),
            len(start),
            [
                None,
                pa.py_buffer(offsets.astype(np.int64)),
                pa.py_buffer(self._copy(start, offsets)),
            ],
        )
        return pc.if_else(self._valid, strings, pa.scalar(None, pa.large_string()))

    def _starts(self, begin: int) -> NDArray[np.int64]:
        """Where characters begin in the block at ``begin``; that of the last call is kept."""
        if self._block[0] != begin:
            end = min(begin + _BLOCK, self._last)
            begins = (self._raw[begin:end] & 0xC0) != 0x80
            # In texts that are not UTF-8, too, no character goes on in the text of the next row.
            rows = slice(*np.searchsorted(self._row_starts, (begin, end)))
            begins[self._row_starts[rows] - begin] = True
            self._block = (begin, np.flatnonzero(begins) + begin)
        return self._block[1]

    def _blocks(self) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
        """Each block's first byte, the characters before it, and where its own begin."""
        before = 0
        for begin in range(self._first, self._last, _BLOCK):
            starts = self._starts(begin)
            yield begin, before, starts
            before += len(starts)

    def _count(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Characters of all rows that begin before each of these offsets, which ascend."""
        numbers = np.zeros(len(offsets), np.int64)
        for begin, before, starts in self._blocks():
            # Those beyond the block get their number from the next one, or have that of the end.
            at = int(np.searchsorted(offsets, begin))
            numbers[at:] = before + len(starts)
            within = slice(at, int(np.searchsorted(offsets, begin + _BLOCK)))
            numbers[within] = before + np.searchsorted(starts, offsets[within])
        return numbers

    def _find(self, *numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Where the characters of these numbers begin, which ascend; the end behind the last."""
        found = [np.full(len(each), self._last, np.int64) for each in numbers]
        for _, before, starts in self._blocks():
            for each, offsets in zip(numbers, found, strict=True):
                within = slice(*np.searchsorted(each, (before, before + len(starts))))
                offsets[within] = starts[each[within] - before]
        return found

    def _copy(self, start: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The bytes of substrings that begin at ``start``, of which each has a place in a result.

        A long one is copied as a whole; of the others, which have a position for each byte, no
        more than two blocks at a time.
        """
        copied = np.empty(int(offsets[-1]), np.uint8)
        long = np.flatnonzero(np.diff(offsets) > _BLOCK)
        windows = np.searchsorted(offsets, np.arange(0, len(copied), _BLOCK))
        edges = np.unique(np.concatenate([windows, long, long + 1, [0, len(start)]]))
        for row, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            to = slice(int(offsets[row]), int(offsets[end]))
            if end == row + 1:
                begin = int(start[row])
                copied[to] = self._raw[begin : begin + to.stop - to.start]
                continue
            shift = start[row:end] - offsets[row:end]
            sizes = np.diff(offsets[row : end + 1])
            copied[to] = self._raw[np.repeat(shift, sizes) + np.arange(to.start, to.stop)]
        return copied
