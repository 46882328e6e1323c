"""Write aligned buffers: the data buffers of a Lance file begin on 64-byte offsets."""

from __future__ import annotations

from collections.abc import Sequence

from glaive.io.store import BytesLike, Sink
from glaive.types import ByteRange

__all__ = ["ALIGNMENT", "FLUSH_BYTES", "PAD", "AlignedSink"]

ALIGNMENT = 64
"""Bytes; buffers begin on multiples of it."""

PAD = b"\x48"
"""The byte between buffers."""

_PADDING = PAD * ALIGNMENT

FLUSH_BYTES = 4 * 1024 * 1024
"""Bytes that are collected before they are passed to the inner sink with one call."""


class AlignedSink:
    """A sink that aligns buffers and writes many with one call.

    Padding is written before a buffer, not after it: the last buffer is followed by unaligned
    data. Buffers are kept until some MiB are collected, so their memory must not change after
    they were passed.
    """

    __slots__ = ("_pending", "_position", "_sink", "_waiting")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._position = sink.position
        self._pending: list[BytesLike] = []
        self._waiting = 0

    @property
    def position(self) -> int:
        """Bytes written so far, including those still kept."""
        return self._position

    def pad(self) -> int:
        """Write padding up to the next multiple of 64; returns the position then."""
        gap = -self._position % ALIGNMENT
        if gap:
            self._put(_PADDING[:gap], gap)
        return self._position

    def write(self, data: Sequence[BytesLike]) -> ByteRange:
        """Append parts without padding; returns their range."""
        start = self._position
        for part in data:
            self._put(part, memoryview(part).nbytes)
        self._flush_some()
        return ByteRange(start, self._position - start)

    def write_aligned(
        self, buffers: Sequence[BytesLike | tuple[BytesLike, ...]]
    ) -> list[ByteRange]:
        """Append buffers, each on a 64-byte offset; returns their ranges.

        A tuple has the parts of a buffer, which lie back to back.
        """
        ranges: list[ByteRange] = []
        for buffer in buffers:
            position = self.pad()
            if isinstance(buffer, bytes):
                self._put(buffer, len(buffer))
            else:
                for part in buffer if isinstance(buffer, tuple) else (buffer,):
                    self._put(part, memoryview(part).nbytes)
            ranges.append(ByteRange(position, self._position - position))
        self._flush_some()
        return ranges

    def finish(self) -> int:
        """Make the object visible; returns its size in bytes."""
        self._flush()
        return self._sink.finish()

    def abort(self) -> None:
        """Leave nothing behind."""
        self._pending, self._waiting = [], 0
        self._sink.abort()

    def _put(self, part: BytesLike, size: int) -> None:
        if size:
            self._pending.append(part)
            self._position += size
            self._waiting += size

    def _flush_some(self) -> None:
        if self._waiting >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            pending, self._pending, self._waiting = self._pending, [], 0
            self._sink.write(pending)
