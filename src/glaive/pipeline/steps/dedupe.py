"""``kind = "dedupe"``: all but one of the rows with equal values are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from glaive.pipeline.step import DatasetName, Step, StepContext

__all__ = ["DedupeStep"]


@dataclass(frozen=True, kw_only=True)
class DedupeStep(Step):
    """Delete duplicates; see :meth:`glaive.spark.LanceTable.dropDuplicates`.

    Parameters
    ----------
    target, branch
        The dataset.
    columns
        The columns to compare; default: all.
    keep
        ``first`` or ``last``, by ``order_by``.
    order_by
        A column or expression; default: the order of the dataset.
    """

    target: DatasetName
    branch: str | None = None
    columns: tuple[str, ...] = ()
    keep: Literal["first", "last"] = "first"
    order_by: str | None = None

    @property
    def branch_written(self) -> str | None:
        """The branch."""
        return self.branch

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """The dataset."""
        return (self.target,)

    def writes(self) -> tuple[str, ...]:
        """The dataset."""
        return (self.target,)

    def summary(self) -> str:
        """What it will do."""
        compared = ", ".join(self.columns) or "all columns"
        return f"delete duplicates of {compared} from {self.target}, keep the {self.keep}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Find them by a shuffle of the columns, and delete them."""
        return context.table(self.target, self.branch).dropDuplicates(
            self.columns or None, self.keep, self.order_by, job_id=context.job_id
        )
