"""Pick whether values become a dictionary with indices, and how its items are stored.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.arrow.blocks import Block, Dictionary, FixedWidth, Variable
from glaive.encodings.compression import Scheme
from glaive.encodings.options import EncodingOptions
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.stats import WORD_BITS, FixedStats
from glaive.encodings.text_stats import build_dictionary, dictionary_bytes
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.bitpack_out_of_line import OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.general import General
from glaive.encodings.values.variable import Variable as Plain
from glaive.errors import SchemaError
from glaive.kernels.bitpack import BLOCK

__all__ = ["choose_dictionary", "item_encoding"]


def choose_dictionary(
    block: Block, fixed_bits: frozenset[int], wanted: EncodingOptions
) -> Dictionary | None:
    """Number the distinct values, when the version allows it and it pays.

    ``fixed_bits`` are the widths for which the version allows it.
    """
    if isinstance(block, Dictionary):
        return block
    if not isinstance(block, Variable) and not (
        isinstance(block, FixedWidth) and block.bits in fixed_bits
    ):
        return None
    found = build_dictionary(block, divisor=wanted.dict_divisor, size_ratio=wanted.dict_size_ratio)
    if found is None or isinstance(block, Variable) or block.bits not in WORD_BITS:
        return found
    # Packing the words themselves may be as small, and is read without the detour.
    packed = FixedStats(block).packed_bytes
    return found if dictionary_bytes(found) < packed else None


def item_encoding(items: Block, default: Scheme | None, wanted: EncodingOptions) -> ValueEncoding:
    """How the items of a dictionary are stored: the smallest of what the version allows.

    ``default`` is the scheme for items of which nothing is said, ``None`` where the version
    does not compress dictionaries at all.
    """
    candidates: list[ValueEncoding]
    if isinstance(items, Variable):
        candidates = [Plain(items.offset_bits)]
    elif isinstance(items, FixedWidth):
        candidates = [Flat(items.bits), *_packed(items)]
    else:
        raise SchemaError(f"a dictionary of {type(items).__name__} items cannot be written")
    said = wanted.dict_values_compression
    scheme = default if said is None or default is None else None if said == "none" else said
    if scheme is not None:
        level = wanted.dict_values_compression_level
        candidates.append(General(scheme, candidates[0], level))
    if len(candidates) == 1:
        return candidates[0]
    counts = np.array([items.count], np.int64)
    sizes = [len(one.encode_blocks(items, counts).data) for one in candidates]
    return candidates[sizes.index(min(sizes))]


def _packed(items: FixedWidth) -> list[ValueEncoding]:
    if items.bits not in WORD_BITS or not items.count:
        return []
    if items.count <= BLOCK:
        return [InlineBitpacking(items.bits)]
    width = int(FixedStats(items).chunk_widths.max())
    return [OutOfLineBitpacking(items.bits, width)] if 0 < width < items.bits else []
