"""The data source: ``spark.read.format("lance")`` and ``df.write.format("lance")``.

Spark runs the methods of these classes in separate short-lived Python processes and pickles the
objects between them. ``schema`` stores the version it used on ``self``, so that the schema and
the rows of a frame come from the same version of the dataset.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from glaive.errors import ColumnNotFoundError, OptionError, SchemaError, UnsupportedFeatureError
from glaive.spark.failures import without_inner_frames
from glaive.spark.options import Options, from_spark, with_location

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql.types import StructType

    from glaive.spark.streams.options import StreamOptions


PLANNER = "data_source_pushdown_filters"
"""Last part of the name of the Spark module that pushes filters down."""


class LanceDataSource(DataSource):
    """Lance datasets as Spark frames.

    :class:`glaive.spark.options.Options` explains all options, and
    :class:`glaive.spark.streams.options.StreamOptions` those of streams and change feeds. Modes
    are append and overwrite.
    """

    pinned: Options | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "lance"

    @without_inner_frames
    def schema(self) -> StructType:
        """Return the schema of the requested columns, and pin the version."""
        from glaive.spark.frame import frame_schema, open_dataset, pinned
        from glaive.spark.streams.options import stream_options
        from glaive.spark.types import to_spark

        of_stream, others = stream_options(self.options)
        options = from_spark(others)
        if of_stream.read_change_feed:
            from glaive.spark.streams.reader import change_schema, open_changes

            dataset = open_changes(options, of_stream)
            self.pinned = pinned(options, dataset)
            return to_spark(change_schema(dataset, options))
        dataset = open_dataset(options)
        self.pinned = pinned(options, dataset)
        return to_spark(frame_schema(dataset, options))

    @without_inner_frames
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for the columns of ``schema``, which the user may have specified."""
        from glaive.spark.frame import frame_schema, open_dataset, pinned
        from glaive.spark.reader import LanceReader, PushingReader
        from glaive.spark.streams.options import StreamOptions, stream_options

        options = self.pinned
        of_stream, others = stream_options(self.options)
        if of_stream.read_change_feed:
            return self._changes_reader(of_stream, from_spark(others), schema)
        if of_stream != StreamOptions():
            raise OptionError(
                "options of streams, such as startingVersion, need readChangeFeed=true in a batch "
                "read; a version is selected with the option version"
            )
        if options is None:
            options = from_spark(others)
            dataset = open_dataset(options)
            _refuse_unreadable(schema, frame_schema(dataset, options), options)
            options = pinned(options, dataset)
        pushing = options.push_filters and _supports_pushdown()
        return (PushingReader if pushing else LanceReader)(options, schema)

    def _changes_reader(
        self, of_stream: StreamOptions, options: Options, schema: StructType
    ) -> DataSourceReader:
        from glaive.spark.frame import pinned
        from glaive.spark.streams.reader import LanceChangesReader, change_schema, open_changes

        if self.pinned is not None:
            return LanceChangesReader(self.pinned, of_stream, schema)
        dataset = open_changes(options, of_stream)
        _refuse_unreadable(schema, change_schema(dataset, options), options)
        return LanceChangesReader(pinned(options, dataset), of_stream, schema)

    @without_inner_frames
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return a source of new or changed rows, which opens the dataset when it is first used."""
        from glaive.spark.streams.reader import LanceStreamReader

        return LanceStreamReader(self.options, self.pinned, schema)

    @without_inner_frames
    def streamWriter(  # noqa: N802  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return a sink that appends or merges each batch, or replaces all rows and columns."""
        from glaive.spark.streams.options import stream_options
        from glaive.spark.streams.sink import LanceStreamWriter, application_id
        from glaive.spark.writer import plan_job

        of_stream, others = stream_options(self.options)
        options = from_spark(with_location(others, create=True))
        _refuse_branch(options)
        if options.job_id is not None:
            raise OptionError(
                "option job_id: it names one write, and a stream makes one for each batch. "
                "txnAppId names the stream"
            )
        if overwrite and of_stream.merge_keys:
            raise OptionError(
                "option merge_keys: the output mode complete replaces all rows. Use append"
            )
        app_id = application_id(of_stream.app_id, self.options, options.storage)
        return LanceStreamWriter(plan_job(schema, options, overwrite=overwrite), of_stream, app_id)

    @without_inner_frames
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that appends, or replaces all rows and columns."""
        from glaive.spark.writer import LanceArrowWriter, plan_job

        options = from_spark(with_location(self.options, create=True))
        return LanceArrowWriter(plan_job(schema, options, overwrite=overwrite))


class GlaiveDataSource(LanceDataSource):
    """The same source named ``glaive``, for sessions whose ``lance`` is a JVM connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "glaive"


def _supports_pushdown() -> bool:
    """Whether the caller is the Spark module that pushes filters down.

    Other callers reject readers that accept filters, even if there are no filters.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # pyspark has no other way
    while frame is not None:
        if frame.f_globals.get("__name__", "").endswith(PLANNER):
            return True
        if frame.f_code.co_filename.endswith(f"{PLANNER}.py"):  # run as __main__
            return True
        frame = frame.f_back
    return False


def _refuse_branch(options: Options) -> None:
    if options.branch is not None:
        raise UnsupportedFeatureError(
            f"option branch: Spark writes to the main branch only, found {options.branch!r}. "
            "Omit the option, or write with glaive.write_dataset"
        )


def _refuse_unreadable(schema: StructType, stored: pa.Schema, options: Options) -> None:
    """Check that a schema from the user selects columns and that their types convert to it."""
    from glaive.spark.types import refuse_unassignable, spark_arrow_schema

    known = set(stored.names)
    for name in schema.names:
        if name not in known:
            raise ColumnNotFoundError.among(name, stored.names, where=options.uri)
    repeated = {name for name, times in Counter(schema.names).items() if times > 1}
    if repeated:
        raise SchemaError(f"the schema names {', '.join(sorted(repeated))} more than once")
    chosen = pa.schema([stored.field(name) for name in schema.names])
    refuse_unassignable(chosen, spark_arrow_schema(schema), where="the schema given to the reader")
