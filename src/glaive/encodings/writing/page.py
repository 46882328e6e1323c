"""Choose the layout and the encoding of a page, and encode it.

The questions, in this order: is there any value, are all equal, does a dictionary save bytes, is
the widest value small enough for mini-blocks? Then the encoding with the fewest estimated bytes
wins. Among equals the encoding that is cheaper to decode wins.

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
    number_array,
)
from glaive.arrow.build import block_from_array, leaf_bits
from glaive.arrow.conditions import constants, unscaled
from glaive.dataclass import dataclass
from glaive.encodings.compression import Scheme
from glaive.encodings.levels import Layer, Levels
from glaive.encodings.miniblock.writer import EncodedItems, choose_level_encoding, encode_mini_page
from glaive.encodings.options import AUTOMATIC, EncodingOptions, PageOptions
from glaive.encodings.pages.constant import encode_constant_page
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedChunks, EncodedPage, ValueEncoding
from glaive.encodings.registry import value_encodings
from glaive.encodings.values.bitpack import InlineBitpacking, OutOfLineBitpacking
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import COMPRESSED_CHUNK_BYTES, ByteStreamSplit, Flat
from glaive.encodings.values.fsst import MIN_BYTES, Fsst
from glaive.encodings.values.general import General
from glaive.encodings.values.packed_struct import Member, PackedStruct, VariablePackedStruct
from glaive.encodings.values.rle import NestedRuns, RunLength
from glaive.encodings.values.variable import Variable as Plain
from glaive.encodings.writing.few import MINIBLOCK_MAX_VALUE
from glaive.encodings.writing.fixed_stats import FixedStats
from glaive.encodings.writing.string_stats import (
    PageSymbols,
    VariableStats,
    build_dictionary,
    dictionary_bytes,
    likely_items,
)
from glaive.errors import SchemaError
from glaive.kernels._bitpack import BLOCK, WORD_BITS, out_of_line_sizes
from glaive.kernels.strings import CHUNK_BYTES, as_offsets
from glaive.types import UInt16s, as_array

# --- Choose the encoding of values of a fixed width in a mini-block page ----------------
#
# The smallest by estimate wins; among equals the encoding that is cheaper to decode wins. Where
# general compression is requested, the candidates are tried on a sample of the values.
#
# Specification: "What writers choose" in ``docs/format/encodings.md``.

MIN_GAIN = 0.04
"""Share of the bytes that an encoding must save over plain values, which are read as views."""

GENERAL_MIN_BUFFER = 4096
"""Minimum bytes in the first buffers of all chunks for general compression."""

_MIN_PACKED_RUNS_GAIN = 0.03
"""Share of the bytes of all runs that packing must save: reading packed runs takes longer."""

BSS_MAX_ENTROPY = 4.0
"""Values with more bits of entropy per byte, on average, are too different to be split."""

_MIN_ZSTD_GAIN = 0.5
"""Share of the bytes that zstd must save of plain values if nobody asked for zstd. With the option
``balanced``, it must save this share of packed values or runs."""

_BALANCED_SAMPLE = 8_192
"""Values that this is tried on."""

_MAX_PACKED_BITS = 64
"""Bits of the widest values that packing, runs and differences take."""

_SPLIT_BITS = (32, 64)
_SAMPLE_VALUES = 32_768
"""Values that candidates are tried on; pages of up to twice as many are tried as a whole."""


def fixed_encoding(stats: FixedStats, wanted: EncodingOptions) -> ValueEncoding:
    """Choose the encoding with the fewest bytes that ``wanted`` allows."""
    if wanted.compression == "none":
        return Flat(stats.block.bits)
    if wanted.extension is not None:
        proposal = wanted.extension.propose(stats)
        return Flat(stats.block.bits) if proposal is None else proposal[1]
    cheapest = estimate(stats, wanted)[1]
    scheme = wanted.scheme
    if scheme is None:
        if not wanted.chooses_compression:
            return cheapest
        if isinstance(cheapest, Flat):
            return _wide(stats, cheapest) if stats.block.bits > _MAX_PACKED_BITS else cheapest
        if wanted.is_balanced:
            return _balanced(stats, cheapest, wanted.compression_level)
        return cheapest
    bits, level = stats.block.bits, wanted.compression_level
    split = ByteStreamSplit(bits) if bits in _SPLIT_BITS and wanted.bss != "off" else None
    if split is not None and wanted.bss == "on":
        return _smallest(stats, split, [General(scheme, split, level)])
    candidates = [General(scheme, cheapest, level)]
    if not isinstance(cheapest, Flat):
        candidates.append(General(scheme, Flat(bits), level))
    if split is not None and stats.byte_entropy < BSS_MAX_ENTROPY:
        candidates.append(General(scheme, split, level))
    return _smallest(stats, cheapest, candidates)


def _wide(stats: FixedStats, plain: Flat) -> ValueEncoding:
    """Return Zstandard for values that all other encodings refuse, if it saves enough; else plain.

    Decimals have 16 bytes, and few of these differ. Identifiers of this width are incompressible.
    """
    tried = _sample(stats.block)
    general = General("zstd", Flat(plain.bits, COMPRESSED_CHUNK_BYTES))
    size = _bytes(stats, general.encode_mini(tried))
    is_smaller = size <= len(tried.values) * (1 - _MIN_ZSTD_GAIN)
    return general if is_smaller and stats.raw_bytes >= GENERAL_MIN_BUFFER else plain


def _balanced(stats: FixedStats, encoding: ValueEncoding, level: int | None) -> ValueEncoding:
    """Return Zstandard around packed values or runs, if it saves enough; else these alone."""
    if not isinstance(encoding, (InlineBitpacking, RunLength)):
        return encoding
    chunks = encoding.encode_mini(_sample(stats.block, _BALANCED_SAMPLE))
    general = General("zstd", encoding, level)
    size = _bytes(stats, general.compressed(chunks))
    is_smaller = size <= _bytes(stats, chunks) * (1 - _MIN_ZSTD_GAIN)
    return general if is_smaller and stats.raw_bytes >= GENERAL_MIN_BUFFER else encoding


def _smallest(stats: FixedStats, plain: ValueEncoding, candidates: list[General]) -> ValueEncoding:
    """Return the encoding of fewest bytes among ``plain`` and the candidates; ties: the first."""
    block = stats.block
    tried = _sample(block)
    chunks = plain.encode_mini(tried)
    if int(chunks.sizes[0].sum()) * block.count < GENERAL_MIN_BUFFER * tried.count:
        return plain
    best, smallest = plain, _bytes(stats, chunks)
    for candidate in candidates:
        size = _bytes(stats, candidate.encode_mini(tried))
        if size < smallest:
            best, smallest = candidate, size
    return best


def _bytes(stats: FixedStats, chunks: EncodedChunks) -> int:
    return sum(int(part.sum()) for part in chunks.sizes) + stats.overhead(len(chunks.counts))


def estimate(stats: FixedStats, wanted: EncodingOptions) -> tuple[int, ValueEncoding]:
    """Return the encoding with the fewest estimated bytes, before general compression.

    Flat is preferred unless another encoding saves enough.
    """
    if stats.cheapest is not None:
        return stats.cheapest
    plain = stats.raw_bytes + stats.overhead(1)
    best: tuple[int, ValueEncoding] | None = None
    for encoding in value_encodings().values():
        proposal = encoding.propose(stats)
        if proposal is None:
            continue
        if not isinstance(proposal[1], Flat) and proposal[0] > plain * (1 - MIN_GAIN):
            continue
        if isinstance(proposal[1], RunLength) and wanted.rle_threshold is not None:
            runs = 0 if stats.runs is None else int(stats.runs.pairs.sum())
            if runs >= wanted.rle_threshold * stats.block.count:
                continue
        if best is None or proposal[0] < best[0]:
            best = proposal
    stats.cheapest = best if best is not None else (plain, Flat(stats.block.bits))
    return stats.cheapest


def _sample(block: FixedWidth, max_values: int = _SAMPLE_VALUES) -> FixedWidth:
    """Return some consecutive values from the middle, or all when they are few."""
    if block.count <= 2 * max_values:
        return block
    first = (block.count - max_values) // 16 * 8  # whole bytes for single bits, too
    values = block.values.slice(first * block.bits // 8, max_values * block.bits // 8)
    return FixedWidth(values, block.bits, max_values)


def with_packed_runs(block: FixedWidth, encoding: ValueEncoding) -> ValueEncoding:
    """Return runs with packed values if ``encoding`` is runs and this saves bytes, else itself."""
    if not isinstance(encoding, RunLength) or not block.count:
        return encoding
    values = as_array(block.values, f"<u{encoding.bits // 8}")
    width = max(int(values[: block.count].max()).bit_length(), 1)
    if width == encoding.bits:
        return encoding
    chunks = encoding.encode_mini(block)
    runs = chunks.sizes[1]
    plain = int(chunks.sizes[0].sum())
    packed = int(out_of_line_sizes(runs, encoding.bits, width).sum())
    if plain - packed < _MIN_PACKED_RUNS_GAIN * (plain + int(runs.sum())):
        return encoding
    return NestedRuns(OutOfLineBitpacking(encoding.bits, width), Flat(8))


# --- Choose the encoding of strings and binary, in mini-blocks and in full-zip pages ----
#
# Specification: "What writers choose" in ``docs/format/encodings.md``.

GENERAL_MIN_VALUE = 32_768
"""Bytes; pages with longer values than this may be compressed value by value."""

ZSTD_MAX_SHARE = 0.9
"""Maximum share of the bytes that zstd leaves where it is used by default."""

_BALANCED_CHUNK_BYTES, _BALANCED_LEVEL = 16_384, 2
"""Bytes of chunks of strings with the option ``balanced``, and their level of zstd: it leaves fewer
bytes of such small chunks than level 3.
"""

_MAX_BALANCED_SHARE = 0.9
"""Maximum bytes that zstd may leave of encoded chunks, as a share, with the option ``balanced``."""

_TRIED_BYTES = 262_144
"""Bytes of values that compression is tried on."""

_TRIED_VALUES, _TRIED_MIDDLE = 8, 32_768
"""Values that compression of single values is tried on, and the bytes from the middle of each."""


def mini_text_encoding(
    stats: VariableStats, kind: pa.DataType, wanted: EncodingOptions
) -> ValueEncoding:
    """Choose the encoding of values in chunks."""
    plain = Plain(stats.block.offset_bits, wanted.minichunk_size or CHUNK_BYTES)
    scheme = wanted.scheme
    if scheme is not None:
        packed = General(scheme, plain, wanted.compression_level)
        if _gains(stats, plain, packed):
            return packed
    if wanted.is_balanced:
        larger = Plain(stats.block.offset_bits, wanted.minichunk_size or _BALANCED_CHUNK_BYTES)
        encoding = _fsst_or_plain(stats, kind, larger, wanted)
        level = wanted.compression_level
        packed = General("zstd", encoding, _BALANCED_LEVEL if level is None else level)
        if _gains(stats, encoding, packed, _MAX_BALANCED_SHARE):
            return packed
    return _fsst_or_plain(stats, kind, plain, wanted)


def zip_text_encoding(
    stats: VariableStats, kind: pa.DataType, wanted: EncodingOptions
) -> ValueEncoding:
    """Choose the encoding of values in full-zip pages.

    General compression is always zstd there: pylance fails to read lz4 in pages with nulls.
    """
    plain = Plain(stats.block.offset_bits)
    packed = General("zstd", plain, wanted.compression_level if wanted.scheme == "zstd" else None)
    if wanted.scheme is not None and stats.plain_bytes >= MIN_BYTES:
        if _zstd_share(stats.block) < 1:
            return packed
    elif wanted.chooses_compression and stats.longest > GENERAL_MIN_VALUE:
        return packed if _zstd_share(stats.block) < ZSTD_MAX_SHARE else plain
    return _fsst_or_plain(stats, kind, plain, wanted)


def _fsst_or_plain(
    stats: VariableStats, kind: pa.DataType, plain: Plain, wanted: EncodingOptions
) -> ValueEncoding:
    """Return FSST where it is requested, or where it gains by default; else plain."""
    if wanted.compression == "none":
        return plain
    if wanted.compression == "fsst":
        return Fsst(stats.coding.table, plain)
    proposal = _symbols(stats, kind)
    return plain if proposal is None else replace(proposal[1], values=plain)


def encoded_bytes(stats: VariableStats, kind: pa.DataType, wanted: EncodingOptions) -> int:
    """Estimate the bytes of the values themselves, before general compression."""
    proposal = _symbols(stats, kind) if wanted.compression != "none" else None
    return stats.plain_bytes if proposal is None else proposal[0]


def _symbols(stats: VariableStats, kind: pa.DataType) -> tuple[int, Fsst] | None:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return Fsst.propose(stats) if is_text else None


def _gains(
    stats: VariableStats, plain: ValueEncoding, packed: General, max_share: float = 1.0
) -> bool:
    """Return whether compression leaves less than a share of chunks in the middle of the values."""
    size = stats.plain_bytes
    if size < GENERAL_MIN_BUFFER:
        return False
    block = stats.block
    count = max(1, min(block.count, block.count * _TRIED_BYTES // size))
    width = block.offset_bits // 8
    first = (block.count - count) // 2
    offsets = block.offsets.slice(first * width, (count + 1) * width)
    tried = Variable(offsets, block.offset_bits, block.data, count)
    chunks = plain.encode_mini(tried)
    left = packed.compressed(chunks)
    return int(left.sizes[0].sum()) < max_share * int(chunks.sizes[0].sum())


def _zstd_share(block: Variable) -> float:
    """Return the share that zstd leaves of a few values; images and audio are compressed."""
    offsets = as_array(block.offsets, f"<i{block.offset_bits // 8}")[: block.count + 1]
    # Evenly spaced by bytes: many values may be nulls, which have 0 bytes.
    first, last = int(offsets[0]), int(offsets[-1])
    positions = first + (2 * np.arange(_TRIED_VALUES) + 1) * (last - first) // (2 * _TRIED_VALUES)
    tried = np.unique(offsets.searchsorted(positions, side="right") - 1)
    codec = pa.Codec("zstd", compression_level=1)
    raw = packed = 0
    for at in tried[tried < block.count].tolist():
        size = int(offsets[at + 1] - offsets[at])
        middle = max(0, size - _TRIED_MIDDLE) // 2
        value = block.data.slice(int(offsets[at]) + middle, min(size, _TRIED_MIDDLE))
        raw += value.size
        packed += 8 + codec.compress(value).size
    return packed / raw if raw else 1.0


# --- Choose whether values become a dictionary with indices, and how the two are stored -
#
# Specification: "What writers choose" in ``docs/format/encodings.md``.

SURE_SHARE = 0.2
"""A dictionary of text up to this share of the plain bytes is used at once. A larger dictionary is
compared with FSST."""


_BALANCED_DICTIONARY_BITS = frozenset({16, 32})
"""Widths of numbers that become dictionaries with the option ``balanced``, such as dates."""


@dataclass(frozen=True, slots=True)
class DictionaryChoice:
    """A dictionary, the encoding of its indices, and its encoded items."""

    block: Dictionary
    indices: ValueEncoding
    items: EncodedItems


def choose_dictionary(
    block: Block,
    stats: FixedStats | VariableStats | None,
    kind: pa.DataType,
    fixed_bits: frozenset[int],
    scheme: Scheme | None,
    wanted: EncodingOptions,
) -> DictionaryChoice | None:
    """Build a dictionary, when the version allows it and it saves bytes.

    Parameters
    ----------
    stats
        Statistics of a block of fixed or variable width.
    kind
        The Arrow type.
    fixed_bits
        Widths of fixed-width values for which the version has dictionaries.
    scheme
        The version's default compression of items; ``None`` for plain items.
    """
    if isinstance(block, Dictionary):
        return _chosen(block, FixedStats(block.indices), scheme, wanted)
    if not isinstance(block, Variable) and not (
        isinstance(block, FixedWidth) and block.bits in fixed_bits
    ):
        return None
    divisor, size_ratio = wanted.dict_divisor, wanted.dict_size_ratio
    dictionary = build_dictionary(block, divisor=divisor, size_ratio=size_ratio)
    if dictionary is None:
        return None
    max_bytes: float | None = None
    if isinstance(stats, FixedStats):
        # Values packed directly may be about as small, and are quicker to read.
        max_bytes = estimate(stats, wanted)[0] * (1 - MIN_GAIN)
    elif stats is not None and dictionary_bytes(dictionary) >= SURE_SHARE * stats.plain_bytes:
        max_bytes = encoded_bytes(stats, kind, wanted)
    indices = FixedStats(dictionary.indices)
    size = estimate(indices, wanted)[0]
    if max_bytes is not None and size >= max_bytes:
        return None
    choice = _chosen(dictionary, indices, scheme, wanted)
    too_large = max_bytes is not None and size + len(choice.items.data) >= max_bytes
    return None if too_large else choice


def _chosen(
    block: Dictionary, indices: FixedStats, scheme: Scheme | None, wanted: EncodingOptions
) -> DictionaryChoice:
    items = _encode_items(block.items, scheme, wanted)
    return DictionaryChoice(block, fixed_encoding(indices, wanted), items)


def _encode_items(items: Block, default: Scheme | None, wanted: EncodingOptions) -> EncodedItems:
    """Return the items in the encoding with the fewest bytes that the version allows."""
    plain: ValueEncoding
    packed: list[ValueEncoding] = []
    if isinstance(items, Variable):
        plain = Plain(items.offset_bits)
    elif isinstance(items, FixedWidth):
        plain, packed = Flat(items.bits), _packed(items)
    else:
        raise SchemaError(f"a dictionary of {type(items).__name__} items cannot be written")
    counts = np.array([items.count], np.int64)
    blocks = plain.encode_blocks(items, counts)
    encoded = [EncodedItems(plain, items.count, blocks.data)]
    encoded += [EncodedItems.of(items, encoding) for encoding in packed]
    scheme, specified = default, wanted.dict_values_compression
    if specified is not None and default is not None:
        scheme = None if specified == "none" else specified
    if scheme is not None:
        level = wanted.dict_values_compression_level
        general = General(scheme, plain, level)
        encoded.append(EncodedItems(general, items.count, general.compressed_blocks(blocks).data))
    return min(encoded, key=lambda one: len(one.data))


def _packed(items: FixedWidth) -> list[ValueEncoding]:
    if items.bits not in WORD_BITS or not items.count:
        return []
    if items.count <= BLOCK:
        return [InlineBitpacking(items.bits)]
    width = int(FixedStats(items).chunk_widths.max())
    return [OutOfLineBitpacking(items.bits, width)] if 0 < width < items.bits else []


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
    options: PageOptions,
) -> EncodedPage | None:
    """Encode one page; ``wanted.members`` are the options of each member.

    Returns
    -------
    EncodedPage or None
        ``None`` when the page has more levels than its layout can hold: split it.

    Raises
    ------
    SchemaError
        Rows are too wide for mini-blocks.
    """
    fixed = [member.bits for member in block.members if isinstance(member, FixedWidth)]
    if len(fixed) == len(block.members):
        page = _mini_page(block, PackedStruct(tuple(fixed)), None, levels, rows, options)
        if page is None and rows == 1:
            raise SchemaError(
                f"rows of {sum(fixed) // 8} bytes are too wide for packed structs, or a row has "
                "too many of them. Remove 'packed' from the metadata of the column."
            )
        return page
    return encode_full_zip_page(block, _variable(block, kind, wanted), levels, rows)


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
"""Bytes; wider values go to full-zip pages even when mini-blocks are requested. Eight of them may
have to fit into a chunk, which has 32 KiB before 2.2.
"""

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
        ``None`` when the page has more levels than its layout can hold: split it.
    """
    if _all_null(array, levels):
        return _constant(None, levels, rows, options)
    if options.scalar_constants:
        scalar = single_value(array)
        if scalar is not None:
            return _constant(scalar, levels, rows, options)
    block = block_from_array(array)
    if isinstance(block, Struct):
        return encode_packed_page(block, array.type, levels, rows, wanted, options)
    stats = _statistics(block, symbols)
    dictionary = None
    if wanted.structural_encoding != "fullzip" or isinstance(block, Dictionary):
        permitted, scheme = options.dictionary_bits, options.dictionary_compression
        if wanted.is_balanced:
            permitted |= _BALANCED_DICTIONARY_BITS
        dictionary = choose_dictionary(block, stats, array.type, permitted, scheme, wanted)
    if dictionary is not None:
        indices = dictionary.block.indices
        page = _mini_page(indices, dictionary.indices, dictionary.items, levels, rows, options)
        if page is not None or rows > 1:
            return page
    widest = stats.longest if isinstance(stats, VariableStats) else _width(array.type)
    bare = isinstance(block, FixedList) and not widest  # only validity
    if isinstance(block, FixedList) and _lacks_items(block) and wanted.structural_encoding is None:
        nothing = FixedWidth(pa.py_buffer(b""), 0, block.count * block.dimension)
        block, bare = replace(block, items=nothing), True
    if not bare and _in_chunks(widest, options, wanted):
        encoding = _mini_encoding(block, stats, array.type, wanted, options)
        if wanted.structural_encoding is None and _is_plain(block, encoding, levels):
            return encode_full_zip_page(block, encoding, levels, rows)
        page = _mini_page(block, encoding, None, levels, rows, options)
        if page is None and wanted.minichunk_size is not None:
            # The levels exceed chunks of this size.
            wanted = replace(wanted, minichunk_size=None)
            return encode_page(array, levels, rows, options, wanted, symbols)
        if page is not None or rows > 1:
            return page
    encoding = _zip_encoding(block, stats, array.type, wanted)
    return encode_full_zip_page(block, encoding, levels, rows)


def _statistics(block: Block, symbols: PageSymbols | None) -> FixedStats | VariableStats | None:
    """Return statistics of a block of fixed or variable width; ``None`` for others."""
    if isinstance(block, Variable):
        return VariableStats.of(block, symbols)
    return FixedStats(block) if isinstance(block, FixedWidth) else None


def _lacks_items(block: FixedList) -> bool:
    """Return whether all items of the lists are null: validity then tells all of them."""
    if block.validity is None or not isinstance(block.items, FixedWidth):
        return False
    return not as_array(block.validity).any()


def _in_chunks(widest: int, options: PageOptions, wanted: EncodingOptions) -> bool:
    """Return whether values go to mini-blocks: small ones do, unless options say otherwise."""
    if wanted.structural_encoding == "miniblock":
        return widest <= (LARGE_CHUNK_VALUE if options.large_chunks else SMALL_CHUNK_VALUE)
    return widest < MINIBLOCK_MAX_VALUE and wanted.structural_encoding != "fullzip"


def _all_null(array: pa.Array, levels: Levels) -> bool:
    """Return whether all visible values, if any, are null."""
    if len(array) == 0 or array.null_count == len(array):
        return True
    return levels.definition is not None and bool(levels.definition.all())


def single_value(array: pa.Array) -> Block | None:
    """Return the value that all valid values equal, bit for bit; ``None`` if they differ."""
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return None
    first = 0
    if array.null_count:
        first = pc.index(array.is_valid(), constants([True], pa.bool_())[0]).as_py()  # a value
    bits = _as_bits(array)
    scalar, last = bits[first], bits[-1]
    if last.is_valid and not last.equals(scalar):
        return None
    step = max(1, len(bits) // _SCALAR_SAMPLE)
    sample = bits.take(number_array(np.arange(0, len(bits), step)))
    for values in (sample, bits):
        if pc.all(pc.equal(values, scalar)).as_py() is False:
            return None
    return block_from_array(array.slice(first, 1))


def _as_bits(array: pa.Array) -> pa.Array:
    """Return values that Arrow compares bit for bit: unsigned integers for floats and decimals.

    So NaN equals itself, and -0.0 differs from 0.0.
    """
    if pa.types.is_decimal(array.type):
        integers: pa.Array = unscaled(array)
        return integers
    if not pa.types.is_floating(array.type):
        return array
    return array.view({16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[array.type.bit_width])


def _constant(value: Block | None, levels: Levels, rows: int, options: PageOptions) -> EncodedPage:
    if value is None and levels.layers == (Layer.NULLABLE_ITEM,):
        return encode_constant_page(Levels(None, None, levels.layers), rows)
    rep_encoding = def_encoding = None
    if value is None and options.compressed_constant_levels:
        rep_encoding = _level_encoding(levels.rep, options)
        def_encoding = _level_encoding(levels.definition, options)
    return encode_constant_page(
        levels, rows, value, rep_encoding=rep_encoding, def_encoding=def_encoding
    )


def _level_encoding(levels: UInt16s | None, options: PageOptions) -> ValueEncoding | None:
    if levels is None or not len(levels):
        return None
    counts = np.array([len(levels)], np.int64)
    return choose_level_encoding(levels, counts, runs=options.level_runs)


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value of fixed width."""
    bits = leaf_bits(kind)
    return 0 if bits is None else (bits + 7) // 8


def _is_plain(values: Block, encoding: ValueEncoding, levels: Levels) -> bool:
    """Return whether values are stored as in memory: a full-zip page that has only values.

    Values are adjacent there. So a scan is a view of the file, and a value takes one read at a
    known position.
    """
    if levels.rep is not None or levels.definition is not None:
        return False
    return isinstance(encoding, Flat) and isinstance(values, FixedWidth) and values.bits % 8 == 0


def _mini_page(
    values: Block,
    encoding: ValueEncoding,
    dictionary: EncodedItems | None,
    levels: Levels,
    rows: int,
    options: PageOptions,
) -> EncodedPage | None:
    return encode_mini_page(
        values,
        encoding,
        levels,
        rows,
        dictionary=dictionary,
        large_chunks=options.large_chunks,
        level_runs=options.level_runs,
    )


def _mini_encoding(
    block: Block,
    stats: FixedStats | VariableStats | None,
    kind: pa.DataType,
    wanted: EncodingOptions,
    options: PageOptions,
) -> ValueEncoding:
    """Return the encoding of values in chunks."""
    if isinstance(block, FixedList):
        return FixedSizeList.for_block(block)
    if isinstance(stats, FixedStats):
        encoding = fixed_encoding(stats, wanted)
        return with_packed_runs(stats.block, encoding) if options.packed_runs else encoding
    if stats is None:
        raise SchemaError(f"values of type {kind} cannot be written yet")
    return mini_text_encoding(stats, kind, wanted)


def _zip_encoding(
    block: Block,
    stats: FixedStats | VariableStats | None,
    kind: pa.DataType,
    wanted: EncodingOptions,
) -> ValueEncoding:
    """Return the encoding of values in full-zip pages."""
    if isinstance(block, FixedList):
        return FixedSizeList.for_block(block)
    if isinstance(stats, FixedStats):
        return Flat(max(stats.block.bits, 8))
    if stats is None:
        raise SchemaError(f"values of type {kind} cannot be written yet")
    return zip_text_encoding(stats, kind, wanted)


# --- The number of pages of an array, where each page would repeat a dictionary ---------
#
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

    Cost: samples some thousand values of each leaf if ``wanted`` is larger than 1.
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
    """Yield arrays of values, which may include values of null lists and structs."""
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
    """Return the position of the first item, and the number of items of all lists."""
    if not len(array):
        return 0, 0
    first = array.offsets[0].as_py()
    return first, array.offsets[len(array)].as_py() - first


def _dictionary_bytes(leaf: Any) -> tuple[int, int]:
    """Estimate the bytes of a dictionary's items and of its indices; zeros for other arrays."""
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
