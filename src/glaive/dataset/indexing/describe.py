"""Describe the indices of a version: their manifest entries, and statistics of their segments.

Specification: "Segments" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from glaive.arrow.conditions import filled
from glaive.dataclass import dataclass
from glaive.dataset.indexing.task import chosen_index, indexed_path, measured_recall, path_of
from glaive.dataset.lance_operation import Index
from glaive.dataset.tasks import commit_operation
from glaive.errors import IndexNotFoundError, OptionError, UnsupportedFeatureError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.wire import field_numbers
from glaive.index.row_sets import AddressMap
from glaive.index.segment import Segment
from glaive.scan.indices import SnapshotIndices
from glaive.scan.snapshot import Snapshot
from glaive.table.index_coverage import (
    REUSE_INDEX,
    FragmentPositions,
    after_remapping,
    stored_relocations,
)
from glaive.table.operations.create_index import CreateIndex

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion


_VECTORS: Final = "Vector"
_CODES: Final = {4: "PQ", 5: "SQ", 6: "RQ", 8: "FLAT"}
_GRAPH_FIELD: Final = 3
"""Field numbers in the details of a vector index: its quantizers, and the graph."""


@dataclass(frozen=True, slots=True)
class IndexSegmentDescription:
    """One segment of an index: the files of one build.

    Parameters
    ----------
    uuid
        Name of its folder below ``_indices``.
    dataset_version_at_last_update
        The version that the segment was built for.
    fragment_ids
        Fragments of this version covered by the segment.
    index_version
        Version of the index's file format.
    created_at
        Time of the build (UTC), if known.
    base_id
        Base path of the files; ``None`` for the dataset itself.
    size_bytes
        Total size of the files in bytes, if listed.
    covering_fields
        Ids of fields whose values the segment holds.
    """

    uuid: str
    dataset_version_at_last_update: int
    fragment_ids: frozenset[int]
    index_version: int
    created_at: datetime | None = None
    base_id: int | None = None
    size_bytes: int | None = None
    covering_fields: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """One index.

    Parameters
    ----------
    name
        Its unique name.
    index_type
        Kind of the index, such as ``BTree`` or ``IVF_PQ``.
    type_url
        Type of its details message in the manifest.
    fields, field_names
        Ids and paths of the indexed fields.
    num_rows_indexed
        Number of live rows of the covered fragments.
    segments
        Segments, in the order of the manifest.
    total_size_bytes
        Total size in bytes of the files of all segments, if listed.
    entry
        Manifest entry of the first segment.
    """

    name: str
    index_type: str
    type_url: str
    fields: list[int]
    field_names: list[str]
    num_rows_indexed: int
    segments: list[IndexSegmentDescription]
    total_size_bytes: int | None = None
    entry: table_pb2.IndexMetadata | None = field(default=None, repr=False, compare=False)

    @property
    def details(self) -> dict[str, Any]:
        """Parameters that the manifest records for the index.

        Raises
        ------
        CorruptFileError
            The details are invalid.
        """
        from glaive.index.protocol import kind_of

        kind = None if self.entry is None else kind_of(self.entry)
        return {} if kind is None or self.entry is None else kind.details(self.entry)


def describe_indices(snapshot: Snapshot) -> list[IndexDescription]:
    """Describe all indices of a version, sorted by name."""
    by_name: dict[str, list[table_pb2.IndexMetadata]] = {}
    for entry in after_remapping(snapshot.manifest.indices):
        by_name.setdefault(entry.name, []).append(entry)
    positions = FragmentPositions(snapshot.manifest.fragment_ids)
    return [_description(snapshot, positions, name, by_name[name]) for name in sorted(by_name)]


def list_segments(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return a dictionary for each segment of each index, as in pylance."""
    return [
        {
            "name": index.name,
            "type": index.index_type,
            "uuid": segment.uuid,
            "fields": index.field_names,
            "version": segment.dataset_version_at_last_update,
            "fragment_ids": set(segment.fragment_ids),
            "base_id": segment.base_id,
        }
        for index in describe_indices(snapshot)
        for segment in index.segments
    ]


def index_statistics(
    snapshot: Snapshot, name: str, recall_queries: int | None = None
) -> dict[str, Any]:
    """Return coverage of an index, statistics of its segments, and recall of a vector index.

    Parameters
    ----------
    recall_queries
        Number of rows to measure the recall with; None: 30, unless that would take long.

    Raises
    ------
    IndexNotFoundError
        The index is missing.
    CorruptFileError, DataFileMissingError
        A file of the index is damaged or missing.
    """
    known = {index.name: index for index in describe_indices(snapshot)}
    if name not in known:
        raise missing_index(snapshot.manifest, name)
    index = known[name]
    manifest = snapshot.manifest
    positions = FragmentPositions(manifest.fragment_ids)
    per_segment = [_rows(snapshot, positions, one.fragment_ids) for one in index.segments]
    covered = frozenset[int]().union(*(segment.fragment_ids for segment in index.segments))
    times = [segment.created_at for segment in index.segments if segment.created_at is not None]
    figures = _segment_statistics(snapshot, name)
    segments = [
        {"uuid": segment.uuid, "size_bytes": segment.size_bytes, **figures.get(segment.uuid, {})}
        for segment in index.segments
    ]
    entries = [entry for entry in after_remapping(manifest.indices) if entry.name == name]
    kind = None if index.type_url else SnapshotIndices.of(snapshot).kind_of(entries[0])
    return {
        "index_type": index.index_type if kind is None else kind.name.title(),
        "name": name,
        "num_indices": len(index.segments),
        "num_segments": len(index.segments),
        "indices": segments,
        "segments": segments,
        "num_indexed_fragments": len(covered),
        "num_indexed_rows": index.num_rows_indexed,
        "num_unindexed_fragments": manifest.num_fragments - len(covered),
        "num_unindexed_rows": snapshot.num_rows - _rows(snapshot, positions, covered),
        "num_indexed_rows_per_delta": per_segment,
        "updated_at_timestamp_ms": int(max(times).timestamp() * 1000) if times else None,
    } | _of_vectors(snapshot, index, entries, recall_queries)


def _of_vectors(
    snapshot: Snapshot,
    index: IndexDescription,
    entries: list[table_pb2.IndexMetadata],
    recall_queries: int | None,
) -> dict[str, Any]:
    """Return statistics that only vector indices have."""
    if index.type_url.rpartition(".")[2] != "VectorIndexDetails":
        return {}
    rows = snapshot.num_rows
    made: dict[str, Any] = {"share_unindexed": 1 - index.num_rows_indexed / rows if rows else 0.0}
    chosen = chosen_index(snapshot, entries)
    made["recall"] = None
    if chosen is not None:
        column = indexed_path(snapshot.manifest, entries[0])
        made["recall"] = measured_recall(snapshot, column, chosen, recall_queries)
        known = [one.opened.defaults for one in chosen.segments]
        defaults = next((one for one in known if one is not None), None)
        made["search_defaults"] = None if defaults is None else defaults._asdict()
    return made


def _segment_statistics(snapshot: Snapshot, name: str) -> dict[str, dict[str, Any]]:
    """Return statistics by the kind, of each segment that glaive can read, by id."""
    found = {}
    for index in SnapshotIndices.of(snapshot).all:
        for one in index.segments if index.name == name else ():
            segment = Segment.of(snapshot.store, snapshot.manifest, one.entry)
            try:
                figures = one.kind.statistics(segment)
            except UnsupportedFeatureError:
                figures = {}  # for old layouts only the manifest has any
            found[str(UUID(bytes=one.entry.uuid.uuid))] = figures
    return found


def remapped(snapshot: Snapshot, addresses: pa.Array) -> pa.Array | None:
    """Map row addresses by the remapping table of the version.

    Raises
    ------
    OptionError
        The addresses are not unsigned integers.
    """
    manifest = snapshot.manifest
    if not any(index.name == REUSE_INDEX for index in manifest.indices):
        return None
    try:
        given = addresses.cast(pa.uint64())
    except (AttributeError, pa.ArrowException) as error:
        raise OptionError(f"addrs: expected an array of row addresses ({error})") from error
    values = filled(given, 0).to_numpy(zero_copy_only=False).astype(np.uint64)
    valid = given.is_valid().to_numpy(zero_copy_only=False)
    for groups in stored_relocations(snapshot.store, manifest):
        values, remaining = AddressMap.of(groups, manifest.where).apply(values)
        valid = valid & remaining
    return pa.array(values, pa.uint64(), mask=~valid)


def prewarm_index(
    snapshot: Snapshot,
    name: str,
    uuids: Iterable[object] | None = None,
    *,
    with_position: bool = False,
) -> None:
    """Open segments of an index, by default all, and read all that searches need.

    Raises
    ------
    IndexNotFoundError
        The index is missing.
    OptionError
        The index lacks a segment; or you ask for positions of an index of another kind than full
        text.
    """
    indices = SnapshotIndices.of(snapshot)
    known = {UUID(bytes=one.uuid.uuid) for one in snapshot.manifest.indices if one.name == name}
    if not known:
        raise missing_index(snapshot.manifest, name)
    wanted = known if uuids is None else {uuid_of("index_segments", one) for one in uuids}
    if wanted - known:
        found = ", ".join(sorted(map(str, wanted - known)))
        raise OptionError(f"index_segments: index {name!r} has no segment {found}")
    for index in indices.all:
        if index.name == name:
            if with_position and index.kind.name != "inverted":
                raise OptionError(
                    "with_position: FTS prewarm options are only supported for inverted indices, "
                    f"and index {name!r} is of the kind {index.kind.name}. Leave it out."
                )
            for segment in index.segments:
                if UUID(bytes=segment.entry.uuid.uuid) in wanted:
                    indices.prewarm(segment)


def uuid_of(name: str, value: object) -> UUID:
    """Convert an id, which may be a string; ``name`` is the name of the option."""
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError as error:
        raise OptionError(f"{name}: expected a UUID, found {value!r}") from error


def drop_index(dataset: OpenedVersion, name: str) -> Manifest:
    """Remove an index in a new version; its files remain until they are cleaned up."""
    removed = tuple(entry for entry in dataset.manifest.indices if entry.name == name)
    if not removed:
        raise missing_index(dataset.manifest, name)
    return commit_operation(dataset, CreateIndex(removed=removed))


def missing_index(manifest: Manifest, name: str) -> IndexNotFoundError:
    """Return the error for an unknown name of an index."""
    known = ", ".join(sorted({index.name for index in manifest.indices})) or "none"
    return IndexNotFoundError(
        f'Index "{name}" not found in {manifest.title} (index not found: name={name}). '
        f"Indices: {known}"
    )


def _description(
    snapshot: Snapshot,
    positions: FragmentPositions,
    name: str,
    entries: list[table_pb2.IndexMetadata],
) -> IndexDescription:
    manifest, first = snapshot.manifest, entries[0]
    segments = [_segment(manifest, positions, entry) for entry in entries]
    sizes = [segment.size_bytes for segment in segments]
    return IndexDescription(
        name=name,
        index_type=_kind(first),
        type_url=first.index_details.type_url,
        fields=list(first.fields),
        field_names=[path_of(manifest, field_id) for field_id in first.fields],
        num_rows_indexed=sum(_rows(snapshot, positions, one.fragment_ids) for one in segments),
        segments=segments,
        total_size_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        entry=first,
    )


def _segment(
    manifest: Manifest, positions: FragmentPositions, entry: table_pb2.IndexMetadata
) -> IndexSegmentDescription:
    index = Index.from_wire(entry)
    existing = manifest.fragment_ids[positions.of(index.fragment_ids or ())]
    return IndexSegmentDescription(
        uuid=index.uuid,
        dataset_version_at_last_update=index.dataset_version,
        fragment_ids=frozenset(existing.tolist()),
        index_version=index.index_version,
        created_at=index.created_at,
        base_id=index.base_id,
        size_bytes=sum(file.size_bytes for file in index.files) if index.files else None,
        covering_fields=index.covering_fields,
    )


def _rows(snapshot: Snapshot, positions: FragmentPositions, fragments: frozenset[int]) -> int:
    """Count live rows of some fragments."""
    return int(snapshot.live_counts[positions.of(fragments)].sum())


def _kind(entry: table_pb2.IndexMetadata) -> str:
    """Return pylance's name of the index type, from the type of details or the quantizer."""
    url = entry.index_details.type_url
    name = url.rpartition("/")[2].rpartition(".")[2].removesuffix("IndexDetails")
    if name != _VECTORS:
        return name or "Unknown"
    numbers = field_numbers(
        entry.index_details.value, f"details of index {entry.name!r}", "the index section"
    )
    code = next((text for number, text in _CODES.items() if number in numbers), None)
    if code is None:
        return _VECTORS
    return f"IVF_HNSW_{code}" if _GRAPH_FIELD in numbers else f"IVF_{code}"
