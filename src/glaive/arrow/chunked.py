"""Columns in several chunks: take rows and join chunks, as far as they fit one array.

32-bit offsets count 2^31 - 1 bytes of strings, or items of lists, in one array. ``take`` of
Arrow joins the chunks of a column first, and so may fail where the result would fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import NUMPY_TYPES, flags_of, integer_array, inverse_permutation
from glaive.arrow.capacity import MAX_OFFSET, row_weights, weight
from glaive.arrow.dictionaries import concat_arrays, decode_dictionary
from glaive.errors import CapacityError
from glaive.memory import items_of
from glaive.types import Int64s

__all__ = [
    "as_numpy",
    "decode_large",
    "empty_table",
    "join_batches",
    "join_column",
    "join_large",
    "one_array",
    "take_rows",
    "take_values",
    "without_views",
]

_CHUNK_WEIGHT: Final = 2**28
"""Bytes and items per chunk of a result that does not fit one array; limits temporary copies."""

_MAX_LISTED: Final = 2**26
"""Items of large lists of a fixed size that are taken at once, where some of them are null."""

_MOST_LISTS: Final = 2**10
"""Lists whose items are few enough not to look for nulls among them, however many are taken."""


def take_rows(table: pa.Table, positions: Int64s, *, distinct: bool = False) -> pa.Table:
    """Rows of a table at these positions, in this order.

    Columns have several chunks if the rows do not fit one.

    Parameters
    ----------
    positions
        Below the number of rows; negative ones give nulls.
    distinct
        No position occurs twice, so that the rows take no more memory than the table.
    """
    max_repeats = 1 if distinct else max(1, len(positions))
    columns = [_take_chunks(column, positions, max_repeats) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def join_batches(table: pa.Table) -> list[pa.RecordBatch]:
    """The rows of a table in one batch, or in several if a column does not fit one array."""
    try:
        batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        half = table.num_rows // 2
        if not half:
            raise
        return [*join_batches(table.slice(0, half)), *join_batches(table.slice(half))]
    return batches


def one_array(column: Any) -> Any:
    """The chunks of a column as one array.

    Raises
    ------
    CapacityError
        They do not fit one array.
    """
    return concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def as_numpy(column: Any) -> NDArray[Any]:
    """An array, or a column, as ``to_numpy`` gives it; not to be written to.

    ``to_numpy`` first imports pandas, 0.2 s in a fresh process: numbers and flags without nulls go
    without it.
    """
    array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if pa.types.is_boolean(kind) and not array.null_count:
        return flags_of(array.buffers()[1], len(array), array.offset)
    if array.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    dtype = NUMPY_TYPES[kind]
    return items_of(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def join_column(column: Any) -> Any:
    """The chunks of a column as one array, with 64-bit offsets where 32 bits are not enough."""
    return join_large(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def join_large(arrays: Sequence[Any]) -> Any:
    """One or more arrays as one, with 64-bit offsets where 32 bits are not enough.

    Some of the arrays may have such offsets already.

    Raises
    ------
    CapacityError
        The dictionaries have more items in total than the index type can count.
    """
    kind = arrays[0].type
    wide = _large_type(kind)
    if all(array.type.equals(kind) for array in arrays[1:]):
        try:
            return concat_arrays(arrays)
        except CapacityError:
            if wide.equals(kind):
                raise
    return concat_arrays([array.cast(wide) for array in arrays])


def decode_large(array: Any) -> Any:
    """Decode a dictionary array, to a large type where 32-bit offsets are not enough."""
    try:
        return decode_dictionary(array)
    except CapacityError:
        wide = array.dictionary.cast(_large_type(array.type.value_type))
        return decode_dictionary(pa.DictionaryArray.from_arrays(array.indices, wide))


def _large_type(kind: Any) -> Any:
    """The type with 64-bit offsets instead of 32-bit ones."""
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return pa.large_string() if types.is_string(kind) else pa.large_binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_large_type(kind.value_type)))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_large_type(kind.value_type)), kind.list_size)
    if types.is_struct(kind):
        return pa.struct([member.with_type(_large_type(member.type)) for member in kind])
    return kind


def without_views(kind: Any) -> Any:
    """The type with 64-bit offsets instead of views, for which Arrow has no ``take``."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        field = kind.value_field.with_type(without_views(kind.value_type))
        if field.type == kind.value_type:
            return kind
        if types.is_fixed_size_list(kind):
            return pa.list_(field, kind.list_size)
        return pa.large_list(field) if types.is_large_list(kind) else pa.list_(field)
    if types.is_struct(kind):
        plain = pa.struct([member.with_type(without_views(member.type)) for member in kind])
        return kind if plain == kind else plain
    return kind


def _take_chunks(column: Any, positions: Int64s, max_repeats: int) -> Any:
    """Rows of a column; no position occurs more than ``max_repeats`` times."""
    plain = without_views(column.type)
    if plain != column.type:
        return _take_chunks(column.cast(plain), positions, max_repeats).cast(column.type)
    total = sum(map(weight, column.chunks))
    if total * max_repeats <= MAX_OFFSET:
        return take_values(column, positions)
    weights = [np.broadcast_to(row_weights(chunk), len(chunk)) for chunk in column.chunks]
    sums = np.cumsum(np.where(positions < 0, 0, np.concatenate(weights)[positions]))
    if total <= MAX_OFFSET and int(sums[-1]) <= MAX_OFFSET:
        return take_values(column, positions)
    arrays, start = [], 0
    while start < len(positions):
        limit = _CHUNK_WEIGHT + (int(sums[start - 1]) if start else 0)
        stop = max(start + 1, int(np.searchsorted(sums, limit, side="right")))
        arrays.append(_gather(column, positions[start:stop]))
        start = stop
    return pa.chunked_array(arrays, column.type)


def take_values(column: Any, positions: Int64s) -> Any:
    """Values of an array or a column at positions, in one array for each chunk at most.

    Parameters
    ----------
    positions
        Below the number of values; negative ones give nulls.

    Raises
    ------
    CapacityError
        They do not fit one array, or dictionaries of chunks cannot be joined.
    """
    listed = len(positions) * _listed_items(column)
    if listed > _MAX_LISTED:
        if len(positions) == 1 and int(positions[0]) >= 0:
            return column.slice(int(positions[0]), 1)
        raise CapacityError(
            f"{listed} items of {column.type}, at most {_MAX_LISTED} are taken at once: use fewer "
            "rows at a time",
            parts=-(-listed // _MAX_LISTED),
        )
    try:
        return column.take(_indices(positions))
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise CapacityError(
            f"{len(positions)} values of {column.type} do not fit one array: {error} Use fewer "
            "rows at a time, or cast the column to a large type."
        ) from None


def _listed_items(column: Any) -> int:
    """Items of a large list of a fixed size, where Arrow lists them to take it: some are null."""
    values, kind, items = column, column.type, 1
    while pa.types.is_fixed_size_list(kind):
        kind, items = kind.value_type, items * kind.list_size
    if items * _MOST_LISTS <= _MAX_LISTED or not isinstance(column, pa.Array):
        return 0
    while pa.types.is_fixed_size_list(values.type):
        values = values.values
        if values.null_count:
            return items
    return 0


def _indices(positions: Int64s) -> Any:
    missing = positions < 0
    return pa.array(positions, mask=missing) if missing.any() else integer_array(positions)


def _gather(column: Any, positions: Int64s) -> Any:
    """Rows of a chunked array that fit one array: taken chunk by chunk, then reordered."""
    starts = np.cumsum([0, *map(len, column.chunks)])
    number = np.maximum(np.searchsorted(starts, positions, side="right") - 1, 0)
    order = np.argsort(number, kind="stable")
    here, bounds = np.unique(number[order], return_index=True)
    arrays = []
    for chunk_number, rows in zip(
        here.tolist(), np.split(positions[order], bounds[1:]), strict=True
    ):
        inside = np.where(rows < 0, -1, rows - starts[chunk_number])
        arrays.append(column.chunk(chunk_number).take(_indices(inside)))
    joined = concat_arrays(arrays)
    if bool((np.diff(order) > 0).all()):
        return joined
    return joined.take(integer_array(inverse_permutation(order)))


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows; Arrow's own does not make extension types within others."""
    nulls: Any = pa.nulls
    arrays: list[Any] = [nulls(0, kind) for kind in schema.types]
    return pa.Table.from_arrays(arrays, schema=schema)
