"""Ranges, deltas, nested runs, split strings and dictionaries of numbers, against plain Python."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, FixedWidth
from glaive.encodings.protocol import MiniChunks, ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.bitpack import InlineBitpacking, OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.general import General
from glaive.encodings.values.rle import NestedRuns
from glaive.encodings.values.sequences import (
    Constant,
    Delta,
    Dictionary,
    Range,
    numbers_of,
    read_numbers,
)
from glaive.encodings.values.variable import SplitStrings
from glaive.encodings.writing.planes import encode_numbers
from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Where

HERE = Where("numbers.lance")
words = st.lists(st.integers(0, 2**64 - 1), max_size=40)
small = st.lists(st.integers(0, 300), max_size=40)


def of(values: list[int], bits: int = 64) -> FixedWidth:
    return FixedWidth(pa.py_buffer(np.array(values, f"<u{bits // 8}").tobytes()), bits, len(values))


def decoded(encoding: ValueEncoding, parts: list[list[int]], bits: int = 64) -> list[int]:
    """Encode lists of numbers as one block each, decode them in one call."""
    counts = np.array([len(part) for part in parts], np.int64)
    flat = [value for part in parts for value in part]
    encoded = encoding.encode_blocks(of(flat, bits), counts)
    data = pa.py_buffer(encoded.data.tobytes())
    starts = np.cumsum(encoded.sizes) - encoded.sizes
    block = encoding.decode_blocks(data, starts, encoded.sizes, counts, HERE)
    return numbers_of(block, bits, len(flat), "numbers", HERE).tolist()


def again(encoding: ValueEncoding) -> ValueEncoding:
    """Through the wire message and back."""
    return read_encoding(encoding.to_wire(), HERE)


@pytest.mark.spec("delta-1", "delta-2")
@given(st.lists(words, min_size=1, max_size=4), st.integers(0, 2**64 - 1))
def test_deltas_add_up_to_any_numbers(parts: list[list[int]], base: int) -> None:
    parts = [[base, *part[1:]] if part else part for part in parts]
    encoding = Delta(64, base, Flat(64))
    assert again(encoding) == encoding
    assert decoded(encoding, parts) == [value for part in parts for value in part]


@pytest.mark.spec("range-1")
@given(
    st.sampled_from([32, 64]),
    st.integers(0, 2**32 - 1),
    st.integers(1, 2**32 - 1),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_ranges_begin_anew_in_every_block(
    bits: int, start: int, step: int, lengths: list[int]
) -> None:
    parts = [[(start + step * i) % 2**bits for i in range(length)] for length in lengths]
    encoding = Range(bits, start, step)
    assert again(encoding) == encoding
    assert not encoding.has_payload
    assert decoded(encoding, parts, bits) == [value for part in parts for value in part]


def test_deltas_begin_with_their_base() -> None:
    with pytest.raises(SchemaError, match="do not begin with the base 3"):
        Delta(64, 3, Flat(64)).encode_blocks(of([1, 4]), np.array([2]))


@pytest.mark.spec("range-1", "delta-1", "numbers-2")
@pytest.mark.parametrize(
    "message",
    [
        pb.CompressiveEncoding(range=pb.Range(uncompressed_bits_per_value=16, step=1)),
        pb.CompressiveEncoding(range=pb.Range(uncompressed_bits_per_value=64)),
        pb.CompressiveEncoding(range=pb.Range(uncompressed_bits_per_value=32, start=2**32, step=1)),
        pb.CompressiveEncoding(delta=pb.Delta(uncompressed_bits_per_value=8)),
        pb.CompressiveEncoding(delta=pb.Delta(uncompressed_bits_per_value=32, base=2**32)),
        pb.CompressiveEncoding(delta=pb.Delta(uncompressed_bits_per_value=32)),
        pb.CompressiveEncoding(
            dictionary=pb.Dictionary(
                indices=Flat(32).to_wire(),
                items=Range(64, 0, 1).to_wire(),
                num_dictionary_items=2**32 - 1,
            )
        ),
    ],
    ids=lambda encoding: str(encoding).replace("\n", " "),
)
def test_numbers_that_cannot_be_are_damage(message: pb.CompressiveEncoding) -> None:
    with pytest.raises(CorruptFileError, match=r"numbers\.lance"):
        read_encoding(message, HERE)


@pytest.mark.spec("numbers-1", "numbers-2", "choice-4")
@given(st.one_of(words, small, small.map(sorted), st.sets(st.integers(0, 2**40)).map(sorted)))
def test_chosen_encodings_give_the_numbers_back(values: list[int]) -> None:
    array = np.array(values, np.uint64)
    chosen = encode_numbers(array)
    encoding = again(chosen.encoding)
    data = pa.py_buffer(b"")
    assert encoding.has_payload == (chosen.payload is not None)
    if chosen.payload is not None:
        data = pa.py_buffer(chosen.payload.tobytes())
        assert data.size <= 8 * len(values)
    assert read_numbers(encoding, data, len(values), 64, "numbers", HERE).tolist() == values


IRREGULAR: list[int] = np.random.default_rng(0).integers(0, 4, 1200).tolist()


def _word(value: int, bits: int) -> Constant:
    return Constant(value.to_bytes(bits // 8, "little"))


@pytest.mark.spec("numbers-2", "choice-4")
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Constant(b"")),
        ([9] * 5, Constant((9).to_bytes(8, "little"))),
        ([9], Constant((9).to_bytes(8, "little"))),
        ([4, 7, 10], Range(64, 4, 3)),
        ([2**64 - 1, 0], Flat(64)),
        ([1, 2], Range(64, 1, 1)),
        (IRREGULAR, OutOfLineBitpacking(64, 2)),
        ([1, 2, 4, 7, 11], Delta(64, 1, Range(64, 1, 1))),
        ([3] * 200 + [4] * 200 + [5] * 200, NestedRuns(Range(64, 3, 1), _word(200, 32))),
        ([1] * 90 + [7] * 200 + [2] * 200, NestedRuns(Flat(64), Flat(32))),
        (
            [10 * number for number in IRREGULAR],
            Dictionary(OutOfLineBitpacking(32, 2), Range(64, 0, 10), 4),
        ),
        ([3, 1, 2] * 4000, General("zstd", Flat(64), None)),
        (list(np.cumsum(np.arange(1000) % 37)), Delta(64, 0, OutOfLineBitpacking(64, 6))),
    ],
    ids=[
        *("none", "one number", "one", "a range", "wrapping", "two", "small", "growing steps"),
        *("equal runs", "runs", "few distinct", "repeating", "growing"),
    ],
)
def test_the_fewest_bytes_are_chosen(values: list[int], expected: ValueEncoding) -> None:
    encoding, payload = encode_numbers(np.array(values, np.uint64))
    assert encoding == expected
    data = pa.py_buffer(b"" if payload is None else payload.tobytes())
    assert read_numbers(encoding, data, len(values), 64, "numbers", HERE).tolist() == values


@pytest.mark.spec("dict-3")
@pytest.mark.parametrize("indices", [Flat(32), Range(32, 0, 1), Constant(bytes(4))], ids=str)
@pytest.mark.parametrize("items", [Flat(64), Range(64, 5, 2)], ids=str)
def test_dictionaries_of_numbers(indices: ValueEncoding, items: ValueEncoding) -> None:
    encoding = again(Dictionary(indices, items, 3))
    assert encoding.has_payload == (indices.has_payload or items.has_payload)
    numbers = {Flat(32): [2, 0, 1], Range(32, 0, 1): [0, 1, 2]}.get(indices, [0, 0, 0])  # type: ignore[call-overload]  # frozen, so it can be looked up
    block = blocks.Dictionary(of(numbers, 32), of([5, 7, 9]), 3)
    counts = np.array([3])
    encoded = encoding.encode_blocks(block, counts)
    data = pa.py_buffer(encoded.data.tobytes())
    assert bool(data.size) == encoding.has_payload
    decoded = read_numbers(encoding, data, 3, 64, "numbers", HERE)
    assert decoded.tolist() == [[5, 7, 9][at] for at in numbers]


# --- runs -----------------------------------------------------------------------------------

PARTS: dict[str, tuple[ValueEncoding, ValueEncoding]] = {
    "wide lengths": (Flat(32), Flat(16)),
    "wider lengths": (Flat(64), Flat(32)),
    "compressed": (General("zstd", Flat(16)), General("lz4", Flat(8))),
    "packed values": (OutOfLineBitpacking(32, 9), Flat(8)),
    "packed lengths": (Flat(32), OutOfLineBitpacking(8, 6)),
    "packed and compressed": (OutOfLineBitpacking(16, 9), General("zstd", Flat(8))),
    "inline": (InlineBitpacking(64), Flat(16)),
}


def runs_of(values: ValueEncoding, lengths: ValueEncoding, chunks: list[Any]) -> MiniChunks:
    """Chunks of ``(value, length)`` pairs, laid out as a page does."""
    counts = np.array([len(chunk) for chunk in chunks], np.int64)
    parts = []
    for at, encoding in enumerate((values, lengths)):
        flat = [pair[at] for chunk in chunks for pair in chunk]
        parts.append(encoding.encode_blocks(of(flat, encoding.number_bits or 0), counts))
    data = pa.py_buffer(b"".join(part.data.tobytes() for part in parts))
    starts = tuple(np.cumsum(part.sizes) - part.sizes for part in parts)
    starts = (starts[0], starts[1] + len(parts[0].data))
    totals = np.array([sum(length for _, length in chunk) for chunk in chunks], np.int64)
    return MiniChunks(data, starts, tuple(part.sizes for part in parts), totals, HERE)


@pytest.mark.spec("rle-5", "rle-6")
@pytest.mark.parametrize("name", PARTS)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60)), min_size=1, max_size=20),
        min_size=1,
        max_size=3,
    )
)
def test_runs_of_nested_parts(name: str, chunks: list[list[tuple[int, int]]]) -> None:
    values, lengths = PARTS[name]
    encoding = again(NestedRuns(values, lengths))
    assert encoding == NestedRuns(values, lengths)
    stored = runs_of(values, lengths, chunks)
    expected = [value for chunk in chunks for value, length in chunk for _ in range(length)]
    bits = values.number_bits or 0
    block = encoding.decode_mini(stored)
    assert numbers_of(block, bits, len(expected), "runs", HERE).tolist() == expected
    last = len(chunks) - 1
    taken = encoding.take_mini(stored, np.array([last, 0]), np.array([0, 0]))
    first, again_first = chunks[last][0][0], chunks[0][0][0]
    assert numbers_of(taken, bits, 2, "runs", HERE).tolist() == [first, again_first]


@pytest.mark.spec("rle-5")
def test_lengths_that_do_not_add_up_are_damage() -> None:
    encoding = NestedRuns(Flat(32), Flat(16))
    stored = runs_of(Flat(32), Flat(16), [[(1, 5), (2, 6)]])
    for counts in ([10], [12], [1], [0]):
        stored.counts = np.array(counts)
        with pytest.raises(CorruptFileError, match="runs of a chunk"):
            encoding.decode_mini(stored)
    short = (stored.sizes[0] - 4, stored.sizes[1])
    stored = MiniChunks(stored.data, stored.starts, short, np.array([11]), HERE)
    with pytest.raises(CorruptFileError, match="runs of a chunk"):
        encoding.decode_mini(stored)
    with pytest.raises(UnsupportedFeatureError, match="number of runs"):
        NestedRuns.of(OutOfLineBitpacking(32, 3), InlineBitpacking(8), HERE)


@pytest.mark.spec("rle-4", "rle-5")
def test_runs_as_a_block() -> None:
    parts = [[(7, 300), (8, 2)], [(9, 1)]]
    stored = b""
    sizes = []
    for part in parts:
        values = b"".join(value.to_bytes(2, "little") for value, _ in part)
        lengths = b"".join(length.to_bytes(2, "little") for _, length in part)
        sizes.append(8 + len(values) + len(lengths))
        stored += len(values).to_bytes(8, "little") + values + lengths
    starts = np.cumsum(sizes) - sizes
    block = NestedRuns(Flat(16), Flat(16)).decode_blocks(
        pa.py_buffer(stored), starts, np.array(sizes), np.array([302, 1]), HERE
    )
    numbers = numbers_of(block, 16, 303, "runs", HERE).tolist()
    assert numbers == [7] * 300 + [8, 8, 9]


@pytest.mark.spec("rle-5", "rle-6", "rle-7", "numbers-2")
@pytest.mark.parametrize(
    ("values", "lengths", "expected"),
    [
        (Range(64, 2, 1), Range(32, 2, 1), [2, 2, 3, 3, 3]),
        (Range(64, 2, 1), _word(1000, 32), [at for at in range(2, 102) for _ in range(1000)]),
        (Range(64, 5, 1), Delta(32, 1, Range(32, 1, 1)), [5, 6, 6, 7, 7, 7, 7]),
        (OutOfLineBitpacking(64, 3), Range(32, 1, 2), [5, 1, 1, 1]),
    ],
    ids=["ranges", "equal lengths", "growing lengths", "packed values"],
)
def test_lengths_that_messages_tell(
    values: ValueEncoding, lengths: ValueEncoding, expected: list[int]
) -> None:
    """The number of runs follows from their sum."""
    encoding = again(NestedRuns.of(values, lengths, HERE))
    counts = np.array([len(expected)])
    encoded = encoding.encode_blocks(of(expected), counts)
    assert bool(len(encoded.data)) == encoding.has_payload
    data = pa.py_buffer(encoded.data.tobytes())
    assert read_numbers(encoding, data, len(expected), 64, "numbers", HERE).tolist() == expected
    with pytest.raises(CorruptFileError, match="runs of a chunk"):
        read_numbers(encoding, data, len(expected) - 1, 64, "numbers", HERE)
    nothing = NestedRuns.of(values, _word(0, 32), HERE)
    with pytest.raises(CorruptFileError):
        read_numbers(nothing, data, len(expected), 64, "numbers", HERE)


# --- strings --------------------------------------------------------------------------------


def strings(block: Block) -> list[bytes]:
    assert isinstance(block, blocks.Variable)
    ends = np.frombuffer(block.offsets, f"<i{block.offset_bits // 8}", block.count + 1)
    raw = block.data.to_pybytes()
    return [raw[a:b] for a, b in pairwise(ends.tolist())]


@pytest.mark.spec("var-6", "var-7")
@given(
    st.lists(st.lists(st.binary(max_size=6), min_size=1, max_size=12), min_size=1, max_size=3),
    st.sampled_from([(32, Flat(32)), (64, Delta(64, 0, Flat(64))), (32, InlineBitpacking(32))]),
    st.data(),
)
def test_strings_with_encoded_offsets(
    chunks: list[list[bytes]], form: tuple[int, ValueEncoding], data: st.DataObject
) -> None:
    bits, offsets = form
    ends = [[0, *np.cumsum([len(values) for values in chunk]).tolist()] for chunk in chunks]
    counts = np.array([len(chunk) for chunk in chunks])
    flat = [end for each in ends for end in each]
    heads = offsets.encode_blocks(of(flat, bits), counts + 1)
    raw = b"".join(b"".join(chunk) + b"pad" for chunk in chunks)
    sizes = np.array([sum(map(len, chunk)) + 3 for chunk in chunks])
    starts = (np.cumsum(heads.sizes) - heads.sizes, len(heads.data) + np.cumsum(sizes) - sizes)
    buffer = pa.py_buffer(heads.data.tobytes() + raw)
    stored = MiniChunks(buffer, starts, (heads.sizes, sizes), counts, HERE)
    encoding = SplitStrings(bits, offsets)
    assert encoding.num_buffers == 2
    assert strings(encoding.decode_mini(stored)) == [string for chunk in chunks for string in chunk]
    positions = st.tuples(st.integers(0, len(chunks) - 1), st.integers(0, 11))
    wanted = [
        (chunk, index % len(chunks[chunk])) for chunk, index in data.draw(st.lists(positions))
    ]
    chunk = np.array([chunk for chunk, _ in wanted], np.int64)
    index = np.array([index for _, index in wanted], np.int64)
    taken = strings(encoding.take_mini(stored, chunk, index))
    assert taken == [chunks[a][b] for a, b in wanted]


@pytest.mark.spec("var-6", "var-7")
@pytest.mark.parametrize("offsets", [[1, 2, 3], [0, 2, 1], [0, 1, 9]], ids=str)
def test_offsets_that_leave_the_bytes_are_damage(offsets: list[int]) -> None:
    head = np.array(offsets, "<u4").tobytes()
    stored = MiniChunks(
        pa.py_buffer(head + b"abc"),
        (np.array([0]), np.array([12])),
        (np.array([12]), np.array([3])),
        np.array([2]),
        HERE,
    )
    with pytest.raises(CorruptFileError, match="offsets of a mini-block chunk"):
        SplitStrings(32, Flat(32)).decode_mini(stored)


@pytest.mark.spec("rel-24")
def test_split_strings_of_chunks_that_overlap_are_damage() -> None:
    """Each value was copied; one that is asked for several times is."""
    count = 9
    buffer = pa.py_buffer(np.array([0, 8], "<u4").tobytes() + b"abcdefgh")
    zeros, sizes = np.zeros(count, np.int64), np.full(count, 8)
    stored = MiniChunks(buffer, (zeros, sizes), (sizes, sizes), zeros + 1, HERE)
    encoding = SplitStrings(32, Flat(32))
    assert strings(encoding.take_mini(stored, zeros, zeros)) == [b"abcdefgh"] * count
    with pytest.raises(CorruptFileError, match="72 bytes in 9 rows"):
        encoding.take_mini(stored, np.arange(count), zeros)


@pytest.mark.spec("var-6", "var-7")
def test_values_of_one_length_need_no_offsets() -> None:
    encoding = SplitStrings(32, Range(32, 0, 2))
    assert encoding.num_buffers == 1
    assert again(encoding) == encoding
    chunks = MiniChunks(
        pa.py_buffer(b"abcdef"), (np.array([0, 4]),), (np.array([4, 2]),), np.array([2, 1]), HERE
    )
    assert strings(encoding.decode_mini(chunks)) == [b"ab", b"cd", b"ef"]
    assert strings(encoding.take_mini(chunks, np.array([1, 0]), np.array([0, 1]))) == [b"ef", b"cd"]
    chunks.sizes = (np.array([4, 1]),)
    with pytest.raises(CorruptFileError, match="offsets of a mini-block chunk"):
        encoding.decode_mini(chunks)
