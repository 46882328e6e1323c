"""``ngram``: every few neighbouring characters of a text, white space included.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.index.text.tokenizers.base import BaseTokenizer, Pieces, base_tokenizer
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.memory import as_array

__all__ = ["NGram"]


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
        shortest, longest = self.params.min_ngram_length, self.params.max_ngram_length
        longest = min(longest, int(np.diff(bounds).max(initial=0)))
        lengths = np.arange(shortest, max(longest, shortest - 1) + 1)
        text = np.repeat(np.arange(count), np.diff(bounds))
        at = np.arange(len(begins))
        if self.params.prefix_only:
            at = bounds[:-1][np.diff(bounds) > 0]
            text = text[at]
        stops = at[:, None] + lengths
        within = stops <= bounds[text + 1][:, None]
        owner, _ = np.nonzero(within)
        # The end of a text is the start of what follows it, or the end of all.
        edges = np.append(begins, last)[stops[within]]
        edges = np.minimum(edges, ends[text[owner] + 1])
        starts = begins[at[owner]]
        sizes = (edges - starts).astype(np.uint32)
        counts = np.bincount(text[owner], minlength=count).astype(np.int64)
        return Pieces(strings.data, starts, sizes, counts, np.zeros(len(starts), np.uint32))
