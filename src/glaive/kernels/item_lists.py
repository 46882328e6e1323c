"""All lists of chunks of a page whose only list layer is the outermost, without their levels.

Levels of such pages are compared as bits, 64 entries at a time, and become offsets and validity
chunk by chunk: no array of levels is made. As in ``list_levels``, wrappers return None when
levels are damaged, or when compiled kernels are not to be used; the general path is what they are
compared with.

Specification: "Levels" in ``docs/format/levels.md``, "Chunks" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.kernels._addresses import address, allocate_bits
from glaive.kernels._list_chunks import ListChunks, sample_chunk
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import item_lists as compiled
from glaive.kernels.native import list_levels as compiled_levels
from glaive.kernels.records import LevelPage, ReadItemLists, packed
from glaive.memory import allocate, as_array
from glaive.named_tuple import NamedTuple
from glaive.types import MAX_OFFSET, Flags, Int64s

__all__ = ["SETS_BYTES", "ItemLists", "exercise", "read_item_lists"]

SETS_BYTES = 4 * (8 * 1024 + 64) + 2 * ((1 << 16) + 1024 + 64)
"""Memory for the levels of a chunk: as four sets of bits, and as plain levels."""

EXCESS = 4
"""Offsets for which there is memory beside those of rows: kernels store four at a time."""

NARROW, WIDE = 4, 8
"""Bytes of an offset."""


class ItemLists(NamedTuple):
    """Lists and their items, as in Arrow.

    ``offsets`` has ``rows + 1`` numbers of ``width`` bytes, from where the first list begins among
    all ``values`` items of the chunks. Validity is a bitmap, None without nulls. Value buffer b
    of chunk i lies at ``starts[b, i]`` and has ``sizes[b, i]`` bytes.
    """

    rows: int
    values: int
    offsets: pa.Buffer
    width: int
    list_validity: pa.Buffer | None
    null_lists: int
    item_validity: pa.Buffer | None
    null_items: int
    starts: Int64s
    sizes: Int64s


def read_item_lists(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    row_starts: Int64s,
    enters: Flags,
    page: LevelPage,
) -> ItemLists | None:
    """Decode all lists that begin in chunks.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, sizes, counts
        ``int64`` of shape ``(chunks,)``: first byte, bytes and visible entries of each chunk.
    row_starts
        ``int64`` of shape ``(chunks + 1,)``: rows ``row_starts[i]`` to ``row_starts[i + 1]``
        start in chunk i.
    enters
        ``bool`` of shape ``(chunks,)``: whether the chunk begins in the middle of a row.
    page
        Encodings and limits of the levels; ``max_rep`` is 1.

    Returns
    -------
    ItemLists or None
        None when anything differs, or when compiled kernels are not to be used.
    """
    chunks = len(starts)
    if not chunks or not use_compiled(64 * chunks):
        return None
    starts, sizes, counts, row_starts, enters = ListChunks.of(
        starts, sizes, counts, row_starts, enters
    )
    # No memory is made for more than there are levels, by the headers of the chunks.
    total = compiled_levels.count_entries(address(data), data.size, address(starts), chunks)
    rows, values = int(row_starts[-1]) - int(row_starts[0]), int(counts.sum())
    if not (0 <= rows <= total and 0 <= values <= total):
        return None
    width = NARROW if values <= MAX_OFFSET else WIDE
    buffers = page.value_buffers
    memory = as_array(allocate(8 * (2 * buffers * chunks + 3)), np.int64)
    base, shift = address(memory), 8 * buffers * chunks
    sets, offsets = allocate(SETS_BYTES), allocate((rows + EXCESS) * width)
    list_valid = allocate_bits(rows if page.null_list else 0)
    item_valid = allocate_bits(values if page.null_item else 0)
    record = packed(page)
    call = ReadItemLists(
        data=address(data), data_size=data.size, starts=address(starts), sizes=address(sizes),
        counts=address(counts), row_starts=address(row_starts), enters=address(enters),
        chunks=chunks, page=address(record), buffer_starts=base, buffer_sizes=base + shift,
        sets=address(sets), offsets=address(offsets), width=width, rows=rows,
        list_valid=address(list_valid), item_valid=address(item_valid), values=values,
        result=base + 2 * shift,
    )  # fmt: skip
    if compiled.read_item_lists(*call) != rows:
        return None
    null_lists, null_items, seen = memory[2 * buffers * chunks :].tolist()
    if seen != values:
        return None
    ranges = memory[: 2 * buffers * chunks].reshape(2, buffers, chunks)
    return ItemLists(
        rows, values, offsets.slice(0, (rows + 1) * width), width,
        list_valid if null_lists else None, null_lists, item_valid if null_items else None,
        null_items, ranges[0], ranges[1],
    )  # fmt: skip


def exercise() -> None:
    """Call every wrapper once with little data."""
    data, chunk, page = sample_chunk(null_list=1)
    read_item_lists(data, *chunk, page)
