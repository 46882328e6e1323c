"""Posting lists: the documents of a token with frequencies, in blocks; many lists at a time.

Specification: "Postings" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.buffers import spread
from glaive.errors import CorruptFileError
from glaive.index.segment import batches
from glaive.index.text.bit_blocks import MAX_BITS, bits_of, pack, unpack
from glaive.index.text.posting_layout import PostingLayout
from glaive.index.text.varints import MAX_VARINT, decode_varints, encode_varints
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, Int64s, UInt8s, UInt32s

__all__ = [
    "WINDOW",
    "Blocks",
    "Elements",
    "Postings",
    "blocks_of",
    "decode_postings",
    "encode_postings",
]

WINDOW: Final = 1 << 17
"""Postings, or positions, that are encoded or decoded at a time: each takes some hundred bytes."""

_MAX_FREQUENCY = 0xFFFF_FFFF
"""Largest frequency."""


class Elements(NamedTuple):
    """Byte strings one after the other: element i is ``data[offsets[i] : offsets[i + 1]]``."""

    offsets: Int64s
    data: UInt8s

    @classmethod
    def joined(cls, parts: Sequence[Elements]) -> Self:
        """The elements of several, one after the other."""
        sizes = [np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)]
        data = [np.zeros(0, np.uint8), *(part.data for part in parts)]
        return cls(np.cumsum(np.concatenate(sizes)), np.concatenate(data))

    def between(self, first: int, last: int) -> Elements:
        """Those from one number up to before another; no bytes are copied."""
        offsets = self.offsets[first : last + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        return Elements(offsets - begin, self.data[begin:end])


class Postings(NamedTuple):
    """Documents of all lists, one list after the other; list i begins at ``starts[i]``."""

    starts: Int64s
    documents: Int64s | UInt32s
    frequencies: Int64s | UInt32s


class Blocks(NamedTuple):
    """How lists are cut: documents and start of each block, and number of blocks per list."""

    sizes: Int64s
    begins: Int64s
    of_list: Int64s

    def windows(self) -> Iterator[tuple[slice, slice]]:
        """Blocks one after the other, and the postings in them, some at a time."""
        ends = self.begins[-1:] + self.sizes[-1:]
        bounds = np.concatenate((self.begins, ends))
        for first, last in batches(bounds, WINDOW):
            yield slice(first, last), slice(int(bounds[first]), int(bounds[last]))


def blocks_of(starts: Int64s, block: int) -> Blocks:
    """Cut lists into blocks of this many documents; the last block of a list may be shorter."""
    lengths = np.diff(starts)
    of_list = -(-lengths // block)
    number = spread(np.zeros(len(lengths), np.int64), of_list)
    begins = np.repeat(starts[:-1], of_list) + number * block
    sizes = np.minimum(np.repeat(starts[1:], of_list) - begins, block)
    return Blocks(sizes, begins, of_list)


def decode_postings(
    elements: Elements, starts: Int64s, layout: PostingLayout, where: object
) -> Postings:
    """Read the blocks of lists of known lengths; some hundred bytes of memory for each posting.

    Raises
    ------
    CorruptFileError
        A block has a wrong size or impossible values.
    """
    blocks = blocks_of(starts, layout.block)
    if len(blocks.sizes) != len(elements.offsets) - 1:
        raise _corrupt(f"{len(elements.offsets) - 1} blocks for {len(blocks.sizes)}", where)
    documents = np.zeros(int(starts[-1]), np.int64)
    frequencies = np.zeros(int(starts[-1]), np.int64)
    begins, ends = elements.offsets[:-1], elements.offsets[1:]
    full = np.flatnonzero(blocks.sizes == layout.block)
    full_blocks = _full(elements.data, begins[full], ends[full], layout, where)
    at = blocks.begins[full][:, None] + np.arange(layout.block)
    documents[at], frequencies[at] = full_blocks
    rest = np.flatnonzero(blocks.sizes < layout.block)
    sizes = blocks.sizes[rest]
    prefix = 4 if layout.scored or layout.fixed_tail else 0
    numbers = _tails(elements.data, begins[rest] + prefix, ends[rest], 2 * sizes, layout, where)
    # In each block: its documents, then as many frequencies.
    own = np.cumsum(2 * sizes) - 2 * sizes
    into = spread(blocks.begins[rest], sizes)
    read = numbers[spread(own, sizes)]
    documents[into] = read if layout.fixed_tail else _summed(read, sizes)
    frequencies[into] = numbers[spread(own + sizes, sizes)]
    _check(
        ((frequencies > 0) & (frequencies <= _MAX_FREQUENCY)).all(),
        "frequencies out of range",
        where,
    )
    ascends = np.diff(documents, prepend=-1) > 0
    ascends[starts[:-1][np.diff(starts) > 0]] = True
    _check(ascends.all(), "documents out of order", where)
    return Postings(starts, documents, frequencies)


def _full(
    data: UInt8s, begins: Int64s, ends: Int64s, layout: PostingLayout, where: object
) -> tuple[Int64s, Int64s]:
    """Documents and frequencies of full blocks."""
    at = begins + (4 if layout.scored else 0)
    unit = 4 * layout.lanes
    _check((at + 5 <= ends).all(), "a block without documents", where)
    first = data[at[:, None] + np.arange(4)].view("<u4").reshape(-1).astype(np.int64)
    bits = data[at + 4].astype(np.int64)
    packed = at + 5
    at = packed + bits * unit
    _check(
        (bits <= MAX_BITS).all() and (at + 2 <= ends).all(),
        "documents that exceed the block",
        where,
    )
    documents = first[:, None] + np.cumsum(unpack(data, packed, bits, layout.lanes), axis=1)
    bits = data[at].astype(np.int64)
    exceptions = np.zeros(len(at), np.int64) if layout.scored else data[at + 1].astype(np.int64)
    packed = at + (1 if layout.scored else 2)
    at = packed + bits * unit
    _check(
        (bits <= MAX_BITS).all() and (at <= ends).all(), "frequencies that exceed the block", where
    )
    frequencies = unpack(data, packed, bits, layout.lanes)
    for number in range(int(exceptions.max(initial=0))):
        blocks = np.flatnonzero(exceptions > number)
        at = _exception(data, at, ends, blocks, frequencies, bits, where)
    _check((at == ends).all(), "bytes after a block", where)
    return documents, frequencies


def _exception(
    data: UInt8s,
    at: Int64s,
    ends: Int64s,
    blocks: Int64s,
    frequencies: Int64s,
    bits: Int64s,
    where: object,
) -> Int64s:
    """Add the upper bits of one frequency in each of some blocks; returns the next positions."""
    _check((at[blocks] + 2 <= ends[blocks]).all(), "exceptions that exceed the block", where)
    index = data[at[blocks]].astype(np.int64)
    value, at = np.zeros(len(blocks), np.int64), at.copy()
    at[blocks] += 1
    more = np.ones(len(blocks), np.bool_)
    for byte in range(5):
        unfinished = blocks[more]
        _check((at[unfinished] < ends[unfinished]).all(), "exceptions that exceed the block", where)
        read = data[at[unfinished]].astype(np.int64)
        value[more] |= (read & 127) << (7 * byte)
        at[unfinished] += 1
        more[more] = read > 127
    _check(not more.any(), "exceptions that are too long", where)
    frequencies[blocks, index] |= value << bits[blocks]
    return at


def _tails(
    data: UInt8s, begins: Int64s, ends: Int64s, counts: Int64s, layout: PostingLayout, where: object
) -> Int64s:
    """The integers of the last blocks, one block after the other."""
    _check((begins <= ends).all(), "a block without documents", where)
    if layout.fixed_tail:
        _check((ends - begins == 4 * counts).all(), "a last block of another size", where)
        return data[spread(begins, ends - begins)].view("<u4").astype(np.int64)
    sizes = ends - begins
    _check((sizes <= MAX_VARINT * counts).all(), "a last block of another size", where)
    decoded = decode_varints(data[spread(begins, sizes)])
    if decoded is None:
        raise _corrupt("varints that are not terminated", where)
    numbers, stops = decoded
    # Every block ends with the last of its integers.
    good = len(numbers) == int(counts.sum())
    _check(good and (stops[np.cumsum(counts) - 1] == np.cumsum(sizes)).all(), "other counts", where)
    return numbers


def _summed(deltas: Int64s, sizes: Int64s) -> Int64s:
    """Running sums that restart after each of ``sizes`` values."""
    sums = np.cumsum(deltas)
    ends = np.cumsum(sizes)
    before = np.concatenate([[0], sums])[ends - sizes]
    running_sums: Int64s = sums - np.repeat(before, sizes)
    return running_sums


def encode_postings(postings: Postings, best: Float32s, layout: PostingLayout) -> Elements:
    """Encode lists in blocks; ``best`` are the best scores of the blocks."""
    parts: list[Elements] = []
    blocks = blocks_of(postings.starts, layout.block)
    for some, within in blocks.windows():
        begins = blocks.begins[some] - within.start
        documents = postings.documents[within].astype(np.int64)
        frequencies = postings.frequencies[within].astype(np.int64)
        window = Blocks(blocks.sizes[some], begins, blocks.of_list)
        parts.append(_encoded(Postings(begins, documents, frequencies), window, best[some], layout))
    return Elements.joined(parts)


def _encoded(postings: Postings, blocks: Blocks, best: Float32s, layout: PostingLayout) -> Elements:
    """Encode some blocks."""
    full = np.flatnonzero(blocks.sizes == layout.block)
    rest = np.flatnonzero(blocks.sizes < layout.block)
    deltas = np.diff(postings.documents, prepend=0)
    at = blocks.begins[full][:, None] + np.arange(layout.block)
    steps, often = deltas[at], postings.frequencies[at]
    steps[:, 0] = 0
    widths = bits_of(steps), bits_of(often)
    unit = 4 * layout.lanes
    sizes = np.zeros(len(blocks.sizes), np.int64)
    header = (4 if layout.scored else 0) + 5
    plan = None if layout.scored else _patched(often, widths[1])
    low = widths[1] if plan is None else plan.bits
    sizes[full] = header + unit * widths[0] + (1 if plan is None else 2) + unit * low
    if plan is not None:
        sizes[full] += plan.sizes
    tail, tail_sizes = _tail_bytes(postings, blocks, rest, deltas, layout)
    prefix = 4 if layout.scored or layout.fixed_tail else 0
    sizes[rest] = tail_sizes + prefix
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    begins = offsets[:-1]
    scored = np.concatenate([full if layout.scored else full[:0], rest if prefix else rest[:0]])
    data[begins[scored][:, None] + np.arange(4)] = _bytes(best[scored], "<f4")
    at = begins[full] + header - 5
    data[at[:, None] + np.arange(4)] = _bytes(postings.documents[blocks.begins[full]], "<u4")
    data[at + 4] = widths[0]
    pack(steps, widths[0], data, at + 5, layout.lanes)
    at = at + 5 + unit * widths[0]
    data[at] = low
    if plan is None:
        pack(often, low, data, at + 1, layout.lanes)
    else:
        data[at + 1] = plan.counts
        pack(often & ((np.int64(1) << low) - 1)[:, None], low, data, at + 2, layout.lanes)
        data[spread(at + 2 + unit * low, plan.sizes)] = plan.data
    data[spread(begins[rest] + prefix, tail_sizes)] = tail
    return Elements(offsets, data)


class _Patches(NamedTuple):
    """Bits of the packed lower parts, and the exceptions: bytes of upper parts that do not fit."""

    bits: Int64s
    counts: Int64s
    sizes: Int64s
    data: UInt8s


def _patched(often: Int64s, widths: Int64s) -> _Patches:
    """Choose the bits of each block that need the fewest bytes, exceptions included."""
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
    postings: Postings, blocks: Blocks, rest: Int64s, deltas: Int64s, layout: PostingLayout
) -> tuple[UInt8s, Int64s]:
    """Bytes of the last blocks one after the other, and how many each has."""
    sizes = blocks.sizes[rest]
    numbers = np.zeros(2 * int(sizes.sum()), np.int64)
    own = np.cumsum(2 * sizes) - 2 * sizes
    source = spread(blocks.begins[rest], sizes)
    documents = postings.documents[source] if layout.fixed_tail else deltas[source]
    first = np.cumsum(sizes) - sizes
    documents[first] = postings.documents[blocks.begins[rest]]
    numbers[spread(own, sizes)] = documents
    numbers[spread(own + sizes, sizes)] = postings.frequencies[source]
    if layout.fixed_tail:
        return numbers.astype("<u4").view(np.uint8), 8 * sizes
    data, lengths = encode_varints(numbers)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return data, ends[own + 2 * sizes] - ends[own]


def _bytes(values: NDArray[np.generic], dtype: str) -> UInt8s:
    """Four bytes of each value."""
    return values.astype(dtype).view(np.uint8).reshape(-1, 4)


def _check(good: object, found: str, where: object) -> None:
    if not good:
        raise _corrupt(found, where)


def _corrupt(found: str, where: object) -> CorruptFileError:
    return CorruptFileError("postings of an index", expected="blocks", found=found, where=where)
