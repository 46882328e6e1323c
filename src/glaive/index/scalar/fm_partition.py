"""One partition of an FM index: some texts as one, by its Burrows-Wheeler transform.

Specification: "FM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.index.row_set import RowNumbers
from glaive.index.segment import IndexFile
from glaive.kernels.wavelet import SuffixSamples, WaveletTree
from glaive.memory import as_array
from glaive.types import Int64s

__all__ = ["DEAD_ROW", "END", "SAMPLES", "SCHEMA", "SEPARATOR", "FMPartition", "SearchableText"]

SEPARATOR: Final = 0xFF
"""Follows each text; no text of UTF-8 has it."""

END: Final = 0
"""Follows all texts."""

SAMPLES: Final = 0xFFFF_FFFF
"""The node of rows that hold samples of positions, not bits."""

DEAD_ROW: Final = 2**64 - 1
"""Number of texts whose row is no more."""

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
_MOST_SHIFT = 20


@dataclass(frozen=True, slots=True, eq=False)
class SearchableText:
    """The texts of a partition, ready to be searched."""

    tree: WaveletTree
    samples: SuffixSamples

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.tree.nbytes + int(self.samples.positions.nbytes)


@dataclass(frozen=True, eq=False)
class FMPartition:
    """What is known of a partition once it is opened.

    Parameters
    ----------
    file
        The file.
    rows
        Number of the row of each text; :data:`DEAD_ROW` for one that is no more.
    starts
        ``int64``: where each text begins; texts are followed by one byte each, all by another.
    counts
        ``int64`` of 257: bytes that are less than each; then all.
    """

    file: IndexFile
    rows: RowNumbers
    starts: Int64s
    counts: Int64s

    @classmethod
    def read(cls, file: IndexFile) -> Self:
        """Read what the metadata of a file says.

        Raises
        ------
        CorruptFileError
            It is damaged.
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
            raise file.corrupt("texts of an index", "one behind the other", f"in {size} bytes")
        # An old writer left these out where there is no text.
        expected = _BYTES + 1 if size else len(counts)
        known = len(counts) == expected and (not size or (counts[0] == 0 and counts[-1] == size))
        if not known or bool((counts[1:] < counts[:-1]).any()):
            raise file.corrupt("counts of bytes of an index", f"{expected}, up to {size}", "others")
        if size and counts[SEPARATOR + 1] - counts[SEPARATOR] < len(starts):
            raise file.corrupt("texts of an index", "a separator behind each", f"{len(starts)}")
        return partition

    @property
    def size(self) -> int:
        """Bytes of all texts, with those between and behind them."""
        return int(self.counts[-1]) if len(self.starts) else 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        small = self.rows.nbytes + self.starts.nbytes + self.counts.nbytes
        return int(small) + self.file.nbytes

    @cached_property
    def has_zeros(self) -> bool:
        """Whether a text has a byte 0: then steps back through one may lead elsewhere."""
        return bool(self.size) and int(self.counts[END + 1] - self.counts[END]) != 1

    def load(self) -> SearchableText:
        """Read the transform and the samples. One request.

        Raises
        ------
        CorruptFileError
            They are damaged.
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
        """Binary logarithm of the rows for each sample."""
        rate = self.file.number("sa_sample_rate", least=1)
        if rate.bit_count() != 1 or rate > 1 << _MOST_SHIFT:
            raise self.file.corrupt("metadata 'sa_sample_rate'", "a power of two", f"{rate}")
        return rate.bit_length() - 1

    def _children(self) -> Int64s:
        """The children of each node of the tree, as :class:`WaveletTree` has them."""
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
        """The same texts, in other rows."""
        return replace(self, rows=rows)

    def metadata(self) -> dict[str, str]:
        """What the file says, with the rows that this has."""
        return {**self.file.metadata, _ROWS: self.rows.astype("<u8").tobytes().hex()}


def _are_ranks(tree: WaveletTree, nodes: Int64s, words: Int64s, ones: Int64s) -> bool:
    """Whether blocks of so many words of some nodes begin behind so many bits that are 1."""
    if bool((np.bincount(nodes, words, len(tree.sizes)) != (tree.sizes + 63) >> 6).any()):
        return False
    within = np.cumsum(words) - words - tree.nodes[nodes, 0]
    # All blocks but the last of a node have thousands of words.
    if bool((within & 7).any()):
        return False
    return bool((tree.ranks[tree.nodes[nodes, 1] + (within >> 3)] == ones).all())


def _hex_numbers(file: IndexFile, key: str, kind: np.dtype[Any]) -> Any:
    """Numbers that the metadata of a file has as hexadecimal digits.

    Raises
    ------
    CorruptFileError
        They are absent, or something else.
    """
    text = file.metadata.get(key)
    try:
        data = bytes.fromhex(text or "")
    except ValueError:
        data = b"\0"
    if text is None or len(data) % kind.itemsize or len(text) != 2 * len(data):
        raise file.corrupt(f"metadata {key!r}", "numbers in hexadecimal digits", "something else")
    return np.frombuffer(data, kind)
