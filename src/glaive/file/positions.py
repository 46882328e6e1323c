"""Row positions as users give them."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import OptionError, RowIndexError

__all__ = ["beyond", "check_range", "positions"]

_POSITION_LIMIT: Final = 2**63


def positions(rows: object, total: int | None = None) -> NDArray[np.int64]:
    """Row positions from a list, range, numpy or Arrow array of integers.

    Parameters
    ----------
    rows
        The positions.
    total
        How many rows there are. Of a range that leaves them, only the end that does is given, for
        the caller to refuse: all of its numbers may take any memory.

    Raises
    ------
    OptionError
        Something in it is no integer.
    RowIndexError
        A number has more than 64 bits.
    """
    if isinstance(rows, range) and rows and total is not None:
        low, high = min(rows[0], rows[-1]), max(rows[0], rows[-1])
        if low < 0 or high >= total:
            outside = low if low < 0 else high
            _check_size(outside)
            rows = [outside]
    if isinstance(rows, pa.Array | pa.ChunkedArray):
        if rows.null_count:
            raise OptionError("row positions: expected integers, found a null")
        try:
            rows.validate(full=True)  # pyarrow reads numbers of items out of a message as they are
        except pa.ArrowException as error:
            raise OptionError(f"row positions: expected integers: {error}") from None
        rows = (
            rows.to_numpy(zero_copy_only=False) if isinstance(rows, pa.Array) else rows.to_numpy()
        )
    if type(rows) is list and rows and type(rows[0]) is int:
        with suppress(struct.error):  # said below what is wrong
            packed = struct.pack(f"{len(rows)}q", *rows)  # takes half of NumPy's time
            return np.frombuffer(packed, np.int64)
    if isinstance(rows, np.ndarray) and type(rows) is not np.ndarray and np.ma.is_masked(rows):
        raise OptionError("row positions: expected integers, found a masked one")
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and len(numbers)):
        raise OptionError(
            f"row positions: expected a list of integers, found {numbers.dtype} {rows!r:.60}"
        )
    if numbers.dtype == np.uint64 and len(numbers):
        _check_size(int(numbers.max()))
    return numbers.astype(np.int64, copy=False)


def _check_size(row: int) -> None:
    if not -_POSITION_LIMIT <= row < _POSITION_LIMIT:
        raise RowIndexError(f"row position {row} is out of range: no dataset has that many rows")


def check_range(low: int, high: int, starts: NDArray[np.int64]) -> None:
    """Refuse rows beyond those that a dataset has.

    Parameters
    ----------
    low, high
        The smallest and the largest row position.
    starts
        Where each fragment starts among the rows; the last entry counts all rows.

    Raises
    ------
    RowIndexError
        One of the two is out of range.
    """
    total = int(starts[-1])
    if low < 0 or high >= total:
        raise beyond(low if low < 0 else high, total)


def beyond(row: int, total: int) -> RowIndexError:
    """The error that a row position is none of ``total`` rows."""
    return RowIndexError(
        f"row position {row} is out of range: the dataset has {total} rows, counted from 0"
    )
