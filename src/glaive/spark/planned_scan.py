"""Scans as tasks of a query: Spark knows their size, and reads equal ones once.

For Spark 4.3 every scan of a Python source has an unknown size and differs from all others: it is
never broadcast, and read again wherever a plan has it twice. A function over a range of numbers has
neither fault: one number for each part, in a range as long as makes Spark estimate the size. Equal
scans of a query are one function.

Decimals of at most 18 digits travel as integers, which Java reads at a tenth of the cost, and
become decimals in Spark's generated code. No function of SQL does that: classic sessions only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from glaive.entropy import random_bytes
from glaive.errors import GlaiveError
from glaive.format.column_path import quoted_name
from glaive.spark.api import is_connect
from glaive.spark.frame import frame_schema
from glaive.spark.partial_aggregates import PartialAggregates
from glaive.spark.reader import LanceReader
from glaive.spark.sizes import planner_bytes
from glaive.spark.types import to_spark
from glaive.spark.unscaled import SETTING, short_decimals, unscaled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.spark.options import Options

__all__ = ["ScanFunction", "options_of", "planned_scan"]

MAX_PLANNED = 1 << 14
"""Every task gets the list of all parts: scans of more, or of more fragments, go through the data
source."""

NUMBER_BYTES = 8
"""What Spark's planner expects of a number in a range, and of a function over it."""

MAX_NUMBERS = 1 << 30
"""Length of the range, at most. Each number takes a nanosecond; Spark never broadcasts 8 GiB."""

MAX_REMEMBERED = 1 << 14
_SCANS: dict[str, Options] = {}
"""Options of the newest scans, by the names of their functions: plans keep the names."""


class ScanFunction:
    """Reads the parts of a scan whose numbers it gets, as batches.

    Parameters
    ----------
    reader
        Of one version of a dataset.
    parts
        The values of the reader's partitions.
    step
        Between the numbers of parts.
    as_integers
        Decimals that are returned without their scale, as int64.
    aggregates
        Groups to return in place of the rows.
    """

    PREFIX: ClassVar = "lance "
    """How names of such functions begin in Spark's plans."""

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
        self.__name__ = f"{self.PREFIX}{_shown(reader)}{grouped} [{random_bytes(8).hex()}]"

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
) -> DataFrame | None:
    """The frame of a scan, in a query that will run soon.

    Parameters
    ----------
    options
        With the version pinned; no search.
    dataset
        That version.
    aggregates
        What tasks return in place of the rows.

    Returns
    -------
    DataFrame or None
        ``None`` if the data source has to read it: too many fragments, or the session says so.
    """
    wanted = (spark.conf.get(SETTING, "true") or "").lower() != "false"
    if not wanted or dataset.manifest.num_fragments > MAX_PLANNED:
        return None
    stored = to_spark(frame_schema(dataset, options))
    reader = LanceReader(options, stored)
    schema = stored if aggregates is None else aggregates.schema
    parts = [partition.value for partition in reader.partitions()]
    if len(parts) > MAX_PLANNED:
        return None
    as_integers = frozenset[str]() if is_connect(spark) else short_decimals(schema)
    sent = _as_sent(schema, as_integers)
    numbers = min(planner_bytes(dataset, options) // NUMBER_BYTES, MAX_NUMBERS)
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
    """The options of a scan of this process, by the name of its function in a plan."""
    return _SCANS.get(name)


def _shown(reader: LanceReader) -> str:
    """The name and filter of a dataset, without options of stores and passwords of its URL."""
    name = GlaiveError.without_secrets(reader.options.uri).rstrip("/").rsplit("/", 1)[-1]
    return name + ("" if reader.filter is None else f" where {reader.filter:.200}")


def _as_sent(schema: StructType, as_integers: frozenset[str]) -> StructType:
    return StructType(
        [
            StructField(field.name, LongType(), field.nullable)
            if field.name in as_integers
            else field
            for field in schema
        ]
    )


def _with_decimals(frame: DataFrame, schema: StructType, as_integers: frozenset[str]) -> DataFrame:
    """The frame with integers made decimals again."""
    from pyspark.sql import Column

    session: Any = frame.sparkSession
    spark = session._jvm.org.apache.spark.sql  # noqa: SLF001  # no function of SQL does this
    expressions = spark.classic.ExpressionUtils
    columns: list[Column] = []
    for field in schema:
        column: Any = frame[quoted_name(field.name)]
        if field.name in as_integers:
            number, kind = expressions.expression(column._jc), field.dataType  # noqa: SLF001  # as above
            made = spark.catalyst.expressions.MakeDecimal(
                number,
                kind.precision,  # type: ignore[attr-defined]  # these are decimals
                kind.scale,  # type: ignore[attr-defined]  # as above
                False,  # beyond its digits it is an error
            )
            column = Column(expressions.column(made)).alias(field.name, metadata=field.metadata)
        columns.append(column)
    return frame.select(*columns)


def _without_scale(batch: pa.RecordBatch, names: frozenset[str]) -> pa.RecordBatch:
    """The batch with some decimals as integers: ``1.25`` with two digits is 125."""
    arrays, fields = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if field.name in names:
            arrays.append(unscaled(array, field.name))
            fields.append(pa.field(field.name, pa.int64(), field.nullable))
        else:
            arrays.append(array)
            fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
