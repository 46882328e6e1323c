"""Caches of fsspec are left out: they show files as they were, and forget that a request failed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

fsspec = pytest.importorskip("fsspec", reason="install the extra 'fsspec'")
from tests.distant import DISTANT, Distant  # noqa: E402  # as above

CACHES = ("simplecache", "filecache", "blockcache", "cached")


def through(cache: str, place: Path) -> str:
    return f"fsspec+{cache}::{DISTANT.removeprefix('fsspec+').format(place)}"


@pytest.mark.spec("rel-14")
@pytest.mark.parametrize("cache", CACHES)
def test_a_cleanup_through_a_cache_keeps_what_a_tag_names_by_now(
    tmp_path: Path, cache: str
) -> None:
    for number in range(3):
        table = glaive.write_dataset(pa.table({"a": [number]}), tmp_path / "t", mode="overwrite")
    table.tags.create("kept", 1)
    cleaner = glaive.dataset(through(cache, tmp_path / "t"))
    assert cleaner.tags.list()["kept"]["version"] == 1
    table.tags.update("kept", 2)
    cleaner.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    kept = glaive.dataset(tmp_path / "t", version="kept")
    assert kept.to_table().to_pydict() == {"a": [1]}


@pytest.mark.spec("rel-4")
@pytest.mark.parametrize("cache", CACHES)
def test_a_request_that_failed_is_made_again_through_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    """A cache notes a part of a file as fetched before it asks for it, and has zeros then."""
    values = np.arange(1, 100_001)
    glaive.write_dataset(pa.table({"a": values}), tmp_path / "t")
    opened = glaive.dataset(through(cache, tmp_path / "t"))
    failures = [ConnectionResetError("the server is restarted")]

    def failing_once(name: str) -> None:
        working = getattr(Distant, name)

        def work(system: Any, *args: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return working(system, *args, **options)

        monkeypatch.setattr(Distant, name, work)

    for name in ("cat_file", "cat_ranges", "get_file"):
        failing_once(name)
    assert opened.to_table()["a"].to_pylist() == values.tolist()
    assert not failures


def test_a_dataset_is_made_again_and_read_through_the_same_cache(tmp_path: Path) -> None:
    options = {"cache_storage": str(tmp_path / "cache")}
    place = through("simplecache", tmp_path / "t")
    for number in range(2):
        table = glaive.write_dataset(pa.table({"a": [number]}), tmp_path / "t")
        found = glaive.dataset(place, storage_options=options).to_table()
        assert found.to_pydict() == {"a": [number]}
        table.drop(str(tmp_path / "t"))
