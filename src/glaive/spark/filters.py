"""Translate filters that Spark pushes down to glaive's filter language.

Spark offers a conjunction of tests on single columns, and evaluates rejected tests itself. glaive
accepts a filter only if it selects exactly the rows that Spark would:

* For Spark all NaNs are equal and greater than other values; glaive orders them by their bits.
  Ranges of floats are rewritten to select the same rows.
* Columns that are converted for Spark are compared by their stored values; see below.
* Columns whose type the user's schema changed, collated strings, extension types and computed
  columns are only tested for nulls.

Nulls pass only tests for nulls: they fail all other tests and their negations.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, getcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DecimalType, LongType

from glaive.dataclass import dataclass
from glaive.errors import ColumnNotFoundError, FilterError, SchemaError
from glaive.expr import tree
from glaive.expr.coerce import PER_SECOND, is_binary, is_string
from glaive.expr.filters import bind_filter
from glaive.expr.parse import render
from glaive.expr.tree import Call, Compare, Literal, Node
from glaive.format.blobs import is_blob
from glaive.scan.projection import SYSTEM_COLUMNS
from glaive.spark.frame import stored_paths
from glaive.spark.types import to_spark
from glaive.spark.versions import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from glaive.dataset.dataset import LanceDataset
    from glaive.format.fields import LanceSchema
    from glaive.spark.options import Options


# --- Convert comparisons with Spark constants to comparisons with stored values ---------
# Stored types that Spark lacks are converted: milliseconds to microseconds, nanoseconds truncated
# to microseconds, ``uint64`` to decimals. These conversions are monotonic. So a comparison in Spark
# is a comparison with a range of stored values. glaive computes it in integers: units of time,
# days, digits of a decimal.

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # for times without a zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_SPARK_UNITS_PER_SECOND = 10**6

_FIRST_DAY = date(1582, 10, 15)
"""First day of the Gregorian calendar. Spark maps the ten days before it to this day."""

_UNKNOWN = datetime(1582, 10, 14), datetime(1582, 10, 17)  # noqa: DTZ001  # of any zone
"""Range in UTC; instants within it may have been moved by up to ten days."""

Span = tuple[int, int]
"""Minimum and maximum stored value; empty if the first exceeds the second."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A column whose stored values are integers, ordered like the converted values in Spark.

    Parameters
    ----------
    minimum, maximum
        Bounds of stored values.
    read
        Converts a Spark constant to numerator and denominator in Spark's unit; ``None`` for other
        types.
    literal
        Converts a stored value to a constant of glaive.
    multiplied, divided
        Spark sees a value multiplied by the first, then divided by the second, truncated towards
        zero. At least one of them is 1.
    """

    minimum: int
    maximum: int
    read: Callable[[Any], tuple[int, int] | None]
    literal: Callable[[int], Node]
    multiplied: int = 1
    divided: int = 1

    def equal(self, constant: object) -> Span | None:
        """Return stored values that equal a constant in Spark; ``None`` if they are unknown."""
        ratio = self.read(constant)
        if ratio is None:
            return None
        over, under = ratio
        low, high = -(-over // under), over // under
        if self.multiplied > 1:
            span = -(-over // (under * self.multiplied)), over // (under * self.multiplied)
        elif self.divided > 1:
            more = self.divided - 1
            span = (
                low * self.divided - (0 if low > 0 else more),
                high * self.divided + (0 if high < 0 else more),
            )
        else:
            span = low, high
        return span


def ordered(data_type: Any) -> Ordered | None:
    """Return how to compare values of a type stored as integers; ``None`` for other types."""
    types = pa.types
    if types.is_integer(data_type):
        minimum = 0 if types.is_unsigned_integer(data_type) else -(1 << (data_type.bit_width - 1))
        bits = data_type.bit_width - (minimum < 0)
        return Ordered(minimum, (1 << bits) - 1, _number, lambda n: Literal(n, data_type))
    if types.is_boolean(data_type):
        return Ordered(0, 1, _flag, lambda n: Literal(bool(n), data_type))
    if types.is_decimal(data_type):
        maximum = 10**data_type.precision - 1
        return Ordered(
            -maximum,
            maximum,
            lambda value: _scaled(value, data_type.scale),
            lambda n: Literal(_decimal(n, data_type.scale), data_type),
        )
    if types.is_date32(data_type):
        return Ordered(-(2**31), 2**31 - 1, _days, lambda n: _cast(n, "Date32"))
    if not types.is_timestamp(data_type):
        return None
    per_second = PER_SECOND[data_type.unit]
    zone = "None" if data_type.tz is None else f'Some("{data_type.tz}")'
    name = f"Timestamp({_UNITS[data_type.unit]}, {zone})"
    return Ordered(
        -(2**63),
        2**63 - 1,
        _moment if data_type.tz is None else _instant,
        lambda n: _cast(n, name),
        multiplied=max(1, _SPARK_UNITS_PER_SECOND // per_second),
        divided=max(1, per_second // _SPARK_UNITS_PER_SECOND),
    )


def _flag(value: Any) -> tuple[int, int] | None:
    return (int(value), 1) if isinstance(value, bool) else None


def _number(value: Any) -> tuple[int, int] | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value, 1
    if isinstance(value, Decimal) and value.is_finite():
        return value.as_integer_ratio()
    return None


def _scaled(value: Any, scale: int) -> tuple[int, int] | None:
    ratio = _number(value)
    if ratio is None:
        return None
    over, under = ratio
    return (over * 10**scale, under) if scale >= 0 else (over, under * 10**-scale)


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def _days(value: Any) -> tuple[int, int] | None:
    if isinstance(value, date) and not isinstance(value, datetime) and value != _FIRST_DAY:
        return value.toordinal() - _EPOCH_DAY, 1
    return None


def _instant(value: Any) -> tuple[int, int] | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        since = value.replace(tzinfo=None) - _EPOCH - (value.utcoffset() or timedelta())
        if not _UNKNOWN[0] - _EPOCH <= since < _UNKNOWN[1] - _EPOCH:
            return since // _MICROSECOND, 1
    return None


def _moment(value: Any) -> tuple[int, int] | None:
    if isinstance(value, datetime) and value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND, 1
    return None


def _cast(value: int, name: str) -> Node:
    """Make a constant from its integer: strings lack years before 1 and time zones."""
    return Call("arrow_cast", (Literal(value, pa.int64()), Literal(name, pa.string())))


# --- Translate Spark's tests on a column to glaive's filter language --------------------

MAX_IN_VALUES = 10_000
"""Maximum values of an IN list to push down."""

MAX_IN_RANGES = 500
"""Maximum ranges that replace values of an IN list, if a Spark value means several stored
values."""

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
"""Matches all valid values."""

NEVER = Literal(False, pa.bool_())


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of two columns of a row, which Spark keeps to itself; nulls fail.

    Parameters
    ----------
    attribute, other
        Paths of the columns.
    kind
        The test with the same operator: equality, or an order.
    """

    attribute: tuple[str, ...]
    other: tuple[str, ...]
    kind: type[Filter]


@dataclass(frozen=True, slots=True)
class Column:
    """A column in a filter and its stored type; ``None`` allows only tests for nulls."""

    operand: Node
    type: Any = None

    @property
    def not_null(self) -> Node:
        """The test that all values except nulls pass."""
        return tree.IsNull(self.operand, negated=True)

    def passing(self, leaf: Any) -> Node | None:
        """Return the test that matches the same values, except nulls; ``None`` if inexpressible."""
        data_type, types = self.type, pa.types
        if data_type is None:
            return None
        if isinstance(leaf, In):
            return self._one_of(leaf)
        order = ordered(data_type)
        if order is not None:
            return self._of_order(leaf, order)
        if types.is_floating(data_type):
            return self._of_floats(leaf)
        if is_string(data_type):
            if type(leaf) in _WILDCARDS:
                return self._of_patterns(leaf)
            return self._plain(leaf, str, pa.string())
        if is_binary(data_type):
            return self._plain(leaf, bytes, pa.binary())
        return None

    def compared(self, kind: type[Filter], other: Column) -> Node | None:
        """Return the comparison with another column; ``None`` if Spark may order their values
        differently.
        """
        data_type = self.type
        if data_type is None or data_type != other.type:
            return None
        order = ordered(data_type)
        exact = is_string(data_type) if order is None else order.divided == 1
        return Compare(_OPS[kind], self.operand, other.operand) if exact else None

    # ----------------------------------------------------------- values in an order

    def _of_order(self, leaf: Any, order: Ordered) -> Node | None:
        span = order.equal(leaf.value) if type(leaf) in _OPS else None
        if span is None:
            return None
        low, high = span
        match _OPS[type(leaf)]:
            case ">":
                low, high = high + 1, order.maximum
            case ">=":
                high = order.maximum
            case "<":
                low, high = order.minimum, low - 1
            case "<=":
                low = order.minimum
        return self._between(order, low, high)

    def _between(self, order: Ordered, low: int, high: int) -> Node:
        minimum, maximum = order.minimum, order.maximum
        low, high = max(low, minimum), min(high, maximum)
        if low > high:
            return NEVER
        if low == high:
            return Compare("=", self.operand, order.literal(low))
        if low == minimum:
            return ALWAYS if high == maximum else Compare("<=", self.operand, order.literal(high))
        if high == maximum:
            return Compare(">=", self.operand, order.literal(low))
        return tree.Between(self.operand, order.literal(low), order.literal(high))

    def _one_of(self, leaf: Any) -> Node | None:
        """Match one of several values: constants, or ranges if a Spark value means several."""
        values = [value for value in leaf.value if value is not None]
        if len(values) > MAX_IN_VALUES:
            return None
        items, others = list[Node](), list[Node]()
        for value in values:
            test = self.passing(EqualTo(leaf.attribute, value))
            if test is None:
                return None
            if isinstance(test, Compare) and test.op == "=":
                items.append(test.right)
            elif test != NEVER and test not in others:
                others.append(test)
        if len(others) > MAX_IN_RANGES:
            return None
        listed = [tree.InList(self.operand, tuple(items))] if items else []
        return tree.either(*listed, *others) if items or others else NEVER

    # ----------------------------------------------------------------------- floats

    def _of_floats(self, leaf: Any) -> Node | None:
        # Apart from NaNs, glaive orders floats like Spark.
        low, high = self._float(-math.inf), self._float(math.inf)
        numbers = tree.Between(self.operand, low, high)
        nans = tree.either(Compare(">", self.operand, high), Compare("<", self.operand, low))
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
        """Return whether the type of the column can represent a constant."""
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

    # ----------------------------------------------------------------- strings, bytes

    def _plain(self, leaf: Any, value_type: type, stored: pa.DataType) -> Node | None:
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


MAX_CHARS = 400_000
"""Maximum total characters of filters, which every task parses again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pushed:
    """Accepted and rejected filters.

    Parameters
    ----------
    filters
        Accepted filters in glaive's language; rows must pass all.
    rest
        Filters that Spark must evaluate itself: the same objects.
    complete
        Whether all filters were accepted.
    """

    filters: tuple[str, ...]
    rest: list[Filter]
    complete: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame and its dataset.

    Parameters
    ----------
    columns
        The Spark schema of the frame.
    paths
        Paths in the dataset of the stored columns of the frame.
    schema, scanned
        The schema of the dataset for filters, and the schema of scans.
    """

    columns: StructType
    paths: Mapping[str, tuple[str, ...]]
    schema: LanceSchema
    scanned: pa.Schema

    @classmethod
    def of(cls, columns: StructType, dataset: LanceDataset, options: Options) -> Frame:
        """Return a frame with the columns of a read."""
        paths, scanned = stored_paths(dataset, options), dataset.scanner().projected_schema
        return cls(columns, paths, dataset.lance_schema, scanned)


def push(filters: Sequence[Filter | Compared], frame: Frame, budget: int = MAX_CHARS) -> Pushed:
    """Accept filters that can be translated, up to ``budget`` characters in total."""
    accepted: dict[str, None] = {}
    taken: set[int] = set()
    implied: list[tuple[str, ...]] = []
    # Spark adds a redundant test for nulls to every comparison.
    for pushed in sorted(filters, key=lambda pushed: isinstance(pushed, IsNotNull)):
        if isinstance(pushed, IsNotNull) and any(
            path[: len(pushed.attribute)] == pushed.attribute for path in implied
        ):
            taken.add(id(pushed))
            continue
        text = _text(pushed, frame)
        if text is None or sum(map(len, accepted)) + len(text) > budget:
            continue
        taken.add(id(pushed))
        accepted[text] = None
        implied += _not_null(pushed)
    rest = [test for test in filters if isinstance(test, Filter) and id(test) not in taken]
    return Pushed(tuple(accepted), rest, all(id(test) in taken for test in filters))


def may_be_rounded(pushed: Filter) -> bool:
    """Return whether a decimal of a filter may differ from the decimal of the query.

    Spark's worker multiplies the digits by a power of ten. Python keeps as many digits of the
    product as its context has: 28. Spark's decimals have up to 38.
    """
    leaf: Any = pushed.child if isinstance(pushed, Not) else pushed
    value: Any = getattr(leaf, "value", None)
    values = value if isinstance(leaf, In) else (value,)
    digits = getcontext().prec
    return any(isinstance(one, Decimal) and len(one.as_tuple().digits) >= digits for one in values)


def _not_null(pushed: Filter | Compared) -> list[tuple[str, ...]]:
    """Return the column that is valid in all rows that pass a filter."""
    leaf: Any = pushed.child if isinstance(pushed, Not) else pushed
    if isinstance(leaf, IsNull | IsNotNull):
        return [leaf.attribute] if isinstance(leaf, IsNotNull) != isinstance(pushed, Not) else []
    if isinstance(leaf, EqualNullSafe) and (isinstance(pushed, Not) or leaf.value is None):
        return []
    return [leaf.attribute]  # all tests except ``Not`` have it


def _text(pushed: Filter | Compared, frame: Frame) -> str | None:
    node = _node(pushed, frame)
    if node is None:
        return None
    text = render(node)
    try:
        bind_filter(text, frame.schema, system=SYSTEM_COLUMNS)
    except (FilterError, ColumnNotFoundError) as error:
        _log.debug("%r is not pushed down: %s", pushed, error)
        return None
    return text


def _node(pushed: Filter | Compared, frame: Frame) -> Node | None:
    if isinstance(pushed, Compared):
        first, second = _column(pushed.attribute, frame), _column(pushed.other, frame)
        return None if first is None or second is None else first.compared(pushed.kind, second)
    negated = isinstance(pushed, Not)
    leaf: Any = pushed.child if isinstance(pushed, Not) else pushed
    column = _column(leaf.attribute, frame)
    if column is None:
        return None
    if isinstance(leaf, IsNull | IsNotNull):
        return tree.IsNull(column.operand, isinstance(leaf, IsNotNull) != negated)
    if isinstance(leaf, EqualNullSafe) and leaf.value is None:
        return tree.IsNull(column.operand, negated)
    if leaf.value is None or (negated and isinstance(leaf, In) and None in leaf.value):
        return NEVER  # unknown for all rows
    test = column.passing(leaf)
    if test is None:
        return None
    if not negated:
        return column.not_null if test == ALWAYS else test
    if test in (ALWAYS, NEVER):
        test = NEVER if test == ALWAYS else column.not_null
    else:
        test = tree.Not(test)
    if isinstance(leaf, EqualNullSafe):  # null differs from all values
        return tree.either(tree.IsNull(column.operand), test)
    return test


def _column(path: tuple[str, ...], frame: Frame) -> Column | None:
    """Return the column at a Spark path; ``None`` if filters cannot refer to it."""
    top = frame.paths.get(path[0])
    if top is None or path[0] not in frame.columns.names:
        return None
    names = top + path[1:]
    if any("`" in name for name in names):
        return None
    operand = tree.Name(names, exact=True)
    seen: Any = frame.columns[path[0]].dataType
    for name in path[1:]:
        seen = seen[name].dataType
    if names[0] in SYSTEM_COLUMNS and names[0] not in frame.schema.names:
        data_type = SYSTEM_COLUMNS[names[0]]
        return Column(operand, data_type if isinstance(seen, LongType) else None)
    among = frame.schema.fields
    for name in names:
        stored = next(field for field in among if field.name == name)
        if is_blob(stored) or stored.is_blob_v2:
            return None  # a descriptor in Spark
        among = stored.children
    field = frame.scanned.field(names[0])
    for name in names[1:]:
        if not pa.types.is_struct(field.type):
            return None
        field = field.type.field(name)
    return Column(operand, _comparable(field, seen))


def _comparable(field: Any, seen: DataType) -> Any:
    """Return the stored type of a column if Spark sees its values unconverted, or ``None``."""
    data_type = field.type
    if isinstance(data_type, pa.BaseExtensionType):
        return None
    try:
        expected = to_spark(pa.schema([field]))[0].dataType
    except SchemaError:
        return None
    if expected != seen:  # the user's schema has another type
        return None
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_decimal(data_type) and not isinstance(seen, DecimalType):
        return None  # too many digits: a string in Spark
    return data_type
