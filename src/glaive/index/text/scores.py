"""BM25 scores of documents for a token, and the best score of each block.

Specification: "Scores" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.index.text.postings import Blocks, Postings
from glaive.types import Float32s, Int64s

__all__ = ["best_scores", "length_codes"]

_K1 = np.float32(1.2)
_B = np.float32(0.75)


def best_scores(
    postings: Postings, blocks: Blocks, lengths: Int64s, total: int
) -> tuple[Float32s, Float32s]:
    """Best score of each block, and of each list.

    Parameters
    ----------
    lengths
        Tokens of each document of the partition.
    total
        Tokens of all documents.
    """
    # In single precision, in this order: equal to pylance's scores to the last bit.
    unit = np.float32(1)
    counts = np.diff(postings.starts)
    half, list_lengths = np.float32(0.5), counts.astype(np.float32)
    ratio = (np.float32(len(lengths)) - list_lengths + half) / (list_lengths + half)
    rare = np.log((ratio + unit).astype(np.float64)).astype(np.float32)
    mean = np.float32(total) / np.float32(max(1, len(lengths)))
    by_block = np.zeros(len(blocks.sizes), np.float32)
    most = np.repeat(rare * (_K1 + unit), blocks.of_list)
    for some, within in blocks.windows():
        often = postings.frequencies[within].astype(np.float32)
        measured = lengths[postings.documents[within]].astype(np.float32)
        norm = _K1 * (unit - _B + _B * measured / mean)
        scores = np.repeat(most[some], blocks.sizes[some]) * (often / (often + norm))
        by_block[some] = np.maximum.reduceat(scores, blocks.begins[some] - within.start)
    best = np.zeros(len(counts), np.float32)
    filled = blocks.of_list > 0
    first = (np.cumsum(blocks.of_list) - blocks.of_list)[filled]
    if len(first):
        best[filled] = np.maximum.reduceat(by_block, first)
    return by_block, best


def length_codes(lengths: Int64s) -> Int64s:
    """Lengths of documents in one byte: exact below 8, then three bits after the leading one."""
    bits = np.zeros(len(lengths), np.int64)
    for bit in range(32):
        bits += lengths >> bit > 0
    shift = np.maximum(bits - 4, 0)
    return np.where(lengths < 8, lengths, ((lengths >> shift) & 7) | ((shift + 1) << 3))
