"""Which values of a column pass a test of Spark, said in glaive's filter language."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from glaive.expr import tree
from glaive.expr.tree import Compare, Literal, Node
from glaive.spark.shown_values import Ordered, ordered

__all__ = ["ALWAYS", "NEVER", "Column"]

MOST_VALUES = 10_000
"""Values of an IN list that are taken over."""

MOST_RANGES = 500
"""Ranges in place of the values of an IN list, where one value shown is several stored."""

_OPS = {
    EqualTo: "=",
    EqualNullSafe: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_AROUND = {StringStartsWith: ("", "%"), StringEndsWith: ("%", ""), StringContains: ("%", "%")}

ALWAYS = Literal(True, pa.bool_())
"""All values that are not null pass."""

NEVER = Literal(False, pa.bool_())


@dataclass(frozen=True, slots=True)
class Column:
    """A column in a filter: how it is named, how it is stored; no type: only nulls are told."""

    operand: Node
    type: Any = None

    @property
    def not_null(self) -> Node:
        """The test that all values pass."""
        return tree.IsNull(self.operand, negated=True)

    def passing(self, leaf: Any) -> Node | None:
        """What values, nulls apart, pass a filter; None when that cannot be said."""
        kind, types = self.type, pa.types
        if kind is None:
            return None
        order = ordered(kind)
        if order is not None:
            return self._of_order(leaf, order)
        if types.is_floating(kind):
            return self._of_floats(leaf)
        if types.is_boolean(kind):
            return self._of_flags(leaf)
        if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            if type(leaf) in _AROUND:
                return self._of_words(leaf)
            return self._plain(leaf, str, pa.string())
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
            return self._plain(leaf, bytes, pa.binary())
        return None

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
        if len(values) > MOST_VALUES:
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
        if len(ranges) > MOST_RANGES:
            return None
        return self._any_of(single.values(), ranges)

    def _any_of(self, items: Iterable[Node], others: Sequence[Node]) -> Node:
        items = tuple(items)
        parts = [tree.InList(self.operand, items), *others] if items else list(others)
        return tree.either(*parts) if parts else NEVER

    # ----------------------------------------------------------------------- floats

    def _of_floats(self, leaf: Any) -> Node | None:
        # Among the floats that are no NaN, glaive's order is Spark's.
        low, high = self._float(-math.inf), self._float(math.inf)
        numbers = tree.Between(self.operand, low, high)
        nans = tree.either(Compare(">", self.operand, high), Compare("<", self.operand, low))
        if isinstance(leaf, In):
            values = [one for one in leaf.value if one is not None]
            if len(values) > MOST_VALUES or not all(map(self._is_float, values)):
                return None
            others = [nans] if any(map(math.isnan, values)) else []
            return self._any_of([self._float(one) for one in values if not math.isnan(one)], others)
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
        """Whether a constant is one that the column can have."""
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

    # ------------------------------------------------------- booleans, texts, bytes

    def _of_flags(self, leaf: Any) -> Node | None:
        values = leaf.value if isinstance(leaf, In) else [leaf.value]
        if not all(value is None or isinstance(value, bool) for value in values):
            return None
        if isinstance(leaf, In):
            passing = {value for value in values if value is not None}
        elif type(leaf) in _OPS:
            passing = {one for one in (False, True) if _holds(_OPS[type(leaf)], one, leaf.value)}
        else:
            return None
        if len(passing) != 1:
            return ALWAYS if passing else NEVER
        return Compare("=", self.operand, Literal(passing.pop(), pa.bool_()))

    def _plain(self, leaf: Any, kind: type, stored: pa.DataType) -> Node | None:
        if isinstance(leaf, In):
            values = [one for one in leaf.value if one is not None]
            if len(values) > MOST_VALUES or not all(isinstance(value, kind) for value in values):
                return None
            return self._any_of([Literal(value, stored) for value in values], [])
        if type(leaf) not in _OPS or not isinstance(leaf.value, kind):
            return None
        return Compare(_OPS[type(leaf)], self.operand, Literal(leaf.value, stored))

    def _of_words(self, leaf: Any) -> Node | None:
        if not isinstance(leaf.value, str):
            return None
        if not leaf.value:
            return ALWAYS
        before, behind = _AROUND[type(leaf)]
        word = leaf.value
        for sign in "\\%_":
            word = word.replace(sign, f"\\{sign}")
        return tree.Like(self.operand, Literal(f"{before}{word}{behind}", pa.string()))


def _holds(op: str, left: bool, right: bool) -> bool:
    return {
        "=": left == right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]
