"""What the option ``full_text_query`` of scans stands for: a query, or a text.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from glaive.errors import OptionError
from glaive.scan.full_text.arguments import columns_of
from glaive.scan.full_text.queries import (
    FullTextQuery,
    FullTextQueryType,
    MatchQuery,
    PhraseQuery,
)

__all__ = ["TextQuery", "full_text_query_of"]


class TextQuery(FullTextQuery):
    """A text for columns that are not named, or by name: what users give as a string.

    Parameters
    ----------
    query
        The text; in double quotes it is a phrase.
    columns
        None: all columns with a full-text index.
    """

    def __init__(self, query: str, columns: Sequence[str] | None = None) -> None:
        self.query, self.columns = query, columns

    def query_type(self) -> FullTextQueryType:
        """The kind of the query."""
        return FullTextQueryType.MULTI_MATCH

    def leaves(self) -> Iterator[Any]:
        """The queries of texts that it is made of."""
        yield from ()

    def on(self, columns: Sequence[str]) -> list[MatchQuery] | list[PhraseQuery]:
        """The query of each column."""
        text = self.query.strip()
        if len(text) > 1 and text[0] == text[-1] == '"':
            return [PhraseQuery(text[1:-1], column) for column in columns]
        return [MatchQuery(self.query, column) for column in columns]

    def __repr__(self) -> str:
        return repr(self.query)


def full_text_query_of(given: object) -> FullTextQuery:
    """The query that the option ``full_text_query`` stands for.

    Parameters
    ----------
    given
        A text, a query, or a mapping with ``query``, which is one of them, and ``columns``.

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
            f"full_text_query: {len(unknown)} unknown keys {unknown[:10]}; "
            "there are 'query' and 'columns'"
        )
    query, columns = given.get("query"), given.get("columns")
    if isinstance(query, FullTextQuery):
        return query
    if not isinstance(query, str):
        raise OptionError(f"full_text_query: expected a text as 'query', found {query!r:.80}")
    return TextQuery(query, None if columns is None else columns_of(columns))
