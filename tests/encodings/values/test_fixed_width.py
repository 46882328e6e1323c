"""Encodings for values of a fixed width: round trips, known bytes, single values, damage."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glaive.arrow import blocks
from glaive.arrow.blocks import FixedWidth, Variable
from glaive.encodings.protocol import EncodedChunks, MiniChunks, ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.bitpack import InlineBitpacking, OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.rle import RunLength
from glaive.encodings.values.sequences import Constant
from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Where, as_array

HERE = Where("a.lance", 0, "c", 0)
COUNTS = (0, 1, 2, 7, 1023, 1024, 1025, 4097, 20_000)
WIDTHS = (1, 8, 16, 24, 32, 64, 128, 2040)
WORDS = (8, 16, 32, 64)


def block_of(values: NDArray[Any]) -> FixedWidth:
    return FixedWidth(pa.py_buffer(values), values.itemsize * 8, len(values))


def some_block(bits: int, count: int, mean: int = 3) -> FixedWidth:
    """Values in runs, small and large ones."""
    rng = np.random.default_rng(bits + count)
    item = max(bits // 8, 1)
    rows = rng.integers(0, 256, (count + 1, item), np.uint8)
    rows[: count // 2, 1:] = 0
    rows = np.repeat(rows, rng.integers(1, 2 * mean, count + 1), axis=0)[:count]
    if bits > 1:
        return FixedWidth(pa.py_buffer(np.ascontiguousarray(rows)), bits, count)
    return FixedWidth(pa.py_buffer(np.packbits(rows[:, 0] & 1, bitorder="little")), 1, count)


def bytes_of(block: Any) -> bytes:
    assert isinstance(block, FixedWidth)
    if block.bits == 1:
        return np.unpackbits(as_array(block.values), count=block.count, bitorder="little").tobytes()
    return block.values.slice(0, block.count * block.bits // 8).to_pybytes()


def chunks_of(encoded: EncodedChunks, gap: int = 8) -> MiniChunks:
    """Put chunks into a page, their buffers behind each other with gaps between."""
    page, starts = b"", []
    for data, sizes in zip(encoded.buffers, encoded.sizes, strict=True):
        ends = np.cumsum(sizes)
        buffers_of_chunk = [
            data[end - size : end].tobytes() for end, size in zip(ends, sizes, strict=True)
        ]
        starts.append(len(page) + gap + ends - sizes + gap * np.arange(len(sizes)))
        page += b"".join(b"\xfe" * gap + buffer for buffer in buffers_of_chunk)
    return MiniChunks(pa.py_buffer(page), tuple(starts), encoded.sizes, encoded.counts, HERE)


def check_mini(encoding: ValueEncoding, block: FixedWidth) -> EncodedChunks:
    encoded = encoding.encode_mini(block)
    assert len(encoded.buffers) == encoding.num_buffers
    assert encoded.counts.sum() == block.count
    assert [data.size for data in encoded.buffers] == [s.sum() for s in encoded.sizes]
    assert all(n & (n - 1) == 0 and 2 <= n <= 4096 for n in encoded.counts[:-1].tolist())
    chunks = chunks_of(encoded)
    back = encoding.decode_mini(chunks)
    assert bytes_of(back) == bytes_of(block)
    if block.count:
        rows = np.random.default_rng(block.count).integers(0, block.count, 30)
        begins = np.cumsum(encoded.counts) - encoded.counts
        chunk = np.searchsorted(begins, rows, side="right") - 1
        plain = ValueEncoding.take_mini(encoding, chunks, chunk, rows - begins[chunk])
        taken = encoding.take_mini(chunks, chunk, rows - begins[chunk])
        assert bytes_of(taken) == bytes_of(plain)
    return encoded


def check_blocks(encoding: ValueEncoding, block: FixedWidth, counts: list[int]) -> None:
    each = np.array(counts, np.int64)
    encoded = encoding.encode_blocks(block, each)
    starts = np.cumsum(encoded.sizes) - encoded.sizes
    assert encoded.data.size == encoded.sizes.sum()
    data = pa.py_buffer(b"\xfe\xfe\xfe" + encoded.data.tobytes())
    back = encoding.decode_blocks(data, starts + 3, encoded.sizes, each, HERE)
    assert bytes_of(back) == bytes_of(block)


# --- round trips --------------------------------------------------------------------------


@pytest.mark.spec("flat-1", "flat-2", "flat-3")
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("count", COUNTS)
def test_flat_chunks_come_back(bits: int, count: int) -> None:
    check_mini(Flat(bits), some_block(bits, min(count, 4097 if bits > 128 else count)))


@pytest.mark.spec("inline-1", "inline-2", "pack-3")
@pytest.mark.parametrize("bits", WORDS)
@pytest.mark.parametrize("count", COUNTS)
def test_bit_packed_chunks_come_back(bits: int, count: int) -> None:
    encoded = check_mini(InlineBitpacking(bits), some_block(bits, count))
    assert encoded.counts.tolist() == [1024] * (count // 1024) + [count % 1024] * (count % 1024 > 0)


@pytest.mark.spec("rle-1", "rle-2")
@pytest.mark.parametrize("bits", WORDS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("mean", [1, 3, 400])
def test_run_length_chunks_come_back(bits: int, count: int, mean: int) -> None:
    encoded = check_mini(RunLength(bits), some_block(bits, count, mean))
    both = sum(encoded.sizes, np.zeros(len(encoded.counts), np.int64))
    assert (both <= 8186).all()


@given(counts=st.lists(st.integers(0, 1024), min_size=1, max_size=4), bits=st.sampled_from(WORDS))
def test_blocks_come_back(counts: list[int], bits: int) -> None:
    block = some_block(bits, sum(counts))
    for encoding in (
        Flat(bits),
        InlineBitpacking(bits),
        OutOfLineBitpacking(bits, bits),
        RunLength(bits),
    ):
        check_blocks(encoding, block, counts)
    check_blocks(Flat(1), some_block(1, sum(counts)), counts)


@pytest.mark.spec("constant-1")
def test_a_constant_block_comes_back_as_a_constant() -> None:
    encoding = Constant(b"\x05\x00")
    counts = np.array([3, 0, 9])
    encoded = encoding.encode_blocks(block_of(np.full(12, 5, "<u2")), counts)
    zeros = np.zeros(3, np.int64)
    back = encoding.decode_blocks(pa.py_buffer(b""), zeros, encoded.sizes, counts, HERE)
    assert encoded.data.size == 0
    assert isinstance(back, blocks.Constant)
    assert back.count == 12
    assert bytes_of(back.value) == b"\x05\x00"


def test_full_zip_values_are_plain() -> None:
    block = some_block(64, 10)
    assert Flat(64).encode_values(block) is block
    assert Flat(64).decode_values(block, HERE) is block
    with pytest.raises(UnsupportedFeatureError, match="'rle' is not allowed in a full-zip page"):
        RunLength(64).decode_values(block, HERE)


# --- bytes and memory ---------------------------------------------------------------------


@pytest.mark.spec("rle-1", "rle-2", "rle-4")
def test_runs_have_the_bytes_of_the_format() -> None:
    block = block_of(np.repeat(np.array([7, 9], "<u4"), [300, 200]))
    encoded = RunLength(32).encode_mini(block)
    assert encoded.buffers[0].tobytes().hex() == "070000000700000009000000"
    assert encoded.buffers[1].tobytes().hex() == "ff2dc8"
    levels = block_of(np.array([0, 0, 1], "<u2"))
    whole = RunLength(16).encode_blocks(levels, np.array([3]))
    assert whole.data.tobytes().hex() == "0400000000000000" + "00000100" + "0201"


@pytest.mark.parametrize(
    ("bits", "values"), [(1, 4096), (8, 4096), (16, 2048), (32, 1024), (64, 512), (2040, 32)]
)
def test_flat_chunks_have_about_four_kilobytes(bits: int, values: int) -> None:
    encoded = Flat(bits).encode_mini(some_block(bits, 5000))
    assert encoded.counts[0] == values


def test_neighbouring_flat_values_are_not_copied() -> None:
    page = pa.py_buffer(bytes(4096))
    counts, sizes = np.array([8, 8, 3]), np.array([64, 64, 24])
    starts = np.array([8, 72, 136])
    for many in (1, 3):
        chunks = MiniChunks(page, (starts[:many],), (sizes[:many],), counts[:many], HERE)
        back = Flat(64).decode_mini(chunks)
        assert back.values.address == page.address + 8
        assert back.values.size == sizes[:many].sum()


@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_bits_of_uneven_chunks_are_joined(counts: list[int]) -> None:
    each = np.array(counts)
    block = some_block(1, sum(counts))
    encoded = Flat(1).encode_blocks(block, each)
    starts = np.cumsum(encoded.sizes) - encoded.sizes
    chunks = MiniChunks(pa.py_buffer(encoded.data), (starts,), (encoded.sizes,), each, HERE)
    assert bytes_of(Flat(1).decode_mini(chunks)) == bytes_of(block)


# --- wire ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding",
    [Flat(1), Flat(128), InlineBitpacking(16), OutOfLineBitpacking(16, 3), RunLength(64),
     Constant(b"\1\2")],
    ids=repr,
)  # fmt: skip
def test_configurations_survive_the_wire(encoding: ValueEncoding) -> None:
    message = pb.CompressiveEncoding.FromString(encoding.to_wire().SerializeToString())
    assert read_encoding(message, HERE) == encoding


def one_line(message: pb.CompressiveEncoding) -> str:
    return " ".join(str(message).split())


def flat(bits: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))


@pytest.mark.parametrize(
    "message",
    [
        flat(0),
        flat(12),
        pb.CompressiveEncoding(inline_bitpacking=pb.InlineBitpacking()),
        pb.CompressiveEncoding(
            inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=24)
        ),
        pb.CompressiveEncoding(
            out_of_line_bitpacking=pb.OutOfLineBitpacking(
                uncompressed_bits_per_value=16, values=flat(17)
            )
        ),
        pb.CompressiveEncoding(rle=pb.Rle(values=flat(128), run_lengths=flat(8))),
        pb.CompressiveEncoding(rle=pb.Rle(values=flat(32), run_lengths=flat(64))),
        pb.CompressiveEncoding(rle=pb.Rle(values=flat(32))),
        pb.CompressiveEncoding(constant=pb.Constant(value=b"")),
    ],
    ids=one_line,
)
def test_configurations_that_cannot_be_are_reported(message: pb.CompressiveEncoding) -> None:
    with pytest.raises(CorruptFileError, match=r"a\.lance, column 0 'c', page 0"):
        read_encoding(message, HERE)


@pytest.mark.parametrize(
    "message",
    [
        pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=8, data=pb.BufferCompression())),
        pb.CompressiveEncoding(
            inline_bitpacking=pb.InlineBitpacking(
                uncompressed_bits_per_value=8, values=pb.BufferCompression()
            )
        ),
        pb.CompressiveEncoding(
            out_of_line_bitpacking=pb.OutOfLineBitpacking(uncompressed_bits_per_value=16)
        ),
    ],
    ids=one_line,
)
def test_configurations_of_newer_writers_are_named(message: pb.CompressiveEncoding) -> None:
    with pytest.raises(UnsupportedFeatureError, match="newer Lance"):
        read_encoding(message, HERE)


# --- damage -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "sizes"),
    [
        (Flat(32), [12]),
        (Flat(1), [2]),
        (InlineBitpacking(32), [20]),
        (RunLength(32), [16, 3]),
        (RunLength(32), [13, 3]),
        (RunLength(32), [12, 3]),
    ],
    ids=str,
)
def test_buffers_that_do_not_fit_their_values_are_reported(
    encoding: ValueEncoding, sizes: list[int]
) -> None:
    chunk_sizes = tuple(np.array([n]) for n in sizes)
    starts = tuple(np.array([40 * k]) for k in range(len(sizes)))
    chunks = MiniChunks(pa.py_buffer(bytes([1] * 80)), starts, chunk_sizes, np.array([4]), HERE)
    with pytest.raises(CorruptFileError):
        encoding.decode_mini(chunks)


@pytest.mark.spec("rle-4")
@pytest.mark.parametrize("head", [-1, 1, 7, 8, 1 << 62])
def test_a_run_length_block_with_a_wrong_head_is_reported(head: int) -> None:
    data = head.to_bytes(8, "little", signed=True) + bytes([1, 0, 2, 0, 3, 3])
    bounds = np.array([0]), np.array([14]), np.array([6])
    assert bytes_of(RunLength(16).decode_blocks(
        pa.py_buffer((4).to_bytes(8, "little") + data[8:]), *bounds, HERE
    )) == bytes([1, 0] * 3 + [2, 0] * 3)  # fmt: skip
    with pytest.raises(CorruptFileError):
        RunLength(16).decode_blocks(pa.py_buffer(data), *bounds, HERE)
    with pytest.raises(CorruptFileError, match="found 5 bytes"):
        RunLength(16).decode_blocks(
            pa.py_buffer(data), np.array([0]), np.array([5]), np.array([1]), HERE
        )


def test_blocks_of_another_kind_are_refused_by_name() -> None:
    text = Variable(pa.py_buffer(bytes(4)), 32, pa.py_buffer(b""), 0)
    with pytest.raises(SchemaError, match="'rle' was given Variable"):
        RunLength(32).encode_mini(text)
    with pytest.raises(SchemaError, match="'flat' was given 64 bits; it holds values of 32"):
        Flat(32).encode_mini(some_block(64, 1))
    with pytest.raises(SchemaError, match="values of 9 bits cannot be packed to 8"):
        OutOfLineBitpacking(16, 8).encode_blocks(block_of(np.array([256], "<u2")), np.array([1]))
    with pytest.raises(SchemaError, match="up to 1024 values, not 1025"):
        InlineBitpacking(16).encode_blocks(some_block(16, 1025), np.array([1025]))


@pytest.mark.parametrize("count", [0, 3])
def test_a_block_of_values_without_bits_is_damage_and_no_warning(count: int) -> None:
    nothing, counts = np.zeros(1, np.int64), np.array([count])
    read = partial(Flat(0).decode_blocks, pa.py_buffer(b""), nothing, nothing, counts, Where("f"))
    if count:
        with pytest.raises(CorruptFileError, match="flat values"):
            read()
    else:
        assert read().count == 0
