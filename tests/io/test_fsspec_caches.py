"""Caches of fsspec are left out: they show files as they were, and forget that a request failed."""

from __future__ import annotations

import shutil
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError
from glaive.io.uri import open_store

fsspec = pytest.importorskip("fsspec", reason="install the extra 'fsspec'")
from fsspec.spec import AbstractBufferedFile  # noqa: E402  # once fsspec is known to be there
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


def test_a_cache_behind_another_file_system_is_refused() -> None:
    with pytest.raises(OptionError, match=r"works through a cache.* Leave the cache out"):
        open_store("fsspec+dir://t::simplecache::memory://t")


class _InParts(Distant):
    """Files that are fetched in parts, as those of a server."""

    protocol = "inparts"

    def _open(self, path: str, mode: str = "rb", *_: Any, **__: Any) -> Any:
        file = AbstractBufferedFile(self, path, mode, size=self.info(path)["size"])
        file._fetch_range = partial(self.cat_file, path)  # noqa: SLF001  # what fsspec has for subclasses
        return file

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        return Path(path).read_bytes()[start:end]


@pytest.mark.spec("rel-4")
@pytest.mark.parametrize("kind", ["tar", "zip"])
# fsspec leaves files of its caches open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_archive_in_a_cache_of_parts_is_refused_as_it_may_have_zeros(
    tmp_path: Path, kind: str
) -> None:
    fsspec.register_implementation("inparts", _InParts, clobber=True)
    glaive.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    packed = f"inparts://{shutil.make_archive(str(tmp_path / 'x'), kind, tmp_path, 't')}"
    for start in (f"{kind}://t::blockcache", f"{kind}://t::cached", f"dir://t::{kind}://::cached"):
        with pytest.raises(OptionError, match="zeros where a request failed"):
            open_store(f"fsspec+{start}::{packed}")
    for start in (f"{kind}://t", f"{kind}://t::simplecache"):
        assert glaive.dataset(f"fsspec+{start}::{packed}").to_table().to_pydict() == {"a": [1]}
