"""Evaluate a call of scalar functions that is written as in SQL, without the SQL parser."""

from __future__ import annotations

import ast
from typing import Any

import pyarrow as pa

from glaive.arrow.jsonb import encode_jsonb
from glaive.expr.functions.registry import find
from glaive.expr.rows import broadcast

UNITS = {
    "month": (1, 0, 0),
    "day": (0, 1, 0),
    "hour": (0, 0, 3_600_000_000_000),
    "minute": (0, 0, 60_000_000_000),
    "second": (0, 0, 1_000_000_000),
}


def evaluate(text: str, table: pa.Table) -> Any:
    """Return the values of a call such as ``left(s, 2)`` for all rows of a table."""
    node = ast.parse(text.replace("\\", "\\\\"), mode="eval").body
    result = _evaluate(node, table)
    return broadcast(result, table.num_rows)


def _evaluate(node: ast.expr, table: pa.Table) -> Any:
    match node:
        case ast.Constant(value=value):
            return pa.scalar(value)
        case ast.UnaryOp(operand=ast.Constant(value=int(value) | float(value))):
            return pa.scalar(-value)
        case ast.Name(id="true" | "false" as value):
            return pa.scalar(value == "true")
        case ast.Name(id="NULL"):
            return pa.scalar(None)
        case ast.Name(id=name):
            return table[name].chunk(0)
        case ast.List(elts=items):
            return pa.scalar([_evaluate(item, table).as_py() for item in items])
        case ast.Call(func=ast.Name(id="interval"), args=[ast.Constant(value=str(value))]):
            count, unit = value.split()
            months, days, nanos = UNITS[unit]
            return pa.scalar(
                (months * int(count), days * int(count), nanos * int(count)),
                pa.month_day_nano_interval(),
            )
        case ast.Call(func=ast.Name(id=name), args=given):
            return call(name, [_evaluate(item, table) for item in given], table.num_rows)
    raise NotImplementedError(ast.dump(node))


def call(name: str, arguments: list[Any], rows: int) -> Any:
    """Call one function as the evaluator of expressions does."""
    function = find(name)
    arguments = [_storage(argument) for argument in arguments]
    literals = [a if isinstance(a, pa.Scalar) else None for a in arguments]
    types, kind = function.resolve([a.type for a in arguments], literals)
    cast = [_cast(a, to) for a, to in zip(arguments, types, strict=True)]
    if cast and not function.volatile and all(isinstance(a, pa.Scalar) for a in cast):
        return function.evaluate(cast, 1, kind)[0]
    result = function.evaluate(cast, rows, kind)
    assert result.type == kind
    assert len(result) == rows
    return result


def _storage(value: Any) -> Any:
    """JSON columns as they are stored."""
    return encode_jsonb(value.storage) if isinstance(value, pa.ExtensionArray) else value


def _cast(value: Any, kind: pa.DataType) -> Any:
    if value.type == kind:
        return value
    if isinstance(value, pa.Scalar):
        return pa.scalar(None, kind) if not value.is_valid else value.cast(kind)
    if pa.types.is_dictionary(value.type):
        value = value.dictionary_decode()
    return value.cast(kind, safe=not pa.types.is_floating(kind))
