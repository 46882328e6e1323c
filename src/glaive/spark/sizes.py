"""The size of a frame, estimated on the driver from the manifest: for tasks and for joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as spark_types

from glaive.format.field import BLOB
from glaive.spark.frame import frame_schema
from glaive.spark.options import Options
from glaive.spark.plan import FragmentSize, row_bytes
from glaive.spark.types import to_spark

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from glaive.dataset.dataset import LanceDataset


BLOB_BYTES = 256 << 10
"""Estimate for a blob, whose size the manifest does not tell."""


PLANNER_ROW = 8
"""What Spark's planner adds for each row."""

PLANNER_WIDTHS: dict[type[spark_types.DataType], int] = {
    spark_types.BooleanType: 1,
    spark_types.ByteType: 1,
    spark_types.ShortType: 2,
    spark_types.IntegerType: 4,
    spark_types.FloatType: 4,
    spark_types.DateType: 4,
    spark_types.StringType: 20,
    spark_types.BinaryType: 100,
}
"""Bytes that Spark's planner expects of a value; others have 8."""


def fragment_sizes(dataset: LanceDataset) -> list[FragmentSize]:
    """Return the rows of all fragments according to the manifest, in order."""
    ids, rows = dataset.manifest.fragment_ids, dataset.snapshot.live_counts
    return list(map(FragmentSize, ids.tolist(), rows.tolist()))


def frame_row_bytes(dataset: LanceDataset, options: Options, names: Sequence[str]) -> float:
    """Estimate the bytes in memory of a row of some columns of the frame."""
    available = frame_schema(dataset, options)
    chosen = pa.schema([available.field(name) for name in names])
    blobs = 0
    if options.blobs == "bytes":
        blobs = sum(
            BLOB in field.metadata or field.is_blob_v2 for field in dataset.lance_schema.fields
        )
    stored = dataset.scanner().projected_schema
    rows, file_bytes = dataset.count_rows(), dataset.snapshot.file_bytes()
    return row_bytes(chosen, stored, rows, file_bytes) + blobs * BLOB_BYTES


def frame_bytes(dataset: LanceDataset, options: Options) -> float:
    """Estimate the bytes in memory of a whole frame, as if all rows passed its filter."""
    rows = dataset.count_rows()
    if options.limit is not None:
        rows = min(rows, options.limit)
    return rows * frame_row_bytes(dataset, options, frame_schema(dataset, options).names)


def planner_bytes(dataset: LanceDataset, options: Options) -> int:
    """The size of a frame as Spark's planner estimates that of Parquet files: compressed.

    It is the share of the bytes of the files that the columns have by their expected widths.
    """
    schema = frame_schema(dataset, options)
    stored = dataset.manifest.stated.file_bytes
    if not stored:  # files of old versions do not tell
        return int(frame_bytes(dataset, options))
    every = to_spark(dataset.scanner().projected_schema)
    return stored * _planner_row_bytes(to_spark(schema)) // _planner_row_bytes(every)


def _planner_row_bytes(schema: StructType) -> int:
    """Bytes of a row as Spark's planner expects them."""
    return PLANNER_ROW + sum(_planner_width(field.dataType) for field in schema)


def _planner_width(data_type: DataType) -> int:
    if isinstance(data_type, spark_types.StructType):
        return sum(_planner_width(field.dataType) for field in data_type)
    if isinstance(data_type, spark_types.ArrayType):
        return _planner_width(data_type.elementType)
    if isinstance(data_type, spark_types.MapType):
        return _planner_width(data_type.keyType) + _planner_width(data_type.valueType)
    if isinstance(data_type, spark_types.DecimalType) and data_type.precision > 18:
        return 16
    return PLANNER_WIDTHS.get(type(data_type), 8)
