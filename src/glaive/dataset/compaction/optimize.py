"""``dataset.optimize``, and compaction in three steps: plan, tasks, commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from glaive.dataset.compaction.commit import commit_rewrites
from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.passes import compact
from glaive.dataset.compaction.plan import plan_compaction
from glaive.dataset.compaction.result import CompactionMetrics, RewriteResult
from glaive.dataset.compaction.task import CompactionPlan, CompactionTask
from glaive.dataset.progress_line import showing
from glaive.scan.keywords import NoKeywords

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset

__all__ = ["Compaction", "DatasetOptimizer"]


class Compaction:
    """Merge small fragments, in one process or many.

    :meth:`plan` selects groups of fragments, :meth:`execute_task` rewrites one group and may run
    anywhere, :meth:`commit` commits the results. Plans, tasks and results can be pickled.
    """

    @staticmethod
    def plan(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionPlan:
        """Select the fragments to rewrite; reads no data file.

        Raises
        ------
        OptionError
            An option does not exist or has an invalid value.
        """
        return plan_compaction(dataset.opened, _options(dataset, options))

    @staticmethod
    def execute_task(dataset: OpenDataset, task: CompactionTask) -> RewriteResult:
        """Write the fragments of one task, uncommitted."""
        return task.execute(dataset)

    @staticmethod
    def commit(
        dataset: OpenDataset,
        rewrites: Sequence[RewriteResult],
        options: Mapping[str, Any] | None = None,
    ) -> CompactionMetrics:
        """Commit the results and move the dataset to the new version.

        The only option used here is ``defer_index_remap``.

        Raises
        ------
        CommitConflictError
            Another writer changed one of the fragments since; plan again.
        """
        defer = CompactionOptions.of(options, {}).defer_index_remap
        manifest, metrics = commit_rewrites(dataset.opened, rewrites, defer_index_remap=defer)
        dataset.move_to(manifest)
        return metrics

    @staticmethod
    def execute(
        dataset: OpenDataset, options: Mapping[str, Any] | None = None
    ) -> CompactionMetrics:
        """Plan, execute and commit, until a plan has no task; no version if the first has none."""
        manifest, metrics = compact(dataset.opened, _options(dataset, options))
        dataset.move_to(manifest)
        return metrics


class DatasetOptimizer:
    """Maintenance of a dataset; returned by ``dataset.optimize``."""

    __slots__ = ("_dataset",)

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset

    def __repr__(self) -> str:
        return f"DatasetOptimizer({self._dataset!r})"

    def compact_files(
        self,
        *,
        target_rows_per_fragment: int | None = None,
        max_rows_per_group: int | None = None,
        max_bytes_per_file: int | None = None,
        materialize_deletions: bool | None = None,
        materialize_deletions_threshold: float | None = None,
        defer_index_remap: bool | None = None,
        num_threads: int | None = None,
        batch_size: int | None = None,
        compaction_mode: Literal["reencode", "try_binary_copy"] | None = None,
        binary_copy_read_batch_bytes: int | None = None,
        max_source_fragments: int | None = None,
        max_source_rows: int | None = None,
        max_source_bytes: int | None = None,
        excluded_fragment_ids: Sequence[int] | None = None,
        data_storage_version: str | None = None,
        progress: bool | None = None,
        **options: Unpack[NoKeywords],
    ) -> CompactionMetrics:
        """Merge small neighbouring fragments and remove deleted rows.

        The options are those of :class:`glaive.dataset.compaction.options.CompactionOptions`;
        defaults come from ``lance.compaction.*`` entries of the table's configuration. ``progress``
        shows the rewritten rows on a line of the terminal, if there is one.

        Returns
        -------
        CompactionMetrics
            Fragments and files removed and added; all 0, and no new version, if there was
            nothing to do.

        Raises
        ------
        CommitConflictError, CommitContentionError
            Another writer changed one of the fragments concurrently; nothing was changed.
        OptionError
            An option does not exist or has an invalid value.

        Notes
        -----
        Rows keep their order, and their ids if these are stable. Indices that store row addresses
        are rebuilt; with ``defer_index_remap`` a remapping table is stored instead, which readers
        apply, unless it would have more than 2^27 rows of this compaction, or 2^29 in all.

        Compacting again with the same options finds nothing to do, unless ``max_source_*`` limit
        what a run takes, or another writer commits meanwhile. Each pass makes two versions; there
        is a second one where what the first wrote can be merged once more.
        """
        given = {
            "target_rows_per_fragment": target_rows_per_fragment,
            "max_rows_per_group": max_rows_per_group,
            "max_bytes_per_file": max_bytes_per_file,
            "materialize_deletions": materialize_deletions,
            "materialize_deletions_threshold": materialize_deletions_threshold,
            "defer_index_remap": defer_index_remap,
            "num_threads": num_threads,
            "batch_size": batch_size,
            "compaction_mode": compaction_mode,
            "binary_copy_read_batch_bytes": binary_copy_read_batch_bytes,
            "max_source_fragments": max_source_fragments,
            "max_source_rows": max_source_rows,
            "max_source_bytes": max_source_bytes,
            "excluded_fragment_ids": excluded_fragment_ids,
            "data_storage_version": data_storage_version,
            **options,
        }
        with showing(progress, "compact"):
            return Compaction.execute(self._dataset, given)

    def enable_auto_cleanup(self, auto_cleanup_config: Mapping[str, int], **options: Any) -> None:
        """Clean up old versions automatically.

        ``auto_cleanup_config`` has ``interval``, in commits, and ``older_than_seconds``.

        Raises
        ------
        OptionError
            It has other keys, or values that are no integers.
        """
        from glaive.dataset.metadata import set_config
        from glaive.dataset.writing.options import WriteOptions
        from glaive.table.cleanup.auto_cleanup import OLDER_THAN

        config = WriteOptions(auto_cleanup=auto_cleanup_config).cleanup_config()
        if OLDER_THAN in config:  # pylance writes seconds here, units in write_dataset
            config[OLDER_THAN] = f"{auto_cleanup_config['older_than_seconds']}s"
        self._dataset.move_to(set_config(self._dataset.opened, config))

    def disable_auto_cleanup(self, **options: Any) -> None:
        """Turn automatic clean-up off."""
        from glaive.dataset.metadata import set_config
        from glaive.table.cleanup.auto_cleanup import INTERVAL, OLDER_THAN

        keys = dict.fromkeys((INTERVAL, OLDER_THAN))
        self._dataset.move_to(set_config(self._dataset.opened, keys))

    def optimize_indices(
        self,
        *,
        num_indices_to_merge: int | None = None,
        index_names: Sequence[str] | None = None,
        retrain: bool = False,
        progress: bool | None = None,
    ) -> None:
        """Index the rows that are in no index, and merge segments.

        Parameters
        ----------
        num_indices_to_merge
            Newest segments of each index to merge with the new rows; with 0 these become a
            segment of their own. By default segments are merged that have not many more rows than
            are added, so that the cost follows the new rows, or have no more than 4,096 with them.
        index_names
            Indices to work on; by default all that glaive knows.
        retrain
            Build the indices again, from all rows.
        progress
            Show a line of the terminal, if there is one.

        Raises
        ------
        IndexNotFoundError, OptionError
            A name or a number is wrong.
        CommitConflictError
            Another writer rewrote the fragments since; nothing was changed.
        """
        from glaive.dataset.indexing.optimize import optimize_indices

        with showing(progress, "optimize indices"):
            manifest = optimize_indices(
                self._dataset.opened,
                num_indices_to_merge=num_indices_to_merge,
                index_names=index_names,
                retrain=retrain,
            )
        if manifest is not None:
            self._dataset.move_to(manifest)


def _options(dataset: OpenDataset, given: Mapping[str, Any] | None) -> CompactionOptions:
    return CompactionOptions.of(given, dict(dataset.opened.manifest.config))
