"""``dataset.cleanup_old_versions`` and its explanation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Final, Generic, TypeVar

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.progress_line import current_line
from glaive.dataset.tasks import TaskRunner
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.dataset.versions.references import branch_of
from glaive.errors import OptionError
from glaive.events import DATASETS, FILES, anyone_listens, emit
from glaive.io.store import ObjectStore
from glaive.table.cleanup.old_versions import (
    CleanupPlan,
    CleanupPolicy,
    delete_planned,
    plan_cleanup,
)
from glaive.table.cleanup.parts import HERE, CleanupWork, Division, FoundFiles, Part
from glaive.table.load import check_not_replaced
from glaive.table.refs import list_branches, name_in, root_store
from glaive.table.versions import list_versions
from glaive.types import integer_of


@dataclass(frozen=True, slots=True)
class CleanupStats:
    """Deleted bytes, versions and files by kind, and what a clean-up kept.

    ``warnings`` list links that lead out of the root, and files that an active writer may own.
    They are logged, too.
    """

    bytes_removed: int
    old_versions: int
    data_files_removed: int
    transaction_files_removed: int
    index_files_removed: int
    deletion_files_removed: int
    failed_deletes: int = 0
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: CleanupPlan) -> CleanupStats:
        """The statistics of a plan."""
        return cls(
            bytes_removed=plan.size,
            old_versions=len(plan.versions),
            data_files_removed=plan.count("data"),
            transaction_files_removed=plan.count("transaction"),
            index_files_removed=plan.count("index"),
            deletion_files_removed=plan.count("deletion"),
            warnings=plan.warnings,
        )


@dataclass(frozen=True, slots=True)
class CleanupCandidateFile:
    """A file that a clean-up would delete; ``unverified`` if no version has ever used it."""

    path: str
    kind: str
    unverified: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleanupReferencedBranch:
    """A branch, and the version that is kept because it, or an ancestor, starts there.

    ``cleanup_candidate`` is False: other branches are not cleaned up.
    """

    name: str
    referenced_version: int
    cleanup_candidate: bool = False


@dataclass(frozen=True, slots=True)
class CleanupExplanation:
    """What a clean-up would delete; ``warnings`` list what it would keep, and why."""

    read_version: int
    stats: CleanupStats
    candidate_files: list[CleanupCandidateFile]
    candidate_files_truncated: bool
    candidate_file_limit: int
    referenced_branches: list[CleanupReferencedBranch] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def clean_up(
    dataset: OpenedVersion,
    policy: CleanupPolicy,
    delete_rate_limit: int | None,
    delete_concurrency: int | None = None,
    work: CleanupWork = HERE,
) -> CleanupStats:
    """Delete what the policy allows; ``work`` says where manifests are read, and files deleted."""
    for name, limit in (
        ("delete_rate_limit", delete_rate_limit),
        ("delete_concurrency", delete_concurrency),
    ):
        if limit is not None and (integer_of(limit) or 0) < 1:
            raise OptionError(f"{name} must be greater than 0, got {limit}; an integer is expected")
    emit(DATASETS, event="cleaning", uri=dataset.uri)
    plan = planned_cleanup(dataset, policy, work)
    line = current_line()

    if line is not None:
        line.move_to(0, len(plan.files))
    note = None if line is None else line.advance
    done = delete_planned(dataset.store, plan, rate=delete_rate_limit, note=note, work=work)
    for file in done.files if anyone_listens() else ():
        emit(FILES, mode="delete", type=file.kind, path=file.path)
    return CleanupStats.of(done)


def explain(
    dataset: OpenedVersion, policy: CleanupPolicy, *, include_files: bool, max_files: int
) -> CleanupExplanation:
    """What :func:`clean_up` would delete; deletes nothing."""
    plan = planned_cleanup(dataset, policy)
    listed = plan.files[:max_files] if include_files else ()
    return CleanupExplanation(
        read_version=plan.read_version,
        stats=CleanupStats.of(plan),
        candidate_files=[
            CleanupCandidateFile(file.path, file.kind, file.unverified, file.size)
            for file in listed
        ],
        candidate_files_truncated=include_files and len(listed) < len(plan.files),
        candidate_file_limit=max_files,
        referenced_branches=_referenced_branches(dataset, policy),
        warnings=list(plan.warnings),
    )


def _referenced_branches(
    dataset: OpenedVersion, policy: CleanupPolicy
) -> list[CleanupReferencedBranch]:
    """Branches that start at versions which the policy selects, the newest version first."""
    root = root_store(dataset.store, branch_of(dataset.manifest))
    own, branches = name_in(root, dataset.store, branch_of(dataset.manifest)), list_branches(root)
    mine = None if own is None else branches.get(own)
    chain = () if mine is None else mine.identifier
    versions = [location.version for location in list_versions(dataset.store)]
    kept = set(versions[len(versions) - (policy.retain_versions or 0) :])
    before = policy.before
    referenced = []
    for name, branch in branches.items():
        steps = branch.identifier[len(chain) :]
        if not steps or branch.identifier[: len(chain)] != chain:
            continue
        version = steps[0][0]
        selected = policy.versions is None or version in policy.versions
        if not selected or version in kept or version not in versions:
            continue
        if dataset.at(version).manifest.timestamp < before:
            referenced.append(CleanupReferencedBranch(name, version))
    return sorted(referenced, key=lambda branch: (-branch.referenced_version, branch.name))


def planned_cleanup(
    dataset: OpenedVersion, policy: CleanupPolicy, work: CleanupWork = HERE
) -> CleanupPlan:
    """What :func:`clean_up` would delete, file by file.

    Raises
    ------
    CommitConflictError
        Another dataset was made in the place of this one.
    """
    check_not_replaced(dataset.store, dataset.manifest)
    root = root_store(dataset.store, branch_of(dataset.manifest))
    return plan_cleanup(dataset.store, root, dataset.manifest, policy, work)


def age_of(option: str, given: object, unit: timedelta) -> timedelta:
    """The age that an option gives as a number of hours or days, for example.

    Raises
    ------
    OptionError
        It is negative, no number, or longer than any age.
    """
    most = timedelta.max // unit
    if isinstance(given, int | float) and 0 <= given <= most:
        return given * unit
    raise OptionError(f"{option}: expected a number from 0 to {most}, found {given!r:.80}")


# --- Parts of a clean-up as tasks, which run in this process or in those of a cluster ---

R = TypeVar("R")

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "path": pa.string(),
    "kind": pa.string(),
    "size_in_bytes": pa.int64(),
    "unverified": pa.bool_(),
}

FILES_SCHEMA: Final = pa.schema(_COLUMNS)
"""Columns of :class:`FileRows`."""

FILES_DDL: Final = "path string, kind string, size_in_bytes bigint, unverified boolean"
"""The same for Spark."""


@dataclass(frozen=True, slots=True)
class CleanupTask(Generic[R]):
    """A part of a clean-up; can be pickled."""

    part: Part[R]

    def execute(self, dataset: OpenDataset) -> R:
        """Do it in the branch that the dataset is at."""
        return self.part.run(dataset.opened.store)


@dataclass(frozen=True, slots=True)
class CleanupTasks:
    """Runs parts of a clean-up as tasks; a lone one in this process, where it costs less.

    Parameters
    ----------
    dataset
        The version that the clean-up keeps.
    runner
        Runs the tasks.
    division
        How much is one task.
    """

    dataset: OpenedVersion
    runner: TaskRunner
    division: Division | None = field(default_factory=Division)

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        """Run parts in any order; their results in the order of the parts."""
        if len(parts) < 2:
            return [part.run(store) for part in parts]
        return self.runner.run(self.dataset, [CleanupTask(part) for part in parts])


@dataclass(frozen=True, slots=True)
class FileRows:
    """Files of a plan as rows: they are unpacked where somebody reads them. Can be pickled."""

    found: FoundFiles

    def rows(self, dataset: OpenDataset | None = None) -> Iterator[pa.RecordBatch]:
        """One batch: ``path``, ``kind``, ``size_in_bytes``, ``unverified``."""
        files = self.found.files
        columns = [
            [file.path for file in files],
            [file.kind for file in files],
            [file.size for file in files],
            [file.unverified for file in files],
        ]
        yield pa.record_batch(columns, schema=FILES_SCHEMA)
