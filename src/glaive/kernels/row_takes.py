"""Rows out of several columns without lists, in one call and one piece of memory.

One call finds the chunk of each row, reads its header, level and value, and decodes or copies
texts. As in ``list_takes``, None stands for damage and for processes that are not to use compiled
kernels: then the general path is taken, which is what this one is compared with.

Specification: "Chunks" in ``docs/format/pages.md``; "FSST" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import RowIndexError
from glaive.kernels._addresses import KEEPS_ADDRESSES, address
from glaive.kernels.fsst import MAX_SYMBOL_BYTES, SymbolTable
from glaive.kernels.list_levels import same_length
from glaive.kernels.native import row_takes as row_takes_loops
from glaive.kernels.native import use_compiled
from glaive.kernels.records import LevelPage, RowTable, TakenColumn, packed
from glaive.kernels.strings import Strings
from glaive.types import MAX_OFFSET, Int64s, UInt8s, allocate, as_array, copy_of

STRINGS: Final = 5
CODES: Final = 6
"""Encodings of values in the ``LevelPage`` of a column of strings: plain, or in FSST codes."""

TOO_LITTLE: Final = -2
_SCRATCH: Final = 32 * 64
"""Bytes that the kernel needs beside the result."""

_TAKEN: Final = len(TakenColumn._fields)
_PART_ROOM: Final = 5 * 64
"""Bytes of a column for which there is room at first, beside those of its rows."""

_TEXT_ROOM: Final = 64
_LAST_TEXT_ROOM: Final = 4096
"""Bytes of a text for which there is room at first: of each, and beside for the last."""

_TELLING_ROWS: Final = 16
"""Rows from which on a take tells how long other texts may be."""

_MOST_TEXT_ROOM: Final = 16 << 20
"""Bytes for texts for which there is room at first; it becomes four times as much when it ends."""

_WORTH_COPYING: Final = 1 << 16
"""Bytes of memory without use that a result does not keep."""


class RowItems(NamedTuple):
    """A dictionary of strings, or those of several pages, one after the other.

    Values of chunk i are numbers below ``limits[i]``, counted from item ``bases[i]`` on.
    """

    strings: Strings
    total: int
    bases: Int64s
    limits: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class RowPages:
    """Pages without lists of one column, for takes.

    Parameters
    ----------
    data
        Memory of all chunks.
    offsets, sizes, firsts, counts
        ``int64`` of shape ``(chunks,)``, ``firsts`` of ``(chunks + 1,)``: first byte and bytes of
        each chunk, number of its first value and of all values, and its values.
    first_chunks
        ``int64`` of shape ``(pages + 1,)``: number of the first chunk of each page, and of all.
    shift
        Chunks have ``1 << shift`` values, but for the last of each page; -1 if they differ.
    page
        Encoding and limits of definition levels; a ``null_item`` where they only tell nulls;
        encoding of values, which have ``value_bits``: ``STRINGS`` and ``CODES`` beside those of
        ``LevelPage``.
    symbols
        For codes: those of all pages, by :func:`join_symbols`.
    items
        The dictionary, whose strings are then taken.
    first_row
        Number of the row that has value 0.
    """

    data: pa.Buffer
    offsets: Int64s
    sizes: Int64s
    firsts: Int64s
    counts: Int64s
    first_chunks: Int64s
    shift: int
    page: LevelPage
    symbols: UInt8s | None = None
    items: RowItems | None = None
    first_row: int = 0
    starts: Int64s = field(init=False)
    """Number of the first value of each page, and of all values."""
    _places: Int64s = field(init=False)

    def __post_init__(self) -> None:
        chunks, pages, items = len(self.sizes), len(self.first_chunks) - 1, self.items
        same_length(chunks, self.offsets, self.counts, self.firsts[1:])
        if items is not None:
            same_length(chunks, items.bases, items.limits)
            width = items.strings.offset_bits >> 3
            if not 0 <= items.total < items.strings.offsets.size // width:
                raise ValueError(f"{items.total} items of {items.strings.offsets.size} bytes")
        has_codes = self.page.values == CODES
        if has_codes != (self.symbols is not None and self.symbols.shape == (pages, _SYMBOLS)):
            raise ValueError(f"no symbols for {pages} pages, or some that are not used")
        if pages < 1 or (self.symbols is not None and not self.symbols.flags.c_contiguous):
            raise ValueError("no page, or symbols with gaps")
        if int(self.first_chunks.min()) < 0 or int(self.first_chunks.max()) > chunks:
            raise ValueError(f"pages from chunks {self.first_chunks} of {chunks}")
        object.__setattr__(self, "starts", self.firsts[self.first_chunks])
        members = [self.offsets, self.firsts[:-1], self.sizes, self.counts]
        members += [] if items is None else [items.bases, items.limits]
        object.__setattr__(self, "_places", _places(members))

    @property
    def text_bits(self) -> int:
        """Bits of the offsets of what is taken, where these are strings; else 0."""
        if self.items is not None:
            return self.items.strings.offset_bits
        return self.page.value_bits if self.page.values >= STRINGS else 0

    def record(self, starts: Int64s) -> RowTable:
        """The pages for the kernel, with the memory of ``starts`` instead of their own."""
        page, items, symbols, places = self.page, self.items, self.symbols, self._places
        record = RowTable(
            data=address(self.data), data_size=self.data.size, chunk_places=address(places),
            place_shift=places.strides[0].bit_length() - 1, chunks=len(places),
            starts=address(starts), first_chunks=address(self.first_chunks),
            pages=len(self.first_chunks) - 1,
            shift=self.shift, value_width=page.value_width, definition=page.definition,
            def_width=page.def_width, max_def=page.max_def, nullable=page.null_item,
            values=page.values, bits=page.value_bits,
            symbols=0 if symbols is None else address(symbols), first_row=self.first_row,
        )  # fmt: skip
        if items is None:
            return record
        offsets, bits, data = items.strings
        return record._replace(
            items=items.total, item_width=bits >> 3, item_offsets=address(offsets),
            item_data=address(data), item_data_size=data.size,
        )  # fmt: skip


def _places(members: Sequence[Int64s]) -> Int64s:
    """A ``ChunkPlace`` of each chunk, from the members in their order.

    Memory from Arrow's pool begins with a line of the cache; no place lies in two of them.
    """
    words = 1 << (len(members) - 1).bit_length()
    places = as_array(allocate(8 * words * len(members[0])), np.int64).reshape(-1, words)
    for at, array in enumerate(members):
        places[:, at] = array
    return places


@dataclass(frozen=True, slots=True, eq=False)
class RowColumns:
    """Columns that are taken from together."""

    columns: Sequence[RowPages]
    _tables: Int64s = field(init=False)
    _fixed: tuple[int, int] = field(init=False)
    """Bytes of a row, and of all columns beside, for which there is room; without texts."""
    _texts: list[int] = field(init=False)
    """Bytes of the texts of a row for which there is room."""

    def __post_init__(self) -> None:
        texts = sum(column.text_bits > 0 for column in self.columns)
        beside = _PART_ROOM * len(self.columns) + _LAST_TEXT_ROOM * texts
        each = sum(16 + (column.text_bits or column.page.value_bits) for column in self.columns)
        object.__setattr__(self, "_fixed", ((each >> 3) + 1, beside))
        object.__setattr__(self, "_texts", [_TEXT_ROOM * texts])
        self._place()

    @property
    def tables(self) -> int:
        """Address of the records of the columns."""
        if not KEEPS_ADDRESSES:
            self._place()
        return address(self._tables)

    def _place(self) -> None:
        """Pack the records of the columns; equal starts of pages share a look-up."""
        known: list[Int64s] = []
        records = []
        for column in self.columns:
            same = (one for one in known if np.array_equal(one, column.starts))
            starts = next(same, column.starts)
            known += [starts] if starts is column.starts else []
            records.append(packed(column.record(starts)))
        object.__setattr__(self, "_tables", np.concatenate([np.empty(0, np.int64), *records]))

    def room(self, rows: int) -> int:
        """Bytes that so many rows take, about: their texts as many as those taken last."""
        each, beside = self._fixed
        return each * rows + beside + min(self._texts[0] * rows, _MOST_TEXT_ROOM)

    def most_room(self, rows: int) -> float:
        """Room beyond which rows are refused: texts of different rows lie apart from each other."""
        if any(column.items is not None for column in self.columns):
            return math.inf
        each, beside = self._fixed
        texts = sum(column.data.size for column in self.columns if column.text_bits)
        return each * rows + beside + max(MAX_SYMBOL_BYTES * texts, _MOST_TEXT_ROOM)

    def learn(self, rows: int, used: int) -> None:
        """Note how many bytes rows took, where these are enough to expect as much of more."""
        if rows >= _TELLING_ROWS:
            each, beside = self._fixed
            texts = max(0, used - each * rows - beside)
            self._texts[0] = (texts + (texts >> 2)) // rows


class TakenRows(NamedTuple):
    """Columns in one piece of memory.

    ``parts`` has six numbers for each, those of a ``TakenColumn``.
    """

    memory: pa.Buffer
    parts: list[list[int]]


def take_rows(columns: RowColumns, rows: Int64s) -> TakenRows | None:
    """Take rows of several columns.

    Costs 5 µs, and 20 to 100 ns for each value that is in no cache.

    Parameters
    ----------
    columns
        The pages of each column.
    rows
        ``int64``: row numbers, in any order; those of each column begin with its ``first_row``.

    Returns
    -------
    TakenRows or None
        None when a chunk is damaged or a row is none of a column, when the rows take 2 GiB or
        more, or memory ends, or when compiled kernels are not to be used.
    """
    wanted, count = len(rows), len(columns.columns)
    if not wanted or not count or not use_compiled(wanted * count):
        return None
    rows = np.ascontiguousarray(rows, np.int64)
    taken_at, pages_at = _SCRATCH, _SCRATCH + 8 * _TAKEN * count
    numbers = np.empty((pages_at >> 3) + wanted, np.int64)
    base, at = address(numbers), address(rows)
    tables, room = columns.tables, columns.room(wanted)
    while room <= MAX_OFFSET:
        try:
            memory = allocate(room)
        except MemoryError:
            return None
        used = row_takes_loops.take_rows(
            tables=tables, columns=count, rows=at, wanted=wanted, memory=address(memory),
            room=room, scratch=base, pages=base + pages_at, taken=base + taken_at,
        )  # fmt: skip
        if used >= 0:
            columns.learn(wanted, used)
            if room - used > max(used, _WORTH_COPYING):
                memory = copy_of(memory.slice(0, used))
            parts = numbers[taken_at >> 3 : pages_at >> 3].reshape(count, _TAKEN)
            return TakenRows(memory, parts.tolist())
        if used != TOO_LITTLE or room > columns.most_room(wanted):
            return None
        room *= 4
    return None


_SYMBOLS: Final = 256 * 8 + 256
"""Bytes of the symbols of a page: a word of each, and the last byte of those of eight."""

_LENGTH_AT: Final = np.uint64(56)


def join_symbols(tables: Sequence[SymbolTable]) -> UInt8s:
    """Symbols of pages as the kernel reads them: ``uint8``, shape ``(tables, 2304)``.

    A word has up to seven bytes of its symbol, and the length in the last: nine of a code without
    a symbol. So most codes touch one line of the cache.
    """
    joined = np.empty((len(tables), _SYMBOLS), np.uint8)
    for symbols, table in zip(joined, tables, strict=True):
        lengths = np.minimum(table.lengths, MAX_SYMBOL_BYTES + 1).astype(np.uint64)
        first = table.words & np.uint64((1 << 56) - 1)
        symbols[:2048] = (first | lengths << _LENGTH_AT).view(np.uint8)
        symbols[2048:] = table.words >> _LENGTH_AT
    return joined


# --- Find the chunks that hold some values of pages without lists -----------------------
# Specification: "Chunk words" in ``docs/format/pages.md``.

_FEW: Final = 64
"""Chunks for each value from which on values are sorted rather than chunks marked."""


class LocatedValues(NamedTuple):
    """The chunks ``ids`` that hold some values, ascending.

    Value i has number ``places[i]`` in chunk ``ids[slots[i]]``.
    """

    ids: Int64s
    slots: Int64s
    places: Int64s


def locate_values(
    values: Int64s, firsts: Int64s, first_chunks: Int64s | None, shift: int
) -> LocatedValues:
    """Find the chunks of values, given by number.

    Parameters
    ----------
    values
        ``int64``: numbers from 0 to below ``firsts[-1]``, in any order.
    firsts
        ``int64`` of shape ``(chunks + 1,)``: number of the first value of each chunk, ascending
        from 0, and of all values.
    first_chunks
        ``int64`` of shape ``(pages + 1,)``: number of the first chunk of each page, and of all
        chunks; None for one page.
    shift
        Chunks have ``1 << shift`` values, but for the last of each page; -1 if they differ.

    Raises
    ------
    RowIndexError
        A number is not among the values.

    Notes
    -----
    About 8 ns per value, and 1 ns per chunk where there are many values.
    """
    values = np.ascontiguousarray(values, np.int64)
    firsts = np.ascontiguousarray(firsts, np.int64)
    chunks, wanted = len(firsts) - 1, len(values)
    if not wanted:
        return LocatedValues(values, values, values)
    if int(values.min()) < 0 or int(values.max()) >= firsts[-1]:
        raise RowIndexError(f"values {values.min()}..{values.max()} of {firsts[-1]} in all")
    if wanted * _FEW < chunks or not use_compiled(wanted):
        return _locate_numpy(values, firsts)
    if shift < 0:  # each chunk is searched for as if it were a page
        first_chunks, shift = np.arange(chunks + 1), 62
    elif first_chunks is None:
        first_chunks = np.array([0, chunks])
    first_chunks = np.ascontiguousarray(first_chunks, np.int64)
    starts = firsts[first_chunks]
    memory = as_array(allocate(8 * (2 * wanted + 2 * chunks + 1)), np.int64)
    slots, places = memory[:wanted], memory[wanted : 2 * wanted]
    ids = memory[2 * wanted : 2 * wanted + chunks + 1]
    base = address(memory)
    used = row_takes_loops.locate_values(
        values=address(values), wanted=wanted, starts=address(starts),
        first_chunks=address(first_chunks), pages=len(starts) - 1, shift=min(shift, 62),
        firsts=address(firsts), chunks=chunks, numbers=base + 8 * (2 * wanted + chunks + 1),
        slots=base, places=base + 8 * wanted, ids=base + 16 * wanted,
    )  # fmt: skip
    return LocatedValues(ids[:used], slots, places)


def _locate_numpy(values: Int64s, firsts: Int64s) -> LocatedValues:
    chunk = firsts[1:-1].searchsorted(values, "right")
    ids, slots = np.unique(chunk, return_inverse=True)
    return LocatedValues(ids, slots, values - firsts[chunk])
