"""Values that Arrow takes as they are, and that are none of their type.

Reading a column does not look for them: for texts that takes as long again. Streams, which other
libraries read, look for decimals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError

__all__ = ["check_arrays", "check_decimals", "damaged_text", "has_decimals", "wild_length"]

_VIEW_WORDS: Final = 4
"""Numbers of 32 bits in a view, of which the first is its length."""

_MOST_OF_NULLS: Final = 4096
"""What a view that is null may have for its length, whatever bytes there are."""


def damaged_text(array: Any) -> str | None:
    """What Arrow says of a text, at any depth of the array, that is not UTF-8; None: all are."""
    return _invalid(array, _is_text)


def check_arrays(rows: pa.RecordBatch | pa.Table) -> None:
    """Refuse rows of a message of Arrow that are no arrays: its offsets are any at all.

    Raises
    ------
    pyarrow.ArrowInvalid
        Says what is wrong.
    """
    rows.validate(full=True)
    for column in rows.columns:
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            fault = wild_length(chunk)
            if fault is not None:
                raise pa.ArrowInvalid(fault)


def wild_length(array: Any) -> str | None:
    """What is wrong with a view at any depth that is null and has no length; None: all have one.

    Validating does not look at views that are null. A cast ends the process over some below 0, and
    asks for the memory of all.
    """
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return wild_length(array.storage)
    if types.is_dictionary(kind):
        return wild_length(array.dictionary)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        end = array.offset + len(array)
        _, views, *data = array.buffers()
        words = np.frombuffer(views or b"", np.int32, _VIEW_WORDS * end)
        lengths = words[_VIEW_WORDS * array.offset :: _VIEW_WORDS]
        if (lengths < 0).any():
            return "a view has a length below 0"
        longest = max([_MOST_OF_NULLS, *(buffer.size for buffer in data)])
        return f"a view is longer than {longest} bytes" if (lengths > longest).any() else None
    if types.is_map(kind):
        parts = [array.keys, array.items]
    elif types.is_struct(kind) or types.is_union(kind):
        parts = [array.field(at) for at in range(kind.num_fields)]
    else:
        parts = [array.values] if kind.num_fields else []
    return next(filter(None, map(wild_length, parts)), None)


def check_decimals(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, if its decimals have no more digits than their types.

    Others do not fit the numbers that DuckDB holds them in: its result would have what was in its
    memory there before.

    Raises
    ------
    CorruptFileError
        One has more digits.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        found = _invalid(column, pa.types.is_decimal) if has_decimals(field.type) else None
        if found is not None:
            expected = "decimals of its type"
            raise CorruptFileError(
                f"column {field.name!r}", expected=expected, found=found, where="a scan"
            )
    return batch


def has_decimals(kind: Any) -> bool:
    """Whether there are decimals at any depth of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_decimals(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return has_decimals(kind.value_type)
    below = (kind.field(at).type for at in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind)) or any(map(has_decimals, below))


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _invalid(array: Any, is_meant: Callable[[Any], bool]) -> str | None:
    if isinstance(array, pa.ExtensionArray):
        return _invalid(array.storage, is_meant)
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return _invalid(array.dictionary, is_meant)
    if is_meant(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            return str(error)
        return None
    if types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        kind = array.type
    if types.is_struct(kind):
        return next(filter(None, (_invalid(one, is_meant) for one in array.flatten())), None)
    return _invalid(array.flatten(), is_meant) if hasattr(kind, "value_field") else None
