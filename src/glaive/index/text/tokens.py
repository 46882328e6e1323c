"""Tokens and their numbers: sorted byte strings.

Specification: "Token sets" in ``docs/format/text-token-sets.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import flag_array, number_array, spread
from glaive.arrow.chunked import as_numpy, one_array
from glaive.arrow.conditions import constants
from glaive.dataclass import NamedTuple
from glaive.errors import CorruptFileError
from glaive.index.segment import IndexFile
from glaive.types import Flags, Int64s, UInt8s, as_array

# --- Constants of token sets stored as a finite-state transducer (FST) ------------------
# Specification: "Token sets" in ``docs/format/text-token-sets.md``.

VERSION: Final = 3
HEADER: Final = 16
"""Bytes before the first node: version and type, 64 bits each."""
FOOTER: Final = 20
"""Bytes after the last node: number of tokens, address of the root, checksum."""
MAX_PLAIN: Final = 32
"""Maximum transitions of a node without an index, which has an entry per byte."""
INDEXED: Final = 256

COMMON: Final[UInt8s] = np.frombuffer(
    b"\0te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG", np.uint8
)
"""Frequent bytes: the index of a byte, from 1 on, is its 6-bit code."""


def _codes() -> Int64s:
    codes = np.zeros(256, np.int64)
    codes[COMMON[1:]] = np.arange(1, len(COMMON))
    return codes


CODE_OF: Final = _codes()
"""Code of each byte, or 0."""


# --- Look up one token in an FST: a step per letter -------------------------------------
# Specification: "Token sets" in ``docs/format/text-token-sets.md``.

_LETTERS = COMMON.tolist()
_MAX_WIDTH = 8


class Fst:
    """Bytes of an FST, with checked header and footer.

    Parameters
    ----------
    data
        All bytes.
    where
        Path, for errors.

    Raises
    ------
    CorruptFileError
        The FST is too short, has another version, or its root is outside of the bytes.
    """

    __slots__ = ("_data", "count", "nbytes", "root", "where")

    def __init__(self, data: pa.Buffer, where: object) -> None:
        self._data, self.where, self.nbytes = memoryview(data).cast("B"), where, data.size
        self._check(data.size >= HEADER + FOOTER, f"{data.size} bytes")
        foot = data.size - FOOTER
        version = self._number(0, 8)
        self.count, self.root = self._number(foot, 8), self._number(foot + 8, 8)
        self._check(version == VERSION, f"version {version}")
        self._check(self.root == 0 or HEADER <= self.root < foot, f"root at {self.root}")

    def find(self, token: bytes) -> int | None:
        """Return the number of a token; ``None`` if the set lacks it.

        Raises
        ------
        CorruptFileError
            A node leads outside of the bytes.
        """
        address, total = self.root, 0
        for letter in token:
            step = self._step(address, letter)
            if step is None:
                return None
            address, added = step
            total += added
        ends, added = self._end(address)
        return total + added if ends else None

    def single(self, address: int) -> tuple[int, int, int] | None:
        """Return letter, target and output of a node with one transition, otherwise ``None``."""
        state = self._data[address] if address else 0
        if state < 128:
            return None
        low = state & 63
        first = address if low else address - 1
        letter = _LETTERS[low] if low else self._data[first]
        if state >= 192:
            return letter, self._target(first, 1), 0
        deep, wide = self._sizes(first - 1)
        start = first - 1 - deep - wide
        self._check(start >= HEADER, "nodes before the first")
        step, output = self._number(start + wide, deep), self._number(start, wide)
        return letter, self._target(start, step), output

    def _step(self, address: int, letter: int) -> tuple[int, int] | None:
        """Follow the transition of a letter; return its target and output."""
        if address == 0:
            return None
        found = self.single(address)
        if found is not None:
            return found[1:] if found[0] == letter else None
        data = self._data
        count, sizes = self._shape(address)
        if count == 0:
            return None
        deep, wide = self._sizes(sizes)
        letters = sizes - (INDEXED if count > MAX_PLAIN else 0)
        start = letters - count * (1 + deep + wide) - (wide if data[address] & 64 else 0)
        self._check(start >= HEADER, "nodes before the first")
        # Each of the three lists is stored backwards, with the first transition at the end.
        place = bytes(data[letters - count : letters]).rfind(letter)
        if place < 0:
            return None
        place = count - 1 - place
        steps = letters - count - (place + 1) * deep
        sums = letters - count - count * deep - (place + 1) * wide
        return self._target(start, self._number(steps, deep)), self._number(sums, wide)

    def _end(self, address: int) -> tuple[bool, int]:
        """Return whether a token ends at a node, and its final output."""
        if address == 0:
            return True, 0
        state = self._data[address]
        if state >= 128 or not state & 64:
            return False, 0
        count, sizes = self._shape(address)
        deep, wide = self._sizes(sizes)
        start = sizes - (INDEXED if count > MAX_PLAIN else 0) - count * (1 + deep + wide) - wide
        self._check(start >= HEADER, "nodes before the first")
        return True, self._number(start, wide)

    def _shape(self, address: int) -> tuple[int, int]:
        """Return the number of transitions of a branching node, and where their sizes are."""
        low = self._data[address] & 63
        if low:
            return low, address - 1
        count = self._data[address - 1]
        return (INDEXED if count == 1 else count), address - 2

    def _sizes(self, at: int) -> tuple[int, int]:
        self._check(at >= HEADER - 1, "nodes before the first")
        deep, wide = self._data[at] >> 4, self._data[at] & 15
        self._check(deep <= _MAX_WIDTH and wide <= _MAX_WIDTH, "numbers too wide")
        return deep, wide

    def _target(self, first: int, step: int) -> int:
        """Return the target of a transition; transitions only lead backwards, so that paths end."""
        if step == 0:
            return 0
        self._check(HEADER <= first - step < first, "transitions that lead outside")
        return first - step

    def _number(self, at: int, width: int) -> int:
        return int.from_bytes(self._data[at : at + width], "little")

    def _check(self, good: object, found: str) -> None:
        _check(good, found, self.where)


# --- Read all tokens of an FST, level by level ------------------------------------------
# Specification: "Token sets" in ``docs/format/text-token-sets.md``.

_SMALL_FILE_NODES, _NODES_PER_BYTE = 1 << 22, 64
_SMALL_FILE_LETTERS, _LETTERS_PER_BYTE = 1 << 26, 1024
"""Maximum nodes visited and letters of all tokens, in total or per byte. Nodes are shared, so that
a few nodes may encode a million tokens of any length."""


_MAX_SINGLE_NODES, _LEVEL_NODES = 32, 256
"""Nodes of a level to read one by one if each has one transition, and the cost of a level, counted
in nodes. A few bytes may encode a token of a million letters, with as many levels."""


class _Nodes(NamedTuple):
    """Decoded nodes: whether tokens end at them, and their transitions."""

    final: Flags
    output: Int64s
    counts: Int64s
    inputs: UInt8s
    targets: Int64s
    outputs: Int64s


def read_fst(data: pa.Buffer, count: int, where: object) -> tuple[pa.Array, Int64s]:
    """Return all tokens and their numbers, unordered.

    Raises
    ------
    CorruptFileError
        The FST is damaged, or the number of its tokens differs from ``count``.
    """
    fst, content = Fst(data, where), as_array(data)
    _check(fst.count == count, f"{fst.count}", where)
    # For each visited node: its parent, and the letter of the transition from the parent.
    parents, letters = [np.zeros(1, np.int64)], [np.zeros(1, np.uint8)]
    addresses, sums = np.array([fst.root], np.int64), np.zeros(1, np.int64)
    seen, depth, spent = 0, 0, 0
    limit = max(_SMALL_FILE_NODES, _NODES_PER_BYTE * len(content))
    ends: list[Int64s] = []
    values: list[Int64s] = []
    depths: list[Int64s] = []
    while len(addresses):
        if len(addresses) <= _MAX_SINGLE_NODES:
            chain, ends_at, added = _follow(fst, addresses.tolist(), sums.tolist(), limit - seen)
            _check(max(added) < 1 << 63, "numbers beyond 2^63", where)
            parents.append(np.arange(seen, seen + len(chain)))
            letters.append(np.array(chain, np.uint8))
            seen, depth = seen + len(chain), depth + len(chain) // len(ends_at)
            addresses, sums = np.array(ends_at), np.array(added, np.int64)
        nodes = _parse(content, addresses, where)
        spent += _LEVEL_NODES
        here = seen + np.arange(len(addresses))
        ends.append(here[nodes.final])
        values.append((sums + nodes.output)[nodes.final])
        depths.append(np.full(int(nodes.final.sum()), depth))
        seen += len(addresses)
        owner = np.repeat(np.arange(len(addresses)), nodes.counts)
        # Each node leads to at least one token, so that a level has at most ``count`` nodes.
        _check(len(owner) <= count, "more paths than tokens", where)
        _check(seen + spent + len(owner) <= limit, f"more than {limit} nodes on all paths", where)
        parents.append(here[owner])
        letters.append(nodes.inputs)
        addresses, sums = nodes.targets, sums[owner] + nodes.outputs
        depth += 1
    end_nodes, numbers, lengths = (
        np.concatenate(parts).astype(np.int64) for parts in (ends, values, depths)
    )
    _check(len(end_nodes) == count, f"{len(end_nodes)} tokens", where)
    _check(not len(numbers) or numbers.min() >= 0, "numbers below 0", where)
    limit = max(_SMALL_FILE_LETTERS, _LETTERS_PER_BYTE * len(content))
    _check(int(lengths.sum()) <= limit, f"more than {limit} letters of all tokens", where)
    tokens = _strings(end_nodes, lengths, np.concatenate(parents), np.concatenate(letters))
    return tokens, numbers


def _strings(ends: Int64s, depths: Int64s, parents: Int64s, letters: UInt8s) -> pa.Array:
    """Walk from the last letter of each token back to the root."""
    offsets = np.concatenate([[0], np.cumsum(depths)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    at, node, row = offsets[1:] - 1, ends, np.arange(len(ends))
    unfinished = depths > 0
    while unfinished.any():
        if int(unfinished.sum()) <= _MAX_SINGLE_NODES:
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
    """Fill in the letters of one token, from the last back to the first."""
    for place in range(len(token) - 1, -1, -1):
        token[place] = letters[node]
        node = parents[node]


def _parse(data: UInt8s, addresses: Int64s, where: object) -> _Nodes:
    """Read nodes; the address of a node is its last byte, or 0 for a node of zero bytes."""
    states = np.where(addresses == 0, 0, data[addresses]).astype(np.int64)
    real = addresses != 0
    single = real & (states >= 128)
    follows = states >= 192
    low_bits = states & 63
    # Bytes before the state hold a letter or a count that is too large for the state.
    extra = (real & (low_bits == 0)).astype(np.int64)
    before = _byte(data, addresses - 1, real, where)
    counts = np.where(low_bits > 0, low_bits, np.where(before == 1, INDEXED, before))
    counts = np.where(single, 1, np.where(real, counts, 0))
    final = ~real | (~single & (states & 64 > 0))
    at = addresses - extra - 1
    sized = real & ~follows
    sizes = _byte(data, at, sized, where)
    wide, deep = sizes & 15, sizes >> 4
    _check((wide <= _MAX_WIDTH).all() and (deep <= _MAX_WIDTH).all(), "numbers too wide", where)
    at = at - sized - np.where(~single & (counts > MAX_PLAIN), INDEXED, 0)
    # ``at`` is the last letter, or the last step byte of a node with one transition.
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


def _follow(
    fst: Fst, addresses: list[int], sums: list[int], limit: int
) -> tuple[list[int], list[int], list[int]]:
    """Follow a few nodes of a level while each has one transition.

    A node at a time is faster here: each letter of a long token is a level.

    Returns
    -------
    tuple
        Letters, level by level; the nodes where the loop ended; and the sums of their outputs.
    """
    letters: list[int] = []
    while len(letters) < limit:
        found = [path for address in addresses if (path := fst.single(address)) is not None]
        if len(found) < len(addresses):
            break
        letters += [letter for letter, _, _ in found]
        addresses = [target for _, target, _ in found]
        sums = [known + path[2] for known, path in zip(sums, found, strict=True)]
    return letters, addresses, sums


def _byte(data: UInt8s, at: Int64s, wanted: Flags, where: object) -> Int64s:
    """Return the byte at each wanted position, 0 elsewhere."""
    _check((at[wanted] >= HEADER - 1).all(), "nodes before the first", where)
    return np.where(wanted, data[np.where(wanted, at, 0)], 0).astype(np.int64)


def _number(data: UInt8s, at: Int64s, width: Int64s) -> Int64s:
    """Read little-endian integers of up to eight bytes; all must lie within ``data``."""
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


# --- CRC-32C, the checksum at the end of a token set ------------------------------------
# Specification: "Token sets" in ``docs/format/text-token-sets.md``.

_ONES = 0xFFFF_FFFF


def _table() -> list[int]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (np.uint32(0x82F63B78) * (table & np.uint32(1)))
    return table.tolist()


def masked_crc32c(data: UInt8s) -> int:
    """Return the checksum of some bytes, rotated and offset as stored; takes 60 ms per megabyte."""
    table, total = _table(), _ONES
    for byte in data.tobytes():
        total = table[(total ^ byte) & 255] ^ (total >> 8)
    total ^= _ONES
    rotated = (total >> 15) | (total << 17) & _ONES
    return (rotated + 0xA282EAD8) & _ONES


# --- Write tokens as an FST: a trie, with every node after its children -----------------
#
# The FST is fast to write, but larger than a minimal one: equal suffixes repeat. Readers accept it.
#
# Specification: "Token sets" in ``docs/format/text-token-sets.md``.


class _Tree(NamedTuple):
    """Nodes of the trie in the order of first use by the sorted tokens, beginning with the root.

    Parameters
    ----------
    parents, letters
        Parent of each node, and the letter of the transition from the parent.
    outputs
        Output of this transition; a token's number is the sum of the outputs on its path.
    final, ends
        Whether a token ends at the node, and its final output.
    """

    parents: Int64s
    letters: UInt8s
    outputs: Int64s
    final: Flags
    ends: Int64s


class _Layout(NamedTuple):
    """Layout of nodes, with one entry per node.

    Parameters
    ----------
    children
        Number of transitions.
    stored
        The node is stored: it has transitions, or is the root.
    alone
        The node has one transition, and no token ends at it.
    follows
        This transition leads to the node stored right before it, without an output.
    wide, deep
        Bytes per output, and bytes per step back to the target of a transition.
    first, last
        Positions of the first and the last byte.
    steps
        Distance from the first byte of the parent back to the last byte; 0 if implied.
    """

    children: Int64s
    stored: Flags
    alone: Flags
    follows: Flags
    wide: Int64s
    deep: Int64s
    first: Int64s
    last: Int64s
    steps: Int64s


def write_fst(tokens: pa.Array, numbers: Int64s) -> bytes:
    """Encode ascending, distinct tokens with their numbers as an FST."""
    tree = _tree(tokens, numbers)
    layout = _layout(tree)
    content = np.zeros(int(layout.last[0]) + 1, np.uint8)
    _put_single(content, tree, layout)
    _put_branching(content, tree, layout)
    content[:8] = np.array([VERSION], "<u8").view(np.uint8)
    footer = np.array([len(numbers), int(layout.last[0])], "<u8").view(np.uint8)
    body = np.concatenate([content, footer])
    return body.tobytes() + masked_crc32c(body).to_bytes(4, "little")


def _layout(tree: _Tree) -> _Layout:
    """Compute the position of each node."""
    count = len(tree.parents)
    children = np.bincount(tree.parents[1:], minlength=count)
    stored = children > 0
    stored[0] = True
    alone = (children == 1) & ~tree.final
    only = np.minimum(np.arange(count) + 1, count - 1)
    follows = alone & stored[only] & (tree.outputs[only] == 0)
    wide = _widths(tree, children)
    none = np.zeros(count, np.int64)
    layout = _Layout(children, stored, alone, follows, wide, none, none, none, none)
    # Sizes of nodes depend on the widths of steps, and steps on the sizes. A first round with
    # the widest steps gives an upper bound of the widths.
    for deep in (np.full(count, 8, np.int64), (children > 0).astype(np.int64)):
        if layout.steps is not none:
            np.maximum.at(deep, tree.parents[1:], _bytes_of(layout.steps[1:]))
        sizes = _sizes(tree, layout._replace(deep=deep))
        # Nodes are stored in reverse order.
        last = HEADER + np.cumsum(sizes[::-1])[::-1] - 1
        first = last - sizes + 1
        steps = np.where(stored, first[tree.parents] - last, 0)
        layout = layout._replace(deep=deep, first=first, last=last, steps=steps)
    return layout


def _tree(tokens: pa.Array, numbers: Int64s) -> _Tree:
    _, stops, content = tokens.buffers()
    none = np.zeros(0, np.uint8)
    offsets = np.zeros(1, np.int64) if stops is None else as_array(stops, np.int64)
    offsets = offsets[tokens.offset :][: len(tokens) + 1]
    data: UInt8s = none if content is None else as_array(content)
    lengths = np.diff(offsets)
    begins = offsets[:-1]
    shared = _shared(begins, lengths, data)
    new = lengths - shared
    base = np.cumsum(new) - new + 1
    count = 1 + int(new.sum())
    letters, depths = np.zeros(count, np.uint8), np.zeros(count, np.int64)
    letters[1:] = data[spread(begins + shared, new)]
    depths[1:] = spread(shared + 1, new)
    parents = np.arange(-1, count - 1)
    parents[0] = 0
    _join(parents, lengths, shared, base)
    at_end = np.where(lengths > 0, base + new - 1, 0)
    final = np.zeros(count, np.bool_)
    final[at_end] = len(numbers) > 0
    # The outputs on the path to a node add up to the smallest number below the node.
    lowest = np.full(count, np.iinfo(np.int64).max)
    lowest[at_end] = numbers
    order = np.argsort(depths, kind="stable")
    bounds = np.searchsorted(depths[order], np.arange(int(depths.max()) + 2))
    for depth in range(int(depths.max()), 0, -1):
        nodes = order[bounds[depth] : bounds[depth + 1]]
        np.minimum.at(lowest, parents[nodes], lowest[nodes])
    ends = np.zeros(count, np.int64)
    lowest[0] = 0
    ends[at_end] = numbers - lowest[at_end]
    return _Tree(parents, letters, lowest - lowest[parents], final, ends)


def _shared(begins: Int64s, lengths: Int64s, data: UInt8s) -> Int64s:
    """Return the number of leading letters that each token shares with the token before."""
    shared = np.zeros(len(lengths), np.int64)
    rows = np.arange(1, len(lengths))
    depth = 0
    while len(rows):
        rows = rows[(lengths[rows] > depth) & (lengths[rows - 1] > depth)]
        rows = rows[data[begins[rows] + depth] == data[begins[rows - 1] + depth]]
        depth += 1
        shared[rows] = depth
    return shared


def _join(parents: Int64s, lengths: Int64s, shared: Int64s, base: Int64s) -> None:
    """Set the parents of the nodes at which tokens branch off from earlier tokens."""
    alive = np.arange(len(lengths))
    for depth in range(int(shared.max(initial=0)) + 1):
        alive = alive[lengths[alive] >= depth]
        joining = alive[(shared[alive] == depth) & (lengths[alive] > depth)]
        if depth == 0:
            parents[base[joining]] = 0
            continue
        owners = alive[shared[alive] < depth]
        owner = owners[np.searchsorted(owners, joining) - 1]
        parents[base[joining]] = base[owner] + depth - shared[owner] - 1


def _bytes_of(values: Int64s) -> Int64s:
    """Return the bytes that integers need, at least one."""
    return np.maximum(1, -(-np.frexp(values)[1].astype(np.int64) // 8))


def _widths(tree: _Tree, children: Int64s) -> Int64s:
    """Return the bytes per output of each node, 0 if all its outputs are 0."""
    wide = np.where(tree.ends > 0, _bytes_of(tree.ends), 0)
    needed = np.where(tree.outputs > 0, _bytes_of(tree.outputs), 0)
    np.maximum.at(wide, tree.parents[1:], needed[1:])
    return np.where(children > 0, wide, 0)


def _sizes(tree: _Tree, layout: _Layout) -> Int64s:
    """Return the bytes of each node."""
    children, wide, deep = layout.children, layout.wide, layout.deep
    has_code = CODE_OF[tree.letters[np.minimum(np.arange(len(wide)) + 1, len(wide) - 1)]] > 0
    single = np.where(layout.follows, 2 - has_code, 3 - has_code + deep + wide)
    has_count = (children > 63) | (children == 0)
    ended = tree.final & (wide > 0)
    many = 2 + has_count + children * (1 + deep) + wide * (children + ended)
    many += np.where(children > MAX_PLAIN, INDEXED, 0)
    return np.where(layout.stored, np.where(layout.alone, single, many), 0)


def _put_single(content: UInt8s, tree: _Tree, layout: _Layout) -> None:
    """Write nodes with one transition, each after its child."""
    only = np.flatnonzero(layout.alone)
    child = only + 1
    last, wide, deep = layout.last[only], layout.wide[only], layout.deep[only]
    code = CODE_OF[tree.letters[child]]
    content[last] = np.where(layout.follows[only], 192, 128) | code
    bare = code == 0
    content[last[bare] - 1] = tree.letters[child[bare]]
    own = ~layout.follows[only]
    child, wide, deep = child[own], wide[own], deep[own]
    at = (last - 1 - bare)[own]
    content[at] = deep << 4 | wide
    _put(content, at - deep, layout.steps[child], deep)
    _put(content, at - deep - wide, tree.outputs[child], wide)


def _put_branching(content: UInt8s, tree: _Tree, layout: _Layout) -> None:
    """Write the other nodes, each after its children."""
    nodes = np.flatnonzero(layout.stored & ~layout.alone)
    counts, last = layout.children[nodes], layout.last[nodes]
    wide, deep = layout.wide[nodes], layout.deep[nodes]
    fits = (counts > 0) & (counts < 64)
    content[last] = np.where(fits, counts, 0) | (tree.final[nodes].astype(np.int64) << 6)
    # A count of one always fits the state, so that 1 in the extra byte means 256.
    spilled = counts[~fits]
    content[last[~fits] - 1] = np.where(spilled == INDEXED, 1, spilled)
    at = last - 1 - ~fits
    content[at] = deep << 4 | wide
    indexed = counts > MAX_PLAIN
    at -= np.where(indexed, INDEXED, 0)
    kids = np.flatnonzero(layout.stored[tree.parents] & ~layout.alone[tree.parents])
    kids = kids[kids > 0]
    kids = kids[np.argsort(tree.parents[kids], kind="stable")]
    # Nodes and parents of kids ascend: repeating each node per kid matches them.
    owner = np.repeat(np.arange(len(nodes)), counts)
    rank = spread(np.zeros(len(nodes), np.int64), counts)
    content[at[owner] - 1 - rank] = tree.letters[kids]
    ends = at - counts
    _put(content, ends[owner] - (rank + 1) * deep[owner], layout.steps[kids], deep[owner])
    ends -= counts * deep
    _put(content, ends[owner] - (rank + 1) * wide[owner], tree.outputs[kids], wide[owner])
    ended = tree.final[nodes] & (wide > 0)
    _put(content, layout.first[nodes[ended]], tree.ends[nodes[ended]], wide[ended])
    content[at[indexed][:, None] + np.arange(INDEXED)] = 255
    in_index = indexed[owner]
    content[at[owner[in_index]] + tree.letters[kids[in_index]]] = rank[in_index]


def _put(content: UInt8s, at: Int64s, values: Int64s, width: Int64s) -> None:
    """Write little-endian integers of up to eight bytes."""
    for byte in range(int(width.max(initial=0))):
        more = width > byte
        content[at[more] + byte] = (values[more] >> (8 * byte)) & 255


_SET = "_token_fst_bytes"
_COUNT = "_token_next_id"
_BYTES = "_token_total_length"
_TEXT = "_token"
_NUMBER = "_token_id"


def token_columns(file: IndexFile) -> frozenset[str]:
    """Return the columns of a token set: an FST or a table."""
    return frozenset((_SET, _COUNT, _BYTES) if _SET in file.schema.names else (_TEXT, _NUMBER))


class Tokens(NamedTuple):
    """Tokens in ascending order, and the number of each."""

    strings: pa.Array
    numbers: Int64s

    def kept(self, mask: Flags) -> Tokens:
        """Return the tokens whose numbers are in the mask, and renumber them in order."""
        kept = mask[self.numbers]
        renumbered = np.cumsum(mask) - 1
        return Tokens(self.strings.filter(flag_array(kept)), renumbered[self.numbers[kept]])


def read_tokens(file: IndexFile, count: int) -> Tokens:
    """Read a token set of ``count`` tokens.

    Raises
    ------
    CorruptFileError
        The number of tokens is wrong, numbers differ from 0 to ``count - 1``, a token occurs twice,
        or tokens are invalid UTF-8.
    """
    if _SET in file.schema.names:
        tokens = _from_set(file, count)
    else:
        file.check(_token=pa.string(), _token_id=pa.uint32())
        rows = file.read([_TEXT, _NUMBER])
        if rows[_TEXT].null_count or rows[_NUMBER].null_count:
            raise _corrupt(file, count, "nulls")
        strings: Any = one_array(rows[_TEXT]).cast(pa.large_binary())
        tokens = Tokens(strings, as_numpy(rows[_NUMBER]).astype(np.int64))
    numbered = np.zeros(count, np.bool_)
    if len(tokens.numbers) != count or (count and tokens.numbers.max() >= count):
        raise _corrupt(file, count, f"{len(tokens.numbers)}")
    numbered[tokens.numbers] = True
    if not numbered.all():
        raise _corrupt(file, count, "the same number twice")
    try:
        tokens.strings.cast(pa.large_string())  # tokens of an FST may be any bytes
    except pa.ArrowInvalid as error:
        raise file.corrupt("tokens of an index", "UTF-8", str(error)) from error
    order = pc.sort_indices(tokens.strings)
    ordered = tokens.strings.take(order)
    if count > 1 and pc.any(pc.equal(ordered[1:], ordered[:-1])).as_py():
        raise _corrupt(file, count, "the same token twice")
    return Tokens(ordered, tokens.numbers[as_numpy(order)])


def _from_set(file: IndexFile, count: int) -> Tokens:
    # Check the type of the count column only: writers compute the counts again.
    types: dict[str, pa.DataType] = {
        _SET: pa.large_binary(), _COUNT: pa.uint32(), _BYTES: pa.uint64(),
    }  # fmt: skip
    file.check(**types)
    rows = file.read([_SET, _BYTES])
    if len(rows) != 1 or rows[_SET].null_count or rows[_BYTES].null_count:
        raise _corrupt(file, count, f"{len(rows)} sets of them")
    data = rows[_SET][0].as_buffer()
    if count and rows[_BYTES][0].as_py() > data.size * 1024:
        raise _corrupt(file, count, f"{rows[_BYTES][0].as_py()} bytes of tokens")

    return Tokens(*read_fst(data, count, file.path))


def write_tokens(tokens: Tokens, schema: pa.Schema) -> pa.Table:
    """Return tokens as rows of a file with a schema."""
    if _SET not in schema.names:
        table = pa.table({_TEXT: tokens.strings, _NUMBER: number_array(tokens.numbers)})
        return table.select(schema.names).cast(schema)

    strings: Any = tokens.strings
    size = int(pc.sum(pc.binary_length(strings)).as_py() or 0)
    columns = {
        _SET: constants([write_fst(tokens.strings, tokens.numbers)], pa.large_binary()),
        _COUNT: constants([len(tokens.numbers)], pa.uint32()),
        _BYTES: constants([size], pa.uint64()),
    }
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def _corrupt(file: IndexFile, count: int, found: str) -> CorruptFileError:
    return file.corrupt("tokens of an index", f"{count}, one per list", found)


# --- Find tokens within a few edits of another token ------------------------------------
# An edit inserts, deletes or replaces a character.
#
# Specification: "Fuzzy queries" in ``docs/format/text-search.md``.

_FIRST_TOKENS, _MAX_BATCH_TOKENS = 1 << 10, 1 << 15
"""Tokens to compare at a time: few at first, because these often suffice."""


def near_tokens(tokens: Any, wanted: str, distance: int, prefix_length: int, limit: int) -> Int64s:
    """Return the indices of the first tokens within ``distance`` edits of a token.

    Parameters
    ----------
    tokens
        Array of type ``large_string``, ascending.
    wanted
        Token to compare with.
    prefix_length
        Leading characters that must be equal, or the whole token if it is shorter.
    limit
        Maximum number of indices.

    Notes
    -----
    Time is proportional to the number of tokens of a similar length.
    """
    kept = wanted[:prefix_length]
    lengths = as_numpy(pc.utf8_length(tokens))
    near = abs(lengths - len(wanted)) <= distance
    if kept:
        near &= as_numpy(pc.starts_with(tokens, kept))
    candidates = np.flatnonzero(near)
    found: list[Int64s] = []
    count = 0
    start, step = 0, _FIRST_TOKENS
    while start < len(candidates):
        places = candidates[start : start + step]
        start, step = start + step, min(2 * step, _MAX_BATCH_TOKENS)
        within = _within(tokens.take(number_array(places)), wanted, distance)
        found.append(places[within])
        count += len(found[-1])
        if count >= limit:
            break
    return np.concatenate([np.zeros(0, np.int64), *found])[:limit]


def _within(tokens: Any, wanted: str, distance: int) -> Flags:
    """Return which tokens are within ``distance`` edits; computes a table row for all at a time."""
    _, offsets, data = tokens.buffers()
    ends = as_array(offsets, np.int64)[tokens.offset : tokens.offset + len(tokens) + 1]
    joined = data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes().decode()
    characters = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
    lengths = as_numpy(pc.utf8_length(tokens)).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    columns = np.arange(len(wanted) + 1, dtype=np.int32)
    goal = np.array([ord(character) for character in wanted], np.uint32)
    row = np.repeat(columns[None], len(tokens), axis=0)
    for place in range(int(lengths.max(initial=0))):
        going = np.flatnonzero(lengths > place)
        before = row[going]
        differs = characters[starts[going] + place][:, None] != goal
        after = np.empty_like(before)
        after[:, 0] = before[:, 0] + 1
        after[:, 1:] = np.minimum(before[:, 1:] + 1, before[:, :-1] + differs)
        # Insertions: a running minimum of each column's value before insertions.
        after = np.minimum.accumulate(after - columns, axis=1) + columns
        row[going] = after
    return row[:, -1] <= distance
