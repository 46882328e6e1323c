"""Bring indices up to date: index rows that were added, merge segments.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from glaive.dataclass import dataclass
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.indexing.describe import missing_index
from glaive.dataset.indexing.indexed_path import indexed_path
from glaive.dataset.indexing.task import IndexTask, build_segment, extend_index, merge_segments
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.index.protocol import IndexKind
from glaive.index.registry import kind_of
from glaive.index.segment import Segment
from glaive.scan.indices import IndexedSegment, SnapshotIndices
from glaive.table.index_coverage import covered_fragments
from glaive.table.operations.create_index import CreateIndex
from glaive.table.relocated_rows import REUSE_INDEX, followed

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["optimize_indices"]

_GROWTH = 8
"""A segment is merged with new rows if it has at most so many times their number.

So each row is written again a few times while an index grows, and an index has few segments.
"""

_SMALL_ROWS = 4096
"""Segments that have so few rows together with the new ones are merged: searching two costs more.

Not those of graphs, which would be built again.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    entry: table_pb2.IndexMetadata
    fragments: frozenset[int]
    rows: int


def optimize_indices(
    dataset: OpenedVersion,
    *,
    num_indices_to_merge: int | None = None,
    index_names: Sequence[str] | None = None,
    retrain: bool = False,
) -> Manifest | None:
    """Add rows that are in no index, and merge segments; one version for all indices.

    Parameters
    ----------
    num_indices_to_merge
        Newest segments to merge with the new rows: 0 adds a segment. By default those that have
        not many more rows than are added.
    index_names
        Indices to work on; by default all that glaive knows.
    retrain
        Build the indices again, from all rows.

    Returns
    -------
    Manifest or None
        None if there was nothing to do.

    Raises
    ------
    IndexNotFoundError
        There is no index of a name.
    OptionError
        A number is negative.
    """
    count = num_indices_to_merge
    if count is not None and count < 0:
        raise OptionError(f"num_indices_to_merge: expected 0 or more, found {count!r}")
    new: list[table_pb2.IndexMetadata] = []
    removed: list[table_pb2.IndexMetadata] = []
    for segments in _chosen(dataset, index_names).values():
        change = _optimized(dataset, segments, count, retrain=retrain)
        new += change.new
        removed += change.removed
    if not new:
        return None
    return commit_operation(dataset, CreateIndex(new=tuple(new), removed=tuple(removed)))


def _chosen(dataset: OpenedVersion, names: Iterable[str] | None) -> dict[str, list[_Segment]]:
    """The segments of each index, oldest first."""
    manifest = dataset.manifest
    live = dict(
        zip(manifest.fragment_ids.tolist(), dataset.snapshot.live_counts.tolist(), strict=True)
    )
    by_name: dict[str, list[_Segment]] = {}
    for entry in followed(manifest.indices):
        if entry.name != REUSE_INDEX and kind_of(entry) is not None:
            fragments = frozenset(live) & (covered_fragments(entry) or frozenset())
            rows = sum(live[fragment] for fragment in fragments)
            by_name.setdefault(entry.name, []).append(_Segment(entry, fragments, rows))
    if names is None:
        return by_name
    if isinstance(names, str):
        raise OptionError(f"index_names: expected a list of names, found {names!r}")
    for name in names:
        if name not in by_name:
            raise missing_index(manifest, name)
    return {name: by_name[name] for name in names}


def _optimized(
    dataset: OpenedVersion, segments: Sequence[_Segment], count: int | None, *, retrain: bool
) -> CreateIndex:
    """What is to be added and removed of an index."""
    first, manifest = segments[0].entry, dataset.manifest
    kind = kind_of(first)
    covered = frozenset[int]().union(*(segment.fragments for segment in segments))
    missing = [number for number in manifest.fragment_ids.tolist() if number not in covered]
    old = tuple(segment.entry for segment in segments)
    if kind is None or not (retrain or missing or _to_merge(segments, 0, count)):
        return CreateIndex()
    path = indexed_path(manifest, first)
    segment = Segment.of(dataset.store, manifest, first)

    def built_again() -> CreateIndex:
        parameters = dict(kind.parameters(segment))
        if kind.name == "vector":
            from glaive.index.vector.search_defaults import SearchDefaults

            known = SearchDefaults.of(first.index_details.value, segment.where)
            parameters["recall"] = None if known is None else known.recall
        task = IndexTask(manifest.version, path, kind.name, first.name, None, parameters)
        return CreateIndex(new=(build_segment(dataset, task),), removed=old)

    if retrain or not covered:
        return built_again()
    ids, live = manifest.fragment_ids.tolist(), dataset.snapshot.live_counts.tolist()
    added = sum(rows for number, rows in zip(ids, live, strict=True) if number not in covered)
    small_rows = 0 if _has_graphs(first, kind) else _SMALL_ROWS
    merged = segments[len(segments) - _to_merge(segments, added, count, small_rows) :]
    indices = SnapshotIndices.of(dataset.snapshot)
    has_moved = any(
        indices.has_moved_rows(IndexedSegment(old.entry, kind, old.fragments), missing)
        for old in segments
    )
    if has_moved:
        merged = segments  # Pylance would find these rows by their old values, too.
    while len(merged) > (0 if missing else 1):
        entries = tuple(segment.entry for segment in merged)
        try:
            return CreateIndex(new=(merge_segments(dataset, entries, missing),), removed=entries)
        except UnsupportedFeatureError:  # They have models of their own, or zones.
            if count is not None:
                return built_again()
            merged = () if has_moved else merged[1:]
    return CreateIndex(new=(extend_index(dataset, first, missing),)) if missing else CreateIndex()


def _has_graphs(entry: table_pb2.IndexMetadata, kind: IndexKind) -> bool:
    return kind.name == "vector" and "hnsw" in kind.details(entry)


def _to_merge(
    segments: Sequence[_Segment], added: int, count: int | None, small_rows: int = 0
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
