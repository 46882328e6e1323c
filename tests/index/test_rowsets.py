"""Sets of rows as bytes: both ways, and what is no such set."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap
from tests.trials import trials

from glaive.errors import CorruptFileError, GlaiveError, UnsupportedFeatureError
from glaive.index.row_sets import ROWSETS, AddressMap, row_set_of

from .test_address_map import Rows, addresses

ROW = st.tuples(st.sampled_from([0, 1, 7, 2**32 - 1]), st.integers(0, 2**32 - 2))


def decoded(data: bytes) -> list[int]:
    """Addresses of the rows of an encoded set."""
    rows: list[int] = row_set_of(pa.array([data], pa.binary()), "here", 99).rows().tolist()
    return rows


@pytest.mark.spec("rowset-1")
@settings(max_examples=trials(100), deadline=None)
@given(rows=st.sets(ROW, max_size=30))
def test_sets_come_back(rows: set[tuple[int, int]]) -> None:
    given_rows = np.array(sorted((fragment << 32) | row for fragment, row in rows), np.uint64)
    assert decoded(ROWSETS.of(given_rows)) == given_rows.tolist()


@pytest.mark.spec("rowset-1")
def test_the_bytes_are_counted_bitmaps() -> None:
    bitmap = BitMap([4, 5]).serialize()
    wanted = struct.pack("<III", 1, 3, len(bitmap)) + bitmap
    assert ROWSETS.of(addresses(3, [4, 5])) == wanted
    assert ROWSETS.of(addresses(0, [])) == bytes(4)


CONTAINERS = st.tuples(
    st.sampled_from([0, 1, 2, 5, 4096, 4097, 9000]), st.sampled_from([9000, 70_000, 2**32 - 1])
)
FRAGMENTS = st.dictionaries(st.sampled_from([0, 3, 2**32 - 1]), CONTAINERS, max_size=3)


@pytest.mark.spec("rowset-1")
@settings(max_examples=trials(60), deadline=None)
@given(fragments=st.lists(FRAGMENTS, max_size=5), seed=st.integers(0, 99), shuffled=st.booleans())
def test_many_sets_have_the_bytes_that_each_has_alone(
    fragments: list[dict[int, tuple[int, int]]], seed: int, *, shuffled: bool
) -> None:
    """Runs, lists and bit sets; rows in any order, and repeated."""
    random = np.random.default_rng(seed)
    sets = [
        np.concatenate(
            [
                np.empty(0, np.uint64),
                *(
                    addresses(fragment, np.unique(random.integers(0, limit, count)).tolist())
                    for fragment, (count, limit) in sorted(one.items())
                ),
            ]
        )
        for one in fragments
    ]
    given_rows = [np.concatenate((rows, rows[:2])) for rows in sets] if shuffled else sets
    if shuffled:
        given_rows = [random.permutation(rows) for rows in given_rows]
    bounds = np.cumsum([0, *map(len, given_rows)])
    encoded = ROWSETS.encode(np.concatenate([np.empty(0, np.uint64), *given_rows]), bounds)
    encoded.validate(full=True)
    assert encoded.to_pylist() == [ROWSETS.of(rows) for rows in sets]


SOUND = ROWSETS.of(np.concatenate([addresses(1, [4]), addresses(3, [4, 5])]))
TWICE = struct.pack("<I", 2) + ROWSETS.of(addresses(1, [4]))[4:] * 2


@settings(max_examples=trials(60), deadline=None)
@given(at=st.integers(0, len(SOUND) - 1))
def test_sets_cut_off_are_refused(at: int) -> None:
    with pytest.raises(CorruptFileError, match="here"):
        decoded(SOUND[:at])


@settings(max_examples=trials(150), deadline=None)
@given(at=st.integers(0, len(SOUND) - 1), bit=st.integers(0, 7))
def test_flipped_bits_are_refused_or_give_a_set(at: int, bit: int) -> None:
    data = bytearray(SOUND)
    data[at] ^= 1 << bit
    try:
        rows = decoded(bytes(data))
    except GlaiveError:
        return
    assert decoded(ROWSETS.of(np.array(rows, np.uint64))) == rows


@pytest.mark.parametrize("data", [SOUND + b"\0", TWICE], ids=["more behind", "fragment twice"])
def test_other_shapes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="here"):
        decoded(data)


@pytest.mark.spec("rowset-2")
def test_all_rows_of_a_fragment_that_was_rewritten_are_not_guessed() -> None:
    address_map = AddressMap.of([(addresses(3, [0]), [Rows(3, 4)], [Rows(5, 1)])])
    with pytest.raises(UnsupportedFeatureError, match="all rows of fragment 3"):
        ROWSETS.remap([struct.pack("<III", 1, 3, 0)], address_map, "here")


@pytest.mark.spec("rowset-2")
def test_all_rows_of_a_fragment_are_a_range() -> None:
    rows = row_set_of(pa.array([struct.pack("<III", 1, 3, 0)], pa.binary()), "here", 99)
    assert rows.contains(addresses(3, [0, 2**32 - 2])).all()
    assert not rows.contains(np.array([2 << 32, 4 << 32], np.uint64)).any()


def test_no_set_has_the_highest_number() -> None:
    """The end of the range of rows would not be a number of 64 bits."""
    with pytest.raises(CorruptFileError, match="rows below"):
        decoded(ROWSETS.of(addresses(2**32 - 1, [2**32 - 1])))


def test_sets_move_each_for_itself() -> None:
    address_map = AddressMap.of([(addresses(1, [0, 2, 3]), [Rows(1, 4)], [Rows(9, 2), Rows(5, 1)])])
    sets = [addresses(1, [0, 3]), addresses(1, [1]), addresses(0, []), addresses(2, [1])]
    remapped = ROWSETS.remap([ROWSETS.of(row_set) for row_set in sets], address_map, "here")
    wanted = [np.array([5 << 32, 9 << 32], np.uint64), sets[2], sets[2], sets[3]]
    assert remapped == list(map(ROWSETS.of, wanted))
    assert ROWSETS.remap([], address_map, "here") == []


def test_sets_keep_the_bitmaps_of_fragments_that_did_not_move() -> None:
    """Whatever they are: also such as would not be listed."""
    runs = BitMap(range(2**31))
    runs.run_optimize()
    bits = runs.serialize()
    address_map = AddressMap.of([(addresses(1, [0, 2]), [Rows(1, 4)], [Rows(5, 2)])])
    entries = struct.pack("<III", 3, 0, len(bits)) + bits
    stays = entries + struct.pack("<II", 7, 0)
    bitmap = BitMap([0, 1]).serialize()
    given = entries + struct.pack("<II", 1, len(bitmap)) + bitmap + struct.pack("<II", 7, 0)
    (remapped,) = ROWSETS.remap([given], address_map, "here")
    fresh = BitMap([0]).serialize()
    assert remapped == stays[:-8] + struct.pack("<II", 5, len(fresh)) + fresh + stays[-8:]


def test_rows_that_a_fragment_did_not_have_are_not_listed() -> None:
    runs = BitMap(range(2**32 - 1))
    runs.run_optimize()
    bits = runs.serialize()
    address_map = AddressMap.of([(addresses(1, [0, 2]), [Rows(1, 4)], [Rows(5, 2)])])
    (remapped,) = ROWSETS.remap([struct.pack("<III", 1, 1, len(bits)) + bits], address_map, "here")
    assert remapped == ROWSETS.of(addresses(5, [0, 1]))
