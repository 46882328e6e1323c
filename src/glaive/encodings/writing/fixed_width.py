"""Choose the encoding of values of a fixed width in a mini-block page.

The smallest by estimate wins, and among equals the one that is cheaper to decode. Where
general compression is requested, the candidates are tried on a sample of the values.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.options import EncodingOptions
from glaive.encodings.protocol import EncodedChunks, ValueEncoding
from glaive.encodings.registry import value_encodings
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.bitpack_out_of_line import OutOfLineBitpacking
from glaive.encodings.values.byte_stream_split import ByteStreamSplit
from glaive.encodings.values.flat import COMPRESSED_CHUNK_BYTES, Flat
from glaive.encodings.values.general import General
from glaive.encodings.values.nested_runs import NestedRuns
from glaive.encodings.values.rle import RunLength
from glaive.encodings.writing.fixed_stats import FixedStats
from glaive.kernels.bitpack import out_of_line_sizes
from glaive.memory import as_array

__all__ = ["GENERAL_MIN_BUFFER", "estimate", "fixed_encoding", "with_packed_runs"]

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
