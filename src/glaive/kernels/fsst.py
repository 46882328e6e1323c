"""FSST text: up to 255 symbols of 1 to 8 bytes, each written as one byte.

Code ``c`` stands for symbol ``c``; code 255 says that the next byte stands for itself. Codes
never cross values, so any value can be decoded on its own. The table takes 2312 bytes: a
header (magic in the upper half, bit 24 = values are encoded, low byte = number of symbols),
the symbols in 8 bytes each, right behind them one length byte each, then zeros.

Specification: "Fsst" in ``docs/format/encodings.md``. The idea: Boncz, Neumann and Leis,
"FSST: Fast Random Access String Compression", VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels._tier import address, allocate, as_array, use_loops
from glaive.kernels.offsets import unpack_variable
from glaive.kernels.strings import MAX_32, SLACK, Strings, as_offsets, check_offsets
from glaive.types import Where

__all__ = ["SymbolTable", "decode_chunks", "decode_strings", "encode_strings", "exercise"]

TABLE_BYTES: Final = 2312
MAX_SYMBOLS: Final = 255
MAX_SYMBOL_BYTES: Final = 8
ESCAPE: Final = 255

_MAGIC: Final = 0x46535354
_SWITCH: Final = 1 << 24
_SLOTS: Final = 1024
_RUN_BYTES: Final = 4096
_TINY_BYTES: Final = 256

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SymbolTable:
    """The symbols by code, and whether values are encoded at all.

    With ``encoded`` false, values are stored as they are and there may be no symbols.
    """

    symbols: tuple[bytes, ...]
    encoded: bool = True

    @classmethod
    def parse(cls, table: bytes, where: Where) -> SymbolTable:
        """Read a table; raises ``CorruptFileError`` when it contradicts itself."""
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
        symbols = (table[8 + 8 * i : 8 + 8 * i + size] for i, size in enumerate(sizes))
        return cls(tuple(symbols), bool(header & _SWITCH))

    def to_bytes(self) -> bytes:
        """Write the table in its 2312 bytes."""
        header = _MAGIC << 32 | (_SWITCH if self.encoded else 0) | len(self.symbols)
        words = b"".join(symbol.ljust(8, b"\0") for symbol in self.symbols)
        sizes = bytes(map(len, self.symbols))
        return (header.to_bytes(8, "little") + words + sizes).ljust(TABLE_BYTES, b"\0")

    @cached_property
    def pieces(self) -> list[bytes]:
        """What each step stands for: literal bytes first, then the symbols from 256 on."""
        return [bytes([byte]) for byte in range(256)] + list(self.symbols)

    @cached_property
    def words(self) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Symbols as 8 bytes each and their lengths, both for 256 codes."""
        words = b"".join(symbol.ljust(8, b"\0") for symbol in self.symbols)
        sizes = bytes(map(len, self.symbols))
        return (
            np.frombuffer(words.ljust(2048, b"\0"), np.uint64),
            np.frombuffer(sizes.ljust(256, b"\0"), np.uint8),
        )

    @cached_property
    def encoder(self) -> tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint16]]:
        """Slots by the hash of three bytes, entries by two bytes, entries by one byte.

        Of several symbols with the same slot the first wins.
        """
        slots = np.zeros((_SLOTS, 3), np.uint64)
        slots[:, 0] = 1
        singles = np.full(256, 1 << 8 | ESCAPE, np.uint16)
        for code, symbol in enumerate(self.symbols):
            if len(symbol) == 1:
                singles[symbol[0]] = 1 << 8 | code
        pairs = np.tile(singles, 256)
        for code, symbol in enumerate(self.symbols):
            size = len(symbol)
            word = int.from_bytes(symbol, "little")
            if size == 2:
                pairs[word] = 2 << 8 | code
            slot = slot_of(word)
            if size > 2 and not slots[slot, 2]:
                slots[slot] = word, (1 << 8 * size) - 1, size << 8 | code
        return slots, pairs, singles

    @cached_property
    def lookups(
        self,
    ) -> tuple[dict[int, tuple[bytes, int]], dict[bytes, int], dict[bytes, int]]:
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
    """Number of the slot for symbols that begin with the three low bytes of ``word``."""
    return ((word & 0xFFFFFF) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 54


def decode_chunks(
    table: SymbolTable,
    data: pa.Buffer,
    starts: Ints,
    sizes: Ints,
    counts: Ints,
    offset_bits: int,
    where: Where,
) -> Strings:
    """Decode chunks of encoded values; see ``unpack_variable`` for their form.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, its offsets descend or leave it, or a value has a code
        without a symbol or ends in an escape.
    """
    width = offset_bits // 8
    heads = (counts + 1) * width
    work = int((sizes - heads).sum())
    if not table.encoded or not use_loops(work // 8):
        strings = unpack_variable(data, starts, sizes, counts, offset_bits, where)
        return decode_strings(table, strings, int(counts.sum()), where)
    wrong = (starts < 0) | (sizes < heads) | (starts > data.size - sizes)
    if wrong.any():
        bad = int(wrong.argmax())
        raise CorruptFileError(
            f"variable-width values of chunk {bad}",
            expected=f"{heads[bad]} bytes or more within {data.size}",
            found=f"{sizes[bad]} bytes at {starts[bad]}",
            where=where,
        )
    strings = Strings(data, offset_bits, data)
    return _decode_loops(table, strings, (starts, starts, heads, sizes, counts), work, where)


def decode_strings(table: SymbolTable, strings: Strings, count: int, where: Where) -> Strings:
    """Decode ``count`` values whose offsets ascend within their data.

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
        raise _damaged("values with wrong offsets", where)
    work = last - first
    if work <= _TINY_BYTES or not use_loops(work // 8):
        return _decode_numpy(table, ends[: count + 1], bits, data, where)
    step = max(1, count * _RUN_BYTES // max(work, 1))
    runs = np.arange(0, count, step, dtype=np.int64)
    zeros = np.zeros_like(runs)
    counts = np.minimum(step, count - runs)
    columns = (runs * (bits // 8), zeros, zeros, np.full_like(runs, last), counts)
    return _decode_loops(table, strings, columns, work, where)


def _decode_loops(
    table: SymbolTable, strings: Strings, columns: Sequence[Ints], work: int, where: Where
) -> Strings:
    """Decode runs of values: offset starts, bases, floors, limits (from the base), counts."""
    from glaive.kernels.loops import fsst as loops

    width = strings.offset_bits // 8
    columns = [np.ascontiguousarray(column, np.int64) for column in columns]
    words, sizes = table.words
    count = int(columns[4].sum())
    room = _guess_room(sizes, strings.data, columns, work)
    out_bits = 64 if room > MAX_32 else strings.offset_bits
    out = pa.allocate_buffer(room, resizable=True)
    offsets = allocate((count + 1) * (out_bits // 8))
    as_offsets(offsets, out_bits)[0] = 0
    state = np.zeros(3, np.int64)
    while True:
        status = loops.decode(
            address(strings.offsets),
            address(strings.data),
            *(address(column) for column in columns),
            len(columns[4]),
            width,
            address(words),
            address(sizes),
            len(table.symbols),
            out_bits // 8,
            address(offsets),
            address(out),
            room,
            address(state),
        )
        if status == -1:
            return Strings(offsets, out_bits, out.slice(0, int(state[2])))
        if status >= 0:
            raise _damaged(f"chunk {status}", where)
        # A run needs at most eight bytes per byte of its own, so this ends.
        room += room // 2 + 8 * work // len(columns[4]) + 64
        out.resize(room)
        if room > MAX_32 and out_bits == 32:
            out_bits = 64
            offsets = allocate((count + 1) * 8)
            as_offsets(offsets, 64)[0] = 0
            state[:] = 0


def _guess_room(
    sizes: NDArray[np.uint8], data: pa.Buffer, columns: Sequence[Ints], work: int
) -> int:
    """Bytes the output should need, from a few runs: a second pass would cost more."""
    _, bases, floors, limits, _ = columns
    memory = as_array(data)
    seen = grown = 0
    for i in {len(bases) * k // 8 for k in range(8)}:
        start = int(bases[i] + floors[i])
        codes = memory[start : min(start + _RUN_BYTES, int(bases[i] + limits[i]))]
        seen += len(codes)
        grown += int(sizes[codes].sum())
    largest = int((limits - floors).max(initial=0))
    guess = int(work * (grown / max(seen, 1)) * 1.04) + 8 * min(largest, work) + 4096
    return min(guess, 8 * work + 8 * len(bases) + 64)


def _decode_numpy(
    table: SymbolTable, ends: NDArray[Any], bits: int, data: pa.Buffer, where: Where
) -> Strings:
    first = int(ends[0])
    if (ends[1:] < ends[:-1]).any():
        raise _damaged("values with wrong offsets", where)
    codes = as_array(data)[first : int(ends[-1])]
    steps = codes.astype(np.int64) + 256
    stops = ends.astype(np.int64) - first
    escapes = codes == ESCAPE
    if escapes.any():
        # In a run of 255s every other one, from the first, says that a literal follows.
        begins = np.flatnonzero(escapes & ~np.concatenate(([False], escapes[:-1])))
        run = np.cumsum(np.isin(np.arange(len(codes)), begins)) - 1
        marks = escapes & ((np.arange(len(codes)) - begins[np.maximum(run, 0)]) % 2 == 0)
        if marks[-1] or marks[stops[1:-1][stops[1:-1] > 0] - 1].any():
            raise _damaged("a value", where)
        literal = np.flatnonzero(marks) + 1
        steps[literal] = codes[literal]
        before = np.concatenate(([0], np.cumsum(marks)))
        stops -= before[stops]
        steps = steps[~marks]
    if len(steps) and int(steps.max()) >= 256 + len(table.symbols):
        raise _damaged("a value", where)
    found = list(map(table.pieces.__getitem__, steps.tolist()))
    sizes = np.concatenate((np.ones(256, np.int64), table.words[1].astype(np.int64)))[steps]
    at = np.concatenate(([0], np.cumsum(sizes)))[stops]
    joined = pa.py_buffer(b"".join(found))
    out_bits = 64 if joined.size > MAX_32 else bits
    return Strings(pa.py_buffer(at.astype(f"<i{out_bits // 8}")), out_bits, joined)


def encode_strings(table: SymbolTable, strings: Strings, count: int) -> Strings:
    """Encode each of ``count`` values on its own; the offsets keep their width."""
    if not table.encoded:
        return strings
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    ends = as_offsets(offsets, bits)
    size = int(ends[count]) - int(ends[0])
    if not use_loops(size // 8):
        return _encode_numpy(table, ends[: count + 1], bits, memoryview(data))
    from glaive.kernels.loops import fsst as loops

    tables = [address(part) for part in table.encoder]
    out_bits = 64 if 2 * size > MAX_32 else bits
    if out_bits != bits:
        offsets = pa.py_buffer(ends[: count + 1].astype(np.int64))
    written = allocate((count + 1) * (out_bits // 8))
    as_offsets(written, out_bits)[0] = 0
    room = size * 3 // 4 + 4096
    out = pa.allocate_buffer(room, resizable=True)
    state = np.zeros(1, np.int64)
    done = 0
    while True:
        done = loops.encode(
            address(offsets),
            out_bits // 8,
            address(data),
            address(data) + data.size,
            done,
            count,
            *tables,
            address(written),
            address(out),
            room,
            address(state),
        )
        if done == count:
            return Strings(written, out_bits, out.slice(0, int(state[0])))
        left = int(as_offsets(offsets, out_bits)[done])
        room = int(state[0]) + 2 * (int(ends[count]) - left) + 8 + SLACK
        out.resize(room)


def _encode_numpy(table: SymbolTable, ends: NDArray[Any], bits: int, memory: memoryview) -> Strings:
    bounds = ends.tolist()
    coded = [
        b"".join(
            bytes([step - 256]) if step >= 256 else bytes([ESCAPE, step])
            for step in split_value(table, bytes(memory[start:stop]))
        )
        for start, stop in pairwise(bounds)
    ]
    at = np.concatenate(([0], np.cumsum(np.fromiter(map(len, coded), np.int64, len(coded)))))
    joined = pa.py_buffer(b"".join(coded))
    out_bits = 64 if joined.size > MAX_32 else bits
    return Strings(pa.py_buffer(at.astype(f"<i{out_bits // 8}")), out_bits, joined)


def split_value(table: SymbolTable, value: bytes) -> list[int]:
    """Return what a value is encoded as: 256 + code of a symbol, or a literal byte."""
    long, pairs, singles = table.lookups
    steps = []
    at, end = 0, len(value)
    while at < end:
        found = long.get(slot_of(int.from_bytes(value[at : at + 3], "little")))
        if found is not None and value.startswith(found[0], at):
            symbol, code = found
        else:
            symbol = value[at : at + 2]
            code = pairs.get(symbol)
            if code is None:
                symbol = value[at : at + 1]
                code = singles.get(symbol)
        steps.append(value[at] if code is None else 256 + code)
        at += len(symbol)
    return steps


def _corrupt(expected: str, found: str, where: Where) -> CorruptFileError:
    return CorruptFileError("FSST symbol table", expected=expected, found=found, where=where)


def _damaged(place: str, where: Where) -> CorruptFileError:
    return CorruptFileError(
        f"FSST codes of {place}",
        expected="codes with a symbol, and a byte after each escape",
        found="others",
        where=where,
    )


def exercise() -> None:
    """Call every door once with a tiny input."""
    table = SymbolTable((b"abc", b"de", b"f"))
    text = b"abcdefg" * 64
    offsets = pa.py_buffer(np.array([0, len(text)], np.int32))
    coded = encode_strings(table, Strings(offsets, 32, pa.py_buffer(text)), 1)
    decode_strings(table, coded, 1, Where("warm-up"))
