"""Housekeeping does not cross links that lead out of a dataset, and says what it left."""

from __future__ import annotations

import os
import pickle
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.distant import DISTANT

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CorruptFileError, OptionError, StoreError
from glaive.format.paths import manifest_path, new_data_file_name

ROWS = pa.table({"id": [1, 2, 3]})
NOW = timedelta(0)
UUID = "d18587f8-5bb1-4d1d-9140-7d304a689779"
FOLDERS = ("data", "_versions", "_transactions", "_deletions", "_indices")
LEFTOVERS = {
    "data": new_data_file_name(),
    "_versions": f"18446744073709551600.manifest-{UUID}",
    "_transactions": f"3-{UUID}.txn",
    "_deletions": "0-1-5.arrow",
    "_indices": f"{UUID}/page_data.lance",
}
"""What looks like a file of a writer that failed, in each folder."""


def content(folder: Path) -> dict[str, bytes]:
    return {
        one.relative_to(folder).as_posix(): one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file() and not one.is_symlink()
    }


def make(place: Path) -> LanceDataset:
    """Four versions, with all kinds of files, and some that nobody refers to, a week old."""
    glaive.write_dataset(ROWS, place)
    dataset = glaive.write_dataset(ROWS, place, mode="overwrite")
    dataset.delete("id = 1")
    dataset.insert(ROWS)
    old = time.time() - 8 * 24 * 3600
    for folder, name in LEFTOVERS.items():
        file = place / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
        os.utime(file, (old, old))
    return glaive.dataset(place)


def move_out(place: Path, folder: str) -> Path:
    """Put a folder of a dataset elsewhere, and a link in its place."""
    target = place.parent / f"elsewhere{folder}"
    (place / folder).rename(target)
    (place / folder).symlink_to(target)
    return target


@pytest.fixture
def place(tmp_path: Path) -> Path:
    make(tmp_path / "t")
    return tmp_path / "t"


class TestCleanUp:
    @pytest.mark.spec("clean-6", "sec-6")
    @pytest.mark.parametrize("folder", FOLDERS)
    @pytest.mark.parametrize("unverified", [False, True])
    def test_nothing_behind_a_link_goes_and_that_is_said(
        self, place: Path, caplog: pytest.LogCaptureFixture, folder: str, *, unverified: bool
    ) -> None:
        target = move_out(place, folder)
        before = content(target)
        dataset = glaive.dataset(place)
        told = dataset.explain_cleanup_old_versions(NOW, delete_unverified=unverified)
        removed = dataset.cleanup_old_versions(NOW, delete_unverified=unverified)
        assert content(target) == before
        (warning,) = removed.warnings
        assert told.warnings == [warning]
        assert warning in caplog.text
        for part in (str(place / folder), str(target), "delete_through_links"):
            assert part in warning
        for one in dataset.versions():
            assert glaive.dataset(place, version=one["version"]).to_table().num_rows
        gone = {name for name, left in LEFTOVERS.items() if not (place / name / left).exists()}
        assert gone == set(FOLDERS) - {folder}

    @pytest.mark.spec("clean-6")
    def test_versions_whose_manifests_stay_keep_their_files(self, place: Path) -> None:
        move_out(place, "_versions")
        dataset = glaive.dataset(place)
        assert dataset.cleanup_old_versions(NOW).old_versions == 0
        assert len(dataset.versions()) == 4

    def test_the_versions_of_another_dataset_stay(self, place: Path) -> None:
        """A dataset that shows the manifests of another one as its own."""
        hostile = place.parent / "hostile"
        (hostile / "data").mkdir(parents=True)
        (hostile / "_versions").symlink_to(place / "_versions")
        before = content(place)
        glaive.dataset(hostile).cleanup_old_versions(NOW, delete_unverified=True)
        assert content(place) == before

    def test_the_data_of_another_dataset_stays(self, place: Path) -> None:
        hostile = place.parent / "hostile"
        dataset = glaive.write_dataset(ROWS, hostile)
        dataset.insert(ROWS)
        (hostile / "data").rename(hostile / "own")
        (hostile / "data").symlink_to(place / "data")
        before = content(place)
        dataset.cleanup_old_versions(NOW, delete_unverified=True)
        assert content(place) == before

    def test_a_manifest_that_is_a_link_stays_and_so_does_its_version(self, place: Path) -> None:
        file = place / manifest_path(2)
        file.rename(place.parent / "manifest")
        file.symlink_to(place.parent / "manifest")
        removed = glaive.dataset(place).cleanup_old_versions(NOW)
        assert str(file) in removed.warnings[0]
        assert [one["version"] for one in glaive.dataset(place).versions()] == [2, 4]
        assert glaive.dataset(place, version=2).count_rows() == 3

    def test_other_links_stay_with_what_they_lead_to(self, place: Path) -> None:
        outside = place.parent / "outside"
        outside.mkdir()
        (outside / "page_data.lance").write_bytes(b"precious")
        links = [place / "data" / new_data_file_name(), place / "_deletions" / "7-7-7.bin"]
        for link in links:
            link.symlink_to(outside / "page_data.lance")
        links += [
            place / "_indices" / UUID.replace("d", "e"),
            place / "data" / ("0" * 24 + "a" * 26),
        ]
        for link in links[2:]:
            link.symlink_to(outside)
        removed = glaive.dataset(place).cleanup_old_versions(NOW, delete_unverified=True)
        assert all(link.is_symlink() for link in links)
        assert content(outside) == {"page_data.lance": b"precious"}
        for link in links:
            assert any(str(link) in one for one in removed.warnings), link

    def test_links_below_the_root_are_followed(self, place: Path) -> None:
        (place / "data").rename(place / "rows")
        (place / "data").symlink_to("rows")
        removed = glaive.dataset(place).cleanup_old_versions(NOW)
        assert removed.warnings == ()
        assert removed.data_files_removed == 2
        assert not (place / "rows" / LEFTOVERS["data"]).exists()

    @pytest.mark.parametrize("folder", ["data", "_deletions", "_transactions"])
    def test_the_files_of_a_branch_are_not_those_of_the_main_one(
        self, place: Path, folder: str
    ) -> None:
        branch = glaive.dataset(place).create_branch("dev")
        branch.insert(ROWS)
        branch.delete("id = 2")
        (place / folder).rename(place / "moved")
        (place / folder).symlink_to(f"tree/dev/{folder}")
        before = content(place / "tree")
        glaive.dataset(place, version=4).cleanup_old_versions(NOW, delete_unverified=True)
        assert content(place / "tree") == before

    def test_a_branch_does_not_reach_the_main_one_either(self, place: Path) -> None:
        branch = glaive.dataset(place).create_branch("dev")
        branch.insert(ROWS)
        (place / "tree/dev/data").rename(place / "moved")
        (place / "tree/dev/data").symlink_to("../../data")
        before = content(place / "data")
        branch = glaive.dataset(place, version=("dev", None))
        assert branch.cleanup_old_versions(NOW, delete_unverified=True).warnings
        assert content(place / "data") == before

    def test_branches_behind_a_link_stay(self, place: Path) -> None:
        glaive.dataset(place).create_branch("dev").insert(ROWS)
        target = move_out(place, "tree")
        (target / "dev/data" / LEFTOVERS["data"]).write_bytes(b"x")
        before = content(target)
        branch = glaive.dataset(place, version=("dev", None))
        removed = branch.cleanup_old_versions(NOW, delete_unverified=True)
        assert content(target) == before
        assert str(target) in removed.warnings[0]

    def test_one_on_a_commit_stops_at_links_as_well(
        self, place: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        target = move_out(place, "data")
        (target / new_data_file_name()).write_bytes(b"x")
        dataset = glaive.dataset(place)
        dataset.optimize.enable_auto_cleanup({"interval": 1, "older_than_seconds": 0})
        before = set(content(target))
        dataset.insert(ROWS)
        assert set(content(target)) > before
        assert "is a link to" in caplog.text

    @pytest.mark.parametrize("folder", FOLDERS)
    def test_the_caller_may_allow_it(self, place: Path, folder: str) -> None:
        plain = place.parent / "plain"
        make(plain)
        expected = glaive.dataset(plain).cleanup_old_versions(NOW)
        target = move_out(place, folder)
        dataset = glaive.dataset(place, storage_options={"delete_through_links": "true"})
        removed = dataset.cleanup_old_versions(NOW)
        assert removed.warnings == ()
        assert removed.old_versions == expected.old_versions == 3
        assert removed.data_files_removed == expected.data_files_removed
        assert not (target / LEFTOVERS[folder]).exists()

    def test_a_root_that_is_a_link_is_as_good_as_any(self, place: Path) -> None:
        (place.parent / "alias").symlink_to(place)
        removed = glaive.dataset(place.parent / "alias").cleanup_old_versions(NOW)
        assert removed.old_versions == 3
        assert removed.warnings == ()

    def test_links_that_lead_nowhere_or_in_circles_do_no_harm(self, place: Path) -> None:
        for name in ("data/a.lance", f"_transactions/9-{UUID}.txn"):
            (place / name).symlink_to("nowhere")
        for name in (f"data/{LEFTOVERS['data']}x", "_versions/self", f"_indices/{UUID[::-1]}"):
            (place / name).symlink_to(Path(name).name)
        assert glaive.dataset(place).cleanup_old_versions(NOW).old_versions == 3

    def test_branches_behind_a_link_stay_through_fsspec_too(self, place: Path) -> None:
        glaive.dataset(place).create_branch("dev").insert(ROWS)
        target = move_out(place, "tree")
        before = content(target)
        dataset = glaive.dataset(DISTANT.format(place), version=("dev", None))
        assert dataset.cleanup_old_versions(NOW, delete_unverified=True).warnings
        dataset.branches.delete("dev")
        assert content(target) == before

    @pytest.mark.parametrize("linked", ["tree", "tree/dev"])
    def test_another_dataset_in_the_place_of_a_branch_stays_through_fsspec_too(
        self, place: Path, linked: str
    ) -> None:
        """One of main is no branch of this name, and so is not opened."""
        dataset = glaive.dataset(place)
        dataset.create_branch("dev")
        mine = place.parent / "mine"
        other = glaive.write_dataset(ROWS, mine).create_branch("dev")
        for _ in range(2):
            glaive.write_dataset(ROWS, other.uri, mode="overwrite")
        glaive.write_dataset(ROWS, mine, mode="overwrite")
        before = content(mine)
        shutil.rmtree(place / linked)
        (place / linked).symlink_to(mine / linked, target_is_directory=True)
        opened = glaive.dataset(DISTANT.format(place), version=("dev", None))
        for branch in (opened, pickle.loads(pickle.dumps(opened))):
            assert branch.cleanup_old_versions(NOW, delete_unverified=True).warnings
            assert content(mine) == before
        (place / linked).unlink()
        (place / "tree").mkdir(exist_ok=True)
        (place / "tree" / "dev").symlink_to(mine, target_is_directory=True)
        with pytest.raises(CorruptFileError, match="branch of a version: expected 'dev'"):
            glaive.dataset(DISTANT.format(place), version=("dev", None))
        assert content(mine) == before

    def test_through_fsspec_links_stop_it_too(self, place: Path) -> None:
        target = move_out(place, "data")
        before = content(target)
        removed = glaive.dataset(DISTANT.format(place)).cleanup_old_versions(NOW)
        assert content(target) == before
        assert "data is a link" in removed.warnings[0]
        assert removed.old_versions == 3


class TestDrop:
    @pytest.mark.parametrize("folder", [*FOLDERS, "_refs", "tree"])
    def test_links_go_but_not_what_they_lead_to(
        self, place: Path, caplog: pytest.LogCaptureFixture, folder: str
    ) -> None:
        dataset = glaive.dataset(place)
        dataset.tags.create("one", 1)
        dataset.create_branch("dev").insert(ROWS)
        target = move_out(place, folder)
        before = content(target)
        LanceDataset.drop(place)
        assert not os.path.lexists(place)
        assert content(target) == before
        assert str(place / folder) in caplog.text
        assert str(target) in caplog.text

    def test_a_link_deeper_down_is_not_followed(self, place: Path) -> None:
        outside = place.parent / "outside"
        outside.mkdir()
        (outside / "x.lance").write_bytes(b"precious")
        (place / "data/sub").symlink_to(outside)
        (place / "data/up").symlink_to("..")
        (place / "data/none").symlink_to("none")
        LanceDataset.drop(place)
        assert not os.path.lexists(place)
        assert content(outside) == {"x.lance": b"precious"}

    @pytest.mark.parametrize("folder", FOLDERS)
    def test_with_leave_the_files_of_the_dataset_go_and_no_others(
        self, place: Path, folder: str
    ) -> None:
        target = move_out(place, folder)
        (target / "notes.txt").write_bytes(b"precious")
        (target / "more").mkdir()
        (target / "more/x.lance").write_bytes(b"precious")
        LanceDataset.drop(place, storage_options={"delete_through_links": "true"})
        assert not os.path.lexists(place)
        assert set(content(target)) == {"notes.txt", "more/x.lance"}

    def test_a_root_that_is_a_link_goes_with_what_it_leads_to(self, place: Path) -> None:
        (place.parent / "alias").symlink_to(place)
        LanceDataset.drop(place.parent / "alias")
        assert list(place.parent.iterdir()) == []


class TestNames:
    def test_a_tag_behind_a_link_is_not_deleted(self, place: Path) -> None:
        dataset = glaive.dataset(place)
        dataset.tags.create("one", 1)
        target = move_out(place, "_refs")
        with pytest.raises(StoreError, match="_refs is a link to"):
            dataset.tags.delete("one")
        assert (target / "tags/one.json").exists()

    @pytest.mark.parametrize("folder", ["tree", "tree/dev"])
    def test_a_branch_behind_a_link_loses_its_name_only(
        self, place: Path, caplog: pytest.LogCaptureFixture, folder: str
    ) -> None:
        dataset = glaive.dataset(place)
        dataset.create_branch("dev").insert(ROWS)
        target = place.parent / "elsewhere"
        (place / folder).rename(target)
        (place / folder).symlink_to(target)
        before = content(target)
        dataset.branches.delete("dev")
        assert dataset.branches.list() == {}
        assert content(target) == before
        assert str(target) in caplog.text

    @pytest.mark.parametrize("target", ["../data", "..", "../_versions", "../tree", "other"])
    def test_a_branch_that_is_a_link_to_something_else_does_not_take_it_along(
        self, place: Path, target: str
    ) -> None:
        dataset = glaive.dataset(place)
        dataset.create_branch("dev")
        dataset.create_branch("other").insert(ROWS)
        (place / "tree/dev").rename(place.parent / "away")
        (place / "tree/dev").symlink_to(target)
        before = content(place)
        dataset.branches.delete("dev")
        del before["_refs/branches/dev.json"]
        assert content(place) == before

    @pytest.mark.spec("rel-45")
    def test_a_manifest_that_is_a_link_to_another_file_is_not_copied(self, tmp_path: Path) -> None:
        place, key = tmp_path / "d", tmp_path / "id_rsa"
        key.write_bytes(b"-----BEGIN PRIVATE KEY-----")
        glaive.write_dataset(ROWS, place, enable_v2_manifest_paths=False)
        dataset = glaive.write_dataset(ROWS, place, mode="append")
        (place / "_versions" / "1.manifest").unlink()
        (place / "_versions" / "1.manifest").symlink_to(key)
        with pytest.raises(OptionError, match=r"not renamed: 1\.manifest is a link to .*id_rsa"):
            dataset.migrate_manifest_paths_v2()
        left = sorted(path.name for path in (place / "_versions").glob("*.manifest"))
        assert left == ["1.manifest", "2.manifest"]

    def test_manifests_behind_a_link_are_not_renamed(self, tmp_path: Path) -> None:
        dataset = glaive.write_dataset(ROWS, tmp_path / "t", enable_v2_manifest_paths=False)
        target = move_out(tmp_path / "t", "_versions")
        before = content(target)
        with pytest.raises(OptionError, match="not renamed: _versions is a link"):
            dataset.migrate_manifest_paths_v2()
        assert content(target) == before

    @pytest.mark.parametrize(
        "name",
        [".", "a/.", "./a", "a/./b", "a//b", "/a", "a/", "..", "a/../b", "a\0b", "a\nb", "a\n"],
    )
    def test_a_name_that_would_be_another_path_is_refused(self, place: Path, name: str) -> None:
        dataset = glaive.dataset(place)
        dataset.create_branch("a")
        before = content(place)
        calls: list[Callable[[], Any]] = [
            lambda: dataset.create_branch(name),
            lambda: dataset.branches.delete(name),
            lambda: dataset.branches.replace_metadata(name, {}),
            lambda: dataset.checkout_version((name, None)),
            lambda: dataset.tags.create(name, 1),
            lambda: dataset.tags.delete(name),
            lambda: dataset.tags.update(name, 1),
            lambda: dataset.tags.replace_metadata(name, {}),
        ]
        for call in calls:
            with pytest.raises(OptionError, match="is not a valid"):
                call()
        assert content(place) == before

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            ("branches/..%2F..%2Fx.json", "{}"),
            ("branches/%2Fetc.json", "{}"),
            ("branches/a%2F.%2Fb.json", "{}"),
            ("branches/main.json", "{}"),
            ("tags/..json", "{}"),
            ("tags/a b.json", "{}"),
            ("tags/t.json", '{"version": 1, "manifestSize": 1, "branch": "../../x"}'),
            ("branches/b.json", '{"parentVersion": 1, "manifestSize": 1, "parentBranch": "../x"}'),
        ],
    )
    def test_a_file_that_names_another_path_is_damage(
        self, place: Path, file: str, text: str
    ) -> None:
        path = place / "_refs" / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
        dataset = glaive.dataset(place)
        before = content(place)
        calls: list[Callable[[], Any]] = [
            dataset.tags.list if "tags" in file else dataset.branches.list,
            lambda: dataset.cleanup_old_versions(NOW),
        ]
        for call in calls:
            with pytest.raises(CorruptFileError) as caught:
                call()
            assert path.name in str(caught.value)
        assert content(place) == before


@pytest.mark.spec("branch-6", "clean-6")
@pytest.mark.parametrize("other", ["main", "dev/below"])
@pytest.mark.parametrize("opened", ["{}", "fsspec+file://{}"])
def test_deleting_a_branch_keeps_what_links_of_others_lead_to(
    tmp_path: Path, other: str, opened: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "t"
    main = glaive.write_dataset(ROWS, place)
    datasets = {name: main.create_branch(name) for name in ("dev", "dev/below")} | {"main": main}
    folders = {name: place / "tree" / name / "data" for name in datasets} | {"main": place / "data"}
    files = {}
    for name in ("dev", other):
        datasets[name] = glaive.write_dataset(ROWS, datasets[name], mode="overwrite")
        files[name] = folders[name] / datasets[name].get_fragments()[0].data_files()[0].path
    files[other].unlink()  # programs leave it so that replace equal files by links
    files[other].symlink_to(files["dev"])
    own = folders["dev"] / new_data_file_name()
    own.symlink_to(files["dev"])
    glaive.dataset(opened.format(place)).branches.delete("dev")
    assert datasets[other].to_table() == ROWS
    assert f"{files['dev']} was kept: a link leads to it" in caplog.text
    assert not own.is_symlink()
    assert "dev" not in main.branches.list()
    assert not any((place / "tree/dev/_versions").iterdir())
