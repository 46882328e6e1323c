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

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import DecimalType, LongType, StructField, StructType

from glaive.entropy import random_bytes
from glaive.errors import SchemaError
from glaive.spark.api import is_connect
from glaive.spark.frame import frame_schema
from glaive.spark.reader import LanceReader
from glaive.spark.sizes import planner_bytes
from glaive.spark.types import to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.spark.options import Options

__all__ = ["ScanFunction", "options_of", "planned_scan"]

SETTING = "spark.glaive.plannedScans"
"""Setting of a session: with ``false``, queries read through the data source."""

MAX_PLANNED = 1 << 14
"""Every task gets the list of all parts: scans of more, or of more fragments, go through the data
source."""

NUMBER_BYTES = 8
"""What Spark's planner expects of a number in a range, and of a function over it."""

MAX_NUMBERS = 1 << 30
"""Length of the range, at most. Each number takes a nanosecond; Spark never broadcasts 8 GiB."""

LONG_DIGITS = 18
"""Digits of the decimals that fit in 64 bits."""

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
    """

    PREFIX: ClassVar = "lance "
    """How names of such functions begin in Spark's plans."""

    def __init__(
        self, reader: LanceReader, parts: list[Any], step: int, as_integers: frozenset[str]
    ) -> None:
        self.reader = reader
        self.parts = parts
        self.step = step
        self.as_integers = as_integers
        self.__name__ = f"{self.PREFIX}{_shown(reader)} [{random_bytes(8).hex()}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the parts."""
        for batch in batches:
            numbers: list[int] = batch.column(0).to_pylist()  # type: ignore[assignment]  # no nulls
            for number in numbers:
                for rows in self.reader.read(InputPartition(self.parts[number // self.step])):
                    yield _without_scale(rows, self.as_integers) if self.as_integers else rows


def planned_scan(spark: SparkSession, options: Options, dataset: LanceDataset) -> DataFrame | None:
    """The frame of a scan, in a query that will run soon.

    Parameters
    ----------
    options
        With the version pinned; no search.
    dataset
        That version.

    Returns
    -------
    DataFrame or None
        ``None`` if the data source has to read it: too many fragments, or the session says so.
    """
    wanted = (spark.conf.get(SETTING, "true") or "").lower() != "false"
    if not wanted or dataset.manifest.num_fragments > MAX_PLANNED:
        return None
    schema = to_spark(frame_schema(dataset, options))
    reader = LanceReader(options, schema)
    parts = [partition.value for partition in reader.partitions()]
    if len(parts) > MAX_PLANNED:
        return None
    as_integers = frozenset[str]() if is_connect(spark) else _short_decimals(schema)
    sent = _as_sent(schema, as_integers)
    numbers = min(planner_bytes(dataset, options) // NUMBER_BYTES, MAX_NUMBERS)
    step = max(1, -(-numbers // max(1, len(parts))))
    ranged = spark.range(0, len(parts) * step, 1, max(1, len(parts)))
    if step > 1:
        ranged = ranged.where(f"id % {step} = 0")
    function = ScanFunction(reader, parts, step, as_integers)
    if len(_SCANS) >= MAX_REMEMBERED:
        del _SCANS[next(iter(_SCANS))]
    _SCANS[function.__name__] = options
    frame = ranged.mapInArrow(function, sent)
    return _with_decimals(frame, schema, as_integers) if as_integers else frame


def options_of(name: str) -> Options | None:
    """The options of a scan of this process, by the name of its function in a plan."""
    return _SCANS.get(name)


def _shown(reader: LanceReader) -> str:
    """The name and filter of a dataset, without options of stores, which may be secret."""
    name = reader.options.uri.rstrip("/").rsplit("/", 1)[-1]
    return name + ("" if reader.filter is None else f" where {reader.filter:.200}")


def _short_decimals(schema: StructType) -> frozenset[str]:
    """Columns to send as integers; none where Spark's names, without case, are ambiguous."""
    if len({name.lower() for name in schema.names}) < len(schema):
        return frozenset()
    return frozenset(
        field.name
        for field in schema
        if isinstance(field.dataType, DecimalType) and field.dataType.precision <= LONG_DIGITS
    )


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
        column: Any = frame[f"`{field.name.replace('`', '``')}`"]
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
            arrays.append(_integers(array, field.name))
            fields.append(pa.field(field.name, pa.int64(), field.nullable))
        else:
            arrays.append(array)
            fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _integers(array: Any, name: str) -> Any:
    values = array.buffers()[1]
    if values is None:
        return pa.nulls(len(array), pa.int64())
    words = np.frombuffer(values, "<i8", 2 * len(array), array.offset * 16).reshape(-1, 2)
    low = np.ascontiguousarray(words[:, 0])
    null = None if not array.null_count else ~np.asarray(array.is_valid())
    wide = words[:, 1] != low >> 63
    if (wide if null is None else wide & ~null).any():
        raise SchemaError(
            f"column {name!r}: a value has more digits than {array.type}. Read it with "
            f"{SETTING}=false, or write the column again with the type that it needs"
        )
    return pa.array(low, mask=null)
