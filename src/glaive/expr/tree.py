"""Expression trees, before and after their names are bound.

A parsed tree has a :class:`Name` for each column and each :class:`Literal` as written. A bound tree
has the same classes. In a bound tree names are :class:`Column`, types agree, and every conversion
is a :class:`Cast`. AND and OR have any number of operands, which are merged: an AND or OR never
directly contains another one of its kind. Equality ignores positions in the text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import pyarrow as pa

from glaive.arrow.conditions import constants, scalar
from glaive.dataclass import dataclass

MAX_TEXT = 8 << 20
"""Maximum characters of a filter."""

MAX_NODES = 250_000
"""Maximum names, constants and operations of a filter, including items of IN lists."""

MAX_JOINED = 20_000
"""Maximum words AND and OR in a text: each term costs about 0.1 ms before rows are compared."""

MAX_ARGUMENTS = 10_000
"""Maximum arguments of a call; each takes time per few rows that are computed at once."""

MAX_DEPTH = 128
"""Maximum levels of a filter: each operator, call and pair of brackets is one. AND and OR of any
number of operands are one level."""


FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons with their operands exchanged."""

FIRST_VALUE = frozenset({"coalesce", "nvl"})
"""Functions that return the first valid argument."""

HAS_ITEM = frozenset({"array_has", "array_contains", "list_has", "list_contains"})
"""Functions that test whether a list has an item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positioned:
    """A node with a position ``at`` in the text; -1 if unknown."""

    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name(_Positioned):
    """A column or, after the first part, a member of a struct, as written.

    Parameters
    ----------
    parts
        Names from the outermost to the innermost, unquoted.
    exact
        The first part was quoted: its case matters.
    """

    parts: tuple[str, ...]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Column(_Positioned):
    """A bound column.

    Parameters
    ----------
    path
        Name in batches: ``a``, ``s.x``, ``_rowid``.
    type
        Storage type in Arrow.
    field_id
        Field id; -1 for system columns.
    """

    path: str
    type: pa.DataType
    field_id: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Literal(_Positioned):
    """A constant.

    Parameters
    ----------
    value
        A Python value. Dates, times, timestamps and durations are the integer that Arrow stores.
        Lists are tuples, null is ``None``, and other types are a ``pa.Scalar``.
    type
        Arrow type; ``pa.null()`` for a NULL of unknown type.
    """

    value: Any
    type: pa.DataType

    @classmethod
    def of(cls, scalar: Any, *, at: int = -1) -> Literal:
        """Make a constant from an Arrow scalar."""
        kind = scalar.type
        types = pa.types
        if not scalar.is_valid:
            return cls(None, kind, at=at)
        if types.is_temporal(kind) and not types.is_interval(kind):
            return cls(scalar.value, kind, at=at)
        if isinstance(kind, pa.BaseExtensionType):
            return cls(scalar, kind, at=at)
        if types.is_nested(kind) or types.is_interval(kind) or types.is_dictionary(kind):
            return cls(scalar, kind, at=at)
        return cls(scalar.as_py(), kind, at=at)

    def scalar(self) -> Any:
        """Return the constant as an Arrow scalar."""
        if isinstance(self.value, pa.Scalar):
            return self.value
        if isinstance(self.value, tuple):
            kind: Any = self.type
            items = constants(self.value, kind.value_type)
            return pa.ListArray.from_arrays(
                constants([0, len(items)], pa.int32()), items, type=kind
            )[0]
        return scalar(self.value, self.type)

    @property
    def is_null(self) -> bool:
        """Whether it is NULL."""
        return self.value is None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and self._key() == other._key()
            and (self.type is other.type or self.type == other.type)
        )

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, object]:
        value = self.value
        if isinstance(value, float):  # NaN equals itself; the zeros differ
            value = struct.pack("<d", value)
        elif isinstance(value, pa.Scalar):
            value = str(value)
        return type(self.value), value


@dataclass(frozen=True, slots=True)
class ListOf(_Positioned):
    """A list: ``[1, 2]``. Items must be constants, except in calls."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Compare(_Positioned):
    """``op``: ``= != < <= > >=``, ``IS DISTINCT FROM``, ``IS NOT DISTINCT FROM``."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Arithmetic(_Positioned):
    """``op``: ``+ - * / % || << >>``."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Negative(_Positioned):
    """Minus."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And(_Positioned):
    """AND of two or more operands; see :func:`both`."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or(_Positioned):
    """OR of two or more operands; see :func:`either`."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not(_Positioned):
    """``NOT``; unknown stays unknown."""

    operand: Node


@dataclass(frozen=True, slots=True)
class IsNull(_Positioned):
    """``IS NULL``, ``IS NOT NULL``."""

    operand: Node
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsTruth(_Positioned):
    """``IS TRUE``, ``IS FALSE``, ``IS UNKNOWN`` (``truth`` is ``None``)."""

    operand: Node
    truth: bool | None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InList(_Positioned):
    """``IN (…)``; ``items``: a tuple, or a ``ConstantList``."""

    operand: Node
    items: Sequence[Node]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Between(_Positioned):
    """``BETWEEN … AND …``, bounds included."""

    operand: Node
    low: Node
    high: Node
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(_Positioned):
    """``LIKE`` and ``ILIKE``; ``escape`` makes ``%`` and ``_`` literal."""

    operand: Node
    pattern: Node
    escape: str = "\\"
    negated: bool = False
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Cast(_Positioned):
    """``CAST``; with ``attempt``, ``TRY_CAST``, which returns null on failure."""

    operand: Node
    type: pa.DataType
    attempt: bool = False


@dataclass(frozen=True, slots=True)
class Call(_Positioned):
    """A function call; ``name`` in lower case; ``type`` of the result once bound."""

    name: str
    arguments: tuple[Node, ...]
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Member(_Positioned):
    """A member of a computed struct."""

    operand: Node
    name: str


@dataclass(frozen=True, slots=True)
class Subscript(_Positioned):
    """An element of a list, counted from 1, or from the end if negative; or a struct member."""

    operand: Node
    index: Node


Node: TypeAlias = (
    Name
    | Column
    | Literal
    | ListOf
    | Compare
    | Arithmetic
    | Negative
    | And
    | Or
    | Not
    | IsNull
    | IsTruth
    | InList
    | Between
    | Like
    | Cast
    | Call
    | Member
    | Subscript
)


def both(*operands: Node, at: int = -1) -> Node:
    """Return the AND of one or more operands, flattened."""
    flat = _flat(operands, And)
    return flat[0] if len(flat) == 1 else And(flat, at=at)


def either(*operands: Node, at: int = -1) -> Node:
    """Return the OR of one or more operands, flattened."""
    flat = _flat(operands, Or)
    return flat[0] if len(flat) == 1 else Or(flat, at=at)


def _flat(operands: Sequence[Node], kind: type[And | Or]) -> tuple[Node, ...]:
    flat: list[Node] = []
    for operand in operands:
        if isinstance(operand, kind):
            flat.extend(operand.operands)
        else:
            flat.append(operand)
    return tuple(flat)


def children(node: Node) -> Iterable[Node]:
    """Return the operands of an expression in text order, except items of long lists."""
    match node:
        case Name() | Column() | Literal():
            return ()
        case Compare() | Arithmetic():
            return node.left, node.right
        case And() | Or():
            return node.operands
        case ListOf():
            return node.items
        case InList():
            return (node.operand, *node.items) if type(node.items) is tuple else (node.operand,)
        case Between():
            return node.operand, node.low, node.high
        case Like():
            return node.operand, node.pattern
        case Call():
            return node.arguments
        case Subscript():
            return node.operand, node.index
        case _:
            return (node.operand,)


def walk(node: Node) -> Iterator[Node]:
    """Yield the expression and all expressions in it, from the top down."""
    todo = [node]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(reversed(tuple(children(part))))
