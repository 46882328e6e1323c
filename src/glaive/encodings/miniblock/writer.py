"""Write mini-block pages: values and levels into chunks, with the tables that find them.

The value encoding decides how many values a chunk holds. Levels are then cut to match: a
chunk's levels end with its last visible entry. Invisible entries that follow begin the next
chunk.

Specification: "Mini-block pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, FixedWidth
from glaive.dataclass import NamedTuple
from glaive.encodings.levels import Levels, level_limits
from glaive.encodings.miniblock.layout import (
    MAX_CHUNK_LEVELS,
    WORD_BYTES,
    chunk_words,
    page_message,
    repetition_index,
)
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.errors import CapacityError
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
    width = max(int(levels.max(initial=0)).bit_length(), 1)
    best, smallest = "flat", LEVEL_BYTES * len(levels)
    if len(levels) <= BLOCK:
        inline = len(counts) * (LEVEL_BYTES + width * BLOCK // 8)
        if inline < smallest:
            best, smallest = "inline_bitpacking", inline
    elif width < LEVEL_BITS:
        packed = int(out_of_line_sizes(counts, LEVEL_BITS, width).sum())
        if packed < smallest:
            best, smallest = "out_of_line_bitpacking", packed
    if runs:
        pairs = count_pairs(as_buffer(levels), counts, LEVEL_BITS)
        if HEADER_BYTES * len(counts) + RUN_BYTES * int(pairs.sum()) < smallest:
            best = "rle"
    return _level_encoding(best, width if best == "out_of_line_bitpacking" else LEVEL_BITS)


@cache
def _level_encoding(name: str, width: int) -> ValueEncoding:
    flat = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=width))
    lengths = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=8))
    messages: dict[str, Any] = {
        "flat": flat.flat,
        "inline_bitpacking": pb.InlineBitpacking(uncompressed_bits_per_value=LEVEL_BITS),
        "out_of_line_bitpacking": pb.OutOfLineBitpacking(
            uncompressed_bits_per_value=LEVEL_BITS, values=flat
        ),
        "rle": pb.Rle(values=flat, run_lengths=lengths),
    }
    return read_encoding(pb.CompressiveEncoding(**{name: messages[name]}), _WHERE)


Piece = tuple[UInt8s, Int64s]


class EncodedItems(NamedTuple):
    """The items of a dictionary: how they are encoded, their number, and their bytes."""

    encoding: ValueEncoding
    number: int
    data: UInt8s

    @classmethod
    def of(cls, items: Block, encoding: ValueEncoding) -> EncodedItems:
        """Encode items."""
        data = encoding.encode_blocks(items, np.array([items.count], np.int64)).data
        return cls(encoding, items.count, data)


_MAX_CHUNK_BYTES = {WORD_BYTES[False]: 1 << 15, WORD_BYTES[True]: 1 << 31}
"""Bytes of a chunk at most, by the width of a chunk word."""


def encode_mini_page(  # what a page consists of
    values: Block,
    encoding: ValueEncoding,
    levels: Levels,
    rows: int,
    *,
    dictionary: EncodedItems | None = None,
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
        The encoded items.
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
    width = WORD_BYTES[large_chunks]
    chunks = encoding.encode_mini(values)
    rep, definition = levels.rep, levels.definition
    counts, limits = chunks.counts, level_limits(levels.layers)
    if rep is not None:
        cuts = _cut_levels(chunks.counts, rep, definition, limits.visible_def)
        counts = np.diff(cuts)
        if int(counts.max()) > MAX_CHUNK_LEVELS:
            return None
    pieces: list[Piece] = []
    codecs: list[ValueEncoding | None] = []
    for stream in (rep, definition):
        codec = None
        if stream is not None:
            codec = choose_level_encoding(stream, counts, runs=level_runs)
            words: Any = np.ascontiguousarray(stream)
            block = FixedWidth(pa.py_buffer(words), 16, len(stream))
            encoded = codec.encode_blocks(block, counts)
            pieces.append((encoded.data, encoded.sizes))
        codecs.append(codec)
    entries = counts if pieces else np.zeros_like(counts)
    values_of = list(zip(chunks.buffers, chunks.sizes, strict=True))
    try:
        data, sizes = assemble_chunks(entries, pieces, values_of, value_width=width)
    except CapacityError:
        return None
    if int(sizes.max()) > _MAX_CHUNK_BYTES[width]:
        return None
    buffers: list[pa.Buffer | UInt8s | bytes] = [
        chunk_words(chunks.counts, sizes, width).view(np.uint8),
        data,
    ]
    if dictionary is not None:
        buffers.append(dictionary.data)
    if rep is not None:
        buffers.append(repetition_index(rep, cuts, limits.max_rep).view(np.uint8))
    described = None if dictionary is None else dictionary[:2]
    layout = page_message(
        encoding, *codecs, described, levels.layers, values.count, len(chunks.buffers), width
    )
    return EncodedPage(layout, buffers, rows)


def _cut_levels(
    values: Int64s, rep: UInt16s, definition: UInt16s | None, visible_def: int
) -> Int64s:
    """Return the entries at which chunks of so many values begin, and the number of all entries."""
    cuts = np.zeros(len(values) + 1, np.int64)
    values.cumsum(out=cuts[1:])
    if definition is not None:
        cuts[1:-1] = cut_visible(definition, visible_def, values[:-1])
    cuts[-1] = len(rep)
    return cuts
