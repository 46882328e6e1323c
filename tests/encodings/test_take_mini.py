"""Values taken out of chunks are those that decoding whole chunks returns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import Block, FixedWidth, Variable
from glaive.arrow.build import block_from_array, take_block
from glaive.encodings.protocol import MiniChunks, ValueEncoding
from glaive.encodings.values.bitpack import InlineBitpacking
from glaive.encodings.values.flat import ByteStreamSplit, Flat
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.rle import RunLength
from glaive.encodings.values.variable import Variable as Plain
from glaive.errors import CorruptFileError
from glaive.kernels.fsst import train_symbols
from glaive.kernels.strings import Strings
from glaive.types import Where

WHERE = Where("test.lance")
WIDTHS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def _content(block: Block) -> list[object]:
    if isinstance(block, FixedWidth):
        bytes_ = block.values.to_pybytes()[: (block.count * block.bits + 7) // 8]
        if block.bits == 1:
            bits = np.unpackbits(np.frombuffer(bytes_, np.uint8), bitorder="little")
            return [1, bits[: block.count].tolist()]
        return [block.bits, block.count, bytes_]
    assert isinstance(block, Variable)
    ends = np.frombuffer(block.offsets.to_pybytes(), f"<i{block.offset_bits // 8}")
    data = block.data.to_pybytes()
    return [data[ends[i] : ends[i + 1]] for i in range(block.count)]


def _same_both_ways(encoding: ValueEncoding, block: Block, picks: list[int]) -> None:
    encoded = encoding.encode_mini(block)
    data = pa.py_buffer(b"".join(part.tobytes() for part in encoded.buffers))
    bases = np.cumsum([0, *(len(part) for part in encoded.buffers)])
    starts = tuple(bases[k] + np.cumsum(sizes) - sizes for k, sizes in enumerate(encoded.sizes))
    chunks = MiniChunks(data, starts, encoded.sizes, encoded.counts, WHERE)
    ends, rows = np.cumsum(encoded.counts), np.array(picks)
    chunk = np.searchsorted(ends, rows, side="right")
    taken = encoding.take_mini(chunks, chunk, rows - (ends - encoded.counts)[chunk])
    assert _content(taken) == _content(take_block(encoding.decode_mini(chunks), rows))


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


def _one_chunk(data: pa.Buffer, size: int, count: int) -> MiniChunks:
    return MiniChunks(data, (np.array([0]),), (np.array([size]),), np.array([count]), WHERE)


_FIRST = np.zeros(1, np.int64)


@pytest.mark.parametrize("size", [0, 3, 131, 137])
def test_a_chunk_of_another_size_than_its_width_says_is_damaged(size: int) -> None:
    chunks = _one_chunk(pa.py_buffer(b"\x01" + bytes(200)), size, 1024)
    with pytest.raises(CorruptFileError, match="bit-packed chunk"):
        InlineBitpacking(32).take_mini(chunks, _FIRST, _FIRST)


def test_a_width_wider_than_the_word_is_damaged() -> None:
    chunks = _one_chunk(pa.py_buffer(b"\x40" + bytes(200_000)), 4 + 64 * 128, 1024)
    with pytest.raises(CorruptFileError, match="expected 0 to 32 bits"):
        InlineBitpacking(32).take_mini(chunks, _FIRST, _FIRST)


@pytest.mark.parametrize(("first", "last"), [(12, 8), (4, 12), (8, 99)])
def test_offsets_that_leave_their_chunk_are_damaged(first: int, last: int) -> None:
    data = pa.py_buffer(first.to_bytes(4, "little") + last.to_bytes(4, "little") + b"abcdefgh")
    with pytest.raises(CorruptFileError, match="offsets of value 0"):
        Plain(32).take_mini(_one_chunk(data, 16, 1), _FIRST, _FIRST)


@pytest.mark.parametrize("bits", sorted(WIDTHS))
def test_every_width_and_row_of_a_packed_block(bits: int) -> None:
    """Values that straddle two words by any number of bits, in every lane."""
    rng = np.random.default_rng(bits)
    encoding = InlineBitpacking(bits)
    for width in range(bits + 1):
        values = rng.integers(0, 2**width - 1, 1024, WIDTHS[bits], endpoint=True)
        values[0] = 2**width - 1
        encoded = encoding.encode_mini(FixedWidth(pa.py_buffer(values.tobytes()), bits, 1024))
        data = pa.py_buffer(encoded.buffers[0].tobytes())
        chunks = _one_chunk(data, data.size, 1024)
        every, first = np.arange(1024), np.zeros(1024, np.int64)
        taken = encoding.take_mini(chunks, first, every)
        decoded = encoding.decode_mini(chunks)
        assert taken.values.to_pybytes()[: values.nbytes] == values.tobytes()
        assert decoded.values.to_pybytes()[: values.nbytes] == values.tobytes()
