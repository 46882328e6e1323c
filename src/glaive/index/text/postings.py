"""Which documents have a token, and how often: lists cut into blocks, many lists at a time.

Specification: "Postings" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.index.text.bit_blocks import MOST_BITS, bits_of, pack, unpack
from glaive.index.text.form import Form
from glaive.index.text.varints import decode_varints, encode_varints, spread

__all__ = ["Blocks", "Elements", "Postings", "blocks_of", "decode_postings", "encode_postings"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


_MOST = 0xFFFF_FFFF
"""Largest frequency."""


class Elements(NamedTuple):
    """Byte strings one after the other: element i is ``data[offsets[i] : offsets[i + 1]]``."""

    offsets: Ints
    data: Bytes


class Postings(NamedTuple):
    """Documents of lists, one after the other: those of list i from ``starts[i]`` on."""

    starts: Ints
    documents: Ints
    frequencies: Ints


class Blocks(NamedTuple):
    """How lists are cut: documents of each block, where they begin, and blocks of each list."""

    sizes: Ints
    begins: Ints
    of_list: Ints


def blocks_of(starts: Ints, block: int) -> Blocks:
    """Cut lists into blocks of this many documents, and what is left of each."""
    lengths = np.diff(starts)
    of_list = -(-lengths // block)
    number = spread(np.zeros(len(lengths), np.int64), of_list)
    begins = np.repeat(starts[:-1], of_list) + number * block
    sizes = np.minimum(np.repeat(starts[1:], of_list) - begins, block)
    return Blocks(sizes, begins, of_list)


def decode_postings(elements: Elements, starts: Ints, form: Form, where: object) -> Postings:
    """Read the blocks of lists of known lengths.

    Raises
    ------
    CorruptFileError
        A block has another size or other numbers than it can have.
    """
    blocks = blocks_of(starts, form.block)
    if len(blocks.sizes) != len(elements.offsets) - 1:
        raise _corrupt(f"{len(elements.offsets) - 1} blocks for {len(blocks.sizes)}", where)
    documents = np.zeros(int(starts[-1]), np.int64)
    frequencies = np.zeros(int(starts[-1]), np.int64)
    begins, ends = elements.offsets[:-1], elements.offsets[1:]
    full = np.flatnonzero(blocks.sizes == form.block)
    found = _full(elements.data, begins[full], ends[full], form, where)
    at = blocks.begins[full][:, None] + np.arange(form.block)
    documents[at], frequencies[at] = found
    rest = np.flatnonzero(blocks.sizes < form.block)
    sizes = blocks.sizes[rest]
    prefix = 4 if form.scored or form.fixed_tail else 0
    numbers = _tails(elements.data, begins[rest] + prefix, ends[rest], 2 * sizes, form, where)
    # Of each: its documents, then as many frequencies.
    own = np.cumsum(2 * sizes) - 2 * sizes
    into = spread(blocks.begins[rest], sizes)
    read = numbers[spread(own, sizes)]
    documents[into] = read if form.fixed_tail else _summed(read, sizes)
    frequencies[into] = numbers[spread(own + sizes, sizes)]
    _check(((frequencies > 0) & (frequencies <= _MOST)).all(), "frequencies of none", where)
    ascends = np.diff(documents, prepend=-1) > 0
    ascends[starts[:-1][np.diff(starts) > 0]] = True
    _check(ascends.all(), "documents out of order", where)
    return Postings(starts, documents, frequencies)


def _full(data: Bytes, begins: Ints, ends: Ints, form: Form, where: object) -> tuple[Ints, Ints]:
    """Documents and frequencies of full blocks."""
    at = begins + (4 if form.scored else 0)
    unit = 4 * form.lanes
    _check((at + 5 <= ends).all(), "a block without documents", where)
    first = data[at[:, None] + np.arange(4)].view("<u4").reshape(-1).astype(np.int64)
    bits = data[at + 4].astype(np.int64)
    packed = at + 5
    at = packed + bits * unit
    _check((bits <= MOST_BITS).all() and (at + 2 <= ends).all(), "documents that run over", where)
    documents = first[:, None] + np.cumsum(unpack(data, packed, bits, form.lanes), axis=1)
    bits = data[at].astype(np.int64)
    exceptions = np.zeros(len(at), np.int64) if form.scored else data[at + 1].astype(np.int64)
    packed = at + (1 if form.scored else 2)
    at = packed + bits * unit
    _check((bits <= MOST_BITS).all() and (at <= ends).all(), "frequencies that run over", where)
    frequencies = unpack(data, packed, bits, form.lanes)
    for number in range(int(exceptions.max(initial=0))):
        some = np.flatnonzero(exceptions > number)
        at = _exception(data, at, ends, some, frequencies, bits, where)
    _check((at == ends).all(), "bytes behind a block", where)
    return documents, frequencies


def _exception(
    data: Bytes, at: Ints, ends: Ints, some: Ints, frequencies: Ints, bits: Ints, where: object
) -> Ints:
    """Add the upper bits of one frequency of each of some blocks; returns where the next are."""
    _check((at[some] + 2 <= ends[some]).all(), "exceptions that run over", where)
    index = data[at[some]].astype(np.int64)
    value, at = np.zeros(len(some), np.int64), at.copy()
    at[some] += 1
    more = np.ones(len(some), np.bool_)
    for byte in range(5):
        left = some[more]
        _check((at[left] < ends[left]).all(), "exceptions that run over", where)
        read = data[at[left]].astype(np.int64)
        value[more] |= (read & 127) << (7 * byte)
        at[left] += 1
        more[more] = read > 127
    _check(not more.any(), "exceptions that are too long", where)
    frequencies[some, index] |= value << bits[some]
    return at


def _tails(data: Bytes, begins: Ints, ends: Ints, counts: Ints, form: Form, where: object) -> Ints:
    """The numbers of the last blocks, one block after the other."""
    _check((begins <= ends).all(), "a block without documents", where)
    if form.fixed_tail:
        _check((ends - begins == 4 * counts).all(), "a last block of another size", where)
        return data[spread(begins, ends - begins)].view("<u4").astype(np.int64)
    sizes = ends - begins
    decoded = decode_varints(data[spread(begins, sizes)])
    if decoded is None:
        raise _corrupt("numbers that do not end", where)
    numbers, stops = decoded
    # Every block ends with the last of its numbers.
    good = len(numbers) == int(counts.sum())
    _check(good and (stops[np.cumsum(counts) - 1] == np.cumsum(sizes)).all(), "other counts", where)
    return numbers


def _summed(deltas: Ints, sizes: Ints) -> Ints:
    """Running sums that restart after each of ``sizes`` numbers."""
    sums = np.cumsum(deltas)
    ends = np.cumsum(sizes)
    before = np.concatenate([[0], sums])[ends - sizes]
    found: Ints = sums - np.repeat(before, sizes)
    return found


def encode_postings(postings: Postings, best: Floats, form: Form) -> Elements:
    """Blocks of lists; ``best`` are the best scores of the blocks."""
    blocks = blocks_of(postings.starts, form.block)
    full = np.flatnonzero(blocks.sizes == form.block)
    rest = np.flatnonzero(blocks.sizes < form.block)
    deltas = np.diff(postings.documents, prepend=0)
    at = blocks.begins[full][:, None] + np.arange(form.block)
    steps, often = deltas[at], postings.frequencies[at]
    steps[:, 0] = 0
    widths = bits_of(steps), bits_of(often)
    unit = 4 * form.lanes
    sizes = np.zeros(len(blocks.sizes), np.int64)
    header = (4 if form.scored else 0) + 5
    plan = None if form.scored else _patched(often, widths[1])
    low = widths[1] if plan is None else plan.bits
    sizes[full] = header + unit * widths[0] + (1 if plan is None else 2) + unit * low
    if plan is not None:
        sizes[full] += plan.sizes
    tail, tail_sizes = _tail_bytes(postings, blocks, rest, deltas, form)
    prefix = 4 if form.scored or form.fixed_tail else 0
    sizes[rest] = tail_sizes + prefix
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    begins = offsets[:-1]
    scored = np.concatenate([full if form.scored else full[:0], rest if prefix else rest[:0]])
    data[begins[scored][:, None] + np.arange(4)] = _bytes(best[scored], "<f4")
    at = begins[full] + header - 5
    data[at[:, None] + np.arange(4)] = _bytes(postings.documents[blocks.begins[full]], "<u4")
    data[at + 4] = widths[0]
    pack(steps, widths[0], data, at + 5, form.lanes)
    at = at + 5 + unit * widths[0]
    data[at] = low
    if plan is None:
        pack(often, low, data, at + 1, form.lanes)
    else:
        data[at + 1] = plan.counts
        pack(often & ((np.int64(1) << low) - 1)[:, None], low, data, at + 2, form.lanes)
        data[spread(at + 2 + unit * low, plan.sizes)] = plan.data
    data[spread(begins[rest] + prefix, tail_sizes)] = tail
    return Elements(offsets, data)


class _Patches(NamedTuple):
    """Bits of the lower parts, and bytes of the upper ones that do not fit."""

    bits: Ints
    counts: Ints
    sizes: Ints
    data: Bytes


def _patched(often: Ints, widths: Ints) -> _Patches:
    """The bits of each block with which it takes the fewest bytes."""
    rows, block = often.shape
    best, cost = widths.copy(), block // 8 * widths
    for bits in range(int(widths.max(initial=0)) - 1, -1, -1):
        upper = often >> bits
        sizes = 2 * (upper > 0)
        for more in range(1, 5):
            sizes += upper >= np.int64(1) << (7 * more)
        total = sizes.sum(axis=1) + block // 8 * bits
        better = (total < cost) & (bits < widths) & ((upper > 0).sum(axis=1) < 256)
        best[better], cost[better] = bits, total[better]
    upper = often >> best[:, None]
    row, index = np.nonzero(upper)
    encoded, lengths = encode_varints(upper[row, index])
    sizes = np.bincount(row, lengths + 1, rows).astype(np.int64)
    data = np.zeros(int(sizes.sum()), np.uint8)
    begins = np.cumsum(lengths + 1) - (lengths + 1)
    data[begins] = index
    data[spread(begins + 1, lengths)] = encoded
    return _Patches(best, np.bincount(row, minlength=rows), sizes, data)


def _tail_bytes(
    postings: Postings, blocks: Blocks, rest: Ints, deltas: Ints, form: Form
) -> tuple[Bytes, Ints]:
    """Bytes of the last blocks one after the other, and how many each has."""
    sizes = blocks.sizes[rest]
    numbers = np.zeros(2 * int(sizes.sum()), np.int64)
    own = np.cumsum(2 * sizes) - 2 * sizes
    source = spread(blocks.begins[rest], sizes)
    documents = postings.documents[source] if form.fixed_tail else deltas[source]
    first = np.cumsum(sizes) - sizes
    documents[first] = postings.documents[blocks.begins[rest]]
    numbers[spread(own, sizes)] = documents
    numbers[spread(own + sizes, sizes)] = postings.frequencies[source]
    if form.fixed_tail:
        return numbers.astype("<u4").view(np.uint8), 8 * sizes
    data, lengths = encode_varints(numbers)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return data, ends[own + 2 * sizes] - ends[own]


def _bytes(values: NDArray[np.generic], kind: str) -> Bytes:
    """Four bytes of each value."""
    return values.astype(kind).view(np.uint8).reshape(-1, 4)


def _check(good: object, found: str, where: object) -> None:
    if not good:
        raise _corrupt(found, where)


def _corrupt(found: str, where: object) -> CorruptFileError:
    return CorruptFileError("postings of an index", expected="blocks", found=found, where=where)
