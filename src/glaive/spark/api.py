"""Datasets as Spark frames and views.

:func:`read` extends ``spark.read.format("lance")`` by named options that are checked before a job
runs, glaive's own errors, and what Spark does not ask of Python sources: how large a frame is, so
that small ones are broadcast in joins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from py4j.java_gateway import JavaClass

from glaive.errors import OptionError
from glaive.format.field import quoted_name
from glaive.spark.failures import as_glaive_errors
from glaive.spark.launch import register
from glaive.spark.options import absolute, from_spark, refuse_no_texts, spark_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- Frames that Spark may broadcast in joins -------------------------------------------
# The hint says how large a frame is, which Spark does not ask of Python sources. Where such a
# frame is not part of a join, Spark would warn of a hint without effect, in each query: this one
# is left out of the log of classic sessions. Other warnings of hints stay.

LOGGER: Final = "org.apache.spark.sql.catalyst.analysis.HintErrorLogger"
"""The logger of Spark's warnings of hints."""

NO_JOIN: Final = r".*\(strategy=broadcast\).* is not part of a join relation.*"
"""The warning, as a regular expression of Java for the whole message."""


def marked_small(frame: DataFrame, *, has_jvm: bool) -> DataFrame:
    """The frame, as one that joins should broadcast; ``has_jvm``: of a classic session."""
    session: Any = frame.sparkSession
    if has_jvm:
        _without_warning(session._jvm)  # noqa: SLF001  # no public way to the log
    return frame.hint("broadcast")


@lru_cache(maxsize=1)
def _without_warning(jvm: Any) -> None:
    """Leave the warning out of the log of a JVM, if log4j writes it."""
    manager = jvm.org.apache.logging.log4j.LogManager
    if not isinstance(manager, JavaClass):
        return
    logger = manager.getLogger(LOGGER)
    log4j = jvm.org.apache.logging.log4j.core
    if logger.getClass().getName() != "org.apache.logging.log4j.core.Logger":
        return
    result = getattr(log4j, "Filter$Result")
    logger.addFilter(
        log4j.filter.RegexFilter.createFilter(NO_JOIN, None, False, result.DENY, result.NEUTRAL)
    )
    # The filter gave the logger a configuration of its own, with the level of the moment.
    logger.get().setLevel(None)
    logger.getContext().updateLoggers()


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Setting that enables filter pushdown in Spark; off by default."""

BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
"""Setting of the size up to which Spark sends one side of a join to all executors."""

CASE_SENSITIVE = "spark.sql.caseSensitive"
"""Setting by which Spark tells names apart that differ in case only; off by default."""

UNITS = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}
"""Units of sizes in settings of Spark."""


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
    limit: int | None = None,
    order_by: str | Sequence[Any] | None = None,
    nearest: Mapping[str, Any] | None = None,
    full_text_query: str | Mapping[str, Any] | None = None,
    with_row_id: bool = False,
    with_row_address: bool = False,
    batch_size: int | None = None,
    blobs: Literal["descriptor", "bytes"] = "descriptor",
    split_bytes: int | None = None,
    parallelism: int | None = None,
    allow_truncation: bool = False,
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    allow_external_blobs: bool | Sequence[str] | None = None,
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
    limit
        Only the first rows. With a filter, one task looks for them.
    order_by
        Columns to sort by: names, :class:`glaive.ColumnOrdering`, or mappings such as
        ``{"column_name": "price", "ascending": False}``. One task reads and sorts, with
        so many rows in memory as ``limit`` says; to sort large results use ``orderBy`` of Spark.
    nearest
        The rows nearest to a vector, as for :meth:`glaive.LanceDataset.scanner`:
        ``{"column": "emb", "q": vector, "k": 10}``. Adds ``_distance``. One task searches.
    full_text_query
        The rows whose text matches: a text, or ``{"query": "red shoes", "columns": ["title"]}``.
        Adds ``_score``. One task searches.
    with_row_id, with_row_address
        Add the column ``_rowid`` or ``_rowaddr`` at the end, as ``bigint``.
    blobs
        Columns of blobs as structs that say where each value is, or as ``binary``.
    batch_size
        Rows per Arrow batch; default: depends on the row width.
    split_bytes
        Approximate bytes of the columns that a task reads; default: up to 128 MiB, less if some
        cores would be idle.
    parallelism
        Number of tasks that keeps the cluster busy; default: as reported by Spark.
    allow_truncation
        Truncate times to microseconds, the resolution of Spark, instead of refusing such values.
    storage_options
        Settings of the object store, such as ``{"aws_region": "eu-central-1"}``.
    base_store_params
        Settings for base paths of the dataset, by path or URI, as for :func:`glaive.dataset`.
    allow_external_blobs
        Whether values of blobs may be read from outside of the dataset, or from where, as for
        :func:`glaive.dataset`. Other functions and methods for Spark have ``storage_options``,
        which may contain this and ``base_store_params``.

    Raises
    ------
    DatasetNotFoundError, NotFoundError, ColumnNotFoundError, SchemaError, FilterError, OptionError
        Raised before any job runs.

    Notes
    -----
    Also opens the dataset in this process (two requests) to pin the version: with Spark Connect,
    the client needs access to the dataset. A frame that is estimated to be smaller than
    ``spark.sql.autoBroadcastJoinThreshold`` is marked for broadcast joins, because Spark knows no
    sizes of Python sources.

    Examples
    --------
    >>> flights = glaive.spark.read(spark, "flights.lance", columns=["carrier", "dep_delay"])
    >>> flights.groupBy("carrier").avg("dep_delay").show()
    """
    uri = absolute(uri)
    if parallelism is None:
        parallelism = cluster_cores(spark)
    options = spark_texts(
        {
            "columns": columns,
            "filter": filter,
            "push_filters": push_filters or None,
            "version": version,
            "branch": branch,
            "tag": tag,
            "asof": asof,
            "limit": limit,
            "order_by": order_by,
            "nearest": nearest,
            "full_text_query": full_text_query,
            "blobs": None if blobs == "descriptor" else blobs,
            "with_row_id": with_row_id or None,
            "with_row_address": with_row_address or None,
            "batch_size": batch_size,
            "split_bytes": split_bytes,
            "parallelism": parallelism,
            "allow_truncation": allow_truncation or None,
            "storage": storage_options,
            "base_store_params": base_store_params,
            "allow_external_blobs": allow_external_blobs,
        }
    )
    from glaive.spark.frame import open_dataset, pinned
    from glaive.spark.sizes import frame_bytes

    # Errors are raised here rather than in a worker or, with Connect, at the first action.
    checked = from_spark(options | {"path": uri})
    dataset = open_dataset(checked)
    size = frame_bytes(dataset, checked)
    at = pinned(checked, dataset)
    options = {key: text for key, text in options.items() if key not in ("tag", "asof")}
    options |= spark_texts({"version": at.version, "branch": at.branch})
    refuse_no_texts({"path": uri, **options})
    register(spark)
    if push_filters:
        spark.conf.set(PUSHDOWN, "true")
    with as_glaive_errors():
        frame = spark.read.format("lance").options(**options).load(uri)
    if size > _broadcast_bytes(spark):
        return frame
    return marked_small(frame, has_jvm=not is_connect(spark))


def register_view(
    spark: SparkSession, name: str, uri: str | os.PathLike[str], **options: object
) -> None:
    """Register a dataset for SQL, as a temporary view of this session.

    The view has the given version, or the newest one at the time of this call; register it again
    to see later ones. ``INSERT INTO`` and ``INSERT OVERWRITE`` on it write to the dataset;
    ``INSERT OVERWRITE`` is a conflict if the dataset has a newer version than the view.

    Parameters
    ----------
    name
        Name of the view; an existing one is replaced.
    options
        As for :func:`read`, or for :func:`write` for inserts.

    Raises
    ------
    OptionError
        The name has ``${`` or is no text of Java, or an option is wrong.

    Examples
    --------
    >>> glaive.spark.register_view(spark, "flights", "flights.lance", columns=["carrier"])
    >>> spark.sql("SELECT carrier, count(*) FROM flights GROUP BY carrier").show()
    """
    from glaive.spark.frame import open_dataset, pinned

    strings = spark_texts(options) | {"path": absolute(uri)}
    checked = from_spark(strings)
    at = pinned(checked, open_dataset(checked))
    strings = {key: text for key, text in strings.items() if key not in ("tag", "asof")}
    strings |= spark_texts({"version": at.version, "branch": at.branch})
    register(spark)
    pairs = ", ".join(f"{_quoted(key)} {_quoted(text)}" for key, text in strings.items())
    if "${" in name:  # nothing stands for it within a name
        raise OptionError(f"view {name!r:.80}: Spark replaces ${{…}} in names. Choose another one")
    refuse_no_texts({**strings, "name of the view": name})
    view = quoted_name(name)
    with as_glaive_errors():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING lance OPTIONS ({pairs})")


def is_connect(spark: SparkSession) -> bool:
    """Whether a session uses a Spark Connect server, and so has no ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_set(spark: SparkSession, setting: str, default: str = "false") -> bool:
    """Whether a setting of a session is true, however Spark lets it be written."""
    return (spark.conf.get(setting, default) or "").strip().lower() == "true"


def _quoted(text: str) -> str:
    # Spark puts variables of its process in place of ${env:NAME} before it parses.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\u007B")
    return f"'{escaped}'"


def cluster_cores(spark: SparkSession) -> int | None:
    """Tasks that run at a time, as far as the session tells."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    executors = spark.conf.get("spark.executor.instances", "") or ""
    cores = spark.conf.get("spark.executor.cores", "1") or "1"
    return int(executors) * int(cores) if executors.isdecimal() and cores.isdecimal() else None


def _broadcast_bytes(spark: SparkSession) -> int:
    """Size up to which Spark broadcasts frames whose size it knows; -1 for none."""
    text = (spark.conf.get(BROADCAST, "10MB") or "").strip().lower()
    size = re.fullmatch(r"(\d+)([a-z]*)", text)
    return int(size[1]) * UNITS[size[2]] if size and size[2] in UNITS else -1
