"""Pages out of several arrays that are packed one by one, without being joined.

Rows often come in windows, of which several fill a page. Joining them copies all values into fresh
memory. Bit-packed chunks do not depend on each other, so where the values of a page would be packed
anyway, each array is, and the page is written in parts.

Specification: "Writer choices" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.build import block_from_array
from glaive.encodings.leaf import Layer
from glaive.encodings.miniblock.writer import encode_framed_page
from glaive.encodings.options import AUTOMATIC, EncodingOptions
from glaive.encodings.page_options import PageOptions
from glaive.encodings.protocol import EncodedPage
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.writing.fixed_stats import WORD_BITS, FixedStats
from glaive.encodings.writing.fixed_width import MIN_GAIN
from glaive.encodings.writing.page import single_value
from glaive.encodings.writing.string_stats import UNIQUE_SHARE, sample_distinct, spread_rows
from glaive.kernels.bitpack import BLOCK
from glaive.kernels.framed_chunks import FramedChunks
from glaive.memory import as_array, as_buffer

__all__ = ["can_be_windows", "encode_windows"]


def can_be_windows(arrays: Sequence[pa.Array]) -> bool:
    """Whether there are several arrays of numbers or times, without nulls, of whole chunks each.

    The last one may have any number of values.
    """
    kind = arrays[0].type
    return (
        len(arrays) > 1
        and pa.types.is_primitive(kind)
        and int(kind.bit_width) in WORD_BITS
        and not any(array.null_count or array.type != kind for array in arrays)
        and not any(len(array) % BLOCK for array in arrays[:-1])
    )


def encode_windows(
    arrays: Sequence[pa.Array], options: PageOptions, wanted: EncodingOptions
) -> EncodedPage | None:
    """Encode arrays for which :func:`can_be_windows` holds as one page of packed values.

    Returns
    -------
    EncodedPage or None
        None where their values, joined, may be encoded in another way.
    """
    if wanted != AUTOMATIC:
        return None
    blocks: list[FixedWidth] = []
    for array in arrays:
        block = block_from_array(array)
        if not isinstance(block, FixedWidth) or block.bits not in WORD_BITS:
            return None
        blocks.append(block)
    bits, rows = blocks[0].bits, sum(block.count for block in blocks)
    if single_value(arrays[0]) is not None or (
        bits in options.dictionary_bits and _may_repeat(blocks, rows)
    ):
        return None
    value_width = 4 if options.large_chunks else 2
    stats = [FixedStats(block, value_width) for block in blocks]
    if not stats[0].is_likely_packed():
        return None
    parts: list[FramedChunks] = []
    for own in stats:
        parts.append(own.frame(value_width))
        if own.runs is not None:
            return None
    framed = FramedChunks.joined(parts)
    if int(framed.sizes.sum()) > (1 - MIN_GAIN) * (rows * bits // 8):
        return None
    layers, large = (Layer.ALL_VALID_ITEM,), options.large_chunks
    return encode_framed_page(framed, InlineBitpacking(bits), layers, rows, large_chunks=large)


def _may_repeat(blocks: Sequence[FixedWidth], rows: int) -> bool:
    """Whether values repeat in a sample of all blocks, so that a dictionary may save bytes."""
    wanted, first = spread_rows(rows), 0
    sample: list[NDArray[Any]] = []
    for block in blocks:
        stop = first + block.count
        begin, end = np.searchsorted(wanted, (first, stop)).tolist()
        sample.append(as_array(block.values, f"<u{block.bits // 8}")[wanted[begin:end] - first])
        first = stop
    values = FixedWidth(as_buffer(np.concatenate(sample)), blocks[0].bits, len(wanted))
    sampled, seen = sample_distinct(values)
    return seen < UNIQUE_SHARE * sampled
