"""``kind = "vacuum"``: old versions, and files that nothing uses, are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from glaive.dataclass import dataclass
from glaive.dataset.versions.cleanup import age_of
from glaive.pipeline.step import DatasetName, Step, StepContext


@dataclass(frozen=True, kw_only=True)
class VacuumStep(Step):
    """Clean up; see :meth:`glaive.spark.LanceTable.vacuum`.

    Parameters
    ----------
    target
        The dataset.
    retention_hours
        Age of the versions to delete; default: two weeks.
    """

    target: DatasetName
    retention_hours: float | None = None

    def check(self) -> None:
        """Refuse an age that is negative or too long."""
        if self.retention_hours is not None:
            age_of("retention_hours", self.retention_hours, timedelta(hours=1))

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """The dataset."""
        return (self.target,)

    def writes(self) -> tuple[str, ...]:
        """The dataset."""
        return (self.target,)

    def summary(self) -> str:
        """What it will do."""
        age = "two weeks" if self.retention_hours is None else f"{self.retention_hours:g} hours"
        return f"delete versions of {self.target} older than {age}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Delete them."""
        return context.table(self.target).vacuum(self.retention_hours)
