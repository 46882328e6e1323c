"""Bring indices up to date: index rows that were added, merge segments.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from glaive.dataclass import dataclass
from glaive.dataset.indexing.create import build_segments
from glaive.dataset.indexing.describe import missing_index
from glaive.dataset.indexing.task import IndexTask, extend_index, indexed_path, merge_segments
from glaive.dataset.lance_operation import Index
from glaive.dataset.tasks import LOCAL, Job, commit_operation, cut_evenly, opened_at
from glaive.errors import CorruptFileError, LimitError, OptionError, UnsupportedFeatureError
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.index.protocol import IndexKind
from glaive.index.segment import Segment
from glaive.options import integer
from glaive.scan.indices import IndexedSegment, SnapshotIndices
from glaive.table.index_coverage import (
    REUSE_INDEX,
    FragmentPositions,
    after_remapping,
    covered_fragments,
    holds_addresses,
)
from glaive.table.operations.create_index import CreateIndex
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- The segments that each index of a version has, and the rows outside of them --------


@dataclass(frozen=True, slots=True, eq=False)
class StoredSegment:
    """A segment, and its coverage of a version.

    Parameters
    ----------
    entry
        Manifest entry of the segment.
    fragments
        Ids of the covered fragments.
    rows
        Number of live rows in these fragments.
    """

    entry: table_pb2.IndexMetadata
    fragments: frozenset[int]
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class IndexSegments:
    """The segments of an index of a known kind, and the fragments that are missing in it.

    Parameters
    ----------
    name
        Name of the index.
    kind
        Kind of its segments.
    segments
        At least one segment, oldest first.
    missing
        Ids of the fragments outside of all segments, in the order of the version.
    missing_rows
        Number of live rows of each of these fragments.
    """

    name: str
    kind: IndexKind
    segments: tuple[StoredSegment, ...]
    missing: tuple[int, ...]
    missing_rows: Int64s

    @property
    def model(self) -> StoredSegment:
        """The model for new segments: the first segment with rows of this version."""
        return next((one for one in self.segments if one.fragments), self.segments[0])

    @property
    def outdated(self) -> bool:
        """Whether glaive must rewrite all segments when it writes one."""
        return any(self.kind.is_outdated(one.entry) for one in self.segments)

    def newest(self, count: int) -> tuple[table_pb2.IndexMetadata, ...]:
        """Return the entries of the ``count`` newest segments, oldest first."""
        return tuple(one.entry for one in self.segments[len(self.segments) - count :])


def index_segments(
    dataset: OpenedVersion, names: Iterable[str] | None = None
) -> dict[str, IndexSegments]:
    """Return the indices of a version, by name; read index files only to find a missing kind.

    Parameters
    ----------
    names
        Names of indices; default: all indices of known kinds.

    Raises
    ------
    IndexNotFoundError
        An index is missing.
    CorruptFileError
        Two segments share a folder: their files would be merged for each of them. Or segments of
        one name index several columns or have several kinds.
    OptionError
        ``names`` is a single string.
    """
    if isinstance(names, str):
        raise OptionError(f"index_names: expected a list of names, found {names!r}")
    manifest, entries = dataset.manifest, dataset.manifest.indices
    known = SnapshotIndices.of(dataset.snapshot)
    if names is not None:  # each of thousands of tasks asks for one index of thousands
        names = list(dict.fromkeys(names))
        wanted = {*names, REUSE_INDEX}
        entries = [entry for entry in entries if entry.name in wanted]
    ids, rows = manifest.fragment_ids, dataset.snapshot.live_counts
    positions = FragmentPositions(ids)
    by_name: dict[str, tuple[IndexKind, list[StoredSegment]]] = {}
    absent: dict[str, Flags] = {}
    owners: dict[bytes, str] = {}
    for entry in after_remapping(entries):
        kind = None if entry.name == REUSE_INDEX else known.kind_of(entry)
        if kind is None:
            continue
        if entry.uuid.uuid in owners:
            raise CorruptFileError(
                f"folder of a segment of index {entry.name!r}",
                expected="its own folder",
                found=f"the folder of index {owners[entry.uuid.uuid]!r}",
                where=manifest.where,
            )
        owners[entry.uuid.uuid] = entry.name
        covered = covered_fragments(entry) or frozenset()
        present = positions.of(covered)
        fragments = frozenset(ids[present].tolist())
        first_kind, segments = by_name.setdefault(entry.name, (kind, []))
        if kind is not first_kind or (segments and segments[0].entry.fields != entry.fields):
            raise CorruptFileError(
                f"segments of index {entry.name!r}",
                expected="segments of one kind, over one column; drop the index",
                found="others",
                where=manifest.where,
            )
        segments.append(StoredSegment(entry, fragments, int(rows[present].sum())))
        absent.setdefault(entry.name, np.ones(len(ids), np.bool_))[present] = False
    found = {}
    for name in by_name if names is None else names:
        if name not in by_name:
            raise missing_index(manifest, name)
        kind, segments = by_name[name]
        missing = tuple(ids[absent[name]].tolist())
        found[name] = IndexSegments(name, kind, tuple(segments), missing, rows[absent[name]])
    return found


# --- Tasks that bring an index up to date: merge its segments, or add one for new rows --
# Tasks name only the index and the version. They find the uncovered fragments again where they
# run, so tasks stay small however many fragments exist.


@dataclass(frozen=True, slots=True)
class UpdatedIndex:
    """A segment that was written for a later commit.

    Parameters
    ----------
    segment
        The new segment; None if the segments could not be merged.
    merged
        Number of the newest segments that it replaces.
    limit
        The limit that kept glaive from merging more, or empty.
    """

    segment: Index | None
    merged: int = 0
    limit: str = ""


@dataclass(frozen=True, slots=True)
class _UpdateTask:
    """Fields that both tasks have; can be pickled.

    Parameters
    ----------
    read_version
        The version to read.
    name
        Name of the index.
    """

    read_version: int
    name: str

    def _opened(self, dataset: OpenDataset) -> tuple[OpenedVersion, IndexSegments]:
        opened = opened_at(dataset, self.read_version)
        return opened, index_segments(opened, [self.name])[self.name]


@dataclass(frozen=True, slots=True)
class MergeTask(_UpdateTask):
    """Merge the newest segments of an index with all new rows.

    Parameters
    ----------
    count
        Number of segments to merge.
    fewest
        Minimum number. If merging ``count`` segments fails, glaive tries fewer, down to this.
    """

    count: int
    fewest: int

    def execute(self, dataset: OpenDataset) -> UpdatedIndex:
        """Write the segment, if the segments can be merged.

        Raises
        ------
        VersionNotFoundError
            The version was cleaned up.
        CorruptFileError, DataFileMissingError, NotLanceError
            A file of a segment is damaged or missing.
        """
        opened, index = self._opened(dataset)
        limit = ""
        for count in _counts_to_try(self.count, self.fewest):
            try:
                entry = merge_segments(opened, index.newest(count), index.missing)
            except LimitError as error:
                limit = limit or str(error)
                continue
            except UnsupportedFeatureError:  # segments have own models, or zones
                continue
            return UpdatedIndex(Index.from_wire(entry), count, limit)
        return UpdatedIndex(None, limit=limit)


def _counts_to_try(count: int, fewest: int) -> Iterator[int]:
    """Yield numbers of segments to try: fewer by one, or by an eighth if there are many.

    So all attempts together read about eight times as much as the first attempt.
    """
    while count > fewest:
        yield count
        count = max(fewest, count - max(1, count // 8))
    if count == fewest:
        yield count


@dataclass(frozen=True, slots=True)
class ExtendTask(_UpdateTask):
    """Add a segment for some of the missing fragments.

    Parameters
    ----------
    start, stop
        Positions among these fragments: the first, and the position after the last.
    """

    start: int
    stop: int

    def execute(self, dataset: OpenDataset) -> UpdatedIndex:
        """Write the segment with the model of the other segments, unless their layout is old.

        Raises
        ------
        VersionNotFoundError
            The version was cleaned up.
        CorruptFileError, DataFileMissingError, NotLanceError
            A file is damaged or missing.
        """
        opened, index = self._opened(dataset)
        fragments = index.missing[self.start : self.stop]
        try:
            entry = extend_index(opened, index.model.entry, fragments)
        except UnsupportedFeatureError:
            return UpdatedIndex(None)
        return UpdatedIndex(Index.from_wire(entry))


_logger = logging.getLogger(__name__)

_MAX_MERGED_RATIO = 8
"""A segment is merged with new rows if it has at most this multiple of their number. So an index
keeps few segments, and each row is rewritten a few times while the index grows.
"""

_SMALL_ROWS = 4096
"""Maximum rows, with new rows, of segments that are merged: searching two segments costs more.
Exception: glaive keeps graphs apart, which would have to be built again.
"""

_TASK_ROWS = 1 << 16
"""New rows for which another task is worth its segment: each segment slows down searches."""


def optimize_indices(
    dataset: OpenedVersion,
    *,
    num_indices_to_merge: int | None = None,
    index_names: Sequence[str] | None = None,
    retrain: bool = False,
    segments: int | None = None,
    job: Job = LOCAL,
) -> Manifest | None:
    """Index new rows, and merge segments; one version for all indices.

    Parameters
    ----------
    num_indices_to_merge
        Number of newest segments to merge with the new rows; 0 only adds segments. Default:
        segments of about the size of the new rows or smaller.
    index_names
        Indices to update; default: all that glaive knows.
    retrain
        Build the indices again, from all rows.
    segments
        Maximum number of segments to add per index, or of all segments with ``retrain``. Default:
        by the number of rows and of tasks that run at a time.
    job
        Runs the tasks. One task merges the segments of an index.

    Returns
    -------
    Manifest or None
        None if all indices were up to date.

    Notes
    -----
    If a limit of this process keeps segments from being merged, glaive logs a warning. It names
    the index, the alternative that glaive took, and the limit.

    Raises
    ------
    IndexNotFoundError
        An index is missing.
    OptionError
        A number is wrong.
    CommitConflictError
        Another writer rewrote the fragments meanwhile.
    """
    count = num_indices_to_merge
    for name, minimum, given in (("num_indices_to_merge", 0, count), ("segments", 1, segments)):
        if given is not None:
            integer(minimum).check(name, given)
    tasks: list[MergeTask | ExtendTask] = []
    again: list[IndexSegments] = []
    indices = index_segments(dataset, index_names)
    for index in indices.values():
        if not (retrain or index.missing or _to_merge(index.segments, 0, count)):
            continue
        is_empty = not any(segment.fragments for segment in index.segments)
        if retrain or is_empty or _stores_ids(dataset, index):
            again.append(index)
        else:
            merge = _merge(dataset, index, count)
            tasks += [merge] if merge else _extensions(dataset, index, segments, job)
    new: list[table_pb2.IndexMetadata] = []
    removed: list[table_pb2.IndexMetadata] = []
    while tasks:
        done, tasks = zip(tasks, job.runner.run(dataset, tasks), strict=True), []
        for task, made in done:
            index = indices[task.name]
            if made.segment is not None:
                instead = f"{made.merged} of its segments were merged"
                new.append(made.segment.to_wire())
                removed += index.newest(made.merged)
            elif count is not None or index.outdated or isinstance(task, ExtendTask):
                instead = "it is built again from all rows"
                again += [] if index in again else [index]
            else:
                instead = "it has a segment more"
                tasks += _extensions(dataset, index, segments, job)
            if made.limit:
                _logger.warning("index %a: %s, because %s", index.name, instead, _ascii(made.limit))
    for index in again:
        try:
            rebuild = _rebuild_task(dataset, index)
        except UnsupportedFeatureError as error:
            _logger.warning("index %a stays as it is: %s", index.name, _ascii(str(error)))
            continue
        built = build_segments(dataset, job.runner, rebuild, segments)
        new += [segment.to_wire() for segment in built]
        removed += index.newest(len(index.segments))
    if not new:
        return None
    counts = {"num_segments_added": len(new), "num_segments_removed": len(removed)}
    operation = CreateIndex.of(dataset.manifest.schema, new, removed)
    return commit_operation(dataset, operation, properties=job.recording(**counts), once=job.once)


def _merge(dataset: OpenedVersion, index: IndexSegments, count: int | None) -> MergeTask | None:
    """Return the task that merges segments of an index, or None."""
    small_rows = 0 if _has_graphs(index) else _SMALL_ROWS
    merged = _to_merge(index.segments, int(index.missing_rows.sum()), count, small_rows)
    minimum = 1 if index.missing else 2
    fewest = minimum if count is None else merged
    known = SnapshotIndices.of(dataset.snapshot)
    if index.outdated or any(
        known.has_moved_rows(IndexedSegment(old.entry, index.kind, old.fragments), index.missing)
        for old in index.segments
    ):
        # pylance would also find these rows by their old values.
        merged = fewest = len(index.segments)
    if merged < minimum:
        return None
    return MergeTask(dataset.manifest.version, index.name, merged, fewest)


def _ascii(message: str) -> str:
    """Escape a message to one line of a log: names in it may have any characters."""
    return ascii(message)[1:-1]


def _extensions(
    dataset: OpenedVersion, index: IndexSegments, segments: int | None, job: Job
) -> list[MergeTask | ExtendTask]:
    """Return tasks that add segments for the new rows."""
    parts = segments or math.ceil(int(index.missing_rows.sum()) / _TASK_ROWS)
    if segments is None and parts > 1:  # reading the parallelism may take a query
        parts = min(parts, job.runner.parallelism)
    cuts = pairwise(cut_evenly(index.missing_rows, parts))
    version = dataset.manifest.version
    return [ExtendTask(version, index.name, start, stop) for start, stop in cuts]


def _rebuild_task(dataset: OpenedVersion, index: IndexSegments) -> IndexTask:
    """Return the task that builds an index like this one from all rows."""
    first, kind, manifest = index.model.entry, index.kind, dataset.manifest
    segment = Segment.of(dataset.store, manifest, first)
    parameters = dict(kind.parameters(segment))
    if kind.name == "vector":
        from glaive.index.vector.opened import SearchDefaults

        known = SearchDefaults.of(first.index_details.value, segment.where)
        parameters["recall"] = None if known is None else known.recall
    path = indexed_path(manifest, first)
    return IndexTask(manifest.version, path, kind.name, index.name, None, parameters)


def _stores_ids(dataset: OpenedVersion, index: IndexSegments) -> bool:
    """Return whether a segment stores row ids, as Lance up to 13 wrote, instead of addresses."""
    stable = dataset.manifest.uses(Feature.STABLE_ROW_IDS) and index.kind.stores_addresses
    return stable and not all(holds_addresses(one.entry) for one in index.segments)


def _has_graphs(index: IndexSegments) -> bool:
    return index.kind.name == "vector" and "hnsw" in index.kind.details(index.segments[0].entry)


def _to_merge(
    segments: Sequence[StoredSegment], added: int, count: int | None, small_rows: int = 0
) -> int:
    """Return how many of the newest segments to rewrite."""
    if count is not None:
        merged = min(count, len(segments))
        return merged if added or merged > 1 else 0
    merged, rows = 0, added
    for segment in reversed(segments):
        small = added and rows + segment.rows <= small_rows
        if segment.rows > _MAX_MERGED_RATIO * rows and segment.fragments and not small:
            break
        rows += segment.rows
        merged += 1
    return merged if added or merged > 1 else 0
