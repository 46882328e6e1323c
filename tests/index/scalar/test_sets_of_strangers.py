"""Sets of a few bytes that say to have billions of rows: of these no memory is taken."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64
from tests.index.test_address_map import Rows, addresses
from tests.trials import trials

import glaive
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.bitmaps import filter_bytes
from glaive.index.row_sets import (
    TREEMAPS,
    AddressMap,
    RowLimit,
    RowSet,
    row_set_of,
    rows_of_treemap,
)

from .test_damage import replaced

pytestmark = pytest.mark.spec("rel-24")

MANY = 1 << 25
"""Rows of a set: 256 MB if they were listed."""

FRAGMENTS = [0, 1, 2, 2**32 - 1]


@contextmanager
def little_memory(most: int = 48 << 20) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def runs(count: int = MANY) -> BitMap:
    bitmap = BitMap()
    bitmap.add_range(0, count)
    return bitmap


def stored(sets: dict[int, bytes]) -> pa.Array:
    parts = [struct.pack("<II", one, len(raw)) + raw for one, raw in sets.items()]
    return pa.array([struct.pack("<I", len(parts)) + b"".join(parts)], pa.binary())


@pytest.mark.parametrize("items", [2**31 - 1, 10**18 - 1])
def test_a_filter_for_as_many_values_as_an_index_claims_is_sized_without_memory(items: int) -> None:
    with little_memory(most=1 << 20):
        assert filter_bytes(items, 0.00057) == 1 << 27
    assert filter_bytes(8192, 0.00057) == 1 << 15


def test_rows_of_a_set_take_no_memory_where_they_follow_one_another() -> None:
    with little_memory():
        found = row_set_of(stored(dict.fromkeys(FRAGMENTS, runs().serialize())), "here", 99)
    assert found.count == len(FRAGMENTS) * MANY
    assert found.starts.tolist() == [one << 32 for one in FRAGMENTS]


def test_rows_that_are_in_many_sets_are_listed_once() -> None:
    """Sets of equal bytes take next to none of a file: a filter by one of 13 KB took 6.6 GB."""
    odd = BitMap(range(1, 1 << 16, 2)).serialize()
    sets = pa.concat_arrays([stored({7: odd})] * 2000)
    with little_memory(most=192 << 20):
        found = row_set_of(sets, "here", 99)
    assert found.starts.tolist() == [7 << 32 | row for row in range(1, 1 << 16, 2)]
    assert found.count == 1 << 15


def test_sets_of_many_ranges_are_refused_before_these_take_memory() -> None:
    """Under zstd they may be 88 KB: a filter by one took 4.9 GB, and by one of 1.2 MB, 10."""
    odd = BitMap(range(1, 1 << 16, 2)).serialize()
    sets = stored(dict.fromkeys(range(2_100), odd))
    with little_memory(128 << 20), pytest.raises(UnsupportedFeatureError, match="GLAIVE_MAX_DEC"):
        row_set_of(sets, "here", 10_000)
    treemap = TREEMAPS.join(dict.fromkeys(range(2_100), BitMap.deserialize(odd)))
    with little_memory(128 << 20), pytest.raises(UnsupportedFeatureError, match="GLAIVE_MAX_DEC"):
        rows_of_treemap(BitMap64.deserialize(treemap), "here", 10_000)


def test_ranges_of_rows_that_there_are_not_take_no_memory_to_leave_out() -> None:
    starts = np.arange(1 << 20, dtype=np.uint64) * np.uint64(4)
    rows = RowSet(starts, starts + np.uint64(2))
    there = RowSet.of_ranges(np.array([1, 101], np.uint64), np.array([5, 104], np.uint64))
    with little_memory(40 << 20):  # 130 MB if all were joined with those that there are
        assert rows.within_ranges(there).rows().tolist() == [1, 4, 101]


def test_all_numbers_of_a_fragment_are_one_range() -> None:
    (found,) = row_set_of(stored({3: runs(1 << 32).serialize()}), "here", 99).stops.tolist()
    assert found == 4 << 32
    with pytest.raises(CorruptFileError, match=r"below 2\^64 - 1"):
        row_set_of(stored({2**32 - 1: runs(1 << 32).serialize()}), "here", 99)


RUNS = st.lists(st.tuples(st.integers(0, 400_000), st.integers(1, 90_000)), max_size=6)
SINGLE = st.sets(st.integers(0, 500_000), max_size=20)


@settings(max_examples=trials(40), deadline=None)
@given(sets=st.dictionaries(st.sampled_from([0, 5, 2**31]), st.tuples(RUNS, SINGLE), max_size=3))
def test_sets_have_their_rows_however_these_are_stored(sets: dict[int, Any]) -> None:
    bitmaps = {}
    for fragment in sorted(sets):
        bitmap = BitMap(sets[fragment][1])
        for start, size in sets[fragment][0]:
            bitmap.add_range(start, start + size)
        bitmaps[fragment] = bitmap
    wanted = [
        np.asarray(bitmap.to_array(), np.uint64) | np.uint64(at << 32)
        for at, bitmap in bitmaps.items()
    ]
    rows = np.concatenate([np.empty(0, np.uint64), *wanted])
    raw = {at: bitmap.serialize() for at, bitmap in bitmaps.items()}
    assert row_set_of(stored(raw), "here", 99).rows().tolist() == rows.tolist()

    treemap = BitMap64(rows)
    halves = TREEMAPS.split(treemap.serialize(), "here")
    assert halves == {at: bitmap for at, bitmap in bitmaps.items() if bitmap}
    assert BitMap64.deserialize(TREEMAPS.join(halves)) == treemap
    assert rows_of_treemap(treemap, "here", 99).rows().tolist() == rows.tolist()


def test_a_treemap_of_a_few_bytes_is_a_few_ranges() -> None:
    treemap = BitMap64()
    for fragment in FRAGMENTS:
        treemap.add_range(fragment << 32, (fragment << 32) + MANY)
    with little_memory():
        assert rows_of_treemap(treemap, "here", 99).count == len(FRAGMENTS) * MANY
    treemap.add(2**64 - 1)
    with pytest.raises(CorruptFileError, match=r"below 2\^64 - 1"):
        rows_of_treemap(treemap, "here", 99)


def test_a_map_of_moved_rows_follows_ranges_of_any_length() -> None:
    survivors = addresses(3, range(0, 10, 2))
    moved = AddressMap.of([(survivors, [Rows(3, 10)], [Rows(9, 5)])])
    ends = np.array([1 << 40, 9 << 32], np.uint64)
    with little_memory():
        found = moved.follow(RowSet.of_ranges(np.zeros(2, np.uint64), ends))
    assert found.contains(addresses(9, range(5))).all()
    assert not found.contains(addresses(3, range(10))).any()
    assert found.contains(addresses(2, [0, 2**32 - 1])).all()


@pytest.mark.spec("rel-25")
def test_rows_of_many_sets_of_runs_are_counted_when_they_move() -> None:
    count = 1 << 7
    moved = AddressMap.of([(addresses(3, range(count)), [Rows(3, count)], [Rows(9, count)])])
    limit, whole = RowLimit(moved, "here", floor=count), runs(count)
    for _ in range(1 << 12):  # as many as there are rows, each time
        assert len(limit.addresses(3, whole, 15)) == count
    sparse = BitMap(range(0, count, 2))
    for _ in range(3):  # of which the bytes have their time
        assert limit.addresses(3, sparse, len(sparse.serialize())).tolist()[1] == (3 << 32) + 2
    with pytest.raises(UnsupportedFeatureError, match="far more rows than there are; drop"):
        limit.addresses(3, whole, 15)


def test_labels_that_all_rows_share_move_with_these(tmp_path: Path) -> None:
    labels, rows = 600, 8_000
    values = np.tile(np.arange(labels, dtype=np.int32), rows)
    shared = pa.FixedSizeListArray.from_arrays(values, labels).cast(pa.list_(pa.int32()))
    dataset = glaive.write_dataset(pa.table({"l": shared}), tmp_path, max_rows_per_file=2_000)
    dataset.create_scalar_index("l", "LABEL_LIST")
    dataset.optimize.compact_files()
    assert dataset.count_rows(filter=f"array_has_any(l, [{labels - 1}])") == rows


def rows_set(name: str, raw: bytes) -> Any:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        return table.set_column(at, table.schema.field(at), pa.array([raw] * len(table)))

    return change


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("kind", ["BITMAP", "NGRAM"])
def test_searches_find_the_rows_that_there_are(tmp_path: Path, kind: str, *, stable: bool) -> None:
    texts = [f"word{at % 3}" for at in range(60)]
    dataset = glaive.write_dataset(
        pa.table({"t": texts}), tmp_path, max_rows_per_file=20, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("t", kind)
    if kind == "BITMAP":
        (whole,) = stored(dict.fromkeys(FRAGMENTS, runs().serialize())).to_pylist()
        replaced(tmp_path, "bitmap_page_lookup.lance", rows_set("bitmaps", whole))
    else:
        treemap = TREEMAPS.join(dict.fromkeys(FRAGMENTS, runs()))
        replaced(tmp_path, "ngram_postings.lance", rows_set("posting_list", treemap))
    with little_memory(200 << 20):
        opened = glaive.dataset(tmp_path)
        wanted = "t = 'word1'" if kind == "BITMAP" else "contains(t, 'word1')"
        found = opened.to_table(filter=wanted)
        # An exact index is believed, though it lies; of candidates the rows are tested.
        assert len(found) == (60 if kind == "BITMAP" else 20)
        opened.optimize.compact_files()
    assert glaive.dataset(tmp_path).to_table().num_rows == 60


def test_many_small_filters_are_compared_some_at_a_time(tmp_path: Path) -> None:
    zones = 60_000
    dataset = glaive.write_dataset(pa.table({"n": range(zones)}), tmp_path)
    dataset.create_scalar_index("n", "BLOOMFILTER", number_of_items=1)
    opened = glaive.dataset(tmp_path)
    opened.prewarm_index("n_idx")
    wanted = ", ".join(str(number) for number in range(0, zones, zones // 64))
    with little_memory(64 << 20):  # 120 MB for all zones and values
        assert len(opened.to_table(filter=f"n IN ({wanted})")) == 65
