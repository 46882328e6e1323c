"""Bytes in memory of the values of a type: known, or estimated for want of data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from glaive.named_tuple import NamedTuple

__all__ = ["Width", "has_known_width", "total_width", "value_bytes", "width_of"]

_STRING_BYTES: Final = 32
"""Estimate for a string or a binary value."""

_LIST_ITEMS: Final = 8
"""Estimate for the items of a list."""


class Width(NamedTuple):
    """Bytes of a value.

    Parameters
    ----------
    known
        Bytes of the parts with a fixed width.
    guessed
        Estimate for the other parts.
    variable
        Number of parts without a fixed width: strings and lists.
    """

    known: float
    guessed: float = 0
    variable: int = 0

    @property
    def total(self) -> float:
        """All bytes, about."""
        return self.known + self.guessed


def width_of(kind: Any) -> Width:
    """Bytes of a value of a type."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return width_of(kind.storage_type)
    if types.is_fixed_size_list(kind):
        known, guessed, variable = width_of(kind.value_type)
        size = kind.list_size
        return Width(known * size, guessed * size, variable * size)
    if types.is_struct(kind):
        return total_width(member.type for member in kind)
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
    """Bytes of one value of each type."""
    widths = [width_of(data_type) for data_type in kinds]
    return Width(
        sum(width.known for width in widths),
        sum(width.guessed for width in widths),
        sum(width.variable for width in widths),
    )


def value_bytes(kind: Any) -> int:
    """Bytes of a decoded value, about; at least 1."""
    return max(1, int(width_of(kind).total))


def has_known_width(kind: Any) -> bool:
    """Whether all values have one size, so that :func:`value_bytes` is exact."""
    return not width_of(kind).variable
