"""Mini-block pages: written, read in ranges, rows taken, with few requests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.encodings.pages.mini_samples import (
    HERE,
    ITEM,
    LAYERS,
    NULLABLE,
    SAMPLES,
    Chopped,
    Entry,
    Sample,
    Storage,
    entries_of,
    flat_page,
    flatten,
    make_sample,
    numbers,
    write,
)
from tests.kernels.tiers import force_tier

from glaive.arrow.blocks import Dictionary, FixedWidth
from glaive.encodings.levels import Layer, Leaf, Levels, level_limits
from glaive.encodings.miniblock.writer import EncodedItems, encode_mini_page
from glaive.encodings.protocol import EncodedPage
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb


@given(
    SAMPLES, st.integers(1, 12), st.booleans(), st.booleans(), st.data(),
)  # fmt: skip
@settings(max_examples=60)
def test_what_is_written_reads_back_in_any_range_and_order(
    sample: Sample, log: int, large: bool, mapped: bool, data: st.DataObject
) -> None:
    storage = Storage()
    page = storage.open(write(sample, Chopped(1 << log), large=large), mapped=mapped)
    count = len(sample.rows)
    assert entries_of(storage.run_fetch(page.read(0, count))) == flatten(sample.rows)
    for _ in range(3):
        start = data.draw(st.integers(0, count))
        stop = data.draw(st.integers(start, count))
        leaf = storage.run_fetch(page.read(start, stop))
        assert leaf.rows == stop - start
        assert leaf.layers == sample.layers
        assert entries_of(leaf) == flatten(sample.rows[start:stop])
    selected = data.draw(st.lists(st.integers(0, count - 1), max_size=30))
    for rows in (selected, selected[:1], sorted(selected)):
        leaf = storage.run_fetch(page.take(np.array(rows, np.int64)))
        assert leaf.rows == len(rows)
        assert entries_of(leaf) == flatten([sample.rows[row] for row in rows])


@pytest.mark.parametrize("layers", [one for one in LAYERS if sum(at.is_list for at in one) == 1])
def test_lists_in_any_order_are_taken_with_their_structs(layers: tuple[Layer, ...]) -> None:
    sample = make_sample(layers, 2000, 5, 0.2, 0.1)
    page = Storage().open(write(sample, Chopped(64), large=False), mapped=True)
    rows = np.random.default_rng(1).integers(0, len(sample.rows), 300)
    for chosen in (rows, np.sort(rows), rows[:1]):
        leaf = page.take(chosen)
        assert isinstance(leaf, Leaf)
        assert entries_of(leaf) == flatten([sample.rows[row] for row in chosen.tolist()])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("entries", [1, 64, 1024, 1025, 1088, 1089, 2047, 2048, 3000])
@pytest.mark.parametrize("chunk", [1024, 4096])
def test_every_single_row_of_a_nullable_page_can_be_taken(entries: int, chunk: int) -> None:
    sample = make_sample((NULLABLE,), entries, entries, 0, 0.4)
    page = Storage().open(write(sample, Chopped(chunk), large=False), mapped=True)
    for row in range(entries):
        leaf = page.take(np.array([row]))
        assert isinstance(leaf, Leaf)
        assert entries_of(leaf) == sample.rows[row]


@given(SAMPLES, st.integers(1, 12), st.booleans())
@settings(max_examples=15)
def test_both_tiers_write_the_same_bytes(sample: Sample, log: int, large: bool) -> None:
    pages = []
    for tier in ("numpy", "numba"):
        with force_tier(tier):
            pages.append(write(sample, Chopped(1 << log), large=large))
    first, second = ([bytes(memoryview(part)) for part in page.buffers] for page in pages)
    assert first == second
    assert pages[0].layout == pages[1].layout


# ------------------------------------------------------------------ vectors of the reference

VECTORS = [
    pytest.param(
        "rep_compression { flat { bits_per_value: 16 } } "
        "def_compression { flat { bits_per_value: 16 } } "
        "value_compression { flat { bits_per_value: 16 } } "
        "layers: REPDEF_NULLABLE_ITEM layers: REPDEF_NULL_AND_EMPTY_LIST "
        "num_buffers: 1 repetition_index_depth: 1 num_items: 4",
        4,
        [
            "5000",
            (
                "06000c000c000800010000000100010001000000fefefefe"
                "000000000200030000000100fefefefe0100020003000000"
            ),
            "04000000000000000000000000000000",
        ],
        [[(1, 0, 1), (0, 0, 2)], [(1, 2, None)], [(1, 3, None)], [(1, 0, 3), (0, 1, 0)]],
        id="list<int16> 2.1",
    ),
    pytest.param(
        "rep_compression { flat { bits_per_value: 16 } } "
        "def_compression { flat { bits_per_value: 16 } } "
        "value_compression { flat { bits_per_value: 16 } } "
        "layers: REPDEF_NULLABLE_ITEM layers: REPDEF_NULL_AND_EMPTY_LIST "
        "num_buffers: 1 repetition_index_depth: 1 num_items: 4 has_large_chunk: true",
        4,
        [
            "60000000",
            (
                "06000c000c0008000000fefefefefefe010000000100010001000000fefefefe"
                "000000000200030000000100fefefefe0100020003000000"
            ),
            "04000000000000000000000000000000",
        ],
        [[(1, 0, 1), (0, 0, 2)], [(1, 2, None)], [(1, 3, None)], [(1, 0, 3), (0, 1, 0)]],
        id="list<int16> 2.2",
    ),
    pytest.param(
        "def_compression { flat { bits_per_value: 16 } } "
        "value_compression { flat { bits_per_value: 8 } } "
        "layers: REPDEF_NULLABLE_ITEM layers: REPDEF_NULLABLE_ITEM num_buffers: 1 num_items: 3",
        3,
        ["2000", "030006000300fefe000002000100fefe010000fefefefefe"],
        [[(0, 0, 1)], [(0, 2, 0)], [(0, 1, 0)]],
        id="struct<int8> 2.1",
    ),
    pytest.param(
        "def_compression { flat { bits_per_value: 16 } } "
        "value_compression { flat { bits_per_value: 32 } } "
        "layers: REPDEF_NULLABLE_ITEM num_buffers: 1 num_items: 3",
        3,
        ["3000", "030006000c00fefe000000000100fefe010000000200000000000000fefefefe"],
        [[(0, 0, 1)], [(0, 0, 2)], [(0, 1, 0)]],
        id="int32 2.1",
    ),
    pytest.param(
        "value_compression { rle { values { flat { bits_per_value: 32 } } "
        "run_lengths { flat { bits_per_value: 8 } } } } "
        "layers: REPDEF_ALL_VALID_ITEM num_buffers: 2 num_items: 500",
        500,
        ["3000", "00000c000300fefe070000000700000009000000fefefefeff2dc8fefefefefe"],
        [*[[(0, 0, 7)]] * 300, *[[(0, 0, 9)]] * 200],
        id="run lengths 2.1",
    ),
]


@pytest.mark.spec("mb-1", "mb-7", "mb-9", "mb-10", "mb-11", "visible-3")
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(("layout", "rows", "buffers", "expected"), VECTORS)
def test_pages_of_the_reference_are_read_and_written_byte_for_byte(
    layout: str, rows: int, buffers: list[str], expected: list[list[Entry]], mapped: bool
) -> None:
    message = pb.PageLayout()
    text_format.Parse(f"mini_block_layout {{ {layout} }}", message)
    mini = message.mini_block_layout
    raw = [bytes.fromhex(text) for text in buffers]
    storage = Storage()
    page = storage.open(EncodedPage(message, list(raw), rows), mapped=mapped)
    leaf = storage.run_fetch(page.read(0, rows))
    assert entries_of(leaf) == flatten(expected)
    for row in range(0, rows, 60):
        taken = storage.run_fetch(page.take(np.array([row], np.int64)))
        assert entries_of(taken) == expected[row]

    rep, definition = leaf.rep, leaf.definition
    levels = np.array([entry[:2] for entry in flatten(expected)], np.uint16).T.copy()
    if leaf.shape is not None:
        limits = level_limits(leaf.layers)
        rep, definition = levels[0], levels[1] if limits.max_def else None
    elif leaf.validity is not None:
        definition = levels[1]
    assert leaf.values is not None
    again = encode_mini_page(
        leaf.values,
        read_encoding(mini.value_compression, HERE),
        Levels(rep, definition, leaf.layers),
        rows,
        large_chunks=mini.has_large_chunk,
        level_runs=mini.has_large_chunk,
    )
    assert again is not None
    assert again.layout == message
    # Placeholders of null values are kept, so even they come out the same.
    assert [bytes(memoryview(part)) for part in again.buffers] == raw


# ------------------------------------------------------------------ dictionaries


def dictionary_page(values: NDArray[np.uint32], items: int) -> EncodedPage:
    indices = FixedWidth(pa.py_buffer(values), 32, len(values))
    table = np.arange(1000, 1000 + items, dtype="<u8")
    page = encode_mini_page(
        indices,
        read_encoding(pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=32)), HERE),
        Levels(None, None, (ITEM,)),
        len(values),
        dictionary=EncodedItems.of(FixedWidth(pa.py_buffer(table), 64, items), Flat(64)),
        large_chunks=True,
        level_runs=True,
    )
    assert page is not None
    return page


@pytest.mark.spec("mb-dict-1")
@pytest.mark.parametrize("mapped", [True, False])
def test_a_dictionary_is_read_once_and_shared(mapped: bool) -> None:
    storage = Storage()
    indices = np.arange(5000, dtype=np.uint32) % 7
    page = storage.open(dictionary_page(indices, 7), mapped=mapped)
    leaf = storage.run_fetch(page.take(np.array([4999], np.int64)))
    assert isinstance(leaf.values, Dictionary)
    assert numbers(leaf.values) == [1000 + 4999 % 7]
    whole = storage.run_fetch(page.read(0, 5000))
    assert isinstance(whole.values, Dictionary)
    assert whole.values.items is leaf.values.items
    assert numbers(whole.values) == [1000 + index for index in indices.tolist()]


@pytest.mark.spec("mb-dict-2")
def test_an_index_beyond_the_dictionary_is_refused() -> None:
    indices = np.zeros(5000, np.uint32)
    indices[3000] = 7
    page = Storage().open(dictionary_page(indices, 7), mapped=True)
    with pytest.raises(CorruptFileError, match="numbers below 7, found index 7"):
        page.read(0, 5000)
    with pytest.raises(CorruptFileError, match="numbers below 7, found index 7"):
        page.take(np.array([3000]))
    with pytest.raises(CorruptFileError, match="numbers below 7, found index 7"):
        page.take(np.array([1, 3000]))
    leaf = page.take(np.array([2999, 3001]))
    assert isinstance(leaf, Leaf)


# ------------------------------------------------------------------ requests


def test_a_small_page_costs_one_request() -> None:
    storage = Storage()
    page = storage.open(flat_page(4000), mapped=False)
    storage.run_fetch(page.read(7, 8))
    assert len(storage.requests) == 1
    assert sum(part.size for part in storage.requests[0]) <= 65536


def test_a_page_that_is_read_whole_costs_one_request() -> None:
    storage = Storage()
    page = storage.open(flat_page(100_000), mapped=False)
    storage.run_fetch(page.read(0, 100_000))
    assert len(storage.requests) == 1


def test_a_large_page_gives_its_table_first_and_keeps_it() -> None:
    storage = Storage()
    page = storage.open(flat_page(100_000), mapped=False)
    storage.run_fetch(page.take(np.array([70_000, 10, 70_500])))
    storage.run_fetch(page.take(np.array([50_000])))
    table, *chunks = storage.requests
    assert [part.size for part in table] == [196 * 4]
    # Rows 70,000 and 70,500 lie in neighbouring chunks: one range.
    assert [len(ranges) for ranges in chunks] == [2, 1]
    assert sum(part.size for part in chunks[1]) < 5000


def test_nothing_is_fetched_of_a_mapped_page() -> None:
    page = Storage().open(flat_page(100_000), mapped=True)
    assert isinstance(page.read(5, 99_000), Leaf)
    assert isinstance(page.take(np.array([5, 99_000])), Leaf)
