"""Which datasets a frame reads, and how large it is, from its logical plan.

Spark tells a Python source nothing of the plan around it. The plan is looked at in the process of
the user: through the JVM of a classic session, or as the client of Spark Connect keeps it, where
views of the server are not visible. What a query of Connect reads comes back from the server as a
message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from glaive.spark.options import Options, from_spark
from glaive.spark.planned_scan import ScanFunction, options_of
from glaive.spark.streams.options import stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


NAMES = ("lance", "glaive")
"""Names of the source."""

RELATION = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"

PYTHON_TABLE = "org.apache.spark.sql.execution.datasources.v2.python.PythonTable"

FUNCTION = "org.apache.spark.sql.catalyst.plans.logical.MapInArrow"
"""A function over the rows of a frame, such as a :class:`ScanFunction`."""

ROWS = "org.apache.spark.sql.execution.LogicalRDD"
"""Rows that are kept in the cluster, such as those of a checkpoint."""

MAX_REMEMBERED = 1 << 10
_CHECKPOINTS: dict[str, list[Options]] = {}
"""What the newest checkpoints of this process read, by the names of their rows: plans of frames
over them say nothing of it.
"""


def checkpointed(frame: DataFrame) -> DataFrame:
    """A local checkpoint of a frame, of which it is known what it reads: :func:`frame_sources`."""
    sources = frame_sources(frame)
    kept: Any = frame.localCheckpoint()
    root = kept._plan if _is_of_client(kept) else kept._jdf.queryExecution().analyzed()  # noqa: SLF001  # no public way
    if len(_CHECKPOINTS) >= MAX_REMEMBERED:
        _CHECKPOINTS.pop(next(iter(_CHECKPOINTS)), None)  # another thread may have dropped it
    _CHECKPOINTS[_name_of(root)] = sources
    made: DataFrame = kept
    return made


def _name_of(rows: Any) -> str:
    """What the rows of a checkpoint are called: no others of this process."""
    if "_relation_id" in vars(rows):  # with Spark Connect; objects of Java have all attributes
        return f"{rows._relation_id}"  # noqa: SLF001  # no public way
    rdd = rows.rdd()
    return f"{rdd.sparkContext().applicationId()} {rdd.id()}"


def frame_sources(frame: DataFrame) -> list[Options]:
    """The reads of a frame, as options with their versions; no request."""
    plan: Any = frame
    if _is_of_client(frame):
        return list(_of_client(plan._plan))  # noqa: SLF001  # no public way
    return list(_of_jvm(plan))


def planned_bytes(frame: DataFrame) -> int | None:
    """The size of a frame as Spark's planner estimates it; ``None`` with Spark Connect.

    An enormous number where Spark does not know.
    """
    if _is_of_client(frame):
        return None
    plan: Any = frame
    optimized = plan._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # no public way
    return int(optimized.stats().sizeInBytes())


def _is_of_client(frame: DataFrame) -> bool:
    """Whether a frame keeps its plan itself; columns are attributes of a frame, too."""
    return "_plan" in vars(frame)


def _of_jvm(frame: Any) -> Iterator[Options]:
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
            yield from _CHECKPOINTS.get(_name_of(node), ())
        # Queries of expressions, such as those of IN, are no children.
        for below in (node.subqueries(), node.children()):
            waiting += [below.apply(at) for at in reversed(range(below.size()))]


def _pinned(table: Any) -> Options | None:
    """The options with the version that a read of ``spark.read`` or of a view in SQL has.

    Spark keeps the source, pickled, behind a field that it has no method for. None where it is
    another field in this version of Spark, or the caller gave the schema: nothing is pinned yet.
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


def _of_client(plan: Any) -> Iterator[Options]:
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
            yield from _of_message(members["_plan"])
        elif isinstance(node, CachedRemoteRelation):
            yield from _CHECKPOINTS.get(_name_of(node), ())
        for member in members.values():
            parts = member if isinstance(member, list | tuple) else [member]
            waiting += [part for part in parts if isinstance(part, LogicalPlan)]


def _of_message(relation: Any) -> Iterator[Options]:
    """The reads in a relation of Connect's protocol, as the frame of a query is."""
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
                continue  # values, and arguments by name: no relations
            waiting += [value] if hasattr(value, "DESCRIPTOR") else list(value)
