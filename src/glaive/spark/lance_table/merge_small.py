"""Merges that one task does: of a small source into whole rows, by equal keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from glaive.spark.frame_sources import planned_bytes
from glaive.spark.jobs.small_merge import KEY, MAX_SOURCE_BYTES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from glaive.dataset.version import OpenedVersion
    from glaive.spark.lance_table.merge_join import Clause

__all__ = ["is_for_one_task", "source_in_one_part", "takes_whole_rows"]

_MAX_PLANNED_BYTES: Final = MAX_SOURCE_BYTES // 4
"""Spark's estimate of a source up to which one task is tried: files are compressed."""

_MAX_ROWS: Final = 1 << 25
"""Rows of a table whose keys one task looks through."""


def takes_whole_rows(clause: Clause) -> bool:
    """Whether a clause, as its user gave it, takes all columns of all source rows it is for."""
    whole = clause.values is None or clause.action.action == "delete"
    return whole and clause.condition is None and clause.rows != "not matched by source"


def is_for_one_task(opened: OpenedVersion, source: DataFrame) -> bool:
    """Whether a table and a source are small, as far as Spark knows sizes."""
    if opened.snapshot.num_rows > _MAX_ROWS:
        return False
    size = planned_bytes(source)
    return size is not None and size <= _MAX_PLANNED_BYTES


def source_in_one_part(
    source: DataFrame, clauses: Sequence[Clause], keys: Sequence[Column]
) -> DataFrame:
    """The columns of a source that clauses take, and its keys, in one partition."""
    values: dict[str, Any] = {}
    for clause in clauses:
        values |= clause.values or {}
    named = [value.alias(name) for name, value in values.items()]
    numbered = [key.alias(f"{KEY}{at}") for at, key in enumerate(keys)]
    return source.select(*named, *numbered).repartition(1)
