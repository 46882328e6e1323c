"""FSST text of many small pages, each with symbols of its own, decoded with one call.

Specification: "FSST" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._bounds import check_offset_chunks
from glaive.kernels._tier import use_loops
from glaive.kernels.fsst import decode_chunks
from glaive.kernels.native import fsst_pages as loops
from glaive.kernels.string_records import DecodeFsstPages, DecodeState
from glaive.kernels.strings import MAX_32, Strings, as_offsets
from glaive.kernels.symbols import SymbolTable
from glaive.memory import allocate, as_array, as_buffer
from glaive.types import Where

__all__ = ["decode_pages", "exercise"]

_STREAM_BYTES: Final = 65_536
"""Codes up to which a run is decoded as one stream; there is a mark for every second."""

_GROWTH: Final = 3
"""Bytes of text per byte of codes that memory is taken for at first."""

Ints = NDArray[np.int64]


def decode_pages(
    tables: Sequence[SymbolTable],
    chunks: Ints,
    data: pa.Buffer,
    starts: Ints,
    sizes: Ints,
    counts: Ints,
    offset_bits: int,
    where: Where,
) -> Strings:
    """Decode the chunks of all pages, one after the other.

    Parameters
    ----------
    tables, chunks
        Symbols of each page, all of which encode; and its number of chunks.
    data, starts, sizes, counts, offset_bits
        As for :func:`glaive.kernels.fsst.decode_chunks`.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, its offsets descend or leave it, or a value has a code
        without a symbol or ends in an escape.
    """
    width = offset_bits // 8
    heads = check_offset_chunks(data, starts, sizes, counts, width, where)
    if int(chunks.min(initial=0)) < 0 or int(chunks.sum()) != len(starts):
        raise ValueError(f"pages of {chunks} chunks for {len(starts)} in all")
    work = int((sizes - heads).sum())
    if not use_loops(work // 8):
        return _one_by_one(tables, chunks, data, (starts, sizes, counts), offset_bits, where)
    total = int(counts.sum())
    columns = [np.ascontiguousarray(one, np.int64) for one in (starts, heads, sizes, counts)]
    ends = np.cumsum(chunks)
    symbols = np.empty((len(tables), 2, 256), np.int64)
    for place, table in zip(symbols, tables, strict=True):
        place[0], place[1] = table.words.view(np.int64), table.lengths
    largest = int((sizes - heads).max(initial=0))
    room = _GROWTH * work + 8 * largest + 64
    out_bits = 64 if room > MAX_32 else offset_bits
    out = pa.allocate_buffer(room, None, resizable=True)
    offsets = _offsets(total, out_bits)
    state = np.zeros(3, np.int64)
    marks = np.empty(_STREAM_BYTES // 2 + 8, np.uint32)
    firsts, floors, limits, values = columns
    while True:
        call = DecodeFsstPages(
            data=address(data),
            starts=address(firsts),
            floors=address(floors),
            limits=address(limits),
            counts=address(values),
            ends=address(ends),
            pages=len(tables),
            tables=address(symbols),
            width=width,
            marks=address(marks),
            most=_STREAM_BYTES,
            out_width=out_bits // 8,
            out_offsets=address(offsets),
            out=address(out),
            room=room,
            state=address(state),
        )
        status = loops.decode_pages(*call)
        if status == -1:
            size = DecodeState(*state.tolist()).size
            return Strings(offsets, out_bits, out.slice(0, size))
        if status >= 0:
            raise CorruptFileError(
                f"FSST codes of chunk {status}",
                expected="codes with a symbol, and a byte after each escape",
                found="others",
                where=where,
            )
        # A chunk needs at most eight bytes per byte of its own, so this ends.
        room += room // 2
        out.resize(room)
        if room > MAX_32 and out_bits == 32:
            out_bits, offsets = 64, _offsets(total, 64)
            state[:] = 0


def _offsets(count: int, bits: int) -> pa.Buffer:
    offsets = allocate((count + 1) * (bits // 8))
    as_offsets(offsets, bits)[0] = 0
    return offsets


def _one_by_one(
    tables: Sequence[SymbolTable],
    chunks: Ints,
    data: pa.Buffer,
    columns: tuple[Ints, Ints, Ints],
    offset_bits: int,
    where: Where,
) -> Strings:
    parts, lengths = [], [np.zeros(1, np.int64)]
    stop = 0
    for table, count in zip(tables, chunks.tolist(), strict=True):
        first, stop = stop, stop + count
        starts, sizes, counts = (column[first:stop] for column in columns)
        found = decode_chunks(table, data, starts, sizes, counts, offset_bits, where)
        offsets, bits, text = found
        ends = as_offsets(offsets, bits)[: int(counts.sum()) + 1].astype(np.int64)
        lengths.append(np.diff(ends))
        parts.append(as_array(text)[int(ends[0]) : int(ends[-1])])
    stops = np.cumsum(np.concatenate(lengths))
    out_bits = 64 if int(stops[-1]) > MAX_32 else offset_bits
    joined = np.concatenate(parts) if parts else np.empty(0, np.uint8)
    return Strings(as_buffer(stops.astype(f"<i{out_bits // 8}")), out_bits, as_buffer(joined))


def exercise() -> None:
    """Call every wrapper once with a tiny input."""
    table = SymbolTable((b"abc", b"de"))
    chunk = as_buffer(np.array([8, 10, 0], np.int32))
    ones = np.array([1], np.int64)
    decode_pages([table], ones, chunk, ones - 1, 12 * ones, ones, 32, Where("warm-up"))
