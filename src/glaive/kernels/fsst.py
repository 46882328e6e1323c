"""FSST text: up to 255 symbols of 1 to 8 bytes, each written as one byte.

Code ``c`` stands for symbol ``c``; code 255 says that the next byte stands for itself. Codes
never cross values, so any value can be decoded on its own.

Specification: "FSST" in ``docs/format/encodings.md``. The idea: Boncz, Neumann and Leis,
"FSST: Fast Random Access String Compression", VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import add
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address, check_offset_chunks
from glaive.kernels.hashing import copy_ranges
from glaive.kernels.native import fsst as fsst_loops
from glaive.kernels.offsets import unpack_variable
from glaive.kernels.records import DecodeState
from glaive.kernels.strings import SLACK, Strings, as_offsets, check_offsets
from glaive.types import (
    MAX_OFFSET,
    Int64s,
    UInt8s,
    UInt32s,
    UInt64s,
    Where,
    allocate,
    as_array,
    as_buffer,
)

# --- FSST symbol tables: their bytes on disk, and the lookup tables of decoders and encoders
#
# A table takes 2312 bytes: a header, the symbols in 8 bytes each, one length byte for each symbol,
# then zeros. The upper half of the header is a magic number, bit 24 says that values are
# encoded, and the low byte is the number of symbols.
#
# Specification: "FSST" in ``docs/format/encodings.md``.

ESCAPE: Final = 255
"""Code of an escape: the next byte stands for itself."""

NO_LENGTH: Final = 4096
"""The length of a code without a symbol: more than the sum of any four real lengths."""

MAX_SYMBOLS: Final = 255
MAX_SYMBOL_BYTES: Final = 8

TABLE_BYTES: Final = 2312
"""Bytes of a table on disk, whatever the number of its symbols."""

_MAGIC: Final = 0x46535354
_SWITCH: Final = 1 << 24
_SLOTS: Final = 1024
_SLOT_SHIFT: Final = 22
_MIX: Final = 0x9E3779B1


class Encoder(NamedTuple):
    """Lookup tables of the encoding kernel; see ``glaive.kernels.loops.fsst``.

    ``stop`` is a byte that no symbol contains, or -1 if symbols contain every byte.
    """

    tables: UInt8s
    stop: int


@dataclass(frozen=True)
class SymbolTable:
    """The symbols by code, and the flag ``encoded``.

    If ``encoded`` is false, values are stored as they are, and the table may be empty.
    """

    symbols: tuple[bytes, ...]
    encoded: bool = True

    @classmethod
    def parse(cls, table: bytes, where: Where) -> SymbolTable:
        """Read a table; raise ``CorruptFileError`` when it contradicts itself."""
        if len(table) != TABLE_BYTES:
            raise _corrupt(f"{TABLE_BYTES} bytes", f"{len(table)}", where)
        header = int.from_bytes(table[:8], "little")
        if header >> 32 != _MAGIC:
            raise _corrupt(f"magic {_MAGIC:#x}", f"{header >> 32:#x}", where)
        count = header & 0xFF
        at = 8 + 8 * count
        sizes = table[at : at + count]
        if sizes and not 1 <= min(sizes) <= max(sizes) <= MAX_SYMBOL_BYTES:
            found = f"{min(sizes)} to {max(sizes)}"
            raise _corrupt(f"symbols of 1 to {MAX_SYMBOL_BYTES} bytes", found, where)
        starts = range(8, at, 8)
        symbols = map(table.__getitem__, map(slice, starts, map(add, starts, sizes)))
        parsed = cls(tuple(symbols), bool(header & _SWITCH))
        lengths = np.frombuffer(sizes, np.uint8).astype(np.int64)
        parsed._remember(np.frombuffer(table, "<u8", count, 8), lengths)
        return parsed

    @classmethod
    def of(cls, words: UInt64s, sizes: Int64s) -> SymbolTable:
        """Return a table of symbols given as numbers and lengths, as training has them."""
        raw = words.astype("<u8").tobytes()
        at = range(0, len(raw), 8)
        table = cls(tuple(raw[i : i + n] for i, n in zip(at, sizes.tolist(), strict=True)))
        table._remember(words, sizes)
        return table

    def _remember(self, words: UInt64s, sizes: Int64s) -> None:
        """Set the properties ``words`` and ``lengths``, whose values the caller has."""
        bits = (8 * sizes).astype(np.uint64)
        padded = np.zeros(256, np.uint64)
        # Ignore the bytes of a word after its symbol.
        padded[: len(words)] = words & (~np.uint64(0) >> (np.uint64(64) - bits))
        lengths = np.full(256, NO_LENGTH, np.int64)
        lengths[: len(sizes)] = sizes
        vars(self).update(words=padded, lengths=lengths)

    def to_bytes(self) -> bytes:
        """Return the 2312 bytes of the table."""
        header = _MAGIC << 32 | (_SWITCH if self.encoded else 0) | len(self.symbols)
        words = self.words[: len(self.symbols)].astype("<u8").tobytes()
        sizes = bytes(map(len, self.symbols))
        return (header.to_bytes(8, "little") + words + sizes).ljust(TABLE_BYTES, b"\0")

    @cached_property
    def step_bytes(self) -> UInt8s:
        """The bytes of each step, 8 in a row: first the literal bytes, from 256 on the symbols."""
        steps = [bytes([byte]) for byte in range(256)] + list(self.symbols)
        rows = b"".join(step.ljust(8, b"\0") for step in steps)
        return np.frombuffer(rows, np.uint8).reshape(-1, 8)

    @cached_property
    def growth(self) -> list[float]:
        """Bytes of text per byte of codes in the last decoding; empty at first."""
        return []

    @cached_property
    def words(self) -> UInt64s:
        """Symbols as numbers, for 256 codes."""
        words = b"".join(symbol.ljust(8, b"\0") for symbol in self.symbols)
        return np.frombuffer(words.ljust(2048, b"\0"), np.uint64)

    @cached_property
    def lengths(self) -> Int64s:
        """Lengths of the symbols, for 256 codes; ``NO_LENGTH`` for codes without a symbol."""
        lengths = np.full(256, NO_LENGTH, np.int64)
        lengths[: len(self.symbols)] = np.fromiter(map(len, self.symbols), np.int64)
        return lengths

    @cached_property
    def encoder(self) -> Encoder:
        """Symbols by the hash of their first three bytes, by two bytes, and by one byte.

        If several symbols have the same slot, the first is used.
        """
        number = len(self.symbols)
        words, sizes = self.words[:number], self.lengths[:number]
        entries = (np.arange(number) | 1 << 16 | sizes << 20).astype(np.uint32)
        singles = (ESCAPE | np.arange(256) << 8 | 2 << 16 | 1 << 20).astype(np.uint32)
        singles[words[sizes == 1]] = entries[sizes == 1]
        unused = np.ones(256, np.bool_)
        unused[np.frombuffer(b"".join(self.symbols), np.uint8)] = False
        stop = int(np.flatnonzero(unused).max(initial=-1))
        if stop >= 0:
            # Writes nothing; the 4 marks the end of a value.
            singles[stop] = ESCAPE | stop << 8 | 1 << 20 | 4 << 24
        pairs = np.tile(singles, 257)
        pairs[words[sizes == 2]] = entries[sizes == 2]
        # A free slot holds a word that hashes to another slot, so no string matches it.
        slots = np.ones((2, _SLOTS), np.uint64)
        slots[0, slot_of(1)] = 2
        slots[1] = 0
        # Backwards, because the last of several assignments to one slot counts.
        long = np.flatnonzero(sizes > 2)[::-1]
        used = slots_of(words[long])
        slots[0, used] = words[long]
        slots[1, used] = entries[long] | (64 - 8 * sizes[long]).astype(np.uint64) << np.uint64(32)
        return Encoder(
            np.concatenate((slots.reshape(-1).view(np.uint8), pairs.view(np.uint8))), stop
        )

    @cached_property
    def lookups(self) -> tuple[dict[int, tuple[bytes, int]], dict[bytes, int], dict[bytes, int]]:
        """The encoder's tables as dicts: by slot, by two bytes, by one byte."""
        long: dict[int, tuple[bytes, int]] = {}
        short: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        for code, symbol in enumerate(self.symbols):
            if len(symbol) > 2:
                long.setdefault(slot_of(int.from_bytes(symbol, "little")), (symbol, code))
            else:
                short[2 - len(symbol)][symbol] = code
        return long, *short


def slot_of(word: int) -> int:
    """Return the slot for symbols that begin with the three low bytes of ``word``."""
    return ((word & 0xFFFFFF) << 8) * _MIX % 2**32 >> _SLOT_SHIFT


def slots_of(words: UInt64s) -> Int64s:
    """Return the slots of many symbols, as ``slot_of`` does for one."""
    hashes = (words.astype(np.uint32) << np.uint32(8)) * np.uint32(_MIX)
    return (hashes >> np.uint32(_SLOT_SHIFT)).astype(np.int64)


def split_value(table: SymbolTable, value: bytes) -> list[int]:
    """Return the steps that encode a value: 256 + code of a symbol, or a literal byte."""
    long, pairs, singles = table.lookups
    steps = []
    at, end = 0, len(value)
    while at < end:
        symbol = long.get(slot_of(int.from_bytes(value[at : at + 3], "little")))
        code: int | None
        if symbol is not None and value.startswith(symbol[0], at):
            size, code = len(symbol[0]), symbol[1]
        else:
            size, code = 2, pairs.get(value[at : at + 2])
            if code is None:
                size, code = 1, singles.get(value[at : at + 1])
        steps.append(value[at] if code is None else 256 + code)
        at += size
    return steps


def _corrupt(expected: str, found: str, where: Where) -> CorruptFileError:
    return CorruptFileError("FSST symbol table", expected=expected, found=found, where=where)


# --- Memory for decoded strings, and the error for damage: common to all FSST kernels


class Output:
    """Growing memory for the strings that kernels decode, and the position they have reached."""

    def __init__(self, count: int, offset_bits: int, capacity: int) -> None:
        self._count = count
        self._bits = 64 if capacity > MAX_OFFSET else offset_bits
        self._capacity = capacity
        self._data = pa.allocate_buffer(capacity, None, resizable=True)
        self._offsets = self._new_offsets()
        self._state = np.zeros(len(DecodeState._fields), np.int64)

    def _new_offsets(self) -> pa.Buffer:
        offsets = allocate((self._count + 1) * (self._bits // 8))
        as_offsets(offsets, self._bits)[0] = 0
        return offsets

    def arguments(self) -> dict[str, int]:
        """Return the arguments that describe the output."""
        return {
            "out_width": self._bits // 8,
            "out_offsets": address(self._offsets),
            "out": address(self._data),
            "capacity": self._capacity,
            "state": address(self._state),
        }

    def grow(self, more: int) -> None:
        """Grow by half and by ``more`` bytes; start again if the offsets become too small."""
        self._capacity += self._capacity // 2 + more
        self._data.resize(self._capacity)
        if self._capacity > MAX_OFFSET and self._bits == 32:
            self._bits = 64
            self._offsets = self._new_offsets()
            self._state[:] = 0

    def strings(self) -> Strings:
        """Return the strings decoded until now."""
        size = DecodeState(*self._state.tolist()).size
        return Strings(self._offsets, self._bits, self._data.slice(0, size))


def new_checkpoints(codes: int) -> UInt32s:
    """Return memory for the checkpoints of a stream of at most ``codes`` codes."""
    return np.empty(codes // 2 + 8, np.uint32)


def new_packed() -> UInt64s:
    """Return memory for symbols with their lengths in the top byte."""
    return np.empty(256, np.uint64)


def damaged_codes(part: str, where: Where) -> CorruptFileError:
    """Return the error for codes that cannot be decoded."""
    return CorruptFileError(
        f"FSST codes of {part}",
        expected="codes with a symbol, and a byte after each escape",
        found="other codes",
        where=where,
    )


_RUN_BYTES: Final = 4096
_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 512
"""Codes of each of 16 runs; their decoded size gives an estimate for the output."""

_STREAM_BYTES: Final = 65_536
"""Largest run decoded as one stream, with a checkpoint for every second code."""

_BATCH_BYTES: Final = 65_536
"""Bytes encoded at a time: few enough to stay in the nearer caches."""

_ESCAPE_BYTE: Final = b"\xff"


def decode_chunks(
    table: SymbolTable,
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    offset_bits: int,
    where: Where,
) -> Strings:
    """Decode chunks of encoded values.

    Parameters
    ----------
    table
        Symbols of all chunks.
    data, starts, sizes, counts, offset_bits, where
        Chunks as for :func:`glaive.kernels.offsets.unpack_variable`.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, or its offsets descend or leave it. Or a value has a code
        without a symbol, or ends in an escape.
    """
    width = offset_bits // 8
    heads = check_offset_chunks(data, starts, sizes, counts, width, where)
    work = int((sizes - heads).sum())
    if not table.encoded or work == 0:
        strings = unpack_variable(data, starts, sizes, counts, offset_bits, where)
        return decode_strings(table, strings, int(counts.sum()), where)
    strings = Strings(data, offset_bits, data)
    return _decode_compiled(table, strings, (starts, starts, heads, sizes, counts), work, where)


def decode_strings(table: SymbolTable, strings: Strings, count: int, where: Where) -> Strings:
    """Decode values whose offsets ascend within their data.

    Parameters
    ----------
    table
        Symbols of all values.
    strings, count
        Encoded values, and the number of values to decode.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A value has a code without a symbol or ends in an escape.
    """
    if not table.encoded or count == 0:
        return strings
    offsets, bits, data = strings
    ends = as_offsets(offsets, bits)
    first, last = int(ends[0]), int(ends[count])
    if not 0 <= first <= last <= data.size:
        raise damaged_codes("values with wrong offsets", where)
    work = last - first
    step = max(1, count * _RUN_BYTES // max(work, 1))
    if step >= count:  # one run, as for the rows of a take
        alone = np.array([[0], [0], [first], [last], [count]])
        return _decode_compiled(table, strings, alone, work, where)
    runs = np.arange(0, count, step, dtype=np.int64)
    counts = np.minimum(step, count - runs)
    bounds = (ends[runs], ends[runs + counts])
    if min(map(np.min, bounds)) < first or max(map(np.max, bounds)) > last:
        raise damaged_codes("values with wrong offsets", where)
    columns = (runs * (bits // 8), np.zeros_like(runs), *bounds, counts)
    return _decode_compiled(table, strings, columns, work, where)


def _decode_compiled(
    table: SymbolTable, strings: Strings, columns: Iterable[Int64s], work: int, where: Where
) -> Strings:
    """Decode runs of values: offset starts, bases, floors, limits (from the base), counts."""
    columns = [np.ascontiguousarray(column, np.int64) for column in columns]
    size = _estimate_size(table, strings.data, columns, work)
    chunks = np.array([len(columns[0])])
    decoded = _decode(_stacked([table]), chunks, strings, columns, size, where)
    table.growth[:] = [decoded.data.size / max(work, 1)]
    return decoded


def _estimate_size(
    table: SymbolTable, data: pa.Buffer, columns: Sequence[Int64s], work: int
) -> int:
    """Return an estimate of the output's size: as before, or from a few runs.

    A second pass costs more than an estimate.
    """
    _, bases, floors, limits, _ = columns
    limit = 8 * work + 8 * len(bases) + 64
    if work <= _STREAM_BYTES:
        return limit
    growth = table.growth[0] if table.growth else _sample_growth(table.lengths, data, columns)
    largest = int((limits - floors).max(initial=0))
    return min(int(work * growth * 1.04) + 8 * min(largest, work) + 4096, limit)


def _sample_growth(sizes: Int64s, data: pa.Buffer, columns: Sequence[Int64s]) -> float:
    """Return the bytes of text per byte of codes in a few runs."""
    _, bases, floors, limits, _ = columns
    runs = np.arange(_SAMPLES) * len(bases) // _SAMPLES
    lengths = np.minimum(limits[runs] - floors[runs], _SAMPLE_BYTES)
    within = np.arange(_SAMPLE_BYTES)
    positions = (bases[runs] + floors[runs])[:, None] + within
    codes = as_array(data)[positions[within < lengths[:, None]]]
    return int((sizes % NO_LENGTH)[codes].sum()) / max(len(codes), 1)


def decode_one(table: SymbolTable, codes: bytes, where: Where) -> bytes:
    """Decode one value in plain Python.

    Raises
    ------
    CorruptFileError
        A code has no symbol, or the value ends after an escape.
    """
    if not table.encoded:
        return codes
    try:
        if _ESCAPE_BYTE in codes:
            return _decode_escaped(table.symbols, codes)
        return b"".join([table.symbols[code] for code in codes])
    except IndexError:
        raise damaged_codes("a value", where) from None


def _decode_escaped(symbols: tuple[bytes, ...], codes: bytes) -> bytes:
    parts = []
    at = 0
    while at < len(codes):
        code = codes[at]
        at += 1
        if code == ESCAPE:
            parts.append(bytes((codes[at],)))
            at += 1
        else:
            parts.append(symbols[code])
    return b"".join(parts)


def encode_strings(table: SymbolTable, strings: Strings, count: int) -> Strings:
    """Encode each of ``count`` values on its own; keep the width of the offsets if possible."""
    if not table.encoded:
        return strings
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    ends = as_offsets(offsets, bits)
    size = int(ends[count]) - int(ends[0])
    out_bits = 64 if 2 * size > MAX_OFFSET else bits
    if out_bits != bits:
        offsets = as_buffer(ends[: count + 1].astype(np.int64))
    parts, stop = table.encoder
    scratch = np.empty(16 * _BATCH_BYTES + 1024, np.uint8)
    written = allocate((count + 1) * (out_bits // 8))
    as_offsets(written, out_bits)[0] = 0
    # With capacity for the worst case of a batch, a second call is rare.
    capacity = size * 3 // 4 + 2 * min(size, _BATCH_BYTES) + 4096
    out = pa.allocate_buffer(capacity, None, resizable=True)
    state = np.zeros(1, np.int64)
    done = 0
    while True:
        done = fsst_loops.encode(
            offsets=address(offsets), width=out_bits // 8, data=address(data),
            data_end=address(data) + data.size, first=done, values=count, tables=address(parts),
            stop=stop, scratch=address(scratch), batch=_BATCH_BYTES, ends=address(written),
            out=address(out), capacity=capacity, state=address(state),
        )  # fmt: skip
        if done == count:
            return Strings(written, out_bits, out.slice(0, int(state[0])))
        remaining = int(ends[count]) - int(ends[done])
        capacity = int(state[0]) + 2 * remaining + 8 + SLACK
        out.resize(capacity)


# --- FSST strings of many small pages, each with its own symbols, decoded with one call ----
#
# Specification: "FSST" in ``docs/format/encodings.md``.

_GROWTH: Final = 3
"""Bytes of text per byte of codes for which memory is allocated first."""


def decode_pages(
    tables: Sequence[SymbolTable],
    chunks: Int64s,
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    offset_bits: int,
    where: Where,
) -> Strings:
    """Decode the chunks of all pages in order.

    Parameters
    ----------
    tables, chunks
        Symbols of each page, all of them encoded, and its number of chunks.
    data, starts, sizes, counts, offset_bits, where
        Chunks as for :func:`glaive.kernels.offsets.unpack_variable`.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, or its offsets descend or leave it. Or a value has a code
        without a symbol, or ends in an escape.
    """
    width = offset_bits // 8
    heads = check_offset_chunks(data, starts, sizes, counts, width, where)
    if int(chunks.min(initial=0)) < 0 or int(chunks.sum()) != len(starts):
        raise ValueError(f"pages of {chunks} chunks for {len(starts)} in all")
    work = int((sizes - heads).sum())
    strings = Strings(data, offset_bits, data)
    columns = [np.ascontiguousarray(one, np.int64) for one in (starts, heads, sizes, counts)]
    room = _GROWTH * work + 8 * int((sizes - heads).max(initial=0)) + 64
    return _decode(_stacked(tables), chunks, strings, [columns[0], *columns], room, where)


def _stacked(tables: Sequence[SymbolTable]) -> Int64s:
    """Return words and lengths of symbols for kernels: ``int64``, shape ``(tables, 2, 256)``."""
    stacked = np.empty((len(tables), 2, 256), np.int64)
    for symbols, table in zip(stacked, tables, strict=True):
        symbols[0], symbols[1] = table.words.view(np.int64), table.lengths
    return stacked


def decode_values(
    tables: Sequence[SymbolTable], counts: Int64s, strings: Strings, where: Where
) -> Strings:
    """Decode values of several pages, page by page.

    Parameters
    ----------
    tables, counts
        Symbols of each page, all of them encoded, and its number of values: ``int64``, shape
        ``(pages,)``, at least 1 each.
    strings
        The codes of all values.
    where
        File and column, for messages.

    Raises
    ------
    CorruptFileError
        A value has a code without a symbol or ends in an escape.
    SchemaError
        Offsets descend or leave the data.
    """
    offsets, bits, data = strings
    if len(counts) != len(tables) or int(counts.min(initial=1)) < 1:
        raise ValueError(f"{len(tables)} pages with {counts} values")
    total = int(counts.sum())
    check_offsets(offsets, bits, data, total)
    ends = as_offsets(offsets, bits)[: total + 1].astype(np.int64)
    stops = np.cumsum(counts)
    firsts = stops - counts
    floors, limits = ends[firsts], ends[stops]
    columns = [firsts * (bits // 8), np.zeros_like(firsts), floors, limits, counts]
    room = _GROWTH * int((limits - floors).sum()) + 8 * int((limits - floors).max(initial=0)) + 64
    return _decode(_stacked(tables), np.ones_like(counts), strings, columns, room, where)


def _decode(
    symbols: Int64s, chunks: Int64s, strings: Strings, columns: Sequence[Int64s], capacity: int,
    where: Where,
) -> Strings:  # fmt: skip
    """Decode runs of values: offset starts, bases, floors, limits (from the base), counts."""
    offset_starts, bases, floors, limits, counts = columns
    ends = np.cumsum(chunks)
    output = Output(int(counts.sum()), strings.offset_bits, capacity)
    checkpoints, packed = new_checkpoints(_STREAM_BYTES), new_packed()
    # A chunk needs at most eight bytes for each of its bytes.
    more = 8 * int((limits - floors).max(initial=0)) + 64
    while (status := fsst_loops.decode_pages(
        offsets=address(strings.offsets), data=address(strings.data),
        offset_starts=address(offset_starts), bases=address(bases), floors=address(floors),
        limits=address(limits), counts=address(counts), ends=address(ends), pages=len(symbols),
        tables=address(symbols), width=strings.offset_bits // 8, packed=address(packed),
        checkpoints=address(checkpoints), max_stream=_STREAM_BYTES, **output.arguments(),
    )) != -1:  # fmt: skip
        if status >= 0:
            raise damaged_codes(f"chunk {status}", where)
        output.grow(more)
    return output.strings()


# --- Search FSST strings for patterns without an array of the strings -------------------
#
# A chunk is decoded into memory that stays in the processor's cache, and searched there as one
# string. The ends of values are computed only around matches.

_MAX_CODES = 65_536
"""Largest number of codes in a chunk that can be searched."""

_SLACK = 256


@dataclass(frozen=True, slots=True)
class StringTest:
    """A test that a string contains one of some patterns, all of them non-empty.

    With ``begins`` or ``ends`` the string must begin or end with a pattern; with both it must
    be equal to one.
    """

    patterns: tuple[bytes, ...]
    begins: bool
    ends: bool

    def passes(self, string: bytes) -> bool:
        """Return whether a string passes the test."""
        if self.begins and self.ends:
            return string in self.patterns
        if self.begins:
            return string.startswith(self.patterns)
        if self.ends:
            return string.endswith(self.patterns)
        return any(pattern in string for pattern in self.patterns)


def search_chunks(
    table: SymbolTable,
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    offset_bits: int,
    test: StringTest,
    where: Where,
) -> pa.Buffer | None:
    """Return the values of chunks that pass, one bit each; None when a chunk is too large.

    Parameters
    ----------
    table
        Symbols of all chunks.
    data, starts, sizes, counts, offset_bits, where
        Chunks as for :func:`glaive.kernels.offsets.unpack_variable`.
    test
        The patterns, and their place in a string.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, its offsets leave it, or a code has no symbol.
    """
    width = offset_bits // 8
    starts, sizes, counts = (
        np.ascontiguousarray(column, np.int64) for column in (starts, sizes, counts)
    )
    heads = check_offset_chunks(data, starts, sizes, counts, width, where)
    longest = max(map(len, test.patterns), default=0)
    if (len(sizes) and int((sizes - heads).max()) > _MAX_CODES) or longest > _MAX_CODES:
        return None
    total = int(counts.sum())
    bits = np.zeros((total + 7) // 8, np.uint8)
    scratch = pa.allocate_buffer(8 * _MAX_CODES + longest + _SLACK)
    checkpoints, packed = new_checkpoints(_MAX_CODES), new_packed()
    patterns = np.frombuffer(b"".join(test.patterns) or b"\0", np.uint8)
    lengths = np.array([*map(len, test.patterns)] or [0], np.int64)
    bad = fsst_loops.search_chunks(
        data=address(data), starts=address(starts), chunk_sizes=address(sizes),
        counts=address(counts), chunks=len(starts), width=width, symbols=address(table.words),
        sizes=address(table.lengths), packed=address(packed), checkpoints=address(checkpoints),
        scratch=address(scratch), patterns=address(patterns), pattern_sizes=address(lengths),
        pattern_count=len(test.patterns), begins=int(test.begins), ends=int(test.ends),
        target=address(bits),
    )  # fmt: skip
    if bad >= 0:
        raise _damaged(bad, where)
    return as_buffer(bits)


def _damaged(chunk: int, where: Where) -> CorruptFileError:
    return CorruptFileError(
        f"FSST text of chunk {chunk}",
        expected="offsets within the chunk, and codes that have a symbol",
        found="other offsets or codes",
        where=where,
    )


# --- Find the symbols with which FSST compresses strings best ----------------------------
#
# Training starts without symbols. Each round encodes a sample with the current symbols, and counts
# the steps taken and the pairs of neighbouring steps. It keeps the steps and joined pairs that
# cover most bytes. The result is the best table of the last rounds.
#
# The idea: Boncz, Neumann and Leis, "FSST: Fast Random Access String Compression", VLDB 2020.

SAMPLE_BYTES: Final = 16_384
"""Largest sample in bytes."""

SAMPLE_SHARE: Final = 8
"""The sample of smaller inputs is an eighth of them, but at least ``MIN_SAMPLE`` bytes."""

MIN_SAMPLE: Final = 8192

WINDOW: Final = 512
"""Largest number of bytes taken from one value."""

ROUNDS: Final = ((0.03, 10), (0.1, 10), (0.3, 10), (0.5, 10), *((1.0, 8),) * 4, (1.0, 0))
"""Share of the sample used in each round, and weight of joined pairs in tenths.

Early rounds only find short symbols. In later rounds a pair must gain more than a symbol in use.
Otherwise many pairs that each gain little replace good symbols, and every second table is bad. The
last round only measures."""

MIN_COUNT: Final = 3
"""Least occurrences of a symbol in the whole sample: rarer ones do not pay."""

BYTE_BOOST: Final = 8
"""Weight of one-byte symbols: without a symbol, a byte costs an escape."""


def sample_strings(strings: Strings, count: int, turn: int = 0) -> Strings:
    """Return evenly spaced values, or windows of long ones: about 16 KiB at most.

    With another ``turn`` the sample has other values, if there are enough.
    """
    ends = as_offsets(strings.offsets, strings.offset_bits)
    total = int(ends[count]) - int(ends[0])
    budget = min(max(total // SAMPLE_SHARE, MIN_SAMPLE), SAMPLE_BYTES)
    mean = min(max(1, total // max(count, 1)), WINDOW)
    taken = min(count, -(-budget // mean))
    # In random order, so that early rounds see the whole column; the same order in every run.
    wanted = np.random.default_rng(taken).permutation(taken) * count // max(1, taken)
    wanted += min(turn, count // max(1, taken) - 1)
    starts, stops = ends[wanted].astype(np.int64), ends[wanted + 1].astype(np.int64)
    spare = np.maximum(stops - starts - WINDOW, 0)
    # Windows start at varied positions.
    starts += np.where(spare > 0, np.arange(len(spare)) * 7919 % np.maximum(spare, 1), 0)
    stops = np.minimum(stops, starts + WINDOW)
    return copy_ranges(strings.data, starts, stops - starts, 64)


def train_symbols(sample: Strings) -> SymbolTable:
    """Return a table for strings like ``sample`` (64-bit offsets from 0).

    Raises
    ------
    SchemaError
        The offsets of the sample descend or leave its data.
    """
    count = len(as_offsets(sample.offsets, 64)) - 1
    check_offsets(sample.offsets, 64, sample.data, count)
    if count < 1:
        return SymbolTable(())
    rounds = [
        (min(count, max(1, round(count * share))), max(1, round(MIN_COUNT * share)), weight)
        for share, weight in ROUNDS
    ]
    return _train_compiled(sample, np.array(rounds, np.int64))


def _train_compiled(sample: Strings, rounds: Int64s) -> SymbolTable:
    size = sample.data.size
    memory = np.zeros(fsst_loops.memory_size(size), np.uint8)
    words, sizes = np.empty(MAX_SYMBOLS, np.uint64), np.empty(MAX_SYMBOLS, np.int64)
    source = [address(sample.offsets), address(sample.data), size]
    count = len(as_offsets(sample.offsets, 64)) - 1
    plan = [address(rounds), len(rounds), count]
    number = fsst_loops.train(*source, *plan, *[address(array) for array in (memory, words, sizes)])
    return SymbolTable.of(words[:number], sizes[:number])
