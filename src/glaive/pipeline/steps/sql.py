"""``kind = "sql"``: the rows of a query become those of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from glaive.dataclass import dataclass
from glaive.pipeline.run import ExpectingStep
from glaive.pipeline.step import DatasetName, StepContext, datasets_of, query_frame

_MODES = {"create": "errorifexists", "append": "append", "overwrite": "overwrite"}


@dataclass(frozen=True, kw_only=True)
class SqlStep(ExpectingStep):
    """Write the rows of a query; see :func:`glaive.spark.sql` and :func:`glaive.spark.write`.

    Parameters
    ----------
    query
        In Spark's SQL; datasets by their names.
    target
        The dataset to write.
    mode
        ``create``, ``append`` or ``overwrite``.
    branch
        The branch to write to; one that does not exist is started.
    cluster_by
        Columns by which the rows are sorted and divided.
    vectors
        Arrays to store as vectors: ``"features:32"``.
    write_options
        Further options of :func:`glaive.spark.write`.
    """

    query: str = field(repr=False)  # paths in it may have passwords
    target: DatasetName
    mode: Literal["create", "append", "overwrite"] = "create"
    branch: str | None = None
    cluster_by: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    write_options: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords

    @property
    def branch_written(self) -> str | None:
        """The branch."""
        return self.branch

    def check(self) -> None:
        """Refuse what is no query."""
        super().check()
        datasets_of(self.query, {})

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """The datasets of the query, and that of the branch."""
        on_branch = () if self.branch is None else (self.target,)
        return tuple(dict.fromkeys((*datasets_of(self.query, datasets), *on_branch)))

    def writes(self) -> tuple[str, ...]:
        """The dataset, and that of quarantined rows."""
        return (self.target, *self.quarantined())

    def summary(self) -> str:
        """What it will do."""
        branch = "" if self.branch is None else f" (branch {self.branch})"
        return f"{self.mode} {self.target}{branch}: {' '.join(self.query.split())}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Run the query and write its rows."""
        from glaive.spark import write

        if self.branch is not None:
            context.ensure_branch(self.target, self.branch)
        options: dict[str, Any] = dict(self.write_options or {})
        with self.expected(query_frame(context, self.query), context) as rows:
            version = write(
                rows.frame,
                context.datasets[self.target],
                _MODES[self.mode],  # type: ignore[arg-type]  # one of the names
                branch=self.branch,
                cluster_by=self.cluster_by or None,
                vector_columns=self.vectors or None,
                job_id=context.job_id,
                storage_options=context.storage or None,
                **options,
            )
        return {"version": version, **rows.counts}
