"""Search a segment of a full-text index.

Specification: "Searching" in ``docs/format/text-search.md``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import as_numpy
from glaive.dataclass import NamedTuple
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.index.protocol import Candidates, HasTokens, IndexQuery, ScalarIndex
from glaive.index.row_sets import RowNumbers, RowSet
from glaive.index.segment import IndexFile, Segment
from glaive.index.text.postings import (
    bit_lengths,
    check_posting_columns,
    position_columns,
    read_positions,
    read_postings,
)
from glaive.index.text.text_format import PostingLayout, TextParams
from glaive.index.text.tokenizers import Tokenizer
from glaive.index.text.tokens import Fst, Tokens, near_tokens, read_tokens
from glaive.kernels.text_search import (
    MAX_TERMS,
    Found,
    PhraseTerm,
    Search,
    WeightedList,
    top_all,
    top_any,
    weighted,
)
from glaive.types import Flags, Float32s, Int64s, UInt8s, UInt32s

# --- BM25: weights of a token in a document, and of the token in a query -----------------
# Specification: "Scores" in ``docs/format/text-search.md``.

_K1: Final = np.float32(1.2)
_B: Final = np.float32(0.75)
_MIN_MEAN_LENGTH: Final = 1e-12
"""Lower bound of the mean length of a document with tokens: there are fewer than 2^32 documents."""


class TextStatistics(NamedTuple):
    """Documents and tokens of all segments of an index, including deleted documents."""

    documents: int
    tokens: int

    @property
    def mean_length(self) -> float:
        """Mean number of tokens in a document."""
        return float(np.float32(self.tokens) / np.float32(max(1, self.documents)))

    @classmethod
    def sum_of(cls, parts: Iterable[TextStatistics]) -> TextStatistics:
        """Add up statistics of parts with different documents."""
        documents = tokens = 0
        for part in parts:
            documents += part.documents
            tokens += part.tokens
        return cls(documents, tokens)


def rarity(documents: int, having: int) -> float:
    """Return the inverse document frequency of a token that ``having`` of the documents have."""
    # In a damaged index, ``having`` may exceed ``documents``.
    return float(np.log1p(max(0.0, documents - having + 0.5) / (having + 0.5)))


def length_shares(lengths: Int64s | UInt32s, mean: float) -> Float32s:
    """Return the summand of BM25's denominator that grows with the length of a document."""
    share = lengths.astype(np.float32)
    share *= _K1 * _B / np.float32(max(mean, _MIN_MEAN_LENGTH))
    share += _K1 * (np.float32(1) - _B)
    return share


def weights_of(frequencies: UInt32s, shares: Float32s) -> Float32s:
    """Return the weights of a token in documents.

    Parameters
    ----------
    frequencies
        How often the token occurs in each document.
    shares
        Result of :func:`length_shares` for these documents.
    """
    often = frequencies.astype(np.float32)
    weights: Float32s = often / (often + shares)
    weights *= _K1 + np.float32(1)
    return weights


def quantized_lengths(lengths: UInt32s) -> UInt32s:
    """Round lengths down to their upper four bits, the precision of their one-byte codes."""
    bits = np.maximum(bit_lengths(lengths) - 4, 0).astype(np.uint32)
    return lengths >> bits << bits


_MAX_FUZZY_TOKENS: Final = 1_000
"""Maximum distinct query tokens of a fuzzy search: glaive compares each with the index's tokens."""


class TokenPositions(NamedTuple):
    """Positions of a token in each of its documents.

    Parameters
    ----------
    starts
        ``int64`` of shape ``(documents + 1,)``: where the positions of each document begin.
    positions
        ``uint32``.
    max_positions
        Largest number of positions in one document.
    """

    starts: Int64s
    positions: UInt32s
    max_positions: int

    @classmethod
    def of(cls, starts: Int64s, positions: UInt32s) -> Self:
        """Return positions that begin at ``starts``."""
        return cls(starts, positions, int(np.diff(starts).max(initial=0)))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.starts.nbytes + self.positions.nbytes


class Partition(Protocol):
    """Documents and their tokens, in an index or in memory."""

    @property
    def size(self) -> int:
        """Number of documents."""

    @property
    def statistics(self) -> TextStatistics:
        """Statistics of the documents."""

    def weighted(self, token: str, mean: float) -> WeightedList:
        """Return the documents of a token; an empty list if the token is unknown."""

    def count(self, token: str) -> int:
        """Return the number of documents with a token."""

    def positions(self, token: str) -> TokenPositions:
        """Return the positions of a token in each of its documents."""

    def near(self, token: str, distance: int, prefix_length: int, limit: int) -> list[str]:
        """Return the first ``limit`` tokens that are at most ``distance`` edits away."""


class TermQuery(NamedTuple):
    """Tokens to search for.

    Parameters
    ----------
    tokens
        Tokens with their positions in the query.
    every
        Require all tokens.
    phrase
        Require that the tokens follow each other.
    slop
        Positions allowed between two tokens of a phrase.
    fuzziness, prefix_length, max_expansions
        Maximum edits between a query token and a document token; leading characters that must be
        equal. ``max_expansions`` limits the document tokens for all query tokens together.
    """

    tokens: tuple[tuple[str, int], ...]
    every: bool = False
    phrase: bool = False
    slop: int = 0
    fuzziness: int = 0
    prefix_length: int = 0
    max_expansions: int = 50


class SearchedPartition(NamedTuple):
    """A partition, and the documents to search in it.

    Parameters
    ----------
    partition
        The partition.
    rows
        Row number of each document; documents with equal scores are ordered by it.
    allowed
        ``uint8`` for each document, 0 to exclude it; ``None``: search all.
    ascending
        Rows ascend. False if rows moved since the index was built.
    """

    partition: Partition
    rows: RowNumbers
    allowed: UInt8s | None
    ascending: bool = True


class Hits(NamedTuple):
    """Rows found, and their scores."""

    rows: RowNumbers
    scores: Float32s

    @classmethod
    def joined(cls, parts: Sequence[Hits]) -> Hits:
        """Concatenate several results."""
        if len(parts) == 1:
            return parts[0]
        rows = [np.zeros(0, np.uint64), *(part.rows for part in parts)]
        scores = [np.zeros(0, np.float32), *(part.scores for part in parts)]
        return Hits(np.concatenate(rows), np.concatenate(scores))

    def best(self, limit: int | None) -> Hits:
        """Return the ``limit`` best rows, the best first; equal scores are ordered by row."""
        order = np.lexsort((self.rows, -self.scores))[:limit]
        return Hits(self.rows[order], self.scores[order])


def search_terms(
    searched: Sequence[SearchedPartition],
    query: TermQuery,
    statistics: TextStatistics,
    limit: int | None,
    others: Sequence[Partition] = (),
) -> Hits:
    """Return the best rows, unordered; several partitions may give more than ``limit``.

    Parameters
    ----------
    statistics
        Statistics of all documents that scores compare with.
    limit
        Rows wanted; ``None``: all matches.
    others
        Other partitions; scores compare with their documents, too.

    Notes
    -----
    glaive sends a request for each token and partition if the cache lacks the posting list.
    """
    mean = statistics.mean_length
    groups = [_groups(query, [one.partition for one in searched])] * len(searched)
    tokens = dict.fromkeys(token for group in groups for part in group for token in part)
    lists = {token: [one.partition.weighted(token, mean) for one in searched] for token in tokens}
    rare = {
        token: rarity(
            statistics.documents,
            sum(len(one.documents) for one in lists[token])
            + sum(partition.count(token) for partition in others),
        )
        for token in tokens
    }
    parts: list[Hits] = []
    floor = 0.0
    for number, one in enumerate(searched):
        terms = _Terms(query, groups[number], {token: lists[token][number] for token in tokens})
        size = one.partition.size
        search = Search(size, size if limit is None else min(limit, size), one.allowed, floor)
        found = terms.best(rare, one, search)
        parts.append(Hits(one.rows[found.documents], found.scores))
        if limit and len(searched) > 1:
            together = np.concatenate([part.scores for part in parts])
            if len(together) >= limit:
                worst = np.partition(together, len(together) - limit)[len(together) - limit]
                # A row of a later partition with an equal score may come first.
                floor = max(0.0, float(np.nextafter(worst, np.float32(0))))
    return Hits.joined(parts)


def _groups(query: TermQuery, partitions: Sequence[Partition]) -> list[list[str]]:
    """Return groups of tokens: a document needs one token of each group."""
    if query.phrase or not (query.fuzziness or query.every):
        return [[token] for token, _ in query.tokens]
    if not query.fuzziness:
        places: dict[int, list[str]] = {}
        for token, position in query.tokens:
            places.setdefault(position, []).append(token)
        return list(places.values())
    groups: list[list[str]] = []
    known: dict[str, list[str]] = {}
    left = query.max_expansions
    for token, _ in query.tokens:
        if token not in known and left:
            if len(known) == _MAX_FUZZY_TOKENS:
                raise OptionError(
                    f"fuzziness: a query has {_MAX_FUZZY_TOKENS} different tokens with edits at "
                    "most, as each is compared with tokens of the index. Search for fewer, or "
                    "without edits"
                )
            near = [
                partition.near(token, query.fuzziness, query.prefix_length, left)
                for partition in partitions
            ]
            distinct = sorted({one.encode(): one for part in near for one in part}.items())
            known[token] = [one for _, one in distinct]
        groups.append(known.get(token, [])[:left])
        left -= len(groups[-1])
    return groups


def _by_rows(found: Found, one: SearchedPartition) -> Found:
    """Order documents by score, the best first, then by row."""
    order = np.lexsort((one.rows[found.documents], -found.scores))
    return Found(found.documents[order], found.scores[order])


class _Terms:
    """Tokens of a query in one partition, with their posting lists."""

    def __init__(
        self, query: TermQuery, groups: list[list[str]], lists: dict[str, WeightedList]
    ) -> None:
        self._query, self._groups, self._lists = query, groups, lists
        # A repeated token counts several times.
        self._counts = Counter(token for group in groups for token in group)

    def best(self, rare: dict[str, float], one: SearchedPartition, search: Search) -> Found:
        """Return the best documents of the partition; equal scores are ordered by row."""
        max_hits = search.max_hits
        if one.ascending or not 0 < max_hits < search.limit:
            return self.find(rare, one.partition, search)
        found = _by_rows(
            self.find(rare, one.partition, search._replace(max_hits=max_hits + 1)), one
        )
        scores = found.scores
        if len(scores) > max_hits and scores[max_hits - 1] == scores[max_hits]:
            floor = max(search.floor, float(np.nextafter(scores[max_hits], np.float32(0))))
            every = search._replace(max_hits=search.limit, floor=floor)
            found = _by_rows(self.find(rare, one.partition, every), one)
        return Found(found.documents[:max_hits], found.scores[:max_hits])

    def find(self, rare: dict[str, float], partition: Partition, search: Search) -> Found:
        """Return the best documents of the partition; equal scores are ordered by document."""
        query = self._query
        present = [token for token in self._counts if len(self._lists[token].documents)]
        factors = np.array([rare[token] * self._counts[token] for token in present], np.float32)
        lists = [self._lists[token] for token in present]
        together = query.every or query.phrase
        known = set(present)
        if not present or (together and any(known.isdisjoint(group) for group in self._groups)):
            return Found(np.zeros(0, np.int64), np.zeros(0, np.float32))
        everything = search.max_hits >= search.limit and not query.phrase
        if everything:
            return self._summed(lists, factors, present, search)
        if together and all(len(group) == 1 for group in self._groups):
            phrase = self._phrase(present, partition) if query.phrase else ()
            return top_all(lists, factors, search, phrase, query.slop)
        if not together and len(lists) <= MAX_TERMS:
            return top_any(lists, factors, search)
        return self._summed(lists, factors, present, search)

    def _phrase(self, present: list[str], partition: Partition) -> list[PhraseTerm]:
        first = min(position for _, position in self._query.tokens)
        places = {token: place for place, token in enumerate(present)}
        return [
            PhraseTerm(
                places[token], found.starts, found.positions, position - first, found.max_positions
            )
            for token, position in self._query.tokens
            for found in (partition.positions(token),)
        ]

    def _summed(
        self, lists: list[WeightedList], factors: Float32s, present: list[str], search: Search
    ) -> Found:
        """Score all documents that have a token of each group, and return the best."""
        scores = np.zeros(search.limit, np.float64)
        for one, factor in zip(lists, factors, strict=True):
            scores[one.documents] += np.float64(factor) * one.weights
        matched: Flags = scores > 0
        if search.allowed is not None:
            matched &= search.allowed != 0
        if self._query.every:
            for group in {frozenset(group) for group in self._groups}:
                has = np.zeros(search.limit, np.bool_)
                for token in group.intersection(present):
                    has[self._lists[token].documents] = True
                matched &= has
        documents = np.flatnonzero(matched)
        rounded = scores[documents].astype(np.float32)
        if search.max_hits >= len(documents):
            return Found(documents, rounded)
        order = np.lexsort((documents, -rounded))[: search.max_hits]
        return Found(documents[order], rounded[order])


# --- A partition of a full-text index: searches read what they need ---------------------
# Specification: "Files" in ``docs/format/text-indices.md``.

_POSTING, _LENGTH = "_posting", "_length"
_SET, _TEXT, _NUMBER = "_token_fst_bytes", "_token", "_token_id"
_NO_DOCUMENTS, _NO_WEIGHTS = np.zeros(0, np.uint32), np.zeros(0, np.float32)


class Documents(NamedTuple):
    """The documents of a partition.

    Parameters
    ----------
    rows
        Row number of each document.
    lengths
        Tokens of each document, with the precision that scores use.
    statistics
        Statistics of all documents.
    """

    rows: RowNumbers
    lengths: UInt32s
    statistics: TextStatistics


class _TokenTable:
    """Tokens in ascending order, and their numbers."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.nbytes = tokens.strings.nbytes + tokens.numbers.nbytes

    def find(self, token: bytes) -> int | None:
        """Return the number of a token."""
        strings = self._tokens.strings
        at = bisect_left(strings, token, key=lambda one: one.as_py())
        if at < len(strings) and strings[at].as_py() == token:
            return int(self._tokens.numbers[at])
        return None


class OpenedPartition:
    """One partition. The session caches what is read. Safe to share between threads.

    Parameters
    ----------
    segment
        Segment of the partition.
    number
        Number of the partition; ``None`` for a segment by pylance up to 0.27.
    layout
        Layout of the posting lists.
    """

    def __init__(self, segment: Segment, number: int | None, layout: PostingLayout) -> None:
        self._segment, self._layout = segment, layout
        self.number = number

    # ------------------------------------------------------------------ content

    @property
    def documents(self) -> Documents:
        """Rows and lengths of the documents; the first access reads two whole columns."""
        known: Documents = self._kept("documents", self._read_documents)
        return known

    @property
    def size(self) -> int:
        """Number of documents."""
        return len(self.documents.rows)

    @property
    def statistics(self) -> TextStatistics:
        """Statistics of the documents."""
        return self.documents.statistics

    def near(self, token: str, distance: int, prefix_length: int, limit: int) -> list[str]:
        """Return the first ``limit`` tokens that are at most ``distance`` edits away."""
        strings: Any = self._kept("strings", self._read_strings)
        places = near_tokens(strings, token, distance, prefix_length, limit)
        return [strings[place].as_py() for place in places.tolist()]

    # ------------------------------------------------------------------ posting lists

    def weighted(self, token: str, mean: float) -> WeightedList:
        """Return the documents of a token with weights; an empty list if the token is unknown.

        Parameters
        ----------
        mean
            Mean number of tokens in a document of the whole index.

        Notes
        -----
        One request, unless the list is cached.
        """

        def load() -> tuple[WeightedList, int]:
            found = weighted(*self._weights(token, mean))
            return found, found.nbytes

        known: WeightedList = self._segment.keep((self.number, "list", token, mean), load)
        return known

    def _weights(self, token: str, mean: float) -> tuple[UInt32s, Float32s]:
        """Read the documents of a token and their weights; one request."""
        documents, frequencies = self.occurrences(token)
        if not len(documents):
            return documents, _NO_WEIGHTS
        shares: Float32s = self._kept(("shares", mean), lambda: self._shares(mean))
        return documents, weights_of(frequencies, shares[documents])

    @property
    def lengths(self) -> UInt32s:
        """Tokens of each document."""
        return self.documents.lengths

    def occurrences(self, token: str) -> tuple[UInt32s, UInt32s]:
        """Return the documents with a token, and how often it occurs; one request."""
        place = self._find(token)
        if place is None:
            return _NO_DOCUMENTS, _NO_DOCUMENTS
        return self._read_list(place)

    def count(self, token: str) -> int:
        """Return the number of documents with a token."""
        place = self._find(token)
        return 0 if place is None else int(self._kept("lengths", self._read_lengths)[place])

    def positions(self, token: str) -> TokenPositions:
        """Return the positions of a token in each of its documents.

        Raises
        ------
        OptionError
            The index lacks positions.
        """
        known: TokenPositions = self._kept(("positions", token), lambda: self._positions(token))
        return known

    def _positions(self, token: str) -> TokenPositions:
        """Read the positions of a token; two requests."""
        place = self._find(token)
        if place is None:
            return TokenPositions.of(np.zeros(1, np.int64), np.zeros(0, np.uint32))
        _, frequencies = self._read_list(place)
        return TokenPositions.of(*self._read_positions(place, frequencies))

    def check_positions(self) -> None:
        """Raise ``OptionError`` if the index has documents, but lacks positions of their tokens."""
        if self.size and not position_columns(self._lists):
            raise OptionError(
                f"{self._segment.where}: position is not found but required for phrase queries: "
                "the index has no positions, which phrases need. Create it again with "
                "with_position=True."
            )

    # ------------------------------------------------------------------ reading

    def _kept(self, key: Hashable, load: Any) -> Any:
        """Return the cached value of a key; otherwise cache the result of ``load``."""

        def sized() -> tuple[Any, int]:
            value = load()
            parts = value[:2] if isinstance(value, Documents) else (value,)
            return value, sum(getattr(part, "nbytes", 0) for part in parts)

        return self._segment.keep((self.number, key), sized)

    def _file(self, part: str) -> IndexFile:
        name = f"{part}.lance" if self.number is None else f"part_{self.number}_{part}.lance"
        opened: IndexFile = self._segment.keep(name, lambda: (self._segment.open(name), 1 << 14))
        return opened

    @property
    def _lists(self) -> IndexFile:
        return self._file("invert")

    @property
    def _list_count(self) -> int:
        return self._lists.num_rows

    def _read_documents(self) -> Documents:
        file = self._file("docs")
        file.check(_rowid=pa.uint64(), _num_tokens=pa.uint32())
        table = file.read(["_rowid", "_num_tokens"])
        for column in table.columns:
            file.check_present(column)
        rows, lengths = (as_numpy(column) for column in table.columns)
        total = file.number("total_tokens", int(lengths.sum(dtype=np.int64)))
        if not self._layout.scored:
            lengths = quantized_lengths(lengths)
        return Documents(rows, lengths, TextStatistics(len(rows), total))

    def _shares(self, mean: float) -> Float32s:
        return length_shares(self.documents.lengths, mean)

    def _find(self, token: str) -> int | None:
        """Return the row of a token among the posting lists."""
        tokens: Fst | _TokenTable = self._kept("tokens", self._read_tokens)
        place = tokens.find(token.encode())
        if place is not None and place >= self._list_count:
            file = self._file("tokens")
            expected = f"numbers below {self._list_count}, one per list"
            raise file.corrupt("tokens of an index", expected, f"{place}")
        return place

    def _read_tokens(self) -> Fst | _TokenTable:
        file = self._file("tokens")
        if _SET not in file.schema.names:
            return _TokenTable(read_tokens(file, self._list_count))
        file.check(_token_fst_bytes=pa.large_binary())
        column = file.read([_SET])[_SET]
        if len(column) != 1 or column.null_count:
            raise file.corrupt("tokens of an index", "one set of them", f"{len(column)}")
        return Fst(column[0].as_buffer(), file.path)

    def _read_strings(self) -> Any:
        tokens = read_tokens(self._file("tokens"), self._list_count)
        return tokens.strings.cast(pa.large_string())

    def _read_list(self, place: int) -> tuple[UInt32s, UInt32s]:
        """Read documents and frequencies of a list."""
        file = self._lists
        length = int(self._kept("lengths", self._read_lengths)[place])
        rows = file.read([_POSTING], place, place + 1)
        return read_postings(file, rows, np.array([0, length]), self._layout, self.size)

    def _read_lengths(self) -> Any:
        file = self._lists
        check_posting_columns(file)
        column = file.read([_LENGTH])[_LENGTH]
        file.check_present(column)
        return as_numpy(column)

    def _read_positions(self, place: int, frequencies: UInt32s) -> tuple[Int64s, UInt32s]:
        self.check_positions()
        file = self._lists
        rows = file.read(position_columns(file), place, place + 1)
        starts = np.array([0, len(frequencies)])
        return read_positions(file, rows, starts, self._layout, frequencies)


_OPENED_BYTES = 1 << 14
"""Bytes of an opened segment; the session caches everything else separately."""

_MAX_TEXTS = 256

_ASSUMED_ROWS = 1000
"""Assumed number of rows with all tokens of a text: only reading the lists would tell."""


class TokenizedTexts:
    """Tokens of query texts; caches the last few."""

    def __init__(self, params: TextParams) -> None:
        self._params = params
        self._known: OrderedDict[str, tuple[tuple[str, int], ...]] = OrderedDict()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer with the parameters of the index."""
        return Tokenizer.of(self._params)

    def tokens(self, text: str) -> tuple[tuple[str, int], ...]:
        """Return the tokens of a text with their positions."""
        known = self._known.get(text)
        if known is None:
            known = tuple(self.tokenizer.tokens(text))
            self._known[text] = known
            if len(self._known) > _MAX_TEXTS:
                # Another thread may have removed it already.
                self._known.pop(next(iter(self._known)), None)
        return known


class OpenedInverted(ScalarIndex):
    """A segment with its parameters and partitions. Safe to share between threads.

    ``texts`` tokenizes queries like the index. ``fuzzy_texts``, for searches with edits, cuts
    queries into runs of letters and digits and leaves out filters.

    Parameters
    ----------
    segment
        The segment.
    params
        Parameters of its tokenizer.
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
        """Bytes of memory; the session counts what searches read."""
        return _OPENED_BYTES

    @property
    def statistics(self) -> TextStatistics:
        """Statistics of the documents of all partitions."""
        return TextStatistics.sum_of(partition.statistics for partition in self.partitions)

    def check_positions(self) -> None:
        """Raise ``OptionError`` if documents lack positions, which phrase searches need."""
        for partition in self.partitions:
            partition.check_positions()

    def answers(self, query: IndexQuery) -> bool:
        """Return whether the index can find the rows with all tokens of a text (and maybe more)."""
        return (
            isinstance(query, HasTokens)
            and self.params.base_tokenizer == "simple"
            and self.params.lance_tokenizer == "text"
            and bool(self.texts.tokens(query.text))
        )

    def estimate(self, query: IndexQuery) -> int:
        """Return a guess of the number of rows that a search finds."""
        return _ASSUMED_ROWS

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Return the rows with all tokens of the text, as the index tokenizes it."""
        if not isinstance(query, HasTokens):
            raise UnsupportedFeatureError(f"{self._where}: cannot answer {query}")
        tokens = self.texts.tokens(query.text)
        searched = [
            SearchedPartition(partition, partition.documents.rows, None)
            for partition in self.partitions
        ]
        found = search_terms(searched, TermQuery(tokens, every=True), self.statistics, None)
        # The index lower-cases tokens and drops some words: rows are candidates.
        return Candidates(RowSet.of(np.sort(found.rows)), None, exact=False)


# --- Documents in memory: texts of rows outside the index -------------------------------


class TextsInMemory:
    """Texts as documents, restricted to the tokens of a query.

    Parameters
    ----------
    batches
        Pairs of an array of texts and their row numbers.
    tokenizer
        Tokenizes the texts.
    wanted
        Tokens of the query.
    with_empty
        Count texts without tokens as documents.

    Notes
    -----
    Memory: 20 bytes per row, and 16 per occurrence of a query token.
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
        self._places = {token: _joined_places(found) for token, found in places.items()}

    @property
    def size(self) -> int:
        """Number of documents, including documents without tokens."""
        return len(self.rows)

    @property
    def ascending(self) -> bool:
        """Whether rows ascend: fragments may be unordered, and a row may have several texts."""
        return bool((self.rows[1:] > self.rows[:-1]).all())

    @property
    def statistics(self) -> TextStatistics:
        """Statistics of the documents."""
        documents = self.size if self._with_empty else int((self._lengths > 0).sum())
        return TextStatistics(documents, int(self._lengths.sum()))

    def weighted(self, token: str, mean: float) -> WeightedList:
        """Return the documents of a token, with weights."""
        documents, counts = self.occurrences(token)
        shares = length_shares(self._lengths[documents], mean)
        return weighted(documents, weights_of(counts, shares))

    @property
    def lengths(self) -> Int64s:
        """Tokens of each document."""
        return self._lengths

    def occurrences(self, token: str) -> tuple[UInt32s, UInt32s]:
        """Return the documents with a token, and how often it occurs."""
        documents, counts = np.unique(self._places[token][0], return_counts=True)
        return documents.astype(np.uint32), counts.astype(np.uint32)

    def count(self, token: str) -> int:
        """Return the number of documents with a token."""
        return len(self.occurrences(token)[0])

    def positions(self, token: str) -> TokenPositions:
        """Return the positions of a token in each of its documents."""
        at, positions = self._places[token]
        _, counts = np.unique(at, return_counts=True)
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return TokenPositions.of(starts, positions)

    def near(self, token: str, distance: int, prefix_length: int, limit: int) -> list[str]:
        """Return the token itself: fuzzy searches expand tokens by the index only."""
        return [token]


def _joined_places(found: list[Any]) -> tuple[Int64s, UInt32s]:
    documents = [np.zeros(0, np.int64), *(documents for documents, _ in found)]
    positions = [np.zeros(0, np.uint32), *(positions for _, positions in found)]
    return np.concatenate(documents), np.concatenate(positions)
