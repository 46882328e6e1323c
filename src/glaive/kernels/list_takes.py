"""Single lists out of chunks of a page whose only list layer is the outermost.

One call finds the chunks of all rows, decodes the levels of each chunk once, and collects offsets,
validity and, where these are plain or packed words, values. As in ``item_lists``, None stands for
damage and for processes that are not to use compiled kernels: then the general path is taken,
which is what this one is compared with.

Specification: "Levels" in ``docs/format/levels.md``, "Repetition index" in
``docs/format/pages.md``.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.kernels._addresses import KEEPS_ADDRESSES, address, allocate_bits
from glaive.kernels.list_levels import ListChunks
from glaive.kernels.native import list_levels as list_levels_loops
from glaive.kernels.native import list_takes as list_takes_loops
from glaive.kernels.native import use_compiled
from glaive.kernels.records import ChunkRows, LevelPage, ReadItemLists, TakeItemLists, packed
from glaive.memory import allocate, as_array
from glaive.named_tuple import NamedTuple
from glaive.types import MAX_OFFSET, Flags, Int64s

# --- All lists of chunks of a page whose only list layer is the outermost, without their levels
# Levels of such pages are compared as bits, 64 entries at a time, and become offsets and validity
# chunk by chunk: no array of levels is made. As in ``list_levels``, wrappers return None when
# levels are damaged, or when compiled kernels are not to be used; the general path is what they
# are compared with.
#
# Specification: "Levels" in ``docs/format/levels.md``, "Chunks" in ``docs/format/pages.md``.

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
    total = list_levels_loops.count_entries(address(data), data.size, address(starts), chunks)
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
    if list_takes_loops.read_item_lists(*call) != rows:
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


TOO_MANY: Final = -2
RESULTS: Final = 4
PER_ROW: Final = 7
"""Numbers that the kernel keeps for every row."""

ROW_CHUNKS, MORE_CHUNKS = 2, 14
ROW_VALUES, MORE_VALUES = 256, 64
"""Chunks and values for which there is room at first; with more the kernel is called again."""


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
        Encodings and limits of the levels, and the encoding of values; ``max_rep`` is 1.
    bases, limits
        ``int64`` of shape ``(chunks,)``, both or none: values of a chunk that are read here are
        below its limit, and its base is added to them.
    """

    sizes: Int64s
    counts: Int64s
    row_starts: Int64s
    enters: Flags
    page: LevelPage
    bases: Int64s | None = None
    limits: Int64s | None = None
    mean: int = field(init=False)
    """Values of a row, about."""
    _records: tuple[Int64s, Int64s] = field(init=False)
    _places: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        chunks = len(self.sizes)
        arrays: list[NDArray[Any]] = [self.sizes, self.counts, self.row_starts, self.enters]
        if [len(array) for array in arrays] != [chunks, chunks, chunks + 1, chunks + 1]:
            raise ValueError(f"arrays of {[len(array) for array in arrays]} items")
        if self.bases is not None and self.limits is not None:
            if not len(self.bases) == len(self.limits) == chunks:
                raise ValueError(f"{len(self.bases)} and {len(self.limits)} for {chunks} chunks")
            arrays += [self.bases, self.limits]
        if not all(array.flags.c_contiguous for array in arrays):
            raise ValueError("arrays with gaps")
        rows = max(int(self.row_starts[-1]), 1)
        mean = max(int(self.counts.sum()) // rows, 0)
        object.__setattr__(self, "mean", min(mean, ROW_VALUES))
        self._pack()

    @property
    def places(self) -> tuple[int, int]:
        """Addresses of the chunks and of the page as records."""
        if not KEEPS_ADDRESSES:
            self._pack()
        return self._places

    def _pack(self) -> None:
        chunks = ChunkRows(
            sizes=address(self.sizes), counts=address(self.counts),
            row_starts=address(self.row_starts), enters=address(self.enters),
            chunks=len(self.sizes), bases=0 if self.bases is None else address(self.bases),
            limits=0 if self.limits is None else address(self.limits),
        )  # fmt: skip
        records = packed(chunks), packed(self.page)
        object.__setattr__(self, "_records", records)
        object.__setattr__(self, "_places", (address(records[0]), address(records[1])))


class ItemPlaces(NamedTuple):
    """Item j is number ``positions[j]`` of chunk ``ids[slots[j]]``.

    Value buffer b of chunk ``ids[i]`` lies at ``starts[b, i]`` and has ``sizes[b, i]`` bytes.
    """

    ids: Int64s
    slots: Int64s
    positions: Int64s
    starts: Int64s
    sizes: Int64s


class TakenLists(NamedTuple):
    """Lists and their items, as in Arrow.

    ``offsets`` has ``rows + 1`` numbers of ``width`` bytes. Validity is a bitmap, None without
    nulls. ``values`` are the items where the page says how to read them, else ``places`` are given.
    """

    items: int
    offsets: pa.Buffer
    width: int
    list_validity: pa.Buffer | None
    null_lists: int
    item_validity: pa.Buffer | None
    null_items: int
    values: pa.Buffer | None
    places: ItemPlaces | None


def take_item_lists(
    data: pa.Buffer, starts: Int64s, chunks: ListPage, rows: Int64s, order: Int64s | None = None
) -> TakenLists | None:
    """Collect the lists of some rows.

    Costs 10 µs plus about 0.3 µs for each chunk that holds any of them.

    Parameters
    ----------
    data, starts
        Memory of the chunks, and ``int64`` of shape ``(chunks,)``: where each begins in it. Those
        without a row among these are not read.
    chunks
        The chunks of the page.
    rows
        ``int64``: row numbers, ascending.
    order
        ``int64``: the position of each row in the result, a permutation; by default the order of
        ``rows``.

    Returns
    -------
    TakenLists or None
        None when a chunk is damaged, or when compiled kernels are not to be used.
    """
    wanted, count, page = len(rows), len(chunks.sizes), chunks.page
    if not wanted or not use_compiled(64 * min(wanted, count)):
        return None
    if len(starts) != count or (order is not None and len(order) != wanted):
        raise ValueError(f"{len(starts)} chunks of {count}, or rows without a place")
    starts, rows = np.ascontiguousarray(starts), np.ascontiguousarray(rows, np.int64)
    order = None if order is None else np.ascontiguousarray(order, np.int64)
    table, record = chunks.places
    buffers, word = page.value_buffers, page.value_bits >> 3
    room = min(count, ROW_CHUNKS * wanted + MORE_CHUNKS)
    capacity = wanted * (chunks.mean + 1) * 9 // 8 + MORE_VALUES
    ids_at = RESULTS + PER_ROW * wanted
    while True:
        numbers = ids_at + (1 + 2 * buffers) * room
        memory = as_array(allocate(8 * numbers + SETS_BYTES), np.int64)
        base, row_bytes = address(memory), 8 * wanted
        first, at_ids = base + 8 * RESULTS, base + 8 * ids_at
        width = 4 if capacity <= MAX_OFFSET else 8
        offsets = allocate((wanted + 1) * width)
        list_valid = allocate_bits(wanted) if page.null_list else None
        taken_valid = item_valid = allocate_bits(capacity) if page.null_item else None
        taken = values = allocate(capacity * word) if word else None
        if order is not None and word:
            values = allocate(capacity * word)
        if order is not None and page.null_item:
            item_valid = allocate_bits(capacity)
        places = None if word else as_array(allocate(16 * capacity), np.int64)
        slots = 0 if places is None else address(places)
        call = TakeItemLists(
            data=address(data), data_size=data.size, starts=address(starts), table=table,
            page=record, rows=address(rows),
            order=0 if order is None else address(order), wanted=wanted, begin=first,
            last=first + row_bytes, places=first + 2 * row_bytes, lengths=first + 3 * row_bytes,
            firsts=first + 4 * row_bytes, nulls=first + 5 * row_bytes, back=first + 6 * row_bytes,
            ids=at_ids, buffer_starts=at_ids + 8 * room,
            buffer_sizes=at_ids + 8 * (1 + buffers) * room, chunk_capacity=room,
            sets=base + 8 * numbers, taken=_given(taken), taken_valid=_given(taken_valid),
            value_capacity=capacity, offsets=address(offsets), width=width,
            list_valid=_given(list_valid), item_valid=_given(item_valid), values=_given(values),
            slots=slots, positions=slots + 8 * capacity if slots else 0,
            result=base,
        )  # fmt: skip
        items = list_takes_loops.take_item_lists(*call)
        if items >= 0:
            break
        used, needed = int(memory[0]), int(memory[1])
        if items != TOO_MANY or (used <= room and needed <= capacity):
            return None
        room, capacity = max(room, used), max(capacity, needed)
    used, _, null_lists, null_items = memory[:RESULTS].tolist()
    found = None
    if places is not None:
        ranges = memory[ids_at + room : numbers].reshape(2, buffers, room)[:, :, :used]
        ids, positions = memory[ids_at : ids_at + used], places[capacity : capacity + items]
        found = ItemPlaces(ids, places[:items], positions, ranges[0], ranges[1])
    # Memory behind the last item was never written: nobody may see it.
    return TakenLists(
        items, offsets, width, list_valid if null_lists else None, null_lists,
        item_valid.slice(0, (items + 7) // 8) if item_valid is not None and null_items else None,
        null_items, None if values is None else values.slice(0, items * word), found,
    )  # fmt: skip


def _given(memory: pa.Buffer | None) -> int:
    """The address of a buffer, 0 for none."""
    return 0 if memory is None else address(memory)
