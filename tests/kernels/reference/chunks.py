"""NumPy references of ``glaive.kernels.chunks``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import check_within
from glaive.kernels.chunks import FILL, ChunkHeaders, header_size
from glaive.types import Int64s, UInt8s, Where, allocate, as_array


def parse_headers(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    *,
    level_buffers: int,
    value_buffers: int,
    value_width: int,
    where: Where,
) -> ChunkHeaders:
    """Find the buffers of each chunk; all of them lie within their chunk."""
    chunks, buffers = len(starts), level_buffers + value_buffers
    check_within("mini-block chunks", starts, sizes, data.size, where)
    memory = as_array(allocate(8 * chunks * (1 + 2 * buffers)), np.int64)
    levels = memory[:chunks]
    buffer_starts = memory[chunks : chunks * (1 + buffers)].reshape(buffers, chunks)
    buffer_sizes = memory[chunks * (1 + buffers) :].reshape(buffers, chunks)
    bad = _parse_headers_numpy(
        as_array(data),
        starts,
        sizes,
        (level_buffers, value_width),
        ChunkHeaders(levels, buffer_starts, buffer_sizes),
    )
    if bad >= 0:
        raise CorruptFileError(
            "mini-block chunk header",
            expected=f"a header and {buffers} buffers within {sizes[bad]} bytes",
            found="sizes that add up to more",
            where=f"{where}, chunk at byte {starts[bad]}",
        )
    return ChunkHeaders(levels, buffer_starts, buffer_sizes)


def _parse_headers_numpy(
    data: UInt8s, starts: Int64s, sizes: Int64s, layout: tuple[int, int], out: ChunkHeaders
) -> int:
    level_buffers, value_width = layout
    buffers = len(out.starts)
    head = header_size(level_buffers, buffers - level_buffers, value_width)
    short = sizes < head
    if short.any():
        return int(np.argmax(short))
    raw = data[starts[:, None] + np.arange(head)]
    out.levels[:] = raw[:, :2].copy().view("<u2")[:, 0]
    position = np.full(len(starts), (head + 7) & ~7)
    over = np.zeros(len(starts), np.bool_)
    at = 2
    for buffer in range(buffers):
        width = 2 if buffer < level_buffers else value_width
        size = raw[:, at : at + width].copy().view(f"<u{width}")[:, 0].astype(np.int64)
        over |= position + size > sizes
        out.starts[buffer] = starts + position
        out.sizes[buffer] = size
        position += (size + 7) & ~7
        at += width
    return int(np.argmax(over)) if over.any() else -1


def assemble_chunks(
    levels: Int64s,
    level_buffers: list[tuple[UInt8s, Int64s]],
    value_buffers: list[tuple[UInt8s, Int64s]],
    *,
    value_width: int,
) -> tuple[pa.Buffer, Int64s]:
    """Build the chunks from their buffers; return their bytes and the size of each."""
    parts = [*level_buffers, *value_buffers]
    chunks = len(levels)
    sizes = np.empty((len(parts), chunks), np.int64)
    for number, (data, buffer_sizes) in enumerate(parts):
        limit = 1 << (16 if number < len(level_buffers) else 8 * value_width)
        fits = int(buffer_sizes.sum()) == len(data) and not (buffer_sizes >= limit).any()
        if len(buffer_sizes) != chunks or not fits or (buffer_sizes < 0).any():
            raise ValueError(
                f"buffer {number} has {len(data)} bytes, its sizes add up to {buffer_sizes.sum()} "
                f"over {len(buffer_sizes)} of {chunks} chunks, the largest {buffer_sizes.max()}"
            )
        sizes[number] = buffer_sizes
    head = header_size(len(level_buffers), len(value_buffers), value_width)
    chunk_sizes = ((head + 7) & ~7) + ((sizes + 7) & ~7).sum(0, dtype=np.int64)
    starts = np.cumsum(chunk_sizes) - chunk_sizes
    out = allocate(int(chunk_sizes.sum()))
    # No byte past the last level or value is copied.
    sources = [np.ascontiguousarray(data) for data, _ in parts]
    _assemble_numpy(
        as_array(out), starts, levels, sources, sizes, (len(level_buffers), value_width)
    )
    return out, chunk_sizes


def _assemble_numpy(
    out: UInt8s,
    starts: Int64s,
    levels: Int64s,
    sources: list[UInt8s],
    sizes: Int64s,
    layout: tuple[int, int],
) -> None:
    level_buffers, value_width = layout
    out[:] = FILL
    fields = [levels.astype("<u2")[:, None].view(np.uint8)]
    for buffer, size in enumerate(sizes):
        width = 2 if buffer < level_buffers else value_width
        fields.append(size.astype(f"<u{width}")[:, None].view(np.uint8))
    header = np.concatenate(fields, axis=1)
    out[starts[:, None] + np.arange(header.shape[1])] = header
    position = starts + ((header.shape[1] + 7) & ~7)
    for source, size in zip(sources, sizes, strict=True):
        # One flag per byte of the output: set for the bytes of this buffer in each chunk.
        edges = np.empty(2 * len(starts) + 1, np.int64)
        edges[0:-1:2], edges[1::2], edges[-1] = position, position + size, len(out)
        lengths = np.diff(edges, prepend=0)
        flags = np.zeros(len(lengths), np.bool_)
        flags[1::2] = True
        out[np.repeat(flags, lengths)] = source
        position = position + ((size + 7) & ~7)
