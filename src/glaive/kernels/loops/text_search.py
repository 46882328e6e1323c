"""Compiled search for the best documents; the wrappers are in ``glaive.kernels.text_search``.

The table ``lists`` has a ``TermEntry`` for each term. The best documents found so far are a heap:
``best_documents``.

Scores are summed in ``float64``, where the product of a factor and a weight is exact, and compared
in ``float32``. Sums of bounds are made a little larger, so that any order of additions is within
the bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glaive.kernels.loops.memory import (
    kernel,
    load_f32,
    load_f64,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    store_f32,
    store_f64,
    store_u32,
    store_u64,
)
from glaive.kernels.loops.offsets import arrow_offset
from glaive.kernels.records import PhraseEntry, TermEntry, offsets_of

# --- Compiled decoding of posting lists; the wrappers are in ``glaive.kernels.text_search``
#
# All functions return 0 or more where the bytes are valid, else -1.

LANE = 32
MAX_BITS = 32
MAX_NUMBER = 0xFFFF_FFFF


def _unpack(lanes: int) -> Any:
    """Unpack ``32 * lanes`` numbers of 1 to 32 bits: word ``i`` of a row belongs to lane ``i``."""

    @kernel
    def unpack_rows(source: int, bits: int, target: int) -> None:
        mask = np.uint64(0xFFFF_FFFF) >> np.uint64(32 - bits)
        for row in range(LANE):
            bit = row * bits
            shift = np.uint64(bit & 31)
            words = source + (bit >> 5) * 4 * lanes
            into = target + row * 4 * lanes
            if (bit & 31) + bits > 32:
                for lane in range(lanes):
                    low, high = load_u32(words + lane * 4), load_u32(words + (lanes + lane) * 4)
                    both = np.uint64(low) | (np.uint64(high) << np.uint64(32))
                    store_u32(into + lane * 4, np.uint32((both >> shift) & mask))
            else:
                for lane in range(lanes):
                    word = np.uint64(load_u32(words + lane * 4))
                    store_u32(into + lane * 4, np.uint32((word >> shift) & mask))

    return unpack_rows


unpack_4, unpack_8 = _unpack(4), _unpack(8)


@kernel
def unpack(source: int, stop: int, bits: int, lanes: int, target: int) -> int:
    """Unpack the numbers of all lanes; return where they end, or -1."""
    size = bits * lanes * 4
    if bits > MAX_BITS or size > stop - source:
        return -1
    if bits == 0:
        for i in range(LANE * lanes):
            store_u32(target + i * 4, np.uint32(0))
    elif lanes == 4:
        unpack_4(source, bits, target)
    else:
        unpack_8(source, bits, target)
    return source + size


@kernel
def varint_end(source: int, stop: int) -> int:
    """Return where the varint at ``source`` ends, or -1: it has at most five bytes."""
    at = source
    while at < stop and at - source < 5:
        if load_u8(at) < 128:
            return at + 1
        at += 1
    return -1


@kernel
def varint(source: int, end: int) -> int:
    """Return the varint that ends before ``end``."""
    value = 0
    for i in range(end - source):
        value |= np.int64(load_u8(source + i) & 127) << (7 * i)
    return value


@kernel
def numbers(source: int, stop: int, count: int, fixed: int, target: int) -> int:
    """Store numbers of 32 bits, or varints; return where they end, or -1."""
    if fixed:
        if count > (stop - source) >> 2:
            return -1
        for i in range(count):
            store_u32(target + i * 4, load_u32(source + i * 4))
        return source + count * 4
    at = source
    for i in range(count):
        end = varint_end(at, stop)
        if end < 0:
            return -1
        value = varint(at, end)
        if value > MAX_NUMBER:
            return -1
        store_u32(target + i * 4, np.uint32(value))
        at = end
    return at


@kernel
def full_block(at: int, stop: int, lanes: int, documents: int, frequencies: int) -> int:
    """Decode a full block to steps, from its first document on; the caller sums them."""
    if stop - at < 7:
        return -1
    first = load_u32(at)
    at = unpack(at + 5, stop, np.int64(load_u8(at + 4)), lanes, documents)
    scored = lanes == 4
    if at < 0 or stop - at < 2 - scored:
        return -1
    store_u32(documents, first)
    bits = np.int64(load_u8(at))
    exceptions = 0
    if not scored:
        exceptions = np.int64(load_u8(at + 1))
    at = unpack(at + 2 - scored, stop, bits, lanes, frequencies)
    for _ in range(exceptions):
        if at < 0 or at >= stop:
            return -1
        into = frequencies + np.int64(load_u8(at)) * 4
        end = varint_end(at + 1, stop)
        if end < 0:
            return -1
        upper = varint(at + 1, end)
        if upper > (MAX_NUMBER >> bits):
            return -1
        store_u32(into, np.uint32(np.int64(load_u32(into)) | (upper << bits)))
        at = end
    return at


@kernel
def decode_list(
    data: int, offsets: int, blocks: int, length: int, block: int, fixed_tail: int, limit: int,
    documents: int, frequencies: int,
) -> int:  # fmt: skip
    """Decode one list; all blocks but the last are full. Return the bad block, or ``blocks``.

    The byte strings of blocks begin and end at ``offsets``. ``documents`` and ``frequencies`` are
    ``uint32`` arrays of ``length`` items; documents are below ``limit``.
    """
    lanes = block // LANE
    scored = lanes == 4
    before = -1
    for number in range(blocks):
        at = data + load_i64(offsets + number * 8)
        stop = data + load_i64(offsets + number * 8 + 8)
        first = number * block
        count = min(block, length - first)
        into, often = documents + first * 4, frequencies + first * 4
        prefix = 4 if scored or (count < block and fixed_tail) else 0
        if stop - at < prefix:
            return number
        absolute = 0
        if count == block:
            at = full_block(at + prefix, stop, lanes, into, often)
        else:
            at = numbers(at + prefix, stop, count, fixed_tail, into)
            if at >= 0:
                at = numbers(at, stop, count, fixed_tail, often)
            absolute = fixed_tail
        if at != stop:
            return number
        document = 0
        for i in range(count):
            step = np.int64(load_u32(into + i * 4))
            document = step if absolute else document + step
            if document <= before or document >= limit or load_u32(often + i * 4) == 0:
                return number
            store_u32(into + i * 4, np.uint32(document))
            before = document
    return blocks


@kernel
def postings(
    data: int, offsets: int, starts: int, lists: int, block: int, fixed_tail: int, limit: int,
    documents: int, frequencies: int,
) -> int:  # fmt: skip
    """Decode lists whose documents begin and end at ``starts``. Return the bad list, or ``lists``.

    The wrapper has counted the blocks. Other arguments are as for :func:`decode_list`.
    """
    for one in range(lists):
        first = load_i64(starts + one * 8)
        length = load_i64(starts + one * 8 + 8) - first
        blocks = (length + block - 1) // block
        bad = decode_list(
            data, offsets, blocks, length, block, fixed_tail, limit, documents + first * 4,
            frequencies + first * 4,
        )  # fmt: skip
        if bad != blocks:
            return one
        offsets += blocks * 8
    return lists


@kernel
def positions(
    data: int, offsets: int, counts: int, blocks: int, group: int, frequencies: int, into: int
) -> int:
    """Decode the positions of blocks of so many documents. Return the bad block, or ``blocks``.

    ``frequencies`` and ``into`` are ``uint32`` arrays. The wrapper has summed the frequencies and
    allocated as many items.
    """
    document = 0
    target = into
    for number in range(blocks):
        at = data + load_i64(offsets + number * 8)
        stop = data + load_i64(offsets + number * 8 + 8)
        count = load_i64(counts + number * 8)
        left = 0
        for i in range(count):
            left += np.int64(load_u32(frequencies + (document + i) * 4))
        begin = target
        while left >= group:
            if at >= stop:
                return number
            at = unpack(at + 1, stop, np.int64(load_u8(at)), 4, target)
            if at < 0:
                return number
            target += group * 4
            left -= group
        if numbers(at, stop, left, 0, target) != stop:
            return number
        target += left * 4
        # Steps within each document become positions.
        here = begin
        for _ in range(count):
            position = 0
            for _ in range(np.int64(load_u32(frequencies + document * 4))):
                position += np.int64(load_u32(here))
                if position > MAX_NUMBER:
                    return number
                store_u32(here, np.uint32(position))
                here += 4
            document += 1
    return blocks


# --- The best documents found so far, as a heap in two arrays: scores, and documents ----
#
# Its root is the worst document: the lowest score, and of equal scores the highest document.


@kernel
def is_worse(scores: int, documents: int, first: int, second: int) -> bool:
    """Return whether the first entry of the heap is worse than the second."""
    left, right = load_f32(scores + first * 4), load_f32(scores + second * 4)
    if left != right:
        return left < right
    return load_u32(documents + first * 4) > load_u32(documents + second * 4)


@kernel
def swap(scores: int, documents: int, first: int, second: int) -> None:
    """Exchange two entries of the heap."""
    score, document = load_f32(scores + first * 4), load_u32(documents + first * 4)
    store_f32(scores + first * 4, load_f32(scores + second * 4))
    store_u32(documents + first * 4, load_u32(documents + second * 4))
    store_f32(scores + second * 4, score)
    store_u32(documents + second * 4, document)


@kernel
def push(
    scores: int, documents: int, size: int, max_hits: int, score: np.float32, document: int
) -> int:
    """Add a document, in place of the worst one if there are ``max_hits``; return how many."""
    at = size
    if size < max_hits:
        store_f32(scores + at * 4, score)
        store_u32(documents + at * 4, np.uint32(document))
        while at > 0 and is_worse(scores, documents, at, (at - 1) >> 1):
            swap(scores, documents, at, (at - 1) >> 1)
            at = (at - 1) >> 1
        return size + 1
    at = 0
    store_f32(scores, score)
    store_u32(documents, np.uint32(document))
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and is_worse(scores, documents, child + 1, child):
            child += 1
        if not is_worse(scores, documents, child, at):
            break
        swap(scores, documents, child, at)
        at = child
    return size


@kernel
def threshold_of(scores: int, size: int, max_hits: int, floor: np.float32) -> np.float32:
    """Return the score that a document has to exceed."""
    if size < max_hits:
        return floor
    return max(floor, load_f32(scores))


BLOCK = 64
"""Documents of a block that has a bound."""
WINDOW = 1024
"""Documents whose scores are summed at a time."""
NEAR_DOCUMENTS = 12
"""Documents that a search tests one by one before it skips blocks."""
TERM = offsets_of(TermEntry)
TERM_BYTES = 8 * len(TERM)
PHRASE = offsets_of(PhraseEntry)
PHRASE_BYTES = 8 * len(PHRASE)
SPARSE_SHARE = 6
"""A window with less than one document in so many is searched document by document."""
MAX_SPARSE_TERMS = 4
"""Maximum terms of a search document by document."""
NO_DOCUMENT = 1 << 40
"""A number above all documents."""
ROUNDING_MARGIN = 1.0 + 1e-12


@kernel
def seek(entry: int, cursor: int, document: int) -> int:
    """Return the place of the first document of a list, from ``cursor`` on, that is ≥ another."""
    documents, lasts = load_i64(entry + TERM.documents), load_i64(entry + TERM.lasts)
    length = load_i64(entry + TERM.length)
    near = min(length, cursor + NEAR_DOCUMENTS)
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
    """Return the document at a place of a list; after its end, a number above all documents."""
    if cursor >= load_i64(entry + TERM.length):
        return NO_DOCUMENT
    return np.int64(load_u32(load_i64(entry + TERM.documents) + cursor * 4))


@kernel
def weight_at(entry: int, cursor: int) -> float:
    """Return the weight of the document at a place of a list."""
    return np.float64(load_f32(load_i64(entry + TERM.weights) + cursor * 4))


@kernel
def best_between(entry: int, cursor: int, stop: int) -> float:
    """Return the best weight of the blocks from ``cursor`` on that begin before ``stop``."""
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
    """Return whether a search may find a document."""
    if document >= limit:
        return False
    return allowed == 0 or load_u8(allowed + document) != 0


@kernel
def add_weak_scores(
    lists: int, factors: int, cursors: int, order: int, sums: int, weak: int, document: int,
    score: float, threshold: np.float32,
) -> float:  # fmt: skip
    """Add the scores of the first ``weak`` terms of the order; 0 once the sum stays too low."""
    for i in range(weak - 1, -1, -1):
        if np.float32((score + load_f64(sums + (i + 1) * 8)) * ROUNDING_MARGIN) <= threshold:
            return 0.0
        term = load_i64(order + i * 8)
        entry = lists + term * TERM_BYTES
        cursor = seek(entry, load_i64(cursors + term * 8), document)
        store_u64(cursors + term * 8, cursor)
        if document_at(entry, cursor) == document:
            score += load_f64(factors + term * 8) * weight_at(entry, cursor)
    return score


@kernel
def sort_bounds(bounds: int, order: int, sums: int, terms: int) -> None:
    """Put terms in ascending order of their bounds, and store the sum of bounds before each."""
    for i in range(terms):
        bound = load_f64(bounds + i * 8)
        j = i
        while j > 0 and load_f64(bounds + load_i64(order + (j - 1) * 8) * 8) > bound:
            store_u64(order + j * 8, load_i64(order + (j - 1) * 8))
            j -= 1
        store_u64(order + j * 8, i)
    total = 0.0
    store_f64(sums, total)
    for i in range(terms):
        total += load_f64(bounds + load_i64(order + i * 8) * 8)
        store_f64(sums + (i + 1) * 8, total)


@kernel
def is_sparse(lists: int, order: int, weak: int, terms: int, limit: int) -> bool:
    """Return whether the terms from ``weak`` on have few documents, by their average."""
    room = limit // SPARSE_SHARE
    for i in range(weak, terms):
        length = load_i64(lists + load_i64(order + i * 8) * TERM_BYTES + TERM.length)
        if length > room:
            return False
        room -= length
    return terms - weak <= MAX_SPARSE_TERMS


@kernel
def top_any(
    lists: int, terms: int, factors: int, allowed: int, limit: int, max_hits: int, scores: int,
    documents: int, cursors: int, order: int, bounds: int, sums: int, window: int,
) -> int:  # fmt: skip
    """Find the best documents that have any of the terms; return how many.

    ``lists`` has a ``TermEntry`` for each term. ``factors``, ``bounds`` and ``sums`` are
    ``float64`` arrays; the score to exceed follows the factors. ``allowed`` has a byte for each of
    ``limit`` documents, or is 0. ``window`` has a ``float64`` of 0 for each document of a window;
    ``sums`` has an item more than there are terms.

    For each window of documents, some terms have bounds whose sum is below the worst score found.
    The search looks these ``weak`` terms up only for documents of the other terms.
    """
    size = 0
    floor = np.float32(load_f64(factors + terms * 8))
    threshold = floor
    low = 0
    while True:
        start = NO_DOCUMENT
        for term in range(terms):
            entry = lists + term * TERM_BYTES
            cursor = seek(entry, load_i64(cursors + term * 8), low)
            store_u64(cursors + term * 8, cursor)
            start = min(start, document_at(entry, cursor))
        if start == NO_DOCUMENT:
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
        weak = 0
        while (
            weak < terms
            and np.float32(load_f64(sums + (weak + 1) * 8) * ROUNDING_MARGIN) <= threshold
        ):
            weak += 1
        rest = load_f64(sums + weak * 8)
        if weak == terms - 1:
            term = load_i64(order + weak * 8)
            entry, factor = lists + term * TERM_BYTES, load_f64(factors + term * 8)
            cursor = load_i64(cursors + term * 8)
            weights, bests = load_i64(entry + TERM.weights), load_i64(entry + TERM.bests)
            stop_at = seek(entry, cursor, stop)
            while cursor < stop_at:
                end = min(stop_at, (cursor // BLOCK + 1) * BLOCK)
                best = np.float64(load_f32(bests + (cursor // BLOCK) * 4))
                if np.float32((factor * best + rest) * ROUNDING_MARGIN) <= threshold:
                    cursor = end
                    continue
                # Weights up to this one are too low.
                cut = np.float32((np.float64(threshold) - rest) / factor * (1.0 - 1e-6))
                while cursor < end:
                    if load_f32(weights + cursor * 4) <= cut:
                        cursor += 1
                        continue
                    document, score = document_at(entry, cursor), factor * weight_at(entry, cursor)
                    cursor += 1
                    if not is_allowed(allowed, limit, document):
                        continue
                    if weak:
                        score = add_weak_scores(
                            lists, factors, cursors, order, sums, weak, document, score, threshold
                        )
                    if np.float32(score) > threshold:
                        size = push(scores, documents, size, max_hits, np.float32(score), document)
                        threshold = threshold_of(scores, size, max_hits, floor)
                        cut = np.float32((np.float64(threshold) - rest) / factor * (1.0 - 1e-6))
        elif weak < terms and is_sparse(lists, order, weak, terms, limit):
            while True:
                document = NO_DOCUMENT
                for i in range(weak, terms):
                    term = load_i64(order + i * 8)
                    cursor = load_i64(cursors + term * 8)
                    document = min(document, document_at(lists + term * TERM_BYTES, cursor))
                if document >= stop:
                    break
                score = 0.0
                for i in range(weak, terms):
                    term = load_i64(order + i * 8)
                    entry, cursor = lists + term * TERM_BYTES, load_i64(cursors + term * 8)
                    if document_at(entry, cursor) == document:
                        score += load_f64(factors + term * 8) * weight_at(entry, cursor)
                        store_u64(cursors + term * 8, cursor + 1)
                if np.float32((score + rest) * ROUNDING_MARGIN) <= threshold:
                    continue
                if not is_allowed(allowed, limit, document):
                    continue
                if weak:
                    score = add_weak_scores(
                        lists, factors, cursors, order, sums, weak, document, score, threshold
                    )
                if np.float32(score) > threshold:
                    size = push(scores, documents, size, max_hits, np.float32(score), document)
                    threshold = threshold_of(scores, size, max_hits, floor)
        elif weak < terms:
            for i in range(weak, terms):
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
                if np.float32((score + rest) * ROUNDING_MARGIN) <= threshold:
                    continue
                document = low + place
                if not is_allowed(allowed, limit, document):
                    continue
                if weak:
                    score = add_weak_scores(
                        lists, factors, cursors, order, sums, weak, document, score, threshold
                    )
                if np.float32(score) > threshold:
                    size = push(scores, documents, size, max_hits, np.float32(score), document)
                    threshold = threshold_of(scores, size, max_hits, floor)
        low = stop


@kernel
def has_phrase(
    phrase: int, terms: int, cursors: int, reached: int, capacity: int, slop: int
) -> bool:
    """Return whether the terms follow each other in a document, with at most ``slop`` gaps each.

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
            store_u64(after + new * 8, here)
            new += 1
        if new == 0:
            return False
        count = new
    return True


@kernel
def top_all(
    lists: int, terms: int, factors: int, allowed: int, limit: int, max_hits: int, scores: int,
    documents: int, cursors: int, bounds: int, phrase: int, phrase_terms: int, reached: int,
    capacity: int, slop: int,
) -> int:  # fmt: skip
    """Find the best documents that have all of the terms; return how many.

    Arguments as for :func:`top_any`. ``phrase`` has a ``PhraseEntry`` for each of ``phrase_terms``;
    ``reached`` has room for twice ``capacity`` numbers.

    The first list leads; the search skips its blocks where the sum of all bounds is too low.
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
            store_u64(cursors + term * 8, cursor)
            bound += load_f64(factors + term * 8) * best_between(entry, cursor, high + 1)
            store_f64(bounds + (term - 1) * 8, bound)
        best = np.float64(load_f32(load_i64(lists + TERM.bests) + (first // BLOCK) * 4))
        if np.float32((lead * best + bound) * ROUNDING_MARGIN) <= threshold:
            first = end
            continue
        for at in range(first, end):
            document = np.int64(load_u32(own + at * 4))
            score = lead * weight_at(lists, at)
            found = np.float32((score + bound) * ROUNDING_MARGIN) > threshold
            for term in range(1, terms):
                if not found:
                    break
                entry = lists + term * TERM_BYTES
                cursor = seek(entry, load_i64(cursors + term * 8), document)
                store_u64(cursors + term * 8, cursor)
                if document_at(entry, cursor) != document:
                    found = False
                    break
                score += load_f64(factors + term * 8) * weight_at(entry, cursor)
                rest = load_f64(bounds + term * 8)
                found = np.float32((score + rest) * ROUNDING_MARGIN) > threshold
            if not found or np.float32(score) <= threshold:
                continue
            if not is_allowed(allowed, limit, document):
                continue
            if phrase_terms:
                store_u64(cursors, at)
                if not has_phrase(phrase, phrase_terms, cursors, reached, capacity, slop):
                    continue
            size = push(scores, documents, size, max_hits, np.float32(score), document)
            threshold = threshold_of(scores, size, max_hits, floor)
        first = end
    return size


# --- Kernels that find tokens in texts. Wrappers: ``glaive.kernels.text_search`` -------

CHARACTERS = 0x110000


@kernel
def _size_of(lead: int) -> int:
    """Return the bytes of the character that begins with ``lead``, 1 for other bytes."""
    if lead < 0xC0:
        return 1
    if lead < 0xE0:
        return 2
    if lead < 0xF0:
        return 3
    return 4 if lead < 0xF8 else 1


@kernel
def _is_wide_part(at: int, size: int, parts: int) -> bool:
    """Return whether the character of ``size`` bytes from ``at`` is part of a token."""
    lead = np.int64(load_u8(at))
    if size == 1:
        return False
    number = lead & (0x7F >> size)
    for i in range(1, size):
        number = (number << 6) | (np.int64(load_u8(at + i)) & 0x3F)
    if number >= CHARACTERS:
        return False
    return (np.int64(load_u8(parts + (number >> 3))) >> (number & 7)) & 1 == 1


@kernel
def find_tokens(
    offsets: int, width: int, data: int, documents: int, parts: int, starts: int, sizes: int,
    counts: int,
) -> int:  # fmt: skip
    """Find the longest runs of characters that are parts of tokens; return how many.

    Characters that leave their text, and invalid bytes, end a token. There is room for half of the
    bytes and of the documents, rounded up.
    """
    low, high = load_u64(parts), load_u64(parts + 8)
    found = np.int64(0)
    at = arrow_offset(offsets, width, 0)
    for document in range(documents):
        stop = arrow_offset(offsets, width, document + 1)
        before = found
        start = np.int64(-1)
        while at < stop:
            lead = np.int64(load_u8(data + at))
            size = np.int64(1)
            if lead < 128:
                word = low if lead < 64 else high
                part = (word >> np.uint64(lead & 63)) & np.uint64(1) != np.uint64(0)
            else:
                size = _size_of(lead)
                if size > stop - at:
                    size = np.int64(1)
                part = _is_wide_part(data + at, size, parts)
            if part:
                if start < 0:
                    start = at
            elif start >= 0:
                store_u64(starts + 8 * found, start)
                store_u32(sizes + 4 * found, at - start)
                found += 1
                start = np.int64(-1)
            at += size
        if start >= 0:
            store_u64(starts + 8 * found, start)
            store_u32(sizes + 4 * found, stop - start)
            found += 1
        store_u64(counts + 8 * document, found - before)
    return found
