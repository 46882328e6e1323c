"""A segment of a full-text index that is ready to be searched.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from glaive.errors import UnsupportedFeatureError
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import HasTokens, IndexQuery
from glaive.index.row_set import RowSet
from glaive.index.segment import Segment
from glaive.index.text.bm25 import TextStatistics
from glaive.index.text.joined import JoinedPartitions
from glaive.index.text.opened_partition import OpenedPartition
from glaive.index.text.params import TextParams
from glaive.index.text.term_search import SearchedPartition, TermQuery, search_terms
from glaive.index.text.tokenizers.tokenizer import Tokenizer

__all__ = ["OpenedInverted", "TokenizedTexts"]

_NBYTES = 1 << 14
"""Bytes of an opened segment: all else is kept by the session, one by one."""

_MOST_TEXTS = 256

_GUESS = 1000
"""Rows with all words of a text: only reading the lists would tell."""


class TokenizedTexts:
    """Tokens of the texts of queries; the last few are remembered."""

    def __init__(self, params: TextParams) -> None:
        self._params = params
        self._known: OrderedDict[str, tuple[tuple[str, int], ...]] = OrderedDict()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Makes tokens as those of the index were made."""
        return Tokenizer.of(self._params)

    def tokens(self, text: str) -> tuple[tuple[str, int], ...]:
        """The tokens of a text with their positions."""
        known = self._known.get(text)
        if known is None:
            known = tuple(self.tokenizer.tokens(text))
            self._known[text] = known
            if len(self._known) > _MOST_TEXTS:
                # Another thread may just have done so.
                self._known.pop(next(iter(self._known)), None)
        return known


class OpenedInverted(ScalarIndex):
    """A segment: its parameters and partitions. Safe to share between threads.

    ``texts`` makes tokens of queries as those of the index were made; ``fuzzy_texts`` cuts
    them at what is neither letter nor digit, and leaves them so, to be looked for with edits.

    Parameters
    ----------
    segment
        What is searched.
    params
        How its texts became tokens.
    partitions
        Its partitions.
    """

    def __init__(
        self, segment: Segment, params: TextParams, partitions: Sequence[OpenedPartition]
    ) -> None:
        self.params = params
        self.texts = TokenizedTexts(params)
        self.fuzzy_texts = TokenizedTexts(
            TextParams(
                lance_tokenizer=params.lance_tokenizer, max_token_length=None, lower_case=False,
                stem=False, remove_stop_words=False, ascii_folding=False,
            )
        )  # fmt: skip
        self.partitions = partitions
        self._segment, self._where = segment, segment.where

    @property
    def nbytes(self) -> int:
        """Bytes of memory; what searches read is kept by the session."""
        return _NBYTES

    @property
    def statistics(self) -> TextStatistics:
        """Documents and their tokens, of all partitions."""
        return TextStatistics.sum_of(partition.statistics for partition in self.partitions)

    @cached_property
    def joined(self) -> Sequence[OpenedPartition | JoinedPartitions]:
        """All partitions as one, where they can be."""
        if not JoinedPartitions.can_join(self.partitions):
            return self.partitions
        return [JoinedPartitions(self._segment, self.partitions)]

    def check_positions(self) -> None:
        """Raise ``OptionError`` if documents have no positions: no phrase can be searched."""
        for partition in self.partitions:
            partition.check_positions()

    def answers(self, query: IndexQuery) -> bool:
        """Whether it can find the rows that have all tokens of a text, and maybe more."""
        return (
            isinstance(query, HasTokens)
            and self.params.base_tokenizer == "simple"
            and self.params.lance_tokenizer == "text"
            and bool(self.texts.tokens(query.text))
        )

    def estimate(self, query: IndexQuery) -> int:
        """Rows that a search is going to find, about: a guess."""
        return _GUESS

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Rows that have all tokens of the text, as the index made them."""
        if not isinstance(query, HasTokens):
            raise UnsupportedFeatureError(f"{self._where}: cannot answer {query}")
        tokens = self.texts.tokens(query.text)
        searched = [
            SearchedPartition(partition, partition.documents.rows, None)
            for partition in self.partitions
        ]
        found = search_terms(searched, TermQuery(tokens, every=True), self.statistics, None)
        # Tokens of the index are in small letters, and some words are left out.
        return Candidates(RowSet.of(np.sort(found.rows)), None, exact=False)
