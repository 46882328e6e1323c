"""Packed structs, fixed and variable: back and forth, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import FixedWidth, Struct, Variable, slice_block
from glaive.arrow.build import block_from_array, take_block, to_array
from glaive.encodings.levels import Leaf, flat_levels
from glaive.encodings.options import EncodingOptions, PageOptions
from glaive.encodings.protocol import EncodedPage, MiniChunks, PageBytes
from glaive.encodings.registry import open_page, read_encoding
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.packed_struct import Member, PackedStruct, VariablePackedStruct
from glaive.encodings.values.variable import Variable as Plain
from glaive.encodings.writing.page import encode_page
from glaive.errors import CorruptFileError, FormatError, SchemaError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import ByteRange, Where

WHERE = Where("a.lance", column=1)
ALLOWED = PageOptions(
    large_chunks=True,
    scalar_constants=True,
    compressed_constant_levels=True,
    dictionary_bits=frozenset({64, 128}),
    level_runs=True,
    dictionary_compression="lz4",
)


def fixed(rows: int) -> pa.Array:
    members = [
        pa.array(np.arange(rows)),
        pa.array(np.arange(rows, dtype="f4")),
        pa.array(np.arange(rows, dtype="u1")),
    ]
    return pa.StructArray.from_arrays(members, names=["a", "b", "c"])


def variable(rows: int, *, wide: bool = False) -> pa.Array:
    text = [f"text {at} and text {at % 7}" if at % 5 else "" for at in range(rows)]
    vectors = pa.FixedSizeListArray.from_arrays(np.arange(3.0 * rows), 3)
    members = [
        pa.array(np.arange(rows, dtype="i2")),
        pa.array(text, pa.large_string() if wide else pa.string()),
        vectors,
        pa.array([string.encode() for string in text]),
    ]
    return pa.StructArray.from_arrays(members, names=["n", "text", "vector", "raw"])


def page_of(array: pa.Array, wanted: EncodingOptions | None = None) -> EncodedPage:
    valid = None if not array.null_count else np.asarray(array.is_valid())
    levels = flat_levels(valid)
    page = encode_page(array, levels, len(array), ALLOWED, wanted or EncodingOptions())
    assert page is not None
    return page


def read(page: EncodedPage, array: pa.Array, rows: np.ndarray | None = None) -> pa.Array:  # type: ignore[type-arg]  # positions
    parts = [each if isinstance(each, tuple) else (each,) for each in page.buffers]
    buffers = [pa.py_buffer(b"".join(map(memoryview, each))) for each in parts]
    ranges = tuple(ByteRange(0, buffer.size) for buffer in buffers)
    reader = open_page(page.layout, PageBytes(ranges, buffers, page.rows, WHERE))
    leaf = reader.read(0, page.rows) if rows is None else reader.take(rows)
    assert isinstance(leaf, Leaf)
    assert leaf.values is not None
    return to_array(leaf.values, array.type, leaf.validity, leaf.null_count, WHERE)


@pytest.mark.spec("packed-1")
def test_members_of_fixed_width_lie_next_to_each_other() -> None:
    block = block_from_array(fixed(2))
    assert isinstance(block, Struct)
    codec = PackedStruct((64, 32, 8))
    assert read_encoding(codec.to_wire(), WHERE) == codec
    rows = codec.encode_values(block)
    assert rows.values.to_pybytes().hex() == "0" * 26 + "0100000000000000" + "0000803f" + "01"
    assert to_array(codec.decode_values(rows, WHERE), fixed(2).type, None, 0, WHERE) == fixed(2)


@pytest.mark.spec("packed-2", "packed-3")
def test_members_of_variable_width_have_a_length_each() -> None:
    array = variable(2)
    codec = VariablePackedStruct(
        (Member(Flat(16), 16, is_variable=False), Member(Plain(32), 32, is_variable=True))
    )
    assert read_encoding(codec.to_wire(), WHERE) == codec
    whole = block_from_array(array)
    assert isinstance(whole, Struct)
    rows = codec.encode_values(Struct(whole.members[:2], 2))
    first = b"\x00\x00" + bytes(4)
    second = b"\x01\x00" + (17).to_bytes(4, "little") + b"text 1 and text 1"
    assert rows.data.to_pybytes() == first + second


@pytest.mark.parametrize("rows", [2, 3, 1023, 5000])
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("make", [fixed, variable, lambda rows: variable(rows, wide=True)])
def test_pages_come_back_whole_and_row_by_row(make: Any, rows: int, *, holes: bool) -> None:
    array = make(rows)
    if holes:
        array = array.take(pa.array(np.arange(rows), mask=np.arange(rows) % 3 == 1))
    page = page_of(array)
    assert read(page, array).equals(array)
    wanted = np.array([rows - 1, 0, 1, 1, rows // 2])
    assert read(page, array, wanted).equals(array.take(pa.array(wanted)))
    assert read(page, array, wanted[:1]).equals(array.slice(rows - 1))


def test_a_slice_is_packed_as_its_copy() -> None:
    for array in (fixed(100), variable(100)):
        part = array.slice(13, 20)
        assert read(page_of(part), array).equals(part)


@pytest.mark.spec("packed-5")
def test_members_are_encoded_by_their_own_keys() -> None:
    array = variable(3000)
    keys = ("zstd", "fsst", None, "none")
    wishes = tuple(EncodingOptions(compression=key) for key in keys)  # type: ignore[arg-type]  # text
    page = page_of(array, EncodingOptions(members=wishes))
    layout: Any = page.layout
    fields = layout.full_zip_layout.value_compression.variable_packed_struct.fields
    kinds = [field.value.WhichOneof("compression") for field in fields]
    assert kinds == ["flat", "fsst", "fixed_size_list", "variable"]
    assert read(page, array).equals(array)


def test_blocks_of_structs_are_cut_and_gathered() -> None:
    block, array = block_from_array(variable(50)), variable(50)
    for part, wanted in (
        (slice_block(block, 10, 20), array.slice(10, 20)),
        (take_block(block, np.array([3, 3])), array.take(pa.array([3, 3]))),
    ):
        assert to_array(part, wanted.type, None, 0, WHERE).equals(wanted)


def test_nulls_of_members_are_refused_by_name() -> None:
    member = pa.array([1, None, 3])
    array = pa.StructArray.from_arrays([member, member], names=["a", "b"])
    with pytest.raises(SchemaError, match="member 'a' of packed structs"):
        block_from_array(array)
    hidden = pa.StructArray.from_arrays([member], names=["a"], mask=pa.array([False, True, False]))
    assert read(page_of(hidden), hidden).equals(hidden)


# ---------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("bits", "total", "error"),
    [
        ([1, 8], 9, UnsupportedFeatureError),
        ([8, 16], 32, CorruptFileError),
        ([], 8, CorruptFileError),
        ([0, 8], 8, CorruptFileError),
    ],
)
def test_widths_that_do_not_add_up_are_refused(
    bits: list[int], total: int, error: type[Exception]
) -> None:
    rows = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=total))
    packed = pb.PackedStruct(bits_per_value=bits, values=rows)
    with pytest.raises(error, match="pack"):
        read_encoding(pb.CompressiveEncoding(packed_struct=packed), WHERE)


def test_rows_of_another_width_are_damage() -> None:
    zero = np.zeros(1, np.int64)
    chunks = MiniChunks(pa.py_buffer(bytes(8)), (zero,), (zero + 8,), zero + 1, WHERE)
    with pytest.raises(CorruptFileError, match="flat values"):
        PackedStruct((64, 8)).decode_mini(chunks)
    with pytest.raises(CorruptFileError, match="72 bits"):
        PackedStruct((64, 8)).decode_values(FixedWidth(pa.py_buffer(bytes(8)), 64, 1), WHERE)


@pytest.mark.parametrize("within", ["", "general", "dictionary"])
@pytest.mark.spec("rel-42")
def test_packed_rows_are_no_items_of_a_dictionary(within: str) -> None:
    array = pa.array([f"text {at % 5} of a few" for at in range(500)])
    page = page_of(array)
    packed = PackedStruct((64, 8)).to_wire()
    if within == "general":
        scheme = pb.BufferCompression(scheme=pb.COMPRESSION_ALGORITHM_LZ4)
        packed = pb.CompressiveEncoding(general=pb.General(compression=scheme, values=packed))
    elif within == "dictionary":
        inner = pb.Dictionary(indices=Flat(32).to_wire(), items=packed, num_dictionary_items=2)
        packed = pb.CompressiveEncoding(dictionary=inner)
    page.layout.mini_block_layout.dictionary.CopyFrom(packed)
    with pytest.raises(FormatError):
        read(page, array)


TEXT_AND_WORD = VariablePackedStruct(
    (Member(Plain(32), 32, is_variable=True), Member(Flat(16), 16, is_variable=False))
)
WIDE_TEXT = VariablePackedStruct((Member(Plain(64), 64, is_variable=True),))


def one_row(raw: bytes) -> Variable:
    return Variable(pa.py_buffer(np.array([0, len(raw)], "<i4")), 32, pa.py_buffer(raw), 1)


@pytest.mark.spec("packed-3", "packed-4")
@pytest.mark.parametrize(
    ("codec", "row", "found"),
    [
        (TEXT_AND_WORD, b"\x01", "expected 4 more bytes, found 1"),
        (TEXT_AND_WORD, b"\x09\0\0\0abc", "expected 9 more bytes, found 3"),
        (TEXT_AND_WORD, b"\xff\xff\xff\xffabc", "more bytes, found 3"),
        (TEXT_AND_WORD, b"\x01\0\0\0ab", "expected 2 more bytes, found 1"),
        (TEXT_AND_WORD, b"\x01\0\0\0abcd", "found 1 more bytes"),
        (WIDE_TEXT, b"\xff" * 8 + b"abc", "more bytes, found 3"),
    ],
)
def test_rows_that_do_not_hold_their_members_are_damage(
    codec: VariablePackedStruct, row: bytes, found: str
) -> None:
    with pytest.raises(CorruptFileError, match=found):
        codec.decode_values(one_row(row), WHERE)


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("bits", [2**63, 2**40])
def test_rows_without_bytes_take_no_memory_by_the_width_of_their_members(bits: int) -> None:
    codec = VariablePackedStruct((Member(Flat(bits), bits, is_variable=False),))
    nulls = Variable(pa.py_buffer(bytes(12)), 32, pa.py_buffer(b""), 2)
    with pytest.raises(UnsupportedFeatureError, match="GLAIVE_MAX_DECODED_BYTES_PER_PAGE"):
        codec.decode_values(nulls, WHERE)


@given(raw=st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        block = TEXT_AND_WORD.decode_values(one_row(raw), WHERE)
    except CorruptFileError:
        return
    if raw:
        assert TEXT_AND_WORD.encode_values(block).data.to_pybytes() == raw
