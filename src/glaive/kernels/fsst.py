"""FSST text: up to 255 symbols of 1 to 8 bytes, each written as one byte.

Code ``c`` stands for symbol ``c``; code 255 says that the next byte stands for itself. Codes
never cross values, so any value can be decoded on its own.

Specification: "FSST" in ``docs/format/encodings.md``. The idea: Boncz, Neumann and Leis,
"FSST: Fast Random Access String Compression", VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels._addresses import address
from glaive.kernels._bounds import check_offset_chunks
from glaive.kernels._fsst_output import Output, damaged_codes, new_checkpoints, new_packed
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import fsst as compiled_fsst
from glaive.kernels.native import fsst_encode as compiled_fsst_encode
from glaive.kernels.offsets import unpack_variable
from glaive.kernels.string_records import DecodeFsst, EncodeFsst
from glaive.kernels.strings import SLACK, Strings, as_offsets, check_offsets
from glaive.kernels.symbols import ESCAPE, NO_LENGTH, SymbolTable, split_value
from glaive.memory import allocate, as_array, as_buffer
from glaive.types import MAX_OFFSET, Int64s, Where

__all__ = ["decode_chunks", "decode_one", "decode_strings", "encode_strings", "exercise"]


_RUN_BYTES: Final = 4096
_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 512
"""Codes of each of 16 runs from which the size of the output is estimated."""

_STREAM_BYTES: Final = 65_536
"""Codes up to which a run is decoded as one stream, with a checkpoint for every second code."""

_BATCH_BYTES: Final = 65_536
"""Text encoded at a time: small enough to stay in the nearer caches."""

_FEW_VALUES: Final = 4
_FEW_BYTES: Final = 512
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
        A chunk leaves ``data``, its offsets descend or leave it, or a value has a code
        without a symbol or ends in an escape.
    """
    width = offset_bits // 8
    heads = check_offset_chunks(data, starts, sizes, counts, width, where)
    work = int((sizes - heads).sum())
    if not table.encoded or work == 0 or not use_compiled(work // 8):
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
        Encoded values, and how many of them to decode.
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
    if count <= _FEW_VALUES and work <= _FEW_BYTES:
        return _decode_few(table, ends[: count + 1].tolist(), bits, data, where)
    if not use_compiled(work // 8):
        return _decode_numpy(table, ends[: count + 1], bits, data, where)
    step = max(1, count * _RUN_BYTES // max(work, 1))
    if step >= count:  # one run, as of the rows of a take
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
    starts, bases, floors, limits, counts = columns
    size = _estimate_size(table, strings.data, columns, work)
    output = Output(int(counts.sum()), strings.offset_bits, size)
    checkpoints, packed = new_checkpoints(_STREAM_BYTES), new_packed()
    call = DecodeFsst(
        offsets=address(strings.offsets), data=address(strings.data), offset_starts=address(starts),
        bases=address(bases), floors=address(floors), limits=address(limits),
        counts=address(counts), chunks=len(counts), width=strings.offset_bits // 8,
        symbols=address(table.words), sizes=address(table.lengths), packed=address(packed),
        checkpoints=address(checkpoints), max_stream=_STREAM_BYTES, **output.arguments(),
    )  # fmt: skip
    while (status := compiled_fsst.decode(*call)) != -1:
        if status >= 0:
            raise damaged_codes(f"chunk {status}", where)
        # A run needs at most eight bytes per byte of its own, so this ends.
        output.grow(8 * work // len(counts) + 64)
        call = call._replace(**output.arguments())
    decoded = output.strings()
    table.growth[:] = [decoded.data.size / max(work, 1)]
    return decoded


def _estimate_size(
    table: SymbolTable, data: pa.Buffer, columns: Sequence[Int64s], work: int
) -> int:
    """Bytes the output should need, as before or from a few runs: a second pass costs more."""
    _, bases, floors, limits, _ = columns
    limit = 8 * work + 8 * len(bases) + 64
    if work <= _STREAM_BYTES:
        return limit
    growth = table.growth[0] if table.growth else _sample_growth(table.lengths, data, columns)
    largest = int((limits - floors).max(initial=0))
    return min(int(work * growth * 1.04) + 8 * min(largest, work) + 4096, limit)


def _sample_growth(sizes: Int64s, data: pa.Buffer, columns: Sequence[Int64s]) -> float:
    """Bytes of text per byte of codes in a few runs."""
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


def _decode_few(
    table: SymbolTable, bounds: list[int], bits: int, data: pa.Buffer, where: Where
) -> Strings:
    """Decode a few values in plain Python: cheaper than the calls around a kernel."""
    memory = memoryview(data)
    values = []
    for start, stop in pairwise(bounds):
        values.append(decode_one(table, bytes(memory[start:stop]), where))
    ends = np.cumsum([0, *map(len, values)])
    out_bits = 64 if ends[-1] > MAX_OFFSET else bits
    offsets = pa.py_buffer(ends.astype(f"<i{out_bits // 8}").tobytes())
    return Strings(offsets, out_bits, pa.py_buffer(b"".join(values)))


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


def _decode_numpy(
    table: SymbolTable, ends: NDArray[Any], bits: int, data: pa.Buffer, where: Where
) -> Strings:
    first = int(ends[0])
    if (ends[1:] < ends[:-1]).any():
        raise damaged_codes("values with wrong offsets", where)
    codes = as_array(data)[first : int(ends[-1])]
    steps = codes.astype(np.int64) + 256
    stops = ends.astype(np.int64) - first
    escapes = codes == ESCAPE
    if escapes.any():
        # In a run of 255s every second one is an escape, from the first on.
        begins = np.flatnonzero(escapes & ~np.concatenate(([False], escapes[:-1])))
        run = np.cumsum(np.isin(np.arange(len(codes)), begins)) - 1
        escapes &= (np.arange(len(codes)) - begins[np.maximum(run, 0)]) % 2 == 0
        if escapes[-1] or escapes[stops[1:-1][stops[1:-1] > 0] - 1].any():
            raise damaged_codes("a value", where)
        literal = np.flatnonzero(escapes) + 1
        steps[literal] = codes[literal]
        before = np.concatenate(([0], np.cumsum(escapes)))
        stops -= before[stops]
        steps = steps[~escapes]
    if len(steps) and int(steps.max()) >= 256 + len(table.symbols):
        raise damaged_codes("a value", where)
    sizes = np.concatenate((np.ones(256, np.int64), table.lengths))[steps]
    begins = np.concatenate(([0], np.cumsum(sizes)))
    joined = np.empty(int(begins[-1]), np.uint8)
    longer = np.arange(len(steps))
    for place in range(int(sizes.max(initial=0))):  # the bytes at one place of all symbols
        longer = longer[sizes[longer] > place]
        joined[begins[longer] + place] = table.step_bytes[steps[longer], place]
    out_bits = 64 if joined.size > MAX_OFFSET else bits
    at = begins[stops].astype(f"<i{out_bits // 8}")
    return Strings(as_buffer(at), out_bits, as_buffer(joined))


def encode_strings(table: SymbolTable, strings: Strings, count: int) -> Strings:
    """Encode each of ``count`` values on its own; offsets keep their width if they can."""
    if not table.encoded:
        return strings
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    ends = as_offsets(offsets, bits)
    size = int(ends[count]) - int(ends[0])
    if not use_compiled(size // 8):
        return _encode_numpy(table, ends[: count + 1], bits, memoryview(data))
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
        call = EncodeFsst(
            offsets=address(offsets), width=out_bits // 8, data=address(data),
            data_end=address(data) + data.size, first=done, values=count, tables=address(parts),
            stop=stop, scratch=address(scratch), batch=_BATCH_BYTES, ends=address(written),
            out=address(out), capacity=capacity, state=address(state),
        )  # fmt: skip
        done = compiled_fsst_encode.encode(*call)
        if done == count:
            return Strings(written, out_bits, out.slice(0, int(state[0])))
        remaining = int(ends[count]) - int(ends[done])
        capacity = int(state[0]) + 2 * remaining + 8 + SLACK
        out.resize(capacity)


def _encode_numpy(table: SymbolTable, ends: NDArray[Any], bits: int, memory: memoryview) -> Strings:
    bounds = ends.tolist()
    encoded = [
        b"".join(
            bytes([step - 256]) if step >= 256 else bytes([ESCAPE, step])
            for step in split_value(table, bytes(memory[start:stop]))
        )
        for start, stop in pairwise(bounds)
    ]
    at = np.concatenate(([0], np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))))
    joined = pa.py_buffer(b"".join(encoded))
    out_bits = 64 if joined.size > MAX_OFFSET else bits
    return Strings(as_buffer(at.astype(f"<i{out_bits // 8}")), out_bits, joined)


def exercise() -> None:
    """Call every wrapper once with little data."""
    table = SymbolTable((b"abc", b"de", b"f"))
    count = _FEW_VALUES + 1
    text = b"abcdefg" * 64
    offsets = as_buffer(np.arange(count + 1, dtype=np.int32) * (len(text) // count))
    encoded = encode_strings(table, Strings(offsets, 32, pa.py_buffer(text)), count)
    decode_strings(table, encoded, count, Where("warm-up"))
