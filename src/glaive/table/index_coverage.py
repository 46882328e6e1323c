"""What changes of the data mean for the indices of a version: which fragments they cover.

An index entry names its fields and the fragments it was built from, the latter as a roaring
bitmap in the portable layout.

Specification: "Building the manifest" in ``docs/format/transactions.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from glaive.errors import CorruptFileError
from glaive.format.index_section import open_coverage
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.table.protocol import Conflict

__all__ = [
    "covered_fragments",
    "encode_indices",
    "follow_groups",
    "follow_moved",
    "has_covering_fields",
    "holds_addresses",
    "keep_relevant",
    "kind_name",
    "prune",
    "remap",
    "rewritten_under",
    "with_covered",
]

_MOST_FRAGMENTS = 1 << 20
"""Fragments under one segment: they are listed, and few bytes can stand for billions."""

Entry = table_pb2.IndexMetadata
Rewritten = table_pb2.Transaction.Rewrite.RewrittenIndex


def covered_fragments(entry: Entry) -> frozenset[int] | None:
    """Fragments an index was built from; ``None`` when that is not known.

    Raises
    ------
    CorruptFileError
        The bitmap cannot be read.
    """
    if not entry.fragment_bitmap:
        return None
    bitmap = open_coverage(entry, "the index section")
    if len(bitmap) > _MOST_FRAGMENTS:
        raise CorruptFileError(
            f"fragments of index {entry.name!r}",
            expected=f"at most {_MOST_FRAGMENTS}",
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
    """The index section with these entries; ``None`` when there are none."""
    if not entries:
        return None
    return table_pb2.IndexSection(indices=entries).SerializeToString()


def has_covering_fields(section: bytes | None) -> bool:
    """Whether an index of a section has covering fields.

    Raises
    ------
    CorruptFileError
        The section, as the version before has it, cannot be read.
    """
    if section is None:
        return False
    found = parse(table_pb2.IndexSection(), section, "index section", "the version before")
    return any(index.covering_fields for index in found.indices)


def keep_relevant(entries: Iterable[Entry], field_ids: Collection[int]) -> list[Entry]:
    """Drop the entries of which a field is gone."""
    known = set(field_ids)
    return [entry for entry in entries if known.issuperset(entry.fields)]


def prune(
    entries: Iterable[Entry], fragments: Collection[int], fields: Collection[int]
) -> list[Entry]:
    """Take fragments out of the entries of fields whose values there were replaced."""
    kept, gone = [], frozenset(fragments)
    for entry in entries:
        covered = covered_fragments(entry) if set(entry.fields) & set(fields) else None
        kept.append(with_covered(entry, covered - gone) if covered and covered & gone else entry)
    return kept


def follow_moved(
    entries: Iterable[Entry],
    origins: frozenset[int],
    moved: Collection[int],
    touched: Collection[int],
) -> list[Entry]:
    """Entries after rows moved and kept their ids, and the values of other fields.

    Parameters
    ----------
    origins
        Fragments the rows come from: an index that covered all of them knows all the rows.
    moved
        Fragments with nothing but such rows.
    touched
        Fields with new values; none if it is not known which.
    """
    followed = []
    for entry in entries:
        stays = touched and not set(entry.fields) & set(touched) and not holds_addresses(entry)
        covered = covered_fragments(entry) if stays and moved else None
        if covered is None or not origins <= covered:
            followed.append(entry)
        else:
            followed.append(with_covered(entry, covered.union(moved)))
    return followed


def holds_addresses(entry: Entry) -> bool:
    """Whether an index of a dataset with stable row ids holds row addresses all the same."""
    kind = kind_name(entry.index_details.type_url)
    return entry.index_version >= _ADDRESSES_FROM.get(kind, _NEVER)


def kind_name(type_url: str) -> str:
    """Name of a kind by the type of its details, whatever package and case it is written in."""
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
"""Version of the index's own format from which it holds addresses."""


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
        Old and new fragments. Where an index covered all the old ones, it covers the new.
    rewritten
        Indices that were rebuilt for the new row addresses.
    keeps_all
        Whether row ids outlive a rewrite: indices that hold ids, not addresses, stay right.
    mapped
        Whether there is a map of where rows went, for indices that were not rebuilt.
    coverage
        Fragments that indices rebuilt cover, by uuid, where the entry before did not say.

    Notes
    -----
    Where row ids are addresses, an index that was not rebuilt keeps naming the old
    fragments: these are gone, and so it covers none of the new.
    """
    by_old_id = {one.old_id.uuid: one for one in rewritten}
    removed = frozenset(one for old, _ in groups for one in old)
    kept = []
    for entry in entries:
        made = by_old_id.get(entry.uuid.uuid)
        before = covered_fragments(entry)
        changed = entry if made is None else _made_anew(entry, made)
        after = before
        if before is None:
            if made is not None:
                after = (coverage or {}).get(made.new_id.uuid, frozenset())
            elif entry.fields and not mapped and not (keeps_all and not holds_addresses(entry)):
                after = frozenset()  # It may hold addresses of rows that moved.
        elif made is not None or (keeps_all and not holds_addresses(entry)):
            after = _moved(before, groups)
        elif keeps_all:
            after = before - removed
        kept.append(changed if after == before else with_covered(changed, after or ()))
    return kept


def _moved(
    covered: frozenset[int], groups: Iterable[tuple[frozenset[int], frozenset[int]]]
) -> frozenset[int]:
    """Fragments covered after groups moved: the new ones for groups covered as a whole."""
    for old, new in groups:
        if old and old <= covered:
            covered = (covered - old) | new
    return covered


def follow_groups(entry: Entry, groups: Iterable[tuple[frozenset[int], frozenset[int]]]) -> Entry:
    """The entry with the new fragments of groups whose old ones it covered."""
    before = covered_fragments(entry)
    after = None if before is None else _moved(before, groups)
    return entry if after is None or after == before else with_covered(entry, after)


def _made_anew(entry: Entry, made: Rewritten) -> Entry:
    """The entry with another folder, which is below the dataset's own root."""
    changed = Entry()
    changed.CopyFrom(entry)
    changed.ClearField("base_id")
    changed.uuid.CopyFrom(made.new_id)
    if made.HasField("new_index_details"):
        changed.index_details.CopyFrom(made.new_index_details)
    changed.index_version = made.new_index_version
    if made.new_index_files:
        del changed.files[:]
        changed.files.extend(made.new_index_files)
    return changed


def rewritten_under(
    entries: Sequence[table_pb2.IndexMetadata], rewritten: frozenset[int]
) -> Conflict | None:
    """A conflict if an index covers a rewritten fragment, or does not tell what it covers."""
    for entry in entries:
        covered = covered_fragments(entry)
        if covered is None or covered & rewritten:
            both = rewritten if covered is None else covered & rewritten
            return Conflict(
                f"fragments that index {entry.name} was built from were rewritten",
                fragments=both,
            )
    return None
