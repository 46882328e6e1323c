"""Which FSST texts contain a word, without an array of the texts.

A chunk is decoded into memory that stays in the processor's cache and searched there as one
text; where values end is worked out only around what was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._bounds import check_offset_chunks
from glaive.kernels._tier import use_loops
from glaive.kernels.fsst import decode_chunks, encode_strings
from glaive.kernels.native import fsst_search as loops
from glaive.kernels.string_records import SearchFsst
from glaive.kernels.strings import Strings, as_offsets
from glaive.kernels.symbols import SymbolTable
from glaive.memory import as_array, as_buffer
from glaive.types import Where

__all__ = ["TextTest", "exercise", "search_chunks"]

Ints = NDArray[np.int64]

_MOST_CODES = 65_536
"""Codes of a chunk up to which it is decoded at once."""

_SLACK = 256


@dataclass(frozen=True, slots=True)
class TextTest:
    """Whether a text contains one of ``words`` (none empty), at its beginning, its end, both."""

    words: tuple[bytes, ...]
    begins: bool
    ends: bool

    def passes(self, text: bytes) -> bool:
        """Whether a text does."""
        if self.begins and self.ends:
            return text in self.words
        if self.begins:
            return text.startswith(self.words)
        return text.endswith(self.words) if self.ends else any(word in text for word in self.words)


def search_chunks(
    table: SymbolTable,
    data: pa.Buffer,
    starts: Ints,
    sizes: Ints,
    counts: Ints,
    offset_bits: int,
    test: TextTest,
    where: Where,
) -> pa.Buffer | None:
    """Which values of chunks pass, one bit each; parameters as of ``decode_chunks``.

    None when a chunk is too large to be searched at once.

    Parameters
    ----------
    table
        Symbols of all chunks.
    data
        Memory of all chunks.
    starts, sizes
        ``int64`` of shape ``(chunks,)``, in bytes: chunk ``c`` is
        ``data[starts[c] : starts[c] + sizes[c]]``.
    counts
        ``int64`` of shape ``(chunks,)``: values of each chunk.
    offset_bits
        Width of the stored offsets: 32 or 64.
    test
        The pieces of text to be found, and where.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, its offsets leave it, or there is a code without a symbol.
    """
    width = offset_bits // 8
    starts, sizes, counts = (np.ascontiguousarray(one, np.int64) for one in (starts, sizes, counts))
    heads = check_offset_chunks(data, starts, sizes, counts, width, where)
    longest = max(map(len, test.words), default=0)
    if (len(sizes) and int((sizes - heads).max()) > _MOST_CODES) or longest > _MOST_CODES:
        return None
    total = int(counts.sum())
    work = int((sizes - heads).sum())
    if not use_loops(work // 8):
        return _search_numpy(table, data, (starts, sizes, counts), offset_bits, test, where)
    found = np.zeros((total + 7) // 8, np.uint8)
    scratch = pa.allocate_buffer(8 * _MOST_CODES + longest + _SLACK)
    marks = np.empty(_MOST_CODES // 2 + 8, np.uint32)
    words = np.frombuffer(b"".join(test.words) or b"\0", np.uint8)
    lengths = np.array([len(word) for word in test.words] or [0], np.int64)
    call = SearchFsst(
        data=address(data),
        starts=address(starts),
        chunk_sizes=address(sizes),
        counts=address(counts),
        chunks=len(starts),
        width=width,
        symbols=address(table.words),
        sizes=address(table.lengths),
        marks=address(marks),
        scratch=address(scratch),
        words=address(words),
        word_sizes=address(lengths),
        number=len(test.words),
        begins=int(test.begins),
        ends=int(test.ends),
        target=address(found),
    )
    bad = loops.search_chunks(*call)
    if bad >= 0:
        raise _damaged(bad, where)
    return as_buffer(found)


def _search_numpy(
    table: SymbolTable,
    data: pa.Buffer,
    columns: tuple[Ints, Ints, Ints],
    offset_bits: int,
    test: TextTest,
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
        found="others",
        where=where,
    )


def exercise() -> None:
    """Call every wrapper once with little data."""
    table = SymbolTable((b"ab", b"c"))
    text = Strings(as_buffer(np.array([0, 2, 3], np.int32)), 32, pa.py_buffer(b"abc"))
    coded = encode_strings(table, text, 2)
    offsets = as_array(coded.offsets, np.int32)[:3] + np.int32(12)
    chunk = as_buffer(np.concatenate([offsets.view(np.uint8), as_array(coded.data)]))
    each = np.zeros(1, np.int64), np.array([chunk.size]), np.array([2])
    search_chunks(
        table, chunk, *each, 32, TextTest((b"b",), begins=False, ends=False), Where("warm-up")
    )
