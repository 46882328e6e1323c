"""Choose whether values become a dictionary with indices, and how the two are stored.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, FixedWidth, Variable
from glaive.dataclass import dataclass
from glaive.encodings.compression import Scheme
from glaive.encodings.options import EncodingOptions
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.bitpack_out_of_line import OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.general import General
from glaive.encodings.values.variable import Variable as Plain
from glaive.encodings.writing.fixed_stats import WORD_BITS, FixedStats
from glaive.encodings.writing.fixed_width import MIN_GAIN, estimate, fixed_encoding
from glaive.encodings.writing.string_stats import VariableStats, build_dictionary, dictionary_bytes
from glaive.encodings.writing.variable_width import encoded_bytes
from glaive.errors import SchemaError
from glaive.kernels.bitpack import BLOCK

__all__ = ["DictionaryChoice", "choose_dictionary"]

SURE_SHARE = 0.2
"""A dictionary of text below this share of the plain bytes is not compared with FSST."""


@dataclass(frozen=True, slots=True)
class DictionaryChoice:
    """A dictionary, and how its indices and items are encoded."""

    block: Dictionary
    indices: ValueEncoding
    items: ValueEncoding


def choose_dictionary(
    block: Block,
    stats: VariableStats | None,
    kind: pa.DataType,
    fixed_bits: frozenset[int],
    scheme: Scheme | None,
    wanted: EncodingOptions,
) -> DictionaryChoice | None:
    """Build a dictionary, when the version allows it and it saves bytes.

    Parameters
    ----------
    stats
        Statistics of a block of variable width.
    kind
        The Arrow type.
    fixed_bits
        Widths of fixed-width values for which the version has dictionaries.
    scheme
        The version's default compression of items; ``None`` when it never compresses them.
    """
    if isinstance(block, Dictionary):
        return _chosen(block, scheme, wanted)[1]
    if not isinstance(block, Variable) and not (
        isinstance(block, FixedWidth) and block.bits in fixed_bits
    ):
        return None
    divisor, size_ratio = wanted.dict_divisor, wanted.dict_size_ratio
    dictionary = build_dictionary(block, divisor=divisor, size_ratio=size_ratio)
    if dictionary is None:
        return None
    size, choice = _chosen(dictionary, scheme, wanted)
    if isinstance(block, FixedWidth):
        # Packed values without a dictionary may be about as small, and are quicker to read.
        other = estimate(FixedStats(block), wanted)[0]
        return choice if size < other * (1 - MIN_GAIN) else None
    if stats is None or dictionary_bytes(dictionary) < SURE_SHARE * stats.plain_bytes:
        return choice
    return choice if size < encoded_bytes(stats, kind, wanted) else None


def _chosen(
    block: Dictionary, scheme: Scheme | None, wanted: EncodingOptions
) -> tuple[int, DictionaryChoice]:
    """The choice with its estimated bytes."""
    stats = FixedStats(block.indices)
    item_bytes, items = _item_encoding(block.items, scheme, wanted)
    size = item_bytes + estimate(stats, wanted)[0]
    return size, DictionaryChoice(block, fixed_encoding(stats, wanted), items)


def _item_encoding(
    items: Block, default: Scheme | None, wanted: EncodingOptions
) -> tuple[int, ValueEncoding]:
    """Bytes and encoding of the items: the smallest that the version allows."""
    candidates: list[ValueEncoding]
    if isinstance(items, Variable):
        candidates = [Plain(items.offset_bits)]
    elif isinstance(items, FixedWidth):
        candidates = [Flat(items.bits), *_packed(items)]
    else:
        raise SchemaError(f"a dictionary of {type(items).__name__} items cannot be written")
    scheme, specified = default, wanted.dict_values_compression
    if specified is not None and default is not None:
        scheme = None if specified == "none" else specified
    if scheme is not None:
        level = wanted.dict_values_compression_level
        candidates.append(General(scheme, candidates[0], level))
    counts = np.array([items.count], np.int64)
    sizes = [len(candidate.encode_blocks(items, counts).data) for candidate in candidates]
    best = sizes.index(min(sizes))
    return sizes[best], candidates[best]


def _packed(items: FixedWidth) -> list[ValueEncoding]:
    if items.bits not in WORD_BITS or not items.count:
        return []
    if items.count <= BLOCK:
        return [InlineBitpacking(items.bits)]
    width = int(FixedStats(items).chunk_widths.max())
    return [OutOfLineBitpacking(items.bits, width)] if 0 < width < items.bits else []
