"""Dictionary arrays: normalise, decode and join them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import NUMPY_TYPES
from glaive.errors import CapacityError, SchemaError

__all__ = [
    "check_column",
    "check_indices",
    "concat_arrays",
    "decode_dictionary",
    "dictionary_encoded",
    "has_dictionary",
    "null_count",
    "tidy_dictionary",
]

_FEW: Final = 1024
"""Values that are compared with each other soon enough, whatever their hashes are."""


def has_dictionary(kind: pa.DataType) -> bool:
    """Whether a type is, or contains, a dictionary type."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type)
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return pa.types.is_dictionary(kind) or any(map(has_dictionary, inner))


def check_indices(array: Any, name: str) -> None:
    """Refuse indices, at any depth of a column, that no item of their dictionary has.

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
        visible = np.asarray(array.indices.drop_null())
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
    """Nulls of an array, or of chunks; also indices of null items, which Arrow does not count."""
    nulls = int(array.null_count)
    if pa.types.is_dictionary(array.type):
        parts: list[Any] = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        for part in parts:
            if part.dictionary.null_count:
                absent = np.asarray(part.dictionary.is_null())
                nulls += int(np.count_nonzero(absent[np.asarray(part.indices.drop_null())]))
    return nulls


def check_column(array: Any, name: str, where: str, *, nullable: bool) -> None:
    """Refuse a column to be written that has wild indices, or nulls that it must not have.

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


def tidy_dictionary(array: Any) -> Any:
    """The same values, with indices and items that can be stored.

    Indices of null items become null, and null items are dropped. Indices under nulls are 0, and
    those that no item has, which :func:`check_indices` leaves below nulls, are null. Unused items
    are dropped if there are more items than values.
    """
    items, indices = array.dictionary, array.indices
    crowded = len(items) > len(array)
    numbers = np.asarray(indices.fill_null(0))
    known = (numbers >= 0) & (numbers < len(items))
    if not (items.null_count or indices.null_count or crowded) and known.all():
        return array
    positions = numbers.astype(np.int64)
    valid = np.asarray(indices.is_valid()) & known
    positions[~valid] = 0
    if items.null_count:
        present = np.asarray(items.is_valid())
        valid &= present[positions] if len(present) else False
        positions = (np.cumsum(present) - 1)[positions] if len(present) else positions
        items = items.drop_null()
    if crowded:
        used, positions[valid] = np.unique(positions[valid], return_inverse=True)
        items = items.take(pa.array(used))
    positions[~valid] = 0
    stored = pa.array(positions, mask=~valid).cast(array.type.index_type)
    return pa.DictionaryArray.from_arrays(stored, items, ordered=array.type.ordered)


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
    """Encode an array by a dictionary, in a time that nobody who chose its values can make long.

    As ``array.dictionary_encode()``; see :mod:`glaive.arrow.distinct`.
    """
    if len(array) <= _FEW:
        return array.dictionary_encode()
    from glaive.arrow.distinct import numbered  # and kernels, which few values do not need

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
                f"{sum(map(len, arrays))} values of {kind} do not fit one array: {error} Read or "
                "write fewer rows at a time, or cast the column to a large type."
            ) from None
    if pa.types.is_dictionary(kind):
        arrays = [_drop_unused(array) for array in arrays]
    try:
        return pa.concat_arrays(arrays)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise CapacityError(
            f"dictionaries of {kind} with too many distinct values in one array: {error} "
            "Read or write fewer rows at a time, or cast the column to a wider index type."
        ) from None


def _of_one_dictionary(arrays: Sequence[Any]) -> Sequence[Any]:
    """The same values with one dictionary, where Arrow could be made to take long to merge many.

    As they are, where there would be more items than the index type can count.
    """
    kind, items = arrays[0].type, [array.dictionary for array in arrays]
    ends = np.cumsum([0, *map(len, items)])
    if int(ends[-1]) <= _FEW:
        return arrays
    from glaive.arrow.distinct import is_numbered

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


def _drop_unused(array: Any) -> Any:
    kind = array.type
    encoded = dictionary_encoded(decode_dictionary(array))
    if len(encoded.dictionary) > np.iinfo(NUMPY_TYPES[kind.index_type]).max:
        return array
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(kind.index_type), encoded.dictionary, ordered=kind.ordered
    )
