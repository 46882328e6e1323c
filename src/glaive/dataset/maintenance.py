"""``dataset.optimize``, and maintenance by thresholds: the steps that pay, with their reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from glaive.dataclass import dataclass
from glaive.dataset.clustering import cluster_keys, plan_clustering, rewrite_useful
from glaive.dataset.compact import Compaction, compact, compaction_groups, with_many_deleted
from glaive.dataset.compaction_tasks import CompactionKeywords, CompactionMetrics, CompactionOptions
from glaive.dataset.monitoring import showing
from glaive.dataset.tasks import LOCAL, Job, set_entries
from glaive.dataset.upkeep import unindexed_shares
from glaive.dataset.version import refuse_unknown
from glaive.dataset.writing.plan import COMPRESSION, WriteOptions
from glaive.errors import OptionError, RefNotFoundError
from glaive.options import Kind, TypedDict, check_fields, integer, listed, number, option, shows
from glaive.process import now_ns
from glaive.table.configuration import INTERVAL, OLDER_THAN
from glaive.table.refs import branch_of, delete_tag, list_tags, name_in, root_store

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion
    from glaive.format.manifest import Manifest
    from glaive.table.cleanup import CleanupPolicy, CleanupWork

STEPS: Final = ("compact", "optimize_indices", "expire_tags", "vacuum")
"""The steps in their order. Later steps see what earlier ones did."""


def _step(given: Any) -> str:
    if given not in STEPS:
        raise OptionError(
            f"steps: unknown step {given!r:.60}{OptionError.did_you_mean(given, STEPS, 'Steps')}"
        )
    return str(given)


_DAYS: Final = number(0, timedelta.max.days)
_DAY: Final = 86_400 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """The thresholds of a maintenance.

    Parameters
    ----------
    steps
        Names of the steps to consider: ``compact``, ``optimize_indices``, ``expire_tags``,
        ``vacuum``.
    small_fragments
        Compact if merging small neighbouring fragments leaves at least this many fewer. Fragments
        with many deleted rows are compacted at any number.
    unindexed_share
        Update indices that lack a larger share of the rows.
    retention_days
        Delete versions of this age and the files that only they use.
    tag_retention_days
        Delete tags of this age, by their creation or last move; default: keep all tags.
    compression
        ``balanced`` gives smaller files, as Spark writes do. ``automatic`` encodes as
        :func:`glaive.write_dataset`.
    """

    steps: Sequence[str] = option(listed(Kind("a step", _step)), STEPS)
    small_fragments: int = option(integer(1), 32)
    unindexed_share: float = option(number(0, 1), 0.1)
    retention_days: float = option(_DAYS, 14.0)
    tag_retention_days: float | None = option(_DAYS)
    compression: Literal["automatic", "balanced"] = option(COMPRESSION, "automatic")

    def __post_init__(self) -> None:
        check_fields(self)


class MaintenanceKeywords(TypedDict, total=False):
    """Options of a maintenance; :class:`MaintenanceOptions` describes them."""

    steps: Sequence[str]
    small_fragments: int
    unindexed_share: float
    retention_days: float
    tag_retention_days: float | None
    compression: Literal["automatic", "balanced"]


@dataclass(frozen=True, slots=True)
class MaintenanceStep:
    """A step that pays.

    Parameters
    ----------
    step
        Name of the step.
    reason
        The facts that crossed a threshold.
    arguments
        The arguments of the operation, as JSON can represent them.
    """

    step: str
    reason: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)


def maintain(
    dataset: OpenDataset, options: MaintenanceOptions, *, dry_run: bool = False, job: Job = LOCAL
) -> list[MaintenanceStep]:
    """Run the steps that pay, and return them; with ``dry_run`` only return them.

    If other writers changed the same rows, a step runs again on the newest version.
    """
    done = []
    for name in STEPS:
        if name in options.steps:
            for step in plan_maintenance(dataset.opened, replace(options, steps=(name,)), job):
                if not dry_run:
                    _run(dataset, step, job)
                done.append(step)
    return done


def plan_maintenance(
    dataset: OpenedVersion, options: MaintenanceOptions, job: Job = LOCAL
) -> list[MaintenanceStep]:
    """Return the steps that pay for a version, in their order."""
    plans = {
        "compact": lambda: _compaction(dataset, options),
        "optimize_indices": lambda: _index_update(dataset, options.unindexed_share),
        "expire_tags": lambda: _tag_expiry(dataset, options.tag_retention_days),
        "vacuum": lambda: _vacuum(dataset, options.retention_days, job),
    }
    found = (plans[name]() for name in STEPS if name in options.steps)
    return [step for step in found if step is not None]


# --- Plans: each compares the facts of a version with a threshold -----------------------


def _compaction(dataset: OpenedVersion, options: MaintenanceOptions) -> MaintenanceStep | None:
    given = {"compression": options.compression}
    wanted = CompactionOptions.of(given, dict(dataset.manifest.config))
    starts, target = dataset.snapshot.row_starts, wanted.target_rows_per_fragment
    of, reasons = f"of {_counted(dataset.manifest.num_fragments, 'fragment')}", []
    if keys := cluster_keys(dataset.manifest):
        plan = plan_clustering(dataset, keys, wanted)
        emptied, pays = plan.emptied, plan.pays(options.small_fragments, target)
        if plan.unordered and pays:
            are = "is" if plan.unordered == 1 else "are"
            reasons.append(f"{plan.unordered:,} {of} {are} not clustered by {', '.join(keys)}")
    else:
        many_deleted = with_many_deleted(dataset, wanted)
        small = fewer = emptied = 0
        for group in compaction_groups(dataset, wanted):
            emptied += int(many_deleted[group.start : group.stop].sum())
            if len(group) > 1:
                rows = int(starts[group.stop] - starts[group.start])
                fewer += max(0, len(group) + -rows // target)
                small += len(group)
        if fewer >= options.small_fragments:
            reasons.append(f"{small:,} {of} are below {target:,} rows")
    if emptied:
        share = _percent(wanted.materialize_deletions_threshold)
        reasons.append(f"{emptied:,} {of} lost more than {share} of the rows")
    return MaintenanceStep("compact", "; ".join(reasons), given) if reasons else None


def _index_update(dataset: OpenedVersion, max_share: float) -> MaintenanceStep | None:
    shares = unindexed_shares(dataset)
    lacking = [name for name, share in shares.items() if share > max_share]
    reasons = [f"index {name} lacks {_percent(shares[name])} of the rows" for name in lacking]
    arguments = {"index_names": lacking}
    return MaintenanceStep("optimize_indices", "; ".join(reasons), arguments) if lacking else None


def _tag_expiry(dataset: OpenedVersion, days: float | None) -> MaintenanceStep | None:

    if days is None:
        return None
    branch = branch_of(dataset.manifest)
    root = root_store(dataset.store, branch)
    own, before = name_in(root, dataset.store, branch), now_ns() - days * _DAY
    old = sorted(
        name
        for name, tag in list_tags(root).items()
        if tag.branch == own and 0 < max(tag.created_at or 0, tag.updated_at or 0) <= before
    )
    what = f"{_counted(len(old), 'tag')} from {days:g} days ago or earlier: {', '.join(old)}"
    return MaintenanceStep("expire_tags", what, {"tags": old}) if old else None


def _vacuum(dataset: OpenedVersion, days: float, job: Job) -> MaintenanceStep | None:
    from glaive.dataset.cleanup import planned_cleanup

    plan = planned_cleanup(dataset, _cleanup_policy(days), _cleanup_work(dataset, job))
    if not len(plan.files):
        return None
    reason = (
        f"{_counted(len(plan.versions), 'version')} from {days:g} days ago or earlier; "
        f"{_counted(len(plan.files), 'unneeded file')} of {plan.size / 1e6:,.1f} MB"
    )
    return MaintenanceStep("vacuum", reason, {"older_than_days": days})


def _cleanup_policy(days: float) -> CleanupPolicy:
    from glaive.table.cleanup import CleanupPolicy

    return CleanupPolicy(timedelta(days=days), error_if_tagged=False)


def _cleanup_work(dataset: OpenedVersion, job: Job) -> CleanupWork:
    from glaive.dataset.cleanup import CleanupTasks
    from glaive.table.cleanup import IN_PROCESS

    return IN_PROCESS if job is LOCAL else CleanupTasks(dataset, job.runner)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


# --- Runs: the operation of each step ---------------------------------------------------


def _run(dataset: OpenDataset, step: MaintenanceStep, job: Job) -> None:
    from glaive.dataset.cleanup import clean_up
    from glaive.dataset.rows import with_retries

    given, opened = step.arguments, dataset.opened
    match step.step:
        case "compact":
            with_retries(dataset, lambda at: _compact(at, given, job))
        case "optimize_indices":
            with_retries(dataset, lambda at: _optimize(at, given, job))
        case "expire_tags":
            root = root_store(opened.store, branch_of(opened.manifest))
            for name in given["tags"]:
                with suppress(RefNotFoundError):  # another process deleted it
                    delete_tag(root, name)
        case "vacuum":
            policy = _cleanup_policy(given["older_than_days"])
            clean_up(opened, policy, None, work=_cleanup_work(opened, job))


def _compact(
    opened: OpenedVersion, arguments: Mapping[str, Any], job: Job
) -> tuple[Manifest, object]:
    wanted = CompactionOptions.of(arguments, dict(opened.manifest.config))
    return compact(opened, wanted, lambda at, wanted: rewrite_useful(at, wanted, job.runner), job)


def _optimize(
    opened: OpenedVersion, arguments: Mapping[str, Any], job: Job
) -> tuple[Manifest, None]:
    from glaive.dataset.indexing.optimize import optimize_indices

    return optimize_indices(opened, job=job, **arguments) or opened.manifest, None


# --- ``dataset.optimize`` ---------------------------------------------------------------


class DatasetOptimizer:
    """Maintenance of a dataset; returned by ``dataset.optimize``."""

    __slots__ = ("_dataset",)

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset

    def __repr__(self) -> str:
        return f"DatasetOptimizer({self._dataset!r})"

    @shows(CompactionKeywords, CompactionOptions)
    def compact_files(
        self, *, progress: bool | None = None, **options: Unpack[CompactionKeywords]
    ) -> CompactionMetrics:
        """Merge small adjacent fragments and remove deleted rows.

        :class:`glaive.dataset.compaction_tasks.CompactionOptions` explains the options. Entries
        ``lance.compaction.*`` of the table's configuration set their defaults. ``progress`` shows
        the number of rewritten rows on a line of the terminal.

        Returns
        -------
        CompactionMetrics
            Fragments and files removed and added. Without fragments to merge, all are 0 and the
            version stays.

        Raises
        ------
        CommitConflictError, CommitContentionError
            Another writer changed one of the fragments meanwhile. The dataset is unchanged.
        OptionError
            An option is unknown or has an invalid value.

        Notes
        -----
        Rows keep their order, and stable row ids. Indices that store row addresses are rebuilt.
        With ``defer_index_remap`` glaive stores a remapping table instead, which readers apply.
        Exception: the table would have more than 2^27 rows of this compaction, or 2^29 in total.

        A second run with the same options finds nothing to merge, unless ``max_source_*`` limit a
        run or another writer commits meanwhile. Each pass makes two versions. A second pass runs if
        the files of the first pass can be merged again.
        """
        with showing(progress, "compact"):
            return Compaction.execute(self._dataset, options)

    @shows(MaintenanceKeywords, MaintenanceOptions)
    def maintain(
        self, *, dry_run: bool = False, **options: Unpack[MaintenanceKeywords]
    ) -> list[MaintenanceStep]:
        """Compact, update indices, delete old tags and versions, each only where it pays.

        Parameters
        ----------
        dry_run
            Only return the steps that pay. The table stays as it is.

        Returns
        -------
        list of MaintenanceStep
            ``step``, ``reason`` and ``arguments`` of each step that was run, in this order.

        Raises
        ------
        OptionError
            An option is unknown or has an invalid value.
        CommitContentionError
            Others changed the same rows at every attempt. Earlier steps are done.
        """
        refuse_unknown("maintain", options, list(MaintenanceKeywords.__annotations__))
        return maintain(self._dataset, MaintenanceOptions(**options), dry_run=dry_run)

    def enable_auto_cleanup(self, auto_cleanup_config: Mapping[str, int]) -> None:
        """Clean up old versions automatically.

        ``auto_cleanup_config`` has ``interval``, in commits, and ``older_than_seconds``.

        Raises
        ------
        OptionError
            A key is unknown, or a value is not an integer.
        """
        config = WriteOptions(auto_cleanup=auto_cleanup_config).cleanup_config()
        if OLDER_THAN in config:  # pylance writes seconds here, but units in write_dataset
            config[OLDER_THAN] = f"{auto_cleanup_config['older_than_seconds']}s"
        self._dataset.move_to(set_entries(self._dataset.opened, "config", config))

    def disable_auto_cleanup(self) -> None:
        """Turn automatic clean-up off."""
        keys = dict.fromkeys((INTERVAL, OLDER_THAN))
        self._dataset.move_to(set_entries(self._dataset.opened, "config", keys))

    def optimize_indices(
        self,
        *,
        num_indices_to_merge: int | None = None,
        index_names: Sequence[str] | None = None,
        retrain: bool = False,
        progress: bool | None = None,
    ) -> None:
        """Index new rows, and merge segments.

        Parameters
        ----------
        num_indices_to_merge
            Number of newest segments of each index to merge with the new rows; with 0 the new rows
            get their own segment. Default: segments of about the size of the new rows or smaller,
            so the cost follows the new rows. It also merges segments with at most 4,096 rows
            including the new rows.
        index_names
            Indices to update; default: all that glaive knows.
        retrain
            Build the indices again, from all rows.
        progress
            Show progress on a line of the terminal.

        Raises
        ------
        IndexNotFoundError, OptionError
            A name or a number is wrong.
        CommitConflictError
            Another writer rewrote the fragments meanwhile. The dataset is unchanged.
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
