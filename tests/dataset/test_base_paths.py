"""A dataset that is created can name further places."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from glaive.fragment import write_fragments

import glaive
from glaive.errors import CommitConflictError, OptionError
from glaive.format.manifest import encode_manifest
from glaive.io.local import LocalStore
from glaive.table.load import open_latest

TABLE = pa.table({"x": [1, 2, 3]})
Base = glaive.DatasetBasePath


def bases(uri: Path) -> list[tuple[int, str, str, bool]]:
    wire = open_latest(LocalStore(uri)).wire
    found = sorted(wire.base_paths, key=lambda base: base.id)
    return [(one.id, one.name, one.path, one.is_dataset_root) for one in found]


def content(dataset: glaive.LanceDataset) -> bytes:
    (blob,) = dataset.take_blobs("b", indices=[0])
    assert blob is not None
    return blob.readall()


def test_base_paths_are_part_of_the_first_version(tmp_path: Path) -> None:
    given = [Base("/a", "first"), Base("/b", is_dataset_root=True)]
    glaive.write_dataset(TABLE, tmp_path, initial_bases=given)
    assert bases(tmp_path) == [(1, "first", "/a", False), (2, "", "/b", True)]
    wire = open_latest(LocalStore(tmp_path)).wire
    assert wire.reader_feature_flags & 16
    assert wire.writer_feature_flags & 16


def test_they_stay_when_rows_are_added_or_replaced(tmp_path: Path) -> None:
    glaive.write_dataset(TABLE, tmp_path, initial_bases=[Base("/a")])
    for mode in ("append", "overwrite"):
        opened = glaive.write_dataset(TABLE, tmp_path, mode=mode)
        assert bases(tmp_path) == [(1, "", "/a", False)]
    assert opened.to_table() == TABLE


def test_ids_are_those_given_and_the_lowest_that_are_free(tmp_path: Path) -> None:
    given = [Base("/a", id=2), Base("/b"), Base("/c")]
    glaive.write_dataset(TABLE, tmp_path, initial_bases=given)
    assert [(number, path) for number, _, path, _ in bases(tmp_path)] == [
        (1, "/b"),
        (2, "/a"),
        (3, "/c"),
    ]


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    "path", ["sftp://me:hunter2@host/x", "https://me:hunter2@host/x", "https://host/x?sig=hunter2"]
)
def test_no_password_in_a_base_path_is_written_into_the_dataset(tmp_path: Path, path: str) -> None:
    """Nobody could read there: such a path is never opened."""
    message = r"path of a base: '[^']*\*\*\*[^']*' has a password or a key"
    with pytest.raises(OptionError, match=message) as refused:
        glaive.write_dataset(TABLE, tmp_path, initial_bases=[Base(path)])
    assert "hunter2" not in str(refused.value)
    dataset = glaive.write_dataset(TABLE, tmp_path)
    with pytest.raises(OptionError, match=message):
        dataset.add_bases([Base(path)])
    assert dataset.latest_version == 1
    dataset.add_bases([Base("sftp://me@host/x")])


def test_appending_creates_a_dataset_with_them(tmp_path: Path) -> None:
    glaive.write_dataset(TABLE, tmp_path, mode="append", initial_bases=[Base("/a")])
    assert bases(tmp_path) == [(1, "", "/a", False)]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_dataset_that_is_there_gets_no_new_ones(tmp_path: Path, mode: str) -> None:
    glaive.write_dataset(TABLE, tmp_path)
    with pytest.raises(OptionError, match="initial_bases"):
        glaive.write_dataset(TABLE, tmp_path, mode=mode, initial_bases=[Base("/a")])
    assert bases(tmp_path) == []


def test_two_bases_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="id 7"):
        glaive.write_dataset(
            TABLE, tmp_path / "t", initial_bases=[Base("/a", id=7), Base("/b", id=7)]
        )
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("wrong", [{"path": ""}, {"path": 5}, {"path": "/a", "id": -1}])
def test_bases_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="base"):
        Base(**wrong)  # type: ignore[arg-type]  # that is the point


def test_blobs_below_a_new_base_are_kept_by_reference(tmp_path: Path) -> None:
    media = tmp_path / "media"
    media.mkdir()
    (media / "one.bin").write_bytes(b"content" * 9)
    uri = (media / "one.bin").as_uri()
    table = pa.table({"b": glaive.blob_array([uri])}, schema=pa.schema([glaive.blob_field("b")]))
    written = glaive.write_dataset(table, tmp_path / "t", initial_bases=[Base(media.as_uri())])
    assert content(written) == b"content" * 9
    moved = tmp_path / "elsewhere"
    media.rename(moved)
    with pytest.raises(glaive.GlaiveError):
        content(glaive.dataset(tmp_path / "t"))


@pytest.mark.interop
def test_pylance_makes_the_same_of_them(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance", reason="install the 'interop' group")
    for module in (glaive, lance):
        given = [
            module.DatasetBasePath("/a", name="first", id=5),
            module.DatasetBasePath("/b", is_dataset_root=True),
        ]
        place = tmp_path / module.__name__
        module.write_dataset(TABLE, place, initial_bases=given)
    assert bases(tmp_path / "glaive") == bases(tmp_path / "lance")
    assert lance.dataset(tmp_path / "glaive").to_table() == TABLE


@pytest.mark.spec("rel-1")
def test_an_overwrite_below_a_base_path_that_a_restore_removes_is_a_conflict(
    tmp_path: Path,
) -> None:
    glaive.write_dataset(TABLE, tmp_path / "t")
    dataset = glaive.dataset(tmp_path / "t")
    dataset.add_bases([Base(str(tmp_path / "more"), name="more", is_dataset_root=True)])
    read = dataset.version
    written = write_fragments(TABLE, dataset, target_bases=["more"], mode="overwrite")
    plain = write_fragments(TABLE, dataset, mode="overwrite")
    glaive.dataset(tmp_path / "t", version=1).restore()
    overwrite = glaive.LanceOperation.Overwrite(TABLE.schema, written)
    with pytest.raises(CommitConflictError, match="may have removed base paths"):
        glaive.LanceDataset.commit(tmp_path / "t", overwrite, read_version=read)
    assert glaive.dataset(tmp_path / "t").to_table() == TABLE
    overwrite = glaive.LanceOperation.Overwrite(TABLE.schema, plain)
    assert glaive.LanceDataset.commit(tmp_path / "t", overwrite, read_version=read).version == 4


@pytest.mark.spec("sec-6")
@pytest.mark.parametrize("named", ["path", "uri"])
def test_a_place_that_is_given_to_write_to_is_no_name_of_another_one(
    tmp_path: Path, named: str
) -> None:
    """Whoever made the dataset chose the names of its base paths, and may call them anything."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    given = str(mine) if named == "path" else mine.as_uri()
    uri = tmp_path / "t"
    glaive.write_dataset(TABLE, uri, initial_bases=[Base(str(other), given), Base(given, "m")])
    glaive.write_dataset(TABLE, uri, mode="append", target_bases=[given])
    assert len(list(mine.glob("*.lance"))) == 1
    dataset = glaive.dataset(uri)
    dataset.merge_insert("x").when_not_matched_insert_all().target_bases([given]).execute(
        pa.table({"x": [7]})
    )
    assert len(list(mine.glob("*.lance"))) == 2
    assert not other.exists()


@pytest.mark.spec("sec-6")
@pytest.mark.parametrize("begin", ["{}/", "~/", "./", "../", "file:/", "s3://", "C:/"])
def test_a_name_that_looks_like_a_place_is_none_to_write_to(tmp_path: Path, begin: str) -> None:
    mine, other = f"{begin.format(tmp_path)}mine", tmp_path / "other"
    glaive.write_dataset(TABLE, tmp_path / "t", initial_bases=[Base(str(other), mine)])
    with pytest.raises(OptionError, match="has no base path"):
        glaive.write_dataset(TABLE, tmp_path / "t", mode="append", target_bases=[mine])
    assert not other.exists()


def test_of_base_paths_with_one_id_the_first_is_shown_and_written_to(tmp_path: Path) -> None:
    """No writer makes such: files are looked for below the first."""
    uri, first, second = tmp_path / "t", tmp_path / "first", tmp_path / "second"
    glaive.write_dataset(TABLE, uri, initial_bases=[Base(str(first), "a"), Base(str(second), "b")])
    manifest = open_latest(LocalStore(uri))
    manifest.wire.base_paths[1].id = manifest.wire.base_paths[0].id
    rewritten = encode_manifest(
        manifest.wire, transaction=manifest.transaction or b"", index_section=None
    )
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, rewritten))))
    shown = glaive.dataset(uri).base_paths()
    assert [(base.name, base.path) for base in shown.values()] == [("a", str(first))]
    glaive.write_dataset(TABLE, uri, mode="append", target_bases=["a"])
    with pytest.raises(OptionError, match="has no base path 'b'"):
        glaive.write_dataset(TABLE, uri, mode="append", target_bases=["b"])
    assert glaive.dataset(uri).count_rows() == glaive.dataset(uri).to_table().num_rows == 6
