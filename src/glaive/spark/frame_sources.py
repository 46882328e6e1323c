"""Which datasets a frame reads, and how large it is, from its logical plan.

Spark tells a Python source nothing of the plan around it. The plan is looked at in the process of
the user: through the JVM of a classic session, or as the client of Spark Connect keeps it, where
views of the server are not visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from glaive.spark.options import Options, from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["frame_sources", "planned_bytes"]

NAMES = ("lance", "glaive")
"""Names of the source."""

RELATION = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"


def frame_sources(frame: DataFrame) -> list[Options]:
    """The reads of a frame, as options with their versions; no request."""
    plan: Any = frame
    if hasattr(frame, "_plan"):
        return [from_spark(options) for options in _of_client(plan._plan)]  # noqa: SLF001  # no public way
    return [from_spark(options) for options in _of_jvm(plan._jdf)]  # noqa: SLF001  # same


def planned_bytes(frame: DataFrame) -> int | None:
    """The size of a frame as Spark's planner estimates it; ``None`` with Spark Connect.

    An enormous number where Spark does not know.
    """
    if hasattr(frame, "_plan"):
        return None
    plan: Any = frame
    optimized = plan._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # no public way
    return int(optimized.stats().sizeInBytes())


def _of_jvm(frame: Any) -> Iterator[dict[str, str]]:
    leaves = frame.queryExecution().analyzed().collectLeaves()
    for position in range(leaves.size()):
        leaf = leaves.apply(position)
        if leaf.getClass().getName() == RELATION and leaf.table().name() in NAMES:
            yield dict(leaf.options().asCaseSensitiveMap())


def _of_client(plan: Any) -> Iterator[dict[str, str]]:
    from pyspark.sql.connect.plan import DataSource, LogicalPlan

    waiting, seen = [plan], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, DataSource):
            members = vars(node)
            if members.get("_format") in NAMES:
                options: dict[str, str] = dict(members.get("_options") or {})
                if members.get("_paths"):
                    options["path"] = members["_paths"][0]
                yield options
        for member in vars(node).values():
            parts = member if isinstance(member, list | tuple) else [member]
            waiting += [part for part in parts if isinstance(part, LogicalPlan)]
