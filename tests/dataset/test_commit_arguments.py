"""What callers may give to commits made by hand, and errors that name what is none of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from glaive.fragment import LanceFragment

import glaive
from glaive.dataset.fragment_metadata import DeletionFile
from glaive.dataset.lance_operation import IndexFile
from glaive.dataset.transactions import Transaction
from glaive.errors import (
    CorruptFileError,
    OptionError,
    OptionRangeError,
    SchemaError,
    UnsupportedFeatureError,
)

ROWS = pa.table({"a": [1, 2]})
Operation = glaive.LanceOperation


@pytest.fixture
def place(tmp_path: Path) -> str:
    glaive.write_dataset(ROWS, tmp_path / "t")
    return str(tmp_path / "t")


def appended(place: str) -> Any:
    return Operation.Append([LanceFragment.create(place, ROWS)])


def test_transactions_without_a_uuid_are_different_ones(place: str) -> None:
    for _ in range(2):
        made = glaive.LanceDataset.commit(place, Transaction(1, appended(place), uuid=""))
        transaction = made.read_transaction(made.version)
        assert transaction is not None
        assert transaction.uuid
    assert glaive.dataset(place).count_rows() == 6


def test_batches_of_transactions_without_a_uuid_are_different_ones(place: str) -> None:
    for _ in range(2):
        batch = [Transaction(1, appended(place), uuid="") for _ in range(2)]
        glaive.LanceDataset.commit_batch(place, batch)
    assert glaive.dataset(place).count_rows() == 10


def test_a_transaction_with_a_uuid_is_committed_once(place: str) -> None:
    transaction = Transaction(1, appended(place), uuid="mine")
    for _ in range(2):
        made = glaive.LanceDataset.commit(place, transaction)
    assert made.version == 2


@pytest.mark.parametrize("given", ["1", 1.5, b"x", True, [1], (), object()])
def test_a_read_version_that_is_no_number_is_named(place: str, given: Any) -> None:
    operation = appended(place)
    commits: list[Callable[[], Any]] = [
        lambda: glaive.LanceDataset.commit(place, operation, read_version=given),
        lambda: glaive.LanceDataset.commit(place, Transaction(given, operation)),
        lambda: glaive.LanceDataset.commit_batch(place, [Transaction(given, operation)]),
    ]
    for commit in commits:
        with pytest.raises(OptionError, match="read_version: expected the number of a version"):
            commit()
    assert glaive.dataset(place).version == 1


@pytest.mark.parametrize("given", [-1, 2**64])
def test_a_read_version_that_no_version_can_have_is_named(place: str, given: int) -> None:
    with pytest.raises(OptionRangeError, match=f"read_version.*found {given}"):
        glaive.LanceDataset.commit(place, appended(place), read_version=given)


def test_a_read_version_may_be_a_number_of_numpy(place: str) -> None:
    made = glaive.LanceDataset.commit(place, appended(place), read_version=np.int64(1))  # type: ignore[arg-type]  # an integer all the same
    assert made.version == 2


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"uuid": 5}, "uuid"),
        ({"transaction_properties": ["a"]}, "transaction_properties"),
        ({"transaction_properties": {"a": 1}}, "transaction_properties"),
        ({"operation": "append"}, "operation"),
    ],
)
def test_fields_of_transactions_that_have_another_type_are_named(
    place: str, fields: dict[str, Any], name: str
) -> None:
    transaction = Transaction(**{"read_version": 1, "operation": appended(place), **fields})
    with pytest.raises(OptionError, match=f"{name}: expected"):
        glaive.LanceDataset.commit(place, transaction)


@pytest.mark.parametrize("given", [None, 5, ["a"], "ab"])
def test_what_is_no_list_of_transactions_is_refused(place: str, given: Any) -> None:
    with pytest.raises(OptionError, match="transactions: expected a list of Transaction"):
        glaive.LanceDataset.commit_batch(place, given)


OF_FIELDS: dict[str, Callable[[Any], Any]] = {
    "a version": Operation.Restore,
    "removed fragments": lambda given: Operation.Delete([], given, "a = 1"),
    "updated fragments": lambda given: Operation.Update(removed_fragment_ids=given),
    "fields": lambda given: Operation.Update(fields_modified=given),
    "groups": Operation.Rewrite,
    "indices": Operation.CreateIndex,
    "replacements": Operation.DataReplacement,
    "entries": lambda given: Operation.UpdateConfig(Operation.UpdateMap(given)),
}


@pytest.mark.parametrize("given", ["x", 1.5, [1.5], [-1], [2**32], [None], None], ids=repr)
@pytest.mark.parametrize("field", OF_FIELDS)
def test_fields_of_operations_that_have_another_type_are_refused(
    place: str, field: str, given: Any
) -> None:
    with pytest.raises(OptionError):
        glaive.LanceDataset.commit(place, OF_FIELDS[field](given), read_version=1)


@pytest.mark.parametrize("given", ["1", 1.5, None])
def test_reading_transactions_names_what_is_no_number(place: str, given: Any) -> None:
    dataset = glaive.dataset(place)
    with pytest.raises(OptionError, match="version: expected the number of a version"):
        dataset.read_transaction(given)
    with pytest.raises(OptionError, match="recent_transactions: expected an integer"):
        dataset.get_transactions(given)


def test_a_number_of_transactions_may_be_one_of_numpy(place: str) -> None:
    dataset = glaive.dataset(place)
    assert dataset.get_transactions(np.int64(1)) == [dataset.read_transaction(np.int32(1))]


HALF = "\ud800"  # of a surrogate pair
UNSTORABLE: dict[str, Callable[[Any], Any]] = {
    "uuid": lambda operation: Transaction(1, operation, uuid=HALF),
    "property": lambda operation: Transaction(1, operation, transaction_properties={"a": HALF}),
    "predicate": lambda _: Transaction(1, Operation.Delete([], [0], HALF)),
    "offsets": lambda _: Transaction(1, Operation.Update(updated_fragment_offsets={0: [1]})),
    "fragment of offsets": lambda _: Transaction(
        1, Operation.Update(updated_fragment_offsets={-1: b""})
    ),
    "fragment of a replacement": lambda operation: Transaction(
        1,
        Operation.DataReplacement(
            [Operation.DataReplacementGroup(2**70, operation.fragments[0].files[0])]
        ),
    ),
}


@pytest.mark.parametrize("what", UNSTORABLE)
def test_a_transaction_that_cannot_be_stored_is_refused(place: str, what: str) -> None:
    transaction = UNSTORABLE[what](appended(place))
    with pytest.raises(OptionError, match="a value of it cannot be stored"):
        glaive.LanceDataset.commit(place, transaction)
    assert glaive.dataset(place).version == 1


def test_a_batch_whose_uuid_cannot_be_stored_is_refused(place: str) -> None:
    batch = [Transaction(1, appended(place), uuid=HALF)]
    with pytest.raises(OptionError, match="half of a surrogate pair"):
        glaive.LanceDataset.commit_batch(place, batch)
    assert glaive.dataset(place).version == 1


UNREADABLE: dict[str, Any] = {
    "version": {"index_version": -1},
    "file": {"files": [IndexFile("../other", 1)]},
    "name of a file": {"files": [IndexFile("", 1)]},
    "fragments": {"fragment_ids": [-1]},
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_an_index_that_no_reader_would_accept_is_refused(place: str, what: str) -> None:
    dataset = glaive.dataset(place)
    dataset.create_scalar_index("a", "BTREE")
    made: Any = dataset.read_transaction(2)
    (index,) = made.operation.new_indices
    other = replace(index, uuid=str(uuid4()), name="other", **UNREADABLE[what])
    with pytest.raises(OptionError):
        dataset.commit(dataset, Operation.CreateIndex([other]), read_version=2)
    assert len(glaive.dataset(place).describe_indices()) == 1


@pytest.mark.parametrize(("fields", "columns"), [([0], []), ([0, 1], [0]), ([0, 0], [0, 1])])
def test_a_data_file_that_has_not_a_column_for_each_field_is_refused(
    place: str, fields: list[int], columns: list[int]
) -> None:
    operation = appended(place)
    (fragment,) = operation.fragments
    file = replace(fragment.files[0], fields=fields, column_indices=columns)
    operation = Operation.Append([replace(fragment, files=[file])])
    with pytest.raises(OptionError, match="of a data file: expected"):
        glaive.LanceDataset.commit(place, operation, read_version=1)
    assert glaive.dataset(place).to_table() == ROWS


def test_a_fragment_with_more_deleted_rows_than_rows_is_refused(place: str) -> None:
    (fragment,) = appended(place).fragments
    deleted = [replace(fragment, deletion_file=DeletionFile(1, 2, "array", n)) for n in (2, 3)]
    assert deleted[0].num_rows == 0
    deleted[0].to_stored()
    with pytest.raises(OptionError, match="num_deleted_rows of fragment 0: expected an integer"):
        glaive.LanceDataset.commit(place, Operation.Append(deleted[1:]), read_version=1)
    assert glaive.dataset(place).to_table() == ROWS


def test_files_of_an_unknown_version_replace_no_dataset(place: str) -> None:
    (fragment,) = appended(place).fragments
    file = replace(fragment.files[0], file_major_version=9)
    operation = Operation.Overwrite(ROWS.schema, [replace(fragment, files=[file])])
    with pytest.raises(UnsupportedFeatureError, match=r"unknown data storage version '9\.\d'"):
        glaive.LanceDataset.commit(place, operation)
    assert glaive.dataset(place).to_table() == ROWS


@pytest.mark.parametrize("version", [2**31, 2**32 - 1])
def test_a_rewritten_index_that_no_reader_would_accept_is_refused(place: str, version: int) -> None:
    dataset = glaive.dataset(place)
    dataset.create_scalar_index("a", "BTREE")
    made: Any = dataset.read_transaction(2)
    (index,) = made.operation.new_indices
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    group = Operation.RewriteGroup(fragments, appended(place).fragments)
    rewritten = Operation.RewrittenIndex(index.uuid, str(uuid4()), "", b"", version)
    with pytest.raises(CorruptFileError, match="version of index 'a_idx'"):
        dataset.commit(dataset, Operation.Rewrite([group], [rewritten]), read_version=2)
    assert glaive.dataset(place).version == 2


@pytest.mark.parametrize("first", [pa.array([1, 2]), pa.array([["k"], []])], ids=["number", "list"])
def test_a_projection_does_not_show_a_column_of_another_type(tmp_path: Path, first: Any) -> None:
    rows = pa.table({"first": first, "text": ["x", "y"], "n": [3, 4]})
    dataset = glaive.write_dataset(rows, tmp_path / "t")
    wrong = Operation.Project(glaive.LanceSchema.from_pyarrow(rows.schema.remove(0)))
    with pytest.raises(SchemaError, match=r"'text' of type string has the id 0, which is 'first'"):
        glaive.LanceDataset.commit(dataset, wrong, 1)
    names = ["n", "text"]
    right = Operation.Project(dataset.lance_schema.project(names))
    made = glaive.LanceDataset.commit(dataset, right, 1)
    assert sorted(made.schema.names) == names
    assert made.to_table(columns=names) == rows.select(names)
