"""The data source: ``spark.read.format("lance")`` and ``df.write.format("lance")``.

Spark runs the methods of these classes in separate short-lived Python processes and pickles the
objects between them. ``schema`` stores the version it used on ``self``. So the schema and the rows
of a frame come from the same version of the dataset.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import BinaryType, StructType

from glaive.arrow.blocks import NUMPY_TYPES, number_array
from glaive.arrow.chunked import as_numpy, batch_parts
from glaive.dataclass import NamedTuple
from glaive.errors import (
    ColumnNotFoundError,
    FilterError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.expr.tree import InList, Name, both
from glaive.spark.cast import conform
from glaive.spark.failures import without_inner_frames
from glaive.spark.frame import (
    BATCH_BYTES,
    Part,
    batch_rows,
    frame_row_bytes,
    frame_schema,
    open_dataset,
    pinned,
    scan_arguments,
    split,
)
from glaive.spark.options import Options, StreamOptions, from_spark, stream_options, with_location
from glaive.spark.types import refuse_unassignable, spark_arrow_schema, to_spark
from glaive.spark.versions import Filter, is_placeholder

if TYPE_CHECKING:
    from types import FrameType

    from glaive.dataset.dataset import LanceDataset


# --- Read a dataset in Spark: the driver plans the parts, tasks read record batches -----

_log = logging.getLogger(__name__)

MAX_BATCH_BYTES = 256 << 20
"""Larger batches are split in two: Spark counts the bytes of a column in 31 bits."""


FIRST_ROWS = 64
"""Number of rows to read first, to learn their size."""

MAX_GROWTH = 16
"""Maximum factor between two windows of rows, as later rows may be larger."""

WINDOW_BYTES = 128 << 20
"""Bytes of rows to read at a time if values may be large."""


class Keys(NamedTuple):
    """Values that a stored column must have: rows with other values match no row in a join.

    ``origin`` is the name of the other table. Pickles store the differences of integers, which are
    small for dense keys.
    """

    path: tuple[str, ...]
    values: Any
    origin: str

    def __reduce__(self) -> tuple[Any, ...]:
        kind = self.values.type
        if not pa.types.is_integer(kind) or not len(self.values):
            return Keys, tuple(self)
        words = as_numpy(self.values).view(f"u{kind.byte_width}")
        steps = np.diff(words)
        steps = steps.astype(np.min_scalar_type(steps.max(initial=0)))
        return _keys_by_steps, (self.path, kind, words[:1], steps, self.origin)


def _keys_by_steps(path: tuple[str, ...], kind: Any, first: Any, steps: Any, origin: str) -> Keys:
    words = np.concatenate([first, steps], dtype=first.dtype)
    np.cumsum(words, out=words)
    return Keys(path, number_array(words.view(NUMPY_TYPES[kind]), kind), origin)


class LancePartition(InputPartition):
    """The part one task reads, as a tuple of plain values: batch size, fragments, row range.

    ``fragments`` is empty for the result of a search, which one task reads as a whole.
    """

    def __init__(self, batch_size: int, part: Part | None) -> None:
        super().__init__((batch_size, *(part or ((), 0, 0))))


class LanceReader(DataSourceReader):
    """Reads some columns and rows of one version of a dataset.

    Spark pickles it for the tasks, so it holds settings only. Each task opens the dataset.

    Parameters
    ----------
    options
        Options with the version pinned.
    schema
        The columns to read, by name, and the types that Spark expects.
    keys
        Values that columns must have.
    """

    def __init__(self, options: Options, schema: StructType, keys: tuple[Keys, ...] = ()) -> None:
        from glaive.spark.writer import RELEASE

        self.options = options
        self.schema = schema
        self.keys = keys
        self.pushed: tuple[str, ...] = ()
        self.release = RELEASE

    @without_inner_frames
    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts to read; empty if all rows fail the filters."""
        dataset = open_dataset(self.options)
        if self._is_always_false(dataset):
            return []
        width = frame_row_bytes(dataset, self.options, self.schema.names)
        batch_size = self.options.batch_size or batch_rows(width)
        if self._is_one_search():
            return [LancePartition(batch_size, None)]
        parts = split(
            dataset.manifest.fragment_ids.tolist(),
            dataset.snapshot.live_counts,
            width,
            limit=self.options.limit,
            split_bytes=self.options.split_bytes,
            parallelism=self.options.parallelism,
        )
        return [LancePartition(batch_size, part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, in order, with exactly the schema that Spark expects."""
        from glaive.spark.writer import in_task

        if is_placeholder(partition):
            return
        with in_task(self.release):
            dataset = open_dataset(self.options)
            expected = spark_arrow_schema(self.schema)
            truncate = self.options.allow_truncation
            cast = partial(conform, schema=expected, allow_truncation=truncate, writing=False)
            for batch in self._batches(dataset, *partition.value):
                for part in _within_limit(batch):
                    yield from batch_parts(cast, part)

    def _batches(
        self,
        dataset: LanceDataset,
        batch_size: int,
        fragments: tuple[int, ...],
        offset: int,
        rows: int,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, in windows that fit into memory if values may be large.

        Scans divide rows by the bytes of the files, where large values may be a thousand times
        smaller.
        """
        if not (fragments and _may_have_large_values(self.schema)):
            scanner = dataset.scanner(**self._arguments(batch_size, fragments, offset, rows))
            yield from scanner.to_batches()
            return
        done, window = 0, FIRST_ROWS
        while done < rows:
            window = min(window, rows - done)
            arguments = self._arguments(batch_size, fragments, offset + done, window)
            held = 0
            for batch in dataset.scanner(**arguments).to_batches():
                held += batch.nbytes
                yield batch
            done += window
            fitting = WINDOW_BYTES * window // max(held, 1)
            window = min(max(fitting, FIRST_ROWS), window * MAX_GROWTH)

    def _arguments(
        self, batch_size: int, fragments: tuple[int, ...], offset: int, rows: int
    ) -> dict[str, Any]:
        """Return the arguments of the scan of one part; a search returns all columns of the
        frame.
        """
        arguments = scan_arguments(self.options) | {
            "filter": among(self.filter, self.keys),
            "batch_size": batch_size,
            "batch_size_bytes": None if self.options.batch_size else BATCH_BYTES,
        }
        if not fragments:
            return arguments
        del arguments["limit"]  # the part ends here
        return arguments | {
            "columns": self.options.selected(self.schema.names),
            "with_row_id": False,  # named by the columns, if at all
            "with_row_address": False,
            "fragments": fragments,
            "range_before": (offset, offset + rows),
        }

    def _is_one_search(self) -> bool:
        """Return whether one task has to read all rows, as in a search."""
        options = self.options
        searches = bool(options.order_by or options.nearest or options.full_text_query)
        return searches or (options.limit is not None and self.filter is not None)

    @property
    def filter(self) -> str | None:
        """The filter of the options combined with filters that Spark pushed down."""
        own = () if self.options.filter is None else (self.options.filter,)
        return _conjunction((*own, *self.pushed))

    def _is_always_false(self, dataset: LanceDataset) -> bool:
        from glaive.expr.filters import bind_filter
        from glaive.scan.projection import SYSTEM_COLUMNS

        text = self.filter
        if not all(len(keys.values) for keys in self.keys):
            return True
        if text is None:
            return False
        return bind_filter(text, dataset.lance_schema, system=SYSTEM_COLUMNS).never


class PushingReader(LanceReader):
    """A reader that accepts filters from Spark.

    This is a separate class because Spark rejects readers with ``pushFilters`` unless the session
    sets ``spark.sql.python.filterPushdown.enabled``. Use it only on request: Spark 4.3 caches the
    partitions of the first query on a frame and reuses them for later queries, whatever their
    filters.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Accept the filters that select exactly the rows Spark would; return the rest."""
        from glaive.spark.filters import MAX_CHARS, Frame, may_be_rounded, push

        dataset = open_dataset(self.options)
        frame = Frame.of(self.schema, dataset, self.options)
        budget = MAX_CHARS - len(self.options.filter or "")
        exact = [one for one in filters if not may_be_rounded(one)]
        pushed = push(exact, frame, budget)
        self.pushed = pushed.filters
        try:
            self._is_always_false(dataset)
        except FilterError as error:  # too deep or large together with the option's filter
            _log.debug("Spark evaluates all filters: %s", error)
            self.pushed = ()
            return filters
        return [*pushed.rest, *filter(may_be_rounded, filters)]


def _may_have_large_values(schema: StructType) -> bool:
    """Return whether a column has binary values, such as images."""
    return any(isinstance(field.dataType, BinaryType) for field in schema)


def _conjunction(filters: Sequence[str]) -> str | None:
    """Combine filters with ``and``; ``None`` if empty."""
    if len(filters) < 2:
        return filters[0] if filters else None
    from glaive.expr.parse import parse, render

    return render(both(*map(parse, filters)))


def among(text: str | None, keys: Sequence[Keys]) -> object:
    """Return a filter that also tests whether columns have one of their keys."""
    if not keys:
        return text
    from glaive.expr.constants import ConstantList
    from glaive.expr.parse import parse

    lists = [InList(Name(one.path, exact=True), ConstantList.of(one.values)) for one in keys]
    return both(*([] if text is None else [parse(text)]), *lists)


def _within_limit(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch in halves until each is within the limit."""
    if batch.nbytes <= MAX_BATCH_BYTES or batch.num_rows <= 1:
        yield batch
    else:
        half = batch.num_rows // 2
        yield from _within_limit(batch.slice(0, half))
        yield from _within_limit(batch.slice(half))


PLANNER = "data_source_pushdown_filters"
"""Last part of the name of the Spark module that pushes filters down."""


class LanceDataSource(DataSource):
    """Lance datasets as Spark frames.

    :class:`glaive.spark.options.Options` explains all options.
    :class:`glaive.spark.options.StreamOptions` explains options of streams and change feeds. The
    modes are append and overwrite.
    """

    pinned: Options | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "lance"

    def _pin(self) -> pa.Schema:
        """Pin the version; return the requested columns."""
        of_stream, others = stream_options(self.options)
        options = from_spark(others)
        if of_stream.read_change_feed:
            from glaive.spark.stream_reader import change_schema, open_changes

            dataset = open_changes(options, of_stream)
            found = change_schema(dataset, options)
        else:
            dataset = open_dataset(options)
            found = frame_schema(dataset, options)
        self.pinned = pinned(options, dataset)
        return found

    @without_inner_frames
    def schema(self) -> StructType:
        """Return the schema of the requested columns, and pin the version."""
        return to_spark(self._pin())

    @without_inner_frames
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for the columns of ``schema``, which the user may have specified."""
        of_stream, _ = stream_options(self.options)
        if not of_stream.read_change_feed and of_stream != StreamOptions():
            raise OptionError(
                "options of streams, such as startingVersion, need readChangeFeed=true in a batch "
                "read; a version is selected with the option version"
            )
        if self.pinned is None:
            _refuse_unreadable(schema, self._pin(), self.options.get("path", ""))
        options: Any = self.pinned
        if of_stream.read_change_feed:
            from glaive.spark.stream_reader import LanceChangesReader

            return LanceChangesReader(options, of_stream, schema)
        pushing = options.push_filters and _supports_pushdown()
        return (PushingReader if pushing else LanceReader)(options, schema)

    @without_inner_frames
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return a source of new or changed rows; it opens the dataset when first used."""
        from glaive.spark.stream_reader import LanceStreamReader

        return LanceStreamReader(self.options, self.pinned, schema)

    @without_inner_frames
    def streamWriter(  # noqa: N802  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return a sink that appends or merges each batch, or replaces all rows and columns."""
        from glaive.spark.stream_sink import LanceStreamWriter, application_id
        from glaive.spark.writer import plan_job

        of_stream, others = stream_options(self.options)
        options = from_spark(with_location(others, create=True))
        _refuse_branch(options)
        if options.job_id is not None:
            raise OptionError(
                "option job_id: it names one write, and a stream makes one for each batch. "
                "txnAppId names the stream"
            )
        if of_stream.merge_keys and (overwrite or options.keys):
            raise OptionError(
                "option merge_keys: the output mode complete replaces all rows, and keys apply "
                "changes. Use append without keys"
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
    """The source under the name ``glaive``, for sessions whose ``lance`` is a JVM connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "glaive"


def _supports_pushdown() -> bool:
    """Return whether the caller is the Spark module that pushes filters down.

    Other callers reject readers that accept filters.
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


def _refuse_unreadable(schema: StructType, stored: pa.Schema, where: str) -> None:
    """Check that a schema of the user selects columns, and that their types convert to it."""
    known = set(stored.names)
    for name in schema.names:
        if name not in known:
            raise ColumnNotFoundError.among(name, stored.names, where=where)
    repeated = {name for name, times in Counter(schema.names).items() if times > 1}
    if repeated:
        raise SchemaError(f"the schema names {', '.join(sorted(repeated))} more than once")
    chosen = pa.schema([stored.field(name) for name in schema.names])
    refuse_unassignable(chosen, spark_arrow_schema(schema), where="the schema given to the reader")
