"""The tokens of a query, without an index: what its options make of a text.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Literal

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.index.text.params import TextParams
from glaive.index.text.tokenizers.tokenizer import Tokenizer

__all__ = ["FtsToken", "tokenize"]


@dataclass(frozen=True, slots=True)
class FtsToken:
    """A token of a query.

    Parameters
    ----------
    text
        After all filters.
    position
        Tokens since the first one; those that were dropped count.
    """

    text: str
    position: int


def tokenize(  # noqa: PLR0913  # the options of pylance's
    query: str,
    *,
    analyzer: Literal["text", "code"] | None = None,
    base_tokenizer: str | None = None,
    language: str | None = None,
    max_token_length: int | None = 40,
    lower_case: bool | None = None,
    stem: bool | None = None,
    remove_stop_words: bool | None = None,
    custom_stop_words: list[str] | None = None,
    ascii_folding: bool | None = None,
    min_ngram_length: int | None = None,
    max_ngram_length: int | None = None,
    prefix_only: bool | None = None,
    split_identifiers: bool | None = None,
    split_on_numerics: bool | None = None,
    preserve_original: bool | None = None,
    index_operators: bool | None = None,
) -> list[FtsToken]:
    """The tokens that a query has for an index with these options.

    Parameters
    ----------
    query
        The text.
    max_token_length
        None: any.
    analyzer, base_tokenizer, language, lower_case, stem, remove_stop_words, custom_stop_words
        As for ``create_scalar_index(..., "INVERTED")``. None is the default.
    ascii_folding, min_ngram_length, max_ngram_length, prefix_only
        The same.
    split_identifiers, split_on_numerics, preserve_original, index_operators
        The same.

    Raises
    ------
    OptionError
        An option has a wrong value, or does not fit another.
    MissingDependencyError
        The tokenizer needs a package that is not installed.
    """
    if not isinstance(query, str):
        raise OptionError(f"query: expected a text, found {query!r:.80}")
    options = {
        "analyzer": analyzer, "base_tokenizer": base_tokenizer, "language": language,
        "lower_case": lower_case, "stem": stem, "remove_stop_words": remove_stop_words,
        "custom_stop_words": custom_stop_words, "ascii_folding": ascii_folding,
        "min_ngram_length": min_ngram_length, "max_ngram_length": max_ngram_length,
        "prefix_only": prefix_only, "split_identifiers": split_identifiers,
        "split_on_numerics": split_on_numerics, "preserve_original": preserve_original,
        "index_operators": index_operators,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    params = TextParams.of({**given, "max_token_length": max_token_length})
    tokens = Tokenizer.of(params).tokens(query)
    first = tokens[0][1] if tokens else 0
    return [FtsToken(text, position - first) for text, position in tokens]
