"""Positions of nulls and of lists, against flags and plain lists."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import Block, FixedWidth, Variable
from glaive.encodings.levels import MAX_IMPLIED_LISTS, ListSlots, Validity, bitmap_of, place_values
from glaive.errors import UnsupportedFeatureError

flags = st.lists(st.booleans(), min_size=1, max_size=60)


def validity(valid: list[bool], *, as_valid: bool) -> Validity:
    array = np.array(valid, np.bool_)
    return Validity(len(valid), np.flatnonzero(array if as_valid else ~array), as_valid)


@given(flags, st.booleans(), st.data())
def test_layerof_ranges_and_of_single_slots(
    valid: list[bool], as_valid: bool, data: st.DataObject
) -> None:
    layer = validity(valid, as_valid=as_valid)
    assert layer.valid_count == sum(valid)
    assert layer.all_valid == all(valid)
    start = data.draw(st.integers(0, len(valid)))
    stop = data.draw(st.integers(start, len(valid)))
    in_range = layer.flags(start, stop)
    assert (in_range is None) == all(valid[start:stop])
    assert in_range is None or in_range.tolist() == valid[start:stop]
    slots = data.draw(st.lists(st.integers(0, len(valid) - 1), max_size=20))
    at_slots = layer.flags_at(np.array(slots, np.int64))
    assert (at_slots is None) == all(valid[at] for at in slots)
    assert at_slots is None or at_slots.tolist() == [valid[at] for at in slots]
    ends = np.array([*slots, len(valid)], np.int64)
    assert layer.rank(ends).tolist() == [sum(valid[:at]) for at in ends]


@given(st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=40), st.data())
def test_slots_valid_in_all_layers(rows: list[tuple[bool, ...]], data: st.DataObject) -> None:
    layers = [
        validity([row[at] for row in rows], as_valid=data.draw(st.booleans())) for at in range(3)
    ]
    expected = [all(row) for row in rows]
    in_all = Validity.of_all(layers, len(rows))
    flags = in_all.flags(0, len(rows))
    assert ([True] * len(rows) if flags is None else flags.tolist()) == expected
    assert in_all.valid_count == sum(expected)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.data())
def test_lists_of_ranges_and_of_single_slots(lengths: list[int], data: st.DataObject) -> None:
    array = np.array(lengths, np.int64)
    positions = np.flatnonzero(array)
    lists = ListSlots(positions, np.append(0, np.cumsum(array[positions])))
    ends = [0, *np.cumsum(array).tolist()]
    start = data.draw(st.integers(0, len(lengths)))
    stop = data.draw(st.integers(start, len(lengths)))
    offsets, first, last = lists.range_of(start, stop)
    assert (first, last) == (ends[start], ends[stop])
    assert offsets.tolist() == [end - first for end in ends[start : stop + 1]]
    slots = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=20))
    offsets, items = lists.take(np.array(slots, np.int64))
    assert np.diff(offsets).tolist() == [lengths[at] for at in slots]
    assert items.tolist() == [item for at in slots for item in range(ends[at], ends[at + 1])]


def test_bitmaps_count_their_nulls() -> None:
    assert bitmap_of(None) == (None, 0)
    bitmap, nulls = bitmap_of(np.array([True, False, True, True]))
    assert bitmap is not None
    assert (bitmap.to_pybytes(), nulls) == (b"\x0d", 1)


def contents(block: Block) -> list[bytes]:
    if isinstance(block, FixedWidth):
        raw = block.values.to_pybytes()
        return [raw[2 * at : 2 * at + 2] for at in range(block.count)]
    assert isinstance(block, Variable)
    raw = block.data.to_pybytes()
    ends = np.frombuffer(block.offsets, "<i4", block.count + 1).tolist()
    return [raw[a:b] for a, b in pairwise(ends)]


@given(flags.filter(any))
def test_values_go_to_the_flagged_slots(valid: list[bool]) -> None:
    count = sum(valid)
    values = [f"{at:02d}".encode() for at in range(count)]
    raw = pa.py_buffer(b"".join(values))
    ends = pa.py_buffer(np.arange(0, 2 * count + 1, 2, dtype="<i4").tobytes())
    for block in (FixedWidth(raw, 16, count), Variable(ends, 32, raw, count)):
        placed = contents(place_values(block, np.array(valid)))
        assert len(placed) == len(valid)
        assert [value for value, flag in zip(placed, valid, strict=True) if flag] == values
        assert place_values(block, None) is block


def test_slots_without_bytes_are_not_made_without_bound() -> None:
    count = 2**32 - 1
    few = Validity(count, np.array([5, count - 1]), are_valid=True)
    others = Validity(count, np.array([5, 9]))
    in_all = Validity.of_all([few, others, few], count)
    assert in_all.valid_count == 1
    flags = in_all.flags_at(np.array([5, count - 1]))
    assert flags is not None
    assert flags.tolist() == [False, True]
    with pytest.raises(UnsupportedFeatureError, match=f"{count} values, nearly all of them null"):
        few.flags(0, count)
    lists = ListSlots(np.array([7]), np.array([0, 3]))
    assert lists.range_of(6, 9)[0].tolist() == [0, 0, 3, 3]
    with pytest.raises(UnsupportedFeatureError, match=f"at most {MAX_IMPLIED_LISTS} are allowed"):
        lists.range_of(0, count)
