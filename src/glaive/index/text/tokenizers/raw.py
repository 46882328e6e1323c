"""``raw``: a text is one token.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.index.text.tokenizers.base import BaseTokenizer, Pieces, base_tokenizer
from glaive.kernels.strings import Strings, as_offsets, check_offsets

__all__ = ["Raw"]


@base_tokenizer("raw")
class Raw(BaseTokenizer):
    """The whole text, even an empty one."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """One token each."""
        check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
        ends = as_offsets(strings.offsets, strings.offset_bits)[: count + 1].astype(np.int64)
        sizes = np.diff(ends).astype(np.uint32)
        return Pieces(strings.data, ends[:-1], sizes, np.ones(count, np.int64))
