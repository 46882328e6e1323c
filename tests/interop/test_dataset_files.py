"""Which files a dataset has, and that dropping it leaves nothing: as pylance says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import DatasetNotFoundError, OptionError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path: Path) -> str:
    uri = str(tmp_path / "d")
    dataset = lance.write_dataset(pa.table({"a": range(100)}), uri)
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a < 10")
    lance.write_dataset(pa.table({"a": [1]}), uri, mode="append")
    return uri


def rows(reader: pa.RecordBatchReader) -> list[dict[str, object]]:
    return sorted(reader.read_all().to_pylist(), key=str)


def test_all_files_are_those_pylance_names(path: str) -> None:
    mine, theirs = glaive.dataset(path).all_files(), lance.dataset(path).all_files()
    assert mine.schema == theirs.schema
    assert rows(mine) == rows(theirs)


def test_tracked_files_are_those_pylance_names(path: str) -> None:
    for least in (None, 3):
        mine = glaive.dataset(path).tracked_files(min_version=least)
        theirs = lance.dataset(path).tracked_files(min_version=least)
        assert mine.schema == theirs.schema
        assert rows(mine) == rows(theirs)


def test_files_of_a_branch_lie_in_two_places(path: str) -> None:
    branch = lance.dataset(path).create_branch("dev", 3)
    branch.insert(pa.table({"a": [7]}))
    opened = glaive.dataset(path, version=("dev", None))
    found = rows(opened.tracked_files(min_version=4))
    # pylance leaves out data files of other places; they are needed all the same.
    assert {str(row["base_uri"]) for row in found} == {path, f"{path}/tree/dev"}
    kinds = [row["type"] for row in found if row["base_uri"] == path]
    assert sorted(map(str, kinds)) == ["data file", "deletion file"]


def test_progress_is_told(path: str) -> None:
    told: list[tuple[int, int | None]] = []
    reader = glaive.dataset(path).tracked_files(progress=lambda *one: told.append(one))
    reader.read_all()
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_dropped_dataset_is_gone(path: str) -> None:
    (Path(path) / "notes.txt").write_text("kept nearby")
    glaive.LanceDataset.drop(path)
    assert not Path(path).exists()
    with pytest.raises(DatasetNotFoundError):
        glaive.LanceDataset.drop(path)
    glaive.LanceDataset.drop(path, ignore_not_found=True)


@pytest.mark.parametrize("options", [{}, {"manifest_store": "sqlite"}], ids=["plain", "sqlite"])
def test_files_of_writers_that_failed_are_dropped_too(
    tmp_path: Path, options: dict[str, str]
) -> None:
    place = tmp_path / "d"
    glaive.write_dataset(pa.table({"a": [1]}), place, storage_options=options)
    (place / "data" / ".x.lance.0123.tmp").write_bytes(b"begun")
    glaive.LanceDataset.drop(place, options)
    assert not place.exists()


def test_what_is_no_dataset_is_not_dropped(path: str) -> None:
    parent = Path(path).parent
    with pytest.raises(OptionError, match="is not a dataset"):
        glaive.LanceDataset.drop(parent)
    newest = min((Path(path) / "_versions").glob("*.manifest"))
    newest.write_bytes(b"damaged")
    with pytest.raises(OptionError, match="cannot be read"):
        glaive.LanceDataset.drop(path)
    assert newest.exists()


def test_manifests_are_named_anew(tmp_path: Path) -> None:
    uri = str(tmp_path / "old")
    for at in range(3):
        lance.write_dataset(
            pa.table({"a": [at]}), uri, mode="append", enable_v2_manifest_paths=False
        )
    dataset = glaive.dataset(uri)
    dataset.migrate_manifest_paths_v2()
    names = sorted(one.name for one in (tmp_path / "old" / "_versions").glob("*.manifest"))
    assert names == [f"{2**64 - 1 - version:020d}.manifest" for version in (3, 2, 1)]
    for version in (1, 2, 3):
        assert lance.dataset(uri, version=version).count_rows() == version
    dataset.migrate_manifest_paths_v2()
    dataset.insert(pa.table({"a": [9]}))
    assert lance.dataset(uri).to_table() == glaive.dataset(uri).to_table()
