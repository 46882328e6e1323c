"""Full-zip pages: values are read by range and by row, from memory or by request."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import FixedList, FixedWidth, Variable
from glaive.encodings.levels import Layer, Leaf, Levels
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, Fetch, PageBytes, PageReader, ValueEncoding
from glaive.encodings.registry import open_page, read_encoding
from glaive.errors import CorruptFileError, FormatError, RowIndexError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import ByteRange, Where

WHERE = Where("a.lance", column=0, page=0)
NULLABLE = (Layer.NULLABLE_ITEM,)
VALID = (Layer.ALL_VALID_ITEM,)
NULLABLE_LISTS = (Layer.NULLABLE_ITEM, Layer.NULL_AND_EMPTY_LIST)


def encoding(message: pb.CompressiveEncoding) -> ValueEncoding:
    return read_encoding(message, WHERE)


def flat(bits: int) -> ValueEncoding:
    return encoding(pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits)))


def variable(bits: int = 32) -> ValueEncoding:
    offsets = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))
    return encoding(pb.CompressiveEncoding(variable=pb.Variable(offsets=offsets)))


def compressed(scheme: int) -> ValueEncoding:
    how = pb.BufferCompression(scheme=pb.CompressionScheme.ValueType(scheme))
    general = pb.General(compression=how, values=variable().to_wire())
    return encoding(pb.CompressiveEncoding(general=general))


class Stored:
    """A page in a file: its buffers one after the other, 64-byte aligned."""

    def __init__(self, page: EncodedPage) -> None:
        raw, ranges = bytearray(b"\x07" * 64), []
        for buffer in page.buffers:
            raw += bytes(-len(raw) % 64)
            parts = buffer if isinstance(buffer, tuple) else (buffer,)
            data = b"".join(memoryview(part) for part in parts)
            ranges.append(ByteRange(len(raw), len(data)))
            raw += data
        self.layout, self.ranges, self.rows = page.layout, tuple(ranges), page.rows
        self.raw = raw
        self.requests: list[list[ByteRange]] = []

    def open(self, *, mapped: bool) -> PageReader:
        file = pa.py_buffer(bytes(self.raw))
        at_hand = [file.slice(*part) for part in self.ranges] if mapped else None
        return open_page(self.layout, PageBytes(self.ranges, at_hand, self.rows, WHERE))

    def run_fetch(self, step: Fetch[Leaf] | Leaf) -> Leaf:
        self.requests = []
        while isinstance(step, Fetch):
            self.requests.append(list(step.ranges))
            file = pa.py_buffer(bytes(self.raw))
            for part in step.ranges:
                assert any(
                    known.offset <= part.offset <= part.end <= known.end for known in self.ranges
                )
            step = step.resume([file.slice(*part) for part in step.ranges])
        return step


Entry = tuple[int, int, Any]


def leaf_entries(leaf: Leaf, limit: int) -> list[Entry]:
    """Turn a leaf back into (rep, def, value or None) per entry."""
    rep = [0] * leaf.entries if leaf.rep is None else leaf.rep.tolist()
    definition = [0] * leaf.entries if leaf.definition is None else leaf.definition.tolist()
    if leaf.validity is not None:
        assert leaf.definition is None
        bits = np.unpackbits(np.frombuffer(leaf.validity, np.uint8), bitorder="little")
        definition = [1 - int(bit) for bit in bits[: leaf.entries]]
        assert sum(definition) == leaf.null_count
    values = iter(block_values(leaf.values))
    entries = []
    for r, d in zip(rep, definition, strict=True):
        value = next(values) if d <= limit else None
        entries.append((r, d, value if d == 0 else None))
    assert next(values, None) is None
    return entries


def block_values(block: Any) -> list[Any]:
    if block is None:
        return []
    if isinstance(block, Variable):
        ends = np.frombuffer(block.offsets, f"<i{block.offset_bits // 8}")[: block.count + 1]
        raw = block.data.to_pybytes()
        return [raw[a:b] for a, b in pairwise(ends.tolist())]
    assert isinstance(block, FixedWidth)
    width, raw = block.bits // 8, block.values.to_pybytes()
    return [raw[i * width : (i + 1) * width] for i in range(block.count)]


def make(rows: list[list[Entry]], layers: tuple[Layer, ...], codec: ValueEncoding) -> Stored:
    entries = [entry for row in rows for entry in row]
    limit = 1 if layers[0] == Layer.NULLABLE_ITEM else 0
    values = [value for _, level, value in entries if level <= limit]
    lists = any(layer.is_list for layer in layers)
    block: Any
    if codec.wire_name == "flat":
        width = codec.to_wire().flat.bits_per_value // 8
        filled = [value if value is not None else bytes(width) for value in values]
        block = FixedWidth(pa.py_buffer(b"".join(filled)), width * 8, len(values))
    else:
        filled = [value if value is not None else b"" for value in values]
        offsets = np.cumsum([0, *map(len, filled)]).astype("<i4")
        data = pa.py_buffer(b"".join(filled))
        block = Variable(pa.py_buffer(offsets.tobytes()), 32, data, len(values))
    return Stored(
        encode_full_zip_page(
            block,
            codec,
            Levels(
                np.array([e[0] for e in entries], np.uint16) if lists else None,
                np.array([e[1] for e in entries], np.uint16),
                layers,
            ),
            len(rows),
        )
    )


CODECS = ("flat", "variable", "zstd", "lz4")


def codec_named(name: str) -> ValueEncoding:
    if name == "flat":
        return flat(24)
    return variable() if name == "variable" else compressed(2 if name == "zstd" else 1)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[Entry]], tuple[Layer, ...], ValueEncoding]:
    layers = draw(st.sampled_from([VALID, NULLABLE, NULLABLE_LISTS]))
    name = draw(st.sampled_from(CODECS))
    value = st.binary(min_size=3, max_size=3) if name == "flat" else st.binary(max_size=9)
    items = st.tuples(st.just(0), value)
    if layers is not VALID:
        items |= st.just((1, None))
    if layers is not NULLABLE_LISTS:
        rows = [[(0, *item)] for item in draw(st.lists(items, min_size=1, max_size=12))]
        return rows, layers, codec_named(name)
    whole = st.sampled_from([[(1, 2, None)], [(1, 3, None)]])
    lists = st.lists(items, min_size=1, max_size=4).map(
        lambda entries: [(int(at == 0), *item) for at, item in enumerate(entries)]
    )
    return draw(st.lists(whole | lists, min_size=1, max_size=10)), layers, codec_named(name)


@given(tables(), st.data())
def test_every_range_and_any_rows_come_back(
    table: tuple[list[list[Entry]], tuple[Layer, ...], ValueEncoding], data: st.DataObject
) -> None:
    rows, layers, codec = table
    stored = make(rows, layers, codec)
    limit = 1 if layers[0] == Layer.NULLABLE_ITEM else 0
    mapped = data.draw(st.booleans())
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    page = stored.open(mapped=mapped)
    for start in range(len(rows) + 1):
        for stop in range(start, len(rows) + 1):
            leaf = stored.run_fetch(page.read(start, stop))
            expected = [entry for row in rows[start:stop] for entry in row]
            assert leaf_entries(leaf, limit) == expected
            assert (leaf.rows, leaf.entries) == (stop - start, len(expected))
    leaf = stored.run_fetch(page.take(np.array(picks, np.int64)))
    expected = [entry for row in picks for entry in rows[row]]
    assert leaf_entries(leaf, limit) == expected
    assert (leaf.rows, leaf.layers) == (len(picks), layers)
    assert len(stored.requests) <= 2


def floats(rows: int, dimension: int = 64) -> tuple[pa.Buffer, ValueEncoding]:
    list_of = pb.FixedSizeList(items_per_value=dimension, values=flat(32).to_wire())
    data = pa.py_buffer(np.arange(rows * dimension, dtype="<f4").tobytes())
    return data, encoding(pb.CompressiveEncoding(fixed_size_list=list_of))


def vectors(rows: int) -> tuple[Stored, pa.Buffer]:
    data, codec = floats(rows)
    items = FixedWidth(data, 32, rows * 64)
    page = encode_full_zip_page(
        FixedList(items, 64, None, rows), codec, Levels(None, None, VALID), rows
    )
    return Stored(page), data


@pytest.mark.spec("zip-7")
def test_vectors_without_levels_are_written_without_a_copy() -> None:
    data, codec = floats(10)
    items = FixedWidth(data.slice(256), 32, 9 * 64)
    page = encode_full_zip_page(FixedList(items, 64, None, 9), codec, Levels(None, None, VALID), 9)
    (written,) = page.buffers
    assert isinstance(written, pa.Buffer)
    assert (written.address, written.size) == (data.address + 256, 9 * 256)


def test_large_strings_are_written_without_a_copy() -> None:
    data = pa.py_buffer(b"ab" * 40_000)
    offsets = pa.py_buffer(np.array([0, 35_000, 80_000], "<i4"))
    page = encode_full_zip_page(
        Variable(offsets, 32, data, 2), variable(), Levels(None, None, VALID), 2
    )
    parts = page.buffers[0]
    assert isinstance(parts, tuple)
    assert [part.address - data.address for part in parts if part.size > 4] == [0, 35_000]
    leaf = Stored(page).open(mapped=True).read(0, 2)
    assert isinstance(leaf, Leaf)
    assert isinstance(leaf.values, Variable)
    assert leaf.values.data.equals(data)


def item_buffer(leaf: Leaf) -> pa.Buffer:
    assert isinstance(leaf.values, FixedList)
    assert isinstance(leaf.values.items, FixedWidth)
    return leaf.values.items.values


@pytest.mark.spec("zip-7")
@pytest.mark.parametrize("rows", [[4], [4, 5, 6]])
def test_neighbouring_vectors_of_a_mapped_page_are_views(rows: list[int]) -> None:
    stored, data = vectors(10)
    file = pa.py_buffer(bytes(stored.raw))
    at_hand = [file.slice(*stored.ranges[0])]
    page = open_page(stored.layout, PageBytes(stored.ranges, at_hand, 10, WHERE))
    leaf = page.take(np.array(rows))
    assert isinstance(leaf, Leaf)
    view = item_buffer(leaf)
    assert view.address == at_hand[0].address + 256 * rows[0]
    assert view.to_pybytes()[: 256 * len(rows)] == data.to_pybytes()[1024 : 1024 + 256 * len(rows)]


@pytest.mark.spec("read-2")
def test_a_vector_costs_one_request_for_exactly_its_bytes() -> None:
    stored, _ = vectors(10)
    page = stored.open(mapped=False)
    stored.run_fetch(page.take(np.array([3])))
    assert stored.requests == [[ByteRange(stored.ranges[0].offset + 3 * 256, 256)]]
    leaf = stored.run_fetch(page.take(np.array([8, 3, 8, 2])))
    assert stored.requests == [
        [
            ByteRange(stored.ranges[0].offset + 2 * 256, 512),
            ByteRange(stored.ranges[0].offset + 8 * 256, 256),
        ]
    ]
    first = np.frombuffer(item_buffer(leaf), "<f4")[::64]
    assert first.tolist() == [512.0, 192.0, 512.0, 128.0]


@pytest.mark.spec("read-2")
def test_a_string_costs_one_request_for_its_index_entries_and_one_for_its_bytes() -> None:
    rows: list[list[Entry]] = [[(0, 0, b"x" * 300)] for _ in range(50)]
    stored = make(rows, VALID, variable())
    stored.run_fetch(stored.open(mapped=False).take(np.array([7])))
    index, data = stored.ranges[1], stored.ranges[0]
    assert stored.requests == [
        [ByteRange(index.offset + 7 * 2, 4)],
        [ByteRange(data.offset + 7 * 304, 304)],
    ]


def test_a_whole_page_costs_one_round_of_requests() -> None:
    rows: list[list[Entry]] = [[(0, 0, b"x" * 300)] for _ in range(5)]
    stored = make(rows, VALID, variable())
    stored.run_fetch(stored.open(mapped=False).read(0, 5))
    assert stored.requests == [list(stored.ranges)]


def test_booleans_take_a_byte_each() -> None:
    bits = FixedWidth(pa.py_buffer(b"\x05"), 1, 3)
    page = encode_full_zip_page(bits, flat(8), Levels(None, None, VALID), 3)
    assert bytes(memoryview(page.buffers[0])) == b"\x01\x00\x01"
    leaf = Stored(page).open(mapped=True).read(0, 3)
    assert isinstance(leaf, Leaf)
    assert isinstance(leaf.values, FixedWidth)
    assert (leaf.values.bits, leaf.values.count) == (8, 3)


def layout(**changes: Any) -> pb.FullZipLayout:
    values: dict[str, Any] = {
        "bits_def": 1,
        "bits_per_offset": 32,
        "num_items": 3,
        "num_visible_items": 3,
        "value_compression": variable().to_wire(),
        "layers": [3],
    }
    return pb.FullZipLayout(**{k: v for k, v in (values | changes).items() if v is not None})


def open_bytes(message: pb.FullZipLayout, *buffers: bytes, rows: int = 3) -> PageReader:
    page = EncodedPage(pb.PageLayout(full_zip_layout=message), list(buffers), rows)
    return Stored(page).open(mapped=True)


STRINGS = bytes.fromhex("002c010000") + b"a" * 300 + bytes.fromhex("010000000000")
STRINGS_INDEX = bytes.fromhex("0000310132013701")
LISTS = bytes.fromhex("042c010000") + b"b" * 300 + bytes.fromhex("010607040100000063")
LISTS_INDEX = bytes.fromhex("00003201330134013a01")


def test_the_strings_of_the_reference_are_read_and_written() -> None:
    leaf = open_bytes(layout(), STRINGS, STRINGS_INDEX).read(0, 3)
    assert isinstance(leaf, Leaf)
    rows: list[list[Entry]] = [[(0, 0, b"a" * 300)], [(0, 1, None)], [(0, 0, b"")]]
    assert leaf_entries(leaf, 1) == [row[0] for row in rows]
    stored = make(rows, NULLABLE, variable())
    assert stored.layout.full_zip_layout == layout()
    raw = [bytes(stored.raw[part.offset : part.end]) for part in stored.ranges]
    assert raw == [STRINGS, STRINGS_INDEX]


def test_the_lists_of_the_reference_are_read_and_written() -> None:
    message = layout(bits_rep=1, bits_def=2, num_items=5, layers=[3, 6])
    leaf = open_bytes(message, LISTS, LISTS_INDEX, rows=4).read(0, 4)
    assert isinstance(leaf, Leaf)
    rows: list[list[Entry]] = [
        [(1, 0, b"b" * 300), (0, 1, None)],
        [(1, 2, None)],
        [(1, 3, None)],
        [(1, 0, b"c")],
    ]
    assert leaf_entries(leaf, 1) == [entry for row in rows for entry in row]
    stored = make(rows, NULLABLE_LISTS, variable())
    assert stored.layout.full_zip_layout == message
    raw = [bytes(stored.raw[part.offset : part.end]) for part in stored.ranges]
    assert raw == [LISTS, LISTS_INDEX]


@pytest.mark.spec("zip-10")
@pytest.mark.parametrize(
    ("changes", "buffers", "message"),
    [
        ({"layers": []}, None, "layers: expected at least one"),
        ({"layers": [9]}, None, "layers: expected numbers 1 to 6"),
        ({"bits_rep": 1}, None, "widths of levels"),
        ({"bits_def": 17}, None, "widths of levels"),
        ({"layers": [3, 2]}, None, "widths of levels"),
        ({"bits_per_offset": 16}, None, "width of full-zip values"),
        ({"bits_per_offset": None}, None, "width of full-zip values"),
        ({"bits_per_offset": None, "bits_per_value": 12}, None, "width of full-zip values"),
        ({"num_items": 4}, None, "full-zip entries"),
        ({"num_visible_items": 2}, None, "full-zip entries"),
        ({"value_compression": None}, None, "value encoding"),
        ({}, (STRINGS,), "expected 2 buffers"),
        ({}, (STRINGS, STRINGS_INDEX + b"\0"), "row index"),
        ({}, (STRINGS, bytes(12)), "row index"),
        ({}, (STRINGS[:-1], STRINGS_INDEX), "row index"),
        ({}, (STRINGS, bytes.fromhex("0000310132013601")), "row index"),
        ({}, (STRINGS, bytes.fromhex("0000320131013701")), "row index"),
        ({}, (STRINGS, bytes.fromhex("0500310132013701")), "row index"),
        ({}, (STRINGS, bytes.fromhex("0000310133013701")), "full-zip entries"),
        ({}, (b"\x02" + STRINGS[1:], STRINGS_INDEX), "repetition levels"),
        ({}, (b"\x00\xff" + STRINGS[2:], STRINGS_INDEX), "full-zip entries"),
    ],
)
def test_damaged_pages_are_reported(
    changes: dict[str, Any], buffers: tuple[bytes, ...] | None, message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        open_bytes(layout(**changes), *(buffers or (STRINGS, STRINGS_INDEX))).read(0, 3)


@given(tables(), st.data())
def test_flipped_bytes_end_in_an_error_or_in_well_formed_rows(
    table: tuple[list[list[Entry]], tuple[Layer, ...], ValueEncoding], data: st.DataObject
) -> None:
    rows, layers, codec = table
    stored = make(rows, layers, codec)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(64, len(stored.raw) - 1))
        stored.raw[at] = data.draw(st.integers(0, 255))
    try:
        page = stored.open(mapped=data.draw(st.booleans()))
        first = data.draw(st.integers(0, len(rows) - 1))
        leaf = stored.run_fetch(page.read(first, len(rows)))
        stored.run_fetch(page.take(np.array([first, 0, first])))
    except CorruptFileError:
        return
    assert leaf.rows == len(rows) - first


def test_counts_that_do_not_add_up_are_reported() -> None:
    message = layout(bits_rep=1, bits_def=2, num_items=6, layers=[3, 6])
    with pytest.raises(CorruptFileError, match="expected 6 items, 3 visible, found 5 items"):
        open_bytes(message, LISTS, LISTS_INDEX, rows=4).read(0, 4)


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 4)])
def test_rows_beyond_the_page_are_refused(start: int, stop: int) -> None:
    page = open_bytes(layout(), STRINGS, STRINGS_INDEX)
    with pytest.raises(RowIndexError, match="of a page of 3 rows"):
        page.read(start, stop)


@pytest.mark.parametrize("rows", [[-1], [3], [0, 3], [1, -2]])
def test_positions_beyond_the_page_are_refused(rows: list[int]) -> None:
    page = open_bytes(layout(), STRINGS, STRINGS_INDEX)
    with pytest.raises(RowIndexError, match="of a page of 3 rows"):
        page.take(np.array(rows))


def test_values_that_do_not_go_with_the_levels_are_refused() -> None:
    block = FixedWidth(pa.py_buffer(bytes(6)), 24, 2)
    with pytest.raises(ValueError, match="2 values for 3 visible entries"):
        encode_full_zip_page(block, flat(24), Levels(None, None, VALID), 3)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.spec("zip-10", "rel-24")
def test_rows_that_overlap_are_refused(mapped: bool) -> None:
    values = Variable.of_sizes(pa.py_buffer(b"x" * 900), np.full(9, 100))
    page = encode_full_zip_page(values, variable(), Levels(None, None, VALID), 9)
    stored = Stored(page)
    part = stored.ranges[1]
    index = np.frombuffer(bytes(stored.raw[part.offset : part.end]), f"<u{part.size // 10}").copy()
    index[0::2], index[1::2] = 0, 104 * 9
    stored.raw[part.offset : part.end] = index.tobytes()
    opened = stored.open(mapped=mapped)
    with pytest.raises(CorruptFileError, match="do not overlap, found 2808 bytes in 3 rows"):
        stored.run_fetch(opened.take(np.array([4, 0, 2])))
