"""Queries of full-text search, as users write them.

Specification: "Searching" in ``docs/format/text-search.md``.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from math import inf
from typing import Any, ClassVar, Final

from glaive.errors import OptionError
from glaive.options import TEXT, Kind, integer, number

# --- Check arguments of queries: an ``OptionError`` names the wrong argument ------------

_COUNT: Final = integer(0, 2**31 - 1)
_NUMBER: Final = Kind("a finite number", number(-sys.float_info.max, sys.float_info.max).of)


def columns_of(columns: object) -> tuple[str, ...]:
    """Check names of columns, one or more."""
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        start = "Cannot create MultiMatchQuery with no columns: "
        raise OptionError(
            f"{start if isinstance(columns, list) else ''}columns: expected a list of at least one "
            f"name, found {columns!r:.80}"
        )
    return tuple(TEXT.check("columns", column) for column in columns)


def boosts_of(boosts: object, count: int) -> tuple[float, ...]:
    """Check factors, one per column; 1 by default."""
    if boosts is None:
        return (1.0,) * count
    if not isinstance(boosts, Sequence) or len(boosts) != count:
        raise OptionError(
            "The number of boosts must match the number of queries: boosts: expected "
            f"{count} numbers, one per column, found {boosts!r:.80}"
        )
    return tuple(_NUMBER.check("boosts", boost) for boost in boosts)


def member_of(name: str, value: Any, kind: type[Any]) -> Any:
    """Check that a value is of a class."""
    if not isinstance(value, kind):
        raise OptionError(f"{name}: expected {kind.__name__}, found {value!r:.80}")
    return value


class FullTextQueryType(Enum):
    """Kinds of queries."""

    MATCH = "match"
    MATCH_PHRASE = "match_phrase"
    BOOST = "boost"
    MULTI_MATCH = "multi_match"
    COMBINED_FIELDS = "combined_fields"
    BOOLEAN = "boolean"


class FullTextOperator(Enum):
    """Whether a document needs all tokens of a query, or any."""

    AND = "AND"
    OR = "OR"


class DocumentGranularity(StrEnum):
    """The unit of documents: a row, or an element of a list."""

    ROW = "row"
    LIST_ELEMENT = "list_element"


class Occur(Enum):
    """The effect of a query in a :class:`BooleanQuery`."""

    SHOULD = "SHOULD"
    MUST = "MUST"
    MUST_NOT = "MUST_NOT"


_MAX_LEVELS = 128
"""Levels of queries within queries."""


class FullTextQuery(ABC):
    """An immutable query; ``&`` and ``|`` combine two queries."""

    levels = 0
    """Levels of queries within this one, at most 128."""

    _type: ClassVar[FullTextQueryType]

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return self._type

    @abstractmethod
    def leaves(self) -> Iterator[MatchQuery | PhraseQuery | MultiMatchQuery | CombinedFieldsQuery]:
        """Yield the queries of texts in it."""

    def __and__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.MUST, self), (Occur.MUST, other)])

    def __or__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.SHOULD, self), (Occur.SHOULD, other)])


class _Leaf(FullTextQuery):
    """A query of a text."""

    query: str

    def leaves(self) -> Iterator[Any]:
        """Yield the queries of texts in it."""
        yield self


class MatchQuery(_Leaf):
    """Documents with the tokens of a text.

    Parameters
    ----------
    query
        The text. It becomes tokens like the texts of the index.
    column
        The column to search.
    boost
        Factor of the scores.
    fuzziness
        Maximum edits (characters inserted, deleted, replaced) between a token and a token of the
        text. The text then keeps its case and word forms. Unindexed rows are searched for the
        exact tokens. ``None`` means 0.
    max_expansions
        Maximum number of tokens that the tokens of the text match in total: in order, first of the
        first token, then of the next.
    operator
        Whether documents need all tokens.
    prefix_length
        Characters at the start of a token that have to be equal.
    document_granularity
        Rows, or ``None``.

    Raises
    ------
    OptionError
        An argument has an invalid value.
    """

    def __init__(
        self,
        query: str,
        column: str,
        *,
        boost: float = 1.0,
        fuzziness: int | None = 0,
        max_expansions: int = 50,
        operator: FullTextOperator = FullTextOperator.OR,
        prefix_length: int = 0,
        document_granularity: DocumentGranularity | None = None,
    ) -> None:
        self.query, self.column = TEXT.check("query", query), TEXT.check("column", column)
        self.boost = _NUMBER.check("boost", boost)
        self.fuzziness = 0 if fuzziness is None else _COUNT.check("fuzziness", fuzziness)
        self.max_expansions = _COUNT.check("max_expansions", max_expansions)
        self.prefix_length = _COUNT.check("prefix_length", prefix_length)
        self.operator = member_of("operator", operator, FullTextOperator)
        self.document_granularity = _granularity(document_granularity)

    _type = FullTextQueryType.MATCH

    def __repr__(self) -> str:
        return f"MatchQuery({self.query!r}, {self.column!r}, operator={self.operator.name})"


class PhraseQuery(_Leaf):
    """Documents where the tokens of a text follow each other. The index needs positions.

    Parameters
    ----------
    query, column, document_granularity
        As in :class:`MatchQuery`.
    slop
        Maximum extra positions between a token and the previous token, compared with the text.

    Raises
    ------
    OptionError
        An argument has an invalid value.
    """

    def __init__(
        self,
        query: str,
        column: str,
        *,
        slop: int = 0,
        document_granularity: DocumentGranularity | None = None,
    ) -> None:
        self.query, self.column = TEXT.check("query", query), TEXT.check("column", column)
        self.slop = _COUNT.check("slop", slop)
        self.document_granularity = _granularity(document_granularity)

    _type = FullTextQueryType.MATCH_PHRASE

    def __repr__(self) -> str:
        return f"PhraseQuery({self.query!r}, {self.column!r}, slop={self.slop})"


class _SeveralColumns(_Leaf):
    """A query of a text in several columns, each with a boost."""

    _min_boost: ClassVar[float] = -inf

    def __init__(
        self,
        query: str,
        columns: list[str],
        *,
        boosts: list[float] | None = None,
        operator: FullTextOperator = FullTextOperator.OR,
    ) -> None:
        self.query, self.columns = TEXT.check("query", query), columns_of(columns)
        self.boosts = boosts_of(boosts, len(self.columns))
        minimum = self._min_boost
        if any(boost < minimum for boost in self.boosts):
            raise OptionError(f"boosts: expected numbers from {minimum} on, found {boosts!r}")
        self.operator = member_of("operator", operator, FullTextOperator)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.query!r}, {list(self.columns)!r})"


class MultiMatchQuery(_SeveralColumns):
    """Documents with the tokens of a text in one of several columns; the best score counts.

    Parameters
    ----------
    query, operator
        As in :class:`MatchQuery`, for each column on its own.
    columns
        The columns to search.
    boosts
        Factor of the scores of each column.

    Raises
    ------
    OptionError
        An argument has an invalid value.
    """

    _type = FullTextQueryType.MULTI_MATCH

    def matches(self) -> list[MatchQuery]:
        """Return the query of each column."""
        return [
            MatchQuery(self.query, column, boost=boost, operator=self.operator)
            for column, boost in zip(self.columns, self.boosts, strict=True)
        ]


class CombinedFieldsQuery(_SeveralColumns):
    """Rows with the tokens of a text in several columns that count as one field.

    At least one column needs an index. All indices must make the same tokens.

    Parameters
    ----------
    query, columns, operator
        As in :class:`MultiMatchQuery`.
    boosts
        Weights of the columns, at least 1.

    Raises
    ------
    OptionError
        An argument has an invalid value.
    """

    _min_boost = 1

    _type = FullTextQueryType.COMBINED_FIELDS


class BoostQuery(FullTextQuery):
    """Documents of one query; documents that a second query also finds get lower scores.

    Parameters
    ----------
    positive, negative
        Queries.
    negative_boost
        The score of ``negative`` times this factor is subtracted.

    Raises
    ------
    OptionError
        An argument has an invalid value.
    """

    def __init__(
        self, positive: FullTextQuery, negative: FullTextQuery, *, negative_boost: float = 0.5
    ) -> None:
        self.positive = member_of("positive", positive, FullTextQuery)
        self.negative = member_of("negative", negative, FullTextQuery)
        self.negative_boost = _NUMBER.check("negative_boost", negative_boost)
        self.levels = _levels(self.positive, self.negative)

    _type = FullTextQueryType.BOOST

    def leaves(self) -> Iterator[Any]:
        """Yield the queries of texts in it."""
        yield from self.positive.leaves()
        yield from self.negative.leaves()

    def __repr__(self) -> str:
        return f"BoostQuery({self.positive!r}, {self.negative!r})"


class BooleanQuery(FullTextQuery):
    """Documents that all ``MUST`` queries find, or any ``SHOULD`` query, but no ``MUST_NOT`` query.

    Parameters
    ----------
    queries
        Pairs of an :class:`Occur` and a query. Scores of ``MUST`` and ``SHOULD`` queries that
        find a document are added.

    Raises
    ------
    OptionError
        A ``MUST`` or ``SHOULD`` query is missing, or an entry is something else.
    """

    def __init__(self, queries: Sequence[tuple[Occur, FullTextQuery]]) -> None:
        if not isinstance(queries, Iterable):
            raise OptionError(
                f"queries: expected pairs of Occur and a query, found {queries!r:.80}"
            )
        by_kind: dict[Occur, list[FullTextQuery]] = {occur: [] for occur in Occur}
        for entry in queries:
            if len(member_of("queries", entry, tuple)) != 2:
                raise OptionError(
                    f"queries: expected pairs of Occur and a query, found {entry!r:.80}"
                )
            occur = member_of("queries", entry[0], Occur)
            by_kind[occur].append(member_of("queries", entry[1], FullTextQuery))
        self.must, self.should = by_kind[Occur.MUST], by_kind[Occur.SHOULD]
        self.must_not = by_kind[Occur.MUST_NOT]
        if not self.must and not self.should:
            raise OptionError(
                "queries: expected at least one MUST or SHOULD query, which says what is found"
            )
        self.levels = _levels(*self.must, *self.should, *self.must_not)

    _type = FullTextQueryType.BOOLEAN

    def without_must_not(self) -> BooleanQuery:
        """Return the ``MUST`` and ``SHOULD`` queries."""
        found = [(Occur.MUST, one) for one in self.must]
        return BooleanQuery(found + [(Occur.SHOULD, one) for one in self.should])

    def leaves(self) -> Iterator[Any]:
        """Yield the queries of texts in it."""
        for query in (*self.must, *self.should, *self.must_not):
            yield from query.leaves()

    def __repr__(self) -> str:
        return f"BooleanQuery(must={self.must}, should={self.should}, must_not={self.must_not})"


def _levels(*queries: FullTextQuery) -> int:
    """Count the levels of a query of other queries."""
    levels = 1 + max(query.levels for query in queries)
    if levels > _MAX_LEVELS:
        raise OptionError(
            f"queries: nested deeper than {_MAX_LEVELS} levels. A BooleanQuery takes any number of "
            "queries: BooleanQuery([(Occur.SHOULD, one), (Occur.SHOULD, two), ...]) instead of "
            "one | two | ..."
        )
    return levels


def _granularity(value: object) -> DocumentGranularity | None:
    if value is None or value is DocumentGranularity.ROW:
        return DocumentGranularity.ROW if value else None
    raise OptionError(
        f"document_granularity: rows are the only documents that are searched, found {value!r}"
    )


# --- The option ``full_text_query`` of scans: a query, or a text ------------------------
# Specification: "Searching" in ``docs/format/text-search.md``.


class TextQuery(FullTextQuery):
    """A text for named columns, or for all indexed columns: users give it as a string.

    Parameters
    ----------
    query
        The text; in double quotes it is a phrase.
    columns
        ``None`` for all columns with a full-text index.
    """

    def __init__(self, query: str, columns: Sequence[str] | None = None) -> None:
        self.query, self.columns = query, columns

    _type = FullTextQueryType.MULTI_MATCH

    def leaves(self) -> Iterator[Any]:
        """Yield the queries of texts in it."""
        yield from ()

    def on(self, columns: Sequence[str]) -> list[MatchQuery] | list[PhraseQuery]:
        """Return the query of each column."""
        text = self.query.strip()
        if len(text) > 1 and text[0] == text[-1] == '"':
            return [PhraseQuery(text[1:-1], column) for column in columns]
        return [MatchQuery(self.query, column) for column in columns]

    def __repr__(self) -> str:
        return repr(self.query)


def full_text_query_of(given: object) -> FullTextQuery:
    """Return the query of the option ``full_text_query``.

    Parameters
    ----------
    given
        A text, a query, or a mapping with ``query`` (a text or a query) and ``columns``.

    Raises
    ------
    OptionError
        It is something else.
    """
    if isinstance(given, FullTextQuery):
        return given
    if isinstance(given, str):
        return TextQuery(given)
    if not isinstance(given, Mapping):
        raise OptionError(
            f"full_text_query: expected a text, a mapping or a query of glaive.query, "
            f"found {given!r:.80}"
        )
    unknown = sorted(f"{key!s:.80}" for key in set(given) - {"query", "columns"})
    if unknown:
        raise OptionError(
            f"full_text_query: unknown keys {unknown[:10]}. Pass 'query' and 'columns'."
        )
    query, columns = given.get("query"), given.get("columns")
    if isinstance(query, FullTextQuery):
        return query
    if not isinstance(query, str):
        raise OptionError(f"full_text_query: expected a text as 'query', found {query!r:.80}")
    return TextQuery(query, None if columns is None else columns_of(columns))
