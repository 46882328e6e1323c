"""The differences between releases of Spark 4. Other modules import here what a release may lack.

glaive looks for a feature instead of the number of a release. If Spark has a class, its name here
is that class; otherwise it is a substitute. Comments name the first release with the feature.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import datasource, streaming, types
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import *  # noqa: F403  # the names below, for other modules
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    from pyspark.sql.types import TimeType

__all__ = [
    "SupportsTriggerAvailableNow",
    "TimeType",
    "arrow_schema",
    "is_placeholder",
    "partitioned_by_id",
]

SPARK: Final = f"Spark {pyspark.__version__}"
"""This release, for messages."""

HAS_TIME: Final = hasattr(types, "TimeType")
"""Whether Spark has the type TIME: 4.1."""

_LIMITS: Final = getattr(streaming, "datasource", None)  # pyspark.sql.datasource has some

HAS_READ_LIMITS: Final = _LIMITS is not None
"""Whether Spark tells a stream the start of a batch and its limits: 4.2."""

LATEST_JAVA: Final = None if HAS_READ_LIMITS else 22
"""The latest Java that Spark runs on; before 4.2 its Hadoop calls methods that Java 23 refuses."""

if not TYPE_CHECKING:

    def _class(module: Any, name: str, *bases: type) -> type:
        """Return a class of Spark, or a substitute."""
        return getattr(module, name, None) or type(name, bases, {})

    def _filter(name: str, *fields: str) -> type:
        found = getattr(datasource, name, None)
        return found or make_dataclass(name, fields, bases=(Filter,), frozen=True)

    # 4.1. In earlier releases glaive.spark.sql also uses these classes for its tests.
    Filter = _class(datasource, "Filter")
    EqualNullSafe = _filter("EqualNullSafe", "attribute", "value")
    EqualTo = _filter("EqualTo", "attribute", "value")
    GreaterThan = _filter("GreaterThan", "attribute", "value")
    GreaterThanOrEqual = _filter("GreaterThanOrEqual", "attribute", "value")
    In = _filter("In", "attribute", "value")
    IsNotNull = _filter("IsNotNull", "attribute")
    IsNull = _filter("IsNull", "attribute")
    LessThan = _filter("LessThan", "attribute", "value")
    LessThanOrEqual = _filter("LessThanOrEqual", "attribute", "value")
    Not = _filter("Not", "child")
    StringContains = _filter("StringContains", "attribute", "value")
    StringEndsWith = _filter("StringEndsWith", "attribute", "value")
    StringStartsWith = _filter("StringStartsWith", "attribute", "value")

    # 4.1. In earlier releases a sink is also a writer of frames, which gets the batches.
    _BOTH = (datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter)
    DataSourceStreamArrowWriter = _class(datasource, "DataSourceStreamArrowWriter", *_BOTH)

    TimeType = _class(types, "TimeType", types.DataType)  # 4.1
    SupportsTriggerAvailableNow = _class(_LIMITS, "SupportsTriggerAvailableNow")  # 4.2

_ZONE: Final[Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)
"""Use UTC for times; since 4.2 it must be requested."""


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """Return Spark's Arrow schema of a frame, with times in UTC."""
    return to_arrow_schema(schema, **_ZONE)


def is_placeholder(partition: datasource.InputPartition) -> bool:
    """Return whether a partition is Spark's placeholder for an empty list; before 4.1 ``None``."""
    return getattr(partition, "value", None) is None


def partitioned_by_id(frame: DataFrame, count: int, column: str) -> DataFrame:
    """Return the frame in ``count`` partitions; a column holds the number of each row's partition.

    Spark 4.0 samples the column instead, so close numbers may share a partition.
    """
    if hasattr(frame, "repartitionById"):  # 4.1
        return frame.repartitionById(count, column)
    return frame.repartitionByRange(count, column)
