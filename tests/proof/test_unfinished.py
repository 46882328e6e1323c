"""Where there are no hard links a writer can be stopped between two steps: all goes on."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit.crashes import killed_at_step
from tests.without_links import SYSTEMS, System, begin, end, needs_seccomp, restrict

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import (
    CorruptFileError,
    DatasetNotFoundError,
    NotLanceError,
    OptionError,
    RefExistsError,
    RefNotFoundError,
    UnfinishedDatasetError,
    VersionNotFoundError,
)
from glaive.format.paths import manifest_path
from glaive.io.access import open_store
from glaive.table.load import open_latest

ROWS = pa.table({"id": [1, 2, 3]})
EVERYTHING = {"older_than": timedelta(0), "delete_unverified": True}
Operation = Callable[[str], object]


def rows(place: object) -> list[int]:
    return sorted(glaive.dataset(place).to_table()["id"].to_pylist())


def leave_empty(file: Path, *, age: float = 3600) -> Path:
    """What a writer leaves that takes a name and is stopped."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"")
    then = file.stat().st_mtime - age
    os.utime(file, (then, then))
    return file


def empty_files(place: Path) -> list[str]:
    return [str(one) for one in place.rglob("*") if one.is_file() and not one.stat().st_size]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two versions of six rows."""
    glaive.write_dataset(ROWS, tmp_path / "t")
    glaive.write_dataset(ROWS, tmp_path / "t", mode="append")
    return tmp_path / "t"


@pytest.fixture
def begun(place: Path) -> Path:
    """The same, and a third version whose writer was stopped after it took the name."""
    leave_empty(place / manifest_path(3))
    return place


class TestReaders:
    def test_the_version_before_is_opened_and_that_is_said(
        self, begun: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, logger="glaive"):
            dataset = glaive.dataset(begun)
        assert dataset.version == dataset.latest_version == 2
        assert rows(begun) == [1, 1, 2, 2, 3, 3]
        assert "version 3" in caplog.text
        assert manifest_path(3) in caplog.text

    def test_all_that_lists_versions_passes_it_over(self, begun: Path) -> None:
        dataset = glaive.dataset(begun)
        assert [one["version"] for one in dataset.versions()] == [1, 2]
        assert dataset.version_refs() == [{"version": 1}, {"version": 2}]
        assert len(dataset.get_transactions()) == 2
        assert set(dataset.tracked_files().read_all()["version"].to_pylist()) == {1, 2}
        dataset.validate()
        dataset.checkout_latest()
        assert dataset.version == 2

    def test_asked_for_by_number_it_is_not_there(self, begun: Path) -> None:
        with pytest.raises(VersionNotFoundError, match=r"version 3 of .*newest is 2"):
            glaive.dataset(begun, version=3)

    @pytest.mark.parametrize("empty", [[3, 4, 5], [1, 3], [3, 9]])
    def test_several_are_passed_over_wherever_they_are(self, place: Path, empty: list[int]) -> None:
        for version in empty:
            leave_empty(place / manifest_path(version))
        assert glaive.dataset(place).version == 2
        assert [one["version"] for one in glaive.dataset(place).versions()] == [
            one for one in (1, 2) if one not in empty
        ]

    @pytest.mark.parametrize("hint", [None, b"", b'{"version":3}', b'{"version":', b"\0" * 13])
    def test_the_hint_does_not_matter(self, begun: Path, hint: bytes | None) -> None:
        file = begun / "_versions/latest_version_hint.json"
        file.unlink() if hint is None else file.write_bytes(hint)
        assert glaive.dataset(begun).version == 2
        assert glaive.write_dataset(ROWS, begun, mode="append").version == 3

    def test_manifests_named_by_their_version_too(self, tmp_path: Path) -> None:
        glaive.write_dataset(ROWS, tmp_path, enable_v2_manifest_paths=False)
        leave_empty(tmp_path / manifest_path(2, "V1"))
        assert glaive.dataset(tmp_path).version == 1
        assert glaive.write_dataset(ROWS, tmp_path, mode="append").version == 2

    def test_names_can_be_changed_when_a_writer_was_stopped(self, tmp_path: Path) -> None:
        dataset = glaive.write_dataset(ROWS, tmp_path, enable_v2_manifest_paths=False)
        leave_empty(tmp_path / manifest_path(2, "V1"))
        leave_empty(tmp_path / manifest_path(1))
        dataset.migrate_manifest_paths_v2()
        assert rows(tmp_path) == [1, 2, 3]
        assert not empty_files(tmp_path)

    @pytest.mark.spec("name-8")
    @pytest.mark.parametrize("keep", [1, 15, 16, 100, -1])
    def test_one_that_was_cut_off_is_damage_and_not_passed_over(
        self, place: Path, keep: int
    ) -> None:
        file = place / manifest_path(2)
        file.write_bytes(file.read_bytes()[:keep])
        with pytest.raises((NotLanceError, CorruptFileError)) as caught:
            glaive.dataset(place)
        assert str(file) in str(caught.value)

    def test_where_no_version_is_finished_there_is_no_dataset_yet(self, tmp_path: Path) -> None:
        file = leave_empty(tmp_path / manifest_path(1))
        with pytest.raises(UnfinishedDatasetError) as caught:
            glaive.dataset(tmp_path)
        assert str(file) in str(caught.value)
        assert isinstance(caught.value, DatasetNotFoundError)
        with pytest.raises(OptionError, match="Refusing to drop"):
            LanceDataset.drop(tmp_path)
        assert glaive.write_dataset(ROWS, tmp_path).version == 1
        assert rows(tmp_path) == [1, 2, 3]


OPERATIONS: dict[str, Operation] = {
    "append": lambda at: glaive.write_dataset(ROWS, at, mode="append"),
    "overwrite": lambda at: glaive.write_dataset(ROWS, at, mode="overwrite"),
    "delete": lambda at: glaive.dataset(at).delete("id = 1"),
    "update": lambda at: glaive.dataset(at).update({"id": "id + 10"}),
    "merge": lambda at: (
        glaive.dataset(at).merge_insert("id").when_not_matched_insert_all().execute(ROWS)
    ),
    "compact": lambda at: glaive.dataset(at).optimize.compact_files(),
    "restore": lambda at: glaive.dataset(at, version=1).restore(),
    "add columns": lambda at: glaive.dataset(at).add_columns({"more": "id * 2"}),
    "config": lambda at: glaive.dataset(at).update_config({"key": "value"}),
}


class TestWriters:
    @pytest.mark.spec("name-7")
    @pytest.mark.parametrize("name", OPERATIONS)
    @pytest.mark.parametrize("empty", [[3], [3, 4]], ids=str)
    def test_each_takes_the_place_of_an_unfinished_version(
        self, place: Path, name: str, empty: list[int]
    ) -> None:
        for version in empty:
            leave_empty(place / manifest_path(version))
        OPERATIONS[name](str(place))
        dataset = glaive.dataset(place)
        assert dataset.version >= 3
        assert [one["version"] for one in dataset.versions()] == list(range(1, dataset.version + 1))
        dataset.validate()

    def test_a_writer_that_read_before_goes_on_as_well(self, place: Path) -> None:
        stale = glaive.dataset(place, version=1)
        leave_empty(place / manifest_path(3))
        stale.delete("id = 1")
        assert stale.version == 3
        assert rows(place) == [1, 2, 2, 3, 3]

    def test_pylance_reads_and_writes_on_afterwards(self, begun: Path) -> None:
        lance = pytest.importorskip("lance", reason="install the 'interop' group")
        with pytest.raises((ValueError, OSError)):
            lance.dataset(str(begun))
        glaive.write_dataset(ROWS, begun, mode="append")
        assert lance.dataset(str(begun)).count_rows() == 9
        lance.write_dataset(ROWS, str(begun), mode="append")
        assert glaive.dataset(begun).version == 4

    def test_elsewhere_than_in_a_directory_too(self, request: pytest.FixtureRequest) -> None:
        for scheme in ("memory", "fsspec+memory"):
            uri = f"{scheme}://{request.node.name}/t"
            glaive.write_dataset(ROWS, uri)
            open_store(uri).put(manifest_path(2), [])
            assert glaive.dataset(uri).version == 1
            assert glaive.write_dataset(ROWS, uri, mode="append").version == 2
            assert rows(uri) == [1, 1, 2, 2, 3, 3]

    def test_a_register_does_not_take_up_what_is_unfinished(self, begun: Path) -> None:
        dataset = glaive.dataset(begun, manifest_store="sqlite")
        dataset.insert(ROWS)
        assert dataset.version == 3
        assert glaive.dataset(begun, manifest_store="sqlite").count_rows() == 9
        assert rows(begun) == [1, 1, 1, 2, 2, 2, 3, 3, 3]

    def test_clones_and_branches_begin_where_another_was_stopped(self, place: Path) -> None:
        for where in ("clone", "t/tree/dev"):
            leave_empty(place.parent / where / manifest_path(2))
        dataset = glaive.dataset(place)
        assert dataset.shallow_clone(place.parent / "clone").count_rows() == 6
        assert dataset.create_branch("dev").count_rows() == 6


class TestNames:
    """Tags and branches are files that are made where none is, too."""

    @pytest.mark.spec("tag-4")
    def test_an_unfinished_tag_is_none_and_can_be_made_again(
        self, place: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        dataset = glaive.dataset(place)
        dataset.tags.create("good", 1)
        leave_empty(place / "_refs/tags/begun.json")
        assert list(dataset.tags.list()) == ["good"]
        assert "begun.json is empty" in caplog.text
        with pytest.raises(RefNotFoundError, match=r"begun\.json is empty"):
            dataset.tags.get_version("begun")
        with pytest.raises(RefNotFoundError):
            glaive.dataset(place, version="begun")
        dataset.tags.create("begun", 2)
        assert dataset.tags.get_version("begun") == 2

    def test_an_unfinished_branch_is_none_and_can_be_made_again(self, place: Path) -> None:
        dataset = glaive.dataset(place)
        dataset.create_branch("made")
        file = leave_empty(place / "_refs/branches/dev%2Fx.json")
        assert list(dataset.branches.list()) == ["made"]
        with pytest.raises(RefNotFoundError, match="is empty"):
            dataset.checkout_version(("dev/x", None))
        dataset.create_branch("dev/x", 1).insert(ROWS)
        assert glaive.dataset(place, version=("dev/x", None)).count_rows() == 6
        assert file.stat().st_size

    def test_both_can_be_deleted(self, place: Path) -> None:
        dataset = glaive.dataset(place)
        tag = leave_empty(place / "_refs/tags/begun.json")
        branch = leave_empty(place / "_refs/branches/dev.json")
        leave_empty(place / "tree/dev/_versions/1.manifest")
        dataset.tags.delete("begun")
        dataset.branches.delete("dev")
        assert not tag.exists()
        assert not branch.exists()
        assert not empty_files(place)
        for delete in (dataset.tags.delete, dataset.branches.delete):
            with pytest.raises(RefNotFoundError):
                delete("begun")

    @pytest.mark.spec("rel-20")
    def test_a_deletion_of_a_branch_that_was_stopped_is_made_again(self, place: Path) -> None:
        dataset = glaive.dataset(place)
        dataset.create_branch("dev").insert(ROWS)
        (place / "_refs/branches/dev.json").unlink()  # a deletion begins with it
        with pytest.raises(RefNotFoundError):
            dataset.branches.delete("de")
        dataset.branches.delete("dev")
        assert not [path for path in (place / "tree/dev").rglob("*") if path.is_file()]
        with pytest.raises(RefNotFoundError):
            dataset.branches.delete("dev")
        assert dataset.create_branch("dev").count_rows() == 6

    def test_a_branch_below_one_that_is_deleted_keeps_its_files(self, place: Path) -> None:
        dataset = glaive.dataset(place)
        dataset.create_branch("dev")
        dataset.create_branch("dev/below").insert(ROWS)
        (place / "_refs/branches/dev%2Fbelow.json").write_bytes(b"")
        dataset.branches.delete("dev")
        assert glaive.dataset(place / "tree/dev/below").count_rows() == 9

    @pytest.mark.spec("clean-8")
    @pytest.mark.parametrize("folder", ["tags", "branches"])
    def test_a_clean_up_keeps_the_versions_that_it_may_have_named(
        self, place: Path, folder: str
    ) -> None:
        file = leave_empty(place / "_refs" / folder / "begun.json", age=-60)
        removed = glaive.dataset(place).cleanup_old_versions(**EVERYTHING)
        assert removed.old_versions == 0
        assert any(str(file) in one for one in removed.warnings)
        leave_empty(file)
        assert glaive.dataset(place).cleanup_old_versions(**EVERYTHING).old_versions == 1


class TestCleanUp:
    @pytest.mark.spec("clean-7")
    @pytest.mark.parametrize("empty", [[3], [3, 4], [1, 3]], ids=str)
    def test_it_removes_unfinished_versions(self, place: Path, empty: list[int]) -> None:
        for version in empty:
            leave_empty(place / manifest_path(version))
        dataset = glaive.dataset(place)
        told = dataset.explain_cleanup_old_versions(include_files=True)
        assert {one.path for one in told.candidate_files} == set(map(manifest_path, empty))
        assert len(empty_files(place)) == len(empty)
        removed = dataset.cleanup_old_versions()
        assert removed == told.stats
        assert removed.warnings == ()
        assert not empty_files(place)
        assert glaive.dataset(place).version == 2
        assert glaive.write_dataset(ROWS, place, mode="append").version == 3

    def test_detached_versions_too(self, place: Path) -> None:
        leave_empty(place / manifest_path(2**63 + 5))
        glaive.dataset(place).cleanup_old_versions()
        assert not empty_files(place)

    def test_pylance_opens_the_dataset_afterwards(self, begun: Path) -> None:
        lance = pytest.importorskip("lance", reason="install the 'interop' group")
        glaive.dataset(begun).cleanup_old_versions()
        assert lance.dataset(str(begun)).version == 2

    def test_one_that_happens_on_a_commit_as_well(self, place: Path) -> None:
        dataset = glaive.dataset(place)
        dataset.optimize.enable_auto_cleanup({"interval": 1, "older_than_seconds": 1000})
        leave_empty(place / manifest_path(9))
        dataset.insert(ROWS)
        assert not empty_files(place)
        assert dataset.version == 4

    def test_files_of_the_writer_stay_as_long_as_those_of_any_other(self, begun: Path) -> None:
        name = "0" * 24 + "a" * 26 + ".lance"
        left = leave_empty(begun / "data" / name)
        glaive.dataset(begun).cleanup_old_versions(timedelta(0))
        assert left.exists()

    def test_an_empty_object_elsewhere_is_left_and_that_is_said(
        self, request: pytest.FixtureRequest
    ) -> None:
        uri = f"memory://{request.node.name}/t"
        glaive.write_dataset(ROWS, uri)
        open_store(uri).put(manifest_path(2), [])
        removed = glaive.dataset(uri).cleanup_old_versions(**EVERYTHING)
        assert "the next commit replaces it" in removed.warnings[0]
        assert glaive.dataset(uri).version == 1


@needs_seccomp
class TestProcesses:
    @pytest.mark.sampled(every=8)
    @pytest.mark.parametrize("system", SYSTEMS)
    @pytest.mark.parametrize("name", ["append", "delete", "tag", "branch", "clean up"])
    def test_a_writer_killed_at_every_step(
        self, place: Path, tmp_path: Path, system: System, name: str
    ) -> None:
        more: dict[str, Operation] = {
            "tag": lambda at: glaive.dataset(at).tags.create("one", 1),
            "branch": lambda at: glaive.dataset(at).create_branch("one", 1),
            "clean up": lambda at: glaive.dataset(at).cleanup_old_versions(**EVERYTHING),
        }
        operation = (OPERATIONS | more)[name]

        def work(at: Path) -> None:
            restrict(system)
            operation(str(at))

        for step in itertools.count(1):
            at = tmp_path / f"step {step}"
            shutil.copytree(place, at)
            leave_empty(at / manifest_path(7))
            killed = killed_at_step(str(at), partial(work, at), step)
            for file in empty_files(at):
                leave_empty(Path(file))  # some time later
            dataset = glaive.dataset(at)
            assert dataset.version in (2, 3), step
            for one in dataset.versions():
                version = glaive.dataset(at, version=one["version"])
                assert version.to_table().num_rows == version.count_rows(), step
            dataset.tags.list()
            dataset.branches.list()
            if not killed:
                break
            with suppress(RefExistsError):  # it may be there already
                operation(str(at))
            dataset.cleanup_old_versions()
            dataset.insert(ROWS)
            assert not [one for one in empty_files(at) if one.endswith((".manifest", ".json"))]
            shutil.rmtree(at)
        assert step > 3

    @pytest.mark.sampled(every=3)
    @pytest.mark.parametrize("system", SYSTEMS)
    def test_writers_beside_each_other_lose_nothing_and_readers_see_whole_versions(
        self, tmp_path: Path, system: System
    ) -> None:
        place = tmp_path / "t"
        glaive.write_dataset(pa.table({"id": [0]}), place)
        leave_empty(place / manifest_path(4), age=0.5)
        writers, commits = 4, 6

        def write(me: int) -> None:
            for number in range(commits):
                glaive.write_dataset(pa.table({"id": [me * 100 + number]}), place, mode="append")

        def read() -> None:
            seen = 0
            while seen <= writers * commits:
                version = glaive.dataset(place)
                assert version.count_rows() >= seen
                seen = version.count_rows()
                assert version.to_table().num_rows == seen
                assert open_latest(version.store).version >= version.version

        end(
            [begin(system, partial(write, me + 1)) for me in range(writers)] + [begin(system, read)]
        )
        expected = [0, *(me * 100 + n for me in range(1, writers + 1) for n in range(commits))]
        assert rows(place) == expected
        assert glaive.dataset(place).version == 1 + writers * commits
        assert not [one for one in (place / "_versions").iterdir() if one.name.startswith(".")]
