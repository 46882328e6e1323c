"""FSST text: up to 255 symbols of 1 to 8 bytes, each written as one byte.

Code ``c`` stands for symbol ``c``; code 255 says that the next byte stands for itself. Codes
never cross values, so any value can be decoded on its own.

Specification: "FSST" in ``docs/format/encodings.md``. The idea: Boncz, Neumann and Leis,
"FSST: Fast Random Access String Compression", VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._bounds import check_offset_chunks
from glaive.kernels._tier import use_loops
from glaive.kernels.native import fsst as fsst_loops
from glaive.kernels.native import fsst_encode as fsst_encode_loops
from glaive.kernels.offsets import unpack_variable
from glaive.kernels.string_records import DecodeFsst, DecodeState, EncodeFsst
from glaive.kernels.strings import MAX_32, SLACK, Strings, as_offsets, check_offsets
from glaive.kernels.symbols import ESCAPE, NO_LENGTH, SymbolTable, split_value
from glaive.memory import allocate, as_array, as_buffer
from glaive.types import Where

__all__ = ["decode_chunks", "decode_one", "decode_strings", "encode_strings", "exercise"]


_RUN_BYTES: Final = 4096
_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 512
"""Codes of each of 16 runs from which the size of the output is guessed."""

_STREAM_BYTES: Final = 65_536
"""Codes up to which a run is decoded as one stream; there is a mark for every second."""

_BATCH_BYTES: Final = 65_536
"""Text encoded at a time: small enough to stay in the nearer caches."""

_TINY: Final = 4
_TINY_BYTES: Final = 512
_ESCAPE_BYTE: Final = b"\xff"

Ints = NDArray[np.int64]


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
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, its offsets descend or leave it, or a value has a code
        without a symbol or ends in an escape.
    """
    width = offset_bits // 8
    heads = check_offset_chunks(data, starts, sizes, counts, width, where)
    work = int((sizes - heads).sum())
    if not table.encoded or work == 0 or not use_loops(work // 8):
        strings = unpack_variable(data, starts, sizes, counts, offset_bits, where)
        return decode_strings(table, strings, int(counts.sum()), where)
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
    if count <= _TINY and work <= _TINY_BYTES:
        return _decode_tiny(table, ends[: count + 1].tolist(), bits, data, where)
    if not use_loops(work // 8):
        return _decode_numpy(table, ends[: count + 1], bits, data, where)
    step = max(1, count * _RUN_BYTES // max(work, 1))
    runs = np.arange(0, count, step, dtype=np.int64)
    counts = np.minimum(step, count - runs)
    bounds = (ends[runs], ends[runs + counts])
    if min(map(np.min, bounds)) < first or max(map(np.max, bounds)) > last:
        raise _damaged("values with wrong offsets", where)
    columns = (runs * (bits // 8), np.zeros_like(runs), *bounds, counts)
    return _decode_loops(table, strings, columns, work, where)


def _decode_loops(
    table: SymbolTable, strings: Strings, columns: Sequence[Ints], work: int, where: Where
) -> Strings:
    """Decode runs of values: offset starts, bases, floors, limits (from the base), counts."""
    width = strings.offset_bits // 8
    columns = [np.ascontiguousarray(column, np.int64) for column in columns]
    count = int(columns[4].sum())
    room = _guess_room(table, strings.data, columns, work)
    out_bits = 64 if room > MAX_32 else strings.offset_bits
    out = pa.allocate_buffer(room, None, resizable=True)
    offsets = allocate((count + 1) * (out_bits // 8))
    as_offsets(offsets, out_bits)[0] = 0
    state = np.zeros(3, np.int64)
    marks = np.empty(_STREAM_BYTES // 2 + 8, np.uint32)
    starts, bases, floors, limits, counts = columns
    call = DecodeFsst(
        offsets=address(strings.offsets),
        data=address(strings.data),
        offset_starts=address(starts),
        bases=address(bases),
        floors=address(floors),
        limits=address(limits),
        counts=address(counts),
        chunks=len(counts),
        width=width,
        symbols=address(table.words),
        sizes=address(table.lengths),
        marks=address(marks),
        most=_STREAM_BYTES,
        out_width=out_bits // 8,
        out_offsets=address(offsets),
        out=address(out),
        room=room,
        state=address(state),
    )
    while True:
        status = fsst_loops.decode(*call)
        if status == -1:
            size = DecodeState(*state.tolist()).size
            table.growth[:] = [size / max(work, 1)]
            return Strings(offsets, out_bits, out.slice(0, size))
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
        call = call._replace(
            out_width=out_bits // 8, out_offsets=address(offsets), out=address(out), room=room
        )


def _guess_room(table: SymbolTable, data: pa.Buffer, columns: Sequence[Ints], work: int) -> int:
    """Bytes the output should need, as before or from a few runs: a second pass costs more."""
    _, bases, floors, limits, _ = columns
    most = 8 * work + 8 * len(bases) + 64
    if work <= _STREAM_BYTES:
        return most
    growth = table.growth[0] if table.growth else _sampled(table.lengths, data, columns)
    largest = int((limits - floors).max(initial=0))
    guess = int(work * growth * 1.04) + 8 * min(largest, work) + 4096
    return min(guess, most)


def _sampled(sizes: NDArray[np.int64], data: pa.Buffer, columns: Sequence[Ints]) -> float:
    """Bytes of text per byte of codes in a few runs."""
    _, bases, floors, limits, _ = columns
    chosen = np.arange(_SAMPLES) * len(bases) // _SAMPLES
    lengths = np.minimum(limits[chosen] - floors[chosen], _SAMPLE_BYTES)
    within = np.arange(_SAMPLE_BYTES)
    places = (bases[chosen] + floors[chosen])[:, None] + within
    codes = as_array(data)[places[within < lengths[:, None]]]
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
        raise _damaged("a value", where) from None


def _decode_tiny(
    table: SymbolTable, bounds: list[int], bits: int, data: pa.Buffer, where: Where
) -> Strings:
    """Decode a few values in plain Python: cheaper than the calls around a kernel."""
    memory = memoryview(data)
    values = []
    for start, stop in pairwise(bounds):
        values.append(decode_one(table, bytes(memory[start:stop]), where))
    ends = np.cumsum([0, *map(len, values)])
    out_bits = 64 if ends[-1] > MAX_32 else bits
    offsets = pa.py_buffer(ends.astype(f"<i{out_bits // 8}").tobytes())
    return Strings(offsets, out_bits, pa.py_buffer(b"".join(values)))


def _decode_escaped(symbols: tuple[bytes, ...], codes: bytes) -> bytes:
    found = []
    at = 0
    while at < len(codes):
        code = codes[at]
        at += 1
        if code == ESCAPE:
            found.append(bytes((codes[at],)))
            at += 1
        else:
            found.append(symbols[code])
    return b"".join(found)


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
    sizes = np.concatenate((np.ones(256, np.int64), table.lengths))[steps]
    at = np.concatenate(([0], np.cumsum(sizes)))[stops]
    joined = pa.py_buffer(b"".join(found))
    out_bits = 64 if joined.size > MAX_32 else bits
    return Strings(as_buffer(at.astype(f"<i{out_bits // 8}")), out_bits, joined)


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
    out_bits = 64 if 2 * size > MAX_32 else bits
    if out_bits != bits:
        offsets = as_buffer(ends[: count + 1].astype(np.int64))
    parts, stop = table.encoder
    scratch = np.empty(16 * _BATCH_BYTES + 1024, np.uint8)
    written = allocate((count + 1) * (out_bits // 8))
    as_offsets(written, out_bits)[0] = 0
    # With room for the worst of a batch, few texts need a second call.
    room = size * 3 // 4 + 2 * min(size, _BATCH_BYTES) + 4096
    out = pa.allocate_buffer(room, None, resizable=True)
    state = np.zeros(1, np.int64)
    done = 0
    while True:
        call = EncodeFsst(
            offsets=address(offsets),
            width=out_bits // 8,
            data=address(data),
            data_end=address(data) + data.size,
            first=done,
            values=count,
            tables=address(parts),
            stop=stop,
            scratch=address(scratch),
            batch=_BATCH_BYTES,
            ends=address(written),
            out=address(out),
            room=room,
            state=address(state),
        )
        done = fsst_encode_loops.encode(*call)
        if done == count:
            return Strings(written, out_bits, out.slice(0, int(state[0])))
        left = int(ends[count]) - int(ends[done])
        room = int(state[0]) + 2 * left + 8 + SLACK
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
    return Strings(as_buffer(at.astype(f"<i{out_bits // 8}")), out_bits, joined)


def _damaged(place: str, where: Where) -> CorruptFileError:
    return CorruptFileError(
        f"FSST codes of {place}",
        expected="codes with a symbol, and a byte after each escape",
        found="others",
        where=where,
    )


def exercise() -> None:
    """Call every wrapper once with a tiny input."""
    table = SymbolTable((b"abc", b"de", b"f"))
    count = _TINY + 1
    text = b"abcdefg" * 64
    offsets = as_buffer(np.arange(count + 1, dtype=np.int32) * (len(text) // count))
    coded = encode_strings(table, Strings(offsets, 32, pa.py_buffer(text)), count)
    decode_strings(table, coded, count, Where("warm-up"))
