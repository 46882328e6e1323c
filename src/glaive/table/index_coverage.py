"""Update the coverage of indices when the data changes.

An index entry has its fields and the fragments it was built from, as a roaring bitmap in the
portable layout.

Specification: "Building the manifest" in ``docs/format/building-the-manifest.md``.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.bitmaps import bitmap_of
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest, check_covered, check_entry, open_coverage
from glaive.format.paths import INDICES
from glaive.format.pb import table_pb2
from glaive.format.wire import (
    MAX_FRAGMENT_ID,
    MAX_FRAGMENT_ROWS,
    check_ending,
    check_file_name,
    parse,
)
from glaive.io.store import ObjectStore
from glaive.process import new_uuid, now_ns
from glaive.table.protocol import Conflict
from glaive.table.root import base_of
from glaive.types import Flags, Int64s

# --- Positions of fragments by id: many lookups among the fragments of one version ------


class FragmentPositions:
    """Positions of fragments in the list of a version.

    The time of a lookup depends on the fragments asked for, not on all fragments. A version may
    have as many index segments as fragments, and each segment covers a few.

    Parameters
    ----------
    ids
        Ids of all fragments, in the order of the version.
    """

    def __init__(self, ids: Int64s) -> None:
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]

    def of(self, wanted: Iterable[int]) -> Int64s:
        """Return positions of fragments that the version has, in any order; first one per id."""
        known = (number for number in wanted if 0 <= number <= MAX_FRAGMENT_ID)
        numbers = np.fromiter(known, np.int64)
        at = np.searchsorted(self._sorted, numbers)
        inside = at < len(self._sorted)
        at, numbers = at[inside], numbers[inside]
        positions: Int64s = self._order[at[self._sorted[at] == numbers]]
        return positions

    def marked(self, wanted: Iterable[int]) -> Flags:
        """Return for each fragment whether it has one of these ids."""
        flags = np.zeros(len(self._sorted), np.bool_)
        flags[self.of(wanted)] = True
        return flags


_MAX_FRAGMENTS = 1 << 20
"""Maximum fragments listed per segment: a few bytes may encode billions."""

_MAX_INDEX_VERSION = 2**31 - 1

Entry = table_pb2.IndexMetadata
Rewritten = table_pb2.Transaction.Rewrite.RewrittenIndex


def covered_fragments(entry: Entry) -> frozenset[int] | None:
    """Return fragments that an index was built from; ``None`` if unknown.

    Raises
    ------
    CorruptFileError
        The bitmap is invalid.
    """
    if not entry.fragment_bitmap:
        return None
    bitmap = open_coverage(entry, "the index section")
    if len(bitmap) > _MAX_FRAGMENTS:
        raise CorruptFileError(
            f"fragments of index {entry.name!r}",
            expected=f"at most {_MAX_FRAGMENTS}",
            found=f"{len(bitmap)}",
            where="the index section",
        )
    return frozenset(bitmap)


def with_covered(entry: Entry, fragments: Iterable[int]) -> Entry:
    """Return the entry with other fragments."""
    from pyroaring import BitMap

    changed = Entry()
    changed.CopyFrom(entry)
    changed.fragment_bitmap = BitMap(sorted(fragments)).serialize()
    return changed


def encode_indices(entries: Sequence[Entry]) -> bytes | None:
    """Return the index section with these entries, or ``None`` for an empty list."""
    if not entries:
        return None
    return table_pb2.IndexSection(indices=entries).SerializeToString()


def has_covering_fields(section: bytes | None) -> bool:
    """Return whether an index of a section has covering fields.

    Raises
    ------
    CorruptFileError
        The section is invalid.
    """
    if section is None:
        return False
    message = parse(table_pb2.IndexSection(), section, "index section", "the previous version")
    return any(index.covering_fields for index in message.indices)


def keep_relevant(
    entries: Iterable[Entry], before: LanceSchema, field_ids: Collection[int]
) -> list[Entry]:
    """Drop the entries with a field that was dropped or got another id, wholly or in part.

    ``before`` is the schema of these entries.
    """
    known = set(field_ids)
    lost = related_fields(before, set(before.field_ids()) - known)
    return [one for one in entries if known.issuperset(one.fields) and lost.isdisjoint(one.fields)]


def parts_of(schema: LanceSchema, field_ids: Iterable[int]) -> set[int]:
    """Return ids of fields, and of their members and items, at any depth."""
    found = set(field_ids)
    for field in schema.walk():
        if field.id in found:
            found.update(part.id for part in field.children)
    return found


def related_fields(schema: LanceSchema, changed: Iterable[int]) -> frozenset[int]:
    """Return fields whose values change with some fields: these, their parents and their parts.

    The index of a list or struct names the whole, while a data file may name its items or members
    only. An update names a whole struct, while an index may name one of its members.
    """
    given = frozenset(changed)
    found = set(given)

    def add(field: Field, *, inside: bool) -> bool:
        is_changed = inside or field.id in given
        parts = [add(child, inside=is_changed) for child in field.children]
        if is_changed or any(parts):
            found.add(field.id)
        return field.id in found

    for top in schema.fields:
        add(top, inside=False)
    return frozenset(found)


def prune(
    entries: Iterable[Entry], fragments: Collection[int], fields: Collection[int]
) -> list[Entry]:
    """Remove fragments from the coverage of indices on replaced fields (:func:`related_fields`).

    After a compaction with deferred remap, entries name the old fragments: follow it first.
    """
    pruned, replaced = [], frozenset(fragments)
    for entry in entries:
        covered = covered_fragments(entry) if set(entry.fields) & set(fields) else None
        changed = covered is not None and covered & replaced
        pruned.append(with_covered(entry, covered - replaced) if covered and changed else entry)
    return pruned


def without_new(entries: list[Entry], added: Iterable[int]) -> list[Entry]:
    """Remove fragments from entries if a caller gave their ids to new fragments; skip id 0.

    A removed fragment may have had such an id and stays in the coverage. So do the fragments before
    a compaction with deferred remap.
    """
    given = frozenset(added) - {0} if entries else frozenset[int]()
    if not given:
        return entries
    changed = []
    for entry in entries:
        covered = covered_fragments(entry) or frozenset()
        is_old = not covered.isdisjoint(given)
        changed.append(with_covered(entry, covered - given) if is_old else entry)
    return changed


def cover_relocated(
    entries: Iterable[Entry],
    origins: frozenset[int],
    relocated: Collection[int],
    updated_fields: Collection[int],
) -> list[Entry]:
    """Return entries after rows moved with their stable ids.

    Parameters
    ----------
    origins
        Source fragments of the rows. An index that covered all of them has all the rows.
    relocated
        Fragments with only such rows.
    updated_fields
        Fields with new values, all :func:`related_fields`; empty if unknown.
    """
    changed = []
    for entry in entries:
        unaffected = updated_fields and not set(entry.fields) & set(updated_fields)
        valid = unaffected and relocated and not holds_addresses(entry)
        covered = covered_fragments(entry) if valid else None
        if covered is None or not origins <= covered:
            changed.append(entry)
        else:
            changed.append(with_covered(entry, covered.union(relocated)))
    return changed


def holds_addresses(entry: Entry) -> bool:
    """Return whether an index stores row addresses although the dataset has stable row ids."""
    kind = kind_name(entry.index_details.type_url)
    return entry.index_version >= _ADDRESSES_FROM.get(kind, _NEVER)


def kind_name(type_url: str) -> str:
    """Return the name of an index type from the type URL of its details, in lower case."""
    return type_url.rpartition("/")[2].rpartition(".")[2].lower().removesuffix("indexdetails")


_NEVER = 1 << 30
_ADDRESSES_FROM = {
    "bitmap": 1,
    "bloomfilter": 0,
    "btree": 1,
    "fm": 0,
    "json": 1,
    "labellist": 2,
    "minhashlsh": 1,
    "ngram": 1,
    "rtree": 1,
    "zonemap": 0,
}
"""Minimum index version at which an index type stores addresses."""


def remap(
    entries: Iterable[Entry],
    groups: Sequence[tuple[frozenset[int], frozenset[int]]],
    rewritten: Sequence[Rewritten],
    *,
    keeps_all: bool,
    mapped: bool = False,
    coverage: Mapping[bytes, frozenset[int]] | None = None,
) -> list[Entry]:
    """Return entries after fragments were rewritten.

    Parameters
    ----------
    groups
        Old and new fragments. An index that covered all old fragments covers the new fragments.
    rewritten
        Indices that were rebuilt for the new row addresses.
    keeps_all
        Whether row ids are stable, so that indices that store ids remain valid.
    mapped
        Whether a remapping table exists for the other indices.
    coverage
        Fragments that rebuilt indices cover, by uuid, if the old entry lacks them.

    Notes
    -----
    If ``keeps_all`` is false, an index outside ``rewritten`` keeps the removed old fragments. So
    its coverage lacks the new fragments.
    """
    by_old_id = {rewrite.old_id.uuid: rewrite for rewrite in rewritten}
    changed = []
    for entry in entries:
        rebuilt = by_old_id.get(entry.uuid.uuid)
        before = covered_fragments(entry)
        new = entry if rebuilt is None else _rebuilt(entry, rebuilt)
        valid = keeps_all and not holds_addresses(entry)
        after: AbstractSet[int] | None = before
        if before is None:
            if rebuilt is not None:
                after = (coverage or {}).get(rebuilt.new_id.uuid, frozenset())
            elif entry.fields and not mapped and not valid:
                after = frozenset()  # It may store addresses of relocated rows.
        elif rebuilt is not None or valid:
            after = _replaced(before, groups)
        elif keeps_all:
            after = before.difference(*(old for old, _ in groups))
        changed.append(new if after == before else with_covered(new, after or ()))
    return changed


def _replaced(
    covered: frozenset[int], groups: Iterable[tuple[frozenset[int], frozenset[int]]]
) -> AbstractSet[int]:
    """Return the coverage with fully covered groups replaced by their new fragments."""
    after = set(covered)  # one copy, whatever the number of groups
    for old, new in groups:
        if old and old <= after:
            after -= old
            after |= new
    return after


def follow_groups(entry: Entry, groups: Iterable[tuple[frozenset[int], frozenset[int]]]) -> Entry:
    """Return the entry with fully covered groups replaced by their new fragments."""
    before = covered_fragments(entry)
    after = None if before is None else _replaced(before, groups)
    return entry if after is None or after == before else with_covered(entry, after)


def _rebuilt(entry: Entry, new: Rewritten) -> Entry:
    """Return the entry of a rebuilt index, whose folder is below the dataset's own root.

    Raises
    ------
    CorruptFileError
        All readers of the new version would refuse it.
    """
    if new.new_index_version > _MAX_INDEX_VERSION:
        raise CorruptFileError(
            f"version of index {entry.name!r}",
            expected=f"at most {_MAX_INDEX_VERSION}",
            found=f"{new.new_index_version}",
            where="the transaction",
        )
    changed = Entry()
    changed.CopyFrom(entry)
    changed.ClearField("base_id")
    changed.uuid.CopyFrom(new.new_id)
    if new.HasField("new_index_details"):
        changed.index_details.CopyFrom(new.new_index_details)
    changed.index_version = new.new_index_version
    if new.new_index_files:
        del changed.files[:]
        changed.files.extend(new.new_index_files)
    check_entry(changed, "the transaction")
    return changed


def rewrite_conflict(
    entries: Sequence[table_pb2.IndexMetadata], rewritten: frozenset[int]
) -> Conflict | None:
    """Return a conflict if an index covers a rewritten fragment, or its coverage is unknown.

    Lists only rewritten fragments: a few bytes per entry may encode millions of fragments.
    """
    from pyroaring import BitMap

    known = BitMap([fragment for fragment in rewritten if fragment <= MAX_FRAGMENT_ID])
    for entry in entries:
        unknown = not entry.fragment_bitmap
        both = known if unknown else open_coverage(entry, "the index section") & known
        if unknown or both:
            return Conflict(
                f"fragments that index {entry.name} was built from were rewritten",
                fragments=rewritten if unknown else frozenset(both),
            )
    return None


# --- The remapping table of moved rows, for indices that stay as they are ---------------
# Indices store row addresses. Instead of rebuilding them, a compaction may store a table of old
# and new addresses in the index section, which readers apply.
#
# Specification: "Rows that moved" in ``docs/format/refs.md``.

REUSE_INDEX = "__lance_frag_reuse"
"""Name of the entry of the index section."""

MAX_RELOCATED_ROWS = 1 << 27
"""Maximum rows per stored compaction: scattered rows take 24 bytes or more each."""

_MAX_ROWS_IN_ALL = 1 << 29
"""Maximum rows of all stored compactions."""

_MAX_FOLLOWED = 1 << 25
"""Maximum of fragments in the table times segments with different coverage."""

_LAST_VERSION = 2**64 - 1
"""The highest version: versions are unsigned 64-bit numbers."""

_TYPE = "/lance.table.FragmentReuseIndexDetails"
_DETAILS = table_pb2.FragmentReuseIndexDetails

RelocatedGroup = tuple[bytes, Sequence[Fragment], Sequence[Fragment]]
"""Old addresses of the moved rows, their old fragments, and their new fragments."""


def address_map(addresses: Iterable[NDArray[np.uint64]]) -> bytes:
    """Return old addresses of the moved rows, ascending, as a 64-bit roaring bitmap."""
    from pyroaring import BitMap64

    bitmap = BitMap64()
    for part in addresses:
        if len(part) and int(part[-1] - part[0]) == len(part) - 1:
            bitmap.add_range(int(part[0]), int(part[-1]) + 1)
        else:  # an array is by far the fastest input of pyroaring
            bitmap |= BitMap64(array("Q", part.tobytes()))
    return bitmap.serialize()


def reuse_entry(
    store: ObjectStore, manifest: Manifest, groups: Sequence[RelocatedGroup]
) -> table_pb2.IndexMetadata | None:
    """Return the entry of the index section after moving groups of ``manifest``.

    Returns ``None`` if it would have more rows than readers accept: then rebuild the indices.

    Raises
    ------
    UnsupportedFeatureError
        The existing entry has an unknown version.
    CorruptFileError
        The existing entry is invalid.
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
    """Return the result of :func:`reuse_entry`, appended to the current table among ``entries``.

    Returns ``None`` if the current table is in a separate file, or both exceed readers' limits.

    Raises
    ------
    CorruptFileError
        The current table is invalid.
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
    """Return moved groups in the table of a manifest, by compaction, oldest first.

    Raises
    ------
    UnsupportedFeatureError
        The table has an unknown version, or is too large.
    CorruptFileError
        The table is invalid.
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
    """Return the limit that a table exceeds, with its number of rows, or ``None``."""
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


def after_remapping(entries: Sequence[table_pb2.IndexMetadata]) -> list[table_pb2.IndexMetadata]:
    """Return entries with the fragments that they cover after the remapping table among them.

    An index that covered all old fragments of a group covers the new fragments. Ignores a table in
    a separate file, or of an unknown version.

    Raises
    ------
    UnsupportedFeatureError
        The table is too long for so many segments.
    CorruptFileError
        The table is invalid, or the segments cover more fragments than a version may have.
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
            f"the entry {REUSE_INDEX} of the index section has {len(groups)} groups of fragments "
            f"for {len(coverage)} segments. This needs {looked_at} lookups, and at most "
            f"{_MAX_FOLLOWED} are supported. Drop this entry, as an index of that name, or indices."
        )
    known: dict[bytes, bytes] = {}
    found = []
    for other in entries:
        before = other.fragment_bitmap
        if other is entry:
            found.append(other)
        elif before in known:  # segments of several columns cover the same fragments
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


def can_remap(
    entries: Sequence[table_pb2.IndexMetadata],
    groups: Sequence[frozenset[int]],
    table: table_pb2.IndexMetadata | None,
) -> bool:
    """Return whether readers find the rows of entries after groups of old fragments moved.

    They do if each entry covers a whole group or nothing of it, and the table has the group.
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
    """Return whether an index may hold addresses from before a compaction in the table.

    An index that was built later holds only new addresses. A table in a separate file stays unread
    and counts as unknown.
    """
    return _precedes(entry, _last_relocation(manifest))


def _precedes(entry: table_pb2.IndexMetadata, last: int | None) -> bool:
    return last is not None and entry.name != REUSE_INDEX and last >= entry.dataset_version


def _last_relocation(manifest: Manifest) -> int | None:
    """Return the last version that a compaction of the table read; the highest if unknown."""
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
    """Return entries after a change that may have removed the remapping table of ``base``.

    Indices that may need the table get an empty coverage: their rows are at unknown addresses.
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
