"""Chunk tables of neighbouring pages as one: many small pages are found in as one large one.

A writer starts a new page of a list column every 65,535 levels or so. What a page costs to
open is what matters then, so the chunk words and repetition indices of all pages are read
with one pass each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.encodings.miniblock.chunk_table import (
    MAX_CHUNK_LEVELS,
    MAX_CHUNK_VALUES,
    ChunkTable,
    RowIndex,
)
from glaive.errors import CorruptFileError
from glaive.types import Where

__all__ = ["TablePart", "join_tables"]


class TablePart(NamedTuple):
    """What one page says: its chunk words and repetition index, and what they must agree with.

    ``start`` is where its chunks begin in the memory that holds the chunks of all pages.
    """

    words: pa.Buffer
    row_index: pa.Buffer
    start: int
    size: int
    num_items: int
    rows: int
    where: Where

    def decode(self, word_bytes: int) -> ChunkTable:
        """The table of this page alone."""
        table = ChunkTable.decode(
            self.words, word_bytes, size=self.size, num_items=self.num_items, where=self.where
        )
        table.add_rows(self.row_index, self.rows, self.where)
        return table


def join_tables(
    parts: Sequence[TablePart], word_bytes: int
) -> tuple[ChunkTable, NDArray[np.int64]]:
    """One table for the chunks of all pages, and the number of chunks of each page.

    Raises
    ------
    CorruptFileError
        As for one page; names the first that is damaged.
    """
    chunks = np.array([part.words.size // word_bytes for part in parts], np.int64)
    shapes = zip(parts, chunks.tolist(), strict=True)
    table = None
    if all(n and p.words.size == n * word_bytes and p.row_index.size == 16 * n for p, n in shapes):
        table = _join(parts, chunks, word_bytes)
    if table is None:
        for part in parts:
            part.decode(word_bytes)
        raise CorruptFileError(
            "chunk words", expected="pages that agree", found="others", where=parts[0].where
        )
    return table, chunks


def _join(
    parts: Sequence[TablePart], chunks: NDArray[np.int64], word_bytes: int
) -> ChunkTable | None:
    """The joined table, None when a page is damaged."""
    starts, sizes, num_items, rows = np.array([part[2:6] for part in parts], np.int64).T
    after = np.cumsum(chunks)
    first, last = after - chunks, after - 1
    words = np.frombuffer(b"".join([part.words for part in parts]), f"<u{word_bytes}")
    words = words.astype(np.int64)
    logs, lengths = words & 15, ((words >> 4) + 1) << 3
    counts = np.left_shift(1, logs)
    stated = counts[last]
    counts[last] = 0
    rest = num_items - np.add.reduceat(counts, first)
    room = np.maximum(MAX_CHUNK_VALUES, 8 * lengths[last])
    good = (rest >= 0) & (rest <= room) & ((logs[last] == 0) | (stated == rest))
    good &= np.add.reduceat(lengths, first) == sizes
    logs[last] = 1
    if not good.all() or not logs.all():
        return None
    counts[last] = rest
    values = np.zeros(len(words) + 1, np.int64)
    np.cumsum(counts, out=values[1:])
    offsets = np.empty(len(words) + 1, np.int64)
    ends = np.cumsum(lengths)
    moved = starts - (ends - lengths)[first]
    offsets[:-1] = ends - lengths + np.repeat(moved, chunks)
    offsets[-1] = offsets[-2] + lengths[-1]
    index = _join_rows(parts, chunks, rows)
    return None if index is None else ChunkTable(offsets, lengths, values, counts, -1, index)


def _join_rows(
    parts: Sequence[TablePart], chunks: NDArray[np.int64], rows: NDArray[np.int64]
) -> RowIndex | None:
    after = np.cumsum(chunks)
    first, last = after - chunks, after - 1
    pairs = np.frombuffer(b"".join([part.row_index for part in parts]), "<u8").reshape(-1, 2)
    goes_on = pairs[:, 1] > 0
    most = np.repeat(rows, chunks).astype(np.uint64)
    # Checked before they are added up, so that nothing can wrap around.
    if (
        (pairs[:, 0] > most).any()
        or goes_on[last].any()
        or (rows > MAX_CHUNK_LEVELS * chunks).any()
    ):
        return None
    begin = pairs[:, 0].astype(np.int64) + goes_on
    begin[1:] -= goes_on[:-1]
    starts = np.zeros(len(begin) + 1, np.int64)
    np.cumsum(begin, out=starts[1:])
    if (begin < 0).any() or (np.add.reduceat(begin, first) != rows).any():
        return None
    enters = np.zeros(len(begin) + 1, np.bool_)
    enters[1:] = goes_on
    return RowIndex(starts, enters)
