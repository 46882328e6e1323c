"""Bind a tree: resolve columns, convert constants to the types they are compared in, add casts.

The bound tree has the same classes except :class:`Name`, and operands agree in type: only binding
needs type rules.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.extensions import GeometryType, as_geometries, geometry_type
from glaive.errors import FilterColumnError, FilterError
from glaive.expr import coerce, tree
from glaive.expr.coerce import plain, type_text
from glaive.expr.constants import ConstantList, as_column, list_as, list_as_column
from glaive.expr.functions import registry
from glaive.expr.parse import close_names, failure, parse, position_text
from glaive.expr.tree import Literal, Node
from glaive.format.extension import storage_type
from glaive.format.field import quoted_name
from glaive.format.fields import LanceSchema

# --- Resolve names of a filter to columns of a schema -----------------------------------
# The first part of a name ignores case unless quoted; struct members are case-sensitive.

_DOUBTFUL: Final = re.compile(
    r"""\"|'\s*(?:[=<>!]|(?:not|in|like|ilike|between|is)\b)""", re.IGNORECASE
)
"""A string in double quotes, or a string before an operator: few filters have either."""

_BY_KEY: Final = ("json_", "get_field", "map_extract", "element_at")
"""Prefixes of functions whose later arguments are keys or paths."""

_COMPARING: Final = (tree.Compare, tree.InList, tree.Between, tree.Like)


def check_column_texts(schema: LanceSchema, *sources: object, warn: bool = False) -> None:
    """Refuse expressions with a string that is the name of a column.

    ``"name" = 'x'`` compares two strings, as in pylance; in SQL, ``"name"`` is a column.
    Only expressions that are strings are checked.

    Parameters
    ----------
    warn
        Warn the caller of glaive once, instead of raising.

    Raises
    ------
    FilterError
        The message says how to write the column, and how to write the string.
    """
    doubt = next(filter(None, (_column_text(source, schema) for source in sources)), None)
    if doubt is not None and not warn:
        raise doubt
    if doubt is not None:
        frame, level = inspect.currentframe(), 1
        while frame and frame.f_globals.get("__name__", "").startswith("glaive."):
            frame, level = frame.f_back, level + 1
        warnings.warn(doubt.args[0], UserWarning, stacklevel=level)


def _column_text(source: object, schema: LanceSchema) -> FilterError | None:
    """Return the error for the first string that is the name of a column."""
    if not isinstance(source, str) or not _DOUBTFUL.search(source):
        return None
    members, texts = set(), dict[int, tree.Literal]()
    for node in tree.walk(parse(source)):
        sides = tuple(tree.children(node))
        if isinstance(node, tree.Subscript):  # s["x"] is the member x
            members.add(node.index.at)
        elif isinstance(node, tree.Call) and node.name.startswith(_BY_KEY):
            members |= {side.at for side in sides[1:]}
        elif isinstance(node, _COMPARING) and all(isinstance(side, tree.Literal) for side in sides):
            texts |= {side.at: side for side in sides if isinstance(side, tree.Literal)}
        elif isinstance(node, tree.Literal) and source[node.at] == '"':
            texts[node.at] = node
    for at in sorted(texts.keys() - members):
        column = _column_named(texts[at].value, schema)
        if column is not None:
            problem = f"{texts[at].value!r} is a text, and a column has this name: write {column}"
            remedy = "for the column, and the text in single quotes beside a column for the text"
            return failure(f"{problem} {remedy}", source, at)
    return None


def _column_named(text: object, schema: LanceSchema) -> str | None:
    """Return the column or member that a string names, as written in expressions."""
    if not isinstance(text, str) or text.partition(".")[0].lower() not in schema.by_lower_name:
        return None
    try:
        column: Any = Names(schema, {}, "").bind(tree.Name(tuple(text.split("."))))[0]
    except FilterError:
        return None
    return quoted_name(column.path) if column.path in schema.by_name else column.path


class Names:
    """The columns of a schema and the system columns, by name."""

    def __init__(self, schema: LanceSchema, system: Mapping[str, pa.DataType], text: str) -> None:
        # Use the schema's own lookups: a scan may bind an expression per column.
        self.schema, self.fields = schema, schema.by_name
        self.system, self.text = system, text

    def is_top(self, name: tree.Name) -> bool:
        """Return whether a name is a column instead of a struct member."""
        return len(name.parts) == 1

    def bind(self, name: tree.Name) -> tuple[Node, Any]:
        """Return the column and its type."""
        first, *members = name.parts
        column = self._first(first, exact=name.exact)
        if column is None:
            raise self._unknown("Columns", first, [*self.fields, *self.system], name.at)
        field = self.fields.get(column)
        if field is None:
            bound: Node = tree.Column(column, self.system[column], at=name.at)
            kind: Any = self.system[column]
        else:
            kind = storage_type(field.to_arrow().type)
            bound = tree.Column(column, kind, field.id, at=name.at)
        for member in members:
            bound, kind = self.member(bound, kind, member, name.at)
        return bound, plain(kind)

    def _first(self, name: str, *, exact: bool) -> str | None:
        if name in self.fields or name in self.system:
            return name
        if exact:
            return None
        lower = name.lower()
        field = self.schema.by_lower_name.get(lower)
        if field is not None:
            return field.name
        return next((other for other in self.system if other.lower() == lower), None)

    def member(self, operand: Node, kind: Any, name: str, at: int) -> tuple[Node, Any]:
        """Return a member of a struct: a ``Column`` if the struct is one, else a ``Member``."""
        if not pa.types.is_struct(kind):
            raise failure(f"{type_text(kind)} has no members; quote names: `a.b`", self.text, at)
        index = kind.get_field_index(name)
        if index < 0:
            raise self._unknown("Members", name, [member.name for member in kind], at)
        member_type = storage_type(kind.field(index).type)
        if not isinstance(operand, tree.Column):
            return tree.Member(operand, name, at=at), plain(member_type)
        path = f"{self._above(operand.path)}.{self._quoted(operand.path, name)}"
        column = tree.Column(path, member_type, self._id(operand.field_id, name), at=at)
        return column, plain(member_type)

    def geometry_type(self, column: tree.Column) -> GeometryType | None:
        """Return the geometry type of a column: from its metadata, or as strings or bytes."""
        for field in self.fields.values():
            for node in field.walk():
                if node.id == column.field_id:
                    message = geometry_type(node.to_arrow(), column.path)
                    return message or as_geometries(column.type, column.path)
        return None

    def _above(self, path: str) -> str:
        """Return the path of a struct as a prefix for members; a column's path is its name."""
        return quoted_name(path) if "`" in path and path in self.fields else path

    def _quoted(self, above: str, name: str) -> str:
        plain = "." not in name and "`" not in name and f"{above}.{name}" not in self.fields
        return name if plain else quoted_name(name)

    def _id(self, above: int, name: str) -> int:
        for field in self.fields.values():
            for node in field.walk():
                if node.id == above:
                    return next(child.id for child in node.children if child.name == name)
        return -1

    def _unknown(self, listing: str, name: str, known: Sequence[str], at: int) -> FilterError:
        listed = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        hint = close_names(name, known) or "."
        if hint == "." and self.text[at + len(name) : at + len(name) + 1] != ".":
            hint = f"; a string needs quotes: '{name}'."
        position = position_text(self.text, at)
        return FilterColumnError(f"No field named {name}{hint} {listing}: {listed}{position}")


Bound = tuple[Node, Any]
"""A bound tree and the type of its values."""


def bind(
    node: Node, schema: LanceSchema, *, system: Mapping[str, pa.DataType], text: str, test: bool
) -> Bound:
    """Bind a tree to a schema.

    Parameters
    ----------
    system
        Columns that exist only in reads, such as ``_rowid``, and their types.
    text
        Source text for errors; may be empty.
    test
        The expression is a filter, and must be boolean.

    Raises
    ------
    FilterError
        A name, type or constant is wrong; the message says where.
    """
    binder = _Binder(Names(schema, system, text), text)
    bound, kind = binder.bind(binder.as_columns(_as_tests(node) if test else node))
    if not test:
        return bound, _public_type(bound, kind)
    if not pa.types.is_boolean(kind):
        raise failure(
            f"the filter does not return a boolean: its value is {type_text(kind)}; compare it "
            "with another value, such as a > 1",
            text,
            node.at,
        )
    return bound, kind


def _as_tests(node: Node) -> Node:
    """Convert calls of ``regexp_match`` that are used as a test to ``IS NOT NULL`` tests."""
    match node:
        case tree.And(operands) | tree.Or(operands):
            return type(node)(tuple(_as_tests(operand) for operand in operands), at=node.at)
        case tree.Not(operand):
            return tree.Not(_as_tests(operand), at=node.at)
        case tree.Call("regexp_match"):
            return tree.IsNull(node, True, at=node.at)
        case _:
            return node


class _Binder:
    """Binder of one tree; ``calls`` is the number of calls around the current node."""

    def __init__(self, names: Names, text: str) -> None:
        self.names, self.text = names, text
        self.calls = 0

    def wrong(self, problem: str, node: Node) -> FilterError:
        return failure(problem, self.text, node.at)

    def as_columns(self, node: Node) -> Node:
        """Convert constants that are compared with a column, at the top of a filter."""
        match node:
            case tree.And(operands) | tree.Or(operands):
                parts = tuple(self.as_columns(operand) for operand in operands)
                return type(node)(parts, at=node.at)
            case tree.Compare(op, left, right) | tree.Arithmetic(op, left, right):
                kind = self.column_type(left)
                if kind is not None:
                    return type(node)(op, left, self.fitted(right, kind), at=node.at)
                kind = self.column_type(right)
                if kind is not None and isinstance(left, Literal | tree.ListOf):
                    return type(node)(op, self.fitted(left, kind), right, at=node.at)
            case tree.Between(operand, low, high, negated):
                kind = self.column_type(operand)
                if kind is not None:
                    low, high = (self.fitted(bound, kind, deep=True) for bound in (low, high))
                    return tree.Between(operand, low, high, negated, at=node.at)
            case tree.InList(tree.Name() as operand, items, negated):
                kind = self.column_type(operand)
                if kind is not None and self.names.is_top(operand):
                    fitted = isinstance(items, ConstantList) and list_as_column(items, kind)
                    fitted = fitted or tuple(self.fitted(item, kind, deep=True) for item in items)
                    return tree.InList(operand, fitted, negated, at=node.at)
        return node

    def column_type(self, node: Node) -> Any | None:
        """Return the type of a column or a member; ``None`` for other nodes."""
        inner = node
        while isinstance(inner, tree.Subscript | tree.Member):
            if isinstance(inner, tree.Subscript) and not _is_name(inner.index):
                return None
            inner = inner.operand
        return self.bind(node)[1] if isinstance(inner, tree.Name) else None

    def fitted(self, node: Node, kind: Any, *, deep: bool = False) -> Node:
        """Convert constants, also within arithmetic on constants, to the type of a column.

        With ``deep``, also convert within arithmetic on columns, as in BETWEEN and IN.
        """
        if isinstance(node, tree.Arithmetic) and (deep or _is_constant(node)):
            left = self.fitted(node.left, kind, deep=deep)
            right = self.fitted(node.right, kind, deep=deep)
            return tree.Arithmetic(node.op, left, right, at=node.at)
        literal = self.list_of(node) if isinstance(node, tree.ListOf) else node
        if not isinstance(literal, Literal) or _is_typed(literal):
            return node
        fitted = as_column(literal, kind)
        if fitted is None:
            raise self.wrong(
                f"the constant {_short(literal)} of type {type_text(literal.type)} does not fit "
                f"the column's type {type_text(coerce.plain(kind))}; "
                f"{coerce.suggestion_for(literal.value, kind)}",
                node,
            )
        return fitted

    def bind(self, node: Node) -> Bound:  # noqa: C901, PLR0911, PLR0912  # a case for each class
        match node:
            case tree.Name():
                return self.names.bind(node)
            case tree.Column() | Literal():
                return node, coerce.plain(node.type)
            case tree.ListOf(items):
                if self.calls and not all(isinstance(item, Literal) for item in items):
                    return self.call(tree.Call("make_array", items, at=node.at))
                literal = self.list_of(node)
                return literal, literal.type
            case tree.Compare():
                return self.compare(node)
            case tree.Arithmetic():
                return self.arithmetic(node)
            case tree.Negative():
                return self.negative(node)
            case tree.And(operands):
                return tree.both(
                    *(self.test(operand) for operand in operands), at=node.at
                ), pa.bool_()
            case tree.Or(operands):
                return tree.either(
                    *(self.test(operand) for operand in operands), at=node.at
                ), pa.bool_()
            case tree.Not(operand):
                return tree.Not(self.test(operand), at=node.at), pa.bool_()
            case tree.IsNull(operand, negated):
                return tree.IsNull(self.bind(operand)[0], negated, at=node.at), pa.bool_()
            case tree.IsTruth(operand, truth, negated):
                return tree.IsTruth(self.test(operand), truth, negated, at=node.at), pa.bool_()
            case tree.InList():
                return self.in_list(node)
            case tree.Between():
                return self.between(node)
            case tree.Like():
                return self.like(node)
            case tree.Cast(operand, kind, attempt):
                return tree.Cast(self.bind(operand)[0], kind, attempt, at=node.at), kind
            case tree.Call():
                return self.call(node)
            case tree.Member(operand, name):
                return self.names.member(*self.bind(operand), name, node.at)
            case tree.Subscript():
                return self.subscript(node)

    def test(self, node: Node) -> Node:
        """Bind an operand of AND, OR or NOT."""
        bound, kind = self.bind(node)
        if pa.types.is_null(kind):
            return Literal(None, pa.bool_(), at=node.at)
        if not pa.types.is_boolean(kind):
            raise self.wrong(
                f"expected a boolean, found {type_text(kind)}; compare it with a value", node
            )
        return bound

    def common(self, op: str, sides: Sequence[Bound], node: Node) -> tuple[list[Node], Any]:
        """Cast operands to their common type; return that type, too."""
        kind = self.common_type(op, sides, node)
        return [_cast(side, source, kind) for side, source in sides], kind

    def common_type(self, op: str, sides: Sequence[Bound], node: Node) -> Any:
        """Return the type that operands are compared as."""
        kind = sides[0][1]
        for _, other in sides[1:]:
            common = coerce.comparison(kind, other)
            if common is None:
                raise self.wrong(
                    f"{op}: {type_text(kind)} and {type_text(other)} cannot be compared; "
                    "cast one of the two",
                    node,
                )
            kind = common
        return kind

    def compare(self, node: tree.Compare) -> Bound:
        sides = [self.bind(node.left), self.bind(node.right)]
        (left, right), _ = self.common(node.op, sides, node)
        return tree.Compare(node.op, left, right, at=node.at), pa.bool_()

    def between(self, node: tree.Between) -> Bound:
        sides = [self.bind(part) for part in (node.operand, node.low, node.high)]
        # As in Lance: find the type of the operand and each bound, then the type of both.
        kinds = [self.common_type("BETWEEN", [sides[0], side], node) for side in sides[1:]]
        kind = self.common_type("BETWEEN", [(node, one) for one in kinds], node)
        operand, low, high = (_cast(side, source, kind) for side, source in sides)
        ops = ("<", ">") if node.negated else (">=", "<=")
        tests = (
            tree.Compare(ops[0], operand, low, at=node.at),
            tree.Compare(ops[1], operand, high, at=node.at),
        )
        join = tree.either if node.negated else tree.both
        return join(*tests, at=node.at), pa.bool_()

    def in_list(self, node: tree.InList) -> Bound:
        if isinstance(node.items, ConstantList):
            sides = [self.bind(node.operand), self.bind(node.items[0])]
            (operand, _), kind = self.common("IN", sides, node)
            listed = list_as(node.items, kind)
            if listed is not None:
                return tree.InList(operand, listed, node.negated, at=node.at), pa.bool_()
        sides = [self.bind(part) for part in (node.operand, *node.items)]
        (operand, *items), _ = self.common("IN", sides, node)
        return tree.InList(operand, tuple(items), node.negated, at=node.at), pa.bool_()

    def like(self, node: tree.Like) -> Bound:
        operand, operand_type = self.bind(node.operand)
        pattern, pattern_type = self.bind(node.pattern)
        kinds = [
            pa.string() if pa.types.is_null(kind) or kind == pa.binary() else kind
            for kind in (operand_type, pattern_type)
        ]
        if not all(coerce.is_string(kind) for kind in kinds):
            found = f"{type_text(operand_type)} and {type_text(pattern_type)}"
            raise self.wrong(f"LIKE compares strings, not {found}; cast to string", node)
        kind = coerce.comparison(*kinds)
        return tree.Like(
            _cast(operand, operand_type, kind),
            _cast(pattern, pattern_type, kind),
            node.escape,
            node.negated,
            node.ignore_case,
            at=node.at,
        ), pa.bool_()

    def arithmetic(self, node: tree.Arithmetic) -> Bound:
        (left, first), (right, second) = self.bind(node.left), self.bind(node.right)
        types: tuple[Any, Any, Any] | None
        if node.op in {"<<", ">>", "||"}:
            rule = coerce.concatenation if node.op == "||" else coerce.shift
            first_kind = second if pa.types.is_null(first) else first
            second_kind = first if pa.types.is_null(second) else second
            kind = rule(first_kind, second_kind)
            types = None if kind is None else (kind, kind, kind)
        else:
            types = coerce.arithmetic(node.op, first, second)
        if types is None:
            joins = "it joins strings; write OR" if node.op == "||" else "cast one of the two"
            raise self.wrong(
                f"{node.op} is not defined for {type_text(first)} and {type_text(second)}; {joins}",
                node,
            )
        left, right = _cast(left, first, types[0]), _cast(right, second, types[1])
        return tree.Arithmetic(node.op, left, right, at=node.at), types[2]

    def negative(self, node: tree.Negative) -> Bound:
        operand, kind = self.bind(node.operand)
        types = pa.types
        if types.is_unsigned_integer(kind) or not (coerce.is_number(kind) or types.is_null(kind)):
            raise self.wrong(f"minus needs a signed number, not {type_text(kind)}", node)
        return tree.Negative(operand, at=node.at), kind

    def call(self, node: tree.Call) -> Bound:
        try:
            function = registry.find(node.name)
        except FilterError as error:
            if node.name in registry.AGGREGATES:
                raise self.wrong(f"{node.name} is an aggregate; compute it in SQL", node) from None
            raise self.wrong(str(error), node) from None
        self.calls += 1
        sides = [self.bind(argument) for argument in node.arguments]
        self.calls -= 1
        literals = [bound.scalar() if isinstance(bound, Literal) else None for bound, _ in sides]
        try:
            argument_types, kind = function.resolve(
                [self.argument_type(function, *side) for side in sides], literals
            )
        except FilterError as error:
            raise self.wrong(str(error), node) from None
        arguments = tuple(
            _cast(bound, source, to if isinstance(to, GeometryType) else coerce.plain(to))
            for (bound, source), to in zip(sides, argument_types, strict=True)
        )
        return tree.Call(function.name, arguments, kind, at=node.at), coerce.plain(kind)

    def argument_type(self, function: registry.Function, node: Node, kind: Any) -> Any:
        """Return the type of an argument for a function; geometries with their layout."""
        if function.geometries:
            known = node.type if isinstance(node, tree.Call) else None
            if isinstance(node, tree.Column):
                known = self.names.geometry_type(node)
            if isinstance(known, GeometryType):
                return known
        return _public_type(node, kind)

    def subscript(self, node: tree.Subscript) -> Bound:
        operand, kind = self.bind(node.operand)
        types = pa.types
        if types.is_struct(kind) and _is_name(node.index):
            return self.names.member(operand, kind, node.index.value, node.at)  # type: ignore[union-attr]  # a literal
        if not coerce.is_list(kind, fixed=True):
            hint = "; call map_extract(map, key)[1]" if types.is_map(kind) else ""
            raise self.wrong(
                f"{type_text(kind)} has no elements; only lists and structs do{hint}", node
            )
        index, index_type = self.bind(node.index)
        if not types.is_integer(index_type):
            found = type_text(index_type)
            raise self.wrong(f"a list is subscripted by an integer, not {found}", node)
        subscript = tree.Subscript(operand, _cast(index, index_type, pa.int64()), at=node.at)
        return subscript, coerce.plain(kind.value_type)

    def list_of(self, node: tree.ListOf) -> Literal:
        items = [self.bind(item)[0] for item in node.items]
        kinds = []
        for source, item in zip(node.items, items, strict=True):
            if not isinstance(item, Literal):
                raise self.wrong("list items must be constants", source)
            if not item.is_null:
                kinds.append(item.type)
        if len(set(kinds)) > 1:
            mixed = f"{type_text(kinds[0])} and {type_text(kinds[1])}"
            raise self.wrong(f"a list cannot hold both {mixed}", node)
        kind = kinds[0] if kinds else pa.null()
        values = tuple(item.value for item in items if isinstance(item, Literal))
        return Literal(values, pa.list_(kind), at=node.at)


def _public_type(node: Node, kind: Any) -> Any:
    """Return the type for functions and users: a dictionary, or the type of decoded values."""
    public: Any = node.type if isinstance(node, tree.Column | tree.Call) else kind
    return public if pa.types.is_dictionary(public) else kind


def _is_name(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, str)


def _is_typed(literal: Literal) -> bool:
    """Return whether filters lack literals of the type of a constant, such as date or decimal."""
    return pa.types.is_temporal(literal.type) or pa.types.is_decimal(literal.type)


def _is_constant(node: Node) -> bool:
    if isinstance(node, tree.Arithmetic):
        return _is_constant(node.left) and _is_constant(node.right)
    return isinstance(node, Literal)


def _short(node: Literal) -> str:
    text = repr(node.value)
    return text if len(text) <= 30 else f"{text[:29]}…"


def _cast(node: Node, source: Any, target: Any) -> Node:
    if source == target:
        return node
    if isinstance(node, Literal) and node.is_null:
        return Literal(None, target, at=node.at)
    return tree.Cast(node, target, at=node.at)
