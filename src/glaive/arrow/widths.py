"""Bytes in memory of the values of a type: known, estimated for want of data, or as they were seen.

The size of a file says how large texts and lists are, unless they are compressed well: a few
megabytes may rightly hold gigabytes of them. What was decoded last says it for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.dictionaries import has_dictionary
from glaive.named_tuple import NamedTuple

__all__ = [
    "RowSizes",
    "Width",
    "has_known_width",
    "most_bytes",
    "total_width",
    "value_bytes",
    "width_of",
]

_STRING_BYTES: Final = 32
"""Estimate for a string or a binary value."""

_LIST_ITEMS: Final = 8
"""Estimate for the items of a list."""

_ITEM_NUMBER: Final = 8
"""Bytes that Arrow takes for each item of a vector while it chooses rows: its number. Numbers and
texts of one size are copied without, but items may have no bytes of their own, as nulls."""

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
        if types.is_null(kind.value_type) or types.is_nested(kind.value_type):
            known = max(known, _ITEM_NUMBER)
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


def most_bytes(kinds: Iterable[Any]) -> float:
    """Bytes of one value of each type, at most; infinite where that is not known."""
    kinds = list(kinds)
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
        What the types say.
    most
        At most, or infinite.
    """

    __slots__ = ("_others", "_seen", "most", "width")

    def __init__(self, kinds: Iterable[pa.DataType]) -> None:
        kinds = list(kinds)
        self.width, self.most = total_width(kinds), most_bytes(kinds)
        # All rows that share a dictionary are counted with all of it: no measure of them.
        self._seen = {
            at: 0
            for at, kind in enumerate(kinds)
            if width_of(kind).variable and not has_dictionary(kind)
        }
        self._others = int(
            total_width(kind for at, kind in enumerate(kinds) if at not in self._seen).total
        )

    @property
    def are_known(self) -> bool:
        """Whether the types say it, or all others were seen."""
        return all(self._seen.values())

    @property
    def seen(self) -> int:
        """Bytes of a row, by what was seen of its fields."""
        return self._others + sum(self._seen.values())

    def seen_of(self, at: int) -> int:
        """Bytes of a value of a field as it was seen last; 0 where it was not, or has one size."""
        return self._seen.get(at, 0)

    def see(self, at: int, array: Any) -> None:
        """Note what values of a field took."""
        if at in self._seen and len(array):
            self._seen[at] = max(1, array.nbytes // len(array))

    def see_all(self, arrays: Sequence[Any]) -> None:
        """The same of all fields."""
        for at in self._seen:
            self.see(at, arrays[at])
