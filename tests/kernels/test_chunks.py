"""Chunk kernels: headers and buffers, level counts, rows among levels; both tiers agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import Tier, force_tier

from glaive.encodings.levels import LevelLimits, check_levels
from glaive.errors import CapacityError, CorruptFileError
from glaive.kernels.chunks import assemble_chunks, find_row, parse_headers, read_words
from glaive.types import Where

HERE = Where("test.lance")
TIERS: list[Tier] = ["numpy", "numba"]

Piece = tuple[NDArray[np.uint8], NDArray[np.int64]]


@st.composite
def chunk_pieces(draw: st.DrawFn) -> tuple[NDArray[np.int64], list[Piece], list[Piece]]:
    chunks = draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def pieces(count: int) -> list[Piece]:
        results = []
        for _ in range(count):
            sizes = rng.integers(0, 40, chunks)
            results.append((rng.integers(0, 256, sizes.sum()).astype(np.uint8), sizes))
        return results

    levels = rng.integers(0, 65536, chunks)
    return levels, pieces(draw(st.integers(0, 2))), pieces(draw(st.integers(1, 3)))


@given(chunk_pieces(), st.sampled_from([2, 4]))
def test_pieces_come_back_from_the_chunks_they_were_put_in(
    parts: tuple[NDArray[np.int64], list[Piece], list[Piece]], width: int
) -> None:
    levels, level_buffers, value_buffers = parts
    seen = []
    for tier in TIERS:
        with force_tier(tier):
            data, sizes = assemble_chunks(levels, level_buffers, value_buffers, value_width=width)
            headers = parse_headers(
                data,
                np.cumsum(sizes) - sizes,
                sizes,
                level_buffers=len(level_buffers),
                value_buffers=len(value_buffers),
                value_width=width,
                where=HERE,
            )
        seen.append(data.to_pybytes())
        np.testing.assert_array_equal(headers.levels, levels)
        assert not (sizes % 8).any()
        for buffer, (expected, buffer_sizes) in enumerate([*level_buffers, *value_buffers]):
            np.testing.assert_array_equal(headers.sizes[buffer], buffer_sizes)
            results = [
                seen[-1][start : start + size]
                for start, size in zip(headers.starts[buffer], headers.sizes[buffer], strict=True)
            ]
            assert b"".join(results) == expected.tobytes()
    assert seen[0] == seen[1]


def test_headers_and_fill_are_laid_out_as_specified() -> None:
    levels = [(np.array([0, 0, 0, 0, 0, 0, 1, 0], np.uint8), np.array([8]))]
    values = [(np.frombuffer(np.array([1, 2, 3], "<u4").tobytes(), np.uint8), np.array([12]))]
    data, sizes = assemble_chunks(np.array([4]), levels, values, value_width=2)
    assert sizes.tolist() == [32]
    assert data.to_pybytes().hex() == (
        "040008000c00fefe" "0000000000000100" "010000000200000003000000fefefefe"
    )  # fmt: skip
    data, sizes = assemble_chunks(np.array([4]), levels, values, value_width=4)
    assert data.to_pybytes()[:8].hex() == "040008000c000000"


@pytest.mark.parametrize("tier", TIERS)
def test_a_piece_beyond_its_chunk_is_refused(tier: Tier) -> None:
    buffer = [(np.zeros(40, np.uint8), np.array([16, 24]))]
    data, sizes = assemble_chunks(np.array([0, 0]), [], buffer, value_width=2)
    starts = np.cumsum(sizes) - sizes
    damaged = bytearray(data.to_pybytes())
    damaged[starts[1] + 2] = 25
    with force_tier(tier), pytest.raises(CorruptFileError, match="chunk at byte 24"):
        parse_headers(
            pa.py_buffer(bytes(damaged)), starts, sizes,
            level_buffers=0, value_buffers=1, value_width=2, where=HERE,
        )  # fmt: skip
    with force_tier(tier), pytest.raises(CorruptFileError, match="a header and 9 buffers"):
        parse_headers(
            data, starts[:1], np.array([16]),
            level_buffers=0, value_buffers=9, value_width=2, where=HERE,
        )  # fmt: skip


def test_chunks_beyond_the_data_are_refused() -> None:
    with pytest.raises(CorruptFileError, match="32 bytes at byte 8"):
        parse_headers(
            pa.py_buffer(bytes(32)), np.array([0, 8]), np.array([8, 32]),
            level_buffers=0, value_buffers=1, value_width=2, where=HERE,
        )  # fmt: skip


def test_sizes_that_do_not_fit_the_header_are_refused() -> None:
    large = (np.zeros(65536, np.uint8), np.array([65536]))
    with pytest.raises(CapacityError, match="65536 bytes"):
        assemble_chunks(np.array([0]), [], [large], value_width=2)
    with pytest.raises(CapacityError, match="65536 bytes"):
        assemble_chunks(np.array([0]), [large], [], value_width=4)
    assert assemble_chunks(np.array([0]), [], [large], value_width=4)[1].tolist() == [8 + 65536]


@pytest.mark.parametrize("sizes", [[4, 5], [-1, 9]])
def test_sizes_that_contradict_their_buffer_are_refused(sizes: list[int]) -> None:
    buffer = (np.zeros(8, np.uint8), np.array(sizes))
    with pytest.raises(ValueError, match=r"buffers of \[8\] bytes"):
        assemble_chunks(np.array([0, 0]), [], [buffer], value_width=2)


LEVELS = st.integers(0, 300).flatmap(
    lambda size: st.lists(st.integers(0, 4), min_size=size, max_size=size)
)


@given(LEVELS, st.integers(0, 4))
def test_rows_are_found(levels: list[int], row: int) -> None:
    starts = [at for at, level in enumerate(levels) if level == 4]
    entry = find_row(np.array(levels, np.uint16), 4, row)
    assert entry == (starts[row] if row < len(starts) else len(levels))


@pytest.mark.parametrize("at", [3, 130])
def test_levels_above_the_layers_are_refused(at: int) -> None:
    levels = np.zeros(140, np.uint16)
    levels[at] = 3
    limits = LevelLimits(max_rep=2, max_def=2, visible_def=0)
    with pytest.raises(CorruptFileError, match=r"repetition levels.*0 to 2.*found 3"):
        check_levels(levels, None, limits, HERE)
    with pytest.raises(CorruptFileError, match=r"definition levels.*0 to 2.*found 3"):
        check_levels(None, levels, limits, HERE)


@given(st.integers(0, 2**32), st.sampled_from([2, 4]), st.booleans())
def test_chunk_words_of_pages_say_where_their_chunks_are(
    seed: int, width: int, damaged: bool
) -> None:
    rng = np.random.default_rng(seed)
    chunks = rng.integers(1, 6, int(rng.integers(1, 5)))
    logs = [[*rng.integers(1, 4, count - 1).tolist(), 0] for count in chunks.tolist()]
    held = [rng.integers(0, 1 << 11, count).tolist() for count in chunks.tolist()]
    lasts = rng.integers(1, 9, len(chunks)).tolist()
    values = [
        [*(1 << log for log in own[:-1]), last] for own, last in zip(logs, lasts, strict=True)
    ]
    sizes = [[8 * (size + 1) for size in own] for own in held]
    words = [
        s << 4 | log
        for own, logged in zip(held, logs, strict=True)
        for s, log in zip(own, logged, strict=True)
    ]
    starts = rng.integers(0, 1 << 40, len(chunks))
    items = np.array([*map(sum, values)])
    if damaged:
        items[-1] += 1 << 20  # more values than bits
    data = pa.py_buffer(np.array(words, f"<u{width}").tobytes())
    shift, *found = read_words(data, width, chunks, starts, np.array([*map(sum, sizes)]), items)
    if damaged:
        assert shift == -2 - (len(chunks) - 1)
        return
    inner = {log for own in logs for log in own[:-1]}
    assert shift == (62 if not inner else inner.pop() if len(inner) == 1 else -1)
    offsets, lengths, firsts, counts = (each.tolist() for each in found)
    assert lengths == [size for own in sizes for size in own]
    assert counts == [count for own in values for count in own]
    assert firsts == [0, *np.cumsum(counts).tolist()]
    places = zip(starts.tolist(), sizes, strict=True)
    expected = [start + sum(own[:at]) for start, own in places for at in range(len(own))]
    assert offsets == [*expected, int(starts[-1]) + sum(sizes[-1])]
