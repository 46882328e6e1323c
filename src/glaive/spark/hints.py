"""Frames that Spark may broadcast in joins.

The hint says how large a frame is, which Spark does not ask of Python sources. Where such a
frame is not part of a join, Spark would warn of a hint without effect, in each query: this one is
left out of the log of classic sessions. Other warnings of hints stay.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaClass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["marked_small"]

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
