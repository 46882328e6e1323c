"""FM, built: texts joined, their suffixes sorted, the transform cut into a wavelet tree.

Specification: "FM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import field
from struct import pack
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.index.row_set import RowNumbers
from glaive.index.scalar.fm_partition import (
    DEAD_ROW,
    END,
    SAMPLES,
    SCHEMA,
    SEPARATOR,
    FMPartition,
)
from glaive.index.segment import SegmentWriter
from glaive.index.source import ValueBatch
from glaive.kernels.suffixes import MOST_BYTES, sort_suffixes
from glaive.kernels.wavelet import read_text
from glaive.memory import as_array, as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt8s, UInt64s

__all__ = [
    "Texts",
    "is_small",
    "partition_name",
    "partitions_of",
    "stored_texts",
    "texts_of",
    "write_partition",
]

_MOST_TEXTS: Final = 10_000
_MOST_BYTES: Final = 1 << 22
"""Texts of a partition, and bytes after which it is closed: more are sorted at half the speed."""

_MEMORY_PER_BYTE: Final = 16
"""Bytes of memory for each byte of a text whose suffixes are sorted, about."""

_RATE: Final = 32
_BLOCK_BYTES: Final = 1 << 15
_DEEPEST: Final = 32
"""Bits of a code at most: they are stored as a number of so many."""


class Texts(NamedTuple):
    """Texts of neighbouring rows, without nulls.

    Parameters
    ----------
    rows
        Number of each row.
    sizes
        ``int64``: bytes of each text.
    data
        Their bytes.
    """

    rows: RowNumbers
    sizes: Int64s
    data: UInt8s


def partition_name(number: int) -> str:
    """Name of the file of a partition."""
    return f"part_{number}_fm.lance"


def partitions_of(texts_of_rows: Iterator[Texts], memory_limit: int) -> Iterator[list[Texts]]:
    """Cut a stream of texts into partitions: by texts and bytes, or by memory."""
    most_bytes = max(1, min(_MOST_BYTES, memory_limit // _MEMORY_PER_BYTE))
    kept: list[Texts] = []
    texts = size = 0
    for arrived in texts_of_rows:
        rest = arrived
        while len(rest.rows):
            ends = np.cumsum(rest.sizes + 1)
            # The text that fills a partition is its last.
            filled = int(np.searchsorted(ends, most_bytes - size)) + 1
            count = min(filled, _MOST_TEXTS - texts, len(rest.rows))
            used = int(ends[count - 1]) - count
            kept.append(Texts(rest.rows[:count], rest.sizes[:count], rest.data[:used]))
            rest = Texts(rest.rows[count:], rest.sizes[count:], rest.data[used:])
            texts, size = texts + count, size + used + count
            if texts == _MOST_TEXTS or size >= most_bytes:
                yield kept
                kept, texts, size = [], 0, 0
    if kept:
        yield kept


def is_small(partition: FMPartition) -> bool:
    """Whether a partition has less than half of the texts and bytes that one may have."""
    few = 2 * len(partition.rows) < _MOST_TEXTS and 2 * partition.size < _MOST_BYTES
    return few and not partition.has_zeros


def stored_texts(partition: FMPartition) -> Texts:
    """The texts of a partition whose rows are still there.

    Raises
    ------
    CorruptFileError
        It is damaged.
    """
    data = read_text(partition.load().tree)
    ends = np.append(partition.starts[1:], partition.size - 1) - 1
    if bool((data[ends] != SEPARATOR).any()):
        raise partition.file.corrupt("texts of an index", "a separator behind each", "others")
    sizes = ends - partition.starts
    alive = partition.rows != DEAD_ROW
    kept = np.repeat(alive, sizes + 1)
    kept[ends] = False
    return Texts(partition.rows[alive], sizes[alive], data[kept])


def texts_of(batch: ValueBatch) -> Texts:
    """The texts of a batch of values."""
    values: Any = batch.values
    rows = batch.rows
    if values.null_count:
        rows = rows[np.asarray(values.is_valid())]
        values = values.drop_null()
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    stored, data = values.buffers()[1:]
    if not len(values):
        return Texts(rows, np.empty(0, np.int64), np.empty(0, np.uint8))
    offsets = as_array(stored, np.int64 if wide else np.int32)[values.offset :][: len(values) + 1]
    offsets = offsets.astype(np.int64)
    whole = np.empty(0, np.uint8) if data is None else as_array(data)
    return Texts(rows, np.diff(offsets), whole[offsets[0] : offsets[-1]])


def write_partition(out: SegmentWriter, number: int, parts: Sequence[Texts]) -> None:
    """Write the file of a partition.

    Raises
    ------
    UnsupportedFeatureError
        A text is longer than can be indexed.
    """
    rows = np.concatenate([np.empty(0, np.uint64), *(part.rows for part in parts)])
    sizes = np.concatenate([np.empty(0, np.int64), *(part.sizes for part in parts)])
    total = int(sizes.sum()) + len(sizes) + 1
    if total > MOST_BYTES // 2:
        raise UnsupportedFeatureError(
            f"an FM index of texts of {total} bytes: one may have {MOST_BYTES // 2}. Index a "
            "column of shorter texts, or scan with use_scalar_index=False"
        )
    ends = np.cumsum(sizes + 1)
    starts = ends - sizes - 1
    made = _transformed(
        np.concatenate([np.empty(0, np.uint8), *(part.data for part in parts)]), sizes
    )
    tree = _WaveletBuilder.of(made.transform)
    words, owners, sizes_in_bits = tree.blocks(made.samples)
    counts = np.zeros(257, np.int64)
    np.cumsum(np.bincount(made.transform, minlength=256), out=counts[1:])
    sample_blocks = int((owners == SAMPLES).sum())
    numbers = {"row_ids": rows, "doc_start_positions": starts, "c_table": counts}
    metadata = {name: one.astype("<u8").tobytes().hex() for name, one in numbers.items()}
    metadata |= {
        "bwt_len": str(len(made.transform)),
        "num_bwt_nodes": str(len(tree.children)),
        "num_sa_blocks": str(sample_blocks),
        "sa_sample_rate": str(_RATE),
        "sa_samples_len": str(len(made.samples)),
        "alphabet_size": "256",
        "total_wavelet_rows": str(len(owners) - sample_blocks),
        "huffman_codes": tree.codes().hex(),
        "tree_topology": tree.topology().hex(),
    }
    table = _blocks(words, owners, sizes_in_bits)
    out.write(partition_name(number), table, metadata=metadata)


class _Transformed(NamedTuple):
    """The Burrows-Wheeler transform of a text, and where the suffix of every 32nd row begins."""

    transform: UInt8s
    samples: UInt64s


def _transformed(data: UInt8s, sizes: Int64s) -> _Transformed:
    if not len(sizes):
        return _Transformed(np.empty(0, np.uint8), np.empty(0, np.uint64))
    text = np.append(np.insert(data, np.cumsum(sizes), np.uint8(SEPARATOR)), np.uint8(END))
    if int(np.count_nonzero(text == END)) > 1:
        # The last byte is not the only one of its kind: rotations, not suffixes, are in the order
        # in which steps back lead from one to the other.
        order = sort_suffixes(np.concatenate((text, text)))
        order = order[order < len(text)]
    else:
        order = sort_suffixes(text)
    return _Transformed(text[order - 1], order[::_RATE].astype(np.uint64))


@dataclass(slots=True, eq=False)
class _WaveletBuilder:
    """Nodes of a wavelet tree in the shape of a Huffman code, parents before children.

    Parameters
    ----------
    children
        Node or ``~symbol`` below a bit 0 and below a bit 1, of each node.
    bits
        The words of each node.
    sizes
        Bits of each node.
    """

    children: list[list[int]] = field(default_factory=list)
    bits: list[UInt64s] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, transform: UInt8s) -> _WaveletBuilder:
        """Build the tree of a transform. A pass for each bit of a code, on average."""
        tree = cls()
        if len(transform):
            tree._add(_huffman(np.bincount(transform, minlength=256)), transform)
        return tree

    def _add(self, shape: Any, transform: UInt8s) -> int:
        """Add a node and what is below it; its number."""
        node = len(self.children)
        right = np.zeros(256, np.bool_)
        right[_symbols(shape[1])] = True
        flags = right[transform]
        packed = np.zeros((len(flags) + 63) // 64 * 8, np.uint8)
        found = np.packbits(flags, bitorder="little")
        packed[: len(found)] = found
        self.bits.append(packed.view(np.uint64))
        self.sizes.append(len(flags))
        pair: list[int] = []
        self.children.append(pair)
        for child, mask in zip(shape, (~flags, flags), strict=True):
            below = ~child if isinstance(child, int) else self._add(child, transform[mask])
            pair.append(below)
        return node

    def blocks(self, samples: UInt64s) -> tuple[list[UInt64s], Int64s, Int64s]:
        """Words of each block, the node each is of, and the bits of that node; samples last."""
        words: list[UInt64s] = []
        owners, sizes = [], []
        step = _BLOCK_BYTES // 8
        nodes = [*zip(range(len(self.bits)), self.bits, self.sizes, strict=True)]
        for node, bits, size in [*nodes, (SAMPLES, samples, len(samples))]:
            for start in range(0, len(bits), step):
                words.append(bits[start : start + step])
                owners.append(node)
                sizes.append(size)
        return words, np.array(owners, np.int64), np.array(sizes, np.int64)

    def codes(self) -> bytes:
        """Of each byte: its code, how many bits it has, and the nodes that it goes through."""
        parts = [bytes(7)] * 256
        stack: list[tuple[int, int, list[int]]] = [(0, 0, [])] if self.children else []
        while stack:
            node, code, path = stack.pop()
            path = [*path, node]
            for bit, child in enumerate(self.children[node]):
                if child >= 0:
                    stack.append((child, 2 * code + bit, path))
                else:
                    size = len(path)
                    parts[~child] = pack(f"<IBH{size}I", 2 * code + bit, size, size, *path)
        return b"".join(parts)

    def topology(self) -> bytes:
        """The number of nodes, and the children of each: a node, or a byte."""
        entries = [
            (0, child) if child >= 0 else (1, ~child) for pair in self.children for child in pair
        ]
        return pack("<I", len(self.children)) + b"".join(pack("<BI", *one) for one in entries)


def _symbols(shape: Any) -> list[int]:
    return [shape] if isinstance(shape, int) else [*_symbols(shape[0]), *_symbols(shape[1])]


def _huffman(counts: Int64s) -> Any:
    """A tree of pairs with the bytes of a text as leaves, frequent ones near the root.

    There are two bytes at least: the end, and a separator.
    """
    while True:
        heap: list[tuple[int, int, int, Any]] = [
            (count, symbol, 0, symbol) for symbol, count in enumerate(counts.tolist()) if count
        ]
        heapq.heapify(heap)
        number = 256
        while len(heap) > 1:
            first, second = heapq.heappop(heap), heapq.heappop(heap)
            depth = max(first[2], second[2]) + 1
            heapq.heappush(heap, (first[0] + second[0], number, depth, (first[3], second[3])))
            number += 1
        if heap[0][2] <= _DEEPEST:
            return heap[0][3]
        counts = (counts + 1) // 2


def _blocks(words: Sequence[UInt64s], owners: Int64s, sizes: Int64s) -> pa.Table:
    """The rows of a file."""
    lengths = np.array([len(one) for one in words], np.int64) * 8
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    data = np.concatenate([np.empty(0, np.uint64), *words]).astype("<u8", copy=False)
    numbers = np.zeros(len(owners), np.int64)
    ranks = np.zeros(len(owners), np.uint64)
    ones = np.array([int(np.bitwise_count(one).sum()) for one in words], np.int64)
    for at in range(1, len(owners)):
        if owners[at] == owners[at - 1]:
            numbers[at] = numbers[at - 1] + 1
            ranks[at] = ranks[at - 1] + np.uint64(ones[at - 1])
    ranks[owners == SAMPLES] = 0
    blobs = pa.Array.from_buffers(
        pa.large_binary(), len(owners), [None, as_buffer(offsets), as_buffer(data)]
    )
    small = [owners.astype(np.uint32), numbers.astype(np.uint32)]
    arrays: Any = [*map(pa.array, small), blobs, pa.array(ranks), pa.array(sizes.astype(np.uint64))]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
