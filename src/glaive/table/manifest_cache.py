"""A cache of recently read or written newest manifests.

Repeated appends read the version of the previous append. The file is always read, but if its bytes
are those read or written before, it is not parsed again. Manifests are immutable, so they can be
shared.

The cache has one manifest per dataset, for a few datasets, and no large manifests. It belongs to
the process rather than to a session, because every append by path opens a new session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from glaive.clock import monotonic, now_ns
from glaive.format.manifest import Manifest
from glaive.named_tuple import NamedTuple

__all__ = ["MANIFESTS", "DirectoryState", "ManifestCache", "SeenDirectory"]

DirectoryState = tuple[int, int, int]
"""Number of a directory, and the times (ns) of its last changes: files created or deleted in it."""


class SeenDirectory(NamedTuple):
    """The state of a directory before it was listed.

    ``shows_changes``: a later change gives it another state. Changes at about the same time may
    not: times of file systems have steps of up to two seconds.
    """

    state: DirectoryState
    shows_changes: bool = False


class _Entry(NamedTuple):
    """A manifest, the bytes it was parsed from, when, and what the directory was then."""

    data: pa.Buffer
    manifest: Manifest
    made: float
    seen: SeenDirectory | None


class ManifestCache:
    """The newest manifest of each dataset, by its folder. Safe to share between threads.

    Parameters
    ----------
    max_datasets
        Number of datasets to keep: the most recently used.
    max_bytes
        Maximum bytes of a cached manifest file; the parsed manifest is several times larger.
    fresh_seconds
        How long a writer may use an entry without listing the versions.
    step_seconds
        How long ago a directory must have changed for later changes to show in its times: more than
        a step of them.
    fine_step_seconds
        The same for file systems whose times have parts of milliseconds: their steps are the ticks
        of the system's clock, 10 ms at most.
    """

    __slots__ = (
        "_entries",
        "_fine_step_seconds",
        "_fresh_seconds",
        "_max_bytes",
        "_max_datasets",
        "_step_seconds",
    )

    def __init__(
        self,
        *,
        max_datasets: int = 4,
        max_bytes: int = 1024 * 1024,
        fresh_seconds: float = 1.0,
        step_seconds: float = 3.0,
        fine_step_seconds: float = 0.1,
    ) -> None:
        self._max_datasets, self._max_bytes = max_datasets, max_bytes
        self._fresh_seconds = fresh_seconds
        self._step_seconds, self._fine_step_seconds = step_seconds, fine_step_seconds
        self._entries: dict[str, _Entry] = {}

    def recall(self, data: pa.Buffer, where: str) -> Manifest | None:
        """The cached manifest of the same file, if it was parsed from the same bytes."""
        entry = self._entries.get(_folder(where))
        if entry is None or entry.manifest.where != where or not entry.data.equals(data):
            return None
        return entry.manifest

    def see(self, state: DirectoryState | None) -> SeenDirectory | None:
        """Judge the state of a directory that was just looked at, and has not been listed yet."""
        if state is None:
            return None
        changed = max(state[1:])
        step = self._fine_step_seconds if changed % 1_000_000 else self._step_seconds
        return SeenDirectory(state, (now_ns() - changed) / 1e9 > step)

    def newest(
        self, folder: str, state: DirectoryState | None, *, to_follow: bool = False
    ) -> Manifest | None:
        """The cached manifest, if the folder is unchanged, and a change would show.

        ``to_follow``: a fresh entry will do, as a mistake is noticed.
        """
        entry = self._entries.get(folder)
        if entry is None or entry.seen is None or entry.seen.state != state:
            return None
        is_fresh = to_follow and monotonic() - entry.made <= self._fresh_seconds
        return entry.manifest if is_fresh or entry.seen.shows_changes else None

    def keep(
        self,
        parts: Sequence[bytes | pa.Buffer],
        manifest: Manifest,
        seen: SeenDirectory | None = None,
    ) -> None:
        """Cache the newest manifest of a folder, and the parts of its file.

        The manifest must have all row counts. ``seen`` is the folder when it was the newest.
        """
        if sum(map(len, parts)) > self._max_bytes:
            return
        data = pa.py_buffer(b"".join(parts))
        folder = _folder(manifest.where)
        # Each step is atomic. A lock could stay locked in a concurrently forked process.
        self._entries.pop(folder, None)
        self._entries[folder] = _Entry(data, manifest, monotonic(), seen)
        for oldest in list(self._entries)[: -self._max_datasets]:
            self._entries.pop(oldest, None)

    def clear(self) -> None:
        """Remove all manifests."""
        self._entries.clear()


MANIFESTS: Final = ManifestCache()
"""The cache of this process."""


def _folder(where: str) -> str:
    return where.rpartition("/")[0]
