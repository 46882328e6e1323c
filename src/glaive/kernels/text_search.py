"""Find the best documents of posting lists: those with any or all of some terms, or with a phrase.

Specification: "Scores" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple
from glaive.errors import CapacityError, CorruptFileError, SchemaError
from glaive.kernels._addresses import address
from glaive.kernels.native import text_search as text_search_loops
from glaive.kernels.native import use_compiled
from glaive.kernels.records import PhraseEntry, TermEntry
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.types import Flags, Float32s, Int64s, UInt8s, UInt32s, UInt64s, as_array

# --- Decode one posting list of a full-text index: documents, frequencies, positions ----
# Specification: "Postings" and "Positions" in ``docs/format/text-indices.md``.

_GROUP: Final = 128
_LANE: Final = 32
_MAX_BITS: Final = 32
_MAX_NUMBER: Final = 0xFFFF_FFFF
_MAX_VARINT: Final = 5
_BLOCKS = (128, 256)


def block_sizes(starts: Int64s, block: int) -> Int64s:
    """Documents of each block of lists: all are full but the last of a list."""
    lengths = np.diff(starts)
    counts = -(-lengths // block)
    sizes = np.full(int(counts.sum()), block, np.int64)
    filled = counts > 0
    sizes[np.cumsum(counts)[filled] - 1] -= (counts * block - lengths)[filled]
    return sizes


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
    """Documents of posting lists, ascending in each, and how often each has the token.

    Parameters
    ----------
    data, offsets
        The blocks one after the other: ``uint8``, and ``int64`` of shape ``(blocks + 1,)``.
    starts
        Where the documents of each list begin; and the end of the last.
    block
        Documents of all blocks of a list but the last: 128 or 256.
    fixed_tail
        Whether the last block, if it is shorter, has 32 bits for each number.
    limit
        Documents of the partition, which no number of one reaches.

    Raises
    ------
    CorruptFileError
        There are other blocks than the lengths need, or one has a wrong size or impossible
        numbers.
    """
    if block not in _BLOCKS:
        raise ValueError(f"blocks of {block} documents")
    lengths = np.diff(starts)
    blocks, length = len(offsets) - 1, int(starts[-1])
    good = int(lengths.min(initial=0)) >= 0 and int(lengths.max(initial=0)) <= limit
    if not good or int((-(-lengths // block)).sum()) != blocks:
        raise _corrupt(f"{length} documents of {limit} in {blocks} blocks", where)
    _check_offsets(data, offsets, where)
    data, offsets = np.ascontiguousarray(data), np.ascontiguousarray(offsets)
    documents, frequencies = np.empty(length, np.uint32), np.empty(length, np.uint32)
    if not use_compiled(length):
        tail = "fixed" if fixed_tail else "varints"
        for first, last in pairwise(starts.tolist()):
            own = offsets[: -(-(last - first) // block) + 1]
            offsets = offsets[len(own) - 1 :]
            lists = documents[first:last], frequencies[first:last]
            _decode_list(data, own, block, tail, *lists, where)
            _check_list(*lists, limit, where)
        return documents, frequencies
    starts = np.ascontiguousarray(starts, np.int64)
    bad = text_search_loops.postings(
        data=address(data), offsets=address(offsets), starts=address(starts), lists=len(lengths),
        block=block, fixed_tail=int(fixed_tail), limit=min(limit, _MAX_NUMBER),
        documents=address(documents), frequencies=address(frequencies),
    )  # fmt: skip
    if bad != len(lengths):
        raise _corrupt(f"list {bad} with a block of another size or other numbers", where)
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
    """Positions of the token of each list in each of its documents, ascending.

    Parameters
    ----------
    data, offsets
        Positions of the documents of each block: ``uint8``, and ``int64`` of shape
        ``(blocks + 1,)``.
    frequencies
        As :func:`decode_lists` returns them; ``starts`` and ``block`` as it takes them.

    Returns
    -------
    Where those of each document begin, with the end of the last; and the positions.

    Raises
    ------
    CorruptFileError
        A block has another number of positions.
    """
    if block not in _BLOCKS:
        raise ValueError(f"blocks of {block} documents")
    counts = block_sizes(starts, block)
    blocks = len(offsets) - 1
    if blocks != len(counts) or len(frequencies) != int(starts[-1]):
        raise _corrupt(f"{blocks} blocks of positions for {len(frequencies)} documents", where)
    _check_offsets(data, offsets, where)
    begins = np.zeros(len(frequencies) + 1, np.int64)
    np.cumsum(frequencies, out=begins[1:])
    total = int(begins[-1])
    if total > len(data) * _GROUP:
        raise _corrupt(f"{total} positions in {len(data)} bytes", where)
    data, frequencies = np.ascontiguousarray(data), np.ascontiguousarray(frequencies)
    into = np.empty(total, np.uint32)
    if not use_compiled(total):
        _decode_positions(data, offsets, begins, counts, into, where)
        return begins, into
    offsets = np.ascontiguousarray(offsets)
    bad = text_search_loops.positions(
        data=address(data), offsets=address(offsets), counts=address(counts), blocks=blocks,
        group=_GROUP, frequencies=address(frequencies), into=address(into),
    )  # fmt: skip
    if bad != blocks:
        raise _corrupt(f"block {bad} of positions with another size or other numbers", where)
    return begins, into


def _check_offsets(data: UInt8s, offsets: Int64s, where: object) -> None:
    good = len(offsets) and int(offsets[0]) >= 0 and int(offsets[-1]) <= len(data)
    if not good or not bool((offsets[1:] >= offsets[:-1]).all()):
        raise _corrupt("blocks that leave the list", where)


def _check_list(documents: UInt32s, frequencies: UInt32s, limit: int, where: object) -> None:
    good = bool((documents[1:] > documents[:-1]).all()) and bool(frequencies.all())
    if not good or (len(documents) and int(documents[-1]) >= limit):
        raise _corrupt("documents that do not ascend, or are not there", where)


# ---------------------------------------------------------------- reference implementations


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


def _corrupt(found: str, where: object) -> CorruptFileError:
    return CorruptFileError(
        "postings of an index", expected="blocks of documents", found=found, where=where
    )


MAX_TERMS: Final = 1024
"""Terms of which documents need any; they are sorted for each window."""

_BLOCK: Final = 64
_WINDOW: Final = 1024
_NOWHERE: Final = 1 << 62
"""Beyond each position of a phrase."""


class WeightedList(NamedTuple):
    """A posting list that is ready to be searched; made by :func:`weighted`.

    Parameters
    ----------
    documents
        ``uint32`` of shape ``(documents,)``, ascending.
    weights
        ``float32``: how much a document counts for the term, above 0; times the term's factor
        that is its score.
    lasts, bests
        Last document and best weight of each 64 documents.
    """

    documents: UInt32s
    weights: Float32s
    lasts: UInt32s
    bests: Float32s

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(array.nbytes for array in self)


class Search(NamedTuple):
    """Which documents are wanted.

    Parameters
    ----------
    limit
        Documents of the partition; higher numbers are not found.
    most
        The best so many.
    allowed
        ``uint8`` of shape ``(limit,)``: not 0 for documents that may be found; None: all.
    floor
        Score that has to be exceeded.
    """

    limit: int
    most: int
    allowed: UInt8s | None = None
    floor: float = 0.0


class PhraseTerm(NamedTuple):
    """A term of a phrase.

    Parameters
    ----------
    of
        Number of its list.
    starts
        ``int64`` of shape ``(documents + 1,)``: where the positions in each document begin.
    positions
        ``uint32``: ascending in each document.
    offset
        Position in the phrase.
    most
        Positions in one document, at most; documents with more are not found.
    """

    of: int
    starts: Int64s
    positions: UInt32s
    offset: int
    most: int


class Found(NamedTuple):
    """Documents, the best first, of equal ones the lower number; and their scores."""

    documents: Int64s
    scores: Float32s


def weighted(documents: UInt32s, weights: Float32s) -> WeightedList:
    """Prepare a list: find the bounds of its blocks."""
    starts = np.arange(0, len(documents), _BLOCK)
    if not len(starts):
        return WeightedList(documents, weights, documents, weights)
    bests = np.maximum.reduceat(weights, starts)
    return WeightedList(
        documents, weights, documents[np.append(starts[1:], len(documents)) - 1], bests
    )


def top_any(lists: Sequence[WeightedList], factors: Float32s, search: Search) -> Found:
    """The best documents that have any of the terms.

    Parameters
    ----------
    lists, factors
        One for each term, at most :data:`MAX_TERMS`; factors are at least 0.

    Notes
    -----
    Time is that of the documents that can be among the best, by the bounds of their blocks.
    """
    _check(lists, factors, search)
    if len(lists) > MAX_TERMS:
        raise ValueError(f"{len(lists)} lists of {MAX_TERMS}")
    if not lists or not search.most:
        return _found(np.zeros(0, np.uint32), np.zeros(0, np.float32))
    # The reference has a number for each document of the partition, be they found or not.
    if not use_compiled(sum(len(one.documents) for one in lists) + search.limit // 4):
        scores = np.zeros(search.limit, np.float64)
        with _of_damaged_weights():
            for one, factor in zip(lists, factors, strict=True):
                inside = one.documents < search.limit
                scores[one.documents[inside]] += np.float64(factor) * one.weights[inside]
        return _best(np.flatnonzero(scores > 0), scores[scores > 0], search)
    terms = len(lists)
    table, kept = _table(lists)
    given = np.append(factors.astype(np.float64), search.floor)
    most = min(search.most, search.limit)
    scores_of_best = np.empty(most, np.float32)
    documents = np.empty(most, np.uint32)
    state = np.zeros((2, terms), np.int64)
    bounds = np.zeros(2 * terms + 1, np.float64)
    window = np.zeros(_WINDOW, np.float64)
    count = text_search_loops.top_any(
        lists=address(table), terms=terms, factors=address(given), allowed=_address(search.allowed),
        limit=search.limit, most=most, scores=address(scores_of_best),
        documents=address(documents), cursors=address(state), order=address(state) + 8 * terms,
        bounds=address(bounds), sums=address(bounds) + 8 * terms, window=address(window),
    )  # fmt: skip
    del kept
    return _found(documents[:count], scores_of_best[:count])


def top_all(
    lists: Sequence[WeightedList],
    factors: Float32s,
    search: Search,
    phrase: Sequence[PhraseTerm] = (),
    slop: int = 0,
) -> Found:
    """The best documents that have all of the terms, and the phrase if one is given.

    Parameters
    ----------
    lists, factors
        One for each different term; factors are at least 0.
    phrase
        In the order of the phrase; a term may be there twice.
    slop
        How much further from the one before a term may be than in the phrase.

    Notes
    -----
    Time is that of looking up the documents of the shortest list in the others, except blocks
    that cannot have one of the best. A phrase is only looked for in documents that can.
    """
    _check(lists, factors, search)
    _check_phrase(lists, phrase)
    if not lists or not search.most:
        return _found(np.zeros(0, np.uint32), np.zeros(0, np.float32))
    work = sum(len(one.documents) for one in lists) + sum(len(one.positions) for one in phrase)
    if not use_compiled(work):
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
    terms = len(lists)
    order = sorted(range(terms), key=lambda at: len(lists[at].documents))
    place = {at: number for number, at in enumerate(order)}
    table, kept = _table([lists[at] for at in order])
    given = np.append(factors[order].astype(np.float64), search.floor)
    most = min(search.most, len(lists[order[0]].documents))
    scores_of_best = np.empty(most, np.float32)
    found = np.empty(most, np.uint32)
    cursors, bounds = np.zeros(terms, np.int64), np.zeros(terms, np.float64)
    capacity = max((min(term.most, len(term.positions)) for term in phrase), default=0)
    reached = np.empty(2 * capacity, np.int64)
    followed = np.array(
        [
            PhraseEntry(
                list=place[term.of], starts=address(term.starts),
                positions=address(term.positions), total=len(term.positions), offset=term.offset,
            )
            for term in phrase
        ], np.int64,
    )  # fmt: skip
    count = text_search_loops.top_all(
        lists=address(table), terms=terms, factors=address(given), allowed=_address(search.allowed),
        limit=search.limit, most=most, scores=address(scores_of_best), documents=address(found),
        cursors=address(cursors), bounds=address(bounds), phrase=address(followed),
        phrase_terms=len(phrase), reached=address(reached), capacity=capacity, slop=slop,
    ) if most else 0  # fmt: skip
    del kept
    return _found(found[:count], scores_of_best[:count])


def _table(lists: Sequence[WeightedList]) -> tuple[Int64s, list[WeightedList]]:
    """Addresses and lengths of lists; and what has to be kept alive with them."""
    rows = [
        TermEntry(
            documents=address(one.documents), weights=address(one.weights),
            lasts=address(one.lasts), bests=address(one.bests), length=len(one.documents),
        )
        for one in lists
    ]  # fmt: skip
    return np.array(rows, np.int64), list(lists)


def _address(allowed: UInt8s | None) -> int:
    return 0 if allowed is None else address(allowed)


def _check(lists: Sequence[WeightedList], factors: Float32s, search: Search) -> None:
    if len(factors) != len(lists):
        raise ValueError(f"{len(lists)} lists with {len(factors)} factors")
    for one in lists:
        blocks = -(-len(one.documents) // _BLOCK)
        if len(one.weights) != len(one.documents) or len(one.lasts) != blocks:
            raise ValueError(f"{len(one.weights)} weights of {len(one.documents)} documents")
        if len(one.bests) != blocks:
            raise ValueError(f"bounds of {len(one.bests)} blocks of {blocks}")
    if search.allowed is not None and len(search.allowed) != search.limit:
        raise ValueError(f"flags of {len(search.allowed)} documents of {search.limit}")


def _check_phrase(lists: Sequence[WeightedList], phrase: Sequence[PhraseTerm]) -> None:
    for term in phrase:
        if not 0 <= term.of < len(lists):
            raise ValueError(f"a phrase with list {term.of} of {len(lists)}")
        if len(term.starts) != len(lists[term.of].documents) + 1:
            raise ValueError(f"positions of {len(term.starts) - 1} documents")


def _found(documents: UInt32s, scores: Float32s) -> Found:
    order = np.lexsort((documents, -scores))
    return Found(documents[order].astype(np.int64), scores[order])


# ---------------------------------------------------------------- reference implementations


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
    order = np.argsort(-scores, kind="stable")[: search.most]
    return Found(documents[order], scores[order])


def _has_phrase(
    lists: Sequence[WeightedList], phrase: Sequence[PhraseTerm], slop: int, document: int
) -> bool:
    """Whether a document has a phrase: where the terms so far can end, for more and more."""
    capacity = max(min(term.most, len(term.positions)) for term in phrase)
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


# --- Find tokens in texts: the longest runs of characters of some set -------------------

CHARACTERS: Final = 0x110000
"""Code points of Unicode."""

_MAX_TEXT: Final = 1 << 32
"""Bytes of a text, less than this: sizes of tokens have 32 bits."""


class TokenBounds(NamedTuple):
    """Where tokens are.

    Parameters
    ----------
    starts, sizes
        First byte of each token, ``int64``, and how many it has, ``uint32``.
    counts
        Tokens of each text, ``int64``.
    """

    starts: Int64s
    sizes: UInt32s
    counts: Int64s


def character_set(ranges: Int64s) -> UInt8s:
    """A set of characters as a bitmap.

    Parameters
    ----------
    ranges
        ``int64`` of shape ``(ranges, 2)``: first code point of each, and that after the last.
    """
    change = np.zeros(CHARACTERS + 1, np.int8)
    change[ranges[:, 0]] += 1
    change[ranges[:, 1]] -= 1
    return np.packbits(np.cumsum(change[:-1], dtype=np.int8).astype(np.bool_), bitorder="little")


def find_tokens(strings: Strings, count: int, characters: UInt8s) -> TokenBounds:
    """Find the longest runs of characters of a set in each of ``count`` texts of UTF-8.

    Bytes that are not UTF-8 are no part of any token, or of one as other characters.

    Parameters
    ----------
    strings, count
        Offsets and bytes, and how many texts there are.
    characters
        As :func:`character_set` returns it.

    Raises
    ------
    SchemaError
        Offsets descend, or leave the data.
    CapacityError
        A text has 4 GiB or more.
    """
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    if len(characters) != CHARACTERS // 8:
        raise SchemaError(f"a set of characters has {CHARACTERS} bits, not {8 * len(characters)}")
    ends = as_offsets(offsets, bits)[: count + 1].astype(np.int64)
    if count and int(np.diff(ends).max()) >= _MAX_TEXT:
        raise CapacityError.of(int(np.diff(ends).max()), "bytes of one text", where="an index")
    size = int(ends[-1] - ends[0]) if count else 0
    if not use_compiled(size):
        return _find_numpy(as_array(data), ends, characters)
    capacity = (size + count) // 2 + 1
    starts, sizes = np.empty(capacity, np.int64), np.empty(capacity, np.uint32)
    counts = np.zeros(count, np.int64)
    found = text_search_loops.find_tokens(
        offsets=address(offsets), width=bits // 8, data=address(data), documents=count,
        parts=address(characters), starts=address(starts), sizes=address(sizes),
        counts=address(counts),
    )  # fmt: skip
    return TokenBounds(starts[:found], sizes[:found], counts)


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
