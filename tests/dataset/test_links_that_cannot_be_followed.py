"""Links that a system follows, but that cannot be looked at: nothing behind them is read."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.strangers import SECRET

import glaive
from glaive.errors import StoreError
from glaive.io.confined import LinkTargets
from glaive.io.local import LocalStore
from glaive.io.store import ObjectMeta

from .test_blob_references import rows

LARGE = 6_000_000
"""Bytes of a value that has a file of its own."""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "id_rsa"
    path.parent.mkdir()
    path.write_bytes(SECRET * (LARGE // len(SECRET) + 1))
    return path


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def nested(folders: str) -> None:
    """Make folders, each in the one before, and work in the last one."""
    for name in folders.split("/"):
        Path(name).mkdir()
        os.chdir(name)


def link_to(where: Path, blob: str) -> Path:
    """The file of a large value, replaced by a link to a path from the root of its dataset."""
    glaive.write_dataset(rows([b"v" * LARGE]), where)
    (link,) = (where / "data").rglob("*.blob")
    link.unlink()
    link.symlink_to(Path(os.path.relpath(where, link.parent), blob))
    assert link.read_bytes().startswith(SECRET)
    return link


@pytest.mark.spec("rel-26", "rel-46", "sec-5")
def test_no_blob_file_is_a_link_through_more_folders_than_can_be_open(
    tmp_path: Path, key: Path
) -> None:
    where, depth = tmp_path / "d", 200
    folders = "/".join("a" * depth)
    where.mkdir()
    with working_in(where):
        nested(folders)
        Path("out").symlink_to(Path(*[".."] * (depth + 1), "home", key.name))
    (where / "deep").symlink_to(folders)
    link = link_to(where, "deep/out")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, before[1]))
    try:
        with pytest.raises(StoreError, match=rf"{link.name}: Too many open files"):
            glaive.dataset(where).take_blobs("b", indices=[0])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.spec("rel-26", "rel-46", "sec-5")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_no_blob_file_is_a_link_through_a_folder_that_may_not_be_listed(
    tmp_path: Path, key: Path
) -> None:
    where = tmp_path / "d"
    (where / "closed").mkdir(parents=True)
    link = link_to(where, f"closed/../../home/{key.name}")
    (where / "closed").chmod(0o311)
    with pytest.raises(StoreError, match=rf"{link.name}: Permission denied"):
        glaive.dataset(where).take_blobs("b", indices=[0])


@pytest.mark.spec("rel-26", "rel-46", "sec-5")
def test_no_value_lies_behind_a_link_at_a_path_that_is_too_long_to_be_looked_at(
    tmp_path: Path, key: Path
) -> None:
    where, folders = tmp_path / "d", "/".join(["a" * 250] * 10)
    where.mkdir()
    with working_in(where):
        for link in ("1", "2"):
            Path(link).symlink_to(folders)
            nested(folders)
        Path("out").symlink_to(key.parent)
    (where / "deep").symlink_to("1/2/out")
    uri = (where / "deep" / key.name).as_uri()
    glaive.write_dataset(rows([uri]), where, allow_external_blob_outside_bases=True)
    assert (where / "deep" / key.name).read_bytes().startswith(SECRET)
    with pytest.raises(StoreError, match=r"cannot follow .*deep: File name too long"):
        glaive.dataset(where).take_blobs("b", indices=[0])


CHANGES: dict[str, Callable[[glaive.LanceDataset], object]] = {
    "a clean-up": lambda dataset: dataset.cleanup_old_versions(older_than=timedelta(0)),
    "deleting a branch": lambda dataset: dataset.branches.delete("dev"),
    "dropping it": lambda dataset: glaive.LanceDataset.drop(dataset.uri),
}


@pytest.mark.sampled(every=3)
@pytest.mark.spec("rel-25", "sec-1")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_links_to_one_another_are_followed_as_far_as_a_system_does(
    change: Callable[[glaive.LanceDataset], object], tmp_path: Path
) -> None:
    """Python would follow any number of them, in one call for each."""
    where = tmp_path / "d"
    dataset = glaive.write_dataset(rows([b"v"]), where)
    dataset.create_branch("dev")
    for folder in (where, where / "tree" / "dev"):
        for at in range(1500):
            (folder / "data").mkdir(exist_ok=True)
            (folder / "data" / f"{at}").symlink_to(f"{at + 1}")
        (folder / "data" / "1500").write_bytes(b"x")
        (folder / "data" / "absolute").symlink_to(folder / "data" / "0")
    change(dataset)


@pytest.mark.spec("rel-25", "rel-26")
def test_a_blob_file_behind_too_many_links_is_an_error(tmp_path: Path) -> None:
    where = tmp_path / "d"
    glaive.write_dataset(rows([b"v" * LARGE]), where)
    (link,) = (where / "data").rglob("*.blob")
    link.unlink()
    link.symlink_to("0")
    for at in range(1500):
        (link.parent / f"{at}").symlink_to(f"{at + 1}")
    with pytest.raises(StoreError, match=rf"{link.name}: Too many levels of symbolic links"):
        glaive.dataset(where).take_blobs("b", indices=[0])


@pytest.mark.spec("rel-16")
def test_a_dataset_is_dropped_that_has_a_link_from_one_file_to_another(tmp_path: Path) -> None:
    """Programs that find equal files leave such links."""
    where = tmp_path / "d"
    glaive.write_dataset({"id": [1]}, where)
    glaive.write_dataset({"id": [1]}, where, mode="append")
    one, other = (where / "data").iterdir()
    other.unlink()
    other.symlink_to(one.name)
    glaive.LanceDataset.drop(where)
    assert not where.exists()


@pytest.mark.spec("rel-14", "rel-16")
def test_nothing_is_deleted_of_a_dataset_with_a_folder_behind_a_link_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "d"
    dataset = glaive.write_dataset({"id": [1]}, where)
    (where / "data").rename(where / "more")
    (where / "data").symlink_to("more")

    def fails(store: LocalStore, prefix: str) -> Iterator[ObjectMeta]:
        if prefix.startswith("data"):
            failed = StoreError(f"cannot list {prefix}: Input/output error")
            failed.errno = errno.EIO
            raise failed
        return walk(store, prefix)

    walk = LocalStore.walk
    monkeypatch.setattr(LocalStore, "walk", fails)
    with pytest.raises(StoreError, match="Input/output error"):
        glaive.LanceDataset.drop(where)
    assert dataset.checkout_version(1).to_table()["id"].to_pylist() == [1]


def test_what_cannot_be_looked_at_may_be_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    (tmp_path / "b").touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "ring").symlink_to("ring")
    targets = LinkTargets([f"{tmp_path}/link"])
    assert f"{tmp_path}/a/file" in targets
    assert f"{tmp_path}/b" not in targets
    assert f"{tmp_path}/ring" in targets
    assert f"{tmp_path}/ring" not in LinkTargets([f"{tmp_path}/ring"])  # leads nowhere
