"""Update the coverage of indices when the data changes.

An index entry has its fields and the fragments it was built from, the latter as a roaring bitmap
in the portable layout.

Specification: "Building the manifest" in ``docs/format/transactions.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from glaive.errors import CorruptFileError
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.index_section import check_entry, open_coverage
from glaive.format.limits import MAX_FRAGMENT_ID
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.table.protocol import Conflict

__all__ = [
    "cover_relocated",
    "covered_fragments",
    "encode_indices",
    "follow_groups",
    "has_covering_fields",
    "holds_addresses",
    "keep_relevant",
    "kind_name",
    "parts_of",
    "prune",
    "related_fields",
    "remap",
    "rewritten_under",
    "with_covered",
    "without_new",
]

_MAX_FRAGMENTS = 1 << 20
"""Limit of fragments listed per segment: a few bytes can stand for billions."""

_MAX_INDEX_VERSION = 2**31 - 1

Entry = table_pb2.IndexMetadata
Rewritten = table_pb2.Transaction.Rewrite.RewrittenIndex


def covered_fragments(entry: Entry) -> frozenset[int] | None:
    """Fragments that an index was built from; ``None`` if unknown.

    Raises
    ------
    CorruptFileError
        The bitmap cannot be read.
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
    """The entry with other fragments."""
    from pyroaring import BitMap

    changed = Entry()
    changed.CopyFrom(entry)
    changed.fragment_bitmap = BitMap(sorted(fragments)).serialize()
    return changed


def encode_indices(entries: Sequence[Entry]) -> bytes | None:
    """The index section with these entries; ``None`` if there are none."""
    if not entries:
        return None
    return table_pb2.IndexSection(indices=entries).SerializeToString()


def has_covering_fields(section: bytes | None) -> bool:
    """Whether an index of a section has covering fields.

    Raises
    ------
    CorruptFileError
        The section cannot be read.
    """
    if section is None:
        return False
    message = parse(table_pb2.IndexSection(), section, "index section", "the previous version")
    return any(index.covering_fields for index in message.indices)


def keep_relevant(
    entries: Iterable[Entry], before: LanceSchema, field_ids: Collection[int]
) -> list[Entry]:
    """Drop the entries of which a field, or a part of it, was dropped or got another id.

    ``before`` is the schema that had them.
    """
    known = set(field_ids)
    lost = related_fields(before, set(before.field_ids()) - known)
    return [one for one in entries if known.issuperset(one.fields) and lost.isdisjoint(one.fields)]


def parts_of(schema: LanceSchema, field_ids: Iterable[int]) -> set[int]:
    """Ids of fields, and of their members and items, at any depth."""
    found = set(field_ids)
    for field in schema.walk():
        if field.id in found:
            found.update(part.id for part in field.children)
    return found


def related_fields(schema: LanceSchema, changed: Iterable[int]) -> frozenset[int]:
    """Fields that have other values where some fields have: these, what they are in, their parts.

    The index of a list or a struct names this, and a data file may name its items or members alone;
    an update names a whole struct, and an index maybe one of its members.
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
    """Remove fragments from the coverage of indices on replaced fields, all :func:`related_fields`.

    Entries name the fragments of before a compaction whose remap is deferred: follow it first.
    """
    pruned, replaced = [], frozenset(fragments)
    for entry in entries:
        covered = covered_fragments(entry) if set(entry.fields) & set(fields) else None
        changed = covered is not None and covered & replaced
        pruned.append(with_covered(entry, covered - replaced) if covered and changed else entry)
    return pruned


def without_new(entries: list[Entry], added: Iterable[int]) -> list[Entry]:
    """Entries without fragments with ids that a caller gave, or may give, new ones; 0 is none.

    One that was removed may have had this id, and stays in the coverage, as do those of before a
    compaction whose remap is deferred.
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
    """Entries after rows were relocated with their stable ids.

    Parameters
    ----------
    origins
        Source fragments of the rows: an index that covered all of them has all the rows.
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
    """Whether an index of a dataset with stable row ids nevertheless stores row addresses."""
    kind = kind_name(entry.index_details.type_url)
    return entry.index_version >= _ADDRESSES_FROM.get(kind, _NEVER)


def kind_name(type_url: str) -> str:
    """Name of an index type from the type URL of its details, without package, in lower case."""
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
"""Index versions from which an index type stores addresses."""


def remap(
    entries: Iterable[Entry],
    groups: Sequence[tuple[frozenset[int], frozenset[int]]],
    rewritten: Sequence[Rewritten],
    *,
    keeps_all: bool,
    mapped: bool = False,
    coverage: Mapping[bytes, frozenset[int]] | None = None,
) -> list[Entry]:
    """Entries after fragments were rewritten.

    Parameters
    ----------
    groups
        Old and new fragments. An index that covered all old ones covers the new ones.
    rewritten
        Indices that were rebuilt for the new row addresses.
    keeps_all
        Whether row ids are stable: indices that store ids, not addresses, remain valid.
    mapped
        Whether there is a remapping table for indices that were not rebuilt.
    coverage
        Fragments that rebuilt indices cover, by uuid, if the old entry did not specify them.

    Notes
    -----
    Without stable row ids, an index that was not rebuilt keeps listing the removed old fragments,
    so it does not cover the new ones.
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
    """The coverage with fully covered groups replaced by their new fragments."""
    after = set(covered)  # one copy, whatever the number of groups
    for old, new in groups:
        if old and old <= after:
            after -= old
            after |= new
    return after


def follow_groups(entry: Entry, groups: Iterable[tuple[frozenset[int], frozenset[int]]]) -> Entry:
    """The entry with fully covered groups replaced by their new fragments."""
    before = covered_fragments(entry)
    after = None if before is None else _replaced(before, groups)
    return entry if after is None or after == before else with_covered(entry, after)


def _rebuilt(entry: Entry, new: Rewritten) -> Entry:
    """The entry of a rebuilt index, whose folder is below the dataset's own root.

    Raises
    ------
    CorruptFileError
        No reader of the new version would accept it.
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


def rewritten_under(
    entries: Sequence[table_pb2.IndexMetadata], rewritten: frozenset[int]
) -> Conflict | None:
    """A conflict if an index covers a rewritten fragment, or its coverage is unknown.

    Lists no fragment that is not rewritten: a few bytes of each of many entries can stand for
    millions.
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
