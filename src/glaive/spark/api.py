"""Frames from datasets and datasets from frames: what users call.

``spark.read.format("lance")`` does the same for those who prefer it. These functions add what
Spark's own interface has no room for: named options with checks before any job runs, the save
modes Spark refuses for Python sources, and errors of glaive's own kind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from uuid import uuid4

from glaive.errors import DatasetExistsError, DatasetNotFoundError, OptionError
from glaive.spark.failures import as_glaive_errors
from glaive.spark.launch import register
from glaive.spark.options import Options, from_spark, to_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SaveMode", "is_connect", "read", "register_view", "write"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Setting with which Spark hands filters over; off unless set."""

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
        The columns of the frame, in this order; all when omitted. A mapping gives names and
        expressions: ``{"total": "price * amount"}``. Name them: Spark does not
        tell the source which columns a query needs, so all of the frame are read and shipped.
    filter
        The rows of the frame, in the filter language of glaive: ``"price > 10"``. Spark gets
        no others, and pages without any are not read.
    push_filters
        Take over filters that Spark finds in ``where``. Only for frames that are used in one
        way: Spark 4.3 keeps what it planned for one use of a frame for all others, which then
        lack rows. Sets ``spark.sql.python.filterPushdown.enabled`` in the session.
    version
        The newest when omitted, pinned now: the frame does not change under your hands.
    branch
        The branch to read; its newest version unless ``version`` or ``asof`` is given.
    tag
        The tag of the version to read.
    asof
        Read the newest version made before this point in time: a ``datetime`` (local time
        unless it has a zone) or text in ISO form.
    with_row_id, with_row_address
        Add the column ``_rowid`` or ``_rowaddr`` at the end, as ``bigint``.
    batch_size
        Rows in one Arrow batch; chosen by the width of the rows when omitted.
    split_bytes
        About how many bytes one task reads; up to 128 MiB when omitted.
    parallelism
        Tasks it takes to keep the cluster busy; what Spark says when omitted.
    allow_truncation
        Drop digits of times below a microsecond, which Spark does not have, instead of refusing
        such values.
    storage_options
        Settings of the object store, such as ``{"aws_region": "eu-central-1"}``.
    base_store_params
        Settings for base paths of the dataset, by path or URI, as :func:`glaive.dataset` takes
        them.

    Raises
    ------
    DatasetNotFoundError, NotFoundError, ColumnNotFoundError, SchemaError, FilterError, OptionError
        Before any job runs.

    Notes
    -----
    Opens the dataset in this process too, two requests, to pin the version: with Spark Connect
    the client needs access to it.

    Examples
    --------
    >>> flights = glaive.spark.read(spark, "flights.lance", columns=["carrier", "dep_delay"])
    >>> flights.groupBy("carrier").avg("dep_delay").show()
    """
    uri = _absolute(uri)
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

    # What cannot be is told here, not by a worker; Connect would even tell it at the first action.
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

    Tasks write data files, then the driver commits them in one step: readers see all rows or
    none, and a task that runs twice adds its rows once. Works from any thread.

    Parameters
    ----------
    mode
        ``errorifexists`` creates and fails where there is a dataset, also if another writer
        makes it meanwhile; ``ignore`` creates or does nothing; ``append`` adds rows, to the
        columns of the dataset by name; ``overwrite`` replaces rows and columns, and earlier
        versions stay readable.
    vector_columns
        Array columns to store as lists of fixed size, the form of embeddings:
        ``{"emb": 128}``, ``{"emb": "128:float16"}`` or ``["emb:128:float16"]``.
    arrow_schema
        The exact types to store, columns matched by name. Omitted: what an append finds in the
        dataset, what the frame's columns were when read from a dataset, else Spark's.
    strict_nullability
        Keep Spark's "not null" in a new dataset. Otherwise all columns may hold nulls.
    encoding_options
        How columns are encoded: ``{"text": {"compression": "zstd"}}``.
    max_rows_per_file, max_bytes_per_file, data_storage_version, enable_stable_row_ids
        As in :func:`glaive.write_dataset`.
    allow_truncation
        Drop digits of times that the stored unit does not have instead of refusing such rows.
    storage_options
        Settings of the object store.

    Returns
    -------
    int
        The version that holds the rows. Where none was made, for mode ``ignore`` found a dataset
        or no rows were appended, the newest one.

    Raises
    ------
    DatasetExistsError
        Mode ``errorifexists`` and there is a dataset.
    SchemaError, ColumnNotFoundError
        The frame does not fit the dataset, or a value does not fit its type. Nothing is visible.
    OptionError
        A mode or option that does not exist.

    Notes
    -----
    This process looks for the version before and after, two requests each and one or two for
    each version in between: with Spark Connect the client needs access to the dataset.

    Examples
    --------
    >>> glaive.spark.write(frame, "flights.lance", vector_columns={"features": 32})
    1
    >>> glaive.spark.write(more, "flights.lance", mode="append")
    2
    """
    if mode not in get_args(SaveMode):
        raise OptionError(f"mode: expected one of {', '.join(get_args(SaveMode))}, found {mode!r}")
    uri = _absolute(uri)
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
    """Make a dataset known to SQL, as a temporary view of this session.

    The view shows the version given, or the newest when it is made; make it again to see later
    ones. ``INSERT INTO`` and ``INSERT OVERWRITE`` on it write to the dataset.

    Parameters
    ----------
    name
        Name of the view; one of the same name is replaced.
    options
        As for :func:`read`, or for :func:`write` where the view is inserted into.

    Examples
    --------
    >>> glaive.spark.register_view(spark, "flights", "flights.lance", columns=["carrier"])
    >>> spark.sql("SELECT carrier, count(*) FROM flights GROUP BY carrier").show()
    """
    texts = to_spark(options) | {"path": _absolute(uri)}
    from_spark(texts)
    register(spark)
    pairs = ", ".join(f"{_quoted(key)} {_quoted(text)}" for key, text in texts.items())
    view = "`" + name.replace("`", "``") + "`"
    with as_glaive_errors():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING lance OPTIONS ({pairs})")


def is_connect(spark: SparkSession) -> bool:
    """Tell whether a session talks to a Spark Connect server: no ``sparkContext`` then."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _absolute(uri: str | os.PathLike[str]) -> str:
    """Return a path as this process sees it: Spark's processes may run in another directory."""
    text = os.fspath(uri)
    return text if "://" in text else str(Path(text).expanduser().absolute())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _newest(options: Options) -> int:
    """The newest version of a dataset; 0 where there is none."""
    from glaive.table.load import open_latest
    from glaive.table.root import open_root

    try:
        return open_latest(open_root(options.uri, options.storage)).version
    except DatasetNotFoundError:
        return 0


def _made_by(job: str, options: Options, before: int) -> int:
    """The version that a job made after another one; the newest if it made none."""
    from glaive.spark.writer import JOB
    from glaive.table.load import find_transaction
    from glaive.table.root import open_root

    made = find_transaction(open_root(options.uri, options.storage), before, JOB, job)
    return _newest(options) if made is None else made.version


@contextmanager
def _active(spark: Any) -> Iterator[None]:
    """Make this the session of the thread: Spark looks up sources there, and knows it in one."""
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
