"""Documents in memory: texts of rows that no index knows.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from glaive.index.row_set import RowNumbers
from glaive.index.text.bm25 import TextStatistics, length_shares, weights_of
from glaive.index.text.term_search import TokenPositions
from glaive.index.text.tokenizers.tokenizer import Tokenizer
from glaive.kernels.text_search import WeightedList, weighted
from glaive.types import Int64s, UInt32s

__all__ = ["TextsInMemory"]


class TextsInMemory:
    """Texts as documents, as far as a query asks for their tokens.

    Parameters
    ----------
    batches
        Pairs of an array of texts and the numbers of their rows.
    tokenizer
        Makes their tokens.
    wanted
        The tokens of the query.
    with_empty
        Whether texts without tokens are documents.

    Notes
    -----
    Memory is 20 bytes per row, and 16 for each place where a token of the query is.
    """

    def __init__(
        self,
        batches: Iterable[tuple[Any, RowNumbers]],
        tokenizer: Tokenizer,
        wanted: Iterable[str],
        *,
        with_empty: bool = False,
    ) -> None:
        self._with_empty = with_empty
        wanted = list(dict.fromkeys(wanted))
        rows: list[RowNumbers] = [np.zeros(0, np.uint64)]
        lengths: list[Int64s] = [np.zeros(0, np.int64)]
        places: dict[str, list[Any]] = {token: [] for token in wanted}
        before = 0
        numbers = tokenizer.numbers()
        for texts, row_numbers in batches:
            tokens = numbers.number(texts)
            document = np.repeat(np.arange(before, before + len(texts)), tokens.counts)
            known = {token: number for number, token in enumerate(numbers.tokens)}
            for token in wanted:
                if token in known:
                    at = np.flatnonzero(tokens.numbers == known[token])
                    places[token].append((document[at], tokens.positions[at]))
            rows.append(row_numbers)
            lengths.append(tokens.counts)
            before += len(texts)
        self.rows, self._lengths = np.concatenate(rows), np.concatenate(lengths)
        self._places = {token: _joined(found) for token, found in places.items()}

    @property
    def size(self) -> int:
        """Documents, those without tokens included."""
        return len(self.rows)

    @property
    def ascending(self) -> bool:
        """Whether rows ascend: fragments need not, nor has a row of several texts one place."""
        return bool((self.rows[1:] > self.rows[:-1]).all())

    @property
    def statistics(self) -> TextStatistics:
        """Documents and their tokens."""
        documents = self.size if self._with_empty else int((self._lengths > 0).sum())
        return TextStatistics(documents, int(self._lengths.sum()))

    def weighted(self, token: str, mean: float) -> WeightedList:
        """The documents of a token, with weights."""
        at, _ = self._places[token]
        documents, counts = np.unique(at, return_counts=True)
        shares = length_shares(self._lengths[documents], mean)
        weights = weights_of(counts.astype(np.uint32), shares)
        return weighted(documents.astype(np.uint32), weights)

    @property
    def lengths(self) -> Int64s:
        """Tokens of each document."""
        return self._lengths

    def occurrences(self, token: str) -> tuple[UInt32s, UInt32s]:
        """The documents that have a token, and how often."""
        documents, counts = np.unique(self._places[token][0], return_counts=True)
        return documents.astype(np.uint32), counts.astype(np.uint32)

    def count(self, token: str) -> int:
        """How many documents have a token."""
        return len(np.unique(self._places[token][0]))

    def positions(self, token: str) -> TokenPositions:
        """Positions of a token in each of its documents."""
        at, positions = self._places[token]
        _, counts = np.unique(at, return_counts=True)
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return TokenPositions.of(starts, positions)

    def near(self, token: str, distance: int, prefix_length: int, most: int) -> list[str]:
        """The token itself: texts that no index knows are searched for nothing else."""
        return [token]


def _joined(found: list[Any]) -> tuple[Int64s, UInt32s]:
    documents = [np.zeros(0, np.int64), *(documents for documents, _ in found)]
    positions = [np.zeros(0, np.uint32), *(positions for _, positions in found)]
    return np.concatenate(documents), np.concatenate(positions)
