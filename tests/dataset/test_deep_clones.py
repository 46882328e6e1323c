"""A deep clone copies the files of a version, and nothing else that lies near them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.strangers import SECRET, below_base, contents_of

import glaive
from glaive import blob_array, blob_field
from glaive.errors import (
    AccessError,
    CommitConflictError,
    CorruptFileError,
    GlaiveError,
    OptionError,
    VersionNotFoundError,
)

ROWS = pa.table({"a": range(10), "b": [f"row {i}" for i in range(10)]})
BIG = b"big" * 40_000


def blobs(values: list[Any]) -> pa.Table:
    schema = pa.schema([blob_field("v")])
    return pa.Table.from_arrays([blob_array(values)], schema=schema)


def everything(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with keys, also under a name that a data file would bring along."""
    home = tmp_path / "home"
    for folder in (home / ".ssh", home / "data" / ".ssh"):
        folder.mkdir(parents=True)
        (folder / "id_rsa").write_bytes(SECRET)
        (folder / "x.blob").write_bytes(SECRET)
    (home / "data" / ".ssh.lance").write_bytes(SECRET)
    (home / ".ssh.lance").write_bytes(SECRET)
    (home / "id_rsa").write_bytes(SECRET)
    return home


def test_files_of_many_megabytes_are_copied_whole(tmp_path: Path) -> None:
    numbers = np.random.default_rng(7).integers(0, 2**63, 2_500_000)  # 20 MB: several windows
    dataset = glaive.write_dataset({"a": numbers}, tmp_path / "d")
    dataset.deep_clone(tmp_path / "clone")
    assert glaive.dataset(tmp_path / "clone").to_table()["a"].to_numpy().tobytes() == (
        numbers.tobytes()
    )


@pytest.mark.parametrize("name", [".ssh.lance", ".ssh/id_rsa", "id_rsa"])
@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize("allowed", [False, True])
def test_keys_below_a_base_path_are_not_copied(
    name: str, is_root: bool, allowed: bool, home: Path, tmp_path: Path
) -> None:
    below_base(tmp_path / "d", str(home), blobs([b"x", BIG]), name=name, is_root=is_root)
    params: Any = {str(home): {}} if allowed else None
    dataset = glaive.dataset(tmp_path / "d", base_store_params=params)
    with pytest.raises(GlaiveError, match=r"copied"):
        dataset.deep_clone(tmp_path / "clone")
    assert SECRET[:20] not in contents_of(tmp_path / "clone")


def test_only_blob_files_come_along_with_a_data_file(tmp_path: Path) -> None:
    glaive.write_dataset(blobs([BIG, b"small", None]), tmp_path / "d")
    (file,) = (tmp_path / "d" / "data").glob("*.lance")
    folder = file.with_suffix("")
    (blob,) = folder.iterdir()
    (folder / "id_rsa").write_bytes(SECRET)
    (folder / "0101.blob").write_bytes(SECRET)
    (folder / ("2" * 32 + ".blob")).write_bytes(SECRET)
    (folder / "deeper").mkdir()
    (folder / "deeper" / ("0" * 32 + ".blob")).write_bytes(SECRET)
    clone = glaive.dataset(tmp_path / "d").deep_clone(tmp_path / "clone")
    assert [value for _, value in clone.read_blobs("v", indices=range(3))] == [BIG, b"small", None]
    copied = {name for name in everything(tmp_path / "clone") if name.startswith("data")}
    assert copied == {f"data/{file.name}", f"data/{folder.name}/{blob.name}"}


def test_nothing_is_written_any_more_after_a_clone_that_failed(tmp_path: Path) -> None:
    place, target = tmp_path / "d", tmp_path / "clone"
    for start in range(6):
        numbers = np.random.default_rng(start).integers(0, 2**63, 3_000_000)  # 24 MB
        glaive.write_dataset({"a": numbers}, place, mode="append")
    fragments = glaive.dataset(place).get_fragments()
    file = place / "data" / fragments[3].data_files()[0].path
    file.write_bytes(b"no data of Lance")
    with pytest.raises(CorruptFileError, match="which was not copied"):
        glaive.dataset(place).deep_clone(target)
    shutil.rmtree(target)
    time.sleep(0.2)
    assert not target.exists()


def test_a_dataset_without_blobs_brings_no_folders_along(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "d")
    (file,) = (tmp_path / "d" / "data").glob("*.lance")
    file.with_suffix("").mkdir()
    (file.with_suffix("") / ("0" * 32 + ".blob")).write_bytes(SECRET)
    clone = glaive.dataset(tmp_path / "d").deep_clone(tmp_path / "clone")
    assert clone.to_table() == ROWS
    assert SECRET[:20] not in contents_of(tmp_path / "clone")


@pytest.mark.parametrize("folder", ["data", "_deletions"])
def test_what_lies_behind_a_link_is_copied_only_if_it_is_what_its_name_says(
    folder: str, home: Path, tmp_path: Path
) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "d")
    dataset.delete("a = 3")
    (file,) = (tmp_path / "d" / folder).iterdir()
    file.unlink()
    file.symlink_to(home / "id_rsa")
    with pytest.raises(CorruptFileError, match=r"found something else, which was not copied"):
        glaive.dataset(tmp_path / "d").deep_clone(tmp_path / "clone")
    assert SECRET[:20] not in contents_of(tmp_path / "clone")


@pytest.mark.spec("rel-46")
@pytest.mark.parametrize("rows", [10, 6000])
def test_a_link_in_the_place_of_deleted_rows_brings_no_table_of_arrow_along(
    rows: int, home: Path, tmp_path: Path
) -> None:
    place = tmp_path / "d"
    glaive.write_dataset({"a": range(10_000)}, place).delete(f"a < {rows}")
    (file,) = (place / "_deletions").iterdir()
    moved = file.rename(home / file.name)
    file.symlink_to(moved)
    clone = glaive.dataset(place).deep_clone(tmp_path / "whole")
    assert clone.count_rows() == 10_000 - rows
    table = pa.table({"row_id": [SECRET.decode()]})
    with pa.ipc.new_file(home / "own.arrow", table.schema) as writer:
        writer.write_table(table)
    file.unlink()
    file.symlink_to(home / "own.arrow")
    with pytest.raises(CorruptFileError, match=r"deletion file: .* which was not copied"):
        glaive.dataset(place).deep_clone(tmp_path / "clone")
    assert SECRET[:20] not in contents_of(tmp_path / "clone")


def test_only_files_of_an_index_come_along_with_it(home: Path, tmp_path: Path) -> None:
    lance = pytest.importorskip("lance", reason="install the 'interop' group")
    place = tmp_path / "d"
    glaive.write_dataset(ROWS, place)
    lance.dataset(str(place)).create_scalar_index("a", "BTREE")
    (folder,) = (place / "_indices").iterdir()
    (folder / "details.binpb").write_bytes(b"of rows that a compaction moved")
    own = {f"_indices/{folder.name}/{path.name}" for path in folder.iterdir()}
    for name in ("id_rsa", "model.binpb"):
        (folder / name).write_bytes(SECRET)
    glaive.dataset(place).deep_clone(tmp_path / "clone")
    copied = everything(tmp_path / "clone")
    assert {name for name in copied if name.startswith("_indices")} == own
    assert lance.dataset(str(tmp_path / "clone")).to_table(filter="a = 3").num_rows == 1
    folder.rename(home / "kept")
    folder.symlink_to(home / ".ssh")
    (home / ".ssh" / "page_data.lance").write_bytes(SECRET)
    with pytest.raises(CorruptFileError, match="not copied"):
        glaive.dataset(place).deep_clone(tmp_path / "other")
    assert SECRET[:20] not in contents_of(tmp_path / "other")


def test_files_come_from_directories_that_the_caller_names(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "source")
    glaive.dataset(tmp_path / "source").shallow_clone(tmp_path / "shallow")
    shallow = glaive.dataset(tmp_path / "shallow")
    assert shallow.to_table() == ROWS
    with pytest.raises(AccessError, match=r"base path 0 of .*/source'.*Nothing was copied") as no:
        shallow.deep_clone(tmp_path / "clone")
    assert f"base_store_params={{'{tmp_path}/source': {{}}}}" in str(no.value)
    assert not (tmp_path / "clone").exists()
    named = glaive.dataset(tmp_path / "shallow", base_store_params={str(tmp_path / "source"): {}})
    assert named.deep_clone(tmp_path / "clone").to_table() == ROWS
    assert glaive.dataset(tmp_path / "clone").base_paths() == {}
    # Whoever made the clone named its source.
    made = glaive.dataset(tmp_path / "source").shallow_clone(tmp_path / "again")
    assert made.deep_clone(tmp_path / "more").to_table() == ROWS


def test_a_branch_is_cloned_with_the_files_of_its_dataset(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "d")
    branch = dataset.create_branch("a/b")
    branch.insert(ROWS)
    for source in (branch, glaive.dataset(tmp_path / "d", version=("a/b", None))):
        target = tmp_path / f"clone {id(source)}"
        assert source.deep_clone(target).count_rows() == 20
    clone = glaive.dataset(tmp_path / "d").deep_clone(tmp_path / "third", ("a/b", None))
    assert clone.count_rows("a = 3") == 2


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize("moved", ["moved", "home/tree/dev"])
def test_a_directory_that_calls_itself_a_branch_is_no_reason_to_copy(
    moved: str, home: Path, tmp_path: Path
) -> None:
    """Only the directory above a branch is its dataset, wherever the manifest says it lies."""
    glaive.write_dataset(ROWS, home / "private")
    glaive.dataset(home / "private").shallow_clone(tmp_path / "d")
    glaive.dataset(tmp_path / "d").create_branch("dev")
    (tmp_path / moved).parent.mkdir(exist_ok=True)
    (tmp_path / "d" / "tree" / "dev").rename(tmp_path / moved)
    dataset = glaive.dataset(tmp_path / moved)
    assert dataset.manifest.wire.branch == "dev"
    with pytest.raises(AccessError, match="Nothing was copied"):
        dataset.deep_clone(tmp_path / "clone")


def test_values_that_lie_elsewhere_stay_there(home: Path, tmp_path: Path) -> None:
    media = tmp_path / "media"
    media.mkdir()
    (media / "m.bin").write_bytes(b"media")
    base = glaive.DatasetBasePath(str(media), "media")
    uris = [(media / "m.bin").as_uri(), (home / "id_rsa").as_uri(), BIG]
    glaive.write_dataset(
        blobs(uris), tmp_path / "d", initial_bases=[base], allow_external_blob_outside_bases=True
    )
    clone = glaive.dataset(tmp_path / "d").deep_clone(tmp_path / "clone")
    assert SECRET[:20] not in contents_of(tmp_path / "clone")
    assert [one.path for one in clone.base_paths().values()] == [str(media)]
    assert clone.read_blobs("v", indices=[2]) == [(2, BIG)]
    for row in (0, 1):
        with pytest.raises(AccessError):
            clone.take_blobs("v", indices=[row])
    allowed = glaive.dataset(tmp_path / "clone", allow_external_blobs=True)
    assert allowed.read_blobs("v", indices=[0, 1]) == [(0, b"media"), (1, SECRET)]


def test_two_files_of_one_name_are_not_copied_over_each_other(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS.slice(5), tmp_path / "other")
    (other,) = (tmp_path / "other" / "data").iterdir()
    below_base(tmp_path / "d", str(tmp_path / "other"), ROWS)
    (file,) = (tmp_path / "d" / "data").iterdir()
    other.rename(other.with_name(file.name))
    named = {str(tmp_path / "other"): dict[str, str]()}
    dataset = glaive.dataset(tmp_path / "d", base_store_params=named)
    with pytest.raises(CorruptFileError, match="files of a version: expected one with the name"):
        dataset.deep_clone(tmp_path / "clone")


@pytest.mark.parametrize("relative", [False, True])
def test_a_file_of_blobs_that_is_a_link_to_a_key_is_not_copied(
    relative: bool, home: Path, tmp_path: Path
) -> None:
    place = tmp_path / "d"
    dataset = glaive.write_dataset(blobs([BIG, BIG]), place)
    link = next((place / "data").rglob("*.blob"))
    link.unlink()
    link.symlink_to(Path("..", "..", "..", home.name, "id_rsa") if relative else home / "id_rsa")
    with pytest.raises(AccessError, match=r"\.blob was not copied: .* is a link to"):
        dataset.deep_clone(tmp_path / "clone")
    assert SECRET[:20] not in contents_of(tmp_path / "clone")
    options = {"delete_through_links": "true"}
    glaive.dataset(place, storage_options=options).deep_clone(tmp_path / "other")
    assert SECRET[:20] in contents_of(tmp_path / "other")


@pytest.mark.spec("rel-46", "sec-5")
def test_a_base_path_that_is_a_link_upwards_brings_no_key_along_as_a_blob(
    home: Path, tmp_path: Path
) -> None:
    place = home / "d"
    below_base(place, str(place / "up"), blobs([BIG]), name="d/other/0.lance", is_root=False)
    (place / "up").symlink_to("..")
    (file,) = (place / "data").glob("*.lance")
    (blob,) = file.with_suffix("").iterdir()
    folder = place / "other" / "0"
    folder.mkdir(parents=True)
    shutil.copy(file, folder.with_suffix(".lance"))
    (folder / blob.name).symlink_to(home / "id_rsa")
    with pytest.raises(AccessError, match=r"\.blob was not copied: .* no file of blobs"):
        glaive.dataset(place).deep_clone(tmp_path / "clone")
    assert SECRET[:20] not in contents_of(tmp_path / "clone")
    (folder / blob.name).unlink()
    (folder / blob.name).symlink_to(blob)
    clone = glaive.dataset(place).deep_clone(tmp_path / "own")
    assert [value for _, value in clone.read_blobs("v", indices=[0, 1])] == [BIG, BIG]


REWRITES: dict[str, Any] = {
    "compact": lambda dataset: dataset.optimize.compact_files(),
    "update": lambda dataset: dataset.update({"id": "id + 10"}),
    "merge": lambda dataset: (
        dataset.merge_insert("id").when_matched_update_all().execute(pa.table({"id": [0, 1]}))
    ),
}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("how", REWRITES)
@pytest.mark.parametrize("size", [120_000, 6_000_000])  # one file for many, and one of its own
def test_rows_written_again_take_no_values_from_behind_a_link_that_leads_out(
    how: str, size: int, home: Path, tmp_path: Path
) -> None:
    place = tmp_path / "d"
    key = home / "key"
    key.write_bytes(SECRET[:25] * (size // 25))
    for first in (0, 1):
        values = blobs([b"v" * (size // 25 * 25)])
        given = values.append_column("id", pa.array([first], pa.int64()))
        glaive.write_dataset(given, place, mode="append")
    links = list((place / "data").rglob("*.blob"))
    for link in links:
        link.unlink()
        link.symlink_to(key)
    before = everything(place)
    with pytest.raises(AccessError, match=r"\.blob was not read: .*a link to"):
        REWRITES[how](glaive.dataset(place))
    for path in everything(place) - before:
        assert SECRET[:20] not in (place / path).read_bytes()
    # Whoever allows it can read the values, but rows written again take none along.
    allowed = glaive.dataset(place, allow_external_blobs=[str(home)])
    assert allowed.read_blobs("v", indices=[0])[0][1] == key.read_bytes()
    with pytest.raises(AccessError, match="holds values of a blob column"):
        REWRITES[how](allowed)
    # Links within the dataset are no matter.
    for number, link in enumerate(links):
        link.unlink()
        (place / f"{number}.kept").write_bytes(b"w" * (size // 25 * 25))
        link.symlink_to(f"../../{number}.kept")
    REWRITES[how](glaive.dataset(place))


@pytest.mark.spec("commit-8")
def test_a_version_outside_of_the_history_is_not_cloned(tmp_path: Path) -> None:
    """The clone would have its number, and so no newest version: nobody could open it."""
    dataset = glaive.write_dataset(ROWS, tmp_path / "a")
    new = glaive.LanceFragment.create(dataset.uri, ROWS)
    operation = glaive.LanceOperation.Append([new])
    outside = glaive.LanceDataset.commit(dataset, operation, read_version=1, detached=True)
    for clone in (dataset.deep_clone, dataset.shallow_clone):
        with pytest.raises(OptionError, match="is detached"):
            clone(str(tmp_path / "b"), outside.version)
    with pytest.raises(OptionError, match="is detached"):
        dataset.create_branch("dev", outside.version)
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "a/tree").exists()
    assert dataset.create_branch("dev", 1).count_rows() == 10


@pytest.mark.parametrize("is_other", [True, False], ids=["another dataset", "cleaned up"])
def test_a_version_that_is_not_there_any_more_gets_no_clone_branch_or_tag(
    tmp_path: Path, is_other: bool
) -> None:
    """The clone, or branch, would have no files."""
    opened = glaive.write_dataset(ROWS, tmp_path / "a")
    if is_other:
        shutil.rmtree(tmp_path / "a")
        glaive.write_dataset(ROWS, tmp_path / "a")
    else:
        newest = glaive.write_dataset(ROWS, tmp_path / "a", mode="overwrite")
        newest.cleanup_old_versions(retain_versions=1)
    error = CommitConflictError if is_other else VersionNotFoundError
    for clone in (opened.deep_clone, opened.shallow_clone):
        with pytest.raises(error, match="version 1 of"):
            clone(str(tmp_path / "b"))
    for create in (opened.create_branch, opened.tags.create):
        with pytest.raises(error, match="version 1 of"):
            create("dev")
    assert not glaive.dataset(tmp_path / "a").tags.list()
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "a/tree").exists()
