"""Translate Spark's tests on a column to glaive's filter language."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.expr import tree
from glaive.expr.coerce import is_binary, is_string
from glaive.expr.tree import Compare, Literal, Node
from glaive.spark.shown_values import Ordered, ordered
from glaive.spark.versions import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

__all__ = ["ALWAYS", "NEVER", "Column", "Compared"]

MAX_IN_VALUES = 10_000
"""Maximum values of an IN list to push down."""

MAX_IN_RANGES = 500
"""Maximum ranges that replace values of an IN list, if a Spark value is a range of stored ones."""

_OPS = {
    EqualTo: "=",
    EqualNullSafe: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_WILDCARDS = {StringStartsWith: ("", "%"), StringEndsWith: ("%", ""), StringContains: ("%", "%")}

ALWAYS = Literal(True, pa.bool_())
"""All values that are not null match."""

NEVER = Literal(False, pa.bool_())


@dataclass(frozen=True, slots=True)
class Compared:
    """A test that Spark offers to no source: two columns of a row compared; nulls do not pass.

    Parameters
    ----------
    attribute, other
        Paths of the columns.
    kind
        The test that has the same operator: equality, or an order.
    """

    attribute: tuple[str, ...]
    other: tuple[str, ...]
    kind: type[Filter]


@dataclass(frozen=True, slots=True)
class Column:
    """A column in a filter and its stored type; without a type it can only be tested for nulls."""

    operand: Node
    type: Any = None

    @property
    def not_null(self) -> Node:
        """The test that all values except nulls pass."""
        return tree.IsNull(self.operand, negated=True)

    def passing(self, leaf: Any) -> Node | None:
        """The test that matches the same values, except nulls; None if it cannot be expressed."""
        data_type, types = self.type, pa.types
        if data_type is None:
            return None
        order = ordered(data_type)
        if order is not None:
            return self._of_order(leaf, order)
        if types.is_floating(data_type):
            return self._of_floats(leaf)
        if types.is_boolean(data_type):
            return self._of_flags(leaf)
        if is_string(data_type):
            if type(leaf) in _WILDCARDS:
                return self._of_patterns(leaf)
            return self._plain(leaf, str, pa.string())
        if is_binary(data_type):
            return self._plain(leaf, bytes, pa.binary())
        return None

    def compared(self, kind: type[Filter], other: Column) -> Node | None:
        """The comparison with another column; None if Spark might order their values otherwise."""
        data_type = self.type
        if data_type is None or data_type != other.type:
            return None
        order = ordered(data_type)
        exact = is_string(data_type) if order is None else order.divided == 1
        return Compare(_OPS[kind], self.operand, other.operand) if exact else None

    # ----------------------------------------------------------- values in an order

    def _of_order(self, leaf: Any, order: Ordered) -> Node | None:
        if isinstance(leaf, In):
            return self._one_of_order(leaf.value, order)
        span = order.equal(leaf.value) if type(leaf) in _OPS else None
        if span is None:
            return None
        low, high = span
        match _OPS[type(leaf)]:
            case ">":
                low, high = high + 1, order.greatest
            case ">=":
                high = order.greatest
            case "<":
                low, high = order.least, low - 1
            case "<=":
                low = order.least
        return self._between(order, low, high)

    def _between(self, order: Ordered, low: int, high: int) -> Node:
        least, greatest = order.least, order.greatest
        low, high = max(low, least), min(high, greatest)
        if low > high:
            return NEVER
        if low == high:
            return Compare("=", self.operand, order.literal(low))
        if low == least:
            return ALWAYS if high == greatest else Compare("<=", self.operand, order.literal(high))
        if high == greatest:
            return Compare(">=", self.operand, order.literal(low))
        return tree.Between(self.operand, order.literal(low), order.literal(high))

    def _one_of_order(self, values: Sequence[Any], order: Ordered) -> Node | None:
        if len(values) > MAX_IN_VALUES:
            return None
        single: dict[int, Node] = {}
        ranges: list[Node] = []
        for value in values:
            span = None if value is None else order.equal(value)
            if span is None:
                if value is None:
                    continue
                return None
            low, high = max(span[0], order.least), min(span[1], order.greatest)
            if low == high:
                single[low] = order.literal(low)
            elif low < high:
                ranges.append(self._between(order, low, high))
        if len(ranges) > MAX_IN_RANGES:
            return None
        return self._any_of(single.values(), ranges)

    def _any_of(self, items: Iterable[Node], others: Sequence[Node]) -> Node:
        items = tuple(items)
        parts = [tree.InList(self.operand, items), *others] if items else list(others)
        return tree.either(*parts) if parts else NEVER

    # ----------------------------------------------------------------------- floats

    def _of_floats(self, leaf: Any) -> Node | None:
        # Apart from NaNs, glaive orders floats like Spark.
        low, high = self._float(-math.inf), self._float(math.inf)
        numbers = tree.Between(self.operand, low, high)
        nans = tree.either(Compare(">", self.operand, high), Compare("<", self.operand, low))
        if isinstance(leaf, In):
            values = [value for value in leaf.value if value is not None]
            if len(values) > MAX_IN_VALUES or not all(map(self._is_float, values)):
                return None
            others = [nans] if any(map(math.isnan, values)) else []
            return self._any_of(
                [self._float(value) for value in values if not math.isnan(value)], others
            )
        value = leaf.value
        if type(leaf) not in _OPS or not self._is_float(value):
            return None
        op = _OPS[type(leaf)]
        if math.isnan(value):
            return {"=": nans, ">=": nans, ">": NEVER, "<=": ALWAYS, "<": numbers}[op]
        test = Compare(op, self.operand, self._float(value))
        if op in ("<", "<="):
            return tree.both(Compare(">=", self.operand, low), test)
        return test if op == "=" else tree.either(test, Compare("<", self.operand, low))

    def _is_float(self, value: Any) -> bool:
        """Whether a constant is representable in the type of the column."""
        if not isinstance(value, float):
            return False
        if math.isnan(value) or math.isinf(value):
            return True
        with np.errstate(over="ignore"):
            return float(np.dtype(f"f{self.type.bit_width // 8}").type(value)) == value

    def _float(self, value: float) -> Node:
        if math.isfinite(value):
            return Literal(value, pa.float64())
        name = Literal(f"Float{self.type.bit_width}", pa.string())
        return tree.Call("arrow_cast", (Literal(str(value), pa.string()), name))

    # ------------------------------------------------------- booleans, strings, bytes

    def _of_flags(self, leaf: Any) -> Node | None:
        values = leaf.value if isinstance(leaf, In) else [leaf.value]
        if not all(value is None or isinstance(value, bool) for value in values):
            return None
        if isinstance(leaf, In):
            passing = {value for value in values if value is not None}
        elif type(leaf) in _OPS:
            passing = {
                value for value in (False, True) if _holds(_OPS[type(leaf)], value, leaf.value)
            }
        else:
            return None
        if len(passing) != 1:
            return ALWAYS if passing else NEVER
        return Compare("=", self.operand, Literal(passing.pop(), pa.bool_()))

    def _plain(self, leaf: Any, value_type: type, stored: pa.DataType) -> Node | None:
        if isinstance(leaf, In):
            values = [value for value in leaf.value if value is not None]
            if len(values) > MAX_IN_VALUES or not all(
                isinstance(value, value_type) for value in values
            ):
                return None
            return self._any_of([Literal(value, stored) for value in values], [])
        if type(leaf) not in _OPS or not isinstance(leaf.value, value_type):
            return None
        return Compare(_OPS[type(leaf)], self.operand, Literal(leaf.value, stored))

    def _of_patterns(self, leaf: Any) -> Node | None:
        if not isinstance(leaf.value, str):
            return None
        if not leaf.value:
            return ALWAYS
        prefix, suffix = _WILDCARDS[type(leaf)]
        pattern = leaf.value
        for wildcard in "\\%_":
            pattern = pattern.replace(wildcard, f"\\{wildcard}")
        return tree.Like(self.operand, Literal(f"{prefix}{pattern}{suffix}", pa.string()))


def _holds(op: str, left: bool, right: bool) -> bool:
    return {
        "=": left == right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]
