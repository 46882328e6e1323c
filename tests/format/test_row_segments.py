"""Row ids are found in sequences of every form, and cut and joined without loss."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.fragment import FragmentColumns
from glaive.format.pb import table_pb2
from glaive.format.rowids import (
    concatenate_row_ids,
    count_row_ids,
    decode_row_ids,
    decode_versions,
    encode_row_ids,
    encode_version_array,
    read_segments,
    select_row_ids,
)

UInt64s = NDArray[np.uint64]


@st.composite
def id_lists(draw: st.DrawFn) -> list[UInt64s]:
    """Ids of some fragments: runs, runs with holes, scattered and shuffled ones; each once."""
    made: list[UInt64s] = []
    start = draw(st.sampled_from([0, 7, 2**40]))
    for _ in range(draw(st.integers(0, 5))):
        rows = draw(st.integers(0, 30))
        kind = draw(st.sampled_from(["run", "holes", "far", "shuffled"]))
        step = {"run": 1, "holes": 2, "far": 100_000, "shuffled": 1}[kind]
        ids = start + np.arange(rows) * step
        if kind == "shuffled":
            ids = ids[::-1]
        start += rows * step + 1
        made.append(ids.astype(np.uint64))
    return made


def columns_of(sequences: list[bytes], rows: list[int]) -> FragmentColumns:
    wire = table_pb2.ManifestOutline()
    for number, (data, count) in enumerate(zip(sequences, rows, strict=True)):
        one = table_pb2.DataFragment(id=number, physical_rows=count, inline_row_ids=data)
        wire.fragments.append(one.SerializeToString())
    return FragmentColumns(wire, "m")


def columns_with(lists: list[UInt64s]) -> FragmentColumns:
    return columns_of([encode_row_ids(ids) for ids in lists], [len(ids) for ids in lists])


def found(columns: FragmentColumns, wanted: UInt64s) -> dict[int, tuple[int, int]]:
    which, fragment, row = read_segments(columns, "m").find(wanted)
    places = zip(fragment.tolist(), row.tolist(), strict=True)
    return dict(zip(wanted[which].tolist(), places, strict=True))


@pytest.mark.spec("rowid-5")
@given(id_lists(), st.data())
def test_every_id_is_found_where_it_is(lists: list[UInt64s], data: st.DataObject) -> None:
    places = {
        one: (fragment, row)
        for fragment, ids in enumerate(lists)
        for row, one in enumerate(ids.tolist())
    }
    columns = columns_with(lists)
    known = np.array(sorted(places), np.uint64)
    assert found(columns, known) == places
    some = data.draw(st.lists(st.integers(0, 2**64 - 1), max_size=5))
    wanted = np.unique(np.concatenate([known[::3], np.array(some, np.uint64)]))
    assert found(columns, wanted) == {one: places[one] for one in wanted.tolist() if one in places}


def test_an_id_is_found_in_each_fragment_that_has_it() -> None:
    lists = [np.arange(10, dtype=np.uint64), np.array([3, 8], np.uint64)]
    which, fragment, row = read_segments(columns_with(lists), "m").find(np.array([3], np.uint64))
    assert which.tolist() == [0, 0]
    places = zip(fragment.tolist(), row.tolist(), strict=True)
    assert sorted(places) == [(0, 3), (1, 0)]


def test_ids_in_hidden_columns_are_asked_for() -> None:
    wire = table_pb2.ManifestOutline()
    one = table_pb2.DataFragment(id=4, physical_rows=3)
    one.column_row_ids.SetInParent()
    plain = table_pb2.DataFragment(physical_rows=2, inline_row_ids=encode_row_ids(range(2)))
    wire.fragments.extend([one.SerializeToString(), plain.SerializeToString()])
    columns = FragmentColumns(wire, "m")
    hidden = np.array([9, 5, 7], np.uint64)
    segments = read_segments(columns, "m", lambda position: hidden if position == 0 else hidden[:0])
    _, fragment, row = segments.find(np.array([1, 5, 6], np.uint64))
    assert sorted(zip(fragment.tolist(), row.tolist(), strict=True)) == [(0, 1), (1, 1)]
    with pytest.raises(CorruptFileError, match="3 values, found 0"):
        read_segments(columns, "m")


@pytest.mark.parametrize(
    ("data", "rows"),
    [(b"", 4), (encode_row_ids(range(3)), 4), (encode_row_ids(range(5)), 4), (b"\x0a\x05", 4)],
)
def test_a_sequence_of_another_length_is_damage(data: bytes, rows: int) -> None:
    columns = columns_of([encode_row_ids(range(100, 104)), data], [4, rows])
    with pytest.raises(CorruptFileError, match="list position 1"):
        read_segments(columns, "m")


def test_a_range_that_ends_before_it_starts_is_damage() -> None:
    sequence = table_pb2.RowIdSequence()
    segment = sequence.segments.add()
    segment.range.start, segment.range.end = 9, 5
    with pytest.raises(CorruptFileError, match="start ≤ end"):
        read_segments(columns_of([sequence.SerializeToString()], [4]), "m")


def test_a_segment_of_more_rows_than_there_can_be_is_damage() -> None:
    sequence = table_pb2.RowIdSequence()
    segment = sequence.segments.add()
    segment.range_with_holes.end = 2**40
    columns = columns_of([sequence.SerializeToString()], [2**40])
    with pytest.raises(CorruptFileError, match=r"at most 2\^32 rows"):
        read_segments(columns, "m")


# -------------------------------------------------------------- cut and joined


@pytest.mark.spec("rowid-6")
@given(id_lists(), st.data())
def test_sequences_are_cut_and_joined(lists: list[UInt64s], data: st.DataObject) -> None:
    joined = concatenate_row_ids([encode_row_ids(ids) for ids in lists], where="t")
    rows = sum(map(len, lists))
    assert count_row_ids(joined, where="t") == rows
    ids = np.concatenate([*lists, np.empty(0, np.uint64)])
    np.testing.assert_array_equal(decode_row_ids(joined, rows, where="t"), ids)
    kept = np.array(sorted(data.draw(st.sets(st.integers(0, max(0, rows - 1))))), np.uint32)
    if not rows:
        kept = kept[:0]
    cut = select_row_ids(joined, rows, kept, where="t")
    np.testing.assert_array_equal(decode_row_ids(cut, len(kept), where="t"), ids[kept])


def test_segments_that_stay_whole_are_not_made_anew() -> None:
    one, two = encode_row_ids(range(10)), encode_row_ids(np.array([50, 70], np.uint64))
    joined = concatenate_row_ids([one, two], where="t")
    kept = np.array([*range(10), 11], np.uint32)
    cut = select_row_ids(joined, 12, kept, where="t")
    assert cut.startswith(one)
    assert select_row_ids(joined, 12, np.arange(12, dtype=np.uint32), where="t") == joined


@given(st.lists(st.integers(1, 4), max_size=20))
def test_sequences_of_versions_may_be_put_behind_each_other(versions: list[int]) -> None:
    array = np.array(versions, np.uint64)
    half = len(array) // 2
    joined = b"".join(encode_version_array(part) for part in np.split(array, [half]))
    np.testing.assert_array_equal(decode_versions(joined, len(array), where="t"), array)


@given(st.lists(st.integers(1, 4), max_size=20))
def test_versions_row_by_row_come_back_in_runs(versions: list[int]) -> None:
    array = np.array(versions, np.uint64)
    data = encode_version_array(array)
    np.testing.assert_array_equal(decode_versions(data, len(array), where="t"), array)
    runs: Any = table_pb2.RowDatasetVersionSequence.FromString(data).runs
    changes = sum(one != two for one, two in itertools.pairwise(versions))
    assert len(runs) == (changes + 1 if versions else 0)


@pytest.mark.parametrize("start", [0, 1000, 2**40])
def test_ids_are_found_in_ranges_of_billions(start: int) -> None:
    rows = 2**32
    missing = np.array([start + 5, start + 8], "<u8").tobytes()
    holes = table_pb2.EncodedU64Array(u64_array={"values": missing})
    wide = table_pb2.U64Segment()
    wide.range_with_holes.start = start
    wide.range_with_holes.end = start + rows + 2
    wide.range_with_holes.holes.CopyFrom(holes)
    sequence = table_pb2.RowIdSequence(segments=[wide]).SerializeToString()
    segments = read_segments(columns_of([sequence], [rows]), "m")
    wanted = np.array([4, 5, 6, 7, 8, 9, rows + 1], np.uint64) + np.uint64(start)
    which, _, row = segments.find(wanted)
    assert (wanted[which] - np.uint64(start)).tolist() == [4, 6, 7, 9, rows + 1]
    assert row.tolist() == [4, 5, 6, 7, rows - 1]


def test_ids_that_each_fragment_claims_are_damage() -> None:
    """A few bytes for each fragment, and as many places for each id as there are fragments."""
    fragments, ids = 3000, np.arange(30_000, dtype=np.uint64)
    segments = read_segments(
        columns_of([encode_row_ids(range(2**20))] * fragments, [2**20] * fragments), "m"
    )
    assert len(segments.find(ids[:5])[0]) == 5 * fragments
    with pytest.raises(
        CorruptFileError, match="row ids: expected each in about 16 fragments at most"
    ):
        segments.find(ids)


def test_rows_that_many_segments_claim_are_looked_up_some_at_a_time() -> None:
    """A few bytes for each segment, and memory for those of some of them."""
    fragments, ids = 90, np.arange(10, 100_010, dtype=np.uint64)
    sequence = [encode_row_ids(range(2**17))] * fragments
    segments = read_segments(columns_of(sequence, [2**17] * fragments), "m")
    parts = list(segments.find_parts(ids))
    assert max(len(row) for _, _, row in parts) <= 2**21
    for together, apart in zip(segments.find(ids), zip(*parts, strict=True), strict=True):
        assert np.array_equal(together, np.concatenate(apart))
    which, fragment, row = segments.find(ids[:2])
    assert which.tolist() == [0, 1] * fragments
    assert fragment.tolist() == np.repeat(np.arange(fragments), 2).tolist()
    assert row.tolist() == [10, 11] * fragments
    assert [len(part) for part in segments.find(ids[:0])] == [0, 0, 0]
