"""Maps of files: what may be loaded from them, and whether they are in memory."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glaive.errors import StoreError
from glaive.io import mapped as mapping
from glaive.io.local import LocalStore
from glaive.io.mapped import (
    MappedReader,
    advise,
    is_resident,
    map_file,
    map_many,
    prefetch,
    readable_size,
)
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


SIZES = [1, PAGE - 1, PAGE, PAGE + 1, 40 * PAGE + 7]


def test_files_are_mapped_one_after_the_other(tmp_path: Path) -> None:
    contents = [os.urandom(size) for size in SIZES]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    names = [str(number) for number in range(len(SIZES))]
    mapped = map_many(LocalStore(tmp_path), names, SIZES)
    assert mapped is not None
    found = [
        mapped.data.slice(start, size).to_pybytes()
        for start, size in zip(mapped.starts, SIZES, strict=True)
    ]
    assert found == contents
    room = mapped.data.size + readable_size(0)
    assert len(ctypes.string_at(mapped.data.address, room)) == room


def test_files_that_are_not_as_expected_are_not_mapped(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "a").write_bytes(bytes(2 * PAGE))
    (tmp_path / "folder").mkdir()
    for size in (0, 1, 2 * PAGE - 1, 2 * PAGE + 1, 9 * PAGE):
        assert map_many(store, ["a", "a"], [2 * PAGE, size]) is None
    size = (tmp_path / "folder").stat().st_size
    assert map_many(store, ["folder"], [size]) is None
    with pytest.raises(StoreError, match="absent"):
        map_many(store, ["a", "absent"], [2 * PAGE, PAGE])


def test_a_refused_map_leaves_no_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(bytes(PAGE))
    private: Any = vars(mapping)
    make_map, held = private["_map"], private["_Map"].held

    def refused(address: int | None, size: int, flags: int, fd: int) -> int:
        if address is not None:
            raise OSError(errno.ENOMEM, "no more maps")
        return int(make_map(address, size, flags, fd))

    monkeypatch.setattr(mapping, "_map", refused)
    assert map_many(LocalStore(tmp_path), ["a"], [PAGE]) is None
    assert private["_Map"].held == held


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
