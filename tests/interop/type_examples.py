"""A few rows of every type there is in Arrow, also those that no version takes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["EXAMPLES", "example"]

PACKED = {"lance-encoding:packed": "true"}
ROWS = 6


def _fixed(items: Any, size: int = 2) -> Any:
    return pa.FixedSizeListArray.from_arrays(items, size)


def _struct(**members: Any) -> Any:
    return pa.StructArray.from_arrays(list(members.values()), names=list(members))


def _listed(items: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array([0, 1, 2, 2, 4, 5, 6], pa.int32()), items)


def _coded(items: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1, 0, 1], pa.int32()), items)


_NULL = pa.array([False, True, False, False, True, False])
_I8 = pa.array(range(ROWS), pa.int8())
_I64 = pa.array(range(ROWS), pa.int64())
_TEXT = pa.array(["a", "bb", "", "c", "", "ddd"])
_HOLES = pa.array([1, None, 3, 4, 5, None], pa.int32())
_PAIR = _struct(a=_I8, b=_I64)
_EMPTY = pa.StructArray.from_buffers(pa.struct([]), ROWS, [None])
_MAP = pa.array([[("a", 1)], None, [], [("b", None)], [], []], pa.map_(pa.string(), pa.int32()))
_TWELVE = pa.array(range(2 * ROWS), pa.int32())
_POINTS = _fixed(_struct(x=_TWELVE))

_VALUES: dict[str, Any] = {
    "int": pa.array([1, 2], pa.int16()),
    "text": pa.array(["x", "y"]),
    "bool": pa.array([True, False]),
    "date": pa.array([1, 2], pa.int32()).view(pa.date32()),
    "timestamp": pa.array([1, 2]).view(pa.timestamp("us")),
    "decimal": pa.array([Decimal(1), Decimal(2)], pa.decimal128(10, 2)),
    "fixed binary": pa.array([b"ab", b"cd"], pa.binary(2)),
    "list": pa.array([[1], [2]]),
    "struct": _struct(a=pa.array([1, 2])),
    "vector": _fixed(pa.array([1.0, 2.0, 3.0, 4.0])),
    "null": pa.nulls(2),
}

_ONE_PAIR: list[Any] = [[("a", 1)]] * ROWS

EXAMPLES: dict[str, tuple[Any, dict[str, str] | None]] = {
    "null": (pa.nulls(ROWS), None),
    "map": (_MAP, None),
    "map with sorted keys": (
        pa.array(_ONE_PAIR, pa.map_(pa.string(), pa.int32(), keys_sorted=True)),
        None,
    ),
    "list of maps": (_listed(_MAP), None),
    "struct of map": (_struct(m=_MAP), None),
    "fixed list of structs": (_POINTS, None),
    "fixed list of structs of fixed lists": (
        _fixed(_struct(v=_fixed(pa.array(range(4 * ROWS), pa.int16())))),
        None,
    ),
    "fixed list of structs of lists": (_fixed(_struct(v=pa.array([[1]] * 2 * ROWS))), None),
    "fixed list of fixed lists of structs": (
        _fixed(_fixed(_struct(x=pa.array(range(4 * ROWS))))),
        None,
    ),
    "list of fixed lists of structs": (_listed(_POINTS), None),
    "struct of fixed list of structs": (_struct(f=_POINTS), None),
    "struct of fixed list of structs and more": (_struct(f=_POINTS, i=_I8), None),
    "struct of something and fixed list of structs": (_struct(i=_I8, f=_POINTS), None),
    "fixed list of structs with lists later": (
        _fixed(_struct(i=_TWELVE, v=pa.array([[1]] * 2 * ROWS))),
        None,
    ),
    "map of fixed lists of structs": (
        pa.MapArray.from_arrays(pa.array(range(7), pa.int32()), _TEXT, _POINTS),
        None,
    ),
    "list of struct of fixed list of structs and more": (_listed(_struct(f=_POINTS, i=_I8)), None),
    "fixed list of structs of fixed list of structs and more": (
        _fixed(_struct(i=_TWELVE, f=_fixed(_struct(x=pa.array(range(4 * ROWS)))))),
        None,
    ),
    "fixed list of empty structs": (
        _fixed(pa.StructArray.from_buffers(pa.struct([]), 2 * ROWS, [None])),
        None,
    ),
    "fixed list of text": (_fixed(pa.array(["a"] * 2 * ROWS)), None),
    "fixed list of binary": (_fixed(pa.array([b"a"] * 2 * ROWS)), None),
    "fixed list of binary of 0 bytes": (_fixed(pa.array([b""] * 2 * ROWS, pa.binary(0))), None),
    "fixed list of lists": (_fixed(pa.array([[1]] * 2 * ROWS)), None),
    "fixed list of dictionaries": (_fixed(pa.array(["a"] * 2 * ROWS).dictionary_encode()), None),
    "fixed list of uuids": (
        _fixed(
            pa.ExtensionArray.from_storage(
                pa.uuid(), pa.array([bytes(16)] * 2 * ROWS, pa.binary(16))
            )
        ),
        None,
    ),
    "fixed list of nulls": (_fixed(pa.nulls(2 * ROWS)), None),
    "fixed list of booleans": (_fixed(pa.array([True, None] * ROWS)), None),
    "fixed list of decimals": (
        _fixed(pa.array([Decimal(1)] * 2 * ROWS, pa.decimal256(50, 2))),
        None,
    ),
    "fixed list of no items": (pa.array([[]] * ROWS, pa.list_(pa.int32(), 0)), None),
    "packed": (_PAIR, PACKED),
    "packed, as it was called": (_PAIR, {"packed": "true"}),
    "packed with text": (_struct(a=_I8, b=_TEXT), PACKED),
    "packed with null member": (_struct(a=_I8, b=_HOLES), PACKED),
    "packed and null": (
        pa.StructArray.from_arrays([_I8, _I64], names=["a", "b"], mask=_NULL),
        PACKED,
    ),
    "packed with booleans": (_struct(a=_I8, b=pa.array([True, False] * 3)), PACKED),
    "packed with vector": (_struct(a=_I8, b=_fixed(_TWELVE)), PACKED),
    "packed with list": (_struct(a=_I8, b=pa.array([[1]] * ROWS)), PACKED),
    "packed with dictionary": (_struct(a=_I8, b=_TEXT.dictionary_encode()), PACKED),
    "packed with nulls": (_struct(a=_I8, b=pa.nulls(ROWS)), PACKED),
    "packed with empty struct": (_struct(a=_I8, b=_EMPTY), PACKED),
    "packed without members": (_EMPTY, PACKED),
    "packed with struct": (_struct(a=_I8, b=_PAIR), PACKED),
    "packed with struct with text": (_struct(a=_I8, b=_struct(t=_TEXT)), PACKED),
    "packed with struct with vector": (_struct(a=_I8, b=_struct(v=_fixed(_TWELVE))), PACKED),
    "packed with struct with struct": (_struct(a=_I8, b=_struct(s=_PAIR)), PACKED),
    "packed with struct with list": (_struct(a=_I8, b=_struct(v=pa.array([[1]] * ROWS))), PACKED),
    "packed with struct with booleans": (
        _struct(a=_I8, b=_struct(v=pa.array([True, False] * 3))),
        PACKED,
    ),
    "packed with fixed list of structs": (_struct(a=_I8, b=_POINTS), PACKED),
    "packed with fixed list of booleans": (
        _struct(a=_I8, b=_fixed(pa.array([True, False] * 12), 4)),
        PACKED,
    ),
    "empty struct": (_EMPTY, None),
    "empty struct with nulls": (pa.array([{}, None] * 3, pa.struct([])), None),
    "list of empty structs": (_listed(_EMPTY), None),
    "struct of empty struct and more": (_struct(e=_EMPTY, i=_I8), None),
    "struct of struct of empty struct and more": (_struct(s=_struct(e=_EMPTY), i=_I8), None),
    "struct of something and empty struct": (_struct(i=_I8, e=_EMPTY), None),
    "struct of empty struct": (_struct(e=_EMPTY), None),
    "struct of empty struct with nulls": (
        pa.StructArray.from_arrays([_EMPTY], names=["e"], mask=_NULL),
        None,
    ),
    **{f"dictionary of {name}": (_coded(values), None) for name, values in _VALUES.items()},
    "string_view": (_TEXT.cast(pa.string_view()), None),
    "decimal32": (pa.array([Decimal(1)] * ROWS, pa.decimal32(5, 2)), None),
    "decimal64": (pa.array([Decimal(1)] * ROWS, pa.decimal64(10, 2)), None),
    "decimal256": (pa.array([Decimal(1), None] * 3, pa.decimal256(60, 2)), None),
    "interval": (pa.array([(1, 2, 3)] * ROWS, pa.month_day_nano_interval()), None),
    "list_view": (pa.array([[1]] * ROWS, pa.list_view(pa.int32())), None),
    "large_list_view": (pa.array([[1]] * ROWS, pa.large_list_view(pa.int32())), None),
    "runs": (pa.RunEndEncodedArray.from_arrays(pa.array([6], pa.int32()), pa.array(["a"])), None),
    "union": (pa.UnionArray.from_sparse(pa.array([0, 1] * 3, pa.int8()), [_I64, _TEXT]), None),
    "json": (pa.array(['{"a":1}', None] * 3, pa.json_()), None),
    "uuid": (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * ROWS, pa.binary(16))),
        None,
    ),
    "binary of 0 bytes": (pa.array([b"", None] * 3, pa.binary(0)), None),
}
"""Array and field metadata by name."""


def example(name: str) -> pa.Table:
    """One column of six rows."""
    array, metadata = EXAMPLES[name]
    field = pa.field("c", array.type, metadata=metadata)
    return pa.Table.from_arrays([array], schema=pa.schema([field]))
