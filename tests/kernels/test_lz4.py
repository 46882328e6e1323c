"""Sizes of blocks of LZ4: those of sound ones, and -1 where bytes would come from elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import CorruptFileError
from glaive.kernels.flat import lz4_sizes

TIERS = ("numpy", "numba")
CODEC = pa.Codec("lz4_raw")
COPY_OF_NOTHING = b"\x10a\x00\x00\x50abcde"
"""A literal, four bytes from 0 bytes before, five literals."""


def size_of(block: bytes, limit: int) -> int:
    start = np.zeros(1, np.int64)
    data = pa.py_buffer(block)
    return int(lz4_sizes(data, start, start + len(block), start + limit, "here")[0])


@pytest.mark.parametrize("tier", TIERS)
@given(
    parts=st.lists(
        st.binary(max_size=40) | st.just(b"ab" * 700) | st.just(bytes(range(256)) * 2), max_size=9
    )
)
def test_blocks_have_the_size_that_was_compressed(tier: Any, parts: list[bytes]) -> None:
    blocks = [CODEC.compress(part, asbytes=True) for part in parts]
    sizes = np.array([len(block) for block in blocks], np.int64)
    limits = np.array([len(part) for part in parts], np.int64)
    data, starts = pa.py_buffer(b"".join(blocks)), np.cumsum(sizes) - sizes
    with force_tier(tier):
        assert lz4_sizes(data, starts, sizes, limits, "here").tolist() == limits.tolist()
        fewer = lz4_sizes(data, starts, sizes, limits - 1, "here")
    assert fewer.tolist() == [-1] * len(parts)


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (COPY_OF_NOTHING, -1),
        (b"\x10a\x01\x00\x50abcde", 10),
        (b"\x10a\x02\x00\x50abcde", -1),  # before the block
        (b"\x10a\x01\x00", -1),  # a copy at the end
        (b"\x10a\x01", -1),
        (b"\x20a", -1),
        (b"\xf0\xff", -1),
        (b"\xf0\xff\x00" + bytes(270), 270),
        (b"\x1fa\x01\x00\xff\x00\x00", 275),
        (b"\x00", 0),
        (b"", -1),
    ],
)
def test_what_copies_from_elsewhere_is_no_block(tier: Any, block: bytes, expected: int) -> None:
    with force_tier(tier):
        assert size_of(block, 1_000) == expected


@given(block=st.binary(max_size=60), limit=st.integers(0, 400))
def test_both_tiers_agree_on_any_bytes(block: bytes, limit: int) -> None:
    found = []
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # the names of tiers
            found.append(size_of(block, limit))
    assert found[0] == found[1]


@pytest.mark.parametrize("tier", TIERS)
def test_ranges_lie_within_the_data(tier: Any) -> None:
    one = np.ones(1, np.int64)
    with force_tier(tier), pytest.raises(CorruptFileError, match="blocks of LZ4"):
        lz4_sizes(pa.py_buffer(b"\x10a"), one, 2 * one, one, "here")
