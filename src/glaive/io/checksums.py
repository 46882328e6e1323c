"""Checksums of bytes, and a reader that compares the bytes it reads with expected checksums.

Checksums find damage; forgers can compute them. They are xxh3 with 64 bits, the fastest hash in
benchmarks.

Decision: ``docs/adr/0026-page-checksums.md``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, Literal

import pyarrow as pa

from glaive.config import settings
from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, MissingDependencyError, OptionError
from glaive.io.cache import ByteCache
from glaive.io.store import BytesLike, ObjectStore, RangeReader
from glaive.io.wrapped import WrappedReader
from glaive.types import ByteRange, Where

WRITE: Final = "checksums"
"""Storage option: whether to write files with checksums, ``true`` or ``false``."""

VERIFY: Final = "verify_checksums"
"""Storage option: whether to compare checksums, ``true`` or ``false``."""

Verification = Literal["always", "fetched", "never"]
"""Bytes to compare with their checksums.

``always``: all bytes that are read; buffers are read as a whole for it. ``fetched``: buffers that
are fetched as a whole anyway.
"""

_BYTES_AT_A_TIME: Final = 32 * 1024 * 1024
"""Bytes to fetch at once when a whole file is compared."""

_RECENT_BYTES: Final = 128 * 1024 * 1024
_recent: ByteCache[tuple[object, ByteRange], pa.Buffer] = ByteCache(_RECENT_BYTES)
"""Whole buffers that were fetched and compared because a part was requested."""


@cache
def checksum_function() -> Callable[[BytesLike], int] | None:
    """Return the function that computes xxh3 of bytes; ``None`` if xxhash is missing."""
    try:
        from xxhash import xxh3_64_intdigest
    except ModuleNotFoundError:
        return None
    return xxh3_64_intdigest


def verification_setting(store: ObjectStore) -> bool | None:
    """Return whether the user wants checksums compared; ``None`` if that is left to glaive.

    Raises
    ------
    OptionError
        The storage option is not ``true`` or ``false``.
    """
    return _switch(store, VERIFY, default=settings.verify)


def verification(store: ObjectStore, default: Verification | None = None) -> Verification:
    """Return which bytes of a store to compare with their checksums.

    The storage option ``verify_checksums`` decides, else ``GLAIVE_VERIFY``, else ``default``. The
    default is to compare only bytes from a network, if xxhash is installed.

    Raises
    ------
    OptionError
        The storage option is not ``true`` or ``false``.
    MissingDependencyError
        The user wants checksums compared, and xxhash is missing.
    """
    wanted = verification_setting(store)
    if wanted is None:
        default = default or ("fetched" if store.is_remote else "never")
        return default if default == "never" or checksum_function() is not None else "never"
    if wanted and checksum_function() is None:
        raise MissingDependencyError(
            f"{store.uri}: comparing checksums needs the package xxhash. Install it "
            f"(pip install xxhash), or leave out verify=True, {VERIFY} and GLAIVE_VERIFY."
        )
    return "always" if wanted else "never"


def compares_metadata(store: ObjectStore) -> bool:
    """Return whether to compare manifests and deletion files with their checksums.

    The default is to compare, because they are small and commits build on them.
    :func:`verification` lists the errors.
    """
    return verification(store, "fetched") != "never"


def writes_checksums(store: ObjectStore, *, wanted: bool | None = None) -> bool:
    """Return whether to write files with checksums.

    ``wanted``, the dataset's setting, decides. Else the storage option ``checksums`` decides, else
    ``GLAIVE_CHECKSUMS``. The default is to write checksums if the store is reached over a network
    and xxhash is installed.

    Raises
    ------
    OptionError
        The storage option is not ``true`` or ``false``.
    MissingDependencyError
        The user wants checksums, and xxhash is missing.
    """
    if wanted is None:
        wanted = _switch(store, WRITE, default=settings.checksums)
    if wanted is None:
        return store.is_remote and checksum_function() is not None
    if wanted and checksum_function() is None:
        raise MissingDependencyError(
            f"{store.uri}: writing checksums needs the package xxhash. Install it "
            f"(pip install xxhash), or turn them off ({WRITE}=false)."
        )
    return wanted


def _switch(store: ObjectStore, option: str, *, default: bool | None) -> bool | None:
    given = store.options.get(option)
    if given is None:
        return default
    if given.lower() not in ("true", "false"):
        raise OptionError(f"storage_options: {option}: expected true or false, found {given!r}")
    return given.lower() == "true"


@dataclass(frozen=True, slots=True)
class Expected:
    """Checksum of a range, with the range's content and place for messages."""

    checksum: int
    what: str
    where: Where


def check(expected: Expected, data: BytesLike) -> None:
    """Compare bytes with their checksum.

    Raises
    ------
    CorruptFileError
        The checksums differ.
    """
    function = checksum_function()
    if function is None:  # ``verification`` raises this before a file is opened
        raise MissingDependencyError("comparing checksums needs the package xxhash")
    found = function(data)
    if found != expected.checksum:
        raise CorruptFileError(
            expected.what,
            expected=f"bytes with the checksum {expected.checksum:016x}",
            found=f"{found:016x}",
            where=expected.where,
        )


def check_size(written: int | None, found: int, where: str) -> None:
    """Compare the size of a file with the size that was written, if that is known.

    The size helps to detect another file in its place, which has its own checksums.

    Raises
    ------
    CorruptFileError
        The sizes differ.
    """
    if written is not None and found != written:
        raise CorruptFileError(
            "size of a file",
            expected=f"{written} bytes, as it was written",
            found=f"{found}",
            where=where,
        )


class VerifyingReader(WrappedReader):
    """A reader that compares ranges with their expected checksums.

    Parameters
    ----------
    always
        Whether to read and compare the whole range before a part of it is returned. Else only
        ranges that are read as a whole are compared.
    """

    __slots__ = ("_compared", "_expected", "_key", "_starts", "always")

    def __init__(self, inner: RangeReader, *, always: bool) -> None:
        super().__init__(inner)
        self.always = always
        self._key = object()  # of this reader in ``_recent``
        self._expected: dict[ByteRange, Expected] = {}
        self._starts: list[ByteRange] = []
        self._compared: set[ByteRange] = set()

    @property
    def mapped(self) -> bool:  # type: ignore[override]  # that of the inner reader
        """Whether ranges are views of a memory map."""
        return self._inner.mapped

    def expect(self, pairs: Iterable[tuple[ByteRange, Expected]]) -> None:
        """Compare these ranges from now on; ignore empty ranges."""
        self._expected.update(pair for pair in pairs if pair[0].size)
        self._starts = []

    def compare_all(self) -> int:
        """Read and compare all ranges with a checksum, in parts; return their number of bytes.

        Raises
        ------
        CorruptFileError
            The checksum of a range differs.
        """
        together: list[ByteRange] = []
        waiting = total = 0
        for wanted in sorted(self._expected):
            together.append(wanted)
            waiting += wanted.size
            total += wanted.size
            if waiting >= _BYTES_AT_A_TIME:
                self._compare_ranges(together)
                together, waiting = [], 0
        self._compare_ranges(together)
        return total

    def _compare_ranges(self, ranges: Sequence[ByteRange]) -> None:
        for wanted, data in zip(ranges, self._inner.read(ranges), strict=True):
            self.compare(wanted, data)

    def compare(self, wanted: ByteRange, data: BytesLike) -> None:
        """Compare the bytes of a range, if it has a checksum."""
        expected = self._expected.get(wanted)
        if expected is not None:
            check(expected, data)

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one buffer per range; see :class:`glaive.io.store.RangeReader`."""
        if self.always:
            return self._read_whole(ranges)
        buffers = self._inner.read(ranges)
        for wanted, buffer in zip(ranges, buffers, strict=True):
            self.compare(wanted, buffer)
        return buffers

    def _read_whole(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        around = [self._around(wanted) for wanted in ranges]
        if self.mapped:
            for whole in set(around) - self._compared:
                self.compare(whole, self._inner.read([whole])[0])
                self._compared.add(whole)
            return self._inner.read(ranges)
        kept = {whole: _recent.get((self._key, whole)) for whole in set(around)}
        missing = [whole for whole, buffer in kept.items() if buffer is None]
        for whole, buffer in zip(missing, self._inner.read(missing), strict=True):
            self.compare(whole, buffer)
            kept[whole] = buffer
            if whole in self._expected:
                _recent.put((self._key, whole), buffer, buffer.size)
        return [
            kept[whole].slice(wanted.offset - whole.offset, wanted.size)  # type: ignore[union-attr]  # read above
            for wanted, whole in zip(ranges, around, strict=True)
        ]

    def _around(self, wanted: ByteRange) -> ByteRange:
        """Return the range with a checksum that contains a range, or else the range itself."""
        if wanted in self._expected:
            return wanted
        if len(self._starts) != len(self._expected):
            self._starts = sorted(self._expected)
        at = bisect_right(self._starts, (wanted.offset, 1 << 63)) - 1
        if at >= 0 and wanted.end <= self._starts[at].end:
            return self._starts[at]
        return wanted
