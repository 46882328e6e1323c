"""Several columns as one field: BM25 of a term's occurrences in all of them.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from glaive.arrow.buffers import ascending
from glaive.dataclass import dataclass
from glaive.index.row_set import RowNumbers
from glaive.index.text.bm25 import TextStatistics, length_shares, rarity, weights_of
from glaive.index.text.opened_partition import OpenedPartition
from glaive.index.text.term_search import Hits
from glaive.named_tuple import NamedTuple
from glaive.scan.full_text.texts import TextsInMemory
from glaive.types import Flags, Float32s, Int64s, UInt8s

__all__ = ["CombinedColumn", "DocumentPart", "combined_hits"]


class DocumentPart(NamedTuple):
    """Documents of a column.

    Parameters
    ----------
    documents
        A partition of an index, or texts in memory.
    rows
        Address of each.
    allowed
        Not 0 where one may be found; None: all may.
    """

    documents: OpenedPartition | TextsInMemory
    rows: RowNumbers
    allowed: UInt8s | None

    def occurrences(self, token: str) -> tuple[RowNumbers, Int64s]:
        """Rows that may be found and have a token, and how often."""
        documents, frequencies = self.documents.occurrences(token)
        at = documents.astype(np.int64)
        if self.allowed is not None:
            kept = self.allowed[at] > 0
            at, frequencies = at[kept], frequencies[kept]
        return self.rows[at], frequencies.astype(np.int64)


@dataclass(frozen=True, slots=True)
class CombinedColumn:
    """One of the columns.

    Parameters
    ----------
    weight
        How many times its tokens count.
    parts
        Its documents.
    statistics
        Of all of them.
    """

    weight: float
    parts: Sequence[DocumentPart]
    statistics: TextStatistics

    def count(self, token: str) -> int:
        """Documents that have a token, deleted ones included."""
        return sum(part.documents.count(token) for part in self.parts)

    def occurrences(self, token: str) -> tuple[RowNumbers, Int64s]:
        """Rows that have a token, and how often."""
        found = [part.occurrences(token) for part in self.parts]
        rows = [np.zeros(0, np.uint64), *(rows for rows, _ in found)]
        often = [np.zeros(0, np.int64), *(often for _, often in found)]
        return np.concatenate(rows), np.concatenate(often)

    def lengths(self, rows: RowNumbers) -> Int64s:
        """Tokens of some rows, which are ascending."""
        lengths = np.zeros(len(rows), np.int64)
        for part in self.parts:
            place = np.minimum(np.searchsorted(rows, part.rows), max(0, len(rows) - 1))
            here = rows[place] == part.rows if len(rows) else np.zeros(0, np.bool_)
            if part.allowed is not None and len(rows):
                here &= part.allowed > 0
            lengths[place[here]] += part.documents.lengths[here].astype(np.int64)
        return lengths


def combined_hits(columns: Sequence[CombinedColumn], tokens: Iterable[str], *, every: bool) -> Hits:
    """Rows that have tokens in any of the columns, with their scores.

    The number of documents, and of those that have a token, is the largest of a column. Occurrences
    and lengths are sums over the columns, each times its weight; a token counts once.

    Parameters
    ----------
    every
        Whether a row needs all tokens; else one of them.
    """
    distinct = list(dict.fromkeys(tokens))
    found = [[column.occurrences(token) for column in columns] for token in distinct]
    rows = _union(rows for of_token in found for rows, _ in of_token)
    documents = max(column.statistics.documents for column in columns)
    total = sum(column.weight * column.statistics.tokens for column in columns)
    lengths = np.zeros(len(rows), np.float64)
    for column in columns:
        lengths += column.weight * column.lengths(rows)
    shares = length_shares(lengths, total / max(1, documents))  # type: ignore[arg-type]  # weighted
    scores = np.zeros(len(rows), np.float32)
    having = np.zeros(len(rows), np.int64)
    for token, of_token in zip(distinct, found, strict=True):
        often = _weighted(rows, columns, of_token)
        rare = rarity(documents, max(column.count(token) for column in columns))
        scores += np.float32(rare) * weights_of(often, shares)  # type: ignore[arg-type]  # weighted
        having += often > 0
    kept: Flags = having == len(distinct) if every else having > 0
    return Hits(rows[kept], scores[kept])


def _union(parts: Iterator[RowNumbers]) -> RowNumbers:
    return ascending(np.concatenate([np.zeros(0, np.uint64), *parts]))


def _weighted(
    rows: RowNumbers,
    columns: Sequence[CombinedColumn],
    found: Sequence[tuple[RowNumbers, Int64s]],
) -> Float32s:
    """How often each row has a token, with the weights of the columns."""
    often = np.zeros(len(rows), np.float64)
    for column, (having, frequencies) in zip(columns, found, strict=True):
        often[np.searchsorted(rows, having)] += column.weight * frequencies
    return often.astype(np.float32)
