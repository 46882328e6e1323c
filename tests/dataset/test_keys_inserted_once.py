"""Two merges that insert the same primary key, neither of which has seen the other."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.table.places import change_newest

import glaive
from glaive.errors import CommitConflictError, CorruptFileError, OptionError
from glaive.io.access import open_store

KEY = "lance-schema:unenforced-primary-key"


def key(name: str, data_type: pa.DataType, position: int = 1) -> pa.Field:
    metadata = {KEY: "true", f"{KEY}:position": str(position)}
    return pa.field(name, data_type, nullable=False, metadata=metadata)


def insert_twice(path: Path, rows: pa.Table, *ways: Sequence[str]) -> int:
    """Insert rows in each way into a table without rows; all read the same version."""
    glaive.write_dataset(rows[:0], path)
    return insert_into(path, rows, *ways)


def insert_into(path: Path, rows: pa.Table, *ways: Sequence[str]) -> int:
    """Insert rows in each way; all read the same version."""
    read = [glaive.dataset(path) for _ in ways]
    for dataset, on in zip(read, ways, strict=True):
        dataset.merge_insert(list(on)).when_not_matched_insert_all().execute(rows)
    return glaive.dataset(path).count_rows()


@pytest.mark.spec("rel-9", "update-4")
@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (pa.int64(), 5),
        (pa.int16(), 5),
        (pa.uint8(), 5),
        (pa.bool_(), True),
        (pa.date32(), date(2020, 1, 1)),
        (pa.timestamp("us", "UTC"), 1),
        (pa.float64(), 1.5),
        (pa.decimal128(10, 2), Decimal("1.5")),
        (pa.binary(4), b"abcd"),
        (pa.dictionary(pa.int32(), pa.string()), "a"),
    ],
    ids=str,
)
def test_a_key_of_any_type_is_inserted_once(
    tmp_path: Path, data_type: pa.DataType, value: Any
) -> None:
    schema = pa.schema([key("k", data_type), pa.field("v", pa.int64())])
    rows = pa.table([pa.array([value], data_type), [1]], schema=schema)
    assert insert_twice(tmp_path / "t", rows, ["k"], ["k"]) == 1


@pytest.mark.spec("rel-9")
def test_the_columns_of_a_key_may_be_given_in_any_order(tmp_path: Path) -> None:
    schema = pa.schema([key("a", pa.int64(), 1), key("b", pa.string(), 2)])
    rows = pa.table([[1], ["x"]], schema=schema)
    assert insert_twice(tmp_path / "t", rows, ["a", "b"], ["b", "a"], ["a", "b"]) == 1


def test_keys_with_nulls_are_equal_to_none_and_hide_no_others(tmp_path: Path) -> None:
    """No table is made with such a key; it may be there, by an earlier glaive."""
    columns = [key("a", pa.int64(), 1), key("b", pa.string(), 2)]
    glaive.write_dataset(pa.schema(columns).empty_table(), tmp_path / "t")
    change_newest(open_store(tmp_path / "t"), nullable=True)
    rows = pa.table(
        [[1, 1, None], ["x", None, "x"]],
        schema=pa.schema([column.with_nullable(True) for column in columns]),
    )
    assert insert_into(tmp_path / "t", rows, ["a", "b"], ["a", "b"]) == 5
    assert glaive.dataset(tmp_path / "t").to_table(filter="a is null").num_rows == 2


@pytest.mark.spec("rel-9", "update-4")
@pytest.mark.parametrize("data_type", [pa.int64(), pa.int16()], ids=["a filter", "no filter"])
@pytest.mark.parametrize("first", ["a transaction", "rows"])
def test_merges_that_are_committed_by_hand_insert_a_key_once(
    tmp_path: Path, data_type: pa.DataType, first: str
) -> None:
    rows = pa.table([pa.array([5], data_type)], schema=pa.schema([key("k", data_type)]))
    dataset = glaive.write_dataset(rows[:0], tmp_path)
    merges = [dataset.merge_insert("k").when_not_matched_insert_all() for _ in range(2)]
    made = [pickle.loads(pickle.dumps(merge.execute_uncommitted(rows)[0])) for merge in merges]
    if first == "rows":
        dataset.insert(rows)
    else:
        glaive.LanceDataset.commit(tmp_path, made[0])

    with pytest.raises(CommitConflictError, match="keys that this inserts"):
        glaive.LanceDataset.commit(tmp_path, made[1])
    assert glaive.dataset(tmp_path).count_rows() == 1


@pytest.mark.parametrize("given", [["k"], b"no message"])
def test_what_is_no_filter_of_keys_is_refused(tmp_path: Path, given: Any) -> None:
    glaive.write_dataset({"k": [1]}, tmp_path)
    update = glaive.LanceOperation.Update(inserted_rows=given)
    with pytest.raises((OptionError, CorruptFileError), match="inserted"):
        glaive.LanceDataset.commit(tmp_path, update, read_version=1)
