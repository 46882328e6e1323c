"""Pick the encoding of values of a fixed width in a mini-block page.

The smallest by estimate wins, and among equals the one that is cheaper to decode. Where
general compression is asked for, the candidates are tried on a stretch of the values.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.options import EncodingOptions
from glaive.encodings.protocol import EncodedChunks, ValueEncoding
from glaive.encodings.registry import value_encodings
from glaive.encodings.values.byte_stream_split import ByteStreamSplit
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.general import General
from glaive.encodings.values.rle import RunLength
from glaive.encodings.writing.fixed_stats import FixedStats

__all__ = ["GENERAL_MIN_BUFFER", "estimate", "fixed_encoding"]

MIN_GAIN = 0.02
"""Share of the bytes that a costlier encoding must save over plain ones: those are read
without a copy."""

GENERAL_MIN_BUFFER = 4096
"""Bytes of all chunks' first buffers below which general compression is not tried."""

BSS_MAX_ENTROPY = 4.0
"""Bits of entropy per byte, on average, up to which values are alike enough to be split."""

_SPLIT_BITS = (32, 64)
_TRIED = 32_768
"""Values that candidates are tried on; pages of up to twice as many are tried whole."""


def fixed_encoding(stats: FixedStats, wanted: EncodingOptions) -> ValueEncoding:
    """Pick the encoding that makes the values of ``stats`` smallest, as far as it may."""
    if wanted.compression == "none":
        return Flat(stats.block.bits)
    cheapest = estimate(stats, wanted)[1]
    scheme = wanted.scheme
    if scheme is None:
        return cheapest
    bits, level = stats.block.bits, wanted.compression_level
    split = ByteStreamSplit(bits) if bits in _SPLIT_BITS and wanted.bss != "off" else None
    if split is not None and wanted.bss == "on":
        return _smallest(stats, split, [General(scheme, split, level)])
    others = [General(scheme, cheapest, level)]
    if not isinstance(cheapest, Flat):
        others.append(General(scheme, Flat(bits), level))
    if split is not None and stats.byte_entropy < BSS_MAX_ENTROPY:
        others.append(General(scheme, split, level))
    return _smallest(stats, cheapest, others)


def _smallest(stats: FixedStats, plain: ValueEncoding, others: list[General]) -> ValueEncoding:
    """Of ``plain`` and the others the one with the fewest bytes, the first one of equals."""
    block = stats.block
    tried = _stretch(block)
    chunks = plain.encode_mini(tried)
    if int(chunks.sizes[0].sum()) * block.count < GENERAL_MIN_BUFFER * tried.count:
        return plain
    best, least = plain, _bytes(stats, chunks)
    for other in others:
        size = _bytes(stats, other.encode_mini(tried))
        if size < least:
            best, least = other, size
    return best


def _bytes(stats: FixedStats, chunks: EncodedChunks) -> int:
    return sum(int(part.sum()) for part in chunks.sizes) + stats.overhead(len(chunks.counts))


def estimate(stats: FixedStats, wanted: EncodingOptions) -> tuple[int, ValueEncoding]:
    """The encoding with the fewest estimated bytes, before general compression.

    Plain ones are preferred while nothing gains enough over them.
    """
    plain = stats.raw_bytes + stats.overhead(1)
    best: tuple[int, ValueEncoding] | None = None
    for encoding in value_encodings().values():
        found = encoding.propose(stats)
        if found is None:
            continue
        if not isinstance(found[1], Flat) and found[0] > plain * (1 - MIN_GAIN):
            continue
        if isinstance(found[1], RunLength) and wanted.rle_threshold is not None:
            runs = 0 if stats.runs is None else int(stats.runs.pairs.sum())
            if runs >= wanted.rle_threshold * stats.block.count:
                continue
        if best is None or found[0] < best[0]:
            best = found
    return best if best is not None else (plain, Flat(stats.block.bits))


def _stretch(block: FixedWidth) -> FixedWidth:
    """Some consecutive values from the middle, or all when they are few."""
    if block.count <= 2 * _TRIED:
        return block
    first = (block.count - _TRIED) // 16 * 8  # whole bytes for single bits, too
    values = block.values.slice(first * block.bits // 8, _TRIED * block.bits // 8)
    return FixedWidth(values, block.bits, _TRIED)
