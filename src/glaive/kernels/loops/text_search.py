"""Compiled search for the best documents; the wrappers are in ``glaive.kernels.text_search``.

The table ``lists`` has a ``TermEntry`` for each term. The best documents found so far are a heap:
``best_documents``.

Scores are summed in ``float64``, where the product of a factor and a weight is exact, and compared
in ``float32``. Sums of bounds are made a little larger, so that the order of additions plays
no role.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.best_documents import push, threshold_of
from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    load_f32,
    load_f64,
    load_i64,
    load_u8,
    load_u32,
    store_f64,
    store_u64,
)
from glaive.kernels.records import offsets_of
from glaive.kernels.text_records import PhraseEntry, TermEntry, TopAll, TopAny

BLOCK = 64
"""Documents of a block that has a bound."""
WINDOW = 1024
"""Documents whose scores are summed at a time."""
NEAR = 12
"""Documents that are looked at one by one before others are passed over."""
TERM = offsets_of(TermEntry)
TERM_BYTES = 8 * len(TERM)
PHRASE = offsets_of(PhraseEntry)
PHRASE_BYTES = 8 * len(PHRASE)
SPARSE = 6
"""A window with fewer documents than one in so many is searched document by document."""
FEW = 4
"""Terms of which the next document is looked for in that way, at most."""
NONE = 1 << 40
"""More than any document."""
MORE = 1.0 + 1e-12


@kernel
def put(target: int, value: int) -> None:
    """Store one 64-bit word."""
    store_u64(target, np.uint64(value))


@kernel
def seek(entry: int, cursor: int, document: int) -> int:
    """The place of the first document of a list from ``cursor`` on that is not before one."""
    documents, lasts = load_i64(entry + TERM.documents), load_i64(entry + TERM.lasts)
    length = load_i64(entry + TERM.length)
    near = min(length, cursor + NEAR)
    while cursor < near:
        if np.int64(load_u32(documents + cursor * 4)) >= document:
            return cursor
        cursor += 1
    block = cursor // BLOCK
    blocks = (length + BLOCK - 1) // BLOCK
    while block < blocks and np.int64(load_u32(lasts + block * 4)) < document:
        block += 1
    low, high = max(cursor, block * BLOCK), min(length, block * BLOCK + BLOCK)
    while low < high:
        middle = (low + high) >> 1
        if np.int64(load_u32(documents + middle * 4)) < document:
            low = middle + 1
        else:
            high = middle
    return min(low, length)


@kernel
def document_at(entry: int, cursor: int) -> int:
    """The document at a place of a list; past its end, more than any."""
    if cursor >= load_i64(entry + TERM.length):
        return NONE
    return np.int64(load_u32(load_i64(entry + TERM.documents) + cursor * 4))


@kernel
def weight_at(entry: int, cursor: int) -> float:
    """The weight of the document at a place of a list."""
    return np.float64(load_f32(load_i64(entry + TERM.weights) + cursor * 4))


@kernel
def best_between(entry: int, cursor: int, stop: int) -> float:
    """The best weight of the blocks from that of ``cursor`` on that begin before ``stop``."""
    documents, bests = load_i64(entry + TERM.documents), load_i64(entry + TERM.bests)
    length = load_i64(entry + TERM.length)
    best = np.float32(0)
    if cursor >= length:
        return np.float64(best)
    best = load_f32(bests + (cursor // BLOCK) * 4)
    block = cursor // BLOCK + 1
    while block * BLOCK < length and np.int64(load_u32(documents + block * BLOCK * 4)) < stop:
        best = max(best, load_f32(bests + block * 4))
        block += 1
    return np.float64(best)


@kernel
def is_allowed(allowed: int, limit: int, document: int) -> bool:
    """Whether a document may be found."""
    if document >= limit:
        return False
    return allowed == 0 or load_u8(allowed + document) != 0


@kernel
def rest_of(
    lists: int, factors: int, cursors: int, order: int, sums: int, least: int, document: int,
    score: float, threshold: np.float32,
) -> float:  # fmt: skip
    """Add the scores of the terms before ``least`` in the order; 0 once it cannot be enough."""
    for i in range(least - 1, -1, -1):
        if np.float32((score + load_f64(sums + (i + 1) * 8)) * MORE) <= threshold:
            return 0.0
        term = load_i64(order + i * 8)
        entry = lists + term * TERM_BYTES
        cursor = seek(entry, load_i64(cursors + term * 8), document)
        put(cursors + term * 8, cursor)
        if document_at(entry, cursor) == document:
            score += load_f64(factors + term * 8) * weight_at(entry, cursor)
    return score


@kernel
def sort_bounds(bounds: int, order: int, sums: int, terms: int) -> None:
    """Put terms in ascending order of their bounds; and the sums of those before each."""
    for i in range(terms):
        bound = load_f64(bounds + i * 8)
        j = i
        while j > 0 and load_f64(bounds + load_i64(order + (j - 1) * 8) * 8) > bound:
            put(order + j * 8, load_i64(order + (j - 1) * 8))
            j -= 1
        put(order + j * 8, i)
    total = 0.0
    store_f64(sums, total)
    for i in range(terms):
        total += load_f64(bounds + load_i64(order + i * 8) * 8)
        store_f64(sums + (i + 1) * 8, total)


@kernel
def is_sparse(lists: int, order: int, least: int, terms: int, limit: int) -> bool:
    """Whether the terms from ``least`` on in the order have few documents, by their average."""
    room = limit // SPARSE
    for i in range(least, terms):
        length = load_i64(lists + load_i64(order + i * 8) * TERM_BYTES + TERM.length)
        if length > room:
            return False
        room -= length
    return terms - least <= FEW


@kernel_of(TopAny)
def top_any(
    lists: int, terms: int, factors: int, allowed: int, limit: int, most: int, scores: int,
    documents: int, cursors: int, order: int, bounds: int, sums: int, window: int,
) -> int:  # fmt: skip
    """Find the best documents that have any of the terms; returns how many.

    Of each window of documents, terms whose bounds together do not reach the worst score found
    are only looked up for documents of the others.
    """
    size = 0
    floor = np.float32(load_f64(factors + terms * 8))
    threshold = floor
    low = 0
    while True:
        start = NONE
        for term in range(terms):
            entry = lists + term * TERM_BYTES
            cursor = seek(entry, load_i64(cursors + term * 8), low)
            put(cursors + term * 8, cursor)
            start = min(start, document_at(entry, cursor))
        if start == NONE:
            return size
        low = start
        stop = low + WINDOW
        for term in range(terms):
            entry, cursor = lists + term * TERM_BYTES, load_i64(cursors + term * 8)
            bound = 0.0
            if document_at(entry, cursor) < stop:
                bound = load_f64(factors + term * 8) * best_between(entry, cursor, stop)
            store_f64(bounds + term * 8, bound)
        sort_bounds(bounds, order, sums, terms)
        least = 0
        while least < terms and np.float32(load_f64(sums + (least + 1) * 8) * MORE) <= threshold:
            least += 1
        rest = load_f64(sums + least * 8)
        if least == terms - 1:
            term = load_i64(order + least * 8)
            entry, factor = lists + term * TERM_BYTES, load_f64(factors + term * 8)
            cursor = load_i64(cursors + term * 8)
            weights, bests = load_i64(entry + TERM.weights), load_i64(entry + TERM.bests)
            stop_at = seek(entry, cursor, stop)
            while cursor < stop_at:
                end = min(stop_at, (cursor // BLOCK + 1) * BLOCK)
                best = np.float64(load_f32(bests + (cursor // BLOCK) * 4))
                if np.float32((factor * best + rest) * MORE) <= threshold:
                    cursor = end
                    continue
                # Weights up to this one are not enough.
                cut = np.float32((np.float64(threshold) - rest) / factor * (1.0 - 1e-6))
                while cursor < end:
                    if load_f32(weights + cursor * 4) <= cut:
                        cursor += 1
                        continue
                    document, score = document_at(entry, cursor), factor * weight_at(entry, cursor)
                    cursor += 1
                    if not is_allowed(allowed, limit, document):
                        continue
                    if least:
                        score = rest_of(
                            lists, factors, cursors, order, sums, least, document, score, threshold
                        )
                    if np.float32(score) > threshold:
                        size = push(scores, documents, size, most, np.float32(score), document)
                        threshold = threshold_of(scores, size, most, floor)
                        cut = np.float32((np.float64(threshold) - rest) / factor * (1.0 - 1e-6))
        elif least < terms and is_sparse(lists, order, least, terms, limit):
            while True:
                document = NONE
                for i in range(least, terms):
                    term = load_i64(order + i * 8)
                    cursor = load_i64(cursors + term * 8)
                    document = min(document, document_at(lists + term * TERM_BYTES, cursor))
                if document >= stop:
                    break
                score = 0.0
                for i in range(least, terms):
                    term = load_i64(order + i * 8)
                    entry, cursor = lists + term * TERM_BYTES, load_i64(cursors + term * 8)
                    if document_at(entry, cursor) == document:
                        score += load_f64(factors + term * 8) * weight_at(entry, cursor)
                        put(cursors + term * 8, cursor + 1)
                if np.float32((score + rest) * MORE) <= threshold:
                    continue
                if not is_allowed(allowed, limit, document):
                    continue
                if least:
                    score = rest_of(
                        lists, factors, cursors, order, sums, least, document, score, threshold
                    )
                if np.float32(score) > threshold:
                    size = push(scores, documents, size, most, np.float32(score), document)
                    threshold = threshold_of(scores, size, most, floor)
        elif least < terms:
            for i in range(least, terms):
                term = load_i64(order + i * 8)
                entry, factor = lists + term * TERM_BYTES, load_f64(factors + term * 8)
                own, weights = load_i64(entry + TERM.documents), load_i64(entry + TERM.weights)
                length = load_i64(entry + TERM.length)
                cursor = load_i64(cursors + term * 8)
                while cursor < length:
                    place = np.int64(load_u32(own + cursor * 4)) - low
                    if place >= WINDOW:
                        break
                    if place >= 0:
                        at = window + place * 8
                        weight = np.float64(load_f32(weights + cursor * 4))
                        store_f64(at, load_f64(at) + factor * weight)
                    cursor += 1
            for place in range(WINDOW):
                score = load_f64(window + place * 8)
                if score == 0.0:
                    continue
                store_f64(window + place * 8, 0.0)
                if np.float32((score + rest) * MORE) <= threshold:
                    continue
                document = low + place
                if not is_allowed(allowed, limit, document):
                    continue
                if least:
                    score = rest_of(
                        lists, factors, cursors, order, sums, least, document, score, threshold
                    )
                if np.float32(score) > threshold:
                    size = push(scores, documents, size, most, np.float32(score), document)
                    threshold = threshold_of(scores, size, most, floor)
        low = stop


@kernel
def has_phrase(
    phrase: int, terms: int, cursors: int, reached: int, capacity: int, slop: int
) -> bool:
    """Whether the terms follow each other in a document, with at most ``slop`` gaps between two.

    ``phrase`` has a ``PhraseEntry`` for each term, in the order of the query. ``reached`` has room
    for ``capacity`` places at which the terms so far can end, twice.
    """
    count = 0
    for i in range(terms):
        entry = phrase + i * PHRASE_BYTES
        cursor = load_i64(cursors + load_i64(entry + PHRASE.list) * 8)
        starts, positions = load_i64(entry + PHRASE.starts), load_i64(entry + PHRASE.positions)
        total = load_i64(entry + PHRASE.total)
        begin, end = load_i64(starts + cursor * 8), load_i64(starts + cursor * 8 + 8)
        if begin < 0 or end > total or begin >= end or capacity < end - begin:
            return False
        before, after = reached, reached + capacity * 8
        if i & 1:
            before, after = after, before
        at, new = 0, 0
        for place in range(begin, end):
            here = np.int64(load_u32(positions + place * 4)) - load_i64(entry + PHRASE.offset)
            if i > 0:
                while at < count and load_i64(before + at * 8) < here - slop:
                    at += 1
                if at == count or load_i64(before + at * 8) > here:
                    continue
            put(after + new * 8, here)
            new += 1
        if new == 0:
            return False
        count = new
    return True


@kernel_of(TopAll)
def top_all(
    lists: int, terms: int, factors: int, allowed: int, limit: int, most: int, scores: int,
    documents: int, cursors: int, bounds: int, phrase: int, phrase_terms: int, reached: int,
    capacity: int, slop: int,
) -> int:  # fmt: skip
    """Find the best documents that have all of the terms; returns how many.

    The first list leads; its blocks are passed over where all bounds together are too low.
    """
    size = 0
    floor = np.float32(load_f64(factors + terms * 8))
    threshold = floor
    own, length = load_i64(lists + TERM.documents), load_i64(lists + TERM.length)
    lead = load_f64(factors)
    first = 0
    while first < length:
        end = min(length, first + BLOCK)
        low = np.int64(load_u32(own + first * 4))
        high = np.int64(load_u32(own + (end - 1) * 4))
        bound = 0.0
        store_f64(bounds + (terms - 1) * 8, bound)
        for term in range(terms - 1, 0, -1):
            entry = lists + term * TERM_BYTES
            cursor = seek(entry, load_i64(cursors + term * 8), low)
            if cursor >= load_i64(entry + TERM.length):
                return size
            put(cursors + term * 8, cursor)
            bound += load_f64(factors + term * 8) * best_between(entry, cursor, high + 1)
            store_f64(bounds + (term - 1) * 8, bound)
        best = np.float64(load_f32(load_i64(lists + TERM.bests) + (first // BLOCK) * 4))
        if np.float32((lead * best + bound) * MORE) <= threshold:
            first = end
            continue
        for at in range(first, end):
            document = np.int64(load_u32(own + at * 4))
            score = lead * weight_at(lists, at)
            found = np.float32((score + bound) * MORE) > threshold
            for term in range(1, terms):
                if not found:
                    break
                entry = lists + term * TERM_BYTES
                cursor = seek(entry, load_i64(cursors + term * 8), document)
                put(cursors + term * 8, cursor)
                if document_at(entry, cursor) != document:
                    found = False
                    break
                score += load_f64(factors + term * 8) * weight_at(entry, cursor)
                rest = load_f64(bounds + term * 8)
                found = np.float32((score + rest) * MORE) > threshold
            if not found or np.float32(score) <= threshold:
                continue
            if not is_allowed(allowed, limit, document):
                continue
            if phrase_terms:
                put(cursors, at)
                if not has_phrase(phrase, phrase_terms, cursors, reached, capacity, slop):
                    continue
            size = push(scores, documents, size, most, np.float32(score), document)
            threshold = threshold_of(scores, size, most, floor)
        first = end
    return size
