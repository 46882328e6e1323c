"""Numbers computed in blocks that stay in the processor's cache.

Arithmetic, conversions and comparisons of whole numbers and floats become steps of numpy. Each
block of rows goes through all of them before the next, so that what is between the columns and
the result never reaches the memory. Nulls do not matter to the steps: a row is null where one
of its values is. What has no step here is computed for all rows at first, and is then a column
like others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.conditions import float_order
from glaive.expr import tree
from glaive.expr.casts import cast
from glaive.expr.repeat import repeat
from glaive.expr.result_type import type_of
from glaive.expr.tree import Literal, Node

__all__ = ["compare_numbers", "compute_numbers"]

BLOCK = 16_384
"""Rows of a block: 128 KiB of the widest numbers, a few of which fit a core's cache."""

_DTYPES: dict[Any, np.dtype[Any]] = {
    **{
        getattr(pa, f"{sign}int{bits}")(): np.dtype(f"{sign}int{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
}
_OPERATORS: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

Leaf = Callable[[Node], Any]
"""Computes an expression for all rows: an array or a scalar."""


class _Step(Protocol):
    """Values of the rows of a block; written to ``out``, if there is one and they are new."""

    def __call__(self, part: slice, out: Any = None) -> Any: ...


def compute_numbers(node: Node, rows: int, leaf: Leaf) -> Any:
    """The numbers that an arithmetic expression gives, or ``None`` when there is no step for it.

    Parameters
    ----------
    rows
        How many the arrays have that ``leaf`` gives.
    leaf
        Is called for the parts that have no step, columns among them.
    """
    program = _Program(rows, leaf)
    step = program.operation(node)
    if step is None:
        return None
    kind = program.kind(node)
    made = np.empty(rows, _DTYPES[kind])
    with np.errstate(all="ignore"):
        for start in range(0, rows, BLOCK):
            part = slice(start, min(start + BLOCK, rows))
            step(part, made[part])
    return program.array(kind, pa.py_buffer(made))


def compare_numbers(op: str, left: Node, right: Node, rows: int, leaf: Leaf) -> Any:
    """``left op right`` of two numbers as booleans; see :func:`compute_numbers`.

    Floats are compared in their total order.
    """
    program = _Program(rows, leaf)
    test = program.comparison(op, left, right)
    if test is None:
        return None
    flags = np.empty(rows, np.bool_)
    with np.errstate(all="ignore"):
        for start in range(0, rows, BLOCK):
            part = slice(start, min(start + BLOCK, rows))
            test(part, flags[part])
    return program.array(pa.bool_(), pa.py_buffer(np.packbits(flags, bitorder="little")))


class _Program:
    """Steps on their way: what they read, and where it is null."""

    def __init__(self, rows: int, leaf: Leaf) -> None:
        self.rows, self.leaf = rows, leaf
        self.valid: Any = None
        self.kinds: dict[int, Any] = {}

    def array(self, kind: Any, values: Any) -> Any:
        """The result: null where something that was read is."""
        bitmap = None
        if self.valid is not None:
            # Arrow may have cut it from a longer one.
            whole = self.valid if self.valid.offset == 0 else pc.and_(self.valid, self.valid)
            bitmap = whole.buffers()[1]
        return pa.Array.from_buffers(kind, self.rows, [bitmap, values])

    def scratch(self, dtype: Any) -> NDArray[Any]:
        return np.empty(min(BLOCK, self.rows), dtype)

    def only(self, valid: Any) -> None:
        """The result is null elsewhere."""
        self.valid = valid if self.valid is None else pc.and_(self.valid, valid)

    def kind(self, node: Node) -> Any:
        """The type of an expression, worked out once."""
        found = self.kinds.get(id(node))
        if found is None:
            match node:
                case tree.Negative(operand):
                    found = self.kind(operand)
                case tree.Arithmetic(_, left, right) if self.kind(left) in _DTYPES and self.kind(
                    left
                ) == self.kind(right):
                    found = self.kind(left)
                case _:
                    found = type_of(node)
            self.kinds[id(node)] = found
        return found

    # ------------------------------------------------------------------ steps

    def value(self, node: Node) -> _Step | None:
        """Steps to the values of an expression of numbers; None for nulls and other types."""
        return self.operation(node) or self.read(node)

    def read(self, node: Node) -> _Step | None:
        kind = self.kind(node)
        dtype = _DTYPES.get(kind)
        if dtype is None:
            return None
        found = self.leaf(node)
        if isinstance(found, pa.Scalar):
            if not found.is_valid:
                self.only(repeat(False, self.rows))  # a value
            constant = dtype.type(found.as_py() or 0)
            if not isinstance(node, Literal):
                constant = np.full(1, constant).repeat(min(BLOCK, self.rows))
                return lambda part, out=None: constant[: part.stop - part.start]  # noqa: ARG005  # nothing new
            return lambda part, out=None: constant  # noqa: ARG005  # nothing new
        found = cast(found, kind)
        if found.null_count:
            self.only(pc.is_valid(found))
        data = found.buffers()[1]
        if data is None:
            numbers = np.zeros(self.rows, dtype)
        else:
            numbers = np.frombuffer(data, dtype, self.rows, found.offset * dtype.itemsize)
        return lambda part, out=None: numbers[part]  # noqa: ARG005  # nothing new

    def operation(self, node: Node) -> _Step | None:
        """Steps of an operation; None for what is none, or has none."""
        dtype = _DTYPES.get(self.kind(node))
        if dtype is None:
            return None
        match node:
            case tree.Negative(operand):
                return self.applied(np.negative, dtype, operand)
            case tree.Cast(operand):
                return self.converted(operand, dtype)
            case tree.Arithmetic(op, left, right) if self.kind(left) == self.kind(right):
                if op in "+-*" or (op == "/" and dtype.kind == "f"):
                    return self.applied(_OPERATORS.get(op, np.divide), dtype, left, right)
                if op in "/%" and isinstance(right, Literal):
                    return self.divided(op, dtype, left, right)
        return None

    def applied(self, function: Any, dtype: Any, *operands: Node) -> _Step | None:
        if any(_DTYPES.get(self.kind(one)) != dtype for one in operands):
            return None
        steps: list[Any] = [self.value(one) for one in operands]
        scratch = self.scratch(dtype)
        left: Any
        left, *others = steps

        def apply(part: slice, out: Any = None) -> Any:
            # What the left writes is read before it is written over.
            room = _room(out, scratch, part)
            return function(left(part, room), *(one(part) for one in others), out=room)

        return apply

    def converted(self, operand: Node, dtype: Any) -> _Step | None:
        """Conversions that cannot fail; a whole number becomes the nearest float."""
        had = _DTYPES.get(self.kind(operand))
        if had is None or not (np.can_cast(had, dtype) or (had.kind in "iu" and dtype.kind == "f")):
            return None
        step = self.value(operand)
        if step is None:
            return None
        scratch = self.scratch(dtype)

        def convert(part: slice, out: Any = None) -> Any:
            made = _room(out, scratch, part)
            np.copyto(made, step(part), casting="same_kind")
            return made

        return convert

    def divided(self, op: str, dtype: Any, left: Node, right: Literal) -> _Step | None:
        """Quotients cut towards zero and remainders, by a number above zero."""
        number = right.value
        if isinstance(left, Literal) or right.is_null or not 0 < number < np.inf:
            return None
        divide: Any
        if dtype.kind == "f":
            divide = _float_rest(dtype, number, self.scratch)
        elif number > np.iinfo(dtype).max:
            return None
        else:
            divide = (_quotient if op == "/" else _rest)(dtype, number, self.scratch)
        step = self.value(left)
        if step is None:
            return None
        scratch = self.scratch(dtype)

        def apply(part: slice, out: Any = None) -> Any:
            room = _room(out, scratch, part)
            return divide(step(part, room), room)

        return apply

    # ------------------------------------------------------------ comparisons

    def comparison(self, op: str, left: Node, right: Node) -> Any:
        dtype = _DTYPES.get(self.kind(left))
        if dtype is None or self.kind(left) != self.kind(right) or isinstance(left, Literal):
            return None
        first = self.value(left)
        if first is None:
            return None
        if dtype.kind != "f":
            return self.compared(op, first, self.value(right))
        words = f"i{dtype.itemsize}"
        if not isinstance(right, Literal):
            return self.compared(op, _ordered(first, words), _ordered(self.value(right), words))
        if right.is_null:
            return None
        # Floats are ordered as their bits are: with a sign to compare with those above zero,
        # without to compare with those below, where more is less.
        bits = np.array(right.value, dtype).view(words)[()]
        if bits < 0 and op not in {"=", "!="}:
            op, words = _FLIPPED[op], f"u{dtype.itemsize}"
            bits = bits.view(words)
        function = _OPERATORS[op]
        return lambda part, out: function(first(part).view(words), bits, out=out)

    def compared(self, op: str, left: _Step, right: _Step | None) -> Any:
        if right is None:
            return None
        function = _OPERATORS[op]
        return lambda part, out: function(left(part), right(part), out=out)


def _room(out: Any, scratch: NDArray[Any], part: slice) -> NDArray[Any]:
    room: NDArray[Any] = scratch[: part.stop - part.start] if out is None else out
    return room


def _ordered(step: _Step | None, words: str) -> Any:
    if step is None:
        return None
    return lambda part, out=None: float_order(step(part).view(words))  # noqa: ARG005  # new


def _quotient(dtype: Any, number: int, scratch: Any) -> Any:
    by, most = dtype.type(number), dtype.type(number - 1)
    if dtype.kind == "u":
        return lambda over, out: np.floor_divide(over, by, out=out)
    sign, shift = scratch(dtype), dtype.type(dtype.itemsize * 8 - 1)

    def divide(over: Any, out: Any) -> Any:
        # numpy's quotients go down: those of numbers below zero start as much higher.
        ahead = np.right_shift(over, shift, out=sign[: len(over)])
        np.bitwise_and(ahead, most, out=ahead)
        np.add(ahead, over, out=ahead)
        return np.floor_divide(ahead, by, out=out)

    return divide


def _rest(dtype: Any, number: int, scratch: Any) -> Any:
    quotient, by = _quotient(dtype, number, scratch), dtype.type(number)
    whole = scratch(dtype)

    def divide(over: Any, out: Any) -> Any:
        # numpy divides by one number far quicker than it finds remainders.
        made = quotient(over, whole[: len(over)])
        np.multiply(made, by, out=made)
        return np.subtract(over, made, out=out)

    return divide


def _float_rest(dtype: Any, number: float, scratch: Any) -> Any:
    """Remainders; exact by a whole number, and of numbers that are not too large for it."""
    by = dtype.type(number)
    limit = 2.0 ** np.finfo(dtype).nmant / 2
    if by != np.floor(by) or by > limit:
        return lambda over, out: np.fmod(over, by, out=out)
    size, whole = scratch(dtype), scratch(dtype)

    def divide(over: Any, out: Any) -> Any:
        ahead = np.abs(over, out=size[: len(over)])
        if not ahead.max() <= limit:  # NaN and infinities among them
            return np.fmod(over, by, out=out)
        made = np.divide(ahead, by, out=whole[: len(over)])
        np.floor(made, out=made)
        np.multiply(made, by, out=made)
        np.subtract(ahead, made, out=made)
        if made.min() < 0:  # a quotient was rounded up to a whole number
            made[made < 0] += by
        return np.copysign(made, over, out=out)

    return divide
