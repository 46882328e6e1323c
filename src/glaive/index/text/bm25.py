"""BM25: the weight of a term in a document, and that of the term in a query.

Specification: "Scores" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, Int64s, UInt32s

__all__ = ["TextStatistics", "length_shares", "quantized_lengths", "rarity", "weights_of"]

_K1: Final = np.float32(1.2)
_B: Final = np.float32(0.75)
_SHORTEST: Final = 1e-12
"""Documents have more tokens on the average, if any has one: there are fewer than 2^32."""


class TextStatistics(NamedTuple):
    """Documents of an index, all segments together, and their tokens; deleted ones count, too."""

    documents: int
    tokens: int

    @property
    def mean_length(self) -> float:
        """Tokens of a document on the average."""
        return float(np.float32(self.tokens) / np.float32(max(1, self.documents)))

    @classmethod
    def sum_of(cls, parts: Iterable[TextStatistics]) -> TextStatistics:
        """Those of several parts, which have no document in common."""
        documents = tokens = 0
        for part in parts:
            documents += part.documents
            tokens += part.tokens
        return cls(documents, tokens)


def rarity(documents: int, having: int) -> float:
    """Inverse document frequency of a term that ``having`` of the documents have."""
    # Where statistics are damaged, more documents than there are have a term.
    return float(np.log1p(max(0.0, documents - having + 0.5) / (having + 0.5)))


def length_shares(lengths: Int64s | UInt32s, mean: float) -> Float32s:
    """The denominator of BM25 without the frequency: it grows with the length of the document."""
    share = lengths.astype(np.float32)
    share *= _K1 * _B / np.float32(max(mean, _SHORTEST))
    share += _K1 * (np.float32(1) - _B)
    return share


def weights_of(frequencies: UInt32s, shares: Float32s) -> Float32s:
    """Weights of a term in documents that have it so often.

    Parameters
    ----------
    shares
        Of these documents, from :func:`length_shares`.
    """
    often = frequencies.astype(np.float32)
    weights: Float32s = often / (often + shares)
    weights *= _K1 + np.float32(1)
    return weights


def quantized_lengths(lengths: UInt32s) -> UInt32s:
    """Lengths as their codes of one byte say: their upper four bits, the others 0."""
    bits = np.zeros(len(lengths), np.uint32)
    for bit in range(4, 32):
        bits += (lengths >> np.uint32(bit)) > 0
    return lengths >> bits << bits
