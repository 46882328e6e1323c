"""Find the best documents of posting lists: documents with any or all terms, or with a phrase.

Specification: "Scores" in ``docs/format/text-search.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from glaive.dataclass import NamedTuple
from glaive.errors import CapacityError, CorruptFileError, SchemaError
from glaive.kernels._addresses import address, given
from glaive.kernels.native import text_search as text_search_loops
from glaive.kernels.records import PhraseEntry, TermEntry
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.types import Float32s, Int64s, UInt8s, UInt32s

# --- Decode one posting list of a full-text index: documents, frequencies, positions ----
#
# Specification: "Postings" and "Positions" in ``docs/format/text-postings.md``.

_GROUP: Final = 128
_MAX_NUMBER: Final = 0xFFFF_FFFF
_BLOCKS = (128, 256)


def block_sizes(starts: Int64s, block: int) -> Int64s:
    """Return the number of documents in each block of lists: all but a list's last are full."""
    lengths = np.diff(starts)
    counts = -(-lengths // block)
    sizes = np.full(int(counts.sum()), block, np.int64)
    filled = counts > 0
    sizes[counts.cumsum()[filled] - 1] -= (counts * block - lengths)[filled]
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
    """Decode posting lists: documents, ascending in each list, and the frequency in each.

    Parameters
    ----------
    data, offsets
        The blocks in order: ``uint8``, and ``int64`` of shape ``(blocks + 1,)``.
    starts
        The first document of each list, and the end of the last list.
    block
        Documents in all blocks of a list except the last: 128 or 256.
    fixed_tail
        Whether a shorter last block has 32 bits for each number.
    limit
        Number of documents in the partition; numbers of documents are lower.

    Raises
    ------
    CorruptFileError
        The number of blocks contradicts the lengths, or a block has a wrong size or
        impossible numbers.
    """
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
    """Decode the positions of each list's token in each of its documents, ascending.

    Parameters
    ----------
    data, offsets
        Positions of the documents of each block: ``uint8``, and ``int64`` of shape
        ``(blocks + 1,)``.
    frequencies
        The result of :func:`decode_lists`; ``starts`` and ``block`` are its arguments.

    Returns
    -------
    The first position of each document with the end of the last, and the positions.

    Raises
    ------
    CorruptFileError
        A block has a different number of positions.
    """
    if block not in _BLOCKS:
        raise ValueError(f"blocks of {block} documents")
    counts = block_sizes(starts, block)
    blocks = len(offsets) - 1
    if blocks != len(counts) or len(frequencies) != int(counts.sum()):
        raise _corrupt(f"{blocks} blocks of positions for {len(frequencies)} documents", where)
    _check_offsets(data, offsets, where)
    begins = np.zeros(len(frequencies) + 1, np.int64)
    frequencies.cumsum(out=begins[1:])
    total = int(begins[-1])
    if total > len(data) * _GROUP:
        raise _corrupt(f"{total} positions in {len(data)} bytes", where)
    data, frequencies = np.ascontiguousarray(data), np.ascontiguousarray(frequencies)
    into = np.empty(total, np.uint32)
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


def _corrupt(found: str, where: object) -> CorruptFileError:
    return CorruptFileError(
        "postings of an index", expected="blocks of documents", found=found, where=where
    )


MAX_TERMS: Final = 1024
"""Largest number of terms in a search for any of them; they are sorted for each window."""

_BLOCK: Final = 64
_WINDOW: Final = 1024


class WeightedList(NamedTuple):
    """A posting list ready for a search; made by :func:`weighted`.

    Parameters
    ----------
    documents
        ``uint32`` of shape ``(documents,)``, ascending.
    weights
        ``float32``, above 0: the weight of each document for the term. With the term's factor it
        is a score.
    lasts, bests
        Last document and best weight of every 64 documents.
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
    """The documents that a search wants.

    Parameters
    ----------
    limit
        Number of documents in the partition; searches skip higher numbers.
    most
        Largest number of documents to find: the best are kept.
    allowed
        ``uint8`` of shape ``(limit,)``: 0 for excluded documents; ``None``: search all.
    floor
        Scores must exceed this one.
    """

    limit: int
    max_hits: int
    allowed: UInt8s | None = None
    floor: float = 0.0


class PhraseTerm(NamedTuple):
    """A term of a phrase.

    Parameters
    ----------
    of
        Number of the term's list.
    starts
        ``int64`` of shape ``(documents + 1,)``: the first position in each document.
    positions
        ``uint32``: ascending in each document.
    offset
        Position of the term in the phrase.
    max_hits
        Largest number of positions in one document; searches skip documents with more.
    """

    of: int
    starts: Int64s
    positions: UInt32s
    offset: int
    max_positions: int


class Found(NamedTuple):
    """Documents and their scores: best first, among equal scores the lower number first."""

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
    """Return the best documents that have any of the terms.

    Parameters
    ----------
    lists, factors
        One list and factor for each term, at most :data:`MAX_TERMS`; factors are at least 0.

    Notes
    -----
    The time depends on the number of documents that can be among the best, by the bounds of
    their blocks.
    """
    _check(lists, factors, search)
    if len(lists) > MAX_TERMS:
        raise ValueError(f"{len(lists)} lists of {MAX_TERMS}")
    if not lists or not search.max_hits:
        return _found(np.zeros(0, np.uint32), np.zeros(0, np.float32))
    # The reference has a number for each document of the partition.
    terms = len(lists)
    table, kept = _table(lists)
    scaled = np.append(factors.astype(np.float64), search.floor)
    max_hits = min(search.max_hits, search.limit)
    scores_of_best = np.empty(max_hits, np.float32)
    documents = np.empty(max_hits, np.uint32)
    state = np.zeros((2, terms), np.int64)
    bounds = np.zeros(2 * terms + 1, np.float64)
    window = np.zeros(_WINDOW, np.float64)
    count = text_search_loops.top_any(
        lists=address(table), terms=terms, factors=address(scaled), allowed=given(search.allowed),
        limit=search.limit, max_hits=max_hits, scores=address(scores_of_best),
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
    """Return the best documents that have all of the terms, and the phrase if one is given.

    Parameters
    ----------
    lists, factors
        One list and factor for each different term; factors are at least 0.
    phrase
        Terms in the order of the phrase; a term may occur twice.
    slop
        Additional distance allowed between two terms of the phrase.

    Notes
    -----
    The time is for looking up the documents of the shortest list in the others. Blocks without
    one of the best are skipped. A phrase is only searched in documents that can be among the
    best.
    """
    _check(lists, factors, search)
    _check_phrase(lists, phrase)
    if not lists or not search.max_hits:
        return _found(np.zeros(0, np.uint32), np.zeros(0, np.float32))
    terms = len(lists)
    order = sorted(range(terms), key=lambda at: len(lists[at].documents))
    place = {at: number for number, at in enumerate(order)}
    table, kept = _table([lists[at] for at in order])
    scaled = np.append(factors[order].astype(np.float64), search.floor)
    max_hits = min(search.max_hits, len(lists[order[0]].documents))
    scores_of_best = np.empty(max_hits, np.float32)
    found = np.empty(max_hits, np.uint32)
    cursors, bounds = np.zeros(terms, np.int64), np.zeros(terms, np.float64)
    capacity = max((min(term.max_positions, len(term.positions)) for term in phrase), default=0)
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
        lists=address(table), terms=terms, factors=address(scaled), allowed=given(search.allowed),
        limit=search.limit, max_hits=max_hits, scores=address(scores_of_best),
        documents=address(found), cursors=address(cursors), bounds=address(bounds),
        phrase=address(followed),
        phrase_terms=len(phrase), reached=address(reached), capacity=capacity, slop=slop,
    ) if max_hits else 0  # fmt: skip
    del kept
    return _found(found[:count], scores_of_best[:count])


def _table(lists: Sequence[WeightedList]) -> tuple[Int64s, list[WeightedList]]:
    """Return addresses and lengths of lists, and the arrays to keep alive with them."""
    rows = [
        TermEntry(
            documents=address(one.documents), weights=address(one.weights),
            lasts=address(one.lasts), bests=address(one.bests), length=len(one.documents),
        )
        for one in lists
    ]  # fmt: skip
    return np.array(rows, np.int64), list(lists)


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


# --- Find tokens in texts: the longest runs of characters from a set --------------------

CHARACTERS: Final = 0x110000
"""Code points of Unicode."""

_MAX_TEXT: Final = 1 << 32
"""A text has fewer bytes than this, because sizes of tokens have 32 bits."""


class TokenBounds(NamedTuple):
    """Positions and sizes of tokens.

    Parameters
    ----------
    starts, sizes
        First byte of each token, ``int64``, and its number of bytes, ``uint32``.
    counts
        Number of tokens in each text, ``int64``.
    """

    starts: Int64s
    sizes: UInt32s
    counts: Int64s


def character_set(ranges: Int64s) -> UInt8s:
    """Return a set of characters as a bitmap.

    Parameters
    ----------
    ranges
        ``int64`` of shape ``(ranges, 2)``: first code point of each range, and the one after
        its last.
    """
    change = np.zeros(CHARACTERS + 1, np.int8)
    change[ranges[:, 0]] += 1
    change[ranges[:, 1]] -= 1
    return np.packbits(change[:-1].cumsum(dtype=np.int8).astype(np.bool_), bitorder="little")


def find_tokens(strings: Strings, count: int, characters: UInt8s) -> TokenBounds:
    """Find the longest runs of characters from a set in each of ``count`` UTF-8 texts.

    Bytes that are not UTF-8 may end a token, or belong to it like other characters.

    Parameters
    ----------
    strings, count
        Offsets and bytes, and the number of texts.
    characters
        The result of :func:`character_set`.

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
    capacity = (size + count) // 2 + 1
    starts, sizes = np.empty(capacity, np.int64), np.empty(capacity, np.uint32)
    counts = np.zeros(count, np.int64)
    found = text_search_loops.find_tokens(
        offsets=address(offsets), width=bits // 8, data=address(data), documents=count,
        parts=address(characters), starts=address(starts), sizes=address(sizes),
        counts=address(counts),
    )  # fmt: skip
    return TokenBounds(starts[:found], sizes[:found], counts)
