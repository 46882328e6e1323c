"""FSST text: up to 255 symbols of 1 to 8 bytes, each written as one byte.

Code ``c`` stands for symbol ``c``; code 255 says that the next byte stands for itself. Each code
ends within its value, so any value can be decoded on its own.

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
from glaive.types import MAX_OFFSET, Int64s, UInt8s, UInt64s, Where, allocate, as_array, as_buffer

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

    ``stop`` is a byte outside of all symbols, or -1 if symbols contain every byte.
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
        table = cls(tuple(map(raw.__getitem__, map(slice, at, map(add, at, sizes.tolist())))))
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
        stop = int(unused.nonzero()[0].max(initial=-1))
        if stop >= 0:
            # Zero bytes of output; the 4 marks the end of a value.
            singles[stop] = ESCAPE | stop << 8 | 1 << 20 | 4 << 24
        pairs = np.tile(singles, 257)
        pairs[words[sizes == 2]] = entries[sizes == 2]
        # A free slot holds a word that hashes to another slot, so all strings differ from it.
        slots = np.ones((2, _SLOTS), np.uint64)
        slots[0, slots_of(np.ones(1, np.uint64))] = 2
        slots[1] = 0
        # Backwards, because the last of several assignments to one slot counts.
        long = (sizes > 2).nonzero()[0][::-1]
        used = slots_of(words[long])
        slots[0, used] = words[long]
        slots[1, used] = entries[long] | (64 - 8 * sizes[long]).astype(np.uint64) << np.uint64(32)
        return Encoder(
            np.concatenate((slots.reshape(-1).view(np.uint8), pairs.view(np.uint8))), stop
        )


def slots_of(words: UInt64s) -> Int64s:
    """Return the slots of many symbols, as ``slot_of`` does for one."""
    hashes = (words.astype(np.uint32) << np.uint32(8)) * np.uint32(_MIX)
    return (hashes >> np.uint32(_SLOT_SHIFT)).astype(np.int64)


def _corrupt(expected: str, found: str, where: Where) -> CorruptFileError:
    return CorruptFileError("FSST symbol table", expected=expected, found=found, where=where)


# --- Decode and encode strings ----------------------------------------------------------


def damaged_codes(part: str, where: Where) -> CorruptFileError:
    """Return the error for invalid codes."""
    return CorruptFileError(
        f"FSST codes of {part}",
        expected="codes with a symbol, and a byte after each escape",
        found="other codes",
        where=where,
    )


_RUN_BYTES: Final = 4096
_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 256
"""Codes of each of 16 runs; their decoded size gives an estimate for the output."""

_PLANES: Final = 9 * 256 + 1
"""Bytes of the tables of bytes that the kernel makes of the symbols; aligned."""

_STREAM_BYTES: Final = 65_536
"""Largest run decoded as one stream, with a checkpoint for every second code."""

_BATCH_BYTES: Final = 65_536
"""Bytes encoded at a time: few enough to stay in the nearer caches."""


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
    if not table.encoded:
        return unpack_variable(data, starts, sizes, counts, offset_bits, where)
    runs, strings = (starts, starts, heads, sizes, counts), Strings(data, offset_bits, data)
    return _decode([table], np.array([len(starts)]), strings, runs, where)


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
    step = max(1, count * _RUN_BYTES // max(last - first, 1))
    if step >= count:  # one run, as for the rows of a take
        alone = np.array([[0], [0], [first], [last], [count]])
        return _decode([table], np.ones(1, np.int64), strings, alone, where)
    runs = np.arange(0, count, step, dtype=np.int64)
    counts = np.minimum(step, count - runs)
    bounds = (ends[runs], ends[runs + counts])
    if min(map(np.min, bounds)) < first or max(map(np.max, bounds)) > last:
        raise damaged_codes("values with wrong offsets", where)
    columns = (runs * (bits // 8), np.zeros_like(runs), *bounds, counts)
    return _decode([table], np.array([len(runs)]), strings, columns, where)


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
    runs, strings = (starts, starts, heads, sizes, counts), Strings(data, offset_bits, data)
    return _decode(tables, chunks, strings, runs, where)


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
    stops = counts.cumsum()
    firsts = stops - counts
    floors, limits = ends[firsts], ends[stops]
    columns = [firsts * (bits // 8), np.zeros_like(firsts), floors, limits, counts]
    return _decode(tables, np.ones_like(counts), strings, columns, where)


def _decode(
    tables: Sequence[SymbolTable], chunks: Int64s, strings: Strings, columns: Iterable[Int64s],
    where: Where,
) -> Strings:  # fmt: skip
    """Decode runs of values: offset starts, bases, floors, limits (from the base), counts."""
    offset_starts, bases, floors, limits, counts = (
        np.ascontiguousarray(column, np.int64) for column in columns
    )
    symbols = np.empty((len(tables), 2, 256), np.int64)  # words and lengths
    for into, table in zip(symbols, tables, strict=True):
        into[0], into[1] = table.words.view(np.int64), table.lengths
    ends, total = chunks.cumsum(), int(counts.sum())
    checkpoints = np.empty(_STREAM_BYTES // 2 + 8, np.uint32)
    planes = allocate(_PLANES)
    state = np.zeros(len(DecodeState._fields), np.int64)
    # A run needs at most eight bytes for each of its bytes.
    codes = limits - floors
    work, largest = int(codes.sum()), 8 * int(codes.max(initial=0)) + 64
    growth: float = _GROWTH
    if len(tables) == 1 and work > _STREAM_BYTES:  # a second pass costs more than a sample
        runs = np.linspace(0, len(bases) - 1, _SAMPLES).astype(np.int64)
        within = np.arange(_SAMPLE_BYTES)
        at = ((bases + floors)[runs, None] + within)[within < codes[runs, None]]
        sizes = (tables[0].lengths % NO_LENGTH)[as_array(strings.data)[at]]
        growth = 1.1 * int(sizes.sum()) / max(len(sizes), 1)
    capacity = min(int(growth * work) + largest, 8 * (work + len(bases)) + 64)
    out, bits = pa.allocate_buffer(capacity, None, resizable=True), 0
    while True:
        needed = 64 if capacity > MAX_OFFSET else strings.offset_bits
        if bits != needed:
            offsets, bits = allocate((total + 1) * needed // 8), needed
            as_offsets(offsets, bits)[0] = 0
            state[:] = 0
        status = fsst_loops.decode_pages(
            offsets=address(strings.offsets), data=address(strings.data),
            offset_starts=address(offset_starts), bases=address(bases), floors=address(floors),
            limits=address(limits), counts=address(counts), ends=address(ends),
            pages=len(symbols), tables=address(symbols), width=strings.offset_bits // 8,
            planes=address(planes), checkpoints=address(checkpoints), max_stream=_STREAM_BYTES,
            out_width=bits // 8, out_offsets=address(offsets), out=address(out),
            capacity=capacity, state=address(state),
        )  # fmt: skip
        if status == -1:
            return Strings(offsets, bits, out.slice(0, DecodeState(*state.tolist()).size))
        if status >= 0:
            raise damaged_codes(f"chunk {status}", where)
        capacity += capacity // 2 + largest
        out.resize(capacity)


# --- Search encoded FSST strings for patterns -------------------------------------------
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
    """Return the values of chunks that pass, one bit each; ``None`` when a chunk is too large.

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
        A chunk leaves ``data``, its offsets leave it, or a code lacks a symbol.
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
    checkpoints = np.empty(_MAX_CODES // 2 + 8, np.uint32)
    planes = allocate(_PLANES)
    patterns = np.frombuffer(b"".join(test.patterns) or b"\0", np.uint8)
    lengths = np.array([*map(len, test.patterns)] or [0], np.int64)
    bad = fsst_loops.search_chunks(
        data=address(data), starts=address(starts), chunk_sizes=address(sizes),
        counts=address(counts), chunks=len(starts), width=width, symbols=address(table.words),
        sizes=address(table.lengths), planes=address(planes), checkpoints=address(checkpoints),
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
"""Minimum occurrences of a symbol in the whole sample: rarer ones cost more than they save."""

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
    margins = np.maximum(stops - starts - WINDOW, 0)
    # Windows start at varied positions.
    starts += np.where(margins > 0, np.arange(len(margins)) * 7919 % np.maximum(margins, 1), 0)
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
    plan, size = np.array(rounds, np.int64), sample.data.size
    memory = np.zeros(fsst_loops.memory_size(size), np.uint8)
    words, sizes = np.empty(MAX_SYMBOLS, np.uint64), np.empty(MAX_SYMBOLS, np.int64)
    number = fsst_loops.train(
        address(sample.offsets), address(sample.data), size, address(plan), len(plan), count,
        address(memory), address(words), address(sizes),
    )  # fmt: skip
    return SymbolTable.of(words[:number], sizes[:number])
