"""Fragments as JSON from somewhere else: numbers and names are checked before a commit."""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from glaive.fragment import FragmentMetadata

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import OptionError

WRONG: list[tuple[tuple[Any, ...], Any, str]] = [
    (("id",), -1, "id of a fragment: expected an integer from 0 to 4294967295, found -1"),
    (("id",), 2**32, "id of a fragment.*found 4294967296"),
    (("id",), "1", "id of a fragment"),
    (("id",), True, "id of a fragment"),
    (("id",), None, "id of a fragment"),
    (("physical_rows",), -1, "physical_rows of fragment 0"),
    (("physical_rows",), 2**32 + 1, "physical_rows of fragment 0.*found 4294967297"),
    (("physical_rows",), 1.5, "physical_rows of fragment 0"),
    (("files", 0, "path"), "../x", "below the folder of data files"),
    (("files", 0, "path"), "", "below the folder of data files"),
    (("files", 0, "fields"), [2**31], "fields of data file"),
    (("files", 0, "fields"), "ab", "fields of data file"),
    (("files", 0, "column_indices"), [None], "column_indices of data file"),
    (("files", 0, "file_major_version"), 2**32, "format version of data file"),
    (("files", 0, "file_size_bytes"), -1, "size of data file"),
    (("files", 0, "base_id"), 2**32, "base_id of data file"),
    (("deletion_file", "read_version"), -1, "read_version of a deletion file"),
    (("deletion_file", "id"), 2**64, "id of a deletion file"),
    (("deletion_file", "num_deleted_rows"), "3", "num_deleted_rows of a deletion file"),
    (("deletion_file", "base_id"), -1, "base_id of a deletion file"),
    (("row_id_meta",), {"Inline": 2**31}, "RowIdMeta"),
]


@pytest.fixture(scope="module")
def dataset() -> LanceDataset:
    place = f"memory://{uuid4().hex}/t"
    made = glaive.write_dataset({"id": list(range(10))}, place, enable_stable_row_ids=True)
    made.delete("id = 3")
    return made


def changed(dataset: LanceDataset, path: tuple[Any, ...], value: Any) -> Any:
    found = copy.deepcopy(dataset.get_fragments()[0].metadata.to_json())
    at = found
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return found


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_what_a_manifest_cannot_hold_is_an_option_that_is_wrong(
    dataset: LanceDataset, path: tuple[Any, ...], value: Any, message: str
) -> None:
    given = changed(dataset, path, value)
    operations: list[Callable[[Any], Any]] = [
        lambda one: glaive.LanceOperation.Append([one]),
        lambda one: glaive.LanceOperation.Delete([one], [], "x"),
        lambda one: glaive.LanceOperation.Merge([one], dataset.lance_schema),
    ]
    for operation in operations:
        with pytest.raises(OptionError, match=message):
            LanceDataset.commit(
                dataset, operation(FragmentMetadata.from_json(given)), read_version=dataset.version
            )


def test_rows_that_are_only_told_take_no_memory(dataset: LanceDataset) -> None:
    """A commit gives ids and versions to as many rows as a fragment says, and lists none."""
    given = changed(dataset, ("physical_rows",), 2**31)
    given["deletion_file"] = None
    append = glaive.LanceOperation.Append([FragmentMetadata.from_json(given)])
    tracemalloc.start()
    try:
        made = LanceDataset.commit(dataset, append, read_version=dataset.version, detached=True)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert made.count_rows() == 9 + 2**31


def test_ids_of_rows_that_moved_come_before_those_that_are_new(dataset: LanceDataset) -> None:
    rows = pa.table({"id": [1, 2, 77]})
    written: Any = glaive.fragment.write_fragments(rows, dataset)
    (fragment,) = written
    fragment.row_id_meta = glaive.fragment.RowIdSequence([4, 2]).to_inline_metadata()
    update = glaive.LanceOperation.Update([], [], [fragment], [], [])
    made = LanceDataset.commit(dataset, update, read_version=dataset.version, detached=True)
    found = made.get_fragments()[-1].to_table(with_row_id=True)
    assert found["_rowid"].to_pylist() == [4, 2, 10]
