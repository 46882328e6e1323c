"""Tokens of JSON: ``path,type,value``, strings cut and filtered like texts.

Documents are read row by row.

Specification: "JSON columns" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.jsonb import decode_jsonb
from glaive.errors import OptionError
from glaive.index.text.tokenizers.json_values import JsonBudget, json_values
from glaive.index.text.tokenizers.token_numbers import (
    NumberedTokens,
    TokenChain,
    TokenNumbers,
)

__all__ = ["JsonNumbers", "split_query"]

_KINDS = ("str", "number", "bool", "null")


def split_query(text: str) -> tuple[str, str, str]:
    """Path, type and value of a query of a JSON column.

    Raises
    ------
    OptionError
        It has another form, or names no type.
    """
    for kind in _KINDS:
        path, found, value = text.partition(f",{kind},")
        if found:
            return path, kind, value
    raise OptionError(
        f"a query of a JSON column is 'path,type,value', with a type of {', '.join(_KINDS)}; "
        f"found {text!r}"
    )


class JsonNumbers(TokenNumbers):
    """Distinct tokens of JSON documents, numbered as they appear."""

    def __init__(self, chain: TokenChain) -> None:
        super().__init__(chain)
        self._words = TokenNumbers(chain)

    def number(self, texts: Any) -> NumberedTokens:
        """Tokenize an array of JSONB; nulls have no tokens.

        Raises
        ------
        CorruptFileError
            A value is not JSONB, or no JSON.
        LimitError
            Paths of long names are repeated by many values or tokens.
        """
        present: Any = texts.drop_null()
        if pa.types.is_binary(present.type) or pa.types.is_large_binary(present.type):
            present = decode_jsonb(present, "the column of an index")
        budget = JsonBudget(present.nbytes)
        values = list(json_values(present.to_pylist(), budget))
        strings = [value.text for found in values for value in found if value.kind == "str"]
        words = self._words.number(pa.array(strings, pa.large_string()))
        names, numbers = self._words.tokens, words.numbers.tolist()
        ends = np.cumsum(words.counts).tolist()
        named: list[str] = []
        counts, at, begin = [], 0, 0
        for found in values:
            before = len(named)
            for value in found:
                tokens = [value.text]
                if value.kind == "str":
                    tokens = [names[number] for number in numbers[begin : ends[at]]]
                    begin, at = ends[at], at + 1
                budget.take(len(value.path) * len(tokens))
                named += [f"{value.path},{value.kind},{token}" for token in tokens]
            counts.append(len(named) - before)
        of_text = np.zeros(len(texts), np.int64)
        of_text[texts.is_valid().to_numpy(zero_copy_only=False)] = counts
        positions = np.arange(len(named)) - np.repeat(np.cumsum(of_text) - of_text, of_text)
        found_numbers = self._number_tokens(pa.array(named, pa.large_string()))
        return NumberedTokens(found_numbers, positions.astype(np.uint32), of_text)
