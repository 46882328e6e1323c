"""Which vector index a search uses, if any."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
from glaive.index.vector.opened import OpenedVectorIndex
from glaive.io.cache import ByteCache
from glaive.kernels.distances import Metric
from glaive.named_tuple import NamedTuple
from glaive.scan.indices import (
    FragmentIds,
    IndexedSegment,
    LogicalIndex,
    SnapshotIndices,
    union_of,
)
from glaive.scan.nearest.indexed import SearchedSegment, damaged
from glaive.scan.nearest.options import NearestOptions
from glaive.scan.nearest.vectors import VectorType
from glaive.scan.snapshot import Snapshot

__all__ = ["ChosenIndex", "ClosedIndex", "choose_index", "searched_segments"]


class ChosenIndex(NamedTuple):
    """An index whose segments are searched.

    Parameters
    ----------
    name
        Of the index.
    segments
        Those that are searched.
    fragments
        Ids of the fragments that these answer for.
    metric
        Kind of distance of all of them.
    """

    name: str
    segments: tuple[SearchedSegment, ...]
    fragments: FragmentIds
    metric: Metric

    def closed(self, indices: SnapshotIndices) -> ClosedIndex:
        """What is needed to search with it again; it keeps no opened segment."""
        segments = tuple(one.segment for one in self.segments)
        keys = tuple(map(indices.name_of, segments))
        cache = indices.snapshot.session.index_cache
        return ClosedIndex(self.name, segments, self.fragments, self.metric, keys, cache)

    def with_defaults(self, options: NearestOptions) -> NearestOptions:
        """Options with what the index was built for, where the query does not say."""
        known = [one.opened.defaults for one in self.segments if one.opened.defaults is not None]
        if not known:
            return options
        chosen = max(one.nprobes for one in known), max(one.refine_factor or 0 for one in known)
        return options.with_defaults(chosen[0], chosen[1] or None)


class ClosedIndex(NamedTuple):
    """An index that was chosen before, for the same search with another query.

    Parameters
    ----------
    name, segments, fragments, metric
        As of :class:`ChosenIndex`.
    keys, cache
        What its segments are kept under once they are opened, and where.
    """

    name: str
    segments: tuple[IndexedSegment, ...]
    fragments: FragmentIds
    metric: Metric
    keys: tuple[Hashable, ...]
    cache: ByteCache[Hashable, Any]

    def opened(self) -> ChosenIndex | None:
        """The same index, if the session still has all its segments; their files never change."""
        name, segments, fragments, metric, keys, cache = self
        found: list[Any] = cache.get_all(keys)
        if None in found:
            return None
        opened = tuple(map(SearchedSegment, segments, found))
        return ChosenIndex(name, opened, fragments, metric)


def choose_index(
    snapshot: Snapshot, field_id: int, kind: VectorType, options: NearestOptions
) -> ChosenIndex | None:
    """The first index on a field that can be searched, by the distance asked for.

    Raises
    ------
    OptionError
        ``ef`` is below the rows wanted, and the index has graphs.
    CorruptFileError, DataFileMissingError, NotLanceError
        A file of an index is damaged or absent.
    """
    if not options.use_index or snapshot.manifest.index_section is None:
        return None
    indices = SnapshotIndices.of(snapshot)
    for index in indices.on(field_id):
        if index.kind.name == "vector":
            chosen = _chosen(indices, index, kind, options)
            if chosen is not None:
                return chosen
    return None


def _chosen(
    indices: SnapshotIndices, index: LogicalIndex, kind: VectorType, options: NearestOptions
) -> ChosenIndex | None:
    """Segments with the wanted distance; those that are not known are scanned instead."""
    opened = searched_segments(indices, index.segments, kind, options.metric)
    if not opened:
        return None
    _check_graphs(opened, options)
    fragments = index.fragments
    if len(opened) < len(index.segments):
        fragments = union_of(one.segment for one in opened)
    return ChosenIndex(index.name, opened, fragments, opened[0].opened.metric)


def searched_segments(
    indices: SnapshotIndices,
    segments: Iterable[IndexedSegment],
    kind: VectorType,
    metric: Metric | None = None,
) -> tuple[SearchedSegment, ...]:
    """Those of some segments that compare vectors of a type by a distance, opened.

    Parameters
    ----------
    metric
        Kind of distance; by default that of the first of them.

    Raises
    ------
    CorruptFileError, DataFileMissingError, NotLanceError
        A file of a segment is damaged or absent.
    """
    opened: list[SearchedSegment] = []
    for segment in segments:
        try:
            found = indices.open(segment)
        except UnsupportedFeatureError:
            continue
        except CorruptFileError as error:
            raise damaged(error) from error
        if not isinstance(found, OpenedVectorIndex) or found.dimension != kind.dimension:
            continue
        if (found.metric == "hamming") != (kind.element == "uint8"):
            continue
        metric = metric or found.metric
        if found.metric == metric:
            opened.append(SearchedSegment(segment, found))
    return tuple(opened)


def _check_graphs(opened: Iterable[SearchedSegment], options: NearestOptions) -> None:
    if options.ef is None or not any(one.opened.has_graphs for one in opened):
        return
    wanted = (options.k or 1) * (options.refine_factor or 1)
    if options.ef < wanted:
        raise OptionError(
            f"nearest: ef: expected at least {wanted}, the rows wanted of a graph, found "
            f"{options.ef}"
        )
