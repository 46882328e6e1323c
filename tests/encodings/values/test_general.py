"""General compression in its three contexts, around every inner encoding it meets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import Block, FixedWidth, Variable
from glaive.encodings.protocol import MiniChunks, ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.general import General
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Where

WHERE = Where("a.lance", column=1)
FLAT8 = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=8))
FLAT32 = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=32))
VARIABLE = pb.CompressiveEncoding(variable=pb.Variable(offsets=FLAT32))
RLE = pb.CompressiveEncoding(rle=pb.Rle(values=FLAT32, run_lengths=FLAT8))
LZ4, ZSTD = 1, 2


def general(scheme: int, inner: pb.CompressiveEncoding, **level: int) -> ValueEncoding:
    fields: dict[str, Any] = {"scheme": scheme, **level}
    how = pb.BufferCompression(**fields)
    wire = pb.CompressiveEncoding(general=pb.General(compression=how, values=inner))
    return read_encoding(wire, WHERE)


def numbers(values: list[int]) -> FixedWidth:
    return FixedWidth(pa.py_buffer(np.array(values, "<u4").tobytes()), 32, len(values))


def strings(values: list[bytes], bits: int = 32) -> Variable:
    ends = np.cumsum([0, *map(len, values)]).astype(f"<i{bits // 8}").tobytes()
    return Variable(pa.py_buffer(ends), bits, pa.py_buffer(b"".join(values)), len(values))


def contents(block: Block) -> list[Any]:
    if isinstance(block, FixedWidth):
        numbers: list[Any] = np.frombuffer(block.values, "<u4", block.count).tolist()
        return numbers
    assert isinstance(block, Variable)
    ends = np.frombuffer(block.offsets, f"<i{block.offset_bits // 8}", block.count + 1)
    raw = block.data.to_pybytes()
    return [raw[a:b] for a, b in pairwise(ends.tolist())]


@pytest.mark.parametrize("scheme", [LZ4, ZSTD])
@pytest.mark.parametrize("inner", [FLAT32, VARIABLE, RLE], ids=["flat", "variable", "rle"])
def test_chunks_come_back_whole_and_value_by_value(
    scheme: int, inner: pb.CompressiveEncoding
) -> None:
    codec = general(scheme, inner)
    values = [at // 40 for at in range(9000)]
    block = strings([b"%d" % v for v in values]) if inner is VARIABLE else numbers(values)
    encoded = codec.encode_mini(block)
    assert len(encoded.buffers) == codec.num_buffers
    starts, at, raw = [], 0, b""
    for buffer, sizes in zip(encoded.buffers, encoded.sizes, strict=True):
        starts.append(at + np.cumsum(sizes) - sizes)
        raw += bytes(memoryview(buffer))
        at = len(raw)
    data = pa.py_buffer(raw)
    chunks = MiniChunks(data, tuple(starts), encoded.sizes, encoded.counts, WHERE)
    assert contents(codec.decode_mini(chunks)) == contents(block)
    index = np.array([1, 0, 1], np.int64)
    last = np.full(3, len(encoded.counts) - 1)
    first = int(encoded.counts[:-1].sum())
    wanted = [contents(block)[first + at] for at in index]
    assert contents(codec.take_mini(chunks, last, index)) == wanted


@pytest.mark.parametrize("scheme", [LZ4, ZSTD])
def test_blocks_come_back(scheme: int) -> None:
    codec = general(scheme, VARIABLE)
    block = strings([b"abc", b"", b"d" * 500, b"e"])
    counts = np.array([3, 1])
    encoded = codec.encode_blocks(block, counts)
    starts = np.cumsum(encoded.sizes) - encoded.sizes
    data = pa.py_buffer(encoded.data.tobytes())
    assert contents(codec.decode_blocks(data, starts, encoded.sizes, counts, WHERE)) == contents(
        block
    )


@pytest.mark.parametrize("scheme", [LZ4, ZSTD])
@given(values=st.lists(st.binary(max_size=50), max_size=8), bits=st.sampled_from([32, 64]))
def test_values_come_back_one_by_one(scheme: int, values: list[bytes], bits: int) -> None:
    codec = general(scheme, VARIABLE)
    encoded = codec.encode_values(strings(values, bits))
    back = codec.decode_values(encoded, WHERE)
    assert contents(back) == values
    assert isinstance(back, Variable)
    assert back.offset_bits == bits


def plain_of(scheme: int, packed: bytes) -> bytes:
    """Decompress what stands behind the size in front, without this library."""
    width = 4 if scheme == LZ4 else 8
    codec = pa.Codec("lz4_raw" if scheme == LZ4 else "zstd")
    size = int.from_bytes(packed[:width], "little")
    return codec.decompress(packed[width:], size, asbytes=True) if size else b""


def compressed_by_others(scheme: int, plain: bytes, *, size: bool = True) -> bytes:
    codec = pa.Codec("lz4_raw" if scheme == LZ4 else "zstd")
    front = len(plain).to_bytes(4 if scheme == LZ4 else 8, "little") if size else b""
    return front + codec.compress(plain, asbytes=True)


@pytest.mark.spec("general-1", "general-3", "general-4")
@pytest.mark.parametrize("scheme", [LZ4, ZSTD])
def test_of_each_chunk_only_the_first_buffer_is_compressed(scheme: int) -> None:
    codec, plain = general(scheme, RLE), read_encoding(RLE, WHERE)
    block = numbers([at // 5 for at in range(9000)])
    found, expected = codec.encode_mini(block), plain.encode_mini(block)
    assert len(expected.counts) > 1
    first, lengths = (buffer.tobytes() for buffer in found.buffers)
    before, same = (buffer.tobytes() for buffer in expected.buffers)
    assert lengths == same
    at = start = 0
    for size, size_before in zip(found.sizes[0], expected.sizes[0], strict=True):
        part = before[start : start + size_before]
        assert plain_of(scheme, first[at : at + size]) == part
        at, start = at + size, start + size_before
    assert (at, start) == (len(first), len(before))


@pytest.mark.spec("general-2", "general-3", "general-4")
@pytest.mark.parametrize("scheme", [LZ4, ZSTD])
def test_a_block_is_compressed_whole_and_values_one_by_one(scheme: int) -> None:
    codec, block = general(scheme, VARIABLE), strings([b"abc" * 9, b"", b"d" * 500])
    (size,) = (encoded := codec.encode_blocks(block, np.array([3]))).sizes
    plain = read_encoding(VARIABLE, WHERE).encode_blocks(block, np.array([3])).data.tobytes()
    assert plain_of(scheme, encoded.data.tobytes()[:size]) == plain
    values = contents(codec.encode_values(block))
    assert [plain_of(scheme, value) for value in values] == contents(block)


@pytest.mark.spec("general-2", "general-3", "general-4")
@pytest.mark.parametrize(("scheme", "size"), [(LZ4, True), (ZSTD, True), (ZSTD, False)])
def test_what_others_compressed_is_read(scheme: int, *, size: bool) -> None:
    codec, values = general(scheme, VARIABLE), [b"abc" * 9, b"d" * 500]
    packed = [compressed_by_others(scheme, value, size=size) for value in values]
    assert contents(codec.decode_values(strings(packed), WHERE)) == values
    plain = read_encoding(VARIABLE, WHERE).encode_blocks(strings(values), np.array([2]))
    data = compressed_by_others(scheme, plain.data.tobytes(), size=size)
    places = np.zeros(1, np.int64), np.array([len(data)]), np.array([2])
    assert contents(codec.decode_blocks(pa.py_buffer(data), *places, WHERE)) == values


def test_an_empty_value_has_a_size_and_a_frame_with_zstd() -> None:
    (value,) = contents(general(ZSTD, VARIABLE).encode_values(strings([b""])))
    assert (len(value), value[:8], value[8:12]) == (17, bytes(8), bytes.fromhex("28b52ffd"))


def test_nulls_without_bytes_decode_to_nothing() -> None:
    codec = general(ZSTD, VARIABLE)
    (value,) = contents(codec.encode_values(strings([b"abc"])))
    assert contents(codec.decode_values(strings([b"", value, b""]), WHERE)) == [b"", b"abc", b""]


@pytest.mark.parametrize("level", [{}, {"level": 0}, {"level": 7}])
def test_the_wire_message_comes_back(level: dict[str, int]) -> None:
    codec = general(ZSTD, VARIABLE, **level)
    assert isinstance(codec, General)
    assert codec.level == level.get("level")
    assert read_encoding(codec.to_wire(), WHERE) == codec


def test_an_unknown_scheme_is_reported() -> None:
    with pytest.raises(CorruptFileError, match=r"compression scheme.*found 0"):
        general(0, VARIABLE)


def test_fixed_widths_are_not_compressed_value_by_value() -> None:
    with pytest.raises(SchemaError, match="values of variable width"):
        general(ZSTD, FLAT32).encode_values(numbers([1]))
    with pytest.raises(CorruptFileError, match="values of variable width"):
        general(ZSTD, FLAT32).decode_values(numbers([1]), WHERE)
