"""Rows that callers hand over: whether their arrays stay within their memory.

Arrow reads a message, or takes another library's arrays, as they are: offsets, numbers of items of
a dictionary and counts of nulls may be any at all. What reads values by these ends the process.
Values are not looked at: texts need not be UTF-8, nor decimals have the digits of their type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.invalid_values import wild_length
from glaive.errors import SchemaError

__all__ = ["checked_layout"]

_NOTHING: Final = pa.struct([])

_ANY_VALUES: Final = frozenset(
    kind.id
    for kind in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.null(), pa.binary(),
        pa.large_binary(), pa.binary(1), pa.timestamp("s"), pa.duration("s"), pa.date32(),
    )
)  # fmt: skip
"""Types without children of which validating refuses no values."""

_OTHER_TYPES: Final = {
    pa.string().id: pa.binary(),
    pa.large_string().id: pa.large_binary(),
    pa.string_view().id: pa.binary_view(),
    pa.date64().id: pa.int64(),
    pa.time32("s").id: pa.int32(),
    pa.time64("us").id: pa.int64(),
}
"""Types of the same memory whose values may be any."""

_Path = tuple[int, ...]
_Known = dict[_Path, Any]
"""The items of dictionaries that were looked at last, by column and member."""

Rows = Any
"""A record batch or a table."""


def checked_layout(rows: Iterable[Rows], what: str) -> Iterator[Rows]:
    """The rows, each of which is looked at before it is handed on.

    Costs about 1 ns for each text and list, 3 for each number of an item of a dictionary. Items of
    a dictionary that several batches share are looked at once.

    Raises
    ------
    SchemaError
        Names the column.
    """
    known: _Known = {}
    for item in rows:
        for at, column in enumerate(item.columns):
            for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                try:
                    _check(array, known, (at,))
                except (pa.ArrowInvalid, pa.ArrowIndexError) as error:  # the latter of views
                    name = item.schema.field(at).name
                    raise SchemaError(
                        f"{what}: column {name!r} is no array of {array.type}: {error}. Check "
                        "where it comes from by validate(full=True) of it."
                    ) from None
        yield item


def _check(array: Any, known: _Known, path: _Path) -> None:
    """Refuse what leaves its memory, in the rows of an array alone: slices share their children."""
    kind, types = array.type, pa.types
    if kind.id in _ANY_VALUES:
        array.validate(full=True)
    elif kind.id in _OTHER_TYPES:
        array.view(_OTHER_TYPES[kind.id]).validate(full=True)
        fault = wild_length(array) if types.is_string_view(kind) else None
        if fault is not None:
            raise pa.ArrowInvalid(fault)
    elif types.is_decimal(kind):
        array.view(pa.binary(kind.bit_width // 8)).validate(full=True)
    elif isinstance(array, pa.ExtensionArray):
        _check(array.storage, known, path)
    else:
        array.validate()  # its children are as long as it says
        _check_nested(array, known, path)


def _check_nested(array: Any, known: _Known, path: _Path) -> None:
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        _check_dictionary(array, known, path)
    elif types.is_struct(kind):
        _check_nulls(array)
        for at in range(kind.num_fields):
            _check(array.field(at), known, (*path, at))
    elif types.is_fixed_size_list(kind):
        _check_nulls(array)
        size = kind.list_size
        _check(array.values.slice(array.offset * size, len(array) * size), known, (*path, 0))
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        _check_lists(array, known, path)
    else:
        array.validate(full=True)
        fault = wild_length(array) if types.is_binary_view(kind) else None
        if fault is not None:
            raise pa.ArrowInvalid(fault)


def _check_nulls(array: Any) -> None:
    """The bitmap of an array, whatever its children are."""
    validity = array.buffers()[0]
    _of_buffers(_NOTHING, array, [validity], []).validate(full=True)


def _check_lists(array: Any, known: _Known, path: _Path) -> None:
    """The offsets of lists, then the items between the first and the last of them."""
    kind, items = array.type, array.values
    count = len(items)
    nulls = pa.Array.from_buffers(pa.null(), count, [None], count)
    plain = pa.large_list(pa.null()) if pa.types.is_large_list(kind) else pa.list_(pa.null())
    _of_buffers(plain, array, array.buffers()[:2], [nulls]).validate(full=True)
    if len(array):
        offsets = array.offsets
        first = offsets[0].as_py()
        _check(items.slice(first, offsets[-1].as_py() - first), known, (*path, 0))


def _of_buffers(kind: pa.DataType, array: Any, buffers: list[Any], children: list[Any]) -> Any:
    """An array of another type over the first buffers of one."""
    nulls, offset = array.null_count, array.offset
    return pa.Array.from_buffers(kind, len(array), buffers, nulls, offset, children=children)


def _check_dictionary(array: Any, known: _Known, path: _Path) -> None:
    """The numbers of items, and the items, if they are not those of a batch before."""
    items, numbers = array.dictionary, array.indices
    numbers.validate(full=True)
    if numbers.null_count < len(numbers):
        least, most = _bounds(numbers)
        if least < 0 or most >= len(items):
            raise pa.ArrowInvalid(f"number {least} or {most} of {len(items)} items")
    if path not in known or not _same_memory(items, known[path]):
        _check(items, known, (*path, 0))
        known[path] = items


def _bounds(numbers: Any) -> tuple[int, int]:
    import pyarrow.compute as pc

    found: Any = pc.min_max(numbers)
    return found["min"].as_py(), found["max"].as_py()


def _same_memory(items: Any, others: Any) -> bool:
    """Whether two arrays are the same part of the same memory, which ``others`` keeps."""
    kind = items.type
    if kind.num_fields or pa.types.is_dictionary(kind):  # buffers of dictionaries are not among its
        return False
    if kind != others.type or len(items) != len(others) or items.offset != others.offset:
        return False
    return [_place(one) for one in items.buffers()] == [_place(one) for one in others.buffers()]


def _place(buffer: pa.Buffer | None) -> tuple[int, int] | None:
    return None if buffer is None else (buffer.address, buffer.size)
