"""``simple``: words are runs of letters and numbers.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.errors import UnsupportedFeatureError
from glaive.index.text.tokenizers.base import (
    BaseTokenizer,
    Pieces,
    alphanumeric,
    base_tokenizer,
    not_space,
)
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.kernels.text_search import find_tokens
from glaive.memory import as_array


@base_tokenizer("simple")
class Simple(BaseTokenizer):
    """Runs of letters and numbers."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """Find them; one step of a kernel per character."""
        return Pieces(strings.data, *find_tokens(strings, count, alphanumeric()))


# --- ``whitespace``: words are what stands between white space of ASCII -----------------
# Specification: "Tokenizers" in ``docs/format/text-indices.md``.


@base_tokenizer("whitespace")
class Whitespace(BaseTokenizer):
    """Runs of characters other than white space."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """Find them; one step of a kernel per character."""
        return Pieces(strings.data, *find_tokens(strings, count, not_space()))


# --- ``raw``: a text is one token -------------------------------------------------------
# Specification: "Tokenizers" in ``docs/format/text-indices.md``.


@base_tokenizer("raw")
class Raw(BaseTokenizer):
    """The whole text, even an empty one."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """One token each."""
        check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
        ends = as_offsets(strings.offsets, strings.offset_bits)[: count + 1].astype(np.int64)
        sizes = np.diff(ends).astype(np.uint32)
        return Pieces(strings.data, ends[:-1], sizes, np.ones(count, np.int64))


# --- ``ngram``: every few neighbouring characters of a text, white space included -------
# Specification: "Tokenizers" in ``docs/format/text-indices.md``.

_FEW_LENGTHS = 64
"""Lengths of n-grams that a text of any size may have."""

_MOST_TOKENS = 1 << 22
"""Tokens of texts that are cut together, if there are more lengths."""


@base_tokenizer("ngram")
class NGram(BaseTokenizer):
    """All n-grams of some lengths, all at position 0."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """Those that begin at each character, the shortest first. Takes 20 bytes for each."""
        check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
        ends = as_offsets(strings.offsets, strings.offset_bits)[: count + 1].astype(np.int64)
        first, last = int(ends[0]), int(ends[-1])
        leads = as_array(strings.data)[first:last] & 0xC0 != 0x80
        begins = first + np.flatnonzero(leads)
        # Characters of each text: ``bounds[i]`` is where the characters of text i begin.
        bounds = np.searchsorted(begins, ends)
        shortest, longest = self.params.min_ngram_length, self._longest()
        text = np.repeat(np.arange(count), np.diff(bounds))
        at = np.arange(len(begins))
        if self.params.prefix_only:
            at = bounds[:-1][np.diff(bounds) > 0]
            text = text[at]
        # N-grams that begin at each character: as many as there are characters up to the end.
        most = max(longest - shortest + 1, 0)
        here = np.clip(bounds[text + 1] - at - shortest + 1, 0, most)
        self._check(int(here.sum()), int(here.max(initial=0)), len(at))
        owner = np.repeat(np.arange(len(at)), here)
        before = np.cumsum(here) - here
        stops = at[owner] + shortest + np.arange(len(owner)) - before[owner]
        # The end of a text is the start of what follows it, or the end of all.
        edges = np.append(begins, last)[stops]
        edges = np.minimum(edges, ends[text[owner] + 1])
        starts = begins[at[owner]]
        sizes = (edges - starts).astype(np.uint32)
        counts = np.bincount(text[owner], minlength=count).astype(np.int64)
        return Pieces(strings.data, starts, sizes, counts, np.zeros(len(starts), np.uint32))

    def _longest(self) -> int:
        """Characters of the longest n-gram that is no token too long: each has a byte or more."""
        limit = self.params.max_token_length
        longest = self.params.max_ngram_length
        return longest if limit is None else min(longest, limit - 1)

    def _check(self, tokens: int, lengths: int, characters: int) -> None:
        """Refuse lengths of a stranger's index by which texts have the square of their bytes."""
        if lengths > _FEW_LENGTHS and tokens > _MOST_TOKENS:
            raise UnsupportedFeatureError(
                f"min_ngram_length={self.params.min_ngram_length} and "
                f"max_ngram_length={self.params.max_ngram_length} make {tokens} tokens of "
                f"{characters} characters; more than {_MOST_TOKENS} are supported only where each "
                f"character begins at most {_FEW_LENGTHS}. Build the index again with a smaller "
                "max_ngram_length, or with a max_token_length"
            )
