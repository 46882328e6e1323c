"""Scans as tasks of a query, so that Spark knows their size and reads equal scans once.

To Spark 4.3 every scan of a Python source has an unknown size and differs from all others. So Spark
shuffles even a small scan for a join, and reads it again wherever a plan repeats it. A function
over a range of numbers avoids both. Each part has a number, and the length of the range makes Spark
estimate the right size. Equal scans of a query are one function.

Decimals of at most 18 digits travel as integers, which Java reads at a tenth of the cost. Spark's
generated code converts them back, through the JVM of a classic session: SQL lacks this function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StructType

from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import GlaiveError, SchemaError
from glaive.process import random_bytes
from glaive.spark.api import is_connect
from glaive.spark.cast import (
    LONG_DIGITS,
    SETTING,
    decimals,
    retyped,
    short_decimals,
    unscaled,
    with_column,
    with_expressions,
)
from glaive.spark.frame import frame_schema, planner_bytes
from glaive.spark.source import Keys, LanceReader
from glaive.spark.types import MAX_DECIMAL_DIGITS, spark_arrow_schema, to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.spark.options import Options


# --- Aggregates of the rows of a task: a row per group, which Spark aggregates further --
# Sums are exact. glaive adds decimals as 64-bit integers if the values of a batch allow it, or else
# as wider integers. If the sum of a column might overflow, each row is passed on as its own group.

AGGREGATE_SETTING = "spark.glaive.partialAggregates"
"""Setting of a session: with ``false``, Spark aggregates all rows itself."""

MAX_GROUPS = 1 << 17
"""Groups that a task holds to add others to them."""

MIN_ROWS = 4
"""Minimum average rows per group; with fewer, holding groups costs more than it saves."""

WINDOW_ROWS = 1 << 20
"""Rows to group at a time if batches have few rows per group. If such windows have few as well, the
task passes on its other rows."""

MAX_LONG = 1 << 63

_EXACT = Context(prec=80)

_FUNCTIONS = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""Functions that aggregate values, and partial aggregates: counts are sums of ones."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column: of integers or decimals if it is part of arithmetic."""

    name: str
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Constant:
    """A number: ``value`` divided by ten to the power of ``scale``."""

    value: int
    scale: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left + right``, ``left - right`` or ``left * right``, with all digits."""

    op: Literal["+", "-", "*"]
    left: Value
    right: Value

    @property
    def scale(self) -> int:
        """Digits after the point."""
        if self.op == "*":
            return self.left.scale + self.right.scale
        return max(self.left.scale, self.right.scale)


Value = Leaf | Constant | Arithmetic


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows of a group.

    Parameters
    ----------
    kind
        ``count`` counts rows with a valid ``value``.
    value
        ``None`` for all rows, only with ``count``. Arithmetic only with ``sum``.
    """

    kind: Literal["sum", "count", "min", "max"]
    value: Value | None


@dataclass(frozen=True, slots=True)
class PartialAggregates:
    """Groups rows by some columns. Can be pickled.

    Parameters
    ----------
    keys
        Columns with equal values in all rows of a group; empty: all rows are one group.
    aggregates
        Aggregates in the order of the columns after the keys.
    schema
        Keys, then aggregates. Sums of integers are ``bigint``. Sums of decimals are
        ``decimal(18, s)`` for columns and ``decimal(38, s)`` for arithmetic.
    """

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    schema: StructType

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield groups; several may have the same keys."""
        held: list[pa.Table] = []
        waiting: list[pa.Table] = []
        count, window = 0, 1
        for batch in batches:
            if not batch.num_rows:
                continue
            waiting.append(self._values_of(batch))
            count += batch.num_rows
            if count < window:
                continue
            groups = self._grouped(waiting) if window else waiting[0]
            if groups.num_rows * MIN_ROWS <= count:
                held.append(groups)
            elif window and count < WINDOW_ROWS:
                window = WINDOW_ROWS
                continue
            else:
                window = 0
                yield from self._typed(groups).to_batches()
            waiting, count = [], 0
            if sum(table.num_rows for table in held) > MAX_GROUPS:
                held = [self._grouped(held)]
                if held[0].num_rows * 2 > MAX_GROUPS:
                    yield from self._typed(held.pop()).to_batches()
        held += [self._grouped(waiting)] if waiting else []
        if held:
            joined = self._grouped(held) if len(held) > 1 else held[0]
            yield from self._typed(joined).to_batches()

    def _values_of(self, batch: pa.RecordBatch) -> pa.Table:
        """Return each row of a batch as a group."""
        values = [
            _values(aggregate, kind, batch)
            for aggregate, kind in zip(self.aggregates, self._kinds(), strict=True)
        ]
        return pa.table([*(batch.column(name) for name in self.keys), *values], self._names())

    def _grouped(self, tables: list[pa.Table]) -> pa.Table:
        """Join groups with equal keys, unless a sum might overflow."""
        names = self._names()
        if any(table.schema != tables[0].schema for table in tables):
            tables = [self._typed(table).rename_columns(names) for table in tables]
        table = pa.concat_tables(tables)
        keys, functions = names[: len(self.keys)], list[Any]()
        values = zip(names[len(keys) :], self.aggregates, self._kinds(), strict=True)
        for name, aggregate, kind in values:
            functions.append((name, _FUNCTIONS[aggregate.kind]))
            if functions[-1][1] != "sum":
                continue
            part: Any = table[name]
            low, high = _extremes(part)
            bound = max(-low, high) * table.num_rows
            if bound >= _limit(kind):
                return table
            if bound >= MAX_LONG and pa.types.is_int64(part.type):
                table = table.set_column(int(name), name, _as_type(part, kind))
        groups = table.group_by(keys, use_threads=False).aggregate(functions)
        return groups.rename_columns(names)

    def _names(self) -> list[str]:
        """Return the names of columns during the calculation."""
        return [str(number) for number in range(len(self.schema))]

    def _typed(self, table: pa.Table) -> pa.Table:
        """Return columns of the schema from the calculated columns."""
        expected = spark_arrow_schema(self.schema)
        columns = [
            _as_type(column, field.type)
            for column, field in zip(table.columns, expected, strict=True)
        ]
        return pa.table(columns, schema=expected)

    def _kinds(self) -> list[Any]:
        """Return the Arrow types of the aggregates."""
        return list(spark_arrow_schema(self.schema).types[len(self.keys) :])


def _limit(kind: Any) -> int:
    """Return the exclusive bound of sums of a type."""
    limit: int = 10**kind.precision if pa.types.is_decimal(kind) else MAX_LONG
    return limit


def _as_type(column: Any, kind: Any) -> Any:
    if pa.types.is_decimal(kind) and pa.types.is_int64(column.type):
        return pa.chunked_array([decimals(chunk, kind) for chunk in column.chunks])
    return column.cast(kind)


def _values(aggregate: Aggregate, kind: Any, batch: pa.RecordBatch) -> Any:
    """Return the values to aggregate for each row; sums of integers may be unscaled decimals."""
    value = aggregate.value
    if value is None:
        return pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
    if aggregate.kind == "sum":
        whole = _integers(value, batch)
        return _exact(value, kind, batch) if whole is None else whole.array
    column = batch.column(value.name) if isinstance(value, Leaf) else None
    if column is None:
        raise SchemaError(f"{aggregate.kind}: expected a column, found {value!r:.200}")
    return column.is_valid().cast(pa.int64()) if aggregate.kind == "count" else column


def _exact(value: Value, kind: Any, batch: pa.RecordBatch) -> Any:
    """Return the values of arithmetic beyond 64 bits."""
    try:
        return _decimals(value, batch).cast(kind)
    except pa.ArrowException as error:
        raise SchemaError(
            f"the sum of a query has values of more than {MAX_DECIMAL_DIGITS} digits ({error}). "
            f"Run it with {AGGREGATE_SETTING}=false"
        ) from error


class _Ints(NamedTuple):
    """Unscaled values, and integer bounds of them."""

    array: Any
    low: int
    high: int


def _integers(value: Value, batch: pa.RecordBatch) -> _Ints | None:
    """Return unscaled values as ``int64``; ``None`` if some might overflow."""
    if isinstance(value, Leaf):
        column = batch.column(value.name)
        is_decimal = pa.types.is_decimal(column.type)
        array = unscaled(column, value.name) if is_decimal else column.cast(pa.int64())
        return _Ints(array, *_extremes(array))
    if isinstance(value, Constant):
        number = value.value
        return _Ints(pa.scalar(number, pa.int64()), number, number)
    left, right = _integers(value.left, batch), _integers(value.right, batch)
    if left is None or right is None:
        return None
    if value.op == "*":
        ends = [a * b for a in left[1:] for b in right[1:]]
        return _fitting("multiply", left, right, min(ends), max(ends))
    left = _scaled(left, value.scale - value.left.scale)
    right = _scaled(right, value.scale - value.right.scale)
    if left is None or right is None:
        return None
    if value.op == "+":
        return _fitting("add", left, right, left.low + right.low, left.high + right.high)
    return _fitting("subtract", left, right, left.low - right.high, left.high - right.low)


def _scaled(values: _Ints, digits: int) -> _Ints | None:
    if not digits:
        return values
    if digits > LONG_DIGITS:
        return None
    power = 10**digits
    factor = _Ints(pa.scalar(power, pa.int64()), power, power)
    return _fitting("multiply", values, factor, values.low * power, values.high * power)


def _fitting(function: str, left: _Ints, right: _Ints, low: int, high: int) -> _Ints | None:
    """Return the result of a function, if all values between the bounds fit."""
    if max(-low, high) >= MAX_LONG:
        return None
    return _Ints(pc.call_function(function, [left.array, right.array]), low, high)


def _decimals(value: Value, batch: pa.RecordBatch) -> Any:
    """Return values as decimals of up to 76 digits."""
    if isinstance(value, Leaf):
        column = batch.column(value.name)
        if pa.types.is_decimal(column.type):
            return column.cast(pa.decimal256(column.type.precision, column.type.scale))
        return column.cast(pa.decimal256(19, 0))
    if isinstance(value, Constant):
        number = Decimal(value.value).scaleb(-value.scale)
        return pa.scalar(number, pa.decimal256(LONG_DIGITS + 1, value.scale))
    function = {"+": "add", "-": "subtract", "*": "multiply"}[value.op]
    return pc.call_function(function, [_decimals(value.left, batch), _decimals(value.right, batch)])


def _extremes(array: Any) -> tuple[int, int]:
    """Return smallest and largest value, for decimals unscaled; zeros if all are null."""
    ends = pc.min_max(array)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None:
        return 0, 0
    if isinstance(low, Decimal):
        scale = array.type.scale
        return int(low.scaleb(scale, _EXACT)), int(high.scaleb(scale, _EXACT))
    return low, high


MAX_PLANNED = 1 << 14
"""Maximum parts and fragments of a scan, as every task gets the list of all parts. Larger scans
use the data source."""

NUMBER_BYTES = 8
"""Bytes that Spark's planner expects of a number in a range, and of a function over it."""

MAX_NUMBERS = 1 << 30
"""Maximum length of the range. Each number takes 1 ns; Spark broadcasts less than 8 GiB."""

MAX_REMEMBERED = 1 << 14
_SCANS: dict[str, Options] = {}
"""Options of the newest scans, by the names of their functions, which plans keep."""


class ScanFunction:
    """Reads the parts of a scan by their numbers, as batches.

    Parameters
    ----------
    reader
        Reader of one version of a dataset.
    parts
        The values of the reader's partitions.
    step
        Distance between the numbers of parts.
    as_integers
        Decimals to return as unscaled ``int64``.
    aggregates
        Groups to return instead of the rows.
    """

    PREFIX: ClassVar = "lance "
    """Prefix of the names of such functions in Spark's plans."""

    def __init__(
        self,
        reader: LanceReader,
        parts: list[Any],
        step: int,
        as_integers: frozenset[str],
        aggregates: PartialAggregates | None = None,
    ) -> None:
        self.reader = reader
        self.parts = parts
        self.step = step
        self.as_integers = as_integers
        self.aggregates = aggregates
        grouped = "" if aggregates is None else f" grouped by ({', '.join(aggregates.keys)})"
        self.__name__ = f"{self.PREFIX}{_description(reader)}{grouped} [{random_bytes(8).hex()}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the parts."""
        read = self._rows(batches)
        for rows in read if self.aggregates is None else self.aggregates.rows(read):
            yield _without_scale(rows, self.as_integers) if self.as_integers else rows

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[int] = batch.column(0).to_pylist()  # type: ignore[assignment]  # no nulls
            for number in numbers:
                yield from self.reader.read(InputPartition(self.parts[number // self.step]))


def planned_scan(
    spark: SparkSession,
    options: Options,
    dataset: LanceDataset,
    aggregates: PartialAggregates | None = None,
    keys: tuple[Keys, ...] = (),
    share: float = 1.0,
) -> DataFrame | None:
    """Return the frame of a scan, for a query that will run soon.

    Parameters
    ----------
    options
        Options with a pinned version. They request a scan, as opposed to a search.
    dataset
        That version.
    aggregates
        Groups that tasks return instead of the rows.
    keys
        Values that columns must have.
    share
        Share of the rows that pass the filter, for Spark's planner.

    Returns
    -------
    DataFrame or None
        ``None`` if the data source must read it: it has too many fragments, or the session
        disables it.
    """
    wanted = (spark.conf.get(SETTING, "true") or "").lower() != "false"
    if not wanted or dataset.manifest.num_fragments > MAX_PLANNED:
        return None
    stored = to_spark(frame_schema(dataset, options))
    reader = LanceReader(options, stored, keys)
    schema = stored if aggregates is None else aggregates.schema
    parts = [partition.value for partition in reader.partitions()]
    if len(parts) > MAX_PLANNED:
        return None
    as_integers = frozenset[str]() if is_connect(spark) else short_decimals(schema)
    sent = retyped(schema, dict.fromkeys(as_integers, LongType()))
    size = int(planner_bytes(dataset, options) * share)
    numbers = min(size // NUMBER_BYTES, MAX_NUMBERS)
    step = max(1, -(-numbers // max(1, len(parts))))
    ranged = spark.range(0, len(parts) * step, 1, max(1, len(parts)))
    if step > 1:
        ranged = ranged.where(f"id % {step} = 0")
    function = ScanFunction(reader, parts, step, as_integers, aggregates)
    if len(_SCANS) >= MAX_REMEMBERED:
        del _SCANS[next(iter(_SCANS))]
    _SCANS[function.__name__] = options
    frame = ranged.mapInArrow(function, sent)
    return _with_decimals(frame, schema, as_integers) if as_integers else frame


def options_of(name: str) -> Options | None:
    """Return the options of a scan of this process, by the name of its function in a plan."""
    return _SCANS.get(name)


def shown_name(uri: str) -> str:
    """Return the last part of a path or URI, without passwords."""
    return GlaiveError.without_secrets(uri).rstrip("/").rsplit("/", 1)[-1]


def _description(reader: LanceReader) -> str:
    """Return name and filter of a dataset; omit storage options and passwords."""
    named = shown_name(reader.options.uri) + (
        "" if reader.filter is None else f" where {reader.filter:.200}"
    )
    return named + "".join(
        f", {'.'.join(path)} among {len(values)} keys of {origin}"
        for path, values, origin in reader.keys
    )


def _with_decimals(frame: DataFrame, schema: StructType, as_integers: frozenset[str]) -> DataFrame:
    """Convert integers of a frame back to decimals."""

    def made(expressions: Any, column: Any, name: str) -> Any:
        kind: Any = schema[name].dataType
        # A value with more digits raises an error.
        return expressions.MakeDecimal(column, kind.precision, kind.scale, False)

    return with_expressions(frame, as_integers, made)


def _without_scale(batch: pa.RecordBatch, names: frozenset[str]) -> pa.RecordBatch:
    """Return the batch with some decimals as integers: ``1.25`` with two digits is 125."""
    for name in names:
        batch = with_column(batch, name, unscaled(batch.column(name), name))
    return batch
