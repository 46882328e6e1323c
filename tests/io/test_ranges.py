"""Joining byte ranges."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from glaive.io.remote import coalesce, split
from glaive.types import ByteRange

RANGES = st.lists(
    st.builds(ByteRange, st.integers(0, 5000), st.integers(0, 400)), min_size=0, max_size=30
)


def test_near_ranges_share_a_request() -> None:
    joined = coalesce([ByteRange(200, 10), ByteRange(0, 100)], max_gap=100)
    assert joined.requests == [ByteRange(0, 210)]
    assert joined.source == [0, 0]
    assert joined.size == 210


def test_far_ranges_do_not() -> None:
    joined = coalesce([ByteRange(201, 10), ByteRange(0, 100)], max_gap=100)
    assert joined.requests == [ByteRange(0, 100), ByteRange(201, 10)]
    assert joined.source == [1, 0]


def test_a_request_stops_growing_at_the_limit() -> None:
    pages = [ByteRange(i * 100, 100) for i in range(10)]
    joined = coalesce(pages, max_request=300)
    assert [request.size for request in joined.requests] == [300, 300, 300, 100]


def test_an_empty_range_asks_for_nothing() -> None:
    joined = coalesce([ByteRange(70, 0)])
    assert joined.requests == []
    assert split([ByteRange(70, 0)], joined, [])[0].size == 0


@given(ranges=RANGES, max_gap=st.integers(0, 300), max_request=st.integers(1, 2000))
def test_splitting_undoes_joining(ranges: list[ByteRange], max_gap: int, max_request: int) -> None:
    content = bytes(i * 7 % 251 for i in range(6000))
    joined = coalesce(ranges, max_gap=max_gap, max_request=max_request)
    answers = [pa.py_buffer(content[r.offset : r.end]) for r in joined.requests]
    for asked, got in zip(ranges, split(ranges, joined, answers), strict=True):
        assert got.to_pybytes() == content[asked.offset : asked.end]


@given(ranges=RANGES, max_gap=st.integers(0, 300), max_request=st.integers(1, 2000))
def test_no_byte_is_fetched_twice(ranges: list[ByteRange], max_gap: int, max_request: int) -> None:
    requests = coalesce(ranges, max_gap=max_gap, max_request=max_request).requests
    assert all(a.end <= b.offset for a, b in pairwise(requests))
