"""Values without some rows: both tiers agree with numpy, and wrong rows are refused."""

from __future__ import annotations

from itertools import pairwise
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
from glaive.kernels.compact import (
    DeletionMask,
    compact_bits,
    compact_fixed,
    compact_inline,
    compact_variable,
)
from glaive.kernels.strings import Strings
from glaive.types import as_buffer

TIERS = ("numpy", "numba")


@st.composite
def gone_rows(draw: st.DrawFn) -> tuple[NDArray[np.bool_], DeletionMask]:
    """Which rows live, and the same as the wrappers take it."""
    rows = draw(st.sampled_from([1, 63, 64, 65, 128, 700]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    live = random.random(rows) >= draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    base = draw(st.integers(0, 70))
    numbers = np.flatnonzero(~live) + base
    bits = np.append(
        np.packbits(np.append(np.ones(base, np.bool_), live), bitorder="little"),
        np.zeros(16, np.uint8),
    )
    return live, DeletionMask(numbers, base, rows, bits if draw(st.booleans()) else None)


@given(case=gone_rows(), width=st.sampled_from([1, 3, 8]), bits=st.sampled_from([32, 64]))
def test_rows_to_leave_out_may_be_known_by_the_bits_of_the_others(
    case: tuple[NDArray[np.bool_], DeletionMask], width: int, bits: int
) -> None:
    live, _ = case
    kept = as_buffer(np.packbits(live, bitorder="little"))
    raw = np.random.default_rng(1).integers(0, 256, len(live) * width).astype(np.uint8)
    words = (np.arange(len(live)) % 100).astype("<u4")
    chunk, sizes = pack_inline(as_buffer(words), len(words), 32)
    each = np.zeros(1, np.int64), sizes, np.array([len(words)])
    ends = np.arange(len(live) + 1, dtype=f"<i{bits // 8}")
    strings = Strings(as_buffer(ends), bits, as_buffer(words.astype(np.uint8)))
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            deleted = DeletionMask.of_live(kept, len(live), int(live.sum()))
            values = compact_fixed(as_buffer(raw), width, deleted)
            assert values.to_pybytes() == raw.reshape(-1, width)[live].tobytes()
            unpacked = compact_inline(as_buffer(chunk), *each, 32, 0, deleted, "a.lance")
            assert np.frombuffer(unpacked, "<u4").tolist() == words[live].tolist()
            data = compact_variable(strings, deleted).data
            assert data.to_pybytes() == words[live].astype(np.uint8).tobytes()
            assert deleted.numbers.tolist() == np.flatnonzero(~live).tolist()


@given(case=gone_rows(), width=st.sampled_from([1, 2, 3, 4, 8, 16, 100]))
def test_values_that_stay(case: tuple[NDArray[np.bool_], DeletionMask], width: int) -> None:
    live, deleted = case
    values = np.random.default_rng(1).integers(0, 256, len(live) * width).astype(np.uint8)
    expected = values.reshape(-1, width)[live].tobytes()
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            assert compact_fixed(as_buffer(values), width, deleted).to_pybytes() == expected


@given(case=gone_rows(), begin=st.integers(0, 20))
def test_bits_that_stay(case: tuple[NDArray[np.bool_], DeletionMask], begin: int) -> None:
    live, deleted = case
    flags = np.random.default_rng(2).random(begin + len(live)) < 0.5
    expected = flags[begin:][live]
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            live_bits = compact_bits(
                as_buffer(np.packbits(flags, bitorder="little")), begin, deleted
            )
        bits = np.frombuffer(live_bits.to_pybytes(), np.uint8)
        kept = np.unpackbits(bits, count=len(expected), bitorder="little")
        assert kept.tolist() == expected.tolist()


@given(case=gone_rows(), bits=st.sampled_from([32, 64]), lead=st.integers(0, 5))
def test_strings_that_stay(
    case: tuple[NDArray[np.bool_], DeletionMask], bits: int, lead: int
) -> None:
    live, deleted = case
    sizes = np.random.default_rng(3).integers(0, 150, len(live)) % 90
    ends = lead + np.cumsum(np.append(0, sizes))
    data = np.random.default_rng(4).integers(0, 256, int(ends[-1])).astype(np.uint8)
    strings = Strings(as_buffer(ends.astype(f"<i{bits // 8}")), bits, as_buffer(data))
    each = [data[a:b].tobytes() for a, b in pairwise(ends)]
    expected = [each[row] for row in np.flatnonzero(live)]
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            kept = compact_variable(strings, deleted)
        assert kept.data.to_pybytes() == b"".join(expected)
        offsets = np.frombuffer(kept.offsets.to_pybytes(), f"<i{bits // 8}")
        assert np.diff(offsets).tolist() == [len(string) for string in expected]
        assert offsets[0] == 0


@pytest.mark.parametrize("tier", ["numpy", "numba"])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_damage_and_wrong_rows_are_refused(tier: Any, bits: int) -> None:
    values = as_buffer((np.arange(2000) % 100).astype(f"<u{bits // 8}"))
    raw, sizes = pack_inline(values, 2000, bits)
    data, starts, counts = as_buffer(raw), np.cumsum(sizes) - sizes, np.array([1024, 976])
    deleted = DeletionMask(np.array([10, 20]), 0, 1990)
    with force_tier(tier):
        kept = compact_inline(data, starts, sizes, counts, bits, 10, deleted, "a.lance")
        expected = np.delete(np.arange(10, 2000) % 100, [10, 20])
        assert np.frombuffer(kept, f"<u{bits // 8}").tolist() == expected.tolist()
        with pytest.raises(CorruptFileError, match="bit-packed chunk"):
            compact_inline(data, starts, sizes + 1, counts, bits, 10, deleted, "a.lance")
        with pytest.raises(ValueError, match="1990 rows from value 11"):
            compact_inline(data, starts, sizes, counts, bits, 11, deleted, "a.lance")
        wrong = DeletionMask(np.array([20, 10]), 0, 1990)
        with pytest.raises(ValueError, match="row numbers"):
            compact_inline(data, starts, sizes, counts, bits, 0, wrong, "a.lance")


def test_kernels_do_not_write_more_rows_than_the_numbers_leave() -> None:
    values = as_buffer(np.arange(1000, dtype="<u2"))
    raw, sizes = pack_inline(values, 1000, 16)
    every = np.full(1000 // 8 + 17, 0xFF, np.uint8)
    each = np.zeros(1, np.int64), sizes, np.array([1000])
    with pytest.raises(ValueError, match="row numbers"):
        compact_inline(
            as_buffer(raw), *each, 16, 0, DeletionMask(np.array([3]), 0, 1000, every), "a.lance"
        )


def test_bits_that_end_too_early_are_refused() -> None:
    with pytest.raises(ValueError, match="18 bytes for the bits 0 to 20"):
        DeletionMask(np.array([3]), 0, 20, np.zeros(18, np.uint8))


@pytest.mark.parametrize("tier", ["numpy", "numba"])
@pytest.mark.parametrize("numbers", [[3, 2], [2, 2], [-1], [9], [0, 1, 2, 3, 4, 5]])
def test_row_numbers_that_do_not_ascend_are_refused(tier: Any, numbers: list[int]) -> None:
    deleted = DeletionMask(np.array(numbers), 0, 5)
    strings = Strings(pa.py_buffer(np.arange(6, dtype="<i4").tobytes()), 32, pa.py_buffer(b"abcde"))
    with force_tier(tier):
        with pytest.raises(ValueError, match="row numbers"):
            compact_fixed(pa.py_buffer(bytes(20)), 4, deleted)
        with pytest.raises(ValueError, match="row numbers"):
            compact_bits(pa.py_buffer(bytes(1)), 0, deleted)
        with pytest.raises(ValueError, match=r"row numbers|bytes of strings"):
            compact_variable(strings, deleted)
