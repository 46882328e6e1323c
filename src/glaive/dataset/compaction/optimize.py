"""``dataset.optimize``, and compaction in three steps: plan, tasks, commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glaive.dataset.compaction.commit import commit_rewrites
from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.plan import plan_compaction
from glaive.dataset.compaction.result import CompactionMetrics, RewriteResult
from glaive.dataset.compaction.task import CompactionPlan, CompactionTask
from glaive.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset

__all__ = ["Compaction", "DatasetOptimizer"]


class Compaction:
    """Put small fragments together, in one process or many.

    :meth:`plan` says which, :meth:`execute_task` does one group and may run anywhere,
    :meth:`commit` makes a version of the results. Plans, tasks and results can be pickled.
    """

    @staticmethod
    def plan(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionPlan:
        """Work out which fragments are put together; reads no data file.

        Raises
        ------
        OptionError
            An option does not exist or has a value it cannot have.
        """
        return plan_compaction(dataset.opened, _options(dataset, options))

    @staticmethod
    def execute_task(dataset: OpenDataset, task: CompactionTask) -> RewriteResult:
        """Write the fragments of one task; no version has them yet."""
        return task.execute(dataset)

    @staticmethod
    def commit(
        dataset: OpenDataset,
        rewrites: Sequence[RewriteResult],
        options: Mapping[str, Any] | None = None,
    ) -> CompactionMetrics:
        """Make a version of the results and move the dataset to it.

        Of the options, ``defer_index_remap`` counts here.

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
        """Plan, carry out and commit; makes no version if there is nothing to do."""
        plan = Compaction.plan(dataset, options)
        defer = {"defer_index_remap": _options(dataset, options).defer_index_remap}
        return Compaction.commit(dataset, [task.execute(dataset) for task in plan.tasks], defer)


class DatasetOptimizer:
    """Keeps a dataset quick to read. Made by ``dataset.optimize``."""

    __slots__ = ("_dataset",)

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset

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
        compaction_mode: str | None = None,
        binary_copy_read_batch_bytes: int | None = None,
        max_source_fragments: int | None = None,
        max_source_rows: int | None = None,
        max_source_bytes: int | None = None,
        excluded_fragment_ids: Sequence[int] | None = None,
        data_storage_version: str | None = None,
        **options: Any,
    ) -> CompactionMetrics:
        """Put small neighbouring fragments together and drop deleted rows for good.

        The options are those of :class:`glaive.dataset.compaction.options.CompactionOptions`;
        what is not given is taken from ``lance.compaction.*`` entries of the table's configuration.

        Returns
        -------
        CompactionMetrics
            Fragments and files removed and added; all 0, and no version, if nothing is to do.

        Raises
        ------
        CommitConflictError
            Another writer changed one of the fragments meanwhile; nothing was changed.
        OptionError
            An option does not exist or has a value it cannot have.

        Notes
        -----
        Rows keep their order, and their ids where these are stable. Indices that hold row
        addresses are rebuilt, or left beside a map of where rows went if that is deferred.
        Makes two versions.
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
        return Compaction.execute(self._dataset, given)

    def enable_auto_cleanup(self, auto_cleanup_config: Mapping[str, int], **options: Any) -> None:
        """Have old versions cleaned up every so many commits.

        ``auto_cleanup_config`` has ``interval``, in versions, and ``older_than_seconds``.

        Raises
        ------
        OptionError
            It has other keys, or values that are no integers.
        """
        from glaive.dataset.metadata import set_config
        from glaive.dataset.writing.options import WriteOptions

        config = WriteOptions(auto_cleanup=auto_cleanup_config).cleanup_config()
        self._dataset.move_to(set_config(self._dataset.opened, config))

    def disable_auto_cleanup(self, **options: Any) -> None:
        """Have old versions stay until somebody cleans up."""
        from glaive.dataset.metadata import set_config
        from glaive.table.auto_cleanup import INTERVAL, OLDER_THAN

        keys = dict.fromkeys((INTERVAL, OLDER_THAN))
        self._dataset.move_to(set_config(self._dataset.opened, keys))

    def optimize_indices(self, **options: Any) -> None:
        """Not offered yet: this version of glaive does not build indices."""
        raise UnsupportedFeatureError(
            "optimize_indices: this version of glaive does not build indices; new rows are found "
            "without them"
        )


def _options(dataset: OpenDataset, given: Mapping[str, Any] | None) -> CompactionOptions:
    return CompactionOptions.of(given, dict(dataset.opened.manifest.config))
