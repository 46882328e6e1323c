"""The remapping table of relocated rows, for indices that are not rebuilt.

Indices store row addresses. Instead of rebuilding them, a compaction may store a table of old and
new addresses in the index section, which readers apply.

Specification: "Rows that moved" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from glaive.clock import now_ns
from glaive.entropy import new_uuid
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.bitmaps import bitmap_of
from glaive.format.fragment import Fragment
from glaive.format.index_section import check_covered, open_coverage
from glaive.format.limits import (
    MAX_FRAGMENT_ID,
    MAX_FRAGMENT_ROWS,
    check_ending,
    check_file_name,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import INDICES
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.io.store import ObjectStore
from glaive.table.bases import base_of
from glaive.table.index_coverage import follow_groups, with_covered

__all__ = [
    "MAX_RELOCATED_ROWS",
    "REUSE_INDEX",
    "RelocatedGroup",
    "StoredGroup",
    "address_map",
    "append_remapping",
    "can_follow",
    "followed",
    "precedes_relocation",
    "reuse_entry",
    "stored_relocations",
    "without_relocation",
]

REUSE_INDEX = "__lance_frag_reuse"
"""Name of the entry of the index section."""

MAX_RELOCATED_ROWS = 1 << 27
"""Limit of rows per stored compaction: where few stay together, each takes 24 bytes or more."""

_MAX_ROWS_IN_ALL = 1 << 29
"""Limit of rows of all stored compactions."""

_MAX_FOLLOWED = 1 << 25
"""Limit of fragments in the table times segments that cover different fragments."""

_LAST_VERSION = 2**64 - 1
"""No version is later: they are unsigned numbers of 64 bits."""

_TYPE = "/lance.table.FragmentReuseIndexDetails"
_DETAILS = table_pb2.FragmentReuseIndexDetails

RelocatedGroup = tuple[bytes, Sequence[Fragment], Sequence[Fragment]]
"""Old addresses of the relocated rows, their old fragments, and their new ones."""


def address_map(addresses: Iterable[NDArray[np.uint64]]) -> bytes:
    """Old addresses of the relocated rows, ascending, as a 64-bit roaring bitmap."""
    from pyroaring import BitMap64

    bitmap = BitMap64()
    for part in addresses:
        if len(part) and int(part[-1] - part[0]) == len(part) - 1:
            bitmap.add_range(int(part[0]), int(part[-1]) + 1)
        else:  # an array is by far the fastest input of pyroaring
            bitmap |= BitMap64(array("Q", part.tobytes()))
    serialized: bytes = bitmap.serialize()
    return serialized


def reuse_entry(
    store: ObjectStore, manifest: Manifest, groups: Sequence[RelocatedGroup]
) -> table_pb2.IndexMetadata | None:
    """The entry of the index section after relocating groups of ``manifest``.

    ``None`` if it would have more rows than readers accept: indices are to be rebuilt.

    Raises
    ------
    UnsupportedFeatureError
        The existing entry has an unknown version.
    CorruptFileError
        The existing entry cannot be read.
    """
    version = _DETAILS.Version(dataset_version=manifest.version)
    fragments: list[int] = []
    for addresses, old, new in groups:
        version.groups.append(
            _DETAILS.Group(
                changed_row_addrs=addresses,
                old_fragments=[_digest(fragment) for fragment in old],
                new_fragments=[_digest(fragment) for fragment in new],
            )
        )
        fragments += [fragment.id for fragment in new]
    content = _DETAILS.InlineContent()
    before = next((index for index in manifest.indices if index.name == REUSE_INDEX), None)
    if before is not None:
        content = _content(store, manifest, before)
    content.versions.append(version)
    if _excess(content.versions) is not None:
        return None
    entry = table_pb2.IndexMetadata(
        name=REUSE_INDEX,
        dataset_version=manifest.version,
        fragment_bitmap=bitmap_of(fragments),
        index_version=0,
        created_at=now_ns() // 1_000_000,
    )
    entry.uuid.uuid = new_uuid().bytes
    entry.index_details.type_url = _TYPE
    entry.index_details.value = _DETAILS(inline=content).SerializeToString()
    return entry


def append_remapping(
    entry: table_pb2.IndexMetadata, entries: Sequence[table_pb2.IndexMetadata]
) -> table_pb2.IndexMetadata | None:
    """The result of :func:`reuse_entry`, appended to the current table among ``entries``.

    ``None`` if the current table is in a separate file, or both are more than readers accept.

    Raises
    ------
    CorruptFileError
        The current table cannot be read.
    """
    before = next((entry for entry in entries if entry.name == REUSE_INDEX), None)
    if before is None:
        return entry
    current, mine = _details(before), _details(entry)
    if before.index_version or current.HasField("external"):
        return None
    if list(current.inline.versions) == list(mine.inline.versions[:-1]):
        return entry
    current.inline.versions.append(mine.inline.versions[-1])
    if _excess(current.inline.versions) is not None:
        return None
    joined = table_pb2.IndexMetadata()
    joined.CopyFrom(entry)
    joined.index_details.value = current.SerializeToString()
    return joined


StoredGroup = tuple[bytes, Sequence[_DETAILS.FragmentDigest], Sequence[_DETAILS.FragmentDigest]]
"""A group in the table of a manifest; like :data:`RelocatedGroup`, with digests of fragments."""


def stored_relocations(store: ObjectStore, manifest: Manifest) -> list[list[StoredGroup]]:
    """Relocated groups in the table of a manifest, by compaction, oldest first.

    Raises
    ------
    UnsupportedFeatureError
        The table has an unknown version, or is too large.
    CorruptFileError
        It cannot be read.
    """
    entry = next((index for index in manifest.indices if index.name == REUSE_INDEX), None)
    if entry is None:
        return []
    versions = _content(store, manifest, entry).versions
    excess = _excess(versions)
    if excess is not None:
        raise UnsupportedFeatureError(
            f"the entry {REUSE_INDEX} of {manifest.where} has {excess} are supported. Rebuild or "
            "drop the indices."
        )
    return [
        [
            (group.changed_row_addrs, group.old_fragments, group.new_fragments)
            for group in version.groups
        ]
        for version in versions
    ]


def _excess(versions: Sequence[_DETAILS.Version]) -> str | None:
    """Which limit a table exceeds, with the rows that it has; ``None`` if it does not."""
    every = 0
    for version in versions:
        old = [fragment for group in version.groups for fragment in group.old_fragments]
        new = [fragment for group in version.groups for fragment in group.new_fragments]
        rows = max(sum(fragment.physical_rows for fragment in side) for side in (old, new))
        if rows > MAX_RELOCATED_ROWS:
            return f"{rows} rows of one compaction; at most {MAX_RELOCATED_ROWS}"
        every += rows
    if every > _MAX_ROWS_IN_ALL:
        return f"{every} rows of {len(versions)} compactions; at most {_MAX_ROWS_IN_ALL}"
    return None


def followed(entries: Sequence[table_pb2.IndexMetadata]) -> list[table_pb2.IndexMetadata]:
    """Entries with the fragments that they cover after applying the remapping table among them.

    An index that covered all old fragments of a group covers the new ones. A table in a separate
    file, or of an unknown version, is not applied.

    Raises
    ------
    UnsupportedFeatureError
        The table is too long for so many segments.
    CorruptFileError
        It cannot be read, or the segments cover more fragments than those of a version may.
    """
    entry = next((entry for entry in entries if entry.name == REUSE_INDEX), None)
    if entry is None or entry.index_version:
        return list(entries)
    groups = [
        (
            frozenset(fragment.id for fragment in group.old_fragments),
            frozenset(fragment.id for fragment in group.new_fragments),
        )
        for version in _details(entry).inline.versions
        for group in version.groups
    ]
    coverage = {other.fragment_bitmap for other in entries if other is not entry}
    looked_at = len(coverage) * sum(1 + len(old) + len(new) for old, new in groups)
    if looked_at > _MAX_FOLLOWED:
        raise UnsupportedFeatureError(
            f"the entry {REUSE_INDEX} of the index section has {len(groups)} groups of fragments, "
            f"to be looked up for {len(coverage)} segments: {looked_at} looks; at most "
            f"{_MAX_FOLLOWED} are supported. Drop this entry, as an index of that name, or indices."
        )
    known: dict[bytes, bytes] = {}
    found = []
    for other in entries:
        before = other.fragment_bitmap
        if other is entry:
            found.append(other)
        elif before in known:  # segments of several columns cover the same
            found.append(other if known[before] == before else _with_bitmap(other, known[before]))
        else:
            found.append(follow_groups(other, groups))
            known[before] = found[-1].fragment_bitmap
    check_covered(found, f"the index section, with the entry {REUSE_INDEX} applied")
    return found


def _with_bitmap(entry: table_pb2.IndexMetadata, bitmap: bytes) -> table_pb2.IndexMetadata:
    changed = table_pb2.IndexMetadata()
    changed.CopyFrom(entry)
    changed.fragment_bitmap = bitmap
    return changed


def can_follow(
    entries: Sequence[table_pb2.IndexMetadata],
    groups: Sequence[frozenset[int]],
    table: table_pb2.IndexMetadata | None,
) -> bool:
    """Whether readers find the rows of entries after groups of old fragments were relocated.

    They do if an entry covers all of a group or nothing of it, and the table has the group.
    """
    if table is None or table.index_version or _details(table).HasField("external"):
        return False
    known = {
        frozenset(fragment.id for fragment in group.old_fragments): version.dataset_version
        for version in _details(table).inline.versions
        for group in version.groups
    }
    for entry in entries:
        if not entry.fragment_bitmap:
            return False
        bitmap = open_coverage(entry, "the index section")
        for group in groups:
            covered = sum(fragment in bitmap for fragment in group)
            whole = covered == len(group) and known.get(group, -1) >= entry.dataset_version
            if covered and not whole:
                return False
    return True


def precedes_relocation(entry: table_pb2.IndexMetadata, manifest: Manifest) -> bool:
    """Whether an index may hold addresses from before a compaction in the table of a manifest.

    One that was built later has none. Reads no file: of a table in a separate file nothing is
    known.
    """
    return _precedes(entry, _last_relocation(manifest))


def _precedes(entry: table_pb2.IndexMetadata, last: int | None) -> bool:
    return last is not None and entry.name != REUSE_INDEX and last >= entry.dataset_version


def _last_relocation(manifest: Manifest) -> int | None:
    """The last version that a compaction of the table read; the last there can be: not known."""
    table = next((index for index in manifest.indices if index.name == REUSE_INDEX), None)
    if table is None:
        return None
    details = None if table.index_version else _details(table)
    if details is None or details.HasField("external"):
        return _LAST_VERSION
    return max((version.dataset_version for version in details.inline.versions), default=None)


def without_relocation(
    entries: Sequence[table_pb2.IndexMetadata], base: Manifest
) -> list[table_pb2.IndexMetadata]:
    """Entries, after a change may have removed the remapping table of ``base``.

    Indices that may need it cover nothing any more: where their rows are, nobody knows.
    """
    if any(entry.name == REUSE_INDEX for entry in entries):
        return list(entries)
    last = _last_relocation(base)  # once: the table may be long, and the entries many
    return [with_covered(entry, ()) if _precedes(entry, last) else entry for entry in entries]


def _details(entry: table_pb2.IndexMetadata) -> table_pb2.FragmentReuseIndexDetails:
    where = f"the index section, entry {REUSE_INDEX}"
    details = parse(_DETAILS(), entry.index_details.value, "remapping table", where)
    _check(details.inline, where)
    return details


def _check(content: table_pb2.FragmentReuseIndexDetails.InlineContent, where: object) -> None:
    """Check the bounds of fragment ids and row counts."""
    for version in content.versions:
        for group in version.groups:
            for fragment in (*group.old_fragments, *group.new_fragments):
                if fragment.id > MAX_FRAGMENT_ID or fragment.physical_rows > MAX_FRAGMENT_ROWS:
                    raise CorruptFileError(
                        "fragment in the remapping table",
                        expected="an id below 2^32, and at most 2^32 rows",
                        found=f"id {fragment.id}, {fragment.physical_rows} rows",
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
            "this version of glaive does not support. Rebuild or drop the indices first."
        )
    where = f"{manifest.where}, index {REUSE_INDEX}"
    details = _details(entry)
    if not details.HasField("external"):
        return details.inline
    if entry.HasField("base_id"):
        store, _ = base_of(store, manifest, entry.base_id)
    part = details.external
    name = check_file_name(part.path, "path of the remapping table", where)
    check_ending(name, ".binpb", "path of the remapping table", where)
    path = f"{INDICES}/{UUID(bytes=entry.uuid.uuid)}/{name}"
    data = store.get(path)
    if part.offset > data.size or part.size > data.size - part.offset:
        raise CorruptFileError(
            "remapping table in a file of its own",
            expected=f"{part.size} bytes from byte {part.offset} on",
            found=f"a file of {data.size} bytes, {store.full(path)}",
            where=where,
        )
    content = parse(
        _DETAILS.InlineContent(), data.slice(part.offset, part.size), "remapping table", where
    )
    _check(content, where)
    return content
