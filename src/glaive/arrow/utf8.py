"""Texts that are not UTF-8. Reading a column does not look for them: that takes as long again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from glaive.errors import OptionError

__all__ = ["damaged_text", "refuse_half_characters"]


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


@contextmanager
def refuse_half_characters(what: str) -> Iterator[None]:
    """Name what a caller gave if it turns out to be a text that UTF-8 cannot hold.

    Raises
    ------
    OptionError
        A text has half of a surrogate pair, as Python has of bytes that it could not decode.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        near = str(error.object)[max(error.start - 20, 0) : error.start + 20]
        raise OptionError(
            f"{what}: {near!r} has half of a surrogate pair, which no text in UTF-8 has. Check how "
            "it was decoded."
        ) from None
