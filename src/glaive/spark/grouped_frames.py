"""Frames of queries that tasks aggregate in part: groups, made final by Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import DecimalType, LongType, StructType

from glaive.dataclass import dataclass
from glaive.format.column_path import quoted_name
from glaive.spark.aggregate_queries import Final, grouped_query
from glaive.spark.api import is_connect, is_set
from glaive.spark.partial_aggregates import SETTING
from glaive.spark.planned_scan import planned_scan
from glaive.spark.query_tables import select_span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.spark.options import Options
    from glaive.spark.query_tables import TableUse

__all__ = ["GroupedFrame", "grouped_frame"]

MAX_ROWS = 10**9
"""Of larger datasets, sums might need more digits than Spark gives them."""

LONG_COUNT = 20
"""Digits of a ``bigint``."""

SUM_DIGITS = 10
AVERAGE_DIGITS = 4
"""Digits that Spark adds to those of a decimal for its sum, and for its average."""


@dataclass(frozen=True, slots=True)
class GroupedFrame:
    """What replaces a select of a query.

    Parameters
    ----------
    start, end
        The text of the select within the query.
    before, after
        The select in place of it, around the name of its table.
    frame
        That table.
    """

    start: int
    end: int
    before: str
    after: str
    frame: DataFrame


def grouped_frame(
    spark: SparkSession,
    query: str,
    use: TableUse,
    schema: StructType,
    options: Options,
    dataset: LanceDataset,
) -> GroupedFrame | None:
    """The select of a table from groups that tasks make; a few analyses by Spark, no rows.

    Parameters
    ----------
    use
        The place of the table; ``options`` have all of its tests.
    schema
        All columns of the table.

    Returns
    -------
    GroupedFrame or None
        ``None`` where Spark aggregates all rows: it is not certain that the answer is the same, or
        the session says so.
    """
    wanted = (spark.conf.get(SETTING, "true") or "").lower() != "false"
    if not wanted or not use.decided or is_connect(spark) or dataset.count_rows() > MAX_ROWS:
        return None
    span = select_span(query, use.table)
    if span is None:
        return None
    empty: Any = spark.createDataFrame([], schema).alias(use.table.alias_or_name)
    try:
        grouped = grouped_query(use, schema, empty)
        if grouped is None:
            return None
        written = _of_empty(spark, query, span, use, empty).schema
        needed = replace(options, columns=grouped.columns or options.columns)
        groups = planned_scan(spark, needed, dataset, grouped.partial)
        if groups is None:
            return None
        finals = [_final(groups, final).alias(name) for name, final in grouped.finals.items()]
        frame: Any = groups.groupBy(*map(quoted_name, grouped.partial.keys)).agg(*finals)
        before, after = grouped.text(written.names)
        text = f"{_escaped(before)}{{frame}}{_escaped(after)}"
        found = spark.sql(text, frame=frame).schema
    except PySparkException:  # Spark refuses the query, and will say so to the user
        return None
    if [field.dataType for field in found] != [field.dataType for field in written]:
        return None
    return GroupedFrame(*span, before, after, frame)


def _of_empty(
    spark: SparkSession, query: str, span: tuple[int, int], use: TableUse, empty: DataFrame
) -> DataFrame:
    """The select as it is written, of no rows."""
    name = use.table.this
    before, after = query[span[0] : name.meta["start"]], query[name.meta["end"] + 1 : span[1]]
    alias = "" if use.table.alias else f" AS {quoted_name(name.name)}"
    return spark.sql(f"{_escaped(before)}{{empty}}{alias}{_escaped(after)}", empty=empty)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _final(groups: DataFrame, final: Final) -> Column:
    """An aggregate of the query from columns of groups."""
    from pyspark.sql import functions

    first = functions.col(final.columns[0])
    if final.kind == "count":
        return functions.coalesce(functions.sum(first), functions.lit(0).cast(LongType()))
    if final.kind in ("min", "max"):
        return functions.min(first) if final.kind == "min" else functions.max(first)
    if final.kind == "sum":
        return functions.sum(first).cast(final.data_type)
    data_type: Any = final.data_type
    stored: Any = groups.schema[final.columns[0]].dataType
    digits = data_type.precision - AVERAGE_DIGITS + SUM_DIGITS
    total = functions.sum(first).cast(DecimalType(digits, stored.scale))
    return _quotient(groups, total, functions.sum(final.columns[1]), data_type)


def _quotient(groups: DataFrame, total: Column, count: Column, data_type: Any) -> Column:
    """What Spark makes of the sum and the count of an average of decimals."""
    from pyspark.sql import Column, functions

    session: Any = groups.sparkSession
    spark = session._jvm.org.apache.spark.sql  # noqa: SLF001  # no function of SQL does this
    bridge = spark.classic.ExpressionUtils
    ansi = is_set(session, "spark.sql.ansi.enabled")
    sides: list[Any] = [total, count.cast(DecimalType(LONG_COUNT, 0))]
    divided = spark.catalyst.expressions.DecimalDivideWithOverflowCheck(
        *(bridge.expression(side._jc) for side in sides),  # noqa: SLF001  # as above
        spark.types.DecimalType(data_type.precision, data_type.scale),
        None,
        not ansi,
    )
    return functions.when(count > 0, Column(bridge.column(divided)))
