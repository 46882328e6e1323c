"""Local files read range by range, for processes whose address space is limited."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import pyarrow as pa

from glaive.errors import StoreError
from glaive.io.failures import check_ranges, from_system
from glaive.io.mapped import READING, MappedReader
from glaive.io.ranges import MAX_REQUEST, aligned_memory, coalesce, split
from glaive.io.remote import RemoteReader
from glaive.io.stats import IoCounters
from glaive.types import ByteRange

__all__ = ["PositionedReader", "open_file"]

_GAP = 16 * 1024
"""Gap in bytes up to which two ranges are read as one."""


def open_file(path: str, counters: IoCounters) -> MappedReader | PositionedReader:
    """Map a file, or read its ranges if it does not fit into a limited address space."""
    try:
        return MappedReader(path, counters)
    except StoreError as error:
        if error.errno != errno.ENOMEM:
            raise
        return PositionedReader(path, counters)


class PositionedReader(RemoteReader):
    """A file whose ranges are copied into memory when they are asked for.

    Used instead of :class:`glaive.io.mapped.MappedReader` where a map of the whole file would take
    too much of the address space, as with ``spark.executor.pyspark.memory``. The file is opened
    for each call, so that no descriptor is kept; about 20 us.
    """

    __slots__ = ("_counters", "path", "size")

    def __init__(self, path: str, counters: IoCounters) -> None:
        self.path = path
        self._counters = counters
        try:
            self.size: int = os.stat(path).st_size
        except OSError as error:
            raise from_system(error, path, "read") from None

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes, or all if there are fewer."""
        start = max(0, self.size - size)
        return self.read([ByteRange(start, self.size - start)])[0]

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one buffer per range, in order; near ranges are read at once."""
        check_ranges(self.path, ranges, self.size)
        joined = coalesce(ranges, max_gap=_GAP, max_request=MAX_REQUEST)
        try:
            fd = os.open(self.path, READING)
            try:
                buffers = [self._read(fd, request) for request in joined.requests]
            finally:
                os.close(fd)
        except OSError as error:
            raise from_system(error, self.path, "read") from None
        self._counters.add_read(len(buffers), joined.size)
        return split(ranges, joined, buffers)

    def _read(self, fd: int, request: ByteRange) -> pa.Buffer:
        """One range; it may take several calls, as the system reads at most 2 GiB with one."""
        data, target = aligned_memory(request.size, request.offset)
        done = 0
        while done < request.size:
            count = os.preadv(fd, [target[done:]], request.offset + done)
            if not count:
                self.size = os.fstat(fd).st_size
                check_ranges(self.path, [request], self.size)
                raise StoreError(
                    f"cannot read {self.path}: it changed while it was read. Try again."
                )
            done += count
        return data
