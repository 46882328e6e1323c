"""``table.optimize()``: compaction in tasks of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.passes import compact, rewrite_groups
from glaive.dataset.compaction.plan import compaction_groups
from glaive.dataset.compaction.result import CompactionMetrics, RewriteResult
from glaive.dataset.rows.selected_rows import MatchingFragments
from glaive.errors import OptionError
from glaive.spark.jobs.cluster import cluster_rows
from glaive.spark.jobs.curves import CurveKind
from glaive.spark.jobs.job import SparkJob
from glaive.types import Int64s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

__all__ = ["OptimizeBuilder"]


class OptimizeBuilder:
    """Collects what to compact; returned by ``LanceTable.optimize``."""

    def __init__(self, spark: SparkSession, dataset: LanceDataset) -> None:
        self._spark, self._dataset = spark, dataset
        self._where: str | None = None

    def where(self, condition: str) -> OptimizeBuilder:
        """Only fragments in which the condition holds for a row; in the language of filters."""
        given: object = condition
        if not isinstance(given, str) or not given.strip():
            raise OptionError(f'where: expected a filter such as "day = 3", found {given!r}')
        self._where = condition
        return self

    def executeCompaction(self, *, job_id: str | None = None, **options: Any) -> dict[str, int]:
        """Merge small neighbouring fragments and remove deleted rows, in tasks of the cluster.

        Parameters
        ----------
        job_id
            Names this job: running it again with the same id returns what it did.
        **options
            Those of :class:`glaive.dataset.compaction.options.CompactionOptions`, such as
            ``target_rows_per_fragment``; defaults are in the table's configuration.

        Returns
        -------
        dict
            ``fragments_removed``, ``fragments_added``, ``files_removed``, ``files_added``, and
            ``version``; no version is made if there is nothing to do.

        Raises
        ------
        OptionError
            An option does not exist or has an invalid value.
        FilterError
            The condition is invalid.
        CommitConflictError, CommitContentionError
            Other writers changed the same fragments, at every attempt; nothing was changed.

        Notes
        -----
        No row passes through Spark: tasks read and write the files of the dataset.
        """
        job = SparkJob.of(self._spark, job_id)

        def rewriting(opened: OpenedVersion, checked: CompactionOptions) -> list[RewriteResult]:
            if self._where is not None:
                checked = _only_where(opened, self._where, job.commit, checked)
            groups = compaction_groups(opened, checked)
            return rewrite_groups(opened, groups, checked, job.runner)

        def change(opened: OpenedVersion, commit: Job) -> tuple[Manifest, None]:
            given = {"compression": "balanced"} | options
            checked = CompactionOptions.of(given, dict(opened.manifest.config))
            return compact(opened, checked, rewriting, commit)[0], None

        done = job.change(self._dataset, change, several_commits=True)
        return asdict(CompactionMetrics()) | done

    def executeClusterBy(
        self,
        *columns: str | Sequence[str],
        curve: CurveKind = "hilbert",
        target_rows_per_fragment: int = 1 << 20,
        job_id: str | None = None,
    ) -> dict[str, int]:
        """Write the rows again in the order of columns, so that filters on them skip most files.

        Parameters
        ----------
        columns
            One by one or as a list. One column: its order. Several: the order of a curve, along
            which rows have similar values in all of them.
        curve
            ``hilbert`` or ``zorder``.
        target_rows_per_fragment
            Rows of a new fragment, at most.
        job_id
            As for :meth:`executeCompaction`.

        Returns
        -------
        dict
            As for :meth:`executeCompaction`.

        Raises
        ------
        ColumnNotFoundError, OptionError
            A column does not exist or has no order.
        CommitContentionError
            As for :meth:`executeCompaction`.

        Notes
        -----
        All columns are shuffled once, as Arrow data with exactly their types. Rows keep stable
        ids; without these, indices do not cover the rows until :meth:`LanceTable.optimizeIndices`.
        A task holds its part of the rows in memory, of about 128 MiB of files.
        """
        given: object = curve
        if given not in ("hilbert", "zorder"):
            raise OptionError(f'curve: expected "hilbert" or "zorder", found {given!r}')
        rows: object = target_rows_per_fragment
        if not isinstance(rows, int) or rows < 1:
            raise OptionError(f"target_rows_per_fragment: expected a number ≥ 1, found {rows!r}")

        def cluster(opened: OpenedVersion, job: Job) -> tuple[Manifest, None]:
            ids = opened.manifest.fragment_ids
            wanted = ids if self._where is None else _matching(opened, self._where, job)
            positions = np.flatnonzero(np.isin(ids, wanted))
            return cluster_rows(opened, names, curve, target_rows_per_fragment, positions, job)

        names: list[str] = []
        for one in columns:
            names += [one] if isinstance(one, str) else one
        job = SparkJob.of(self._spark, job_id)
        return asdict(CompactionMetrics()) | job.change(self._dataset, cluster)

    def executeZOrderBy(
        self, *columns: str | Sequence[str], job_id: str | None = None
    ) -> dict[str, int]:
        """As :meth:`executeClusterBy` with ``curve="zorder"``; Delta's name for it."""
        return self.executeClusterBy(*columns, curve="zorder", job_id=job_id)


def _only_where(
    opened: OpenedVersion, condition: str, job: Job, options: CompactionOptions
) -> CompactionOptions:
    """Options that exclude the fragments in which no row matches, too."""
    without = np.setdiff1d(opened.manifest.fragment_ids, _matching(opened, condition, job))
    excluded = sorted({*without.tolist(), *options.excluded_fragment_ids})
    return replace(options, excluded_fragment_ids=tuple(excluded))


def _matching(opened: OpenedVersion, condition: str, job: Job) -> Int64s:
    """Ids of the fragments in which a row matches."""
    tasks = [MatchingFragments(part, condition) for part in job.runner.parts(opened)]
    return np.fromiter(chain.from_iterable(job.runner.run(opened, tasks)), np.int64)
