"""Parts of blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import (
    Constant,
    Dictionary,
    FixedList,
    FixedWidth,
    Variable,
    slice_bits,
    slice_block,
)


def bits_of(bitmap: pa.Buffer, count: int) -> list[int]:
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return [int(bit) for bit in bits[:count]]


@given(st.lists(st.integers(0, 1), max_size=70), st.data())
def test_bits_can_be_cut_anywhere(bits: list[int], data: st.DataObject) -> None:
    bitmap = pa.py_buffer(np.packbits(np.array(bits, np.uint8), bitorder="little"))
    start = data.draw(st.integers(0, len(bits)))
    stop = data.draw(st.integers(start, len(bits)))
    part = slice_bits(bitmap, start, stop - start)
    assert bits_of(part, stop - start) == bits[start:stop]


def test_fixed_width_values_are_viewed() -> None:
    values = pa.py_buffer(np.arange(10, dtype="<u4"))
    part = slice_block(FixedWidth(values, 32, 10), 3, 4)
    assert isinstance(part, FixedWidth)
    assert part.values.address == values.address + 12
    assert np.frombuffer(part.values, "<u4").tolist() == [3, 4, 5, 6]


def test_strings_keep_their_bytes() -> None:
    offsets = pa.py_buffer(np.array([0, 1, 3, 6], "<i4"))
    part = slice_block(Variable(offsets, 32, pa.py_buffer(b"abbccc"), 3), 1, 2)
    assert isinstance(part, Variable)
    assert np.frombuffer(part.offsets, "<i4").tolist() == [1, 3, 6]
    assert part.data.to_pybytes() == b"abbccc"


@pytest.mark.parametrize("start", [0, 1, 5])
def test_lists_are_cut_with_their_items_and_nulls(start: int) -> None:
    items = FixedWidth(pa.py_buffer(np.arange(24, dtype="u1")), 8, 24)
    validity = pa.py_buffer(np.array([0b10110100, 0b01101001, 0b11100010], np.uint8))
    part = slice_block(FixedList(items, 3, validity, 8), start, 2)
    assert isinstance(part, FixedList)
    assert isinstance(part.items, FixedWidth)
    assert part.items.values.to_pybytes() == bytes(range(3 * start, 3 * start + 6))
    assert part.validity is not None
    assert bits_of(part.validity, 6) == bits_of(validity, 24)[3 * start : 3 * start + 6]


def test_indices_and_constants_are_cut() -> None:
    items = FixedWidth(pa.py_buffer(b"xyz"), 8, 3)
    indices = FixedWidth(pa.py_buffer(b"\0\1\2\1"), 8, 4)
    part = slice_block(Dictionary(indices, items, 4), 1, 2)
    assert isinstance(part, Dictionary)
    assert part.indices.values.to_pybytes() == b"\1\2"
    assert part.items is items
    assert slice_block(Constant(items, 9), 2, 5) == Constant(items, 5)
