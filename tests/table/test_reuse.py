"""Stored maps of moved rows: what they say of fragments and rows is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from pyroaring import BitMap64

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.bitmaps import bitmap_of
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import WireOperation
from glaive.io.access import open_store
from glaive.table.index_coverage import (
    MAX_RELOCATED_ROWS,
    REUSE_INDEX,
    after_remapping,
    covered_fragments,
    stored_relocations,
)
from glaive.table.operations.rewrite import Rewrite
from glaive.table.protocol import Conflict

DETAILS = table_pb2.FragmentReuseIndexDetails


def moved() -> table_pb2.FragmentReuseIndexDetails:
    details = DETAILS()
    group = details.inline.versions.add(dataset_version=1).groups.add()
    group.changed_row_addrs = BitMap64([0, 2]).serialize()
    group.old_fragments.add(id=0, physical_rows=3)
    group.new_fragments.add(id=4, physical_rows=2)
    return details


def manifest(details: table_pb2.FragmentReuseIndexDetails) -> Manifest:
    entry = table_pb2.IndexMetadata(name=REUSE_INDEX)
    entry.uuid.uuid = bytes(16)
    entry.index_details.value = details.SerializeToString()
    section = table_pb2.IndexSection(indices=[entry]).SerializeToString()
    return Manifest(table_pb2.ManifestOutline(), where="m", index_section=section)


STORE = open_store("memory://reuse/table")


def test_a_map_names_the_fragments() -> None:
    ((group,),) = stored_relocations(STORE, manifest(moved()))
    assert [one.id for one in group[1]] == [0]
    assert [one.id for one in group[2]] == [4]


@pytest.mark.parametrize("part", ["old_fragments", "new_fragments"])
@pytest.mark.parametrize(
    ("name", "number"), [("id", 2**32), ("id", 2**48), ("physical_rows", 2**32 + 1)]
)
def test_fragments_that_there_cannot_be_are_damage(part: str, name: str, number: int) -> None:
    details = moved()
    (one,) = getattr(details.inline.versions[0].groups[0], part)
    setattr(one, name, number)
    for read in (
        lambda: stored_relocations(STORE, manifest(details)),
        lambda: after_remapping(manifest(details).indices),
    ):
        with pytest.raises(CorruptFileError, match=r"fragment in the remapping table.*2\^32"):
            read()


def test_more_rows_than_can_be_followed_are_refused() -> None:
    details = moved()
    details.inline.versions[0].groups[0].old_fragments[0].physical_rows = 2**32
    message = f"4294967296 rows.*at most {MAX_RELOCATED_ROWS}"
    with pytest.raises(UnsupportedFeatureError, match=message):
        stored_relocations(STORE, manifest(details))


@pytest.mark.spec("rel-24")
def test_rows_of_many_compactions_are_counted_together() -> None:
    details = moved()
    for number in range(7):
        group = details.inline.versions.add(dataset_version=2 + number).groups.add()
        group.old_fragments.add(id=10 + number, physical_rows=MAX_RELOCATED_ROWS // 2)
    assert len(stored_relocations(STORE, manifest(details))) == 8
    group.old_fragments.add(id=20, physical_rows=MAX_RELOCATED_ROWS // 2)
    with pytest.raises(UnsupportedFeatureError, match="of 8 compactions; at most"):
        stored_relocations(STORE, manifest(details))


ELSEWHERE: dict[str, Callable[[Any], object]] = {
    "path": lambda one: setattr(one, "path", "../../secret"),
    "nothing": lambda one: setattr(one, "path", ""),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_a_map_in_a_file_elsewhere_is_damage(what: str) -> None:
    details = DETAILS()
    details.external.SetInParent()
    ELSEWHERE[what](details.external)
    with pytest.raises(CorruptFileError, match="expected a path below its folder"):
        stored_relocations(STORE, manifest(details))


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize(
    ("offset", "more"), [(0, 4), (3, 1), (4, 0), (10_000, 0), (2**64 - 1, 0), (3, 2**63)]
)
def test_a_map_that_its_file_does_not_hold_whole_is_damage(offset: int, more: int) -> None:
    """Fewer bytes are a map, too: one of fewer rows."""
    content = moved().inline.SerializeToString()
    details = DETAILS()
    details.external.path, details.external.offset = "details.binpb", 3
    details.external.size = len(content)
    STORE.put(f"_indices/{UUID(int=0)}/details.binpb", [b"abc", content])
    assert stored_relocations(STORE, manifest(details)) == stored_relocations(
        STORE, manifest(moved())
    )
    details.external.offset, details.external.size = offset, len(content) + more
    with pytest.raises(CorruptFileError, match="in a file of its own"):
        stored_relocations(STORE, manifest(details))


def test_a_compaction_does_not_overtake_a_map_that_another_put_into_a_file() -> None:
    """Nobody could say which rows both have moved."""
    inside, outside = moved(), DETAILS()
    outside.external.path = "details"
    (mine,) = manifest(inside).indices
    base = manifest(outside)
    rewrite = Rewrite(groups=(), reuse_index=mine)
    found = rewrite.rebase([WireOperation("append"), WireOperation("rewrite")], base, {})
    assert isinstance(found, Conflict)
    assert found.reason == "rewrite stored a remapping table that this one cannot be added to"
    assert rewrite.rebase([WireOperation("append")], base, {}) is rewrite


@pytest.mark.spec("rel-25")
def test_more_groups_than_can_be_looked_up_for_all_segments_are_refused() -> None:
    entries = []
    for covered in range(3000):
        entry = table_pb2.IndexMetadata(name=f"i{covered}")
        entry.fragment_bitmap = bitmap_of([covered])
        entries.append(entry)
    details = DETAILS()
    groups = details.inline.versions.add(dataset_version=1).groups
    groups.extend([DETAILS.Group()] * 30_000)
    table = table_pb2.IndexMetadata(name=REUSE_INDEX)
    table.index_details.value = details.SerializeToString()
    assert after_remapping([table, *entries[:1000]]) == [table, *entries[:1000]]
    with pytest.raises(UnsupportedFeatureError, match=r"30000 groups.* 3000 segments"):
        after_remapping([table, *entries])


def test_segments_that_cover_the_same_are_followed_together() -> None:
    table = manifest(moved()).indices[0]
    entries = [
        table_pb2.IndexMetadata(name=name, fragment_bitmap=bitmap_of(covered))
        for name, covered in [("a", [0]), ("b", [0]), ("c", [7]), ("d", [7]), ("e", [0, 7])]
    ]
    found = [covered_fragments(entry) for entry in after_remapping([*entries, table])]
    assert [sorted(covered or ()) for covered in found[:5]] == [[4], [4], [7], [7], [4, 7]]


def test_segments_cover_no_more_fragments_than_there_may_be_after_following() -> None:
    details = DETAILS()
    group = details.inline.versions.add().groups.add()
    group.old_fragments.add(id=0)
    group.new_fragments.extend(DETAILS.FragmentDigest(id=1 + at) for at in range(100_000))
    (table,) = manifest(details).indices
    entries = [
        table_pb2.IndexMetadata(name=f"i{at}", fragment_bitmap=bitmap_of([0, 200_000 + at]))
        for at in range(42)
    ]
    assert len(covered_fragments(after_remapping([table, *entries[:41]])[-1]) or ()) == 100_001
    with pytest.raises(CorruptFileError, match=f"{REUSE_INDEX} applied"):
        after_remapping([table, *entries])
