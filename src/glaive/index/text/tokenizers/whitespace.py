"""``whitespace``: words are what stands between white space of ASCII.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from glaive.index.text.tokenizers.base import BaseTokenizer, Pieces, base_tokenizer
from glaive.index.text.tokenizers.characters import not_space
from glaive.kernels.strings import Strings
from glaive.kernels.token_bounds import find_tokens

__all__ = ["Whitespace"]


@base_tokenizer("whitespace")
class Whitespace(BaseTokenizer):
    """Runs of characters other than white space."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """Find them; one step of a kernel per character."""
        return Pieces(strings.data, *find_tokens(strings, count, not_space()))
