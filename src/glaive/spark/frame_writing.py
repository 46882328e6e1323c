"""Write frames: save modes that Spark lacks for Python sources, and safe overwrites.

The plan of a frame shows the dataset and the version that the frame reads, but Python sources
cannot see the plan. The user's process reads it: through the JVM of a classic session, or in the
messages of Spark Connect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, get_args
from uuid import uuid4

from pyspark.sql.functions import octet_length
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    NumericType,
    StringType,
    TimestampType,
)

from glaive.dataset.tasks import JOB
from glaive.dataset.writing.plan import exists_already
from glaive.errors import DatasetExistsError, JobError
from glaive.format.field import quoted_name
from glaive.options import TypedDict, one_of, shows
from glaive.spark.api import CASE_SENSITIVE, is_connect, is_set
from glaive.spark.cast import unscaled_frame
from glaive.spark.failures import as_glaive_errors, naming_columns, naming_job
from glaive.spark.frame import frame_schema, open_dataset
from glaive.spark.launch import register
from glaive.spark.options import (
    Options,
    absolute,
    from_spark,
    refuse_invalid_strings,
    spark_texts,
    stream_options,
)
from glaive.spark.planned_scan import ScanFunction, options_of
from glaive.spark.runner import MAX_SEARCHED_VERSIONS, given_transaction
from glaive.spark.types import is_recorded, same_type, to_spark
from glaive.spark.writer import app_transaction, open_target, recorded_types
from glaive.table.load import find_transaction
from glaive.table.named_jobs import forgotten_until, made_version
from glaive.table.root import open_root

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from glaive.format.manifest import Manifest


# --- The datasets that a frame reads, and its size, from its logical plan ---------------
# Spark does not show a Python source the plan around it. So glaive inspects the plan in the user's
# process: through the JVM of a classic session, or in the client of Spark Connect. The client does
# not see views of the server. The server returns the reads of a query of Connect as a message.

NAMES = ("lance", "glaive")
"""Names of the source."""

_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_SHORT_BATCHES: Final = {_BATCH_ROWS: "2000", _BATCH_BYTES: str(2**31 - 1)}
_FIXED_WIDTH: Final = (NumericType, BooleanType, DateType, TimestampType)
_CHEAP_STEPS: Final = {"ColumnarToRow", "FileScan", "Project", "Range"}
_LARGE_FRAME: Final = 64 << 20  # bytes

RELATION = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"

PYTHON_TABLE = "org.apache.spark.sql.execution.datasources.v2.python.PythonTable"

FUNCTION = "org.apache.spark.sql.catalyst.plans.logical.MapInArrow"
"""A function over the rows of a frame, such as a :class:`ScanFunction`."""

ROWS = "org.apache.spark.sql.execution.LogicalRDD"
"""Rows kept in the cluster, such as the rows of a checkpoint."""

MAX_REMEMBERED = 1 << 10
_CHECKPOINTS: dict[str, list[Options]] = {}
"""Sources of the newest checkpoints of this process, by the names of their rows: plans of frames
over them hide the source.
"""


def checkpointed(frame: DataFrame) -> DataFrame:
    """Checkpoint a frame locally, and record its sources for :func:`frame_sources`."""
    sources = frame_sources(frame)
    kept: Any = frame.localCheckpoint()
    root = kept._plan if _is_connect_frame(kept) else kept._jdf.queryExecution().analyzed()  # noqa: SLF001  # no public way
    if len(_CHECKPOINTS) >= MAX_REMEMBERED:
        _CHECKPOINTS.pop(next(iter(_CHECKPOINTS)), None)  # another thread may have dropped it
    _CHECKPOINTS[_rows_name(root)] = sources
    made: DataFrame = kept
    return made


def _rows_name(rows: Any) -> str:
    """Return a name for the rows of a checkpoint, unique in this process."""
    if "_relation_id" in vars(rows):  # with Spark Connect; Java objects claim any attribute
        return f"{rows._relation_id}"  # noqa: SLF001  # no public way
    rdd = rows.rdd()
    return f"{rdd.sparkContext().applicationId()} {rdd.id()}"


def frame_sources(frame: DataFrame) -> list[Options]:
    """Return the reads of a frame, as options with their versions."""
    plan: Any = frame
    if _is_connect_frame(frame):
        return list(_connect_reads(plan._plan))  # noqa: SLF001  # no public way
    return list(_jvm_reads(plan))


def planned_bytes(frame: DataFrame) -> int | None:
    """Return the size of a frame in bytes by Spark's planner; ``None`` with Spark Connect.

    If Spark lacks the size, the number is enormous.
    """
    if _is_connect_frame(frame):
        return None
    plan: Any = frame
    optimized = plan._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # no public way
    return int(optimized.stats().sizeInBytes())


def _is_connect_frame(frame: DataFrame) -> bool:
    """Return whether a frame keeps its plan; columns are also attributes of a frame."""
    return "_plan" in vars(frame)


def _jvm_reads(frame: Any) -> Iterator[Options]:
    waiting = [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001  # no public way
    while waiting:
        node = waiting.pop()
        kind = node.getClass().getName()
        if kind == RELATION and node.table().name() in NAMES:
            given = dict(node.options().asCaseSensitiveMap())
            yield _pinned(node.table()) or from_spark(stream_options(given)[1])
        elif kind == FUNCTION:
            options = options_of(node.functionExpr().name())
            if options is not None:
                yield options
        elif kind == ROWS:
            yield from _CHECKPOINTS.get(_rows_name(node), ())
        # Queries in expressions, such as IN, are not children.
        for below in (node.subqueries(), node.children()):
            waiting += [below.apply(at) for at in reversed(range(below.size()))]


def _pinned(table: Any) -> Options | None:
    """Return the options with the pinned version of a read of ``spark.read`` or an SQL view.

    Spark keeps the pickled source in a private field. Returns ``None`` if this version of Spark has
    another field, or if the caller gave the schema, which defers the choice of the version.
    """
    from py4j.protocol import Py4JError
    from pyspark.cloudpickle import loads

    if table.getClass().getName() != PYTHON_TABLE:
        return None
    try:
        field = table.getClass().getDeclaredField("ds")
        field.setAccessible(True)
        made = field.get(table).dataSourceInPython()
        source = None if made is None else loads(bytes(made.dataSource()))
    except Py4JError:
        return None
    return getattr(source, "pinned", None)


def _connect_reads(plan: Any) -> Iterator[Options]:
    from pyspark.sql.connect.plan import (
        CachedRelation,
        CachedRemoteRelation,
        DataSource,
        LogicalPlan,
        MapPartitions,
    )

    waiting, seen = [plan], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        members = vars(node)
        if isinstance(node, DataSource) and members.get("_format") in NAMES:
            options: dict[str, str] = dict(members.get("_options") or {})
            if members.get("_paths"):
                options["path"] = members["_paths"][0]
            yield from_spark(stream_options(options)[1])
        elif isinstance(node, MapPartitions):
            function = getattr(node._function._function, "_func", None)  # noqa: SLF001  # as above
            if isinstance(function, ScanFunction):
                yield function.reader.options
        elif isinstance(node, CachedRelation):
            yield from _message_reads(members["_plan"])
        elif isinstance(node, CachedRemoteRelation):
            yield from _CHECKPOINTS.get(_rows_name(node), ())
        for member in members.values():
            parts = member if isinstance(member, list | tuple) else [member]
            waiting += [part for part in parts if isinstance(part, LogicalPlan)]


def _message_reads(relation: Any) -> Iterator[Options]:
    """Yield the reads in a relation of Connect's protocol, as the frame of a query has."""
    waiting = [relation]
    while waiting:
        message = waiting.pop()
        kind = message.DESCRIPTOR.full_name
        if kind == "spark.connect.Read.DataSource" and message.format in NAMES:
            path = {"path": message.paths[0]} if message.paths else {}
            yield from_spark(stream_options(dict(message.options) | path)[1])
        elif kind == "spark.connect.MapPartitions":
            options = options_of(message.func.function_name)
            if options is not None:
                yield options
        for field, value in message.ListFields():
            if field.message_type is None or field.message_type.GetOptions().map_entry:
                continue  # values and named arguments are not relations
            waiting += [value] if hasattr(value, "DESCRIPTOR") else list(value)


SaveMode = Literal["errorifexists", "ignore", "append", "overwrite"]


class FrameKeywords(TypedDict, total=False):
    """Options of :func:`write`."""

    branch: str | None
    cluster_by: Sequence[str] | None
    merge_schema: bool
    overwrite_schema: bool
    replace_where: str | None
    replace_using: Sequence[str] | None
    expected_version: int | None
    txn: tuple[str, int] | None
    job_id: str | None
    vector_columns: Mapping[str, int | str] | Sequence[str] | None
    blob_columns: Sequence[str] | None
    arrow_schema: pa.Schema | None
    strict_nullability: bool
    max_rows_per_file: int | None
    max_bytes_per_file: int | None
    encoding_options: Mapping[str, Mapping[str, object]] | None
    data_storage_version: str | None
    enable_stable_row_ids: bool | None
    allow_truncation: bool
    storage_options: Mapping[str, str] | None


@shows(FrameKeywords, Options, vector_columns=None, blob_columns=None)
def write(
    frame: DataFrame,
    uri: str | os.PathLike[str],
    mode: SaveMode = "errorifexists",
    **options: Unpack[FrameKeywords],
) -> int:
    """Write a frame as one new version of a dataset, and return its number.

    Tasks write data files, then the driver commits them atomically: readers see all rows at once. A
    task that runs twice adds its rows once. You may call this function from any thread.

    Parameters
    ----------
    frame
        The rows to write.
    mode
        ``errorifexists`` raises if the dataset exists, even if another writer creates it meanwhile.
        ``ignore`` keeps a dataset that exists. ``append`` adds rows, matching columns by name.
        ``overwrite`` replaces rows and columns; older versions remain readable. An overwrite by a
        frame that reads the dataset is a conflict if other writers have committed after the version
        that the frame reads.
    branch
        The branch to write to; default: the main one.
    cluster_by
        Divide the rows into ranges of these columns and sort them, so that filters on the columns
        read few fragments. Cost: one shuffle of the frame.
    merge_schema
        Mode ``append``: add columns that the dataset lacks, in a separate version before the rows.
        Columns that the frame lacks become null.
    overwrite_schema
        Mode ``overwrite``: with ``False`` the dataset keeps its columns and their types, and the
        columns of the frame must match.
    replace_where
        Mode ``overwrite``: replace only the rows that match this condition in the filter language.
        All rows of the frame must match it. Rows that others append meanwhile stay.
    replace_using
        Mode ``overwrite``: replace only the rows that have the values of a new row in these
        columns. Nulls are equal to nothing. Rows that others append meanwhile stay.
    expected_version
        Mode ``overwrite``: the version that the frame was made from, if the frame hides it. A newer
        version is a conflict.
    txn
        An application and the number of its transaction, such as ``("nightly", 20260512)``.
        ``write`` skips the rows if the dataset has this number of the application or a higher one.
        A job may thus run again.
    job_id
        Name of this write. If the same job has made a version, ``write`` only returns that version.
        The dataset knows its last 16 named jobs. ``write`` looks for older jobs in the newest 256
        versions.
    vector_columns
        Array columns to store as fixed-size lists, as used for embeddings:
        ``{"emb": 128}``, ``{"emb": "128:float16"}`` or ``["emb:128:float16"]``.
    blob_columns
        Binary columns to store as blobs, which readers load one by one.
    arrow_schema
        The types to store; columns match by name. The defaults, in this order:

        - the types of the dataset, for appends;
        - the types that the frame read the columns with;
        - the types of the same columns in an overwritten dataset;
        - the types of Spark.
    strict_nullability
        Store nullability as Spark reports it in a new dataset. Otherwise all columns are nullable.
    encoding_options
        Encoding of columns: ``{"text": {"compression": "zstd"}}``.
    max_rows_per_file, max_bytes_per_file, data_storage_version, enable_stable_row_ids
        See :func:`glaive.write_dataset`.
    allow_truncation
        Truncate times to the stored unit instead of refusing such rows.
    storage_options
        Settings of the object store.

    Returns
    -------
    int
        The version with the rows. If mode ``ignore`` found a dataset, the frame to append was
        empty, or ``txn`` was applied before: the newest version.

    Raises
    ------
    DatasetExistsError
        The mode is ``errorifexists``, and the dataset exists.
    SchemaError, ColumnNotFoundError
        The frame does not match the dataset, or a value does not fit its type. The dataset is
        unchanged.
    CommitConflictError
        Other writers have committed after the version that an overwrite replaces or expects.
    OptionError
        A mode or option is unknown, or has no effect here.
    JobError
        The cluster lost processes of the job. The dataset is unchanged.

    Notes
    -----
    This process looks up the version before and after the write, in two requests each. Each version
    in between costs one or two more requests. With Spark Connect, the client needs access to the
    dataset.

    Examples
    --------
    >>> glaive.spark.write(frame, "flights.lance", vector_columns={"features": 32})
    1
    >>> glaive.spark.write(more, "flights.lance", mode="append")
    2
    """
    one_of(*get_args(SaveMode)).check("mode", mode)
    given: dict[str, Any] = dict(options)
    place, job_id = absolute(uri), given.get("job_id")
    cluster_by = given.pop("cluster_by", None)
    transaction = given_transaction(given.pop("txn", None))
    vectors = given.get("vector_columns")
    if isinstance(vectors, Mapping):
        given["vector_columns"] = [f"{name}:{form}" for name, form in vectors.items()]
    if given.get("expected_version") is None and mode == "overwrite":
        storage = given.get("storage_options")
        given["expected_version"] = _version_read(frame, place, given.get("branch"), storage)
    if given.get("arrow_schema") is None:
        given["column_types"] = _types_read(frame)
    if transaction is not None:
        given |= {"txn_app_id": transaction.app_id, "txn_version": transaction.version}
    given["must_not_exist"] = mode in ("errorifexists", "ignore")
    given["case_sensitive"] = is_set(frame.sparkSession, CASE_SENSITIVE)
    given["job"] = job = str(uuid4()) if job_id is None else job_id
    texts = spark_texts(given)
    checked = from_spark(texts | {"path": place})
    refuse_invalid_strings({"path": place, **texts})
    base = open_target(checked)[1]
    if base is not None:
        done = _done_version(checked, base, mode, None if job_id is None else job)
        if done is not None:
            return done
    register(frame.sparkSession)
    if cluster_by:
        frame = _clustered(frame, cluster_by)
    before = 0 if base is None else base.version
    named = naming_job(job, place, named=job_id is not None, made="No version has it")
    with _recovering_commit(checked, mode, job, before), named, as_glaive_errors():
        _save(frame, place, texts, mode)
    made = _committed_version(job, checked, before)
    return _newest(checked) if made is None else made


def _clustered(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows in ranges of some columns, sorted; Spark takes names for expressions."""
    known, given = frame.columns, list[Any](columns)  # Spark's columns are allowed as well
    named = [quoted_name(one) if isinstance(one, str) and one in known else one for one in given]
    with naming_columns(known, "the frame"):
        return frame.repartitionByRange(*named).sortWithinPartitions(*named)


def _done_version(options: Options, base: Manifest, mode: SaveMode, job: str | None) -> int | None:
    """Return the version to return if the write is already done or is to be ignored.

    Raises
    ------
    DatasetExistsError
        The mode requires a new dataset, and the dataset exists.
    """
    if job is not None:
        made, since = made_version(base, job), max(0, base.version - MAX_SEARCHED_VERSIONS)
        if made is None and forgotten_until(base) > since:
            made = _committed_version(job, options, since)
        if made is not None:
            return made
    app = app_transaction(options)
    if mode == "ignore" or (app is not None and app.is_applied(base)):
        return base.version
    if mode == "errorifexists":
        raise exists_already(options.uri, base.version)
    return None


@contextmanager
def _recovering_commit(options: Options, mode: SaveMode, job: str, before: int) -> Iterator[None]:
    """Ignore errors of a write that has succeeded, or that found a dataset to ignore.

    Spark commits in a separate process, which may be lost after the commit.
    """
    try:
        yield
    except (DatasetExistsError, JobError) as error:
        # Errors come from Spark's messages, which may quote a value of a row.
        ignored = mode == "ignore" and isinstance(error, DatasetExistsError)
        is_there = ignored and _newest(options) > 0
        if not is_there and _committed_version(job, options, before) is None:
            raise


def _save(frame: DataFrame, uri: str, options: Mapping[str, str], mode: SaveMode) -> None:
    """Write a frame with the source, in one of the source's modes."""
    frame, decimals = unscaled_frame(frame, has_jvm=not is_connect(frame.sparkSession))
    options = {**options, **spark_texts({"decimals": decimals or None})}
    with _active(frame.sparkSession), _short_batches(frame):
        writer = frame.write.format("lance").options(**options)
        writer.mode("overwrite" if mode == "overwrite" else "append").save(uri)


@contextmanager
def _short_batches(frame: DataFrame) -> Iterator[None]:
    """Limit the rows of batches that Java sends to Python, not their bytes, if rows are short.

    Spark computes the size of a batch after each row. That takes up to a quarter of the CPU time
    of a write. A setting of the session has precedence over a property of the thread.
    """
    if is_connect(frame.sparkSession) or not _has_short_rows(frame):
        yield
        return
    context: Any = frame.sparkSession.sparkContext
    before = {name: context.getLocalProperty(name) for name in _SHORT_BATCHES}
    for name, value in _SHORT_BATCHES.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)


def _has_short_rows(frame: DataFrame) -> bool:
    """Return whether rows take few bytes, judged by the types and by the first rows.

    Only frames whose rows come straight from files or ranges do: the limits of batches also apply
    to functions of Python in the frame. Strings may be long. So a large frame with strings starts a
    job for the first rows.
    """
    kinds = {str(at): field.dataType for at, field in enumerate(frame.schema)}
    strings = [at for at, kind in kinds.items() if isinstance(kind, StringType)]
    fixed = [at for at, kind in kinds.items() if isinstance(kind, _FIXED_WIDTH)]
    if len(kinds) > 500 or len(strings) + len(fixed) < len(kinds):
        return False
    rows = int(str(frame.sparkSession.conf.get(_BATCH_ROWS)))
    if not 0 < rows <= 10_000 or (planned_bytes(frame) or 0) < _LARGE_FRAME:
        return False
    plan: Any = frame
    executed = plan._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001  # no public way
    if not set(re.findall(r"^[^A-Za-z]*(\w+)", executed, re.MULTILINE)) <= _CHEAP_STEPS:
        return False
    if not strings:
        return True
    sizes = [octet_length(at) for at in strings]
    first = frame.toDF(*kinds).select(*sizes).take(1000)
    return len(first) > 0 and sum(size or 0 for row in first for size in row) <= 1000 * len(first)


def _version_read(
    frame: DataFrame, uri: str, branch: str | None, storage: Mapping[str, str] | None
) -> int | None:
    """Return the oldest version of a dataset that a frame reads, if it reads it.

    A frame of ``spark.read`` over Spark Connect, or with a schema of the caller, hides its version:
    glaive assumes the newest.
    """
    target = open_root(uri, storage).uri
    same = [
        source
        for source in frame_sources(frame)
        if source.branch == branch and open_root(source.uri, source.storage).uri == target
    ]
    versions = [source.version or open_dataset(source).version for source in same]
    return min(versions, default=None)


def _types_read(frame: DataFrame) -> Mapping[str, Mapping[str, str]] | None:
    """Return the types that columns were read with, if Spark forgets them."""
    types = recorded_types(frame.schema)
    lost = {
        field.name: field.dataType
        for field in frame.schema
        if isinstance(field.dataType, ArrayType) and not is_recorded(field)
    }
    found: dict[str, list[dict[str, str]]] = {}
    for source in frame_sources(frame) if lost else ():
        schema = to_spark(frame_schema(open_dataset(source), source))
        for name, recorded in recorded_types(schema).items():
            if name in lost and same_type(schema[name].dataType, lost[name]):
                found.setdefault(name, []).append(recorded)
    for name, candidates in found.items():
        if all(candidate == candidates[0] for candidate in candidates):
            types[name] = candidates[0]
    return types or None


def _committed_version(job: str, options: Options, before: int) -> int | None:
    """Return the version that a job committed after version ``before``, if any."""
    store, newest = open_target(options)
    if newest is None:
        return None
    made = find_transaction(store, before, JOB, job, known=newest.version)
    return None if made is None else made.version


def _newest(options: Options) -> int:
    """Return the newest version; 0 for a missing dataset."""
    newest = open_target(options)[1]
    return 0 if newest is None else newest.version


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
