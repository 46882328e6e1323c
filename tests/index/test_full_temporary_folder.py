"""A temporary folder that is full, or not there, while an index is built."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from glaive.errors import StoreError
from glaive.index.protocol import ValueBatch
from glaive.index.scalar.rtree import BoxCollector
from glaive.index.scalar.sorting import sorted_runs
from glaive.index.vector.graph import PartitionSort

ROOT = Path(__file__).parent.parent.parent
ROWS = 40_000
NUMBERS = np.arange(ROWS, dtype=np.uint64)
RECORD = np.dtype([("_rowid", np.uint64)])


def sort_values() -> None:
    batches = [ValueBatch(pa.array(range(ROWS)), NUMBERS)] * 3
    with sorted_runs(batches, 1) as runs:
        assert len(runs) == 3


def sort_boxes() -> None:
    with BoxCollector(1 << 20) as collected:
        collected.add(np.zeros((ROWS, 4)), NUMBERS)
        assert len(collected.sorted()) == ROWS


def sort_few_boxes() -> None:
    with BoxCollector(1 << 20) as collected:
        collected.add(np.zeros((10, 4)), NUMBERS[:10])
        assert len(collected.sorted()) == 10


def sort_records() -> None:
    records = np.zeros(ROWS, RECORD)
    with PartitionSort(3, RECORD, 0) as sort:
        for _ in range(4):
            sort.add(np.zeros(ROWS, np.int32), records)
        assert sum(len(group.records) for group in sort.groups()) == 4 * ROWS


SORTS = [sort_values, sort_boxes, sort_few_boxes, sort_records]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.spec("rel-20")
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize("sort", SORTS)
def test_a_full_temporary_folder_is_an_error_that_says_how_to_choose_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: Callable[[], None]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with files_of_at_most(100), pytest.raises(StoreError) as caught:
        sort()
    message = str(caught.value)
    assert f"{tmp_path} (TMPDIR chooses the folder): File too large. " in message
    assert not list(tmp_path.iterdir())
    sort()
    assert not list(tmp_path.iterdir())


@pytest.mark.spec("rel-20")
@pytest.mark.parametrize("sort", SORTS)
def test_a_missing_temporary_folder_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: Callable[[], None]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StoreError, match=r"gone \(TMPDIR chooses the folder\)"):
        sort()


def sort_with_too_many_open_files() -> None:
    """Reach the limit in the middle of the runs: then none of those before can be listed."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def batches() -> Iterator[ValueBatch]:
        for number in range(4):
            if number == 2:
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
            yield ValueBatch(pa.array(range(ROWS)), NUMBERS)

    try:
        with pytest.raises(StoreError, match="Too many files"), sorted_runs(batches(), 1):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.spec("rel-20")
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_too_many_open_files_are_an_error_that_says_so_and_leave_no_folder(tmp_path: Path) -> None:
    """In a process of its own: threads of others, such as servers, would meet the limit, too."""
    name = sort_with_too_many_open_files.__name__
    code = f"from tests.index.{Path(__file__).stem} import {name}; {name}()"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=ROOT)
    assert not list(tmp_path.iterdir())
