"""The data source: ``spark.read.format("lance")`` and ``df.write.format("lance")``.

Spark runs the methods of these classes in short-lived Python processes of its own, pickling
the objects from one to the next: what ``schema`` finds out is kept on ``self``, so that the
schema and the rows of a frame come from one version of the dataset.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter

from glaive.errors import ColumnNotFoundError, SchemaError, UnsupportedFeatureError
from glaive.spark.options import Options, from_spark

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql.types import StructType

__all__ = ["GlaiveDataSource", "LanceDataSource"]

PLANNER = "data_source_pushdown_filters"
"""End of the name of the module in which Spark offers filters."""


class LanceDataSource(DataSource):
    """Lance datasets as Spark frames.

    Reading options: ``columns``, ``filter``, ``push_filters``, ``version``, ``branch``, ``tag``,
    ``asof``, ``with_row_id``, ``with_row_address``, ``batch_size``, ``split_bytes``,
    ``parallelism``, ``allow_truncation``. Writing, with mode append or overwrite:
    ``vector_columns``, ``max_rows_per_file``, ``max_bytes_per_file``, ``data_storage_version``,
    ``enable_stable_row_ids``, ``strict_nullability``, ``must_not_exist``, ``allow_truncation``.
    :class:`glaive.spark.options.Options` explains each.
    """

    pinned: Options | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "lance"

    def schema(self) -> StructType:
        """Return the schema of the columns asked for, and pin the version."""
        from glaive.spark.frame import frame_schema, open_dataset, pinned
        from glaive.spark.types import to_spark

        options = from_spark(self.options)
        dataset = open_dataset(options)
        self.pinned = pinned(options, dataset)
        return to_spark(frame_schema(dataset, options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for the columns of ``schema``, which may be one the user gave."""
        from glaive.spark.frame import frame_schema, open_dataset, pinned
        from glaive.spark.reader import LanceReader, PushingReader

        options = self.pinned
        if options is None:
            options = from_spark(self.options)
            dataset = open_dataset(options)
            _refuse_unreadable(schema, frame_schema(dataset, options), options)
            options = pinned(options, dataset)
        pushing = options.push_filters and _filters_are_offered()
        kind = PushingReader if pushing else LanceReader
        return kind(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that appends, or replaces all rows and columns."""
        from glaive.spark.writer import LanceArrowWriter, plan_write

        options = from_spark(self.options)
        if options.branch is not None:
            raise UnsupportedFeatureError(
                f"option branch: Spark writes to the main branch only, found {options.branch!r}. "
                "Leave the option out, or write with glaive.write_dataset"
            )
        return LanceArrowWriter(plan_write(schema, options, overwrite=overwrite))


class GlaiveDataSource(LanceDataSource):
    """The same under a name of its own, for sessions whose ``lance`` is a JVM connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "glaive"


def _filters_are_offered() -> bool:
    """Whether this is the planner that Spark runs where filters can be taken over.

    Elsewhere Spark refuses readers that could, whether it has filters or not.
    """
    frame = sys._getframe()  # noqa: SLF001  # pyspark tells it in no other way
    found: FrameType | None = frame
    while found is not None:
        if found.f_globals.get("__name__", "").endswith(PLANNER):
            return True
        if found.f_code.co_filename.endswith(f"{PLANNER}.py"):  # run as __main__
            return True
        found = found.f_back
    return False


def _refuse_unreadable(schema: StructType, stored: pa.Schema, options: Options) -> None:
    """Check a schema the user gave: a choice of columns, with types their values convert to."""
    from glaive.spark.assignable import refuse_unassignable
    from glaive.spark.types import as_spark_sends

    for name in schema.names:
        if name not in stored.names:
            raise ColumnNotFoundError.among(name, stored.names, where=options.uri)
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    if repeated:
        raise SchemaError(f"the schema names {', '.join(sorted(repeated))} more than once")
    chosen = pa.schema([stored.field(name) for name in schema.names])
    refuse_unassignable(chosen, as_spark_sends(schema), where="the schema given to the reader")
