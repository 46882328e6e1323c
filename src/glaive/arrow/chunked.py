"""Columns in several chunks: their rows taken and joined, as far as one array holds them.

Offsets of 32 bits count 2^31 - 1 bytes of text, or items of lists, in one array. ``take`` of
Arrow joins the chunks of a column first, and ``combine_chunks`` joins them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import number_array
from glaive.arrow.capacity import MAX_OFFSET, row_weights, weight
from glaive.arrow.dictionaries import concat_arrays, decoded
from glaive.arrow.views import without_views
from glaive.errors import CapacityError

__all__ = ["decode_large", "join_batches", "join_column", "join_large", "one_array", "take_rows"]

Int64s = NDArray[np.int64]

_CHUNK_WEIGHT: Final = 2**28
"""Bytes and items of the chunks of rows that do not fit one array: bounds copies on the way."""


def take_rows(table: pa.Table, positions: Int64s, *, distinct: bool = False) -> pa.Table:
    """Rows of a table at these positions, in this order.

    Columns come in several chunks where one does not hold all of the rows.

    Parameters
    ----------
    positions
        Below the number of rows; what is negative gives nulls.
    distinct
        No position is there twice, so that the rows take no more memory than the table.
    """
    times = 1 if distinct else max(1, len(positions))
    columns = [_take_chunks(column, positions, times) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def join_batches(table: pa.Table) -> list[pa.RecordBatch]:
    """The rows of a table in one batch, or in several where columns do not fit one array."""
    try:
        found: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        half = table.num_rows // 2
        if not half:
            raise
        return [*join_batches(table.slice(0, half)), *join_batches(table.slice(half))]
    return found


def one_array(column: Any) -> Any:
    """The chunks of a column as one array.

    Raises
    ------
    CapacityError
        They do not fit.
    """
    return concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def join_column(column: Any) -> Any:
    """The same, but of a type with offsets of 64 bits where 32 are too few."""
    return join_large(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def join_large(arrays: Sequence[Any]) -> Any:
    """One or more arrays as one, with offsets of 64 bits where 32 are too few.

    Some of the arrays may have such offsets already.

    Raises
    ------
    CapacityError
        Dictionaries have more items together than the type of the indices counts.
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
    """The values that an array of indices stands for, of a large type where they have to be."""
    try:
        return decoded(array)
    except CapacityError:
        wide = array.dictionary.cast(_large_type(array.type.value_type))
        return decoded(pa.DictionaryArray.from_arrays(array.indices, wide))


def _large_type(kind: Any) -> Any:
    """The type with offsets of 64 bits in place of those of 32."""
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


def _take_chunks(column: Any, positions: Int64s, times: int) -> Any:
    """Rows of a column; none is there more than ``times``."""
    plain = without_views(column.type)
    if plain != column.type:
        return _take_chunks(column.cast(plain), positions, times).cast(column.type)
    whole = sum(map(weight, column.chunks))
    if whole * times <= MAX_OFFSET:
        return _taken(column, positions)
    weights = [np.broadcast_to(row_weights(chunk), len(chunk)) for chunk in column.chunks]
    sums = np.cumsum(np.where(positions < 0, 0, np.concatenate(weights)[positions]))
    if whole <= MAX_OFFSET and int(sums[-1]) <= MAX_OFFSET:
        return _taken(column, positions)
    arrays, start = [], 0
    while start < len(positions):
        limit = _CHUNK_WEIGHT + (int(sums[start - 1]) if start else 0)
        stop = max(start + 1, int(np.searchsorted(sums, limit, side="right")))
        arrays.append(_gather(column, positions[start:stop]))
        start = stop
    return pa.chunked_array(arrays, column.type)


def _taken(column: Any, positions: Int64s) -> Any:
    try:
        return column.take(_indices(positions))
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:  # dictionaries that do not join
        raise CapacityError(
            f"{len(positions)} values of {column.type} do not fit one array: {error} Use fewer "
            "rows at a time, or make the column one of a large type."
        ) from None


def _indices(positions: Int64s) -> Any:
    missing = positions < 0
    return pa.array(positions, mask=missing) if missing.any() else number_array(positions)


def _gather(column: Any, positions: Int64s) -> Any:
    """Rows of a chunked array that fit one array: taken chunk by chunk, then put in order."""
    starts = np.cumsum([0, *map(len, column.chunks)])
    number = np.maximum(np.searchsorted(starts, positions, side="right") - 1, 0)
    order = np.argsort(number, kind="stable")
    here, bounds = np.unique(number[order], return_index=True)
    pieces = []
    for at, some in zip(here.tolist(), np.split(positions[order], bounds[1:]), strict=True):
        inside = np.where(some < 0, -1, some - starts[at])
        pieces.append(column.chunk(at).take(_indices(inside)))
    whole = concat_arrays(pieces)
    if bool((np.diff(order) > 0).all()):
        return whole
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return whole.take(number_array(back))
