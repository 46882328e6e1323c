"""Pages of mapped files that a stream has passed, taken out of this process's memory.

They stay in the system's cache, and views of them stay valid: who reads one maps its pages again,
which costs about a microsecond for 64 KiB. Without this, a stream over files larger than memory
would look as large as the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from glaive.io.store import RangeReader
from glaive.scan.bound import BoundFragment
from glaive.types import ByteRange

__all__ = ["PassedPages"]

_STREAMED_BYTES: Final = 16 * 1024 * 1024
"""Decoded bytes after which pages are let go of.

The next scan must map them again, so this is a matter of memory against time.
"""

_KEPT_BYTES: Final = 48 * 1024 * 1024
"""Decoded bytes of a whole stream up to which it lets go of nothing: a column of numbers."""

_SEARCHED_BYTES: Final = 256 * 1024 * 1024
"""The same of rows that a search found: mapping single pages again costs more than reading them."""


class PassedPages:
    """What one stream has read of mapped files since it last let go of their pages.

    Parameters
    ----------
    expected
        Bytes that the stream decodes in all, about, if that is known.
    searched
        Single rows may be taken out of the pages.
    """

    __slots__ = ("_limit", "_readers", "_size")

    def __init__(self, expected: int | None = None, *, searched: bool = False) -> None:
        self._readers: dict[int, Sequence[RangeReader]] = {}  # not fragments, which hold more
        self._limit = _SEARCHED_BYTES if searched else _STREAMED_BYTES
        if expected is not None and expected <= _KEPT_BYTES:
            self._limit = max(self._limit, _KEPT_BYTES)
        self._size = 0

    def add(self, bound: BoundFragment, size: int) -> None:
        """Rows of a fragment were used, of ``size`` bytes, about; lets go of pages in time."""
        self._readers[bound.fragment.id] = bound.readers
        self._size += size
        if self._size >= self._limit:
            self.let_go()

    def let_go(self) -> None:
        """Take the pages of these fragments out of this process's memory; 20 us a file."""
        for readers in self._readers.values():
            for reader in readers:
                if reader.mapped:
                    reader.advise([ByteRange(0, reader.size)], "dontneed")
        self._readers.clear()
        self._size = 0
