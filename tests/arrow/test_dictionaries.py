"""Arrays of dictionary types made fit for storing, and joined."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from glaive.arrow.chunked import concat_arrays, tidy_dictionary
from glaive.errors import SchemaError


def coded(indices: list[int | None], items: list[str | None], kind: Any = None) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind or pa.int32()), pa.array(items))


def test_null_items_become_null_indices() -> None:
    array = coded([0, 1, None, 2, 1, 0], ["a", None, "c"])
    tidy = tidy_dictionary(array)
    assert tidy.to_pylist() == array.to_pylist()
    assert tidy.dictionary.to_pylist() == ["a", "c"]
    assert tidy.indices.null_count == 3


def test_positions_of_nulls_are_0() -> None:
    wild = pa.array([0, 99, 1], pa.int8(), mask=pa.array([False, True, False]).to_numpy(False))
    array = pa.DictionaryArray.from_arrays(wild, pa.array(["a", "b"]), safe=False)
    _, values = tidy_dictionary(array).indices.buffers()
    assert bytes(values)[:3] == b"\x00\x00\x01"


def test_items_that_nothing_points_to_are_dropped_when_there_are_many() -> None:
    array = coded([70, None, 3, 70], [str(at) for at in range(100)])
    tidy = tidy_dictionary(array)
    assert tidy.dictionary.to_pylist() == ["3", "70"]
    assert tidy.to_pylist() == ["70", None, "3", "70"]


def test_nothing_but_nulls() -> None:
    for items in ([], [None]):
        array = coded([None, None], items)
        array = array.cast(pa.dictionary(pa.int32(), pa.string()))
        assert tidy_dictionary(array).to_pylist() == [None, None]


def test_a_tidy_array_is_the_same_array() -> None:
    array = coded([0, 1, 0], ["a", "b"])
    assert tidy_dictionary(array) is array


@pytest.mark.parametrize(
    ("indices", "items", "left"),
    [
        ([3, None, 1, 3], ["a", "b", None, "d"], ["b", "d"]),
        ([2, 0, None], ["a", None, "c"], ["a", "c"]),
        ([None, None], ["a"], []),
        ([], ["a", "b"], []),
        ([1, 2], [None, None, None], []),
    ],
)
def test_unused_items_are_dropped_on_demand(
    indices: list[int | None], items: list[str | None], left: list[str]
) -> None:
    array = coded(indices, items).cast(pa.dictionary(pa.int32(), pa.string()))
    tidy = tidy_dictionary(array, drop_unused=True)
    tidy.validate(full=True)
    assert (tidy.type, tidy.to_pylist()) == (array.type, array.to_pylist())
    assert tidy.dictionary.to_pylist() == left


def test_an_array_that_uses_all_items_is_the_same_array() -> None:
    array = coded([1, None, 0], ["a", "b"])
    assert tidy_dictionary(array, drop_unused=True) is array


def test_dictionaries_are_joined_by_what_is_used() -> None:
    array = coded(list(range(100)), [f"a{at}" for at in range(100)], pa.int8())
    other = coded(list(range(100)), [f"b{at}" for at in range(100)], pa.int8())
    joined = concat_arrays([array[:10], other[:10]])
    assert joined.type == array.type
    assert joined.to_pylist() == [*array[:10].to_pylist(), *other[:10].to_pylist()]


def test_too_many_items_name_the_remedy() -> None:
    array = coded(list(range(100)), [f"a{at}" for at in range(100)], pa.int8())
    other = coded(list(range(100)), [f"b{at}" for at in range(100)], pa.int8())
    with pytest.raises(SchemaError, match="fewer rows at a time"):
        concat_arrays([array, other])
