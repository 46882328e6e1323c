"""Where rows went that a compaction moved, for indices that are not rebuilt.

Indices hold row addresses. Instead of rewriting them, a compaction may leave a map from old
addresses to new ones in the index section; readers go through it.

Specification: "Rows that moved" in ``docs/format/refs.md``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.fragment import Fragment
from glaive.format.limits import MAX_FRAGMENT_ID, MAX_FRAGMENT_ROWS, check_file_name
from glaive.format.manifest import Manifest
from glaive.format.paths import INDICES
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.io.store import ObjectStore
from glaive.table.bases import base_of
from glaive.table.bitmaps import bitmap_of
from glaive.table.index_coverage import follow_groups

__all__ = [
    "MOST_MOVED",
    "REUSE_INDEX",
    "MovedGroup",
    "Reused",
    "address_map",
    "followed",
    "moves_before",
    "on_top",
    "reuse_entry",
]

REUSE_INDEX = "__lance_frag_reuse"
"""Name of the entry of the index section."""

MOST_MOVED = 1 << 27
"""Rows of one stored move at most: the map of them takes some GiB."""

_TYPE = "/lance.table.FragmentReuseIndexDetails"
_DETAILS = table_pb2.FragmentReuseIndexDetails

MovedGroup = tuple[bytes, Sequence[Fragment], Sequence[Fragment]]
"""Old addresses of the rows that are left, fragments they were in, and those they are in."""


def address_map(addresses: Iterable[NDArray[np.uint64]]) -> bytes:
    """Old addresses of the rows that are left, as a 64-bit roaring bitmap."""
    from pyroaring import BitMap64

    bitmap = BitMap64()
    for some in addresses:
        bitmap |= BitMap64(some)
    serialized: bytes = bitmap.serialize()
    return serialized


def reuse_entry(
    store: ObjectStore, manifest: Manifest, groups: Sequence[MovedGroup]
) -> table_pb2.IndexMetadata:
    """The entry of the index section after these groups moved, on top of ``manifest``.

    Raises
    ------
    UnsupportedFeatureError
        There is one already in a form that this version does not extend.
    CorruptFileError
        There is one already that cannot be read.
    """
    version = _DETAILS.Version(dataset_version=manifest.version)
    fragments: list[int] = []
    for moved, old, new in groups:
        version.groups.append(
            _DETAILS.Group(
                changed_row_addrs=moved,
                old_fragments=[_digest(one) for one in old],
                new_fragments=[_digest(one) for one in new],
            )
        )
        fragments += [one.id for one in new]
    content = _DETAILS.InlineContent()
    before = next((index for index in manifest.indices if index.name == REUSE_INDEX), None)
    if before is not None:
        content = _content(store, manifest, before)
    content.versions.append(version)
    entry = table_pb2.IndexMetadata(
        name=REUSE_INDEX,
        dataset_version=manifest.version,
        fragment_bitmap=bitmap_of(fragments),
        index_version=0,
        created_at=time.time_ns() // 1_000_000,
    )
    entry.uuid.uuid = uuid4().bytes
    entry.index_details.type_url = _TYPE
    entry.index_details.value = _DETAILS(inline=content).SerializeToString()
    return entry


def on_top(
    entry: table_pb2.IndexMetadata, entries: Sequence[table_pb2.IndexMetadata]
) -> table_pb2.IndexMetadata | None:
    """What :func:`reuse_entry` made, behind the moves that the map among ``entries`` has by now.

    ``None`` if that map is not in the entry itself, so that it cannot be told.

    Raises
    ------
    CorruptFileError
        It cannot be read.
    """
    before = next((one for one in entries if one.name == REUSE_INDEX), None)
    if before is None:
        return entry
    there, mine = _details(before), _details(entry)
    if before.index_version or there.HasField("external"):
        return None
    if list(there.inline.versions) == list(mine.inline.versions[:-1]):
        return entry
    there.inline.versions.append(mine.inline.versions[-1])
    joined = table_pb2.IndexMetadata()
    joined.CopyFrom(entry)
    joined.index_details.value = there.SerializeToString()
    return joined


Reused = tuple[
    bytes,
    Sequence[_DETAILS.FragmentDigest],
    Sequence[_DETAILS.FragmentDigest],
]
"""A group of an entry that stands in a manifest: as :data:`MovedGroup`, but for the fragments."""


def moves_before(store: ObjectStore, manifest: Manifest) -> list[list[Reused]]:
    """Groups that moved before, by compaction, oldest first, as the map of a manifest has them.

    Raises
    ------
    UnsupportedFeatureError
        The map is of a form that this version does not know.
    CorruptFileError
        It cannot be read.
    """
    entry = next((index for index in manifest.indices if index.name == REUSE_INDEX), None)
    if entry is None:
        return []
    versions = _content(store, manifest, entry).versions
    for version in versions:
        old = sum(
            old_fragment.physical_rows
            for group in version.groups
            for old_fragment in group.old_fragments
        )
        new = sum(
            fragment.physical_rows for group in version.groups for fragment in group.new_fragments
        )
        if max(old, new) > MOST_MOVED:
            raise UnsupportedFeatureError(
                f"the entry {REUSE_INDEX} of {manifest.where} maps {max(old, new)} rows that moved "
                f"at one time; at most {MOST_MOVED} can be followed. Rebuild or drop the indices."
            )
    return [
        [
            (group.changed_row_addrs, group.old_fragments, group.new_fragments)
            for group in version.groups
        ]
        for version in versions
    ]


def followed(entries: Sequence[table_pb2.IndexMetadata]) -> list[table_pb2.IndexMetadata]:
    """Entries with the fragments they cover by way of the map among them.

    Where an index covered all old fragments of a group, it covers the new ones instead. A
    map that is not in the entry itself, or of a later form, is left to its readers.
    """
    entry = next((one for one in entries if one.name == REUSE_INDEX), None)
    if entry is None or entry.index_version:
        return list(entries)
    groups = [
        (frozenset(d.id for d in group.old_fragments), frozenset(d.id for d in group.new_fragments))
        for version in _details(entry).inline.versions
        for group in version.groups
    ]
    return [one if one is entry else follow_groups(one, groups) for one in entries]


def _details(entry: table_pb2.IndexMetadata) -> table_pb2.FragmentReuseIndexDetails:
    where = f"the index section, entry {REUSE_INDEX}"
    found = parse(_DETAILS(), entry.index_details.value, "map of moved rows", where)
    _check(found.inline, where)
    return found


def _check(content: table_pb2.FragmentReuseIndexDetails.InlineContent, where: object) -> None:
    """See that the map speaks of fragments that there can be."""
    for version in content.versions:
        for group in version.groups:
            for one in (*group.old_fragments, *group.new_fragments):
                if one.id > MAX_FRAGMENT_ID or one.physical_rows > MAX_FRAGMENT_ROWS:
                    raise CorruptFileError(
                        "fragment in the map of moved rows",
                        expected="an id below 2^32, and at most 2^32 rows",
                        found=f"id {one.id}, {one.physical_rows} rows",
                        where=where,
                    )


def _digest(fragment: Fragment) -> table_pb2.FragmentReuseIndexDetails.FragmentDigest:
    return _DETAILS.FragmentDigest(
        id=fragment.id,
        physical_rows=fragment.physical_rows,
        num_deleted_rows=fragment.num_deletions or 0,
    )


def _content(
    store: ObjectStore, manifest: Manifest, entry: table_pb2.IndexMetadata
) -> table_pb2.FragmentReuseIndexDetails.InlineContent:
    if entry.index_version:
        raise UnsupportedFeatureError(
            f"the entry {REUSE_INDEX} of {manifest.where} has version {entry.index_version}, which "
            "this version of glaive does not extend. Rebuild or drop the indices first."
        )
    where = f"{manifest.where}, index {REUSE_INDEX}"
    details = _details(entry)
    if not details.HasField("external"):
        return details.inline
    place = store
    if entry.HasField("base_id"):
        place, _ = base_of(store, manifest, entry.base_id)
    part = details.external
    name = check_file_name(part.path, "path of the map of moved rows", where)
    path = f"{INDICES}/{UUID(bytes=entry.uuid.uuid)}/{name}"
    data = place.get(path).to_pybytes()[part.offset : part.offset + part.size]
    content = parse(_DETAILS.InlineContent(), data, "map of moved rows", where)
    _check(content, where)
    return content
