"""Take single lists from the chunks of a page whose only list layer is the outermost.

One call finds the chunks of all rows and decodes the levels of each chunk once. It collects
offsets, validity and the locations of values. As in ``list_levels``, ``None`` means damage, or that
compiled kernels are disabled. The caller then uses the general path, which is the reference in
tests.

Specification: "Levels" in ``docs/format/levels.md``, "Repetition index" in
``docs/format/pages.md``.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple, dataclass
from glaive.kernels._addresses import (
    KEEPS_ADDRESSES,
    address,
    allocate_bits,
    allocate_with_slack,
    given,
)
from glaive.kernels.native import list_takes as list_takes_loops
from glaive.kernels.records import ChunkRows, LevelPage, packed
from glaive.types import MAX_OFFSET, Flags, Int64s, allocate, as_array

SETS_BYTES = 4 * (8 * 1024 + 64) + 2 * ((1 << 16) + 1024 + 64)
"""Bytes for the levels of a chunk: as four bitmaps, and as plain levels."""

TOO_MANY: Final = -2
RESULTS: Final = 4
PER_ROW: Final = 7
"""Numbers that the kernel stores per row."""

ROW_CHUNKS, MORE_CHUNKS = 2, 14
ROW_VALUES, MORE_VALUES = 256, 64
"""Chunks and values to allocate at first. If there are more, the kernel is called again."""


@dataclass(frozen=True, slots=True, eq=False)
class ListPage:
    """The chunks of a page, for takes.

    Parameters
    ----------
    sizes, counts
        ``int64`` of shape ``(chunks,)``: bytes and visible entries of each chunk.
    row_starts
        ``int64`` of shape ``(chunks + 1,)``: rows ``row_starts[i]`` to ``row_starts[i + 1]``
        start in chunk i.
    enters
        ``bool`` of shape ``(chunks + 1,)``: whether the chunk begins in the middle of a row.
    page
        Encodings and limits of the levels; ``max_rep`` is 1.
    """

    sizes: Int64s
    counts: Int64s
    row_starts: Int64s
    enters: Flags
    page: LevelPage
    mean: int = field(init=False)
    """Approximate values of a row."""
    _records: tuple[Int64s, Int64s] = field(init=False)
    _places: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        chunks = len(self.sizes)
        arrays: list[NDArray[Any]] = [self.sizes, self.counts, self.row_starts, self.enters]
        if [len(array) for array in arrays] != [chunks, chunks, chunks + 1, chunks + 1]:
            raise ValueError(f"arrays of {[len(array) for array in arrays]} items")
        if not all(array.flags.c_contiguous for array in arrays):
            raise ValueError("arrays with gaps")
        rows = max(int(self.row_starts[-1]), 1)
        mean = max(int(self.counts.sum()) // rows, 0)
        object.__setattr__(self, "mean", min(mean, ROW_VALUES))
        self._pack()

    @property
    def places(self) -> tuple[int, int]:
        """The addresses of the records of the chunks and of the page."""
        if not KEEPS_ADDRESSES:
            self._pack()
        return self._places

    def _pack(self) -> None:
        chunks = ChunkRows(
            sizes=address(self.sizes), counts=address(self.counts),
            row_starts=address(self.row_starts), enters=address(self.enters),
            chunks=len(self.sizes),
        )  # fmt: skip
        records = packed(chunks), packed(self.page)
        object.__setattr__(self, "_records", records)
        object.__setattr__(self, "_places", (address(records[0]), address(records[1])))


class TakenLists(NamedTuple):
    """Lists as in Arrow, and the locations of their items.

    ``offsets`` has ``rows + 1`` numbers of ``width`` bytes. Validity is a bitmap, ``None`` if all
    are valid. Item j is value ``positions[j]`` of chunk ``ids[slots[j]]``. Value buffer b of chunk
    ``ids[i]`` starts at ``starts[b, i]`` and has ``sizes[b, i]`` bytes. ``values`` are the items,
    if the kernel reads values of the page; ``starts`` and ``sizes`` are then empty.
    """

    items: int
    offsets: pa.Buffer
    width: int
    list_validity: pa.Buffer | None
    null_lists: int
    item_validity: pa.Buffer | None
    null_items: int
    ids: Int64s
    slots: Int64s
    positions: Int64s
    starts: Int64s
    sizes: Int64s
    values: pa.Buffer | None


def take_item_lists(
    data: pa.Buffer, starts: Int64s, chunks: ListPage, rows: Int64s, order: Int64s | None = None
) -> TakenLists | None:
    """Collect the lists of some rows.

    Costs 10 µs plus about 0.3 µs for each chunk with one of the rows.

    Parameters
    ----------
    data
        Memory of the chunks; only chunks with one of the rows are read.
    starts
        ``int64`` of shape ``(chunks,)``: the first byte of each chunk in ``data``.
    chunks
        The chunks of the page.
    rows
        ``int64``: row numbers, ascending.
    order
        ``int64``: the position of each row in the result, a permutation. By default the order of
        ``rows``.

    Returns
    -------
    TakenLists or None
        ``None`` if a chunk is damaged or compiled kernels are disabled.
    """
    wanted, count, page = len(rows), len(chunks.sizes), chunks.page
    if not wanted:
        return None
    if len(starts) != count or (order is not None and len(order) != wanted):
        raise ValueError(f"{len(starts)} starts of {count} chunks, or rows without a position")
    starts, rows = np.ascontiguousarray(starts), np.ascontiguousarray(rows, np.int64)
    order = None if order is None else np.ascontiguousarray(order, np.int64)
    table, record = chunks.places
    buffers = page.value_buffers
    room = min(count, ROW_CHUNKS * wanted + MORE_CHUNKS)
    capacity = wanted * (chunks.mean + 1) * 9 // 8 + MORE_VALUES
    ids_at = RESULTS + PER_ROW * wanted
    sets = allocate(SETS_BYTES)  # outside of the result, so that the next call can reuse it
    while True:
        numbers = ids_at + (1 + 2 * buffers) * room
        memory = as_array(allocate(8 * numbers), np.int64)
        base, row_bytes = address(memory), 8 * wanted
        first, at_ids = base + 8 * RESULTS, base + 8 * ids_at
        width = 4 if capacity <= MAX_OFFSET else 8
        offsets = allocate((wanted + 1) * width)
        list_valid = allocate_bits(wanted) if page.null_list else None
        taken_valid = item_valid = allocate_bits(capacity) if page.null_item else None
        if order is not None and page.null_item:
            item_valid = allocate_bits(capacity)
        places = as_array(allocate(16 * capacity), np.int64)
        size = capacity * page.value_bits // 8
        values = allocate_with_slack(size, slack=room) if page.values else None
        items = list_takes_loops.take_item_lists(
            data=address(data), data_size=data.size, starts=address(starts), table=table,
            page=record, rows=address(rows),
            order=given(order), wanted=wanted, begin=first,
            last=first + row_bytes, places=first + 2 * row_bytes, lengths=first + 3 * row_bytes,
            firsts=first + 4 * row_bytes, nulls=first + 5 * row_bytes, back=first + 6 * row_bytes,
            ids=at_ids, buffer_starts=at_ids + 8 * room,
            buffer_sizes=at_ids + 8 * (1 + buffers) * room, chunk_capacity=room,
            sets=address(sets), taken_valid=given(taken_valid),
            value_capacity=capacity, offsets=address(offsets), width=width,
            list_valid=given(list_valid), item_valid=given(item_valid), slots=address(places),
            positions=address(places) + 8 * capacity, values=given(values), result=base,
        )  # fmt: skip
        if items >= 0:
            break
        used, needed = int(memory[0]), int(memory[1])
        if items != TOO_MANY or (used <= room and needed <= capacity):
            return None
        room, capacity = max(room, used), max(capacity, needed)
    used, _, null_lists, null_items = memory[:RESULTS].tolist()
    if values is None:
        first_bytes, sizes = memory[ids_at + room : numbers].reshape(2, buffers, room)[:, :, :used]
    else:
        first_bytes = sizes = memory[:0]
    # Cut off the unwritten memory after the last item.
    return TakenLists(
        items, offsets, width, list_valid if null_lists else None, null_lists,
        item_valid.slice(0, (items + 7) // 8) if item_valid is not None and null_items else None,
        null_items, memory[ids_at : ids_at + used], places[:items],
        places[capacity : capacity + items], first_bytes, sizes,
        None if values is None else values.slice(0, items * page.value_bits // 8),
    )  # fmt: skip
