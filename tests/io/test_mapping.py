"""Maps of files: what may be loaded from them, and whether they are in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from glaive.io.mapped import MappedReader, advise, is_resident, map_file, prefetch, readable_size
from glaive.types import ByteRange

PAGE = mmap.PAGESIZE


@pytest.mark.parametrize("size", [1, PAGE - 512, PAGE - 511, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE])
def test_memory_goes_on_behind_a_file(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        base = map_file(file.fileno(), size)
    assert base.to_pybytes() == content
    room = readable_size(size)
    assert size <= room
    assert ctypes.string_at(base.address, room)[:size] == content


@pytest.mark.parametrize("pages", [1, 64, 65])
def test_a_file_just_written_is_in_memory(tmp_path: Path, pages: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(pages * PAGE))
    assert not MappedReader(str(path)).is_cold()


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system cannot be told to forget")
def test_a_take_sees_that_one_of_sixty_pages_was_dropped(tmp_path: Path) -> None:
    path, step = tmp_path / "file", 16 * PAGE
    path.write_bytes(bytes(60 * step))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        base = map_file(file.fileno(), 60 * step)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    advise(base, [ByteRange(0, base.size)], "random")
    for at in range(60):
        if at != 37:
            ctypes.string_at(base.address + at * step, 1)
    ranges = np.array([[base.address + at * step, PAGE] for at in range(60)])
    was_dropped = not is_resident(base, [ByteRange(37 * step, 1)])
    assert prefetch(ranges) == was_dropped
