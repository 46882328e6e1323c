"""Deleting versions, or all of a dataset, leaves alone what it names outside of its root."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2
from glaive.io.local import LocalStore
from glaive.table.load import open_latest

pytestmark = pytest.mark.spec("rel-16")

ROWS = pa.table({"id": [1, 2, 3]})
Deletion = Callable[[Path], object]


def clean_up(place: Path) -> object:
    return glaive.dataset(place).cleanup_old_versions(timedelta(0), delete_unverified=True)


def clean_up_after_all(place: Path) -> object:
    """Nothing of the versions before is needed any more."""
    glaive.write_dataset(ROWS, place, mode="overwrite")
    return clean_up(place)


def drop(place: Path) -> object:
    return LanceDataset.drop(place)


DELETIONS = [clean_up, clean_up_after_all, drop]


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("deletion", DELETIONS)
@pytest.mark.parametrize("is_root", [False, True])
def test_files_of_base_paths_stay(tmp_path: Path, deletion: Deletion, is_root: bool) -> None:
    place, other = tmp_path / "t", tmp_path / "other"
    base = glaive.DatasetBasePath(str(other), "other", is_dataset_root=is_root)
    glaive.write_dataset(ROWS, place, initial_bases=[base], target_bases=["other"])
    glaive.write_dataset(ROWS, place, mode="append", target_bases=["other"])
    before = content(other)
    assert any(name.endswith(".lance") for name in before)
    deletion(place)
    assert content(other) == before


@pytest.mark.spec("rel-40")
@pytest.mark.parametrize("deletion", DELETIONS)
def test_the_dataset_that_a_clone_was_made_of_stays(tmp_path: Path, deletion: Deletion) -> None:
    source = glaive.write_dataset(ROWS, tmp_path / "source")
    source.delete("id = 2")
    source.create_scalar_index("id", "BTREE")
    source.shallow_clone(str(tmp_path / "clone"))
    before = content(tmp_path / "source")
    deletion(tmp_path / "clone")
    assert content(tmp_path / "source") == before
    assert glaive.dataset(tmp_path / "source").to_table()["id"].to_pylist() == [1, 3]


@pytest.mark.parametrize("deletion", [clean_up_after_all, drop])
def test_values_of_others_stay(tmp_path: Path, deletion: Deletion) -> None:
    value = tmp_path / "media" / "value.bin"
    value.parent.mkdir()
    value.write_bytes(b"not ours")
    rows = pa.table({"id": [1], "b": glaive.blob_array([value.as_uri()])})
    place = tmp_path / "t"
    glaive.write_dataset(
        rows, place, data_storage_version="2.2", allow_external_blob_outside_bases=True
    )
    deletion(place)
    assert content(value.parent) == {"value.bin": b"not ours"}


NAMES = ["../../victim/data.lance", "/etc/passwd", "a/../../x.lance", "..", "a\\..\\..\\x.lance"]


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_that_names_a_file_elsewhere_deletes_nothing(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "data.lance").write_bytes(b"not ours")
    place = tmp_path / "t"
    glaive.write_dataset(ROWS, place)
    manifest = open_latest(LocalStore(place))
    fragment = table_pb2.DataFragment()
    fragment.ParseFromString(manifest.wire.fragments[0])
    raw = Path(manifest.where).read_bytes()
    own = fragment.files[0].path
    assert raw.count(own.encode()) >= 1
    padded = f"{name}{'/x' * 40}"[: len(own)]
    Path(manifest.where).write_bytes(raw.replace(own.encode(), padded.encode()))
    before = content(victim)
    for deletion in (clean_up, clean_up_after_all):
        with pytest.raises(CorruptFileError, match="path of a data file"):
            deletion(place)
    drop(place)
    assert content(victim) == before


def test_merging_the_parts_of_an_index_deletes_none_behind_a_link(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(pa.table({"text": ["a", "b"]}), tmp_path / "t")
    uuid, other = str(uuid4()), tmp_path / "other"
    dataset.create_scalar_index("text", "INVERTED", fragment_ids=[0], index_uuid=uuid)
    staging = tmp_path / "t/_indices" / uuid / "staging"
    staging.rename(other)
    staging.symlink_to(other)
    (other / "letter.txt").write_bytes(b"not ours")
    before = content(other)
    dataset.merge_index_metadata(uuid, "INVERTED")
    assert content(other) == before


@pytest.mark.skipif(os.name == "nt", reason="names of files cannot have such characters there")
def test_a_file_whose_name_no_dataset_can_have_stays_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "t"
    glaive.write_dataset(ROWS, place)
    foreign = [
        place / "Icon\r",
        place / "data" / "a\nb" / "c",
        place / "_refs" / "tags" / ".a\nb.json.0011aabb.tmp",
        place / "_refs" / "tags" / f"a\nb.json.tmp.{'0' * 32}",
    ]
    for file in foreign:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    link = place / "data" / "l\nk"
    link.symlink_to(tmp_path)
    for deletion in DELETIONS:
        deletion(place)
    assert sorted(path for path in place.rglob("*") if path.is_file()) == sorted(foreign)
    assert link.is_symlink()
    assert any("Icon\\r" in message for message in caplog.messages)
