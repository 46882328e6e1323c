"""Indices of a table, built by tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glaive.dataset.indexing.create import build_segments, check_segments, commit_segments
from glaive.errors import IndexExistsError
from glaive.spark.jobs.runner import SparkJob
from glaive.spark.lance_table.handle import TableHandle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glaive.dataset.indexing.task import IndexTask
    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest


# --- Build an index in tasks, and commit its segments -----------------------------------


def build_index(
    opened: OpenedVersion, job: Job, task: IndexTask, *, replaces: bool, segments: int | None
) -> tuple[Manifest, None]:
    """Build and commit an index over all fragments; see ``LanceTable.createIndex``.

    ``task`` is what one process would do.
    """
    manifest = opened.manifest
    if not replaces and any(entry.name == task.name for entry in manifest.indices):
        raise IndexExistsError(
            f"Index name {task.name!r} already exists: choose another name, or set replace=True"
        )
    check_segments(segments)
    built = build_segments(opened, job.runner, task, segments)
    counts = {"num_segments": len(built), "num_indexed_fragments": manifest.num_fragments}
    return commit_segments(opened, task.name, task.column, built, job=job, counts=counts), None


class TableIndices(TableHandle):
    """The methods of ``LanceTable`` for indices."""

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
        **parameters: Any,
    ) -> dict[str, int]:
        """Build an index in tasks of the cluster, a segment each, and commit it as one version.

        Parameters
        ----------
        column
            Path of the column.
        kind
            ``btree``, ``bitmap``, ``label_list``, ``ngram``, ``zonemap``, ``bloomfilter``,
            ``inverted``; or for vectors ``ivf_flat``, ``ivf_sq``, ``ivf_pq``, ``ivf_rq``,
            ``ivf_hnsw_flat``, ``ivf_hnsw_sq``, ``ivf_hnsw_pq``.
        name
            Default: the path with ``_idx``.
        metric
            Of vectors: ``L2``, ``cosine``, ``dot`` or ``hamming``.
        replace
            Replace an index of this name; else that is an error.
        segments
            Tasks, at most; default: what the cluster runs at a time. A search looks into each.
        job_id
            Names this job: running it again with the same id returns what it did.
        **parameters
            Of the kind, such as ``num_partitions``; see :meth:`LanceDataset.create_index`. Default
            of ``num_sub_vectors``: the dimension by 16, or by 8 where that leaves a rest.

        Returns
        -------
        dict
            ``num_segments``, ``num_indexed_fragments`` and ``version``.

        Raises
        ------
        ColumnNotFoundError, OptionError, UnsupportedFeatureError
            The column, the kind or a parameter is wrong.
        CommitContentionError
            Other writers rewrote fragments at every attempt; no index was made.

        Notes
        -----
        All segments of a vector index share a model, which is trained with a sample of the column:
        this process trains the centroids, tasks the codebook of ``ivf_pq`` and ``ivf_hnsw_pq``.
        """
        from glaive.dataset.indexing.create import vector_task

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
        """Index the rows that are in no index, in tasks of the cluster; one version for all.

        Parameters
        ----------
        names
            Of indices; default: all.
        retrain
            Build them again, from all rows.
        num_indices_to_merge
            Newest segments of each index to merge with the new rows; 0 adds segments. By default
            those that have not many more rows than are added.
        segments
            Segments, at most, that an index gets for new rows that are not merged with others, or
            with ``retrain`` for all rows. Default: one for about 65,536 new rows, up to what the
            cluster runs at a time; with ``retrain`` as :meth:`createIndex`.
        job_id
            Names this job: running it again with the same id returns the version that it made.

        Returns
        -------
        int
            The version that the job made; the newest one if there was nothing to do.

        Raises
        ------
        IndexNotFoundError
            There is no such index.
        OptionError
            A number or the id is wrong.
        CommitContentionError
            Other writers rewrote fragments at every attempt; nothing was changed.

        Notes
        -----
        Searches find the rows that they find after ``dataset.optimize.optimize_indices``. New
        vectors are encoded with the model that the index has. The segments of an index that are
        merged are read and written by one task.
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
        """Remove an index; returns the new version.

        Raises
        ------
        IndexNotFoundError
            There is no such index.
        """
        dataset = self._latest()
        dataset.drop_index(name)
        return dataset.version
