"""Chunks of pages with lists: what wrappers check of them, and a sample to warm kernels up with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.kernels.records import LevelPage
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s

__all__ = ["ListChunks", "same_length", "sample_chunk"]


class ListChunks(NamedTuple):
    """Chunks in memory without gaps; see :func:`glaive.kernels.list_levels.read_levels`."""

    starts: Int64s
    sizes: Int64s
    counts: Int64s
    row_starts: Int64s
    enters: Flags

    @classmethod
    def of(
        cls, starts: Int64s, sizes: Int64s, counts: Int64s, row_starts: Int64s, enters: Flags
    ) -> ListChunks:
        """Check that there is an item for each chunk; raises ``ValueError`` if not."""
        same_length(len(starts), sizes, counts, row_starts[1:], enters)
        contiguous = np.ascontiguousarray
        return cls(
            contiguous(starts), contiguous(sizes), contiguous(counts), contiguous(row_starts),
            contiguous(enters),
        )  # fmt: skip


def same_length(length: int, *arrays: Int64s | Flags) -> None:
    """Raise ``ValueError`` unless arrays have so many items."""
    for array in arrays:  # a generator would take as long as the call of a kernel
        if len(array) != length:
            raise ValueError(f"arrays of {[len(array) for array in arrays]} items, not {length}")


def sample_chunk(**limits: Any) -> tuple[pa.Buffer, ListChunks, LevelPage]:
    """One chunk: two rows of two entries each, their plain levels, one value buffer.

    ``limits`` are further members of the page.
    """
    header = np.array([4, 8, 8, 4], "<u2").tobytes()
    rep = np.array([1, 0, 1, 0], "<u2").tobytes()
    data = pa.py_buffer(header + rep + bytes(8) + bytes(8))
    page = LevelPage(
        rep=1, rep_width=16, definition=1, def_width=16, value_buffers=1, value_width=2, max_rep=1,
        visible_max=0, max_def=1, **limits,
    )  # fmt: skip
    number = np.array
    chunk = ListChunks(number([0]), number([32]), number([4]), number([0, 2]), number([False]))
    return data, chunk, page
