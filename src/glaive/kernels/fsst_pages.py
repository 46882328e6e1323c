"""FSST text of many small pages, each with its own symbols, decoded with one call.

Specification: "FSST" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.kernels._addresses import address
from glaive.kernels._bounds import check_offset_chunks
from glaive.kernels._fsst_output import Output, damaged_codes, new_checkpoints, new_packed
from glaive.kernels._tier import use_compiled
from glaive.kernels.fsst import decode_chunks, decode_strings
from glaive.kernels.native import fsst_pages as compiled
from glaive.kernels.string_records import DecodeFsstPages
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.kernels.symbols import SymbolTable
from glaive.memory import as_array, as_buffer
from glaive.types import MAX_OFFSET, Int64s, Where

__all__ = ["decode_pages", "decode_values", "exercise"]

_STREAM_BYTES: Final = 65_536
"""Codes up to which a run is decoded as one stream, with a checkpoint for every second code."""

_GROWTH: Final = 3
"""Bytes of text per byte of codes for which memory is allocated at first."""


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
    """Decode the chunks of all pages, one after the other.

    Parameters
    ----------
    tables, chunks
        Symbols of each page, all of them encoded, and its number of chunks.
    data, starts, sizes, counts, offset_bits, where
        Chunks as for :func:`glaive.kernels.offsets.unpack_variable`.

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
    if not use_compiled(work // 8):
        return _decode_pages_numpy(
            tables, chunks, data, (starts, sizes, counts), offset_bits, where
        )
    strings = Strings(data, offset_bits, data)
    columns = (starts, starts, heads, sizes, counts)
    return _decode(_stacked(tables), chunks, strings, columns, where)


def _stacked(tables: Sequence[SymbolTable]) -> Int64s:
    """Words and lengths of symbols as kernels read them: ``int64``, shape ``(tables, 2, 256)``."""
    stacked = np.empty((len(tables), 2, 256), np.int64)
    for symbols, table in zip(stacked, tables, strict=True):
        symbols[0], symbols[1] = table.words.view(np.int64), table.lengths
    return stacked


def decode_values(
    tables: Sequence[SymbolTable],
    counts: Int64s,
    strings: Strings,
    where: Where,
) -> Strings:
    """Decode values of several pages, those of one page after the other.

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
    if not use_compiled((int(ends[-1]) - int(ends[0])) // 8):
        parts = []
        for table, first, count in zip(tables, firsts.tolist(), counts.tolist(), strict=True):
            own = offsets.slice(first * (bits // 8), (count + 1) * (bits // 8))
            parts.append((decode_strings(table, Strings(own, bits, data), count, where), count))
        return _joined(parts, bits)
    columns = (firsts * (bits // 8), np.zeros_like(firsts), ends[firsts], ends[stops], counts)
    return _decode(_stacked(tables), np.ones_like(counts), strings, columns, where)


def _decode(
    symbols: Int64s,
    chunks: Int64s,
    strings: Strings,
    columns: Sequence[Int64s],
    where: Where,
) -> Strings:
    """Decode runs of values: offset starts, bases, floors, limits (from the base), counts."""
    columns = [np.ascontiguousarray(column, np.int64) for column in columns]
    offset_starts, bases, floors, limits, counts = columns
    sizes = limits - floors
    ends = np.cumsum(chunks)
    capacity = _GROWTH * int(sizes.sum()) + 8 * int(sizes.max(initial=0)) + 64
    output = Output(int(counts.sum()), strings.offset_bits, capacity)
    checkpoints, packed = new_checkpoints(_STREAM_BYTES), new_packed()
    call = DecodeFsstPages(
        offsets=address(strings.offsets), data=address(strings.data),
        offset_starts=address(offset_starts), bases=address(bases), floors=address(floors),
        limits=address(limits), counts=address(counts), ends=address(ends), pages=len(symbols),
        tables=address(symbols), width=strings.offset_bits // 8, packed=address(packed),
        checkpoints=address(checkpoints), max_stream=_STREAM_BYTES, **output.arguments(),
    )  # fmt: skip
    while (status := compiled.decode_pages(*call)) != -1:
        if status >= 0:
            raise damaged_codes(f"chunk {status}", where)
        # A chunk needs at most eight bytes per byte of its own, so this ends.
        output.grow()
        call = call._replace(**output.arguments())
    return output.strings()


def _decode_pages_numpy(
    tables: Sequence[SymbolTable],
    chunks: Int64s,
    data: pa.Buffer,
    columns: tuple[Int64s, Int64s, Int64s],
    offset_bits: int,
    where: Where,
) -> Strings:
    parts = []
    stop = 0
    for table, count in zip(tables, chunks.tolist(), strict=True):
        first, stop = stop, stop + count
        starts, sizes, counts = (column[first:stop] for column in columns)
        page = decode_chunks(table, data, starts, sizes, counts, offset_bits, where)
        parts.append((page, int(counts.sum())))
    return _joined(parts, offset_bits)


def _joined(pages: Sequence[tuple[Strings, int]], offset_bits: int) -> Strings:
    """The strings of pages, each with their number, as one."""
    parts, lengths = [], [np.zeros(1, np.int64)]
    for (offsets, bits, text), count in pages:
        ends = as_offsets(offsets, bits)[: count + 1].astype(np.int64)
        lengths.append(np.diff(ends))
        parts.append(as_array(text)[int(ends[0]) : int(ends[-1])])
    stops = np.cumsum(np.concatenate(lengths))
    out_bits = 64 if int(stops[-1]) > MAX_OFFSET else offset_bits
    joined = np.concatenate(parts) if parts else np.empty(0, np.uint8)
    return Strings(as_buffer(stops.astype(f"<i{out_bits // 8}")), out_bits, as_buffer(joined))


def exercise() -> None:
    """Call every wrapper once with little data."""
    table = SymbolTable((b"abc", b"de"))
    chunk = as_buffer(np.array([8, 10, 0], np.int32))
    ones = np.array([1], np.int64)
    decode_pages([table], ones, chunk, ones - 1, 12 * ones, ones, 32, Where("warm-up"))
    decode_values(
        [table],
        ones,
        Strings(as_buffer(np.array([0, 1], np.int32)), 32, as_buffer(np.zeros(1, np.uint8))),
        Where("warm-up"),
    )
