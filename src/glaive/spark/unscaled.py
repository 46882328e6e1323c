"""Decimals as the integers that they are stored as: ``1.25`` with two digits is 125."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import SchemaError

__all__ = ["LONG_DIGITS", "SETTING", "decimals", "unscaled"]

SETTING = "spark.glaive.plannedScans"
"""Setting of a session: with ``false``, queries read through the data source."""

LONG_DIGITS = 18
"""Digits of the decimals that fit in 64 bits."""


def unscaled(array: Any, name: str) -> Any:
    """The values of ``decimal128`` as ``int64``, with the same nulls; one copy.

    Raises
    ------
    SchemaError
        A value of column ``name`` does not fit.
    """
    values = array.buffers()[1]
    if values is None:
        return pa.nulls(len(array), pa.int64())
    words = np.frombuffer(values, "<i8", 2 * len(array), array.offset * 16).reshape(-1, 2)
    low = np.ascontiguousarray(words[:, 0])
    null = None if not array.null_count else ~np.asarray(array.is_valid())
    wide = words[:, 1] != low >> 63
    if (wide if null is None else wide & ~null).any():
        raise SchemaError(
            f"column {name!r}: a value has more digits than {array.type}. Read it with "
            f"{SETTING}=false, or write the column again with the type that it needs"
        )
    return pa.array(low, mask=null)


def decimals(integers: Any, data_type: Any) -> Any:
    """The reverse: ``int64`` as ``decimal128`` of a precision and scale."""
    whole = integers.cast(pa.decimal128(19, 0))
    return pa.Array.from_buffers(data_type, len(whole), whole.buffers(), offset=whole.offset)
