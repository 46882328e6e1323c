"""How many bytes an expression makes for some rows: asked before they are made.

A constant of a megabyte beside a column of a million rows would be a terabyte of text, and
offsets of 32 bits would wrap around on the way. What needs more than ``AT_A_TIME`` for
several rows raises ``CapacityError``, which says in how many parts the rows should be worked
on; see :func:`glaive.arrow.capacity.in_parts`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.capacity import MAX_OFFSET, row_weights, weight
from glaive.errors import CapacityError

__all__ = [
    "AT_A_TIME",
    "MOST_BYTES",
    "bytes_of",
    "has_offsets",
    "largest",
    "reserve",
    "reserve_within",
    "scalar_bytes",
    "varies",
]

AT_A_TIME: Final = 2**26
"""Bytes made at a time for several rows. Several threads may do so at the same time."""

MOST_BYTES: Final = 2**28
"""Bytes of one value that is made of little: by padding, by repeating."""


def reserve(what: str, size: int, rows: int, kind: Any = None) -> None:
    """Ask to make values of ``size`` bytes together for so many rows.

    Parameters
    ----------
    what
        Who makes them, for the message.
    kind
        The type of the values; large ones of a single row may take any size.

    Raises
    ------
    CapacityError
        Fewer rows at a time should be worked on; or there is one row, and its value does not
        fit one array.
    """
    if size <= AT_A_TIME:
        return
    if rows > 1:
        raise CapacityError(
            f"{what} makes {size} bytes for {rows} rows, at most {AT_A_TIME} at a time",
            parts=min(rows, -(-size // AT_A_TIME)),
        )
    if size > MAX_OFFSET and has_offsets(kind):
        raise CapacityError(
            f"{what} makes {size} bytes for one row, at most {MAX_OFFSET} fit a value of {kind}. "
            "Cast an argument to a large type: arrow_cast(x, 'LargeUtf8')"
        )


def reserve_within(what: str, lists: Any, added: int) -> None:
    """Ask to put values of ``added`` bytes into lists, or between their items, for each item.

    One row may take what it takes: not all of its items need get such a value.
    """
    rows, items = len(lists), weight(lists) or len(lists.values)
    if added and rows > 1:
        reserve(what, items * (1 + added), rows)


def scalar_bytes(value: Any) -> int:
    """Bytes of a constant each time it is written out; 0 for those of a few bytes."""
    if not value.is_valid or not varies(value.type):
        return 0
    if isinstance(value, pa.StringScalar | pa.BinaryScalar):
        return int(value.as_buffer().size)
    return int(pa.repeat(value, 1).nbytes)


def bytes_of(argument: Any, rows: int) -> int:
    """Bytes of the texts or bytes of an array, or of a constant in so many rows."""
    if isinstance(argument, pa.Scalar):
        return scalar_bytes(argument) * rows
    return weight(argument) or int(argument.nbytes)


def largest(argument: Any) -> int:
    """Bytes of the largest value of an array, or of a constant."""
    if isinstance(argument, pa.Scalar):
        return scalar_bytes(argument)
    found = row_weights(argument)
    return found if isinstance(found, int) else int(found.max(initial=0))


@lru_cache(maxsize=256)
def has_offsets(kind: Any) -> bool:
    """Whether arrays of a type have offsets of 32 bits, at any depth."""
    types = pa.types
    if kind is None or types.is_string(kind) or types.is_binary(kind):
        return True
    if types.is_list(kind) or types.is_map(kind):
        return True
    return any(has_offsets(kind.field(at).type) for at in range(kind.num_fields))


@lru_cache(maxsize=256)
def varies(kind: Any) -> bool:
    """Whether values of a type have no fixed size of a few bytes."""
    types = pa.types
    plain = types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind)
    return not (plain or types.is_interval(kind))
