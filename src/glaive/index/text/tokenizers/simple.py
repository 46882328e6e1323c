"""``simple``: words are runs of letters and numbers.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from glaive.index.text.tokenizers.base import BaseTokenizer, Pieces, base_tokenizer
from glaive.index.text.tokenizers.characters import alphanumeric
from glaive.kernels.strings import Strings
from glaive.kernels.token_bounds import find_tokens

__all__ = ["Simple"]


@base_tokenizer("simple")
class Simple(BaseTokenizer):
    """Runs of letters and numbers."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """Find them; one step of a kernel per character."""
        return Pieces(strings.data, *find_tokens(strings, count, alphanumeric()))
