"""Search for the rows of a query: what its parts find, put together.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from glaive.arrow.chunked import as_numpy, join_large
from glaive.dataclass import dataclass
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.text.bm25 import TextStatistics
from glaive.index.text.term_search import Hits, SearchedPartition, TermQuery, search_terms
from glaive.kernels.text_search import MAX_TERMS
from glaive.scan.full_text.column import TextColumn, indexed_columns
from glaive.scan.full_text.queries import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
)
from glaive.scan.full_text.text_query import TextQuery
from glaive.scan.indices import SnapshotIndices
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.views import Views
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.index.text.tokenizers.tokenizer import Tokenizer
    from glaive.scan.filter.scan import FilteredScan
    from glaive.scan.full_text.combined import CombinedColumn
    from glaive.scan.full_text.texts import TextsInMemory

__all__ = ["TextSearch"]

_SHIFT = np.uint64(32)
_MORE: Final = 4
"""Times the best rows that are found before others exclude some of them or lower their scores."""
_MOST_BEST: Final = 4096
"""Rows up to which only the best are asked for."""
_OF_POSTINGS: Final[dict[str, Any]] = {"with_position": False, "block_size": 128}
"""Parameters of indices that make no other tokens."""


@dataclass(frozen=True)
class TextSearch:
    """One search.

    Parameters
    ----------
    views
        The version that is searched.
    options
        Of the scan: which fragments, and whether only rows that an index knows.
    prefilter
        What rows have to pass to be searched.
    meter
        Counts what is done.
    """

    views: Views
    options: ScanOptions
    prefilter: object
    meter: Meter

    def hits(self, query: FullTextQuery, most: int | None) -> Hits:
        """Addresses of rows, and their scores, in no order.

        Parameters
        ----------
        most
            Only the best so many are wanted; None: all. There may be more of them.

        Raises
        ------
        OptionError
            A column cannot be searched, or not for phrases.
        CorruptFileError, DataFileMissingError
            An index is damaged; the message names the file.
        """
        if isinstance(query, MatchQuery | PhraseQuery):
            return self._leaf(query, most)
        if isinstance(query, TextQuery):
            return _best_of([self._leaf(leaf, most) for leaf in query.on(self.columns_of(query))])
        if isinstance(query, MultiMatchQuery):
            return _best_of([self._leaf(leaf, most) for leaf in query.matches()])
        if isinstance(query, BoostQuery):
            lowering = self._rows(query.negative)
            factor = -query.negative_boost
            # A negative factor raises scores: rows that are not the best may become so.
            most = most if factor <= 0 else None
            return self._adjusted(
                query.positive, most, lambda found: _raised(found, lowering, factor)
            )
        if isinstance(query, BooleanQuery):
            return self._boolean(query, most)
        if isinstance(query, CombinedFieldsQuery):
            return self._combined(query)
        raise UnsupportedFeatureError(f"full_text_query: a {type(query).__name__} is not searched")

    def columns_of(self, query: TextQuery) -> Sequence[str]:
        """The columns that a text is searched in.

        Raises
        ------
        OptionError
            None is named, and none has an index.
        """
        if query.columns is not None:
            return query.columns
        columns = indexed_columns(self.views.snapshot)
        if not columns:
            raise OptionError(
                "Cannot perform full text search unless an INVERTED index has been created on at "
                "least one column: full_text_query: no column has a full-text index. Name the "
                "columns, as in {'query': ..., 'columns': [...]}, or create an index."
            )
        return columns

    def column(self, path: str) -> TextColumn:
        """A column by path."""
        return TextColumn.of(self.views.snapshot, path)

    # ------------------------------------------------------------------ parts

    def _boolean(self, query: BooleanQuery, most: int | None) -> Hits:
        if query.must_not:
            excluded = [self.hits(part, None).rows for part in query.must_not]
            return self._adjusted(
                query.without_must_not(), most, lambda found: _dropped(found, excluded)
            )
        alone = [*query.must, *query.should]
        if len(alone) == 1:
            return self.hits(alone[0], most)
        together = self._one_leaf(query)
        if together is not None:
            column, terms = together
            return self._terms_of(column, terms, terms, 1.0, most)
        found: Hits | None = None
        for part in query.must:
            hits = self._rows(part)
            found = hits if found is None else _both(found, hits)
        should = [self._rows(part) for part in query.should]
        if found is None:
            found = _summed(should)
        else:
            for hits in should:
                found = _raised(found, hits)
        return found

    def _adjusted(
        self, query: FullTextQuery, most: int | None, adjust: Callable[[Hits], Hits]
    ) -> Hits:
        """Rows of a query after ``adjust``, which lowers scores or drops rows; the best at least.

        A few more than the best rows are found first. These are enough if the scores of so many of
        them stay above the lowest of all.
        """
        wanted = 0 if most is None else _MORE * most
        while most is not None and 0 < wanted <= _MOST_BEST:
            found = self.hits(query, wanted)
            adjusted = adjust(_each_once(found))
            if len(found.rows) < wanted:
                return adjusted
            least = np.partition(found.scores, -wanted)[-wanted]
            if int((adjusted.scores >= least).sum()) >= most:
                return adjusted
            wanted *= _MORE
        return adjust(self._rows(query))

    def _rows(self, query: FullTextQuery) -> Hits:
        """All rows of a part of a query, each once."""
        return _each_once(self.hits(query, None))

    def _combined(self, query: CombinedFieldsQuery) -> Hits:
        from glaive.scan.full_text.combined import combined_hits

        columns = [self.column(path) for path in query.columns]
        indexed = [column for column in columns if column.segments]
        if not indexed:
            raise OptionError(
                f"columns: none of {', '.join(query.columns)} has a full-text index. Create one of "
                "type INVERTED"
            )
        segments = [opened for column in indexed for _, opened in column.segments]
        if len({replace(opened.params, **_OF_POSTINGS) for opened in segments}) > 1:
            raise OptionError(
                f"columns: the indices of {', '.join(query.columns)} make tokens in different ways"
            )
        tokens = [token for token, _ in indexed[0].tokens(query.query, fuzzy=False)]
        weighted = [
            self._combined_column(column, weight, indexed[0].tokenizer, tokens)
            for column, weight in zip(columns, query.boosts, strict=True)
        ]
        return combined_hits(weighted, tokens, every=query.operator is FullTextOperator.AND)

    def _combined_column(
        self, column: TextColumn, weight: float, tokenizer: Tokenizer, tokens: Sequence[str]
    ) -> CombinedColumn:
        from glaive.scan.full_text.combined import CombinedColumn, DocumentPart

        known = column.searched(self._among) if column.segments else []
        parts = [DocumentPart(one.partition, one.rows, one.allowed) for one in known]  # type: ignore[arg-type]  # of an index
        statistics = [column.statistics]
        texts = None if self.options.fast_search else self._read(column, tokenizer, tokens)
        if texts is not None:
            parts.append(DocumentPart(texts, texts.rows, None))
            statistics.append(texts.statistics)
        return CombinedColumn(weight, parts, TextStatistics.sum_of(statistics))

    def _leaf(self, query: MatchQuery | PhraseQuery, most: int | None) -> Hits:
        column = self.column(query.column)
        fuzzy = isinstance(query, MatchQuery) and query.fuzziness > 0
        terms = _terms(query, column.tokens(query.query, fuzzy=fuzzy))
        plain = terms
        if fuzzy:  # Texts that are read become tokens as those of the index did.
            plain = terms._replace(tokens=column.tokens(query.query, fuzzy=False), fuzziness=0)
        boost = query.boost if isinstance(query, MatchQuery) else 1.0
        return self._terms_of(column, terms, plain, boost, most if boost > 0 else None)

    def _one_leaf(self, query: BooleanQuery) -> tuple[TextColumn, TermQuery] | None:
        """The same as tokens of one column, which all have to be there, or any of them."""
        every = not query.should
        if query.must_not or (query.must and query.should):
            return None
        leaves: list[MatchQuery] = []
        for part in (*query.must, *query.should):
            if not isinstance(part, MatchQuery) or part.fuzziness or part.boost != 1:
                return None
            leaves.append(part)
        column = self.column(leaves[0].column)
        tokens = [column.tokens(leaf.query, fuzzy=False) for leaf in leaves]
        is_one_query = all(
            leaf.column == leaves[0].column
            and (len(found) == 1 or (found and (leaf.operator is FullTextOperator.AND) is every))
            for leaf, found in zip(leaves, tokens, strict=True)
        )
        if not is_one_query:
            return None
        together = [  # places of one leaf are none of another
            (token, number << 32 | position)
            for number, found in enumerate(tokens)
            for token, position in found
        ]
        return column, TermQuery(tuple(together), every)

    def _terms_of(
        self,
        column: TextColumn,
        terms: TermQuery,
        plain: TermQuery,
        boost: float,
        most: int | None,
    ) -> Hits:
        """Rows that have tokens of a column; ``plain`` are those of rows that no index knows."""
        # An index that answers for no row any more, as after an update of all, needs no positions.
        indexed = bool(column.segments) and (bool(column.covered) or not terms.phrase)
        if terms.phrase and indexed:
            for _, opened in column.segments:
                opened.check_positions()
            if len({position for _, position in terms.tokens}) == 1:
                # Of n-grams, which have one place, a document of an index needs any.
                terms = terms._replace(phrase=False)
        parts: list[Hits] = []
        texts = None
        if plain.tokens and not self.options.fast_search:
            texts = self._read(column, column.tokenizer, [token for token, _ in plain.tokens])
        if terms.tokens and indexed:
            # Each partition has similar words of its own, and sums of all its documents.
            joined = most is not None and not terms.fuzziness and len(terms.tokens) <= MAX_TERMS
            searched = column.searched(self._among, joined=joined)
            # A token counts once for each place, of which n-grams have one; all do in texts read.
            once = terms._replace(tokens=tuple(dict.fromkeys(terms.tokens)))
            # Of rows that it does not know, an index of list elements has scores in common.
            known = texts is not None and column.by_element and not terms.fuzziness
            beside = [texts] if texts is not None and known else []
            both = [column.statistics, *(one.statistics for one in beside)]
            parts.append(search_terms(searched, once, TextStatistics.sum_of(both), most, beside))
            self.meter.count("documents_indexed", column.statistics.documents)
            self.meter.count("index_comparisons", len(terms.tokens) + len(parts[-1].rows))
        if texts is not None:
            parts.append(_unindexed(column, texts, plain, most))
        found = Hits.joined(parts)
        if boost == 1:
            return found
        with np.errstate(over="ignore", invalid="ignore"):  # scores may be infinite
            return Hits(found.rows, found.scores * np.float32(boost))

    def _read(
        self, column: TextColumn, tokenizer: Tokenizer, tokens: Sequence[str]
    ) -> TextsInMemory | None:
        """The texts of fragments that no index knows, for some tokens; None: there are none."""
        covered = column.covered
        fragments = [one for one in self._fragments if one not in covered]
        if not fragments:
            return None
        from glaive.scan.full_text.texts import TextsInMemory

        rows = self._filtered((column.path,), tuple(fragments))
        read = (
            column.documents_of(join_large([values]), as_numpy(addresses))
            for values, addresses in rows.chunks(stream=True)
        )
        texts = TextsInMemory(read, tokenizer, tokens, with_empty=column.by_element)
        self.meter.count("documents_not_indexed", texts.size)
        return texts

    # ------------------------------------------------------------------ rows

    @cached_property
    def _fragments(self) -> list[int]:
        """Ids of the fragments that are searched."""
        ids: list[int] = self.views.snapshot.manifest.fragment_ids.tolist()
        if self.options.fragments is not None:
            self.views.snapshot.positions_of(self.options.fragments)
            return list(dict.fromkeys(self.options.fragments))
        return ids

    @cached_property
    def _among(self) -> RowSet | None:
        """Addresses of the rows that may be found by indices; None: all."""
        snapshot = self.views.snapshot
        if self.prefilter is None:
            if self.options.fragments is None:
                return None
            return SnapshotIndices.of(snapshot).extent(frozenset(self._fragments))
        with self.meter.step("filter"):
            rows: list[RowNumbers] = [np.zeros(0, np.uint64)]
            for fragment, ranges in self._filtered((), self.options.fragments).row_ranges():
                rows.append((np.uint64(fragment) << _SHIFT) | ranges.astype(np.uint64))
            return RowSet.of(np.concatenate(rows))

    def _filtered(
        self, columns: tuple[str, ...], fragments: tuple[int, ...] | None
    ) -> FilteredScan:
        """Rows of fragments that pass the filter, if it comes first: columns, then addresses."""
        from glaive.scan.filter.scan import FilteredScan
        from glaive.scan.filter.search import Search
        from glaive.scan.run.scheduler import ScanRun

        condition = None if self.prefilter is None else self.views.filter(self.prefilter)
        source = self.views.scan(
            columns, with_row_address=bool(columns),
            inputs=() if condition is None else tuple(condition.columns),
        )  # fmt: skip
        options = ScanOptions(
            fragments=fragments, use_scalar_index=self.options.use_scalar_index,
            fast_search=self.options.fast_search,
        )  # fmt: skip
        return FilteredScan.of(Search.of(ScanRun(source, options, self.meter), condition))


def _unindexed(
    column: TextColumn, texts: TextsInMemory, terms: TermQuery, most: int | None
) -> Hits:
    """Rows in fragments that the index does not know, whose texts were read."""
    indexed = [partition for _, opened in column.segments for partition in opened.partitions]
    return search_terms(
        [SearchedPartition(texts, texts.rows, None, texts.ascending)],
        terms,
        TextStatistics.sum_of([column.statistics, texts.statistics]),
        most,
        indexed,
    )


def _terms(query: MatchQuery | PhraseQuery, tokens: tuple[tuple[str, int], ...]) -> TermQuery:
    if isinstance(query, PhraseQuery):
        return TermQuery(tokens, phrase=True, slop=query.slop)
    return TermQuery(
        tokens, every=query.operator is FullTextOperator.AND, fuzziness=query.fuzziness,
        prefix_length=query.prefix_length, max_expansions=query.max_expansions,
    )  # fmt: skip


def _grouped(parts: Sequence[Hits], combine: Any) -> Hits:
    """Each row once, with the scores of all parts combined."""
    rows = np.concatenate([part.rows for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    distinct, place = np.unique(rows, return_inverse=True)
    combined = np.zeros(len(distinct), np.float64)
    if combine is np.maximum:
        combined[:] = -np.inf
    combine.at(combined, place, scores)
    return Hits(distinct, combined.astype(np.float32))


def _best_of(parts: Sequence[Hits]) -> Hits:
    """Each row with the best of its scores."""
    return parts[0] if len(parts) == 1 else _grouped(parts, np.maximum)


def _summed(parts: Sequence[Hits]) -> Hits:
    return _grouped(parts, np.add)


def _both(first: Hits, second: Hits) -> Hits:
    """Rows that both found, with the sum of their scores; each finds a row once."""
    rows, left, right = np.intersect1d(
        first.rows, second.rows, assume_unique=True, return_indices=True
    )
    return Hits(rows, first.scores[left] + second.scores[right])


def _each_once(found: Hits) -> Hits:
    """Rows with their best scores: an index may have several documents of one."""
    ordered = np.sort(found.rows)
    return found if (ordered[1:] > ordered[:-1]).all() else _grouped([found], np.maximum)


def _raised(first: Hits, second: Hits, factor: float = 1.0) -> Hits:
    """The rows of the first; those that the second found, too, have that added to their scores."""
    at, there = _places(second.rows, first.rows)
    scores = first.scores.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        scores[there] += np.float32(factor) * second.scores[at[there]]
    return Hits(first.rows, scores)


def _dropped(found: Hits, excluded: Sequence[RowNumbers]) -> Hits:
    """What was found, without some rows."""
    for rows in excluded:
        kept = ~_places(rows, found.rows)[1]
        found = Hits(found.rows[kept], found.scores[kept])
    return found


def _places(rows: RowNumbers, wanted: RowNumbers) -> tuple[Int64s, Flags]:
    """Where rows are among others, and whether they are; rows of an index are ascending."""
    order = None if (rows[1:] >= rows[:-1]).all() else np.argsort(rows)
    at = np.minimum(np.searchsorted(rows, wanted, sorter=order), max(0, len(rows) - 1))
    at = at if order is None else order[at]
    return at, (rows[at] == wanted) if len(rows) else np.zeros(len(wanted), np.bool_)
