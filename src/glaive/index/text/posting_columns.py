"""Posting lists as columns of a file: blocks, scores, impacts and positions.

Specification: "Postings" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.index.text.columns import bytes_array, lists_array
from glaive.index.text.impacts import encode_impacts
from glaive.index.text.positions import (
    encode_document_positions,
    encode_positions,
    occurrences,
    position_steps,
)
from glaive.index.text.posting_layout import PostingLayout
from glaive.index.text.postings import Blocks, Elements, Postings, encode_postings
from glaive.index.text.scores import best_scores
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt32s

__all__ = [
    "DocumentLengths",
    "document_position_columns",
    "posting_columns",
    "shared_position_columns",
]

_LISTS = pa.list_(pa.large_binary())


class DocumentLengths(NamedTuple):
    """Tokens of each document of a partition, exact and as one byte, and of all."""

    tokens: Int64s
    codes: Int64s
    total: int


def posting_columns(
    postings: Postings,
    blocks: Blocks,
    lengths: DocumentLengths,
    layout: PostingLayout,
    *,
    impacts: bool = True,
) -> dict[str, Any]:
    """All columns except those of positions."""
    by_block, best = best_scores(postings, blocks, lengths.tokens, lengths.total)
    encoded = encode_postings(postings, by_block, layout)
    begins = np.concatenate([[0], np.cumsum(blocks.of_list)])
    columns: dict[str, Any] = {
        "_posting": lists_array(begins, bytes_array(encoded), _LISTS),
        "_max_score": pa.array(best),
        "_length": pa.array(np.diff(postings.starts), pa.uint32()),
    }
    if impacts:
        elements, of_list = encode_impacts(postings, blocks, lengths.codes)
        begins = np.concatenate([[0], np.cumsum(of_list)])
        columns["_impacts"] = lists_array(begins, bytes_array(elements), _LISTS)
    return columns


def shared_position_columns(
    positions: UInt32s, blocks: Blocks, frequencies: Int64s | UInt32s
) -> dict[str, Any]:
    """Columns of positions that are one stream for each list."""
    steps = position_steps(positions, frequencies)
    encoded = encode_positions(steps, occurrences(blocks, frequencies))
    begins = np.concatenate([[0], np.cumsum(blocks.of_list)])
    stream = Elements(encoded.offsets[begins], encoded.data)
    own = encoded.offsets[:-1] - np.repeat(stream.offsets[:-1], blocks.of_list)
    at = pa.array(own, pa.uint32())
    return {
        "_compressed_position": bytes_array(stream),
        "_position_block_offset": lists_array(begins, at, pa.list_(pa.uint32())),
    }


def document_position_columns(positions: Int64s, postings: Postings) -> dict[str, Any]:
    """The column of positions that are stored for each document by itself."""
    frequencies = postings.frequencies.astype(np.int64)
    elements, of_document = encode_document_positions(positions, frequencies)
    begins = np.concatenate([[0], np.cumsum(of_document)])
    documents = lists_array(begins, bytes_array(elements), _LISTS)
    return {"_position": lists_array(postings.starts, documents, pa.list_(_LISTS))}
