"""Old row addresses to new ones, against a dictionary of every row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from glaive.errors import CorruptFileError
from glaive.index.address_map import AddressMap


class Rows(NamedTuple):
    id: int
    physical_rows: int


Group = tuple[np.ndarray, list[Rows], list[Rows]]


def addresses(fragment: int, rows: object) -> np.ndarray:
    return np.asarray(rows, np.uint64) | np.uint64(fragment << 32)


@st.composite
def groups(draw: st.DrawFn, first_new: int = 1000) -> list[Group]:
    """Groups of old fragments, listed in any order, and new ones that hold what is left."""
    ids = draw(st.lists(st.integers(0, 60), min_size=1, max_size=6, unique=True))
    cut = draw(st.integers(0, len(ids)))
    made = []
    for part in (ids[:cut], ids[cut:]):
        old = [Rows(one, draw(st.integers(0, 12))) for one in part]
        left = [
            addresses(one.id, sorted(draw(st.sets(st.integers(0, one.physical_rows - 1)))))
            if one.physical_rows
            else addresses(one.id, [])
            for one in old
        ]
        count = sum(map(len, left))
        split = draw(st.integers(0, count))
        new = [Rows(first_new, split), Rows(first_new + 1, count - split)]
        first_new += 2
        made.append((np.concatenate([*left, addresses(0, [])]), old, new))
    return made


def model(made: list[Group]) -> dict[int, int | None]:
    """New address of every old row, None for those that are gone."""
    where: dict[int, int | None] = {}
    for left, old, new in made:
        for one in old:
            where |= dict.fromkeys(addresses(one.id, range(one.physical_rows)).tolist())
        places = [(one.id << 32) | row for one in new for row in range(one.physical_rows)]
        where |= dict(zip(left.tolist(), places, strict=True))
    return where


def check(moved: AddressMap, where: dict[int, int | None], asked: np.ndarray) -> None:
    found, kept = moved.apply(asked)
    wanted = [where.get(one, one) for one in asked.tolist()]
    assert [new if left else None for new, left in zip(found.tolist(), kept, strict=True)] == wanted
    assert moved.left(asked).tolist() == [one for one in wanted if one is not None]


@settings(max_examples=150, deadline=None)
@given(made=groups(), data=st.data())
def test_every_row_goes_where_it_is_now(made: list[Group], data: st.DataObject) -> None:
    where = model(made)
    moved = AddressMap.of(made)
    assert moved.touched == {one.id for _, old, _ in made for one in old}
    elsewhere = addresses(61, range(3)).tolist()
    asked = data.draw(st.lists(st.sampled_from([*where, *elsewhere]), max_size=40))
    check(moved, where, np.array(asked, np.uint64))


@settings(max_examples=50, deadline=None)
@given(made=groups())
def test_rows_left_may_be_a_bitmap(made: list[Group]) -> None:
    # A bitmap is ascending, so it can stand only for fragments listed by id.
    ordered = [(left, sorted(old), new) for left, old, new in made]
    ordered = [(np.sort(left), old, new) for left, old, new in ordered]
    packed = [(BitMap64(left).serialize(), old, new) for left, old, new in ordered]
    where = model(ordered)
    check(AddressMap.of(packed), where, np.array(list(where), np.uint64))


@settings(max_examples=50, deadline=None)
@given(first=groups())
def test_moves_follow_each_other(first: list[Group]) -> None:
    new = [one for _, _, some in first for one in some]
    left = [addresses(one.id, range(0, one.physical_rows, 2)) for one in new]
    count = sum(map(len, left))
    second: list[Group] = [(np.concatenate(left), new, [Rows(2000, count)])]
    both = AddressMap.of(second).after(AddressMap.of(first))
    then = model(second)
    where = {
        old: None if place is None else then[place] for old, place in model(first).items()
    } | then
    check(both, where, np.array(list(where), np.uint64))


def test_rows_behind_the_last_one_left_are_gone() -> None:
    moved = AddressMap.of([(addresses(3, [1]), [Rows(3, 5)], [Rows(9, 1)])])
    asked = addresses(3, [0, 1, 4, 4_000_000_000])
    assert moved.left(asked).tolist() == [9 << 32]


def test_nothing_moved() -> None:
    asked = addresses(3, [0, 1])
    assert AddressMap.of([]).left(asked).tolist() == asked.tolist()
    assert AddressMap.of([]).left(addresses(0, [])).tolist() == []


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
    ],
    ids=["too few", "too many", "elsewhere", "beyond", "twice", "cut off", "noise", "very many"],
)
def test_groups_that_do_not_fit_are_refused(left: object, old: object, new: object) -> None:
    with pytest.raises(CorruptFileError, match=r"rows that moved.* \(in some version\)"):
        AddressMap.of([(left, old, new)], "some version")  # type: ignore[list-item]  # of any kind
