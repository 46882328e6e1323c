"""Texts to tokens: the base tokenizer, the filters, and numbers of distinct tokens.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Self

import pyarrow as pa

from glaive.arrow.scalars import constants
from glaive.arrow.utf8 import refuse_half_characters
from glaive.index.text.params import TextParams
from glaive.index.text.tokenizers.token_numbers import TokenChain, TokenNumbers

__all__ = ["Tokenizer"]


class Tokenizer:
    """Makes tokens of texts, as the parameters of an index say. Safe to share between threads."""

    def __init__(self, chain: TokenChain, *, is_json: bool) -> None:
        self._chain, self._is_json = chain, is_json

    @classmethod
    def of(cls, params: TextParams) -> Self:
        """The tokenizer of an index.

        Raises
        ------
        OptionError
            It is not supported.
        MissingDependencyError
            A package that it needs is not installed.
        """
        return cls(TokenChain.of(params), is_json=params.lance_tokenizer == "json")

    def tokens(self, text: str) -> list[tuple[str, int]]:
        """The tokens of a query with their positions; dropped tokens leave gaps.

        Raises
        ------
        OptionError
            A query of a JSON column is not ``path,type,value``.
        """
        if not self._is_json:
            return self._words(text)
        from glaive.index.text.tokenizers.json_numbers import split_query

        path, kind, value = split_query(text)
        if kind != "str":
            return [(text, 0)]
        return [(f"{path},{kind},{token}", position) for token, position in self._words(value)]

    def numbers(self) -> TokenNumbers:
        """Numbers for the tokens of many texts: a step of Python per distinct token only.

        Of a JSON column: for its documents, some steps per value.
        """
        if not self._is_json:
            return TokenNumbers(self._chain)
        from glaive.index.text.tokenizers.json_numbers import JsonNumbers

        return JsonNumbers(self._chain)

    def _words(self, text: str) -> list[tuple[str, int]]:
        numbers = TokenNumbers(self._chain)
        with refuse_half_characters("text"):
            given = constants([text], pa.large_string())
        found = numbers.number(given)
        named = numbers.tokens
        pairs = zip(found.numbers.tolist(), found.positions.tolist(), strict=True)
        return [(named[number], position) for number, position in pairs]
