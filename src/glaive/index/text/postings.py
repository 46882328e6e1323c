"""Posting lists: the documents of a token with frequencies, in blocks.

Specification: "Postings" in ``docs/format/text-postings.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import number_array, spread
from glaive.arrow.chunked import as_numpy, one_array
from glaive.dataclass import NamedTuple
from glaive.errors import CapacityError, CorruptFileError
from glaive.index.segment import IndexFile, batches
from glaive.index.text.text_format import ELEMENT, PostingLayout
from glaive.index.text.tokens import token_columns
from glaive.kernels.text_search import decode_lists, decode_positions
from glaive.types import MAX_OFFSET, Float32s, Int64s, UInt8s, UInt32s, as_array, as_buffer

# --- Bit-packed blocks of 128 or 256 integers in 4 or 8 lanes ---------------------------
# Specification: "Numbers" in ``docs/format/text-postings.md``.

LANE: Final = 32
"""Integers of a lane in a block."""

MAX_BITS: Final = 32


def bits_of(values: Int64s) -> Int64s:
    """Return the bits of the largest integer of each row."""
    return bit_lengths(values.max(axis=1, initial=0))


def bit_lengths(values: Any) -> Int64s:
    """Return the bits of integers from 0 to 2^53 - 1."""
    lengths: Int64s = np.frexp(values)[1].astype(np.int64)
    return lengths


def unpack(data: UInt8s, starts: Int64s, bits: Int64s, lanes: int) -> Int64s:
    """Unpack the blocks that begin at ``starts`` to an array of shape (blocks, 32 * lanes).

    All blocks must lie within ``data``.
    """
    values = np.zeros((len(starts), LANE, lanes), np.int64)
    for width in np.unique(bits).tolist():
        if width:
            blocks = np.flatnonzero(bits == width)
            at = starts[blocks][:, None] + np.arange(width * lanes * 4)
            words = data[at].view("<u4").reshape(len(blocks), width, lanes).astype(np.uint64)
            first = np.arange(LANE) * width
            word, shift = first // 32, (first % 32).astype(np.uint64)[:, None]
            following = np.minimum(word + 1, width - 1)
            both = words[:, word] | words[:, following] << np.uint64(32)
            values[blocks] = (both >> shift) & np.uint64((1 << width) - 1)
    return values.reshape(len(starts), LANE * lanes)


def pack(values: Int64s, bits: Int64s, data: UInt8s, starts: Int64s, lanes: int) -> None:
    """Pack each row of 32 * lanes integers into ``data`` at its start."""
    numbers = values.reshape(len(values), LANE, lanes).astype(np.uint64)
    for width in np.unique(bits).tolist():
        if width:
            blocks = np.flatnonzero(bits == width)
            words = np.zeros((len(blocks), width + 1, lanes), np.uint64)
            for row in range(LANE):
                word, shift = divmod(row * width, 32)
                shifted = numbers[blocks, row] << np.uint64(shift)
                words[:, word] |= shifted & np.uint64(0xFFFF_FFFF)
                words[:, word + 1] |= shifted >> np.uint64(32)
            flat = words[:, :width].astype("<u4").reshape(len(blocks), -1).view(np.uint8)
            data[starts[blocks][:, None] + np.arange(width * lanes * 4)] = flat


# --- Varints (LEB128): seven bits per byte, lowest first --------------------------------
# The upper bit is set on all bytes except the last.
#
# Specification: "Numbers" in ``docs/format/text-postings.md``.


def varint_sizes(values: Int64s) -> Int64s:
    """Return the number of bytes of varints."""
    return np.maximum(1, -(-bit_lengths(values) // 7))


def encode_varints(values: Int64s) -> tuple[UInt8s, Int64s]:
    """Encode integers as adjacent varints; return the bytes, and the size of each varint."""
    sizes = varint_sizes(values)
    starts = np.cumsum(sizes) - sizes
    data = np.zeros(int(sizes.sum()), np.uint8)
    for at in range(int(sizes.max(initial=0))):
        more = sizes > at
        continues = (sizes[more] > at + 1).astype(np.int64) << 7
        data[starts[more] + at] = ((values[more] >> (7 * at)) & 127) | continues
    return data, sizes


WINDOW: Final = 1 << 17
"""Postings or positions to encode or decode at a time: each takes some hundred bytes."""


class Elements(NamedTuple):
    """Adjacent byte strings: element i is ``data[offsets[i] : offsets[i + 1]]``."""

    offsets: Int64s
    data: UInt8s

    @classmethod
    def joined(cls, parts: Sequence[Elements]) -> Self:
        """Concatenate the elements of several parts."""
        sizes = [np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)]
        data = [np.zeros(0, np.uint8), *(part.data for part in parts)]
        return cls(np.cumsum(np.concatenate(sizes)), np.concatenate(data))

    def between(self, first: int, last: int) -> Elements:
        """Return elements ``first`` to ``last``, exclusive, as a view."""
        offsets = self.offsets[first : last + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        return Elements(offsets - begin, self.data[begin:end])


class Postings(NamedTuple):
    """Documents of all lists, list by list; list i begins at ``starts[i]``."""

    starts: Int64s
    documents: Int64s | UInt32s
    frequencies: Int64s | UInt32s


class Blocks(NamedTuple):
    """Blocks of lists: size and start of each block, and number of blocks per list."""

    sizes: Int64s
    begins: Int64s
    of_list: Int64s

    def windows(self) -> Iterator[tuple[slice, slice]]:
        """Yield slices of adjacent blocks, and of their postings, some at a time."""
        ends = self.begins[-1:] + self.sizes[-1:]
        bounds = np.concatenate((self.begins, ends))
        for first, last in batches(bounds, WINDOW):
            yield slice(first, last), slice(int(bounds[first]), int(bounds[last]))


def blocks_of(starts: Int64s, block: int) -> Blocks:
    """Cut lists into blocks of ``block`` documents; the last block of a list may be shorter."""
    lengths = np.diff(starts)
    of_list = -(-lengths // block)
    number = spread(np.zeros(len(lengths), np.int64), of_list)
    begins = np.repeat(starts[:-1], of_list) + number * block
    sizes = np.minimum(np.repeat(starts[1:], of_list) - begins, block)
    return Blocks(sizes, begins, of_list)


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
    """Patched frequencies: bits of the packed low parts, and the bytes of exceptions."""

    bits: Int64s
    counts: Int64s
    sizes: Int64s
    data: UInt8s


def _patched(often: Int64s, widths: Int64s) -> _Patches:
    """Choose the bits of each block that need the fewest bytes, including exceptions."""
    rows, block = often.shape
    best, cost = widths.copy(), block // 8 * widths
    for bits in range(int(widths.max(initial=0)) - 1, -1, -1):
        upper = often >> bits
        sizes = np.where(upper > 0, 1 + varint_sizes(upper), 0)
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
    """Encode the last blocks of lists; return adjacent bytes, and the size of each block."""
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
    """Convert each value to four bytes."""
    return values.astype(dtype).view(np.uint8).reshape(-1, 4)


# --- Convert columns of byte strings and lists to offsets and bytes, and back -----------
# Specification: "Files" in ``docs/format/text-indices.md``.


def numbers_of(file: IndexFile, rows: pa.Table, name: str, kind: pa.DataType) -> Int64s:
    """Return a column of integers; raise if a value is null."""
    file.check(**{name: kind})
    if rows[name].null_count:
        raise file.corrupt_column(name, "values", "nulls")
    return as_numpy(rows[name]).astype(np.int64)


def elements_of(array: Any, name: str, file: IndexFile) -> Elements:
    """Return the byte strings of an array."""
    if array.type != pa.large_binary():
        raise file.corrupt_column(name, "bytes", f"{array.type}")
    if array.null_count:
        raise file.corrupt_column(name, "values", "nulls")
    if not len(array):
        return Elements(np.zeros(1, np.int64), np.zeros(0, np.uint8))
    _, offsets, data = array.buffers()
    ends = as_array(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    content = as_array(data) if data is not None else np.zeros(0, np.uint8)
    return Elements(ends - ends[0], content[int(ends[0]) : int(ends[-1])])


def lists_of(rows: pa.Table, name: str, file: IndexFile) -> tuple[Int64s, Any]:
    """Return where each list of a column begins among all elements, and the elements."""
    array: Any = one_array(rows[name])
    if not pa.types.is_list(array.type):
        raise file.corrupt_column(name, "lists", f"{array.type}")
    if array.null_count:
        raise file.corrupt_column(name, "values", "nulls")
    if not len(array):
        return np.zeros(1, np.int64), array.flatten()
    offsets = as_numpy(array.offsets).astype(np.int64)
    return offsets - offsets[0], array.flatten()


def bytes_array(elements: Elements) -> Any:
    """Return elements as an Arrow array of byte strings."""
    count = len(elements.offsets) - 1
    buffers = [None, as_buffer(elements.offsets), as_buffer(elements.data)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


def lists_array(starts: Int64s, values: Any, kind: pa.DataType) -> Any:
    """Return an array of lists that begin at ``starts``."""
    if len(starts) and int(starts[-1]) > MAX_OFFSET:
        raise CapacityError.of(int(starts[-1]), f"items of {kind}", where="an index")
    list_type: Any = pa.ListArray
    return list_type.from_arrays(number_array(starts), values, type=kind)


# --- Positions of tokens in documents: integers of all documents of a block, packed -----
# Specification: "Positions" in ``docs/format/text-postings.md``.

GROUP: Final = 128
_LANES = 4
_UNIT = 16
_GROUP_HEAD = 5

_SMALL_FILE_POSITIONS: Final = 1 << 20
_POSITIONS_PER_BYTE: Final = 256
"""Maximum positions in a small file, and per byte of a larger file, as for postings. Positions in a
document differ, so that each position except the first takes at least a bit."""


def check_positions(frequencies: Int64s | UInt32s, file: IndexFile) -> None:
    """Check that a file may hold the positions of documents, before the allocation.

    Raises
    ------
    CorruptFileError
        The file is too small: 128 positions take at least one byte before compression.
    """
    limit = max(_SMALL_FILE_POSITIONS, _POSITIONS_PER_BYTE * file.size)
    count = int(frequencies.sum(dtype=np.int64))
    if count > limit:
        expected = f"at most {limit} in {file.size} bytes"
        raise file.corrupt("positions of an index", expected, f"{count}")


def occurrences(blocks: Blocks, frequencies: Int64s | UInt32s) -> Int64s:
    """Return how often a token occurs in the documents of each block."""
    if not len(blocks.begins):
        return np.zeros(0, np.int64)
    return np.add.reduceat(frequencies, blocks.begins, dtype=np.int64)


def encode_positions(values: Int64s | UInt32s, counts: Int64s) -> Elements:
    """Encode blocks of ``counts`` values each."""
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return Elements.joined(
        [
            _encoded_positions(values[bounds[first] : bounds[last]], counts[first:last])
            for first, last in batches(bounds, WINDOW)
        ]
    )


def _encoded_positions(values: Int64s | UInt32s, counts: Int64s) -> Elements:
    """Encode some blocks, or one large block."""
    begins = np.cumsum(counts) - counts
    groups = counts // GROUP
    rest = counts - groups * GROUP
    block = np.repeat(np.arange(len(counts)), groups)
    first = np.repeat(begins, groups) + spread(np.zeros(len(groups), np.int64), groups) * GROUP
    windows = [slice(at, at + WINDOW // GROUP) for at in range(0, len(first), WINDOW // GROUP)]
    bits = np.zeros(len(first), np.int64)
    for some in windows:
        bits[some] = bits_of(_groups(values, first[some]))
    sizes = 1 + _UNIT * bits
    tails = values[spread(begins + groups * GROUP, rest)].astype(np.int64)
    tail, lengths = encode_varints(tails)
    stops = np.concatenate([[0], np.cumsum(lengths)])
    tail_ends = np.cumsum(rest)
    tail_sizes = stops[tail_ends] - stops[tail_ends - rest]
    group_bytes = np.bincount(block, sizes, len(counts)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(group_bytes + tail_sizes)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    before = np.cumsum(sizes) - sizes
    own = (np.cumsum(groups) - groups)[block]
    at = offsets[block] + before - (before[own] if len(own) else 0)
    data[at] = bits
    for some in windows:
        pack(_groups(values, first[some]), bits[some], data, at[some] + 1, _LANES)
    data[spread(offsets[:-1] + group_bytes, tail_sizes)] = tail
    return Elements(offsets, data)


def _groups(values: Int64s | UInt32s, first: Int64s) -> Int64s:
    """Return the values of groups that begin at ``first``."""
    groups: Int64s = values[first[:, None] + np.arange(GROUP)].astype(np.int64)
    return groups


def position_steps(positions: UInt32s, frequencies: Int64s | UInt32s) -> UInt32s:
    """Return the first position of each document, and steps between positions for the others."""
    steps = np.diff(positions, prepend=np.uint32(0))
    first = np.cumsum(frequencies, dtype=np.int64)
    first -= frequencies
    steps[first] = positions[first]
    return steps


def encode_document_positions(positions: Int64s, frequencies: Int64s) -> tuple[Elements, Int64s]:
    """Encode positions in format version 1; return the elements, and their number per document.

    The first element of a document is its number of positions. An element per 128 positions
    follows: the first position, and packed steps. The last element holds the remaining positions.
    """
    groups, rest = frequencies // GROUP, frequencies % GROUP
    of_document = 1 + groups + (rest > 0)
    first = np.cumsum(frequencies) - frequencies
    head = np.cumsum(of_document) - of_document
    owner = np.repeat(np.arange(len(groups)), groups)
    within = spread(np.zeros(len(groups), np.int64), groups)
    packed = positions[(first[owner] + within * GROUP)[:, None] + np.arange(GROUP)]
    steps = np.diff(packed, axis=1, prepend=packed[:, :1])
    bits = bits_of(steps)
    sizes = np.zeros(int(of_document.sum()), np.int64)
    sizes[head] = 4
    of_group = head[owner] + 1 + within
    sizes[of_group] = 5 + _UNIT * bits
    ends = rest > 0
    sizes[(head + of_document - 1)[ends]] = 4 * rest[ends]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    data[offsets[head][:, None] + np.arange(4)] = _words(frequencies)
    at = offsets[of_group]
    data[at[:, None] + np.arange(4)] = _words(packed[:, 0])
    data[at + 4] = bits
    pack(steps, bits, data, at + 5, _LANES)
    tail = positions[spread(first + groups * GROUP, rest)]
    data[spread(offsets[:-1][head + of_document - 1][ends], 4 * rest[ends])] = _words(tail).ravel()
    return Elements(offsets, data), of_document


def decode_document_positions(
    elements: Elements, of_document: Int64s, frequencies: Int64s, where: object
) -> UInt32s:
    """Decode the elements of :func:`encode_document_positions`, document by document.

    Raises
    ------
    CorruptFileError
        The elements of a document differ from its number of positions.
    """
    groups, rest = frequencies // GROUP, frequencies % GROUP
    sizes = np.diff(elements.offsets)
    same = len(of_document) == len(frequencies) and int(of_document.sum()) == len(sizes)
    _check_positions(
        same and (of_document == 1 + groups + (rest > 0)).all(), "other documents", where
    )
    head = np.cumsum(of_document) - of_document
    ends = rest > 0
    tail = (head + of_document - 1)[ends]
    good = (sizes[head] == 4).all() and (sizes[tail] == 4 * rest[ends]).all()
    _check_positions(good, "elements of other sizes", where)
    owner = np.repeat(np.arange(len(groups)), groups)
    within = spread(np.zeros(len(groups), np.int64), groups)
    of_group = head[owner] + 1 + within
    _check_positions((sizes[of_group] >= _GROUP_HEAD).all(), "elements of other sizes", where)
    at = elements.offsets[of_group]
    bits = elements.data[at + _GROUP_HEAD - 1].astype(np.int64)
    good = (bits <= MAX_BITS).all() and (sizes[of_group] == _GROUP_HEAD + _UNIT * bits).all()
    _check_positions(good, "elements of other sizes", where)
    positions = np.zeros(int(frequencies.sum()), np.uint32)
    first = np.cumsum(frequencies) - frequencies
    steps = unpack(elements.data, at + _GROUP_HEAD, bits, _LANES)
    steps[:, 0] += _numbers(elements.data[at[:, None] + np.arange(4)])
    into = (first[owner] + within * GROUP)[:, None] + np.arange(GROUP)
    positions[into] = np.cumsum(steps, axis=1).astype(np.uint32)
    bytes_at = spread(elements.offsets[tail], 4 * rest[ends])
    positions[spread(first + groups * GROUP, rest)] = _numbers(elements.data[bytes_at])
    return positions


def _numbers(data: UInt8s) -> Int64s:
    """Convert groups of four bytes to numbers."""
    return np.ascontiguousarray(data).reshape(-1).view("<u4").astype(np.int64)


def _words(values: Int64s) -> UInt8s:
    """Convert each value to four bytes."""
    return values.astype("<u4").view(np.uint8).reshape(-1, 4)


def _check_positions(condition: object, found: str, where: object) -> None:
    if not condition:
        raise CorruptFileError("positions of an index", expected="blocks", found=found, where=where)


# --- Impacts: the best pairs of frequency and length per block, which bound scores ------
# Specification: "Impacts" in ``docs/format/text-postings.md``.

_GROUP = 32
"""Blocks of a group."""


_MAX_FREQUENCY_POSTING_COLUMNS = np.int64(0xFFFF_FFFF)
"""Largest frequency."""


class _Pairs(NamedTuple):
    """Pairs of several sets, set by set, with ascending frequencies in each."""

    of: Int64s
    frequencies: Int64s
    codes: Int64s


def encode_impacts(postings: Postings, blocks: Blocks, codes: Int64s) -> tuple[Elements, Int64s]:
    """Encode impacts of each list: of blocks, then of groups of 32 blocks; return their number,
    too.

    Parameters
    ----------
    codes
        Length of each document, as a one-byte code.
    """
    last = postings.documents[blocks.begins + blocks.sizes - 1].astype(np.int64)
    fine = _best_of_blocks(postings, blocks, codes)
    groups = -(-blocks.of_list // _GROUP)
    first = np.cumsum(groups) - groups
    within = spread(np.zeros(len(groups), np.int64), blocks.of_list)
    group = np.repeat(first, blocks.of_list) + within // _GROUP
    count = int(groups.sum())
    coarse = _best(_Pairs(group[fine.of], fine.frequencies, fine.codes))
    ends = np.flatnonzero(np.diff(group, append=-1) != 0) if len(group) else group
    elements = _encode(fine, last), _encode(coarse, last[ends])
    # In each list, blocks come before groups.
    lists = len(groups)
    of_block = np.repeat(np.arange(lists), blocks.of_list)
    of_group = np.repeat(np.arange(lists), groups)
    order = np.argsort(np.concatenate([2 * of_block, 2 * of_group + 1]), kind="stable")
    sizes = np.concatenate([np.diff(element.offsets) for element in elements])
    data = np.concatenate([element.data for element in elements])
    starts = np.cumsum(sizes) - sizes
    reordered = data[spread(starts[order], sizes[order])]
    offsets = np.concatenate([[0], np.cumsum(sizes[order])])
    if len(order) != len(group) + count:
        raise ValueError(f"{len(order)} impacts of {len(group)} blocks in {count} groups")
    return Elements(offsets, reordered), blocks.of_list + groups


def _best_of_blocks(postings: Postings, blocks: Blocks, codes: Int64s) -> _Pairs:
    """Return the Pareto-optimal pairs of each block."""
    parts = [_Pairs(*(np.zeros(0, np.int64) for _ in _Pairs._fields))]
    for some, within in blocks.windows():
        number = np.repeat(np.arange(some.start, some.stop), blocks.sizes[some])
        frequencies = postings.frequencies[within].astype(np.int64)
        parts.append(_best(_Pairs(number, frequencies, codes[postings.documents[within]])))
    return _Pairs(*map(np.concatenate, zip(*parts, strict=True)))


def _best(pairs: _Pairs) -> _Pairs:
    """Return the Pareto-optimal pairs of each set: any other pair is worse in one of the values."""
    # Sort by set, descending frequency, then length, as one integer: integers sort fast.
    keys = np.sort(
        pairs.of << 40 | (_MAX_FREQUENCY_POSTING_COLUMNS - pairs.frequencies) << 8 | pairs.codes
    )
    of, frequencies, codes = (
        keys >> 40,
        _MAX_FREQUENCY_POSTING_COLUMNS - (keys >> 8 & _MAX_FREQUENCY_POSTING_COLUMNS),
        keys & 255,
    )
    # Keys of a set are below the keys of the set before, so that the minimum restarts.
    low = np.minimum.accumulate(codes - 256 * of)
    better = np.ones(len(of), np.bool_)
    better[1:] = low[1:] < low[:-1]
    of, frequencies, codes = of[better], frequencies[better], codes[better]
    order = np.lexsort((frequencies, of))
    return _Pairs(of[order], frequencies[order], codes[order])


def _encode(pairs: _Pairs, last: Int64s) -> Elements:
    sets = len(last)
    counts = np.bincount(pairs.of, minlength=sets)
    first = np.cumsum(counts) - counts
    previous = np.concatenate([[-1], pairs.of[:-1]]) == pairs.of
    frequencies = np.diff(pairs.frequencies, prepend=0)
    codes = np.diff(pairs.codes, prepend=0)
    frequencies[~previous] = pairs.frequencies[~previous]
    codes[~previous] = pairs.codes[~previous]
    explicit = codes != 1
    steps, step_sizes = encode_varints(((frequencies - 1) << 1) | explicit)
    heads, head_sizes = encode_varints(np.stack([last, counts], axis=1).reshape(-1))
    head_sizes = head_sizes.reshape(-1, 2).sum(axis=1)
    own = step_sizes + explicit
    sums = np.concatenate([[0], np.cumsum(own)])
    sizes = head_sizes + (sums[first + counts] - sums[first])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    data[spread(offsets[:-1], head_sizes)] = heads
    begins = (offsets[:-1] + head_sizes)[pairs.of] + (sums[:-1] - sums[first][pairs.of])
    data[spread(begins, step_sizes)] = steps
    data[(begins + step_sizes)[explicit]] = codes[explicit]
    return Elements(offsets, data)


# --- BM25 scores of documents for a token, and the best score of each block -------------
# Specification: "Scores" in ``docs/format/text-search.md``.

_K1 = np.float32(1.2)
_B = np.float32(0.75)


def best_scores(
    postings: Postings, blocks: Blocks, lengths: Int64s, total: int
) -> tuple[Float32s, Float32s]:
    """Return the best score of each block, and of each list.

    Parameters
    ----------
    lengths
        Number of tokens of each document of the partition.
    total
        Number of tokens of all documents.
    """
    # Single precision, in this order, gives pylance's scores to the last bit.
    unit = np.float32(1)
    counts = np.diff(postings.starts)
    half, list_lengths = np.float32(0.5), counts.astype(np.float32)
    ratio = (np.float32(len(lengths)) - list_lengths + half) / (list_lengths + half)
    rare = np.log((ratio + unit).astype(np.float64)).astype(np.float32)
    mean = np.float32(total) / np.float32(max(1, len(lengths)))
    by_block = np.zeros(len(blocks.sizes), np.float32)
    max_scores = np.repeat(rare * (_K1 + unit), blocks.of_list)
    for some, within in blocks.windows():
        often = postings.frequencies[within].astype(np.float32)
        measured = lengths[postings.documents[within]].astype(np.float32)
        norm = _K1 * (unit - _B + _B * measured / mean)
        scores = np.repeat(max_scores[some], blocks.sizes[some]) * (often / (often + norm))
        by_block[some] = np.maximum.reduceat(scores, blocks.begins[some] - within.start)
    best = np.zeros(len(counts), np.float32)
    filled = blocks.of_list > 0
    first = (np.cumsum(blocks.of_list) - blocks.of_list)[filled]
    if len(first):
        best[filled] = np.maximum.reduceat(by_block, first)
    return by_block, best


def length_codes(lengths: Int64s) -> Int64s:
    """Encode lengths in a byte: exact below 8, otherwise three bits after the leading bit."""
    shift = np.maximum(bit_lengths(lengths) - 4, 0)
    return np.where(lengths < 8, lengths, ((lengths >> shift) & 7) | ((shift + 1) << 3))


# --- Posting lists as columns of a file: blocks, scores, impacts and positions ----------
# Specification: "Postings" in ``docs/format/text-postings.md``.

_LISTS = pa.list_(pa.large_binary())


class DocumentLengths(NamedTuple):
    """Number of tokens of each document of a partition, exact and as a code, and the total."""

    tokens: Int64s
    codes: Int64s
    total: int


def posting_columns(
    postings: Postings,
    blocks: Blocks,
    lengths: DocumentLengths,
    layout: PostingLayout,
    *,
    impacts: bool = True,
) -> dict[str, Any]:
    """Return all columns except positions."""
    by_block, best = best_scores(postings, blocks, lengths.tokens, lengths.total)
    encoded = encode_postings(postings, by_block, layout)
    begins = np.concatenate([[0], np.cumsum(blocks.of_list)])
    columns: dict[str, Any] = {
        "_posting": lists_array(begins, bytes_array(encoded), _LISTS),
        "_max_score": number_array(best),
        "_length": number_array(np.diff(postings.starts)).cast(pa.uint32()),
    }
    if impacts:
        elements, of_list = encode_impacts(postings, blocks, lengths.codes)
        begins = np.concatenate([[0], np.cumsum(of_list)])
        columns["_impacts"] = lists_array(begins, bytes_array(elements), _LISTS)
    return columns


def shared_position_columns(
    positions: UInt32s, blocks: Blocks, frequencies: Int64s | UInt32s
) -> dict[str, Any]:
    """Return the columns of positions with one stream per list."""
    steps = position_steps(positions, frequencies)
    encoded = encode_positions(steps, occurrences(blocks, frequencies))
    begins = np.concatenate([[0], np.cumsum(blocks.of_list)])
    stream = Elements(encoded.offsets[begins], encoded.data)
    own = encoded.offsets[:-1] - np.repeat(stream.offsets[:-1], blocks.of_list)
    at = number_array(own).cast(pa.uint32())
    return {
        "_compressed_position": bytes_array(stream),
        "_position_block_offset": lists_array(begins, at, pa.list_(pa.uint32())),
    }


def document_position_columns(positions: Int64s, postings: Postings) -> dict[str, Any]:
    """Return the column of positions with separate elements per document."""
    frequencies = postings.frequencies.astype(np.int64)
    elements, of_document = encode_document_positions(positions, frequencies)
    begins = np.concatenate([[0], np.cumsum(of_document)])
    documents = lists_array(begins, bytes_array(elements), _LISTS)
    return {"_position": lists_array(postings.starts, documents, pa.list_(_LISTS))}


# --- Read and check posting lists and positions, some lists at a time -------------------
# Specification: "Postings", "Positions" in ``docs/format/text-postings.md``.

_DOCUMENT_COLUMNS: Final = frozenset(("_rowid", "_num_tokens", ELEMENT))
_POSTING_COLUMNS: Final = frozenset(("_posting", "_length", "_max_score", "_impacts"))

_SMALL_FILE_POSTINGS: Final = 1 << 20
_POSTINGS_PER_BYTE: Final = 256
"""Maximum postings in a small file, and per byte of a larger file: before compression, a document
of a list takes at least a bit."""


def unknown_columns(
    documents: IndexFile, tokens: IndexFile, postings: IndexFile
) -> dict[str, list[str]]:
    """Return the unknown columns in the files of a partition, by the path of the file."""
    known = (
        (documents, _DOCUMENT_COLUMNS),
        (tokens, token_columns(tokens)),
        (postings, _POSTING_COLUMNS.union(position_columns(postings))),
    )
    found = {file.path: sorted(set(file.schema.names) - columns) for file, columns in known}
    return {path: columns for path, columns in found.items() if columns}


def check_posting_columns(file: IndexFile) -> None:
    """Check the types of the columns of postings.

    Raises
    ------
    CorruptFileError
        A column has a wrong type.
    """
    file.check(_max_score=pa.float32(), _length=pa.uint32())
    file.check_lists(_posting=pa.large_binary())
    if "_impacts" in file.schema.names:
        file.check_lists(_impacts=pa.large_binary())
    if position_columns(file) == SHARED_POSITIONS:
        file.check(_compressed_position=pa.large_binary())
        file.check_lists(_position_block_offset=pa.uint32())


def list_starts(file: IndexFile, documents: int) -> Int64s:
    """Read where the postings of each list begin, and the end.

    Raises
    ------
    CorruptFileError
        A list has more postings than documents exist, or all lists have more than the file can
        hold.
    """
    lengths = numbers_of(file, file.read(["_length"]), "_length", pa.uint32())
    limit = max(_SMALL_FILE_POSTINGS, _POSTINGS_PER_BYTE * file.size)
    if lengths.max(initial=0) > documents or int(lengths.sum(dtype=np.int64)) > limit:
        raise wrong_lists(file, "_length")
    return np.concatenate([[0], np.cumsum(lengths)])


def read_postings(
    file: IndexFile, rows: pa.Table, starts: Int64s, layout: PostingLayout, documents: int
) -> tuple[UInt32s, UInt32s]:
    """Decode documents and frequencies of some rows of a file; memory: eight bytes per posting.

    Parameters
    ----------
    starts
        Where each list begins among these postings, and the end.
    documents
        Number of documents of the partition.

    Raises
    ------
    CorruptFileError
        The blocks of a list contradict its length, or a document is missing.
    """
    of_list, array = lists_of(rows, "_posting", file)
    elements = elements_of(array, "_posting", file)
    if (np.diff(of_list) != -(-np.diff(starts) // layout.block)).any():
        raise wrong_lists(file, "_posting")
    return decode_lists(
        elements.data, elements.offsets, starts, block=layout.block, fixed_tail=layout.fixed_tail,
        limit=documents, where=file.path,
    )  # fmt: skip


OWN_POSITIONS: Final = ("_position",)
SHARED_POSITIONS: Final = ("_compressed_position", "_position_block_offset")


def position_columns(file: IndexFile) -> tuple[str, ...]:
    """Return the columns of positions in a file; empty if positions are missing."""
    names = frozenset(file.schema.names)
    known = (OWN_POSITIONS, SHARED_POSITIONS)
    return next((columns for columns in known if not names.isdisjoint(columns)), ())


def read_positions(
    file: IndexFile, rows: pa.Table, starts: Int64s, layout: PostingLayout, frequencies: UInt32s
) -> tuple[Int64s, UInt32s]:
    """Decode positions; return where the positions of each document begin with the end, and them.

    Parameters
    ----------
    starts, frequencies
        Starts and frequencies of the postings of these rows.

    Raises
    ------
    CorruptFileError
        A list has a wrong number of positions, or all lists have more than the file can hold.
    """
    check_positions(frequencies, file)
    if position_columns(file) == OWN_POSITIONS:
        return _own_positions(file, rows, starts, frequencies.astype(np.int64))
    stream, column = SHARED_POSITIONS
    streams = elements_of(one_array(rows[stream]), stream, file)
    of_list, array = lists_of(rows, column, file)
    blocks = -(-np.diff(starts) // layout.block)
    if array.null_count or (np.diff(of_list) != blocks).any():
        raise wrong_lists(file, column)
    within = as_numpy(array).astype(np.int64)
    offsets = np.append(within + np.repeat(streams.offsets[:-1], blocks), streams.offsets[-1])
    if (offsets[1:] < offsets[:-1]).any() or within[of_list[:-1][blocks > 0]].any():
        raise wrong_lists(file, column)
    return decode_positions(
        streams.data, offsets, starts, frequencies, block=layout.block, where=file.path
    )


def _own_positions(
    file: IndexFile, rows: pa.Table, starts: Int64s, frequencies: Int64s
) -> tuple[Int64s, UInt32s]:
    """Decode positions of format version 1, with elements per document."""
    (column,) = OWN_POSITIONS
    found, documents = lists_of(rows, column, file)
    if (found != starts).any():
        raise wrong_lists(file, column)
    begins, values = lists_of(pa.table({column: documents}), column, file)
    elements = elements_of(values, column, file)
    positions = decode_document_positions(elements, np.diff(begins), frequencies, file.path)
    return np.concatenate(([0], np.cumsum(frequencies))), positions


def wrong_lists(file: IndexFile, column: str) -> CorruptFileError:
    """Return an error for a column that contradicts the lengths of the lists."""
    return file.corrupt_column(column, "values that match the lengths of the lists", "others")
