"""Which words pass: both tiers agree with numpy, and damage is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import force_tier

from glaive.errors import CorruptFileError
from glaive.kernels.bitpack import pack_inline
from glaive.kernels.match import IntegerRanges, count_rows, list_rows, match_inline, match_plain
from glaive.kernels.match import test_of_flags as flags_test
from glaive.types import as_buffer

TIERS = ("numpy", "numba")
BITS = (8, 16, 32, 64)


@st.composite
def cases(draw: st.DrawFn) -> tuple[NDArray[Any], IntegerRanges, list[tuple[int, int]]]:
    """Words, a test on them, and its ranges as pairs of first and last word."""
    bits = draw(st.sampled_from(BITS))
    top = (1 << bits) - 1
    width = draw(st.integers(0, bits))
    count = draw(st.sampled_from([0, 1, 63, 64, 65, 1023, 1024, 1025, 2500]))
    seed = np.random.default_rng(draw(st.integers(0, 99)))
    words = seed.integers(0, (1 << width) - 1, count, np.uint64, endpoint=True)
    near = st.integers(0, top) | st.integers(0, (1 << width) - 1)
    if count:
        near |= st.sampled_from(words[:20].tolist())
    edges = sorted(draw(st.sets(near, max_size=draw(st.sampled_from([2, 8, 80])))))
    if len(edges) % 2:
        edges.pop()
    ranges = [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True)]
    if draw(st.booleans()):
        ranges = [(low, low) for low, _ in ranges]
    lows, spans = [low for low, _ in ranges], [high - low for low, high in ranges]
    if ranges and draw(st.booleans()):
        # The last range goes on at 0 behind the largest word, up to before the first.
        more = draw(st.integers(0, lows[0]))
        if more:
            ranges.append((0, more - 1))
            ranges.append((lows[-1], top))
            spans[-1] = top - lows[-1] + more
    test = IntegerRanges.of(bits, np.array(lows, np.uint64), np.array(spans, np.uint64))
    return words.astype(f"<u{bits // 8}"), test, ranges


def expected(words: NDArray[Any], ranges: list[tuple[int, int]]) -> list[int]:
    return [
        at
        for at, word in enumerate(words.tolist())
        if any(low <= word <= high for low, high in ranges)
    ]


@given(case=cases(), cut=st.integers(0, 3))
def test_words_in_a_range_are_found(
    case: tuple[NDArray[Any], IntegerRanges, list[tuple[int, int]]], cut: int
) -> None:
    words, test, ranges = case
    count, width = len(words), words.itemsize
    packed, sizes = pack_inline(as_buffer(words), count, test.bits)
    starts = np.cumsum(sizes) - sizes
    counts = np.minimum(1024, count - 1024 * np.arange(len(sizes)))
    # Plain words in pieces, with bytes between them, ending where memory ends.
    bounds = sorted({0, count, *(count * i // 4 for i in range(1, cut + 1))})
    each = np.diff(bounds)
    pieces = [words[a : a + n].tobytes() for a, n in zip(bounds[:-1], each, strict=True)]
    plain = b"?" + b"?".join(pieces)
    at = 1 + np.arange(len(each)) + np.array(bounds[:-1], np.int64) * width
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            bits = match_inline(as_buffer(packed), starts, sizes, counts, test, "test")
            assert list_rows(bits, 0, count, 0).tolist() == expected(words, ranges)
            assert count_rows(bits, 0, count) == len(expected(words, ranges))
            bits = match_plain(pa.py_buffer(plain), at, each, test, "test")
            assert list_rows(bits, 0, count, 0).tolist() == expected(words, ranges)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("first", [1000, 1001])  # the next chunk's bits begin with a byte, or not
def test_blocks_of_every_width_are_compared_with_one_two_and_three_ranges(
    bits: int, first: int
) -> None:
    rng = np.random.default_rng(bits)
    words = rng.integers(0, (1 << bits) - 1, (bits + 1, 1024), np.uint64, endpoint=True)
    for width in range(bits + 1):
        words[width] &= np.uint64((1 << width) - 1)
    dtype = f"<u{bits // 8}"
    packed, sizes = pack_inline(as_buffer(words.astype(dtype)), words.size, bits)
    # The widest chunk first, cut short.
    order = np.array([bits, *range(bits + 1)])
    counts = np.array([first] + [1024] * (bits + 1))
    used = np.concatenate([words[bits, :first], words.reshape(-1)])
    starts = (np.cumsum(sizes) - sizes)[order]
    middle = sorted(int(word) for word in rng.choice(words[bits], 4, replace=False))
    for ranges in (
        [(0, 0)],
        [(middle[0], middle[2])],
        [(1, 3), (middle[1], (1 << bits) - 1)],
        [(middle[0], middle[0]), (middle[1], middle[1]), (middle[2], middle[3])],
    ):
        lows, highs = (np.array(ends, np.uint64) for ends in zip(*ranges, strict=True))
        test = IntegerRanges.of(bits, lows, highs - lows)
        found = match_inline(as_buffer(packed), starts, sizes[order], counts, test, "test")
        assert list_rows(found, 0, len(used), 0).tolist() == expected(used, ranges)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("scattered", [False, True])
def test_numbers_of_flags_are_found_and_higher_ones_reported(
    tier: Any, bits: int, scattered: bool
) -> None:
    entries = 200
    flags = np.zeros(entries, np.bool_)
    flags[np.arange(0, entries, 3) if scattered else np.arange(50, 60)] = True
    words = np.random.default_rng(1).integers(0, entries, 1500).astype(f"<u{bits // 8}")
    test = flags_test(bits, flags)
    with force_tier(tier):
        whole = np.zeros(1, np.int64), np.array([1500], np.int64)
        bitmap = match_plain(as_buffer(words), *whole, test, "test")
        assert list_rows(bitmap, 0, 1500, 7).tolist() == (np.flatnonzero(flags[words]) + 7).tolist()
        for at in (3, 1499):
            damaged = words.copy()
            damaged[at] = entries
            with pytest.raises(CorruptFileError, match="up to 199"):
                match_plain(as_buffer(damaged), *whole, test, "test")
            packed, sizes = pack_inline(as_buffer(damaged), 1500, bits)
            counts = np.array([1024, 476], np.int64)
            with pytest.raises(CorruptFileError, match="up to 199"):
                match_inline(
                    as_buffer(packed), np.cumsum(sizes) - sizes, sizes, counts, test, "test"
                )


@pytest.mark.parametrize("tier", TIERS)
def test_chunks_that_do_not_fit_are_reported(tier: Any) -> None:
    test = IntegerRanges.of(16, np.zeros(1, np.uint64), np.full(1, 9, np.uint64))
    words = as_buffer(np.arange(1024, dtype="<u2"))
    packed, sizes = pack_inline(words, 1024, 16)
    zero, count = np.zeros(1, np.int64), np.array([1024], np.int64)
    with force_tier(tier):
        with pytest.raises(CorruptFileError, match="bit-packed chunk"):
            match_inline(as_buffer(packed), zero, sizes - 1, count, test, "a.lance")
        with pytest.raises(CorruptFileError, match="bit-packed chunk"):
            match_inline(as_buffer(packed), zero + 8, sizes, count, test, "a.lance")
        with pytest.raises(CorruptFileError, match="within 2048 bytes"):
            match_plain(words, zero, count + 1, test, "a.lance")
        with pytest.raises(CorruptFileError, match="within 2048 bytes"):
            match_plain(words, zero - 1, count, test, "a.lance")


@given(flags=st.lists(st.booleans(), max_size=300), begin=st.integers(0, 70), dense=st.booleans())
def test_rows_are_the_set_bits(flags: list[bool], begin: int, dense: bool) -> None:
    wanted = np.array([True] * 100 + flags if dense else flags, np.bool_)
    padded = np.concatenate((np.ones(begin, np.bool_), wanted))
    bits = as_buffer(np.packbits(padded, bitorder="little"))
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            rows = list_rows(bits, begin, len(wanted), 1000)
            assert rows.tolist() == (np.flatnonzero(wanted) + 1000).tolist()
            assert count_rows(bits, begin, len(wanted)) == int(wanted.sum())


def test_bits_beyond_the_end_are_refused() -> None:
    with pytest.raises(ValueError, match="17 bits"):
        list_rows(pa.py_buffer(b"\xff\xff"), 0, 17, 0)
