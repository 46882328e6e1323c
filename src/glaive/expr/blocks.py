"""Numbers computed in blocks that stay in the processor's cache.

Arithmetic, conversions and comparisons of integers and floats become steps of numpy. Each
block of rows goes through all of them before the next, so that what is between the columns and
the result never reaches the memory. Nulls do not matter to the steps: a row is null where one
of its values is. What has no step here is computed for all rows at first, and is then a column
like others. Steps are worked out once for an expression, however many batches it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.buffers import pack_flags
from glaive.arrow.conditions import float_order
from glaive.expr import tree
from glaive.expr.casts import cast
from glaive.expr.result_type import type_of
from glaive.expr.rows import repeat
from glaive.expr.tree import Literal, Node
from glaive.memory import as_buffer

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
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

Leaf = Callable[[Node], Any]
"""Computes an expression for all rows: an array or a scalar."""

Step = Callable[["_Run", slice, Any], Any]
"""Values of the rows of a block, written to the third argument where they are new."""

Division = Callable[[Any, NDArray[Any], "_Run"], Any]


def compute_numbers(node: Node, rows: int, leaf: Leaf) -> Any:
    """The numbers that an arithmetic expression gives, or ``None`` when there is no step for it.

    Parameters
    ----------
    rows
        How many the arrays have that ``leaf`` gives.
    leaf
        Is called for the parts that have no step, columns among them.
    """
    plan = _plan_of(_Same(node))
    if plan is None:
        return None
    made = np.empty(rows, plan.dtype)
    run = _Run(plan, rows, leaf)
    run.fill(plan.step, made)
    return run.array(pa.from_numpy_dtype(plan.dtype), as_buffer(made))


def compare_numbers(node: tree.Compare, rows: int, leaf: Leaf) -> Any:
    """The booleans that a comparison of two numbers gives; see :func:`compute_numbers`.

    Floats are compared in their total order.
    """
    plan = _plan_of(_Same(node))
    if plan is None:
        return None
    flags = np.empty(rows, np.bool_)
    run = _Run(plan, rows, leaf)
    run.fill(plan.step, flags)
    return run.array(pa.bool_(), pack_flags(flags))


class _Same:
    """An expression as a key: the same one, not one that is equal."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.node is other.node


@lru_cache(maxsize=256)
def _plan_of(key: _Same) -> _Plan | None:
    plan = _Plan()
    node = key.node
    if isinstance(node, tree.Compare):
        step = plan.comparison(node)
    else:
        step = plan.operation(node, None)
        plan.dtype = plan.dtype_of(node)
    if step is None:
        return None
    plan.step = step
    return plan


class _Run:
    """One batch: the arrays that are read, and room for a block of what is between."""

    def __init__(self, plan: _Plan, rows: int, leaf: Leaf) -> None:
        self.rows = rows
        self.valid: Any = repeat(False, rows) if plan.nothing else None  # a value
        self.arrays = [self.numbers(leaf(node), dtype) for node, dtype in plan.leaves]
        self.rooms = [np.empty(min(BLOCK, rows), dtype) for dtype in plan.rooms]

    def numbers(self, found: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
        if isinstance(found, pa.Scalar):
            found = repeat(found, self.rows)
        if _DTYPES.get(found.type) != dtype:
            found = cast(found, pa.from_numpy_dtype(dtype))
        if found.null_count:
            valid = pc.is_valid(found)
            self.valid = valid if self.valid is None else pc.and_(self.valid, valid)
        data = found.buffers()[1]
        if data is None:
            return np.zeros(self.rows, dtype)
        return np.frombuffer(data, dtype, self.rows, found.offset * dtype.itemsize)

    def fill(self, step: Step, made: NDArray[Any]) -> None:
        with np.errstate(all="ignore"):
            for start in range(0, self.rows, BLOCK):
                part = slice(start, min(start + BLOCK, self.rows))
                step(self, part, made[part])

    def array(self, kind: Any, values: Any) -> Any:
        """The result: null where something that was read is."""
        bitmap = None
        if self.valid is not None:
            # Arrow may have cut it from a longer one.
            whole = self.valid if self.valid.offset == 0 else pc.and_(self.valid, self.valid)
            bitmap = whole.buffers()[1]
        return pa.Array.from_buffers(kind, self.rows, [bitmap, values])


class _Plan:
    """The steps of one expression.

    A step is given room for its values, unless it was made with room of its own: ``room`` is
    its number then.
    """

    step: Step
    dtype: Any = None

    def __init__(self) -> None:
        self.leaves: list[tuple[Node, np.dtype[Any]]] = []
        self.rooms: list[np.dtype[Any]] = []
        self.nothing = False
        self._dtypes: dict[int, Any] = {}
        self._columns: dict[str, int] = {}

    def room(self, dtype: Any) -> int:
        self.rooms.append(dtype)
        return len(self.rooms) - 1

    def dtype_of(self, node: Node) -> Any:
        """The type of the numbers of an expression; None for other types."""
        if id(node) not in self._dtypes:
            self._dtypes[id(node)] = self._dtype_of(node)
        return self._dtypes[id(node)]

    def _dtype_of(self, node: Node) -> Any:
        if isinstance(node, tree.Negative):
            return self.dtype_of(node.operand)
        if isinstance(node, tree.Arithmetic):
            left = self.dtype_of(node.left)
            if left is not None and left == self.dtype_of(node.right):
                return left
        return _DTYPES.get(type_of(node))

    # ------------------------------------------------------------------ steps

    def value(self, node: Node, dtype: Any, room: int | None) -> Step:
        """Steps to the values of an expression of this type."""
        return self.operation(node, room) or self.read(node, dtype)

    def read(self, node: Node, dtype: Any) -> Step:
        if isinstance(node, Literal):
            self.nothing = self.nothing or node.is_null
            constant = dtype.type(0 if node.is_null else node.value)
            return lambda _run, _part, _out: constant
        place = len(self.leaves)
        if isinstance(node, tree.Column):
            place = self._columns.setdefault(node.path, place)
        if place == len(self.leaves):
            self.leaves.append((node, dtype))
        return lambda run, part, _out: run.arrays[place][part]

    def operation(self, node: Node, room: int | None) -> Step | None:
        """Steps of an operation; None for what is none, or has none."""
        dtype = self.dtype_of(node)
        if dtype is None:
            return None
        match node:
            case tree.Negative(operand):
                return _in_room(room, self.applied(np.negative, dtype, operand))
            case tree.Cast(operand):
                made = self.converted(operand, dtype)
                return None if made is None else _in_room(room, made)
            case tree.Arithmetic(op, left, right):
                if not dtype == self.dtype_of(left) == self.dtype_of(right):
                    return None
                if op in "+-*" or (op == "/" and dtype.kind == "f"):
                    function = _OPERATORS.get(op, np.divide)
                    return _in_room(room, self.applied(function, dtype, left, right))
                if op in "/%" and isinstance(right, Literal):
                    made = self.divided(op, dtype, left, right)
                    return None if made is None else _in_room(room, made)
        return None

    def own(self, node: Node, dtype: Any) -> Step:
        """Steps with room of their own."""
        before = len(self.rooms)
        place = self.room(dtype)
        step = self.value(node, dtype, place)
        if isinstance(node, Literal | tree.Column):
            del self.rooms[before:]
        return step

    def applied(self, function: Any, dtype: Any, first: Node, *others: Node) -> Step:
        # What the first writes into the room of the result is read before it is written over.
        left = self.value(first, dtype, None)
        if not others:
            return lambda run, part, out: function(left(run, part, out), out=out)
        right = self.own(others[0], dtype)
        return lambda run, part, out: function(
            left(run, part, out), right(run, part, None), out=out
        )

    def converted(self, operand: Node, dtype: Any) -> Step | None:
        """Conversions that cannot fail; an integer becomes the nearest float."""
        had = self.dtype_of(operand)
        if had is None or not (np.can_cast(had, dtype) or (had.kind in "iu" and dtype.kind == "f")):
            return None
        step = self.own(operand, had)

        def convert(run: _Run, part: slice, out: Any) -> Any:
            np.copyto(out, step(run, part, None), casting="same_kind")
            return out

        return convert

    def divided(self, op: str, dtype: Any, left: Node, right: Literal) -> Step | None:
        """Quotients cut towards zero and remainders, by a number above zero."""
        number = right.value
        if isinstance(left, Literal) or right.is_null or not 0 < number < np.inf:
            return None
        if dtype.kind == "f":
            divide = self.float_rest(dtype, number)
        elif number > np.iinfo(dtype).max:
            return None
        else:
            divide = (self.quotient if op == "/" else self.rest)(dtype, number)
        step = self.value(left, dtype, None)
        return lambda run, part, out: divide(step(run, part, out), out, run)

    def quotient(self, dtype: Any, number: int) -> Division:
        by, most = dtype.type(number), dtype.type(number - 1)
        if dtype.kind == "u":
            return lambda over, out, _run: np.floor_divide(over, by, out=out)
        sign, shift = self.room(dtype), dtype.type(dtype.itemsize * 8 - 1)

        def divide(over: Any, out: Any, run: _Run) -> Any:
            # numpy's quotients go down: those of numbers below zero start as much higher.
            ahead = np.right_shift(over, shift, out=run.rooms[sign][: len(over)])
            np.bitwise_and(ahead, most, out=ahead)
            np.add(ahead, over, out=ahead)
            return np.floor_divide(ahead, by, out=out)

        return divide

    def rest(self, dtype: Any, number: int) -> Division:
        quotient, by = self.quotient(dtype, number), dtype.type(number)
        whole = self.room(dtype)

        def divide(over: Any, out: Any, run: _Run) -> Any:
            # numpy divides by one number far quicker than it finds remainders.
            made = quotient(over, run.rooms[whole][: len(over)], run)
            np.multiply(made, by, out=made)
            return np.subtract(over, made, out=out)

        return divide

    def float_rest(self, dtype: Any, number: float) -> Division:
        """Remainders; exact by an integer, and of numbers that are not too large for it."""
        by = dtype.type(number)
        limit = 2.0 ** np.finfo(dtype).nmant / 2
        if by != np.floor(by) or by > limit:
            return lambda over, out, _run: np.fmod(over, by, out=out)
        size, whole = self.room(dtype), self.room(dtype)

        def divide(over: Any, out: Any, run: _Run) -> Any:
            ahead = np.abs(over, out=run.rooms[size][: len(over)])
            if not ahead.max() <= limit:  # NaN and infinities among them
                return np.fmod(over, by, out=out)
            made = np.divide(ahead, by, out=run.rooms[whole][: len(over)])
            np.floor(made, out=made)
            np.multiply(made, by, out=made)
            np.subtract(ahead, made, out=made)
            if made.min() < 0:  # a quotient was rounded up to an integer
                made[made < 0] += by
            return np.copysign(made, over, out=out)

        return divide

    # ------------------------------------------------------------ comparisons

    def comparison(self, node: tree.Compare) -> Step | None:
        op, left, right = node.op, node.left, node.right
        dtype = self.dtype_of(left)
        if op not in _OPERATORS or dtype is None or dtype != self.dtype_of(right):
            return None
        if isinstance(left, Literal):
            return None
        first = self.own(left, dtype)
        if dtype.kind != "f":
            return _compared(op, first, self.own(right, dtype))
        words = f"i{dtype.itemsize}"
        if not isinstance(right, Literal):
            return _compared(op, _ordered(first, words), _ordered(self.own(right, dtype), words))
        # Floats are ordered as their bits are: with a sign to compare with those above zero,
        # without to compare with those below, where more is less.
        self.nothing = self.nothing or right.is_null
        bits = np.array(0.0 if right.is_null else right.value, dtype).view(words)[()]
        if bits < 0 and op in _FLIPPED:
            op, words = _FLIPPED[op], f"u{dtype.itemsize}"
            bits = bits.view(words)
        function = _OPERATORS[op]
        return lambda run, part, out: function(first(run, part, None).view(words), bits, out=out)


def _in_room(place: int | None, step: Step) -> Step:
    if place is None:
        return step
    return lambda run, part, _out: step(run, part, run.rooms[place][: part.stop - part.start])


def _compared(op: str, left: Step, right: Step) -> Step:
    function = _OPERATORS[op]
    return lambda run, part, out: function(left(run, part, None), right(run, part, None), out=out)


def _ordered(step: Step, words: str) -> Step:
    return lambda run, part, _out: float_order(step(run, part, None).view(words))
