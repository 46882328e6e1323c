"""``kind = "merge"``: rows update, delete and insert those of a dataset by keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.format.field import quoted_name
from glaive.pipeline.run import ExpectingStep
from glaive.pipeline.step import DatasetName, StepContext, datasets_of, query_frame


@dataclass(frozen=True, kw_only=True)
class MergeStep(ExpectingStep):
    """Merge rows into a dataset; see :meth:`glaive.spark.LanceTable.merge`.

    Parameters
    ----------
    query
        The rows, in Spark's SQL; or
    source
        a dataset with them.
    target, branch
        The dataset.
    on
        Columns whose values are equal in rows that match.
    when_matched, when_not_matched, when_not_matched_by_source
        What becomes of the rows.
    latest_by
        A column: of several rows with the same key, the one where it is largest is used.
    add_columns
        Add columns that only the rows have.
    """

    target: DatasetName
    on: tuple[str, ...]
    query: str | None = field(default=None, repr=False)  # paths in it may have passwords
    source: DatasetName | None = None
    branch: str | None = None
    when_matched: Literal["update", "delete", "ignore"] = "update"
    when_not_matched: Literal["insert", "ignore"] = "insert"
    when_not_matched_by_source: Literal["ignore", "delete"] = "ignore"
    latest_by: str | None = None
    add_columns: bool = False

    @property
    def branch_written(self) -> str | None:
        """The branch."""
        return self.branch

    def check(self) -> None:
        """Refuse a step with both a query and a dataset, or neither."""
        super().check()
        if (self.query is None) == (self.source is None):
            raise OptionError("source: give either the key source or the key query")
        if not self.on:
            raise OptionError("on: name the columns that identify a row")
        if self.query is not None:
            datasets_of(self.query, {})

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """The dataset, and those of the rows."""
        rows = () if self.query is None else datasets_of(self.query, datasets)
        rows += () if self.source is None else (self.source,)
        return tuple(dict.fromkeys((*rows, self.target)))

    def writes(self) -> tuple[str, ...]:
        """The dataset, and that of quarantined rows."""
        return (self.target, *self.quarantined())

    def summary(self) -> str:
        """What it will do."""
        rows = self.source or " ".join((self.query or "").split())
        return f"merge into {self.target} on {', '.join(self.on)}: {rows}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Merge as one job."""
        query = self.query or f"SELECT * FROM {quoted_name(self.source or '')}"  # noqa: S608  # quoted
        keys = list(map(quoted_name, self.on))
        condition = " AND ".join(f"t.{key} = s.{key}" for key in keys)
        with self.expected(query_frame(context, query), context) as rows:
            table = context.table(self.target, self.branch).alias("t")
            merge: Any = table.merge(rows.frame.alias("s"), condition)
            if self.when_matched == "update":
                merge = merge.whenMatchedUpdateAll()
            elif self.when_matched == "delete":
                merge = merge.whenMatchedDelete()
            if self.when_not_matched == "insert":
                merge = merge.whenNotMatchedInsertAll()
            if self.when_not_matched_by_source == "delete":
                merge = merge.whenNotMatchedBySourceDelete()
            if self.add_columns:
                merge = merge.withSchemaEvolution()
            if self.latest_by is not None:
                merge = merge.onDuplicateSource("last", by=self.latest_by)
            return {**merge.execute(job_id=context.job_id), **rows.counts}
