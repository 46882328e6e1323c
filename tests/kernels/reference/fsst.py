"""NumPy references of ``glaive.kernels.fsst``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels._addresses import check_offset_chunks
from glaive.kernels.fsst import (
    _MAX_CODES,
    BYTE_BOOST,
    ESCAPE,
    MAX_SYMBOL_BYTES,
    MAX_SYMBOLS,
    MIN_COUNT,
    ROUNDS,
    StringTest,
    SymbolTable,
    damaged_codes,
    slots_of,
)
from glaive.kernels.offsets import unpack_variable
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.types import MAX_OFFSET, Int64s, UInt16s, UInt64s, Where, as_array, as_buffer


@cache
def lookups_of(
    table: SymbolTable,
) -> tuple[dict[int, tuple[bytes, int]], dict[bytes, int], dict[bytes, int]]:
    """The encoder's tables as dicts: by slot, by two bytes, by one byte."""
    long: dict[int, tuple[bytes, int]] = {}
    short: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
    for code, symbol in enumerate(table.symbols):
        if len(symbol) > 2:
            long.setdefault(slot_of(symbol), (symbol, code))
        else:
            short[2 - len(symbol)][symbol] = code
    return long, *short


def slot_of(text: bytes) -> int:
    """Number of the slot for symbols that begin with the first three bytes."""
    return (int.from_bytes(text[:3], "little") << 8) * 0x9E3779B1 % 2**32 >> 22


def split_value(table: SymbolTable, value: bytes) -> list[int]:
    """Return the steps that encode a value: 256 + code of a symbol, or a literal byte."""
    long, pairs, singles = lookups_of(table)
    steps = []
    at, end = 0, len(value)
    while at < end:
        symbol = long.get(slot_of(value[at : at + 3]))
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


def decode_chunks(
    table: SymbolTable,
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    offset_bits: int,
    where: Where,
) -> Strings:
    """Decode chunks of encoded values."""
    width = offset_bits // 8
    check_offset_chunks(data, starts, sizes, counts, width, where)
    strings = unpack_variable(data, starts, sizes, counts, offset_bits, where)
    return decode_strings(table, strings, int(counts.sum()), where)


def decode_strings(table: SymbolTable, strings: Strings, count: int, where: Where) -> Strings:
    """Decode values whose offsets ascend within their data."""
    if not table.encoded or count == 0:
        return strings
    offsets, bits, data = strings
    ends = as_offsets(offsets, bits)
    first, last = int(ends[0]), int(ends[count])
    if not 0 <= first <= last <= data.size:
        raise damaged_codes("values with wrong offsets", where)
    return _decode_numpy(table, ends[: count + 1], bits, data, where)


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
    texts = [bytes([byte]) for byte in range(256)] + list(table.symbols)
    padded = b"".join(text.ljust(8, b"\0") for text in texts)
    step_bytes = np.frombuffer(padded, np.uint8).reshape(-1, 8)
    longer = np.arange(len(steps))
    for place in range(int(sizes.max(initial=0))):  # the bytes at one place of all symbols
        longer = longer[sizes[longer] > place]
        joined[begins[longer] + place] = step_bytes[steps[longer], place]
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
    return _encode_numpy(table, ends[: count + 1], bits, memoryview(data))


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
    """Decode the chunks of all pages, one after the other."""
    width = offset_bits // 8
    check_offset_chunks(data, starts, sizes, counts, width, where)
    if int(chunks.min(initial=0)) < 0 or int(chunks.sum()) != len(starts):
        raise ValueError(f"pages of {chunks} chunks for {len(starts)} in all")
    parts, stop = [], 0
    for table, count in zip(tables, chunks.tolist(), strict=True):
        first, stop = stop, stop + count
        part = slice(first, stop)
        page = decode_chunks(
            table, data, starts[part], sizes[part], counts[part], offset_bits, where
        )
        parts.append((page, int(counts[part].sum())))
    return _joined(parts, offset_bits)


def decode_values(
    tables: Sequence[SymbolTable], counts: Int64s, strings: Strings, where: Where
) -> Strings:
    """Decode values of several pages, those of one page after the other."""
    offsets, bits, data = strings
    if len(counts) != len(tables) or int(counts.min(initial=1)) < 1:
        raise ValueError(f"{len(tables)} pages with {counts} values")
    total = int(counts.sum())
    check_offsets(offsets, bits, data, total)
    stops = np.cumsum(counts)
    firsts = stops - counts
    parts = []
    for table, first, count in zip(tables, firsts.tolist(), counts.tolist(), strict=True):
        own = offsets.slice(first * (bits // 8), (count + 1) * (bits // 8))
        parts.append((decode_strings(table, Strings(own, bits, data), count, where), count))
    return _joined(parts, bits)


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
    """Which values of chunks pass, one bit each; None when a chunk is too large."""
    width = offset_bits // 8
    starts, sizes, counts = (
        np.ascontiguousarray(column, np.int64) for column in (starts, sizes, counts)
    )
    heads = check_offset_chunks(data, starts, sizes, counts, width, where)
    longest = max(map(len, test.patterns), default=0)
    if (len(sizes) and int((sizes - heads).max()) > _MAX_CODES) or longest > _MAX_CODES:
        return None
    total = int(counts.sum())
    strings = decode_chunks(table, data, starts, sizes, counts, offset_bits, where)
    stops = as_offsets(strings.offsets, strings.offset_bits)[: total + 1].tolist()
    text = as_array(strings.data).tobytes()
    flags = np.array([test.passes(text[a:b]) for a, b in pairwise(stops)], np.bool_)
    return as_buffer(np.packbits(flags, bitorder="little"))


def train_symbols(sample: Strings) -> SymbolTable:
    """Return a table for text like ``sample`` (64-bit offsets from 0)."""
    count = len(as_offsets(sample.offsets, 64)) - 1
    check_offsets(sample.offsets, 64, sample.data, count)
    if count < 1:
        return SymbolTable(())
    rounds = [
        (min(count, max(1, round(count * share))), max(1, round(MIN_COUNT * share)), weight)
        for share, weight in ROUNDS
    ]
    table = best = SymbolTable(())
    smallest = 2 * sample.data.size
    for values, min_count, weight in rounds:
        steps, firsts = _split(table, sample, values)
        if values == count:
            # A step is one byte, a literal two. Later tables are mostly, not always, better.
            size = len(steps) + int(np.count_nonzero(steps < 256))
            if size < smallest:
                best, smallest = table, size
        if len(steps) == 0 or not weight:
            break
        table = _choose(table, steps, firsts, min_count, weight)
    return best


def _split(table: SymbolTable, sample: Strings, count: int) -> tuple[UInt16s, Int64s]:
    """Encode the first ``count`` values into steps, with the first step of each value."""
    firsts = np.empty(count, np.int64)
    memory = memoryview(sample.data)
    bounds = as_offsets(sample.offsets, 64)[: count + 1].tolist()
    steps: list[int] = []
    for i in range(count):
        firsts[i] = len(steps)
        steps += split_value(table, bytes(memory[bounds[i] : bounds[i + 1]]))
    return np.array(steps, np.uint16), firsts


def _choose(
    table: SymbolTable, steps: UInt16s, firsts: Int64s, min_count: int, weight: int
) -> SymbolTable:
    """Make a table of the steps and joined pairs that gain most, the pairs weighted."""
    words, sizes = np.zeros(512, np.uint64), np.ones(512, np.int64)
    words[:256] = np.arange(256)
    words[256:] = table.words
    sizes[256:] = table.lengths
    head = (words & np.uint64(0xFF)).astype(np.int64)
    taken = steps.astype(np.int64)
    # A symbol's first byte counts too: it might be better to stop there.
    times = np.bincount(taken, minlength=512)
    times += np.bincount(head[taken[sizes[taken] > 1]], minlength=512)
    frequent = np.flatnonzero(times >= min_count)
    all_words, all_sizes = [words[frequent]], [sizes[frequent]]
    gains = [times[frequent] * sizes[frequent] * np.where(sizes[frequent] == 1, BYTE_BOOST, 1)]
    left, right = taken[:-1], taken[1:]
    follows = np.ones(len(taken), np.bool_)
    follows[firsts[firsts < len(taken)]] = False
    follows = follows[1:] & (sizes[left] < MAX_SYMBOL_BYTES)
    left, right = left[follows], right[follows]
    wide = sizes[right] > 1
    keys = np.concatenate((left << 9 | right, left[wide] << 9 | head[right[wide]]))
    pairs, occurs = np.unique(keys, return_counts=True)
    pairs, occurs = pairs[occurs >= min_count], occurs[occurs >= min_count]
    left, right = pairs >> 9, pairs & 511
    all_words.append(words[left] | words[right] << (8 * sizes[left]).astype(np.uint64))
    all_sizes.append(np.minimum(sizes[left] + sizes[right], MAX_SYMBOL_BYTES))
    gains.append(occurs * all_sizes[1] * weight // 10)
    return _best(np.concatenate(all_words), np.concatenate(all_sizes), np.concatenate(gains))


def _best(words: UInt64s, sizes: Int64s, gains: Int64s) -> SymbolTable:
    """Make a table of the symbols that gain most; one for each slot of the encoder."""
    order = np.lexsort((sizes, words))
    words, sizes, gains = words[order], sizes[order], gains[order]
    new = np.ones(len(words), np.bool_)
    new[1:] = (words[1:] != words[:-1]) | (sizes[1:] != sizes[:-1])
    starts = np.flatnonzero(new)
    best = np.argsort(-np.add.reduceat(gains, starts), kind="stable")
    words, sizes = words[starts][best], sizes[starts][best]
    # Short symbols do not take slots: they get distinct numbers that no slot has.
    slots = np.where(sizes > 2, slots_of(words), -1 - np.arange(len(words)))
    _, first = np.unique(slots, return_index=True)
    first = np.sort(first)[:MAX_SYMBOLS]
    return SymbolTable.of(words[first], sizes[first])
