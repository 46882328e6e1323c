"""The indices of a version: the fragments that each segment covers, and the addresses of its rows.

Specification: "Searching" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.manifest import Feature, contents_of, with_own_folders
from glaive.format.paths import INDICES
from glaive.format.pb import table_pb2
from glaive.index.protocol import IndexKind, OpenedIndex, kind_of
from glaive.index.row_sets import AddressMap, RetainedRows, RowNumbers, RowSet
from glaive.index.segment import Segment
from glaive.process import INDICES as OF_INDICES
from glaive.process import emit
from glaive.scan.snapshot import Snapshot
from glaive.table.index_coverage import (
    REUSE_INDEX,
    after_remapping,
    covered_fragments,
    holds_addresses,
    precedes_relocation,
    stored_relocations,
)
from glaive.types import Flags, Int64s

FragmentIds: TypeAlias = frozenset[int]

_PartitionKeys: TypeAlias = dict[int, tuple[Hashable, Hashable]]

_SHIFT = np.uint64(32)
_MEMO, _TEXTS, _HELD = "indices", "inverted", "files"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class IndexedSegment:
    """A segment, and the fragments of this version that it covers.

    Parameters
    ----------
    entry
        Its entry in the manifest.
    kind
        Its kind.
    fragments
        Ids of the fragments; segments of an index cover different fragments.
    """

    entry: table_pb2.IndexMetadata
    kind: IndexKind
    fragments: FragmentIds

    @cached_property
    def uuid(self) -> bytes:
        """The uuid of the segment."""
        return self.entry.uuid.uuid

    @cached_property
    def stated(self) -> bytes:
        """Its whole entry: other segments of a damaged version may have the same uuid."""
        return self.entry.SerializeToString(deterministic=True)

    def cache_key(self, snapshot: Snapshot) -> tuple[str, bytes]:
        """Return the first parts of all its cache keys. They are the key of the opened segment."""
        root, reached_by = snapshot.place_of_index(self.entry)
        # Damaged entries of several kinds may name one segment, or omit some of its files.
        kind = f"{self.kind.name} ".encode() + contents_of(self.entry)
        return f"{root}/{INDICES}/{UUID(bytes=self.uuid)}", self.uuid + reached_by + kind


@dataclass(frozen=True, eq=False)
class LogicalIndex:
    """All segments with one name, over one column and of one kind.

    Parameters
    ----------
    name
        Name of the index.
    fields
        Ids of its fields.
    segments
        Its segments that cover a fragment, in the order of the manifest.
    """

    name: str
    fields: tuple[int, ...]
    segments: tuple[IndexedSegment, ...]

    @cached_property
    def kind(self) -> IndexKind:
        """The kind of all segments."""
        return self.segments[0].kind

    @cached_property
    def fragments(self) -> FragmentIds:
        """Ids of the fragments that its segments cover."""
        return union_of(self.segments)


_Identity: TypeAlias = tuple[str, str, tuple[int, ...]]


def _identity(entry: table_pb2.IndexMetadata, kind: IndexKind) -> _Identity:
    """Return what segments of one index share: damaged entries may share only the name."""
    return entry.name, kind.name, tuple(entry.fields)


def union_of(segments: Iterable[IndexedSegment]) -> FragmentIds:
    """Return the ids of the fragments that segments cover."""
    first, *others = (segment.fragments for segment in segments)
    return first.union(*others) if others else first


class SnapshotIndices:
    """The indices of a version that glaive knows. Safe to share between threads.

    Made by :meth:`of`. Reads the index section of the manifest, and files of an index when it
    opens.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._extents: dict[FragmentIds, RowSet] = {}
        self._names: dict[IndexedSegment, tuple[str, bytes]] = {}
        self._partition_keys: dict[IndexedSegment, _PartitionKeys] = {}

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotIndices:
        """Return the indices of a version, made once."""
        known: SnapshotIndices | None = snapshot.memo.get(_MEMO)
        if known is None:
            known = snapshot.memo[_MEMO] = cls(snapshot)
        return known

    # ------------------------------------------------------------------ which there are

    @cached_property
    def all(self) -> tuple[LogicalIndex, ...]:
        """Indices of known kinds that cover a fragment, in the order of the manifest."""
        found: dict[_Identity, list[IndexedSegment]] = {}
        for segment in self._segments:
            if segment.fragments:
                found.setdefault(_identity(segment.entry, segment.kind), []).append(segment)
        return tuple(
            LogicalIndex(name, fields, tuple(segments))
            for (name, _, fields), segments in found.items()
        )

    @cached_property
    def removed(self) -> tuple[IndexedSegment, ...]:
        """Segments of known kinds whose fragments were all removed."""
        return tuple(segment for segment in self._segments if not segment.fragments)

    @cached_property
    def _segments(self) -> list[IndexedSegment]:
        if self.snapshot.manifest.index_section is None:
            return []
        segments: list[IndexedSegment] = []
        live = frozenset(self.snapshot.manifest.fragment_ids.tolist())
        answered: dict[_Identity, set[int]] = {}
        for entry in with_own_folders(after_remapping(self.snapshot.manifest.indices)):
            covered = covered_fragments(entry)
            kind = None if entry.name == REUSE_INDEX or covered is None else self.kind_of(entry)
            if kind is None or covered is None:
                continue
            before = answered.setdefault(_identity(entry, kind), set())
            fragments = (covered & live) - before
            if fragments or covered.isdisjoint(live):
                before |= fragments  # in place: there may be thousands of segments
                segments.append(IndexedSegment(entry, kind, fragments))
        return segments

    def kind_of(self, entry: table_pb2.IndexMetadata) -> IndexKind | None:
        """Return the kind of an entry; if the entry omits it, list its files once in a session.

        Such entries are by Lance up to 0.19, or full-text indices that were committed by hand after
        a merge of parts.
        """
        if entry.index_details.type_url:
            return kind_of(entry)
        snapshot = self.snapshot

        def load() -> tuple[tuple[str, ...], int]:
            names = tuple(Segment.of(snapshot.store, snapshot.manifest, entry).sizes())
            return names, sum(map(len, names))

        try:
            root, reached_by = snapshot.place_of_index(entry)
            key = (root, entry.uuid.uuid + reached_by + contents_of(entry), "files")
            files = snapshot.session.index_cache.get_or_load(key, load)
        except CorruptFileError:
            return None  # Its base path is missing in the manifest: its fragments are scanned.
        return kind_of(entry, files, snapshot.manifest.schema)

    def on(self, field_id: int) -> Sequence[LogicalIndex]:
        """Return the indices over one field."""
        return self._by_field.get(field_id, ())

    @cached_property
    def _by_field(self) -> dict[int, list[LogicalIndex]]:
        by_field: dict[int, list[LogicalIndex]] = {}
        for index in self.all:
            if len(index.fields) == 1:
                by_field.setdefault(index.fields[0], []).append(index)
        return by_field

    # ------------------------------------------------------------------ searching one

    def open(self, segment: IndexedSegment) -> OpenedIndex:
        """Open a segment, or return the opened one.

        Raises
        ------
        UnsupportedFeatureError
            Searches with its kind are unsupported.
        CorruptFileError, DataFileMissingError, NotLanceError
            A file of it is damaged or absent.
        """
        name = self.name_of(segment)
        known: OpenedIndex | None = self.snapshot.session.index_cache.get(name)
        return self._open(segment, name) if known is None else known

    def name_of(self, segment: IndexedSegment) -> tuple[str, bytes]:
        """Return :meth:`IndexedSegment.cache_key`, computed once."""
        name = self._names.get(segment)
        if name is None:
            name = self._names[segment] = segment.cache_key(self.snapshot)
        return name

    def partition_keys(self, segment: IndexedSegment) -> _PartitionKeys:
        """Return the keys of searched partitions of a segment, and of their row addresses."""
        keys = self._partition_keys.get(segment)
        if keys is None:
            keys = self._partition_keys[segment] = {}
        return keys

    @cached_property
    def version(self) -> str:
        """First part of the cache keys of this version, after a segment's."""
        snapshot, manifest = self.snapshot, self.snapshot.manifest
        return repr((manifest.where, *snapshot.cache_key(), manifest.identity))

    def prewarm(self, segment: IndexedSegment) -> None:
        """Open a segment, and read what searches read; its whole files, if they fit the cache."""
        name, cache = self.name_of(segment), self.snapshot.session.index_cache
        opened = self.open(segment)
        found = Segment.of(self.snapshot.store, self.snapshot.manifest, segment.entry)
        sizes = found.sizes()
        if type(opened).prewarm is not OpenedIndex.prewarm or sum(sizes.values()) > cache.budget:
            opened.prewarm()
        elif cache.get((*name, _HELD)) is not opened:
            files = {f"{found.folder}/{file}": found.get(file) for file in sizes}
            cache.discard(lambda key: isinstance(key, tuple) and key[:2] == name)
            cache.put((*name, _HELD), self._open(segment, name, files), 0)

    def _open(
        self,
        segment: IndexedSegment,
        name: tuple[str, bytes],
        files: Mapping[str, Any] | None = None,
    ) -> OpenedIndex:
        """Open a segment, and cache it under a name; ``files`` stay in memory."""
        snapshot, cache = self.snapshot, self.snapshot.session.index_cache
        counters = snapshot.store.counters

        def keep(key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
            return cache.part((*name, key), load, counters)

        found = Segment.of(snapshot.store, snapshot.manifest, segment.entry, keep)
        if files:
            from glaive.io.wrapped import HeldStore

            found = replace(found, store=HeldStore(found.store, files))
        try:
            opened = segment.kind.open(found)
        except UnsupportedFeatureError as error:
            reason = str(error)

            def warn() -> tuple[None, int]:
                message = "Index %r is left aside, and its rows are scanned: %s"
                _LOG.warning(message, segment.entry.name, reason)
                return None, 0

            keep("left aside", warn)  # once in a session
            raise
        cache.opened += 1
        vector, uuid = segment.kind.name == "vector", UUID(bytes=segment.uuid)
        what = "open_vector_index" if vector else "open_scalar_index"
        emit(OF_INDICES, type=what, index_type=segment.kind.name, index_uuid=uuid)
        held = sum(file.size for file in (files or {}).values())
        cache.put(name, opened, opened.nbytes + held)
        return opened

    # ------------------------------------------------------------------ where rows are

    def addresses(
        self, segment: IndexedSegment, rows: RowSet, within: FragmentIds | None = None
    ) -> RowSet:
        """Return the addresses, in this version, of row numbers of a segment.

        Keep rows in the fragments that it covers, and ``within``. Deleted rows may stay.
        """
        if not len(rows.starts):
            return rows
        fragments = segment.fragments
        if within is not None and within is not fragments:
            fragments = fragments & within
        if not self.holds_addresses(segment):
            ids = self.snapshot.row_id_index
            rows = rows.mapped(self._addresses_of, lambda: RowSet.of_ranges(*ids.segments.bounds))
        elif self._relocated is not None:
            rows = self._relocated.follow(rows)
        return rows.within_ranges(self.extent(fragments))

    def has_moved_rows(self, segment: IndexedSegment, fragments: Iterable[int]) -> bool:
        """Return whether rows of a segment may be in other fragments, with the same ids."""
        if self.holds_addresses(segment):
            return False
        known = self.snapshot.row_id_index.segments
        ids = self.snapshot.manifest.fragment_ids[known.fragment]
        covered = np.isin(ids, list(segment.fragments))
        others = np.isin(ids, list(fragments))
        if not covered.any() or not others.any():
            return False
        # Rows that were added later have higher ids.
        return bool(known.start[others].min() < known.end[covered].max())

    def retained(self, segment: IndexedSegment) -> RetainedRows:
        """Return the live rows that a segment covers, also after compactions moved them."""
        manifest, locate = self.snapshot.manifest, partial(self.locate, segment)
        if not self.holds_addresses(segment):
            return RetainedRows.of_ids(int(manifest.wire.next_row_id), locate)
        moved = self._relocated if precedes_relocation(segment.entry, manifest) else None
        ids, rows = manifest.fragment_ids.tolist(), manifest.physical_rows.tolist()
        return RetainedRows.of_addresses(dict(zip(ids, rows, strict=True)), moved, locate)

    def locate(self, segment: IndexedSegment, rows: RowNumbers) -> tuple[RowNumbers, Flags]:
        """Return the address of each row number of a segment, and whether to return the row.

        Only live rows in the fragments of the segment are returned.
        """
        if not self.holds_addresses(segment):
            rows, known = self._by_id(rows)
        elif self._relocated is not None:
            rows, known = self._relocated.apply(rows)
        else:
            known = np.ones(len(rows), np.bool_)
        known &= self._live(segment.fragments).contains(rows)
        return rows, known

    def _addresses_of(self, ids: RowNumbers) -> RowSet:
        """Return the addresses of all rows, even deleted, with ascending and unique stable ids."""
        fragment_ids = self.snapshot.manifest.fragment_ids.astype(np.uint64) << _SHIFT
        parts = self.snapshot.row_id_index.segments.find_parts(ids)
        found = [RowSet.of(fragment_ids[at] | row.astype(np.uint64)) for _, at, row in parts]
        return RowSet.union(found) if found else RowSet(ids[:0], ids[:0])

    def _by_id(self, ids: RowNumbers) -> tuple[RowNumbers, Flags]:
        manifest = self.snapshot.manifest
        if not manifest.num_fragments:
            return ids, np.zeros(len(ids), np.bool_)

        def is_deleted(position: int, rows: Int64s) -> Flags | None:
            live = self.snapshot.live_rows(manifest.fragment(position))
            return None if live is None else live.is_deleted(rows)

        position, row = self.snapshot.row_id_index.locate(ids, is_deleted)
        fragment = manifest.fragment_ids[position].astype(np.uint64)
        return (fragment << _SHIFT) | row.astype(np.uint64), position >= 0

    def _live(self, fragments: FragmentIds) -> RowSet:
        """Return the addresses of the live rows of fragments."""
        manifest, rows = self.snapshot.manifest, self.extent(fragments)
        starts, stops = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
        for position in self.snapshot.positions_of(sorted(fragments)):
            fragment = manifest.fragment(position)
            live = self.snapshot.live_rows(fragment)
            if live is not None:
                offset = np.uint64(fragment.id) << _SHIFT
                begins, ends = live.deleted_runs(0, live.rows)
                starts.append(begins.astype(np.uint64) + offset)
                stops.append(ends.astype(np.uint64) + offset)
        return rows.difference(RowSet.of_ranges(np.concatenate(starts), np.concatenate(stops)))

    def holds_addresses(self, segment: IndexedSegment) -> bool:
        """Return whether a segment numbers rows by address; otherwise by stable id."""
        return not self._has_stable_ids or holds_addresses(segment.entry)

    @cached_property
    def _has_stable_ids(self) -> bool:
        return self.snapshot.manifest.uses(Feature.STABLE_ROW_IDS)

    def extent(self, fragments: FragmentIds) -> RowSet:
        """Return the addresses of all physical rows of fragments, given by id."""
        known = self._extents.get(fragments)
        if known is None:
            known = self._extents[fragments] = self._extent(fragments)
        return known

    def _extent(self, fragments: FragmentIds) -> RowSet:
        ids = np.array(sorted(fragments), np.int64)
        position = self.snapshot.positions_of(ids.tolist())
        rows = self.snapshot.manifest.physical_rows[list(position)].astype(np.uint64)
        starts = ids.astype(np.uint64) << _SHIFT
        return RowSet.of_ranges(starts, starts + rows)

    @cached_property
    def _relocated(self) -> AddressMap | None:
        """New addresses of rows that compactions moved, for older indices."""
        snapshot = self.snapshot
        stored = stored_relocations(snapshot.store, snapshot.manifest)
        return AddressMap.of_all(stored, snapshot.manifest.where) if stored else None
