"""Search a text by its Burrows-Wheeler transform, stored as a wavelet tree.

The rows of a transform are the suffixes of the text, in their order; the transform has the byte
before each suffix. A node of the tree has a bit for each of some bytes of the transform: 1 if the
byte is below the right child. By counting bits, level by level, kernels number the byte before a
row. From it follows the row of the suffix that begins one byte earlier.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import SchemaError
from glaive.kernels._addresses import address
from glaive.kernels.native import wavelet as wavelet_loops
from glaive.types import Int64s, UInt8s, UInt64s

# --- Sort the suffixes of a text: its suffix array --------------------------------------

MAX_TEXT_BYTES: Final = (1 << 31) - 1
"""Longest text in bytes whose suffixes can be sorted."""

_BYTES: Final = 256


def sort_suffixes(text: UInt8s) -> NDArray[np.int32]:
    """Return the start of each suffix of a text, in the order of the suffixes.

    A suffix comes before longer ones that begin with it. A kernel takes some steps for each byte,
    and needs nine bytes of memory per byte.

    Parameters
    ----------
    text
        At most 2^31 - 1 bytes.

    Raises
    ------
    SchemaError
        The text is longer.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise SchemaError(f"a text of {len(text)} bytes, of at most {MAX_TEXT_BYTES}")
    return _sorted(np.ascontiguousarray(text), _BYTES)


def _sorted(text: NDArray[Any], symbols: int) -> NDArray[np.int32]:
    """Return the order of the suffixes of numbers below ``symbols``: bytes or ``int32``."""
    size = len(text)
    order = np.full(size, -1, np.int32)
    if not size:
        return order
    starts, heads = np.empty(symbols + 1, np.int64), np.empty(symbols, np.int64)
    minima, names = np.empty(size // 2 + 1, np.int32), np.full(size // 2 + 1, -1, np.int32)
    count = np.zeros(1, np.int64)

    common = {
        "text": address(text), "width": text.itemsize, "size": size, "symbols": symbols,
        "starts": address(starts), "heads": address(heads), "minima": address(minima),
        "found_count": address(count), "order": address(order),
    }  # fmt: skip
    distinct = wavelet_loops.sort_substrings(**common, names=address(names))
    found = int(count[0])
    numbers = names[:found]
    if distinct < found:  # Some are equal: the numbers after them decide.
        by_suffix = _sorted(np.ascontiguousarray(numbers), distinct)
    else:
        by_suffix = np.empty(found, np.int32)
        by_suffix[numbers] = np.arange(found, dtype=np.int32)
    names = minima[by_suffix]
    order.fill(-1)
    wavelet_loops.sort_suffixes(**common, names=address(names))
    return order


_BLOCK_WORDS: Final = 8
"""Words of bits counted one by one; the counts of earlier words are stored."""

_MAX_STEPS: Final = 256
"""Largest average number of steps back for each row to locate. With one sample in 32 rows, about
32 are taken. Repetitive texts may take any number."""


@dataclass(frozen=True, slots=True, eq=False)
class WaveletTree:
    """A wavelet tree of bytes; checked when created.

    Parameters
    ----------
    words
        ``uint64``: the bits of one node after the other, lowest bit first. Each node starts with
        a new word.
    children
        ``int64`` of shape ``(nodes, 2)``: node below a bit 0 and below a bit 1, or ``~symbol``.
        Node 0 is the root; children come after their parents.
    counts
        ``int64`` of shape ``(257,)``: number of smaller bytes in the transform, for each byte;
        then the number of all bytes.

    Raises
    ------
    ValueError
        The arrays contradict each other.
    """

    words: UInt64s
    children: Int64s
    counts: Int64s
    nodes: Int64s = field(init=False, repr=False)
    """For each node: its first word, its first entry of ``ranks``, and its children."""
    ranks: Int64s = field(init=False, repr=False)
    """For every eight words of a node: number of set bits before them."""
    path_starts: Int64s = field(init=False, repr=False)
    """For each byte: its first entry of ``paths``; then the number of entries."""
    paths: Int64s = field(init=False, repr=False)
    """Steps from the root to each byte: twice the node, plus the bit."""
    sizes: Int64s = field(init=False, repr=False)
    """Number of bits of each node."""

    def __post_init__(self) -> None:
        counts, words = self.counts, self.words
        good = counts.shape == (257,) and counts.dtype == np.int64 and words.dtype == np.uint64
        good = good and words.ndim == 1 and words.flags.c_contiguous and counts.flags.c_contiguous
        if not good or counts[0] != 0 or bool((counts[1:] < counts[:-1]).any()):
            raise ValueError(f"{len(counts)} counts of bytes that do not ascend from 0")
        children = self.children
        if children.ndim != 2 or children.shape[1] != 2 or children.dtype != np.int64:
            raise ValueError(f"children of shape {children.shape}")
        paths = _paths(children)
        present = np.diff(counts)
        if any((present[symbol] > 0) != bool(path) for symbol, path in enumerate(paths)):
            raise ValueError("leaves that are not the bytes of the text")
        self._set("path_starts", np.cumsum([0, *map(len, paths)]))
        self._set("paths", np.array([step for path in paths for step in path], np.int64))
        sizes = np.zeros(len(children), np.int64)
        for symbol, path in enumerate(paths):
            np.add.at(sizes, np.array(path, np.int64) >> 1, present[symbol])
        self._set("sizes", sizes)
        used = (sizes + 63) >> 6
        if int(used.sum()) != len(words):
            raise ValueError(f"{len(words)} words of bits, where {int(used.sum())} are needed")
        starts = used.cumsum() - used
        blocks = used // _BLOCK_WORDS + 1
        first_ranks = blocks.cumsum() - blocks
        table = np.column_stack((starts, first_ranks, children)).astype(np.int64)
        self._set("nodes", np.ascontiguousarray(table))
        ones = np.zeros(len(words) + 1, np.int64)
        np.bitwise_count(words).cumsum(out=ones[1:])
        node = np.arange(len(used)).repeat(blocks)
        word = (np.arange(len(node)) - first_ranks[node]) * _BLOCK_WORDS + starts[node]
        self._set("ranks", ones[word] - ones[starts[node]])
        right = np.zeros(len(children), np.int64)
        for symbol, path in enumerate(paths):
            above = np.array([step >> 1 for step in path if step & 1], np.int64)
            np.add.at(right, above, present[symbol])
        stored = ones[starts + used] - ones[starts] - self._ones_after_end(used, starts)
        if bool((stored != right).any()):
            at = int((stored != right).nonzero()[0][0])
            raise ValueError(f"{stored[at]} bits that are 1 in node {at}, not {right[at]}")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _ones_after_end(self, used: Int64s, starts: Int64s) -> Int64s:
        """Return the number of set bits after the end of each node, in its last word."""
        if not len(used):
            return used
        kept = np.uint64(2**64 - 1) >> (used * 64 - self.sizes).astype(np.uint64)
        dropped: Int64s = np.bitwise_count(self.words[starts + used - 1] & ~kept).astype(np.int64)
        return dropped

    def bits(self, node: int) -> UInt8s:
        """Return the bits of a node, one byte each."""
        size, start = int(self.sizes[node]), int(self.nodes[node, 0])
        words = self.words[start : start + ((size + 63) >> 6)].view(np.uint8)
        return np.unpackbits(words, count=size, bitorder="little")

    @property
    def size(self) -> int:
        """Number of bytes in the text."""
        return int(self.counts[256])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        small = self.nodes.nbytes + self.paths.nbytes + self.path_starts.nbytes + self.sizes.nbytes
        return int(self.words.nbytes + self.ranks.nbytes + self.counts.nbytes + small)

    def transform(self) -> UInt8s:
        """Return the Burrows-Wheeler transform: a byte for each row."""
        made: dict[int, UInt8s] = {}
        for node in range(len(self.sizes) - 1, -1, -1):
            bits = self.bits(node).astype(np.bool_)
            found = np.empty(len(bits), np.uint8)
            for flags, child in zip((~bits, bits), self.children[node].tolist(), strict=True):
                found[flags] = made.pop(child) if child >= 0 else np.uint8(~child)
            made[node] = found
        return made[0] if made else np.empty(0, np.uint8)


def _paths(children: Int64s) -> list[list[int]]:
    """Return the steps from the root to each byte, empty for a byte that lacks a leaf."""
    paths: list[list[int]] = [[] for _ in range(256)]
    reached: list[list[int] | None] = [[]] + [None] * (len(children) - 1)
    for node, pair in enumerate(children.tolist()):
        path = reached[node]
        if path is None:
            raise ValueError(f"node {node} has no parent before it")
        for bit, child in enumerate(pair):
            step = [*path, 2 * node + bit]
            known = node < child < len(children) and reached[child] is None
            if known:
                reached[child] = step
            elif -256 <= child < 0 and not paths[~child]:
                paths[~child] = step
            else:
                raise ValueError(f"child {child} of node {node} is not a node or a byte of its own")
    return paths


@dataclass(frozen=True, slots=True, eq=False)
class SuffixSamples:
    """The starts of some rows' suffixes; checked when created.

    Parameters
    ----------
    positions
        ``int64``: the start of every ``2 ** shift``-th row's suffix.
    shift
        From 0 to 20.
    rows
        Number of rows, and of bytes in the text.

    Raises
    ------
    ValueError
        The values contradict each other.
    """

    positions: Int64s
    shift: int
    rows: int

    def __post_init__(self) -> None:
        positions, rows = self.positions, self.rows
        good = positions.dtype == np.int64 and positions.ndim == 1 and 0 <= self.shift <= 20
        good = good and positions.flags.c_contiguous and 0 <= rows < 1 << 48
        if not good or len(positions) != (rows + (1 << self.shift) - 1) >> self.shift:
            raise ValueError(f"{len(positions)} samples of {rows} rows")
        if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < rows:
            raise ValueError(f"samples beyond the {rows} bytes of the text")


def find_pattern(tree: WaveletTree, pattern: bytes) -> tuple[int, int]:
    """Return the rows of suffixes that begin with a pattern: the first, and one after the last.

    Kernels count bits twice per byte of the pattern and level of the tree, for any text.
    """
    symbols, found = np.frombuffer(pattern, np.uint8), np.zeros(2, np.int64)
    wavelet_loops.find_pattern(
        pattern=address(symbols), length=len(symbols), words=address(tree.words),
        ranks=address(tree.ranks), nodes=address(tree.nodes), counts=address(tree.counts),
        path_starts=address(tree.path_starts), paths=address(tree.paths), rows=tree.size,
        found=address(found),
    )  # fmt: skip
    low, high = found.tolist()
    return low, high


def locate_rows(tree: WaveletTree, samples: SuffixSamples, first: int, stop: int) -> Int64s | None:
    """Return the start of the suffixes of the rows from ``first`` to ``stop``.

    Return ``None`` if that takes too many steps, or if the samples belong to another text.

    Raises
    ------
    ValueError
        The tree has fewer rows, or the samples have.
    """
    if not 0 <= first <= stop <= tree.size or samples.rows != tree.size:
        raise ValueError(f"rows {first} to {stop} of {tree.size}, samples of {samples.rows}")
    count = stop - first
    most_steps = _MAX_STEPS * (count + _MAX_STEPS)
    positions = np.empty(count, np.int64)
    return positions if wavelet_loops.locate_rows(
        first=first, stop=stop, words=address(tree.words), ranks=address(tree.ranks),
        nodes=address(tree.nodes), counts=address(tree.counts), rows=tree.size,
        samples=address(samples.positions), shift=samples.shift, most_steps=most_steps,
        positions=address(positions),
    ) >= 0 else None  # fmt: skip


def read_text(tree: WaveletTree) -> UInt8s:
    """Return the text up to its last byte, exclusive; a step of :func:`locate_rows` for each byte.

    The last byte must be smaller than all others; otherwise the result is arbitrary.
    """
    size = tree.size
    text = np.empty(max(0, size - 1), np.uint8)
    wavelet_loops.read_text(
        words=address(tree.words), ranks=address(tree.ranks), nodes=address(tree.nodes),
        counts=address(tree.counts), rows=size, text=address(text),
    )  # fmt: skip
    return text
