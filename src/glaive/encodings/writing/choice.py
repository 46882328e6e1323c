"""Choose the encoding of values of a fixed width in a mini-block page.

The smallest by estimate wins, and among equals the one that is cheaper to decode. Where
general compression is requested, the candidates are tried on a sample of the values.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, FixedWidth, Variable
from glaive.dataclass import dataclass
from glaive.encodings.compression import Scheme
from glaive.encodings.options import EncodingOptions
from glaive.encodings.protocol import EncodedChunks, ValueEncoding
from glaive.encodings.registry import value_encodings
from glaive.encodings.values.bitpack import InlineBitpacking, OutOfLineBitpacking
from glaive.encodings.values.flat import COMPRESSED_CHUNK_BYTES, ByteStreamSplit, Flat
from glaive.encodings.values.fsst import MIN_BYTES, Fsst
from glaive.encodings.values.general import General
from glaive.encodings.values.rle import NestedRuns, RunLength
from glaive.encodings.values.variable import Variable as Plain
from glaive.encodings.writing.fixed_stats import WORD_BITS, FixedStats
from glaive.encodings.writing.string_stats import VariableStats, build_dictionary, dictionary_bytes
from glaive.errors import SchemaError
from glaive.kernels._bitpack import BLOCK, out_of_line_sizes
from glaive.kernels.strings import CHUNK_BYTES
from glaive.types import as_array

MIN_GAIN = 0.02
"""Share of the bytes that an encoding must save over plain values, which are read without a
copy."""

GENERAL_MIN_BUFFER = 4096
"""With fewer bytes in the first buffers of all chunks, general compression is not tried."""

_MIN_PACKED_RUNS_GAIN = 0.03
"""Share of the bytes of all runs that packing must save: reading packed runs takes longer."""

BSS_MAX_ENTROPY = 4.0
"""Values with more bits of entropy per byte, on average, are too different to be split."""

_MIN_WIDE_GAIN = 0.5
"""Share of the bytes that compression must save where nobody asked for it: plain values are read
without a copy."""

_MIN_BALANCED_GAIN = 0.5
"""Share of the bytes of packed values or runs that zstd must save with the option ``balanced``."""

_BALANCED_SAMPLE = 8_192
"""Values that this is tried on."""

_WIDEST_PACKED = 64
"""Bits of the widest values that packing, runs and differences take."""

_SPLIT_BITS = (32, 64)
_SAMPLE = 32_768
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
            return _wide(stats, cheapest) if stats.block.bits > _WIDEST_PACKED else cheapest
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
    """Zstandard for values that no other encoding takes, if it saves enough; else plain ones.

    Decimals are 16 bytes of which few differ. Identifiers of this width do not compress.
    """
    tried = _sample(stats.block)
    general = General("zstd", Flat(plain.bits, COMPRESSED_CHUNK_BYTES))
    size = _bytes(stats, general.encode_mini(tried))
    enough = size <= len(tried.values) * (1 - _MIN_WIDE_GAIN)
    return general if enough and stats.raw_bytes >= GENERAL_MIN_BUFFER else plain


def _balanced(stats: FixedStats, encoding: ValueEncoding, level: int | None) -> ValueEncoding:
    """Zstandard around packed values or runs, if it saves enough; else these alone."""
    if not isinstance(encoding, (InlineBitpacking, RunLength)):
        return encoding
    chunks = encoding.encode_mini(_sample(stats.block, _BALANCED_SAMPLE))
    general = General("zstd", encoding, level)
    size = _bytes(stats, general.compressed(chunks))
    enough = size <= _bytes(stats, chunks) * (1 - _MIN_BALANCED_GAIN)
    return general if enough and stats.raw_bytes >= GENERAL_MIN_BUFFER else encoding


def _smallest(stats: FixedStats, plain: ValueEncoding, candidates: list[General]) -> ValueEncoding:
    """The encoding with the fewest bytes among ``plain`` and the candidates; ties: the first."""
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
    """The encoding with the fewest estimated bytes, before general compression.

    Flat is preferred unless another encoding saves enough.
    """
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
    return best if best is not None else (plain, Flat(stats.block.bits))


def _sample(block: FixedWidth, most: int = _SAMPLE) -> FixedWidth:
    """Some consecutive values from the middle, or all when they are few."""
    if block.count <= 2 * most:
        return block
    first = (block.count - most) // 16 * 8  # whole bytes for single bits, too
    values = block.values.slice(first * block.bits // 8, most * block.bits // 8)
    return FixedWidth(values, block.bits, most)


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
# Specification: "What writers choose" in ``docs/format/encodings.md``.

GENERAL_MIN_VALUE = 32_768
"""Bytes; pages with longer values than this may be compressed value by value."""

ZSTD_MAX_SHARE = 0.9
"""Without options zstd is used only if it leaves less than this share of the bytes."""

_BALANCED_CHUNK_BYTES = 8_192
"""Bytes of chunks that are compressed with the option ``balanced``: half as many as of the usual
size take a third less time, and a value in them hardly more."""

_MAX_BALANCED_SHARE = 0.9
"""What zstd may leave of encoded chunks at most, with the option ``balanced``."""

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
        packed = General("zstd", encoding, wanted.compression_level)
        if _gains(stats, encoding, packed, _MAX_BALANCED_SHARE):
            return packed
    return _fsst_or_plain(stats, kind, plain, wanted)


def zip_text_encoding(
    stats: VariableStats, kind: pa.DataType, wanted: EncodingOptions
) -> ValueEncoding:
    """Choose the encoding of values in full-zip pages.

    General compression is always zstd there: pylance cannot read lz4 in pages with nulls.
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
    """FSST where it is requested, or where nothing is and it gains; else plain."""
    if wanted.compression == "none":
        return plain
    if wanted.compression == "fsst":
        return Fsst.trained(stats, plain)
    proposal = _symbols(stats, kind)
    return plain if proposal is None else replace(proposal[1], values=plain)


def encoded_bytes(stats: VariableStats, kind: pa.DataType, wanted: EncodingOptions) -> int:
    """Estimate the bytes of the values without a dictionary, before general compression."""
    proposal = _symbols(stats, kind) if wanted.compression != "none" else None
    return stats.plain_bytes if proposal is None else proposal[0]


def _symbols(stats: VariableStats, kind: pa.DataType) -> tuple[int, Fsst] | None:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return Fsst.propose(stats) if is_text else None


def _gains(stats: VariableStats, plain: ValueEncoding, packed: General, most: float = 1.0) -> bool:
    """Whether compression leaves less than a share of chunks from the middle of the values."""
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
    return int(left.sizes[0].sum()) < most * int(chunks.sizes[0].sum())


def _zstd_share(block: Variable) -> float:
    """The share of bytes that zstd leaves of a few values; images and audio are compressed."""
    offsets = as_array(block.offsets, f"<i{block.offset_bits // 8}")[: block.count + 1]
    # Evenly spaced by bytes: many values may be nulls without any.
    first, last = int(offsets[0]), int(offsets[-1])
    positions = first + (2 * np.arange(_TRIED_VALUES) + 1) * (last - first) // (2 * _TRIED_VALUES)
    tried = np.unique(np.searchsorted(offsets, positions, side="right") - 1)
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
# Specification: "What writers choose" in ``docs/format/encodings.md``.

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
