"""Buffers compressed one by one with zstd or lz4, in the framings of the format.

====== ==========================================================================
scheme framing
====== ==========================================================================
zstd   ``u64`` uncompressed size, zstd frame; or a zstd frame alone (read only)
lz4    ``u32`` uncompressed size, lz4 block without a frame
====== ==========================================================================

Sizes from disk determine what is allocated, so they are first checked against the best ratio
of the scheme. That is 255 bytes from one for lz4, 128 KiB from a 4-byte block for zstd. Sizes over
64 times their source are also checked against ``max_decoded_bytes_per_page`` of the settings,
since honest data can reach the best ratio, too. A zstd frame that states its own size must
agree with the size in front of it.

Specification: "General compression" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from glaive.config import USUAL_RATIO, settings
from glaive.errors import CorruptFileError, LimitError
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.strings import zip_offsets
from glaive.types import Int64s, Where, allocate, as_array

Scheme = Literal["zstd", "lz4"]

_PREFIX = {"zstd": 8, "lz4": 4}
_CODEC: dict[Scheme, Literal["zstd", "lz4_raw"]] = {"zstd": "zstd", "lz4": "lz4_raw"}
_BEST_RATIO = {"zstd": (32_768, 131_072), "lz4": (255, 64)}  # factor, and bytes on top
_ZSTD_MAGIC = 0xFD2FB528
_MAX_HEADER_BYTES = 18  # bytes of the longest frame header
_ZSTD_LEVEL = 3  # the default of zstd; Arrow's is 1
_MAX_STREAMED_BYTES = 131_072  # at this uncompressed size one call per frame beats one stream


def decompress(
    scheme: Scheme, data: pa.Buffer, starts: Int64s, sizes: Int64s, where: Where
) -> tuple[pa.Buffer, Int64s]:
    """Decompress ``data[starts[i] : starts[i] + sizes[i]]`` for every i.

    Buffers of 0 bytes, such as nulls of a full-zip page, stay empty. The caller has
    checked that the ranges lie within ``data``.

    Returns
    -------
    tuple
        All results back to back, and the size in bytes of each.

    Raises
    ------
    CorruptFileError
        A buffer decompresses to another size than it claims, or claims more than its scheme can
        reach.
    LimitError
        All of them are larger than ``max_decoded_bytes_per_page``, and than ``USUAL_RATIO`` times
        the compressed ones.
    """
    filled = sizes > 0
    if np.count_nonzero(filled) < len(filled):
        out_sizes = np.zeros(len(sizes), np.int64)
        out, out_sizes[filled] = decompress(scheme, data, starts[filled], sizes[filled], where)
        return out, out_sizes
    if scheme == "lz4":
        _check_prefix(sizes, 4, where)
        claimed, starts, sizes = _words(data, starts, "<u4"), starts + 4, sizes - 4
    else:
        claimed, starts, sizes = _zstd_sizes(data, starts, sizes, where)
    factor, more = _BEST_RATIO[scheme]
    absurd = (claimed < 0) | (claimed > factor * sizes + more)
    if np.count_nonzero(absurd):
        at = int(np.argmax(absurd))
        raise CorruptFileError(
            "uncompressed size",
            expected=f"at most {factor * int(sizes[at]) + more} bytes",
            found=f"{int(claimed[at])} bytes out of {int(sizes[at])}",
            where=where,
        )
    check_decoded(sum(claimed.tolist()), int(sizes.sum()), where)
    try:
        if scheme == "zstd" and len(starts) > 1 and claimed.mean() < _MAX_STREAMED_BYTES:
            return _stream(data, starts, sizes, int(claimed.sum()), where), claimed
        if scheme == "lz4":
            _check_blocks(data, starts, sizes, claimed, where)
        return _one_by_one(scheme, data, starts, sizes, claimed), claimed
    except OSError as error:
        raise CorruptFileError(
            f"{scheme} data", expected="valid data", found=str(error), where=where
        ) from error


def _zstd_sizes(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, where: Where
) -> tuple[Int64s, Int64s, Int64s]:
    """Return claimed size, start and size of every frame."""
    _check_prefix(sizes, 8, where)
    framed = _words(data, starts, "<u4") != _ZSTD_MAGIC
    prefix = np.where(framed, 8, 0)
    starts, sizes = starts + prefix, sizes - prefix
    _check_prefix(sizes, 8, where)
    if (_words(data, starts, "<u4") != _ZSTD_MAGIC).any():
        raise CorruptFileError(
            "zstd data", expected="a zstd frame", found="other bytes", where=where
        )
    own = _content_sizes(data, starts)
    claimed = np.where(framed, _words(data, starts - prefix, "<i8"), own)
    if (claimed[~framed] < 0).any():
        left = settings.max_decoded_bytes_per_page
        for at in (~framed & (claimed < 0)).nonzero()[0].tolist():
            size = int(sizes[at])
            claimed[at] = _measure(
                data, int(starts[at]), size, max(left, USUAL_RATIO * size), where
            )
            left = max(0, left - int(claimed[at]))
    differs = (own >= 0) & (own != claimed)
    if differs.any():
        at = int(np.argmax(differs))
        raise CorruptFileError(
            "uncompressed size",
            expected=f"{int(own[at])} bytes as in the zstd frame",
            found=f"{int(claimed[at])} bytes",
            where=where,
        )
    return claimed, starts, sizes


def _content_sizes(data: pa.Buffer, starts: Int64s) -> Int64s:
    """Return the uncompressed size that each zstd frame states, -1 where it is missing."""
    raw = as_array(data)
    at = np.minimum(starts[:, None] + np.arange(_MAX_HEADER_BYTES), len(raw) - 1)
    head = raw[at].astype(np.int64)
    descriptor = head[:, 4]
    single = (descriptor >> 5) & 1
    size_code = descriptor >> 6
    first = 6 - single + np.array([0, 1, 2, 4])[descriptor & 3]
    width = np.where(size_code == 0, single, np.left_shift(1, size_code))
    size = np.zeros(len(starts), np.int64)
    lines = np.arange(len(starts))
    for byte in range(8):
        size |= np.where(byte < width, head[lines, first + byte] << (8 * byte), 0)
    size[size_code == 1] += 256
    return np.where(width == 0, -1, size)


def _measure(data: pa.Buffer, start: int, size: int, left: int, where: Where) -> int:
    """Count the bytes that a frame of unknown size decompresses to, 1 MiB at a time.

    Stops soon after ``left`` bytes.
    """
    factor, more = _BEST_RATIO["zstd"]
    limit = min(factor * size + more, left)
    total = 0
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(data.slice(start, size)), "zstd")
        while total <= limit and (part := len(stream.read(1 << 20))):
            total += part
    except OSError as error:
        raise CorruptFileError(
            "zstd data", expected="valid data", found=str(error), where=where
        ) from error
    return total


def check_decoded(total: int, stored: int, where: object) -> None:
    """Check what ``stored`` bytes of a file decode to against the limit of a page.

    Raises
    ------
    LimitError
        It is more than ``max_decoded_bytes_per_page``, and than ``USUAL_RATIO`` times the bytes.
    """
    limit = settings.max_decoded_bytes_per_page
    if total > limit and total > USUAL_RATIO * stored:
        raise LimitError(
            f"data of {where} would decode to {total} bytes or more; at most {limit} are "
            "allowed. If the file is trusted, allow more: set GLAIVE_MAX_DECODED_BYTES_PER_PAGE."
        )


def _check_prefix(sizes: Int64s, minimum: int, where: Where) -> None:
    if len(sizes) and int(sizes.min()) < minimum:
        raise CorruptFileError(
            "compressed data",
            expected=f"at least {minimum} bytes",
            found=f"{int(sizes.min())} bytes",
            where=where,
        )


def _words(data: pa.Buffer, starts: Int64s, dtype: str) -> Int64s:
    at = starts[:, None] + np.arange(np.dtype(dtype).itemsize)
    words: Int64s = as_array(data)[at].view(dtype).reshape(-1).astype(np.int64)
    return words


def _check_blocks(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, claimed: Int64s, where: Where
) -> None:
    """Check that all bytes of blocks of lz4 come from the file: Arrow accepts others."""
    from glaive.kernels.flat import lz4_sizes

    found = lz4_sizes(data, starts, sizes, claimed, where)
    if np.count_nonzero(found != claimed):
        at = int(np.argmax(found != claimed))
        raise CorruptFileError(
            "lz4 data",
            expected=f"a block of {int(claimed[at])} bytes",
            found="other bytes" if found[at] < 0 else f"one of {int(found[at])}",
            where=where,
        )


def _stream(data: pa.Buffer, starts: Int64s, sizes: Int64s, total: int, where: Where) -> pa.Buffer:
    """Decompress all frames as one stream: a tenth of the cost of a call per short frame."""
    frames = gather_ranges(data, starts, sizes, where)
    stream = pa.CompressedInputStream(pa.BufferReader(frames), "zstd")
    out = stream.read_buffer(total)
    if out.size != total or stream.read(1):
        raise CorruptFileError(
            "zstd data",
            expected=f"{total} bytes",
            found="more" if out.size == total else f"{out.size} bytes",
            where=where,
        )
    return out


def _one_by_one(
    scheme: Scheme, data: pa.Buffer, starts: Int64s, sizes: Int64s, claimed: Int64s
) -> pa.Buffer:
    """Decompress with a call per buffer, the only way that Arrow offers for lz4 blocks."""
    codec = pa.Codec(_CODEC[scheme])
    if len(starts) == 1:
        return codec.decompress(data.slice(int(starts[0]), int(sizes[0])), int(claimed[0]))
    out = allocate(int(claimed.sum()))
    target, at = as_array(out), 0
    for start, size, length in zip(starts.tolist(), sizes.tolist(), claimed.tolist(), strict=True):
        # Copied at once, while it is in the processor's cache, so that its memory is reused.
        part = codec.decompress(data.slice(start, size), length)
        target[at : at + length] = as_array(part)
        at += length
    return out


def compress(
    scheme: Scheme,
    level: int | None,
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    heads: Int64s | None = None,
) -> tuple[pa.Buffer, Int64s]:
    """Compress ``data[starts[i] : starts[i] + sizes[i]]`` for every i, after its size.

    Parameters
    ----------
    heads
        Bytes of offsets of 32 bits at the start of each buffer. They get a frame of zstd of their
        own, before the frame of the other bytes.

    Returns
    -------
    tuple
        All results back to back, and the size in bytes of each. Costs a call per buffer.
    """
    if scheme == "zstd":
        codec = pa.Codec("zstd", compression_level=_ZSTD_LEVEL if level is None else level)
    else:
        codec = pa.Codec(_CODEC[scheme])
    width = _PREFIX[scheme]
    parts: list[bytes] = []
    if heads is None:
        heads = lengths = np.zeros(len(sizes), np.int64)
        frames = b""
    else:
        frames, lengths = zip_offsets(data, starts, heads // 4)
    out_sizes, at = width + lengths, 0
    for i, (start, size, head, length) in enumerate(
        zip(starts.tolist(), sizes.tolist(), heads.tolist(), lengths.tolist(), strict=True)
    ):
        packed = codec.compress(data.slice(start + head, size - head), asbytes=True)
        parts += (size.to_bytes(width, "little"), frames[at : at + length], packed)
        at += length
        out_sizes[i] += len(packed)
    return pa.py_buffer(b"".join(parts)), out_sizes


def compress_strings(
    level: int | None, data: pa.Buffer, sizes: Int64s, heads: Int64s
) -> tuple[pa.Buffer, Int64s]:
    """Compress adjacent chunks with zstd, in two frames each if this is smaller for one of them.

    Parameters
    ----------
    heads
        Bytes of offsets of 32 bits at the start of each chunk.
    """
    starts, one = sizes.cumsum() - sizes, slice(len(sizes) // 2, len(sizes) // 2 + 1)
    whole, apart = (
        compress("zstd", level, data, starts[one], sizes[one], each)[1].sum()
        for each in (None, heads[one])
    )
    return compress("zstd", level, data, starts, sizes, heads if apart < whole else None)
