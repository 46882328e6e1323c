"""The newest manifests that were read or made a moment ago.

Whoever appends many times in a row reads the version that the append before has made. What a
place holds is always read: only if these are the very bytes that were read or written there
before, the manifest made of them then is taken again and nothing is parsed. Manifests are never
changed, so all may share them.

One manifest per dataset is kept, of few datasets, and none of a large one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from glaive.format.manifest import Manifest
from glaive.format.paths import VERSIONS
from glaive.io.store import ObjectStore

__all__ = ["KNOWN", "MOST", "State", "newest_known", "recall", "remember", "state_of"]

MOST: Final = 4
"""Datasets."""

_MOST_BYTES: Final = 1024 * 1024
"""Of a manifest file; parsed, it takes some times as much."""

_FRESH_SECONDS: Final = 1.0
"""How long a version is known to have been the newest."""

State = tuple[int, ...]
"""What a directory was like; another one when names came or went since."""

KNOWN: Final[dict[str, tuple[pa.Buffer, Manifest, float, State | None]]] = {}


def recall(data: pa.Buffer, where: str) -> Manifest | None:
    """The manifest last remembered of the same folder, if it was made of these bytes there."""
    known = KNOWN.get(_folder(where))
    if known is None or known[1].where != where or not known[0].equals(data):
        return None
    return known[1]


def newest_known(folder: str, state: State | None) -> Manifest | None:
    """The manifest that was the newest here within the last second, when all was as it is now."""
    known = KNOWN.get(folder)
    if known is None or state is None or known[3] != state:
        return None
    return known[1] if time.monotonic() - known[2] <= _FRESH_SECONDS else None


def remember(
    pieces: Sequence[bytes | pa.Buffer], manifest: Manifest, state: State | None = None
) -> None:
    """Keep the newest manifest and the pieces of its file, until the next one of its folder.

    The manifest tells the rows of all its fragments, as far as its files tell them. It was the
    newest when the folder was in this ``state``.
    """
    if sum(map(len, pieces)) > _MOST_BYTES:
        return
    data = pa.py_buffer(b"".join(pieces))
    folder = _folder(manifest.where)
    # Each step is atomic. A lock might be held for ever in a child forked meanwhile.
    KNOWN.pop(folder, None)
    KNOWN[folder] = data, manifest, time.monotonic(), state
    for oldest in list(KNOWN)[:-MOST]:
        KNOWN.pop(oldest, None)


def state_of(store: ObjectStore) -> State | None:
    """What the directory of the versions is like now; ``None`` where there is no directory."""
    return store.folder_state(VERSIONS)


def _folder(where: str) -> str:
    return where.rpartition("/")[0]
