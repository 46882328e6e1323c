"""Rows of a mini-block page that pass a condition: levels and values, but no arrays of them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import pyarrow as pa

from glaive.arrow.build import to_array
from glaive.encodings.chunk_table import ChunkTable
from glaive.encodings.miniblock_chunks import ChunkReader, Items
from glaive.encodings.miniblock_form import MiniBlockForm
from glaive.encodings.miniblock_levels import LevelReader
from glaive.encodings.probe import Matches, Probe, all_or_none, block_matches, joined_matches
from glaive.encodings.protocol import Leaf, MiniChunks
from glaive.kernels.levels import validity_from_levels
from glaive.kernels.match import WordTest, test_of_flags
from glaive.types import Where

__all__ = ["Asked", "Loaded", "find_in_chunks"]


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
    if not by_entry and not probe.any_width:
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
        leaf = Leaf(None, total, total, form.layers)
        small.levels.read_flat(leaf, data, headers, counts, 0)
        validity = leaf.validity
        if leaf.definition is not None:
            validity, _, _ = validity_from_levels(leaf.definition, slot_max=1, null_level=1)
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
            found = form.value.match_mini(chunks, asked.indices)
        elif probe.words is not None:
            found = form.value.match_mini(chunks, probe.words)
        else:
            found = block_matches(form.value.decode_mini(chunks), probe, where)
        if found is None:
            return None
    if validity is not None and not by_entry:
        nulls = probe.null_passes()
    return Matches(joined_matches(found, validity, total, nulls=nulls), rows[0] - first)


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
