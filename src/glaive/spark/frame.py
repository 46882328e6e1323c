"""The frame for a set of options: version, columns, size, and the parts that tasks read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark_types

from glaive.arrow.chunked import total_width
from glaive.dataclass import NamedTuple
from glaive.errors import SchemaError
from glaive.expr.coerce import is_binary
from glaive.format.field import BLOB
from glaive.io.pool import task_bytes
from glaive.spark.options import BLOBS, Options
from glaive.spark.types import to_spark

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from glaive.dataset.dataset import LanceDataset


# --- Split a dataset's rows into the parts that Spark tasks read ------------------------
# One task per fragment would be too many tasks for ten thousand small fragments. For a single large
# fragment it would use only one core. So glaive splits the rows of all fragments into parts of
# about equal size. A part is a row range over one or more consecutive fragments.

MAX_PARTS = 1 << 18
"""Maximum number of tasks of one scan."""

BATCH_ROWS = 1 << 16
BATCH_BYTES = 8 << 20
"""Maximum rows and target size of an Arrow batch sent to the JVM."""

SPLIT_ROWS = 4096
"""Parts start at multiples of this row count, so that few blocks are decoded twice."""


class Part(NamedTuple):
    """The rows of one task: ``rows`` rows of the concatenated fragments, from ``offset`` on."""

    fragment_ids: tuple[int, ...]
    offset: int
    rows: int


def row_bytes(columns: pa.Schema, stored: pa.Schema, rows: int, file_bytes: int) -> float:
    """Estimate the bytes of a row in memory, for some of the stored columns.

    The widths of numbers and vectors are known. The remaining bytes of the files are divided
    evenly among the columns of variable width.
    """
    selected, complete = total_width(columns.types), total_width(stored.types)
    if rows == 0 or complete.variable == 0:
        return max(selected.total, 1.0)
    surplus = max(0.0, file_bytes / rows - complete.total) / complete.variable
    return max(selected.total + surplus * selected.variable, 1.0)


def batch_rows(bytes_per_row: float) -> int:
    """Return the rows of a batch of about the target size."""
    rows = int(BATCH_BYTES / bytes_per_row)
    return min(max(rows, 64), BATCH_ROWS)


def split(
    ids: Sequence[int],
    rows: Any,
    bytes_per_row: float,
    *,
    limit: int | None = None,
    split_bytes: int | None = None,
    parallelism: int | None = None,
) -> list[Part]:
    """Return one part for each task, in order; empty if the dataset is.

    Parameters
    ----------
    ids, rows
        Ids and numbers of rows of the fragments, in the order of the dataset and of the parts.
    limit
        Maximum number of rows: only the first rows are read.
    split_bytes
        Estimated maximum bytes per task.
    parallelism
        Number of tasks that run at a time; default: the cores of this machine.
    """
    ends = np.cumsum(np.asarray(rows, np.int64))
    total = int(ends[-1]) if len(ends) else 0
    total = total if limit is None else min(total, limit)
    if total == 0:
        return []
    target = split_bytes or task_bytes(total * bytes_per_row, parallelism)
    # Limit the tasks: the row count in the manifest may be corrupt.
    wanted = min(max(1, math.ceil(total * bytes_per_row / target - 0.01)), MAX_PARTS)
    capacity = math.ceil(total / wanted)
    if capacity > SPLIT_ROWS:
        # Rounded up, as rounding down would add a part for the remainder.
        capacity = math.ceil(capacity / SPLIT_ROWS) * SPLIT_ROWS
    starts = np.concatenate([[0], ends[:-1]])
    cuts = np.arange(capacity, total, capacity)
    # A part ends with a fragment, or at the end of a block.
    slack = min(SPLIT_ROWS, capacity // 8)
    at = np.searchsorted(ends, cuts, side="left")
    blocks = np.maximum((cuts - starts[at]) // SPLIT_ROWS, 1)
    near = ends[np.searchsorted(ends, cuts - slack, side="left")]
    inner = np.minimum(starts[at] + blocks * SPLIT_ROWS, ends[at])
    cuts = np.where(near - cuts <= slack, near, inner)
    bounds = [0, *np.unique(cuts[(cuts > 0) & (cuts < total)]).tolist(), total]
    firsts = np.searchsorted(ends, bounds[:-1], side="right").tolist()
    lasts = np.searchsorted(ends, bounds[1:], side="left").tolist()
    return [
        Part(tuple(ids[first : last + 1]), start - int(starts[first]), stop - start)
        for (start, stop), first, last in zip(pairwise(bounds), firsts, lasts, strict=True)
    ]


def open_dataset(options: Options) -> LanceDataset:
    """Open the dataset and version of the options.

    Raises
    ------
    VersionNotFoundError
        The version is missing, or another dataset has replaced the pinned one.
    """
    from glaive.dataset.open import dataset

    version: int | str | tuple[str | None, int | None] | None = options.tag or options.version
    if options.branch is not None:
        version = options.branch, options.version
    opened = dataset(options.uri, version=version, storage_options=options.storage or None)
    if options.identity is not None:
        from glaive.table.load import check_same

        check_same(opened.manifest, options.identity)
    if options.asof is None:
        return opened
    from glaive.dataset.version import version_as_of

    return opened.checkout_version(version_as_of(opened.store, options.asof))


def pinned(options: Options, dataset: LanceDataset) -> Options:
    """Return options with the version of an opened dataset, and its identity."""
    from glaive.table.refs import branch_of

    there = dataset.manifest
    return replace(
        options,
        version=there.version,
        branch=branch_of(there),
        identity=there.identity,
        tag=None,
        asof=None,
    )


def frame_schema(dataset: LanceDataset, options: Options) -> pa.Schema:
    """Return the schema of the frame as scans return it; check columns and filter.

    Columns of blobs that are read as bytes are marked as blobs, so that writes store them as blobs.
    System columns such as row ids are signed, like all numbers of Spark.

    Raises
    ------
    ColumnNotFoundError, SchemaError
        A column is missing, or is given twice.
    FilterError
        The filter or an expression is invalid.
    """
    stored = dataset.lance_schema.fields
    blobs = {field.name for field in stored if BLOB in field.metadata or field.is_blob_v2}
    fields: list[Any] = []
    for field in dataset.scanner(**scan_arguments(options)).projected_schema:
        if _is_system(field.name, dataset):
            fields.append(field.with_type(pa.int64()))
        elif field.name in blobs and is_binary(field.type):  # its values
            fields.append(field.with_metadata({BLOB: "true"}))
        else:
            fields.append(field)
    return pa.schema(fields)


def scan_arguments(options: Options) -> dict[str, Any]:
    """Return the arguments of the scan that reads the whole frame.

    Raises
    ------
    SchemaError
        A column is given twice.
    """
    wanted = options.columns
    columns: list[str] | dict[str, str] | None
    if wanted is None or isinstance(wanted, Mapping):
        columns = None if wanted is None else dict(wanted)
    else:
        columns = list(wanted)
        repeated = {name for name, times in Counter(columns).items() if times > 1}
        if repeated:
            raise SchemaError(f"option columns has {', '.join(sorted(repeated))} more than once")
    return {
        "columns": columns,
        "filter": options.filter,
        "limit": options.limit,
        "order_by": options.order_by or None,
        "nearest": None if options.nearest is None else dict(options.nearest),
        "full_text_query": options.full_text_query,
        "blob_handling": BLOBS[options.blobs],
        "with_row_id": options.with_row_id,
        "with_row_address": options.with_row_address,
    }


def stored_paths(dataset: LanceDataset, options: Options) -> dict[str, tuple[str, ...]]:
    """Return the paths in the dataset of the stored columns of the frame."""
    from glaive.expr.filters import bind_value
    from glaive.expr.tree import Column
    from glaive.scan.projection import SYSTEM_COLUMNS

    schema = dataset.lance_schema
    paths: dict[str, tuple[str, ...]] = {}
    for name in frame_schema(dataset, options).names:
        path = name
        if isinstance(options.columns, Mapping) and name in options.columns:
            text = options.columns[name]
            node = bind_value(text, schema, system=SYSTEM_COLUMNS).expression
            if not isinstance(node, Column):
                continue
            path = node.path
        if _is_system(path, dataset):
            paths[name] = (path,)
        else:
            paths[name] = tuple(field.name for field in schema.find(path))
    return paths


def _is_system(name: str, dataset: LanceDataset) -> bool:
    """Return whether a name is the name of a system column."""
    from glaive.scan.projection import SYSTEM_COLUMNS

    return name in SYSTEM_COLUMNS and name not in dataset.lance_schema.names


# --- The size of a frame, estimated on the driver from the manifest, for tasks and joins

BLOB_BYTES = 256 << 10
"""Estimated bytes of a blob, whose size the manifest lacks."""


PLANNER_ROW = 8
"""Bytes that Spark's planner adds for each row."""

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
"""Bytes that Spark's planner expects of a value; other types take 8."""


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
    """Estimate the size of a frame as Spark's planner estimates Parquet files: compressed.

    The columns get their share of the bytes of the files, by their expected widths.
    """
    schema = frame_schema(dataset, options)
    stored = dataset.manifest.stated.file_bytes
    if not stored:  # manifests of old versions lack it
        return int(frame_bytes(dataset, options))
    every = to_spark(dataset.scanner().projected_schema)
    return stored * _planner_row_bytes(to_spark(schema)) // _planner_row_bytes(every)


def _planner_row_bytes(schema: StructType) -> int:
    """Return the bytes of a row that Spark's planner expects."""
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
