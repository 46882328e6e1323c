"""Row ids and row versions come back from every form, and damage does not get far."""

from __future__ import annotations

import tracemalloc

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import table_pb2
from glaive.format.rowids import (
    MAX_ROWS_AT_ONCE,
    RowValues,
    decode_row_ids,
    decode_versions,
    encode_row_ids,
    encode_version_array,
    encode_versions,
    segment_bounds,
    select_row_ids,
)

SPREADS = [50, 1000, 2**16, 2**20, 2**40, 2**64 - 1]
ANY_IDS = st.sampled_from(SPREADS).flatmap(
    lambda high: npst.arrays(np.uint64, st.integers(0, 200), elements=st.integers(0, high))
)
SORTED_IDS = ANY_IDS.map(np.unique)


def form_of(data: bytes) -> str:
    (segment,) = table_pb2.RowIdSequence.FromString(data).segments
    return str(segment.WhichOneof("segment"))


@pytest.mark.spec("rowid-1")
@given(st.one_of(ANY_IDS, SORTED_IDS))
def test_row_ids_come_back(ids: NDArray[np.uint64]) -> None:
    data = encode_row_ids(ids)
    np.testing.assert_array_equal(decode_row_ids(data, len(ids), where="m"), ids)


@pytest.mark.spec("rowid-7")
@pytest.mark.parametrize(
    ("ids", "form"),
    [
        (np.arange(5, 500), "range"),
        (np.delete(np.arange(500), [7, 9]), "range_with_holes"),
        # Four bytes for each hole, a bit for each id, two bytes for each one that is listed.
        (np.delete(np.arange(25), 7), "range_with_holes"),
        (np.delete(np.arange(24), 7), "range_with_bitmap"),
        (np.append(np.arange(61) * 16, 999), "sorted_array"),
        (np.append(np.arange(61) * 16, 991), "range_with_bitmap"),
        (np.append(np.arange(62) * 16, 999), "range_with_bitmap"),
        (np.arange(0, 500, 2), "range_with_bitmap"),
        (np.arange(0, 500_000, 1000), "sorted_array"),
        (np.array([3, 1, 2]), "array"),
        (np.array([], np.int64), "range"),
    ],
)
def test_the_shortest_form_is_taken(ids: NDArray[np.int64], form: str) -> None:
    data = encode_row_ids(ids.astype(np.uint64))
    assert form_of(data) == form
    np.testing.assert_array_equal(decode_row_ids(data, len(ids), where="m"), ids)


@pytest.mark.parametrize("step", [1, 3])
def test_the_last_id_that_a_damaged_file_may_have_is_listed(step: int) -> None:
    ids = np.arange(2**64 - 1 - 200 * step, 2**64 - 1, step, dtype=np.uint64) + np.uint64(step)
    data = encode_row_ids(ids)
    assert ids[-1] == 2**64 - 1
    assert decode_row_ids(data, len(ids), where="t").tolist() == ids.tolist()
    kept = select_row_ids(data, len(ids), np.arange(1, len(ids), dtype=np.uint32), where="t")
    assert decode_row_ids(kept, len(ids) - 1, where="t").tolist() == ids[1:].tolist()


@pytest.mark.spec("rowid-3")
def test_bits_of_a_bitmap_count_from_the_least_significant() -> None:
    segment = table_pb2.U64Segment()
    segment.range_with_bitmap.end = 8
    segment.range_with_bitmap.bitmap = b"\x57"
    data = table_pb2.RowIdSequence(segments=[segment]).SerializeToString()
    assert decode_row_ids(data, 5, where="m").tolist() == [0, 1, 2, 4, 6]


def test_segments_follow_each_other() -> None:
    data = encode_row_ids(range(3)) + encode_row_ids(np.array([9, 7], np.uint64))
    assert decode_row_ids(data, 5, where="m").tolist() == [0, 1, 2, 9, 7]


def test_versions_come_back_whatever_the_spans_start_at() -> None:
    data = encode_versions([(2, 1), (3, 7)])
    assert decode_versions(data, 5, where="m").tolist() == [1, 1, 7, 7, 7]
    moved = table_pb2.RowDatasetVersionSequence.FromString(data)
    moved.runs[1].span.range.start += 100
    moved.runs[1].span.range.end += 100
    again = decode_versions(moved.SerializeToString(), 5, where="m")
    assert again.tolist() == [1, 1, 7, 7, 7]


def segment(**parts: object) -> bytes:
    return table_pb2.RowIdSequence(
        segments=[table_pb2.U64Segment(**parts)]  # type: ignore[arg-type]  # parts of the oneof
    ).SerializeToString()


WIRE = table_pb2.U64Segment
U16 = table_pb2.EncodedU64Array(u16_array={"base": 3, "offsets": b"\x01\x00\x01\x00"})


def hole(value: int) -> table_pb2.EncodedU64Array:
    return table_pb2.EncodedU64Array(u16_array={"base": value, "offsets": bytes(2)})


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff",
        segment(),
        segment(range=WIRE.Range(start=9, end=3)),
        segment(range=WIRE.Range(start=0, end=2**62)),
        segment(range_with_bitmap=WIRE.RangeWithBitmap(end=2**50, bitmap=b"\x01")),
        segment(range_with_holes=WIRE.RangeWithHoles(end=1, holes=U16)),
        segment(range_with_holes=WIRE.RangeWithHoles(end=12, holes=U16)),
        segment(range_with_holes=WIRE.RangeWithHoles(end=11, holes=hole(11))),
        segment(range_with_holes=WIRE.RangeWithHoles(start=5, end=16, holes=hole(4))),
        segment(array={"u32_array": {"offsets": b"123"}}),
    ],
)
def test_damaged_sequences_are_reported(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        decode_row_ids(data, 10, where="m")


def test_a_segment_may_list_no_ids() -> None:
    empty = table_pb2.U64Segment(array={"u16_array": {"base": 3}})
    assert segment_bounds(empty, where="m") == (0, 0, 0)
    assert decode_row_ids(segment(array=empty.array), 0, where="m").tolist() == []


def test_a_range_may_have_no_ids_but_holes() -> None:
    data = segment(range_with_holes=WIRE.RangeWithHoles(start=4, end=5, holes=hole(4)))
    assert decode_row_ids(data + encode_row_ids(range(7, 8)), 1, where="m").tolist() == [7]


@pytest.mark.spec("rowid-2")
def test_a_wrong_number_of_rows_is_reported() -> None:
    with pytest.raises(CorruptFileError, match=r"row ids: expected 4 values, found 3 \(in m\)"):
        decode_row_ids(encode_row_ids(range(3)), 4, where="m")
    with pytest.raises(CorruptFileError, match="row versions: expected 4 values, found 3"):
        decode_versions(encode_versions([(3, 1)]), 4, where="m")


def test_more_rows_than_a_fragment_can_have_are_damage() -> None:
    """A few bytes can stand for any number of rows: nothing is made of them."""
    rows = 2**40
    with pytest.raises(CorruptFileError, match=r"at most 2\^32 rows, found 1099511627776"):
        decode_row_ids(encode_row_ids(range(rows)), rows, where="t")
    with pytest.raises(CorruptFileError, match=r"at most 2\^32 rows"):
        decode_versions(encode_versions([(rows, 1)]), rows, where="t")


LARGE = 2_200_000
"""Rows of which not all numbers are made for a few of them."""


@settings(max_examples=10)
@given(
    parts=st.lists(SORTED_IDS, min_size=1, max_size=4),
    large=st.sampled_from([0, LARGE]),
    data=st.data(),
)
def test_ids_of_some_rows_are_those_of_all_rows(
    parts: list[NDArray[np.uint64]], large: int, data: st.DataObject
) -> None:
    """Also where a sequence has so many rows that they are not all listed."""
    start = 2**50
    whole = [*parts, np.arange(start, start + large, dtype=np.uint64)]
    wire = b"".join(map(encode_row_ids, parts)) + encode_row_ids(range(start, start + large))
    ids = np.concatenate(whole)
    values = RowValues.of_row_ids(wire, len(ids), where="m")
    assert values.rows == len(ids)
    if len(ids):
        few = data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=30))
        near = data.draw(st.lists(st.integers(0, min(len(ids), 400) - 1), max_size=30))
        rows = np.array([*few, *near], np.int64)
        np.testing.assert_array_equal(values.at(rows), ids[rows])
        np.testing.assert_array_equal(values.all("m"), ids)


@settings(max_examples=10)
@given(
    runs=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), min_size=1, max_size=6),
    large=st.sampled_from([1, LARGE]),
)
def test_versions_of_some_rows_are_those_of_all_rows(
    runs: list[tuple[int, int]], large: int
) -> None:
    runs = [*runs, (large, 77)]
    total = sum(rows for rows, _ in runs)
    values = RowValues.of_versions(encode_versions(runs), total, where="m")
    expected = np.repeat([one for _, one in runs], [one for one, _ in runs])
    rows = np.arange(0, total, max(1, total // 97))[::-1]
    np.testing.assert_array_equal(values.at(rows), expected[rows])
    assert encode_version_array(values.all("m")) == encode_version_array(expected.astype(np.uint64))


def wide_segments() -> list[tuple[str, bytes, int, list[int]]]:
    """Sequences of a few bytes with billions of ids: name, bytes, rows, and some ids."""
    rows = 2**32
    holes = table_pb2.EncodedU64Array(u32_array={"base": 5, "offsets": bytes([0, 0, 0, 0])})
    missing = segment(range_with_holes=WIRE.RangeWithHoles(start=0, end=rows + 1, holes=holes))
    return [
        ("range", encode_row_ids(range(7, 7 + rows)), rows, [7, 12, rows + 6]),
        ("holes", missing, rows, [0, 6, rows]),
        (
            "two",
            encode_row_ids(range(4)) + encode_row_ids(range(9, 5 + rows)),
            rows,
            [0, 10, rows + 4],
        ),
    ]


@pytest.mark.parametrize(("name", "data", "rows", "ids"), wide_segments())
def test_ids_of_billions_of_rows_are_made_one_by_one(
    name: str, data: bytes, rows: int, ids: list[int]
) -> None:
    tracemalloc.start()
    try:
        values = RowValues.of_row_ids(data, rows, where="m")
        assert values.at(np.array([0, 5, rows - 1])).tolist() == ids, name
        cut = select_row_ids(data, rows, np.array([0, 5, rows - 1], np.uint32), where="m")
        assert decode_row_ids(cut, 3, where="m").tolist() == ids
        with pytest.raises(
            UnsupportedFeatureError, match=f"at most {MAX_ROWS_AT_ONCE} can be decoded"
        ):
            values.all("m")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_versions_of_billions_of_rows_are_made_one_by_one() -> None:
    rows = 2**32
    for values, expected in (
        (RowValues.of_versions(encode_versions([(3, 1), (rows - 3, 7)]), rows, where="m"), [1, 7]),
        (RowValues.constant(4, rows), [4, 4]),
    ):
        assert values.at(np.array([2, rows - 1])).tolist() == expected
        with pytest.raises(UnsupportedFeatureError, match="4294967296 rows of one fragment"):
            values.all("m")
