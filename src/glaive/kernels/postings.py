"""Decode one posting list of a full-text index: documents, frequencies, positions.

Specification: "Postings" and "Positions" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import postings as compiled
from glaive.kernels.text_records import DecodePositions, DecodePostings
from glaive.types import Int64s, UInt8s, UInt32s, UInt64s

__all__ = ["decode_list", "decode_list_positions", "exercise"]

_GROUP: Final = 128
_LANE: Final = 32
_MAX_BITS: Final = 32
_MAX_NUMBER: Final = 0xFFFF_FFFF
_MAX_VARINT: Final = 5
_BLOCKS = (128, 256)


def decode_list(
    data: UInt8s,
    offsets: Int64s,
    length: int,
    *,
    block: int,
    fixed_tail: bool,
    limit: int,
    where: object,
) -> tuple[UInt32s, UInt32s]:
    """Documents, ascending, and how often each has the token.

    Parameters
    ----------
    data, offsets
        The blocks one after the other: ``uint8``, and ``int64`` of shape ``(blocks + 1,)``.
    length
        Documents of the list.
    block
        Documents of all blocks but the last: 128 or 256.
    fixed_tail
        Whether the last block, if it is shorter, has 32 bits for each number.
    limit
        Documents of the partition, which no number of one reaches.

    Raises
    ------
    CorruptFileError
        There are other blocks than the length needs, or one has a wrong size or impossible
        numbers.
    """
    if block not in _BLOCKS:
        raise ValueError(f"blocks of {block} documents")
    blocks = len(offsets) - 1
    if not 0 <= length <= min(limit, block * blocks) or length <= block * (blocks - 1):
        raise _corrupt(f"{length} documents of {limit} in {blocks} blocks", where)
    _check_offsets(data, offsets, where)
    data = np.ascontiguousarray(data)
    documents, frequencies = np.empty(length, np.uint32), np.empty(length, np.uint32)
    if not use_compiled(length):
        tail = "fixed" if fixed_tail else "varints"
        _decode_list(data, offsets, block, tail, documents, frequencies, where)
        _check_list(documents, frequencies, limit, where)
        return documents, frequencies
    call = DecodePostings(
        data=address(data), offsets=address(offsets), blocks=blocks, length=length, block=block,
        fixed_tail=int(fixed_tail), limit=min(limit, _MAX_NUMBER), documents=address(documents),
        frequencies=address(frequencies),
    )  # fmt: skip
    bad = compiled.postings(*call)
    if bad != blocks:
        raise _corrupt(f"block {bad} with another size or other numbers", where)
    return documents, frequencies


def decode_list_positions(
    data: UInt8s, offsets: Int64s, frequencies: UInt32s, *, block: int, where: object
) -> tuple[Int64s, UInt32s]:
    """Positions of a token in each document of a list, ascending.

    Parameters
    ----------
    data, offsets
        Positions of the documents of each block: ``uint8``, and ``int64`` of shape
        ``(blocks + 1,)``.
    frequencies
        As :func:`decode_list` returns them.
    block
        Documents of all blocks but the last.

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
    blocks, length = len(offsets) - 1, len(frequencies)
    if blocks != -(-length // block):
        raise _corrupt(f"{blocks} blocks of positions for {length} documents", where)
    _check_offsets(data, offsets, where)
    starts = np.zeros(length + 1, np.int64)
    np.cumsum(frequencies, out=starts[1:])
    total = int(starts[-1])
    if total > len(data) * _GROUP:
        raise _corrupt(f"{total} positions in {len(data)} bytes", where)
    data, frequencies = np.ascontiguousarray(data), np.ascontiguousarray(frequencies)
    into = np.empty(total, np.uint32)
    if not use_compiled(total):
        _decode_positions(data, offsets, starts, block, into, where)
        return starts, into
    call = DecodePositions(
        data=address(data), offsets=address(offsets), blocks=blocks, length=length, block=block,
        group=_GROUP, frequencies=address(frequencies), into=address(into),
    )  # fmt: skip
    bad = compiled.positions(*call)
    if bad != blocks:
        raise _corrupt(f"block {bad} of positions with another size or other numbers", where)
    return starts, into


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
    data: UInt8s, offsets: Int64s, starts: Int64s, block: int, into: UInt32s, where: object
) -> None:
    length = len(starts) - 1
    steps = [np.zeros(0, np.uint64)]
    for number in range(len(offsets) - 1):
        source = _Bytes(data[offsets[number] : offsets[number + 1]], where)
        first, last = number * block, min((number + 1) * block, length)
        count = int(starts[last] - starts[first])
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
        "postings of an index",
        expected="blocks of documents",
        found=found,
        where=where,
    )


def exercise() -> None:
    """Call every wrapper once with little data."""
    data, offsets = np.array([0, 0, 0, 0, 1, 2], np.uint8), np.array([0, 6], np.int64)
    _, frequencies = decode_list(
        data, offsets, 1, block=128, fixed_tail=False, limit=2, where="exercise"
    )
    decode_list_positions(
        np.array([3, 1], np.uint8), np.array([0, 2]), frequencies, block=128, where="exercise"
    )
