"""Files may lie below another root; the manifest says which."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from glaive.errors import CorruptFileError
from glaive.format.manifest import Manifest
from glaive.io.local import LocalStore
from glaive.table.bases import locate_data_file
from glaive.table.deletions import load_deletions
from glaive.table.load import open_latest

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
