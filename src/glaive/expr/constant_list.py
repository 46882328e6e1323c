"""Long lists of constants, kept and converted as a whole.

A list of a hundred thousand items in a filter would be as many objects in each stage that a
filter goes through. A list of plain numbers or texts is one object instead, and has its items
when someone asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, overload

import pyarrow as pa

from glaive.errors import FilterError
from glaive.expr.casts import cast
from glaive.expr.coerce import is_text
from glaive.expr.constants import as_column
from glaive.expr.tree import Literal

__all__ = ["LONG_LIST", "ConstantList", "list_as", "list_as_column", "read_list"]

_WHOLE = r"-?+[0-9]{1,18}+(?![0-9.eE])"
_FLOAT = r"-?+(?:[0-9]++\.[0-9]*+|\.[0-9]++|[0-9]++(?=[eE]))(?:[eE][+-]?+[0-9]++)?+"
_TEXT = r"'[^']*+'"
_KINDS = {"whole": _WHOLE, "float": _FLOAT, "text": _TEXT}
_LISTS = (f"(?P<{name}>{item}(?:\\s*+,\\s*+{item}){{15,}}+)" for name, item in _KINDS.items())
LONG_LIST = re.compile(rf"\s*+(?:{'|'.join(_LISTS)})(?=\s*+\))")
"""What stands in the brackets of a list of 16 or more numbers, or texts, of one kind."""


class ConstantList(Sequence[Literal]):
    """Constants of one type, none of them null.

    Parameters
    ----------
    values
        As ``Literal.value``.
    at
        Where the list begins in the text.
    """

    __slots__ = ("_array", "at", "type", "values")

    def __init__(self, values: tuple[Any, ...], kind: pa.DataType, at: int = -1) -> None:
        self.values, self.type, self.at = values, kind, at
        self._array: Any = None

    @overload
    def __getitem__(self, at: int) -> Literal: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Literal]: ...
    def __getitem__(self, at: int | slice) -> Literal | Sequence[Literal]:
        if isinstance(at, slice):
            return ConstantList(self.values[at], self.type, self.at)
        return Literal(self.values[at], self.type, at=self.at)

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConstantList)
            and self.type == other.type
            and self.values == other.values
        )

    def __hash__(self) -> int:
        return hash(self.values)

    def array(self) -> Any:
        """All values as an Arrow array, made once."""
        if self._array is None:
            self._array = pa.array(self.values, self.type)
        return self._array

    def distinct(self) -> ConstantList:
        """Each value once; for a zero both of a float."""
        values = dict.fromkeys(self.values)
        if pa.types.is_floating(self.type) and 0.0 in values:
            del values[0.0]
            return ConstantList((*values, -0.0, 0.0), self.type, self.at)
        return ConstantList(tuple(values), self.type, self.at)


def read_list(text: str, at: int) -> ConstantList:
    """The constants of a text that ``LONG_LIST`` matches."""
    found = LONG_LIST.match(f"{text})")
    kind = found.lastgroup if found is not None else None
    if kind == "whole":
        return ConstantList(tuple(map(int, text.split(","))), pa.int64(), at)
    if kind == "float":
        return ConstantList(tuple(map(float, text.split(","))), pa.float64(), at)
    return ConstantList(tuple(re.findall(r"'([^']*)'", text)), pa.string(), at)


def list_as_column(items: ConstantList, kind: Any) -> Any:
    """The list in the type of a column; ``None`` where an item is no such constant."""
    least, most = Literal(min(items.values), items.type), Literal(max(items.values), items.type)
    first, last = as_column(least, kind), as_column(most, kind)
    if first is None or last is None:
        return None
    if first.type == items.type or pa.types.is_integer(first.type) or is_text(first.type):
        return ConstantList(items.values, first.type, items.at)
    made = [as_column(item, kind) for item in items]
    if None in made:
        return None
    return ConstantList(tuple(value.value for value in made if value), first.type, items.at)


def list_as(items: ConstantList, kind: Any) -> Any:
    """The list converted to a type; ``None`` where an item does not go."""
    if items.type == kind:
        return items
    try:
        made = cast(items.array(), kind)
    except FilterError:
        return None
    if made.null_count:
        return None
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_text(kind)
    if not numbers:
        return tuple(Literal.of(value, at=items.at) for value in made)
    return ConstantList(tuple(made.to_pylist()), kind, items.at)
