"""Which fragments an index covers after a change: those whose rows it has, and no others."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyroaring import BitMap

from glaive.format.fields import LanceSchema
from glaive.table.index_coverage import (
    Entry,
    Rewritten,
    cover_relocated,
    covered_fragments,
    encode_indices,
    has_covering_fields,
    kind_name,
    prune,
    related_fields,
    remap,
    rewrite_conflict,
    without_new,
)

BTREE = "/lance.index.pb.BTreeIndexDetails"


def index(
    covered: Iterable[int] | None, *fields: int, kind: str = "", version: int = 0, uuid: int = 1
) -> Entry:
    made = Entry(name="i", fields=fields or (0,), index_version=version)
    made.uuid.uuid = bytes([uuid]) * 16
    if covered is not None:
        made.fragment_bitmap = BitMap(covered).serialize()
    if kind:
        made.index_details.type_url = kind
    return made


def coverage(entries: Iterable[Entry]) -> list[set[int] | None]:
    found = (covered_fragments(entry) for entry in entries)
    return [None if one is None else set(one) for one in found]


# --- new values -------------------------------------------------------------------------------


def test_an_index_of_a_replaced_column_no_longer_covers_its_fragments() -> None:
    entries = [index([1, 2, 3], 0), index([1, 2], 1), index(None, 0), index([3], 0)]

    assert coverage(prune(entries, {1, 9}, {0})) == [{2, 3}, {1, 2}, None, {3}]


@pytest.mark.parametrize(
    ("changed", "related"),
    [
        ({0}, {0}),
        ({1}, {1, 2, 3, 4}),
        ({2}, {1, 2}),
        ({3}, {1, 3, 4}),
        ({4}, {1, 3, 4}),
        ({0, 6}, {0, 5, 6}),
        ({9, -2}, {9, -2}),
        ((), set()),
    ],
)
def test_fields_change_with_what_they_are_in_and_with_their_parts(
    changed: set[int], related: set[int]
) -> None:
    inner = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.string()))])
    schema = pa.schema([("id", pa.int64()), ("s", inner), ("texts", pa.list_(pa.string()))])

    assert related_fields(LanceSchema.from_arrow(schema), changed) == related


def test_an_index_does_not_cover_what_is_added_with_the_id_of_a_removed_fragment() -> None:
    entries = [index([1, 2]), index(None), index([3])]

    assert coverage(without_new(entries, [0, 2, 7])) == [{1}, None, {3}]
    for added in ([0, 0], []):
        assert without_new(entries, added) == entries
    assert without_new([], [1]) == []


# --- rows with stable ids in other fragments --------------------------------------------------


def test_an_index_with_all_rows_that_moved_covers_where_they_are_now() -> None:
    entries = [index([1, 2], 0), index([1], 0), index(None, 0), index([1, 2], 5)]

    found = cover_relocated(entries, frozenset({1, 2}), [7], updated_fields=[5])

    assert coverage(found) == [{1, 2, 7}, {1}, None, {1, 2}]


@pytest.mark.parametrize(("relocated", "updated"), [([], [5]), ([7], [])])
def test_coverage_stays_where_no_rows_moved_or_nobody_knows_what_changed(
    relocated: list[int], updated: list[int]
) -> None:
    entries = [index([1, 2], 0)]
    assert cover_relocated(entries, frozenset({1, 2}), relocated, updated) == entries


def test_an_index_with_addresses_does_not_follow_rows() -> None:
    entries = [index([1], kind=BTREE, version=0), index([1], kind=BTREE, version=1)]

    assert coverage(cover_relocated(entries, frozenset({1}), [7], [5])) == [{1, 7}, {1}]


ADDRESSES_FROM = {
    "BTree": 1, "Json": 1, "ZoneMap": 0, "BloomFilter": 0, "FM": 0,
    "Bitmap": 1, "NGram": 1, "RTree": 1, "MinHashLsh": 1, "LabelList": 2,
}  # fmt: skip


@pytest.mark.spec("kind-3")
@pytest.mark.parametrize("kind", ADDRESSES_FROM)
def test_each_kind_follows_rows_up_to_the_version_that_has_addresses(kind: str) -> None:
    first, url = ADDRESSES_FROM[kind], f"/lance.index.pb.{kind}IndexDetails"
    entries = [index([1], kind=url, version=version) for version in range(first + 2)]

    found = coverage(cover_relocated(entries, frozenset({1}), [7], [5]))

    assert found == [{1, 7}] * first + [{1}] * 2


@pytest.mark.parametrize("url", [BTREE, "type.googleapis.com/lance.BTreeIndexDetails", "a/x.BTree"])
def test_a_kind_is_named_without_package_and_suffix(url: str) -> None:
    assert kind_name(url) == "btree"


# --- fragments that were rewritten ------------------------------------------------------------

GROUPS = [(frozenset({1, 2}), frozenset({8})), (frozenset({3}), frozenset({9}))]


def rebuilt(uuid: int) -> Rewritten:
    made = Rewritten(new_index_version=4)
    made.old_id.uuid, made.new_id.uuid = bytes([uuid]) * 16, bytes([uuid + 100]) * 16
    return made


def test_a_rebuilt_index_is_another_one_with_the_same_name() -> None:
    before = index([1, 2, 3, 5], 6, kind=BTREE, version=3)
    before.base_id = 2

    (found,) = remap([before], GROUPS, [rebuilt(1)], keeps_all=False)

    assert (found.name, list(found.fields), found.index_version) == ("i", [6], 4)
    assert found.uuid.uuid == bytes([101]) * 16
    assert not found.HasField("base_id")
    assert found.index_details.type_url == BTREE
    assert coverage([found]) == [{5, 8, 9}]


def test_a_rebuilt_index_that_did_not_say_what_it_covers_says_so_now() -> None:
    known = {bytes([101]) * 16: frozenset({8})}

    for told, expected in ((known, {8}), (None, None)):
        (found,) = remap([index(None)], GROUPS, [rebuilt(1)], keeps_all=False, coverage=told)
        assert (covered_fragments(found) or None) == expected


@pytest.mark.parametrize("keeps_all", [True, False])
def test_an_index_of_row_ids_follows_whole_groups_of_fragments(keeps_all: bool) -> None:
    entries = [index([1, 2, 5]), index([1, 5]), index([3])]

    found = coverage(remap(entries, GROUPS, [], keeps_all=keeps_all))

    assert found == ([{5, 8}, {1, 5}, {9}] if keeps_all else [{1, 2, 5}, {1, 5}, {3}])


def test_an_index_of_addresses_loses_fragments_that_are_gone() -> None:
    entries = [index([1, 2, 5], kind=BTREE, version=1)]

    assert coverage(remap(entries, GROUPS, [], keeps_all=True)) == [{5}]


@pytest.mark.parametrize(
    ("keeps_all", "mapped", "kept"),
    [(False, False, False), (True, False, True), (False, True, True)],
)
def test_an_index_that_does_not_say_what_it_covers_is_kept_if_its_rows_are_found(
    keeps_all: bool, mapped: bool, kept: bool
) -> None:
    (found,) = remap([index(None)], GROUPS, [], keeps_all=keeps_all, mapped=mapped)

    assert (not found.fragment_bitmap) == kept
    assert kept or covered_fragments(found) == frozenset()


def test_a_rewrite_of_covered_fragments_is_a_conflict() -> None:
    conflict = rewrite_conflict([index([5]), index([1, 2])], frozenset({2, 3}))
    unknown = rewrite_conflict([index(None)], frozenset({2, 3}))

    assert conflict is not None
    assert conflict.fragments == {2}
    assert unknown is not None
    assert unknown.fragments == {2, 3}
    assert rewrite_conflict([index([5])], frozenset({2, 3})) is None


def test_a_conflict_lists_no_fragments_that_were_not_rewritten() -> None:
    runs = BitMap()
    runs.add_range(2, 2**32)
    runs.run_optimize()
    entry = index([])
    entry.fragment_bitmap = runs.serialize()
    conflict = rewrite_conflict([entry], frozenset({1, 7, 2**32 + 7}))
    assert conflict is not None
    assert conflict.fragments == {7}
    assert rewrite_conflict([entry], frozenset({1, 2**32 + 7})) is None


def test_an_index_section_tells_whether_an_index_has_covering_fields() -> None:
    covering = index([1])
    covering.covering_fields.append(3)

    assert not has_covering_fields(None)
    assert not has_covering_fields(encode_indices([index([1])]))
    assert has_covering_fields(encode_indices([index([1]), covering]))
