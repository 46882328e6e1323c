"""The lean way to one value agrees with the general way to many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import Block, FixedWidth, Variable
from glaive.arrow.build import block_from_array
from glaive.encodings.protocol import MiniChunks, ValueEncoding
from glaive.encodings.values.bitpack import InlineBitpacking, OutOfLineBitpacking
from glaive.encodings.values.flat import ByteStreamSplit, Flat
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.rle import RunLength
from glaive.encodings.values.variable import Variable as Plain
from glaive.errors import CorruptFileError
from glaive.kernels.fsst import train_symbols
from glaive.kernels.strings import Strings
from glaive.types import Where, as_buffer

WHERE = Where("test.lance")
WIDTHS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def _content(block: Block) -> list[object]:
    if isinstance(block, FixedWidth):
        return [block.bits, block.count, block.values.to_pybytes()[: max(1, block.bits // 8)]]
    assert isinstance(block, Variable)
    ends = np.frombuffer(block.offsets.to_pybytes(), f"<i{block.offset_bits // 8}")
    return [block.count, block.data.to_pybytes()[ends[0] : ends[1]]]


def _same_both_ways(encoding: ValueEncoding, block: Block, picks: list[int]) -> None:
    encoded = encoding.encode_mini(block)
    data = pa.py_buffer(b"".join(part.tobytes() for part in encoded.buffers))
    bases = np.cumsum([0, *(len(part) for part in encoded.buffers)])
    starts = tuple(bases[k] + np.cumsum(sizes) - sizes for k, sizes in enumerate(encoded.sizes))
    chunks = MiniChunks(data, starts, encoded.sizes, encoded.counts, WHERE)
    ends = np.cumsum(encoded.counts)
    for row in picks:
        chunk = int(np.searchsorted(ends, row, side="right"))
        index = row - int(ends[chunk] - encoded.counts[chunk])
        buffers = [
            (int(s[chunk]), int(z[chunk])) for s, z in zip(starts, encoded.sizes, strict=True)
        ]
        taken = encoding.take_one(data, buffers, int(encoded.counts[chunk]), index, WHERE)
        many = encoding.take_mini(chunks, np.array([chunk]), np.array([index]))
        assert _content(taken) == _content(many)


@given(data=st.data(), bits=st.sampled_from(sorted(WIDTHS)), count=st.integers(1, 2100))
def test_fixed_width_values(data: st.DataObject, bits: int, count: int) -> None:
    top = data.draw(st.integers(0, 2**bits - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = rng.integers(0, top, count, WIDTHS[bits], endpoint=True)
    block = FixedWidth(pa.py_buffer(values.tobytes()), bits, count)
    picks = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=8))
    for encoding in (Flat(bits), InlineBitpacking(bits)):
        _same_both_ways(encoding, block, picks)
    if bits in (32, 64):
        _same_both_ways(ByteStreamSplit(bits), block, picks)
    runs = FixedWidth(pa.py_buffer(np.sort(values % 5).tobytes()), bits, count)
    _same_both_ways(RunLength(bits), runs, picks)


@given(flags=st.lists(st.booleans(), min_size=1, max_size=50), data=st.data())
def test_booleans(flags: list[bool], data: st.DataObject) -> None:
    block = block_from_array(pa.array(flags * 100))
    picks = data.draw(st.lists(st.integers(0, len(flags) * 100 - 1), min_size=1, max_size=8))
    _same_both_ways(Flat(1), block, picks)


@given(values=st.lists(st.binary(max_size=20), min_size=1, max_size=60), data=st.data())
def test_strings(values: list[bytes], data: st.DataObject) -> None:
    picks = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=8))
    for kind in (pa.binary(), pa.large_binary()):
        block = block_from_array(pa.array(values, kind))
        assert isinstance(block, Variable)
        wide = pa.py_buffer(
            np.frombuffer(block.offsets.to_pybytes(), f"<i{block.offset_bits // 8}").astype("<i8")
        )
        table = train_symbols(Strings(wide, 64, block.data))
        _same_both_ways(Plain(block.offset_bits), block, picks)
        _same_both_ways(Fsst(table, Plain(block.offset_bits)), block, picks)


@pytest.mark.parametrize("size", [0, 3, 131, 137])
def test_a_chunk_of_another_size_than_its_width_says_is_damaged(size: int) -> None:
    data = pa.py_buffer(b"\x01" + bytes(200))
    with pytest.raises(CorruptFileError, match="bit-packed chunk"):
        InlineBitpacking(32).take_one(data, [(0, size)], 1024, 0, WHERE)


def test_a_width_wider_than_the_word_is_damaged() -> None:
    data = pa.py_buffer(b"\x40" + bytes(200_000))
    with pytest.raises(CorruptFileError, match="expected a width up to 32 bits"):
        InlineBitpacking(32).take_one(data, [(0, 4 + 64 * 128)], 1024, 0, WHERE)


@pytest.mark.parametrize(("first", "last"), [(12, 8), (4, 12), (8, 99)])
def test_offsets_that_leave_their_chunk_are_damaged(first: int, last: int) -> None:
    data = pa.py_buffer(first.to_bytes(4, "little") + last.to_bytes(4, "little") + b"abcdefgh")
    with pytest.raises(CorruptFileError, match="offsets of chunk 0"):
        Plain(32).take_one(data, [(0, 16)], 1, 0, WHERE)


@pytest.mark.parametrize("bits", sorted(WIDTHS))
def test_every_width_and_row_of_a_packed_block(bits: int) -> None:
    """Values that straddle two words by any number of bits, in the first and last lane."""
    rng = np.random.default_rng(bits)
    lanes = 1024 // bits
    encoding = InlineBitpacking(bits)
    for width in range(bits + 1):
        values = rng.integers(0, 2**width - 1, 1024, WIDTHS[bits], endpoint=True)
        values[0] = 2**width - 1
        encoded = encoding.encode_mini(FixedWidth(pa.py_buffer(values.tobytes()), bits, 1024))
        data = pa.py_buffer(encoded.buffers[0].tobytes())
        buffers = [(0, data.size)]
        for index in (*range(0, 1024, lanes), *range(lanes - 1, 1024, lanes)):
            single = encoding.take_one(data, buffers, 1024, index, WHERE)
            assert int.from_bytes(single.values.to_pybytes(), "little") == values[index]
        chunks = MiniChunks(
            data, (np.array([0]),), (np.array([data.size]),), np.array([1024]), WHERE
        )
        every, first = np.arange(1024), np.zeros(1024, np.int64)
        taken = encoding.take_mini(chunks, first, every)
        decoded = encoding.decode_mini(chunks)
        assert taken.values.to_pybytes()[: values.nbytes] == values.tobytes()
        assert decoded.values.to_pybytes()[: values.nbytes] == values.tobytes()


@given(
    width=st.integers(0, 16),
    count=st.integers(1, 3000),
    position=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_levels_with_one_width(width: int, count: int, position: float, seed: int) -> None:
    encoding = OutOfLineBitpacking(16, width)
    values = np.random.default_rng(seed).integers(0, 1 << width, count).astype("<u2")
    encoded = encoding.encode_blocks(FixedWidth(as_buffer(values), 16, count), np.array([count]))
    data, size = as_buffer(encoded.data), int(encoded.sizes[0])
    index = min(int(position * count), count - 1)
    taken = encoding.take_one(data, [(0, size)], count, index, WHERE)
    assert _content(taken) == [16, 1, values[index].tobytes()]
    for wrong, at in ((size + 1, index), (size, count)):
        with pytest.raises(CorruptFileError):
            encoding.take_one(data, [(0, wrong)], count, at, WHERE)
