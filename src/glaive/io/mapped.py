"""Local files opened for reading: one read-only map, ranges as views of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from stat import S_ISREG
from time import monotonic

import pyarrow as pa

from glaive.errors import CorruptFileError, StoreError
from glaive.io.failures import beyond_end, from_system, not_a_file
from glaive.io.mapping import Advice, advise, is_resident, is_whole_resident, map_file
from glaive.io.stats import IoCounters
from glaive.types import ByteRange

__all__ = ["READING", "MappedReader"]

READING = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""How files are opened: without waiting for a writer, as pipes would."""

_MIN_PATTERN_BYTES = 256 * 1024
"""Size below which the kernel reads a whole file at once, whatever the advice."""

_TAIL_AHEAD = 64 * 1024
"""Bytes at the end that the kernel is asked to read at once: metadata, most of the time."""

_SAMPLES = 16
"""Positions of a file that are checked to estimate whether it is in memory."""

_TRUSTED_SECONDS = 0.01
"""Seconds for which the size of a file, and whether it is in memory, are not checked again."""


class MappedReader:
    """A mapped file. Opening costs about 10 us, a range about 0.1 us; nothing is copied.

    The size is that of the file when it was opened. Accessing a page behind the end of a file
    that was truncated since kills the process, so the size is checked again when a scan or a
    take begins, and at most a hundred times a second while it runs. Views returned before that
    cannot be protected.
    """

    __slots__ = (
        "_base",
        "_cold",
        "_counters",
        "_inode",
        "_next_sample",
        "_pattern",
        "_trusted_until",
        "path",
        "size",
    )

    mapped = True

    def __init__(self, path: str, counters: IoCounters | None = None) -> None:
        self.path = path
        self._counters = IoCounters() if counters is None else counters
        self._pattern: Advice = "normal"
        self._cold = False
        self._next_sample = 0.0
        try:
            fd = os.open(path, READING)
            try:
                status = os.fstat(fd)
                if not S_ISREG(status.st_mode):
                    raise not_a_file(path, status.st_mode)
                self.size: int = status.st_size
                self._inode = status.st_ino
                self._trusted_until = monotonic() + _TRUSTED_SECONDS
                self._base: pa.Buffer | None = map_file(fd, self.size)
            finally:
                os.close(fd)
        except OSError as error:
            raise from_system(error, path, "read") from None

    def _mapping(self) -> pa.Buffer:
        if self._base is None:
            raise StoreError(f"cannot read {self.path}: the reader was closed. Open it again.")
        return self._base

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes, or all if there are fewer."""
        start = max(0, self.size - size)
        base = self._mapping()
        self._counters.add_read(1, self.size - start)
        if self.size >= _MIN_PATTERN_BYTES:  # else a cold footer costs several small reads
            ahead = min(start, self.size - _TAIL_AHEAD)
            advise(base, [ByteRange(ahead, self.size - ahead)], "willneed")
        return base.slice(start)

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one view per range, in order."""
        if monotonic() > self._trusted_until:
            self._check_size()
        base, total = self._mapping(), self.size
        buffers = []
        size_read = 0
        for offset, size in ranges:
            if offset < 0 or size < 0 or offset + size > total:
                raise beyond_end(self.path, ByteRange(offset, size), total)
            size_read += size
            buffers.append(base.slice(offset, size))
        self._counters.add_read(len(buffers), size_read)
        return buffers

    def advise(self, ranges: Sequence[ByteRange], advice: Advice) -> None:
        """Advise the kernel how ranges will be used; see :func:`glaive.io.mapping.advise`.

        ``willneed`` is omitted when a sample of the ranges is in memory already.
        """
        base = self._mapping()
        if advice == "willneed" and is_resident(base, ranges):
            return
        advise(base, ranges, advice)

    def prefetch(self, ranges: Sequence[ByteRange]) -> None:
        """Have the system read ranges, without checking whether they are in memory."""
        advise(self._mapping(), ranges, "willneed")

    def advise_pattern(self, pattern: Advice) -> None:
        """Advise the kernel how the file will be read from now on: ``random`` or ``sequential``.

        Without it the kernel reads far ahead at every cold row, and not far enough in a cold
        scan. Called when a scan or a take begins; also checks that the file was not truncated.
        """
        self._check_size()
        if pattern != self._pattern and self.size >= _MIN_PATTERN_BYTES:
            self._pattern = pattern
            self.advise([ByteRange(0, self.size)], pattern)

    def _check_size(self) -> None:
        """Raise ``CorruptFileError`` if the file has become shorter. About 1 us.

        A file that was deleted or replaced keeps its content for as long as it is mapped.
        """
        try:
            status = os.stat(self.path)
        except OSError:
            return
        if status.st_size < self.size and status.st_ino == self._inode:
            raise CorruptFileError(
                "size of the file",
                expected=f"{self.size} bytes, as when it was opened",
                found=f"{status.st_size} bytes: it was truncated since",
                where=self.path,
            )
        self._trusted_until = monotonic() + _TRUSTED_SECONDS

    def is_cold(self) -> bool:
        """Whether parts of the file are not in memory, by a sample.

        About 20 us, or 4 for a small file; sampled at most a hundred times a second.
        """
        now = monotonic()
        if now >= self._next_sample:
            self._next_sample = now + _TRUSTED_SECONDS
            self._cold = not is_whole_resident(self._mapping(), _SAMPLES)
        return self._cold

    def found_resident(self) -> None:
        """Note that what a take needs was in memory: the next ones are not prefetched either.

        Only until the next sample, a hundredth of a second later.
        """
        self._next_sample = monotonic() + _TRUSTED_SECONDS
        self._cold = False

    def close(self) -> None:
        """Release the map; buffers returned before stay valid."""
        self._base = None
