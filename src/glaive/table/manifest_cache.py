"""The newest manifests that were read or made a moment ago.

Whoever appends many times in a row reads the version that the append before has made. What a
place holds is always read: only if these are the very bytes that were read or written there
before, the manifest made of them then is taken again and nothing is parsed. Manifests are never
changed, so all may share them.

One manifest per dataset is kept, of few datasets, and none of a large one. The cache is that of
the process and not of a session: who appends by path opens a session with every call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from glaive.format.manifest import Manifest

__all__ = ["MANIFESTS", "DirectoryState", "ManifestCache"]

DirectoryState = tuple[int, ...]
"""What a directory was like; another one when names came or went since."""


class ManifestCache:
    """The newest manifest of each dataset, by the folder it is in. Safe to share between threads.

    Parameters
    ----------
    most_datasets
        Datasets that are kept: those used last.
    most_bytes
        Bytes of a manifest file that is kept; parsed, it takes some times as much.
    fresh_seconds
        How long a version is known to have been the newest.
    """

    __slots__ = ("_entries", "_fresh_seconds", "_most_bytes", "_most_datasets")

    def __init__(
        self,
        *,
        most_datasets: int = 4,
        most_bytes: int = 1024 * 1024,
        fresh_seconds: float = 1.0,
    ) -> None:
        self._most_datasets, self._most_bytes = most_datasets, most_bytes
        self._fresh_seconds = fresh_seconds
        self._entries: dict[str, tuple[pa.Buffer, Manifest, float, DirectoryState | None]] = {}

    def recall(self, data: pa.Buffer, where: str) -> Manifest | None:
        """The manifest last kept of the same folder, if it was made of these bytes there."""
        entry = self._entries.get(_folder(where))
        if entry is None or entry[1].where != where or not entry[0].equals(data):
            return None
        return entry[1]

    def newest(self, folder: str, state: DirectoryState | None) -> Manifest | None:
        """The manifest that was the newest a moment ago, when the folder was as it is now."""
        entry = self._entries.get(folder)
        if entry is None or state is None or entry[3] != state:
            return None
        return entry[1] if time.monotonic() - entry[2] <= self._fresh_seconds else None

    def keep(
        self,
        pieces: Sequence[bytes | pa.Buffer],
        manifest: Manifest,
        state: DirectoryState | None = None,
    ) -> None:
        """Keep the newest manifest and the pieces of its file, until the next one of its folder.

        The manifest tells the rows of all its fragments, as far as its files tell them. It was the
        newest when the folder was in this ``state``.
        """
        if sum(map(len, pieces)) > self._most_bytes:
            return
        data = pa.py_buffer(b"".join(pieces))
        folder = _folder(manifest.where)
        # Each step is atomic. A lock might be held for ever in a child forked meanwhile.
        self._entries.pop(folder, None)
        self._entries[folder] = data, manifest, time.monotonic(), state
        for oldest in list(self._entries)[: -self._most_datasets]:
            self._entries.pop(oldest, None)

    def clear(self) -> None:
        """Let go of all manifests."""
        self._entries.clear()


MANIFESTS: Final = ManifestCache()
"""The cache of this process."""


def _folder(where: str) -> str:
    return where.rpartition("/")[0]
