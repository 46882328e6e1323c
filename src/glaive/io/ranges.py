"""Byte ranges: coalesce near ones into few requests, and split the responses again.

Pure functions; nothing here reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.types import ByteRange

_ALIGNMENT = 64

MAX_GAP = 64 * 1024
"""Bytes between two ranges up to which one request for both is cheaper than two."""

MAX_REQUEST = 16 * 1024 * 1024
"""Bytes after which joining stops, so that large reads run concurrently."""


@dataclass(frozen=True, slots=True)
class Coalesced:
    """Requests to make, and for each range the request that covers it.

    ``source[i]`` is the index in ``requests`` for range ``i``; -1 for an empty range.
    """

    requests: list[ByteRange]
    source: list[int]

    @property
    def size(self) -> int:
        """Bytes fetched, gaps included."""
        return sum(request.size for request in self.requests)


def coalesce(
    ranges: Sequence[ByteRange], *, max_gap: int = MAX_GAP, max_request: int = MAX_REQUEST
) -> Coalesced:
    """Join ranges that overlap or lie at most ``max_gap`` bytes apart.

    Overlapping ranges are always joined; otherwise a request ends when it would exceed
    ``max_request`` bytes. A single range is never cut. Order of ``ranges`` does not matter.
    """
    requests: list[ByteRange] = []
    source = [-1] * len(ranges)
    start = end = -1
    for i in sorted(range(len(ranges)), key=lambda i: ranges[i].offset):
        offset, size = ranges[i]
        if size == 0:
            continue
        near = end >= 0 and offset <= end + max_gap
        if near and (offset < end or offset + size - start <= max_request):
            end = max(end, offset + size)
            requests[-1] = ByteRange(start, end - start)
        else:
            start, end = offset, offset + size
            requests.append(ByteRange(start, size))
        source[i] = len(requests) - 1
    return Coalesced(requests, source)


def split(
    ranges: Sequence[ByteRange], coalesced: Coalesced, responses: Sequence[pa.Buffer]
) -> list[pa.Buffer]:
    """Split the responses to ``coalesced.requests`` into one buffer per range, without a copy."""
    empty = pa.py_buffer(b"")
    buffers: list[pa.Buffer] = []
    for (offset, size), at in zip(ranges, coalesced.source, strict=True):
        if at < 0:
            buffers.append(empty)
            continue
        buffers.append(responses[at].slice(offset - coalesced.requests[at].offset, size))
    return buffers


def aligned(data: Any, offset: int) -> pa.Buffer:
    """Wrap a response so that its address is aligned as ``offset`` is in the object.

    Copies only if the alignment differs.
    """
    buffer = pa.py_buffer(data)
    phase = offset % _ALIGNMENT
    if buffer.size == 0 or buffer.address % _ALIGNMENT == phase:
        return buffer
    memory, target = aligned_memory(buffer.size, offset)
    target[:] = memoryview(buffer)
    return memory


def aligned_memory(size: int, offset: int) -> tuple[pa.Buffer, memoryview]:
    """Allocate memory whose address is aligned as ``offset`` is in the object, and open it."""
    memory = pa.allocate_buffer(size + _ALIGNMENT)
    start = (offset - memory.address) % _ALIGNMENT
    return memory.slice(start, size), memoryview(memory)[start : start + size]
