"""Merge the rows of an ingest into a dataset: row by row here, or in tasks on what tasks wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from glaive.arrow.python_values import python_values
from glaive.arrow.views import cut_views
from glaive.dataclass import dataclass
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.merging.clauses import primary_key
from glaive.dataset.merging.inserted_keys import InsertedKeys
from glaive.dataset.merging.matches import ambiguous_source
from glaive.dataset.merging.merge_insert import key_names
from glaive.dataset.rows.retry import with_retries
from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.rows.selected_rows import delete_in_tasks
from glaive.dataset.tasks import JOB, FragmentRange, Job, TaskRunner
from glaive.dataset.writing.commit import commit_plan
from glaive.dataset.writing.conform import conform
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.rolling import discard_fragments
from glaive.errors import (
    CommitConflictError,
    DataFileMissingError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import packed_fragments, unpacked_fragments
from glaive.ingestion.commit import committing, find_made, put_aside, version_of
from glaive.ingestion.ingested import IngestedPieces
from glaive.ingestion.merge_tasks import (
    CompletedFragment,
    CompleteTask,
    MatchTask,
    MergeDivision,
    StagedBlock,
    StagedMatches,
    StagedMerge,
)
from glaive.ingestion.plan import IngestPlan
from glaive.ingestion.rejects import Rejects
from glaive.scan.addresses import find_rows
from glaive.scan.take import take_physical
from glaive.table.load import load_again
from glaive.table.named_jobs import made_version
from glaive.table.operations.update import Update

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.version import OpenedVersion
    from glaive.format.fields import LanceSchema
    from glaive.format.manifest import Manifest

__all__ = ["MergeRunner", "create_empty", "key_names", "merge_here", "merge_staged"]


class MergeRunner(TaskRunner, Protocol):
    """Runs the tasks of a merge, and says how it is divided into them."""

    @property
    def division(self) -> MergeDivision:
        """How much is one task."""


def create_empty(plan: IngestPlan) -> None:
    """Create the dataset if there was none.

    Without the id of the job: one that is stopped here has not done its work.
    """
    if plan.write.read_version == 0:
        options = replace(plan.write.options, transaction_properties={})
        commit_plan(replace(plan.write, options=options), [])


def merge_here(
    plan: IngestPlan, dataset: LanceDataset, schema: pa.Schema, keys: Sequence[str]
) -> tuple[int, IngestedPieces]:
    """Update and insert the rows of all tasks, which this process reads.

    Returns
    -------
    tuple
        Rows that were inserted or updated, and what became of the others.
    """
    rejects = Rejects(keep=plan.bad_records is not None, job_id=plan.job_id)

    def batches() -> Iterator[pa.RecordBatch]:
        for task in plan.tasks:
            for rows in chain.from_iterable(map(cut_views, task.rows(rejects))):
                fitted = conform(rows, schema)
                yield from fitted.to_batches() if isinstance(fitted, pa.Table) else [fitted]
        if plan.bad_records is not None:  # before the rows: see commit_ingest
            bad = write_fragments(plan.bad_records, rejects.batches()) if len(rejects) else ()
            put_aside(plan, bad)

    merge = dataset.merge_insert(keys).when_matched_update_all().when_not_matched_insert_all()
    merge.transaction_properties(plan.write.options.transaction_properties)
    try:
        with committing(plan, dataset.version):
            counts = merge.execute(pa.RecordBatchReader.from_batches(schema, batches()))
    except DataFileMissingError as error:
        raise _removed(plan, dataset.uri, retryable=False) from error
    rows = counts["num_inserted_rows"] + counts["num_updated_rows"]
    return rows, IngestedPieces((), (), len(rejects), rejects.dropped)


def merge_staged(
    plan: IngestPlan,
    dataset: LanceDataset,
    fragments: Sequence[Fragment],
    keys: tuple[str, ...],
    runner: MergeRunner,
) -> int | None:
    """Update and insert the rows of fragments that tasks wrote.

    Nothing but names of files and sets of rows reaches this process. Files of fragments that were
    written again are removed.

    Returns
    -------
    int or None
        The number of rows; ``None`` if another run of the job was first, whose version the dataset
        is moved to.

    Raises
    ------
    SchemaError
        Several rows of the source match the same row of the dataset.
    CommitConflictError
        The columns of the dataset changed since the fragments were written; or files were removed
        while tasks read them, and no other run of the job has made a version.
    """
    properties = plan.write.options.transaction_properties
    job = Job(runner=runner, properties=properties, once=JOB)
    first = dataset.version

    def change(opened: OpenedVersion) -> tuple[Manifest, int | None]:
        # A commit looks at later versions only: before a retry, another run may have been first.
        journal = plan.journal if opened.manifest.version > first else None
        if journal and find_made(journal, "rows", opened.store, opened.manifest) is not None:
            return opened.manifest, None
        try:
            merge = _Merge.of(opened, plan, fragments, keys, runner)
            operation = merge.operation(job)
        except (DataFileMissingError, VersionNotFoundError) as error:
            # Once there is a version, the run that made it removes files that both have read.
            newest = opened.at_latest()
            if plan.journal is not None and made_version(newest.manifest, plan.job_id) is not None:
                return newest.manifest, None
            cleaned = _is_removed(opened)
            if not cleaned and plan.journal is None:
                discard_fragments(plan.write, fragments)
            raise _removed(plan, opened.uri, retryable=cleaned) from error
        except BaseException:
            # No version has them yet; those of a job with an id stay for its next run.
            if plan.journal is None:
                discard_fragments(plan.write, fragments)
            raise
        recorded = job.recording(
            num_inserted_rows=merge.inserted, num_updated_rows=merge.updated, num_deleted_rows=0
        )
        with committing(plan, opened.manifest.version):
            manifest = commit_operation(opened, operation, properties=recorded, once=job.once)
        mine = manifest.version == version_of(plan, manifest)
        if mine and any(done.written is not None for done in merge.completed.values()):
            unused = _unused(fragments, opened.manifest, manifest)
            # A journal, which a stranger may have written, may name files behind a link.
            discard_fragments(plan.write, unused, own=plan.journal is None)
        return manifest, merge.inserted + merge.updated

    return with_retries(dataset, change)


def _is_removed(opened: OpenedVersion) -> bool:
    """Whether a version was cleaned up since it was opened. One request."""
    try:
        load_again(opened.store, opened.manifest.version, opened.manifest.scheme)
    except ObjectNotFoundError:
        return True
    return False


def _removed(plan: IngestPlan, uri: str, *, retryable: bool) -> CommitConflictError:
    """Files that a merge has to read are not there any more."""
    return CommitConflictError(
        f"job {plan.job_id} on {uri}: files were removed while the ingest read them, by a clean-up "
        "or by another run of the job. No row was changed. Run it again: it reads the newest "
        "version, and writes again what is missing",
        retryable=retryable,
    )


@dataclass(slots=True)
class _Merge:
    """One attempt to merge fragments into a version.

    Parameters
    ----------
    old, new
        Rows with the same keys: of the version, and of the fragments by their numbers.
    pairs
        How many pairs there are, by numbers of fragments.
    targets
        Where rows of each fragment have matches, by its number.
    completed
        What became of fragments that could not stay as they are.
    """

    opened: OpenedVersion
    shared: StagedMerge
    fragments: Sequence[Fragment]
    runner: MergeRunner
    old: RowsByFragment = field(default_factory=RowsByFragment)
    new: RowsByFragment = field(default_factory=RowsByFragment)
    pairs: dict[int, int] = field(default_factory=dict)
    targets: dict[int, list[FragmentRange]] = field(default_factory=dict)
    completed: dict[int, CompletedFragment] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        opened: OpenedVersion,
        plan: IngestPlan,
        fragments: Sequence[Fragment],
        keys: tuple[str, ...],
        runner: MergeRunner,
    ) -> _Merge:
        """Find which rows match, and complete the fragments."""
        schema = opened.manifest.schema
        if _columns(schema) != _columns(plan.write.schema):
            raise CommitConflictError(
                f"the columns of {opened.uri} changed while the files were read. Run the ingest "
                "again: nothing was changed",
                retryable=False,
            )
        is_declared = set(primary_key(schema)) == set(keys)
        shared = StagedMerge(plan.write, keys, is_declared, runner.division)
        merge = cls(opened, shared, fragments, runner)
        merge.match()
        merge.complete()
        return merge

    @property
    def updated(self) -> int:
        """Rows that are written in place of others."""
        return sum(self.pairs.values())

    @property
    def inserted(self) -> int:
        """Rows of the source that match none."""
        return sum(fragment.physical_rows for fragment in self.fragments) - self.new.count

    def match(self) -> None:
        """Look the keys of each block up in each part of the dataset."""
        division = self.shared.division
        blocks = StagedBlock.divided(self.fragments, division.block_rows)
        parts = _joined(self.runner.parts(self.opened), division.match_tasks // max(1, len(blocks)))
        tasks = [MatchTask(part, block) for block in blocks for part in parts]
        results = self.runner.run(self.opened, tasks, self.shared) if tasks else []
        for task, found in zip(tasks, results, strict=True):
            self._add(task, found)

    def _add(self, task: MatchTask, found: StagedMatches) -> None:
        if found.repeated is not None:
            raise ambiguous_source(found.repeated)
        common = self.old.first_common(found.old)
        if common is not None:
            raise ambiguous_source(self._key_at(common))
        self.old.add_all(found.old)
        self.new.add_all(found.new)
        for number, count in found.pairs.items():
            self.pairs[number] = self.pairs.get(number, 0) + count
            self.targets.setdefault(number, []).append(task.target)

    def _key_at(self, address: int) -> str:
        """The key of a row of the dataset in words, as in messages of other merges."""
        found = find_rows(self.opened.snapshot, "addresses", [address])
        view = self.opened.views.take(self.shared.keys)
        table = take_physical(view, found.fragment, found.row)
        return ", ".join(
            f"{name} = {python_values(column.combine_chunks())[0]!r}"
            for name, column in zip(table.column_names, table.columns, strict=True)
        )

    def complete(self) -> None:
        """Write fragments again whose rows keep ids, or replace several; collect inserted keys."""
        stable = self.opened.manifest.uses(Feature.STABLE_ROW_IDS)
        rewritten = {
            number
            for number, count in self.pairs.items()
            if stable or count > self.new.count_of(number)
        }
        numbers = range(len(self.fragments)) if self.shared.primary_key else sorted(rewritten)
        tasks = []
        for number in numbers:
            matched = RowsByFragment()
            if self.new.count_of(number):
                matched.add_offsets(number, self.new[number])
            block = StagedBlock(number, packed_fragments([self.fragments[number]]))
            targets = tuple(self.targets.get(number, ()))
            tasks.append(CompleteTask(block, matched, targets, number in rewritten))
        results = self.runner.run(self.opened, tasks, self.shared) if tasks else []
        self.completed = dict(zip(numbers, results, strict=True))

    def operation(self, job: Job) -> Update:
        """Delete the old rows, and add the new ones."""
        deleted = delete_in_tasks(self.opened, self.old, job)
        keys: InsertedKeys | None = None
        new: list[Fragment] = []
        for number, fragment in enumerate(self.fragments):
            done = self.completed.get(number)
            if done is None or done.written is None:
                new.append(fragment)
            else:
                new += unpacked_fragments(done.written, "the result of a task")
            if done is not None and done.keys is not None:
                if keys is None:
                    keys = done.keys
                else:
                    keys.add_all(done.keys)
        schema = self.opened.manifest.schema
        return Update(
            removed=deleted.removed,
            updated=deleted.updated,
            new=tuple(new),
            fields_touched=tuple(sorted(entry.id for entry in schema.walk())),
            inserted_rows=None if keys is None else keys.message(),
            unfiltered_keys=keys is not None and keys.lack_filter,
            affected=deleted.affected,
        )


def _joined(parts: Sequence[FragmentRange], most: int) -> list[FragmentRange]:
    """Neighbouring fragments in at most so many parts, at least one if there are any."""
    count = min(len(parts), max(1, most))
    bounds = [len(parts) * at // count for at in range(count + 1)] if count else []
    return [replace(parts[start], stop=parts[stop - 1].stop) for start, stop in pairwise(bounds)]


def _columns(schema: LanceSchema) -> set[tuple[int, str, str, bool]]:
    """What two schemas share if files written by one fit the other."""
    return {(entry.id, entry.name, entry.logical_type, entry.nullable) for entry in schema.walk()}


def _unused(fragments: Sequence[Fragment], base: Manifest, made: Manifest) -> list[Fragment]:
    """Fragments that the version does not have; another run of the job may have made it."""
    positions = (made.fragment_ids > base.max_fragment_id).nonzero()[0].tolist()
    kept = {file.path for at in positions for file in made.fragment(at).files}
    return [
        fragment for fragment in fragments if not any(file.path in kept for file in fragment.files)
    ]
