"""The change feed across versions that dropped columns and gave their field ids to others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import SchemaError


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
