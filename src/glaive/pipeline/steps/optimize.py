"""``kind = "optimize"``: small files are merged, or rows clustered by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.pipeline.step import StepContext, TableStep


@dataclass(frozen=True, kw_only=True)
class OptimizeStep(TableStep):
    """Compact or cluster; see :meth:`glaive.spark.LanceTable.optimize`.

    Parameters
    ----------
    where
        Only fragments with a row that passes this filter.
    cluster_by
        Sort by these columns, along a curve if there are several.
    curve
        ``hilbert`` or ``zorder``.
    options
        Of the compaction, such as ``target_rows_per_fragment``.
    """

    where: str | None = None
    cluster_by: tuple[str, ...] = ()
    curve: Literal["hilbert", "zorder"] = "hilbert"
    options: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Refuse options that clustering does not have."""
        others = set(self.options or ()) - {"target_rows_per_fragment"}
        if self.cluster_by and others:
            raise OptionError(
                f"options: with cluster_by only target_rows_per_fragment, found "
                f"{', '.join(sorted(others))}"
            )

    def summary(self) -> str:
        """What it will do."""
        if self.cluster_by:
            return f"cluster {self.target} by {', '.join(self.cluster_by)}"
        return f"compact {self.target}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Rewrite the files in tasks."""
        builder = context.table(self.target, self.branch).optimize()
        if self.where is not None:
            builder = builder.where(self.where)
        options: dict[str, Any] = dict(self.options or {})
        if self.cluster_by:
            return builder.executeClusterBy(
                *self.cluster_by, curve=self.curve, job_id=context.job_id, **options
            )
        return builder.executeCompaction(job_id=context.job_id, **options)
