"""The data source: ``spark.read.format("lance")`` and ``df.write.format("lance")``.

Spark runs the methods of these classes in short-lived Python processes of its own, pickling
the objects from one to the next: what ``schema`` finds out is kept on ``self``, so that the
schema and the rows of a frame come from one version of the dataset.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter

from glaive.errors import ColumnNotFoundError, SchemaError
from glaive.spark.options import Options, from_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["GlaiveDataSource", "LanceDataSource", "project"]


class LanceDataSource(DataSource):
    """Lance datasets as Spark frames.

    Reading options: ``columns``, ``version``, ``batch_size``, ``split_bytes``,
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
        from glaive.spark.reader import open_dataset, readable_schema
        from glaive.spark.types import to_spark

        options = from_spark(self.options)
        dataset = open_dataset(options)
        self.pinned = replace(options, version=dataset.version)
        return to_spark(project(readable_schema(dataset), options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for the columns of ``schema``, which may be one the user gave."""
        from glaive.spark.reader import LanceReader, open_dataset, readable_schema

        options = self.pinned
        if options is None:
            options = from_spark(self.options)
            dataset = open_dataset(options)
            _refuse_unreadable(schema, readable_schema(dataset), options)
            options = replace(options, version=dataset.version)
        return LanceReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that appends, or replaces all rows and columns."""
        from glaive.spark.writer import LanceArrowWriter, plan_write

        return LanceArrowWriter(plan_write(schema, from_spark(self.options), overwrite=overwrite))


class GlaiveDataSource(LanceDataSource):
    """The same under a name of its own, for sessions whose ``lance`` is a JVM connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "glaive"


def project(schema: pa.Schema, options: Options) -> pa.Schema:
    """Return the columns the options name, in their order; all if they name none.

    Raises
    ------
    ColumnNotFoundError, SchemaError
        A column does not exist, or is named twice.
    """
    if options.columns is None:
        return schema
    for name in options.columns:
        if name not in schema.names:
            raise ColumnNotFoundError.among(name, schema.names, where=options.uri)
    repeated = {name for name in options.columns if options.columns.count(name) > 1}
    if repeated:
        raise SchemaError(f"option columns names {', '.join(sorted(repeated))} more than once")
    return pa.schema([schema.field(name) for name in options.columns])


def _refuse_unreadable(schema: StructType, stored: pa.Schema, options: Options) -> None:
    """Check a schema the user gave: a choice of columns, with types their values convert to."""
    from glaive.spark.assign import refuse_unassignable
    from glaive.spark.types import as_spark_sends

    chosen = project(stored, replace(options, columns=tuple(schema.names)))
    refuse_unassignable(chosen, as_spark_sends(schema), where="the schema given to the reader")
