"""Values of blobs on their way into a file.

Specification: "Where values lie" in ``docs/format/blobs.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.io.sink import ALIGNMENT, PAD, AlignedSink
from glaive.kernels.spaced import space_ranges
from glaive.kernels.strings import check_offsets
from glaive.types import Flags, Int64s

__all__ = ["BlobValues"]

_MOST_COPIED = 32 * 1024
"""Bytes of a value up to which copying it costs less than a step of its own."""


@dataclass(frozen=True, slots=True)
class BlobValues:
    """Value i has ``sizes[i]`` bytes from ``starts[i]`` on in ``data``."""

    data: pa.Buffer
    starts: Int64s
    sizes: Int64s

    @classmethod
    def of(cls, array: Any, valid: Flags | None) -> BlobValues:
        """The values of an array of binary, without a copy; nulls become empty.

        Raises
        ------
        SchemaError
            Its offsets descend or leave its data.
        """
        wide = array if array.type == pa.large_binary() else array.cast(pa.large_binary())
        if not len(wide):
            nothing = np.empty(0, np.int64)
            return cls(pa.py_buffer(b""), nothing, nothing)
        _, offsets, data = wide.buffers()
        data = pa.py_buffer(b"") if data is None else data
        check_offsets(offsets.slice(8 * wide.offset), 64, data, len(wide))
        ends = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
        sizes = np.diff(ends)
        if valid is not None:
            sizes = sizes * valid
        return cls(data, ends[:-1], sizes)

    @classmethod
    def only(cls, value: pa.Buffer) -> BlobValues:
        """A single value."""
        return cls(value, np.zeros(1, np.int64), np.array([value.size], np.int64))

    def __getitem__(self, row: int) -> pa.Buffer:
        """One value, as a view."""
        return self.data.slice(int(self.starts[row]), int(self.sizes[row]))

    def take(self, rows: Int64s) -> BlobValues:
        """The values at these rows."""
        return BlobValues(self.data, self.starts[rows], self.sizes[rows])

    def part(self, first: int, stop: int) -> BlobValues:
        """The values from ``first`` on, up to ``stop``."""
        return BlobValues(self.data, self.starts[first:stop], self.sizes[first:stop])

    def joined(self) -> list[pa.Buffer]:
        """All values, back to back: one view for those that lie so in memory."""
        stops = self.starts + self.sizes
        cuts = np.flatnonzero(self.starts[1:] != stops[:-1]) + 1
        bounds = np.concatenate(([0], cuts, [len(stops)]))
        begins, ends = self.starts[bounds[:-1]].tolist(), stops[bounds[1:] - 1].tolist()
        return [
            self.data.slice(begin, end - begin) for begin, end in zip(begins, ends, strict=True)
        ]

    def write(self, sink: AlignedSink) -> Int64s:
        """Append all values, each on a 64-byte offset; returns their positions, empty ones' too."""
        begin = sink.pad()
        if not len(self.sizes):
            return self.sizes
        spaces = -(-self.sizes // ALIGNMENT) * ALIGNMENT
        ends: Int64s = np.cumsum(spaces) + begin
        sink.write(list(self._parts(spaces)))
        positions: Int64s = ends - spaces
        return positions

    def _parts(self, spaces: Int64s) -> Iterator[pa.Buffer]:
        """Large values as views; small ones between them are copied together."""
        large = self.sizes > _MOST_COPIED
        cuts = np.flatnonzero(large[1:] | large[:-1]) + 1
        bounds = [0, *cuts.tolist(), len(large)]
        for first, stop in pairwise(bounds):
            if large[first]:
                yield self[first]
            else:
                starts, sizes = self.starts[first:stop], self.sizes[first:stop]
                yield space_ranges(self.data, starts, sizes, ALIGNMENT, PAD[0], "blobs to write")
            gap = int(spaces[stop - 1] - self.sizes[stop - 1])
            if stop < len(large) and gap:
                yield pa.py_buffer(PAD * gap)
