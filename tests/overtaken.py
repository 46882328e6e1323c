"""Datasets on which another writer is first, at a version that a test names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import glaive

__all__ = ["open_overtaken"]


def open_overtaken(
    path: str, another: Callable[[], object], *, number: int = 2
) -> glaive.LanceDataset:
    """Open a dataset; when it is about to make its version of this ``number``, another goes first.

    A compaction makes two: the first reserves ids of fragments, the second rewrites.
    """
    left = [number]

    @contextmanager
    def lock(_: int) -> Iterator[None]:
        left[0] -= 1
        if left[0] == 0:
            another()
        yield

    return glaive.dataset(path, commit_lock=lock)
