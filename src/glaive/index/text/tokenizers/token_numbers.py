"""Distinct tokens of many texts, numbered: Python sees each of them once.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Variable
from glaive.arrow.build import block_from_array, validity_flags
from glaive.errors import SchemaError
from glaive.index.text.params import TextParams
from glaive.index.text.tokenizers.base import BaseTokenizer, Pieces, base_tokenizer_of
from glaive.index.text.tokenizers.filters import TokenFilters
from glaive.kernels.strings import Strings
from glaive.kernels.vocabulary import Vocabulary
from glaive.memory import as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt32s

__all__ = ["NumberedTokens", "TokenChain", "TokenNumbers"]


class TokenChain:
    """A base tokenizer and filters. Safe to share between threads."""

    def __init__(self, base: BaseTokenizer, filters: TokenFilters) -> None:
        self._base, self._filters = base, filters

    @classmethod
    def of(cls, params: TextParams) -> Self:
        """The chain of an index; raises what :meth:`Tokenizer.of` raises."""
        return cls(base_tokenizer_of(params), TokenFilters(params))

    def split(self, texts: Any) -> Pieces:
        """The tokens of an array of texts before the filters; nulls have none."""
        present = texts.drop_null() if texts.null_count else texts
        block = block_from_array(present)
        if not isinstance(block, Variable):
            raise SchemaError(f"a full-text index takes text, not {texts.type}")
        strings = Strings(block.offsets, block.offset_bits, block.data)
        pieces = self._base.split(strings, len(present))
        valid = validity_flags(texts)
        if valid is None:
            return pieces
        counts = np.zeros(len(texts), np.int64)
        counts[valid] = pieces.counts
        return pieces._replace(counts=counts)

    def filter(self, tokens: Any) -> Any:
        """What the filters make of distinct tokens; null: they are dropped."""
        return self._filters.apply(tokens)


class NumberedTokens(NamedTuple):
    """Tokens of texts, by number.

    Parameters
    ----------
    numbers
        Number of each token, one text after the other.
    positions
        Its position in its text.
    counts
        Tokens of each text.
    """

    numbers: UInt32s
    positions: UInt32s
    counts: Int64s


class TokenNumbers:
    """Distinct tokens, numbered as they appear. Not safe to share between threads.

    Parameters
    ----------
    chain
        Makes the tokens.
    """

    def __init__(self, chain: TokenChain) -> None:
        self._chain = chain
        self._pieces = Vocabulary()
        self._tokens = Vocabulary()
        self._of_piece = np.zeros(0, np.int32)
        """Number of the token that a piece becomes; -1: it is dropped."""

    @property
    def strings(self) -> Any:
        """The tokens by number, as ``large_binary``; a copy."""
        return self._tokens.strings()

    @property
    def tokens(self) -> list[str]:
        """The tokens by number; a copy."""
        tokens: list[str] = self.strings.cast(pa.large_string()).to_pylist()
        return tokens

    @property
    def count(self) -> int:
        """Distinct tokens."""
        return len(self._tokens)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._pieces.nbytes + self._tokens.nbytes + int(self._of_piece.nbytes)

    def number(self, texts: Any) -> NumberedTokens:
        """Tokenize an array of texts; nulls have no tokens.

        Cost: some steps of kernels per character and token, one of Python per token that no
        text before had.

        Raises
        ------
        SchemaError
            It is not an array of texts.
        """
        pieces = self._chain.split(texts)
        of_text = self._pieces.number(pieces.data, pieces.starts, pieces.sizes)
        self._filter_new()
        numbers = self._of_piece[of_text]
        positions: Any = pieces.positions
        if positions is None:
            before = (np.cumsum(pieces.counts) - pieces.counts).astype(np.uint32)
            positions = np.arange(len(numbers), dtype=np.uint32)
            positions -= np.repeat(before, pieces.counts)
        kept = numbers >= 0
        counts = pieces.counts
        if not kept.all():
            ends = np.concatenate(([0], np.cumsum(kept)))[np.cumsum(counts)]
            counts = np.diff(ends, prepend=0)
            numbers, positions = numbers[kept], positions[kept]
        return NumberedTokens(numbers.astype(np.uint32), positions, counts)

    def _filter_new(self) -> None:
        known = len(self._of_piece)
        if known == len(self._pieces):
            return
        tokens = self._chain.filter(self._pieces.strings(known))
        valid = validity_flags(tokens)
        kept = slice(None) if valid is None else valid
        self._of_piece = np.concatenate((self._of_piece, np.full(len(tokens), -1, np.int32)))
        self._of_piece[known:][kept] = self._number_tokens(tokens.drop_null())

    def _number_tokens(self, tokens: Any) -> UInt32s:
        """Numbers of tokens, which are texts; new ones get the next."""
        block: Any = block_from_array(tokens)
        ends = as_array(block.offsets, np.int64)[: len(tokens) + 1]
        return self._tokens.number(block.data, ends[:-1], np.diff(ends).astype(np.uint32))
