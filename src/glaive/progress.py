"""Progress of writes and of index builds, under the names of ``lance.progress``."""

from __future__ import annotations

from glaive.dataset.indexing.task import IndexProgress
from glaive.dataset.writing.fragments import (
    FileSystemFragmentWriteProgress,
    FragmentWriteProgress,
    NoopFragmentWriteProgress,
)

__all__ = [
    "FileSystemFragmentWriteProgress",
    "FragmentWriteProgress",
    "IndexProgress",
    "NoopFragmentWriteProgress",
]
