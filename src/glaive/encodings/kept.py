"""What pages decode once to use it again: dictionaries, structure, levels, whole buffers.

A page keeps what is in proportion to its bytes in the file. Of the rest, which a few bytes may
stand for, the process keeps what was used last: a file of any number of pages takes no more.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar
from weakref import ref

from glaive.io.cache import ByteCache

__all__ = ["Kept"]

T = TypeVar("T")

_ALWAYS: Final = 32 * 1024
"""Bytes that each page may keep."""

_USUAL_RATIO: Final = 64
"""Bytes in memory per byte in the file up to which a page keeps what it decoded."""

_LARGE: ByteCache[ref[Any], Any] = ByteCache(256 * 1024 * 1024)
"""The values of this process that are out of proportion, by who holds them. Those of closed
pages make room with time.
"""


class Kept(Generic[T]):
    """One such value. If others took its place since, its owner decodes it again."""

    __slots__ = ("__weakref__", "_is_large", "own")

    own: T | None
    """The value, where it is in proportion: that one stays."""

    def __init__(self) -> None:
        self.own = None
        self._is_large = False

    def get(self) -> T | None:
        """The value; None where there is none yet, or none any more."""
        if not self._is_large:
            return self.own
        found: T | None = _LARGE.get(ref(self))
        return found

    def keep(self, value: T, size: int, stored: int) -> T:
        """Keep a value of ``size`` bytes, for which a file has ``stored`` bytes; returns it."""
        if size <= _ALWAYS or size <= _USUAL_RATIO * stored:
            self.own = value
            return value
        self._is_large = True
        _LARGE.put(ref(self), value, size)
        return value
