"""Metadata that is larger than what it holds is refused before memory is taken for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CorruptFileError
from glaive.io.local import LocalStore
from glaive.io.mapped import MAX_HOLE_BYTES

pytestmark = pytest.mark.spec("rel-24")

USES: dict[str, Callable[[LanceDataset], object]] = {
    "_versions": lambda dataset: glaive.dataset(dataset.uri),
    "_deletions": lambda dataset: glaive.dataset(dataset.uri).to_table(),
    "_refs": lambda dataset: dataset.tags.list(),
}


@pytest.mark.parametrize("folder", USES)
def test_a_file_of_holes_is_refused(folder: str, tmp_path: Path) -> None:
    dataset = glaive.write_dataset(pa.table({"id": range(9)}), tmp_path / "t")
    dataset.delete("id = 3")
    dataset.tags.create("first", 1)
    USES[folder](dataset)
    path = min(one for one in (tmp_path / "t" / folder).rglob("*") if one.suffix != "")
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(1 << 40)
        file.write(content[-16:])
    with pytest.raises(CorruptFileError, match=f"holes in {(1 << 40) + 16} bytes.*{path.name}"):
        USES[folder](dataset)


def test_holes_that_a_file_system_may_have_made_are_read_as_zeros(tmp_path: Path) -> None:
    (tmp_path / "_few").write_bytes(b"a" * 100_000)
    os.truncate(tmp_path / "_few", MAX_HOLE_BYTES)
    assert LocalStore(tmp_path).get("_few").size == MAX_HOLE_BYTES
    with (tmp_path / "_few").open("r+b") as file:
        file.seek(MAX_HOLE_BYTES)
        file.write(b"b" * 5_000)
    data = LocalStore(tmp_path).get("_few")
    assert (data.size, data[99_999], data[200_000], data[-1]) == (
        MAX_HOLE_BYTES + 5_000, ord("a"), 0, ord("b")
    )  # fmt: skip


def test_a_value_of_a_user_may_have_holes(tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_bytes(b"a" * 100_000)
    os.truncate(tmp_path / "disk.img", 2 * MAX_HOLE_BYTES)
    assert LocalStore(tmp_path).get("disk.img").size == 2 * MAX_HOLE_BYTES


def test_a_record_of_holes_is_refused(tmp_path: Path) -> None:
    (record := tmp_path / "run.json").write_text("{}")
    os.truncate(record, 1 << 43)
    with pytest.raises(CorruptFileError, match=r"holes in 8796093022208 bytes.*run\.json"):
        LocalStore(str(tmp_path)).get("run.json")
