"""Expressions of pyarrow to trees, by way of Substrait.

pyarrow writes an expression only after it has made its types agree with a schema, and has no
Substrait for most of the conversions it adds. So it is shown a schema in which few are needed:
all whole numbers of one type, all texts of another. Our own binding knows the real types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from glaive.errors import FilterError
from glaive.expr.coerce import is_text, plain
from glaive.expr.substrait import read_substrait
from glaive.expr.tree import Node

__all__ = ["from_arrow"]


def from_arrow(
    expression: pc.Expression, schema: pa.Schema, system: Mapping[str, pa.DataType]
) -> Node:
    """The tree of a pyarrow expression.

    Raises
    ------
    FilterError
        It names a column that is not there, or pyarrow cannot write it as Substrait.
    """
    fields = [*schema, *(pa.field(name, kind) for name, kind in system.items())]
    wide = pa.schema([pa.field(one.name, _wide(one.type)) for one in fields])
    exact = pa.schema([pa.field(one.name, plain(one.type)) for one in fields])
    said: Exception | None = None
    for shown in (wide, exact):
        try:
            raw = expression.to_substrait(shown, allow_arrow_extensions=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
            said = said or error
        else:
            return read_substrait(bytes(raw))
    raise FilterError(
        f"the expression {_short(expression)} cannot be read: {said}. Write it as text, or give "
        "constants the type of the column."
    ) from None


def _short(expression: pc.Expression) -> str:
    shown = str(expression)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def _wide(kind: Any) -> Any:
    kind, types = plain(kind), pa.types
    if types.is_integer(kind):
        return pa.int64()
    if types.is_floating(kind):
        return pa.float64()
    if is_text(kind):
        return pa.string()
    if types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_struct(kind):
        return pa.struct([pa.field(one.name, _wide(one.type)) for one in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_wide(kind.value_type))
    return kind
