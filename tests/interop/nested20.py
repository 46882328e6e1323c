"""Columns for format 2.0: the common cases without null structs, and types of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["SPECIAL", "filled", "has_null_structs"]


def filled(array: Any) -> Any:
    """The array with every null struct replaced by one, which format 2.0 can hold."""
    kind = array.type
    if pa.types.is_struct(kind):
        members = [filled(array.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return type(array).from_arrays(
            array.offsets, filled(array.values), mask=array.is_null() if array.null_count else None
        )
    return array


def has_null_structs(array: Any) -> bool:
    """Whether some struct is null, at any depth."""
    kind = array.type
    if pa.types.is_struct(kind):
        members = (array.field(at) for at in range(kind.num_fields))
        return bool(array.null_count) or any(map(has_null_structs, members))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return has_null_structs(array.flatten())
    return False


def _cycle(values: list[Any], kind: pa.DataType, count: int) -> Any:
    return pa.array([values[at % len(values)] for at in range(count)], kind)


def _packed(count: int) -> Any:
    numbers = np.arange(count)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * count, dtype=np.int16)), 2)
    return pa.StructArray.from_arrays(
        [
            pa.array(numbers % 100, pa.int8()),
            pa.array(numbers / 3, pa.float32()),
            pa.array(numbers, pa.int64()),
            vectors,
        ],
        names=["a", "b", "c", "d"],
    )


def _lists(items: Any, count: int) -> Any:
    ends = np.minimum(np.arange(count + 1) * 2, len(items))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)


_WORDS = ["red", None, "green", "", "blue"]
_BITS = pa.list_(pa.bool_(), 3)
_DEEP = pa.list_(pa.list_(pa.int8(), 2), 2)

SPECIAL: dict[str, tuple[Any, dict[str, str] | None]] = {
    "null": (pa.nulls, None),
    "dictionary": (lambda count: _cycle(_WORDS, pa.string(), count).dictionary_encode(), None),
    "dictionary_int": (
        lambda count: _cycle([70, 80, None], pa.int64(), count).dictionary_encode(),
        None,
    ),
    "dictionary_large": (
        lambda count: _cycle(["x", "y"], pa.large_string(), count).dictionary_encode(),
        None,
    ),
    "list_dictionary": (
        lambda count: _lists(_cycle(_WORDS, pa.string(), 2 * count).dictionary_encode(), count),
        None,
    ),
    "fsl_bool": (
        lambda count: _cycle([[True, False, None], None, [True, True, False]], _BITS, count),
        None,
    ),
    "fsl_fsl": (
        lambda count: _cycle([[[1, 2], None], None, [[None, 4], [5, 6]]], _DEEP, count),
        None,
    ),
    "list_fsl_bool": (
        lambda count: _lists(_cycle([[True, None, False], None], _BITS, 2 * count), count),
        None,
    ),
    "list_null": (lambda count: _lists(pa.nulls(2 * count), count), None),
    "empty_struct": (lambda count: pa.StructArray.from_buffers(pa.struct([]), count, [None]), None),
    "list_empty_struct": (
        lambda count: _lists(pa.StructArray.from_buffers(pa.struct([]), 2 * count, [None]), count),
        None,
    ),
    "packed": (_packed, {"lance-encoding:packed": "true"}),
    "packed_legacy": (_packed, {"packed": "true"}),
    "zstd": (
        lambda count: pa.array([f"text number {at} " * 9 for at in range(count)]),
        {"lance-encoding:compression": "zstd"},
    ),
    "lz4": (
        lambda count: pa.array([f"text number {at} " * 9 for at in range(count)], pa.binary()),
        {"lance-encoding:compression": "lz4"},
    ),
}
"""Maker by number of rows, and field metadata."""
