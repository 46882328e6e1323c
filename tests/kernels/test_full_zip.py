"""Zipped entries: both tiers agree, zipping and unzipping are inverse, damage is reported."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import force_tier

from glaive.errors import CorruptFileError
from glaive.kernels.full_zip import (
    EntryLayout,
    Unzipped,
    gather_ranges,
    gather_rows,
    unzip,
    zip_entries,
)

TIERS = ("numpy", "numba")


def buffer(array: NDArray[np.generic]) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(array).tobytes())


@st.composite
def entries(draw: st.DrawFn) -> tuple[EntryLayout, list[tuple[int, int]], list[bytes]]:
    """A layout, the levels of some entries, and the values of the visible ones."""
    max_rep = draw(st.sampled_from([0, 1, 2, 300]))
    max_def = draw(st.sampled_from([0, 1, 3, 40]))
    visible_def = draw(st.integers(0, max_def)) if max_rep else max_def
    bits = (max_rep.bit_length(), max_def.bit_length())
    prefix = draw(st.sampled_from([0, 4, 8]))
    width = 0 if prefix else draw(st.sampled_from([1, 3, 8, 16, 40]))
    layout = EntryLayout(*bits, max_rep, max_def, visible_def, width, prefix)
    levels, values = [], []
    for row in range(draw(st.integers(0, 12))):
        for k in range(draw(st.integers(1, 4)) if max_rep else 1):
            rep = max_rep if k == 0 else draw(st.integers(0, max_rep - 1))
            level = draw(st.integers(0, max_def))
            levels.append((rep, level))
            if level <= visible_def:
                size = width or draw(st.sampled_from([0, 1, 5, 1500]) if level == 0 else st.just(0))
                values.append(bytes([(row * 7 + k) % 256]) * size)
    return layout, levels, values


def zip_all(
    layout: EntryLayout, levels: list[tuple[int, int]], values: list[bytes]
) -> tuple[pa.Buffer, NDArray[np.int64]]:
    table = np.array(levels, np.uint16).reshape(-1, 2)
    offsets = None
    if layout.prefix:
        dtype = np.int32 if layout.prefix == 4 else np.int64
        offsets = np.cumsum([0, *map(len, values)]).astype(dtype)
    parts, starts = zip_entries(
        table[:, 0] if layout.max_rep else None,
        table[:, 1] if layout.max_def else None,
        layout,
        pa.py_buffer(b"".join(values)),
        offsets,
        sum(rep == layout.max_rep for rep, _ in levels),
    )
    return pa.py_buffer(b"".join(parts)), starts


def contents(unzipped: Unzipped) -> tuple[object, ...]:
    offsets = None
    if unzipped.offsets is not None:
        offsets = np.frombuffer(unzipped.offsets, f"<i{unzipped.offset_bits // 8}").tolist()
    return (
        None if unzipped.rep is None else unzipped.rep.tolist(),
        None if unzipped.definition is None else unzipped.definition.tolist(),
        unzipped.entries,
        unzipped.visible,
        offsets,
        unzipped.values.to_pybytes(),
    )


@given(case=entries())
def test_unzipping_gives_back_what_was_zipped_in_both_tiers(
    case: tuple[EntryLayout, list[tuple[int, int]], list[bytes]],
) -> None:
    layout, levels, values = case
    results = []
    for tier in TIERS:
        with force_tier(tier):
            packed, starts = zip_all(layout, levels, values)
            back = unzip(packed, starts[:-1], starts[1:], layout, "test")
            results.append((packed.to_pybytes(), starts.tolist(), contents(back)))
    assert results[0] == results[1]
    rep, definition, count, visible, _, joined = results[0][2]
    assert rep == ([rep for rep, _ in levels] if layout.max_rep else None)
    assert definition == ([level for _, level in levels] if layout.max_def else None)
    assert (count, visible, joined) == (len(levels), len(values), b"".join(values))


@pytest.mark.parametrize("prefix", [4, 8])
@pytest.mark.parametrize("max_rep", [0, 1])
def test_large_values_are_views_behind_their_levels_and_lengths(prefix: int, max_rep: int) -> None:
    layout = EntryLayout(max_rep, 2, max_rep, 3, 1, prefix=prefix)
    levels = [(max_rep, 0), (max_rep, 1), (max_rep, 3), (0, 0), (max_rep, 0), (max_rep, 2)]
    values = [b"a" * 70_000, b"", b"b" * 5, b"c" * 50_000]  # one per visible entry
    definition = np.array([level for _, level in levels], np.uint16)
    rep = np.array([rep for rep, _ in levels], np.uint16)
    offsets = np.cumsum([0, *map(len, values)]).astype(f"<i{prefix}")
    data = pa.py_buffer(b"".join(values))
    rows = sum(rep for rep, _ in levels) if max_rep else len(levels)
    parts, starts = zip_entries(rep if max_rep else None, definition, layout, data, offsets, rows)
    held = range(data.address, data.address + data.size + 1)
    assert [part.size for part in parts if part.address in held] == [70_000, 5, 50_000]
    packed = pa.py_buffer(b"".join(parts))
    back = unzip(packed, starts[:-1], starts[1:], layout, "test")
    assert contents(back) == (
        rep.tolist() if max_rep else None,
        definition.tolist(),
        len(levels),
        len(values),
        np.cumsum([0, *map(len, values)]).tolist(),
        b"".join(values),
    )


@given(case=entries(), data=st.data())
def test_both_tiers_pick_the_same_rows(
    case: tuple[EntryLayout, list[tuple[int, int]], list[bytes]], data: st.DataObject
) -> None:
    layout, levels, values = case
    packed, starts = zip_all(layout, levels, values)
    rows = np.array(
        data.draw(st.lists(st.integers(0, len(starts) - 2), max_size=8)) if len(starts) > 1 else [],
        np.int64,
    )
    picked = []
    for tier in TIERS:
        with force_tier(tier):
            picked.append(contents(unzip(packed, starts[rows], starts[rows + 1], layout, "test")))
    assert picked[0] == picked[1]


@given(case=entries(), data=st.data())
def test_damaged_entries_are_reported_by_both_tiers_or_by_neither(
    case: tuple[EntryLayout, list[tuple[int, int]], list[bytes]], data: st.DataObject
) -> None:
    layout, levels, values = case
    packed, starts = zip_all(layout, levels, values)
    raw = bytearray(packed.to_pybytes())
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    damaged = pa.py_buffer(bytes(raw))
    results: list[object] = []
    for tier in TIERS:
        with force_tier(tier):
            try:
                results.append(contents(unzip(damaged, starts[:-1], starts[1:], layout, "test")))
            except CorruptFileError:
                results.append("corrupt")
    assert results[0] == results[1]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("raw", "layout", "message"),
    [
        (b"\x00\xff\xff\xff\xff", EntryLayout(0, 1, 0, 1, 1, prefix=4), "length beyond the row"),
        (b"\x00\x00", EntryLayout(0, 1, 0, 1, 1, prefix=4), "length beyond the row"),
        (b"\x00" + b"\xff" * 8, EntryLayout(0, 1, 0, 1, 1, prefix=8), "length beyond the row"),
        (b"\x05", EntryLayout(0, 3, 0, 1, 1, prefix=4), "definition levels: expected 0 to 1"),
        (b"\x00\x09", EntryLayout(1, 0, 1, 0, 0, width=1), "1 at the start of a row"),
        (b"\x01\x09\x01\x09", EntryLayout(1, 0, 1, 0, 0, width=1), "less within it"),
        (b"\x01\x09\x00", EntryLayout(1, 0, 1, 0, 0, width=1), "length beyond the row"),
        (b"\x01\x01", EntryLayout(0, 1, 0, 1, 0, width=1), "more than one entry"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said(
    tier: str, raw: bytes, layout: EntryLayout, message: str
) -> None:
    ends = np.array([len(raw)])
    with force_tier(tier), pytest.raises(CorruptFileError, match=message):  # type: ignore[arg-type]  # one of TIERS
        unzip(pa.py_buffer(raw), np.array([0]), ends, layout, "a.lance")


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 2), (3, 2), (0, 9), (-(2**63), 4)])
def test_rows_outside_the_bytes_are_reported(start: int, stop: int) -> None:
    layout = EntryLayout(0, 1, 0, 1, 1, prefix=4)
    with pytest.raises(CorruptFileError, match="row index"):
        unzip(pa.py_buffer(bytes(8)), np.array([start]), np.array([stop]), layout, "a.lance")


@given(
    stride=st.sampled_from([1, 2, 8, 16, 24, 33]), rows=st.lists(st.integers(0, 19), max_size=30)
)
def test_gathered_rows_are_those_that_are_wanted(stride: int, rows: list[int]) -> None:
    table = np.arange(20 * stride).astype(np.uint8).reshape(20, stride)
    wanted = np.array(rows, np.int64)
    got = gather_rows(buffer(table), stride, wanted, where="test")
    assert got.to_pybytes() == table[wanted].tobytes()


@pytest.mark.parametrize("row", [-1, 20])
def test_a_row_beyond_the_rows_is_not_gathered(row: int) -> None:
    with pytest.raises(CorruptFileError, match="rows 0 to 19"):
        gather_rows(pa.py_buffer(bytes(80)), 4, np.array([0, row]), where="a.lance")


@given(st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([0, 1, 7, 3000])), max_size=20))
def test_gathered_pieces_are_the_same_in_both_tiers(pieces: list[tuple[int, int]]) -> None:
    raw = np.random.default_rng(1).bytes(8000)
    starts = np.array([start for start, _ in pieces], np.int64)
    sizes = np.array([size for _, size in pieces], np.int64)
    for tier in TIERS:
        with force_tier(tier):
            got = gather_ranges(pa.py_buffer(raw), starts, sizes, "test")
        assert got.to_pybytes() == b"".join(raw[a : a + n] for a, n in pieces)


@pytest.mark.spec("rel-24")
def test_pieces_of_different_rows_that_overlap_are_refused() -> None:
    data, starts = pa.py_buffer(bytes(100)), np.zeros(3, np.int64)
    sizes, one = np.full(3, 60), np.full(3, 7)
    assert gather_ranges(data, starts, sizes, "here", one).size == 180
    with pytest.raises(CorruptFileError, match=r"at most 100 bytes in all.*180 bytes in 3 rows"):
        gather_ranges(data, starts, sizes, "here", np.array([7, 5, 9]))


@pytest.mark.parametrize(("start", "size"), [(-1, 2), (0, 11), (9, 2), (0, -1), (2**62, 1)])
def test_a_piece_outside_the_bytes_is_reported(start: int, size: int) -> None:
    with pytest.raises(CorruptFileError, match="byte ranges"):
        gather_ranges(pa.py_buffer(bytes(10)), np.array([start]), np.array([size]), "a.lance")


def test_levels_that_do_not_go_with_the_values_are_refused() -> None:
    layout = EntryLayout(0, 1, 0, 1, 1, width=2)
    with pytest.raises(ValueError, match="3 rows and 2 values"):
        zip_entries(None, np.zeros(2, np.uint16), layout, pa.py_buffer(bytes(4)), None, 3)


@pytest.mark.parametrize("tier", ["numpy", "numba"])
@pytest.mark.parametrize("prefix", [4, 8])
def test_offsets_are_as_wide_as_the_lengths_of_the_values(
    tier: Literal["numpy", "numba"], prefix: int
) -> None:
    layout = EntryLayout(0, 0, 0, 0, 0, 0, prefix)
    packed, starts = zip_all(layout, [(0, 0)] * 2, [b"a", b"bc"])
    with force_tier(tier):
        found = unzip(packed, starts[:-1], starts[1:], layout, "test")
    assert found.offset_bits == 8 * prefix
