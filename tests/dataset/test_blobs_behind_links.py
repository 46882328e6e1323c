"""Values of blobs behind links, and above copied branches: what leads out is not read by itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.strangers import SECRET, below_base

import glaive
from glaive.errors import AccessError

from .test_blob_references import READS, rows


@pytest.mark.spec("rel-26", "rel-46")
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("linked", ["own", "own/id_rsa"])
def test_a_value_in_the_dataset_does_not_lead_out_of_it_through_a_link(
    linked: str, allowed: bool, tmp_path: Path, key: Path
) -> None:
    """Links come with archives: the name of the value says nothing of where it lies."""
    where = tmp_path / "d"
    (where / linked).parent.mkdir(parents=True)
    target = key if linked.endswith("rsa") else key.parent
    (where / linked).symlink_to(target, target_is_directory=target.is_dir())
    uri = (where / "own" / "id_rsa").as_uri()
    glaive.write_dataset(rows([uri]), where, allow_external_blob_outside_bases=True)
    if allowed:
        dataset = glaive.dataset(where, allow_external_blobs=[str(key.parent)])
        assert dataset.read_blobs("b", indices=[0]) == [(0, SECRET)]
        return
    with pytest.raises(AccessError, match=r"own/id_rsa', which leads to .* by a link") as refused:
        glaive.dataset(where).take_blobs("b", indices=[0])
    assert f"allow_external_blobs=['{key}']" in str(refused.value)


@pytest.mark.spec("rel-26", "rel-45")
def test_no_link_leads_out_of_the_places_that_are_allowed(tmp_path: Path, key: Path) -> None:
    """The caller allows a folder that has the dataset of somebody else inside."""
    where, media = tmp_path / "all" / "d", tmp_path / "all" / "media"
    where.mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "m").write_bytes(b"media")
    media.symlink_to(tmp_path / "disk", target_is_directory=True)
    for folder in (where, tmp_path / "disk"):
        (folder / "key").symlink_to(key)
        (folder / "next").symlink_to(where / "own")
    (where / "own").write_bytes(b"own")
    uris = [(where / "key").as_uri(), (media / "key").as_uri(), (media / "m").as_uri()]
    uris += [(where / "next").as_uri(), (media / "next").as_uri()]
    glaive.write_dataset(rows(uris), where, allow_external_blob_outside_bases=True)
    dataset = glaive.dataset(where, allow_external_blobs=[str(where), str(media)])
    for row in (0, 1):
        with pytest.raises(AccessError, match=r"key', which leads to '.*id_rsa' by a link"):
            dataset.read_blobs("b", indices=[row])
    found = dataset.read_blobs("b", indices=[2, 3, 4])
    assert [value for _, value in found] == [b"media", b"own", b"own"]
    for allowed in (True, [str(tmp_path)], [str(tmp_path / "all"), str(key.parent)]):
        opened = glaive.dataset(where, allow_external_blobs=allowed)
        assert opened.read_blobs("b", indices=[0]) == [(0, SECRET)]


def test_a_value_below_a_base_path_that_was_named_does_not_lead_out_of_it_through_a_link(
    tmp_path: Path, key: Path
) -> None:
    media = tmp_path / "media"
    media.mkdir()
    (media / "m.bin").symlink_to(key)
    base = glaive.DatasetBasePath(str(media))
    dataset = glaive.write_dataset(
        rows([str(media / "m.bin")]), tmp_path / "d", initial_bases=[base]
    )
    with pytest.raises(AccessError, match=r"m.bin', which leads to '.*id_rsa' by a link"):
        dataset.take_blobs("b", indices=[0])


def test_a_base_path_in_the_dataset_may_not_be_a_link_out_of_it(tmp_path: Path, key: Path) -> None:
    where = tmp_path / "d"
    (where / "own").mkdir(parents=True)
    (where / "own" / "id_rsa").write_bytes(b"own")
    base = glaive.DatasetBasePath(str(where / "own"))
    glaive.write_dataset(rows([str(where / "own" / "id_rsa")]), where, initial_bases=[base])
    assert glaive.dataset(where).read_blobs("b", indices=[0]) == [(0, b"own")]
    (where / "own").rename(where / "other")
    (where / "own").symlink_to(key.parent, target_is_directory=True)
    clone = glaive.dataset(where).shallow_clone(tmp_path / "clone")
    for dataset in (glaive.dataset(where), clone):
        with pytest.raises(AccessError, match="by a link"):
            dataset.read_blobs("b", indices=[0])


@pytest.mark.spec("rel-26", "sec-5")
@pytest.mark.parametrize("size", [120_000, 6_000_000])  # one file for many, and one of its own
def test_a_blob_file_that_is_a_link_to_another_file_is_not_read(
    size: int, tmp_path: Path, key: Path
) -> None:
    key.write_bytes(SECRET * (size // len(SECRET) + 1))
    value = [(0, key.read_bytes()[:size])]
    where = tmp_path / "x" / "snapshots" / "1" / "d"
    glaive.write_dataset(rows([b"v" * size]), where)
    (link,) = (where / "data").rglob("*.blob")
    link.unlink()
    link.symlink_to(key)
    for read in READS.values():
        with pytest.raises(AccessError, match=r"column 'b': .*\.blob was not read: .* a link to"):
            read(glaive.dataset(where), 0)
    options: list[dict[str, Any]] = [
        {"allow_external_blobs": [str(key.parent)]},
        {"storage_options": {"delete_through_links": "true"}},
    ]
    for allowed in options:
        assert glaive.dataset(where, **allowed).read_blobs("b", indices=[0]) == value
    # As ``huggingface_hub`` keeps what it downloads; a link there is no way to other files.
    blobs = tmp_path / "x" / "blobs"
    blobs.mkdir()
    link.unlink()
    link.symlink_to(blobs / "0123")
    (blobs / "0123").symlink_to(key)
    with pytest.raises(AccessError):
        glaive.dataset(where).read_blobs("b", indices=[0])
    (blobs / "0123").unlink()
    key.rename(blobs / "0123")
    assert glaive.dataset(where).read_blobs("b", indices=[0]) == value


@pytest.mark.spec("rel-26", "rel-46", "sec-5")
@pytest.mark.parametrize("size", [120_000, 6_000_000])
def test_a_base_path_above_the_dataset_lets_no_blob_file_lead_to_other_files_below_it(
    size: int, key: Path
) -> None:
    """The link stays below the base path, and would lead out of the dataset."""
    key.write_bytes(SECRET * (size // len(SECRET) + 1))
    where = key.parent / "d"
    home = str(key.parent)
    below_base(where, home, rows([b"v" * size]), name="d/data/x.lance", is_root=False)
    (file,) = (where / "data").glob("*.lance")
    (blob,) = (where / "data").rglob("*.blob")
    shutil.copy(file, where / "data" / "x.lance")
    (where / "data" / "x").mkdir()
    link = where / "data" / "x" / blob.name
    link.symlink_to(Path("..", "..", "..", "id_rsa"))
    for name in ("files", "values", "parts", "a table", "a frame of files", "a frame"):
        with pytest.raises(AccessError, match=r"'b': .*\.blob was not read: it is a link to"):
            READS[name](glaive.dataset(where), 1)
    value = [(1 << 32, key.read_bytes()[:size])]
    options: list[dict[str, Any]] = [
        {"allow_external_blobs": [str(key)]},
        {"base_store_params": {str(key.parent): {}}},
        {"storage_options": {"delete_through_links": "true"}},
    ]
    for allowed in options:
        assert glaive.dataset(where, **allowed).read_blobs("b", indices=[1]) == value
    with pytest.raises(AccessError, match="holds values of a blob column, but it is a link to"):
        glaive.dataset(where, **options[0]).optimize.compact_files()
    # A link between files of blobs, and one into the dataset, lead to nobody else's.
    for target in (blob, where / "own.bin"):
        link.unlink()
        link.symlink_to(target)
        (where / "own.bin").write_bytes(blob.read_bytes())
        assert glaive.dataset(where).read_blobs("b", indices=[1]) == [(1 << 32, b"v" * size)]
    branch = glaive.dataset(where).create_branch("dev")
    assert glaive.dataset(branch.uri).read_blobs("b", indices=[1]) == [(1 << 32, b"v" * size)]


@pytest.mark.spec("rel-26")
def test_folders_above_a_copied_branch_are_no_dataset_that_it_may_lead_to(key: Path) -> None:
    home = key.parent
    (home / "d").mkdir()
    (home / "d" / "own.bin").write_bytes(b"own")
    base = glaive.DatasetBasePath(str(home))
    uris = [(home / "d" / "own.bin").as_uri(), key.as_uri()]
    made = glaive.write_dataset(rows(uris), home / "d", initial_bases=[base])
    made.create_branch("dev")
    branch = home / "d" / "tree" / "dev"
    assert glaive.dataset(branch).read_blobs("b", indices=[0]) == [(0, b"own")]
    copied = home / "tree" / "dev"
    shutil.copytree(branch, copied)
    for where in (branch, copied):
        opened = glaive.dataset(where)
        clone = opened.shallow_clone(key.parent.parent / f"clone of {where.parts[-3]}")
        for dataset in (opened, clone):
            with pytest.raises(AccessError, match="id_rsa', below base path 1"):
                dataset.read_blobs("b", indices=[1])


@pytest.mark.spec("rel-26", "rel-45")
@pytest.mark.parametrize("first", ["plain value", "link inwards"])
def test_what_was_found_out_about_one_value_says_nothing_of_links_beside_it(
    first: str, tmp_path: Path, key: Path
) -> None:
    """Folders are looked at once: links in them, and folders that links lead back from, not so."""
    where = tmp_path / "d"
    where.mkdir()
    (where / "own").write_bytes(b"own")
    if first == "plain value":
        uris = [(where / "own").as_uri(), (where / "key").as_uri()]
        (where / "key").symlink_to(key)
    else:  # of a folder that is elsewhere
        (where / "out").symlink_to(key.parent, target_is_directory=True)
        (key.parent / "back").symlink_to(where / "own")
        uris = [(where / "out" / "back").as_uri(), (where / "out" / key.name).as_uri()]
    glaive.write_dataset(rows(uris), where, allow_external_blob_outside_bases=True)
    dataset = glaive.dataset(where, allow_external_blobs=[str(where)])
    with pytest.raises(AccessError, match=r"which leads to '.*id_rsa' by a link"):
        dataset.read_blobs("b", indices=[0, 1])
    assert dataset.read_blobs("b", indices=[0]) == [(0, b"own")]
    with pytest.raises(AccessError, match=r"which leads to '.*id_rsa' by a link"):
        dataset.read_blobs("b", indices=[1])
