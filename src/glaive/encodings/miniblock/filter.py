"""Filter rows of a mini-block page, by a condition or as live rows, before arrays are made."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.build import to_array
from glaive.dataclass import NamedTuple
from glaive.encodings.levels import Leaf
from glaive.encodings.miniblock.chunks import ChunkReader, Items, LevelReader
from glaive.encodings.miniblock.layout import ChunkTable, MiniBlockLayout
from glaive.encodings.predicate import (
    PagePredicate,
    RowBits,
    all_or_none,
    block_matches,
    joined_matches,
)
from glaive.encodings.protocol import MiniChunks, ValueEncoding
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.general import General
from glaive.kernels.chunks import ChunkHeaders
from glaive.kernels.match import IntegerRanges, match_plain, test_of_flags
from glaive.types import Int64s, Where


class Evaluated(NamedTuple):
    """A predicate on the dictionary of a page, evaluated: kept, as scans ask range by range."""

    predicate: PagePredicate
    indices: IntegerRanges
    nulls: bool


class Loaded(Protocol):
    """Facts about a page once its small buffers were read."""

    table: ChunkTable
    items: Items | None
    chunks: ChunkReader
    levels: LevelReader
    evaluated: Evaluated | None


def find_in_chunks(
    layout: MiniBlockLayout,
    small: Loaded,
    data: pa.Buffer,
    rows: tuple[int, int],
    predicate: PagePredicate,
    where: Where,
) -> RowBits | None:
    """Return which rows of a range pass, in a page without lists; ``None`` when only Arrow can
    tell.

    Parameters
    ----------
    data
        All chunks of the page.
    rows
        The first row, and the row after the last.
    """
    by_entry = small.items is not None and predicate.every is None
    by_text = not by_entry and predicate.text is not None and _is_fsst(layout.value)
    if not (by_entry or by_text or predicate.any_width):
        return None
    ranges = None if by_entry else predicate.ranges
    if ranges is not None and ranges.bits != layout.value.number_bits:
        return None
    table = small.table
    ids = slice(table.find_one(rows[0]), table.find_one(rows[1] - 1) + 1)
    counts = table.counts[ids]
    first = table.firsts.item(ids.start)
    total = table.firsts.item(ids.stop) - first
    headers = small.chunks.headers(data, table.offsets[:-1][ids], table.sizes[ids])
    validity = None
    if layout.definition is not None:
        validity = _validity(layout, small, data, headers, counts, total)
    bits: pa.Buffer | None
    nulls = False
    if predicate.every is not None:
        bits = all_or_none(total, passing=predicate.every)
    else:
        pieces = small.chunks.pieces_of(headers)
        chunks = MiniChunks(data, tuple(pieces.starts), tuple(pieces.sizes), counts, where)
        if by_entry:
            evaluated = _evaluate(layout, small, predicate, where)
            if evaluated is None:
                return None
            nulls = evaluated.nulls
            bits = _match(layout, chunks, evaluated.indices)
        elif isinstance(layout.value, (Fsst, General)) and by_text and predicate.text is not None:
            bits = layout.value.match_text(chunks, predicate.text)
        elif ranges is not None:
            bits = _match(layout, chunks, ranges)
        else:
            bits = block_matches(layout.value.decode_mini(chunks), predicate, where)
        if bits is None:
            return None
    if validity is not None and not by_entry:
        nulls = predicate.null_passes()
    return RowBits(joined_matches(bits, validity, total, nulls=nulls), rows[0] - first)


def _is_fsst(encoding: ValueEncoding) -> bool:
    """Return whether strings are stored as codes of FSST, which may be compressed."""
    inner = encoding.values if isinstance(encoding, General) else encoding
    return isinstance(inner, Fsst)


def _match(layout: MiniBlockLayout, chunks: MiniChunks, test: IntegerRanges) -> pa.Buffer | None:
    if layout.value.number_bits != test.bits:
        return None
    bits = layout.value.match_mini(chunks, test)
    if bits is not None:
        return bits
    block = layout.value.decode_mini(chunks)
    if not isinstance(block, FixedWidth) or block.bits != test.bits:
        return None
    return match_plain(
        block.values, np.zeros(1, np.int64), np.array([block.count], np.int64), test, chunks.where
    )


def _validity(
    layout: MiniBlockLayout,
    small: Loaded,
    data: pa.Buffer,
    headers: ChunkHeaders,
    counts: Int64s,
    total: int,
) -> pa.Buffer | None:
    """Return the bitmap of all values of some chunks, or ``None`` if all are valid."""
    leaf = Leaf(None, total, total, layout.layers)
    small.levels.read_flat(leaf, data, headers, counts, 0)
    return leaf.validity


def _evaluate(
    layout: MiniBlockLayout, small: Loaded, predicate: PagePredicate, where: Where
) -> Evaluated | None:
    """Return which indices pass; ``None`` for indices of an unknown width."""
    evaluated, items, bits = small.evaluated, small.items, layout.value.number_bits
    if evaluated is not None and evaluated.predicate.same(predicate):
        return evaluated
    if items is None or items.bases is not None or bits not in (8, 16, 32, 64):
        return None
    entries = predicate.test_entries(to_array(items.block, predicate.kind, None, 0, where))
    indices = test_of_flags(bits, entries.flags)
    small.evaluated = evaluated = Evaluated(predicate, indices, entries.nulls)
    return evaluated
