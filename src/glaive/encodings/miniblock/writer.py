"""Write mini-block pages: values and levels into chunks, with the tables that find them.

The value encoding decides how many values a chunk holds. Levels are then cut to match: a
chunk's levels end with its last visible entry. Invisible entries that follow begin the next
chunk.

Specification: "Mini-block pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, FixedWidth
from glaive.encodings.levels import Levels, level_limits
from glaive.encodings.miniblock.layout import MAX_CHUNK_LEVELS, chunk_words, repetition_index
from glaive.encodings.protocol import EncodedChunks, EncodedPage, ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels._bitpack import BLOCK, out_of_line_sizes
from glaive.kernels.chunks import assemble_chunks
from glaive.kernels.levels import LEVEL_BITS, cut_visible
from glaive.kernels.runs import HEADER_BYTES, count_pairs
from glaive.types import Int64s, UInt8s, UInt16s, Where, as_buffer

# --- Choose the encoding of the levels of a mini-block page: the smallest that the version allows
#
# All chunks of a page share one description, and each is encoded on its own:
#
# * inline bit-packing when the whole page has at most 1,024 levels;
# * out-of-line bit-packing, as wide as the page's highest level, when it has more;
# * run-length encoding, where the version has it, for levels that rarely change;
# * flat 16-bit levels otherwise.
#
# Specification: "Levels" in ``docs/format/pages.md``.

LEVEL_BYTES = LEVEL_BITS // 8
RUN_BYTES = LEVEL_BYTES + 1

_WHERE = Where("levels to be written")


def choose_level_encoding(levels: UInt16s, counts: Int64s, *, runs: bool) -> ValueEncoding:
    """Choose the encoding with the fewest bytes.

    Parameters
    ----------
    levels
        All levels of the page.
    counts
        Levels per chunk.
    runs
        Whether the version allows run-length encoding of levels.
    """
    flat = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=LEVEL_BITS))
    width = max(int(levels.max(initial=0)).bit_length(), 1)
    best, smallest = flat, LEVEL_BYTES * len(levels)
    if len(levels) <= BLOCK:
        inline = len(counts) * (LEVEL_BYTES + width * BLOCK // 8)
        if inline < smallest:
            best, smallest = _inline(), inline
    elif width < LEVEL_BITS:
        packed = int(out_of_line_sizes(counts, LEVEL_BITS, width).sum())
        if packed < smallest:
            best, smallest = _out_of_line(width), packed
    if runs:
        pairs = count_pairs(as_buffer(levels), counts, LEVEL_BITS)
        if HEADER_BYTES * len(counts) + RUN_BYTES * int(pairs.sum()) < smallest:
            lengths = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=8))
            best = pb.CompressiveEncoding(rle=pb.Rle(values=flat, run_lengths=lengths))
    return read_encoding(best, _WHERE)


def _inline() -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(
        inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=LEVEL_BITS)
    )


def _out_of_line(width: int) -> pb.CompressiveEncoding:
    packed = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=width))
    return pb.CompressiveEncoding(
        out_of_line_bitpacking=pb.OutOfLineBitpacking(
            uncompressed_bits_per_value=LEVEL_BITS, values=packed
        )
    )


Piece = tuple[UInt8s, Int64s]

MAX_LEVEL_BYTES = (1 << 16) - 1
"""Bytes of a chunk's levels at most: their size has 16 bits."""

_MAX_CHUNK_BYTES = {2: 1 << 15, 4: 1 << 31}
"""Bytes of a chunk at most, by the width of a chunk word."""


def encode_mini_page(  # what a page consists of
    values: Block,
    encoding: ValueEncoding,
    levels: Levels,
    rows: int,
    *,
    dictionary: tuple[Block, ValueEncoding] | None = None,
    large_chunks: bool,
    level_runs: bool,
) -> EncodedPage | None:
    """Encode one page.

    Parameters
    ----------
    values
        One value per visible entry, at least one; with a dictionary, the indices.
    encoding
        How the values are encoded.
    levels
        Levels and layers of the page, one level per entry. The first entry starts a row.
    rows
        Rows of the page.
    dictionary
        The items, and how they are encoded.
    large_chunks, level_runs
        What the format version allows; see ``FormatProfile``.

    Returns
    -------
    EncodedPage or None
        ``None`` when a chunk would have more levels or bytes than its tables can say: write
        fewer rows per page, or a full-zip page.
    """
    if isinstance(values, Dictionary):
        values = values.indices
    if not values.count:
        raise ValueError("a mini-block page holds at least one value; write a constant page")
    width = 4 if large_chunks else 2
    chunks = encoding.encode_mini(values)
    rep, definition = levels.rep, levels.definition
    limits = level_limits(levels.layers)
    cuts = _cut_levels(chunks, rep, definition, limits.visible_def)
    counts = np.diff(cuts)
    if int(counts.max()) > MAX_CHUNK_LEVELS or _too_large(chunks, width):
        return None
    layout = pb.MiniBlockLayout(
        value_compression=encoding.to_wire(),
        layers=[pb.RepDefLayer.ValueType(layer) for layer in levels.layers],
        num_buffers=len(chunks.buffers),
        repetition_index_depth=int(rep is not None),
        num_items=values.count,
        has_large_chunk=large_chunks,
    )
    pieces: list[Piece] = []
    for stream, field in ((rep, layout.rep_compression), (definition, layout.def_compression)):
        if stream is not None:
            codec = choose_level_encoding(stream, counts, runs=level_runs)
            field.CopyFrom(codec.to_wire())
            words: Any = np.ascontiguousarray(stream)
            block = FixedWidth(pa.py_buffer(words), 16, len(stream))
            encoded = codec.encode_blocks(block, counts)
            pieces.append((encoded.data, encoded.sizes))
    if any(int(sizes.max()) > MAX_LEVEL_BYTES for _, sizes in pieces):
        return None
    data, sizes = assemble_chunks(
        counts if pieces else np.zeros_like(counts),
        pieces,
        list(zip(chunks.buffers, chunks.sizes, strict=True)),
        value_width=width,
    )
    if int(sizes.max()) > _MAX_CHUNK_BYTES[width]:
        return None
    buffers: list[pa.Buffer | UInt8s | bytes] = [
        chunk_words(chunks.counts, sizes, width).view(np.uint8),
        data,
    ]
    if dictionary is not None:
        buffers.append(_add_items(layout, *dictionary))
    if rep is not None:
        buffers.append(repetition_index(rep, cuts, limits.max_rep).view(np.uint8))
    return EncodedPage(pb.PageLayout(mini_block_layout=layout), buffers, rows)


def _add_items(layout: pb.MiniBlockLayout, items: Block, codec: ValueEncoding) -> UInt8s:
    """Describe the items of a dictionary in a layout; returns their buffer."""
    layout.dictionary.CopyFrom(codec.to_wire())
    layout.num_dictionary_items = items.count
    return codec.encode_blocks(items, np.array([items.count], np.int64)).data


def _cut_levels(
    chunks: EncodedChunks, rep: UInt16s | None, definition: UInt16s | None, visible_def: int
) -> Int64s:
    """Return the entries at which the chunks begin, and the number of all entries as the last."""
    cuts = np.zeros(len(chunks.counts) + 1, np.int64)
    np.cumsum(chunks.counts, out=cuts[1:])
    stream = rep if rep is not None else definition
    if stream is None:
        return cuts
    if definition is not None and rep is not None:
        cuts[1:-1] = cut_visible(definition, visible_def, chunks.counts[:-1])
    cuts[-1] = len(stream)
    return cuts


def _too_large(chunks: EncodedChunks, width: int) -> bool:
    """Return whether a value buffer is too large for its size in the chunk header."""
    return any(int(sizes.max()) >= 1 << 8 * width for sizes in chunks.sizes)
