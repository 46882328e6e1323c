"""Datasets as Spark frames and views.

:func:`read` extends ``spark.read.format("lance")`` by named options that are checked before a job
runs, and by glaive's own errors. It also tells Spark which frames are small enough to broadcast in
joins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

from py4j.java_gateway import JavaClass

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.format.field import quoted_name
from glaive.io.location import path_text
from glaive.options import TypedDict, shows
from glaive.spark.failures import as_glaive_errors
from glaive.spark.frame import frame_bytes, open_dataset, pinned
from glaive.spark.launch import register
from glaive.spark.options import (
    Options,
    absolute,
    from_spark,
    refuse_invalid_strings,
    spark_texts,
    stream_options,
)
from glaive.spark.types import refuse_same_without_case
from glaive.table.refs import branch_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.version import OpenedVersion


# --- Frames that Spark may broadcast in joins -------------------------------------------
# Spark does not ask Python sources for their size, so a hint marks small frames. Spark warns in
# each query without a join that the hint has no effect. Classic sessions filter this warning out
# of the log; other warnings of hints stay.

LOGGER: Final = "org.apache.spark.sql.catalyst.analysis.HintErrorLogger"
"""The logger of Spark's warnings of hints."""

UNUSED_HINT: Final = r".*\(strategy=broadcast\).* is not part of a join relation.*"
"""The warning, as a regular expression of Java for the whole message."""


def marked_small(frame: DataFrame, *, has_jvm: bool) -> DataFrame:
    """Mark a frame for broadcast in joins; ``has_jvm``: the session is a classic one."""
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
        log4j.filter.RegexFilter.createFilter(UNUSED_HINT, None, False, result.DENY, result.NEUTRAL)
    )
    # The filter gave the logger a configuration of its own, with the level of the moment.
    logger.get().setLevel(None)
    logger.getContext().updateLoggers()


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Setting that enables filter pushdown in Spark; off by default."""

BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
"""Setting of the size up to which Spark sends one side of a join to all executors."""

CASE_SENSITIVE = "spark.sql.caseSensitive"
"""Setting that makes Spark distinguish names by case; off by default."""

UNITS = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}
"""Units of sizes in settings of Spark."""


class ReadKeywords(TypedDict, total=False):
    """Options of :func:`read`."""

    columns: Sequence[str] | Mapping[str, str] | None
    filter: str | None
    push_filters: bool
    version: int | None
    branch: str | None
    tag: str | None
    asof: datetime | str | None
    limit: int | None
    order_by: str | Sequence[Any] | None
    nearest: Mapping[str, Any] | None
    full_text_query: str | Mapping[str, Any] | None
    with_row_id: bool
    with_row_address: bool
    batch_size: int | None
    blobs: Literal["descriptor", "bytes"]
    split_bytes: int | None
    parallelism: int | None
    allow_truncation: bool
    storage_options: Mapping[str, str] | None
    base_store_params: Mapping[str, Mapping[str, str]] | None
    allow_external_blobs: bool | Sequence[str] | None


@shows(ReadKeywords, Options, order_by=None)
def read(
    spark: SparkSession, uri: str | os.PathLike[str], **options: Unpack[ReadKeywords]
) -> DataFrame:
    """Return a frame over one version of a dataset.

    Parameters
    ----------
    spark
        A Spark session.
    columns
        The columns of the frame, in this order; default: all. A mapping has names and
        expressions: ``{"total": "price * amount"}``. Specify the needed columns: Spark reads all
        columns of a frame of a Python source.
    filter
        The rows of the frame, in the filter language of glaive: ``"price > 10"``. glaive skips
        pages whose rows all fail it.
    push_filters
        Push down filters from ``where``. Use it only for frames that serve one query. Spark 4.3
        caches the pushed filters of the first query on a frame. Later queries reuse these filters
        and then lack rows. Sets ``spark.sql.python.filterPushdown.enabled`` in the
        session.
    version
        Default: the newest version at the time of this call.
    branch
        The branch to read; its newest version unless ``version`` or ``asof`` is given.
    tag
        The tag of the version to read.
    asof
        Read the newest version created before this point in time: a ``datetime`` or a string in ISO
        format. The default time zone is the local one.
    limit
        Only the first rows. With a filter, one task looks for them.
    order_by
        Columns to sort by: names, :class:`glaive.ColumnOrdering`, or mappings such as
        ``{"column_name": "price", "ascending": False}``. One task reads and sorts. It holds
        ``limit`` rows in memory. To sort large results, use ``orderBy`` of Spark.
    nearest
        The rows nearest to a vector, as for :meth:`glaive.LanceDataset.scanner`:
        ``{"column": "emb", "q": vector, "k": 10}``. Adds ``_distance``. One task searches.
    full_text_query
        The rows whose text matches: a string, or ``{"query": "red shoes", "columns": ["title"]}``.
        Adds ``_score``. One task searches.
    with_row_id, with_row_address
        Add the column ``_rowid`` or ``_rowaddr`` at the end, as ``bigint``.
    blobs
        How to return columns of blobs: ``descriptor`` gives structs with the location of each
        value, ``bytes`` gives ``binary``.
    batch_size
        Rows per Arrow batch; default: depends on the row width.
    split_bytes
        Approximate bytes of the columns that a task reads. Default: up to 128 MiB, or less if
        some cores would be idle.
    parallelism
        Number of tasks that keeps the cluster busy; default: as reported by Spark.
    allow_truncation
        Truncate times to microseconds, the resolution of Spark, instead of refusing such values.
    storage_options
        Settings of the object store, such as ``{"aws_region": "eu-central-1"}``.
    base_store_params
        Settings for base paths of the dataset, by path or URI, as for :func:`glaive.dataset`.
    allow_external_blobs
        Whether glaive may read values of blobs from outside the dataset, or a list of allowed
        locations, as for :func:`glaive.dataset`. For other functions and methods for Spark, put
        this option and ``base_store_params`` into ``storage_options``.

    Raises
    ------
    DatasetNotFoundError, NotFoundError, ColumnNotFoundError, SchemaError, FilterError, OptionError
        Raised before any job runs.

    Notes
    -----
    This process opens the dataset, too (two requests), to pin the version. With Spark Connect, the
    client therefore needs access to the dataset. Spark has no sizes of Python sources: glaive marks
    a frame for broadcast joins if its estimated size is below
    ``spark.sql.autoBroadcastJoinThreshold``.

    Examples
    --------
    >>> flights = glaive.spark.read(spark, "flights.lance", columns=["carrier", "dep_delay"])
    >>> flights.groupBy("carrier").avg("dep_delay").show()
    """
    place = absolute(uri)
    if options.get("parallelism") is None:
        options["parallelism"] = cluster_cores(spark)
    # Errors are raised here rather than in a worker or, with Connect, at the first action.
    texts, checked, dataset = _pinned_texts(place, options)
    register(spark)
    if checked.push_filters:
        spark.conf.set(PUSHDOWN, "true")
    with as_glaive_errors():
        frame = spark.read.format("lance").options(**texts).load(place)
    if frame_bytes(dataset, checked) > _broadcast_bytes(spark):
        return frame
    return marked_small(frame, has_jvm=not is_connect(spark))


def version_frame(
    spark: SparkSession, opened: LanceDataset | OpenedVersion, **options: Any
) -> DataFrame:
    """Return a frame over a version that is open."""
    manifest, storage = opened.manifest, opened.storage_options
    return read(
        spark,
        opened.uri,
        version=manifest.version,
        branch=branch_of(manifest),
        storage_options=None if storage is None else dict(storage),
        **options,
    )


def _pinned_texts(
    uri: str, options: Mapping[str, object]
) -> tuple[dict[str, str], Options, LanceDataset]:
    """Return the options as strings that pin a version, the parsed options, and that version."""
    texts = spark_texts(options)
    checked = from_spark(texts | {"path": uri})
    dataset = open_dataset(checked)
    at = pinned(checked, dataset)
    texts = {key: text for key, text in texts.items() if key not in ("tag", "asof")}
    texts |= spark_texts({"version": at.version, "branch": at.branch})
    refuse_invalid_strings({"path": uri, **texts})
    return texts, checked, dataset


@shows(Options, Options, leave_out=["uri", "storage", "identity"])
def register_view(
    spark: SparkSession, name: str, uri: str | os.PathLike[str], **options: object
) -> None:
    """Register a dataset for SQL, as a temporary view of this session.

    The view has the given version, or the newest one at the time of this call. Register it again
    to see later versions. ``INSERT INTO`` and ``INSERT OVERWRITE`` on it write to the dataset.
    ``INSERT OVERWRITE`` is a conflict if the dataset has a newer version than the view.

    Parameters
    ----------
    spark
        A Spark session.
    name
        Name of the view; an existing one is replaced.
    **options
        Options for reading, and options for writing that inserts use. ``storage_options`` are
        settings of the object store.

    Raises
    ------
    OptionError
        The name contains ``${``, the name is an invalid Java string, or an option is wrong.

    Examples
    --------
    >>> glaive.spark.register_view(spark, "flights", "flights.lance", columns=["carrier"])
    >>> spark.sql("SELECT carrier, count(*) FROM flights GROUP BY carrier").show()
    """
    place = absolute(uri)
    strings = _pinned_texts(place, options)[0] | {"path": place}
    register(spark)
    pairs = ", ".join(f"{_quoted(key)} {_quoted(text)}" for key, text in strings.items())
    if "${" in name:  # a name cannot escape it
        raise OptionError(f"view {name!r:.80}: Spark replaces ${{…}} in names. Choose another one")
    refuse_invalid_strings({"name of the view": name})
    view = quoted_name(name)
    with as_glaive_errors():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING lance OPTIONS ({pairs})")


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session uses Spark Connect; such a session lacks ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_set(spark: SparkSession, setting: str, default: str = "false") -> bool:
    """Return whether a setting of a session is true, in any spelling that Spark accepts."""
    return (spark.conf.get(setting, default) or "").strip().lower() == "true"


def _quoted(text: str) -> str:
    # Spark puts variables of its process in place of ${env:NAME} before it parses.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\u007B")
    return f"'{escaped}'"


def cluster_cores(spark: SparkSession) -> int | None:
    """Return how many tasks run at a time; ``None`` if unknown."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    executors = spark.conf.get("spark.executor.instances", "") or ""
    cores = spark.conf.get("spark.executor.cores", "1") or "1"
    return int(executors) * int(cores) if executors.isdecimal() and cores.isdecimal() else None


def _broadcast_bytes(spark: SparkSession) -> int:
    """Return the largest size in bytes that Spark broadcasts; -1 if broadcasts are disabled."""
    text = (spark.conf.get(BROADCAST, "10MB") or "").strip().lower()
    size = re.fullmatch(r"(\d+)([a-z]*)", text)
    return int(size[1]) * UNITS[size[2]] if size and size[2] in UNITS else -1


# --- The public function that reads a change feed as a frame ----------------------------


def read_changes(  # noqa: PLR0913  # one keyword for each option
    spark: SparkSession,
    uri: str | os.PathLike[str],
    start_version: int,
    end_version: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    preimages: bool = True,
    net: bool = False,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a frame of the rows that versions inserted, updated and deleted.

    Parameters
    ----------
    spark
        A Spark session.
    uri
        Path or URI of the dataset.
    start_version, end_version
        The first and the last version whose changes are read, both included. The default of
        ``end_version`` is the newest version at the time of this call.
    columns
        Columns of the dataset, also ``_rowid`` and other system columns; default: all.
    preimages
        Whether to return updated rows also as they were before the update.
    net
        Return the difference between the first and the last state, instead of the changes of
        every version in between.
    branch
        The branch whose versions are compared; default: the main branch.
    storage_options
        Settings of the object store.

    Returns
    -------
    DataFrame
        The columns, then ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

    Raises
    ------
    OptionError, ColumnNotFoundError, SchemaError, VersionNotFoundError
        As for ``LanceDataset.changes``, before any job runs.

    Notes
    -----
    This process reads the manifest of each version and compares them. Tasks read the rows.

    Examples
    --------
    >>> changes = glaive.spark.read_changes(spark, "flights.lance", 3, columns=["carrier"])
    >>> changes.where("_change_type = 'delete'").count()
    """
    from glaive.spark.stream_reader import change_schema, open_changes

    options = spark_texts(
        {
            "columns": columns,
            "branch": branch,
            "readChangeFeed": True,
            "startingVersion": start_version,
            "endingVersion": end_version,
            "preimages": preimages,
            "deduplicationMode": "netChanges" if net else None,
            "storage": storage_options,
        }
    )
    place = absolute(uri)  # Spark's processes may have another working directory
    of_stream, others = stream_options(options | {"path": place})
    checked = from_spark(others)
    dataset = open_changes(checked, of_stream)
    change_schema(dataset, checked)
    dataset.changes(start_version, preimages=preimages, net=net)
    register(spark)
    pinned = options | {"endingVersion": str(dataset.version)}
    with as_glaive_errors():
        return spark.read.format("lance").options(**pinned).load(place)


# --- The tables of a catalogue in a session: listed, read, registered as views ----------

_PAGE_NAMES = 1000


def catalog(
    spark: SparkSession, namespace_client: Any, namespace: Sequence[str] = ()
) -> SparkCatalogue:
    """Return the tables of a namespace, for use in a session.

    Parameters
    ----------
    spark
        A Spark session.
    namespace_client
        A catalogue, such as ``glaive.namespace.connect("dir", {"root": "shop"})``.
    namespace
        Path of the namespace, one name per level; default: the root.

    Examples
    --------
    >>> shop = glaive.spark.catalog(spark, connect("dir", {"root": "shop"}), ["sales"])
    >>> shop.list_tables()
    ['orders']
    >>> glaive.spark.sql(spark, "SELECT count(*) FROM shop.orders", shop=shop).show()
    """
    return SparkCatalogue(spark, namespace_client, tuple(namespace))


@dataclass(frozen=True, slots=True)
class SparkCatalogue:
    """The tables of one namespace in a session; made by :func:`catalog`."""

    spark: SparkSession
    namespace_client: Any
    namespace: tuple[str, ...] = ()

    def list_tables(self) -> list[str]:
        """Return the names of the tables, sorted. Cost: one request per thousand tables."""
        return sorted(self._pages("list_tables", "ListTablesRequest", "tables"))

    def list_namespaces(self) -> list[str]:
        """Return the names of the child namespaces, sorted. Cost: one request per thousand."""
        return sorted(self._pages("list_namespaces", "ListNamespacesRequest", "namespaces"))

    def read(self, table: str, **options: Any) -> DataFrame:
        """Return a frame over a table.

        Parameters
        ----------
        table
            Name of the table.
        **options
            Options of :func:`glaive.spark.read`.

        Raises
        ------
        DatasetNotFoundError
            The table is missing.
        """
        uri, storage = self._find(table)
        return read(self.spark, uri, storage_options=storage, **options)

    def _find(self, table: str) -> tuple[str, Mapping[str, str] | None]:
        from glaive.table.manifest_registers import find_table

        path = (*self.namespace, table)
        found = find_table(self.namespace_client, path, None, None)
        return found.uri, found.portable_options

    def _pages(self, method: str, kind: str, field: str) -> Iterator[str]:
        import lance_namespace as interface

        token, asked = None, True
        while asked:
            request = getattr(interface, kind)(
                id=list(self.namespace), page_token=token, limit=_PAGE_NAMES
            )
            answer = getattr(self.namespace_client, method)(request)
            yield from getattr(answer, field)
            token = answer.page_token
            asked = bool(token)


# --- The base of all methods of ``LanceTable``: the session, the dataset, frames of its versions


class TableHandle:
    """A dataset, and the session that runs its tasks.

    Every method works on the newest version at the time of its call.
    """

    def __init__(self, spark: SparkSession, dataset: LanceDataset) -> None:
        self._spark = spark
        self._dataset = dataset
        self._name: str | None = None

    def alias(self, name: str) -> Self:
        """Return this table under a name.

        Parameters
        ----------
        name
            Prefix of the columns of the table in conditions of merges: ``"t"`` for ``t.id``.
        """
        renamed = type(self)(self._spark, self._dataset)
        renamed._name = name  # noqa: SLF001  # of this class
        return renamed

    def _latest(self) -> LanceDataset:
        """Check out the newest version of the dataset, in one or two requests, and return it."""
        self._dataset.checkout_latest()
        return self._dataset

    def _refuse_same_names(self, method: str, names: Iterable[str]) -> None:
        """Refuse new columns that differ in case only, if the session ignores case."""
        if not is_set(self._spark, CASE_SENSITIVE):
            refuse_same_without_case(names, self._latest().lance_schema.names, method)

    def _described(self, table: pa.Table) -> DataFrame:
        """Return a frame with facts about the dataset."""
        return self._spark.createDataFrame(table.combine_chunks())  # Spark reads one chunk alone


def located(uri: str | os.PathLike[str]) -> str:
    """Return the URI for all processes of a cluster: local paths become absolute.

    Raises
    ------
    OptionError
        Processes of a cluster cannot share such a location.
    """
    return from_spark({"path": path_text(uri)}).uri
