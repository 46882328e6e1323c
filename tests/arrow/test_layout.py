"""Rows of callers are looked at before anything reads values by their offsets."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from glaive.arrow.validation import checked_layout
from glaive.errors import SchemaError

FAR = 2**30
TEXTS = ["abc", "de", "f" * 20]


def altered(array: Any, buffer: int, at: int, number: int, width: int = 4) -> Any:
    """The array with another number in one of its buffers, item ``at`` of ``width`` bytes."""
    word = ctypes.c_int32 if width == 4 else ctypes.c_int64
    word.from_address(array.buffers()[buffer].address + width * at).value = number
    return array


def checked(array: Any) -> list[Any]:
    return list(checked_layout([pa.record_batch([array], ["c"])], "data"))


def texts(kind: Any) -> Any:
    return pa.array(TEXTS).cast(kind)


def with_wild_items() -> Any:
    array = texts(pa.string()).dictionary_encode()
    altered(array.dictionary, 1, 1, FAR)
    return array


def pairs(kind: Any) -> Any:
    return pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), kind))


WILD: dict[str, Callable[[], Any]] = {
    "text": lambda: altered(texts(pa.string()), 1, 1, FAR),
    "bytes": lambda: altered(texts(pa.binary()), 1, 1, -FAR),
    "large text": lambda: altered(texts(pa.large_string()), 1, 2, 2**60, 8),
    "view in no buffer": lambda: altered(texts(pa.string_view()), 1, 10, 7),
    "view of no length": lambda: altered(texts(pa.binary_view()), 1, 8, -5),
    "list": lambda: altered(pa.array([[1], [2, 3], []]), 1, 1, FAR),
    "large list": lambda: altered(pa.array([[1], [2]], pa.large_list(pa.int8())), 1, 1, -FAR, 8),
    "text in a list": lambda: altered(pa.array([["a"], ["b", "c"]]), 3, 2, FAR),
    "text in a fixed-size list": lambda: altered(
        pa.array([["a"], ["b"]], pa.list_(pa.string(), 1)), 2, 1, FAR
    ),
    "member": lambda: altered(pa.array([{"a": "b"}, {"a": "c"}]), 2, 1, FAR),
    "map": lambda: altered(pairs(pa.int8()), 1, 1, FAR),
    "key of a map": lambda: altered(pairs(pa.int8()), 4, 1, FAR),
    "number of an item": lambda: altered(texts(pa.string()).dictionary_encode(), 1, 1, FAR),
    "number below 0": lambda: altered(texts(pa.string()).dictionary_encode(), 1, 2, -1),
    "item": with_wild_items,
    "view of lists": lambda: altered(pa.array([[1], [2]], pa.list_view(pa.int8())), 1, 1, FAR),
    "nulls": lambda: pa.Array.from_buffers(
        pa.int8(), 8, [pa.py_buffer(b"\xff"), pa.py_buffer(bytes(8))], null_count=8
    ),
    "null structs": lambda: pa.Array.from_buffers(
        pa.struct([("a", pa.null())]), 8, [pa.py_buffer(b"\xff")], 8, children=[pa.nulls(8)]
    ),
    "null lists of a fixed size": lambda: pa.Array.from_buffers(
        pa.list_(pa.null(), 1), 8, [pa.py_buffer(b"\xff")], 8, children=[pa.nulls(8)]
    ),
}


@pytest.mark.spec("rel-56")
@pytest.mark.parametrize("name", WILD)
def test_what_leaves_its_memory_is_named(name: str) -> None:
    with pytest.raises(SchemaError, match=r"data: column 'c' is no array of .*validate\(full=True"):
        checked(WILD[name]())


@pytest.mark.parametrize(
    "array",
    [
        texts(pa.string_view()),
        pa.array([["a", None], None, []]),
        pa.array([["a"], None], pa.list_(pa.string(), 1)),
        pa.array([{"a": "b", "d": 1}, None]),
        pa.array([[("a", [1])], None], pa.map_(pa.string(), pa.list_(pa.int8()))),
        pa.array(["a", None]).dictionary_encode(),
        pa.nulls(3, pa.dictionary(pa.int8(), pa.string())),
        pa.array(['{"a": 1}', None], pa.json_()),
        pa.array([b"\xff", None]).view(pa.string()),
        pa.array([b"\xff" * 16]).cast(pa.binary(16)).view(pa.decimal128(5)),
        pa.array([2**40]).view(pa.time64("us")),
        pa.nulls(2),
    ],
    ids=lambda array: f"{array.type}",
)
def test_other_rows_are_handed_on_whatever_their_values_are(array: Any) -> None:
    for part in (array, array.slice(1), array.slice(0, 0), pa.concat_arrays([array, array])[1:]):
        (batch,) = checked(part)
        assert batch.column(0).equals(part)


def test_a_part_of_an_array_is_looked_at_alone() -> None:
    array = altered(pa.array([["a"], ["b"], ["c"]]), 3, 2, FAR)
    assert checked(array[:1])
    with pytest.raises(SchemaError, match="column 'c'"):
        checked(array[1:])


def test_items_of_a_dictionary_are_looked_at_in_each_batch_that_has_others() -> None:
    good = texts(pa.string()).dictionary_encode()
    batches = [pa.record_batch([one], ["c"]) for one in (good, good[1:], with_wild_items())]
    rows = checked_layout(batches, "data")
    assert [len(next(rows)), len(next(rows))] == [3, 2]
    with pytest.raises(SchemaError, match="column 'c'"):
        next(rows)
