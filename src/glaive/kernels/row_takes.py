"""Take rows of several columns outside of lists, in one call and one block of memory.

One call finds the chunk of each row, reads its header, level and value, and decodes or copies
strings. As in ``list_takes``, ``None`` means damage, or that compiled kernels are disabled. The
caller then uses the general path, which is the reference in tests.

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
from glaive.kernels._addresses import KEEPS_ADDRESSES, address, given
from glaive.kernels.fsst import MAX_SYMBOL_BYTES, SymbolTable
from glaive.kernels.list_levels import same_length
from glaive.kernels.native import row_takes as row_takes_loops
from glaive.kernels.records import LevelPage, RowTable, TakenColumn, packed
from glaive.types import MAX_OFFSET, Int64s, UInt8s, allocate, as_array, copy_of

RUNS: Final = 4
STRINGS: Final = 5
CODES: Final = 6
"""Encodings of values besides plain values and packed words: runs of words, strings, FSST codes."""

TOO_LITTLE: Final = -2
_SCRATCH: Final = 32 * 64
"""Bytes that the kernel needs in addition to the result."""

_TAKEN: Final = len(TakenColumn._fields)
_BYTES_PER_COLUMN: Final = 5 * 64
"""Bytes to allocate for a column in addition to its rows."""

_BYTES_PER_STRING: Final = 64
_LAST_STRING_BYTES: Final = 4096
"""Bytes to allocate for each string, and in addition for the last string."""

_MIN_LEARNT_ROWS: Final = 16
"""Minimum rows of a take whose string lengths determine the next allocation."""

_MAX_STRING_BYTES: Final = 16 << 20
"""Maximum bytes to allocate for strings at first. Each retry allocates four times as much."""

_MIN_UNUSED_BYTES: Final = 1 << 16
"""Minimum unused bytes for which the result is copied to a smaller buffer."""


class RowItems(NamedTuple):
    """The concatenated dictionaries of one or more pages: strings, or values of ``bits`` bits.

    Strings have ``offsets`` of so many bits. Values of chunk i are numbers below ``limits[i]``,
    relative to item ``bases[i]``.
    """

    data: pa.Buffer
    bits: int
    offsets: pa.Buffer | None
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
    offsets, sizes
        ``int64`` of shape ``(chunks,)``: the first byte and the bytes of each chunk.
    firsts
        ``int64`` of shape ``(chunks + 1,)``: the number of the first value of each chunk, and of
        all values.
    counts
        ``int64`` of shape ``(chunks,)``: the values of each chunk.
    first_chunks
        ``int64`` of shape ``(pages + 1,)``: the first chunk of each page, and the number of chunks.
    shift
        All chunks except the last of each page have ``1 << shift`` values. -1 if the counts differ.
    page
        Encoding and limits of definition levels; ``null_item`` if they only mark nulls. Encoding of
        values of ``value_bits``: an encoding of ``LevelPage``, ``STRINGS`` or ``CODES``.
    symbols
        The symbols of all pages by :func:`join_symbols`, for ``CODES`` only.
    items
        The dictionary. The values then are its indices, and the result has its strings.
    limit
        If above 0, values are words below it: numbers of the items of one dictionary.
    first_row
        The row number of value 0.
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
    limit: int = 0
    first_row: int = 0
    starts: Int64s = field(init=False)
    """Number of the first value of each page, and number of values."""
    _places: Int64s = field(init=False)

    def __post_init__(self) -> None:
        chunks, pages, items = len(self.sizes), len(self.first_chunks) - 1, self.items
        same_length(chunks, self.offsets, self.counts, self.firsts[1:])
        if items is not None:
            same_length(chunks, items.bases, items.limits)
            size = items.data.size if items.offsets is None else items.offsets.size
            if not 0 <= items.total + (items.offsets is not None) <= 8 * size // items.bits:
                raise ValueError(f"{items.total} items of {size} bytes")
        has_codes = self.page.values == CODES
        if has_codes != (self.symbols is not None and self.symbols.shape == (pages, _SYMBOLS)):
            raise ValueError(f"symbols and encodings of {pages} pages do not match")
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
        """Bits of the offsets if the column has strings; else 0."""
        if self.items is not None:
            return 0 if self.items.offsets is None else self.items.bits
        return self.page.value_bits if self.page.values >= STRINGS else 0

    @property
    def value_bits(self) -> int:
        """Bits of a value, or of an offset of strings."""
        return self.page.value_bits if self.items is None else self.items.bits

    def record(self, starts: Int64s) -> RowTable:
        """Return the record of the pages for the kernel, with the address of ``starts``."""
        page, items, symbols, places = self.page, self.items, self.symbols, self._places
        record = RowTable(
            data=address(self.data), data_size=self.data.size, chunk_places=address(places),
            place_shift=places.strides[0].bit_length() - 1, chunks=len(places),
            starts=address(starts), first_chunks=address(self.first_chunks),
            pages=len(self.first_chunks) - 1,
            shift=self.shift, value_width=page.value_width, definition=page.definition,
            def_width=page.def_width, max_def=page.max_def, nullable=page.null_item,
            values=page.values, bits=page.value_bits,
            symbols=given(symbols), items=self.limit, first_row=self.first_row,
        )  # fmt: skip
        if items is None:
            return record
        return record._replace(
            items=items.total, item_width=items.bits >> 3, item_offsets=given(items.offsets),
            item_data=address(items.data), item_data_size=items.data.size,
        )  # fmt: skip


def _places(members: Sequence[Int64s]) -> Int64s:
    """Pack the members of each chunk into a ``ChunkPlace``, in order.

    Arrow's pool aligns memory with cache lines, so each place lies in one cache line.
    """
    words = 1 << (len(members) - 1).bit_length()
    places = as_array(allocate(8 * words * len(members[0])), np.int64).reshape(-1, words)
    for at, array in enumerate(members):
        places[:, at] = array
    return places


@dataclass(frozen=True, slots=True, eq=False)
class RowColumns:
    """Columns that one call takes from."""

    columns: Sequence[RowPages]
    _tables: Int64s = field(init=False)
    _fixed: tuple[int, int] = field(init=False)
    """Bytes to allocate per row, and in addition for all columns; strings need more."""
    _texts: list[int] = field(init=False)
    """Bytes to allocate for the strings of a row."""

    def __post_init__(self) -> None:
        texts = sum(column.text_bits > 0 for column in self.columns)
        extra = _BYTES_PER_COLUMN * len(self.columns) + _LAST_STRING_BYTES * texts
        each = sum(16 + column.value_bits for column in self.columns)
        object.__setattr__(self, "_fixed", ((each >> 3) + 1, extra))
        object.__setattr__(self, "_texts", [_BYTES_PER_STRING * texts])
        self._place()

    @property
    def tables(self) -> int:
        """The address of the records of the columns."""
        if not KEEPS_ADDRESSES:
            self._place()
        return address(self._tables)

    def _place(self) -> None:
        """Pack the records of the columns; columns with equal page starts share them."""
        known: list[Int64s] = []
        records = []
        for column in self.columns:
            same = (one for one in known if np.array_equal(one, column.starts))
            starts = next(same, column.starts)
            known += [starts] if starts is column.starts else []
            records.append(packed(column.record(starts)))
        object.__setattr__(self, "_tables", np.concatenate([np.empty(0, np.int64), *records]))

    def estimated_bytes(self, rows: int) -> int:
        """Estimate the bytes of ``rows`` rows; strings are as long as in the last take."""
        each, extra = self._fixed
        return each * rows + extra + min(self._texts[0] * rows, _MAX_STRING_BYTES)

    def max_bytes(self, rows: int) -> float:
        """Return the maximum bytes of ``rows`` rows: strings of different rows are disjoint."""
        if any(column.items is not None for column in self.columns):
            return math.inf
        each, extra = self._fixed
        texts = sum(column.data.size for column in self.columns if column.text_bits)
        return each * rows + extra + max(MAX_SYMBOL_BYTES * texts, _MAX_STRING_BYTES)

    def learn(self, rows: int, used: int) -> None:
        """Record the bytes that a take used, if it had enough rows to predict other takes."""
        if rows >= _MIN_LEARNT_ROWS:
            each, extra = self._fixed
            texts = max(0, used - each * rows - extra)
            self._texts[0] = (texts + (texts >> 2)) // rows


class TakenRows(NamedTuple):
    """Columns in one block of memory.

    ``parts`` has the six members of a ``TakenColumn`` for each column.
    """

    memory: pa.Buffer
    parts: list[list[int]]


def take_rows(columns: RowColumns, rows: Int64s) -> TakenRows | None:
    """Take rows of several columns.

    Costs 5 µs, plus 20 to 100 ns for each value outside the CPU caches.

    Parameters
    ----------
    columns
        The pages of each column.
    rows
        ``int64``: row numbers, in any order. The rows of a column begin at its ``first_row``.

    Returns
    -------
    TakenRows or None
        ``None`` if

        - a chunk is damaged,
        - a column lacks a row,
        - the rows take 2 GiB or more, or memory is exhausted,
        - compiled kernels are disabled.
    """
    wanted, count = len(rows), len(columns.columns)
    if not wanted or not count:
        return None
    rows = np.ascontiguousarray(rows, np.int64)
    taken_at, pages_at = _SCRATCH, _SCRATCH + 8 * _TAKEN * count
    numbers = np.empty((pages_at >> 3) + wanted, np.int64)
    base, at = address(numbers), address(rows)
    tables, capacity = columns.tables, columns.estimated_bytes(wanted)
    while capacity <= MAX_OFFSET:
        try:
            memory = allocate(capacity)
        except MemoryError:
            return None
        used = row_takes_loops.take_rows(
            tables=tables, columns=count, rows=at, wanted=wanted, memory=address(memory),
            room=capacity, scratch=base, pages=base + pages_at, taken=base + taken_at,
        )  # fmt: skip
        if used >= 0:
            columns.learn(wanted, used)
            if capacity - used > max(used, _MIN_UNUSED_BYTES):
                memory = copy_of(memory.slice(0, used))
            parts = numbers[taken_at >> 3 : pages_at >> 3].reshape(count, _TAKEN)
            return TakenRows(memory, parts.tolist())
        if used != TOO_LITTLE or capacity > columns.max_bytes(wanted):
            return None
        capacity *= 4
    return None


_SYMBOLS: Final = 256 * 8 + 256
"""Bytes of the symbols of a page: a word of each, and the last byte of 8-byte symbols."""

_LENGTH_AT: Final = np.uint64(56)


def join_symbols(tables: Sequence[SymbolTable]) -> UInt8s:
    """Join symbols of pages for the kernel: ``uint8``, shape ``(tables, 2304)``.

    A word has up to seven bytes of its symbol, and the length in its last byte. The length is nine
    for a code without a symbol. So most codes touch one cache line.
    """
    joined = np.empty((len(tables), _SYMBOLS), np.uint8)
    for symbols, table in zip(joined, tables, strict=True):
        lengths = np.minimum(table.lengths, MAX_SYMBOL_BYTES + 1).astype(np.uint64)
        first = table.words & np.uint64((1 << 56) - 1)
        symbols[:2048] = (first | lengths << _LENGTH_AT).view(np.uint8)
        symbols[2048:] = table.words >> _LENGTH_AT
    return joined


# --- Find the chunks that hold some values of pages outside of lists --------------------
# Specification: "Chunk words" in ``docs/format/pages.md``.

_MARKED_CHUNKS_PER_VALUE: Final = 64
"""Maximum chunks per value for which the kernel marks chunks; above, values are sorted."""


class LocatedValues(NamedTuple):
    """The ids of the chunks that hold some values, ascending, and the place of each value.

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
        ``int64`` of shape ``(chunks + 1,)``: the number of the first value of each chunk, ascending
        from 0, and the number of values.
    first_chunks
        ``int64`` of shape ``(pages + 1,)``: the first chunk of each page, and the number of chunks.
        ``None`` for one page.
    shift
        All chunks except the last of each page have ``1 << shift`` values. -1 if the counts differ.

    Raises
    ------
    RowIndexError
        A number is out of range.

    Notes
    -----
    Takes about 8 ns per value, plus 1 ns per chunk for many values.
    """
    values = np.ascontiguousarray(values, np.int64)
    firsts = np.ascontiguousarray(firsts, np.int64)
    chunks, wanted = len(firsts) - 1, len(values)
    if not wanted:
        return LocatedValues(values, values, values)
    if wanted * _MARKED_CHUNKS_PER_VALUE < chunks:
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
    if used < 0:
        raise _beyond(values, firsts)
    return LocatedValues(ids[:used], slots, places)


def _locate_numpy(values: Int64s, firsts: Int64s) -> LocatedValues:
    if int(values.min()) < 0 or int(values.max()) >= firsts[-1]:
        raise _beyond(values, firsts)
    chunk = firsts[1:-1].searchsorted(values, "right")
    ids, slots = np.unique(chunk, return_inverse=True)
    return LocatedValues(ids, slots, values - firsts[chunk])


def _beyond(values: Int64s, firsts: Int64s) -> RowIndexError:
    return RowIndexError(f"values {values.min()}..{values.max()} of {firsts[-1]} in all")
