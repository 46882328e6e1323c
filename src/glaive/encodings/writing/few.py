"""Write pages of a few values, without what it takes to choose an encoding.

Small appends of fresh processes load neither the choice nor ``pyarrow.compute``.

Specification: "Writer choices" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.build import block_from_array, leaf_bits, validity_flags
from glaive.encodings.levels import Levels
from glaive.encodings.miniblock.writer import encode_mini_page
from glaive.encodings.options import EncodingOptions, PageOptions
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.variable import Variable as Plain
from glaive.kernels.strings import as_offsets
from glaive.types import as_array

PLAIN_BYTES = 1024
"""Values of a fixed width with more bytes are worth choosing an encoding for."""

_MOST_TEXTS, _TEXT_BYTES = 99, 4096
"""Values of a page of text, and their bytes: a dictionary or compression may pay for more."""

MINIBLOCK_MAX_VALUE = 256
"""Bytes; wider values go to full-zip pages."""


def encode_few(
    array: pa.Array,
    levels: Levels,
    rows: int,
    options: PageOptions,
    wanted: EncodingOptions,
    plain_bytes: int = PLAIN_BYTES,
) -> EncodedPage | None:
    """Encode a few values as they are in memory; None where there is a choice to make.

    Parameters are those of :func:`glaive.encodings.writing.page.encode_page`. ``plain_bytes`` are
    those of values of a fixed width without nulls, at most.
    """
    if not _is_few(array, levels, wanted, plain_bytes):
        return None
    block = block_from_array(array)
    encoding: ValueEncoding
    if isinstance(block, FixedWidth):
        if array.null_count and not block.bits % 8:
            values = as_array(block.values)[: block.count * block.bits // 8]
            valid = values.reshape(block.count, -1)[validity_flags(array)]
            if (valid == valid[:1]).all():
                return None  # a constant page
        encoding = Flat(block.bits)
        if levels.rep is None and levels.definition is None and not block.bits % 8:
            return encode_full_zip_page(block, encoding, layers=levels.layers, rows=rows)
        if block.bits >= 8 * MINIBLOCK_MAX_VALUE:
            return None
    elif isinstance(block, Variable):
        ends = as_offsets(block.offsets, block.offset_bits)[: block.count + 1]
        if int(np.diff(ends).max()) >= MINIBLOCK_MAX_VALUE:
            return None
        encoding = Plain(block.offset_bits)
    else:
        return None
    return encode_mini_page(
        block,
        encoding,
        levels.rep,
        levels.definition,
        levels.layers,
        rows,
        large_chunks=options.large_chunks,
        level_runs=options.level_runs,
    )


def _is_few(array: pa.Array, levels: Levels, wanted: EncodingOptions, plain_bytes: int) -> bool:
    """Whether there are a few values, and neither options nor other encodings to choose."""
    kind, size = array.type, array.nbytes
    if wanted.structural_encoding is not None or wanted.minichunk_size is not None:
        return False
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or pa.types.is_null(kind):
        return False
    if not len(array) or (levels.definition is not None and levels.definition.all()):
        return False
    if leaf_bits(kind) is not None:
        return size <= (PLAIN_BYTES if array.null_count else plain_bytes)
    if len(array) > _MOST_TEXTS or size > _TEXT_BYTES or wanted.compression == "fsst":
        return False
    # If the first and the last are equal, perhaps all are: a constant page.
    return size <= PLAIN_BYTES or not array[0].equals(array[-1])
