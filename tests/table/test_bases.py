"""Files may lie below another root; the manifest says which."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from glaive.errors import CorruptFileError
from glaive.format.manifest import Manifest
from glaive.io.local import LocalStore
from glaive.io.location import Location
from glaive.table.deletions import load_deletions
from glaive.table.load import open_latest
from glaive.table.root import BaseLocations, locate_data_file

from .places import V2_2, create, fragment


@pytest.mark.spec("base-1", "base-2")
def test_files_are_found_by_the_id_of_their_base(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    manifest = create(store)
    for number, is_root in ((7, True), (3, False)):
        base = manifest.wire.base_paths.add()
        base.id, base.path, base.is_dataset_root = number, str(tmp_path / f"b{number}"), is_root
    (file,) = fragment().files
    assert locate_data_file(store, manifest, file) == (store, f"data/{file.path}")
    place, path = locate_data_file(store, manifest, replace(file, base_id=7))
    assert place.full(path) == f"{tmp_path}/b7/data/{file.path}"
    place, path = locate_data_file(store, manifest, replace(file, base_id=3))
    assert place.full(path) == f"{tmp_path}/b3/{file.path}"
    with pytest.raises(CorruptFileError, match=r"base path of a file: expected one of \[7, 3\]"):
        locate_data_file(store, manifest, replace(file, base_id=1))


class _HoldingStore(LocalStore):
    """A store that refers to what was read from it, as one with a cache does."""

    manifest: Manifest


def test_a_version_is_let_go_of_though_its_stores_refer_to_it(tmp_path: Path) -> None:
    store = _HoldingStore(tmp_path / "t")
    store.manifest = manifest = Manifest(create(store).wire, where="here")  # not the cached one
    base = manifest.wire.base_paths.add()
    base.id, base.path, base.is_dataset_root = 7, str(tmp_path / "b7"), True
    (file,) = fragment().files
    locate_data_file(store, manifest, replace(file, base_id=7))
    alive = weakref.ref(manifest)
    del store, manifest
    gc.collect()
    assert alive() is None


@pytest.mark.interop
def test_files_of_a_clone_are_found_where_they_came_from(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    source = str(tmp_path / "source")
    lance.write_dataset(pa.table({"id": range(10)}), source)
    dataset = lance.dataset(source)
    dataset.delete("id IN (2, 5)")
    dataset.tags.create("here", 2)
    lance.dataset(source).shallow_clone(str(tmp_path / "clone"), "here")
    store = LocalStore(tmp_path / "clone")
    manifest = open_latest(store)
    one = manifest.fragment(0)
    place, path = locate_data_file(store, manifest, one.files[0])
    assert one.files[0].version == V2_2
    assert place.head(path).size == one.files[0].size
    assert load_deletions(store, manifest, one).tolist() == [2, 5]


def lines_run(work: Callable[[], object]) -> int:
    """Lines of Python that a call runs."""
    lines = 0

    def count(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("bases", [50, 5000])
def test_the_last_of_many_bases_is_found_without_a_look_at_the_others(
    tmp_path: Path, bases: int
) -> None:
    store = LocalStore(tmp_path / "t")
    manifest = Manifest(create(store).wire, where="here")
    for number in range(bases):
        manifest.wire.base_paths.add(id=number, path=f"{tmp_path}/{number}")
    manifest.wire.base_paths.add(id=7, path="/of the same id")
    (file,) = fragment().files
    locate_data_file(store, manifest, replace(file, base_id=3))
    last = replace(file, base_id=bases - 1)
    assert lines_run(lambda: locate_data_file(store, manifest, last)) < 2000
    place, _ = locate_data_file(store, manifest, replace(file, base_id=7))
    assert place.uri == f"{tmp_path}/7"
    with pytest.raises(CorruptFileError, match=rf"18, 19\] and {bases - 19} others") as error:
        locate_data_file(store, manifest, replace(file, base_id=bases))
    assert len(str(error.value)) < 1000


def test_a_value_is_found_below_the_first_base_that_contains_it(tmp_path: Path) -> None:
    manifest = Manifest(create(LocalStore(tmp_path / "t")).wire, where="here")
    uris = [
        "/a/b/c",
        "/a/b",
        "/a/b",
        "/a",
        "s3://a/b",
        "s3://a",
        "az://one/x",
        "az://two/x",
        "abfss://two@account.dfs.core.windows.net/x",
        "memory://m/b",
        *(f"/n/{number}" for number in range(3000)),
    ]
    for number, uri in enumerate(uris, 1):
        manifest.wire.base_paths.add(id=number, path=uri)
    places = BaseLocations(f"{tmp_path}/t", manifest)
    asked = [
        *("/a/b/c/d", "/a/b/c", "/a/b/d", "/a/bc", "/a", "/b", "/n/2999/x", "/n/3000/x"),
        *("s3://a/b/c", "s3://a/c", "s3://b/c", "s3://a/b/../c", "az://two/x/y", "az://one/y"),
        *("abfss://two@account.dfs.core.windows.net/x/y", "memory://m/b/c", "http://a/b/c"),
        *(f"{tmp_path}/t/data/x", f"/{'a/' * 5000}"),
    ]
    for uri in asked:
        location = Location.parse(uri)
        containing = [
            id for id in (None, *range(1, len(uris) + 1)) if places[id].contains(location)
        ]
        found = places.above(location)
        assert (found and found[0]) == (containing[0] if containing else None), uri
        assert (found is None) == (not containing)
    last = Location.parse("/n/2999/x")
    assert lines_run(lambda: places.above(last)) < 200
