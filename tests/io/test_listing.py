"""Files of this machine as they are listed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.io.access import open_store
from glaive.io.confined import describe

SECONDS = (300_000_000_000, -100_000_000_000)
"""Since 1970, of the years 11476 and -1199."""


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("seconds", SECONDS)
def test_a_file_of_a_year_that_no_time_has_is_one_of_unknown_time(seconds: int) -> None:
    status = os.stat_result((0o100644, 1, 1, 1, 0, 0, 7, 0, 0, 0), {"st_mtime_ns": seconds * 10**9})
    found = describe("a", status)
    assert (found.path, found.size, found.modified) == ("a", 7, None)


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on the disk, which may keep such times, and one in memory, which does."""
    if request.param == "disk":
        yield tmp_path
        return
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("no files in memory here")
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("seconds", SECONDS)
def test_files_of_such_years_are_read_and_ingested(folder: Path, seconds: int) -> None:
    dataset = glaive.write_dataset(pa.table({"a": [1]}), folder / "t")
    (source := folder / "a.csv").write_text("a\n2\n")
    for path in (source, *(one for one in (folder / "t").rglob("*") if one.is_file())):
        os.utime(path, (seconds, seconds))
    is_kept = source.stat().st_mtime == seconds
    assert is_kept or folder.parent != Path("/dev/shm")
    assert len(dataset.versions()) == 1
    dataset.cleanup_old_versions(retain_versions=1)
    glaive.ingest([source], folder / "t", mode="append")
    glaive.ingest([source], folder / "files", format="binary")
    assert glaive.dataset(folder / "t").to_table()["a"].to_pylist() == [1, 2]
    files = glaive.dataset(folder / "files").to_table(columns=["modified"])
    assert (files["modified"].to_pylist() == [None]) == is_kept
    times = {meta.modified for meta in open_store(folder / "t").walk("data")}
    assert (None in times) == is_kept
