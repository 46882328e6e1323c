"""What one array holds: weights of rows, rows cut into parts, chunks joined as far as they fit."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.compute import list_value_length

import glaive
from glaive.arrow.blocks import MAX_IMPLIED_POSITIONS
from glaive.arrow.build import all_null
from glaive.arrow.chunked import (
    decode_dictionary,
    decode_large,
    in_parts,
    join_batches,
    join_column,
    join_large,
    one_array,
    take_rows,
    too_large,
)
from glaive.errors import CapacityError, SchemaError
from glaive.types import MAX_OFFSET

NESTED = [
    pa.array(["a", "bcd", None, "xyzw"]),
    pa.array([b"a", b"", b"xyz"], pa.large_binary()),
    pa.array([["a", "bcd"], None, [], ["x"]]),
    pa.array([[["a"], ["bcd"]], None, [[]], [["x"], None]]),
    pa.array([{"a": "x", "b": [1, 2]}, None, {"a": "yy", "b": None}]),
    pa.array([[("k", 1)], [], [("kk", 2), ("z", 3)]], pa.map_(pa.string(), pa.int32())),
    pa.array([["a", "bb"], ["c", "d"]], pa.list_(pa.string(), 2)),
    pa.array([["x"], ["yy", "z"]], pa.large_list(pa.string())),
    pa.array([1, None, 3]),
]

MANY = 2**24
"""Booleans of one list: 2 MiB, and 128 such lists do not fit one array."""

LISTS = pa.ListArray.from_arrays(
    pa.array([0, MANY], pa.int32()),
    pa.Array.from_buffers(pa.bool_(), MANY, [None, pa.py_buffer(bytes(MANY // 8))]),
)

LARGE = pa.array(["x" * 2**26])
"""A text of 64 MiB: 32 of them do not fit one array."""


def test_rows_are_cut_until_they_fit() -> None:
    calls = []

    def work(start: int, stop: int) -> range:
        calls.append((start, stop))
        if stop - start > 10 or (start <= 42 < stop and stop - start > 1):
            raise CapacityError("too many", parts=7)
        return range(start, stop)

    results = in_parts(work, 5, 305)
    assert calls == [(5, 305)], "the other parts are computed lazily"
    assert [row for part in results for row in part] == list(range(5, 305))
    assert max(stop - start for start, stop in calls[1:]) < 300


def test_rows_that_fit_are_computed_once() -> None:
    assert in_parts(lambda start, stop: (start, stop), 3, 9) == [(3, 9)]
    assert in_parts(lambda start, stop: (start, stop), 3, 3) == [(3, 3)]


def test_a_single_row_that_is_too_large_is_an_error() -> None:
    def work(start: int, stop: int) -> None:
        raise CapacityError(f"{stop - start} rows")

    with pytest.raises(CapacityError, match="1 rows"):
        list(in_parts(work, 0, 5))


def test_nulls_without_memory_are_as_many_in_an_array_as_positions() -> None:
    assert len(all_null(pa.null(), MAX_IMPLIED_POSITIONS)) == MAX_IMPLIED_POSITIONS
    for count in (MAX_IMPLIED_POSITIONS + 1, 2**47, 2**64):
        with pytest.raises(CapacityError, match="Read fewer rows"):
            all_null(pa.null(), count)


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("version", ["0.1", "2.0"])
def test_null_items_of_lists_are_read_some_at_a_time(version: str, tmp_path: Path) -> None:
    rows, each = 5, MAX_IMPLIED_POSITIONS // 2
    offsets = pa.array([row * each for row in range(rows + 1)], pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, pa.nulls(rows * each))
    dataset = glaive.write_dataset(
        pa.table({"c": lists}), str(tmp_path), data_storage_version=version
    )
    parts: list[Any] = [batch["c"] for batch in dataset.to_batches()]
    assert max(len(part.flatten()) for part in parts) == MAX_IMPLIED_POSITIONS
    assert pa.concat_arrays(list(map(list_value_length, parts))).to_pylist() == [each] * rows


def test_the_error_says_how_many_and_what_helps() -> None:
    error = CapacityError.of(
        3 * MAX_OFFSET, "bytes of string", where="here", instead="large_string"
    )
    assert isinstance(error, SchemaError)
    assert str(MAX_OFFSET) in str(error)
    assert "in here" in str(error)
    assert "large_string" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.parts) == (str(error), 3)


def test_messages_of_arrow_about_full_arrays_are_known() -> None:
    with pytest.raises(pa.ArrowInvalid) as full:
        pa.concat_arrays([LISTS] * 130)
    assert too_large(full.value)
    assert too_large(CapacityError("too many"))
    with pytest.raises(pa.ArrowInvalid) as other:
        pa.array(["x"]).cast(pa.int32())
    assert not too_large(other.value)


# --------------------------------------------------------------------------- columns in chunks


def test_few_rows_are_taken_from_chunks_that_do_not_fit_one_array() -> None:
    small = pa.array(["a", "b"])
    column = pa.chunked_array([*[LARGE] * 33, small, small])
    table = pa.table({"s": column, "n": np.arange(37)})
    taken = take_rows(table, np.array([36, -1, 33, 33, 34]))
    assert taken.to_pydict() == {"s": ["b", None, "a", "a", "b"], "n": [36, None, 33, 33, 34]}
    assert take_rows(table, np.empty(0, np.int64)).num_rows == 0


def test_rows_beside_lists_that_do_not_fit_one_array_are_taken() -> None:
    column = pa.chunked_array([*[LISTS] * 130, pa.array([[None], None, []], LISTS.type)])
    taken = take_rows(pa.table({"l": column}), np.array([132, 130, 131, 130]))
    assert taken["l"].to_pylist() == [[], [None], None, [None]]


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("array", NESTED, ids=lambda array: str(array.type))
def test_rows_are_those_that_arrow_takes(array: Any, distinct: bool) -> None:
    table = pa.table({"v": pa.chunked_array([array, array[1:]])})
    positions = np.random.default_rng(1).permutation(table.num_rows)
    if not distinct:
        positions = np.tile(positions, 3)
    taken = take_rows(table, positions, distinct=distinct)
    assert taken.equals(table.take(positions))


def coded(items: list[str]) -> Any:
    numbers = pa.array(range(len(items)), pa.int8())
    return pa.DictionaryArray.from_arrays(numbers, pa.array(items))


def test_batches_are_joined_as_far_as_they_fit() -> None:
    parts = [coded([f"{letter}{at}" for at in range(50)]) for letter in "abcdef"]
    table = pa.table({"v": pa.chunked_array(parts)})
    joined = join_batches(table)
    assert 1 < len(joined) < len(parts)
    assert pa.Table.from_batches(joined).to_pylist() == table.to_pylist()


def test_chunks_of_lists_become_one_array_of_large_lists() -> None:
    column = pa.chunked_array([LISTS] * 130)
    with pytest.raises(CapacityError, match="do not fit one array"):
        one_array(column)
    joined = join_column(column)
    assert joined.type == pa.large_list(pa.bool_())
    assert joined.offsets[-1].as_py() == 130 * MANY


def test_arrays_of_a_large_type_are_joined_with_others() -> None:
    joined = join_large([pa.array([["a"]], pa.large_list(pa.large_string())), pa.array([["b"]])])
    assert joined.to_pylist() == [["a"], ["b"]]


def test_a_column_without_chunks_is_an_empty_array() -> None:
    column = pa.chunked_array([], pa.string())
    assert one_array(column).equals(pa.array([], pa.string()))
    assert join_column(column).equals(pa.array([], pa.string()))


@pytest.mark.nightly(reason="takes four gigabytes")
def test_values_of_a_dictionary_get_the_room_they_need() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0] * 33, pa.int8()), LARGE)
    with pytest.raises(CapacityError, match="large type"):
        decode_dictionary(array)
    wide = decode_large(array)
    assert wide.type == pa.large_string()
    assert wide.nbytes > 33 * 2**26
