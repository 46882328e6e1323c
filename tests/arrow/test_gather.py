"""Gathering blocks of every kind agrees with the lists they stand for."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import (
    Block,
    Constant,
    Dictionary,
    FixedList,
    FixedWidth,
    Variable,
    flags_of,
    join_bits,
    pack_flags,
    take_bits,
)
from glaive.arrow.build import take_block
from glaive.errors import RowIndexError


def fixed(bits: int, count: int, seed: int = 0) -> FixedWidth:
    rng = np.random.default_rng(seed + bits)
    return FixedWidth(pa.py_buffer(rng.bytes((count * bits + 7) // 8 + 3)), bits, count)


def text(count: int, bits: int = 32, seed: int = 0) -> Variable:
    """Strings whose first offset is not 0."""
    rng = np.random.default_rng(seed)
    offsets = np.cumsum(np.append(3, rng.integers(0, 5, count))).astype(f"<i{bits // 8}")
    return Variable(
        pa.py_buffer(offsets), bits, pa.py_buffer(rng.bytes(int(offsets[-1]) + 2)), count
    )


def lists(items: Block, dimension: int, *, nulls: bool) -> FixedList:
    count = items.count // dimension
    validity = fixed(1, items.count, 9).values if nulls else None
    return FixedList(items, dimension, validity, count)


def coded(count: int) -> Dictionary:
    indices = np.random.default_rng(1).integers(0, 7, count).astype("<u2")
    return Dictionary(FixedWidth(pa.py_buffer(indices), 16, count), text(7), count)


def values_of(block: Block) -> list[Any]:
    """The values, one by one, the slow way."""
    if isinstance(block, FixedWidth):
        if block.bits == 1:
            return flags_of(block.values, block.count).tolist()
        size, data = block.bits // 8, block.values.to_pybytes()
        return [data[i * size : (i + 1) * size] for i in range(block.count)]
    if isinstance(block, Variable):
        ends = np.frombuffer(block.offsets, f"<i{block.offset_bits // 8}")
        data = block.data.to_pybytes()
        return [data[ends[i] : ends[i + 1]] for i in range(block.count)]
    if isinstance(block, FixedList):
        items = values_of(block.items)
        if block.validity is not None:
            valid = flags_of(block.validity, len(items)).tolist()
            items = [item if ok else None for item, ok in zip(items, valid, strict=True)]
        step = block.dimension
        return [items[i * step : (i + 1) * step] for i in range(block.count)]
    if isinstance(block, Dictionary):
        items = values_of(block.items)
        indices = values_of(block.indices)
        return [items[int.from_bytes(index, "little")] for index in indices]
    assert isinstance(block, Constant)
    return values_of(block.value) * block.count


def some_block(kind: str, count: int, seed: int = 0) -> Block:
    if kind.startswith("fixed"):
        return fixed(int(kind[5:]), count, seed)
    if kind.startswith("text"):
        return text(count, int(kind[4:]), seed)
    if kind == "lists":
        return lists(fixed(32, 3 * count, seed), 3, nulls=False)
    if kind == "lists with nulls":
        return lists(fixed(16, 3 * count, seed), 3, nulls=True)
    if kind == "lists of bits":
        return lists(fixed(1, 5 * count, seed), 5, nulls=True)
    if kind == "nested lists":
        return lists(lists(fixed(8, 6 * count, seed), 2, nulls=True), 3, nulls=True)
    return Constant(fixed(64, 1), count)


KINDS = [
    "fixed1", "fixed8", "fixed16", "fixed24", "fixed32", "fixed64", "fixed128", "text32", "text64",
    "lists", "lists with nulls", "lists of bits", "nested lists", "constant",
]  # fmt: skip


@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 30),
    wanted=st.one_of(
        st.lists(st.integers(0, 10**6), max_size=20),
        st.lists(st.integers(0, 10**6), min_size=60, max_size=80),
    ),
)
def test_values_are_gathered_in_any_order(kind: str, count: int, wanted: list[int]) -> None:
    block = some_block(kind, count)
    positions = np.array(wanted, np.int64) % count
    taken = take_block(block, positions)
    every = values_of(block)
    assert taken.count == len(wanted)
    assert values_of(taken) == [every[i] for i in positions]


def test_dictionaries_keep_their_items() -> None:
    block = coded(20)
    taken = take_block(block, np.array([19, 0, 0]))
    assert isinstance(taken, Dictionary)
    assert taken.items is block.items
    every = values_of(block)
    assert values_of(taken) == [every[19], every[0], every[0]]


@pytest.mark.parametrize("position", [-1, 10, 1 << 40])
@pytest.mark.parametrize("kind", KINDS)
def test_a_position_outside_of_the_block_is_refused(kind: str, position: int) -> None:
    with pytest.raises(RowIndexError, match="0 ≤ position < 10"):
        take_block(some_block(kind, 10), np.array([3, position]))


@given(parts=st.lists(st.lists(st.booleans(), max_size=20), max_size=5))
def test_bitmaps_are_joined(parts: list[list[bool]]) -> None:
    whole = [flag for part in parts for flag in part]
    bitmaps = [pack_flags(np.array(part, np.bool_)) for part in parts]
    joined = join_bits(bitmaps, [len(part) for part in parts])
    assert flags_of(joined, len(whole)).tolist() == whole


@given(flags=st.lists(st.booleans(), min_size=1, max_size=40), start=st.integers(0, 39))
def test_bits_are_read_and_gathered(flags: list[bool], start: int) -> None:
    bitmap = pack_flags(np.array(flags))
    start = min(start, len(flags))
    assert flags_of(bitmap, len(flags) - start, start).tolist() == flags[start:]
    backwards = np.arange(len(flags))[::-1]
    assert flags_of(take_bits(bitmap, backwards), len(flags)).tolist() == flags[::-1]


def test_lists_without_values_are_gathered_without_positions_of_their_items() -> None:
    """Nothing limits how many items they have."""
    size = 2**31 - 1
    nothing = FixedList(FixedWidth(pa.py_buffer(b""), 0, 3 * size), size, None, 3)
    taken = take_block(nothing, np.array([2, 0, 2, 1]))
    assert isinstance(taken, FixedList)
    assert (taken.count, taken.items.count) == (4, 4 * size)


def test_flags_of_lists_are_gathered_without_their_positions() -> None:
    """These took 64 times as much memory as the flags."""
    size = 2**20
    rows = np.repeat(np.arange(4, dtype=np.uint8), size // 8)
    values = FixedWidth(pa.py_buffer(rows), 1, 4 * size)
    block = FixedList(values, size, values.values, 4)
    tracemalloc.start()
    try:
        taken = take_block(block, np.tile([3, 0, 2], 20))
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    assert isinstance(taken, FixedList)
    assert taken.validity is not None
    found = np.frombuffer(taken.validity, np.uint8).reshape(60, size // 8)
    assert (found == np.tile([3, 0, 2], 20)[:, None]).all()
