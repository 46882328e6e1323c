"""Choose the layout and the encoding of a page, and encode it.

In this order: is there any value, are all equal, does a dictionary save bytes, is the widest
value small enough for mini-blocks; then the encoding with the fewest estimated bytes wins, and
among equals the one that is cheaper to decode.

Specification: "Writer choices" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import (
    Block,
    Dictionary,
    FixedList,
    FixedWidth,
    Struct,
    Variable,
    integer_array,
)
from glaive.arrow.build import block_from_array, leaf_bits
from glaive.arrow.conditions import unscaled
from glaive.encodings.levels import Layer, Levels
from glaive.encodings.miniblock.writer import (
    choose_level_encoding,
    encode_framed_page,
    encode_mini_page,
)
from glaive.encodings.options import AUTOMATIC, EncodingOptions, PageOptions
from glaive.encodings.pages.constant import encode_constant_page
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.values.bitpack import InlineBitpacking
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.packed_struct import Member, PackedStruct, VariablePackedStruct
from glaive.encodings.writing.choice import (
    choose_dictionary,
    fixed_encoding,
    mini_text_encoding,
    with_packed_runs,
    zip_text_encoding,
)
from glaive.encodings.writing.few import MINIBLOCK_MAX_VALUE
from glaive.encodings.writing.fixed_stats import FixedStats
from glaive.encodings.writing.string_stats import PageSymbols, VariableStats, likely_items
from glaive.errors import SchemaError
from glaive.kernels.chunks import FramedChunks
from glaive.kernels.strings import as_offsets
from glaive.types import UInt16s, as_array

# --- Write a page of packed structs: mini-blocks for rows of a fixed width, else full-zip
# Specification: "Writer choices" in ``docs/format/pages.md``.

_LENGTH_BITS = 32
"""Width of the length in front of a nested packed struct."""


def encode_packed_page(
    block: Struct,
    kind: pa.DataType,
    levels: Levels,
    rows: int,
    wanted: EncodingOptions,
    *,
    large_chunks: bool,
    level_runs: bool,
) -> EncodedPage | None:
    """Encode one page; ``wanted.members`` are the options of each member.

    Returns
    -------
    EncodedPage or None
        None when the page has more levels than its layout can hold: split it.

    Raises
    ------
    SchemaError
        Rows are too wide for mini-blocks.
    """
    fixed = [member.bits for member in block.members if isinstance(member, FixedWidth)]
    if len(fixed) == len(block.members):
        encoding = PackedStruct(tuple(fixed))
        page = encode_mini_page(
            block,
            encoding,
            levels.rep,
            levels.definition,
            levels.layers,
            rows,
            large_chunks=large_chunks,
            level_runs=level_runs,
        )
        if page is None and rows == 1:
            raise SchemaError(
                f"rows of {sum(fixed) // 8} bytes are too wide for packed structs, or a row has "
                "too many of them. Remove 'packed' from the metadata of the column."
            )
        return page
    return encode_full_zip_page(
        block,
        _variable(block, kind, wanted),
        layers=levels.layers,
        rows=rows,
        rep=levels.rep,
        definition=levels.definition,
    )


def _variable(block: Struct, kind: pa.DataType, wanted: EncodingOptions) -> VariablePackedStruct:
    options = wanted.members or (AUTOMATIC,) * len(block.members)
    members = [_member(block, at, kind.field(at).type, own) for at, own in enumerate(options)]
    return VariablePackedStruct(tuple(members))


def _member(block: Struct, at: int, kind: pa.DataType, wanted: EncodingOptions) -> Member:
    values = block.members[at]
    if isinstance(values, FixedWidth):
        return Member(Flat(values.bits), values.bits, is_variable=False)
    if isinstance(values, FixedList):
        lists = FixedSizeList.for_block(values)
        return Member(lists, lists.bits_per_value, is_variable=False)
    if isinstance(values, Variable):
        encoding: ValueEncoding = zip_text_encoding(VariableStats.of(values), kind, wanted)
        return Member(encoding, values.offset_bits, is_variable=True)
    if isinstance(values, Struct):
        fixed = [member.bits for member in values.members if isinstance(member, FixedWidth)]
        if len(fixed) == len(values.members):
            return Member(PackedStruct(tuple(fixed)), sum(fixed), is_variable=False)
        return Member(_variable(values, kind, wanted), _LENGTH_BITS, is_variable=True)
    raise SchemaError(f"values of type {kind} cannot be members of packed structs")


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


# --- The number of pages of an array, where each page would repeat a dictionary ---------
# Pages of about 8 MiB are encoded in parallel and read independently. A column of few distinct,
# long values is little more than its dictionary, which every page repeats: such arrays get fewer
# pages.
#
# Specification: "Writer choices" in ``docs/format/pages.md``.

MAX_REPEATED_SHARE = 0.01
"""Share of a column that repeated dictionaries may take."""

MAX_MERGED_PAGES = 64
"""Pages that become one at most, to limit the memory of a page."""

_BITS = (64, 128)
"""Widths of numbers that become dictionaries."""


def page_count(array: pa.Array, wanted: int) -> int:
    """Return the number of pages to write ``array`` in, at most ``wanted``.

    Cost: samples some thousand values of each leaf, or none if ``wanted`` is 1.
    """
    pages = wanted
    fewest = -(-wanted // MAX_MERGED_PAGES)
    for leaf in _leaves(array):
        if pages <= fewest:
            return fewest
        items, indices = _dictionary_bytes(leaf)
        if items:
            more = int(MAX_REPEATED_SHARE * (items + indices) / items)
            pages = min(pages, max(fewest, 1 + more))
    return pages


def _leaves(array: Any) -> Iterator[Any]:
    """Arrays of values, which may include those of null lists and structs."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(array.storage)
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _leaves(array.field(at))
    elif pa.types.is_fixed_size_list(kind):
        return
    elif isinstance(array, pa.MapArray):
        first, length = _extent(array)
        yield from _leaves(array.keys.slice(first, length))
        yield from _leaves(array.items.slice(first, length))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(array.values.slice(*_extent(array)))
    else:
        yield array


def _extent(array: Any) -> tuple[int, int]:
    """Position of the first item, and the number of items of all lists."""
    if not len(array):
        return 0, 0
    first = array.offsets[0].as_py()
    return first, array.offsets[len(array)].as_py() - first


def _dictionary_bytes(leaf: Any) -> tuple[int, int]:
    """Estimate the bytes of a dictionary's items and of its indices; zeros without one."""
    if pa.types.is_dictionary(leaf.type):
        return leaf.dictionary.nbytes, _index_bytes(len(leaf), len(leaf.dictionary))
    if pa.types.is_null(leaf.type) or not len(leaf):
        return 0, 0
    block = block_from_array(leaf)
    if isinstance(block, Variable):
        offsets = as_offsets(block.offsets, block.offset_bits)
        width = (int(offsets[block.count]) - int(offsets[0])) / block.count + block.offset_bits // 8
    elif isinstance(block, FixedWidth) and block.bits in _BITS:
        width = block.bits / 8
    else:
        return 0, 0
    items = likely_items(block)
    return (0, 0) if items is None else (int(items * width), _index_bytes(block.count, items))


def _index_bytes(count: int, items: int) -> int:
    return count * max(items - 1, 1).bit_length() // 8
