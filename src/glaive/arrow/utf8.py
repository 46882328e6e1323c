"""Texts that are not UTF-8. Reading a column does not look for them: that takes as long again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["damaged_text"]


def damaged_text(array: Any) -> str | None:
    """What Arrow says of a text, at any depth of the array, that is not UTF-8; None: all are."""
    if isinstance(array, pa.ExtensionArray):
        return damaged_text(array.storage)
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return damaged_text(array.dictionary)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            return str(error)
        return None
    if types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        kind = array.type
    if types.is_struct(kind):
        return next(filter(None, map(damaged_text, array.flatten())), None)
    return damaged_text(array.flatten()) if hasattr(kind, "value_field") else None
