"""A clean-up keeps files of versions that it does not find by their numbers or names alone."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from glaive.fragment import write_fragments

import glaive
from glaive import DatasetBasePath
from glaive.dataset.dataset import LanceDataset
from glaive.errors import DataFileMissingError, OptionError


@pytest.mark.spec("rel-14")
def test_files_of_a_detached_version_stay(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    dataset = glaive.write_dataset(rows, tmp_path / "t")
    append = glaive.LanceOperation.Append(write_fragments(rows, dataset))
    made = LanceDataset.commit(dataset, append, read_version=1, detached=True)
    glaive.write_dataset(rows, tmp_path / "t", mode="append")
    glaive.dataset(tmp_path / "t").cleanup_old_versions(timedelta(0), delete_unverified=True)
    opened = glaive.dataset(tmp_path / "t", version=made.version)
    assert opened.to_table()["id"].to_pylist() == [1, 2, 3] * 2


@pytest.mark.spec("rel-14")
def test_the_origin_of_a_branch_stays_also_where_its_file_names_the_main_branch(
    tmp_path: Path,
) -> None:
    dataset = glaive.write_dataset(pa.table({"id": [1, 2, 3]}), tmp_path / "t")
    dataset.create_branch("dev")
    file = tmp_path / "t/_refs/branches/dev.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "parentBranch": "main"}))
    replaced = glaive.write_dataset(pa.table({"id": [4]}), tmp_path / "t", mode="overwrite")
    assert replaced.branches.list()["dev"]["parent_branch"] is None
    replaced.cleanup_old_versions(timedelta(0))
    branch = glaive.dataset(tmp_path / "t").checkout_version(("dev", None))
    assert branch.to_table()["id"].to_pylist() == [1, 2, 3]


@pytest.mark.spec("rel-14")
@pytest.mark.parametrize("name", ["t", "link"])
def test_files_below_a_base_path_that_is_the_dataset_itself_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    glaive.write_dataset(
        pa.table({"id": [1, 2, 3]}),
        tmp_path / "t",
        initial_bases=[DatasetBasePath(str(tmp_path / name), name="own", is_dataset_root=True)],
        target_bases=["own"],
    )
    dataset = glaive.write_dataset(pa.table({"id": [4]}), tmp_path / "t", mode="append")
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert glaive.dataset(tmp_path / "t").to_table()["id"].to_pylist() == [1, 2, 3, 4]


@pytest.mark.spec("rel-14", "clean-6")
@pytest.mark.parametrize("place", ["{}", "fsspec+file://{}"])
def test_a_file_that_another_one_of_the_dataset_is_a_link_to_stays(
    tmp_path: Path, place: str
) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    glaive.write_dataset(rows, tmp_path / "t")
    dataset = glaive.write_dataset(rows, tmp_path / "t", mode="overwrite")
    file = tmp_path / "t/data" / dataset.get_fragments()[0].data_files()[0].path
    (equal,) = {*(tmp_path / "t/data").iterdir()} - {file}
    file.unlink()  # programs leave it so that replace equal files by links
    file.symlink_to(equal.name)
    opened = glaive.dataset(place.format(tmp_path / "t"))
    stats = opened.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert f"{equal} was kept: a link leads to it" in stats.warnings
    assert glaive.dataset(tmp_path / "t").to_table() == rows


@pytest.mark.spec("rel-14", "clean-6")
def test_files_that_a_version_names_by_a_link_to_their_folder_stay(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    dataset = glaive.write_dataset(rows, tmp_path / "t")
    (tmp_path / "t/data/again").symlink_to(tmp_path / "t/data")
    (fragment,) = write_fragments(rows, dataset)
    name = fragment.files[0].path
    text = json.dumps(fragment.to_json()).replace(name, f"again/{name}")
    fragment = glaive.FragmentMetadata.from_json(text)
    overwrite = glaive.LanceOperation.Overwrite(rows.schema, [fragment])
    committed = LanceDataset.commit(dataset, overwrite, read_version=1)
    committed.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert glaive.dataset(tmp_path / "t").to_table() == rows


@pytest.mark.parametrize("option", ["delete_rate_limit", "delete_concurrency"])
@pytest.mark.parametrize("limit", [0, -1, 1.5, float("nan")])
def test_limits_of_a_clean_up_are_whole_numbers(tmp_path: Path, option: str, limit: float) -> None:
    dataset = glaive.write_dataset({"x": [1]}, tmp_path / "t")
    given: dict[str, Any] = {option: limit}
    with pytest.raises(OptionError, match=f"{option} must be greater than 0, got"):
        dataset.cleanup_old_versions(timedelta(0), **given)


@pytest.mark.spec("rel-14", "clean-6")
@pytest.mark.parametrize("cleaned", ["main", "dev"])
@pytest.mark.parametrize("place", ["{}", "local://{}"])
def test_a_file_that_one_of_another_branch_is_a_link_to_stays(
    tmp_path: Path, cleaned: str, place: str
) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    branches = {"main": glaive.write_dataset(rows, tmp_path / "t")}
    branches["dev"] = branches["main"].create_branch("dev")
    folders = {"main": tmp_path / "t/data", "dev": tmp_path / "t/tree/dev/data"}
    files = {}
    for name, folder in folders.items():
        branches[name] = glaive.write_dataset(rows, branches[name], mode="overwrite")
        files[name] = folder / branches[name].get_fragments()[0].data_files()[0].path
    other = ({*folders} - {cleaned}).pop()
    files[other].unlink()  # programs leave it so that replace equal files by links
    files[other].symlink_to(files[cleaned])
    (folders[other] / "of\na stranger").symlink_to(files[other])
    glaive.write_dataset(pa.table({"id": [4]}), branches[cleaned], mode="overwrite")
    dataset = glaive.dataset(place.format(tmp_path / "t"))
    if cleaned == "dev":
        dataset = dataset.checkout_version(("dev", None))
    stats = dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert f"{files[cleaned]} was kept: a link leads to it" in stats.warnings
    assert branches[other].to_table() == rows


@pytest.mark.spec("rel-41")
@pytest.mark.parametrize("tagged", [True, False])
def test_a_source_keeps_the_files_of_a_clone_where_their_version_has_a_tag(
    tmp_path: Path, tagged: bool
) -> None:
    dataset = glaive.write_dataset(pa.table({"id": [1, 2, 3]}), tmp_path / "source")
    dataset.shallow_clone(str(tmp_path / "clone"), 1)
    if tagged:
        dataset.tags.create("cloned", 1)
    dataset = glaive.write_dataset(pa.table({"id": [4]}), tmp_path / "source", mode="overwrite")
    removed = dataset.cleanup_old_versions(
        timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    clone = glaive.dataset(tmp_path / "clone")
    if tagged:
        assert removed.old_versions == 0
        assert clone.to_table()["id"].to_pylist() == [1, 2, 3]
    else:
        assert removed.old_versions == 1
        with pytest.raises(DataFileMissingError, match=r"source.*\.lance"):
            clone.to_table()
