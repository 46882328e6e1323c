"""Convert expressions of pyarrow and Substrait to trees.

pyarrow pickles an expression as a record batch. The metadata of the batch lists calls, columns and
constants in order; its columns hold the constants and the options of calls. glaive avoids Substrait
here: pyarrow needs time exponential in the depth to write it, and omits casts and options.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Context, Decimal
from math import inf, isnan
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.chunked import check_indices, decode_dictionary
from glaive.arrow.conditions import decimal_type
from glaive.arrow.validation import MAX_NESTING, exported_metadata
from glaive.errors import FilterError
from glaive.expr import tree
from glaive.expr.bind import Names
from glaive.expr.coerce import PER_SECOND, UNIT_OF_DIGITS
from glaive.expr.parse import close_names
from glaive.expr.tree import (
    FLIPPED,
    MAX_DEPTH,
    MAX_NODES,
    MAX_TEXT,
    Compare,
    InList,
    Literal,
    Name,
    Node,
)

# --- Map functions of Substrait and Arrow to the filter language ------------------------

_COMPARED = {
    "equal": "=",
    "not_equal": "!=",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "is_distinct_from": "IS DISTINCT FROM",
    "is_not_distinct_from": "IS NOT DISTINCT FROM",
    "xor": "!=",
}
_COMBINED = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "modulus": "%",
    "mod": "%",
    "concat": "||",
    "shift_left": "<<",
    "shift_right": ">>",
}
_NAMED = {
    "utf8_upper": "upper",
    "utf8_lower": "lower",
    "utf8_length": "char_length",
    "binary_length": "octet_length",
    "utf8_reverse": "reverse",
    "trim": "btrim",
    "ceiling": "ceil",
    "sign": "signum",
    "is_nan": "isnan",
}
_ALSO = frozenset(
    """
    abs acos asin atan atan2 btrim ceil char_length coalesce contains cos ends_with exp
    floor isnan ln log10 log2 lower ltrim octet_length power reverse round rtrim signum
    sin sqrt starts_with strpos substr substring tan upper
    """.split()  # noqa: SIM905  # words are easier to read than a list
)
"""Functions with the same name in the filter language."""


_MAX_INDEX = (1 << 63) - 1
_UNSUPPORTED_VALUES = {
    "case_sensitivity": {"CASE_INSENSITIVE", "CASE_INSENSITIVE_ASCII"},
    "division_type": {"FLOOR"},
    "negative_start": {"WRAP_FROM_END"},
    "null_handling": {"IGNORE_NULLS"},
    "overflow": {"SATURATE"},
}
"""Option values of Substrait that the functions of the filter language lack."""


def check_option(function: str, option: str, wanted: Sequence[str]) -> None:
    """Check that the filter language implements an option of a function.

    Parameters
    ----------
    wanted
        Acceptable values of the option.

    Raises
    ------
    FilterError
        All of the values are unsupported.
    """
    others = _UNSUPPORTED_VALUES.get(option, set())
    if wanted and others.issuperset(wanted):
        raise FilterError(
            f"filters do not have the function {function!r} with {option} {wanted[0]}"
        )


def build_call(name: str, arguments: Sequence[Node]) -> Node:
    """Build a tree for a call.

    Raises
    ------
    FilterError
        The filter language lacks the function with this number of arguments.
    """
    if name.endswith(("_kleene", "_checked")):
        name = name.rsplit("_", 1)[0]
    node = _operator(name, tuple(arguments))
    if node is not None:
        return node
    known = _NAMED.get(name, name)
    if known in _ALSO:
        return tree.Call(known, tuple(arguments))
    names = [*_COMPARED, *_COMBINED, *_NAMED, *_ALSO, *_ONE, "and", "or", "between", "like"]
    hint = close_names(name, names) or "."
    raise FilterError(f"filters do not have the function {name!r} of the expression{hint}")


def _operator(name: str, arguments: tuple[Node, ...]) -> Node | None:
    match arguments:
        case (only,) if name in _ONE:
            return _ONE[name](only)
        case (left, right) if name in _COMPARED:
            return tree.Compare(_COMPARED[name], left, right)
        case (left, right) if name in _COMBINED:
            return tree.Arithmetic(_COMBINED[name], left, right)
        case (left, right) if name == "and_not":
            return tree.both(left, tree.Not(right))
        case (left, pattern) if name == "like":
            return tree.Like(left, pattern)
        case (value, low, high) if name == "between":
            return tree.Between(value, low, high)
        case (lists, Literal(int() as index, kind)) if name == "list_element":
            return _element(lists, index, kind)
        case (first, *more) if name in {"and", "or"}:
            return (tree.both if name == "and" else tree.either)(first, *more)
        case _:
            return None


def _element(lists: Node, index: int, kind: pa.DataType) -> Node:
    """Build a tree for an item of a list, counted from 0."""
    if not (pa.types.is_integer(kind) and 0 <= index < _MAX_INDEX):
        raise FilterError(f"list_element: expected the number of an item, from 0, found {index}")
    return tree.Subscript(lists, Literal(index + 1, pa.int64()))


def _infinite(node: Node) -> Node:
    infinity = float("inf")
    return tree.InList(node, tuple(Literal(value, pa.float64()) for value in (infinity, -infinity)))


def _finite(node: Node) -> Node:
    return tree.Not(tree.either(_infinite(node), tree.Call("isnan", (node,))))


def _replacing(old: str, new: str) -> Callable[[Node], Node]:
    """Return a function that builds a replacement of letters in strings."""
    letters = Literal(old, pa.string()), Literal(new, pa.string())
    return lambda node: tree.Call("translate", (node, *letters))


def _trimming(side: str) -> Callable[[Node], Node]:
    """Return a function that builds a trim of all white space; SQL's functions trim spaces."""
    letters = Literal(_SPACES, pa.string())
    return lambda node: tree.Call(side, (node, letters))


_SPACES = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_UNKNOWN = Literal(None, pa.bool_())
_ONE: dict[str, Callable[[Node], Node]] = {
    "not": tree.Not,
    "invert": tree.Not,
    "is_null": tree.IsNull,
    "is_valid": lambda node: tree.IsNull(node, negated=True),
    "is_not_null": lambda node: tree.IsNull(node, negated=True),
    "true_unless_null": lambda node: tree.Or(
        (tree.IsNull(node, negated=True), Literal(None, pa.bool_()))
    ),
    "is_true": lambda node: tree.IsTruth(node, True),
    "is_false": lambda node: tree.IsTruth(node, False),
    "is_not_true": lambda node: tree.IsTruth(node, True, negated=True),
    "is_not_false": lambda node: tree.IsTruth(node, False, negated=True),
    "negate": tree.Negative,
    "ascii_lower": _replacing(ascii_uppercase, ascii_lowercase),
    "ascii_upper": _replacing(ascii_lowercase, ascii_uppercase),
    "utf8_trim_whitespace": _trimming("btrim"),
    "utf8_ltrim_whitespace": _trimming("ltrim"),
    "utf8_rtrim_whitespace": _trimming("rtrim"),
    "is_finite": _finite,
    "is_infinite": _infinite,
    "is_inf": _infinite,
}


Options = dict[str, Any]
Built = tuple[Node, int]
"""A tree and its depth."""


def from_arrow(expression: pc.Expression) -> Node:
    """Convert a pyarrow expression to a tree.

    Raises
    ------
    FilterError
        The filter language lacks a function or an option of the expression.
    """
    steps, batch = _pickled(expression)
    if len(steps) > MAX_NODES:
        raise FilterError(f"the expression has more than {MAX_NODES} parts")
    open_calls: list[tuple[str, list[Built], Options]] = [("", [], {})]
    rest = iter(steps)
    for key, value in rest:
        name, arguments, options = open_calls[-1]
        match key:
            case "call":
                open_calls.append((value, [], {}))
            case "options":
                options.update(_options(batch.column(int(value))))
            case "end":
                open_calls.pop()
                above, siblings, _ = open_calls[-1]
                if above == name and name in _CHAINS:  # join to one AND, in linear time
                    open_calls[-1] = (above, _joined(siblings, arguments), {})
                else:
                    siblings.append(_call(name, arguments, options))
            case "literal":
                arguments.append((Literal.of(batch.column(int(value))[0]), 1))
            case "field_ref":
                arguments.append((tree.Name((value,), exact=True), 1))
            case "nested_field_ref":
                arguments.append((_nested(rest, int(value)), 1))
            case _:
                raise FilterError(f"the expression has an unknown part {key!r}")
    return open_calls[0][1][0][0]


def choice(test: Node, yes: Node, no: Node) -> Node:
    """Build ``if_else`` with boolean results; an unknown test counts as false."""
    return tree.either(
        tree.both(tree.IsTruth(test, True), yes),
        tree.both(tree.IsTruth(test, True, negated=True), no),
    )


def _joined(before: list[Built], more: list[Built]) -> list[Built]:
    if not before:
        return more
    before.extend(more)
    return before


def _nested(rest: Iterator[tuple[str, str]], count: int) -> Node:
    parts = [next(rest) for _ in range(count)]
    if any(key != "field_ref" for key, _ in parts):
        raise FilterError("refer to members of structs by name: pc.field('a', 'b')")
    return tree.Name(tuple(name for _, name in parts), exact=True)


def _options(column: Any) -> Options:
    """Return the options of a call; the target of a cast is the type of its column."""
    values: Options = {}
    for i, member in enumerate(column.type):
        values[member.name] = member.type if member.name == "to_type" else column.field(i)[0]
    return values


def _call(name: str, arguments: list[Built], options: Options) -> Built:
    nodes = [node for node, _ in arguments]
    special = _WITH_OPTIONS.get(name)
    if special is not None:
        try:
            call = special(nodes, options)
        except KeyError as missing:
            raise FilterError(f"the function {name!r} lacks option {missing}") from None
    else:
        option_type = options["_type_name"].as_py().decode() if options else ""
        if option_type not in _HARMLESS:
            raise FilterError(f"filters do not have the function {name!r} with {option_type}")
        call = choice(*nodes) if name == "if_else" and len(nodes) == 3 else build_call(name, nodes)
    flat = isinstance(call, tree.And | tree.Or)
    # An AND within an AND has the same level.
    depth = max((deep - (flat and type(node) is type(call)) for node, deep in arguments), default=0)
    if depth >= MAX_DEPTH:
        raise FilterError(f"the expression is nested deeper than {MAX_DEPTH} levels")
    return call, depth + 1


_CHAINS = {"and_kleene", "or_kleene"}
_HARMLESS = {"", "ArithmeticOptions", "ScalarAggregateOptions"}
"""Options that leave the result the same."""


def _in(nodes: list[Node], options: Options) -> Node:
    values = options["value_set"].values
    if pa.types.is_dictionary(values.type):
        check_indices(values, "the values of is_in")
        values = decode_dictionary(values)
    nulls = options["null_matching_behavior"].as_py() if values.null_count else _SQL
    if nulls in (_MATCHED, _SKIPPED):  # in Python, because Arrow fails to filter views
        values = [value for value in values if value.is_valid]
    among = tree.InList(nodes[0], tuple(Literal.of(value) for value in values))
    return tree.either(tree.IsNull(nodes[0]), among) if nulls == _MATCHED else among


_MATCHED, _SKIPPED, _SQL = 0, 1, 3
"""Effect of a null among the values of ``is_in``: it matches nulls, is skipped, or is unknown."""


def _null(nodes: list[Node], options: Options) -> Node:
    null = tree.IsNull(nodes[0])
    nan_is_null = options.get("nan_is_null")  # options may be absent
    if nan_is_null is not None and nan_is_null.as_py():
        return tree.either(null, tree.Call("isnan", (nodes[0],)))
    return null


def _pattern(options: Options) -> str:
    try:
        pattern = options["pattern"].as_py()
        return pattern.decode() if isinstance(pattern, bytes) else str(pattern)
    except UnicodeDecodeError as error:
        raise FilterError(f"the pattern {error.object!r:.80} is not UTF-8: {error}") from None


def _like(before: str, after: str, *, plain: bool = True) -> Callable[[list[Node], Options], Node]:
    def build(nodes: list[Node], options: Options) -> Node:
        pattern = _pattern(options)
        if plain:
            for special in "\\%_":
                pattern = pattern.replace(special, f"\\{special}")
        text = Literal(f"{before}{pattern}{after}", pa.string())
        return tree.Like(nodes[0], text, ignore_case=options["ignore_case"].as_py())

    return build


def _regex(nodes: list[Node], options: Options) -> Node:
    text = _pattern(options)
    flags = [Literal("i", pa.string())] if options["ignore_case"].as_py() else []
    return tree.Call("regexp_like", (nodes[0], Literal(text, pa.string()), *flags))


_WITH_OPTIONS: dict[str, Callable[[list[Node], Options], Node]] = {
    "is_in": _in,
    "cast": lambda nodes, options: tree.Cast(nodes[0], options["to_type"]),
    "is_null": _null,
    "match_like": _like("", "", plain=False),
    "match_substring": _like("%", "%"),
    "starts_with": _like("", "%"),
    "ends_with": _like("%", ""),
    "match_substring_regex": _regex,
}


def _pickled(expression: pc.Expression) -> tuple[list[tuple[str, str]], Any]:
    """Return the pickled steps in order, and their batch of one row."""
    pickled: Any = expression.__reduce__()  # a function and its arguments
    batch: Any = pa.ipc.open_file(pickled[1][0]).get_batch(0)
    # Keys repeat: pyarrow's schema object drops repeated keys, the exported schema keeps them.
    steps = [(key.decode(), value.decode()) for key, value in exported_metadata(batch.schema)]
    return steps, batch


# --- Decode messages of the Protocol Buffers wire format, one level at a time -----------
#
# Substrait nests three messages per operator, and protobuf runtimes stop at a hundred levels. This
# decoder reads nested messages on demand, so that the caller limits the depth.

Raw = int | bytes | memoryview
Message = dict[int, list[Raw]]
"""Values by field number, in order: varints as integers, other values as bytes."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_COPIED_BYTES = 256
"""Longer values are views: copying nested messages takes time quadratic in their depth."""

_WORD_MASK = (1 << 64) - 1
"""Varints may have 70 bits; like other decoders, this one keeps the lowest 64."""


def read_message(raw: Raw) -> Message:
    """Decode a message.

    Raises
    ------
    FilterError
        The bytes are an invalid message.
    """
    if isinstance(raw, int):
        raise FilterError("the Substrait bytes are damaged: a number instead of a message")
    raw = memoryview(raw)
    message: Message = {}
    at, end = 0, len(raw)
    while at < end:
        key, at = _varint(raw, at)
        wire_type = key & 7
        value: Raw
        if wire_type == _VARINT:
            value, at = _varint(raw, at)
        else:
            size, at = _size(raw, at, wire_type)
            value = raw[at : at + size]
            if size <= _MAX_COPIED_BYTES:
                value = bytes(value)
            at += size
            if at > end:
                raise FilterError("the Substrait bytes are damaged: they end within a value")
        message.setdefault(key >> 3, []).append(value)
    return message


def _size(raw: memoryview, at: int, wire_type: int) -> tuple[int, int]:
    if wire_type == _BYTES:
        return _varint(raw, at)
    if wire_type == _FIXED64:
        return 8, at
    if wire_type == _FIXED32:
        return 4, at
    raise FilterError(f"the Substrait bytes are damaged: wire type {wire_type} does not exist")


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw) and shift < 64:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _WORD_MASK, at
        shift += 7
    raise FilterError("the Substrait bytes are damaged: a varint is not terminated")


def as_message(message: Message, number: int) -> Message:
    """Return the message in a field; an empty message if the field is absent."""
    values = message.get(number)
    return read_message(values[-1]) if values else {}


def as_int(message: Message, number: int) -> int:
    """Return the signed integer in a field; 0 if it is absent."""
    values = message.get(number)
    value = values[-1] if values else 0
    if not isinstance(value, int):
        raise FilterError("the Substrait bytes are damaged: a number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def as_bytes(message: Message, number: int) -> bytes:
    """Return the bytes in a field."""
    values = message.get(number)
    value = values[-1] if values else b""
    if isinstance(value, int):
        raise FilterError("the Substrait bytes are damaged: bytes were expected")
    return bytes(value)


def as_text(message: Message, number: int) -> str:
    """Return the string in a field."""
    try:
        return as_bytes(message, number).decode()
    except UnicodeDecodeError:
        raise FilterError("the Substrait bytes are damaged: a string is not UTF-8") from None


def as_float(message: Message, number: int) -> float:
    """Return the float of 4 or 8 bytes in a field."""
    raw = as_bytes(message, number)
    if not raw:
        return 0.0
    if len(raw) not in (4, 8):
        raise FilterError(f"the Substrait bytes are damaged: a float of {len(raw)} bytes")
    value: float = struct.unpack("<d" if len(raw) == 8 else "<f", raw)[0]
    return value


# --- Convert Substrait expressions; numbers are field numbers of its messages ----------

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
_DECIMAL_BYTES = 16
_BITS = {2: 8, 3: 16, 5: 32, 7: 64, 16: 32}
"""Bits of integers and dates, which the wire format writes as integers of any size."""
_NO_COLUMN = frozenset((3, 5, 6))
"""References into other expressions, to outer rows of a subquery, and to parameters."""
_LISTED = {"and": tree.both, "or": tree.either}


def read_substrait(raw: bytes) -> Node:
    """Convert the single expression in an ``ExtendedExpression`` to a tree.

    Raises
    ------
    FilterError
        The bytes are damaged, or have another number of expressions than 1. Or they use something
        that filters lack.
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
"""Names, and the members of structs (``None`` for other types)."""


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
            # Consume the names of nested fields, although expressions refer only to columns.
            for part in parts:
                _children(as_message(as_message(message, number), part), names, depth + 1)
    return None


class _Reader:
    """Reader of one expression, with functions and columns by number."""

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
                raise FilterError(f"the Substrait bytes are damaged: column {index} does not exist")
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
        return build_call(name, [self.read(argument) for argument in _arguments(call)])

    def _name(self, call: Message) -> str:
        name = self.functions.get(as_int(call, 1))
        if name is None:
            raise FilterError("the Substrait bytes are damaged: a function is not declared")
        return name

    def _chain(self, call: Message, name: str) -> list[Message]:
        """Return the operands of nested ANDs of any depth, in order."""
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
        """Build ``if_else`` with boolean results."""
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
    if digits not in UNIT_OF_DIGITS:
        raise FilterError(f"timestamps have 0, 3, 6 or 9 digits of a second, not {digits}")
    return UNIT_OF_DIGITS[digits]


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
    return _time_literal(message)


def _whole(message: Message, number: int) -> int:
    """Return the integer in a field; raise if it exceeds the bits of its type."""
    value = as_int(message, number)
    half = 1 << (_BITS.get(number, 64) - 1)
    if not -half <= value < half:
        raise FilterError(
            f"the Substrait bytes are damaged: a constant of {_BITS[number]} bits is {value}"
        )
    return value


def _time_literal(message: Message) -> Literal:
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
        if len(raw) > _DECIMAL_BYTES:  # converting many digits takes quadratic time
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


# --- Compare floats of a column with constants of pyarrow expressions: NaN is the largest ---
#
# DuckDB and Polars treat all NaNs as one value, greater than all numbers. They trust the rows that
# a source returns for a test. Text filters of glaive order a NaN with the sign bit, which ``0 / 0``
# yields, below all numbers. Tests for smaller values therefore get a lower bound. Tests for greater
# values stay one range, because statistics and encoded pages answer only one.


def compared_floats(node: Node, op: str, column: Name, constant: Literal, kind: Any) -> Node:
    """Return a comparison of a column with a constant; ``node`` itself if NaNs are irrelevant.

    Parameters
    ----------
    node
        The comparison as a tree.
    kind
        Type of the column.
    """
    value = constant.value
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or not pa.types.is_floating(kind):
        return node
    if isnan(value):
        if op in (">", "<="):
            return Compare("=" if op == "<=" else "!=", column, column, at=node.at)
        return _numbers(column, kind, negated=op in ("=", ">="))
    if op in ("<", "<="):
        return tree.both(Compare(">=", column, Literal(-inf, kind)), node, at=node.at)
    return node


def all_of(operands: Iterable[Node], at: int) -> Node:
    """Return the AND of tests; drop bounds against NaN that other tests of the column imply."""
    joined = tree.both(*operands, at=at)
    if not isinstance(joined, tree.And):
        return joined
    bounded: set[Node] = set()
    kept: list[Node] = []
    for test in sorted(joined.operands, key=_is_no_nan):
        match test:
            case Compare(">=" | ">", Name() as column, Literal()):
                if _is_no_nan(test) and column in bounded:
                    continue
                bounded.add(column)
        kept.append(test)
    return tree.both(*kept, at=at)


def _is_no_nan(test: Node) -> bool:
    match test:
        case Compare(">=", Name(), Literal(value)):
            return bool(value == -inf)
    return False


def among_floats(node: InList, column: Name, kind: Any) -> Node:
    """Return a test for constants of a list; ``node`` itself if all differ from NaN."""
    if not pa.types.is_floating(kind):
        return node
    others = tuple(item for item in node.items if not _is_nan(item))
    if len(others) == len(node.items):
        return node
    nans = _numbers(column, kind, negated=True)
    found = tree.either(InList(column, others), nans, at=node.at) if others else nans
    return tree.Not(found, at=node.at) if node.negated else found


def _numbers(column: Name, kind: Any, *, negated: bool) -> Node:
    """Test whether a value is a number or infinite; with ``negated``, whether it is NaN."""
    return tree.Between(column, Literal(-inf, kind), Literal(inf, kind), negated)


def _is_nan(item: Node) -> bool:
    return isinstance(item, Literal) and isinstance(item.value, float) and isnan(item.value)


# --- Constants of pyarrow expressions that the type of a column lacks -------------------
#
# Engines give constants in their own types: DuckDB uses microseconds for timestamps with a time
# zone, and float for half floats. glaive replaces a constant between two values of a column by the
# lower value. The result is the same, and indices and statistics can answer the test.

_BETWEEN: Final = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}
"""Comparisons with a constant, and with the greatest column value below the constant."""


def convert_constants(node: Node, names: Names) -> Node:
    """Convert constants in tests to the types of the columns that they are compared with.

    Converts floats compared with half floats, and times in other units; all else stays. NaNs follow
    the rules of engines, see above.
    """
    match node:
        case tree.And(operands):
            return all_of((convert_constants(one, names) for one in operands), node.at)
        case tree.Or(operands):
            return tree.Or(tuple(convert_constants(one, names) for one in operands), at=node.at)
        case tree.Not(operand):
            return tree.Not(convert_constants(operand, names), at=node.at)
        case tree.IsTruth(operand, truth, negated):
            return tree.IsTruth(convert_constants(operand, names), truth, negated, at=node.at)
        case tree.IsNull(operand, negated):
            return tree.IsNull(convert_constants(operand, names), negated, at=node.at)
        case tree.Compare(op, tree.Name() as column, Literal() as constant) if op in FLIPPED:
            return _compared(node, op, column, constant, names)
        case tree.Compare(op, Literal() as constant, tree.Name() as column) if op in FLIPPED:
            return _compared(node, FLIPPED[op], column, constant, names)
        case tree.InList(tree.Name() as column, items):
            return _in_list(node, column, items, names)
        case _:
            return node


def _compared(node: Node, op: str, column: tree.Name, constant: Literal, names: Names) -> Node:
    kind = names.bind(column)[1]
    found = _round_down(constant, kind)
    if found is not None:
        constant, exact = found
        if not exact and op not in _BETWEEN:
            return _test_of_valid(column, truth=op == "!=")
        op = op if exact else _BETWEEN[op]
        node = tree.Compare(op, column, constant, at=node.at)
    return compared_floats(node, op, column, constant, kind)


def _in_list(node: tree.InList, column: tree.Name, items: Any, names: Names) -> Node:
    kind = names.bind(column)[1]
    if not items or not all(
        isinstance(item, Literal) and _converts(item.type, kind) for item in items
    ):
        return among_floats(node, column, kind)
    found = [(item, True) if item.is_null else _round_down(item, kind) for item in items]
    if None in found:
        return among_floats(node, column, kind)
    held = tuple(pair[0] for pair in found if pair is not None and pair[1])
    if not held:
        return _test_of_valid(column, truth=node.negated)
    return among_floats(tree.InList(column, held, node.negated, at=node.at), column, kind)


def _test_of_valid(column: tree.Name, *, truth: bool) -> Node:
    """Build a test with this result for all values except null, for which it is unknown."""
    return tree.Compare("=" if truth else "!=", column, column)


def _converts(constant: Any, kind: Any) -> bool:
    """Return whether this module converts constants of a type for a column."""
    types = pa.types
    if constant == kind:
        return False
    if types.is_timestamp(constant) and types.is_timestamp(kind):
        return (constant.tz is None) == (kind.tz is None)
    return (types.is_time(constant) and types.is_time(kind)) or (
        types.is_float32(constant) and types.is_float16(kind)
    )


def _round_down(constant: Literal, kind: Any) -> tuple[Literal, bool] | None:
    """Return the greatest value of a type up to a constant, and whether it equals the constant.

    ``None`` if the constant is unchanged: it is null, of another type, or outside of the type's
    range.
    """
    if constant.is_null or not _converts(constant.type, kind):
        return None
    if pa.types.is_float16(kind):
        with np.errstate(over="ignore"):
            half = float(np.float16(constant.value))
        if half > constant.value:
            half = float(np.nextafter(np.float16(half), np.float16(-inf)))
        # A constant NaN stays NaN.
        return Literal(half, kind, at=constant.at), not half < constant.value
    given: Any = constant.type
    number, rest = divmod(constant.value * PER_SECOND[kind.unit], PER_SECOND[given.unit])
    bound = 1 << (kind.bit_width - 1)
    if not -bound <= number < bound:
        return None
    return Literal(number, kind, at=constant.at), not rest
