"""What a file says in few bytes does not make a reader allocate without bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.encodings.pages.mini_samples import FLAT, HERE, ITEM, LIST, Storage

from glaive.arrow.blocks import Constant, FixedWidth, Variable
from glaive.arrow.build import all_null, take_block, to_array
from glaive.config import MAX_IMPLIED_BYTES
from glaive.encodings.protocol import EncodedPage, MiniChunks
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.bitpack import OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError, RowIndexError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.offsets import expand_dictionary
from glaive.kernels.strings import Strings

ZERO = np.zeros(1, np.int64)


def _one(number: int) -> Any:
    return np.array([number], np.int64)


# ------------------------------------------------------------------ widths and counts


@pytest.mark.parametrize("bits", [0, 7, 2**34 + 8, 2**60, 2**64 - 8])
def test_flat_values_have_a_width_that_memory_can_hold(bits: int) -> None:
    message = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))
    with pytest.raises(CorruptFileError, match=f"width of flat values.*found {bits} bits"):
        read_encoding(message, HERE)


@pytest.mark.parametrize("count", [2**57 + 1, 2**58, 2**60, 2**62 + 1])
def test_counts_of_flat_values_whose_bits_wrap_around_are_refused(count: int) -> None:
    size = (count * 64 % 2**64 + 7) // 8
    with pytest.raises(CorruptFileError, match=f"flat values: .* for {count} values"):
        Flat(64).decode_blocks(pa.py_buffer(bytes(64)), ZERO, _one(size), _one(count), HERE)


def test_values_wider_than_any_chunk_are_not_made_room_for() -> None:
    chunks = MiniChunks(pa.py_buffer(bytes(64)), (ZERO,), (_one(64),), _one(1024), HERE)
    with pytest.raises(CorruptFileError, match=f"values of at most 512 bits.* found {2**34} bits"):
        Flat(2**34).take_mini(chunks, np.zeros(8, np.int64), np.arange(8))


def test_values_packed_to_no_bits_are_few() -> None:
    nothing = pa.py_buffer(b"")
    packed = OutOfLineBitpacking(16, 0)
    assert packed.decode_blocks(nothing, ZERO, ZERO, _one(65_536), HERE).count == 65_536
    with pytest.raises(CorruptFileError, match="packed to 0 bits: expected at most 65536"):
        packed.decode_blocks(nothing, ZERO, ZERO, _one(2**32), HERE)


# ------------------------------------------------------------------ levels


@pytest.mark.parametrize("mapped", [True, False])
def test_a_chunk_has_no_more_levels_than_rows_and_values(*, mapped: bool) -> None:
    """65,535 levels of no bits in each chunk of 24 bytes."""
    chunks = 400
    no_bits = OutOfLineBitpacking(16, 0).to_wire()
    layout = pb.MiniBlockLayout(
        value_compression=FLAT,
        rep_compression=no_bits,
        layers=[pb.RepDefLayer.ValueType(layer) for layer in (ITEM, LIST)],
        num_buffers=1,
        repetition_index_depth=1,
        num_items=2 * chunks,
    )
    chunk = np.array([65_535, 126, 16, 0], "<u2").tobytes() + bytes(16 + 128)
    words = np.full(chunks, (len(chunk) // 8 - 1) << 4 | 1, "<u2")
    index = np.tile(np.array([1, 0], "<u8"), chunks)
    buffers: list[Any] = [words.tobytes(), chunk * chunks, index.tobytes()]
    page = EncodedPage(pb.PageLayout(mini_block_layout=layout), buffers, chunks)
    pool = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(watched)
    try:
        storage = Storage()
        with pytest.raises(CorruptFileError, match="level"):
            storage.run_fetch(storage.open(page, mapped=mapped).read(0, chunks))
    finally:
        pa.set_memory_pool(pool)
    assert (watched.max_memory() or 0) < 64 * len(chunk) * chunks


# ------------------------------------------------------------------ values without bytes


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.int64(),
        pa.bool_(),
        pa.string(),
        pa.decimal256(50),
        pa.list_(pa.float32(), 1000),
        pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.binary(16))]),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int8()),
    ],
    ids=str,
)
def test_nulls_beyond_the_bound_are_refused(kind: pa.DataType) -> None:
    assert len(all_null(kind, 10)) == 10
    with pytest.raises(SchemaError, match=f"at most {MAX_IMPLIED_BYTES} are supported"):
        all_null(kind, 2**40)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (FixedWidth(pa.py_buffer(b"\1"), 8, 1), pa.bool_()),
        (FixedWidth(pa.py_buffer(b"\1"), 8, 1), pa.uint8()),
        (FixedWidth(pa.py_buffer(bytes(8)), 64, 1), pa.float64()),
        (FixedWidth(pa.py_buffer(bytes(16)), 128, 1), pa.decimal128(9)),
        (Variable(pa.py_buffer(np.array([0, 3], "i4")), 32, pa.py_buffer(b"abc"), 1), pa.string()),
    ],
    ids=["bool", "uint8", "float64", "decimal128", "string"],
)
def test_a_value_is_not_repeated_beyond_the_bound(value: Any, kind: pa.DataType) -> None:
    assert len(to_array(Constant(value, 5), kind, None, 0, HERE)) == 5
    with pytest.raises(SchemaError, match="one repeated value"):
        to_array(Constant(value, 2**40), kind, None, 0, HERE)


# ------------------------------------------------------------------ types that do not fit


def test_values_with_bytes_are_no_nulls() -> None:
    block = FixedWidth(pa.py_buffer(bytes(8)), 8, 8)
    with pytest.raises(CorruptFileError, match="values of type null, found 8 bits per value"):
        to_array(block, pa.null(), None, 0, HERE)


def test_values_of_no_bits_can_be_taken() -> None:
    block = FixedWidth(pa.py_buffer(b""), 0, 5)
    taken = take_block(block, np.array([4, 0]))
    assert isinstance(taken, FixedWidth)
    assert (taken.bits, taken.count) == (0, 2)


def test_indices_beyond_the_items_are_an_error_of_this_library() -> None:
    items = Strings(pa.py_buffer(np.array([0, 1, 3], "i4")), 32, pa.py_buffer(b"abc"))
    indices = pa.py_buffer(np.array([0, 2, 1] * 10, "<u4"))
    with pytest.raises(RowIndexError, match="index 2 of a dictionary of 2"):
        expand_dictionary(indices, 32, 30, items)
