"""Choose the encoding of strings and binary, in mini-blocks and in full-zip pages.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Variable
from glaive.encodings.options import EncodingOptions
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.fsst import MIN_BYTES, Fsst
from glaive.encodings.values.general import General
from glaive.encodings.values.variable import Variable as Plain
from glaive.encodings.writing.fixed_width import GENERAL_MIN_BUFFER
from glaive.encodings.writing.string_stats import VariableStats
from glaive.kernels.strings import CHUNK_BYTES
from glaive.memory import as_array

__all__ = ["encoded_bytes", "mini_text_encoding", "zip_text_encoding"]

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
