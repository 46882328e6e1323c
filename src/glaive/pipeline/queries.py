"""Queries of steps, in which datasets stand by their names."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from glaive.pipeline.step import StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["datasets_of", "query_frame"]


def datasets_of(query: str, datasets: Collection[str]) -> tuple[str, ...]:
    """Those of some datasets that a query reads.

    Raises
    ------
    OptionError
        It is no query; the message begins with ``query``.
    MissingDependencyError
        sqlglot is not installed.
    """
    from glaive.spark.queries import tables_in

    named = tables_in(query)
    return tuple(name for name in datasets if name.lower() in named)


def query_frame(context: StepContext, query: str) -> DataFrame:
    """The frame of a query."""
    from glaive.spark import sql

    storage: dict[str, Any] = {"storage_options": dict(context.storage)} if context.storage else {}
    tables = {
        name: {"uri": context.datasets[name], **storage}
        for name in datasets_of(query, context.datasets)
    }
    return sql(context.spark, query, **tables)
