"""Fixed-size lists: of numbers and bits, nested, with and without nulls inside."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, FixedList, FixedWidth, Variable
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Where

from .pages import laid_out

HERE = Where("test.lance")


def bits(rng: np.random.Generator, count: int) -> pa.Buffer:
    return pa.py_buffer(np.packbits(rng.integers(0, 2, count, np.uint8), bitorder="little"))


@st.composite
def lists(draw: st.DrawFn) -> FixedList:
    """A block of one or two levels, of bits or of numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count, outer = draw(st.integers(0, 40)), draw(st.integers(1, 9))
    width = draw(st.sampled_from([1, 8, 16, 32, 64]))
    levels = [outer, draw(st.integers(1, 5))] if draw(st.booleans()) else [outer]
    items = count * int(np.prod(levels))
    leaf = bits(rng, items) if width == 1 else pa.py_buffer(rng.bytes(items * width // 8))
    block: Block = FixedWidth(leaf, width, items)
    for dimension in reversed(levels):
        validity = bits(rng, items) if draw(st.booleans()) else None
        items //= dimension
        block = FixedList(block, dimension, validity, items)
    assert isinstance(block, FixedList)
    return block


def content(block: Block) -> list[bytes]:
    """All bytes that count, level by level; bits behind the last one do not."""
    if isinstance(block, FixedList):
        items = block.count * block.dimension
        validity = block.validity.to_pybytes() if block.validity is not None else b""
        return [trimmed(validity, items), *content(block.items)]
    assert isinstance(block, FixedWidth)
    return [trimmed(block.values.to_pybytes(), block.count * block.bits)]


def trimmed(data: bytes, count: int) -> bytes:
    whole = np.frombuffer(data, np.uint8)
    return np.unpackbits(whole, bitorder="little")[:count].tobytes()


@given(lists())
def test_lists_survive_a_full_zip_page_and_blocks(block: FixedList) -> None:
    encoding = FixedSizeList.for_block(block)
    stored = encoding.encode_values(block)
    assert stored.bits == encoding.bits_per_value
    assert content(encoding.decode_values(stored, HERE)) == content(block)
    counts = np.array([block.count // 2, block.count - block.count // 2])
    parts = encoding.encode_blocks(block, counts)
    starts = np.cumsum(parts.sizes) - parts.sizes
    data = pa.py_buffer(parts.data)
    back = encoding.decode_blocks(data, starts, parts.sizes, counts, HERE)
    assert content(back) == content(block)


@given(lists(), st.data())
def test_lists_survive_a_mini_block_page(block: FixedList, data: st.DataObject) -> None:
    encoding = FixedSizeList.for_block(block)
    encoded = encoding.encode_mini(block)
    assert len(encoded.buffers) == encoding.num_buffers
    assert encoded.counts.sum() == block.count
    stored = laid_out(encoded, HERE)
    assert content(encoding.decode_mini(stored)) == content(block)
    if not block.count:
        return
    rows = np.array(data.draw(st.lists(st.integers(0, block.count - 1), max_size=9)), np.int64)
    before = np.cumsum(stored.counts) - stored.counts
    chunk = np.searchsorted(before, rows, side="right") - 1
    taken = encoding.take_mini(stored, chunk, rows - before[chunk])
    assert isinstance(taken, FixedList)
    assert taken.count == len(rows)
    whole = rows_of(encoding, block)
    np.testing.assert_array_equal(rows_of(encoding, taken), whole[rows])


def rows_of(encoding: FixedSizeList, block: FixedList) -> NDArray[np.uint8]:
    stored = encoding.encode_values(block)
    rows = np.frombuffer(stored.values, np.uint8)[: block.count * stored.bits // 8]
    return rows.reshape(block.count, stored.bits // 8)


@pytest.mark.parametrize(("dimension", "width"), [(63, 32), (3, 1), (4096, 1), (1, 8)])
def test_chunks_hold_a_power_of_two_of_values_in_about_8_kilobytes(
    dimension: int, width: int
) -> None:
    count = 10_000
    leaf = FixedWidth(pa.py_buffer(bytes(count * dimension * width // 8)), width, count * dimension)
    block = FixedList(leaf, dimension, None, count)
    encoded = FixedSizeList.for_block(block).encode_mini(block)
    full = int(encoded.counts[0])
    assert full & (full - 1) == 0
    assert (encoded.counts[:-1] == full).all()
    assert encoded.sizes[0].max() <= 8192


@pytest.mark.spec("fsl-3")
def test_vectors_without_nulls_are_not_copied() -> None:
    leaf = FixedWidth(pa.py_buffer(np.arange(12, dtype=np.float32)), 32, 12)
    block = FixedList(leaf, 4, None, 3)
    encoding = FixedSizeList.for_block(block)
    stored = encoding.encode_values(block)
    assert stored.values.address == leaf.values.address
    back = encoding.decode_values(stored, HERE)
    assert isinstance(back.items, FixedWidth)
    assert back.items.values.address == leaf.values.address


@pytest.mark.spec("fsl-2")
def test_validity_stands_before_the_items_of_each_value() -> None:
    leaf = FixedWidth(pa.py_buffer(np.arange(6, dtype=np.uint8)), 8, 6)
    block = FixedList(leaf, 3, pa.py_buffer(bytes([0b101110])), 2)
    stored = FixedSizeList.for_block(block).encode_values(block)
    assert stored.values.to_pybytes() == bytes([0b110, 0, 1, 2, 0b101, 3, 4, 5])


def test_lists_without_nulls_fit_an_encoding_with_validity() -> None:
    leaf = FixedWidth(pa.py_buffer(bytes(6)), 8, 6)
    encoding = FixedSizeList(3, Flat(8), has_validity=True)
    back = encoding.decode_values(encoding.encode_values(FixedList(leaf, 3, None, 2)), HERE)
    assert back.validity is not None
    assert trimmed(back.validity.to_pybytes(), 6) == b"\1" * 6


def test_encodings_come_back_from_the_wire() -> None:
    encoding = FixedSizeList(3, FixedSizeList(2, Flat(32), has_validity=True))
    assert read_encoding(encoding.to_wire(), HERE) == encoding
    assert encoding.num_buffers == 2
    assert encoding.bits_per_value == 8 * (1 + 24)


@pytest.mark.parametrize("items", [0, 2**31, 2**63])
def test_lists_of_no_or_too_many_items_are_refused(items: int) -> None:
    flat = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=8))
    with pytest.raises(CorruptFileError, match="items of a fixed-size list"):
        FixedSizeList.from_wire(pb.FixedSizeList(items_per_value=items, values=flat), HERE)


def test_damaged_values_are_refused() -> None:
    encoding = FixedSizeList(3, Flat(8), has_validity=True)
    with pytest.raises(CorruptFileError, match="expected 32 bits"):
        encoding.decode_values(FixedWidth(pa.py_buffer(bytes(6)), 24, 2), HERE)
    leaf = FixedWidth(pa.py_buffer(bytes(6)), 8, 6)
    stored = laid_out(encoding.encode_mini(FixedList(leaf, 3, None, 2)), HERE)
    stored.counts[0] = 7
    with pytest.raises(CorruptFileError, match="flat values"):
        encoding.decode_mini(stored)


def test_blocks_of_another_shape_are_refused() -> None:
    leaf = FixedWidth(pa.py_buffer(bytes(6)), 8, 6)
    nulls = FixedList(leaf, 3, pa.py_buffer(b"\0"), 2)
    with pytest.raises(SchemaError, match="contain nulls"):
        FixedSizeList(3, Flat(8)).encode_values(nulls)
    with pytest.raises(SchemaError, match="one dimension per level"):
        FixedSizeList(2, Flat(8)).encode_values(nulls)
    with pytest.raises(SchemaError, match="found FixedWidth"):
        FixedSizeList(3, Flat(16)).encode_values(FixedList(leaf, 3, None, 2))
    strings = Variable(pa.py_buffer(bytes(4)), 32, pa.py_buffer(b""), 0)
    with pytest.raises(SchemaError, match="found Variable"):
        FixedSizeList.for_block(FixedList(strings, 3, None, 0))
