"""``kind = "dedupe"``: all but one of the rows with equal values are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from glaive.dataclass import dataclass
from glaive.pipeline.step import StepContext, TableStep


@dataclass(frozen=True, kw_only=True)
class DedupeStep(TableStep):
    """Delete duplicates; see :meth:`glaive.spark.LanceTable.dropDuplicates`.

    Parameters
    ----------
    columns
        The columns to compare; default: all.
    keep
        ``first`` or ``last``, by ``order_by``.
    order_by
        A column or expression; default: the order of the dataset.
    """

    columns: tuple[str, ...] = ()
    keep: Literal["first", "last"] = "first"
    order_by: str | None = None

    def summary(self) -> str:
        """What it will do."""
        compared = ", ".join(self.columns) or "all columns"
        return f"delete duplicates of {compared} from {self.target}, keep the {self.keep}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Find them by a shuffle of the columns, and delete them."""
        return context.table(self.target, self.branch).dropDuplicates(
            self.columns or None, self.keep, self.order_by, job_id=context.job_id
        )
