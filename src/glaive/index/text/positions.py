"""Positions of tokens in documents: integers of all documents of a block, packed.

Specification: "Positions" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from glaive.arrow.buffers import spread
from glaive.errors import CorruptFileError
from glaive.index.segment import IndexFile, batches
from glaive.index.text.bit_blocks import MAX_BITS, bits_of, pack, unpack
from glaive.index.text.postings import WINDOW, Blocks, Elements
from glaive.index.text.varints import MAX_VARINT, decode_varints, encode_varints
from glaive.types import Int64s, UInt8s, UInt32s

__all__ = [
    "check_positions",
    "decode_document_positions",
    "decode_positions",
    "encode_document_positions",
    "encode_positions",
    "occurrences",
    "position_steps",
]

GROUP: Final = 128
_LANES = 4
_UNIT = 16
_GROUP_HEAD = 5

_FEW_POSITIONS: Final = 1 << 20
_POSITIONS_PER_BYTE: Final = 256
"""Positions of some lists of a small file, and those per byte of a larger one, at most: as many as
postings. Positions of a document differ, so that all but its first take a bit at least."""


def check_positions(frequencies: Int64s | UInt32s, file: IndexFile) -> None:
    """Check that a file can hold the positions of documents, before memory is taken for them.

    Raises
    ------
    CorruptFileError
        There are more: 128 of them are one byte, which is compressed.
    """
    most = max(_FEW_POSITIONS, _POSITIONS_PER_BYTE * file.size)
    count = int(frequencies.sum(dtype=np.int64))
    if count > most:
        expected = f"at most {most} in {file.size} bytes"
        raise file.corrupt("positions of an index", expected, f"{count}")


def occurrences(blocks: Blocks, frequencies: Int64s | UInt32s) -> Int64s:
    """How often a token occurs in the documents of each block."""
    if not len(blocks.begins):
        return np.zeros(0, np.int64)
    counts: Int64s = np.add.reduceat(frequencies, blocks.begins, dtype=np.int64)
    return counts


def decode_positions(elements: Elements, counts: Int64s, where: object) -> Int64s:
    """The integers of all blocks, one block after the other, as they are stored.

    Some hundred bytes of memory for each of them.

    Parameters
    ----------
    elements
        The bytes of each block.
    counts
        The number of integers of each block.

    Raises
    ------
    CorruptFileError
        A block has another number of integers.
    """
    data = elements.data
    at, ends = elements.offsets[:-1].copy(), elements.offsets[1:]
    begins = np.cumsum(counts) - counts
    groups = counts // GROUP
    _check((groups <= ends - at).all(), "more integers than bytes", where)
    values = np.zeros(int(counts.sum()), np.int64)
    for group in range(int(groups.max(initial=0))):
        blocks = np.flatnonzero(groups > group)
        _check((at[blocks] < ends[blocks]).all(), "integers that exceed the block", where)
        bits = data[at[blocks]].astype(np.int64)
        packed = at[blocks] + 1
        at[blocks] = packed + bits * _UNIT
        _check(
            (bits <= MAX_BITS).all() and (at <= ends).all(), "integers that exceed the block", where
        )
        into = (begins[blocks] + group * GROUP)[:, None] + np.arange(GROUP)
        values[into] = unpack(data, packed, bits, _LANES)
    rest = counts - groups * GROUP
    sizes = ends - at
    _check((sizes <= MAX_VARINT * rest).all(), "more bytes than integers", where)
    decoded = decode_varints(data[spread(at, sizes)])
    if decoded is None or len(decoded[0]) != int(rest.sum()):
        raise _corrupt("other counts", where)
    last = np.concatenate([[0], decoded[1]])
    _check((last[np.cumsum(rest)] == np.cumsum(sizes)).all(), "other counts", where)
    values[spread(begins + groups * GROUP, rest)] = decoded[0]
    return values


def encode_positions(values: Int64s | UInt32s, counts: Int64s) -> Elements:
    """Encode blocks of so many of the values each."""
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return Elements.joined(
        [
            _encoded(values[bounds[first] : bounds[last]], counts[first:last])
            for first, last in batches(bounds, WINDOW)
        ]
    )


def _encoded(values: Int64s | UInt32s, counts: Int64s) -> Elements:
    """Encode some blocks, or a large one."""
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
    """The values of groups that begin at some places."""
    groups: Int64s = values[first[:, None] + np.arange(GROUP)].astype(np.int64)
    return groups


def position_steps(positions: UInt32s, frequencies: Int64s | UInt32s) -> UInt32s:
    """The first position of each document, then the steps from one to the next."""
    steps = np.diff(positions, prepend=np.uint32(0))
    first = np.cumsum(frequencies, dtype=np.int64)
    first -= frequencies
    steps[first] = positions[first]
    return steps


def encode_document_positions(positions: Int64s, frequencies: Int64s) -> tuple[Elements, Int64s]:
    """The elements of each document of format version 1, and how many each has.

    Its number of positions; of each 128 the first, and the packed steps; the others as they are.
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
    """What :func:`encode_document_positions` made elements of, document after document.

    Raises
    ------
    CorruptFileError
        The elements of a document are not those of so many positions.
    """
    groups, rest = frequencies // GROUP, frequencies % GROUP
    sizes = np.diff(elements.offsets)
    same = len(of_document) == len(frequencies) and int(of_document.sum()) == len(sizes)
    _check(same and (of_document == 1 + groups + (rest > 0)).all(), "other documents", where)
    head = np.cumsum(of_document) - of_document
    ends = rest > 0
    tail = (head + of_document - 1)[ends]
    good = (sizes[head] == 4).all() and (sizes[tail] == 4 * rest[ends]).all()
    _check(good, "elements of other sizes", where)
    owner = np.repeat(np.arange(len(groups)), groups)
    within = spread(np.zeros(len(groups), np.int64), groups)
    of_group = head[owner] + 1 + within
    _check((sizes[of_group] >= _GROUP_HEAD).all(), "elements of other sizes", where)
    at = elements.offsets[of_group]
    bits = elements.data[at + _GROUP_HEAD - 1].astype(np.int64)
    good = (bits <= MAX_BITS).all() and (sizes[of_group] == _GROUP_HEAD + _UNIT * bits).all()
    _check(good, "elements of other sizes", where)
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
    """Numbers of four bytes each."""
    return np.ascontiguousarray(data).reshape(-1).view("<u4").astype(np.int64)


def _words(values: Int64s) -> UInt8s:
    """Four bytes of each value."""
    return values.astype("<u4").view(np.uint8).reshape(-1, 4)


def _check(good: object, found: str, where: object) -> None:
    if not good:
        raise _corrupt(found, where)


def _corrupt(found: str, where: object) -> CorruptFileError:
    return CorruptFileError("positions of an index", expected="blocks", found=found, where=where)
