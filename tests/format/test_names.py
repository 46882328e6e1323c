"""What is taken for a file of a dataset by its name, and what is not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.format import paths
from glaive.format.paths import (
    blob_file_path,
    deletion_file_path,
    manifest_path,
    new_data_file_name,
)

UUID = "f3b0c9a2-9d46-4d0c-8a86-0d6f61a3c111"


@pytest.mark.parametrize(
    "name", ["a.lance", "2024-01-01.lance", "a b.lance", "ä.lance", "a..lance"]
)
def test_a_manifest_may_call_a_data_file_anything_that_ends_in_lance(name: str) -> None:
    assert paths.is_data_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".lance",
        ".ssh.lance",
        "../x.lance",
        "/etc/x.lance",
        "a/b.lance",
        "a\\b.lance",
        "a\0.lance",
        "a\n.lance",
        "\x7f.lance",
        "a.lance\n",
        "a.lance.bak",
        "a.LANCE",
        "id_rsa",
    ],
)
def test_hidden_files_folders_and_control_characters_name_no_data_file(name: str) -> None:
    assert not paths.is_data_file_name(name)
    assert not paths.is_generated_data_file_name(name)


def test_the_names_that_both_libraries_choose_are_known(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance", reason="install the 'interop' group")
    assert paths.is_generated_data_file_name(new_data_file_name())
    for library in (glaive, lance):
        place = tmp_path / library.__name__
        dataset = library.write_dataset(pa.table({"a": [1, 2]}), place)
        dataset.delete("a = 1")
        for folder, known in {
            "data": paths.is_generated_data_file_name,
            "_deletions": paths.is_deletion_file_name,
            "_transactions": paths.is_transaction_file_name,
        }.items():
            found = [one.name for one in (place / folder).iterdir()]
            assert found
            assert all(map(known, found)), found
    lance.dataset(place).create_scalar_index("a", "BTREE")
    for segment in (place / "_indices").iterdir():
        assert paths.is_index_folder_name(segment.name)
        assert all(paths.is_index_file_name(one.name) for one in segment.iterdir())


@pytest.mark.parametrize("name", [f"{UUID}.lance", UUID.replace("-", "") + ".lance"])
def test_data_files_of_older_writers_are_uuids(name: str) -> None:
    assert paths.is_generated_data_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "notes.lance",
        "0101.lance",
        "1.lance",
        "2024-01-01.lance",
        f"{UUID}.lance.tmp",
        f"x{UUID}.lance",
    ],
)
def test_a_name_that_no_writer_chooses_is_somebody_elses(name: str) -> None:
    assert not paths.is_generated_data_file_name(name)


def test_the_other_kinds_of_files_have_names_of_one_form() -> None:
    assert paths.is_blob_file_name(blob_file_path("x.lance", 5).partition("/")[2])
    assert not paths.is_blob_file_name("1000.blob")
    for bitmap in (False, True):
        path = deletion_file_path(3, 2, 2**64 - 1, bitmap=bitmap)
        assert paths.is_deletion_file_name(path.partition("/")[2])
    assert not paths.is_deletion_file_name("notes.arrow")
    assert paths.is_transaction_file_name(f"4-{UUID}.txn")
    assert not paths.is_transaction_file_name("9-x.txn")
    assert paths.is_index_folder_name(UUID)
    assert not paths.is_index_folder_name("mine")
    assert paths.is_index_file_name("part_0_tokens.lance")
    assert paths.is_index_file_name("auxiliary.idx")
    for name in ("notes.txt", "sub/x.lance", ".x.lance", "../x.lance"):
        assert not paths.is_index_file_name(name)


def test_staged_manifests_are_known_by_the_name_they_are_going_to_have() -> None:
    final = manifest_path(7).partition("/")[2]
    assert paths.is_staged_manifest_name(f"{final}-{UUID}")
    assert paths.is_staged_manifest_name(f"{final}#1")
    assert paths.is_staged_manifest_name(f"7.manifest-{UUID}")
    for name in (final, f"{final}-x", f"{final}#", f"mine.manifest-{UUID}", f"{final}-{UUID}/x"):
        assert not paths.is_staged_manifest_name(name)
