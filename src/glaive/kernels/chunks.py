"""Mini-block chunks: parse headers, assemble chunks, count levels, find rows.

A chunk is a header and some *buffers*: repetition levels, definition levels, value buffers.
Here are its parts, in order.

====================== =========== ======================================================
part                   bytes       meaning
====================== =========== ======================================================
level count            2           entries in the chunk; 0 when the page lacks levels
size of repetition     2           only when the page has repetition levels
size of definition     2           only when the page has definition levels
size of value buffer k 2 or 4      one per value buffer; 4 in pages with large chunks
fill                   to 8        ``0xFE``
buffers                each to 8   in the order of their sizes, each followed by fill
====================== =========== ======================================================

Specification: "Chunks" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from operator import ge

import numpy as np
import pyarrow as pa

from glaive.dataclass import NamedTuple
from glaive.errors import CapacityError, CorruptFileError
from glaive.kernels._addresses import address, check_within
from glaive.kernels.native import chunks as chunks_loops
from glaive.types import Int64s, UInt8s, UInt16s, Where, allocate, as_array

CHUNK_VALUES = 4096
CHUNK_BYTES = 8186
"""Maximum values and bytes of a chunk of fixed-width values: with its header it has 8 KiB."""

FILL = 0xFE
"""The byte after headers and buffers; readers ignore it."""


LEVELS_PER_BYTE = 255
"""Largest number of repetition levels other than 0 per byte: the length of a run."""


class ChunkHeaders(NamedTuple):
    """Headers of chunks: buffer b of chunk i starts at ``starts[b, i]``, with ``sizes[b, i]``
    bytes.

    ``levels[i]`` is the number of entries of chunk i.
    """

    levels: Int64s
    starts: Int64s
    sizes: Int64s


def header_size(level_buffers: int, value_buffers: int, value_width: int) -> int:
    """Return the bytes of a chunk header up to its fill."""
    return 2 + 2 * level_buffers + value_width * value_buffers


def parse_headers(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    *,
    level_buffers: int,
    value_buffers: int,
    value_width: int,
    where: Where,
) -> ChunkHeaders:
    """Find the buffers of each chunk, and check that they lie within it.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, sizes
        ``int64`` of shape ``(chunks,)``: first byte and bytes of each chunk.
    level_buffers, value_buffers
        Buffers per chunk: 0 to 2 for levels, and the number of buffers for values.
    value_width
        Bytes of a value buffer's size: 2, or 4 in pages with large chunks.
    where
        File, column and page, for messages.
    """
    chunks, buffers = len(starts), level_buffers + value_buffers
    check_within("mini-block chunks", starts, sizes, data.size, where)
    memory = as_array(allocate(8 * chunks * (1 + 2 * buffers)), np.int64)
    levels = memory[:chunks]
    buffer_starts = memory[chunks : chunks * (1 + buffers)].reshape(buffers, chunks)
    buffer_sizes = memory[chunks * (1 + buffers) :].reshape(buffers, chunks)
    starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
    bad = chunks_loops.parse_headers(
        address(data), address(starts), address(sizes), chunks, level_buffers, value_buffers,
        value_width, address(levels), address(buffer_starts), address(buffer_sizes),
    )  # fmt: skip
    if bad >= 0:
        raise CorruptFileError(
            "mini-block chunk header",
            expected=f"a header and {buffers} buffers within {sizes[bad]} bytes",
            found="sizes that add up to more",
            where=f"{where}, chunk at byte {starts[bad]}",
        )
    return ChunkHeaders(levels, buffer_starts, buffer_sizes)


MAX_CHUNK_VALUES = 1 << 15
"""Maximum values of a chunk, unless it has more bits."""


def read_words(
    words: pa.Buffer, word_bytes: int, chunks: Int64s, starts: Int64s, sizes: Int64s, items: Int64s
) -> tuple[int, Int64s, Int64s, Int64s, Int64s]:
    """Read the chunk words of pages, back to back, of 2 or 4 bytes each.

    Page i has ``chunks[i]`` ≥ 1 chunks from byte ``starts[i]`` on, of ``sizes[i]`` bytes and
    ``items[i]`` values in all. Return shift, offsets, sizes, firsts and counts of ``ChunkTable``;
    shift is -2 - p if page p is damaged.
    """
    total = int(chunks.sum())
    if total * word_bytes > words.size or int(chunks.min()) < 1:
        raise ValueError(f"{total} chunk words in {words.size} bytes")
    memory = as_array(allocate(8 * (4 * total + 2)), np.int64)
    offsets, firsts = memory[: total + 1], memory[total + 1 : 2 * total + 2]
    held, counts = memory[2 * total + 2 : 3 * total + 2], memory[3 * total + 2 :]
    chunks, starts, sizes, items = [
        np.ascontiguousarray(each, np.int64) for each in (chunks, starts, sizes, items)
    ]
    shift = chunks_loops.read_words(
        words=address(words), word_bytes=word_bytes, pages=len(chunks), chunks=address(chunks),
        page_starts=address(starts), page_sizes=address(sizes), items=address(items),
        max_values=MAX_CHUNK_VALUES, offsets=address(offsets), sizes=address(held),
        firsts=address(firsts), counts=address(counts),
    )  # fmt: skip
    return shift, offsets, held, firsts, counts


def max_levels(counts: Int64s, row_starts: Int64s, sizes: Int64s, *, max_rep: int) -> int:
    """Return the largest possible total number of levels in chunks of a page with lists.

    An entry without a value begins a row. With lists in lists it may begin an inner list
    instead. Then its repetition level is 1 or more, and takes bytes.

    Parameters
    ----------
    counts, sizes
        ``int64`` of shape ``(chunks,)``: values and bytes of each chunk.
    row_starts
        ``int64`` of shape ``(chunks + 1,)``: rows ``row_starts[i]`` to ``row_starts[i + 1]``
        start in chunk i.
    max_rep
        Highest repetition level: the number of lists around a value.
    """
    levels = int(counts.sum()) + int(row_starts[-1]) - int(row_starts[0])
    return levels + (LEVELS_PER_BYTE * int(sizes.sum()) if max_rep > 1 else 0)


def find_row(rep: UInt16s, max_rep: int, row: int) -> int:
    """Return the entry where row number ``row`` (from 0) begins, or ``len(rep)``."""
    starts = (rep == max_rep).nonzero()[0]
    return int(starts[row]) if row < len(starts) else len(rep)


def assemble_chunks(
    levels: Int64s,
    level_buffers: list[tuple[UInt8s, Int64s]],
    value_buffers: list[tuple[UInt8s, Int64s]],
    *,
    value_width: int,
) -> tuple[pa.Buffer, Int64s]:
    """Build the chunks from their buffers; return their bytes and the size of each.

    Parameters
    ----------
    levels
        ``int64`` of shape ``(chunks,)``: entries per chunk, at most 65535.
    level_buffers, value_buffers
        Per buffer the bytes of all chunks back to back, and the size in each chunk.
    value_width
        Bytes of a value buffer's size in the header: 2 or 4. Levels have 2.

    Raises
    ------
    CapacityError
        The header has too few bits for the size of a buffer.
    """
    parts = [*level_buffers, *value_buffers]
    chunks = len(levels)
    sizes = np.array([each for _, each in parts], np.int64).reshape(len(parts), chunks)
    limits = [1 << 16] * len(level_buffers) + [1 << 8 * value_width] * len(value_buffers)
    sums, least = sizes.sum(1).tolist(), int(sizes.min(initial=0))
    if least < 0 or sums != [len(data) for data, _ in parts]:
        raise ValueError(
            f"buffers of {[len(data) for data, _ in parts]} bytes: their sizes in {chunks} chunks "
            f"add up to {sums}, the smallest is {least}"
        )
    if any(map(ge, sizes.max(1).tolist(), limits)):
        raise CapacityError(f"chunks have buffers of up to {sizes.max()} bytes, more than they can")
    head = header_size(len(level_buffers), len(value_buffers), value_width)
    chunk_sizes = ((head + 7) & ~7) + ((sizes + 7) & ~7).sum(0, dtype=np.int64)
    starts = chunk_sizes.cumsum() - chunk_sizes
    out = allocate(int(chunk_sizes.sum()))
    # Copy the bytes up to the last level or value.
    sources = [np.ascontiguousarray(data) for data, _ in parts]
    addresses = np.array([address(source) for source in sources], np.int64)
    levels = np.ascontiguousarray(levels, np.int64)
    chunks_loops.assemble(
        address(out), address(starts), chunks, address(levels), len(level_buffers),
        len(value_buffers), value_width, address(addresses), address(sizes), FILL,
    )  # fmt: skip
    return out, chunk_sizes
