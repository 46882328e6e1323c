"""Substrait expressions to trees; numbers are the field numbers of its messages."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from glaive.arrow.decimals import decimal_type
from glaive.arrow.nesting import MAX_NESTING
from glaive.errors import FilterError
from glaive.expr import tree
from glaive.expr.convert import choice
from glaive.expr.substrait_functions import called, check_option
from glaive.expr.tree import MAX_DEPTH, MAX_NODES, MAX_TEXT, Literal, Node
from glaive.expr.wire import (
    Message,
    Raw,
    as_bytes,
    as_float,
    as_int,
    as_message,
    as_text,
    read_message,
)

__all__ = ["read_substrait"]

_INTEGERS = {2: pa.int8(), 3: pa.int16(), 5: pa.int32(), 7: pa.int64()}
_TYPES: dict[int, Any] = {
    1: pa.bool_(),
    **_INTEGERS,
    10: pa.float32(),
    11: pa.float64(),
    12: pa.string(),
    13: pa.binary(),
    14: pa.timestamp("us"),
    16: pa.date32(),
    17: pa.time64("us"),
    21: pa.string(),
    22: pa.string(),
    29: pa.timestamp("us", "UTC"),
}
_STRUCT, _LIST, _MAP = 25, 27, 28
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_DECIMAL_BYTES = 16
_BITS = {2: 8, 3: 16, 5: 32, 7: 64, 16: 32}
"""Of integers and dates, which the wire format writes as numbers of any size."""
_NO_COLUMN = frozenset((3, 5, 6))
"""References into other expressions, to rows around a subquery, and to parameters."""
_LISTED = {"and": tree.both, "or": tree.either}


def read_substrait(raw: bytes) -> Node:
    """The tree of the one expression in an ``ExtendedExpression``.

    Raises
    ------
    FilterError
        The bytes are damaged, do not hold exactly one expression, or use something that
        filters do not have.
    """
    if len(raw) > MAX_TEXT:
        raise FilterError(f"{len(raw)} Substrait bytes; at most {MAX_TEXT} are supported")
    message = read_message(raw)
    expressions = message.get(3, [])
    if len(expressions) != 1:
        raise FilterError(f"the Substrait bytes hold {len(expressions)} expressions, not one")
    functions = {}
    for entry in message.get(2, []):
        declared = as_message(read_message(entry), 3)
        functions[as_int(declared, 2)] = as_text(declared, 3).split(":")[0]
    schema = as_message(message, 4)
    names = iter([_text(name) for name in schema.get(1, [])])
    columns = _members(as_message(schema, 2), names, 0)
    reference = read_message(expressions[0])
    if 1 not in reference:
        raise FilterError("the Substrait bytes hold an aggregate, which is not a filter")
    return _Reader(functions, columns).read(as_message(reference, 1))


def _text(raw: Raw) -> str:
    return as_text({1: [raw]}, 1)


Columns = list[tuple[str, Any]]
"""Names, and the members of structs (None for other types)."""


def _members(struct: Message, names: Iterator[str], depth: int) -> Columns:
    if depth > MAX_DEPTH:
        raise FilterError(f"the Substrait schema is nested deeper than {MAX_DEPTH} levels")
    columns: Columns = []
    for raw in struct.get(1, []):
        name = next(names, None)
        if name is None:
            raise FilterError("the Substrait bytes are damaged: a column has no name")
        columns.append((name, _children(read_message(raw), names, depth + 1)))
    return columns


def _children(message: Message, names: Iterator[str], depth: int) -> Columns | None:
    if _STRUCT in message:
        return _members(as_message(message, _STRUCT), names, depth)
    if depth > MAX_DEPTH:
        raise FilterError(f"the Substrait schema is nested deeper than {MAX_DEPTH} levels")
    for number, parts in ((_LIST, (1,)), (_MAP, (1, 2))):
        if number in message:
            # Consume the names below lists and maps, although nothing can refer to them.
            for part in parts:
                _children(as_message(as_message(message, number), part), names, depth + 1)
    return None


class _Reader:
    """Reads one expression, with the functions and columns by number."""

    def __init__(self, functions: dict[int, str], columns: Columns) -> None:
        self.functions, self.columns = functions, columns
        self.depth = self.nodes = 0

    def read(self, message: Message) -> Node:
        self.depth += 1
        self.nodes += 1
        if self.depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise FilterError(
                f"the expression is nested deeper than {MAX_DEPTH} levels, or has more than "
                f"{MAX_NODES} parts"
            )
        node = self._read(message)
        self.depth -= 1
        return node

    def _read(self, message: Message) -> Node:
        if 1 in message:
            return _literal(as_message(message, 1))
        if 2 in message:
            return self._column(as_message(message, 2))
        if 3 in message:
            return self._function(as_message(message, 3))
        if 6 in message:
            return self._choice(as_message(message, 6))
        if 8 in message:
            listed = as_message(message, 8)
            value = self.read(as_message(listed, 1))
            return tree.InList(value, tuple(self._all(listed, 2)))
        if 11 in message:
            cast = as_message(message, 11)
            attempt = as_int(cast, 3) == 1
            return tree.Cast(self.read(as_message(cast, 2)), _type(as_message(cast, 1)), attempt)
        if 12 in message:
            raise FilterError("a subquery is not a filter")
        raise FilterError(f"filters do not have Substrait expression {sorted(message)}")

    def _all(self, message: Message, number: int) -> list[Node]:
        return [self.read(read_message(entry)) for entry in message.get(number, [])]

    def _column(self, selection: Message) -> Node:
        if 1 not in selection or not _NO_COLUMN.isdisjoint(selection):
            raise FilterError("only columns and members of structs can be referred to")
        among: Columns | None = self.columns
        parts: list[str] = []
        segment = as_message(selection, 1)
        while segment:
            step = as_message(segment, 2)
            if 2 not in segment or among is None:
                raise FilterError("only members of structs can be referred to, not list items")
            index = as_int(step, 1)
            if not 0 <= index < len(among):
                raise FilterError(f"the Substrait bytes are damaged: there is no column {index}")
            name, among = among[index]
            parts.append(name)
            segment = as_message(step, 2)
        if not parts:
            raise FilterError("the Substrait bytes are damaged: a reference names no column")
        return tree.Name(tuple(parts), exact=True)

    def _function(self, call: Message) -> Node:
        name = self._name(call)
        for option in map(read_message, call.get(5, [])):
            check_option(name, as_text(option, 1), [_text(one) for one in option.get(2, [])])
        if name in _LISTED:
            return _LISTED[name](*(self.read(entry) for entry in self._chain(call, name)))
        return called(name, [self.read(argument) for argument in _arguments(call)])

    def _name(self, call: Message) -> str:
        name = self.functions.get(as_int(call, 1))
        if name is None:
            raise FilterError("the Substrait bytes are damaged: a function is not declared")
        return name

    def _chain(self, call: Message, name: str) -> list[Message]:
        """Operands of nested ANDs in order, without recursion."""
        operands: list[Message] = []
        todo = [call]
        while todo:
            for argument in reversed(_arguments(todo.pop())):
                inner = as_message(argument, 3)
                if 3 in argument and self._name(inner) == name:
                    todo.append(inner)
                else:
                    operands.append(argument)
        return operands[::-1]

    def _choice(self, message: Message) -> Node:
        """``if_else`` with boolean results."""
        clauses = [read_message(entry) for entry in message.get(1, [])]
        if 2 * len(clauses) + self.depth > MAX_DEPTH:
            raise FilterError(f"a choice has more than {MAX_DEPTH // 2} cases, each within another")
        result = self.read(as_message(message, 2)) if 2 in message else Literal(None, pa.bool_())
        for clause in reversed(clauses):
            test, value = self.read(as_message(clause, 1)), self.read(as_message(clause, 2))
            result = choice(test, value, result)
        return result


def _arguments(call: Message) -> list[Message]:
    if 2 in call:
        return [read_message(entry) for entry in call[2]]
    return [as_message(read_message(entry), 3) for entry in call.get(4, [])]


def _type(message: Message) -> Any:
    for number, kind in _TYPES.items():
        if number in message:
            return kind
    if 24 in message:
        decimal = as_message(message, 24)
        return _checked(decimal_type, 128, as_int(decimal, 2), as_int(decimal, 1))
    if 23 in message:
        return _checked(pa.binary, as_int(as_message(message, 23), 1))
    for number, zone in ((33, None), (34, "UTC")):
        if number in message:
            return pa.timestamp(_unit(as_message(message, number)), zone)
    raise FilterError(f"filters do not have Substrait type {sorted(message)}")


def _checked(make: Any, *sizes: int) -> Any:
    try:
        return make(*sizes)
    except (ValueError, OverflowError) as error:
        raise FilterError(f"the Substrait bytes are damaged: {error}") from None


def _unit(message: Message) -> Any:
    digits = as_int(message, 1)
    if digits not in _UNITS:
        raise FilterError(f"timestamps have 0, 3, 6 or 9 digits of a second, not {digits}")
    return _UNITS[digits]


def _literal(message: Message, depth: int = 0) -> Literal:
    if depth > MAX_NESTING:
        raise FilterError(f"a constant is nested deeper than {MAX_NESTING} levels")
    if 1 in message:
        return Literal(bool(as_int(message, 1)), pa.bool_())
    for number, kind in _INTEGERS.items():
        if number in message:
            return Literal(_whole(message, number), kind)
    for number in (10, 11):
        if number in message:
            return Literal(as_float(message, number), _TYPES[number])
    if 12 in message or 21 in message:
        return Literal(as_text(message, 12 if 12 in message else 21), pa.string())
    if 22 in message:
        return Literal(as_text(as_message(message, 22), 1), pa.string())
    if 13 in message:
        return Literal(as_bytes(message, 13), pa.binary())
    if 23 in message:
        raw = as_bytes(message, 23)
        return Literal(raw, pa.binary(len(raw)))
    if 30 in message:
        parts = as_message(message, 30).get(1, [])
        items = [_literal(read_message(part), depth + 1) for part in parts]
        kinds = [item.type for item in items if not item.is_null]
        item: Any = kinds[0] if kinds else items[0].type if items else pa.null()
        if any(kind != item for kind in kinds):
            raise FilterError("the Substrait bytes are damaged: items of a list differ in type")
        return Literal(tuple(item.value for item in items), pa.list_(item))
    return _timed(message)


def _whole(message: Message, number: int) -> int:
    """The integer in a field, which has the bits of its type."""
    value = as_int(message, number)
    half = 1 << (_BITS.get(number, 64) - 1)
    if not -half <= value < half:
        raise FilterError(
            f"the Substrait bytes are damaged: a constant of {_BITS[number]} bits is {value}"
        )
    return value


def _timed(message: Message) -> Literal:
    for number, type_number in ((14, 14), (16, 16), (17, 17), (27, 29)):
        if number in message:
            return Literal(_whole(message, number), _TYPES[type_number])
    for number, zone in ((34, None), (35, "UTC")):
        if number in message:
            timestamp = as_message(message, number)
            return Literal(as_int(timestamp, 2), pa.timestamp(_unit(timestamp), zone))
    if 24 in message:
        decimal = as_message(message, 24)
        type_number = _checked(decimal_type, 128, as_int(decimal, 2), as_int(decimal, 3))
        raw = as_bytes(decimal, 1)
        if len(raw) > _DECIMAL_BYTES:  # Numbers of many digits take time by their square.
            raise FilterError(f"a decimal has {len(raw)} bytes, at most {_DECIMAL_BYTES}")
        number = int.from_bytes(raw, "little", signed=True)
        if abs(number) >= 10**type_number.precision:
            raise FilterError(
                f"the Substrait bytes are damaged: a constant of the type {type_number} has "
                f"{len(str(abs(number)))} digits"
            )
        return Literal(Decimal(number).scaleb(-type_number.scale, Context(prec=60)), type_number)
    if 29 in message:
        return Literal(None, _type(as_message(message, 29)))
    raise FilterError(
        "a constant has a type that Substrait cannot express; use a number, a string or a time"
    )
