"""Maintenance of a table: compaction, clean-up, restoring, tags, branches, clones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, Self, overload
from uuid import uuid4

import numpy as np

from glaive.dataset.compaction.optimize import compact, compaction_groups, rewrite_groups
from glaive.dataset.compaction.task import CompactionMetrics, CompactionOptions, RewriteResult
from glaive.dataset.rows import MatchingFragments
from glaive.dataset.versions.cleanup import (
    FILES_DDL,
    CleanupTasks,
    FileRows,
    age_of,
    clean_up,
    planned_cleanup,
)
from glaive.errors import OptionError
from glaive.spark.failures import naming_job
from glaive.spark.jobs.cluster import CurveKind, cluster_rows
from glaive.spark.jobs.runner import SparkJob, SparkRunner
from glaive.spark.lance_table.handle import TableHandle, located
from glaive.table.cleanup import CleanupPolicy
from glaive.types import Int64s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest


# --- ``table.optimize()``: compaction in tasks of the cluster ---------------------------


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
            Those of :class:`glaive.dataset.compaction.task.CompactionOptions`, such as
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


_LEFT: Final = "the files that it has deleted are those that no version needs"

_MOST_HERE: Final = 1 << 12
"""Files of a dry run that become rows in this process; where there are more, tasks unpack them."""


class TableMaintenance(TableHandle):
    """The methods of ``LanceTable`` that keep it small, and name or undo versions."""

    def optimize(self) -> OptimizeBuilder:
        """Merge small files: ``table.optimize().executeCompaction()``.

        ``where(sql)`` limits it to fragments with matching rows.
        """
        return OptimizeBuilder(self._spark, self._latest())

    @overload
    def vacuum(
        self,
        retentionHours: float | None = None,
        dryRun: Literal[False] = False,
        *,
        delete_unverified: bool = False,
    ) -> dict[str, int]: ...

    @overload
    def vacuum(
        self,
        retentionHours: float | None = None,
        *,
        dryRun: Literal[True],
        delete_unverified: bool = False,
    ) -> DataFrame: ...

    def vacuum(
        self,
        retentionHours: float | None = None,
        dryRun: bool = False,
        *,
        delete_unverified: bool = False,
    ) -> DataFrame | dict[str, int]:
        """Delete old versions, and the files that no other version uses.

        Parameters
        ----------
        retentionHours
            Age of the versions to delete; default: two weeks. With 0, all that neither the
            newest version, nor tags, nor branches need.
        dryRun
            Delete nothing, and return a frame of all files that would be deleted.
        delete_unverified
            Also delete files that no version has ever used and that are younger than a week, as
            failed jobs leave them. Only safe when nobody is writing.

        Returns
        -------
        DataFrame or dict
            ``path``, ``kind``, ``size_in_bytes``, ``unverified``; or counts: ``bytes_removed``,
            ``old_versions``, ``data_files_removed``, …

        Raises
        ------
        OptionError
            The age is negative or too long.
        JobError
            The cluster lost processes of the job; what it has deleted no version needed.

        Notes
        -----
        Tasks read manifests, list folders and delete files; manifests are deleted before that, by
        this process. A lone task runs in this process, as of a table with few files and versions.
        This process holds the names of all files.
        """
        age = None
        if retentionHours is not None:
            age = age_of("retentionHours", retentionHours, timedelta(hours=1))
        policy = CleanupPolicy(age, delete_unverified=delete_unverified, error_if_tagged=False)
        dataset = self._latest().opened
        runner = SparkRunner(self._spark)
        work = CleanupTasks(dataset, runner)
        with naming_job(str(uuid4()), dataset.uri, named=False, left=_LEFT):
            if dryRun:
                files = planned_cleanup(dataset, policy, work).files
                if len(files) <= _MOST_HERE:
                    return self._described(files.table.select(range(4)))
                cuts = range(0, len(files), _MOST_HERE)
                rows = [FileRows(files[at : at + _MOST_HERE]) for at in cuts]
                return runner.rows_of(dataset, rows, FILES_DDL)
            stats = clean_up(dataset, policy, None, work=work)
        names = (
            "bytes_removed",
            "old_versions",
            "data_files_removed",
            "transaction_files_removed",
            "index_files_removed",
            "deletion_files_removed",
        )
        return {name: getattr(stats, name) for name in names}

    def restoreToVersion(self, version: int) -> int:
        """Make an older version the newest one; returns the number that it gets.

        Raises
        ------
        VersionNotFoundError
            There is no such version, or it was cleaned up.
        """
        dataset = self._latest().checkout_version(version)
        dataset.restore()
        return self._latest().version

    def restoreToTimestamp(self, timestamp: datetime | str) -> int:
        """Make the newest version before a point in time the newest one; returns its number.

        Parameters
        ----------
        timestamp
            A ``datetime``, local time unless it has a zone, or a text in ISO format.

        Raises
        ------
        VersionNotFoundError
            There is no older version.
        """
        from glaive.dataset.version import version_as_of

        return self.restoreToVersion(version_as_of(self._latest().store, timestamp))

    def createTag(self, name: str, version: int | None = None) -> None:
        """Name a version, by default the newest; clean-up keeps it.

        Raises
        ------
        RefExistsError, VersionNotFoundError
            There is such a tag, or no such version.
        """
        dataset = self._latest()
        dataset.tags.create(name, dataset.version if version is None else version)

    def deleteTag(self, name: str) -> None:
        """Remove a tag; the version stays until clean-up.

        Raises
        ------
        RefNotFoundError
            There is no such tag.
        """
        self._latest().tags.delete(name)

    def createBranch(self, name: str, version: int | None = None) -> Self:
        """Start a branch from a version, by default the newest; returns the table on it.

        Raises
        ------
        RefExistsError, VersionNotFoundError
            There is such a branch, or no such version.
        """
        return type(self)(self._spark, self._latest().create_branch(name, version))

    def forBranch(self, name: str) -> Self:
        """The table on a branch.

        Raises
        ------
        RefNotFoundError
            There is no such branch.
        """
        branch = None if name == "main" else name
        return type(self)(self._spark, self._latest().checkout_version((branch, None)))

    def publish(
        self, branch: str, *, version: int | None = None, job_id: str | None = None
    ) -> dict[str, int]:
        """Make what a branch has the next version of the one it was made from.

        Parameters
        ----------
        branch
            The branch; this table must be the one it was made from, usually the main one.
        version
            Its version, such as the one that was looked at; default: the newest. What was written
            to it later is not published.
        job_id
            Names this job: running it again with the same id returns what it did.

        Returns
        -------
        dict
            ``num_files_copied``, ``version``, and ``published_version`` of the branch, unless
            all of it had been published: then no version is made.

        Raises
        ------
        RefNotFoundError
            There is no such branch.
        OptionError
            It was made from another branch.
        CommitConflictError
            There are versions that the branch does not have; nothing was changed.

        Notes
        -----
        Tasks copy the files that the branch wrote, so it can be deleted afterwards. Or it goes on:
        publishing it again copies and adds what it wrote since.
        """
        from glaive.dataset.versions.refs import publish_branch

        job = SparkJob.of(self._spark, job_id)
        return {"num_files_copied": 0} | job.change(
            self._dataset, lambda at, commit: publish_branch(at, branch, commit, version=version)
        )

    def shallowClone(self, target: str | os.PathLike[str], version: int | None = None) -> Self:
        """A new table that refers to the files of a version of this one; nothing is copied.

        Raises
        ------
        DatasetExistsError
            There is a dataset already.
        """
        dataset = self._latest().shallow_clone(located(target), version)
        return type(self)(self._spark, dataset)
