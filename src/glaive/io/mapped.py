"""Local files opened for reading: one read-only map, ranges as views of it."""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import accumulate
from stat import S_ISREG
from time import monotonic
from typing import ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, StoreError
from glaive.io.failures import beyond_end, from_system, not_a_file
from glaive.io.store import IoCounters, JoinedObjects, ObjectStore
from glaive.types import ByteRange

# --- Memory maps of whole files, as Arrow buffers, and ``madvise`` for them -------------
# The standard library's ``mmap`` keeps a file descriptor open for every map. A table of thousands
# of zero-copy columns would then use up all descriptors. So on POSIX glaive makes the map through
# the C library: it takes only address space, and lives until its last buffer is released.
#
# A mapped file must keep its size while in use: accessing a page after its new end kills the
# process. Lance data files are immutable.

if sys.platform != "win32":
    import resource


Advice = Literal["random", "sequential", "willneed", "dontneed", "normal"]

_PAGE = mmap.ALLOCATIONGRANULARITY
_FAILED = ctypes.c_void_p(-1).value
_CODES: dict[Advice, int] = {
    "normal": getattr(mmap, "MADV_NORMAL", 0),
    "random": getattr(mmap, "MADV_RANDOM", 1),
    "sequential": getattr(mmap, "MADV_SEQUENTIAL", 2),
    "willneed": getattr(mmap, "MADV_WILLNEED", 3),
    "dontneed": getattr(mmap, "MADV_DONTNEED", 4),
}
_MIN_COUNTED_BYTES = 1024 * 1024
"""Least size of files that are compared with the limit of the address space."""

_MAP_FIXED = 0x10
"""``MAP_FIXED`` of Linux and macOS, which the standard library lacks."""

_OVER_READ_BYTES = 512
_SAMPLES = 8
"""Ranges to check to estimate whether a read would find its pages in memory."""

_PREFETCH_SAMPLES = 64
"""Ranges to check for a take, which waits for each missing page, at about 2 us each. If a tenth of
a file is missing, eight ranges would miss it in two of five takes."""


def _load_libc() -> ctypes.CDLL | None:
    if os.name != "posix":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    libc.mmap.argtypes = (pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mmap.restype = pointer
    libc.munmap.argtypes = (pointer, size)
    libc.madvise.argtypes = (pointer, size, ctypes.c_int)
    libc.mincore.argtypes = (pointer, size, pointer)
    return libc


_libc = _load_libc()


class _Map:
    """Owner of one map: unmaps when the last buffer over it is released."""

    __slots__ = ("address", "size")

    held: ClassVar[int] = 0
    """Bytes of all maps of this process; threads may miscount, but it is only an estimate."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        _Map.held += size

    def __del__(self) -> None:
        if _libc is not None:
            _libc.munmap(self.address, self.size)
            _Map.held -= self.size


def map_file(fd: int, size: int) -> pa.Buffer:
    """Map the first ``size`` bytes of an open file, read-only; ``fd`` may be closed afterwards.

    About 3 us. An empty file gives an empty buffer.

    Raises
    ------
    OSError
        The system refuses. ``ENOMEM`` also if maps would take more than a quarter of a limited
        address space, because the process needs the rest.
    """
    if size == 0:
        return pa.py_buffer(b"")
    if size >= _MIN_COUNTED_BYTES and _Map.held + size > _max_mapped_bytes():
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    if _libc is None:
        return pa.py_buffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ))
    held = readable_size(size)
    place, flags = None, mmap.MAP_SHARED
    if -(-size // mmap.PAGESIZE) < -(-held // mmap.PAGESIZE):
        # The file replaces all pages of anonymous memory except the last.
        anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        place, flags = _map(None, held, anonymous, -1), flags | _MAP_FIXED
    owner = None if place is None else _Map(place, held)
    address = _map(place, size, flags, fd)
    return pa.foreign_buffer(address, size, owner or _Map(address, size))


def map_many(
    store: ObjectStore, paths: Sequence[str], sizes: Sequence[int]
) -> JoinedObjects | None:
    """Map whole files of known sizes, one after the other, at about 10 us for each.

    ``None`` where the system cannot, or a file has another size.

    Raises
    ------
    StoreError
        A file is missing or unreadable.
    """
    rounded = (-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in sizes)
    *starts, end = accumulate(rounded, initial=0)
    held = end + _OVER_READ_BYTES
    suits = _libc is not None and hasattr(mmap, "MAP_ANONYMOUS") and store.is_local
    if not suits or min(sizes) == 0 or _Map.held + held > _max_mapped_bytes():
        return None
    path = store.uri
    try:
        base = _map(None, held, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        owner = _Map(base, held)
        for path, start, size in zip(map(store.full, paths), starts, sizes, strict=True):
            fd = os.open(path, READING)
            try:
                status = os.fstat(fd)
                if status.st_size != size or not S_ISREG(status.st_mode):
                    return None
                _map(base + start, size, mmap.MAP_SHARED | _MAP_FIXED, fd)
            finally:
                os.close(fd)
    except OSError as error:
        if error.errno == errno.ENOMEM:  # too many maps, or too little address space
            return None
        raise from_system(error, path, "read") from None
    ends = base + np.array(starts) + sizes
    tails = np.minimum(sizes, _TAIL_BYTES)
    prefetch(np.stack([ends - tails, tails], axis=1))
    return JoinedObjects(pa.foreign_buffer(base, end, owner), starts, list(sizes), store.counters)


def have_sizes(store: ObjectStore, paths: Sequence[str], sizes: Sequence[int]) -> bool:
    """Return whether local files still have these sizes. About 2 us for each."""
    try:
        return [os.stat(store.full(path)).st_size for path in paths] == sizes
    except OSError:
        return False


def _max_mapped_bytes() -> float:
    """Return the bytes of address space that maps may take; infinite by default."""
    if sys.platform == "win32":
        return math.inf
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return math.inf if limit == resource.RLIM_INFINITY else limit / 4


def readable_size(size: int) -> int:
    """Return the bytes that may be loaded from the address of a mapped file of ``size`` bytes.

    Kernels load whole vectors, so up to ``_OVER_READ_BYTES`` bytes after the last byte they use.
    """
    if _libc is None or not hasattr(mmap, "MAP_ANONYMOUS"):
        return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    return size + _OVER_READ_BYTES


def _map(address: int | None, size: int, flags: int, fd: int) -> int:
    """Call ``mmap`` for reading. For ``None``, the system chooses the address."""
    mapped = None if _libc is None else _libc.mmap(address, size, mmap.PROT_READ, flags, fd, 0)
    if mapped is None or mapped == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(mapped)


def advise(base: pa.Buffer, ranges: Sequence[ByteRange], advice: Advice) -> None:
    """Advise the kernel how ranges of a mapped buffer will be used; errors are ignored.

    ``willneed`` starts reading all ranges at once, which fills the queue of a disk: 100 cold
    rows take 2 ms instead of 230. ``dontneed`` removes pages from this process's memory; they
    stay in the system's cache and views of them stay valid. About 1 us per range.
    """
    if _libc is None or base.size == 0:
        return
    ranges_in_memory = np.array(ranges, np.int64).reshape(-1, 2)
    ranges_in_memory[:, 0] += base.address
    _advise(ranges_in_memory, advice)


def prefetch(ranges: NDArray[np.int64]) -> bool:
    """Have the system read parts of mapped files.

    Parameters
    ----------
    ranges
        Address and size of each part, which must be mapped. Shape ``(n, 2)``.

    Returns
    -------
    bool
        Whether part of a sample was missing in memory, so that the ranges are read.
    """
    step = max(1, len(ranges) // _PREFETCH_SAMPLES)
    if _libc is None or _are_resident(ranges[::step, 0].tolist()):
        return False
    _advise(ranges, "willneed")
    return True


def _advise(ranges: NDArray[np.int64], advice: Advice) -> None:
    """Advise the kernel on the pages of ranges, which are given by address and size."""
    starts = ranges[:, 0] // _PAGE * _PAGE
    pages = np.stack([starts, ranges.sum(axis=1) - starts], axis=1)
    code = _CODES[advice]
    if _libc is not None:
        for start, size in pages.tolist():
            _libc.madvise(start, size, code)


def is_resident(base: pa.Buffer, ranges: Sequence[ByteRange], samples: int = _SAMPLES) -> bool:
    """Return whether a sample of the ranges is in memory, so that advice is useless."""
    if base.size == 0:
        return True
    step = max(1, len(ranges) // samples)
    return _are_resident(base.address + offset for offset, _ in ranges[::step])


def _are_resident(addresses: Iterable[int]) -> bool:
    """Return whether the pages at some addresses are in memory, if the system can tell."""
    if _libc is None or sys.platform not in ("linux", "darwin"):
        return True
    state = ctypes.c_ubyte()
    for address in addresses:
        first = address // _PAGE * _PAGE
        if _libc.mincore(first, 1, ctypes.byref(state)) == 0 and not state.value & 1:
            return False
    return True


READING = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for opening files at once, where a pipe would wait for a writer."""

_MIN_PATTERN_BYTES = 256 * 1024
"""Size below which the kernel reads a whole file at once, whatever the advice."""

_TAIL_BYTES = 64 * 1024
"""Bytes at the end that the kernel is asked to read at once, usually metadata."""

_SAMPLED_PAGES = 16
"""Positions of a file to check to estimate whether it is in memory."""

_TRUSTED_SECONDS = 0.01
"""Seconds until a file's size, and whether it is in memory, are checked again."""


class MappedReader:
    """A mapped file. Opening costs about 10 us, a range, which is a view, about 0.1 us.

    The size is the size of the file when it was opened. If the file was truncated meanwhile,
    accessing a page after its end kills the process. So the size is checked again when a scan or a
    take begins, and at most a hundred times a second while it runs. Views returned before a check
    stay unprotected.
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
        """Return the last ``size`` bytes, or all bytes if there are fewer."""
        start = max(0, self.size - size)
        base = self._mapping()
        self._counters.add_read(1, self.size - start)
        if self.size >= _MIN_PATTERN_BYTES:  # else a cold footer costs several small reads
            ahead = min(start, self.size - _TAIL_BYTES)
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
        """Advise the kernel how ranges will be used; see :func:`glaive.io.mapped.advise`.

        ``willneed`` is omitted if a sample of the ranges is in memory already.
        """
        base = self._mapping()
        if advice == "willneed" and is_resident(base, ranges):
            return
        advise(base, ranges, advice)

    def prefetch(self, ranges: Sequence[ByteRange]) -> None:
        """Have the system read ranges, even if they are in memory."""
        advise(self._mapping(), ranges, "willneed")

    def advise_pattern(self, pattern: Advice) -> None:
        """Advise the kernel how the file will be read from now on: ``random`` or ``sequential``.

        By default the kernel reads far ahead at every cold row, and too little in a cold scan.
        Called when a scan or a take begins; also checks that the file was not truncated.
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
        """Return whether parts of the file are missing in memory, by a sample.

        About 20 us; sampled at most a hundred times a second.
        """
        now = monotonic()
        if now >= self._next_sample:
            self._next_sample = now + _TRUSTED_SECONDS
            step = max(1, self.size // _SAMPLED_PAGES)
            places = [ByteRange(at, 1) for at in range(step // 2, self.size, step)]
            self._cold = not is_resident(self._mapping(), places, _SAMPLED_PAGES)
        return self._cold

    def found_resident(self) -> None:
        """Note that the data of a take was in memory, so the next takes skip prefetching, too.

        This holds until the next sample, a hundredth of a second later.
        """
        self._next_sample = monotonic() + _TRUSTED_SECONDS
        self._cold = False

    def close(self) -> None:
        """Release the map; buffers returned before stay valid."""
        self._base = None


# --- Files that are larger than their content --------------------------------------------
# A file may have holes, which take no space on a disk or in an archive, and read as zeros: a few
# bytes may encode terabytes. Files of Lance libraries are dense, and metadata is read as a whole.

MAX_HOLE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a file that may be holes: some file systems store long zeros as holes."""

_MAX_SEEKS: Final = 10_000
_REPORTS_HOLES: Final = hasattr(os, "SEEK_HOLE")


def refuse_holes(fd: int, size: int, path: str) -> None:
    """Refuse a file with large holes; the position in the file stays the same.

    Only files larger than 64 MiB are checked, on file systems that report holes.

    Raises
    ------
    CorruptFileError
        More than 64 MiB of the file are holes.
    """
    if size <= MAX_HOLE_BYTES or not _REPORTS_HOLES:
        return
    before = os.lseek(fd, 0, os.SEEK_CUR)
    holes = end = 0
    for _ in range(_MAX_SEEKS):
        hole = os.lseek(fd, end, os.SEEK_HOLE)
        if hole >= size:
            break
        try:
            end = os.lseek(fd, hole, os.SEEK_DATA)
        except OSError:  # the file ends in the hole
            end = size
        holes += end - hole
        if holes > MAX_HOLE_BYTES:
            raise CorruptFileError(
                "file", expected="bytes", found=f"holes in {size} bytes", where=path
            )
        if end >= size:
            break
    os.lseek(fd, before, os.SEEK_SET)
