"""What datasets share: opened files and what was read of their metadata, within a budget.

Data files and deletion files never change, so a session outlives versions and may be shared
between datasets. One cache keeps, under one budget of bytes:

- opened files by path, what they are reached by (``ObjectStore.reached_by``), size and way of
  reading: footers, and the end of files that were fetched;
- fragments seen through a projection: metadata of the columns in it, chunk tables,
  dictionaries, symbol tables;
- deleted rows.

A second cache, with a budget of its own, keeps opened indices and what searches read of them.

Columns that no kept fragment has are let go: of a file of 10,000 columns those are kept that
are read.

The first part of a key says what the entry is good for: the path of a file or a directory, or a
weak reference to the one who will ask for it. Where that is no longer there, the entry is let go
when a dataset moves on to another version: a deleted file that is mapped would keep its space on
the disk, and the maps of a process are limited, whatever the budget of bytes.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.file.open import open_reader
from glaive.file.protocol import FileReader
from glaive.io.cache import ByteCache
from glaive.io.checksums import Verification, verification
from glaive.io.stats import IoCounters
from glaive.io.store import ObjectStore

__all__ = ["METADATA_CACHE_BYTES", "IndexCache", "Session"]

METADATA_CACHE_BYTES = 256 * 1024 * 1024
"""Default budget of a session."""

INDEX_CACHE_BYTES = 1024 * 1024 * 1024
"""Default budget for indices."""

APART_BYTES = 32 * 1024 * 1024
"""Budget of a scan that is kept apart: several windows of rows use one opened fragment."""

_ENTRIES_OF_A_MOVE = 16
"""Entries that a move to another version may look at: some 2 µs each."""

_MORE = 1.5
"""All are looked at, too, where there are so many times as many as there were left before."""


class IndexCache(ByteCache[Hashable, Any]):
    """Opened indices, and parts of them; counts the parts that were read."""

    __slots__ = ("loaded", "opened")

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self.opened = self.loaded = 0

    def part(self, key: Hashable, load: Callable[[], tuple[Any, int]], counters: IoCounters) -> Any:
        """What is kept of an index; a part is loaded where reads were counted meanwhile."""
        before = counters.reads

        found = self.get_or_load(key, load)
        self.loaded += counters.reads != before
        return found


class Session:
    """The cache that datasets share. Safe to share between threads.

    Parameters
    ----------
    index_cache_size_bytes
        Budget for indices in bytes, 1 GiB by default; 0 keeps none.
    metadata_cache_size_bytes
        Budget in bytes, 256 MiB by default; 0 keeps nothing. What a running scan still holds
        stays in memory when the cache lets go of it.
    index_cache_backend, metadata_cache_backend, store_registry
        Not supported.

    Raises
    ------
    OptionError
        A budget is negative.

    Examples
    --------
    >>> session = Session(metadata_cache_size_bytes=64 * 1024 * 1024)
    >>> session.size_bytes(), session.hits, session.misses
    (0, 0, 0)
    """

    __slots__ = ("_budget", "_left", "_moves", "cache", "comparing", "index_cache")

    def __init__(
        self,
        index_cache_size_bytes: int | None = None,
        metadata_cache_size_bytes: int | None = None,
        index_cache_backend: object = None,
        metadata_cache_backend: object = None,
        store_registry: object = None,
    ) -> None:
        given = (index_cache_backend, metadata_cache_backend, store_registry)
        if any(option is not None for option in given):
            raise UnsupportedFeatureError(
                "Session: other backends and store registries are not supported. Leave out "
                "index_cache_backend, metadata_cache_backend and store_registry."
            )
        for name, value in (
            ("index_cache_size_bytes", index_cache_size_bytes),
            ("metadata_cache_size_bytes", metadata_cache_size_bytes),
        ):
            if value is not None and value < 0:
                raise OptionError(f"Session: {name} must be a number of bytes, found {value!r}")
        budget = metadata_cache_size_bytes
        self._budget = METADATA_CACHE_BYTES if budget is None else budget
        self.cache: ByteCache[Hashable, Any] = ByteCache(self._budget)
        self._left = self._moves = 0
        self.comparing = False
        for_indices = index_cache_size_bytes
        self.index_cache = IndexCache(INDEX_CACHE_BYTES if for_indices is None else for_indices)

    def __repr__(self) -> str:
        cache = self.cache
        return (
            f"Session(metadata_cache_size_bytes={self._budget}, "
            f"index_cache_size_bytes={self.index_cache.budget}, size_bytes={self.size_bytes()}, "
            f"hits={cache.hits}, misses={cache.misses})"
        )

    # ------------------------------------------------------------------ figures

    def size_bytes(self) -> int:
        """Bytes of memory that are kept, as estimated when they came."""
        return self.cache.size + self.index_cache.size

    def index_cache_size_bytes(self) -> int:
        """Bytes of indices that are kept."""
        return self.index_cache.size

    @property
    def hits(self) -> int:
        """Lookups that found something."""
        return self.cache.hits

    @property
    def misses(self) -> int:
        """Lookups that found nothing."""
        return self.cache.misses

    def is_same_as(self, other: Session) -> bool:
        """Whether both share one cache."""
        return self.cache is other.cache

    def clear(self) -> None:
        """Let go of everything that is not in use."""
        self.cache.clear()
        self.index_cache.clear()

    # ------------------------------------------------------------------ contents

    def apart(self, *, comparing: bool = False, shares_indices: bool = True) -> Session:
        """A small session for one scan, which leaves this one as it is, except for its indices.

        One that is ``comparing`` compares all files that have checksums, if nobody said otherwise:
        what is read to be written again gets new ones, which damage would agree with.
        """
        session = Session(APART_BYTES, APART_BYTES)
        session.comparing = comparing
        if shares_indices:
            session.index_cache = self.index_cache
        return session

    def verification(self, store: ObjectStore, unasked: Verification) -> Verification:
        """What is compared in a store; ``unasked`` is for one that is comparing."""
        return verification(store, unasked if self.comparing else None)

    def open_file(
        self, store: ObjectStore, path: str, size: int | None, *, prefetch: bool
    ) -> FileReader:
        """Open a data file, or find it opened."""

        def load() -> tuple[FileReader, int]:
            place = store
            if prefetch:
                from glaive.io.prefetch import PrefetchingStore

                place = PrefetchingStore(store)
            file = open_reader(place, path, size=size, verify=verify)
            return file, file.nbytes

        # Parts of buffers that are not mapped would be fetched with the whole, and so again.
        verify = self.verification(store, "always" if store.is_local else "fetched")
        key = (store.full(path), store.reached_by, size, prefetch, verify)
        found: FileReader = self.cache.get_or_load(key, load)
        return found

    def moved(self) -> None:
        """Note that a dataset moved to another version; at times, let go of what is useless.

        All entries are looked at once there were moves or new entries enough to pay for it.
        """
        self._moves += 1
        entries = len(self.cache) + len(self.index_cache)
        if self._moves * _ENTRIES_OF_A_MOVE < entries < self._left * _MORE:
            return
        self.cache.discard(_is_useless)
        self.index_cache.discard(_is_useless)
        self._moves, self._left = 0, len(self.cache) + len(self.index_cache)

    def keep(self, key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
        """What is kept under a key, else what ``load`` returns, with its size in bytes."""
        return self.cache.get_or_load(key, load)

    def keep_index(self, key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
        """The same for what belongs to an index."""
        return self.index_cache.get_or_load(key, load)


def _is_useless(key: Hashable) -> bool:
    """Whether what an entry is good for is no longer there; nothing is known of other stores."""
    while isinstance(key, tuple):
        key = key[0]
    if isinstance(key, weakref.ref):
        return key() is None
    is_local = isinstance(key, str) and key.startswith("/")
    return is_local and not os.path.lexists(str(key))
