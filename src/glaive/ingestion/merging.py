"""Merge the rows of an ingest into a dataset: tasks join what other tasks wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import join_column
from glaive.arrow.conditions import python_values
from glaive.dataclass import dataclass
from glaive.dataset.merging.rows import OldValues, relocating
from glaive.dataset.merging.source import (
    WINDOW_BYTES,
    InsertedKeys,
    Matches,
    SourceKeys,
    ambiguous_source,
    find_matches,
    primary_key,
)
from glaive.dataset.rows import (
    RelocatedIds,
    RowsByFragment,
    delete_in_tasks,
    with_retries,
    write_relocated,
)
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import JOB, FragmentRange, Job, TaskRunner, commit_operation
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.dataset.writing.fragments import discard_fragments
from glaive.dataset.writing.plan import WritePlan, staged_rows
from glaive.dataset.writing.rows import commit_plan
from glaive.errors import (
    CommitConflictError,
    DataFileMissingError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from glaive.format.field import quoted_name
from glaive.format.fragment import Fragment, packed_fragments, unpacked_fragments
from glaive.format.manifest import Feature, Manifest
from glaive.ingestion.plan import IngestPlan, Staged, committing, find_made, version_of
from glaive.ingestion.sources import in_groups
from glaive.scan.options import Meter
from glaive.scan.take import find_rows, take_physical
from glaive.table.load import load_again
from glaive.table.named_jobs import made_version
from glaive.table.operations.update import Update

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.format.fields import LanceSchema
    from glaive.types import Int64s


# --- Tasks of a merge from staged fragments: files that were written but not committed ---
#
# A row of the source replaces whole rows of the dataset. So the fragments become part of the
# dataset as they are, and only rows of the dataset with the same keys are deleted. In two cases
# a fragment is written again: its rows get the stable ids of the rows they replace, or a row
# replaces several rows.


@dataclass(frozen=True, slots=True)
class MergeDivision:
    """The size of a merge's tasks.

    Parameters
    ----------
    block_rows
        Rows of the source whose keys a task holds at a time, at about a hundred bytes each.
    match_tasks
        Approximate number of tasks that look up keys, each for one block and a part of the dataset.
    """

    block_rows: int = 1 << 20
    match_tasks: int = 4096


@dataclass(frozen=True, slots=True)
class StagedMerge:
    """Facts that the tasks of a merge share; can be pickled.

    Parameters
    ----------
    write
        Plan of the source's write.
    keys
        Names of the key columns.
    primary_key
        Whether the key columns are the primary key that the dataset declares.
    division
        Size of the tasks.
    unique
        Whether a row of the dataset may match only one row of the source.
    """

    write: WritePlan = field(repr=False)
    keys: tuple[str, ...]
    primary_key: bool
    division: MergeDivision
    unique: bool = True


@dataclass(frozen=True, slots=True)
class StagedBlock:
    """Neighbouring fragments of the source.

    Parameters
    ----------
    number
        Number of the first fragment among all fragments of the source.
    fragments
        The serialized fragments.
    """

    number: int
    fragments: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def divided(cls, fragments: Sequence[Fragment], block_rows: int) -> list[StagedBlock]:
        """Divide fragments into blocks of about ``block_rows`` rows, at least a fragment each."""
        groups = in_groups([fragment.physical_rows for fragment in fragments], block_rows)
        return [cls(group.start, packed_fragments(fragments[group])) for group in groups]

    def opened(self, target: OpenedVersion, shared: StagedMerge) -> OpenedVersion:
        """Open the rows as a version whose fragments have the ids 0, 1, …"""
        fragments = unpacked_fragments(self.fragments, "a task of the merge")
        staged = staged_rows(shared.write, fragments, target.manifest.wire.base_paths)
        return OpenedVersion.of(shared.write.store, staged.snapshot.manifest)


def _keys(source: OpenedVersion, shared: StagedMerge) -> Iterator[tuple[int, SourceKeys]]:
    """Yield the keys of a source, some rows at a time, with the first row's position."""
    quoted = list(map(quoted_name, shared.keys))
    count = shared.division.block_rows
    for start in range(0, source.snapshot.num_rows, count):
        rows = Scanner.of(source.views, columns=quoted, offset=start, limit=count).to_table()
        yield start, SourceKeys(shared.keys, [join_column(column) for column in rows.columns])


@dataclass(frozen=True, slots=True)
class StagedMatches:
    """Rows of a dataset and a source with the same keys.

    Parameters
    ----------
    old
        Rows of the dataset.
    new
        Rows of the source, by numbers of fragments.
    pairs
        Number of pairs of an old and a new row, by numbers of fragments.
    repeated
        The key of several source rows that match one row of the dataset, as a string; ``None`` if
        all are unique.
    """

    old: RowsByFragment
    new: RowsByFragment
    pairs: dict[int, int]
    repeated: str | None = None


@dataclass(frozen=True, slots=True)
class MatchTask:
    """Find the rows of some fragments that have a key of a block; can be pickled.

    Parameters
    ----------
    target
        Fragments of the dataset.
    block
        Part of the source.
    """

    target: FragmentRange
    block: StagedBlock

    def execute(self, dataset: OpenDataset, shared: StagedMerge) -> StagedMatches:
        """Look up the keys.

        Memory: about a hundred bytes for each of ``shared.division.block_rows`` keys.
        """
        opened = self.target.opened(dataset)
        ids = self.target.ids(opened)
        source = self.block.opened(opened, shared)
        starts = source.snapshot.row_starts
        found = StagedMatches(RowsByFragment(), RowsByFragment(), {})
        for start, keys in _keys(source, shared):
            matches = find_matches(opened, keys, Meter(), fragments=ids)
            if not len(matches.source):
                continue
            repeated = keys.repeated[matches.source] | found.old.overlap(matches.addresses)
            if shared.unique and repeated.any():
                text = keys.text(int(matches.source[repeated][0]))
                return StagedMatches(found.old, found.new, found.pairs, text)
            found.old.add(matches.addresses)
            rows = matches.source + start
            at = np.searchsorted(starts, rows, side="right") - 1
            number = at + self.block.number
            found.new.add((number << 32 | (rows - starts[at])).astype(np.uint64))
            for name, count in enumerate(np.bincount(at).tolist(), self.block.number):
                if count:
                    found.pairs[name] = found.pairs.get(name, 0) + count
        return found


@dataclass(frozen=True, slots=True)
class CompletedFragment:
    """The result of completing a fragment of the source.

    Parameters
    ----------
    written
        Serialized fragments that replace it; ``None`` if it stays.
    keys
        The keys that it inserts, if the merge is by the primary key.
    """

    written: tuple[bytes, ...] | None
    keys: InsertedKeys | None


@dataclass(frozen=True, slots=True)
class CompleteTask:
    """Complete a fragment of the source when its matching rows are known.

    Parameters
    ----------
    block
        The fragment.
    matched
        Its matching rows, by its number.
    targets
        Fragments of the dataset with the matches.
    rewrite
        Whether to write the fragment again.
    """

    block: StagedBlock
    matched: RowsByFragment
    targets: tuple[FragmentRange, ...]
    rewrite: bool

    def execute(self, dataset: OpenDataset, shared: StagedMerge) -> CompletedFragment:
        """Write new files, uncommitted, if the fragment has to change.

        Memory: as for :class:`MatchTask`, 24 bytes for each match, and a few windows of rows.
        """
        opened = self.targets[0].opened(dataset) if self.targets else dataset.opened
        source = self.block.opened(opened, shared)
        inserted = np.ones(source.snapshot.num_rows, np.bool_)
        if self.block.number in self.matched:
            inserted[self.matched[self.block.number]] = False
        keys = InsertedKeys.of(opened.manifest.schema, shared.keys) if shared.primary_key else None
        if keys is not None:
            for start, block in _keys(source, shared):
                mask: Any = pa.array(inserted[start : start + block.rows])
                keys.add([column.filter(mask) for column in block.columns])
        if not self.rewrite:
            return CompletedFragment(None, keys)
        written = self._written(opened, source, np.flatnonzero(inserted), shared)
        return CompletedFragment(packed_fragments(written), keys)

    def _written(
        self, opened: OpenedVersion, source: OpenedVersion, inserted: Int64s, shared: StagedMerge
    ) -> list[Fragment]:
        """Write the rows that replace others, with their ids, and then the inserted rows."""
        ids = RelocatedIds(kept=opened.manifest.uses(Feature.STABLE_ROW_IDS))
        values = OldValues(source, source.manifest.schema.names)
        step = max(1, WINDOW_BYTES // max(1, values.row_bytes))

        def parts() -> Iterator[pa.Table]:
            for start, keys in _keys(source, shared):
                changed = self._matches(opened, keys)
                ids.add(changed.ids)
                yield from taken(changed.source + start)
            yield from taken(inserted)

        def taken(rows: Int64s) -> Iterator[pa.Table]:
            for start in range(0, len(rows), step):  # a block is one fragment: its id is 0
                yield values.take(rows[start : start + step].astype(np.uint64))

        return write_relocated(opened, parts(), ids, shared.write.options)

    def _matches(self, opened: OpenedVersion, keys: SourceKeys) -> Matches:
        """Find the matching rows of the dataset, in the order of the source."""
        ids: list[int] = []
        for part in self.targets:
            at = part.positions(opened)
            ids += opened.manifest.fragment_ids[at.start : at.stop].tolist()
        found = find_matches(opened, keys, Meter(), fragments=tuple(ids))
        return found.in_order_of_source(keys.rows)


def create_empty(plan: IngestPlan) -> None:
    """Create the dataset if it is missing.

    This version lacks the job id, because a run that stops here is unfinished.
    """
    if plan.write.read_version == 0:
        options = replace(plan.write.options, transaction_properties={})
        commit_plan(replace(plan.write, options=options), [])


def merge_staged(
    plan: IngestPlan,
    dataset: LanceDataset,
    fragments: Sequence[Fragment],
    removed: Staged,
    keys: tuple[str, ...],
    runner: TaskRunner,
) -> int | None:
    """Update and insert the rows of fragments that tasks wrote; delete rows with removed keys.

    Only names of files and sets of rows reach this process. Files of fragments that were written
    again are removed.

    Returns
    -------
    int or None
        The number of rows. ``None`` if another run of the job was first; the dataset is then moved
        to the version of that run.

    Raises
    ------
    SchemaError
        Several rows of the source match the same row of the dataset.
    CommitConflictError
        The columns of the dataset changed since the fragments were written. Or files were removed
        while tasks read them, before any run of the job made a version.
    """
    properties = plan.write.options.transaction_properties
    job = Job(runner=runner, properties=properties, once=JOB)
    first = dataset.version

    def change(opened: OpenedVersion) -> tuple[Manifest, int | None]:
        # A commit compares later versions only: before a retry, another run may have been first.
        journal = plan.journal if opened.manifest.version > first else None
        if journal and find_made(journal, "rows", opened.store, opened.manifest) is not None:
            return opened.manifest, None
        try:
            merge = _Merge(opened, plan, fragments, removed, keys, runner)
            operation = merge.operation(job)
        except (DataFileMissingError, VersionNotFoundError) as error:
            # When a version exists, the run that made it removes files that both runs read.
            newest = opened.at_latest()
            if plan.journal is not None and made_version(newest.manifest, plan.job_id) is not None:
                return newest.manifest, None
            cleaned = _is_removed(opened)
            if not cleaned and plan.journal is None:
                discard_fragments(plan.write, fragments)
            raise _removed(plan, opened.uri, retryable=cleaned) from error
        except BaseException:
            # No version has the fragments yet. With a job id they stay for the job's next run.
            if plan.journal is None:
                discard_fragments(plan.write, fragments)
            raise
        recorded = job.recording(
            num_inserted_rows=merge.inserted,
            num_updated_rows=merge.updated,
            num_deleted_rows=merge.gone.count - merge.old.count,
        )
        with committing(plan, opened.manifest.version):
            manifest = commit_operation(opened, operation, properties=recorded, once=job.once)
        mine = manifest.version == version_of(plan, manifest)
        if mine and any(done.written is not None for done in merge.completed.values()):
            unused = _unused(fragments, opened.manifest, manifest)
            # The journal may be a stranger's, with names of files that are reached through a link.
            discard_fragments(plan.write, unused, own=plan.journal is None)
        return manifest, merge.inserted + merge.updated

    return with_retries(dataset, change)


def _is_removed(opened: OpenedVersion) -> bool:
    """Return whether a version was cleaned up since it was opened, with one request."""
    try:
        load_again(opened.store, opened.manifest.version, opened.manifest.scheme)
    except ObjectNotFoundError:
        return True
    return False


def _removed(plan: IngestPlan, uri: str, *, retryable: bool) -> CommitConflictError:
    """Return the error for files that a merge needs and that were removed."""
    return CommitConflictError(
        f"job {plan.job_id} on {uri}: files were removed while the ingest read them, by a clean-up "
        "or by another run of the job. No row was changed. Run it again: it reads the newest "
        "version, and writes again what is missing",
        retryable=retryable,
    )


class _Merge:
    """One attempt to merge fragments into a version.

    Parameters
    ----------
    gone
        Rows of the version that the merge deletes: replaced ones, and rows with removed keys.
    old, new
        Rows with the same keys: rows of the version, and rows of the fragments by their numbers.
    pairs
        Number of pairs, by numbers of fragments.
    targets
        Fragments of the dataset that have matches for a fragment, by its number.
    completed
        Results of fragments that had to change.
    """

    def __init__(
        self,
        opened: OpenedVersion,
        plan: IngestPlan,
        fragments: Sequence[Fragment],
        removed: Staged,
        keys: tuple[str, ...],
        runner: TaskRunner,
    ) -> None:
        schema = opened.manifest.schema
        if _columns(schema) != _columns(plan.write.schema):
            raise CommitConflictError(
                f"the columns of {opened.uri} changed while the files were read. Run the ingest "
                "again: nothing was changed",
                retryable=False,
            )
        is_declared = set(primary_key(schema)) == set(keys)
        division = getattr(runner, "division", MergeDivision())
        self.shared = StagedMerge(plan.write, keys, is_declared, division)
        self.opened, self.fragments, self.runner = opened, fragments, runner
        self.old, self.new, self.gone = RowsByFragment(), RowsByFragment(), RowsByFragment()
        self.pairs: dict[int, int] = {}
        self.targets: dict[int, list[FragmentRange]] = {}
        self.completed: dict[int, CompletedFragment] = {}
        for task, found in self.matched(self.shared, fragments):
            self._add(task, found)
        self.gone.add_all(self.old)
        removal = replace(self.shared, write=removed.write, unique=False)
        for _, found in self.matched(removal, removed.fragments):
            self.gone.add_all(found.old)
        self.complete()

    @property
    def updated(self) -> int:
        """Number of rows written in place of others."""
        return sum(self.pairs.values())

    @property
    def inserted(self) -> int:
        """Number of unmatched rows of the source."""
        return sum(fragment.physical_rows for fragment in self.fragments) - self.new.count

    def matched(
        self, shared: StagedMerge, fragments: Sequence[Fragment]
    ) -> Iterator[tuple[MatchTask, StagedMatches]]:
        """Look up the keys of each block in each part of the dataset."""
        division = shared.division
        blocks = StagedBlock.divided(fragments, division.block_rows)
        parts = _joined(self.runner.parts(self.opened), division.match_tasks // max(1, len(blocks)))
        tasks = [MatchTask(part, block) for block in blocks for part in parts]
        results = self.runner.run(self.opened, tasks, shared) if tasks else []
        for task, found in zip(tasks, results, strict=True):
            if found.repeated is not None:
                raise ambiguous_source(found.repeated)
            yield task, found

    def _add(self, task: MatchTask, found: StagedMatches) -> None:
        common = self.old.first_common(found.old)
        if common is not None:
            raise ambiguous_source(self._key_at(common))
        self.old.add_all(found.old)
        self.new.add_all(found.new)
        for number, count in found.pairs.items():
            self.pairs[number] = self.pairs.get(number, 0) + count
            self.targets.setdefault(number, []).append(task.target)

    def _key_at(self, address: int) -> str:
        """Return the key of a row of the dataset as other merges print it in messages."""
        found = find_rows(self.opened.snapshot, "addresses", [address])
        view = self.opened.views.take(self.shared.keys)
        table = take_physical(view, found.fragment, found.row)
        return ", ".join(
            f"{name} = {python_values(column.combine_chunks())[0]!r}"
            for name, column in zip(table.column_names, table.columns, strict=True)
        )

    def complete(self) -> None:
        """Write fragments again whose rows keep ids or replace several; collect inserted keys."""
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
        """Return the operation that deletes the old rows and adds the new ones."""
        deleted = delete_in_tasks(self.opened, self.gone, job)
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
        return relocating(self.opened, deleted, tuple(new), keys)


def _joined(parts: Sequence[FragmentRange], max_parts: int) -> list[FragmentRange]:
    """Join neighbouring fragments to at most ``max_parts`` parts, but at least one if any exist."""
    count = min(len(parts), max(1, max_parts))
    bounds = [len(parts) * at // count for at in range(count + 1)] if count else []
    return [replace(parts[start], stop=parts[stop - 1].stop) for start, stop in pairwise(bounds)]


def _columns(schema: LanceSchema) -> set[tuple[int, str, str, bool]]:
    """Return facts about columns; if they are equal, files of one schema fit the other."""
    return {(entry.id, entry.name, entry.logical_type, entry.nullable) for entry in schema.walk()}


def _unused(fragments: Sequence[Fragment], base: Manifest, made: Manifest) -> list[Fragment]:
    """Return fragments that the version lacks: another run of the job may have made it."""
    positions = (made.fragment_ids > base.max_fragment_id).nonzero()[0].tolist()
    kept = {file.path for at in positions for file in made.fragment(at).files}
    return [
        fragment for fragment in fragments if not any(file.path in kept for file in fragment.files)
    ]
