"""Columns in several chunks: take rows and join chunks, as far as they fit one array.

32-bit offsets count 2^31 - 1 bytes of strings, or items of lists, in one array. ``take`` of
Arrow joins the chunks of a column first, and so may fail where the result would fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import pairwise
from typing import Any, Final, TypeVar, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import (
    NUMPY_TYPES,
    flags_of,
    inverse_permutation,
    number_array,
    pack_flags,
    with_parts,
)
from glaive.dataclass import NamedTuple
from glaive.errors import CapacityError, SchemaError
from glaive.kernels.strings import Strings
from glaive.types import MAX_OFFSET, Int64s, as_array, as_buffer, items_of

# --- Dictionary arrays: normalise, decode and join them ---------------------------------

_MAX_COLLIDING: Final = 1024
"""Maximum values that Arrow hashes: so few are compared fast even if all hashes are equal."""


def has_dictionary(kind: pa.DataType) -> bool:
    """Return whether a type is, or contains, a dictionary type."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type)
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return pa.types.is_dictionary(kind) or any(map(has_dictionary, inner))


def check_indices(array: Any, name: str) -> None:
    """Check that dictionary indices, at any depth of a column, are below the number of items.

    Indices below nulls may be any number: pyarrow makes some of empty dictionaries below structs
    that are null.

    Raises
    ------
    SchemaError
        Names the column and the index.
    """
    if not has_dictionary(array.type):
        return
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            check_indices(chunk, name)
    elif isinstance(array, pa.ExtensionArray):
        check_indices(array.storage, name)
    elif pa.types.is_dictionary(array.type):
        visible = as_numpy(array.indices.drop_null())
        absent = visible[(visible < 0) | (visible >= len(array.dictionary))]
        if len(absent):
            raise SchemaError(
                f"column {name!r} ({array.type}): expected indices below "
                f"{len(array.dictionary)}, the items of its dictionary, found {absent[0]}. Check "
                "the array with array.validate(full=True)."
            )
        check_indices(array.dictionary, name)
    elif pa.types.is_struct(array.type):
        for member in array.flatten():  # with the nulls of the struct
            check_indices(member, name)
    elif pa.types.is_map(array.type):
        kind: Any = array.type
        check_indices(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))), name)
    else:
        check_indices(array.flatten(), name)


def null_count(array: Any) -> int:
    """Count nulls of an array or of chunks; also indices of null items, unlike Arrow."""
    nulls = int(array.null_count)
    if pa.types.is_dictionary(array.type):
        parts: list[Any] = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        for part in parts:
            if part.dictionary.null_count:
                absent = as_numpy(part.dictionary.is_null())
                nulls += int(np.count_nonzero(absent[as_numpy(part.indices.drop_null())]))
    return nulls


def check_column(array: Any, name: str, where: str, *, nullable: bool) -> None:
    """Refuse to write a column that has wild indices, or nulls despite its field.

    Raises
    ------
    SchemaError
        Names the column, and the file.
    """
    check_indices(array, name)
    if not nullable and (nulls := null_count(array)):
        raise SchemaError(
            f"column {name!r} (in {where}): expected no nulls, found {nulls}. Fill them, or "
            "declare the column nullable."
        )


def tidy_dictionary(array: Any, *, drop_unused: bool = False) -> Any:
    """Return the same values, with indices and items that can be stored.

    Indices of null items become null, and null items are dropped. Indices under nulls become 0.
    Indices outside of the items, which :func:`check_indices` leaves below nulls, become null.
    Unused items are dropped if there are more items than values, or with ``drop_unused``. With
    ``drop_unused``, an array that uses all items stays as it is.
    """
    kind, items, indices = array.type, array.dictionary, array.indices
    crowded = drop_unused or len(items) > len(array)
    numbers = as_numpy(indices.fill_null(number_array(np.zeros(1), indices.type)[0]))
    known = (numbers >= 0) & (numbers < len(items))
    if not (items.null_count or indices.null_count or crowded) and known.all():
        return array
    positions = numbers.astype(np.int64)
    valid = as_numpy(indices.is_valid()) & known
    positions[~valid] = 0
    if items.null_count:
        present = as_numpy(items.is_valid())
        valid &= present[positions] if len(present) else False
        positions = (present.cumsum() - 1)[positions] if len(present) else positions
        items = items.drop_null()
    if crowded:
        used = np.zeros(len(items), np.bool_)
        used[positions[valid]] = True
        if len(items) == len(array.dictionary) and used.all():
            return array
        positions[valid] = (used.cumsum() - 1)[positions[valid]]
        items = items.take(number_array(used.nonzero()[0]))
    positions[~valid] = 0
    made = pa.Array.from_buffers(pa.int64(), len(valid), [pack_flags(valid), as_buffer(positions)])
    return pa.DictionaryArray.from_arrays(made.cast(kind.index_type), items, ordered=kind.ordered)


def decode_dictionary(array: Any) -> Any:
    """Decode a dictionary array.

    Raises
    ------
    CapacityError
        The values have more bytes or items than 32-bit offsets can count.
    """
    try:
        return array.dictionary_decode()
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise CapacityError(
            f"{len(array)} values of {array.type} do not fit one array of "
            f"{array.type.value_type}: {error}. Read or write fewer rows at a time, or cast the "
            "values to a large type."
        ) from None


def dictionary_encoded(array: Any) -> Any:
    """Encode an array by a dictionary, in a short time for hostile values, too.

    As ``array.dictionary_encode()``; see :mod:`glaive.arrow.chunked`.
    """
    if len(array) <= _MAX_COLLIDING:
        return array.dictionary_encode()

    return numbered(array)


def concat_arrays(arrays: Sequence[Any]) -> Any:
    """Join arrays of one type; their dictionaries are merged.

    Raises
    ------
    CapacityError
        The arrays have more bytes or items in total than 32-bit offsets can count, or their
        dictionaries more items than the index type can.
    """
    if len(arrays) == 1:
        return arrays[0]
    kind = arrays[0].type
    if pa.types.is_dictionary(kind):
        arrays = _of_one_dictionary(arrays)
    try:
        return pa.concat_arrays(arrays)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        if not has_dictionary(kind):
            raise CapacityError(
                f"{sum(map(len, arrays))} values of {kind} do not fit one array. {error} Read or "
                "write fewer rows at a time, or cast the column to a large type."
            ) from None
    if pa.types.is_dictionary(kind):
        arrays = [tidy_dictionary(array, drop_unused=True) for array in arrays]
    try:
        return pa.concat_arrays(arrays)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise CapacityError(
            f"dictionaries of {kind} with too many distinct values in one array. {error} "
            "Read or write fewer rows at a time, or cast the column to a wider index type."
        ) from None


def _of_one_dictionary(arrays: Sequence[Any]) -> Sequence[Any]:
    """Return the same values with one dictionary, where merging many could take Arrow long.

    Arrays stay as they are where there would be more items than the index type can count.
    """
    kind, items = arrays[0].type, [array.dictionary for array in arrays]
    ends = np.cumsum([0, *map(len, items)])
    if int(ends[-1]) <= _MAX_COLLIDING:
        return arrays

    if not is_numbered(kind.value_type):
        return arrays
    if all(one.equals(items[0]) for one in items[1:]):
        return arrays
    try:
        merged = dictionary_encoded(pa.concat_arrays(items))
        numbers = merged.indices.cast(kind.index_type)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return arrays
    moved = [
        numbers.slice(int(first), len(one)).take(array.indices)
        for first, one, array in zip(ends, items, arrays, strict=False)
    ]
    return [
        pa.DictionaryArray.from_arrays(one, merged.dictionary, ordered=kind.ordered, safe=False)
        for one in moved
    ]


# --- Distinct values of an array, in a short time for hostile values, too ---------------
#
# Arrow's hashes are known. A megabyte of strings or numbers chosen to collide takes minutes,
# because Arrow compares each value with all before.

_NO_BYTES: Any = pa.py_buffer(b"")


def numbered(array: Any) -> Any:
    """Return the distinct values in the order of their first appearance, and each value's index.

    As ``array.dictionary_encode()``: indices have 32 bits, and nulls have null indices. Arrow does
    it for nested types, and for types of up to two bytes, which have few distinct values.
    """
    known = array.drop_null() if array.null_count else array
    if not len(known) or not is_numbered(array.type):
        return array.dictionary_encode()
    numbers = _numbers(known)
    last = np.maximum.accumulate(numbers)
    firsts = np.diff(last, prepend=-1).nonzero()[0]
    indices = number_array(numbers)
    if len(known) < len(array):
        valid = as_numpy(array.is_valid())
        spread = np.zeros(len(array), np.int32)
        spread[valid] = numbers
        indices = number_array(spread, nulls=~valid)
    return pa.DictionaryArray.from_arrays(indices, known.take(number_array(firsts)), safe=False)


def is_numbered(kind: pa.DataType) -> bool:
    """Return whether values of a type may be so many, and have a hash here."""
    return bool(_offset_bits(kind)) or _bits(kind) > 16


def _offset_bits(kind: pa.DataType) -> int:
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return 32
    return 64 if types.is_large_string(kind) or types.is_large_binary(kind) else 0


def _bits(kind: pa.DataType) -> int:
    """Return the bits of each value of a flat type, 0 for other types."""
    types = pa.types
    flat = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    return int(kind.bit_width) if flat and not isinstance(kind, pa.BaseExtensionType) else 0


def _numbers(array: Any) -> Any:
    """Return the number of each value, ``int32``; all values are valid."""
    from glaive.kernels.hashing import number_strings, number_words

    kind, count = array.type, len(array)
    if offset_bits := _offset_bits(kind):
        return _of_strings(array, offset_bits)
    bits = _bits(kind)
    values = array.buffers()[1]
    if bits == 32:
        words = items_of(values, "<u4", count, 4 * array.offset).astype(np.uint64)
        return _indices_of(number_words(as_buffer(words), 64, count, count))
    if bits in (64, 128):
        values = values.slice(array.offset * bits // 8)
        return _indices_of(number_words(values, bits, count, count))
    width = bits // 8
    ends: Int64s = np.arange(count + 1, dtype=np.int64) * width
    data = values.slice(array.offset * width)
    return _indices_of(number_strings(Strings(as_buffer(ends), 64, data), count, count, data.size))


def _of_strings(array: Any, bits: int) -> Any:
    from glaive.kernels.hashing import number_strings

    _, offsets, data = array.buffers()
    strings = Strings(offsets.slice(array.offset * bits // 8), bits, data or _NO_BYTES)
    count = len(array)
    return _indices_of(number_strings(strings, count, count, strings.data.size))


def _indices_of(numbered: Any) -> Any:
    return as_array(numbered.indices, np.int32)


# --- The capacity of Arrow arrays, and splitting rows so that each part fits one array --
#
# 32-bit offsets count at most 2^31 - 1 bytes of strings, or items of lists. Code that makes arrays
# checks this first and raises :class:`CapacityError`; its callers then split the rows with
# :func:`in_parts`. Arrow itself raises in most cases, but silently overflows in three: when it
# repeats a value, replaces within strings, or takes lists more than once.

T = TypeVar("T")

_OVERFLOWS: Final = ("overflow", "too large")
"""Parts of Arrow's messages about arrays that are full."""


def too_large(error: Exception) -> bool:
    """Return whether an error means that an array would hold more than its offsets can count."""
    if isinstance(error, CapacityError | pa.ArrowCapacityError):
        return True
    text = str(error)
    return (
        isinstance(error, pa.ArrowInvalid)
        and "array" in text
        and any(word in text for word in _OVERFLOWS)
    )


def in_parts(work: Callable[[int, int], T], start: int, stop: int) -> Iterable[T]:
    """Return the results of ``work`` on rows ``start`` to ``stop``: of all of them, or of parts.

    First ``work`` is called for all rows. If that raises ``CapacityError``, it is called for
    parts of them, lazily, so that only one result is in memory at a time.

    Raises
    ------
    CapacityError
        A single row is too large.
    """
    try:
        return [work(start, stop)]
    except CapacityError as error:
        if stop - start < 2:
            raise
        count = min(max(2, error.parts), stop - start)
    return _parts(work, np.linspace(start, stop, count + 1).astype(np.int64).tolist())


def batch_parts(work: Callable[[Any], T], batch: Any) -> Iterable[T]:
    """Return the results of ``work`` on a record batch, or on parts of it; see :func:`in_parts`."""

    def part(start: int, stop: int) -> T:
        if stop - start == batch.num_rows:
            return work(batch)
        columns = [array_part(column, start, stop) for column in batch.columns]
        return work(pa.RecordBatch.from_arrays(columns, schema=batch.schema))

    return in_parts(part, 0, batch.num_rows)


def array_part(array: Any, start: int, stop: int) -> Any:
    """Return the rows ``start`` to ``stop`` of an array as a view of its values.

    Offsets of large strings are shifted to begin at 0, so that Arrow can cast them to 32 bits.
    """
    part = array[start:stop]
    if not (pa.types.is_large_string(part.type) or pa.types.is_large_binary(part.type)):
        return part
    _, offsets, data = part.buffers()
    if not len(part) or data is None or data.size <= MAX_OFFSET:
        return part
    ends = np.frombuffer(offsets, "<i8", len(part) + 1, part.offset * 8)
    first, last = int(ends[0]), int(ends[-1])
    validity = None
    if part.null_count:
        validity = pack_flags(as_numpy(part.is_valid()))
    buffers = [validity, as_buffer(ends - first), data.slice(first, last - first)]
    return pa.Array.from_buffers(part.type, len(part), buffers, part.null_count)


def _parts(work: Callable[[int, int], T], cuts: Sequence[int]) -> Iterator[T]:
    for start, stop in pairwise(cuts):
        yield from in_parts(work, start, stop)


_CHUNK_WEIGHT: Final = 2**28
"""Bytes and items per chunk of a result too large for one array; limits temporary copies."""

_MAX_LIST_ITEMS: Final = 2**26
"""Items of large lists of a fixed size that are taken at once, where some of them are null."""

_MAX_UNCHECKED_LISTS: Final = 2**10
"""Maximum lists that are taken without a search for nulls among their items."""


def take_rows(table: pa.Table, positions: Int64s, *, distinct: bool = False) -> pa.Table:
    """Return the rows of a table at these positions, in this order.

    Columns have several chunks if the rows are too large for one.

    Parameters
    ----------
    positions
        Below the number of rows; negative ones give nulls.
    distinct
        Each position occurs once, so that the rows take the memory of the table at most.
    """
    max_repeats = 1 if distinct else max(1, len(positions))
    columns = [_take_chunks(column, positions, max_repeats) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def join_batches(table: pa.Table) -> list[pa.RecordBatch]:
    """Return the rows of a table in one batch, or in several if a column is too large for one."""
    try:
        batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        half = table.num_rows // 2
        if not half:
            raise
        return [*join_batches(table.slice(0, half)), *join_batches(table.slice(half))]
    return batches


def one_array(column: Any) -> Any:
    """Return the chunks of a column as one array.

    Raises
    ------
    CapacityError
        They are too large for one array.
    """
    return concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def with_items(lists: Any, items: Any, kind: Any) -> Any:
    """Return the same lists with other items and of their type: one item for each valid one."""
    lengths, nulls = np.diff(as_numpy(lists.offsets)), lists.is_null()
    lengths = lengths * ~as_numpy(nulls)
    offsets = number_array(np.concatenate(([0], lengths)).cumsum(dtype=lengths.dtype))
    mask = nulls if lists.null_count else None
    return type(lists).from_arrays(offsets, items, type=kind, mask=mask)


def as_numpy(column: Any) -> NDArray[Any]:
    """Return an array, or a column, as ``to_numpy`` gives it; treat it as read-only.

    ``to_numpy`` first imports pandas, 0.2 s in a fresh process. Valid numbers and flags avoid it.
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
    """Return the chunks of a column as one array, with 64-bit offsets where 32 bits are too few."""
    return join_large(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def join_large(arrays: Sequence[Any]) -> Any:
    """Return one or more arrays as one, with 64-bit offsets where 32 bits are too few.

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
    """Decode a dictionary array, to a large type where 32-bit offsets are too few."""
    try:
        return decode_dictionary(array)
    except CapacityError:
        wide = array.dictionary.cast(_large_type(array.type.value_type))
        return decode_dictionary(pa.DictionaryArray.from_arrays(array.indices, wide))


def _large_type(kind: Any) -> Any:
    """Return the type with 64-bit offsets instead of 32-bit ones."""
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return pa.large_string() if types.is_string(kind) else pa.large_binary()
    if types.is_list(kind):
        return pa.large_list(kind.value_field.with_type(_large_type(kind.value_type)))
    return kind if types.is_map(kind) else with_parts(kind, _large_type)


def without_views(kind: Any) -> Any:
    """Return the type with 64-bit offsets instead of views; ``take`` of Arrow lacks views."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if types.is_binary_view(kind) else with_parts(kind, without_views)


def _take_chunks(column: Any, positions: Int64s, max_repeats: int) -> Any:
    """Return the rows of a column; each position occurs at most ``max_repeats`` times."""
    plain = without_views(column.type)
    if plain != column.type:
        return _take_chunks(column.cast(plain), positions, max_repeats).cast(column.type)
    if has_known_width(column.type) or _fits(column, max_repeats):
        return take_values(column, positions)
    parts = [np.broadcast_to(row_bytes(chunk, null=1), len(chunk)) for chunk in column.chunks]
    sizes = np.concatenate(parts)
    sums = np.where(positions < 0, 0, sizes[positions]).cumsum()
    if len(sums) and max(int(sizes.sum()), int(sums[-1])) <= MAX_OFFSET:
        return take_values(column, positions)
    arrays, start = [], 0
    while start < len(positions):
        limit = _CHUNK_WEIGHT + (int(sums[start - 1]) if start else 0)
        stop = max(start + 1, int(sums.searchsorted(limit, side="right")))
        arrays.append(_gather(column, positions[start:stop]))
        start = stop
    return pa.chunked_array(arrays, column.type)


def _fits(column: Any, max_repeats: int) -> bool:
    """Return whether offsets have room for each value so often; 8 booleans are a byte."""
    kind = str(column.type)  # items of zero bytes count by their number alone
    return 8 * column.nbytes * max_repeats <= MAX_OFFSET and "null" not in kind and "<>" not in kind


def take_values(column: Any, positions: Int64s) -> Any:
    """Return the values of an array or a column at positions, in one array for each chunk at most.

    Parameters
    ----------
    positions
        Below the number of values; negative ones give nulls.

    Raises
    ------
    CapacityError
        The values are too large for one array, or the joined dictionary for its index type.
    """
    listed = len(positions) * _listed_items(column)
    if listed > _MAX_LIST_ITEMS:
        if len(positions) == 1 and int(positions[0]) >= 0:
            return column.slice(int(positions[0]), 1)
        raise CapacityError(
            f"{listed} items of {column.type}, at most {_MAX_LIST_ITEMS} are taken at once: use "
            "fewer rows at a time",
            parts=-(-listed // _MAX_LIST_ITEMS),
        )
    valid = positions >= 0  # ``pyarrow.array`` would import pandas
    bits = pack_flags(valid) if np.count_nonzero(valid) < len(valid) else None
    try:
        indices: Any = [bits, as_buffer(np.ascontiguousarray(positions, np.int64))]
        return column.take(pa.Array.from_buffers(pa.int64(), len(valid), indices))
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise CapacityError(
            f"{len(positions)} values of {column.type} do not fit one array: {error} Use fewer "
            "rows at a time, or cast the column to a large type."
        ) from None


def _listed_items(column: Any) -> int:
    """Return the size of a large fixed-size list if some items are null, otherwise 0.

    For a take, Arrow numbers the items of such lists one by one.
    """
    values, kind, items = column, column.type, 1
    while pa.types.is_fixed_size_list(kind):
        kind, items = kind.value_type, items * kind.list_size
    if items * _MAX_UNCHECKED_LISTS <= _MAX_LIST_ITEMS or not isinstance(column, pa.Array):
        return 0
    while pa.types.is_fixed_size_list(values.type):
        values = values.values
        if values.null_count:
            return items
    return 0


def _gather(column: Any, positions: Int64s) -> Any:
    """Return rows of a chunked array that fit one array: taken chunk by chunk, then reordered."""
    starts = np.cumsum([0, *map(len, column.chunks)])
    number = np.maximum(starts.searchsorted(positions, side="right") - 1, 0)
    order = np.argsort(number, kind="stable")
    here, bounds = np.unique(number[order], return_index=True)
    arrays = []
    for chunk_number, rows in zip(
        here.tolist(), np.split(positions[order], bounds[1:]), strict=True
    ):
        inside = np.where(rows < 0, -1, rows - starts[chunk_number])
        arrays.append(take_values(column.chunk(chunk_number), inside))
    joined = concat_arrays(arrays)
    if bool((np.diff(order) > 0).all()):
        return joined
    return joined.take(number_array(inverse_permutation(order)))


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return an empty table, also with extension types within others, where Arrow's own fails."""
    nulls: Any = pa.nulls
    arrays: list[Any] = [nulls(0, kind) for kind in schema.types]
    return pa.Table.from_arrays(arrays, schema=schema)


# --- Batches of other sizes: fewer and larger, as small ones cost more than their rows; or exact

BATCH_BYTES: Final = 16 * 1024 * 1024
_BATCH_ROWS: Final = 64 * 1024


@overload
def coalesced(
    parts: Iterable[pa.RecordBatch], target_bytes: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]: ...


@overload
def coalesced(
    parts: Iterable[pa.RecordBatch | pa.Table], target_bytes: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch | pa.Table]: ...


def coalesced(
    parts: Iterable[pa.RecordBatch | pa.Table], target_bytes: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield the same rows in batches of about 65,536 rows or ``target_bytes``, whichever is less.

    Tables pass unchanged. Batches with dictionaries pass unchanged, too, because joining them
    would have to merge the dictionaries.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in parts:
        if isinstance(batch, pa.Table):
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
            yield batch
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _BATCH_ROWS or size >= target_bytes:
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
    yield from _joined(waiting)


def slices_of_rows(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Cut batches so that ``size`` rows are together, except for the last; each part is a view.

    The caller joins them: several batches may be too large for one.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while batch.num_rows - start >= size - rows:
            waiting.append(batch.slice(start, size - rows))
            start += size - rows
            yield waiting
            waiting, rows = [], 0
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            rows += batch.num_rows - start
    if waiting:
        yield waiting


def _joined(batches: list[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    if len(batches) < 2 or any(map(has_dictionary, batches[0].schema.types)):
        return batches
    return join_batches(pa.Table.from_batches(batches))


# --- Bytes in memory of the values of a type: known, estimated for want of data, or as they were
# seen
#
# The size of a file tells the size of texts and lists, unless they are compressed well: a few
# megabytes may rightly hold gigabytes. So the last decoded rows are the estimate for all rows.

_STRING_BYTES: Final = 32
"""Estimate for a string or a binary value."""

_LIST_ITEMS: Final = 8
"""Estimate for the items of a list."""

_ITEM_NUMBER_BYTES: Final = 8
"""Bytes of the number that Arrow has for each item of a vector while it chooses rows.

Arrow copies numbers and texts of one size directly. Other items, such as nulls, may take fewer
bytes than this number.
"""

_BIT: Final = 1 / 8


class Width(NamedTuple):
    """Bytes of a value.

    Parameters
    ----------
    known
        Bytes of the parts with a fixed width.
    guessed
        Estimate for the other parts.
    variable
        Number of parts with a variable width: strings and lists.
    """

    known: float
    guessed: float = 0
    variable: int = 0

    @property
    def total(self) -> float:
        """All bytes, about."""
        return self.known + self.guessed


def width_of(kind: Any) -> Width:
    """Return the bytes of a value of a type."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return width_of(kind.storage_type)
    if types.is_fixed_size_list(kind):
        known, guessed, variable = width_of(kind.value_type)
        if types.is_null(kind.value_type) or types.is_nested(kind.value_type):
            known = max(known, _ITEM_NUMBER_BYTES)
        size = kind.list_size
        return Width(known * size, guessed * size, variable * size)
    if types.is_struct(kind):
        known, guessed, variable = total_width(member.type for member in kind)
        return Width(known or _BIT, guessed, variable)  # of nulls alone: whether it is one
    if types.is_map(kind):
        items = total_width([kind.key_type, kind.item_type])
        return Width(0, _LIST_ITEMS * items.total, 1)
    if types.is_list(kind) or types.is_large_list(kind):
        return Width(0, _LIST_ITEMS * width_of(kind.value_type).total, 1)
    try:
        return Width(kind.bit_width / 8)
    except ValueError:  # variable width
        return Width(0) if types.is_null(kind) else Width(0, _STRING_BYTES, 1)


def total_width(kinds: Iterable[Any]) -> Width:
    """Return the bytes of one value of each type."""
    widths = [width_of(data_type) for data_type in kinds]
    return Width(
        sum(width.known for width in widths),
        sum(width.guessed for width in widths),
        sum(width.variable for width in widths),
    )


def value_bytes(kind: Any) -> int:
    """Return the bytes of a decoded value, about; at least 1."""
    return max(1, int(width_of(kind).total))


def has_known_width(kind: Any) -> bool:
    """Return whether all values have one size, so that :func:`value_bytes` is exact."""
    return not width_of(kind).variable


def max_bytes(kinds: Sequence[Any]) -> float:
    """Return the maximum bytes of one value of each type; infinite where it is unknown."""
    width = total_width(kinds)
    # Any rows may have all of a dictionary.
    return math.inf if width.variable or any(map(has_dictionary, kinds)) else width.known


class RowSizes:
    """Bytes of a decoded row: known, guessed, and as they were seen.

    Parameters
    ----------
    kinds
        Types of the fields.

    Attributes
    ----------
    width
        Bytes by the types alone.
    max_width
        At most, or infinite.
    last_bytes
        Last seen bytes of a value of each field without a known width; 0 if unseen.
    """

    __slots__ = ("_others", "last_bytes", "max_width", "width")

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self.width, self.max_width = total_width(kinds), max_bytes(kinds)
        # Each row that shares a dictionary counts all of it, so its size would mislead.
        self.last_bytes = {
            at: 0
            for at, kind in enumerate(kinds)
            if width_of(kind).variable and not has_dictionary(kind)
        }
        others = [kind for at, kind in enumerate(kinds) if at not in self.last_bytes]
        self._others = int(total_width(others).total)

    def unmeasured(self) -> RowSizes:
        """Return a copy that has seen no values."""
        made = copy(self)
        made.last_bytes = dict.fromkeys(self.last_bytes, 0)
        return made

    @property
    def are_known(self) -> bool:
        """Whether the types determine it, or all other fields were seen."""
        return all(self.last_bytes.values())

    @property
    def seen(self) -> int:
        """Bytes of a row, by what was seen of its fields."""
        return self._others + sum(self.last_bytes.values())

    def seen_of(self, at: int) -> int:
        """Return the last seen bytes of a field's value; 0 if it is unseen, or has one size."""
        return self.last_bytes.get(at, 0)

    def measure(self, at: int, array: Any) -> None:
        """Note what values of a field took."""
        if at in self.last_bytes and len(array):
            self.last_bytes[at] = max(1, array.nbytes // len(array))

    def measure_all(self, arrays: Sequence[Any]) -> None:
        """See the arrays of all fields."""
        for at in self.last_bytes:
            self.measure(at, arrays[at])


# --- The bytes that the value of each row takes, whatever its type ----------------------

_OFFSET_BYTES: Final = {
    pa.string().id: 4, pa.binary().id: 4, pa.large_string().id: 8, pa.large_binary().id: 8,
    pa.list_(pa.null()).id: 4, pa.large_list(pa.null()).id: 8, pa.map_(pa.int8(), pa.int8()).id: 4,
}  # fmt: skip
_VIEW_BYTES: Final = 16


def row_bytes(array: Any, null: int = 0) -> Int64s | int:
    """Return the bytes of each row's value; one integer if all take the same.

    Count the bytes of values below nulls; leave out validity and the row's own offset. Values of
    dictionaries count as the largest one.

    Parameters
    ----------
    null
        What a value of the type null counts as, and a struct besides its members.
    """
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return row_bytes(array.storage, null)
    if types.is_dictionary(kind):
        return int(np.max(row_bytes(array.dictionary, null), initial=0))
    if types.is_struct(kind):
        total: Int64s | int = null
        for at in range(kind.num_fields):
            total = total + row_bytes(array.field(at), null)
        return total
    if types.is_fixed_size_list(kind):
        size = int(kind.list_size)
        inner = _item_bytes(array.values.slice(array.offset * size, len(array) * size), null)
        if isinstance(inner, int):
            return size * inner
        summed: Int64s = inner.reshape(len(array), size).sum(axis=1)
        return summed
    if kind.id in _OFFSET_BYTES:
        return _bytes_between(array, null)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _lengths_of_views(array)
    return null if types.is_null(kind) else (int(kind.bit_width) + 7) // 8


def _bytes_between(array: Any, null: int) -> Int64s | int:
    """Return the bytes of texts, lists and maps by their offsets."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return 0
    width = _OFFSET_BYTES[array.type.id]
    dtype = np.dtype(f"<i{width}")
    ends: NDArray[Any] = np.frombuffer(buffer, dtype, len(array) + 1, array.offset * width)
    sizes: Int64s = np.diff(ends).astype(np.int64)
    if not pa.types.is_nested(array.type):
        return sizes
    parts = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    first, total = int(ends[0]), np.zeros(len(array), np.int64)
    for part in parts:
        inner = _item_bytes(part.slice(first, int(ends[-1]) - first), null)
        if isinstance(inner, int):
            total += sizes * inner
        else:
            sums = np.concatenate([np.zeros(1, np.int64), inner.cumsum()])
            total += np.diff(sums[ends - first])
    return total


def _item_bytes(items: Any, null: int) -> Int64s | int:
    """Return the bytes of each item, its offset included."""
    return row_bytes(items, null) + _OFFSET_BYTES.get(items.type.id, 0)


def _lengths_of_views(array: Any) -> Int64s:
    count = len(array)
    views = np.frombuffer(array.buffers()[1] or b"", np.dtype("<i4")).reshape(-1, _VIEW_BYTES // 4)
    lengths: Int64s = views[array.offset : array.offset + count, 0].astype(np.int64)
    if array.null_count:
        lengths[as_numpy(array.is_null())] = 0
    return lengths + _VIEW_BYTES


# --- Rows with texts or bytes as views: cut before they are copied ----------------------
#
# Views may share their bytes, so that a few bytes may be many strings. Arrow casts them to strings
# with 32-bit offsets, also where these are too small for the bytes.

_PLAIN: Final = frozenset(
    kind.id
    for kind in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(),
        pa.large_string(), pa.binary(), pa.large_binary(), pa.date32(), pa.timestamp("us"),
    )
)  # fmt: skip
"""Types other than views and types that contain views."""

_PART_BYTES: Final = 2**28
"""Bytes of rows that are copied at once, unless a single row has more."""


def has_views(kind: Any) -> bool:
    """Return whether a type is, or contains, a view type."""
    if kind.id in _PLAIN:  # first, as tables may have thousands of columns
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return has_views(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return has_views(kind.value_type)
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return kind in (pa.string_view(), pa.binary_view()) or any(map(has_views, inner))


def check_views(array: Any, where: object) -> None:
    """Refuse views, at any depth, of more bytes than offsets of 32 bits can count.

    Raises
    ------
    CapacityError
        Says how many there are.
    """
    if has_views(array.type):
        total = int(np.broadcast_to(row_bytes(array), len(array)).sum(dtype=np.int64))
        if total > MAX_OFFSET:
            raise CapacityError.of(total, f"bytes of {array.type}", where=where)


def cut_views(rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield the rows in parts whose views are small enough to copy; each part is a view."""
    numbers = [at for at, kind in enumerate(rows.schema.types) if has_views(kind)]
    if not numbers or not rows.num_rows:
        yield rows
        return
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        sizes: Any = sum(row_bytes(batch.column(at)) for at in numbers)
        ends = np.broadcast_to(sizes, batch.num_rows).cumsum(dtype=np.int64)
        start = 0
        while start < batch.num_rows:
            limit = _PART_BYTES + (int(ends[start - 1]) if start else 0)
            stop = max(start + 1, int(ends.searchsorted(limit, side="right")))
            yield batch.slice(start, stop - start)
            start = stop
