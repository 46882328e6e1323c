"""NGRAM, searched: rows that have all trigrams of a word.

Equality and nulls are not answered, as by pylance: after a compaction that moved rows without
rebuilding indices, the next one by pylance leaves rows out of these indices.

Specification: "NGRAM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from glaive.arrow.conditions import HasText
from glaive.index.keeping import Keep, keep_nothing
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import IndexQuery, MatchesPattern
from glaive.index.row_set import RowSet
from glaive.index.scalar.required_words import required_words
from glaive.index.scalar.treemaps import decode_treemap, rows_of_treemap
from glaive.index.scalar.trigrams import certain_trigrams
from glaive.index.segment import IndexFile
from glaive.types import UInt32s

__all__ = ["NULL_TOKEN", "OpenedNGram"]

NULL_TOKEN = 0
"""The token of rows that are null."""

_BYTES_PER_ROW = 2


class OpenedNGram(ScalarIndex):
    """All tokens, and the file with the rows of each.

    Parameters
    ----------
    file
        The file.
    tokens
        Ascending.
    keep
        Keeps the sets that were read.
    """

    def __init__(self, file: IndexFile, tokens: UInt32s, keep: Keep = keep_nothing) -> None:
        self._file, self._tokens, self._keep = file, tokens, keep

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return int(self._tokens.nbytes) + self._file.nbytes

    def answers(self, query: IndexQuery) -> bool:
        """Whether it asks for a word, or a pattern, with three digits or letters in a row."""
        return any(map(len, _wanted(query)))

    def estimate(self, query: IndexQuery) -> int:
        """Rows of a token, on average."""
        return self._file.size // _BYTES_PER_ROW // max(1, len(self._tokens))

    def compared(self, query: IndexQuery) -> int:
        """Tokens whose rows are joined."""
        return sum(map(len, _wanted(query)))

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows that have all trigrams. One read of the sets of these."""
        unknown = self._nulls() if nulls else None
        found = [self._with_all(tokens) for tokens in _wanted(query)]
        return Candidates(RowSet.union(found), unknown, exact=False)

    def _nulls(self) -> RowSet:
        return self._with_all(np.array([NULL_TOKEN], np.uint32))

    def _with_all(self, tokens: UInt32s) -> RowSet:
        at = np.searchsorted(self._tokens, tokens)
        at = at[at < len(self._tokens)]
        at = at[np.isin(self._tokens[at], tokens)]
        if len(at) < len(tokens) or not len(at):
            return _NO_ROWS

        def load() -> tuple[Any, int]:
            lists: Any = self._file.take(["posting_list"], at)[0]
            self._file.check_present(lists)
            return lists, lists.nbytes

        stored = self._keep(("lists", at.tobytes()), load)
        sets = [decode_treemap(data, self._file.path) for data in stored.to_pylist()]
        rows = reduce(lambda first, second: first & second, sorted(sets, key=len))
        return rows_of_treemap(rows, self._file.path, self._file.size)


def _wanted(query: object) -> list[UInt32s]:
    """Sets of tokens, of one of which a text must have all."""
    if isinstance(query, HasText):
        return [certain_trigrams(query.word)]
    if isinstance(query, MatchesPattern):
        words = [certain_trigrams(word) for word in required_words(query.pattern)]
        joined: Any = np.unique(np.concatenate([np.empty(0, np.uint32), *words]))
        return [joined]
    return []


_NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
