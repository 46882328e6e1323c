"""The public functions that read and write Spark frames.

They extend ``spark.read.format("lance")`` by named options that are checked before a job runs, the
save modes that Spark does not support for Python sources, and glaive's own errors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args
from uuid import uuid4

from glaive.errors import DatasetExistsError, DatasetNotFoundError, OptionError
from glaive.spark.failures import as_glaive_errors
from glaive.spark.launch import register
from glaive.spark.options import Options, absolute, from_spark, to_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SaveMode", "is_connect", "read", "register_view", "write"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Setting that enables filter pushdown in Spark; off by default."""

SaveMode = Literal["errorifexists", "ignore", "append", "overwrite"]


def read(  # noqa: PLR0913  # one keyword for each option
    spark: SparkSession,
    uri: str | os.PathLike[str],
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | None = None,  # the name that scans have for it
    push_filters: bool = False,
    version: int | None = None,
    branch: str | None = None,
    tag: str | None = None,
    asof: datetime | str | None = None,
    with_row_id: bool = False,
    with_row_address: bool = False,
    batch_size: int | None = None,
    split_bytes: int | None = None,
    parallelism: int | None = None,
    allow_truncation: bool = False,
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
) -> DataFrame:
    """Return a frame over one version of a dataset.

    Parameters
    ----------
    columns
        The columns of the frame, in this order; default: all. A mapping has names and
        expressions: ``{"total": "price * amount"}``. Specify the needed columns: Spark does not
        push down projections to Python sources, so all columns of the frame are read.
    filter
        The rows of the frame, in the filter language of glaive: ``"price > 10"``. Pages without
        matching rows are not read.
    push_filters
        Push down filters from ``where``. Only for frames that are used in one query: Spark 4.3
        caches the pushed filters of the first query on a frame and reuses them for later
        queries, which then lack rows. Sets ``spark.sql.python.filterPushdown.enabled`` in the
        session.
    version
        Default: the newest version at the time of this call.
    branch
        The branch to read; its newest version unless ``version`` or ``asof`` is given.
    tag
        The tag of the version to read.
    asof
        Read the newest version created before this point in time: a ``datetime`` (local time
        unless it has a zone) or a string in ISO format.
    with_row_id, with_row_address
        Add the column ``_rowid`` or ``_rowaddr`` at the end, as ``bigint``.
    batch_size
        Rows per Arrow batch; default: depends on the row width.
    split_bytes
        Approximate bytes per task; default: up to 128 MiB.
    parallelism
        Number of tasks that keeps the cluster busy; default: as reported by Spark.
    allow_truncation
        Truncate times to microseconds, the resolution of Spark, instead of refusing such values.
    storage_options
        Settings of the object store, such as ``{"aws_region": "eu-central-1"}``.
    base_store_params
        Settings for base paths of the dataset, by path or URI, as for :func:`glaive.dataset`.

    Raises
    ------
    DatasetNotFoundError, NotFoundError, ColumnNotFoundError, SchemaError, FilterError, OptionError
        Raised before any job runs.

    Notes
    -----
    Also opens the dataset in this process (two requests) to pin the version: with Spark Connect,
    the client needs access to the dataset.

    Examples
    --------
    >>> flights = glaive.spark.read(spark, "flights.lance", columns=["carrier", "dep_delay"])
    >>> flights.groupBy("carrier").avg("dep_delay").show()
    """
    uri = absolute(uri)
    if parallelism is None and not is_connect(spark):
        parallelism = spark.sparkContext.defaultParallelism
    options = to_spark(
        {
            "columns": columns,
            "filter": filter,
            "push_filters": push_filters or None,
            "version": version,
            "branch": branch,
            "tag": tag,
            "asof": asof,
            "with_row_id": with_row_id or None,
            "with_row_address": with_row_address or None,
            "batch_size": batch_size,
            "split_bytes": split_bytes,
            "parallelism": parallelism,
            "allow_truncation": allow_truncation or None,
            "storage": storage_options,
            "base_store_params": base_store_params,
        }
    )
    from glaive.spark.frame import frame_schema, open_dataset, pinned

    # Errors are raised here rather than in a worker or, with Connect, at the first action.
    checked = from_spark(options | {"path": uri})
    dataset = open_dataset(checked)
    frame_schema(dataset, checked)
    at = pinned(checked, dataset)
    options = {key: text for key, text in options.items() if key not in ("tag", "asof")}
    options |= to_spark({"version": at.version, "branch": at.branch})
    register(spark)
    if push_filters:
        spark.conf.set(PUSHDOWN, "true")
    with as_glaive_errors():
        return spark.read.format("lance").options(**options).load(uri)


def write(  # noqa: PLR0913  # one keyword for each option
    frame: DataFrame,
    uri: str | os.PathLike[str],
    mode: SaveMode = "errorifexists",
    *,
    vector_columns: Mapping[str, int | str] | Sequence[str] | None = None,
    arrow_schema: pa.Schema | None = None,
    strict_nullability: bool = False,
    max_rows_per_file: int | None = None,
    max_bytes_per_file: int | None = None,
    encoding_options: Mapping[str, Mapping[str, object]] | None = None,
    data_storage_version: str | None = None,
    enable_stable_row_ids: bool | None = None,
    allow_truncation: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Write a frame as one new version of a dataset, and return its number.

    Tasks write data files, then the driver commits them atomically: readers see all rows or none,
    and a task that runs twice adds its rows once. Can be called from any thread.

    Parameters
    ----------
    mode
        ``errorifexists`` fails if there is a dataset, even if another writer creates it
        concurrently; ``ignore`` does nothing if there is one; ``append`` adds rows, matching
        columns by name; ``overwrite`` replaces rows and columns, and older versions remain
        readable.
    vector_columns
        Array columns to store as fixed-size lists, as used for embeddings:
        ``{"emb": 128}``, ``{"emb": "128:float16"}`` or ``["emb:128:float16"]``.
    arrow_schema
        The types to store, columns matched by name. Default: those of the dataset for appends,
        those from which the columns were read, else those of Spark.
    strict_nullability
        Keep Spark's "not null" in a new dataset. Otherwise all columns are nullable.
    encoding_options
        Encoding of columns: ``{"text": {"compression": "zstd"}}``.
    max_rows_per_file, max_bytes_per_file, data_storage_version, enable_stable_row_ids
        As in :func:`glaive.write_dataset`.
    allow_truncation
        Truncate times to the stored unit instead of refusing such rows.
    storage_options
        Settings of the object store.

    Returns
    -------
    int
        The version with the rows; the newest one if none was made, because mode ``ignore`` found
        a dataset or no rows were appended.

    Raises
    ------
    DatasetExistsError
        Mode ``errorifexists``, and there is a dataset.
    SchemaError, ColumnNotFoundError
        The frame does not match the dataset, or a value does not fit its type. No version was
        created.
    OptionError
        A mode or option does not exist.

    Notes
    -----
    This process looks up the version before and after: two requests each, and one or two for each
    version in between. With Spark Connect, the client needs access to the dataset.

    Examples
    --------
    >>> glaive.spark.write(frame, "flights.lance", vector_columns={"features": 32})
    1
    >>> glaive.spark.write(more, "flights.lance", mode="append")
    2
    """
    if mode not in get_args(SaveMode):
        raise OptionError(f"mode: expected one of {', '.join(get_args(SaveMode))}, found {mode!r}")
    uri = absolute(uri)
    if isinstance(vector_columns, Mapping):
        vector_columns = [f"{name}:{form}" for name, form in vector_columns.items()]
    creating = mode in ("errorifexists", "ignore")
    job = str(uuid4())
    options = to_spark(
        {
            "vector_columns": vector_columns or None,
            "arrow_schema": arrow_schema,
            "strict_nullability": strict_nullability or None,
            "max_rows_per_file": max_rows_per_file,
            "max_bytes_per_file": max_bytes_per_file,
            "encoding_options": encoding_options or None,
            "data_storage_version": data_storage_version,
            "enable_stable_row_ids": enable_stable_row_ids,
            "allow_truncation": allow_truncation or None,
            "must_not_exist": creating or None,
            "job": job,
            "storage": storage_options,
        }
    )
    checked = from_spark(options | {"path": uri})
    before = _newest(checked)
    if creating and before:
        if mode == "ignore":
            return before
        from glaive.dataset.writing.plan import exists_already

        raise exists_already(uri, before)
    spark = frame.sparkSession
    register(spark)
    writer = frame.write.format("lance").options(**options)
    with as_glaive_errors(), _active(spark):
        try:
            writer.mode("overwrite" if mode == "overwrite" else "append").save(uri)
        except DatasetExistsError:
            if mode != "ignore":
                raise
    return _made_by(job, checked, before)


def register_view(
    spark: SparkSession, name: str, uri: str | os.PathLike[str], **options: object
) -> None:
    """Register a dataset for SQL, as a temporary view of this session.

    The view has the given version, or the newest one at the time of this call; register it again
    to see later ones. ``INSERT INTO`` and ``INSERT OVERWRITE`` on it write to the dataset.

    Parameters
    ----------
    name
        Name of the view; an existing one is replaced.
    options
        As for :func:`read`, or for :func:`write` for inserts.

    Examples
    --------
    >>> glaive.spark.register_view(spark, "flights", "flights.lance", columns=["carrier"])
    >>> spark.sql("SELECT carrier, count(*) FROM flights GROUP BY carrier").show()
    """
    strings = to_spark(options) | {"path": absolute(uri)}
    from_spark(strings)
    register(spark)
    pairs = ", ".join(f"{_quoted(key)} {_quoted(text)}" for key, text in strings.items())
    view = "`" + name.replace("`", "``") + "`"
    with as_glaive_errors():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING lance OPTIONS ({pairs})")


def is_connect(spark: SparkSession) -> bool:
    """Whether a session uses a Spark Connect server, and so has no ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _newest(options: Options) -> int:
    """The newest version of a dataset; 0 if there is none."""
    from glaive.table.load import open_latest
    from glaive.table.root import open_root

    try:
        return open_latest(open_root(options.uri, options.storage)).version
    except DatasetNotFoundError:
        return 0


def _made_by(job: str, options: Options, before: int) -> int:
    """The version that a job committed after version ``before``; the newest if there is none."""
    from glaive.spark.writer import JOB
    from glaive.table.load import find_transaction
    from glaive.table.root import open_root

    made = find_transaction(open_root(options.uri, options.storage), before, JOB, job)
    return _newest(options) if made is None else made.version


@contextmanager
def _active(spark: Any) -> Iterator[None]:
    """Make this the active session of the thread, where Spark looks up data sources."""
    if is_connect(spark):
        yield
        return
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # noqa: SLF001  # no public way
    previous = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001  # same
    try:
        yield
    finally:
        if previous.isDefined():
            sessions.setActiveSession(previous.get())
        else:
            sessions.clearActiveSession()
