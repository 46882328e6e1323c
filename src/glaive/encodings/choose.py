"""Pick the layout and the encoding of a page, and encode it.

The order of questions: is there any value at all, are they all the same, does a dictionary
pay, is the widest value small enough for mini-blocks; then the encoding with the fewest
estimated bytes wins, and among equals the one that is cheaper to decode.

Specification: "Writer choices" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Dictionary, FixedList, FixedWidth, Variable
from glaive.arrow.build import block_from_array, leaf_bits
from glaive.encodings.compression import Scheme
from glaive.encodings.level_choice import choose_level_encoding
from glaive.encodings.levels import Levels
from glaive.encodings.miniblock_writer import encode_mini_page
from glaive.encodings.pages.constant import encode_constant_page
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, Layer, ValueEncoding
from glaive.encodings.registry import value_encodings
from glaive.encodings.stats import FixedStats
from glaive.encodings.text_stats import VariableStats, build_dictionary, dictionary_bytes
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.general import General
from glaive.encodings.values.variable import Variable as Plain
from glaive.errors import SchemaError
from glaive.kernels._tier import as_array

__all__ = ["PageOptions", "encode_page"]

MINIBLOCK_MAX_VALUE = 256
"""Bytes; wider values go to full-zip pages."""

GENERAL_MIN_VALUE = 32_768
"""Bytes; pages with longer values than this may be compressed value by value."""

MIN_GAIN = 0.02
"""Share of the bytes that a costlier encoding must save over plain ones: those are read
without a copy."""

_TINY_BITS = 64 * 64
"""Bits of a page that is not worth choosing an encoding for; buffers are padded to 64 bytes."""

_WORDS = (8, 16, 32, 64)

_ZSTD_SAMPLE = 8
"""Values tried before a page of long values is compressed."""

_SCALAR_SAMPLE = 64
"""Values looked at before a whole page is compared with one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """What the format version allows; see ``FormatProfile``."""

    large_chunks: bool
    scalar_constants: bool
    compressed_constant_levels: bool
    dictionary_bits: frozenset[int]
    level_runs: bool
    dictionary_compression: Scheme | None


def encode_page(
    array: pa.Array,
    levels: Levels,
    rows: int,
    options: PageOptions,
) -> EncodedPage | None:
    """Encode the visible values of a leaf and their levels as one page.

    Returns
    -------
    EncodedPage or None
        None when the page has more levels than its layout can hold: cut it in two.
    """
    tiny = _tiny(array, levels, rows)
    if tiny is not None:
        return tiny
    if _nothing_valid(array, levels):
        return _constant(None, levels, rows, options)
    if options.scalar_constants:
        scalar = _single_value(array)
        if scalar is not None:
            return _constant(scalar, levels, rows, options)
    block = block_from_array(array)
    stats = VariableStats.of(block) if isinstance(block, Variable) else None
    widest = stats.longest if stats is not None else _width(array.type)
    if widest < MINIBLOCK_MAX_VALUE:
        values, encoding, dictionary = _mini_encoding(block, stats, array.type, options)
        if _is_plain(values, encoding, levels) and dictionary is None:
            return encode_full_zip_page(values, encoding, layers=levels.layers, rows=rows)
        page = encode_mini_page(
            values,
            encoding,
            levels.rep,
            levels.definition,
            levels.layers,
            rows,
            dictionary=dictionary,
            large_chunks=options.large_chunks,
            level_runs=options.level_runs,
        )
        if page is not None or rows > 1:
            return page
    return encode_full_zip_page(
        block,
        _zip_encoding(block, stats, array.type),
        layers=levels.layers,
        rows=rows,
        rep=levels.rep,
        definition=levels.definition,
    )


def _tiny(array: pa.Array, levels: Levels, rows: int) -> EncodedPage | None:
    """A few plain values as they are: no encoding makes such a page smaller than its padding."""
    if levels.rep is not None or levels.definition is not None or not len(array):
        return None
    bits = leaf_bits(array.type)
    if bits is None or bits % 8 or bits * len(array) > _TINY_BITS:
        return None
    block = block_from_array(array)
    if not isinstance(block, FixedWidth):
        return None
    return encode_full_zip_page(block, Flat(bits), layers=levels.layers, rows=rows)


def _nothing_valid(array: pa.Array, levels: Levels) -> bool:
    """No visible value, or none that is not null."""
    if len(array) == 0 or array.null_count == len(array):
        return True
    return levels.definition is not None and bool(levels.definition.all())


def _single_value(array: pa.Array) -> Block | None:
    """The one value that all non-null values are equal to, bit for bit; None if they differ."""
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return None
    first = 0
    if array.null_count:
        first = pc.index(array.is_valid(), pa.scalar(True)).as_py()  # a value
    bits = _as_bits(array)
    one = bits[first]
    step = max(1, len(bits) // _SCALAR_SAMPLE)
    places: Any = pa.array(np.arange(0, len(bits), step))
    sample = bits.take(places)
    for values in (sample, bits):
        if pc.all(pc.equal(values, one)).as_py() is False:
            return None
    return block_from_array(array.slice(first, 1))


def _as_bits(array: pa.Array) -> pa.Array:
    """Floats as unsigned integers, so that NaN equals itself and -0.0 is not 0.0."""
    if not pa.types.is_floating(array.type):
        return array
    return array.view({16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[array.type.bit_width])


def _constant(value: Block | None, levels: Levels, rows: int, options: PageOptions) -> EncodedPage:
    rep, definition = levels.rep, levels.definition
    if value is None and levels.layers == (Layer.NULLABLE_ITEM,):
        return encode_constant_page(layers=levels.layers, rows=rows)
    rep_encoding = def_encoding = None
    if value is None and options.compressed_constant_levels:
        rep_encoding = _level_encoding(rep, options)
        def_encoding = _level_encoding(definition, options)
    return encode_constant_page(
        layers=levels.layers,
        rows=rows,
        value=value,
        rep=rep,
        definition=definition,
        rep_encoding=rep_encoding,
        def_encoding=def_encoding,
    )


def _level_encoding(
    levels: NDArray[np.uint16] | None, options: PageOptions
) -> ValueEncoding | None:
    if levels is None or not len(levels):
        return None
    counts = np.array([len(levels)], np.int64)
    return choose_level_encoding(levels, counts, runs=options.level_runs)


def _width(kind: pa.DataType) -> int:
    """Bytes of a value of fixed width."""
    bits = leaf_bits(kind)
    return 0 if bits is None else (bits + 7) // 8


def _is_plain(values: Block, encoding: ValueEncoding, levels: Levels) -> bool:
    """Bytes as they are in memory, one behind the other: a full-zip page without levels.

    It has no chunk headers between the values, so a scan is a view of the file and one value
    is one read at a known place.
    """
    if levels.rep is not None or levels.definition is not None:
        return False
    return isinstance(encoding, Flat) and isinstance(values, FixedWidth) and values.bits % 8 == 0


def _mini_encoding(
    block: Block, stats: VariableStats | None, kind: pa.DataType, options: PageOptions
) -> tuple[Block, ValueEncoding, tuple[Block, ValueEncoding] | None]:
    """Values, encoding and dictionary (items and their encoding) of a mini-block page."""
    if isinstance(block, FixedList):
        return block, FixedSizeList.for_block(block), None
    found = _dictionary(block, options)
    if found is not None:
        dictionary = (found.items, _item_encoding(found.items, options))
        return found.indices, _cheapest(FixedStats(found.indices)), dictionary
    if stats is not None:
        return block, _text_encoding(stats, kind), None
    if isinstance(block, FixedWidth):
        return block, _cheapest(FixedStats(block)), None
    raise SchemaError(f"values of type {kind} cannot be written yet")


def _dictionary(block: Block, options: PageOptions) -> Dictionary | None:
    """Number the distinct values, when the version allows it and it pays."""
    if isinstance(block, Variable):
        return build_dictionary(block)
    if not isinstance(block, FixedWidth) or block.bits not in options.dictionary_bits:
        return None
    found = build_dictionary(block)
    if found is None or block.bits not in _WORDS:
        return found
    # Packing the words themselves may be as small, and is read without the detour.
    packed = FixedStats(block).packed_bytes
    return found if dictionary_bytes(found) < packed else None


def _item_encoding(items: Block, options: PageOptions) -> ValueEncoding:
    """How the items of a dictionary are stored: plain, or compressed if that is smaller."""
    plain: ValueEncoding
    if isinstance(items, Variable):
        plain = Plain(items.offset_bits)
    elif isinstance(items, FixedWidth):
        plain = Flat(items.bits)
    else:
        raise SchemaError(f"a dictionary of {type(items).__name__} items cannot be written")
    if options.dictionary_compression is None:
        return plain
    packed = General(options.dictionary_compression, plain)
    counts = np.array([items.count], np.int64)
    smaller = len(packed.encode_blocks(items, counts).data)
    return packed if smaller < len(plain.encode_blocks(items, counts).data) else plain


def _cheapest(stats: FixedStats) -> ValueEncoding:
    """The encoding with the fewest estimated bytes; plain ones when nothing gains enough."""
    plain = stats.raw_bytes + stats.overhead(1)
    best: tuple[int, ValueEncoding] | None = None
    for encoding in value_encodings().values():
        found = encoding.propose(stats)
        if found is None:
            continue
        if not isinstance(found[1], Flat) and found[0] > plain * (1 - MIN_GAIN):
            continue
        if best is None or found[0] < best[0]:
            best = found
    return best[1] if best is not None else Flat(stats.block.bits)


def _text_encoding(stats: VariableStats, kind: pa.DataType) -> ValueEncoding:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    found = Fsst.propose(stats) if is_text else None
    return found[1] if found is not None else Plain(stats.block.offset_bits)


def _zip_encoding(block: Block, stats: VariableStats | None, kind: pa.DataType) -> ValueEncoding:
    """The encoding of values that stand one by one."""
    if isinstance(block, FixedList):
        return FixedSizeList.for_block(block)
    if isinstance(block, FixedWidth):
        return Flat(max(block.bits, 8))
    if stats is None or not isinstance(block, Variable):
        raise SchemaError(f"values of type {kind} cannot be written yet")
    if stats.longest > GENERAL_MIN_VALUE:
        plain = Plain(block.offset_bits)
        return General("zstd", plain) if _compresses(block) else plain
    return _text_encoding(stats, kind)


def _compresses(block: Variable) -> bool:
    """Whether zstd gains on a few of the values; images and audio are compressed already."""
    ends = as_array(block.offsets, f"<i{block.offset_bits // 8}")
    picks = np.linspace(0, block.count - 1, _ZSTD_SAMPLE).astype(np.int64)
    codec = pa.Codec("zstd", compression_level=1)
    raw = packed = 0
    for at in picks.tolist():
        value = block.data.slice(int(ends[at]), int(ends[at + 1] - ends[at]))
        raw += value.size
        packed += codec.compress(value).size
    return packed < raw * 0.9
