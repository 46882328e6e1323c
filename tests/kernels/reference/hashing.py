"""NumPy references of ``glaive.kernels.hashing``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.errors import SchemaError
from glaive.kernels._addresses import outside
from glaive.kernels.hashing import Inversion, Numbered, NumberedStrings, Permutations
from glaive.kernels.hashing import StringTable as _StringTable
from glaive.kernels.hashing import WordTable as _WordTable
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.types import Int64s, UInt8s, UInt16s, UInt32s, UInt64s, as_array

_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)

_STRIPE: Final = 32

_LANES: Final = (int(_PRIME_1) + int(_PRIME_2), int(_PRIME_2), 0, -int(_PRIME_1))


def hash_ranges(data: pa.Buffer, starts: Int64s, sizes: Int64s, seed: int) -> UInt64s:
    """The hash of each range of bytes; ranges may overlap."""
    wrong = outside(starts, sizes, data.size)
    if wrong.any():
        bad = int(wrong.argmax())
        raise SchemaError(
            f"{sizes[bad]} bytes at {starts[bad]} to be hashed leave their {data.size} bytes"
        )
    return _hash_numpy(as_array(data), starts, sizes, seed)


def _hash_numpy(data: UInt8s, starts: Int64s, sizes: Int64s, seed: int) -> UInt64s:
    """All strings of one length at a time."""
    hashes = np.empty(len(starts), np.uint64)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        hashes[rows] = _hash_matrix(data[starts[rows, None] + np.arange(size)], seed)
    return hashes


def _hash_matrix(rows: UInt8s, seed: int) -> UInt64s:
    """The hashes of strings of one length, one per row."""
    count, size = rows.shape
    at = size // _STRIPE * _STRIPE
    state = np.full(count, (int(_PRIME_5) + seed) % 2**64, np.uint64)
    if at:
        stripes = np.ascontiguousarray(rows[:, :at]).view("<u8").reshape(count, -1, 4)
        lanes = [np.full(count, (first + seed) % 2**64, np.uint64) for first in _LANES]
        for stripe in range(stripes.shape[1]):
            lanes = [_mixed(lane, stripes[:, stripe, k]) for k, lane in enumerate(lanes)]
        rotations = zip(lanes, (1, 7, 12, 18), strict=True)
        state = np.sum([_rotated(lane, bits) for lane, bits in rotations], axis=0, dtype=np.uint64)
        for lane in lanes:
            state = (state ^ _mixed(np.zeros_like(lane), lane)) * _PRIME_1 + _PRIME_4
    state = state + np.uint64(size)
    for _ in range((size - at) // 8):
        state = _word(state, np.ascontiguousarray(rows[:, at : at + 8]).view("<u8")[:, 0])
        at += 8
    if at + 4 <= size:
        half = np.ascontiguousarray(rows[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
        state = _rotated(state ^ half * _PRIME_1, 23) * _PRIME_2 + _PRIME_3
        at += 4
    for byte in range(at, size):
        state = _rotated(state ^ rows[:, byte].astype(np.uint64) * _PRIME_5, 11) * _PRIME_1
    return _finished(state)


def _word(state: UInt64s, word: UInt64s) -> UInt64s:
    return _rotated(state ^ _mixed(np.zeros_like(state), word), 27) * _PRIME_1 + _PRIME_4


def _mixed(lane: UInt64s, word: UInt64s) -> UInt64s:
    return _rotated(lane + word * _PRIME_2, 31) * _PRIME_1


def _rotated(words: UInt64s, bits: int) -> UInt64s:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _finished(state: UInt64s) -> UInt64s:
    state = (state ^ (state >> np.uint64(33))) * _PRIME_2
    state = (state ^ (state >> np.uint64(29))) * _PRIME_3
    return state ^ (state >> np.uint64(32))


def number_strings(
    strings: Strings, count: int, max_items: int, max_bytes: int
) -> NumberedStrings | None:
    """Number ``count`` strings; one hash and one comparison per value."""
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    return _number_arrow(strings, count, max_items, max_bytes)


def number_words(values: pa.Buffer, bits: int, count: int, max_items: int) -> Numbered | None:
    """Number ``count`` values of 16, 32, 64 or 128 bits."""
    if bits not in (16, 32, 64, 128) or values.size < count * bits // 8:
        raise SchemaError(
            f"dictionaries of fixed width take values of 16 to 128 bits, found {count} of "
            f"{bits} bits in {values.size} bytes"
        )
    data_type = pa.binary(bits // 8)
    encoded = pa.Array.from_buffers(data_type, count, [None, values]).dictionary_encode()
    number = len(encoded.dictionary)
    if number > max_items:
        return None
    return Numbered(_buffer(encoded.indices, 1), _buffer(encoded.dictionary, 1), number)


def _number_arrow(
    strings: Strings, count: int, max_items: int, max_bytes: int
) -> NumberedStrings | None:
    offsets, bits, data = strings
    data_type = pa.binary() if bits == 32 else pa.large_binary()
    encoded = pa.Array.from_buffers(data_type, count, [None, offsets, data]).dictionary_encode()
    number = len(encoded.dictionary)
    items = Strings(_buffer(encoded.dictionary, 1), bits, _buffer(encoded.dictionary, 2))
    if number > max_items or int(as_offsets(items.offsets, bits)[number]) > max_bytes:
        return None
    return NumberedStrings(_buffer(encoded.indices, 1), items, number)


def _buffer(array: pa.Array, number: int) -> pa.Buffer:
    """Return a buffer of an array; Arrow may leave out those without bytes."""
    buffer = array.buffers()[number]
    return pa.py_buffer(b"") if buffer is None else buffer


class WordTable(_WordTable):
    @property
    def firsts(self) -> Int64s:
        """The number of the first word equal to each."""
        _, first, inverse = np.unique(self.words, return_index=True, return_inverse=True)
        numbers: Int64s = first[inverse]
        return numbers

    def find(self, words: UInt64s) -> Int64s:
        """The number of the first word equal to each of these, -1 for none."""
        words = np.ascontiguousarray(words, np.uint64)
        if not len(self.words):
            return np.full(len(words), -1, np.int64)
        values, first = np.unique(self.words, return_index=True)
        at = np.minimum(np.searchsorted(values, words), len(values) - 1)
        return np.where(values[at] == words, first[at], -1)


class StringTable(_StringTable):
    @property
    def firsts(self) -> Int64s:
        """The number of the first string equal to each."""
        return _index_in(_as_arrow(self.strings, self.count), _as_arrow(self.strings, self.count))

    def find(self, queries: Strings, count: int) -> Int64s:
        """The number of the first string equal to each of these, -1 for none."""
        check_offsets(queries.offsets, queries.offset_bits, queries.data, count)
        return _index_in(_as_arrow(queries, count), _as_arrow(self.strings, self.count))


def _as_arrow(strings: Strings, count: int) -> Any:
    data_type = pa.binary() if strings.offset_bits == 32 else pa.large_binary()
    array: Any = pa.Array.from_buffers(data_type, count, [None, strings.offsets, strings.data])
    return array.cast(pa.large_binary())


def _index_in(queries: Any, among: Any) -> Int64s:
    import pyarrow.compute as pc

    indices: Any = pc.fill_null(pc.index_in(queries, value_set=among), -1)
    numbers: Int64s = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def invert_tokens(
    numbers: UInt32s, counts: Int64s, distinct: int, positions: UInt32s | None = None
) -> Inversion:
    """Sort tokens by their number, stably; a few steps of a kernel for each."""
    known = counts.min(initial=0) >= 0 and int(counts.sum()) == len(numbers)
    if not known or int(numbers.max(initial=0)) >= max(distinct, 1) or len(counts) >= 1 << 32:
        raise SchemaError(f"{len(numbers)} tokens do not fit the counts of {len(counts)} documents")
    if len(numbers) and not distinct:
        raise SchemaError(f"{len(numbers)} tokens of a vocabulary without tokens")
    if positions is not None and len(positions) != len(numbers):
        raise SchemaError(f"{len(positions)} positions of {len(numbers)} tokens")
    return _invert_numpy(numbers, counts, distinct, positions)


def _invert_numpy(
    numbers: UInt32s, counts: Int64s, distinct: int, positions: UInt32s | None
) -> Inversion:
    order = np.argsort(numbers, kind="stable")
    document = np.repeat(np.arange(len(counts)), counts)[order]
    token = numbers[order].astype(np.int64)
    first = np.ones(len(order), np.bool_)
    first[1:] = (token[1:] != token[:-1]) | (document[1:] != document[:-1])
    frequencies = np.diff(np.append(np.flatnonzero(first), len(order)))
    totals = np.bincount(token[first], minlength=distinct)
    starts = np.concatenate(([0], np.cumsum(totals))).astype(np.int64)
    return Inversion(
        starts,
        document[first].astype(np.uint32),
        frequencies.astype(np.uint32),
        None if positions is None else positions[order],
    )


def sign(hashes: UInt64s, bounds: Int64s, permutations: Permutations) -> UInt16s:
    """The signature of each text."""
    values = len(permutations.factors)
    if any(len(numbers) != values for numbers in permutations):
        raise SchemaError(f"permutations need three times {values} numbers")
    texts = max(0, len(bounds) - 1)
    if texts and not (
        bounds[0] >= 0 and bounds[-1] <= len(hashes) and bool((bounds[1:] > bounds[:-1]).all())
    ):
        raise SchemaError(f"bounds of texts must ascend within their {len(hashes)} hashes")
    signatures = np.empty((texts, values), np.uint16)
    if not signatures.size:
        return signatures
    return _sign_numpy(hashes, bounds, permutations)


def _sign_numpy(hashes: UInt64s, bounds: Int64s, permutations: Permutations) -> UInt16s:
    """One permutation at a time."""
    signatures = np.empty((len(bounds) - 1, len(permutations.factors)), np.uint16)
    first, used = int(bounds[0]), hashes[: int(bounds[-1])]
    for value, (factor, term, mixer) in enumerate(zip(*permutations, strict=True)):
        least = np.minimum.reduceat((used * factor + term)[first:], bounds[:-1] - first)
        signatures[:, value] = (least * mixer) >> np.uint64(48)
    return signatures
