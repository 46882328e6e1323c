"""Rows of a mini-block page that pass a condition, or that stay, without the others in arrays."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.build import to_array
from glaive.arrow.slices import count_bits
from glaive.encodings.miniblock.chunk_table import ChunkTable
from glaive.encodings.miniblock.chunks import ChunkReader, Items
from glaive.encodings.miniblock.layout import MiniBlockForm
from glaive.encodings.miniblock.levels import LevelReader
from glaive.encodings.predicate import Matches, Probe, all_or_none, block_matches, joined_matches
from glaive.encodings.protocol import Leaf, MiniChunks
from glaive.encodings.values.fsst import Fsst
from glaive.kernels.chunks import ChunkHeaders
from glaive.kernels.keep import Gone, keep_bits
from glaive.kernels.levels import validity_from_levels
from glaive.kernels.match import WordTest, match_pieces, test_of_flags
from glaive.types import Where

__all__ = ["Asked", "Loaded", "find_in_chunks", "keep_in_chunks"]


class Asked(NamedTuple):
    """What a probe said of the dictionary of a page: kept, as scans ask range by range."""

    probe: Probe
    indices: WordTest
    nulls: bool


class Loaded(Protocol):
    """What is known of a page once its small buffers were read."""

    table: ChunkTable
    items: Items | None
    chunks: ChunkReader
    levels: LevelReader
    asked: Asked | None


def find_in_chunks(
    form: MiniBlockForm,
    small: Loaded,
    data: pa.Buffer,
    rows: tuple[int, int],
    probe: Probe,
    where: Where,
) -> Matches | None:
    """Which rows of a range pass, in a page without lists; None when only Arrow can tell.

    Parameters
    ----------
    data
        All chunks of the page.
    rows
        The first row, and the one behind the last.
    """
    by_entry = small.items is not None and probe.every is None
    by_text = not by_entry and isinstance(form.value, Fsst) and probe.text is not None
    if not (by_entry or by_text or probe.any_width):
        return None
    if probe.words is not None and not by_entry and probe.words.bits != form.value.number_bits:
        return None
    table = small.table
    ids = slice(table.find_one(rows[0]), table.find_one(rows[1] - 1) + 1)
    counts = table.counts[ids]
    first = table.firsts.item(ids.start)
    total = table.firsts.item(ids.stop) - first
    headers = small.chunks.headers(data, table.offsets[:-1][ids], table.sizes[ids])
    validity = None
    if form.definition is not None:
        validity = _validity(form, small, data, headers, counts, total)
    found: pa.Buffer | None
    nulls = False
    if probe.every is not None:
        found = all_or_none(total, passing=probe.every)
    else:
        pieces = small.chunks.pieces_of(headers)
        chunks = MiniChunks(data, tuple(pieces.starts), tuple(pieces.sizes), counts, where)
        if by_entry:
            asked = _ask(form, small, probe, where)
            if asked is None:
                return None
            nulls = asked.nulls
            found = _match(form, chunks, asked.indices)
        elif isinstance(form.value, Fsst) and probe.text is not None:
            found = form.value.match_text(chunks, probe.text)
        elif probe.words is not None:
            found = _match(form, chunks, probe.words)
        else:
            found = block_matches(form.value.decode_mini(chunks), probe, where)
        if found is None:
            return None
    if validity is not None and not by_entry:
        nulls = probe.null_passes()
    return Matches(joined_matches(found, validity, total, nulls=nulls), rows[0] - first)


def _match(form: MiniBlockForm, chunks: MiniChunks, test: WordTest) -> pa.Buffer | None:
    if form.value.number_bits != test.bits:
        return None
    found = form.value.match_mini(chunks, test)
    if found is not None:
        return found
    block = form.value.decode_mini(chunks)
    if not isinstance(block, FixedWidth) or block.bits != test.bits:
        return None
    return match_pieces(
        block.values, np.zeros(1, np.int64), np.array([block.count], np.int64), test, chunks.where
    )


def keep_in_chunks(
    form: MiniBlockForm,
    small: Loaded,
    data: pa.Buffer,
    rows: tuple[int, int],
    gone: Gone,
    where: Where,
) -> Leaf | None:
    """The rows of a range that stay, in a page without lists; parameters as for finding.

    None where values are better decoded before any are left out.
    """
    if small.items is not None:
        return None
    table = small.table
    ids = slice(table.find_one(rows[0]), table.find_one(rows[1] - 1) + 1)
    counts = table.counts[ids]
    first = table.firsts.item(ids.start)
    headers = small.chunks.headers(data, table.offsets[:-1][ids], table.sizes[ids])
    pieces = small.chunks.pieces_of(headers)
    chunks = MiniChunks(data, tuple(pieces.starts), tuple(pieces.sizes), counts, where)
    values = form.value.keep_mini(chunks, rows[0] - first, gone)
    if values is None:
        return None
    validity = None
    if form.definition is not None:
        total = table.firsts.item(ids.stop) - first
        validity = _validity(form, small, data, headers, counts, total)
        if validity is not None:
            validity = keep_bits(validity, rows[0] - first, gone)
    nulls = 0 if validity is None else gone.kept - count_bits(validity, gone.kept)
    return Leaf(values, gone.kept, gone.kept, form.layers, None, None, validity, nulls)


def _validity(
    form: MiniBlockForm,
    small: Loaded,
    data: pa.Buffer,
    headers: ChunkHeaders,
    counts: NDArray[np.int64],
    total: int,
) -> pa.Buffer | None:
    """The bitmap of all values of some chunks, None without nulls."""
    leaf = Leaf(None, total, total, form.layers)
    small.levels.read_flat(leaf, data, headers, counts, 0)
    if leaf.definition is None:
        return leaf.validity
    return validity_from_levels(leaf.definition, slot_max=1, null_level=1)[0]


def _ask(form: MiniBlockForm, small: Loaded, probe: Probe, where: Where) -> Asked | None:
    """Which indices pass; None for indices of no known width."""
    asked, items, bits = small.asked, small.items, form.value.number_bits
    if asked is not None and asked.probe.same(probe):
        return asked
    if items is None or bits not in (8, 16, 32, 64):
        return None
    entries = probe.test_entries(to_array(items.block, probe.kind, None, 0, where))
    small.asked = asked = Asked(probe, test_of_flags(bits, entries.flags), entries.nulls)
    return asked
