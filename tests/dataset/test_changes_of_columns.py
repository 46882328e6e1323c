"""The change feed across versions that dropped columns and gave their field ids to others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError, SchemaError


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    """Of versions 2 to 6, the last two drop a column, and add one with its field id."""
    made = glaive.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "t")
    made.add_columns({"old": "id * 10"})
    made.insert(pa.table({"id": [20], "old": [7]}))
    made.delete("id = 20")
    field = made.lance_schema.find("old")[-1].id
    made.drop_columns(["old"])
    made.add_columns({"new": "id + 1"})
    assert made.lance_schema.find("new")[-1].id == field
    return made


def test_a_new_column_has_no_values_where_another_one_had_its_id(
    dataset: glaive.LanceDataset,
) -> None:
    feed = dataset.changes(2, columns=["id", "new"]).to_table()
    assert feed["id"].to_pylist() == [20, 20]
    assert feed["new"].to_pylist() == [None, None]


def test_a_new_column_is_no_change_of_rows_whatever_its_id(dataset: glaive.LanceDataset) -> None:
    feed = dataset.changes(4, net=True).to_table()
    assert feed.select(["id", "_change_type"]).to_pylist() == [{"id": 20, "_change_type": "delete"}]


def test_a_column_that_a_restore_brings_back_has_its_values(dataset: glaive.LanceDataset) -> None:
    dataset.checkout_version(4).restore()
    dataset.checkout_latest()
    dataset.alter_columns({"path": "old", "name": "again"})
    feed = dataset.changes(3, columns=["id", "again"]).to_table()
    assert feed["id"].to_pylist() == [20, 20]
    assert feed["again"].to_pylist() == [7, 7]


def test_what_a_restore_brings_back_from_before_the_feed_is_not_guessed(
    dataset: glaive.LanceDataset,
) -> None:
    dataset.insert(pa.table({"id": [30], "new": [31]}))
    dataset.checkout_version(2).restore()
    dataset.checkout_latest()
    with pytest.raises(SchemaError, match="may be the same column"):
        dataset.changes(7, columns=["id", "old"]).to_table()
    assert 30 in dataset.changes(7, columns=["id"]).to_table()["id"].to_pylist()


@pytest.mark.parametrize("stable", [False, True])
def test_columns_that_exchanged_their_names_keep_their_values(tmp_path: Path, stable: bool) -> None:
    made = glaive.write_dataset(
        pa.table({"id": [1, 2], "a": ["A1", "A2"], "b": ["B1", "B2"]}),
        tmp_path / "t",
        enable_stable_row_ids=stable,
    )
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        made.alter_columns({"path": old, "name": new})
    made.delete("id = 2")
    feed = made.changes(1, columns=["a", "b"]).to_table()
    assert feed["a"].to_pylist() == ["B1", "B2", "B2"]
    assert feed["b"].to_pylist() == ["A1", "A2", "A2"]
    assert made.changes(1, columns=["a"]).to_table()["a"].to_pylist() == ["B1", "B2", "B2"]


def test_a_column_that_was_renamed_leaves_no_values_to_one_that_got_its_name(
    tmp_path: Path,
) -> None:
    made = glaive.write_dataset(pa.table({"id": [1], "a": ["A1"]}), tmp_path / "t")
    made.alter_columns({"path": "a", "name": "b"})
    made.add_columns({"a": "'new'"})
    made.delete("id = 1")
    feed = made.changes(1).to_table()
    assert feed["a"].to_pylist() == [None, "new"]
    assert feed["b"].to_pylist() == ["A1", "A1"]


def test_members_are_followed_by_their_ids(tmp_path: Path) -> None:
    rows = {"s": [{"x": 1, "y": 10}, None], "l": [[{"x": 3, "y": 4}], []]}
    made = glaive.write_dataset(pa.table({"id": [1, 2], **rows}), tmp_path / "t")
    made.alter_columns({"path": "s.x", "name": "z"}, {"path": "l.item.x", "name": "z"})
    made.delete("id = 1")
    feed = made.changes(1).to_table()
    assert feed["s"].to_pylist() == [{"z": 1, "y": 10}, None, {"z": 1, "y": 10}]
    assert feed["l"].to_pylist() == [[{"z": 3, "y": 4}], [], [{"z": 3, "y": 4}]]
    made.alter_columns({"path": "s.y", "name": "x"})
    made.alter_columns({"path": "s.z", "name": "y"})
    assert made.changes(1).to_table()["s"][0].as_py() == {"y": 1, "x": 10}


def test_parts_of_columns_are_no_columns_of_a_feed(tmp_path: Path) -> None:
    made = glaive.write_dataset(pa.table({"s": [{"x": 1}]}), tmp_path / "t")
    with pytest.raises(OptionError, match=r"'s\.x' is a part of 's'"):
        made.changes(1, columns=["s.x"])


def test_a_column_whose_name_is_empty_is_in_the_feed(tmp_path: Path) -> None:
    """No writer makes one, but a manifest may have it."""
    made = glaive.write_dataset(pa.table({"id": [1], "abc": [2]}), tmp_path / "t")
    made.insert(pa.table({"id": [3], "abc": [4]}))
    for manifest in (tmp_path / "t/_versions").glob("*.manifest"):
        # An empty text, and a field that nobody knows in the place of the letters.
        raw = manifest.read_bytes().replace(b"\x12\x03abc", b"\x12\0\x78\x80\0")
        manifest.write_bytes(raw)
    feed = glaive.dataset(tmp_path / "t").changes(2).to_table()
    assert feed.select(["id", ""]).to_pylist() == [{"id": 3, "": 4}]
