"""Arithmetic in blocks of rows that stay in the processor's cache.

Arithmetic, conversions and comparisons of integers and floats become numpy steps. Each block
of rows goes through all steps before the next block, so that intermediate results stay in the
cache. Steps ignore nulls: a result is null where one of its operands is. Other expressions are
evaluated for all rows first and are then read like columns. The steps of an expression are
planned once and reused for all batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow import compute as pc
from glaive.arrow.blocks import pack_flags
from glaive.arrow.conditions import float_order
from glaive.expr import tree
from glaive.expr.casts import cast
from glaive.expr.coerce import type_of
from glaive.expr.rows import repeat
from glaive.expr.tree import Literal, Node
from glaive.types import allocate, items_of

BLOCK = 16_384
"""Rows of a block: 128 KiB of the widest numbers; a few blocks fit a core's cache."""

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
"""Values of the rows of a block; computed ones are written to the third argument."""

Division = Callable[[Any, NDArray[Any], "_Run"], Any]


def compute_numbers(node: Node, rows: int, leaf: Leaf) -> Any:
    """The values of an arithmetic expression, or ``None`` if there is no step for it.

    Parameters
    ----------
    rows
        Number of rows.
    leaf
        Evaluates the parts that have no step, such as columns, for all rows.
    """
    plan = _plan_of(_Identity(node))
    if plan is None:
        return None
    result = allocate(rows * plan.dtype.itemsize)
    run = _Run(plan, rows, leaf)
    run.fill(plan.step, items_of(result, plan.dtype, rows))
    return run.array(pa.from_numpy_dtype(plan.dtype), result)


def compare_numbers(node: tree.Compare, rows: int, leaf: Leaf) -> Any:
    """The values of a comparison of two numbers; see :func:`compute_numbers`.

    Floats are compared in their total order.
    """
    plan = _plan_of(_Identity(node))
    if plan is None:
        return None
    flags = np.empty(rows, np.bool_)
    run = _Run(plan, rows, leaf)
    run.fill(plan.step, flags)
    return run.array(pa.bool_(), pack_flags(flags))


class _Identity:
    """An expression as a key, compared by identity."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.node is other.node


@lru_cache(maxsize=256)
def _plan_of(key: _Identity) -> _Plan | None:
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
    """One batch: its input arrays, and scratch memory for a block of intermediate results."""

    def __init__(self, plan: _Plan, rows: int, leaf: Leaf) -> None:
        self.rows = rows
        self.valid: Any = repeat(False, rows) if plan.always_null else None  # a value
        self.arrays = [self.numbers(leaf(node), dtype) for node, dtype in plan.leaves]
        self.scratch = [np.empty(min(BLOCK, rows), dtype) for dtype in plan.scratch]

    def numbers(self, values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
        if isinstance(values, pa.Scalar):
            values = repeat(values, self.rows)
        if _DTYPES.get(values.type) != dtype:
            values = cast(values, pa.from_numpy_dtype(dtype))
        if values.null_count:
            valid = pc.is_valid(values)
            self.valid = valid if self.valid is None else pc.and_(self.valid, valid)
        data = values.buffers()[1]
        if data is None:
            return np.zeros(self.rows, dtype)
        return np.frombuffer(data, dtype, self.rows, values.offset * dtype.itemsize)

    def fill(self, step: Step, target: NDArray[Any]) -> None:
        with np.errstate(all="ignore"):
            for start in range(0, self.rows, BLOCK):
                part = slice(start, min(start + BLOCK, self.rows))
                step(self, part, target[part])

    def array(self, kind: Any, values: Any) -> Any:
        """The result: null where an input is."""
        bitmap = None
        if self.valid is not None:
            # The bitmap may be a slice; Arrow copies it.
            aligned = self.valid if self.valid.offset == 0 else pc.and_(self.valid, self.valid)
            bitmap = aligned.buffers()[1]
        return pa.Array.from_buffers(kind, self.rows, [bitmap, values])


class _Plan:
    """The steps of one expression.

    A step writes its values to the memory that its caller passes, or to scratch memory of its
    own: ``scratch`` is the number of that.
    """

    step: Step
    dtype: Any = None

    def __init__(self) -> None:
        self.leaves: list[tuple[Node, np.dtype[Any]]] = []
        self.scratch: list[np.dtype[Any]] = []
        self.always_null = False
        self._dtypes: dict[int, Any] = {}
        self._columns: dict[str, int] = {}

    def new_scratch(self, dtype: Any) -> int:
        self.scratch.append(dtype)
        return len(self.scratch) - 1

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

    def value(self, node: Node, dtype: Any, scratch: int | None) -> Step:
        """The steps of an expression of this type."""
        return self.operation(node, scratch) or self.read(node, dtype)

    def read(self, node: Node, dtype: Any) -> Step:
        if isinstance(node, Literal):
            self.always_null = self.always_null or node.is_null
            constant = dtype.type(0 if node.is_null else node.value)
            return lambda _run, _part, _out: constant
        index = len(self.leaves)
        if isinstance(node, tree.Column):
            index = self._columns.setdefault(node.path, index)
        if index == len(self.leaves):
            self.leaves.append((node, dtype))
        return lambda run, part, _out: run.arrays[index][part]

    def operation(self, node: Node, scratch: int | None) -> Step | None:
        """The steps of an operation; None for other nodes, and for operations without steps."""
        dtype = self.dtype_of(node)
        if dtype is None:
            return None
        match node:
            case tree.Negative(operand):
                return _in_scratch(scratch, self.applied(np.negative, dtype, operand))
            case tree.Cast(operand):
                step = self.converted(operand, dtype)
                return None if step is None else _in_scratch(scratch, step)
            case tree.Arithmetic(op, left, right):
                if not dtype == self.dtype_of(left) == self.dtype_of(right):
                    return None
                if op in "+-*" or (op == "/" and dtype.kind == "f"):
                    function = _OPERATORS.get(op, np.divide)
                    return _in_scratch(scratch, self.applied(function, dtype, left, right))
                if op in "/%" and isinstance(right, Literal):
                    step = self.divided(op, dtype, left, right)
                    return None if step is None else _in_scratch(scratch, step)
        return None

    def own(self, node: Node, dtype: Any) -> Step:
        """Steps with scratch memory of their own."""
        before = len(self.scratch)
        scratch = self.new_scratch(dtype)
        step = self.value(node, dtype, scratch)
        if isinstance(node, Literal | tree.Column):
            del self.scratch[before:]
        return step

    def applied(self, function: Any, dtype: Any, first: Node, *others: Node) -> Step:
        # The first step may use the memory of the result: it is read before it is overwritten.
        left = self.value(first, dtype, None)
        if not others:
            return lambda run, part, out: function(left(run, part, out), out=out)
        right = self.own(others[0], dtype)
        return lambda run, part, out: function(
            left(run, part, out), right(run, part, None), out=out
        )

    def converted(self, operand: Node, dtype: Any) -> Step | None:
        """Conversions that cannot fail; an integer becomes the nearest float."""
        source = self.dtype_of(operand)
        if source is None:
            return None
        if not (np.can_cast(source, dtype) or (source.kind in "iu" and dtype.kind == "f")):
            return None
        step = self.own(operand, source)

        def convert(run: _Run, part: slice, out: Any) -> Any:
            np.copyto(out, step(run, part, None), casting="same_kind")
            return out

        return convert

    def divided(self, op: str, dtype: Any, left: Node, right: Literal) -> Step | None:
        """Quotients truncated towards zero and remainders, by a positive number."""
        number = right.value
        if isinstance(left, Literal) or right.is_null or not 0 < number < np.inf:
            return None
        if dtype.kind == "f":
            divide = self.float_remainder(dtype, number)
        elif number > np.iinfo(dtype).max:
            return None
        else:
            divide = (self.quotient if op == "/" else self.remainder)(dtype, number)
        step = self.value(left, dtype, None)
        return lambda run, part, out: divide(step(run, part, out), out, run)

    def quotient(self, dtype: Any, number: int) -> Division:
        by, most = dtype.type(number), dtype.type(number - 1)
        if dtype.kind == "u":
            return lambda over, out, _run: np.floor_divide(over, by, out=out)
        sign, shift = self.new_scratch(dtype), dtype.type(dtype.itemsize * 8 - 1)

        def divide(over: Any, out: Any, run: _Run) -> Any:
            # numpy rounds down: adding ``number - 1`` to negative numbers rounds towards zero.
            ahead = np.right_shift(over, shift, out=run.scratch[sign][: len(over)])
            np.bitwise_and(ahead, most, out=ahead)
            np.add(ahead, over, out=ahead)
            return np.floor_divide(ahead, by, out=out)

        return divide

    def remainder(self, dtype: Any, number: int) -> Division:
        quotient, by = self.quotient(dtype, number), dtype.type(number)
        quotients = self.new_scratch(dtype)

        def divide(over: Any, out: Any, run: _Run) -> Any:
            # numpy divides by a scalar far faster than it computes remainders.
            product = quotient(over, run.scratch[quotients][: len(over)], run)
            np.multiply(product, by, out=product)
            return np.subtract(over, product, out=out)

        return divide

    def float_remainder(self, dtype: Any, number: float) -> Division:
        """Remainders; by an integer from exact quotients, if the numbers are small enough."""
        by = dtype.type(number)
        limit = 2.0 ** np.finfo(dtype).nmant / 2
        if by != np.floor(by) or by > limit:
            return lambda over, out, _run: np.fmod(over, by, out=out)
        size, quotients = self.new_scratch(dtype), self.new_scratch(dtype)

        def divide(over: Any, out: Any, run: _Run) -> Any:
            ahead = np.abs(over, out=run.scratch[size][: len(over)])
            if not ahead.max() <= limit:  # NaN and infinities among them
                return np.fmod(over, by, out=out)
            product = np.divide(ahead, by, out=run.scratch[quotients][: len(over)])
            np.floor(product, out=product)
            np.multiply(product, by, out=product)
            np.subtract(ahead, product, out=product)
            if product.min() < 0:  # a quotient was rounded up to an integer
                product[product < 0] += by
            return np.copysign(product, over, out=out)

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
        # The bits of floats are ordered: as signed integers to compare with a positive number,
        # as unsigned ones in reverse order to compare with a negative number.
        self.always_null = self.always_null or right.is_null
        bits = np.array(0.0 if right.is_null else right.value, dtype).view(words)[()]
        if bits < 0 and op in _FLIPPED:
            op, words = _FLIPPED[op], f"u{dtype.itemsize}"
            bits = bits.view(words)
        function = _OPERATORS[op]
        return lambda run, part, out: function(first(run, part, None).view(words), bits, out=out)


def _in_scratch(scratch: int | None, step: Step) -> Step:
    if scratch is None:
        return step
    return lambda run, part, _out: step(run, part, run.scratch[scratch][: part.stop - part.start])


def _compared(op: str, left: Step, right: Step) -> Step:
    function = _OPERATORS[op]
    return lambda run, part, out: function(left(run, part, None), right(run, part, None), out=out)


def _ordered(step: Step, words: str) -> Step:
    return lambda run, part, _out: float_order(step(run, part, None).view(words))
