"""Variable, FSST and dictionary encodings, and how text chooses between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, FixedWidth
from glaive.arrow.build import expand
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.sequences import Dictionary
from glaive.encodings.values.variable import Variable
from glaive.encodings.writing.string_stats import (
    VariableStats,
    build_dictionary,
    dictionary_bytes,
    sample_distinct,
)
from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.fsst import SymbolTable
from glaive.types import Where

from .pages import laid_out

HERE = Where("test.lance")
TABLE = SymbolTable((b"the ", b"an", b"tion", b"\xffabc"))
PLAIN = [Variable(32), Variable(64)]
FSST = [Fsst(TABLE, Variable(32)), Fsst(TABLE, Variable(64))]
OFF = Fsst(SymbolTable((), encoded=False), Variable(32))

strings = st.lists(
    st.one_of(st.binary(max_size=10), st.text(max_size=30).map(str.encode)), max_size=80
)


def of(values: Sequence[bytes], bits: int = 32) -> blocks.Variable:
    ends = np.cumsum([0, *map(len, values)])
    offsets = pa.py_buffer(ends.astype(f"<i{bits // 8}"))
    return blocks.Variable(offsets, bits, pa.py_buffer(b"".join(values)), len(values))


def values(block: Block) -> list[bytes]:
    assert isinstance(block, blocks.Variable)
    ends = np.frombuffer(block.offsets, f"<i{block.offset_bits // 8}")[: block.count + 1]
    data = block.data.to_pybytes()
    return [data[a:b] for a, b in pairwise(ends)]


@given(strings, st.sampled_from([*PLAIN, *FSST, OFF]), st.data())
def test_text_survives_a_mini_block_page(
    given_values: list[bytes], encoding: ValueEncoding, data: st.DataObject
) -> None:
    stored = laid_out(encoding.encode_mini(of(given_values)), HERE)
    assert values(encoding.decode_mini(stored)) == given_values
    if not given_values:
        return
    rows = np.array(data.draw(st.lists(st.integers(0, len(given_values) - 1), max_size=20)), int)
    before = np.cumsum(stored.counts) - stored.counts
    chunk = np.searchsorted(before, rows, side="right") - 1
    taken = encoding.take_mini(stored, chunk, rows - before[chunk])
    assert values(taken) == [given_values[row] for row in rows]


@given(strings, st.sampled_from([*PLAIN, *FSST, OFF]))
@pytest.mark.spec("var-4")
def test_text_survives_a_full_zip_page(given_values: list[bytes], encoding: ValueEncoding) -> None:
    stored = encoding.encode_values(of(given_values))
    assert values(encoding.decode_values(stored, HERE)) == given_values


@given(st.lists(strings, max_size=3), st.sampled_from(PLAIN))
@pytest.mark.spec("var-3")
def test_text_survives_blocks(groups: list[list[bytes]], encoding: Variable) -> None:
    everything = [value for group in groups for value in group]
    counts = np.array([len(group) for group in groups], np.int64)
    encoded = encoding.encode_blocks(of(everything), counts)
    starts = np.cumsum(encoded.sizes) - encoded.sizes
    data = pa.py_buffer(encoded.data)
    assert values(encoding.decode_blocks(data, starts, encoded.sizes, counts, HERE)) == everything


@pytest.mark.parametrize(
    "encoding", [*PLAIN, *FSST, OFF, Dictionary(Flat(32), Variable(32), 3)], ids=str
)
@pytest.mark.spec("fsst-5")
def test_encodings_come_back_from_the_wire(encoding: ValueEncoding) -> None:
    assert read_encoding(encoding.to_wire(), HERE) == encoding


def test_offsets_of_other_widths_are_refused() -> None:
    flat = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=16))
    with pytest.raises(CorruptFileError, match="32 or 64 bits"):
        Variable.from_wire(pb.Variable(offsets=flat), HERE)
    packed = pb.InlineBitpacking(uncompressed_bits_per_value=16)
    with pytest.raises(CorruptFileError, match="32 or 64 bits"):
        Variable.from_wire(
            pb.Variable(offsets=pb.CompressiveEncoding(inline_bitpacking=packed)), HERE
        )
    with pytest.raises(UnsupportedFeatureError, match="newer Lance"):
        Variable.from_wire(pb.Variable(offsets=flat, values=pb.BufferCompression()), HERE)


@pytest.mark.parametrize("encoding", [*PLAIN, *FSST], ids=str)
def test_values_of_fixed_width_are_no_text(encoding: ValueEncoding) -> None:
    numbers = FixedWidth(pa.py_buffer(bytes(8)), 32, 2)
    with pytest.raises(SchemaError, match="takes strings or binary"):
        encoding.encode_mini(numbers)
    with pytest.raises(CorruptFileError, match="full-zip page"):
        encoding.decode_values(numbers, HERE)


def test_fsst_does_not_stand_in_a_block() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'fsst' is not allowed in a block"):
        FSST[0].encode_blocks(of([b"a"]), np.array([1]))


@pytest.mark.spec("dict-1")
def test_a_dictionary_block_holds_indices_then_items() -> None:
    encoding = Dictionary(Flat(32), Variable(32), 2)
    indices = FixedWidth(pa.py_buffer(np.array([0, 1, 1], np.uint32)), 32, 3)
    block = blocks.Dictionary(indices, of([b"no", b"yes"]), 3)
    encoded = encoding.encode_blocks(block, np.array([2, 1]))
    assert encoded.data[:16].tobytes() == (8).to_bytes(8, "little") + (25).to_bytes(8, "little")
    starts = np.cumsum(encoded.sizes) - encoded.sizes
    data = pa.py_buffer(encoded.data)
    back = encoding.decode_blocks(data, starts, encoded.sizes, np.array([2, 1]), HERE)
    assert values(expand(back)) == [b"no", b"yes", b"yes"]


@pytest.mark.spec("dict-2")
def test_damaged_dictionary_blocks_are_refused() -> None:
    encoding = Dictionary(Flat(32), Variable(32), 2)
    indices = FixedWidth(pa.py_buffer(np.array([0, 1], np.uint32)), 32, 2)
    block = blocks.Dictionary(indices, of([b"no", b"yes"]), 2)
    encoded = encoding.encode_blocks(block, np.array([2]))
    zero = np.zeros(1, np.int64)
    for at, byte, message in ((0, 9, "dictionary block 0"), (20, 2, "numbers below 2")):
        damaged = encoded.data.copy()
        damaged[at] = byte
        with pytest.raises(CorruptFileError, match=message):
            encoding.decode_blocks(pa.py_buffer(damaged), zero, encoded.sizes, np.array([2]), HERE)
    with pytest.raises(CorruptFileError, match="dictionary block 0"):
        encoding.decode_blocks(pa.py_buffer(bytes(8)), zero, zero + 8, np.array([2]), HERE)
    with pytest.raises(CorruptFileError, match="1 or more"):
        Dictionary.from_wire(pb.Dictionary(), HERE)


def test_statistics_describe_the_text() -> None:
    stats = VariableStats.of(of([b"a", b"bbb", b"", b"bbb"]))
    assert (stats.count, stats.data_bytes, stats.longest) == (4, 7, 3)


def repeated(count: int, distinct: int) -> blocks.Variable:
    return of([b"value %06d" % (i % distinct) for i in range(count)])


@pytest.mark.parametrize(
    ("count", "distinct", "pays"),
    [
        (99, 10, False),
        (100, 10, False),
        (200, 10, True),
        (1000, 500, True),
        (1000, 501, False),
        (5000, 4990, False),
    ],
)
def test_a_dictionary_needs_repetition(count: int, distinct: int, *, pays: bool) -> None:
    block = repeated(count, distinct)
    dictionary = build_dictionary(block)
    assert (dictionary is not None) is pays
    if dictionary is not None:
        assert dictionary.items.count == distinct
        assert values(expand(dictionary)) == values(block)


@pytest.mark.parametrize(
    ("distinct", "sampled", "pays"),
    [(300, 1024, True), (9_000, 4096, True), (1_000_000, 4096, False), (10**15, 1024, False)],
)
def test_a_quarter_of_the_sample_may_decide(distinct: int, sampled: int, *, pays: bool) -> None:
    rows = np.random.default_rng(12).integers(0, distinct, 30_000)
    block = of([b"value %016d" % row for row in rows])
    assert sample_distinct(block)[0] == sampled
    assert (build_dictionary(block) is not None) is pays


def test_a_dictionary_needs_few_enough_items_and_bytes() -> None:
    assert build_dictionary(repeated(1000, 300), max_items=299) is None
    assert build_dictionary(repeated(1000, 300), divisor=4) is None
    assert build_dictionary(repeated(1000, 300), size_ratio=0.3) is None
    assert build_dictionary(repeated(1000, 100), size_ratio=0.3) is not None


def test_wide_numbers_have_dictionaries_too() -> None:
    words = np.repeat(np.arange(20, dtype=np.uint64) << 50, 20)
    block = FixedWidth(pa.py_buffer(words), 64, 400)
    dictionary = build_dictionary(block)
    assert dictionary is not None
    assert isinstance(dictionary.items, FixedWidth)
    assert dictionary.items.count == 20
    assert dictionary_bytes(dictionary) == 400 * 5 // 8 + 20 * 8
    taken = np.frombuffer(dictionary.items.values, np.uint64)[
        np.frombuffer(dictionary.indices.values, np.uint32)[:400]
    ]
    np.testing.assert_array_equal(taken, words)


def test_long_repetitive_text_proposes_fsst() -> None:
    text = of([b"the nation of station number %d and the others" % i for i in range(2000)])
    stats = VariableStats.of(text)
    plain, fsst = Variable.propose(stats), Fsst.propose(stats)
    assert plain is not None
    assert fsst is not None
    size, encoding = fsst
    assert size < 0.6 * plain[0]
    stored = encoding.encode_mini(text)
    assert abs(int(stored.sizes[0].sum()) - size) < 0.1 * size
    assert values(encoding.decode_mini(laid_out(stored, HERE))) == values(text)


@pytest.mark.parametrize(
    "text",
    [
        [b"abcd"] * 20_000,
        [b"the nation"] * 100,
        [row.tobytes() for row in np.random.default_rng(1).integers(0, 256, (3000, 30), np.uint8)],
    ],
    ids=["short values", "few bytes", "noise"],
)
def test_text_that_gains_nothing_stays_plain(text: list[bytes]) -> None:
    assert Fsst.propose(VariableStats.of(of(text))) is None
