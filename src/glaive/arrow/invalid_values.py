"""Values that Arrow takes as they are, and that are none of their type.

Reading a column does not look for them: that takes as long again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

__all__ = ["damaged_text", "has_decimals", "overlong_decimal"]


def damaged_text(array: Any) -> str | None:
    """What Arrow says of a text, at any depth of the array, that is not UTF-8; None: all are."""
    return _invalid(array, _is_text)


def overlong_decimal(array: Any) -> str | None:
    """What Arrow says of a decimal, at any depth, of more digits than its type; None: all fit."""
    return _invalid(array, pa.types.is_decimal)


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
