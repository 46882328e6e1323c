"""FSST symbol tables: their bytes on disk, and the lookup tables of decoders and encoders.

A table takes 2312 bytes: a header (magic in the upper half, bit 24 = values are encoded, low
byte = number of symbols), the symbols in 8 bytes each, one length byte for each, then zeros.

Specification: "FSST" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from functools import cached_property
from operator import add
from typing import Final

import numpy as np

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt8s, UInt64s, Where

__all__ = [
    "ESCAPE",
    "MAX_SYMBOLS",
    "MAX_SYMBOL_BYTES",
    "NO_LENGTH",
    "TABLE_BYTES",
    "Encoder",
    "SymbolTable",
    "slot_of",
    "slots_of",
    "split_value",
]

ESCAPE: Final = 255
"""Code of an escape: the next byte is literal."""

NO_LENGTH: Final = 4096
"""The length of a code without a symbol: more than the sum of any four real lengths."""

MAX_SYMBOLS: Final = 255
MAX_SYMBOL_BYTES: Final = 8

TABLE_BYTES: Final = 2312
"""Bytes of a table on disk, however many symbols it has."""

_MAGIC: Final = 0x46535354
_SWITCH: Final = 1 << 24
_SLOTS: Final = 1024
_SLOT_SHIFT: Final = 22
_MIX: Final = 0x9E3779B1


class Encoder(NamedTuple):
    """Lookup tables of the encoding kernel; see ``glaive.kernels.loops.fsst_encode``.

    ``stop`` is a byte that no symbol contains, or -1 if there is none.
    """

    tables: UInt8s
    stop: int


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
        starts = range(8, at, 8)
        symbols = map(table.__getitem__, map(slice, starts, map(add, starts, sizes)))
        parsed = cls(tuple(symbols), bool(header & _SWITCH))
        lengths = np.frombuffer(sizes, np.uint8).astype(np.int64)
        parsed._remember(np.frombuffer(table, "<u8", count, 8), lengths)
        return parsed

    @classmethod
    def of(cls, words: UInt64s, sizes: Int64s) -> SymbolTable:
        """A table of symbols given as numbers and lengths, as training has them."""
        raw = words.astype("<u8").tobytes()
        at = range(0, len(raw), 8)
        table = cls(tuple(raw[i : i + n] for i, n in zip(at, sizes.tolist(), strict=True)))
        table._remember(words, sizes)
        return table

    def _remember(self, words: UInt64s, sizes: Int64s) -> None:
        """Set the properties ``words`` and ``lengths``, which are at hand."""
        bits = (8 * sizes).astype(np.uint64)
        padded = np.zeros(256, np.uint64)
        # Bytes of a word behind its symbol do not count.
        padded[: len(words)] = words & (~np.uint64(0) >> (np.uint64(64) - bits))
        lengths = np.full(256, NO_LENGTH, np.int64)
        lengths[: len(sizes)] = sizes
        vars(self).update(words=padded, lengths=lengths)

    def to_bytes(self) -> bytes:
        """Write the table in its 2312 bytes."""
        header = _MAGIC << 32 | (_SWITCH if self.encoded else 0) | len(self.symbols)
        words = self.words[: len(self.symbols)].astype("<u8").tobytes()
        sizes = bytes(map(len, self.symbols))
        return (header.to_bytes(8, "little") + words + sizes).ljust(TABLE_BYTES, b"\0")

    @cached_property
    def step_bytes(self) -> UInt8s:
        """The bytes of each step, 8 in a row: literal bytes first, then the symbols from 256 on."""
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
        """Lengths of the symbols, for 256 codes; ``NO_LENGTH`` where there is no symbol."""
        lengths = np.full(256, NO_LENGTH, np.int64)
        lengths[: len(self.symbols)] = np.fromiter(map(len, self.symbols), np.int64)
        return lengths

    @cached_property
    def encoder(self) -> Encoder:
        """Slots by the hash of three bytes; entries by two bytes, then by a last byte.

        Of several symbols with the same slot the first is used.
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
        # A free slot holds a word that hashes to another slot, so no text matches it.
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
    return ((word & 0xFFFFFF) << 8) * _MIX % 2**32 >> _SLOT_SHIFT


def slots_of(words: UInt64s) -> Int64s:
    """As ``slot_of``, for many symbols."""
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
