"""Maintenance of a table: compaction, clustering, indices, clean-up, versions, branches."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack, overload
from uuid import uuid4

import numpy as np
import pyarrow as pa

from glaive.dataset.cleanup import CleanupTasks, age_of, clean_up, planned_cleanup
from glaive.dataset.clustering import CurveKind, cluster_rows, rewrite_useful
from glaive.dataset.compact import commit_rewrites, compact
from glaive.dataset.compaction_tasks import CompactionMetrics, CompactionOptions, RewriteResult
from glaive.dataset.indexing.create import build_segments, commit_segments, vector_task
from glaive.dataset.keywords import ScalarKeywords, TableIndexKeywords, VectorKeywords
from glaive.dataset.maintenance import MaintenanceKeywords, MaintenanceOptions, maintain
from glaive.dataset.refs import publish_branch
from glaive.dataset.rows import MatchingFragments
from glaive.dataset.tasks import Job
from glaive.dataset.version import refuse_unknown, version_as_of
from glaive.errors import IndexExistsError, OptionError
from glaive.options import integer, one_of, shows
from glaive.spark.api import TableHandle, located
from glaive.spark.failures import naming_job
from glaive.spark.runner import EARLIER_COMMITS, SparkJob, SparkRunner
from glaive.spark.writer import ENGINE
from glaive.table.cleanup import CleanupPolicy
from glaive.types import Int64s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.indexing.task import IndexTask
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest


# --- ``table.optimize()``: compaction in tasks of the cluster ---------------------------


class OptimizeBuilder:
    """Collects what to compact; returned by ``LanceTable.optimize``."""

    def __init__(self, spark: SparkSession, dataset: LanceDataset) -> None:
        self._spark, self._dataset = spark, dataset
        self._where: str | None = None

    def where(self, condition: str) -> OptimizeBuilder:
        """Compact only fragments with a row that meets a condition in the filter language."""
        given: object = condition
        if not isinstance(given, str) or not given.strip():
            raise OptionError(f'where: expected a filter such as "day = 3", found {given!r}')
        self._where = condition
        return self

    def executeCompaction(self, *, job_id: str | None = None, **options: Any) -> dict[str, int]:
        """Merge small neighbouring fragments and remove deleted rows, in tasks of the cluster.

        If the table has columns of ``CLUSTER BY``, cluster new fragments by these columns instead.

        Parameters
        ----------
        job_id
            Name of this job: a second run with the same name returns the result of the first.
        **options
            Options of :class:`glaive.dataset.compaction_tasks.CompactionOptions`, such as
            ``target_rows_per_fragment``. The table's configuration has the defaults.

        Returns
        -------
        dict
            ``fragments_removed``, ``fragments_added``, ``files_removed``, ``files_added``, and
            ``version``. The job makes a version only if there is something to compact.

        Raises
        ------
        OptionError
            An option is unknown or has an invalid value.
        FilterError
            The condition is invalid.
        CommitConflictError, CommitContentionError
            Other writers changed the same fragments, at every attempt. The table is unchanged.

        Notes
        -----
        Rows bypass Spark: tasks read and write the files of the dataset.
        """
        job = SparkJob.of(self._spark, job_id)

        def rewriting(opened: OpenedVersion, checked: CompactionOptions) -> list[RewriteResult]:
            if self._where is not None:
                checked = _only_where(opened, self._where, job.commit, checked)
            return rewrite_useful(opened, checked, job.runner)

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
            Names of columns, one by one or as a list. One column sorts the rows. Several columns
            order the rows along a curve, where neighbours have similar values in all columns.
        curve
            The curve for several columns: ``hilbert`` or ``zorder``.
        target_rows_per_fragment
            Maximum number of rows of a new fragment; default: 1,048,576.
        job_id
            See :meth:`executeCompaction`.

        Returns
        -------
        dict
            See :meth:`executeCompaction`.

        Raises
        ------
        ColumnNotFoundError, OptionError
            A column is missing or lacks an order.
        CommitContentionError
            See :meth:`executeCompaction`.

        Notes
        -----
        Spark shuffles all columns once, as Arrow data with exactly their types. Rows keep stable
        row ids. If the table lacks stable row ids, run :meth:`LanceTable.optimizeIndices`
        afterwards: the indices have to cover the rows again. A task holds its part of the rows in
        memory: the rows of about 128 MiB of files.
        """
        one_of("hilbert", "zorder").check("curve", curve)
        rows = integer(1).check("target_rows_per_fragment", target_rows_per_fragment)
        options = CompactionOptions(target_rows_per_fragment=rows, compression="balanced")

        def cluster(opened: OpenedVersion, job: Job) -> tuple[Manifest, None]:
            ids = opened.manifest.fragment_ids
            wanted = ids if self._where is None else _matching(opened, self._where, job)
            at = np.flatnonzero(np.isin(ids, wanted))
            made = [cluster_rows(opened, names, curve, options, at, job.runner)] if len(at) else []
            return commit_rewrites(opened, made, job=job)[0], None

        names: list[str] = []
        for one in columns:
            names += [one] if isinstance(one, str) else one
        job = SparkJob.of(self._spark, job_id)
        return asdict(CompactionMetrics()) | job.change(self._dataset, cluster)

    def executeZOrderBy(
        self, *columns: str | Sequence[str], job_id: str | None = None
    ) -> dict[str, int]:
        """Call :meth:`executeClusterBy` with ``curve="zorder"``, under Delta's name."""
        return self.executeClusterBy(*columns, curve="zorder", job_id=job_id)


def _only_where(
    opened: OpenedVersion, condition: str, job: Job, options: CompactionOptions
) -> CompactionOptions:
    """Return options that also exclude the fragments whose rows all fail the condition."""
    without = np.setdiff1d(opened.manifest.fragment_ids, _matching(opened, condition, job))
    excluded = sorted({*without.tolist(), *options.excluded_fragment_ids})
    return replace(options, excluded_fragment_ids=tuple(excluded))


def _matching(opened: OpenedVersion, condition: str, job: Job) -> Int64s:
    """Return the ids of the fragments with a matching row."""
    tasks = [MatchingFragments(part, condition) for part in job.runner.parts(opened)]
    return np.fromiter(chain.from_iterable(job.runner.run(opened, tasks)), np.int64)


_DELETED_FILES: Final = "the files that it has deleted are those that no version needs"

_OTHER_FACTS: Final = ("failed_deletes", "warnings")


class TableMaintenance(TableHandle):
    """The methods of ``LanceTable`` that reduce its size, and name or undo versions."""

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
        """Delete old versions, and the files that only they use.

        Parameters
        ----------
        retentionHours
            Minimum age of the versions to delete, in hours; default: two weeks. 0 keeps only what
            the newest version, tags and branches need.
        dryRun
            Only return a frame of all files that would be deleted.
        delete_unverified
            Also delete files younger than a week that no version has ever used, such as files of
            failed jobs. Use it only while nobody writes.

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
            The cluster lost processes of the job. It deleted only unneeded files.

        Notes
        -----
        Tasks read manifests, list folders and delete files. Before the files, this process deletes
        manifests. A single task, as for a table with few files and versions, runs in this process.
        This process holds the names of all files in memory.
        """
        age = None
        if retentionHours is not None:
            age = age_of("retentionHours", retentionHours, timedelta(hours=1))
        policy = CleanupPolicy(age, delete_unverified=delete_unverified, error_if_tagged=False)
        dataset = self._latest().opened
        work = CleanupTasks(dataset, SparkRunner(self._spark))
        with naming_job(str(uuid4()), dataset.uri, named=False, left=_DELETED_FILES):
            if dryRun:
                files = planned_cleanup(dataset, policy, work).files
                return self._described(files.table.select(range(4)))
            stats = clean_up(dataset, policy, None, work=work)
        return {name: value for name, value in asdict(stats).items() if name not in _OTHER_FACTS}

    @shows(MaintenanceKeywords, MaintenanceOptions, compression="balanced")
    def maintain(self, dryRun: bool = False, **options: Unpack[MaintenanceKeywords]) -> DataFrame:
        """Compact, update indices, delete old tags and versions, each only where it pays.

        Parameters
        ----------
        dryRun
            Only return the steps that pay. The table stays as it is.

        Returns
        -------
        DataFrame
            ``step``, ``reason`` and ``arguments`` (JSON) of each step that was run, in this order.

        Raises
        ------
        OptionError
            An option is unknown or has an invalid value.
        CommitContentionError
            Others changed the same rows at every attempt. Earlier steps are done.
        JobError
            The cluster lost processes of the job. Earlier steps are done.
        """
        refuse_unknown("maintain", options, list(MaintenanceKeywords.__annotations__))
        options.setdefault("compression", "balanced")
        job = Job(runner=SparkRunner(self._spark), properties={ENGINE: "spark"})
        with naming_job(str(uuid4()), self._dataset.uri, named=False, made=EARLIER_COMMITS):
            steps = maintain(self._latest(), MaintenanceOptions(**options), dry_run=dryRun, job=job)
        rows = [asdict(step) | {"arguments": json.dumps(step.arguments)} for step in steps]
        schema = dict.fromkeys(("step", "reason", "arguments"), pa.string())
        return self._described(pa.Table.from_pylist(rows, pa.schema(schema)))

    def restoreToVersion(self, version: int) -> int:
        """Commit an older version as the newest one, and return its new number.

        Parameters
        ----------
        version
            Number of the older version.

        Raises
        ------
        VersionNotFoundError
            The version is missing, or clean-up removed it.
        """
        dataset = self._latest().checkout_version(version)
        dataset.restore()
        return self._latest().version

    def restoreToTimestamp(self, timestamp: datetime | str) -> int:
        """Commit the version of a point in time as the newest one, and return its new number.

        Parameters
        ----------
        timestamp
            A ``datetime`` or a string in ISO format; local time unless it has a zone. The newest
            version before this time is used.

        Raises
        ------
        VersionNotFoundError
            All versions are younger.
        """
        return self.restoreToVersion(version_as_of(self._latest().store, timestamp, "timestamp"))

    def createTag(self, name: str, version: int | None = None) -> None:
        """Name a version. Clean-up keeps tagged versions.

        Parameters
        ----------
        name
            Name of the new tag: letters, digits, ``.``, ``-`` and ``_``.
        version
            Number of the version; default: the newest.

        Raises
        ------
        RefExistsError, VersionNotFoundError
            The tag exists, or the version is missing.
        """
        dataset = self._latest()
        dataset.tags.create(name, dataset.version if version is None else version)

    def deleteTag(self, name: str) -> None:
        """Remove a tag; the version stays until clean-up.

        Parameters
        ----------
        name
            Name of the tag.

        Raises
        ------
        RefNotFoundError
            The tag is missing.
        """
        self._latest().tags.delete(name)

    def createBranch(self, name: str, version: int | None = None) -> Self:
        """Start a branch from a version, and return its table.

        Parameters
        ----------
        name
            Name of the new branch.
        version
            Number of the version; default: the newest.

        Raises
        ------
        RefExistsError, VersionNotFoundError
            The branch exists, or the version is missing.
        """
        return type(self)(self._spark, self._latest().create_branch(name, version))

    def forBranch(self, name: str) -> Self:
        """Return the table on a branch.

        Parameters
        ----------
        name
            Name of the branch.

        Raises
        ------
        RefNotFoundError
            The branch is missing.
        """
        branch = None if name == "main" else name
        return type(self)(self._spark, self._latest().checkout_version((branch, None)))

    def publish(
        self, branch: str, *, version: int | None = None, job_id: str | None = None
    ) -> dict[str, int]:
        """Commit the state of a branch as the next version of its parent branch.

        Parameters
        ----------
        branch
            Name of the branch. This table must be on its parent branch, usually the main branch.
        version
            The version of the branch to publish, such as a version that you reviewed; default: the
            newest. Later versions stay unpublished.
        job_id
            Name of this job: a second run with the same name returns the result of the first.

        Returns
        -------
        dict
            ``num_files_copied``, ``version``, and ``published_version`` of the branch. If all of
            the branch is already published, ``published_version`` is missing and the table keeps
            its version.

        Raises
        ------
        RefNotFoundError
            The branch is missing.
        OptionError
            The branch started from another branch.
        CommitConflictError
            The parent has versions that the branch lacks. Both are unchanged.

        Notes
        -----
        Tasks copy the files that the branch wrote, so you may delete the branch afterwards. Or
        continue to write to it: the next call copies and adds the new files.
        """
        job = SparkJob.of(self._spark, job_id)
        return {"num_files_copied": 0} | job.change(
            self._dataset, lambda at, commit: publish_branch(at, branch, commit, version=version)
        )

    def shallowClone(self, target: str | os.PathLike[str], version: int | None = None) -> Self:
        """Create a table that refers to the files of a version of this table, instead of a copy.

        Parameters
        ----------
        target
            Path or URI of the new table.
        version
            Number of the version; default: the newest.

        Raises
        ------
        DatasetExistsError
            A dataset exists at the location.
        """
        dataset = self._latest().shallow_clone(located(target), version)
        return type(self)(self._spark, dataset)


# --- Indices of a table, built by tasks -------------------------------------------------


def build_index(
    opened: OpenedVersion, job: Job, task: IndexTask, *, replaces: bool, segments: int | None
) -> tuple[Manifest, None]:
    """Build and commit an index over all fragments; ``task`` is the task for one process."""
    manifest = opened.manifest
    if not replaces and any(entry.name == task.name for entry in manifest.indices):
        raise IndexExistsError(
            f"Index name {task.name!r} already exists: choose another name, or set replace=True"
        )
    if segments is not None:
        integer(1).check("segments", segments)
    built = build_segments(opened, job.runner, task, segments)
    counts = {"num_segments": len(built), "num_indexed_fragments": manifest.num_fragments}
    return commit_segments(opened, task.name, task.column, built, job=job, counts=counts), None


class TableIndices(TableHandle):
    """The methods of ``LanceTable`` for indices."""

    @shows(TableIndexKeywords, TableIndexKeywords, VectorKeywords, ScalarKeywords)
    def createIndex(
        self,
        column: str,
        kind: str,
        name: str | None = None,
        *,
        metric: str = "L2",
        replace: bool = True,
        segments: int | None = None,
        job_id: str | None = None,
        **parameters: Unpack[TableIndexKeywords],
    ) -> dict[str, int]:
        """Build an index in tasks of the cluster, and commit it as one version.

        Each task builds a segment.

        Parameters
        ----------
        column
            Path of the column.
        kind
            ``btree``, ``bitmap``, ``label_list``, ``ngram``, ``zonemap``, ``bloomfilter``,
            ``inverted``; or for vectors ``ivf_flat``, ``ivf_sq``, ``ivf_pq``, ``ivf_rq``,
            ``ivf_hnsw_flat``, ``ivf_hnsw_sq``, ``ivf_hnsw_pq``.
        name
            Name of the index; default: the path of the column with ``_idx``.
        metric
            Distance of vectors: ``L2``, ``cosine``, ``dot`` or ``hamming``.
        replace
            Replace an index of this name. Otherwise an existing index raises an error.
        segments
            Maximum number of tasks; default: as many as the cluster runs at a time. A search reads
            each segment.
        job_id
            Name of this job: a second run with the same name returns the result of the first.
        **parameters
            Parameters of the kind of index.

        Returns
        -------
        dict
            ``num_segments``, ``num_indexed_fragments`` and ``version``.

        Raises
        ------
        ColumnNotFoundError, OptionError, UnsupportedFeatureError
            The column, the kind or a parameter is wrong.
        CommitContentionError
            Other writers rewrote fragments at every attempt. The table is unchanged.

        Notes
        -----
        All segments of a vector index share a model, trained with a sample of the column. This
        process trains the centroids. Tasks train the codebook of ``ivf_pq`` and ``ivf_hnsw_pq``.
        """
        arguments = {
            "column": column,
            "index_type": kind,
            "name": name,
            "metric": metric,
            "parameters": parameters,
            "fragment_ids": None,
            "index_uuid": None,
            "skip_transpose": None,
        }

        def build(opened: OpenedVersion, job: Job) -> tuple[Manifest, None]:
            task = vector_task(opened, arguments)
            return build_index(opened, job, task, replaces=replace, segments=segments)

        return SparkJob.of(self._spark, job_id).change(self._dataset, build)

    def optimizeIndices(
        self,
        names: Sequence[str] | None = None,
        *,
        retrain: bool = False,
        num_indices_to_merge: int | None = None,
        segments: int | None = None,
        job_id: str | None = None,
    ) -> int:
        """Index the rows that indices lack, in tasks of the cluster, and commit one version.

        Parameters
        ----------
        names
            Names of indices; default: all.
        retrain
            Build the indices again, from all rows.
        num_indices_to_merge
            Number of newest segments of each index to merge with the new rows; 0 adds segments. By
            default glaive merges segments of up to about the size of the new rows.
        segments
            Maximum number of segments that an index gets for unmerged new rows, or with ``retrain``
            for all rows. Default: one for about 65,536 new rows, up to the number of tasks that the
            cluster runs at a time. With ``retrain``, :meth:`createIndex` explains the default.
        job_id
            Name of this job: a second run with the same name returns the version of the first.

        Returns
        -------
        int
            The version that the job made, or the newest version if the indices were up to date.

        Raises
        ------
        IndexNotFoundError
            An index is missing.
        OptionError
            A number or the id is wrong.
        CommitContentionError
            Other writers rewrote fragments at every attempt. The table is unchanged.

        Notes
        -----
        Searches find the same rows as after ``dataset.optimize.optimize_indices``. The existing
        model of the index encodes new vectors. One task reads and writes the merged segments of an
        index.
        """
        from glaive.dataset.indexing.optimize import optimize_indices

        def change(opened: OpenedVersion, job: Job) -> tuple[Manifest, None]:
            made = optimize_indices(
                opened,
                num_indices_to_merge=num_indices_to_merge,
                index_names=names,
                retrain=retrain,
                segments=segments,
                job=job,
            )
            return opened.manifest if made is None else made, None

        return SparkJob.of(self._spark, job_id).change(self._dataset, change)["version"]

    def dropIndex(self, name: str) -> int:
        """Remove an index, and return the new version.

        Parameters
        ----------
        name
            Name of the index.

        Raises
        ------
        IndexNotFoundError
            The index is missing.
        """
        dataset = self._latest()
        dataset.drop_index(name)
        return dataset.version
