"""Read all tokens of an FST, level by level.

Specification: "Token sets" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import spread
from glaive.errors import CorruptFileError
from glaive.index.text.fst_constants import COMMON, FOOTER, HEADER, INDEX, MANY, VERSION
from glaive.memory import as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s, UInt8s

__all__ = ["read_fst"]

_WIDEST = 8
_LETTERS = COMMON.tolist()

_FEW_NODES, _NODES_PER_BYTE = 1 << 22, 64
_FEW_LETTERS, _LETTERS_PER_BYTE = 1 << 26, 1024
"""Nodes that are visited and letters of all tokens, at most, or as many for each byte. Nodes are
shared, so that a few of them can stand for a million tokens of any length."""


_FEW_AT_ONCE, _LEVEL_NODES = 32, 256
"""Nodes of a level that are read one by one, where each has one transition; and nodes that the time
of a level is worth else. A few bytes may be a token of a million letters, which are as many levels.
"""


class _Nodes(NamedTuple):
    """Decoded nodes: whether tokens end there, and their transitions."""

    final: Flags
    output: Int64s
    counts: Int64s
    inputs: UInt8s
    targets: Int64s
    outputs: Int64s


def read_fst(data: pa.Buffer, count: int, where: object) -> tuple[pa.Array, Int64s]:
    """Tokens and their numbers, unordered.

    Raises
    ------
    CorruptFileError
        The FST is damaged, or does not have ``count`` tokens.
    """
    content = as_array(data)
    _check(len(content) >= HEADER + FOOTER, f"{len(content)} bytes", where)
    version = int(content[:8].view("<u8")[0])
    stored_count, root = content[-FOOTER:-4].copy().view("<u8").tolist()
    sound = version == VERSION and stored_count == count
    _check(sound, f"{stored_count} of version {version}", where)
    _check(root == 0 or HEADER <= root < len(content) - FOOTER, f"root at {root}", where)
    # Of each visited node: its parent, and the letter of the transition from there.
    parents, letters = [np.zeros(1, np.int64)], [np.zeros(1, np.uint8)]
    addresses, sums = np.array([root], np.int64), np.zeros(1, np.int64)
    seen, depth, spent = 0, 0, 0
    most = max(_FEW_NODES, _NODES_PER_BYTE * len(content))
    ends: list[Int64s] = []
    values: list[Int64s] = []
    depths: list[Int64s] = []
    while len(addresses):
        if len(addresses) <= _FEW_AT_ONCE:
            chain = _Chain(content, addresses, sums, depth)
            chain.follow(most - seen)
            _check(max(chain.sums) < 1 << 63, "numbers beyond 2^63", where)
            parents.append(np.arange(seen, seen + len(chain.letters)))
            letters.append(np.array(chain.letters, np.uint8))
            seen, depth = seen + len(chain.letters), chain.depth
            addresses, sums = np.array(chain.addresses), np.array(chain.sums, np.int64)
        nodes = _parse(content, addresses, where)
        spent += _LEVEL_NODES
        here = seen + np.arange(len(addresses))
        ends.append(here[nodes.final])
        values.append((sums + nodes.output)[nodes.final])
        depths.append(np.full(int(nodes.final.sum()), depth))
        seen += len(addresses)
        owner = np.repeat(np.arange(len(addresses)), nodes.counts)
        # Each node leads to at least one token, so that a level never has more nodes.
        _check(len(owner) <= count, "more paths than tokens", where)
        _check(seen + spent + len(owner) <= most, f"more than {most} nodes on all paths", where)
        parents.append(here[owner])
        letters.append(nodes.inputs)
        addresses, sums = nodes.targets, sums[owner] + nodes.outputs
        depth += 1
    end_nodes, numbers, lengths = (
        np.concatenate(parts).astype(np.int64) for parts in (ends, values, depths)
    )
    _check(len(end_nodes) == count, f"{len(end_nodes)} tokens", where)
    _check(not len(numbers) or numbers.min() >= 0, "numbers below 0", where)
    most = max(_FEW_LETTERS, _LETTERS_PER_BYTE * len(content))
    _check(int(lengths.sum()) <= most, f"more than {most} letters of all tokens", where)
    tokens = _strings(end_nodes, lengths, np.concatenate(parents), np.concatenate(letters))
    return tokens, numbers


def _strings(ends: Int64s, depths: Int64s, parents: Int64s, letters: UInt8s) -> pa.Array:
    """Walk from the last letter of each token back to the root."""
    offsets = np.concatenate([[0], np.cumsum(depths)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    at, node, row = offsets[1:] - 1, ends, np.arange(len(ends))
    unfinished = depths > 0
    while unfinished.any():
        if int(unfinished.sum()) <= _FEW_AT_ONCE:
            above, letter_of = memoryview(parents.data), memoryview(letters.data)
            for one, last in zip(row[unfinished].tolist(), node[unfinished].tolist(), strict=True):
                place = slice(int(offsets[one]), int(at[one]) + 1)
                _walk(data[place], last, above, letter_of)
            break
        row, node = row[unfinished], node[unfinished]
        data[at[row]] = letters[node]
        at[row] -= 1
        node = parents[node]
        unfinished = at[row] >= offsets[row]
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]  # type: ignore[arg-type]  # any buffer will do
    return pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)


def _walk(token: UInt8s, node: int, parents: memoryview, letters: memoryview) -> None:
    """Fill in the letters of one token, from the last one back to the first."""
    for place in range(len(token) - 1, -1, -1):
        token[place] = letters[node]
        node = parents[node]


def _parse(data: UInt8s, addresses: Int64s, where: object) -> _Nodes:
    """Read nodes; an address is that of a node's last byte, or 0 for one without bytes."""
    states = np.where(addresses == 0, 0, data[addresses]).astype(np.int64)
    real = addresses != 0
    single = real & (states >= 128)
    follows = states >= 192
    low_bits = states & 63
    # Bytes before the state: a letter or a count that does not fit in it.
    extra = (real & (low_bits == 0)).astype(np.int64)
    before = _byte(data, addresses - 1, real, where)
    counts = np.where(low_bits > 0, low_bits, np.where(before == 1, INDEX, before))
    counts = np.where(single, 1, np.where(real, counts, 0))
    final = ~real | (~single & (states & 64 > 0))
    at = addresses - extra - 1
    sized = real & ~follows
    sizes = _byte(data, at, sized, where)
    wide, deep = sizes & 15, sizes >> 4
    _check((wide <= _WIDEST).all() and (deep <= _WIDEST).all(), "numbers too wide", where)
    at = at - sized - np.where(~single & (counts > MANY), INDEX, 0)
    # ``at`` is the last of the letters, or of the steps of a node with one transition.
    letters = np.where(single, 0, counts)
    outputs = at - letters - counts * deep
    ended = final & real & ~single
    first = outputs - wide * (counts + ended) + 1
    first = np.where(follows, addresses - extra, first)
    _check((~real | (first >= HEADER)).all(), "nodes before the first", where)
    output = _number(data, outputs - wide * counts - wide + 1, np.where(ended, wide, 0))
    owner = np.repeat(np.arange(len(addresses)), counts)
    rank = spread(np.zeros(len(counts), np.int64), counts)
    single_owner = single[owner]
    letter_at = np.where(single_owner, addresses[owner] - 1, (at[owner] - rank))
    code = np.where(single_owner, low_bits[owner], 0)
    inputs = np.where(code > 0, COMMON[code], data[letter_at])
    steps_end = (at - letters)[owner] - rank * deep[owner]
    steps = _number(data, steps_end - deep[owner] + 1, np.where(follows[owner], 0, deep[owner]))
    steps = np.where(follows[owner], 1, steps)
    # Transitions only lead backwards, so that each path ends.
    targets = np.where(steps == 0, 0, first[owner] - steps)
    inside = (steps >= 0) & ((targets == 0) | (targets >= HEADER))
    _check(inside.all(), "transitions that lead outside", where)
    sums_end = outputs[owner] - rank * wide[owner]
    sums = _number(data, sums_end - wide[owner] + 1, np.where(follows[owner], 0, wide[owner]))
    return _Nodes(final, output, counts, inputs.astype(np.uint8), targets, sums)


class _Chain:
    """A few nodes of a level, and those that follow as long as each has one transition.

    They are read one by one: the letters of a long token are as many levels.
    """

    def __init__(self, data: UInt8s, addresses: Int64s, sums: Int64s, depth: int) -> None:
        self._data: memoryview[Any] = memoryview(data.data)
        self.addresses, self.sums, self.depth = addresses.tolist(), sums.tolist(), depth
        self.letters: list[int] = []

    def follow(self, most: int) -> None:
        """Go on until a token ends, a node has several transitions, or there are too many."""
        while self.addresses and len(self.letters) < most:
            ways = [self._only_way(address) for address in self.addresses]
            found = [way for way in ways if way is not None]
            if len(found) < len(ways):
                return
            self.letters += [letter for letter, _, _ in found]
            self.addresses = [target for _, target, _ in found]
            self.sums = [known + way[2] for known, way in zip(self.sums, found, strict=True)]
            self.depth += 1

    def _only_way(self, address: int) -> tuple[int, int, int] | None:
        """Letter, target and output of a node with one transition, as :func:`_parse` reads them.

        None for nodes of other forms, or that may not be read.
        """
        data = self._data
        state = data[address]
        if address == 0 or state < 128:
            return None
        low = state & 63
        letter, first = (_LETTERS[low], address) if low else (data[address - 1], address - 1)
        if state >= 192:
            return (letter, first - 1, 0) if first - 1 >= HEADER else None
        wide, deep = data[first - 1] & 15, data[first - 1] >> 4
        first -= 1 + deep + wide
        if first < HEADER or wide >= _WIDEST or deep >= _WIDEST:
            return None
        step = int.from_bytes(data[first + wide : first + wide + deep], "little")
        output = int.from_bytes(data[first : first + wide], "little")
        if step == 0:
            return letter, 0, output
        return (letter, first - step, output) if first - step >= HEADER else None


def _byte(data: UInt8s, at: Int64s, wanted: Flags, where: object) -> Int64s:
    """The byte at each position that is wanted, else 0."""
    _check((at[wanted] >= HEADER - 1).all(), "nodes before the first", where)
    return np.where(wanted, data[np.where(wanted, at, 0)], 0).astype(np.int64)


def _number(data: UInt8s, at: Int64s, width: Int64s) -> Int64s:
    """Little-endian integers of up to eight bytes; all lie within ``data``."""
    values = np.zeros(len(at), np.int64)
    for byte in range(int(width.max(initial=0))):
        more = width > byte
        values[more] |= data[at[more] + byte].astype(np.int64) << (8 * byte)
    return values


def _check(good: object, found: str, where: object) -> None:
    if not good:
        raise CorruptFileError(
            "token set of an index", expected="a sound FST", found=found, where=where
        )
