"""All partitions of a segment as one, so that a search is one call of a kernel.

A partition holds what fitted in memory when the index was built: an index of 10 GB of text has
thirty. Documents have new numbers, in the order of their rows, so that the first of equal scores
are the same as in one partition.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from glaive.index.row_set import RowNumbers
from glaive.index.segment import Segment
from glaive.index.text.bm25 import TextStatistics
from glaive.index.text.opened_partition import OpenedPartition
from glaive.index.text.term_search import TokenPositions
from glaive.kernels.text_search import WeightedList, weighted
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt32s

__all__ = ["JoinedPartitions"]

_MOST_DOCUMENTS = 1 << 32


class _Order(NamedTuple):
    """The order of all documents by their rows.

    Parameters
    ----------
    ranks
        The number of each document, partition after partition; None: just this order.
    """

    ranks: UInt32s | None

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return 0 if self.ranks is None else self.ranks.nbytes


class JoinedPartitions:
    """The documents of several partitions. Safe to share between threads.

    Parameters
    ----------
    segment
        That they belong to; the session keeps what is joined.
    partitions
        Two or more.
    """

    number = -1

    def __init__(self, segment: Segment, partitions: Sequence[OpenedPartition]) -> None:
        self._segment, self.partitions = segment, partitions

    @staticmethod
    def can_join(partitions: Sequence[OpenedPartition]) -> bool:
        """Whether there are several, whose documents have numbers of 32 bits together."""
        return (
            len(partitions) > 1
            and sum(partition.size for partition in partitions) < _MOST_DOCUMENTS
        )

    @property
    def stored_rows(self) -> RowNumbers:
        """Number of the row of each document; not kept."""
        rows = np.concatenate([partition.documents.rows for partition in self.partitions])
        ranks = self._order.ranks
        if ranks is None:
            return rows
        ordered = np.empty_like(rows)
        ordered[ranks] = rows
        return ordered

    @property
    def size(self) -> int:
        """Documents."""
        return self.statistics.documents

    @cached_property
    def statistics(self) -> TextStatistics:
        """Documents and their tokens."""
        return TextStatistics.sum_of(partition.statistics for partition in self.partitions)

    def weighted(self, token: str, mean: float) -> WeightedList:
        """The documents of a token, with weights; a request for each partition, if not kept."""

        def load() -> tuple[WeightedList, int]:
            lists = [partition.read_weights(token, mean) for partition in self.partitions]
            documents = self._numbered([documents for documents, _ in lists])
            weights = np.concatenate([weights for _, weights in lists])
            if self._order.ranks is not None:
                order = np.argsort(documents, kind="stable")
                documents, weights = documents[order], weights[order]
            found = weighted(documents, weights)
            return found, found.nbytes

        known: WeightedList = self._segment.keep((self.number, "list", token, mean), load)
        return known

    def count(self, token: str) -> int:
        """How many documents have a token."""
        return sum(partition.count(token) for partition in self.partitions)

    def positions(self, token: str) -> TokenPositions:
        """Positions of a token in each of its documents."""

        def load() -> tuple[TokenPositions, int]:
            lists = [partition.read_positions(token) for partition in self.partitions]
            sizes = np.concatenate([np.diff(read.starts) for read in lists])
            positions = np.concatenate([read.positions for read in lists])
            if self._order.ranks is not None:
                having = [partition.occurrences(token)[0] for partition in self.partitions]
                order = np.argsort(self._numbered(having), kind="stable")
                begins = np.cumsum(sizes) - sizes
                sizes, begins = sizes[order], begins[order]
                ends = np.cumsum(sizes)
                places = np.arange(len(positions)) + np.repeat(begins - (ends - sizes), sizes)
                positions = positions[places]
            starts: Int64s = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
            found = TokenPositions.of(starts, positions)
            return found, found.nbytes

        known: TokenPositions = self._segment.keep((self.number, "positions", token), load)
        return known

    def near(self, token: str, distance: int, prefix_length: int, most: int) -> list[str]:
        """Tokens of any partition that are at most ``distance`` edits away."""
        found = [
            partition.near(token, distance, prefix_length, most) for partition in self.partitions
        ]
        return sorted({near for part in found for near in part})[:most]

    @property
    def _order(self) -> _Order:
        known: _Order = self._segment.keep((self.number, "order"), self._ordered)
        return known

    def _ordered(self) -> tuple[_Order, int]:
        rows = np.concatenate([partition.documents.rows for partition in self.partitions])
        if bool((rows[1:] >= rows[:-1]).all()):
            return _Order(None), 0
        ranks = np.empty(len(rows), np.uint32)
        ranks[np.argsort(rows, kind="stable")] = np.arange(len(rows), dtype=np.uint32)
        order = _Order(ranks)
        return order, order.nbytes

    def _numbered(self, documents: Sequence[UInt32s]) -> UInt32s:
        """Numbers of documents of each partition, as those of all of them."""
        first = 0
        numbers: list[UInt32s] = []
        for own, partition in zip(documents, self.partitions, strict=True):
            numbers.append(own + np.uint32(first))
            first += partition.size
        joined: UInt32s = np.concatenate(numbers)
        ranks = self._order.ranks
        return joined if ranks is None else ranks[joined]
