"""Order rows by columns: options, sort keys and comparison of values.

- Floats are ordered by their bits: -0.0 comes before 0.0, NaN is last.
- Strings and binary are ordered by bytes.
- Structs and fixed-size lists are ordered member by member.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import flags_of, number_array
from glaive.arrow.chunked import decode_large, join_column
from glaive.arrow.conditions import filled, float_order, unscaled, valid_where
from glaive.dataclass import dataclass
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.options import SWITCH, check_fields, option
from glaive.types import Int64s, items_of


@dataclass(frozen=True, slots=True)
class ColumnOrdering:
    """One column to sort by.

    Parameters
    ----------
    column_name
        Path of the column.
    ascending
        Sort the smallest values first. By default True.
    nulls_first
        Sort nulls before values, for both values of ``ascending``. By default False.
    """

    column_name: str
    ascending: bool = option(SWITCH, default=True)
    nulls_first: bool = option(SWITCH, default=False)

    def __post_init__(self) -> None:
        check_fields(self)


def orderings(given: object) -> tuple[ColumnOrdering, ...]:
    """Check ``order_by``: names, or objects with the attributes of ``ColumnOrdering``."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Iterable):
        raise OptionError(f"order_by: expected a list, found {given!r}. Give names of columns.")
    order = []
    for entry in given:
        if isinstance(entry, str):
            order.append(ColumnOrdering(entry))
            continue
        try:
            order.append(ColumnOrdering(entry.column_name, entry.ascending, entry.nulls_first))
        except AttributeError:
            raise OptionError(
                f"order_by: expected columns, found {entry!r}. Give names or ColumnOrdering."
            ) from None
    return tuple(order)


@dataclass(frozen=True, slots=True, eq=False)
class SortKey:
    """Valid values that Arrow sorts in the order requested."""

    values: Any
    ascending: bool


def sort_keys(array: Any, how: ColumnOrdering) -> list[SortKey]:
    """Return the sort keys of one column; nulls have a separate key."""
    import pyarrow.compute as pc

    if isinstance(array, pa.ChunkedArray):
        array = join_column(array)
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return sort_keys(array.storage, how)
    if pa.types.is_dictionary(kind):
        return sort_keys(decode_large(array), how)
    keys: list[SortKey] = []
    if array.null_count or pa.types.is_null(kind):
        keys.append(SortKey(pc.is_null(array).cast(pa.int8()), not how.nulls_first))
    if pa.types.is_struct(kind):
        for member in array.flatten():
            keys += sort_keys(member, how)
        return keys
    if pa.types.is_fixed_size_list(kind):
        return keys + _keys_of_lists(array, how)
    if not pa.types.is_null(kind):
        keys.append(SortKey(_comparable(array, how.column_name), how.ascending))
    return keys


def _keys_of_lists(array: Any, how: ColumnOrdering) -> list[SortKey]:
    """Return sort keys of fixed-size lists, by items. All null lists are equal."""
    import pyarrow.compute as pc

    size = array.type.list_size
    values = pc.list_flatten(_filled_lists(array))
    if pa.types.is_null(values.type):
        return []
    if size > _MAX_KEYS:
        raise UnsupportedFeatureError(
            f"order_by: column {how.column_name!r} has lists of {size:,} items of type "
            f"{values.type}; at most {_MAX_KEYS:,} are compared. Sort by another column."
        )
    steps = np.arange(len(array), dtype=np.int64) * size
    keys: list[SortKey] = []
    for at in range(size):
        positions: Any = number_array(steps + at)
        if array.null_count:
            positions = valid_where(array.is_valid(), positions)
        keys += sort_keys(values.take(positions), how)
    return keys


_MAX_KEYS = 4096
"""Maximum items of a list that have separate keys: each key takes a kilobyte and more."""


def _filled_lists(array: Any) -> Any:
    """Remove the null mask of lists, whatever items null lists have."""
    size = array.type.list_size
    return pa.FixedSizeListArray.from_arrays(
        array.values.slice(array.offset * size, len(array) * size), size
    )


def _comparable(array: Any, name: str) -> Any:
    """Convert values to a type whose order in Arrow is the order requested; fill nulls."""
    kind = array.type
    types = pa.types
    if types.is_floating(kind):
        width = kind.bit_width // 8
        words = items_of(array.buffers()[1], f"<i{width}", len(array), array.offset * width)
        keys = float_order(words)
        return number_array(_nulls_as_zero(keys, array).astype(np.int64))
    if types.is_boolean(kind):
        return filled(array, False).cast(pa.uint8())
    if types.is_integer(kind):
        return filled(array, 0)
    if types.is_temporal(kind) and not types.is_interval(kind):
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        return filled(array.view(whole), 0)
    if types.is_decimal(kind):
        return filled(unscaled(array), 0)
    if types.is_fixed_size_binary(kind):
        array, kind = array.cast(pa.large_binary()), pa.large_binary()
    if types.is_string_view(kind) or types.is_binary_view(kind):
        array, kind = array.cast(pa.large_binary()), pa.large_binary()
    if types.is_binary(kind) or types.is_large_binary(kind):
        return filled(array, b"")
    if types.is_string(kind) or types.is_large_string(kind):
        return filled(array, "")
    raise UnsupportedFeatureError(
        f"order_by: column {name!r} of type {kind} has no order. Sort by another column, or by "
        "a member of it."
    )


def _nulls_as_zero(keys: NDArray[Any], array: Any) -> NDArray[Any]:
    """Replace the keys of nulls by 0."""
    if not array.null_count:
        return keys
    valid = flags_of(array.buffers()[0], len(array), array.offset)
    return np.where(valid, keys, 0)


def sorted_rows(columns: Sequence[Any], how: Sequence[ColumnOrdering]) -> Int64s:
    """Return row numbers in the order of key columns; equal rows keep their order."""
    import pyarrow.compute as pc

    rows = _by_rank(columns, how)
    if rows is not None:
        return rows
    keys = [key for pair in zip(columns, how, strict=True) for key in sort_keys(*pair)]
    if not keys:
        return np.arange(len(columns[0]) if columns else 0, dtype=np.int64)
    names = [str(at) for at in range(len(keys))]
    table = pa.RecordBatch.from_arrays([key.values for key in keys], names)
    order: Any = [
        (name, "ascending" if key.ascending else "descending")
        for name, key in zip(names, keys, strict=True)
    ]
    indices: Any = pc.sort_indices(table, sort_keys=order)
    return items_of(indices.buffers()[1], np.uint64, len(indices)).astype(np.int64)


def _by_rank(columns: Sequence[Any], how: Sequence[ColumnOrdering]) -> Int64s | None:
    """Sort by ranks, several times faster, with numpy; return ``None`` if they are ambiguous."""
    ranks = rank(columns[0], how[0])
    if ranks is None:
        return None
    if columns[0].null_count:
        limits = np.iinfo(ranks.dtype)
        shared = limits.min if how[0].nulls_first else limits.max
        if int(np.count_nonzero(ranks == shared)) != columns[0].null_count:
            return None  # a value has the rank of nulls
    order = np.argsort(ranks)
    ranks = ranks[order]
    same = ranks[1:] == ranks[:-1]
    if not same.any():
        return order
    if len(columns) > 1:
        return None
    # Sort the rows of each group of equals by their numbers.
    among = np.zeros(len(ranks), np.bool_)
    among[1:] = same
    among[:-1] |= same
    group = np.append(True, ~same).cumsum()[among]
    count = np.int64(len(ranks))
    order[among] = np.sort(group * count + order[among]) % count
    return order


def rank(array: Any, how: ColumnOrdering) -> NDArray[Any] | None:
    """Return numbers whose ascending order is the order requested; ``None`` for other types.

    Nulls get the smallest or largest number of the type.
    """
    kind = array.type
    types = pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind)):
        return None
    if types.is_interval(kind):
        return None
    width = kind.bit_width // 8
    sign = "u" if types.is_unsigned_integer(kind) else "i"
    words = items_of(array.buffers()[1], f"<{sign}{width}", len(array), array.offset * width)
    keys = float_order(words) if types.is_floating(kind) else words
    if not how.ascending:
        keys = ~keys
    if array.null_count:
        limits = np.iinfo(keys.dtype)
        valid = flags_of(array.buffers()[0], len(array), array.offset)
        keys = np.where(valid, keys, keys.dtype.type(limits.min if how.nulls_first else limits.max))
    return keys
