"""Arrays of dictionary types: nulls only among the indices, arrays joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import SchemaError

__all__ = ["concat_arrays", "has_dictionary", "tidy_dictionary"]


def has_dictionary(kind: pa.DataType) -> bool:
    """Whether a type has a dictionary, of which each array may have its own."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type)
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return pa.types.is_dictionary(kind) or any(map(has_dictionary, inner))


def tidy_dictionary(array: Any) -> Any:
    """The same values with nulls and positions that can be stored.

    Items are not null: what pointed to a null is null itself. Positions of nulls are 0. Items
    that nothing points to are dropped where there are more items than values.
    """
    items, indices = array.dictionary, array.indices
    crowded = len(items) > len(array)
    if not (items.null_count or indices.null_count or crowded):
        return array
    positions = np.asarray(indices.fill_null(0)).astype(np.int64)
    valid = np.asarray(indices.is_valid())
    if items.null_count:
        present = np.asarray(items.is_valid())
        valid &= present[positions] if len(present) else False
        positions = (np.cumsum(present) - 1)[positions] if len(present) else positions
        items = items.drop_null()
    if crowded:
        used, positions[valid] = np.unique(positions[valid], return_inverse=True)
        items = items.take(pa.array(used))
    positions[~valid] = 0
    numbers = pa.array(positions, mask=~valid).cast(array.type.index_type)
    return pa.DictionaryArray.from_arrays(numbers, items, ordered=array.type.ordered)


def concat_arrays(arrays: Sequence[Any]) -> Any:
    """Join arrays of one type; their dictionaries become one.

    Raises
    ------
    SchemaError
        The type of the indices cannot count the items of all dictionaries together.
    """
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid:
        pass
    if pa.types.is_dictionary(arrays[0].type):
        arrays = [_used_only(one) for one in arrays]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"dictionaries of {arrays[0].type} with too many distinct values in one array: {error} "
            "Read or write fewer rows at a time, or cast the column to a wider index type."
        ) from None


def _used_only(array: Any) -> Any:
    kind = array.type
    again = array.dictionary_decode().dictionary_encode()
    if len(again.dictionary) > np.iinfo(kind.index_type.to_pandas_dtype()).max:
        return array
    return pa.DictionaryArray.from_arrays(
        again.indices.cast(kind.index_type), again.dictionary, ordered=kind.ordered
    )
