"""What the topics share: constants spread over rows, loops over values, pieces of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.errors import FilterError
from glaive.expr.functions.untyped import pa, pc

__all__ = [
    "Characters",
    "check_size",
    "constant",
    "count_rows",
    "distinctly",
    "each",
    "patch",
    "spread",
]

MOST_BYTES = 2**28
"""Bytes of text in one array, and in one value: bounds time and memory of what is made up."""


def constant(argument: Any) -> bool:
    """Whether an argument has one value for all rows."""
    return isinstance(argument, pa.Scalar)


def count_rows(arguments: tuple[Any, ...]) -> int:
    """Return the rows of those arguments that are arrays; one where there are none."""
    return next((len(each) for each in arguments if isinstance(each, pa.Array)), 1)


def spread(argument: Any, rows: int) -> Any:
    """Return a constant as an array of that many rows, an array as it is."""
    if not constant(argument):
        return argument
    # Arrow repeats no list, struct or map zero times.
    return pa.repeat(argument, rows) if rows else pa.nulls(0, argument.type)


def each(kind: Any, compute: Callable[..., Any], *arguments: Any) -> Any:
    """Call a Python function for each row; a null argument makes the result null.

    Slow, about a microsecond a value and more: for what Arrow and numpy have no way to do.
    """
    rows = count_rows(arguments)
    columns = [spread(argument, rows).to_pylist() for argument in arguments]
    return pa.array(
        [
            None if any(value is None for value in row) else compute(*row)
            for row in zip(*columns, strict=True)
        ],
        kind,
    )


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
    right = [compute(value) for value in text.filter(rows).to_pylist()]
    return pc.replace_with_mask(made, rows, pa.array(right, made.type))


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


def distinctly(kind: Any, compute: Callable[[Any], Any], values: Any) -> Any:
    """Call a Python function for each distinct value; nulls stay nulls."""
    encoded = values.dictionary_encode()
    made = pa.array([compute(value) for value in encoded.dictionary.to_pylist()], kind)
    return made.take(encoded.indices)


def check_size(name: str, lengths: Any) -> None:
    """Raise when texts that are to be made are too long together.

    Parameters
    ----------
    lengths
        Bytes of each row's text, an Arrow array; nulls count as none.
    """
    total = pc.sum(lengths).as_py() or 0
    if total > MOST_BYTES:
        raise FilterError(
            f"{name} would make {total} bytes of text for {len(lengths)} rows, at most "
            f"{MOST_BYTES} are made: take fewer rows or shorter texts"
        )
