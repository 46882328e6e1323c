"""A manifest store forgets the versions of what was deleted, so that its name can be used again."""

from __future__ import annotations

from pathlib import Path

import pytest

import glaive
from glaive.errors import DatasetNotFoundError, OptionError, RefExistsError, RefNotFoundError
from glaive.table.manifest_registers import SqliteManifestStore

ROWS = {"id": [1, 2, 3]}


class Place:
    """A dataset with the branch ``a/b``, and its manifest store beside it."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "t")
        self.register = SqliteManifestStore(folder / "m.sqlite")
        self.options = {"manifest_store": f"sqlite://{folder}/m.sqlite"}

    def create(self) -> glaive.LanceDataset:
        return glaive.write_dataset(ROWS, self.uri, storage_options=self.options)

    def open(self) -> glaive.LanceDataset:
        return glaive.dataset(self.uri, storage_options=self.options)

    def branch(self) -> glaive.LanceDataset:
        branch = self.open().create_branch("a/b")
        branch.insert(ROWS)
        return branch

    def drop(self) -> None:
        glaive.LanceDataset.drop(self.uri, storage_options=self.options)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.create()
    return place


@pytest.mark.spec("external-5")
def test_a_branch_is_made_again_under_the_name_of_a_deleted_one(place: Place) -> None:
    for _ in range(2):
        assert place.branch().count_rows() == 6
        place.open().branches.delete("a/b")
        with pytest.raises(RefNotFoundError):
            place.open().branches.delete("a/b")
    assert place.open().branches.list() == {}


def test_other_branches_keep_their_versions_when_one_is_deleted(place: Place) -> None:
    place.branch()
    kept = place.open().create_branch("a")
    kept.insert(ROWS)
    place.open().branches.delete("a/b")
    assert place.open().checkout_version(("a", None)).version == kept.version
    assert place.open().count_rows() == 3


@pytest.mark.spec("rel-6")
def test_a_branch_whose_deletion_was_stopped_last_is_deleted_by_the_next_attempt(
    place: Place,
) -> None:
    branch = place.branch()
    entry = place.register.latest(branch.uri)
    place.open().branches.delete("a/b")
    assert entry is not None
    place.register.put_if_absent(branch.uri, entry)  # as if stopped before it was forgotten
    with pytest.raises(RefExistsError, match="Delete the branch once more"):
        place.branch()
    place.open().branches.delete("a/b")
    assert place.branch().count_rows() == 6


@pytest.mark.spec("external-5")
def test_a_dropped_dataset_and_its_branches_are_made_again(place: Place) -> None:
    for _ in range(2):
        assert place.branch().count_rows() == 6
        place.drop()
        with pytest.raises(DatasetNotFoundError):
            place.open()
        assert place.create().version == 1


@pytest.mark.spec("rel-6")
def test_a_drop_that_was_stopped_last_is_repeated(place: Place) -> None:
    entry = place.register.latest(place.uri)
    place.drop()
    assert entry is not None
    place.register.put_if_absent(place.uri, entry)  # as if stopped before it was forgotten
    place.drop()
    assert place.create().version == 1


@pytest.mark.spec("rel-16")
def test_a_folder_of_which_a_manifest_store_has_a_version_is_not_dropped_with_other_files(
    place: Place,
) -> None:
    """It may be used for something else since a drop was stopped."""
    entry = place.register.latest(place.uri)
    place.drop()
    assert entry is not None
    place.register.put_if_absent(place.uri, entry)
    notes = Path(place.uri, "notes.txt")
    notes.parent.mkdir(exist_ok=True)
    notes.write_text("mine")
    with pytest.raises(OptionError, match="Refusing to drop"):
        place.drop()
    assert notes.read_text() == "mine"
    notes.unlink()
    place.drop()
    assert place.create().version == 1


def test_a_dropped_dataset_cannot_have_another_one_forgotten(place: Place, tmp_path: Path) -> None:
    other = glaive.write_dataset(ROWS, tmp_path / "other", storage_options=place.options)
    named = tmp_path / "t/_refs/branches/..%2F..%2Fother.json"
    named.parent.mkdir(parents=True)
    named.write_text("{}")
    place.drop()
    assert place.register.latest(other.uri) is not None
