"""Search for the rows of a query: combine the rows of its parts.

Specification: "Searching" in ``docs/format/text-search.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import ascending, number_array
from glaive.arrow.chunked import as_numpy, join_large
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.manifest import Feature
from glaive.index.protocol import ValueBatch
from glaive.index.row_sets import RowNumbers, RowSet
from glaive.index.text.opened import (
    Hits,
    OpenedInverted,
    OpenedPartition,
    SearchedPartition,
    TermQuery,
    TextsInMemory,
    TextStatistics,
    length_shares,
    rarity,
    search_terms,
    weights_of,
)
from glaive.index.text.text_format import TextParams
from glaive.index.text.tokenizers import Tokenizer
from glaive.scan.found_columns import AddedColumns, FoundColumns
from glaive.scan.indices import FragmentIds, IndexedSegment, LogicalIndex, SnapshotIndices, union_of
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.projection import ROW_ADDRESS, ROW_ID
from glaive.scan.ranked import PlanStep, RankedScan, addresses_of, filters_of, parted, passing_rows
from glaive.scan.snapshot import Snapshot
from glaive.scan.text_queries import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
    TextQuery,
)
from glaive.scan.views import Views
from glaive.types import Flags, Float32s, Int64s, UInt8s

if TYPE_CHECKING:
    from glaive.scan.filter_scan import FilteredScan


# --- A searched column: its index, the rows of the index, and unindexed rows -----------
#
# Specification: "Unindexed rows" in ``docs/format/text-search.md``.

_KIND = "inverted"

UNINDEXED_TEXTS = TextParams(
    max_token_length=None, lower_case=False, stem=False, remove_stop_words=False,
    ascii_folding=False,
)  # fmt: skip
"""Parameters of tokens for texts of a column without an index."""


class _PartitionRows(NamedTuple):
    """Addresses of the documents of a partition in this version.

    Parameters
    ----------
    addresses
        Address of each document.
    allowed
        1 for documents to search, 0 for others; ``None`` to search all.
    ascending
        Whether addresses ascend.
    """

    addresses: RowNumbers
    allowed: UInt8s | None
    ascending: bool


class TextColumn:
    """A column of a version that is searched.

    Parameters
    ----------
    snapshot
        The version.
    path
        Path of the column.

    Raises
    ------
    ColumnNotFoundError
        The column is missing.
    OptionError
        The column is of another type than text.
    """

    def __init__(self, snapshot: Snapshot, path: str) -> None:
        self.snapshot, self.path = snapshot, path
        field = snapshot.manifest.schema.find(path)[-1]
        kind: Any = field.to_arrow().type
        listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        self.index = _index_of(snapshot, field.id)
        self._removed = _removed(snapshot, field.id, self.index)
        self.plain = _is_text(kind)
        if not self.plain and self.index is None and not (listed and _is_text(kind.value_type)):
            raise OptionError(f"full_text_query: column {path!r} is {kind}. Name a text column.")

    def documents_of(self, values: Any, addresses: RowNumbers) -> tuple[Any, RowNumbers]:
        """Return the texts of rows or of list elements, as in an index; and their rows."""
        if isinstance(values.type, pa.BaseExtensionType):
            values = values.storage
        from glaive.index.text.partition import documents_of

        batch = ValueBatch(values, addresses)
        texts, rows, _ = documents_of(batch, by_element=self.by_element)
        return texts, rows

    @classmethod
    def of(cls, snapshot: Snapshot, path: str) -> TextColumn:
        """Return a column of a version, opened once."""
        key = ("text column", path)
        known: TextColumn | None = snapshot.memo.get(key)
        if known is None:
            known = snapshot.memo[key] = cls(snapshot, path)
        return known

    @cached_property
    def segments(self) -> Sequence[tuple[IndexedSegment, OpenedInverted]]:
        """The opened segments of its index, including segments of removed fragments, for scores.

        Omits segments whose parameters differ from the first: they have other tokens, so their rows
        are read like unindexed rows.
        """
        indices = SnapshotIndices.of(self.snapshot)
        known = () if self.index is None else self.index.segments
        opened: list[Any] = [(one, indices.open(one)) for one in (*known, *self._removed)]
        return [pair for pair in opened if self._documents(*pair) == self._documents(*opened[0])]

    def _documents(self, segment: IndexedSegment, opened: OpenedInverted) -> tuple[object, ...]:
        """Return the parameters of a segment's tokens, and whether list elements are documents."""
        return opened.params.tokenizing, not self.plain and _is_by_element(segment)

    @cached_property
    def by_element(self) -> bool:
        """Whether the elements of lists are documents, by its index."""
        return bool(self.segments) and not self.plain and _is_by_element(self.segments[0][0])

    @cached_property
    def covered(self) -> FragmentIds:
        """Fragments that the index covers."""
        return union_of(segment for segment, _ in self.segments) if self.segments else frozenset()

    @cached_property
    def statistics(self) -> TextStatistics:
        """Documents of the index, and their tokens."""
        return TextStatistics.sum_of(opened.statistics for _, opened in self.segments)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the index."""
        if not self.segments:
            return Tokenizer.of(UNINDEXED_TEXTS)
        return self.segments[0][1].texts.tokenizer

    def tokens(self, text: str, *, fuzzy: bool) -> tuple[tuple[str, int], ...]:
        """Return the tokens of the text of a query; with ``fuzzy``, unchanged words."""
        if not self.segments:
            return tuple(self.tokenizer.tokens(text))
        opened = self.segments[0][1]
        return (opened.fuzzy_texts if fuzzy else opened.texts).tokens(text)

    def searched(self, among: RowSet | None) -> list[SearchedPartition]:
        """Return all partitions of the index.

        Parameters
        ----------
        among
            Addresses of the rows to search; ``None`` for all.
        """
        return [
            self._searched(segment, partition, among)
            for segment, opened in self.segments
            for partition in opened.partitions
        ]

    def _searched(
        self, segment: IndexedSegment, partition: OpenedPartition, among: RowSet | None
    ) -> SearchedPartition:
        key = ("text rows", segment.stated, partition.number)
        rows: _PartitionRows | None = self.snapshot.memo.get(key)
        if rows is None:
            rows = self.snapshot.memo[key] = self._rows(segment, partition)
        allowed = rows.allowed
        if among is not None:
            inside = _inside(rows, among)
            allowed = inside if allowed is None else inside & allowed
        return SearchedPartition(partition, rows.addresses, allowed, rows.ascending)

    def _rows(self, segment: IndexedSegment, partition: OpenedPartition) -> _PartitionRows:
        stored = partition.documents.rows
        addresses, known = SnapshotIndices.of(self.snapshot).locate(segment, stored)
        ascending = bool((addresses[1:] > addresses[:-1]).all())
        allowed = None if known.all() else known.astype(np.uint8)
        return _PartitionRows(addresses, allowed, ascending)


def _inside(rows: _PartitionRows, among: RowSet) -> UInt8s:
    """Return which documents are among some rows."""
    if not rows.ascending:
        return among.contains(rows.addresses).astype(np.uint8)
    # Each range of rows is a range of documents.
    change = np.zeros(len(rows.addresses) + 1, np.int64)
    np.add.at(change, rows.addresses.searchsorted(among.starts), 1)
    np.add.at(change, rows.addresses.searchsorted(among.stops), -1)
    return change[:-1].cumsum().astype(np.uint8)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _index_of(snapshot: Snapshot, field_id: int) -> LogicalIndex | None:
    """Return the full-text index of a field."""
    for index in SnapshotIndices.of(snapshot).on(field_id):
        if index.kind.name == _KIND:
            return index
    return None


def _removed(snapshot: Snapshot, field_id: int, index: LogicalIndex | None) -> list[IndexedSegment]:
    """Return segments of the full-text index of a field whose rows were all deleted."""
    found = [one for one in SnapshotIndices.of(snapshot).removed if _indexes(one, field_id)]
    name = found[0].entry.name if index is None and found else None if index is None else index.name
    return [one for one in found if one.entry.name == name]


def _indexes(segment: IndexedSegment, field_id: int) -> bool:
    return segment.kind.name == _KIND and list(segment.entry.fields) == [field_id]


def _is_by_element(segment: IndexedSegment) -> bool:
    """Return whether list elements are the documents of a segment."""
    from glaive.index.text.text_format import LIST_ELEMENT, details_by_name

    entry = segment.entry
    details = details_by_name(entry.index_details.value, f"details of index {entry.name!r}")
    return details.get("document_granularity") == LIST_ELEMENT


def indexed_columns(snapshot: Snapshot) -> list[str]:
    """Return the paths of the columns with a full-text index, in the order of the indices."""
    known: list[str] | None = snapshot.memo.get("text columns")
    if known is None:
        known = snapshot.memo["text columns"] = _indexed_columns(snapshot)
    return known


def _indexed_columns(snapshot: Snapshot) -> list[str]:
    indices = SnapshotIndices.of(snapshot)
    kinds = [(index.kind, index.fields) for index in indices.all]
    kinds += [(segment.kind, tuple(segment.entry.fields)) for segment in indices.removed]
    paths = [
        snapshot.manifest.schema.path_of(fields[0])
        for kind, fields in kinds
        if kind.name == _KIND and len(fields) == 1
    ]
    return list(dict.fromkeys(path for path in paths if path is not None))


# --- Several columns as one field: BM25 of a term's occurrences in all of them ----------
# Specification: "Several columns or queries" in ``docs/format/text-search.md``.


class DocumentPart(NamedTuple):
    """Documents of a column.

    Parameters
    ----------
    documents
        A partition of an index, or texts in memory.
    rows
        Address of each.
    allowed
        1 for documents to search, 0 for others; ``None`` to search all.
    """

    documents: OpenedPartition | TextsInMemory
    rows: RowNumbers
    allowed: UInt8s | None

    def occurrences(self, token: str) -> tuple[RowNumbers, Int64s]:
        """Return the searched rows that have a token, and how often."""
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
        Factor of the counts of its tokens.
    parts
        Its documents.
    statistics
        Statistics of all its documents.
    """

    weight: float
    parts: Sequence[DocumentPart]
    statistics: TextStatistics

    def count(self, token: str) -> int:
        """Count the documents that have a token, including deleted ones."""
        return sum(part.documents.count(token) for part in self.parts)

    def occurrences(self, token: str) -> tuple[RowNumbers, Int64s]:
        """Return the rows that have a token, and how often."""
        found = [part.occurrences(token) for part in self.parts]
        rows = [np.zeros(0, np.uint64), *(rows for rows, _ in found)]
        often = [np.zeros(0, np.int64), *(often for _, often in found)]
        return np.concatenate(rows), np.concatenate(often)

    def lengths(self, rows: RowNumbers) -> Int64s:
        """Count the tokens of some rows, which are ascending."""
        lengths = np.zeros(len(rows), np.int64)
        for part in self.parts:
            place = np.minimum(rows.searchsorted(part.rows), max(0, len(rows) - 1))
            here = rows[place] == part.rows if len(rows) else np.zeros(0, np.bool_)
            if part.allowed is not None and len(rows):
                here &= part.allowed > 0
            lengths[place[here]] += part.documents.lengths[here].astype(np.int64)
        return lengths


def combined_hits(columns: Sequence[CombinedColumn], tokens: Iterable[str], *, every: bool) -> Hits:
    """Return the rows that have tokens in any of the columns, with their scores.

    The number of documents, and of documents with a token, is the largest of a column. Occurrences
    and lengths are sums over the columns, each times its weight; a token counts once.

    Parameters
    ----------
    every
        Whether a row needs all tokens, or one of them.
    """
    distinct = list(dict.fromkeys(tokens))
    found = [[column.occurrences(token) for column in columns] for token in distinct]
    parts = (rows for of_token in found for rows, _ in of_token)
    rows = ascending(np.concatenate([np.zeros(0, np.uint64), *parts]))
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


def _weighted(
    rows: RowNumbers, columns: Sequence[CombinedColumn], found: Sequence[tuple[RowNumbers, Int64s]]
) -> Float32s:
    """Return how often each row has a token, with the weights of the columns."""
    often = np.zeros(len(rows), np.float64)
    for column, (having, frequencies) in zip(columns, found, strict=True):
        often[rows.searchsorted(having)] += column.weight * frequencies
    return often.astype(np.float32)


_SURPLUS_FACTOR: Final = 4
"""Factor of the rows to find first if other queries exclude rows or lower their scores."""
_MAX_BEST_ROWS: Final = 4096
"""Maximum rows of a search for the best rows; beyond, search for all rows."""
_POSTING_DEFAULTS: Final[dict[str, Any]] = {"with_position": False, "block_size": 128}
"""Parameters of indices that leave tokens the same."""


@dataclass(frozen=True)
class TextSearch:
    """One search.

    Parameters
    ----------
    views
        The version that is searched.
    options
        Options of the scan: the fragments, and whether to search only indexed rows.
    prefilter
        Filter before the search.
    meter
        Counts the work.
    """

    views: Views
    options: ScanOptions
    prefilter: object
    meter: Meter

    def hits(self, query: FullTextQuery, k: int | None) -> Hits:
        """Return addresses of rows, and their scores, in any order.

        Parameters
        ----------
        k
            Number of best rows that are wanted; ``None`` for all. More may be returned.

        Raises
        ------
        OptionError
            Searches in a column are unsupported, or its index lacks positions for phrases.
        CorruptFileError, DataFileMissingError
            An index is damaged; the message names the file.
        """
        if isinstance(query, MatchQuery | PhraseQuery):
            return self._leaf(query, k)
        if isinstance(query, TextQuery):
            return _best_of([self._leaf(leaf, k) for leaf in query.on(self.columns_of(query))])
        if isinstance(query, MultiMatchQuery):
            return _best_of([self._leaf(leaf, k) for leaf in query.matches()])
        if isinstance(query, BoostQuery):
            lowering = self._rows(query.negative)
            factor = -query.negative_boost
            # A negative factor raises scores: lower rows may become the best.
            k = k if factor <= 0 else None
            return self._adjusted(query.positive, k, lambda found: _raised(found, lowering, factor))
        if isinstance(query, BooleanQuery):
            return self._boolean(query, k)
        if isinstance(query, CombinedFieldsQuery):
            return self._combined(query)
        raise UnsupportedFeatureError(f"full_text_query: a {type(query).__name__} is not searched")

    def columns_of(self, query: TextQuery) -> Sequence[str]:
        """Return the columns to search for a text.

        Raises
        ------
        OptionError
            The query names no columns, and all columns lack an index.
        """
        if query.columns is not None:
            return query.columns
        columns = indexed_columns(self.views.snapshot)
        if not columns:
            raise OptionError(
                "Cannot perform full text search unless an INVERTED index has been created on at "
                "least one column: no column has a full-text index. Call create_scalar_index("
                "'column', 'INVERTED'), or name columns: {'query': ..., 'columns': [...]}."
            )
        return columns

    def column(self, path: str) -> TextColumn:
        """Return a column by path."""
        return TextColumn.of(self.views.snapshot, path)

    # ------------------------------------------------------------------ parts

    def _boolean(self, query: BooleanQuery, k: int | None) -> Hits:
        if query.must_not:
            excluded = [self.hits(part, None).rows for part in query.must_not]
            return self._adjusted(
                query.without_must_not(), k, lambda found: _dropped(found, excluded)
            )
        alone = [*query.must, *query.should]
        if len(alone) == 1:
            return self.hits(alone[0], k)
        together = self._one_leaf(query)
        if together is not None:
            column, terms = together
            return self._terms_of(column, terms, terms, 1.0, k)
        found: Hits | None = None
        for part in query.must:
            hits = self._rows(part)
            found = hits if found is None else _sum_of_both(found, hits)
        should = [self._rows(part) for part in query.should]
        if found is None:
            found = _grouped(should, np.add)
        else:
            for hits in should:
                found = _raised(found, hits)
        return found

    def _adjusted(
        self, query: FullTextQuery, k: int | None, adjust: Callable[[Hits], Hits]
    ) -> Hits:
        """Return at least the best rows of a query after ``adjust``, which lowers or drops some.

        First finds a few more than the best rows. These are enough if ``k`` scores stay above
        the lowest score.
        """
        wanted = 0 if k is None else _SURPLUS_FACTOR * k
        while k is not None and 0 < wanted <= _MAX_BEST_ROWS:
            found = self.hits(query, wanted)
            adjusted = adjust(_best_per_row(found))
            if len(found.rows) < wanted:
                return adjusted
            worst = np.partition(found.scores, -wanted)[-wanted]
            if int((adjusted.scores >= worst).sum()) >= k:
                return adjusted
            wanted *= _SURPLUS_FACTOR
        return adjust(self._rows(query))

    def _rows(self, query: FullTextQuery) -> Hits:
        """Return all rows of a part of a query, each once."""
        return _best_per_row(self.hits(query, None))

    def _combined(self, query: CombinedFieldsQuery) -> Hits:

        columns = [self.column(path) for path in query.columns]
        indexed = [column for column in columns if column.segments]
        if not indexed:
            raise OptionError(
                f"columns: none of {', '.join(query.columns)} has a full-text index. Create one of "
                "type INVERTED"
            )
        segments = [opened for column in indexed for _, opened in column.segments]
        if len({replace(opened.params, **_POSTING_DEFAULTS) for opened in segments}) > 1:
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

        known = column.searched(self._searched_rows) if column.segments else []
        parts = [DocumentPart(one.partition, one.rows, one.allowed) for one in known]  # type: ignore[arg-type]  # of an index
        statistics = [column.statistics]
        texts = self._read(column, tokenizer, tokens)
        if texts is not None:
            parts.append(DocumentPart(texts, texts.rows, None))
            statistics.append(texts.statistics)
        return CombinedColumn(weight, parts, TextStatistics.sum_of(statistics))

    def _leaf(self, query: MatchQuery | PhraseQuery, k: int | None) -> Hits:
        column = self.column(query.column)
        fuzzy = isinstance(query, MatchQuery) and query.fuzziness > 0
        terms = _terms(query, column.tokens(query.query, fuzzy=fuzzy))
        plain = terms
        if fuzzy:  # Texts that are read become tokens like the texts of the index.
            plain = terms._replace(tokens=column.tokens(query.query, fuzzy=False), fuzziness=0)
        boost = query.boost if isinstance(query, MatchQuery) else 1.0
        return self._terms_of(column, terms, plain, boost, k if boost > 0 else None)

    def _one_leaf(self, query: BooleanQuery) -> tuple[TextColumn, TermQuery] | None:
        """Return the same query as tokens of one column, if possible: all or any have to match."""
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
        together = [  # leaves have different places
            (token, number << 32 | position)
            for number, found in enumerate(tokens)
            for token, position in found
        ]
        return column, TermQuery(tuple(together), every)

    def _terms_of(
        self, column: TextColumn, terms: TermQuery, plain: TermQuery, boost: float, k: int | None
    ) -> Hits:
        """Return rows with tokens of a column; unindexed rows are searched for ``plain``."""
        # An index of removed rows only, as after an update of all rows, needs no positions.
        indexed = bool(column.segments) and (bool(column.covered) or not terms.phrase)
        if terms.phrase and indexed:
            for _, opened in column.segments:
                opened.check_positions()
            if len({position for _, position in terms.tokens}) == 1:
                # N-grams have one place: a document of an index needs any of them.
                terms = terms._replace(phrase=False)
        parts: list[Hits] = []
        texts = None
        if plain.tokens:
            texts = self._read(column, column.tokenizer, [token for token, _ in plain.tokens])
        if terms.tokens and indexed:
            # Each partition has its own similar words, and sums of all its documents.
            searched = column.searched(self._searched_rows)
            # A token counts once for each place; n-grams have one place. Texts that are read count
            # all.
            once = terms._replace(tokens=tuple(dict.fromkeys(terms.tokens)))
            # An index of list elements and the unindexed rows share their statistics.
            known = texts is not None and column.by_element and not terms.fuzziness
            unindexed = [texts] if texts is not None and known else []
            both = [column.statistics, *(one.statistics for one in unindexed)]
            parts.append(search_terms(searched, once, TextStatistics.sum_of(both), k, unindexed))
            self.meter.count("documents_indexed", column.statistics.documents)
            self.meter.count("index_comparisons", len(terms.tokens) + len(parts[-1].rows))
        if texts is not None:
            parts.append(_unindexed(column, texts, plain, k))
        found = Hits.joined(parts)
        if boost == 1:
            return found
        with np.errstate(over="ignore", invalid="ignore"):  # scores may be infinite
            return Hits(found.rows, found.scores * np.float32(boost))

    def _read(
        self, column: TextColumn, tokenizer: Tokenizer, tokens: Sequence[str]
    ) -> TextsInMemory | None:
        """Read the texts of unindexed fragments, for some tokens; ``None`` if all are indexed."""
        _, fragments = parted(self.views.snapshot, self.options, column.covered)
        if not fragments:
            return None

        rows = self._filtered((column.path,), fragments)
        read = (
            column.documents_of(join_large([values]), as_numpy(addresses))
            for values, addresses in rows.chunks(stream=True)
        )
        texts = TextsInMemory(read, tokenizer, tokens, with_empty=column.by_element)
        self.meter.count("documents_not_indexed", texts.size)
        return texts

    # ------------------------------------------------------------------ rows

    @cached_property
    def _searched_rows(self) -> RowSet | None:
        """Addresses of the rows to search in indices; ``None`` for all."""
        snapshot = self.views.snapshot
        if self.prefilter is None:
            if self.options.fragments is None:
                return None
            snapshot.positions_of(self.options.fragments)
            return SnapshotIndices.of(snapshot).extent(frozenset(self.options.fragments))
        with self.meter.step("filter"):
            return addresses_of(self._filtered((), self.options.fragments))

    def _filtered(
        self, columns: tuple[str, ...], fragments: tuple[int, ...] | None
    ) -> FilteredScan:
        """Return rows that pass a prefilter: columns, then addresses."""
        condition = None if self.prefilter is None else self.views.filter(self.prefilter)
        options = ScanOptions(
            fragments=fragments, use_scalar_index=self.options.use_scalar_index,
            fast_search=self.options.fast_search,
        )  # fmt: skip
        return passing_rows(self.views, options, condition, self.meter, columns)


def _unindexed(column: TextColumn, texts: TextsInMemory, terms: TermQuery, k: int | None) -> Hits:
    """Search rows in unindexed fragments, whose texts were read."""
    indexed = [partition for _, opened in column.segments for partition in opened.partitions]
    return search_terms(
        [SearchedPartition(texts, texts.rows, None, texts.ascending)],
        terms,
        TextStatistics.sum_of([column.statistics, texts.statistics]),
        k,
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
    """Return each row once, with the scores of all parts combined."""
    rows = np.concatenate([part.rows for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    distinct, place = np.unique(rows, return_inverse=True)
    combined = np.zeros(len(distinct), np.float64)
    if combine is np.maximum:
        combined[:] = -np.inf
    combine.at(combined, place, scores)
    return Hits(distinct, combined.astype(np.float32))


def _best_of(parts: Sequence[Hits]) -> Hits:
    """Return each row with the best of its scores."""
    return parts[0] if len(parts) == 1 else _grouped(parts, np.maximum)


def _sum_of_both(first: Hits, second: Hits) -> Hits:
    """Return rows that both found, with the sum of their scores; each finds a row once."""
    rows, left, right = np.intersect1d(
        first.rows, second.rows, assume_unique=True, return_indices=True
    )
    return Hits(rows, first.scores[left] + second.scores[right])


def _best_per_row(found: Hits) -> Hits:
    """Return rows with their best scores: an index may have several documents of a row."""
    ordered = np.sort(found.rows)
    return found if (ordered[1:] > ordered[:-1]).all() else _grouped([found], np.maximum)


def _raised(first: Hits, second: Hits, factor: float = 1.0) -> Hits:
    """Return the rows of the first; add the scores of the second for rows that both found."""
    at, there = _places(second.rows, first.rows)
    scores = first.scores.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        scores[there] += np.float32(factor) * second.scores[at[there]]
    return Hits(first.rows, scores)


def _dropped(found: Hits, excluded: Sequence[RowNumbers]) -> Hits:
    """Remove rows."""
    for rows in excluded:
        kept = ~_places(rows, found.rows)[1]
        found = Hits(found.rows[kept], found.scores[kept])
    return found


def _places(rows: RowNumbers, wanted: RowNumbers) -> tuple[Int64s, Flags]:
    """Return positions of wanted rows among ``rows``, which usually ascend, and which exist."""
    order = None if (rows[1:] >= rows[:-1]).all() else np.argsort(rows)
    at = np.minimum(rows.searchsorted(wanted, sorter=order), max(0, len(rows) - 1))
    at = at if order is None else order[at]
    return at, (rows[at] == wanted) if len(rows) else np.zeros(len(wanted), np.bool_)


# --- A scan that returns the rows whose texts match a query, the best first -------------

# --- The column that a search of texts adds: the score ----------------------------------
# Specification: "Scores" in ``docs/format/text-search.md``.

SCORE: Final = "_score"

ADDED: Final = AddedColumns(MappingProxyType({SCORE: pa.field(SCORE, pa.float32())}), (), SCORE)
"""Columns that rows have in addition to the columns of the dataset."""

_ADDRESSES: Final = frozenset((ROW_ID, ROW_ADDRESS))
"""Columns of row addresses, unless row ids are stable."""


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Found rows, by address."""

    hits: Hits

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.hits.rows)

    def places(self, snapshot: Snapshot) -> tuple[Int64s, Int64s]:
        """Return the position of the fragment in the list, and the physical row, of each row."""
        return snapshot.places_of(self.hits.rows)

    def added(self, _name: str) -> pa.Array:
        """Return the score."""
        return number_array(self.hits.scores, pa.float32())

    def stored(self, name: str, snapshot: Snapshot) -> pa.Array | None:
        """Return addresses, which are known."""
        stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)
        if name not in _ADDRESSES or stable:
            return None
        return number_array(self.hits.rows, pa.uint64())

    def take(self, chosen: Int64s | Flags) -> ScoredRows:
        """Return chosen rows, in this order."""
        return ScoredRows(Hits(self.hits.rows[chosen], self.hits.scores[chosen]))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FullTextScan(RankedScan):
    """A search that is ready to run, once or several times.

    Parameters
    ----------
    query
        The query.
    """

    query: FullTextQuery

    @classmethod
    def of(cls, views: Views, options: ScanOptions, query: FullTextQuery) -> FullTextScan:
        """Resolve the columns of the query, the columns of the result, and the filter.

        Raises
        ------
        OptionError
            A column is of another type than text.
        ColumnNotFoundError, FilterError
            A column is missing, or the filter is invalid.
        """
        for column in _columns_of(query, TextSearch(views, options, None, Meter())):
            TextColumn.of(views.snapshot, column)
        prefilter, postfilter = filters_of(views, options, ADDED)
        return cls(
            views=views, options=options, columns=FoundColumns.of(views, options, ADDED),
            prefilter=prefilter, postfilter=postfilter, query=query,
        )  # fmt: skip

    def steps(self) -> list[PlanStep]:
        """Return the steps of the search, the last step first."""
        steps, query = self._result_steps(), self.query
        search = TextSearch(self.views, self.options, None, Meter())
        of_one = isinstance(query, TextQuery | MatchQuery | PhraseQuery)
        if not of_one:
            steps.append(PlanStep(type(query).__name__, repr(query), "search"))
        fragments = self.views.snapshot.manifest.num_fragments
        best = "all rows" if self._k is None else f"the best {self._k} rows"
        rest = "left out" if self.options.fast_search else "read"
        leaves = (
            query.on(search.columns_of(query)) if isinstance(query, TextQuery) else query.leaves()
        )
        for leaf in leaves:
            is_phrase = isinstance(leaf, PhraseQuery)
            for path in (
                (leaf.column,) if isinstance(leaf, MatchQuery | PhraseQuery) else leaf.columns
            ):
                column = search.column(path)
                name = "no index" if column.index is None else f"index {column.index.name}"
                left = fragments - len(column.covered)
                asked = leaf.query if is_phrase else f"[{leaf.query}]"
                details = f"column={path}, query={asked}, {best} by {SCORE}, {name} of "
                details += f"{len(column.covered)} fragments; {left} fragments {rest}"
                kind = "PhraseQuery" if is_phrase else "MatchQuery"
                steps.append(PlanStep(kind, details, "search"))
                if left and not self.options.fast_search:
                    details = f"column={path}, query={leaf.query}"
                    steps.append(PlanStep("FlatMatchQuery", details, "search"))
        return steps + self._prefilter_steps()

    @property
    def _k(self) -> int | None:
        """Number of rows to find; ``None`` for all that match."""
        options = self.options
        return None if options.limit is None else options.offset + options.limit

    def _search(self, meter: Meter) -> ScoredRows:
        prefilter = None if self.prefilter is None else self.options.filter
        search = TextSearch(self.views, self.options, prefilter, meter)
        return ScoredRows(search.hits(self.query, self._k).best(self._k))


def _columns_of(query: FullTextQuery, search: TextSearch) -> list[str]:
    """Return the paths of the columns to search."""
    paths = list(search.columns_of(query)) if isinstance(query, TextQuery) else []
    for leaf in query.leaves():
        if isinstance(leaf, MatchQuery | PhraseQuery):
            paths.append(leaf.column)
        else:
            paths += leaf.columns
    return list(dict.fromkeys(paths))
