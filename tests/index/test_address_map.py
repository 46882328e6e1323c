"""Old row addresses to new ones, against a dictionary of every row."""

from __future__ import annotations

import tracemalloc
from time import process_time
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from tests.trials import trials

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.index.row_sets import AddressMap


class Rows(NamedTuple):
    id: int
    physical_rows: int


Group = tuple[np.ndarray, list[Rows], list[Rows]]


def addresses(fragment: int, rows: object) -> np.ndarray:
    return np.asarray(rows, np.uint64) | np.uint64(fragment << 32)


@st.composite
def groups(draw: st.DrawFn, first_new: int = 1000) -> list[Group]:
    """Groups of old fragments, in any order, and new ones that hold the surviving rows."""
    ids = draw(st.lists(st.integers(0, 60), min_size=1, max_size=6, unique=True))
    cut = draw(st.integers(0, len(ids)))
    made = []
    for part in (ids[:cut], ids[cut:]):
        old = [Rows(fragment_id, draw(st.integers(0, 12))) for fragment_id in part]
        survivors = [
            addresses(
                fragment.id, sorted(draw(st.sets(st.integers(0, fragment.physical_rows - 1))))
            )
            if fragment.physical_rows
            else addresses(fragment.id, [])
            for fragment in old
        ]
        count = sum(map(len, survivors))
        split = draw(st.integers(0, count))
        new = [Rows(first_new, split), Rows(first_new + 1, count - split)]
        first_new += 2
        made.append((np.concatenate([*survivors, addresses(0, [])]), old, new))
    return made


def model(made: list[Group]) -> dict[int, int | None]:
    """New address of every old row, None for deleted ones."""
    where: dict[int, int | None] = {}
    for survivors, old, new in made:
        for fragment in old:
            where |= dict.fromkeys(addresses(fragment.id, range(fragment.physical_rows)).tolist())
        places = [
            (fragment.id << 32) | row for fragment in new for row in range(fragment.physical_rows)
        ]
        where |= dict(zip(survivors.tolist(), places, strict=True))
    return where


def remapped(address_map: AddressMap, old: np.ndarray) -> list[int | None]:
    """New addresses, None for deleted rows."""
    new, kept = address_map.apply(old)
    return [
        address if survives else None
        for address, survives in zip(new.tolist(), kept.tolist(), strict=True)
    ]


def check(address_map: AddressMap, where: dict[int, int | None], old: np.ndarray) -> None:
    wanted = [where.get(address, address) for address in old.tolist()]
    assert remapped(address_map, old) == wanted
    rows, kept = address_map.remap_rows(pa.table({"n": range(len(old)), "ids": old}), "ids")
    assert rows["ids"].to_pylist() == [address for address in wanted if address is not None]
    assert rows["n"].to_pylist() == np.flatnonzero(kept).tolist()


@settings(max_examples=trials(150), deadline=None)
@given(made=groups(), data=st.data())
def test_every_row_gets_its_new_address(made: list[Group], data: st.DataObject) -> None:
    where = model(made)
    address_map = AddressMap.of(made)
    assert address_map.rewritten == {fragment.id for _, old, _ in made for fragment in old}
    elsewhere = addresses(61, range(3)).tolist()
    old = data.draw(st.lists(st.sampled_from([*where, *elsewhere]), max_size=40))
    check(address_map, where, np.array(old, np.uint64))


@settings(max_examples=trials(50), deadline=None)
@given(made=groups())
def test_surviving_rows_may_be_a_bitmap(made: list[Group]) -> None:
    # A bitmap is ascending, so it can stand only for fragments listed by id.
    ordered = [(survivors, sorted(old), new) for survivors, old, new in made]
    ordered = [(np.sort(survivors), old, new) for survivors, old, new in ordered]
    packed = [(BitMap64(survivors).serialize(), old, new) for survivors, old, new in ordered]
    where = model(ordered)
    check(AddressMap.of(packed), where, np.array(list(where), np.uint64))


@settings(max_examples=trials(50), deadline=None)
@given(first=groups())
def test_rewrites_follow_each_other(first: list[Group]) -> None:
    new = [fragment for _, _, some in first for fragment in some]
    survivors = [addresses(fragment.id, range(0, fragment.physical_rows, 2)) for fragment in new]
    count = sum(map(len, survivors))
    second: list[Group] = [(np.concatenate(survivors), new, [Rows(2000, count)])]
    both = AddressMap(AddressMap.of(first).then(AddressMap.of(second)))
    then = model(second)
    where = {
        old: None if place is None else then[place] for old, place in model(first).items()
    } | then
    check(both, where, np.array(list(where), np.uint64))


def test_rows_after_the_last_surviving_one_are_deleted() -> None:
    address_map = AddressMap.of([(addresses(3, [1]), [Rows(3, 5)], [Rows(9, 1)])])
    old = addresses(3, [0, 1, 4, 4_000_000_000])
    assert remapped(address_map, old) == [None, 9 << 32, None, None]


def test_without_groups_addresses_stay() -> None:
    old = addresses(3, [0, 1])
    assert remapped(AddressMap.of([]), old) == old.tolist()
    assert remapped(AddressMap.of([]), addresses(0, [])) == []


ONE = [Rows(3, 5)]
MANY = BitMap64()
MANY.add_range(0, 2**32)


@pytest.mark.parametrize(
    ("left", "old", "new"),
    [
        (addresses(3, [1, 2]), ONE, [Rows(9, 1)]),
        (addresses(3, [1, 2]), ONE, [Rows(9, 3)]),
        (addresses(4, [1, 2]), ONE, [Rows(9, 2)]),
        (addresses(3, [1, 5]), ONE, [Rows(9, 2)]),
        (addresses(3, [1]), [*ONE, *ONE], [Rows(9, 1)]),
        (BitMap64([1]).serialize()[:-3], ONE, [Rows(9, 1)]),
        (b"\xff" * 40, ONE, [Rows(9, 1)]),
        (MANY.serialize(), ONE, [Rows(9, 2)]),
        (addresses(3, [1, 2]), ONE, [Rows(9, 1), Rows(9, 1)]),
        (BitMap64([2**64 - 1]).serialize(), [Rows(2**32 - 1, 2**32)], [Rows(9, 1)]),
    ],
    ids=[
        "too few",
        "too many",
        "elsewhere",
        "beyond",
        "twice",
        "cut off",
        "noise",
        "very many",
        "onto each other",
        "no address",
    ],
)
def test_groups_that_do_not_fit_are_refused(left: object, old: object, new: object) -> None:
    with pytest.raises(CorruptFileError, match=r"relocated rows.* \(in some version\)"):
        AddressMap.of([(left, old, new)], "some version")  # type: ignore[list-item]  # of any kind


@pytest.mark.nightly(reason="maps many rewrites")
@pytest.mark.spec("rel-25")
def test_a_map_of_many_rewrites_takes_time_by_their_number_not_by_its_square() -> None:
    begun = process_time()
    whole = AddressMap.of_all([()] * 50_000, "a test")
    assert not whole.rewritten
    assert process_time() - begun < 20  # one by one it takes minutes


def _chain(rewrites: int) -> AddressMap:
    """One fragment of two rows, rewritten again and again."""
    ids = range(rewrites)
    moved = [[(addresses(i, [0, 1]), [Rows(i, 2)], [Rows(i + 1, 2)])] for i in ids]
    return AddressMap.of_all(moved, "a test")


@pytest.mark.nightly(reason="maps many rewrites")
@pytest.mark.spec("rel-25")
def test_many_addresses_are_looked_up_once_however_many_rewrites_there_were() -> None:
    whole, looked_up = _chain(5000), addresses(0, np.arange(1 << 20))
    begun = process_time()
    moved, kept = whole.apply(looked_up)
    assert process_time() - begun < 20  # rewrite by rewrite it takes minutes
    assert moved[kept].tolist() == addresses(5000, [0, 1]).tolist()


@pytest.mark.nightly(reason="maps many rewrites")
@pytest.mark.spec("rel-25")
def test_rows_of_many_rewritten_fragments_are_known_without_a_look_at_each_rewrite() -> None:
    whole = _chain(10_000)
    begun = process_time()
    assert {whole.rows_of(fragment) for fragment in whole.rewritten} == {2}
    assert process_time() - begun < 20  # rewrite by rewrite it takes minutes


@pytest.mark.spec("rel-24")
def test_a_few_bytes_about_millions_of_rows_take_little_memory() -> None:
    rows = 1 << 27
    left = BitMap64()
    left.add_range(3 << 32, (3 << 32) + rows)
    left.remove((3 << 32) + 7)
    tracemalloc.start()
    try:
        group = (left.serialize(), [Rows(3, rows)], [Rows(8, 1000), Rows(9, rows - 1001)])
        address_map = AddressMap.of([group])
        old = addresses(3, [0, 6, 7, 8, 1000, 1001, rows - 1, rows])
        found = remapped(address_map, old)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    behind = 9 << 32
    assert found == [
        8 << 32, (8 << 32) + 6, None, (8 << 32) + 7, (8 << 32) + 999, behind, behind + rows - 1002,
        None,
    ]  # fmt: skip
    assert address_map.rows_of(3) == rows
    assert most < 1 << 26  # eight bytes for each row are a gibibyte


def test_long_ranges_of_rows_follow_each_other() -> None:
    rows, first = 1 << 20, 250_000
    deleted = [5, 6, 7, 1 << 19]
    one = np.setdiff1d(np.arange(rows), deleted)
    left = BitMap64()
    left.add_range(3 << 32, (3 << 32) + rows)
    left -= BitMap64(addresses(3, deleted))
    other = np.setdiff1d(np.arange(len(one) - first), [0, 1, 70_000])
    new = [Rows(10, first), Rows(11, len(one) - first)]
    chain = [
        [(left.serialize(), [Rows(3, rows)], new)],
        [(addresses(11, other), new[1:], [Rows(12, len(other))])],
    ]
    where = np.full(rows, -1)
    where[one[:first]] = np.arange(first) | (10 << 32)
    where[one[first:][other]] = np.arange(len(other)) | (12 << 32)
    moved, kept = AddressMap.of_all(chain, "a test").apply(addresses(3, np.arange(rows)))
    assert (kept == (where >= 0)).all()
    assert (moved[kept] == where[kept].astype(np.uint64)).all()


@pytest.mark.spec("rel-24")
def test_rewrites_that_cut_ranges_over_and_over_are_refused() -> None:
    holes = addresses(0, np.arange(0, 1 << 18, 2))
    last = [(holes, [Rows(0, 1 << 18)], [Rows(1, len(holes))])]
    moves: list[list[object]] = []
    for number in range(2, 200):
        whole = BitMap64()
        whole.add_range(number << 32, (number << 32) + (1 << 18))
        moves.append([(whole.serialize(), [Rows(number, 1 << 18)], [Rows(0, 1 << 18)])])
    with pytest.raises(UnsupportedFeatureError, match=r"more than .* ranges"):
        AddressMap.of_all([*moves, last], "a test")  # type: ignore[list-item]  # of any kind


def test_a_few_addresses_are_found_where_many_are() -> None:
    rows = 100_000
    left = np.flatnonzero(np.arange(rows) % 7 % 3)
    group = (addresses(3, left), [Rows(3, rows)], [Rows(8, 40_000), Rows(9, len(left) - 40_000)])
    many = remapped(AddressMap.of([group]), addresses(3, np.arange(rows)))
    few = AddressMap.of([group])
    at = [*range(8), *left[39_995:40_005].tolist(), rows - 2, rows - 1]
    assert remapped(few, addresses(3, at)) == [many[row] for row in at]
