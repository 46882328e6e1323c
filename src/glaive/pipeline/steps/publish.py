"""``kind = "publish"``: what was written to a branch, and is as expected, becomes visible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import ExpectationError
from glaive.ingestion.task import Expectations
from glaive.pipeline.step import DatasetName, Step, StepContext
from glaive.table.load import open_newest


@dataclass(frozen=True, kw_only=True)
class PublishStep(Step):
    """Make a branch the newest version; see ``LanceTable.publish``.

    Parameters
    ----------
    target
        The dataset.
    branch
        The branch.
    expect
        Conditions that all rows of the branch have to fulfil, in the language of filters.
    """

    target: DatasetName
    branch: str
    expect: str | Mapping[str, str] | None = None

    def check(self) -> None:
        """Refuse what is no condition."""
        self._expectations()

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """The dataset."""
        return (self.target,)

    def writes(self) -> tuple[str, ...]:
        """The dataset."""
        return (self.target,)

    def summary(self) -> str:
        """What it will do."""
        return f"publish branch {self.branch} of {self.target}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Check the rows of the branch, then move the main branch."""
        from glaive.dataset.dataset import LanceDataset

        table: Any = context.table(self.target)
        counts: Mapping[str, int]
        if context.made_by(context.job_id, self.target) is not None:
            # What was checked is there; the branch may have other rows since, or be deleted.
            counts = table.publish(self.branch, job_id=context.job_id)
            return counts
        store = context.dataset(self.target, self.branch).store
        staged = LanceDataset.of(store, open_newest(store))
        expectations = self._expectations()
        for name, text in () if expectations is None else expectations.conditions:
            violating = staged.count_rows() - staged.count_rows(text)
            if violating:
                raise ExpectationError(
                    f"step {context.name}: {violating:,} rows of branch {self.branch} of "
                    f"{self.target} violate the expectation {name}: {text}. Correct the branch; "
                    "nothing was published"
                )
        # Others may have written to the branch since, rows that were not checked.
        version = None if expectations is None else staged.version
        counts = table.publish(self.branch, version=version, job_id=context.job_id)
        return counts

    def _expectations(self) -> Expectations | None:
        return Expectations.of(self.expect, "fail", has_quarantine=False)
