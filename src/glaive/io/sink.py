"""Writing aligned pieces: the data buffers of a Lance file begin on 64-byte offsets."""

from __future__ import annotations

from collections.abc import Sequence

from glaive.io.store import BytesLike, Sink
from glaive.types import ByteRange

__all__ = ["ALIGNMENT", "PAD", "AlignedSink"]

ALIGNMENT = 64
"""Bytes; buffers begin on multiples of it."""

PAD = b"\x48"
"""What fills the gap between buffers."""

_PADDING = PAD * ALIGNMENT


class AlignedSink:
    """A sink that knows where each buffer begins.

    Padding is written before a buffer, not after it: the last buffer is followed by
    whatever comes next, unaligned.
    """

    __slots__ = ("_sink",)

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return self._sink.position

    def pad(self) -> int:
        """Write padding up to the next multiple of 64; returns the position then."""
        gap = -self._sink.position % ALIGNMENT
        if gap:
            self._sink.write([_PADDING[:gap]])
        return self._sink.position

    def write(self, data: Sequence[BytesLike]) -> ByteRange:
        """Append pieces as they are; returns where they lie."""
        start = self._sink.position
        self._sink.write(data)
        return ByteRange(start, self._sink.position - start)

    def write_aligned(self, buffers: Sequence[BytesLike]) -> list[ByteRange]:
        """Append buffers, each on a 64-byte offset, with one call to the sink below."""
        position = self._sink.position
        pieces: list[BytesLike] = []
        places: list[ByteRange] = []
        for buffer in buffers:
            gap = -position % ALIGNMENT
            if gap:
                pieces.append(_PADDING[:gap])
            size = memoryview(buffer).nbytes
            places.append(ByteRange(position + gap, size))
            pieces.append(buffer)
            position += gap + size
        self._sink.write(pieces)
        return places

    def finish(self) -> int:
        """Make the object visible; returns its size in bytes."""
        return self._sink.finish()

    def abort(self) -> None:
        """Leave nothing behind."""
        self._sink.abort()
