"""The chunk table of a mini-block page: where chunks lie, and which values and rows they hold.

Two small buffers say it. The **chunk words**, 16 or 32 bits each::

    word = (chunk bytes / 8 - 1) << 4 | log2(values)

and, for pages with repetition, the **repetition index**: per chunk a pair of ``u64``, the
rows that finish in the chunk and the entries left over for a row that goes on in the next.

Specification: "Chunk words" and "Repetition index" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.memory import as_array
from glaive.types import Where

__all__ = ["ChunkTable", "RowIndex", "chunk_words", "repetition_index"]

MAX_CHUNK_VALUES = 1 << 15
"""Values of a chunk at most."""

MAX_CHUNK_LEVELS = (1 << 16) - 1
"""Levels of a chunk at most: their number has 16 bits."""

_ONE_CHUNK = 62


class RowIndex(NamedTuple):
    """Which rows start in which chunk.

    Rows ``starts[i]`` up to ``starts[i + 1]`` start in chunk i; ``enters[i]`` says whether it
    begins with more entries of a row that started in an earlier chunk. Both have one item
    more than there are chunks.
    """

    starts: NDArray[np.int64]
    enters: NDArray[np.bool_]

    def chunks_of(
        self, first: NDArray[np.int64] | int, last: NDArray[np.int64] | int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Chunks that hold rows ``first`` to ``last`` (inclusive): from, and up to (exclusive)."""
        begin = self.starts.searchsorted(first, "right") - 1
        end = self.starts.searchsorted(np.add(last, 1), "right") - 1
        # The row after the last one starts in chunk `end`: that chunk is needed only when the
        # last row starts there too, or reaches into it from the chunk before.
        shared = (self.starts[end] <= last) | self.enters[end]
        return begin, end + ((end < len(self.starts) - 1) & shared)


@dataclass(slots=True)
class ChunkTable:
    """Chunk i has ``sizes[i]`` bytes from ``offsets[i]`` and ``counts[i]`` values from
    ``firsts[i]`` on; ``offsets`` and ``firsts`` have one item more, the end.

    ``shift`` is the power of two of the values in every chunk but the last, or -1 when
    they differ; with a single chunk it is larger than any value number. ``rows`` is None
    without repetition: then rows are values.
    """

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    firsts: NDArray[np.int64]
    counts: NDArray[np.int64]
    shift: int
    rows: RowIndex | None = None

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.sizes)

    def find(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunk that holds each value number."""
        found: NDArray[np.int64]
        if self.shift >= 0:
            found = np.minimum(values >> self.shift, self.chunks - 1)
        else:
            found = self.firsts[1:-1].searchsorted(values, "right")
        return found

    def find_one(self, value: int) -> int:
        """Return the chunk that holds one value number."""
        if self.shift >= 0:
            return min(value >> self.shift, len(self.sizes) - 1)
        return int(self.firsts[1:-1].searchsorted(value, "right"))

    @classmethod
    def decode(
        cls, words: pa.Buffer, word_bytes: int, *, size: int, num_items: int, where: Where
    ) -> ChunkTable:
        """Read the chunk words; ``size`` is the number of bytes of all chunks together.

        Raises
        ------
        CorruptFileError
            The words do not add up to ``size`` bytes and ``num_items`` values, or a chunk
            has a number of values that no chunk may have.
        """
        if words.size % word_bytes:
            raise CorruptFileError(
                "chunk words",
                expected=f"a multiple of {word_bytes} bytes",
                found=f"{words.size} bytes",
                where=where,
            )
        table = as_array(words, f"<u{word_bytes}").astype(np.int64)
        if not len(table):
            raise CorruptFileError(
                "chunk words", expected="at least one chunk", found="none", where=where
            )
        logs = table & 15
        sizes = ((table >> 4) + 1) << 3
        offsets = np.zeros(len(table) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if offsets[-1] != size:
            raise CorruptFileError(
                "chunk words",
                expected=f"chunks of {size} bytes in all",
                found=f"{offsets[-1]} bytes",
                where=where,
            )
        counts = np.left_shift(1, logs)
        before = int(counts[:-1].sum())
        last = num_items - before
        room = max(MAX_CHUNK_VALUES, 8 * int(sizes[-1]))
        if not logs[:-1].all() or not 0 <= last <= room or (logs[-1] and counts[-1] != last):
            raise CorruptFileError(
                "chunk words",
                expected=f"{num_items} values in chunks of 2, 4, … 32768, the rest in the last",
                found=f"{before} values before the last of {len(table)} chunks",
                where=where,
            )
        counts[-1] = last
        firsts = np.zeros(len(table) + 1, np.int64)
        np.cumsum(counts, out=firsts[1:])
        shift = _ONE_CHUNK
        if len(table) > 1:
            shift = int(logs[0]) if (logs[:-1] == logs[0]).all() else -1
        return cls(offsets, sizes, firsts, counts, shift)

    def add_rows(self, index: pa.Buffer, rows: int, where: Where) -> None:
        """Read the repetition index of a page of ``rows`` rows."""
        if index.size != 16 * self.chunks:
            raise CorruptFileError(
                "repetition index",
                expected=f"16 bytes for each of {self.chunks} chunks",
                found=f"{index.size} bytes",
                where=where,
            )
        if rows > MAX_CHUNK_LEVELS * self.chunks:
            raise CorruptFileError(
                "repetition index",
                expected=f"at most {MAX_CHUNK_LEVELS} rows per chunk",
                found=f"{rows} rows in {self.chunks} chunks",
                where=where,
            )
        pairs = as_array(index, "<u8").reshape(-1, 2)
        goes_on = pairs[:, 1] > 0
        # Checked before they are added up, so that nothing can wrap around.
        if (pairs[:, 0] > rows).any() or goes_on[-1]:
            raise CorruptFileError(
                "repetition index",
                expected=f"chunks with at most {rows} rows, none unfinished in the end",
                found=f"{pairs[:, 0].max()} rows in a chunk, {pairs[-1, 1]} entries left over",
                where=where,
            )
        begin = pairs[:, 0].astype(np.int64) + goes_on
        begin[1:] -= goes_on[:-1]
        starts = np.zeros(self.chunks + 1, np.int64)
        np.cumsum(begin, out=starts[1:])
        if (begin < 0).any() or starts[-1] != rows:
            raise CorruptFileError(
                "repetition index",
                expected=f"{rows} rows",
                found=f"{starts[-1]} rows, at least {begin.min()} per chunk",
                where=where,
            )
        enters = np.zeros(self.chunks + 1, np.bool_)
        enters[1:] = goes_on
        self.rows = RowIndex(starts, enters)


def chunk_words(
    counts: NDArray[np.int64], sizes: NDArray[np.int64], word_bytes: int
) -> NDArray[np.unsignedinteger]:
    """Write the chunk words of chunks with these numbers of values and bytes.

    ``counts`` are powers of two but for the last; ``sizes`` are multiples of 8, at most
    32 KiB for words of 2 bytes and 2 GiB for words of 4.
    """
    logs = np.log2(np.maximum(counts, 1)).astype(np.int64)
    logs[-1] = 0
    words: NDArray[np.unsignedinteger] = (((sizes >> 3) - 1) << 4 | logs).astype(f"<u{word_bytes}")
    return words


def repetition_index(
    rep: NDArray[np.uint16], cuts: NDArray[np.int64], max_rep: int
) -> NDArray[np.uint64]:
    """Write the repetition index of chunks with the entries ``cuts[i]`` to ``cuts[i + 1]``."""
    starts = np.flatnonzero(rep == max_rep)
    begin, end = cuts[:-1], cuts[1:]
    first = np.searchsorted(starts, begin, "left")
    stop = np.searchsorted(starts, end, "left")
    fresh = rep[begin] == max_rep
    finished = stop - first - fresh
    left = end - np.where(stop > first, starts[np.maximum(stop, 1) - 1], begin)
    # Where the next chunk begins with a new row, the row before is finished after all.
    done = np.append(fresh[1:], True)
    pairs = np.empty((len(begin), 2), "<u8")
    pairs[:, 0] = finished + done
    pairs[:, 1] = np.where(done, 0, left)
    return pairs.reshape(-1)
