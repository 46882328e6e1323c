"""Datasets that pylance changed read the same here, and the other way round."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

ROWS = 12_000


def make(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "score": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
            "name": [None if i % 13 == 0 else f"name {i}" for i in range(rows)],
            "meta": [{"x": i, "y": str(i)} for i in range(rows)],
            "tags": [list(range(i % 3)) for i in range(rows)],
        }
    )


TABLE = make()


def assert_same(place: Path, **options: Any) -> None:
    """Both libraries read the same from a place, in every way of reading."""
    ours, theirs = glaive.dataset(place, **options), lance.dataset(str(place), **options)
    assert ours.count_rows() == theirs.count_rows()
    assert ours.schema == theirs.schema
    expected = theirs.to_table(with_row_id=True, with_row_address=True)
    found = ours.to_table(with_row_id=True, with_row_address=True)
    assert found.equals(expected)
    assert ours.to_table().equals(theirs.to_table())
    batches = ours.to_batches(with_row_id=True, with_row_address=True, batch_size=777)
    assert pa.Table.from_batches(batches, found.schema).equals(expected)
    total = ours.count_rows()
    assert ours.to_table(offset=total // 3, limit=2000).equals(
        theirs.to_table(offset=total // 3, limit=2000)
    )
    if total:
        rows = np.random.default_rng(1).integers(0, total, 500).tolist()
        assert ours.take(rows).equals(theirs.take(rows))
        assert ours.take(rows[:1]).equals(theirs.take(rows[:1]))
    for mine, other in zip(ours.get_fragments(), theirs.get_fragments(), strict=True):
        assert mine.fragment_id == other.fragment_id
        assert mine.num_deletions == other.num_deletions
        assert mine.deletion_file() == other.deletion_file()
        assert mine.to_table().equals(other.to_table())


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_several_fragments(tmp_path: Path, version: str) -> None:
    lance.write_dataset(TABLE, tmp_path, max_rows_per_file=5000, data_storage_version=version)
    assert_same(tmp_path)
    assert glaive.dataset(tmp_path).data_storage_version == version


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "predicate",
    ["id % 7 = 3", "id < 900", "id >= 11000", "id between 4000 and 6000", "id % 2 = 0", "id = 5"],
)
def test_deleted_rows(tmp_path: Path, predicate: str) -> None:
    lance.write_dataset(TABLE, tmp_path, max_rows_per_file=5000).delete(predicate)
    assert_same(tmp_path)
    assert_same(tmp_path, version=1)


def test_everything_deleted(tmp_path: Path) -> None:
    lance.write_dataset(TABLE, tmp_path).delete("true")
    assert glaive.dataset(tmp_path).to_table().equals(TABLE.slice(0, 0))


def test_stable_row_ids(tmp_path: Path) -> None:
    written = lance.write_dataset(
        TABLE, tmp_path, max_rows_per_file=5000, enable_stable_row_ids=True
    )
    written.delete("id % 5 = 1")
    lance.dataset(str(tmp_path)).update({"score": "1.5"}, where="id < 100")
    assert_same(tmp_path)


def test_columns_added_in_files_of_their_own(tmp_path: Path) -> None:
    written = lance.write_dataset(TABLE, tmp_path, max_rows_per_file=5000)
    written.add_columns({"twice": "id * 2", "half": "id / 2"})
    assert_same(tmp_path)
    ours = glaive.dataset(tmp_path)
    columns = ["half", "id", "meta.y", "twice"]
    assert ours.to_table(columns).equals(lance.dataset(str(tmp_path)).to_table(columns))


def test_columns_added_without_values(tmp_path: Path) -> None:
    written = lance.write_dataset(TABLE, tmp_path)
    written.add_columns(pa.schema([("later", pa.int32()), ("text", pa.string())]))
    assert_same(tmp_path)


def test_columns_dropped_and_renamed(tmp_path: Path) -> None:
    written = lance.write_dataset(TABLE, tmp_path, max_rows_per_file=5000)
    written.drop_columns(["score"])
    written.alter_columns({"path": "name", "name": "title"})
    assert_same(tmp_path)


def test_columns_cast(tmp_path: Path) -> None:
    written = lance.write_dataset(TABLE, tmp_path, max_rows_per_file=5000)
    written.alter_columns({"path": "id", "data_type": pa.int32()})
    assert_same(tmp_path)


def test_appends_with_missing_columns(tmp_path: Path) -> None:
    lance.write_dataset(TABLE, tmp_path)
    lance.write_dataset(TABLE.select(["id", "tags"]), tmp_path, mode="append")
    assert_same(tmp_path)
    glaive.write_dataset(TABLE.select(["name"]), tmp_path, mode="append")
    assert_same(tmp_path)


@pytest.mark.parametrize("writers", [(lance, glaive), (glaive, lance)])
def test_appends_with_missing_members(tmp_path: Path, writers: tuple[Any, Any]) -> None:
    whole = pa.struct([("x", pa.int64()), ("y", pa.struct([("p", pa.int8()), ("q", pa.int8())]))])
    part = pa.struct([("y", pa.struct([("q", pa.int8())]))])
    first, second = writers
    value = {"x": 1, "y": {"p": 2, "q": 3}}
    schema = pa.schema([("s", whole), ("l", pa.list_(whole))])
    rows = pa.Table.from_pylist([{"s": value, "l": [value, None]}, {"s": None, "l": None}], schema)
    first.write_dataset(rows, tmp_path)
    schema = pa.schema([("s", part), ("l", pa.list_(part))])
    value = {"y": {"q": 5}}
    rows = pa.Table.from_pylist([{"s": value, "l": [value, None]}, {"s": None, "l": []}], schema)
    second.write_dataset(rows, tmp_path, mode="append")
    assert_same(tmp_path)


def test_rows_updated_and_compacted(tmp_path: Path) -> None:
    written = lance.write_dataset(TABLE, tmp_path, max_rows_per_file=2000)
    written.update({"name": "'new'"}, where="id % 3 = 0")
    assert_same(tmp_path)
    lance.dataset(str(tmp_path)).optimize.compact_files()
    assert_same(tmp_path)


def test_v1_manifest_names(tmp_path: Path) -> None:
    lance.write_dataset(TABLE, tmp_path, enable_v2_manifest_paths=False)
    glaive.write_dataset(TABLE, tmp_path, mode="append")
    lance.write_dataset(TABLE, tmp_path, mode="append")
    assert_same(tmp_path)
    assert glaive.dataset(tmp_path).version == 3


def test_writers_take_turns(tmp_path: Path) -> None:
    glaive.write_dataset(TABLE, tmp_path, max_rows_per_file=5000)
    for library in (lance, glaive, lance, glaive):
        library.write_dataset(make(500), tmp_path, mode="append")
        assert_same(tmp_path)
    ours, theirs = glaive.dataset(tmp_path), lance.dataset(str(tmp_path))
    assert [one["metadata"] for one in ours.versions()] == [
        one["metadata"] for one in theirs.versions()
    ]
    for mine, other in zip(ours.versions(), theirs.versions(), strict=True):
        # pylance works the microseconds out in floating point.
        assert abs(mine["timestamp"] - other["timestamp"]) <= timedelta(microseconds=2)


def test_pylance_changes_what_was_written_here(tmp_path: Path) -> None:
    glaive.write_dataset(TABLE, tmp_path, max_rows_per_file=5000)
    written = lance.dataset(str(tmp_path))
    written.validate()
    written.delete("id % 11 = 4")
    written.add_columns({"more": "id + 1"})
    assert_same(tmp_path)
    written.create_scalar_index("id", "BTREE")
    assert glaive.dataset(tmp_path).has_index
    glaive.write_dataset(TABLE.append_column("more", TABLE["id"]), tmp_path, mode="append")
    assert glaive.dataset(tmp_path).has_index
    assert_same(tmp_path)
    assert lance.dataset(str(tmp_path)).to_table(filter="id = 77").num_rows == 2


def test_an_overwrite_is_understood(tmp_path: Path) -> None:
    lance.write_dataset(TABLE, tmp_path)
    glaive.write_dataset(make(100).select(["name", "id"]), tmp_path, mode="overwrite")
    assert_same(tmp_path)
    assert_same(tmp_path, version=1)


def test_schema_metadata_and_nullability(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"unit": "one"}),
            pa.field("s", pa.struct([pa.field("x", pa.int8(), nullable=False)]), nullable=False),
        ],
        metadata={"made": "here"},
    )
    rows = pa.Table.from_pylist([{"id": 1, "s": {"x": 2}}], schema)
    glaive.write_dataset(rows, tmp_path / "a")
    lance.write_dataset(rows, tmp_path / "b")
    for place in (tmp_path / "a", tmp_path / "b"):
        assert_same(place)
        ours = glaive.dataset(place).to_table()
        assert ours.schema.equals(schema, check_metadata=True)
        theirs = lance.dataset(str(place)).to_table()
        assert theirs.schema.equals(ours.schema, check_metadata=True)
