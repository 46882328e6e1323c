"""Fragments as messages: what single files are known by, and what other processes hand over."""

from __future__ import annotations

import pytest

from glaive.errors import CorruptFileError
from glaive.format.fragment import (
    DataFile,
    Fragment,
    SingleFile,
    check_fragment,
    packed_fragments,
    unpacked_fragments,
)
from glaive.format.pb import table_pb2
from glaive.format.wire import MAX_FRAGMENT_ID, MAX_FRAGMENT_ROWS


def fragment(size: int = 9, path: str = "f.lance") -> table_pb2.DataFragment:
    file = table_pb2.DataFile(
        path=path, fields=[0], column_indices=[0], file_major_version=2, file_size_bytes=size
    )
    return table_pb2.DataFragment(id=3, files=[file], physical_rows=5)


@pytest.mark.parametrize(("size", "known"), [(0, False), (1, True), (9, True), (10, False)])
def test_a_single_file_has_a_size_that_is_known_and_small(size: int, *, known: bool) -> None:
    found = SingleFile.of(Fragment.from_wire(fragment(size)), max_size=9)
    assert (found is not None) == known
    assert found is None or (found.size, found.rows) == (size, 5)


def test_fragments_of_other_processes_are_checked() -> None:
    good = fragment().SerializeToString()
    assert packed_fragments(unpacked_fragments([good], "a task")) == (good,)
    with pytest.raises(CorruptFileError, match=r"path of a data file.*in a task"):
        unpacked_fragments([good, fragment(path="../x").SerializeToString()], "a task")


@pytest.mark.parametrize("number", ["id", "physical_rows"])
def test_ids_and_rows_of_fragments_have_limits(number: str) -> None:
    most = {"id": MAX_FRAGMENT_ID, "physical_rows": MAX_FRAGMENT_ROWS}[number]
    given = fragment()
    setattr(given, number, most)
    check_fragment(given, "a task")
    setattr(given, number, most + 1)
    with pytest.raises(CorruptFileError, match=r"expected an id below 2\^32, and at most 2\^32"):
        check_fragment(given, "a task")


def test_a_file_whose_size_is_not_known_is_written_like_that() -> None:
    unknown = DataFile.from_wire(fragment(size=0).files[0], "a task")
    assert unknown.size is None
    assert DataFile.from_wire(unknown.to_wire(), "a task") == unknown


def test_without_a_deletion_file_no_rows_are_deleted() -> None:
    given = fragment()
    assert Fragment.from_wire(given).num_deletions == 0
    given.deletion_file.num_deleted_rows = 2
    assert Fragment.from_wire(given).num_deletions == 2
    given.deletion_file.ClearField("num_deleted_rows")  # as in old datasets
    assert Fragment.from_wire(given).num_deletions is None
