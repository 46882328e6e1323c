"""Convert constants to the type of the column they are compared with, or refuse them.

Like Lance, glaive does this first, for comparisons at the top of a filter or below AND and OR.
``i > 2.5`` on integers is therefore an error instead of a comparison of floats.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, Self, overload

import numpy as np
import pyarrow as pa

from glaive.errors import FilterError
from glaive.expr.casts import cast
from glaive.expr.coerce import is_list, is_string, plain
from glaive.expr.tree import Literal

_BOUNDS = {
    f"{sign}int{width}": ((0, 1 << width) if sign else (-(1 << (width - 1)), 1 << (width - 1)))
    for sign in ("", "u")
    for width in (8, 16, 32, 64)
}
_MAX_HALF = 65519.99
"""Largest number that rounds to a finite 16-bit float."""


def as_column(literal: Literal, kind: Any) -> Literal | None:
    """Convert a constant to the type of a column; ``None`` if the type lacks the value."""
    target = plain(kind)
    if literal.is_null:
        return Literal(None, target, at=literal.at)
    value = _converted(literal, target)
    return None if value is None else Literal(value, target, at=literal.at)


def _converted(literal: Literal, target: Any) -> Any:
    value, types = literal.value, pa.types
    if isinstance(value, bool):
        return value if types.is_boolean(target) else None
    if isinstance(value, int):
        # Integers beyond 63 bits are unsigned, so they are kept instead of converted to decimals.
        large = pa.types.is_uint64(literal.type) and types.is_decimal(target)
        return None if large else _integer(value, target)
    if isinstance(value, float):
        return _float(value, target)
    if isinstance(value, str):
        return value if is_string(target) else None
    if isinstance(value, bytes):
        if types.is_fixed_size_binary(target):
            return value if len(value) == target.byte_width else None
        return value if types.is_binary(target) or types.is_large_binary(target) else None
    return _list(literal, target)


def _integer(value: int, target: Any) -> Any:
    types = pa.types
    if types.is_integer(target):
        low, high = _BOUNDS[str(target)]
        return value if low <= value < high else None
    if types.is_floating(target):
        return _float(float(value), target)
    if types.is_decimal(target):
        unscaled, rest = divmod(
            abs(value) * 10 ** max(target.scale, 0), 10 ** max(-target.scale, 0)
        )
        return Decimal(value) if not rest and unscaled < 10**target.precision else None
    return None


def _float(value: float, target: Any) -> float | None:
    if not pa.types.is_floating(target):
        return None
    if target.bit_width == 16:
        return None if isfinite(value) and abs(value) > _MAX_HALF else float(np.float16(value))
    if target.bit_width == 32:
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    return value


def _list(literal: Literal, target: Any) -> Any:
    types = pa.types
    if not (is_list(target, fixed=True) and is_list(literal.type, fixed=True)):
        return None
    if types.is_fixed_size_list(target) and len(literal.value) != target.list_size:
        return None
    try:
        return literal.scalar().cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


# --- Long lists of constants as one object ----------------------------------------------
#
# A filter with a list of a hundred thousand items would have as many objects in each stage of
# binding. A list of numbers or strings is one object instead, which makes items on demand.

# Python 3.11.2 takes more digits than 18 if this repeat is possessive.
_INTEGER = r"-?+[0-9]{1,18}(?![0-9.eE])"
_FLOAT = r"-?+(?:[0-9]++\.[0-9]*+|\.[0-9]++|[0-9]++(?=[eE]))(?:[eE][+-]?+[0-9]++)?+"
_TEXT = r"'[^']*+'"
_KINDS = {"integer": _INTEGER, "float": _FLOAT, "text": _TEXT}
_LISTS = (f"(?P<{name}>{item}(?:\\s*+,\\s*+{item}){{15,}}+)" for name, item in _KINDS.items())
LONG_LIST = re.compile(rf"\s*+(?:{'|'.join(_LISTS)})(?=\s*+\))")
"""Contents of a bracketed list of 16 or more numbers, or strings, of one type."""


class ConstantList(Sequence[Literal]):
    """Constants of one type, all valid.

    Parameters
    ----------
    values
        Values as in ``Literal.value``, as a tuple.
    at
        Offset of the list in the text.
    """

    __slots__ = ("_array", "_values", "at", "type")

    def __init__(self, values: Any, kind: pa.DataType, at: int = -1) -> None:
        self._values, self.type, self.at = values, kind, at
        self._array: Any = None

    @classmethod
    def of(cls, distinct: Any, at: int = -1) -> Self:
        """Return the values of an array, all of them valid and different."""
        made = cls(None, distinct.type, at)
        made._array = distinct
        return made

    @property
    def values(self) -> tuple[Any, ...]:
        """The values, made from the array when first asked for."""
        if self._values is None:
            self._values = self._values_of(self._array)
        made: tuple[Any, ...] = self._values
        return made

    def _values_of(self, array: Any) -> tuple[Any, ...]:
        numbers = array.view(pa.int32()) if pa.types.is_date32(self.type) else array
        return tuple(numbers.to_pylist())

    @overload
    def __getitem__(self, at: int) -> Literal: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Literal]: ...
    def __getitem__(self, at: int | slice) -> Literal | Sequence[Literal]:
        if isinstance(at, slice):
            return ConstantList(self.values[at], self.type, self.at)
        index = range(len(self))[at]
        known = self._values or self._values_of(self._array.slice(index, 1))
        return Literal(known[index if self._values else 0], self.type, at=self.at)

    def __len__(self) -> int:
        return len(self._array if self._values is None else self._values)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConstantList)
            and self.type == other.type
            and self.array().equals(other.array())
        )

    def __hash__(self) -> int:
        return hash((len(self), *map(hash, (*self.array()[:4], *self.array()[-4:]))))

    def array(self) -> Any:
        """Return all values as an Arrow array; the array is cached."""
        if self._array is None:
            self._array = pa.array(self.values, self.type)
        return self._array

    def distinct(self) -> ConstantList:
        """Return the distinct values; a zero float becomes both zeros."""
        if self._values is None:
            return self
        if pa.types.is_floating(self.type):
            values = dict.fromkeys(self.values)
            zeros = () if values.pop(0.0, self) else (-0.0, 0.0)
            return ConstantList((*values, *zeros), self.type, self.at)
        return ConstantList.of(self.array().unique(), self.at)


def read_list(text: str, at: int) -> ConstantList:
    """Parse the constants in a text that ``LONG_LIST`` matches."""
    match = LONG_LIST.match(f"{text})")
    item_type = match.lastgroup if match is not None else None
    if item_type == "integer":
        return ConstantList(tuple(map(int, text.split(","))), pa.int64(), at)
    if item_type == "float":
        return ConstantList(tuple(map(float, text.split(","))), pa.float64(), at)
    return ConstantList(tuple(re.findall(r"'([^']*)'", text)), pa.string(), at)


def list_as_column(items: ConstantList, kind: Any) -> Any:
    """Convert a list to the type of a column; ``None`` if the type lacks an item."""
    if items.type == kind:
        return items
    low, high = Literal(min(items.values), items.type), Literal(max(items.values), items.type)
    first, last = as_column(low, kind), as_column(high, kind)
    if first is None or last is None:
        return None
    if first.type == items.type or pa.types.is_integer(first.type) or is_string(first.type):
        return ConstantList(items.values, first.type, items.at)
    converted = [as_column(item, kind) for item in items]
    if None in converted:
        return None
    return ConstantList(tuple(value.value for value in converted if value), first.type, items.at)


def list_as(items: ConstantList, kind: Any) -> Any:
    """Cast a list to a type; ``None`` if casting an item fails."""
    if items.type == kind:
        return items
    try:
        converted = cast(items.array(), kind)
    except FilterError:
        return None
    if converted.null_count:
        return None
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_string(kind)
    if not numbers:
        return tuple(Literal.of(value, at=items.at) for value in converted)
    return ConstantList(tuple(converted.to_pylist()), kind, items.at)
