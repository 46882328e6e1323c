"""Find the best documents of posting lists: those with any or all of some terms, or with a phrase.

Specification: "Scores" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import text_search as compiled
from glaive.kernels.text_records import PhraseEntry, TermEntry, TopAll, TopAny
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Float32s, Int64s, UInt8s, UInt32s

__all__ = [
    "MAX_TERMS",
    "Found",
    "PhraseTerm",
    "Search",
    "WeightedList",
    "exercise",
    "top_all",
    "top_any",
    "weighted",
]

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
    call = TopAny(
        lists=address(table), terms=terms, factors=address(given), allowed=_address(search.allowed),
        limit=search.limit, most=most, scores=address(scores_of_best),
        documents=address(documents), cursors=address(state), order=address(state) + 8 * terms,
        bounds=address(bounds), sums=address(bounds) + 8 * terms, window=address(window),
    )  # fmt: skip
    count = compiled.top_any(*call)
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
    call = TopAll(
        lists=address(table), terms=terms, factors=address(given), allowed=_address(search.allowed),
        limit=search.limit, most=most, scores=address(scores_of_best), documents=address(found),
        cursors=address(cursors), bounds=address(bounds), phrase=address(followed),
        phrase_terms=len(phrase), reached=address(reached), capacity=capacity, slop=slop,
    )  # fmt: skip
    count = compiled.top_all(*call) if most else 0
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


def exercise() -> None:
    """Call every wrapper once with little data."""
    one = weighted(np.arange(3, dtype=np.uint32), np.ones(3, np.float32))
    factors = np.ones(2, np.float32)
    search = Search(3, 2, np.ones(3, np.uint8))
    top_any([one, one], factors, search)
    term = PhraseTerm(0, np.arange(4, dtype=np.int64), np.arange(3, dtype=np.uint32), 0, 1)
    top_all([one, one], factors, search, [term, term._replace(of=1)])
