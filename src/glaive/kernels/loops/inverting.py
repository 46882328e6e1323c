"""Kernels that sort the tokens of documents by token. Wrappers: ``glaive.kernels.inverting``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel, kernel_of, load_i64, load_u32, store_u32, store_u64
from glaive.kernels.string_records import InvertTokens

__all__ = ["count_documents", "invert_tokens"]


@kernel
def count_documents(numbers: int, counts: int, documents: int, last: int, totals: int) -> None:
    """Count the documents of each token; all of ``last`` and ``totals`` is 0."""
    at = np.int64(0)
    for document in range(documents):
        stop = at + load_i64(counts + 8 * document)
        while at < stop:
            token = np.int64(load_u32(numbers + 4 * at))
            if np.int64(load_u32(last + 4 * token)) != document + 1:
                store_u32(last + 4 * token, document + 1)
                total = totals + 8 * token
                store_u64(total, load_i64(total) + 1)
            at += 1


@kernel_of(InvertTokens)
def invert_tokens(
    numbers: int, counts: int, documents: int, last: int, ends: int, ids: int, frequencies: int,
    positions: int, position_ends: int, sorted_positions: int,
) -> None:  # fmt: skip
    """Append each document to the lists of its tokens, and positions to theirs, if there are any.

    ``ends`` says where each list begins, and then where it ends; so do ``position_ends`` for
    positions. All of ``last`` is 0.
    """
    at = np.int64(0)
    for document in range(documents):
        stop = at + load_i64(counts + 8 * document)
        while at < stop:
            token = np.int64(load_u32(numbers + 4 * at))
            place = load_i64(ends + 8 * token)
            if np.int64(load_u32(last + 4 * token)) != document + 1:
                store_u32(last + 4 * token, document + 1)
                store_u32(ids + 4 * place, document)
                store_u32(frequencies + 4 * place, 1)
                store_u64(ends + 8 * token, place + 1)
            else:
                before = frequencies + 4 * (place - 1)
                store_u32(before, np.int64(load_u32(before)) + 1)
            if positions != 0:
                place = load_i64(position_ends + 8 * token)
                store_u32(sorted_positions + 4 * place, load_u32(positions + 4 * at))
                store_u64(position_ends + 8 * token, place + 1)
            at += 1
