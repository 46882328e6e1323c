"""The indices that a version has, as its manifest tells them; no index file is read.

Specification: "Segments" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from glaive.errors import IndexNotFoundError, OptionError
from glaive.format.fields import Field
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.wire import field_numbers
from glaive.index.address_map import AddressMap
from glaive.scan.snapshot import Snapshot
from glaive.table.index_coverage import covered_fragments
from glaive.table.moved_rows import REUSE_INDEX, followed, moves_before

__all__ = [
    "IndexDescription",
    "IndexSegmentDescription",
    "absent_index",
    "describe_indices",
    "index_figures",
    "list_segments",
    "remapped",
]

_VECTORS: Final = "Vector"
_CODES: Final = {4: "PQ", 5: "SQ", 6: "RQ", 8: "FLAT"}
_GRAPH: Final = 3
"""Fields of the details of a vector index: how values are coded, and whether by a graph."""


@dataclass(frozen=True, slots=True)
class IndexSegmentDescription:
    """One segment of an index: the part that was built at once.

    Parameters
    ----------
    uuid
        Name of its folder below ``_indices``.
    dataset_version_at_last_update
        The version it was built for.
    fragment_ids
        Fragments of this version that it covers.
    index_version
        Version of the index's own format.
    created_at
        When it was built (UTC), when known.
    base_id
        Base path that holds it; this dataset when absent.
    size_bytes
        Of its files, when listed.
    covering_fields
        Ids of fields whose values it holds.
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
        By which it is dropped.
    index_type
        Such as ``BTree`` or ``IVF_PQ``.
    type_url
        Type of the message that describes it in the manifest.
    fields, field_names
        Ids and paths of the fields it is over.
    num_rows_indexed
        Live rows of the fragments that its segments cover.
    segments
        Its parts, in the order of the manifest.
    total_size_bytes
        Of the files of all segments, when listed.
    """

    name: str
    index_type: str
    type_url: str
    fields: list[int]
    field_names: list[str]
    num_rows_indexed: int
    segments: list[IndexSegmentDescription]
    total_size_bytes: int | None = None


def describe_indices(snapshot: Snapshot) -> list[IndexDescription]:
    """All indices of a version, by name."""
    found: dict[str, list[table_pb2.IndexMetadata]] = {}
    for entry in followed(snapshot.manifest.indices):
        found.setdefault(entry.name, []).append(entry)
    return [_description(snapshot, name, found[name]) for name in sorted(found)]


def list_segments(snapshot: Snapshot) -> list[dict[str, Any]]:
    """One dictionary for each segment of each index, in the form pylance has."""
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


def index_figures(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """What the manifest tells of an index: its segments, and rows and fragments it covers.

    Raises
    ------
    IndexNotFoundError
        There is no index of this name.
    """
    known = {index.name: index for index in describe_indices(snapshot)}
    if name not in known:
        raise absent_index(snapshot.manifest, name)
    index = known[name]
    manifest = snapshot.manifest
    per_segment = [_rows(snapshot, one.fragment_ids) for one in index.segments]
    covered: set[int] = set()
    for segment in index.segments:
        covered |= segment.fragment_ids
    made = [one.created_at for one in index.segments if one.created_at is not None]
    segments = [{"uuid": one.uuid, "size_bytes": one.size_bytes} for one in index.segments]
    return {
        "index_type": index.index_type,
        "name": name,
        "num_indices": len(index.segments),
        "num_segments": len(index.segments),
        "indices": segments,
        "segments": segments,
        "num_indexed_fragments": len(covered),
        "num_indexed_rows": index.num_rows_indexed,
        "num_unindexed_fragments": manifest.num_fragments - len(covered),
        "num_unindexed_rows": snapshot.num_rows - _rows(snapshot, frozenset(covered)),
        "num_indexed_rows_per_delta": per_segment,
        "updated_at_timestamp_ms": int(max(made).timestamp() * 1000) if made else None,
    }


def remapped(snapshot: Snapshot, addresses: pa.Array) -> pa.Array | None:
    """Row addresses after the moves that the map of the version tells, oldest first.

    Raises
    ------
    OptionError
        They are no unsigned numbers.
    """
    manifest = snapshot.manifest
    if not any(index.name == REUSE_INDEX for index in manifest.indices):
        return None
    try:
        given = addresses.cast(pa.uint64())
    except (AttributeError, pa.ArrowException) as error:
        raise OptionError(f"addrs: expected an array of row addresses ({error})") from error
    values = given.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    kept = given.is_valid().to_numpy(zero_copy_only=False)
    for groups in moves_before(snapshot.store, manifest):
        values, left = AddressMap.of(groups, manifest.where).apply(values)
        kept = kept & left
    return pa.array(values, pa.uint64(), mask=~kept)


def absent_index(manifest: Manifest, name: str) -> IndexNotFoundError:
    """The error of a name that no index has."""
    known = ", ".join(sorted({index.name for index in manifest.indices})) or "none"
    return IndexNotFoundError(
        f"no index {name!r} in version {manifest.version} (in {manifest.where}). Indices: {known}"
    )


def _description(
    snapshot: Snapshot, name: str, entries: list[table_pb2.IndexMetadata]
) -> IndexDescription:
    manifest, first = snapshot.manifest, entries[0]
    segments = [_segment(manifest, entry) for entry in entries]
    sizes = [segment.size_bytes for segment in segments]
    return IndexDescription(
        name=name,
        index_type=_kind(first),
        type_url=first.index_details.type_url,
        fields=list(first.fields),
        field_names=[_path_of(manifest, one) for one in first.fields],
        num_rows_indexed=sum(_rows(snapshot, segment.fragment_ids) for segment in segments),
        segments=segments,
        total_size_bytes=None if None in sizes else sum(size or 0 for size in sizes),
    )


def _segment(manifest: Manifest, entry: table_pb2.IndexMetadata) -> IndexSegmentDescription:
    made = None
    if entry.HasField("created_at"):
        made = datetime.fromtimestamp(entry.created_at / 1000, UTC)
    there = set(manifest.fragment_ids.tolist())
    return IndexSegmentDescription(
        uuid=str(UUID(bytes=entry.uuid.uuid)),
        dataset_version_at_last_update=entry.dataset_version,
        fragment_ids=frozenset((covered_fragments(entry) or frozenset()) & there),
        index_version=entry.index_version,
        created_at=made,
        base_id=entry.base_id if entry.HasField("base_id") else None,
        size_bytes=sum(file.size_bytes for file in entry.files) if entry.files else None,
        covering_fields=list(entry.covering_fields),
    )


def _rows(snapshot: Snapshot, fragments: frozenset[int]) -> int:
    """Live rows of some fragments."""
    ids, live = snapshot.manifest.fragment_ids, snapshot.live_counts
    return int(live[np.isin(ids, list(fragments))].sum()) if fragments else 0


def _path_of(manifest: Manifest, number: int) -> str:
    """Path of a field: names from the top, with dots; the number of one that is gone."""

    def look(some: tuple[Field, ...]) -> str | None:
        for one in some:
            name = f"`{one.name}`" if "." in one.name else one.name
            if one.id == number:
                return name
            below = look(one.children)
            if below is not None:
                return f"{name}.{below}"
        return None

    return look(manifest.schema.fields) or str(number)


def _kind(entry: table_pb2.IndexMetadata) -> str:
    """What pylance calls the kind: the message's name, or how vectors are coded."""
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
    return f"IVF_HNSW_{code}" if _GRAPH in numbers else f"IVF_{code}"
