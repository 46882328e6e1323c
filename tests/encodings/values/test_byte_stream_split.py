"""Byte stream split: back and forth, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.protocol import MiniChunks
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.flat import ByteStreamSplit
from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Where

WHERE = Where("a.lance", column=1)
RANDOM = np.random.default_rng(4).integers(0, 256, 8 * 3000, np.uint8).tobytes()


@pytest.mark.spec("bss-1", "bss-2")
@given(bits=st.sampled_from([32, 64]), count=st.integers(1, 3000))
def test_chunks_of_4_kib_come_back(bits: int, count: int) -> None:
    codec = ByteStreamSplit(bits)
    assert read_encoding(codec.to_wire(), WHERE) == codec
    values = pa.py_buffer(RANDOM[: count * bits // 8])
    encoded = codec.encode_mini(FixedWidth(values, bits, count))
    (data,), (sizes,) = encoded.buffers, encoded.sizes
    assert (sizes[:-1] == 4096).all()
    assert len(encoded.buffers) == codec.num_buffers
    starts = np.cumsum(sizes) - sizes
    chunks = MiniChunks(pa.py_buffer(data), (starts,), (sizes,), encoded.counts, WHERE)
    block = codec.decode_mini(chunks)
    assert (block.bits, block.count) == (bits, count)
    assert block.values.equals(values)


def _wire(inner: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(byte_stream_split=pb.ByteStreamSplit(values=inner))


def test_widths_and_encodings_that_cannot_be_are_refused() -> None:
    with pytest.raises(CorruptFileError, match="found 16 bits"):
        read_encoding(_wire(pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=16))), WHERE)
    with pytest.raises(UnsupportedFeatureError, match="not flat"):
        read_encoding(_wire(pb.CompressiveEncoding()), WHERE)
    with pytest.raises(SchemaError, match="given 64 bits"):
        ByteStreamSplit(32).encode_mini(FixedWidth(pa.py_buffer(bytes(8)), 64, 1))


@pytest.mark.parametrize("size", [0, 7, 9, 16])
def test_a_chunk_of_another_size_is_damage(size: int) -> None:
    codec, data = ByteStreamSplit(32), pa.py_buffer(bytes(16))
    zero, two = np.zeros(1, np.int64), np.array([2])
    chunks = MiniChunks(data, (zero,), (np.array([size]),), two, WHERE)
    with pytest.raises(CorruptFileError, match="8 bytes for 2 values"):
        codec.decode_mini(chunks)
    with pytest.raises(CorruptFileError, match="8 bytes for 2 values"):
        codec.take_mini(chunks, zero, zero)
