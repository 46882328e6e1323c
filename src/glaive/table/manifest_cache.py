"""A cache of recently read or written newest manifests.

Repeated appends read the version of the previous append. The file is always read, but if its bytes
are those read or written before, it is not parsed again. Manifests are immutable, so they can be
shared.

The cache has one manifest per dataset, for a few datasets, and no large manifests. It belongs to
the process rather than to a session, because every append by path opens a new session.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from glaive.format.manifest import Manifest

__all__ = ["MANIFESTS", "DirectoryState", "ManifestCache"]

DirectoryState = tuple[int, ...]
"""State of a directory, which changes when files are created or deleted in it."""


class ManifestCache:
    """The newest manifest of each dataset, by its folder. Safe to share between threads.

    Parameters
    ----------
    max_datasets
        Number of datasets to keep: the most recently used.
    max_bytes
        Maximum bytes of a cached manifest file; the parsed manifest is several times larger.
    fresh_seconds
        How long an entry may be used without listing the versions.
    """

    __slots__ = ("_entries", "_fresh_seconds", "_max_bytes", "_max_datasets")

    def __init__(
        self, *, max_datasets: int = 4, max_bytes: int = 1024 * 1024, fresh_seconds: float = 1.0
    ) -> None:
        self._max_datasets, self._max_bytes = max_datasets, max_bytes
        self._fresh_seconds = fresh_seconds
        self._entries: dict[str, tuple[pa.Buffer, Manifest, float, DirectoryState | None]] = {}

    def recall(self, data: pa.Buffer, where: str) -> Manifest | None:
        """The cached manifest of the same file, if it was parsed from the same bytes."""
        entry = self._entries.get(_folder(where))
        if entry is None or entry[1].where != where or not entry[0].equals(data):
            return None
        return entry[1]

    def newest(self, folder: str, state: DirectoryState | None) -> Manifest | None:
        """The cached manifest, if it is fresh and the state of the folder is unchanged."""
        entry = self._entries.get(folder)
        if entry is None or state is None or entry[3] != state:
            return None
        return entry[1] if time.monotonic() - entry[2] <= self._fresh_seconds else None

    def keep(
        self,
        parts: Sequence[bytes | pa.Buffer],
        manifest: Manifest,
        state: DirectoryState | None = None,
    ) -> None:
        """Cache the newest manifest of a folder, and the parts of its file.

        The manifest must have all row counts. ``state`` is the state of the folder when it was the
        newest.
        """
        if sum(map(len, parts)) > self._max_bytes:
            return
        data = pa.py_buffer(b"".join(parts))
        folder = _folder(manifest.where)
        # Each step is atomic. A lock could stay locked in a concurrently forked process.
        self._entries.pop(folder, None)
        self._entries[folder] = data, manifest, time.monotonic(), state
        for oldest in list(self._entries)[: -self._max_datasets]:
            self._entries.pop(oldest, None)

    def clear(self) -> None:
        """Remove all manifests."""
        self._entries.clear()


MANIFESTS: Final = ManifestCache()
"""The cache of this process."""


def _folder(where: str) -> str:
    return where.rpartition("/")[0]
