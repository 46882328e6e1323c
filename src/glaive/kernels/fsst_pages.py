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
from glaive.kernels._fsst_output import Output, damaged_codes, new_checkpoints
from glaive.kernels._tier import use_compiled
from glaive.kernels.fsst import decode_chunks
from glaive.kernels.native import fsst_pages as compiled
from glaive.kernels.string_records import DecodeFsstPages
from glaive.kernels.strings import Strings, as_offsets
from glaive.kernels.symbols import SymbolTable
from glaive.memory import as_array, as_buffer
from glaive.types import MAX_OFFSET, Int64s, Where

__all__ = ["decode_pages", "exercise"]

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
    columns = [np.ascontiguousarray(column, np.int64) for column in (starts, heads, sizes, counts)]
    firsts, floors, limits, values = columns
    ends = np.cumsum(chunks)
    symbols = np.empty((len(tables), 2, 256), np.int64)
    for symbols_of_page, table in zip(symbols, tables, strict=True):
        symbols_of_page[0], symbols_of_page[1] = table.words.view(np.int64), table.lengths
    largest = int((sizes - heads).max(initial=0))
    output = Output(int(counts.sum()), offset_bits, _GROWTH * work + 8 * largest + 64)
    checkpoints = new_checkpoints(_STREAM_BYTES)
    call = DecodeFsstPages(
        data=address(data), starts=address(firsts), floors=address(floors), limits=address(limits),
        counts=address(values), ends=address(ends), pages=len(tables), tables=address(symbols),
        width=width, checkpoints=address(checkpoints), max_stream=_STREAM_BYTES,
        **output.arguments(),
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
    parts, lengths = [], [np.zeros(1, np.int64)]
    stop = 0
    for table, count in zip(tables, chunks.tolist(), strict=True):
        first, stop = stop, stop + count
        starts, sizes, counts = (column[first:stop] for column in columns)
        page = decode_chunks(table, data, starts, sizes, counts, offset_bits, where)
        offsets, bits, text = page
        ends = as_offsets(offsets, bits)[: int(counts.sum()) + 1].astype(np.int64)
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
