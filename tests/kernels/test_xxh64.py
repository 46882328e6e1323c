"""XXH64 of many strings: known values, and the same in both tiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import SchemaError
from glaive.kernels.hashing import hash_ranges, hash_strings
from glaive.kernels.strings import Strings
from glaive.types import as_buffer

TIERS = ("numpy", "numba")

# Published with the reference implementation, seed 0.
KNOWN = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"as": 0x1C330FB2D66BE179,
    b"asd": 0x631C37CE72A97393,
    b"asdf": 0x415872F599CEA71E,
    b"abc": 0x44BC2CF5AD770999,
    b"Call me Ishmael. Some years ago--never mind how long precisely-": 0x02A2E85470D6FD96,
}


def strings_of(texts: list[bytes], bits: int = 32) -> Strings:
    ends = 1 + np.cumsum([0, *map(len, texts)])
    data = pa.py_buffer(b"?" + b"".join(texts))
    return Strings(as_buffer(ends.astype(f"<i{bits // 8}")), bits, data)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("bits", [32, 64])
def test_hashes_are_those_of_the_reference(tier: Any, bits: int) -> None:
    with force_tier(tier):
        hashes = hash_strings(strings_of(list(KNOWN), bits), len(KNOWN))
    assert hashes.tolist() == list(KNOWN.values())


@given(texts=st.lists(st.binary(max_size=100), max_size=20))
def test_both_tiers_agree(texts: list[bytes]) -> None:
    hashes = []
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            hashes.append(hash_strings(strings_of(texts), len(texts)).tolist())
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("tier", TIERS)
def test_as_many_strings_are_hashed_as_is_asked_for(tier: Any) -> None:
    with force_tier(tier):
        assert hash_strings(strings_of([*KNOWN]), 3).tolist() == [*KNOWN.values()][:3]


@pytest.mark.parametrize("tier", TIERS)
def test_damaged_offsets_are_refused(tier: Any) -> None:
    offsets = as_buffer(np.array([0, 5, 2], np.int32))
    with force_tier(tier), pytest.raises(SchemaError, match="must ascend"):
        hash_strings(Strings(offsets, 32, pa.py_buffer(b"abcdef")), 2)


@given(
    data=st.binary(max_size=200),
    places=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=9),
    seed=st.sampled_from([0, 42, 2**63 - 1]),
)
def test_ranges_are_hashed_with_a_seed(
    data: bytes, places: list[tuple[int, int]], seed: int
) -> None:
    inside = [(min(a, b, len(data)), min(max(a, b), len(data))) for a, b in places]
    starts = np.array([start for start, _ in inside], np.int64)
    sizes = np.array([stop - start for start, stop in inside], np.int64)
    expected = [xxhash.xxh64_intdigest(data[start:stop], seed) for start, stop in inside]
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            assert hash_ranges(pa.py_buffer(data), starts, sizes, seed).tolist() == expected


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("start", "size"), [(2, 5), (-1, 1), (0, 2**63 - 1), (7, 0)])
def test_ranges_outside_are_refused(tier: Any, start: int, size: int) -> None:
    with force_tier(tier), pytest.raises(SchemaError, match="to be hashed"):
        hash_ranges(pa.py_buffer(b"abcdef"), np.array([start]), np.array([size]), 42)
