"""Bring indices up to date: index rows that were added, merge segments.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.indexing.indexed_path import indexed_path
from glaive.dataset.indexing.segment_tasks import build_segments, check_segments
from glaive.dataset.indexing.stored_segments import IndexSegments, StoredSegment, index_segments
from glaive.dataset.indexing.task import IndexTask
from glaive.dataset.indexing.update_tasks import ExtendTask, MergeTask
from glaive.dataset.tasks import LOCAL, Job, cut_evenly
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.index.segment import Segment
from glaive.scan.indices import IndexedSegment, SnapshotIndices
from glaive.table.index_coverage import holds_addresses
from glaive.table.operations.create_index import CreateIndex
from glaive.types import integer_of

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["optimize_indices"]

_logger = logging.getLogger(__name__)

_GROWTH = 8
"""A segment is merged with new rows if it has at most so many times their number.

So each row is written again a few times while an index grows, and an index has few segments.
"""

_SMALL_ROWS = 4096
"""Segments that have so few rows together with the new ones are merged: searching two costs more.

Not those of graphs, which would be built again.
"""

_TASK_ROWS = 1 << 16
"""New rows for which another task is worth its segment: searches look into each."""


def optimize_indices(
    dataset: OpenedVersion,
    *,
    num_indices_to_merge: int | None = None,
    index_names: Sequence[str] | None = None,
    retrain: bool = False,
    segments: int | None = None,
    job: Job = LOCAL,
) -> Manifest | None:
    """Add rows that are in no index, and merge segments; one version for all indices.

    Parameters
    ----------
    num_indices_to_merge
        Newest segments to merge with the new rows: 0 adds segments. By default those that have
        not many more rows than are added.
    index_names
        Indices to work on; by default all that glaive knows.
    retrain
        Build the indices again, from all rows.
    segments
        Segments, at most, that an index gets for new rows that are not merged with others, or with
        ``retrain`` for all; default: by their number and that of the tasks that run at a time.
    job
        Where segments are written. Merging those of an index is one task.

    Returns
    -------
    Manifest or None
        None if there was nothing to do.

    Notes
    -----
    Where a limit of this process keeps segments from being merged, a warning is logged that
    names the index, what was done instead, and the limit.

    Raises
    ------
    IndexNotFoundError
        There is no index of a name.
    OptionError
        A number is wrong.
    CommitConflictError
        Another writer rewrote the fragments since.
    """
    count = num_indices_to_merge
    if count is not None and (integer_of(count) is None or count < 0):
        raise OptionError(f"num_indices_to_merge: expected 0 or more, found {count!r}")
    check_segments(segments)
    tasks: list[MergeTask | ExtendTask] = []
    again: list[IndexSegments] = []
    indices = index_segments(dataset, index_names)
    for index in indices.values():
        if not (retrain or index.missing or _to_merge(index.segments, 0, count)):
            continue
        is_empty = not any(segment.fragments for segment in index.segments)
        if retrain or is_empty or _holds_ids(dataset, index):
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
                _logger.warning("index %a: %s, because %s", index.name, instead, _line(made.limit))
    for index in again:
        try:
            rebuild = _build_again(dataset, index)
        except UnsupportedFeatureError as error:
            _logger.warning("index %a stays as it is: %s", index.name, _line(str(error)))
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
    """The task that merges segments of an index; None if none is to be merged."""
    small_rows = 0 if _has_graphs(index) else _SMALL_ROWS
    merged = _to_merge(index.segments, int(index.missing_rows.sum()), count, small_rows)
    least = 1 if index.missing else 2
    fewest = least if count is None else merged
    known = SnapshotIndices.of(dataset.snapshot)
    if index.outdated or any(
        known.has_moved_rows(IndexedSegment(old.entry, index.kind, old.fragments), index.missing)
        for old in index.segments
    ):
        # Pylance would find these rows by their old values, too.
        merged = fewest = len(index.segments)
    if merged < least:
        return None
    return MergeTask(dataset.manifest.version, index.name, merged, fewest)


def _line(message: str) -> str:
    """A message as one line of a log: names in it may have any characters."""
    return ascii(message)[1:-1]


def _extensions(
    dataset: OpenedVersion, index: IndexSegments, segments: int | None, job: Job
) -> list[MergeTask | ExtendTask]:
    """Tasks that add segments for the rows that are in none."""
    parts = segments or math.ceil(int(index.missing_rows.sum()) / _TASK_ROWS)
    if segments is None and parts > 1:  # To ask for it may take a query.
        parts = min(parts, job.runner.parallelism)
    cuts = pairwise(cut_evenly(index.missing_rows, parts))
    version = dataset.manifest.version
    return [ExtendTask(version, index.name, start, stop) for start, stop in cuts]


def _build_again(dataset: OpenedVersion, index: IndexSegments) -> IndexTask:
    """The task that builds an index like this one from all rows."""
    first, kind, manifest = index.model.entry, index.kind, dataset.manifest
    segment = Segment.of(dataset.store, manifest, first)
    parameters = dict(kind.parameters(segment))
    if kind.name == "vector":
        from glaive.index.vector.search_defaults import SearchDefaults

        known = SearchDefaults.of(first.index_details.value, segment.where)
        parameters["recall"] = None if known is None else known.recall
    path = indexed_path(manifest, first)
    return IndexTask(manifest.version, path, kind.name, index.name, None, parameters)


def _holds_ids(dataset: OpenedVersion, index: IndexSegments) -> bool:
    """Whether a segment has ids of rows, as Lance up to 13 wrote where those built now do not."""
    stable = dataset.manifest.uses(Feature.STABLE_ROW_IDS) and index.kind.stores_addresses
    return stable and not all(holds_addresses(one.entry) for one in index.segments)


def _has_graphs(index: IndexSegments) -> bool:
    return index.kind.name == "vector" and "hnsw" in index.kind.details(index.segments[0].entry)


def _to_merge(
    segments: Sequence[StoredSegment], added: int, count: int | None, small_rows: int = 0
) -> int:
    """How many of the newest segments are written again."""
    if count is not None:
        merged = min(count, len(segments))
        return merged if added or merged > 1 else 0
    merged, rows = 0, added
    for segment in reversed(segments):
        small = added and rows + segment.rows <= small_rows
        if segment.rows > _GROWTH * rows and segment.fragments and not small:
            break
        rows += segment.rows
        merged += 1
    return merged if added or merged > 1 else 0
