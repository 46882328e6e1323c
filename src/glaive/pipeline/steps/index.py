"""``kind = "index"``: an index is built, or all are brought up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.pipeline.step import StepContext, TableStep


@dataclass(frozen=True, kw_only=True)
class IndexStep(TableStep):
    """Build an index; see :meth:`glaive.spark.LanceTable.createIndex`.

    Parameters
    ----------
    column, index_type
        What to index, and how: ``btree``, ``inverted``, ``ivf_pq``, …
    name
        Of the index.
    metric
        Of vectors.
    update
        Instead: bring all indices up to date with new rows.
    options
        Of the type, such as ``num_partitions``.
    """

    column: str | None = None
    index_type: str | None = None
    name: str | None = None
    metric: str = "L2"
    update: bool = False
    options: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Refuse a step that neither builds nor updates, or does both."""
        if self.update and (self.column is not None or self.index_type is not None):
            raise OptionError("update: leave out column and index_type")
        if not self.update and (self.column is None or self.index_type is None):
            raise OptionError("column: give column and index_type, or update = true")

    def summary(self) -> str:
        """What it will do."""
        if self.update:
            return f"bring the indices of {self.target} up to date"
        return f"index {self.column} of {self.target} ({self.index_type})"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Build a segment in each task."""
        table = context.table(self.target, self.branch)
        if self.column is None or self.index_type is None:
            return {"version": table.optimizeIndices(job_id=context.job_id)}
        options: dict[str, Any] = dict(self.options or {})
        return table.createIndex(
            self.column,
            self.index_type,
            self.name,
            metric=self.metric,
            job_id=context.job_id,
            **options,
        )
