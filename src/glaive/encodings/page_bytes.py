"""The buffers of a page: where they are in the file, and in memory if the file is mapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from glaive.types import ByteRange, Where

__all__ = ["PageBytes"]

ReadRanges = Callable[[Sequence[ByteRange]], list[pa.Buffer]]
"""One buffer per range, in order."""


class PageBytes:
    """The ranges of the buffers of one page; ``at_hand`` has them all if the file is mapped.

    Parameters
    ----------
    ranges
        The buffers in the file.
    at_hand
        The buffers in memory; None where they have to be fetched.
    rows
        Rows of the page.
    where
        The page, for messages.
    read
        Reads ranges of a mapped file, instead of ``at_hand``: that is read, and counted as read,
        when it is first asked for. Until then the page is ``unread``, and a reader that needs a
        part of it fetches the part, as from a file that is not mapped. Threads that ask at once
        may each read it.
    """

    __slots__ = ("_read", "at_hand", "ranges", "rows", "unread", "where")

    at_hand: list[pa.Buffer] | None
    unread: bool
    """Whether the page is of a mapped file, and was not read as a whole yet."""

    def __init__(
        self,
        ranges: tuple[ByteRange, ...],
        at_hand: list[pa.Buffer] | None,
        rows: int,
        where: Where,
        read: ReadRanges | None = None,
    ) -> None:
        self.ranges, self.rows, self.where, self._read = ranges, rows, where, read
        self.unread = read is not None
        if read is None:
            self.at_hand = at_hand

    def __getattr__(self, name: str) -> Any:
        # Called for slots without a value: later uses of ``at_hand`` cost no call.
        if name != "at_hand" or self._read is None:
            raise AttributeError(name)
        buffers = self._read(self.ranges)
        self.unread = False  # first: what is at hand in one thread is not fetched by another
        self.at_hand = buffers
        return buffers

    @property
    def is_mapped(self) -> bool:
        """Whether all buffers are at hand, or will be when they are asked for."""
        return self._read is not None or self.at_hand is not None

    @property
    def mapped_end(self) -> int | None:
        """Where the buffers end in the file; None where it is not mapped."""
        return max([part.end for part in self.ranges], default=0) if self.is_mapped else None

    def part(self, first: int, stop: int, rows: int) -> PageBytes:
        """Some of the buffers as a page of their own."""
        ranges = self.ranges[first:stop]
        if self.unread:
            return PageBytes(ranges, None, rows, self.where, self._read)
        at_hand = None if self.at_hand is None else self.at_hand[first:stop]
        return PageBytes(ranges, at_hand, rows, self.where)
