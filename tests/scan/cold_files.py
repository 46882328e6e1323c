"""Files that are on disk and not in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["forget", "needs_fadvise"]

needs_fadvise = pytest.mark.skipif(
    not hasattr(os, "posix_fadvise"), reason="no way to drop files from memory"
)


def forget(place: str | Path) -> None:
    """Have the system drop the data files of a dataset from memory, as far as it can."""
    for file in Path(place, "data").iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
