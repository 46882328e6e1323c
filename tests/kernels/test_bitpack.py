"""Bit-packing: both tiers agree, packing and unpacking are inverse, damage is reported."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import force_tier

from glaive.config import settings
from glaive.errors import CorruptFileError
from glaive.kernels.bitpack import (
    chunk_widths,
    out_of_line_sizes,
    pack_inline,
    pack_out_of_line,
    take_inline,
    unpack_inline,
    unpack_out_of_line,
)

TIERS = ("numpy", "numba")
WORDS = (8, 16, 32, 64)
COUNTS = (0, 1, 2, 1023, 1024, 1025, 5000)

UINT32_W10 = bytes.fromhex(
    "0a000000000002100104125002082290030c32d0041042100514525006186290071c72d00820821009249250"
    "0a28a2900b2cb2d00c30c2100d34d2500e38e2900f3cf2d0104002111144125112482291134c32d114504211"
    "1554525116586291175c72d118608211196492511a68a2911b6cb2d11c70c211"
)
UINT64_W10 = bytes.fromhex(
    "0a00000000000000000002106000020a010412506001061a0208229060020a2a030c32d060030e3a04104210"
    "6104124a051452506105165a0618629061061a6a071c72d061071e7a082082106208228a092492506209269a"
    "0a28a290620a2aaa0b2cb2d0620b2eba0c30c210630c32ca0d34d250630d36da0e38e290630e3aea0f3cf2d0"
    "630f3efa30e040000314704070e0410413547041b0e0420823947042f0e0430c33d4704330e1441043147144"
)


def words(count: int, word_bits: int, seed: int) -> NDArray[Any]:
    """Words whose width differs from chunk to chunk, 0 and all bits included."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(f"<u{word_bits // 8}")
    values = rng.integers(0, np.iinfo(dtype).max, count, dtype=dtype, endpoint=True)
    for start in range(0, count, 1024):
        width = int(rng.integers(0, word_bits + 1))
        values[start : start + 1024] &= dtype.type((1 << width) - 1)
    return values


def starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(sizes) - sizes


def inline_counts(count: int) -> NDArray[np.int64]:
    chunks = -(-count // 1024)
    return np.minimum(count - 1024 * np.arange(chunks), 1024)


def buffer(array: NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(array))


def pack(values: NDArray[Any]) -> tuple[pa.Buffer, NDArray[np.int64], NDArray[np.int64]]:
    bits = values.itemsize * 8
    data, sizes = pack_inline(buffer(values), len(values), bits)
    return buffer(data), starts_of(sizes), sizes


@pytest.mark.spec("pack-1", "inline-1")
@pytest.mark.parametrize(
    ("vector", "kind"), [(UINT32_W10, "<u4"), (UINT64_W10, "<u8")], ids=["u4", "u8"]
)
@pytest.mark.parametrize("tier", TIERS)
def test_ascending_numbers_are_packed_as_the_format_says(
    tier: Any, vector: bytes, kind: str
) -> None:
    with force_tier(tier):
        data, _, sizes = pack(np.arange(1024, dtype=kind))
    assert data.to_pybytes()[: len(vector)] == vector
    assert sizes.tolist() == [np.dtype(kind).itemsize + 1280]


@pytest.mark.spec("inline-1")
@pytest.mark.parametrize("tier", TIERS)
def test_bytes_that_repeat_are_packed_as_the_format_says(tier: Any) -> None:
    with force_tier(tier):
        data, _, _ = pack(np.arange(1024, dtype="<u1") % 8)
    first_words = b"\x03" + bytes.fromhex("004992db246db6ff") * 16
    assert data.to_pybytes()[:129] == first_words
    assert data.size == 1 + 3 * 128


@pytest.mark.spec("pack-2", "inline-2", "inline-3", "inline-4")
@pytest.mark.parametrize("word_bits", WORDS)
@pytest.mark.parametrize("count", COUNTS)
def test_inline_chunks_come_back_and_both_tiers_agree(word_bits: int, count: int) -> None:
    values = words(count, word_bits, seed=count)
    seen = []
    for tier in TIERS:
        with force_tier(tier):
            data, starts, sizes = pack(values)
            back = unpack_inline(data, starts, sizes, inline_counts(count), word_bits, "test")
        assert back.to_pybytes() == values.tobytes()
        seen.append((data.to_pybytes(), sizes.tolist()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("word_bits", WORDS)
def test_every_width_comes_back(word_bits: int) -> None:
    dtype = np.dtype(f"<u{word_bits // 8}")
    rng = np.random.default_rng(word_bits)
    every = rng.integers(0, np.iinfo(dtype).max, (word_bits + 1, 1024), dtype, endpoint=True)
    for width in range(word_bits + 1):
        every[width] &= dtype.type((1 << width) - 1)
    for tier in TIERS:
        with force_tier(tier):
            data, starts, sizes = pack(every.reshape(-1))
            back = unpack_inline(data, starts, sizes, np.full(len(sizes), 1024), word_bits, "test")
        assert back.to_pybytes() == every.tobytes()


@given(
    word_bits=st.sampled_from(WORDS),
    counts=st.lists(st.integers(0, 1024), max_size=5),
    tier=st.sampled_from(TIERS),
)
def test_chunks_may_be_cut_short_anywhere(word_bits: int, counts: list[int], tier: Any) -> None:
    values = words(1024 * len(counts), word_bits, seed=sum(counts))
    data, starts, sizes = pack(values)
    with force_tier(tier):
        back = unpack_inline(data, starts, sizes, np.array(counts, np.int64), word_bits, "test")
    used = [values[1024 * i : 1024 * i + n] for i, n in enumerate(counts)]
    assert back.to_pybytes() == b"".join(part.tobytes() for part in used)


@given(
    word_bits=st.sampled_from(WORDS),
    count=st.integers(1, 3000),
    wanted=st.lists(st.integers(0, 10**6), max_size=40),
)
def test_single_values_are_found_in_any_order(
    word_bits: int, count: int, wanted: list[int]
) -> None:
    values = words(count, word_bits, seed=count)
    data, starts, sizes = pack(values)
    rows = np.array(wanted, np.int64) % count
    for tier in TIERS:
        with force_tier(tier):
            got = take_inline(data, starts, sizes, rows >> 10, rows & 1023, word_bits, "test")
        assert got.to_pybytes() == values[rows].tobytes()


@pytest.mark.spec("outline-1", "outline-2")
@given(
    word_bits=st.sampled_from(WORDS),
    share=st.floats(0, 1),
    counts=st.lists(
        st.one_of(st.integers(0, 70), st.sampled_from([900, 1023, 1024, 1025, 3000])), max_size=5
    ),
)
def test_out_of_line_blocks_come_back_and_both_tiers_agree(
    word_bits: int, share: float, counts: list[int]
) -> None:
    width = round(word_bits * share)
    values = words(sum(counts), word_bits, seed=len(counts))
    values &= values.dtype.type((1 << width) - 1)
    each = np.array(counts, np.int64)
    seen = []
    for tier in TIERS:
        with force_tier(tier):
            packed, sizes = pack_out_of_line(buffer(values), each, word_bits, width)
            back = unpack_out_of_line(
                buffer(packed), starts_of(sizes), sizes, each, word_bits, width, "test"
            )
        assert back.to_pybytes() == values.tobytes()
        seen.append((packed.tobytes(), sizes.tolist()))
    assert seen[0] == seen[1]
    assert seen[0][1] == out_of_line_sizes(each, word_bits, width).tolist()


@pytest.mark.spec("outline-2")
@pytest.mark.parametrize(("tail", "size"), [(0, 0), (10, 20), (64, 128), (65, 128), (1023, 128)])
def test_a_tail_is_packed_only_when_that_is_smaller(tail: int, size: int) -> None:
    assert out_of_line_sizes(np.array([2048 + tail]), 16, 1).tolist() == [256 + size]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 33}, "expected 0 to 32 bits, found 33 bits"),
        ({"width": 9}, "expected 1156 bytes for values of 9 bits, found 1284 bytes"),
        ({"start": 1}, "within 1284 bytes"),
        ({"start": -1}, "within 1284 bytes"),
        ({"start": 1 << 62}, "within 1284 bytes"),
        ({"size": 1280}, "expected 1284 bytes for values of 10 bits, found 1280 bytes"),
        ({"size": 3}, "at least 4 bytes"),
        ({"size": -4}, "at least 4 bytes"),
        ({"count": 1025}, "number of values"),
        ({"count": -1}, "number of values"),
    ],
)
def test_a_damaged_chunk_is_reported_not_followed(
    tier: Any, change: dict[str, int], message: str
) -> None:
    packed, _, _ = pack(np.arange(1024, dtype="<u4"))
    data = bytearray(packed.to_pybytes())
    data[0] = change.get("width", 10)
    start, size, count = (
        np.array([change.get(name, usual)])
        for name, usual in (("start", 0), ("size", 1284), ("count", 1000))
    )
    with force_tier(tier):
        with pytest.raises(CorruptFileError, match=message):
            unpack_inline(pa.py_buffer(bytes(data)), start, size, count, 32, "a.lance")
        if "count" not in change:
            zero = np.zeros(1, np.int64)
            with pytest.raises(CorruptFileError, match=message):
                take_inline(pa.py_buffer(bytes(data)), start, size, zero, zero, 32, "a.lance")


@pytest.mark.parametrize("tier", TIERS)
def test_counts_that_cancel_out_are_reported(tier: Any) -> None:
    data, starts, sizes = pack(np.arange(2048, dtype="<u4"))
    with force_tier(tier), pytest.raises(CorruptFileError):
        unpack_inline(data, starts, sizes, np.array([1024, -1000]), 32, "a.lance")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("chunk", "index"), [(1, 0), (-1, 0), (0, 1024), (0, -1)])
def test_a_position_outside_of_the_chunks_is_reported(tier: Any, chunk: int, index: int) -> None:
    data, starts, sizes = pack(np.arange(1024, dtype="<u4"))
    with force_tier(tier), pytest.raises(CorruptFileError, match="position"):
        take_inline(data, starts, sizes, np.array([chunk]), np.array([index]), 32, "a.lance")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("start", "size", "count"),
    [(0, 256, 1024), (1, 128, 1024), (-1, 128, 1024), (0, 128, 2048), (0, 128, -1)],
)
def test_a_damaged_out_of_line_block_is_reported(
    tier: Any, start: int, size: int, count: int
) -> None:
    data = pa.py_buffer(bytes(128))
    chunk_args = (data, np.array([start]), np.array([size]), np.array([count]))
    with force_tier(tier), pytest.raises(CorruptFileError, match="bit-packed block"):
        unpack_out_of_line(*chunk_args, 16, 1, "a.lance")
    with pytest.raises(CorruptFileError, match="found 17 bits"):
        unpack_out_of_line(*chunk_args, 16, 17, "a.lance")


def test_packing_refuses_what_cannot_be_meant() -> None:
    values = pa.py_buffer(bytes(16))
    with pytest.raises(ValueError, match="words of 24 bits"):
        chunk_widths(values, 1, 24)
    with pytest.raises(ValueError, match="5 values of 32 bits in a buffer of 16 bytes"):
        chunk_widths(values, 5, 32)
    with pytest.raises(ValueError, match="width 33"):
        pack_out_of_line(values, np.array([4]), 32, 33)


@pytest.mark.skipif(settings.kernels == "checked", reason="the checked build compiles all it runs")
def test_a_few_values_are_read_without_the_compiler() -> None:
    code = """
import sys, numpy as np, pyarrow as pa
import glaive.kernels.bitpack as bitpack
values = pa.py_buffer(np.arange(2000, dtype="<u4"))
data, sizes = bitpack.pack_inline(values, 2000, 32)
starts = np.cumsum(sizes) - sizes
rows = np.arange(0, 2000, 200)
got = bitpack.take_inline(pa.py_buffer(data), starts, sizes, rows >> 10, rows & 1023, 32, "t")
assert np.frombuffer(got, "<u4").tolist() == rows.tolist()
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
