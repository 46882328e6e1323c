"""Mini-block pages: written, read in ranges, rows taken, and refused when damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Dictionary, FixedWidth
from glaive.encodings.limits import level_limits
from glaive.encodings.miniblock_writer import encode_mini_page
from glaive.encodings.protocol import (
    EncodedChunks,
    EncodedPage,
    Fetch,
    Layer,
    Leaf,
    PageBytes,
    PageReader,
    ValueEncoding,
)
from glaive.encodings.registry import open_page, read_encoding
from glaive.errors import CorruptFileError, RowIndexError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels._tier import Tier, force_tier
from glaive.types import ByteRange, Where

HERE = Where("test.lance", 0, "c", 0)
FLAT = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=64))

ITEM, NULLABLE = Layer.ALL_VALID_ITEM, Layer.NULLABLE_ITEM
LIST, NULL_LIST = Layer.ALL_VALID_LIST, Layer.NULLABLE_LIST
EMPTY_LIST, ANY_LIST = Layer.EMPTYABLE_LIST, Layer.NULL_AND_EMPTY_LIST

LAYERS = [
    (ITEM,),
    (NULLABLE,),
    (NULLABLE, NULLABLE),
    (ITEM, LIST),
    (NULLABLE, LIST),
    (ITEM, EMPTY_LIST),
    (NULLABLE, ANY_LIST),
    (NULLABLE, NULLABLE, ANY_LIST, NULLABLE),
    (NULLABLE, ANY_LIST, NULL_LIST),
    (ITEM, ANY_LIST, ITEM, ANY_LIST, NULLABLE),
]

Entry = tuple[int, int, int | None]


@dataclass
class Storage:
    """Bytes that pages lie in; counts what is asked of it."""

    data: bytes = b""
    requests: list[list[ByteRange]] = field(default_factory=list)

    def open(self, page: EncodedPage, *, mapped: bool) -> PageReader:
        ranges = []
        for buffer in page.buffers:
            self.data += bytes(-len(self.data) % 64)
            raw = bytes(memoryview(buffer))
            ranges.append(ByteRange(len(self.data), len(raw)))
            self.data += raw
        at_hand = [self.view(part) for part in ranges] if mapped else None
        return open_page(page.layout, PageBytes(tuple(ranges), at_hand, page.rows, HERE))

    def view(self, part: ByteRange) -> pa.Buffer:
        return pa.py_buffer(self.data[part.offset : part.end])

    def drive(self, step: Fetch[Leaf] | Leaf) -> Leaf:
        while isinstance(step, Fetch):
            self.requests.append(list(step.ranges))
            step = step.resume([self.view(part) for part in step.ranges])
        return step


@dataclass(frozen=True)
class Chopped(ValueEncoding):
    """Flat 64-bit values in chunks of a given size."""

    chunk: int

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Chopped:
        raise NotImplementedError

    def to_wire(self) -> pb.CompressiveEncoding:
        return FLAT

    def encode_mini(self, block: Block) -> EncodedChunks:
        assert isinstance(block, FixedWidth)
        full, rest = divmod(block.count - 1, self.chunk)
        counts = np.array([*[self.chunk] * full, rest + 1])
        data = np.frombuffer(block.values, np.uint8)
        return EncodedChunks((data,), (counts * 8,), counts)


@dataclass
class Sample:
    layers: tuple[Layer, ...]
    rep: NDArray[np.uint16] | None
    definition: NDArray[np.uint16] | None
    values: NDArray[np.uint64]
    rows: list[list[Entry]]

    @property
    def block(self) -> FixedWidth:
        return FixedWidth(pa.py_buffer(self.values), 64, len(self.values))


def make_sample(
    layers: tuple[Layer, ...], entries: int, seed: int, spread: float, nulls: float
) -> Sample:
    rng = np.random.default_rng(seed)
    limits = level_limits(layers)
    rep = definition = None
    if limits.max_rep:
        rep = np.where(
            rng.random(entries) < spread, rng.integers(0, limits.max_rep + 1, entries), 0
        )
        rep[0] = limits.max_rep
        rep = rep.astype(np.uint16)
    if limits.max_def:
        chosen = rng.integers(0, limits.max_def + 1, entries)
        definition = np.where(rng.random(entries) < nulls, chosen, 0).astype(np.uint16)
        definition[rng.integers(entries)] = 0
    visible = np.ones(entries, np.bool_)
    if definition is not None:
        visible = definition <= limits.visible_def
    values = rng.integers(0, 2**63, int(visible.sum()), np.uint64)
    rows: list[list[Entry]] = []
    taken = iter(values.tolist())
    for at in range(entries):
        r = 0 if rep is None else int(rep[at])
        if rep is None or r == limits.max_rep:
            rows.append([])
        level = 0 if definition is None else int(definition[at])
        rows[-1].append((r, level, next(taken) if visible[at] else None))
    return Sample(layers, rep, definition, values, rows)


SAMPLES = st.builds(
    make_sample,
    st.sampled_from(LAYERS),
    st.integers(1, 3000),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.003, 0.2, 1.0]),
    st.sampled_from([0.0, 0.05, 0.9]),
)


def write(sample: Sample, encoding: ValueEncoding, *, large: bool) -> EncodedPage:
    page = encode_mini_page(
        sample.block,
        encoding,
        sample.rep,
        sample.definition,
        sample.layers,
        len(sample.rows),
        large_chunks=large,
        level_runs=large,
    )
    assert page is not None
    return page


def entries_of(leaf: Leaf) -> list[Entry]:
    definition = leaf.definition
    if leaf.validity is not None:
        assert definition is None
        bits = np.unpackbits(np.frombuffer(leaf.validity, np.uint8), bitorder="little")
        definition = 1 - bits[: leaf.entries].astype(np.uint16)
        assert leaf.null_count == definition.sum()
    if definition is None:
        definition = np.zeros(leaf.entries, np.uint16)
    rep = leaf.rep if leaf.rep is not None else np.zeros(leaf.entries, np.uint16)
    assert len(definition) == len(rep) == leaf.entries
    visible = definition <= level_limits(leaf.layers).visible_def
    values: list[int] = []
    if leaf.values is not None:
        assert leaf.values.count == visible.sum()
        values = numbers(leaf.values)
    taken = iter(values)
    return [
        (int(r), int(d), next(taken) if seen else None)
        for r, d, seen in zip(rep, definition, visible, strict=True)
    ]


def numbers(block: Block) -> list[int]:
    if isinstance(block, Dictionary):
        items = numbers(block.items)
        return [items[index] for index in numbers(block.indices)]
    assert isinstance(block, FixedWidth)
    return np.frombuffer(block.values, f"<u{block.bits // 8}", block.count).tolist()


def flatten(rows: list[list[Entry]]) -> list[Entry]:
    return [entry for row in rows for entry in row]


@given(
    SAMPLES, st.integers(1, 12), st.booleans(), st.booleans(), st.sampled_from(["numpy", "numba"]),
    st.data(),
)  # fmt: skip
@settings(max_examples=60)
def test_what_is_written_reads_back_in_any_range_and_order(
    sample: Sample, log: int, large: bool, mapped: bool, tier: Tier, data: st.DataObject
) -> None:
    storage = Storage()
    with force_tier(tier):
        page = storage.open(write(sample, Chopped(1 << log), large=large), mapped=mapped)
        count = len(sample.rows)
        assert entries_of(storage.drive(page.read(0, count))) == flatten(sample.rows)
        for _ in range(3):
            start = data.draw(st.integers(0, count))
            stop = data.draw(st.integers(start, count))
            leaf = storage.drive(page.read(start, stop))
            assert leaf.rows == stop - start
            assert leaf.layers == sample.layers
            assert entries_of(leaf) == flatten(sample.rows[start:stop])
        picked = data.draw(st.lists(st.integers(0, count - 1), max_size=30))
        for rows in (picked, picked[:1], sorted(picked)):
            leaf = storage.drive(page.take(np.array(rows, np.int64)))
            assert leaf.rows == len(rows)
            assert entries_of(leaf) == flatten([sample.rows[row] for row in rows])


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
            "06000c000c000800010000000100010001000000fefefefe"
            "000000000200030000000100fefefefe0100020003000000",
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
            "06000c000c0008000000fefefefefefe010000000100010001000000fefefefe"
            "000000000200030000000100fefefefe0100020003000000",
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


@pytest.mark.spec("mb-1", "mb-7", "mb-9", "mb-10", "mb-11")
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
    leaf = storage.drive(page.read(0, rows))
    assert entries_of(leaf) == flatten(expected)
    for row in range(0, rows, 60):
        taken = storage.drive(page.take(np.array([row], np.int64)))
        assert entries_of(taken) == expected[row]

    definition = leaf.definition
    if leaf.validity is not None:
        levels = [level for _, level, _ in flatten(expected)]
        definition = np.array(levels, np.uint16)
    assert leaf.values is not None
    again = encode_mini_page(
        leaf.values,
        read_encoding(mini.value_compression, HERE),
        leaf.rep,
        definition,
        leaf.layers,
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
        None,
        None,
        (ITEM,),
        len(values),
        dictionary=(FixedWidth(pa.py_buffer(table), 64, items), read_encoding(FLAT, HERE)),
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
    leaf = storage.drive(page.take(np.array([4999], np.int64)))
    assert isinstance(leaf.values, Dictionary)
    assert numbers(leaf.values) == [1000 + 4999 % 7]
    whole = storage.drive(page.read(0, 5000))
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


def flat_page(rows: int) -> EncodedPage:
    return write(make_sample((NULLABLE,), rows, 7, 0, 0.1), Chopped(512), large=True)


def test_a_small_page_costs_one_request() -> None:
    storage = Storage()
    page = storage.open(flat_page(4000), mapped=False)
    storage.drive(page.read(7, 8))
    assert len(storage.requests) == 1
    assert sum(part.size for part in storage.requests[0]) <= 65536


def test_a_page_that_is_read_whole_costs_one_request() -> None:
    storage = Storage()
    page = storage.open(flat_page(100_000), mapped=False)
    storage.drive(page.read(0, 100_000))
    assert len(storage.requests) == 1


def test_a_large_page_gives_its_table_first_and_keeps_it() -> None:
    storage = Storage()
    page = storage.open(flat_page(100_000), mapped=False)
    storage.drive(page.take(np.array([70_000, 10, 70_500])))
    storage.drive(page.take(np.array([50_000])))
    table, *chunks = storage.requests
    assert [part.size for part in table] == [196 * 4]
    # Rows 70,000 and 70,500 lie in neighbouring chunks: one range.
    assert [len(ranges) for ranges in chunks] == [2, 1]
    assert sum(part.size for part in chunks[1]) < 5000


def test_nothing_is_fetched_of_a_mapped_page() -> None:
    page = Storage().open(flat_page(100_000), mapped=True)
    assert isinstance(page.read(5, 99_000), Leaf)
    assert isinstance(page.take(np.array([5, 99_000])), Leaf)


# ------------------------------------------------------------------ limits of the layout


def test_more_levels_than_a_chunk_can_count_are_not_written() -> None:
    definition = np.full(66_000, 2, np.uint16)
    rep = np.ones(66_000, np.uint16)
    definition[0] = 0
    values = FixedWidth(pa.py_buffer(bytes(8)), 64, 1)
    layers = (ITEM, ANY_LIST)
    for large in (False, True):
        assert (
            encode_mini_page(
                values, Chopped(4), rep, definition, layers, 66_000,
                large_chunks=large, level_runs=large,
            )
            is None
        )  # fmt: skip


def test_chunks_over_32_kib_are_written_in_large_chunks_only() -> None:
    sample = make_sample((ITEM,), 8192, 1, 0, 0)
    assert (
        encode_mini_page(
            sample.block, Chopped(4096), None, None, (ITEM,), 8192,
            large_chunks=False, level_runs=False,
        )
        is None
    )  # fmt: skip
    storage = Storage()
    page = storage.open(write(sample, Chopped(4096), large=True), mapped=True)
    assert entries_of(storage.drive(page.read(0, 8192))) == flatten(sample.rows)


def test_rows_beyond_the_page_are_refused() -> None:
    page = Storage().open(flat_page(100), mapped=True)
    for rows in ([100], [-1], [3, 100], [-1, 3]):
        with pytest.raises(RowIndexError, match="of a page with 100 rows"):
            page.take(np.array(rows))
    with pytest.raises(RowIndexError, match=r"rows 0\.\.101"):
        page.read(0, 101)


# ------------------------------------------------------------------ damage


def rewritten(page: EncodedPage, **fields: Any) -> EncodedPage:
    layout = pb.PageLayout()
    layout.CopyFrom(page.layout)
    for name, value in fields.items():
        if name == "layers":
            del layout.mini_block_layout.layers[:]
            layout.mini_block_layout.layers.extend(value)
        elif value is None:
            layout.mini_block_layout.ClearField(name)  # type: ignore[arg-type]  # a field name
        else:
            setattr(layout.mini_block_layout, name, value)
    return EncodedPage(layout, page.buffers, page.rows)


@pytest.mark.spec("mb-9", "rep-3")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_buffers": 2}, "num_buffers.*expected 1"),
        ({"num_buffers": 2**60}, "num_buffers.*expected 1"),
        ({"num_items": 99}, "expected 100, one per row, found 99"),
        ({"layers": []}, "layers"),
        ({"layers": [9]}, "layers"),
        ({"layers": [3, 4]}, "levels for 1 list layers, found none"),
        ({"repetition_index_depth": 1}, "depth 0 for 0 list layers"),
        ({"value_compression": None}, "value encoding"),
        ({"def_compression": None}, "header|within"),
        ({"has_large_chunk": False}, "chunk"),
    ],
)
def test_a_layout_that_contradicts_itself_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        page = Storage().open(rewritten(flat_page(100), **fields), mapped=True)
        page.read(0, 100)


def test_a_deeper_repetition_index_is_refused_as_newer() -> None:
    sample = make_sample((ITEM, LIST), 50, 3, 0.2, 0)
    page = rewritten(write(sample, Chopped(8), large=True), repetition_index_depth=2)
    with pytest.raises(UnsupportedFeatureError, match="depth 2"):
        Storage().open(page, mapped=True)


def test_a_missing_buffer_is_refused() -> None:
    page = flat_page(100)
    page.buffers.pop()
    with pytest.raises(CorruptFileError, match="expected 2, found 1"):
        Storage().open(page, mapped=True)


@given(
    st.sampled_from(LAYERS), st.integers(1, 400), st.integers(1, 6), st.booleans(), st.data()
)  # fmt: skip
@settings(max_examples=120)
def test_damaged_bytes_end_in_an_error_or_in_other_values(
    layers: tuple[Layer, ...], entries: int, log: int, large: bool, data: st.DataObject
) -> None:
    sample = make_sample(layers, entries, 5, 0.3, 0.3)
    page = write(sample, Chopped(1 << log), large=large)
    which = data.draw(st.integers(0, len(page.buffers) - 1))
    raw = bytearray(memoryview(page.buffers[which]))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    page.buffers[which] = bytes(raw)
    storage = Storage()
    reader = storage.open(page, mapped=True)
    rows = len(sample.rows)
    for step in (
        lambda: reader.read(0, rows),
        lambda: reader.read(rows // 3, rows // 2),
        lambda: reader.take(np.array([rows - 1, 0, rows // 2])),
        lambda: reader.take(np.array([rows // 2])),
    ):
        try:
            leaf = storage.drive(step())
        except CorruptFileError:
            continue
        assert leaf.entries == len(entries_of(leaf))
