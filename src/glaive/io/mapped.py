"""Local files opened for reading: one read-only map, ranges as views of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from stat import S_ISREG
from time import monotonic

import pyarrow as pa

from glaive.errors import CorruptFileError, StoreError
from glaive.io.failures import beyond_end, from_system, not_a_file
from glaive.io.mapping import Advice, advise, is_resident, map_file
from glaive.io.stats import IoCounters
from glaive.types import ByteRange

__all__ = ["READING", "MappedReader"]

READING = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""How files are opened. What waits for a writer, as pipes do, is not waited for."""

_WORTH_ADVICE = 256 * 1024
"""Bytes of a file below which the kernel reads it at once whatever it is told."""


_SAMPLES = 16
"""Places of a file looked at to tell whether it is in memory."""

_SURE_SECONDS = 0.01
"""How long a file is trusted to be as long, and as much in memory, as when last looked at."""


class MappedReader:
    """A mapped file. Opening costs about 10 us, a range about 0.1 us; nothing is copied.

    The size is that of the file when it was opened. Touching a page behind the end of a file
    that was cut off since ends the process, so the file is looked at again when a scan or a
    take begins, and a hundred times a second at most while it goes on. Views handed out before
    are beyond help.
    """

    __slots__ = (
        "_base",
        "_cold",
        "_counters",
        "_inode",
        "_look_again",
        "_pattern",
        "_sure",
        "path",
        "size",
    )

    mapped = True

    def __init__(self, path: str, counters: IoCounters | None = None) -> None:
        self.path = path
        self._counters = IoCounters() if counters is None else counters
        self._pattern: Advice = "normal"
        self._cold = False
        self._look_again = 0.0
        try:
            fd = os.open(path, READING)
            try:
                status = os.fstat(fd)
                if not S_ISREG(status.st_mode):
                    raise not_a_file(path, status.st_mode)
                self.size: int = status.st_size
                self._inode = status.st_ino
                self._sure = monotonic() + _SURE_SECONDS
                self._base: pa.Buffer | None = map_file(fd, self.size)
            finally:
                os.close(fd)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
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
        if self.size >= _WORTH_ADVICE:  # else a cold footer costs several small reads
            advise(base, [ByteRange(start, self.size - start)], "willneed")
        return base.slice(start)

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one view per range, in order."""
        if monotonic() > self._sure:
            self._look()
        base, total = self._mapping(), self.size
        buffers = []
        together = 0
        for asked in ranges:
            offset, size = asked
            if offset < 0 or size < 0 or offset + size > total:
                raise beyond_end(self.path, ByteRange(offset, size), total)
            together += size
            buffers.append(base.slice(offset, size))
        self._counters.add_read(len(buffers), together)
        return buffers

    def advise(self, ranges: Sequence[ByteRange], advice: Advice) -> None:
        """Tell how ranges will be used; see :func:`glaive.io.mapping.advise`.

        ``willneed`` is left out when a sample of the ranges is in memory already.
        """
        base = self._mapping()
        if advice == "willneed" and is_resident(base, ranges):
            return
        advise(base, ranges, advice)

    def prefetch(self, ranges: Sequence[ByteRange]) -> None:
        """Have the system read ranges, without a look whether they are in memory."""
        advise(self._mapping(), ranges, "willneed")

    def expect(self, pattern: Advice) -> None:
        """Tell how the file will be read from now on: ``random`` or ``sequential``.

        Without it the kernel reads far ahead at every cold row, and not far enough in a cold
        scan. Called when a scan or a take begins, it makes sure as well that the file is whole.
        """
        self._look()
        if pattern != self._pattern and self.size >= _WORTH_ADVICE:
            self._pattern = pattern
            self.advise([ByteRange(0, self.size)], pattern)

    def _look(self) -> None:
        """Make sure that the file has not become shorter. About 1 us.

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
                found=f"{status.st_size} bytes: it was cut off since",
                where=self.path,
            )
        self._sure = monotonic() + _SURE_SECONDS

    def is_cold(self) -> bool:
        """Whether parts of the file are not in memory, by a sample.

        About 20 us; looked at a hundred times a second at most.
        """
        now = monotonic()
        if now >= self._look_again:
            self._look_again = now + _SURE_SECONDS
            self._look()
            step = max(1, self.size // _SAMPLES)
            places = [ByteRange(at, 1) for at in range(step // 2, self.size, step)]
            self._cold = not is_resident(self._mapping(), places, len(places))
        return self._cold

    def close(self) -> None:
        """Let go of the map; buffers handed out stay valid."""
        self._base = None
