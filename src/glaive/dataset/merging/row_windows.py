"""Rows of a source, window by window: it may be on disk, or in many chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import inverse_permutation
from glaive.arrow.chunked import take_rows
from glaive.types import Int64s

__all__ = ["WINDOW_BYTES", "gather_rows", "row_bytes", "selected_rows"]

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Bytes of rows that are taken at a time, about."""


def row_bytes(rows: pa.Table) -> int:
    """Bytes of a row, about."""
    return max(1, rows.nbytes // max(1, rows.num_rows))


def selected_rows(rows: pa.Table, positions: Int64s) -> Iterator[pa.Table]:
    """Rows at ascending positions, window by window; neighbours are not copied."""
    step = max(1, WINDOW_BYTES // row_bytes(rows))
    for start in range(0, len(positions), step):
        part = positions[start : start + step]
        first = int(part[0])
        span = int(part[-1]) + 1 - first
        window = rows.slice(first, span)
        dense = span == len(part) and bool((part[1:] > part[:-1]).all())
        yield window if dense else take_rows(window, part - first)


def gather_rows(rows: pa.Table, positions: Int64s) -> pa.Table:
    """Rows at positions in any order; each part of the source is read once, in its order."""
    if all(column.num_chunks < 2 for column in rows.columns) or len(positions) < 2:
        return take_rows(rows, positions)
    order = np.argsort(positions, kind="stable")
    ascending = pa.concat_tables(selected_rows(rows, positions[order]))
    if bool((order[1:] > order[:-1]).all()):
        return ascending
    return take_rows(ascending, inverse_permutation(order))
