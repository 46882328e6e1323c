"""Write tokens as an FST: a trie, with every node after its children.

Common suffixes are not shared (readers do not need it): the FST is quick to write, but not
minimal.

Specification: "Token sets" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import spread
from glaive.index.text.crc32c import masked_crc32c
from glaive.index.text.fst_constants import CODE_OF, HEADER, INDEX, MANY, VERSION
from glaive.memory import as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s, UInt8s

__all__ = ["write_fst"]


class _Tree(NamedTuple):
    """Nodes of the trie in the order of first use by the sorted tokens; the root is first.

    Parameters
    ----------
    parents, letters
        The parent, and the letter of the transition from there.
    outputs
        Output of that transition; a token's number is the sum of the outputs on its path.
    final, ends
        Whether a token ends at the node, and the final output.
    """

    parents: Int64s
    letters: UInt8s
    outputs: Int64s
    final: Flags
    ends: Int64s


class _Layout(NamedTuple):
    """How nodes are written, one entry for each.

    Parameters
    ----------
    children
        Number of transitions.
    stored
        Whether the node is written: it has transitions, or is the root.
    alone
        Whether it has one transition, and no token ends there.
    follows
        Whether that transition leads to the node written right before, without an output.
    wide, deep
        Bytes per output, and per step back to the target of a transition.
    first, last
        Positions of its first and last byte.
    steps
        From the first byte of its parent back to its last byte; 0 if it is not stored.
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
    """The FST of ascending, distinct tokens with these numbers."""
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
    # Sizes of nodes depend on the widths of steps, and steps on the sizes: a first round with
    # the widest steps gives an upper bound of the widths.
    for deep in (np.full(count, 8, np.int64), (children > 0).astype(np.int64)):
        if layout.steps is not none:
            np.maximum.at(deep, tree.parents[1:], _bytes_of(layout.steps[1:]))
        sizes = _sizes(tree, layout._replace(deep=deep))
        # The last node comes first.
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
    # The path to each node adds up to the smallest number below it.
    least = np.full(count, np.iinfo(np.int64).max)
    least[at_end] = numbers
    order = np.argsort(depths, kind="stable")
    bounds = np.searchsorted(depths[order], np.arange(int(depths.max()) + 2))
    for depth in range(int(depths.max()), 0, -1):
        nodes = order[bounds[depth] : bounds[depth + 1]]
        np.minimum.at(least, parents[nodes], least[nodes])
    ends = np.zeros(count, np.int64)
    least[0] = 0
    ends[at_end] = numbers - least[at_end]
    return _Tree(parents, letters, least - least[parents], final, ends)


def _shared(begins: Int64s, lengths: Int64s, data: UInt8s) -> Int64s:
    """Letters that each token has in common with the one before."""
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
    """Set the parents of the nodes at which tokens branch off from those before them."""
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
    """Bytes that integers need, at least one."""
    sizes = np.ones(len(values), np.int64)
    for byte in range(1, 8):
        sizes += values >= np.int64(1) << (8 * byte)
    return sizes


def _widths(tree: _Tree, children: Int64s) -> Int64s:
    """Bytes of the outputs of each node, 0 if all are 0."""
    wide = np.where(tree.ends > 0, _bytes_of(tree.ends), 0)
    needed = np.where(tree.outputs > 0, _bytes_of(tree.outputs), 0)
    np.maximum.at(wide, tree.parents[1:], needed[1:])
    return np.where(children > 0, wide, 0)


def _sizes(tree: _Tree, layout: _Layout) -> Int64s:
    """Bytes of each node."""
    children, wide, deep = layout.children, layout.wide, layout.deep
    has_code = CODE_OF[tree.letters[np.minimum(np.arange(len(wide)) + 1, len(wide) - 1)]] > 0
    single = np.where(layout.follows, 2 - has_code, 3 - has_code + deep + wide)
    has_count = (children > 63) | (children == 0)
    ended = tree.final & (wide > 0)
    many = 2 + has_count + children * (1 + deep) + wide * (children + ended)
    many += np.where(children > MANY, INDEX, 0)
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
    # A count of one always fits, so that 1 here stands for 256.
    spilled = counts[~fits]
    content[last[~fits] - 1] = np.where(spilled == INDEX, 1, spilled)
    at = last - 1 - ~fits
    content[at] = deep << 4 | wide
    indexed = counts > MANY
    at -= np.where(indexed, INDEX, 0)
    kids = np.flatnonzero(layout.stored[tree.parents] & ~layout.alone[tree.parents])
    kids = kids[kids > 0]
    kids = kids[np.argsort(tree.parents[kids], kind="stable")]
    # Nodes and the parents of kids are ascending: repeating each node per kid matches them.
    owner = np.repeat(np.arange(len(nodes)), counts)
    rank = spread(np.zeros(len(nodes), np.int64), counts)
    content[at[owner] - 1 - rank] = tree.letters[kids]
    ends = at - counts
    _put(content, ends[owner] - (rank + 1) * deep[owner], layout.steps[kids], deep[owner])
    ends -= counts * deep
    _put(content, ends[owner] - (rank + 1) * wide[owner], tree.outputs[kids], wide[owner])
    ended = tree.final[nodes] & (wide > 0)
    _put(content, layout.first[nodes[ended]], tree.ends[nodes[ended]], wide[ended])
    content[at[indexed][:, None] + np.arange(INDEX)] = 255
    in_index = indexed[owner]
    content[at[owner[in_index]] + tree.letters[kids[in_index]]] = rank[in_index]


def _put(content: UInt8s, at: Int64s, values: Int64s, width: Int64s) -> None:
    """Write little-endian integers of up to eight bytes."""
    for byte in range(int(width.max(initial=0))):
        more = width > byte
        content[at[more] + byte] = (values[more] >> (8 * byte)) & 255
