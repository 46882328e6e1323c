"""Search FSST strings for patterns without an array of the strings.

A chunk is decoded into memory that stays in the processor's cache and searched there as one
text; the ends of values are computed only around matches.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._bounds import check_offset_chunks
from glaive.kernels._fsst_output import new_checkpoints, new_packed
from glaive.kernels._tier import use_compiled
from glaive.kernels.fsst import decode_chunks, encode_strings
from glaive.kernels.native import fsst_search as compiled
from glaive.kernels.string_records import SearchFsst
from glaive.kernels.strings import Strings, as_offsets
from glaive.kernels.symbols import SymbolTable
from glaive.memory import as_array, as_buffer
from glaive.types import Int64s, Where

__all__ = ["StringTest", "exercise", "search_chunks"]

_MAX_CODES = 65_536
"""Codes of a chunk up to which it can be searched."""

_SLACK = 256


@dataclass(frozen=True, slots=True)
class StringTest:
    """Whether a string contains one of some patterns, none of them empty.

    With ``begins`` or ``ends`` the string must begin or end with it, with both be equal to it.
    """

    patterns: tuple[bytes, ...]
    begins: bool
    ends: bool

    def passes(self, string: bytes) -> bool:
        """Whether a string passes."""
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
    """Which values of chunks pass, one bit each; None when a chunk is too large.

    Parameters
    ----------
    table
        Symbols of all chunks.
    data, starts, sizes, counts, offset_bits, where
        Chunks as for :func:`glaive.kernels.offsets.unpack_variable`.
    test
        The patterns, and where they must be.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, its offsets leave it, or there is a code without a symbol.
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
    work = int((sizes - heads).sum())
    if not use_compiled(work // 8):
        return _search_numpy(table, data, (starts, sizes, counts), offset_bits, test, where)
    bits = np.zeros((total + 7) // 8, np.uint8)
    scratch = pa.allocate_buffer(8 * _MAX_CODES + longest + _SLACK)
    checkpoints, packed = new_checkpoints(_MAX_CODES), new_packed()
    patterns = np.frombuffer(b"".join(test.patterns) or b"\0", np.uint8)
    lengths = np.array([*map(len, test.patterns)] or [0], np.int64)
    call = SearchFsst(
        data=address(data), starts=address(starts), chunk_sizes=address(sizes),
        counts=address(counts), chunks=len(starts), width=width, symbols=address(table.words),
        sizes=address(table.lengths), packed=address(packed), checkpoints=address(checkpoints),
        scratch=address(scratch), patterns=address(patterns), pattern_sizes=address(lengths),
        pattern_count=len(test.patterns), begins=int(test.begins), ends=int(test.ends),
        target=address(bits),
    )  # fmt: skip
    bad = compiled.search_chunks(*call)
    if bad >= 0:
        raise _damaged(bad, where)
    return as_buffer(bits)


def _search_numpy(
    table: SymbolTable,
    data: pa.Buffer,
    columns: tuple[Int64s, Int64s, Int64s],
    offset_bits: int,
    test: StringTest,
    where: Where,
) -> pa.Buffer:
    strings = decode_chunks(table, data, *columns, offset_bits, where)
    total = int(columns[2].sum())
    ends = as_offsets(strings.offsets, strings.offset_bits)[: total + 1].tolist()
    text = as_array(strings.data).tobytes()
    flags = np.array([test.passes(text[a:b]) for a, b in pairwise(ends)], np.bool_)
    return as_buffer(np.packbits(flags, bitorder="little"))


def _damaged(chunk: int, where: Where) -> CorruptFileError:
    return CorruptFileError(
        f"FSST text of chunk {chunk}",
        expected="offsets within the chunk, and codes that have a symbol",
        found="other offsets or codes",
        where=where,
    )


def exercise() -> None:
    """Call every wrapper once with little data."""
    table = SymbolTable((b"ab", b"c"))
    text = Strings(as_buffer(np.array([0, 2, 3], np.int32)), 32, pa.py_buffer(b"abc"))
    encoded = encode_strings(table, text, 2)
    offsets = as_array(encoded.offsets, np.int32)[:3] + np.int32(12)
    chunk = as_buffer(np.concatenate([offsets.view(np.uint8), as_array(encoded.data)]))
    each = np.zeros(1, np.int64), np.array([chunk.size]), np.array([2])
    search_chunks(
        table, chunk, *each, 32, StringTest((b"b",), begins=False, ends=False), Where("warm-up")
    )
