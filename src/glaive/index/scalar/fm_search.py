"""FM, searched: rows whose text contains a given text.

The index does not say which rows are null, so it cannot answer negated conditions.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from glaive.arrow.buffers import ascending
from glaive.arrow.conditions import HasText
from glaive.index.keeping import Keep
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import IndexQuery, MatchesPattern
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.scalar.fm_partition import DEAD_ROW, FMPartition, SearchableText
from glaive.index.scalar.required_words import required_words
from glaive.kernels.wavelet import find_pattern, locate_rows
from glaive.types import Flags, Int64s

__all__ = ["OpenedFM"]

_FEW_FOUND: Final = 64
"""Occurrences that are located however short the texts are."""

_SURPRISE: Final = 0.6
"""Bits that a letter tells when those before it are known, by those that it tells alone: of English
texts about 2.5 by 4.2."""

_BYTES_PER_STEP: Final = 256
"""Bytes of texts that are looked at in the time in which one occurrence is located, about."""


class OpenedFM(ScalarIndex):
    """All partitions, of which transforms are read when they are searched.

    Parameters
    ----------
    partitions
        In their order.
    keep
        Keeps the transforms.
    """

    def __init__(self, partitions: Sequence[FMPartition], keep: Keep) -> None:
        self._partitions, self._keep = partitions, keep
        counts = np.zeros(256)  # what damaged partitions say together may be more than an integer
        for partition in partitions:
            if partition.size:
                counts += np.diff(partition.counts)
        self._shares = counts / max(1.0, counts.sum())
        self._size = int(counts.sum())
        self._texts = sum(len(partition.rows) for partition in partitions)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return sum(partition.nbytes for partition in self._partitions)

    @property
    def value_bytes(self) -> int:
        """Bytes of a text, on average."""
        return self._size // max(1, self._texts)

    def prewarm(self) -> int:
        """Read all transforms; bytes of memory after it."""
        texts = [self._text(number) for number in range(len(self._partitions))]
        return self.nbytes + sum(text.nbytes for text in texts)

    def answers(self, query: IndexQuery) -> bool:
        """Whether it asks for a word, at some place or anywhere, or a pattern with words."""
        return bool(_words(query))

    def estimate(self, query: IndexQuery) -> int:
        """Texts with the rarest word, as if bytes depended on those before them as in English."""
        likely = [
            self._size * float(np.prod(self._shares[np.frombuffer(word, np.uint8)])) ** _SURPRISE
            for word in _words(query)
        ]
        return min(self._texts, int(min(likely)) + 1)

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows. One read for each partition that is not kept.

        A word that is all over the texts of a partition is not located there: all of its rows
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
        # Rows of an answer that is not exact are tested, so that those that are null do not matter.
        unknown = RowSet.union([]) if nulls else None
        return Candidates(RowSet.of(np.concatenate(found)), unknown, exact)

    def _text(self, number: int) -> SearchableText:
        key: Hashable = ("text", number)

        def load() -> tuple[SearchableText, int]:
            text = self._partitions[number].load()
            return text, text.nbytes

        text: SearchableText = self._keep(key, load)
        return text

    def _matching(self, number: int, partition: FMPartition, query: IndexQuery) -> Int64s | None:
        """The texts with all words of a query, ascending; None where these are not located."""
        text = self._text(number)
        chosen: Int64s | None = None
        for word in _words(query):
            first, stop = find_pattern(text.tree, word)
            if first == stop:
                return np.empty(0, np.int64)
            few = stop - first <= max(_FEW_FOUND, partition.size // _BYTES_PER_STEP)
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
    partition: FMPartition,
    query: HasText,
    places: Int64s,
    owners: Int64s,
    length: int,
) -> Flags:
    """Which occurrences of a word are where it is wanted: at the beginning, or the end."""
    kept = np.ones(len(places), np.bool_)
    if query.begins:
        kept &= places == partition.starts[owners]
    if query.ends:
        ends = np.append(partition.starts[1:], partition.size - 1) - 1
        kept &= places + length == ends[owners]
    return kept


def _words(query: IndexQuery) -> list[bytes]:
    """Words that a text must have, without those that cannot be looked up."""
    if isinstance(query, HasText):
        words = [query.word]
    elif isinstance(query, MatchesPattern):
        words = required_words(query.pattern)
    else:
        return []
    return [word.encode() for word in words if word and "\0" not in word]
