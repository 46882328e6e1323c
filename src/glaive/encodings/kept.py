"""What pages decode once to use it again: dictionaries, structure, levels, whole buffers.

A page keeps what is in proportion to its bytes in the file. Of the rest, which a few bytes may
stand for, the process keeps what was used last: a file of any number of pages takes no more.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar
from weakref import ref

from glaive.config import USUAL_RATIO, settings
from glaive.io.cache import ByteCache

__all__ = ["Kept", "Latest"]

T = TypeVar("T")

_ALWAYS: Final = 32 * 1024
"""Bytes that each page may keep."""


class _Held(Generic[T]):
    """A value that is out of proportion, as long as it is kept."""

    __slots__ = ("__weakref__", "value")

    value: T | None

    def __init__(self, value: T) -> None:
        self.value = value


_LARGE: ByteCache[ref[_Held[Any]], _Held[Any]] = ByteCache(settings.max_decoded_bytes_per_page)
"""The values of this process that are out of proportion: as many as one page may have, so that a
scan of dozens of columns that are nearly empty does not decode them for each batch. What is left of
those of closed pages makes room with time.
"""


class Latest:
    """The values of the page of a column that was read last, where they are in proportion.

    All columns of a scan may have more of them than the process keeps. Without these each batch
    would decode them again.
    """

    __slots__ = ("_held", "_page")

    def __init__(self) -> None:
        self._page: object = None
        self._held: list[object] = []

    def keep(self, page: object, held: object) -> None:
        """Keep a value, and others of its page only."""
        if self._page is not page:
            self._page, self._held = page, []
        self._held.append(held)


class Kept(Generic[T]):
    """One such value. If others took its place since, its owner decodes it again."""

    __slots__ = ("_held", "own")

    own: T | None
    """The value, where it is in proportion: that one stays."""

    def __init__(self) -> None:
        self.own = None
        self._held: ref[_Held[T]] | None = None

    def __del__(self) -> None:
        """Let the value go."""
        self._let_go()

    def _let_go(self) -> None:
        # Without a lock, as it may run at any time.
        held = self._held and self._held()
        if held:
            held.value = None

    def get(self) -> T | None:
        """The value; None where there is none yet, or none any more."""
        if self._held is None:
            return self.own
        _LARGE.get(self._held)  # used now
        held = self._held()
        return None if held is None else held.value

    def keep(self, value: T, size: int, stored: int) -> T:
        """Keep a value of ``size`` bytes, for which a file has ``stored`` bytes; returns it."""
        if size <= _ALWAYS or size <= USUAL_RATIO * stored:
            self.own = value
        else:
            self._hold(value, size)
        return value

    def keep_latest(self, value: T, size: int, stored: int, latest: Latest, page: object) -> T:
        """The same for values of a whole page, of which a column keeps those of one page only."""
        if size <= _ALWAYS:
            self.own = value
            return value
        held = self._hold(value, size)
        if size <= USUAL_RATIO * stored:
            latest.keep(page, held)
        return value

    def _hold(self, value: T, size: int) -> _Held[T]:
        self._let_go()  # of one that another thread has made
        held = _Held(value)
        self._held = ref(held)
        # One that is larger than all others may be stays until the next.
        _LARGE.put(self._held, held, min(size, _LARGE.budget))
        return held
