"""FM: the Burrows-Wheeler transform of the texts of a column, for substring search.

Specification: "FM indices" in ``docs/format/fm-indices.md``.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain
from struct import pack
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import ascending
from glaive.arrow.conditions import HasText
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.index.protocol import (
    BuiltSegment,
    Candidates,
    Entries,
    IndexKind,
    IndexQuery,
    MatchesPattern,
    RebuiltSegment,
    ScalarIndex,
    ValueBatch,
    check_type,
    index_kind,
)
from glaive.index.row_sets import NO_ROWS, AddressMap, RowNumbers, RowSet
from glaive.index.scalar.ngram import required_words
from glaive.index.scalar.ordering import is_binary, is_text
from glaive.index.segment import IndexFile, Keep, Segment, SegmentWriter
from glaive.kernels.wavelet import (
    MAX_TEXT_BYTES,
    SuffixSamples,
    WaveletTree,
    find_pattern,
    locate_rows,
    read_text,
    sort_suffixes,
)
from glaive.types import Flags, Int64s, UInt8s, UInt64s, as_array, as_buffer

# --- One partition of an FM index: the Burrows-Wheeler transform of concatenated texts --
# Specification: "FM indices" in ``docs/format/fm-indices.md``.

SEPARATOR: Final = 0xFF
"""Follows each text; UTF-8 lacks this byte."""

END: Final = 0
"""Follows the last text."""

SAMPLES: Final = 0xFFFF_FFFF
"""Node number of rows that hold position samples instead of bits."""

DEAD_ROW: Final = 2**64 - 1
"""Row number of texts whose row was deleted."""

_FIELDS: Final[Sequence[pa.Field[Any]]] = (
    pa.field("node_id", pa.uint32(), nullable=False),
    pa.field("block_id", pa.uint32(), nullable=False),
    pa.field("words", pa.large_binary(), nullable=False),
    pa.field("prefix_rank", pa.uint64(), nullable=False),
    pa.field("bit_len", pa.uint64(), nullable=False),
)
SCHEMA: Final = pa.schema(_FIELDS)

_ROWS, _STARTS, _COUNTS = "row_ids", "doc_start_positions", "c_table"
_TOPOLOGY = "tree_topology"
_BYTES = 256
_LEAF = 1
_MAX_SHIFT = 20


@dataclass(frozen=True, slots=True, eq=False)
class SearchableText:
    """The texts of a partition, loaded for searches."""

    tree: WaveletTree
    samples: SuffixSamples

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.tree.nbytes + int(self.samples.positions.nbytes)


@dataclass(frozen=True, eq=False)
class FMPartition:
    """Metadata of an opened partition.

    Parameters
    ----------
    file
        File of the partition.
    rows
        Row number of each text; :data:`DEAD_ROW` if the row was deleted.
    starts
        ``int64``: start of each text. A separator byte follows each text, and an end byte the last.
    counts
        ``int64`` of 257 items: for each byte value, the number of smaller bytes; then the total.
    """

    file: IndexFile
    rows: RowNumbers
    starts: Int64s
    counts: Int64s

    @classmethod
    def read(cls, file: IndexFile) -> Self:
        """Read the metadata of a file.

        Raises
        ------
        CorruptFileError
            The file is damaged.
        """
        file.check(**{one.name: one.type for one in SCHEMA})
        size = file.number("bwt_len")
        rows = _hex_numbers(file, _ROWS, np.dtype("<u8"))
        starts = _hex_numbers(file, _STARTS, np.dtype("<u8")).astype(np.int64)
        counts = _hex_numbers(file, _COUNTS, np.dtype("<u8")).astype(np.int64)
        partition = cls(file, rows, starts, counts)
        if len(starts) != len(rows) or (len(starts) > 0) != (size > 0):
            found = f"{len(starts)} texts of {len(rows)} rows in {size} bytes"
            raise file.corrupt("texts of an index", "as many texts as rows", found)
        ascend = bool((starts[1:] > starts[:-1]).all())
        if len(starts) and not (ascend and starts[0] == 0 and starts[-1] < size - 1):
            raise file.corrupt("texts of an index", "one after the other", f"in {size} bytes")
        # Old writers omit the counts of an empty partition.
        expected = _BYTES + 1 if size else len(counts)
        known = len(counts) == expected and (not size or (counts[0] == 0 and counts[-1] == size))
        if not known or bool((counts[1:] < counts[:-1]).any()):
            raise file.corrupt("counts of bytes of an index", f"{expected}, up to {size}", "others")
        if size and counts[SEPARATOR + 1] - counts[SEPARATOR] < len(starts):
            raise file.corrupt("texts of an index", "a separator after each", f"{len(starts)}")
        return partition

    @property
    def size(self) -> int:
        """Number of bytes of all texts, including separators and the end."""
        return int(self.counts[-1]) if len(self.starts) else 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        small = self.rows.nbytes + self.starts.nbytes + self.counts.nbytes
        return int(small) + self.file.nbytes

    @cached_property
    def has_zeros(self) -> bool:
        """Whether a text contains a byte 0, which makes some backward steps ambiguous."""
        return bool(self.size) and int(self.counts[END + 1] - self.counts[END]) != 1

    def load(self) -> SearchableText:
        """Read the transform and the samples; one request.

        Raises
        ------
        CorruptFileError
            The file is damaged.
        """
        file = self.file
        stored = file.read(SCHEMA.names)
        for column in stored.columns:
            file.check_present(column)
        owner, block, ones = (
            stored[name].to_numpy().astype(np.int64)
            for name in ("node_id", "block_id", "prefix_rank")
        )
        blobs: Any = stored["words"].combine_chunks()
        offsets = as_array(blobs.buffers()[1], np.int64)[blobs.offset :][: len(blobs) + 1]
        content = blobs.buffers()[2]
        data = as_array(content)[offsets[0] : offsets[-1]] if content else np.empty(0, np.uint8)
        sizes = np.diff(offsets)
        first = int(np.searchsorted(owner, SAMPLES))
        in_order = bool((owner[1:] >= owner[:-1]).all()) and not bool((sizes & 7).any())
        changes = np.flatnonzero(np.diff(owner, prepend=-1))
        numbers = np.arange(len(owner)) - np.repeat(changes, np.diff(changes, append=len(owner)))
        if not in_order or bool((block != numbers).any()):
            raise file.corrupt("blocks of an index", "words of nodes, in their order", "others")
        shift = self._shift()
        words = np.ascontiguousarray(data).view("<u8")
        bits = int(sizes[:first].sum()) >> 3
        children = self._children()
        try:
            tree = WaveletTree(words[:bits].astype(np.uint64, copy=False), children, self.counts)
            positions = words[bits:].astype(np.int64)
            samples = SuffixSamples(positions, shift, self.size)
        except ValueError as error:
            raise file.corrupt("texts of an index", "a wavelet tree of them", str(error)) from error
        nodes = owner[:first]
        known = np.array_equal(np.unique(nodes), np.arange(len(children)))
        if not known or not _are_ranks(tree, nodes, sizes[:first] >> 3, ones[:first]):
            raise file.corrupt("blocks of an index", "words of all nodes, counted", "others")
        return SearchableText(tree, samples)

    def _shift(self) -> int:
        """Return the binary logarithm of the rows per sample."""
        rate = self.file.number("sa_sample_rate", minimum=1)
        if rate.bit_count() != 1 or rate > 1 << _MAX_SHIFT:
            raise self.file.corrupt("metadata 'sa_sample_rate'", "a power of two", f"{rate}")
        return rate.bit_length() - 1

    def _children(self) -> Int64s:
        """Return the children of each node of the tree, as :class:`WaveletTree` expects them."""
        raw = _hex_numbers(self.file, _TOPOLOGY, np.dtype("u1"))
        count = int(raw[:4].view("<u4")[0]) if len(raw) >= 4 else -1
        if len(raw) != 4 + 10 * count or count >= _BYTES:
            raise self.file.corrupt("nodes of an index", f"{count} in {len(raw)} bytes", "others")
        entries = raw[4:].view(np.dtype([("tag", "u1"), ("number", "<u4")]))
        numbers = entries["number"].astype(np.int64)
        is_leaf = entries["tag"] == _LEAF
        if bool((entries["tag"] > _LEAF).any()) or bool((numbers[is_leaf] >= _BYTES).any()):
            raise self.file.corrupt("nodes of an index", "nodes and bytes", "others")
        children: Int64s = np.where(is_leaf, ~numbers, numbers).reshape(count, 2)
        return children

    def with_rows(self, rows: RowNumbers) -> Self:
        """Return a copy with other row numbers."""
        return replace(self, rows=rows)

    def metadata(self) -> dict[str, str]:
        """Return the metadata of the file with the row numbers of this object."""
        return {**self.file.metadata, _ROWS: self.rows.astype("<u8").tobytes().hex()}


def _are_ranks(tree: WaveletTree, nodes: Int64s, words: Int64s, ones: Int64s) -> bool:
    """Return whether the stored ranks of blocks are right, given the sizes of the blocks."""
    if bool((np.bincount(nodes, words, len(tree.sizes)) != (tree.sizes + 63) >> 6).any()):
        return False
    within = np.cumsum(words) - words - tree.nodes[nodes, 0]
    # All blocks of a node except the last have thousands of words.
    if bool((within & 7).any()):
        return False
    return bool((tree.ranks[tree.nodes[nodes, 1] + (within >> 3)] == ones).all())


def _hex_numbers(file: IndexFile, key: str, kind: np.dtype[Any]) -> Any:
    """Parse numbers in the metadata of a file, stored as hexadecimal digits.

    Raises
    ------
    CorruptFileError
        The numbers are missing, or something else.
    """
    text = file.metadata.get(key)
    try:
        data = bytes.fromhex(text or "")
    except ValueError:
        data = b"\0"
    if text is None or len(data) % kind.itemsize or len(text) != 2 * len(data):
        raise file.corrupt(f"metadata {key!r}", "numbers in hexadecimal digits", "something else")
    return np.frombuffer(data, kind)


# --- FM, built: join texts, sort their suffixes, and build a wavelet tree of the transform ---
# Specification: "FM indices" in ``docs/format/fm-indices.md``.

_PARTITION_TEXTS: Final = 10_000
_PARTITION_BYTES: Final = 1 << 22
"""Maximum texts and bytes of a partition: larger partitions sort at half the speed."""

_MEMORY_PER_BYTE: Final = 16
"""Approximate memory per byte of text while suffixes are sorted."""

_RATE: Final = 32
_BLOCK_BYTES: Final = 1 << 15
_MAX_CODE_BITS: Final = 32
"""Maximum bits of a code: codes are stored as 32-bit numbers."""


class Texts(NamedTuple):
    """Valid texts of adjacent rows.

    Parameters
    ----------
    rows
        Row number of each text.
    sizes
        ``int64``: bytes of each text.
    data
        Bytes of all texts.
    """

    rows: RowNumbers
    sizes: Int64s
    data: UInt8s


def partition_name(number: int) -> str:
    """Return the file name of a partition."""
    return f"part_{number}_fm.lance"


def partitions_of(texts_of_rows: Iterator[Texts], memory_limit: int) -> Iterator[list[Texts]]:
    """Cut a stream of texts into partitions, by number of texts, bytes and memory."""
    max_bytes = max(1, min(_PARTITION_BYTES, memory_limit // _MEMORY_PER_BYTE))
    kept: list[Texts] = []
    texts = size = 0
    for arrived in texts_of_rows:
        rest = arrived
        while len(rest.rows):
            ends = np.cumsum(rest.sizes + 1)
            # The text that exceeds the limit is the last of its partition.
            filled = int(np.searchsorted(ends, max_bytes - size)) + 1
            count = min(filled, _PARTITION_TEXTS - texts, len(rest.rows))
            used = int(ends[count - 1]) - count
            kept.append(Texts(rest.rows[:count], rest.sizes[:count], rest.data[:used]))
            rest = Texts(rest.rows[count:], rest.sizes[count:], rest.data[used:])
            texts, size = texts + count, size + used + count
            if texts == _PARTITION_TEXTS or size >= max_bytes:
                yield kept
                kept, texts, size = [], 0, 0
    if kept:
        yield kept


def is_small(partition: FMPartition) -> bool:
    """Return whether a partition is less than half full."""
    few = 2 * len(partition.rows) < _PARTITION_TEXTS and 2 * partition.size < _PARTITION_BYTES
    return few and not partition.has_zeros


def stored_texts(partition: FMPartition) -> Texts:
    """Read the texts of a partition whose rows still exist.

    Raises
    ------
    CorruptFileError
        The file is damaged.
    """
    data = read_text(partition.load().tree)
    ends = np.append(partition.starts[1:], partition.size - 1) - 1
    if bool((data[ends] != SEPARATOR).any()):
        raise partition.file.corrupt("texts of an index", "a separator after each", "others")
    sizes = ends - partition.starts
    alive = partition.rows != DEAD_ROW
    kept = np.repeat(alive, sizes + 1)
    kept[ends] = False
    return Texts(partition.rows[alive], sizes[alive], data[kept])


def texts_of(batch: ValueBatch) -> Texts:
    """Return the texts of a batch of values."""
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
        The texts are too long.
    """
    rows = np.concatenate([np.empty(0, np.uint64), *(part.rows for part in parts)])
    sizes = np.concatenate([np.empty(0, np.int64), *(part.sizes for part in parts)])
    total = int(sizes.sum()) + len(sizes) + 1
    if total > MAX_TEXT_BYTES // 2:
        raise UnsupportedFeatureError(
            f"an FM index of texts of {total} bytes: one may have {MAX_TEXT_BYTES // 2}. Index a "
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
    """The Burrows-Wheeler transform of a text, and the suffix start of every 32nd row."""

    transform: UInt8s
    samples: UInt64s


def _transformed(data: UInt8s, sizes: Int64s) -> _Transformed:
    if not len(sizes):
        return _Transformed(np.empty(0, np.uint8), np.empty(0, np.uint64))
    text = np.append(np.insert(data, np.cumsum(sizes), np.uint8(SEPARATOR)), np.uint8(END))
    if int(np.count_nonzero(text == END)) > 1:
        # With further bytes 0, rotations instead of suffixes have the order that backward steps
        # follow.
        order = sort_suffixes(np.concatenate((text, text)))
        order = order[order < len(text)]
    else:
        order = sort_suffixes(text)
    return _Transformed(text[order - 1], order[::_RATE].astype(np.uint64))


@dataclass(slots=True, eq=False)
class _WaveletBuilder:
    """A wavelet tree in the shape of a Huffman code, parents before children.

    Parameters
    ----------
    children
        For each node, its children below bit 0 and bit 1: a node, or ``~symbol``.
    bits
        Words of each node.
    sizes
        Number of bits of each node.
    """

    children: list[list[int]] = field(default_factory=list)
    bits: list[UInt64s] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, transform: UInt8s) -> _WaveletBuilder:
        """Build the tree of a transform; on average, a pass per bit of a code."""
        tree = cls()
        if len(transform):
            tree._add(_huffman(np.bincount(transform, minlength=256)), transform)
        return tree

    def _add(self, shape: Any, transform: UInt8s) -> int:
        """Add a node and its subtree; return its number."""
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
        """Return words, node and node's bits of each block; samples come last."""
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
        """Encode for each byte value its code, the code's length, and the nodes on its path."""
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
        """Encode the number of nodes, and the children of each: a node, or a byte."""
        entries = [
            (0, child) if child >= 0 else (1, ~child) for pair in self.children for child in pair
        ]
        return pack("<I", len(self.children)) + b"".join(pack("<BI", *one) for one in entries)


def _symbols(shape: Any) -> list[int]:
    return [shape] if isinstance(shape, int) else [*_symbols(shape[0]), *_symbols(shape[1])]


def _huffman(counts: Int64s) -> Any:
    """Return a Huffman tree of nested pairs, with bytes as leaves.

    The text has at least two distinct bytes: the end, and a separator.
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
        if heap[0][2] <= _MAX_CODE_BITS:
            return heap[0][3]
        counts = (counts + 1) // 2


def _blocks(words: Sequence[UInt64s], owners: Int64s, sizes: Int64s) -> pa.Table:
    """Return the rows of a file."""
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


# --- FM, searched: find the rows whose text contains a given string ---------------------
# The index omits which rows are null: it leaves negated conditions to scans.

_MIN_LOCATED: Final = 64
"""Number of occurrences that are always located, even in short texts."""

_LETTER_INFORMATION: Final = 0.6
"""Bits of information of a letter after known letters, divided by a letter's alone: in English,
about 2.5 and 4.2 bits."""

_BYTES_PER_STEP: Final = 256
"""Approximate bytes of text that a scan tests in the time to locate one occurrence."""


class OpenedFM(ScalarIndex):
    """All partitions; a search reads their transforms.

    Parameters
    ----------
    partitions
        Partitions in order.
    keep
        Cache for the transforms.
    """

    def __init__(self, partitions: Sequence[FMPartition], keep: Keep) -> None:
        self._partitions, self._keep = partitions, keep
        counts = np.zeros(256)  # float: the sum over damaged partitions may exceed an integer
        for partition in partitions:
            if partition.size:
                counts += np.diff(partition.counts)
        self._shares = counts / max(1.0, counts.sum())
        self._size = int(counts.sum())
        self._texts = sum(len(partition.rows) for partition in partitions)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(partition.nbytes for partition in self._partitions)

    @property
    def value_bytes(self) -> int:
        """Mean number of bytes of a text."""
        return self._size // max(1, self._texts)

    def prewarm(self) -> int:
        """Read all transforms; return the bytes of memory afterwards."""
        texts = [self._text(number) for number in range(len(self._partitions))]
        return self.nbytes + sum(text.nbytes for text in texts)

    def answers(self, query: IndexQuery) -> bool:
        """Return whether the query asks for a string or a pattern within texts."""
        return bool(_words(query))

    def estimate(self, query: IndexQuery) -> int:
        """Estimate the texts with the rarest word, from byte frequencies corrected for English."""
        likely = [
            self._size
            * float(np.prod(self._shares[np.frombuffer(word, np.uint8)])) ** _LETTER_INFORMATION
            for word in _words(query)
        ]
        return min(self._texts, int(min(likely)) + 1)

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows; one read per uncached partition.

        A word with very many occurrences in a partition is skipped: all rows of the partition
        are candidates.
        """
        exact = isinstance(query, HasText) and not nulls
        found: list[RowNumbers] = [np.empty(0, np.uint64)]
        for number, partition in enumerate(self._partitions):
            if not partition.size:
                continue
            texts = None if partition.has_zeros else self._matching(number, partition, query)
            exact = exact and texts is not None
            rows = partition.rows if texts is None else partition.rows[texts]
            found.append(rows[rows != DEAD_ROW])
        # Rows of an inexact answer are tested, so that null rows may be missing.
        unknown = NO_ROWS if nulls else None
        return Candidates(RowSet.of(np.concatenate(found)), unknown, exact)

    def _text(self, number: int) -> SearchableText:
        key: Hashable = ("text", number)

        def load() -> tuple[SearchableText, int]:
            text = self._partitions[number].load()
            return text, text.nbytes

        text: SearchableText = self._keep(key, load)
        return text

    def _matching(self, number: int, partition: FMPartition, query: IndexQuery) -> Int64s | None:
        """Return the texts with all words of a query, ascending; ``None`` if all were skipped."""
        text = self._text(number)
        chosen: Int64s | None = None
        for word in _words(query):
            first, stop = find_pattern(text.tree, word)
            if first == stop:
                return np.empty(0, np.int64)
            few = stop - first <= max(_MIN_LOCATED, partition.size // _BYTES_PER_STEP)
            places = locate_rows(text.tree, text.samples, first, stop) if few else None
            if places is None:
                continue
            owners = np.searchsorted(partition.starts, places, side="right") - 1
            if isinstance(query, HasText):
                owners = owners[_at_its_place(partition, query, places, owners, len(word))]
            owners = ascending(owners)
            chosen = (
                owners if chosen is None else np.intersect1d(chosen, owners, assume_unique=True)
            )
        return chosen


def _at_its_place(
    partition: FMPartition, query: HasText, places: Int64s, owners: Int64s, length: int
) -> Flags:
    """Return flags of the occurrences at the required position: the beginning, or the end."""
    kept = np.ones(len(places), np.bool_)
    if query.begins:
        kept &= places == partition.starts[owners]
    if query.ends:
        ends = np.append(partition.starts[1:], partition.size - 1) - 1
        kept &= places + length == ends[owners]
    return kept


def _words(query: IndexQuery) -> list[bytes]:
    """Return the words that a text must contain; skips words that the index cannot find."""
    if isinstance(query, HasText):
        words = [query.word]
    elif isinstance(query, MatchesPattern):
        words = required_words(query.pattern)
    else:
        return []
    return [word.encode() for word in words if word and "\0" not in word]


_VERSION = 10

_PARTITION = re.compile(r"part_(\d{1,9})_fm\.lance")


@index_kind
class SubstringIndex(IndexKind):
    """Substring search in texts."""

    name: ClassVar[str] = "fm"
    title: ClassVar[str] = "FM"
    newest: ClassVar[int] = _VERSION
    indexes_dictionaries: ClassVar[bool] = False
    stores_addresses: ClassVar[bool] = True

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Store the new rows of texts; texts of deleted rows stay as ``DEAD_ROW``."""
        if segment.entry.index_version != _VERSION:
            return None
        for number, partition in enumerate(_partitions(segment)):
            moved, kept = address_map.apply(partition.rows)
            rows = np.where(kept, moved, np.uint64(DEAD_ROW))
            _copy(partition.with_rows(rows), number, out)
        return RebuiltSegment()

    def open(self, segment: Segment) -> OpenedFM:
        """Read the metadata of partitions; searches read the texts."""
        return OpenedFM(list(_partitions(segment)), segment.keep)

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Copy large partitions, and build small partitions and the source again.

        An empty segment has one empty partition.
        """
        partitions = [one for segment in given.segments for one in _partitions(segment) if one.size]
        source = given.source
        joined = [one for one in partitions if is_small(one)]
        if len(joined) == 1 and source is None:
            joined = []
        copied = [one for one in partitions if one not in joined]
        for number, partition in enumerate(copied):
            _copy(partition, number, out)
        count = len(copied)
        texts: Iterator[Texts] = map(stored_texts, joined)
        if source is not None:
            kind = source.field.type
            check_type("FM", source.field, supported=is_text(kind) or is_binary(kind))
        texts = chain(texts, map(texts_of, given.batches()))
        for parts in partitions_of(texts, given.memory_limit):
            write_partition(out, count, parts)
            count += 1
        if not count:
            write_partition(out, 0, [])
        return BuiltSegment("/lance.index.pb.FMIndexDetails", version=_VERSION)

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return the numbers of partitions, bytes and texts."""
        partitions = list(_partitions(segment))
        if not partitions:
            return {}
        return {
            "num_partitions": len(partitions),
            "total_bwt_len": sum(partition.size for partition in partitions),
            "total_docs": sum(len(partition.rows) for partition in partitions),
        }


def _partitions(segment: Segment) -> Iterator[FMPartition]:
    """Yield the partitions of a segment in order.

    Raises
    ------
    UnsupportedFeatureError
        The version of the index is unknown.
    """
    version = segment.entry.index_version
    if version != _VERSION:
        raise UnsupportedFeatureError(f"{segment.where}: version {version} of FM is not read")
    numbers = sorted(
        int(match[1]) for name in segment.sizes() if (match := _PARTITION.fullmatch(name))
    )
    for number in numbers:
        yield FMPartition.read(segment.open(partition_name(number)))


def _copy(partition: FMPartition, number: int, out: SegmentWriter) -> None:
    rows = partition.file.read().replace_schema_metadata(None)
    out.write(partition_name(number), rows, metadata=partition.metadata())
