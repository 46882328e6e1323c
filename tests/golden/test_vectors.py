"""Bytes that another implementation wrote, read back; see ``vectors.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.golden.assemble import Page, assemble
from tests.golden.reading import check_page, read, take
from tests.golden.vectors import FILES, VECTORS, Vector

from glaive.errors import CorruptFileError, NotLanceError, UnsupportedFeatureError
from glaive.file import LanceFileWriter


@pytest.mark.spec(
    *("footer-1", "footer-5", "align-1", "align-2", "global-1", "column-1", "column-2", "column-3"),
    *("field-1", "field-2", "field-3", "mb-1", "mb-2", "mb-3", "mb-5", "mb-6", "mb-7", "mb-8"),
    *("def-1", "def-2", "visible-1", "flat-1", "version-1", "version-2"),
)
@pytest.mark.parametrize("version", FILES)
def test_a_whole_file(tmp_path: Path, version: str) -> None:
    column = read(tmp_path, bytes.fromhex(FILES[version]))
    assert column.equals(pa.array([1, 2, None], pa.int32()))


@pytest.mark.spec("align-1", "align-2", "align-3", "column-4", "mb-7", "footer-1")
@pytest.mark.parametrize("version", FILES)
def test_a_whole_file_is_written_byte_for_byte(tmp_path: Path, version: str) -> None:
    with LanceFileWriter(tmp_path / "one.lance", version=version) as writer:
        writer.write_batch(pa.table({"c": pa.array([1, 2, None], pa.int32())}))
    assert (tmp_path / "one.lance").read_bytes().hex() == FILES[version]


@pytest.mark.spec(
    *("layer-1", "def-2", "def-3", "visible-3", "rep-1", "rep-2", "visible-2", "unshred-1"),
    *("mb-10", "mb-11", "mb-rep-1", "mb-rep-2", "var-1", "var-2", "rle-1", "rle-2", "rle-3"),
    *("zip-1", "zip-2", "zip-4", "zip-5", "zip-6", "zip-8", "zip-9", "zip-11"),
    *("const-1", "const-2", "const-3", "const-5", "fsl-1", "zip-3", "align-4"),
)
@pytest.mark.parametrize("vector", VECTORS, ids=lambda one: f"{one.name}, {one.version}")
def test_a_page(tmp_path: Path, vector: Vector) -> None:
    check_page(tmp_path, vector)


def packed(values: list[int], word: int, width: int) -> bytes:
    """Pack 1,024 values as the specification says, bit by bit."""
    lanes = 1024 // word
    words = [0] * (lanes * width)
    order = [0, 4, 2, 6, 1, 5, 3, 7]
    for lane in range(lanes):
        bits = 0
        for row in range(word):
            index = order[row // 8] * 16 + row % 8 * 128 + lane
            bits |= values[index] << row * width
        for k in range(width):
            words[k * lanes + lane] = bits >> k * word & (1 << word) - 1
    return b"".join(one.to_bytes(word // 8, "little") for one in words)


@pytest.mark.spec("pack-1", "pack-2", "inline-1", "inline-3", "inline-4", "mb-4")
@pytest.mark.parametrize("word", [8, 16, 32, 64])
def test_two_blocks_of_packed_values(tmp_path: Path, word: int) -> None:
    rng = np.random.default_rng(word)
    width = word // 2 - 1
    values = rng.integers(0, 1 << width, 1024).tolist()
    pack = width.to_bytes(word // 8, "little") + packed(values, word, width)
    zeros = bytes(word // 8)
    chunks, table = b"", b""
    for size, block in ((10, pack), (0, zeros)):
        chunk = (0).to_bytes(2, "little") + len(block).to_bytes(2, "little") + b"\xfe" * 4 + block
        chunk += b"\xfe" * (-len(chunk) % 8)
        table += (len(chunk) // 8 - 1 << 4 | size).to_bytes(2, "little")
        chunks += chunk
    layout = (
        "mini_block_layout { value_compression { inline_bitpacking {"
        f" uncompressed_bits_per_value: {word} }} }} layers: REPDEF_ALL_VALID_ITEM"
        " num_buffers: 1 num_items: 1324 }"
    )
    kind = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[word]
    schema = pa.schema([pa.field("c", kind)])
    data = assemble(schema, [[Page(1324, layout, [table, chunks])]], "2.1")
    assert read(tmp_path, data).to_pylist() == values + [0] * 300
    assert take(tmp_path, [1323, 700, 0]).to_pylist() == [0, values[700], values[0]]


@pytest.mark.spec("pack-1")
def test_packing_by_the_book_gives_the_bytes_pylance_writes() -> None:
    assert packed(list(range(1024)), 32, 10).hex().startswith("000002100104125002082290030c32d0")
    assert (
        packed([i % 8 for i in range(1024)], 8, 3)
        .hex()
        .startswith("004992db246db6ff004992db246db6ff")
    )


def whole() -> bytearray:
    return bytearray(bytes.fromhex(FILES["2.1"]))


@pytest.mark.spec("footer-2")
def test_another_magic_is_not_lance(tmp_path: Path) -> None:
    data = whole()
    data[-1] ^= 1
    with pytest.raises(NotLanceError, match=r"one\.lance"):
        read(tmp_path, bytes(data))


@pytest.mark.spec("footer-3")
def test_a_version_nobody_knows_is_named(tmp_path: Path) -> None:
    data = whole()
    data[-8:-4] = (9).to_bytes(2, "little") * 2
    with pytest.raises(UnsupportedFeatureError, match=r"9\.9"):
        read(tmp_path, bytes(data))


@pytest.mark.spec("footer-4", "footer-5")
@pytest.mark.parametrize("at", [0, 8, 16, 24, 28])
def test_a_footer_that_points_outside_is_damage(tmp_path: Path, at: int) -> None:
    data = whole()
    data[len(data) - 40 + at : len(data) - 40 + at + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(CorruptFileError, match=r"one\.lance"):
        read(tmp_path, bytes(data))


@pytest.mark.spec("mb-6", "mb-8", "mb-9")
@pytest.mark.parametrize(("at", "byte"), [(0, 0xF0), (0, 0x10), (64, 0xFF), (66, 0xFF), (68, 0xFF)])
def test_a_chunk_that_does_not_add_up_is_damage(tmp_path: Path, at: int, byte: int) -> None:
    data = whole()
    data[at] = byte
    with pytest.raises(CorruptFileError, match=r"one\.lance"):
        read(tmp_path, bytes(data))


MISPLACED = (
    "mini_block_layout { value_compression { constant { value: '0000' } }"
    " layers: REPDEF_ALL_VALID_ITEM num_buffers: 1 num_items: 1 }"
)


@pytest.mark.spec("page-1", "enc-1")
@pytest.mark.parametrize(
    ("layout", "named"),
    [
        ("blob_layout { inner_layout { constant_layout { } } }", "blob_layout"),
        (MISPLACED, "constant"),
    ],
)
def test_what_this_reader_does_not_know_is_named(tmp_path: Path, layout: str, named: str) -> None:
    schema = pa.schema([pa.field("c", pa.int32())])
    data = assemble(schema, [[Page(1, layout, [b"\x00\x00", bytes(8)])]], "2.1")
    with pytest.raises(UnsupportedFeatureError, match=named):
        read(tmp_path, data)
