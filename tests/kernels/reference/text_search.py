"""NumPy references of ``glaive.kernels.text_search``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CapacityError, SchemaError
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.kernels.text_search import (
    _BLOCKS,
    _GROUP,
    _MAX_NUMBER,
    _MAX_TEXT,
    CHARACTERS,
    MAX_TERMS,
    Found,
    PhraseTerm,
    Search,
    TokenBounds,
    WeightedList,
    _check,
    _check_offsets,
    _check_phrase,
    _corrupt,
    _found,
    block_sizes,
)
from glaive.types import Flags, Float32s, Int64s, UInt8s, UInt32s, UInt64s, as_array

_LANE: Final = 32


_MAX_BITS: Final = 32


_MAX_VARINT: Final = 5


def decode_lists(
    data: UInt8s,
    offsets: Int64s,
    starts: Int64s,
    *,
    block: int,
    fixed_tail: bool,
    limit: int,
    where: object,
) -> tuple[UInt32s, UInt32s]:
    """Documents of posting lists, ascending in each, and how often each has the token."""
    if block not in _BLOCKS:
        raise ValueError(f"blocks of {block} documents")
    lengths = np.diff(starts)
    blocks, length = len(offsets) - 1, int(starts[-1])
    good = int(lengths.min(initial=starts[0])) >= 0 and int(lengths.max(initial=0)) <= limit
    if not good or int((-(-lengths // block)).sum()) != blocks:
        raise _corrupt(f"{length} documents of {limit} in {blocks} blocks", where)
    _check_offsets(data, offsets, where)
    data, offsets = np.ascontiguousarray(data), np.ascontiguousarray(offsets)
    documents, frequencies = np.empty(length, np.uint32), np.empty(length, np.uint32)
    tail = "fixed" if fixed_tail else "varints"
    for first, last in pairwise(starts.tolist()):
        own = offsets[: -(-(last - first) // block) + 1]
        offsets = offsets[len(own) - 1 :]
        lists = documents[first:last], frequencies[first:last]
        _decode_list(data, own, block, tail, *lists, where)
        _check_list(*lists, limit, where)
    return documents, frequencies


def decode_positions(
    data: UInt8s,
    offsets: Int64s,
    starts: Int64s,
    frequencies: UInt32s,
    *,
    block: int,
    where: object,
) -> tuple[Int64s, UInt32s]:
    """Positions of the token of each list in each of its documents, ascending."""
    if block not in _BLOCKS:
        raise ValueError(f"blocks of {block} documents")
    counts = block_sizes(starts, block)
    blocks = len(offsets) - 1
    if blocks != len(counts) or len(frequencies) != int(counts.sum()):
        raise _corrupt(f"{blocks} blocks of positions for {len(frequencies)} documents", where)
    _check_offsets(data, offsets, where)
    begins = np.zeros(len(frequencies) + 1, np.int64)
    np.cumsum(frequencies, out=begins[1:])
    total = int(begins[-1])
    if total > len(data) * _GROUP:
        raise _corrupt(f"{total} positions in {len(data)} bytes", where)
    data, frequencies = np.ascontiguousarray(data), np.ascontiguousarray(frequencies)
    into = np.empty(total, np.uint32)
    _decode_positions(data, offsets, begins, counts, into, where)
    return begins, into


def _check_list(documents: UInt32s, frequencies: UInt32s, limit: int, where: object) -> None:
    good = bool((documents[1:] > documents[:-1]).all()) and bool(frequencies.all())
    if not good or (len(documents) and int(documents[-1]) >= limit):
        raise _corrupt("documents that do not ascend, or are not there", where)


class _Bytes:
    """Numbers that are read from the bytes of a block one after the other."""

    def __init__(self, data: UInt8s, where: object) -> None:
        self.data, self.at, self.where = data, 0, where

    def take(self, size: int) -> UInt8s:
        """The next bytes."""
        if size > len(self.data) - self.at:
            raise _corrupt("a block that is too short", self.where)
        self.at += size
        return self.data[self.at - size : self.at]

    def byte(self) -> int:
        """The next byte."""
        return int(self.take(1)[0])

    def fixed(self, count: int) -> UInt64s:
        """Numbers of 32 bits."""
        return self.take(4 * count).view("<u4").astype(np.uint64)

    def varint(self) -> int:
        """One varint."""
        value = 0
        for place in range(_MAX_VARINT):
            byte = self.byte()
            value |= (byte & 127) << (7 * place)
            if byte < 128:
                return value
        raise _corrupt("a number that is too long", self.where)

    def varints(self, count: int) -> UInt64s:
        """Several varints of at most 32 bits."""
        values = [self.varint() for _ in range(count)]
        if max(values, default=0) > _MAX_NUMBER:
            raise _corrupt("a number that is too large", self.where)
        return np.array(values, np.uint64)

    def packed(self, bits: int, lanes: int) -> UInt64s:
        """Numbers of so many bits in lanes."""
        if bits > _MAX_BITS:
            raise _corrupt(f"numbers of {bits} bits", self.where)
        words = self.take(bits * lanes * 4).reshape(bits, lanes, 4)
        streams = words.transpose(1, 0, 2).reshape(lanes, bits * 4)
        digits = np.unpackbits(streams, axis=1, bitorder="little")
        digits = digits.reshape(lanes, _LANE, bits).astype(np.uint64)
        numbers: NDArray[np.uint64] = digits @ (np.uint64(1) << np.arange(bits, dtype=np.uint64))
        return numbers.T.reshape(-1)

    def end(self) -> None:
        """See that nothing is left."""
        if self.at != len(self.data):
            raise _corrupt("bytes after a block", self.where)


def _decode_list(
    data: UInt8s,
    offsets: Int64s,
    block: int,
    tail: str,
    documents: UInt32s,
    frequencies: UInt32s,
    where: object,
) -> None:
    lanes, length = block // _LANE, len(documents)
    for number in range(len(offsets) - 1):
        source = _Bytes(data[offsets[number] : offsets[number + 1]], where)
        rows = slice(number * block, min((number + 1) * block, length))
        count = rows.stop - rows.start
        if block == _BLOCKS[0] or (count < block and tail == "fixed"):
            source.take(4)
        if count == block:
            steps, often = _full_block(source, lanes)
        else:
            read = source.fixed if tail == "fixed" else source.varints
            steps, often = read(count), read(count)
        source.end()
        summed = steps if count < block and tail == "fixed" else np.cumsum(steps)
        if len(summed) and int(summed.max()) > _MAX_NUMBER:
            raise _corrupt("documents that are too many", where)
        documents[rows], frequencies[rows] = summed, often


def _full_block(source: _Bytes, lanes: int) -> tuple[UInt64s, UInt64s]:
    first = source.fixed(1)
    steps = source.packed(source.byte(), lanes)
    steps[0] = first[0]
    bits = source.byte()
    exceptions = 0 if lanes * _LANE == _BLOCKS[0] else source.byte()
    often = source.packed(bits, lanes)
    for _ in range(exceptions):
        place, upper = source.byte(), source.varint()
        if upper > _MAX_NUMBER >> bits:
            raise _corrupt("a number that is too large", source.where)
        often[place] |= np.uint64(upper << bits)
    return steps, often


def _decode_positions(
    data: UInt8s, offsets: Int64s, starts: Int64s, counts: Int64s, into: UInt32s, where: object
) -> None:
    steps = [np.zeros(0, np.uint64)]
    first = 0
    for number, documents in enumerate(counts.tolist()):
        source = _Bytes(data[offsets[number] : offsets[number + 1]], where)
        last = first + documents
        count, first = int(starts[last] - starts[first]), last
        groups, rest = divmod(count, _GROUP)
        steps += [source.packed(source.byte(), _GROUP // _LANE) for _ in range(groups)]
        steps.append(source.varints(rest))
        source.end()
    sums = np.cumsum(np.concatenate(steps), dtype=np.uint64)
    before = np.concatenate([np.zeros(1, np.uint64), sums])[starts[:-1]]
    positions = sums - np.repeat(before, np.diff(starts))
    if len(positions) and int(positions.max()) > _MAX_NUMBER:
        raise _corrupt("positions that are too large", where)
    into[:] = positions


_NOWHERE: Final = 1 << 62


def top_any(lists: Sequence[WeightedList], factors: Float32s, search: Search) -> Found:
    """The best documents that have any of the terms."""
    _check(lists, factors, search)
    if len(lists) > MAX_TERMS:
        raise ValueError(f"{len(lists)} lists of {MAX_TERMS}")
    if not lists or not search.max_hits:
        return _found(np.zeros(0, np.uint32), np.zeros(0, np.float32))
    # The reference has a number for each document of the partition, be they found or not.
    scores = np.zeros(search.limit, np.float64)
    with _of_damaged_weights():
        for one, factor in zip(lists, factors, strict=True):
            inside = one.documents < search.limit
            scores[one.documents[inside]] += np.float64(factor) * one.weights[inside]
    return _best(np.flatnonzero(scores > 0), scores[scores > 0], search)


def top_all(
    lists: Sequence[WeightedList],
    factors: Float32s,
    search: Search,
    phrase: Sequence[PhraseTerm] = (),
    slop: int = 0,
) -> Found:
    """The best documents that have all of the terms, and the phrase if one is given."""
    _check(lists, factors, search)
    _check_phrase(lists, phrase)
    if not lists or not search.max_hits:
        return _found(np.zeros(0, np.uint32), np.zeros(0, np.float32))
    documents = lists[0].documents.astype(np.int64)
    for one in lists[1:]:
        documents = np.intersect1d(documents, one.documents, assume_unique=True)
    documents = documents[documents < search.limit]
    scores = np.zeros(len(documents), np.float64)
    with _of_damaged_weights():
        for one, factor in zip(lists, factors, strict=True):
            weights = one.weights[np.searchsorted(one.documents, documents)]
            scores += np.float64(factor) * weights
    if phrase:
        has = [_has_phrase(lists, phrase, slop, document) for document in documents.tolist()]
        documents, scores = documents[np.array(has, bool)], scores[np.array(has, bool)]
    return _best(documents, scores, search)


def _of_damaged_weights() -> np.errstate:
    """No warnings: weights of a damaged index may be no numbers, or larger than any."""
    return np.errstate(invalid="ignore", over="ignore")


def _best(documents: Int64s, exact: Float32s | np.ndarray, search: Search) -> Found:
    """The best of documents, which ascend."""
    with _of_damaged_weights():
        scores = exact.astype(np.float32)
    wanted: Flags = scores > np.float32(search.floor)
    if search.allowed is not None:
        wanted &= search.allowed[documents] != 0
    documents, scores = documents[wanted], scores[wanted]
    order = np.argsort(-scores, kind="stable")[: search.max_hits]
    return Found(documents[order], scores[order])


def _has_phrase(
    lists: Sequence[WeightedList], phrase: Sequence[PhraseTerm], slop: int, document: int
) -> bool:
    """Whether a document has a phrase: where the terms so far can end, for more and more."""
    capacity = max(min(term.max_positions, len(term.positions)) for term in phrase)
    reached: Int64s | None = None
    for term in phrase:
        at = int(np.searchsorted(lists[term.of].documents, document))
        begin, end = int(term.starts[at]), int(term.starts[at + 1])
        if not 0 <= begin < end <= len(term.positions) or end - begin > capacity:
            return False
        places = term.positions[begin:end].astype(np.int64) - term.offset
        if reached is not None:
            # Each place is looked up, not compared with all: a document may be one word a million
            # times.
            first = np.searchsorted(reached, places - slop)
            near = np.append(reached, _NOWHERE)[first]
            places = places[near <= places]
        reached = places
    return reached is not None and len(reached) > 0


def find_tokens(strings: Strings, count: int, characters: UInt8s) -> TokenBounds:
    """Find the longest runs of characters of a set in each of ``count`` texts of UTF-8."""
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    if len(characters) != CHARACTERS // 8:
        raise SchemaError(f"a set of characters has {CHARACTERS} bits, not {8 * len(characters)}")
    ends = as_offsets(offsets, bits)[: count + 1].astype(np.int64)
    if count and int(np.diff(ends).max()) >= _MAX_TEXT:
        raise CapacityError.of(int(np.diff(ends).max()), "bytes of one text", where="an index")
    return _find_numpy(as_array(data), ends, characters)


def _find_numpy(data: UInt8s, ends: Int64s, characters: UInt8s) -> TokenBounds:
    """One text at a time: characters, whether each is part of a token, and where that changes."""
    flags = np.unpackbits(characters, bitorder="little").astype(np.bool_)
    starts, sizes, counts = [], [], []
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        numbers, places = [], []
        at = begin
        while at < end:
            lead = int(data[at])
            size = 1 if lead < 0xC0 or lead >= 0xF8 else 2 if lead < 0xE0 else 3 + (lead >= 0xF0)
            if size > end - at:
                size = 1
            number = lead if lead < 128 else CHARACTERS
            if size > 1:
                number = lead & (0x7F >> size)
                for byte in data[at + 1 : at + size].tolist():
                    number = number << 6 | byte & 0x3F
            numbers.append(min(number, CHARACTERS))
            places.append(at)
            at += size
        part = np.append(flags, False)[np.array(numbers, np.int64)]
        edges = np.flatnonzero(np.diff(part, prepend=False, append=False))
        bounds = np.array([*places, end], np.int64)[edges].reshape(-1, 2)
        starts.append(bounds[:, 0])
        sizes.append(bounds[:, 1] - bounds[:, 0])
        counts.append(len(bounds))
    none = np.zeros(0, np.int64)
    return TokenBounds(
        np.concatenate([none, *starts]),
        np.concatenate([none, *sizes]).astype(np.uint32),
        np.array(counts, np.int64),
    )
