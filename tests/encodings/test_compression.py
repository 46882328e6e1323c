"""zstd and lz4 buffers: both framings are read, claims are checked before memory is spent."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.encodings.compression import Scheme, compress, compress_strings, decompress
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.types import Where

WHERE = Where("a.lance", column=2)
SCHEMES: tuple[Scheme, ...] = ("zstd", "lz4")


def packed(parts: list[bytes]) -> tuple[pa.Buffer, np.ndarray, np.ndarray]:
    sizes = np.array([len(part) for part in parts], np.int64)
    return pa.py_buffer(b"".join(parts)), np.cumsum(sizes) - sizes, sizes


@pytest.mark.parametrize("scheme", SCHEMES)
@given(
    values=st.lists(st.binary(max_size=60) | st.just(b"ab" * 20_000), max_size=6),
    level=st.sampled_from([None, 0, 5]),
)
def test_what_is_compressed_comes_back(
    scheme: Scheme, values: list[bytes], level: int | None
) -> None:
    data, sizes = compress(scheme, level, *packed(values))
    out, lengths = decompress(scheme, data, np.cumsum(sizes) - sizes, sizes, WHERE)
    assert lengths.tolist() == [len(value) for value in values]
    assert out.to_pybytes() == b"".join(values)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_buffers_without_bytes_stay_empty(scheme: Scheme) -> None:
    data, sizes = compress(scheme, None, *packed([b"abc"]))
    starts, sizes = np.array([0, 0, int(sizes[0])]), np.array([0, int(sizes[0]), 0])
    out, lengths = decompress(scheme, data, starts, sizes, WHERE)
    assert (out.to_pybytes(), lengths.tolist()) == (b"abc", [0, 3, 0])


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_791, 65_792, 300_000])
def test_a_zstd_frame_needs_no_size_in_front(size: int) -> None:
    value = bytes(size)
    frames = [pa.Codec("zstd").compress(value, asbytes=True)] * 3
    out, lengths = decompress("zstd", *packed(frames), WHERE)
    assert (out.to_pybytes(), lengths.tolist()) == (value * 3, [size] * 3)


@pytest.mark.parametrize("prefix", [b"", struct.pack("<Q", 5000)])
def test_a_zstd_frame_need_not_state_its_size(prefix: bytes) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(b"abcde" * 1000)
    frame = sink.getvalue().to_pybytes()
    out, lengths = decompress("zstd", *packed([prefix + frame] * 2), WHERE)
    assert (out.to_pybytes(), lengths.tolist()) == (b"abcde" * 2000, [5000] * 2)


def test_zstd_at_its_best_is_believed() -> None:
    value = bytes(40_000_000)
    frame = pa.Codec("zstd").compress(value, asbytes=True)
    data = pa.py_buffer(struct.pack("<Q", len(value)) + frame)
    out, _ = decompress("zstd", data, np.zeros(1, np.int64), np.array([data.size]), WHERE)
    assert out.size == len(value)


def damaged_zstd(claim: int, frame: bytes | None = None) -> bytes:
    good = pa.Codec("zstd").compress(b"abc" * 100, asbytes=True)
    return struct.pack("<Q", claim) + (good if frame is None else frame)


LZ4 = pa.Codec("lz4_raw").compress(b"abc" * 100, asbytes=True)
FRAME = pa.Codec("zstd").compress(b"abc" * 100, asbytes=True)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize(
    ("scheme", "raw"),
    [
        ("zstd", damaged_zstd(299)),
        ("zstd", damaged_zstd(301)),
        ("zstd", damaged_zstd(2**63)),
        ("zstd", damaged_zstd(300, b"not a zstd frame")),
        ("zstd", damaged_zstd(300, FRAME[:-1])),
        ("zstd", damaged_zstd(300, FRAME[:8])),
        ("zstd", b"\x00" * 15),
        ("zstd", b"abc"),
        ("zstd", FRAME[:10]),
        ("lz4", struct.pack("<I", 299) + LZ4),
        ("lz4", struct.pack("<I", 301) + LZ4),
        ("lz4", struct.pack("<I", 2**32 - 1) + LZ4),
        ("lz4", struct.pack("<I", 300) + LZ4[:-2]),
        ("lz4", struct.pack("<I", 300)),
        ("lz4", b"ab"),
    ],
)
def test_damage_is_reported(scheme: Scheme, raw: bytes, copies: int) -> None:
    with pytest.raises(CorruptFileError, match="column 2"):
        decompress(scheme, *packed([raw] * copies), WHERE)


@pytest.mark.parametrize(("scheme", "size"), [("zstd", 2**50), ("lz4", 2**32 - 1)])
def test_an_absurd_size_is_refused_before_memory_is_allocated(scheme: Scheme, size: int) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(b"abc")
    raw = size.to_bytes(8 if scheme == "zstd" else 4, "little") + (
        sink.getvalue().to_pybytes() if scheme == "zstd" else LZ4
    )
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptFileError, match="uncompressed size: expected at most"):
        decompress(scheme, *packed([raw]), WHERE)
    assert pa.total_allocated_bytes() - before < 1 << 20


def unstated(size: int) -> bytes:
    """An honest zstd frame of zeros that does not state its size."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(size >> 20):
            stream.write(bytes(1 << 20))
    return sink.getvalue().to_pybytes()


@pytest.mark.spec("rel-24")
def test_more_than_a_page_may_decode_to_is_refused_before_memory_is_allocated() -> None:
    frame = struct.pack("<Q", 400 << 20) + unstated(1 << 20) + bytes(20_000)
    before = pa.total_allocated_bytes()
    with pytest.raises(UnsupportedFeatureError, match="GLAIVE_MAX_DECODED_BYTES_PER_PAGE") as error:
        decompress("zstd", *packed([frame] * 3), WHERE)
    assert "column 2" in str(error.value)
    assert f"{1200 << 20} bytes" in str(error.value)
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.spec("rel-24", "rel-25")
def test_a_page_decodes_to_as_much_as_the_setting_allows(tmp_path: Path) -> None:
    # One honest megabyte of few bytes, sizes stated and not; and many frames are one page.
    script = """
import sys
import numpy as np
import pyarrow as pa
from glaive.encodings.compression import decompress
from glaive.errors import UnsupportedFeatureError
from glaive.types import Where

frame = open(sys.argv[1], "rb").read()
stated = (1 << 20).to_bytes(8, "little") + frame
for part in (frame, stated):
    for copies in (1, 2, 3, 1000):
        data = pa.py_buffer(part * copies)
        starts = np.arange(copies, dtype=np.int64) * len(part)
        try:
            out, _ = decompress("zstd", data, starts, np.full(copies, len(part)), Where("f"))
            print(out.size >> 20)
        except UnsupportedFeatureError:
            print("refused")
"""
    path = tmp_path / "frame"
    path.write_bytes(unstated(1 << 20))
    environment = {**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": "2MiB"}
    command = [sys.executable, "-c", script, str(path)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["1", "2", "refused", "refused"] * 2


@pytest.mark.spec("rel-24")
def test_data_of_the_usual_kind_may_be_as_large_as_it_likes() -> None:
    script = """
import numpy as np
from glaive.encodings.compression import compress, decompress
from glaive.types import as_buffer
from glaive.types import Where

letters = np.random.default_rng(0).integers(97, 123, 1 << 20, np.uint8)
for scheme in ("zstd", "lz4"):
    starts, size = np.zeros(1, np.int64), np.array([1 << 20])
    data, sizes = compress(scheme, None, as_buffer(letters), starts, size)
    again = np.zeros(5, np.int64)  # as a take of one row does
    out, _ = decompress(scheme, data, again, again + sizes, Where("f"))
    print(out.size >> 20)
"""
    environment = {**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": "2MiB"}
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["5", "5"]


@given(st.data())
def test_flipped_bytes_never_do_worse_than_an_error(data: st.DataObject) -> None:
    scheme = data.draw(st.sampled_from(SCHEMES))
    values, sizes = compress(scheme, None, *packed([b"abcd" * 20, b"", b"x" * 900]))
    raw = bytearray(values.to_pybytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        out, lengths = decompress(
            scheme, pa.py_buffer(bytes(raw)), np.cumsum(sizes) - sizes, sizes, WHERE
        )
    except CorruptFileError:
        return
    assert out.size == int(lengths.sum())


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("count", [1, 3])
def test_an_lz4_block_is_not_taken_for_a_longer_one(count: int) -> None:
    """This one has 18 bytes. The codec takes it for 32, and for no fewer."""
    block = b"\xa0" + b"a" * 10 + b"\x01\x00\x40zzzz"
    codec = pa.Codec("lz4_raw")
    assert codec.decompress(block, 32).size == 32
    for size in (18, 31):
        with pytest.raises(OSError, match="Corrupt"):
            codec.decompress(block, size)
    with pytest.raises(CorruptFileError, match="lz4 data: expected a block of 32 bytes"):
        decompress("lz4", *packed([struct.pack("<I", 32) + block] * count), WHERE)


def test_offsets_of_strings_get_a_frame_where_this_is_smaller() -> None:
    random = np.random.default_rng(5)
    lengths = random.integers(3, 40, 500)
    offsets = np.cumsum([4 * 501, *lengths]).astype("<u4")
    text = offsets.tobytes() + random.integers(97, 113, lengths.sum(), np.uint8).tobytes()
    for chunk, share in ((text, 0.9), (bytes(len(text)), 1)):
        data, starts, sizes = packed([chunk] * 3)
        whole, _ = compress("zstd", 1, data, starts, sizes)
        found, parts = compress_strings(1, data, sizes, np.full(3, offsets.nbytes))
        assert found.size <= share * whole.size
        assert found.equals(whole) == (share == 1)
        out, lengths = decompress("zstd", found, np.cumsum(parts) - parts, parts, WHERE)
        assert (out.to_pybytes(), lengths.tolist()) == (3 * chunk, sizes.tolist())
