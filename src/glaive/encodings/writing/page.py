"""Choose the layout and the encoding of a page, and encode it.

In this order: is there any value, are all equal, does a dictionary save bytes, is the widest
value small enough for mini-blocks; then the encoding with the fewest estimated bytes wins, and
among equals the one that is cheaper to decode.

Specification: "Writer choices" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import Block, Dictionary, FixedList, FixedWidth, Struct, Variable
from glaive.arrow.buffers import integer_array
from glaive.arrow.build import block_from_array, leaf_bits
from glaive.arrow.decimals import unscaled
from glaive.encodings.leaf import Layer
from glaive.encodings.levels.repdef import Levels
from glaive.encodings.miniblock.writer import encode_framed_page, encode_mini_page
from glaive.encodings.options import AUTOMATIC, EncodingOptions
from glaive.encodings.page_options import PageOptions
from glaive.encodings.pages.constant import encode_constant_page
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import Flat
from glaive.encodings.writing.dictionary import choose_dictionary
from glaive.encodings.writing.fixed_stats import FixedStats
from glaive.encodings.writing.fixed_width import fixed_encoding, with_packed_runs
from glaive.encodings.writing.levels import choose_level_encoding
from glaive.encodings.writing.packed_struct import encode_packed_page
from glaive.encodings.writing.small_pages import MINIBLOCK_MAX_VALUE, encode_tiny_page
from glaive.encodings.writing.string_stats import VariableStats
from glaive.encodings.writing.symbol_table import PageSymbols
from glaive.encodings.writing.variable_width import mini_text_encoding, zip_text_encoding
from glaive.errors import SchemaError
from glaive.kernels.framed_chunks import FramedChunks
from glaive.memory import as_array
from glaive.types import UInt16s

__all__ = ["encode_page", "single_value"]

SMALL_CHUNK_VALUE = 3 * 1024
LARGE_CHUNK_VALUE = 16 * 1024 * 1024
"""Bytes; wider values go to full-zip pages even when mini-blocks are requested: eight of them
may have to fit into a chunk, which has 32 KiB before 2.2."""

_SCALAR_SAMPLE = 64
"""Values compared with the first one before the whole page is."""


def encode_page(
    array: pa.Array,
    levels: Levels,
    rows: int,
    options: PageOptions,
    wanted: EncodingOptions = AUTOMATIC,
    symbols: PageSymbols | None = None,
) -> EncodedPage | None:
    """Encode the visible values of a leaf and their levels as one page.

    Parameters
    ----------
    wanted
        The encoding options of the column.
    symbols
        FSST symbols that the pages of the column share.

    Returns
    -------
    EncodedPage or None
        None when the page has more levels than its layout can hold: split it.
    """
    tiny = encode_tiny_page(array, levels, rows, options, wanted)
    if tiny is not None:
        return tiny
    if _nothing_valid(array, levels):
        return _constant(None, levels, rows, options)
    if options.scalar_constants:
        scalar = single_value(array)
        if scalar is not None:
            return _constant(scalar, levels, rows, options)
    block = block_from_array(array)
    if isinstance(block, Struct):
        large, runs = options.large_chunks, options.level_runs
        return encode_packed_page(
            block, array.type, levels, rows, wanted, large_chunks=large, level_runs=runs
        )
    stats = VariableStats.of(block, symbols) if isinstance(block, Variable) else None
    dictionary = None
    if wanted.structural_encoding != "fullzip" or isinstance(block, Dictionary):
        permitted, scheme = options.dictionary_bits, options.dictionary_compression
        dictionary = choose_dictionary(block, stats, array.type, permitted, scheme, wanted)
    if dictionary is not None:
        items = (dictionary.block.items, dictionary.items)
        indices = dictionary.block.indices
        page = _mini_page(indices, dictionary.indices, items, levels, rows, options)
        if page is not None or rows > 1:
            return page
    widest = stats.longest if stats is not None else _width(array.type)
    bare = isinstance(block, FixedList) and not widest  # validity and no values
    if isinstance(block, FixedList) and _lacks_items(block) and wanted.structural_encoding is None:
        nothing = FixedWidth(pa.py_buffer(b""), 0, block.count * block.dimension)
        block, bare = replace(block, items=nothing), True
    if not bare and _in_chunks(widest, options, wanted):
        encoding, framed = _mini_encoding(block, stats, array.type, levels, wanted, options)
        if wanted.structural_encoding is None and _is_plain(block, encoding, levels):
            return encode_full_zip_page(block, encoding, layers=levels.layers, rows=rows)
        page = _mini_page(block, encoding, None, levels, rows, options, framed)
        if page is None and wanted.minichunk_size is not None:
            # The levels do not fit into chunks of this size.
            wanted = replace(wanted, minichunk_size=None)
            return encode_page(array, levels, rows, options, wanted, symbols)
        if page is not None or rows > 1:
            return page
    return encode_full_zip_page(
        block,
        _zip_encoding(block, stats, array.type, wanted),
        layers=levels.layers,
        rows=rows,
        rep=levels.rep,
        definition=levels.definition,
    )


def _lacks_items(block: FixedList) -> bool:
    """Whether all items of the lists are null: validity tells all of them."""
    if block.validity is None or not isinstance(block.items, FixedWidth):
        return False
    return not as_array(block.validity).any()


def _in_chunks(widest: int, options: PageOptions, wanted: EncodingOptions) -> bool:
    """Whether values go to mini-blocks: small ones do, unless options say otherwise."""
    if wanted.structural_encoding == "miniblock":
        return widest <= (LARGE_CHUNK_VALUE if options.large_chunks else SMALL_CHUNK_VALUE)
    return widest < MINIBLOCK_MAX_VALUE and wanted.structural_encoding != "fullzip"


def _nothing_valid(array: pa.Array, levels: Levels) -> bool:
    """Whether all visible values, if any, are null."""
    if len(array) == 0 or array.null_count == len(array):
        return True
    return levels.definition is not None and bool(levels.definition.all())


def single_value(array: pa.Array) -> Block | None:
    """The value that all non-null values equal, bit for bit; None if they differ."""
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return None
    first = 0
    if array.null_count:
        first = pc.index(array.is_valid(), pa.scalar(True)).as_py()  # a value
    bits = _as_bits(array)
    scalar, last = bits[first], bits[-1]
    if last.is_valid and not last.equals(scalar):
        return None
    step = max(1, len(bits) // _SCALAR_SAMPLE)
    sample = bits.take(integer_array(np.arange(0, len(bits), step)))
    for values in (sample, bits):
        if pc.all(pc.equal(values, scalar)).as_py() is False:
            return None
    return block_from_array(array.slice(first, 1))


def _as_bits(array: pa.Array) -> pa.Array:
    """What Arrow compares bit for bit: floats as unsigned integers, decimals without a point.

    So NaN equals itself, and -0.0 is not 0.0.
    """
    if pa.types.is_decimal(array.type):
        integers: pa.Array = unscaled(array)
        return integers
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


def _level_encoding(levels: UInt16s | None, options: PageOptions) -> ValueEncoding | None:
    if levels is None or not len(levels):
        return None
    counts = np.array([len(levels)], np.int64)
    return choose_level_encoding(levels, counts, runs=options.level_runs)


def _width(kind: pa.DataType) -> int:
    """Bytes of a value of fixed width."""
    bits = leaf_bits(kind)
    return 0 if bits is None else (bits + 7) // 8


def _is_plain(values: Block, encoding: ValueEncoding, levels: Levels) -> bool:
    """Whether values are stored as in memory: a full-zip page without levels.

    It has no chunk headers between the values, so a scan is a view of the file and one value
    is one read at a known position.
    """
    if levels.rep is not None or levels.definition is not None:
        return False
    return isinstance(encoding, Flat) and isinstance(values, FixedWidth) and values.bits % 8 == 0


def _mini_page(
    values: Block,
    encoding: ValueEncoding,
    dictionary: tuple[Block, ValueEncoding] | None,
    levels: Levels,
    rows: int,
    options: PageOptions,
    framed: FramedChunks | None = None,
) -> EncodedPage | None:
    value_width = _value_width(levels, options)
    if framed is None and value_width is not None and isinstance(encoding, InlineBitpacking):
        framed = encoding.frame(values, value_width)
    if framed is not None:
        return encode_framed_page(
            framed,
            encoding,
            levels.layers,
            rows,
            dictionary=dictionary,
            large_chunks=options.large_chunks,
        )
    return encode_mini_page(
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


def _value_width(levels: Levels, options: PageOptions) -> int | None:
    """Bytes of sizes in the headers of chunks, if these have nothing but values."""
    if levels.rep is not None or levels.definition is not None:
        return None
    return 4 if options.large_chunks else 2


def _mini_encoding(
    block: Block,
    stats: VariableStats | None,
    kind: pa.DataType,
    levels: Levels,
    wanted: EncodingOptions,
    options: PageOptions,
) -> tuple[ValueEncoding, FramedChunks | None]:
    """The encoding of values in chunks, and the chunks if they were made to choose it."""
    if isinstance(block, FixedList):
        return FixedSizeList.for_block(block), None
    if isinstance(block, FixedWidth):
        tried = FixedStats(block, None if wanted.scheme else _value_width(levels, options))
        encoding = fixed_encoding(tried, wanted)
        if isinstance(encoding, InlineBitpacking):
            return encoding, tried.framed
        return with_packed_runs(block, encoding) if options.packed_runs else encoding, None
    if stats is None:
        raise SchemaError(f"values of type {kind} cannot be written yet")
    return mini_text_encoding(stats, kind, wanted), None


def _zip_encoding(
    block: Block, stats: VariableStats | None, kind: pa.DataType, wanted: EncodingOptions
) -> ValueEncoding:
    """The encoding of values in full-zip pages."""
    if isinstance(block, FixedList):
        return FixedSizeList.for_block(block)
    if isinstance(block, FixedWidth):
        return Flat(max(block.bits, 8))
    if stats is None:
        raise SchemaError(f"values of type {kind} cannot be written yet")
    return zip_text_encoding(stats, kind, wanted)
