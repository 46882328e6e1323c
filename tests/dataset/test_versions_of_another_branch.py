"""A version in the directory of a branch is of this branch, or damaged: its tags are elsewhere."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError
from glaive.format.manifest import encode_manifest

ROWS = pa.table({"a": [1, 2]})


def name_branch(dataset: glaive.LanceDataset, name: str) -> None:
    """Let the manifest of a version name another branch."""
    manifest = dataset.manifest
    manifest.wire.branch = name
    pieces = encode_manifest(
        manifest.wire, transaction=manifest.transaction or b"", index_section=None
    )
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))


@pytest.mark.spec("branch-8", "rel-14")
@pytest.mark.parametrize("name", ["", "other"])
def test_a_clean_up_deletes_no_tagged_version_where_the_newest_names_another_branch(
    tmp_path: Path, name: str
) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "t")
    branch = dataset.create_branch("dev")
    branch.insert(ROWS)
    dataset.tags.create("kept", ("dev", branch.version))
    branch.insert(ROWS)
    name_branch(branch, name)

    with pytest.raises(CorruptFileError, match=f"expected 'dev', found '{name or 'main'}'"):
        dataset.checkout_version(("dev", None)).cleanup_old_versions(timedelta(0))

    assert dataset.checkout_version("kept").count_rows() == 4


@pytest.mark.spec("branch-8")
def test_a_copied_branch_names_itself(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "t")
    dataset.create_branch("dev").insert(ROWS)
    (tmp_path / "t" / "tree" / "dev").rename(tmp_path / "copy")
    copied = glaive.dataset(tmp_path / "copy")
    made = copied.create_branch("more")
    assert made.version == copied.version
    for reference in [("dev", None), ("main", None), ("more", None)]:
        assert copied.checkout_version(reference).version == copied.version
