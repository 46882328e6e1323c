"""What the topics share about texts: their sizes, and pieces of them.

Some rows are computed again row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.capacity import MAX_OFFSET
from glaive.errors import FilterError
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import map_rows
from glaive.expr.sizes import MOST_BYTES, has_offsets, reserve

__all__ = [
    "Characters",
    "check_size",
    "grown",
    "patch",
]


def grown(name: str, compute: Callable[[Any], Any], text: Any, size: int) -> Any:
    """Texts made of texts by Arrow, which wraps around where they get too long for their type.

    Parameters
    ----------
    size
        Bytes of what is made, at most.

    Raises
    ------
    CapacityError
        Fewer rows at a time should be worked on.
    """
    if len(text) > 1:
        reserve(name, size, len(text), text.type)
    if size <= MAX_OFFSET or not has_offsets(text.type):
        return compute(text)
    return compute(text.cast(pa.large_string())).cast(text.type)


def patch(made: Any, rows: Any, compute: Callable[[str], Any], text: Any) -> Any:
    """Compute some rows again by a Python function.

    Parameters
    ----------
    made
        Values for all rows.
    rows
        A boolean array: which of them are wrong.
    """
    rows = pc.fill_null(rows, False)
    if not rows.true_count:
        return made
    right = map_rows(made.type, compute, text.filter(rows))
    return pc.replace_with_mask(made, rows, right)


class Characters:
    """Where the characters of each text begin: cutting by positions that differ by row.

    Parameters
    ----------
    text
        ``string`` or ``large_string``. Nulls count as empty texts.
    """

    def __init__(self, text: Any) -> None:
        if text.type != pa.large_string():
            text = text.cast(pa.large_string())
        _, offsets, data = text.buffers()
        self._valid = text.is_valid()
        rows = len(text)
        bounds = np.frombuffer(offsets, np.int64, rows + 1, text.offset * 8)
        self._raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        first, last = int(bounds[0]), int(bounds[-1])
        starts = np.flatnonzero((self._raw[first:last] & 0xC0) != 0x80) + first
        self._first = np.searchsorted(starts, bounds)
        self._starts = np.append(starts, last)
        self._bounds = bounds
        self.counts: NDArray[np.int64] = np.diff(self._first)
        """Characters of each text."""

    def number(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the character that begins at a byte of each text."""
        return np.searchsorted(self._starts, self._bounds[:-1] + places) - self._first[:-1]

    def cut(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> Any:
        """Return characters ``begin`` to ``end`` of each text, clipped to those there are."""
        begin = np.clip(begin, 0, self.counts)
        end = np.maximum(np.clip(end, 0, self.counts), begin)
        start = self._starts[self._first[:-1] + begin]
        sizes = self._starts[self._first[:-1] + end] - start
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        places = np.repeat(start - offsets[:-1], sizes) + np.arange(offsets[-1])
        made = pa.Array.from_buffers(
            pa.large_string(),
            len(sizes),
            [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(self._raw[places])],
        )
        return pc.if_else(self._valid, made, pa.scalar(None, pa.large_string()))


def check_size(name: str, sizes: Any, *, what: str = "bytes of text", each: int = 1) -> None:
    """Ask to make values of these sizes.

    Parameters
    ----------
    sizes
        Size of each row's value, an Arrow array; nulls count as none.
    what, each
        What is counted, and how many bytes one takes.

    Raises
    ------
    FilterError
        A single value is too large.
    CapacityError
        Fewer rows at a time should be worked on.
    """
    largest = int(pc.max(sizes).as_py() or 0)
    if largest * each > MOST_BYTES:
        raise FilterError(
            f"{name} would make {largest} {what} for one row, at most {MOST_BYTES // each} are "
            "made: take less"
        )
    reserve(name, int(pc.sum(sizes).as_py() or 0) * each, len(sizes))
