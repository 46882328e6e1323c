"""Constant pages: nulls, lists without items, and one value for all rows."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import Block, Constant, FixedWidth, Variable, flags_of
from glaive.arrow.build import to_array
from glaive.config import settings
from glaive.encodings.levels import Layer, Leaf, Levels
from glaive.encodings.pages.constant import encode_constant_page
from glaive.encodings.protocol import EncodedPage, Fetch, PageBytes, PageParts, PageReader
from glaive.encodings.registry import open_page, read_encoding
from glaive.errors import CorruptFileError, FormatError, LimitError, RowIndexError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import ByteRange, Where, as_array

WHERE = Where("a.lance", column=0, page=0)
FLAT16 = read_encoding(pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=16)), WHERE)
RUNS16 = pb.CompressiveEncoding(
    rle=pb.Rle(
        values=pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=16)),
        run_lengths=pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=8)),
    )
)
VALID = (Layer.ALL_VALID_ITEM,)
NULLABLE = (Layer.NULLABLE_ITEM,)
LISTS = (Layer.ALL_VALID_ITEM, Layer.NULL_AND_EMPTY_LIST)
NULLABLE_LISTS = (Layer.NULLABLE_ITEM, Layer.NULL_AND_EMPTY_LIST)


def constant(layers: list[int], **fields: Any) -> pb.ConstantLayout:
    values: dict[str, Any] = {"layers": layers, **fields}
    return pb.ConstantLayout(**values)


def fixed(value: bytes) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(constant=pb.Constant(value=value))


def u16(*levels: int) -> np.ndarray:
    return np.array(levels, np.uint16)


def int64(value: int) -> FixedWidth:
    return FixedWidth(pa.py_buffer(struct.pack("<q", value)), 64, 1)


def text(value: bytes, *, bits: int = 32) -> Variable:
    offsets = np.array([0, len(value)], f"<i{bits // 8}").tobytes()
    return Variable(pa.py_buffer(offsets), bits, pa.py_buffer(value), 1)


def raw(page: EncodedPage) -> list[bytes]:
    return [memoryview(buffer).tobytes() for buffer in page.buffers]


def open_raw(
    layout: pb.PageLayout, buffers: list[bytes], rows: int, *, mapped: bool = True
) -> PageReader:
    ranges, at = [], 0
    for buffer in buffers:
        ranges.append(ByteRange(at, len(buffer)))
        at += len(buffer)
    at_hand = [pa.py_buffer(buffer) for buffer in buffers] if mapped else None
    return open_page(layout, PageBytes(tuple(ranges), at_hand, rows, WHERE))


def reopen(page: EncodedPage, *, mapped: bool = True) -> PageReader:
    return open_raw(page.layout, raw(page), page.rows, mapped=mapped)


def whole(reader: PageReader) -> Leaf:
    leaf = reader.read(0, reader.rows)
    assert isinstance(leaf, Leaf)
    return leaf


def value_of(leaf: Leaf) -> bytes | None:
    if leaf.values is None:
        return None
    assert isinstance(leaf.values, Constant)
    block: Block = leaf.values.value
    if isinstance(block, Variable):
        first, stop = np.frombuffer(block.offsets, f"<i{block.offset_bits // 8}", 2).tolist()
        return block.data.to_pybytes()[first:stop]
    assert isinstance(block, FixedWidth)
    return block.values.to_pybytes()


def test_a_page_of_nulls_has_no_buffers() -> None:
    page = encode_constant_page(Levels(None, None, NULLABLE), 5)
    assert not page.buffers
    assert page.layout.constant_layout == constant([3])
    leaf = whole(reopen(page))
    assert (leaf.values, leaf.rows, leaf.entries, leaf.null_count) == (None, 5, 5, 5)
    taken = reopen(page).take(np.array([4, 4]))
    assert isinstance(taken, Leaf)
    assert (taken.rows, taken.null_count) == (2, 2)


@pytest.mark.parametrize("compressed", [False, True])
def test_the_null_lists_of_the_reference_are_read_and_written(*, compressed: bool) -> None:
    how = FLAT16 if compressed else None
    page = encode_constant_page(
        Levels(u16(1, 1, 1), u16(1, 2, 1), LISTS), 3, rep_encoding=how, def_encoding=how
    )
    assert raw(page) == [bytes.fromhex("010001000100"), bytes.fromhex("010002000100")]
    flat = FLAT16.to_wire()
    assert page.layout.constant_layout == (
        constant(
            [1, 6], rep_compression=flat, def_compression=flat, num_rep_values=3, num_def_values=3
        )
        if compressed
        else constant([1, 6])
    )
    leaf = whole(reopen(page))
    assert leaf.rep is not None
    assert leaf.definition is not None
    assert (leaf.rep.tolist(), leaf.definition.tolist()) == ([1, 1, 1], [1, 2, 1])
    assert (leaf.values, leaf.rows, leaf.entries) == (None, 3, 3)


def test_the_constant_string_of_the_reference_is_read_and_written() -> None:
    page = encode_constant_page(Levels(None, None, VALID), 3, text(b"hello"))
    assert raw(page) == [bytes.fromhex("020000000800000005000000000000000500000068656c6c6f")]
    assert page.layout.constant_layout == constant([1])
    leaf = whole(reopen(page))
    assert isinstance(leaf.values, Constant)
    assert (value_of(leaf), leaf.values.count) == (b"hello", 3)


def test_the_constant_number_with_nulls_of_the_reference_is_read_and_written() -> None:
    page = encode_constant_page(
        Levels(None, u16(0, 1, 0), NULLABLE), 3, int64(5), def_encoding=FLAT16
    )
    assert raw(page) == [b"", bytes.fromhex("000001000000")]
    inline = struct.pack("<q", 5)
    assert page.layout.constant_layout == constant([3], inline_value=inline)
    leaf = whole(reopen(page))
    assert isinstance(leaf.values, Constant)
    assert (value_of(leaf), leaf.values.count, leaf.null_count) == (inline, 3, 1)
    assert leaf.validity is not None
    assert (leaf.validity.to_pybytes(), leaf.definition) == (b"\x05", None)


@pytest.mark.parametrize(
    ("value", "expected", "inline"),
    [
        (FixedWidth(pa.py_buffer(bytes(32)), 256, 1), bytes(32), True),
        (FixedWidth(pa.py_buffer(bytes(33)), 264, 1), bytes(33), False),
        (FixedWidth(pa.py_buffer(b"\xff"), 1, 1), b"\x01", True),
        (FixedWidth(pa.py_buffer(b"\x01"), 8, 1), b"\x01", True),
        (text(b""), b"", False),
        (text(b"wide", bits=64), b"wide", False),
    ],
)
def test_a_value_comes_back(value: Block, expected: bytes, *, inline: bool) -> None:
    page = encode_constant_page(Levels(None, None, VALID), 2, value)
    assert page.layout.constant_layout.HasField("inline_value") is inline
    assert value_of(whole(reopen(page))) == expected


def test_only_visible_entries_have_the_value() -> None:
    page = encode_constant_page(
        Levels(u16(1, 0, 1, 1), u16(0, 1, 3, 0), NULLABLE_LISTS), 3, text(b"x")
    )
    assert len(page.buffers) == 3
    leaf = whole(reopen(page))
    assert isinstance(leaf.values, Constant)
    assert (leaf.entries, leaf.values.count) == (4, 3)
    empty = reopen(page).read(1, 2)
    assert isinstance(empty, Leaf)
    assert (empty.entries, empty.values) == (1, None)


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("bits", [32, 64])
def test_nulls_have_no_bytes_of_a_long_value(bits: int) -> None:
    long = b"v" * 1000
    page = encode_constant_page(
        Levels(u16(1, 0, 1, 1, 1), u16(0, 1, 3, 0, 1), NULLABLE_LISTS), 4, text(long, bits=bits)
    )
    leaf = whole(reopen(page))
    assert isinstance(leaf.values, Variable)
    assert as_array(leaf.values.offsets, f"<i{bits // 8}").tolist() == [0, 1000, 1000, 2000, 2000]
    assert leaf.values.data.to_pybytes() == long * 2
    valid = reopen(page).read(2, 3)
    assert isinstance(valid, Leaf)
    assert isinstance(valid.values, Constant)


def join(pages: list[EncodedPage]) -> PageReader:
    """Return the reader of pages of several files as one."""
    readers: Any = [reopen(page, mapped=False) for page in pages]
    signatures = {reader.page_signature() for reader in readers}
    (signature,) = signatures
    assert signature is not None
    sizes = np.array([[len(part) for part in raw(page)] for page in pages], np.int64)
    sizes = sizes.reshape(len(pages), -1)
    ends = np.cumsum(sizes).reshape(sizes.shape)
    data = pa.py_buffer(b"".join(part for page in pages for part in raw(page)))
    which = np.arange(len(pages))
    parts = PageParts(readers, which, data, ends - sizes, sizes, WHERE, lambda _: WHERE)
    return signature.join(parts)


def entries_of(step: Fetch[Leaf] | Leaf) -> list[tuple[object, ...]]:
    """Return levels, and the value where there is one, of each entry."""
    assert isinstance(step, Leaf)
    levels = [step.rep, step.definition]
    if step.validity is not None:
        levels[1] = 1 - flags_of(step.validity, step.entries).astype(np.uint16)
    known = [list(map(int, one)) for one in levels if one is not None]
    entries: list[list[Any]] = [list(row) for row in zip(*known, strict=True)]
    entries = entries or [[0] for _ in range(step.entries)]
    visible = [entry for entry in entries if entry[-1] < 2]
    if step.values is not None:
        one = step.values.value if isinstance(step.values, Constant) else step.values
        kind = pa.binary() if isinstance(one, Variable) else pa.int64()
        numbers = to_array(step.values, kind, None, 0, WHERE).to_pylist()
        for entry, number in zip(visible, numbers, strict=True):
            entry.append(number if entry[-1] == 0 else None)
    return [tuple(entry) for entry in entries]


LIST = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(
    kind=st.sampled_from(["lists", "nulls", "plain"]),
    pages=st.lists(st.lists(LIST, min_size=1, max_size=5), min_size=2, max_size=5),
    values=st.sampled_from(["none", "numbers", "texts"]),
    compressed=st.booleans(),
    data=st.data(),
)
def test_pages_of_several_files_are_read_as_one(
    kind: str, pages: list[list[list[int]]], values: str, compressed: bool, data: st.DataObject
) -> None:
    encoded = []
    for number, rows in enumerate(pages):
        rep, definition = None, None
        if kind == "lists":
            rep = u16(*[int(at == 0) for row in rows for at in range(len(row))])
            definition = u16(*[level for row in rows for level in row])
        elif kind == "nulls":
            definition = u16(*[row[0] % 2 for row in rows])
        layers = NULLABLE_LISTS if kind == "lists" else NULLABLE
        how = FLAT16 if compressed else None
        made = {"numbers": int64(number), "texts": text(b"x" * number)}
        value = made.get(values)
        levels = Levels(rep, definition, layers)
        encoded.append(
            encode_constant_page(levels, len(rows), value, rep_encoding=how, def_encoding=how)
        )
    joined = join(encoded)
    alone = [reopen(page) for page in encoded]
    each = [entries_of(page.read(row, row + 1)) for page in alone for row in range(page.rows)]
    start = data.draw(st.integers(0, len(each) - 1))
    stop = data.draw(st.integers(start + 1, len(each)))
    assert entries_of(joined.read(start, stop)) == list(chain(*each[start:stop]))
    some = data.draw(st.lists(st.integers(0, len(each) - 1), min_size=1, max_size=6))
    taken = entries_of(joined.take(np.array(some)))
    assert taken == list(chain(*(each[row] for row in some)))


@pytest.mark.parametrize("lists", [True, False])
def test_rows_in_the_levels_of_another_page_are_refused(lists: bool) -> None:
    def page(rep: list[int], definition: list[int], rows: int) -> EncodedPage:
        if lists:
            return encode_constant_page(Levels(u16(*rep), u16(*definition), NULLABLE_LISTS), rows)
        return encode_constant_page(Levels(None, u16(*definition), NULLABLE), rows)

    good = join([page([1, 1], [0, 1], 2), page([1, 1], [1, 1], 2)])
    assert len(entries_of(good.read(0, good.rows))) == 4
    bad = join([page([1, 1], [0, 1], 1), page([1, 1], [1, 1], 3)])
    with pytest.raises(CorruptFileError, match="levels"):
        bad.read(0, 1)


def test_levels_that_two_pages_exchange_are_refused() -> None:
    def page(rep: list[int], definition: list[int]) -> EncodedPage:
        return encode_constant_page(Levels(u16(*rep), u16(*definition), NULLABLE_LISTS), 1)

    bad = join([page([1, 0], [0, 1, 1]), page([1, 0, 0], [1, 1])])
    with pytest.raises(CorruptFileError, match="levels"):
        bad.read(0, 1)


def test_values_of_another_kind_are_refused() -> None:
    wide = FixedWidth(pa.py_buffer(bytes(40)), 320, 1)
    pages = [encode_constant_page(Levels(None, None, VALID), 2, one) for one in (text(b"x"), wide)]
    with pytest.raises(CorruptFileError, match="page values"):
        join(pages).read(0, 1)


def test_pages_of_other_kinds_are_not_read_as_one() -> None:
    plain = Levels(None, None, NULLABLE)
    some = Levels(None, u16(0, 1), NULLABLE)
    kinds = [
        encode_constant_page(plain, 2),
        encode_constant_page(Levels(None, None, VALID), 2, int64(7)),
        encode_constant_page(Levels(None, None, VALID), 2, FixedWidth(pa.py_buffer(b"7"), 8, 1)),
        encode_constant_page(Levels(None, None, VALID), 2, text(b"x" * 32)),
        encode_constant_page(some, 2),
        encode_constant_page(some, 2, int64(7)),
        encode_constant_page(some, 2, text(b"x")),
        encode_constant_page(some, 2, def_encoding=FLAT16),
        encode_constant_page(Levels(u16(1, 1), u16(1, 1), LISTS), 2),
        encode_constant_page(Levels(u16(1, 1), u16(1, 1), NULLABLE_LISTS), 2),
        encode_constant_page(Levels(u16(1, 1), None, LISTS), 2),
    ]
    assert len({reopen(page).page_signature() for page in kinds} - {None}) == len(kinds)


def test_long_texts_are_read_alone() -> None:
    page = encode_constant_page(Levels(None, None, VALID), 2, text(b"x" * 33))
    assert reopen(page).page_signature() is None


def test_joined_pages_tell_where_to_divide_them_and_what_they_read_first() -> None:
    pages = [encode_constant_page(Levels(None, u16(*[0] * 4096), NULLABLE), 4096)] * 20
    joined = join(pages)
    assert joined.cuts == [65_536]
    ranges = joined.opening_ranges(np.array([5]))
    assert ranges[:, 1].tolist() == [0, 8192] * 20
    joined.read(0, 1)
    assert len(joined.opening_ranges(np.array([5]))) == 0


def test_levels_of_joined_pages_that_take_far_more_memory_than_bytes_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited = replace(settings, max_decoded_bytes_per_page=1000)
    monkeypatch.setattr("glaive.encodings.compression.settings", limited)
    rows, runs = 4096, read_encoding(RUNS16, WHERE)
    levels = Levels(None, u16(*[0] * rows), NULLABLE)
    pages = [encode_constant_page(levels, rows, def_encoding=runs)] * 2
    with pytest.raises(LimitError):
        join(pages).read(0, 1)


@pytest.mark.parametrize("rows", [5_000, 4_096])
def test_large_pages_are_read_alone(rows: int) -> None:
    page = reopen(encode_constant_page(Levels(None, None, NULLABLE), rows))
    assert (page.page_signature() is None) is (rows > 4_096)


@given(
    rows=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=8),
    compressed=st.booleans(),
    mapped=st.booleans(),
    data=st.data(),
)
def test_every_range_and_any_rows_come_back(
    rows: list[list[int]], compressed: bool, mapped: bool, data: st.DataObject
) -> None:
    page = encode_constant_page(
        Levels(
            u16(*[int(at == 0) for row in rows for at in range(len(row))]),
            u16(*[level for row in rows for level in row]),
            NULLABLE_LISTS,
        ),
        len(rows),
        rep_encoding=FLAT16 if compressed else None,
        def_encoding=FLAT16 if compressed else None,
    )
    reader = reopen(page, mapped=mapped)

    def check(step: Fetch[Leaf] | Leaf, expected: list[list[int]]) -> None:
        if isinstance(step, Fetch):
            file = b"".join(raw(page))
            step = step.resume([pa.py_buffer(file[r.offset : r.end]) for r in step.ranges])
        assert isinstance(step, Leaf)
        assert step.rep is not None
        assert step.definition is not None
        assert step.rows == len(expected)
        assert step.definition.tolist() == [level for row in expected for level in row]
        assert step.rep.tolist() == [int(at == 0) for row in expected for at in range(len(row))]

    for start in range(len(rows) + 1):
        for stop in range(start, len(rows) + 1):
            check(reader.read(start, stop), rows[start:stop])
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    check(reader.take(np.array(picks, np.int64)), [rows[row] for row in picks])


def test_buffers_are_requested_once() -> None:
    page = encode_constant_page(Levels(None, u16(1, 1), NULLABLE), 2)
    reader = reopen(page, mapped=False)
    step = reader.read(0, 1)
    assert isinstance(step, Fetch)
    step.resume([pa.py_buffer(b""), pa.py_buffer(u16(1, 1).tobytes())])
    assert isinstance(reader.take(np.array([1])), Leaf)


@pytest.mark.parametrize(
    ("changes", "buffers", "message"),
    [
        ({"layers": []}, [], "layers"),
        ({"layers": [3]}, [b""] * 4, "expected 0 or 1 or 2 or 3 buffers, found 4"),
        ({"layers": [3], "inline_value": b"a"}, [b""], "expected 0 or 2 buffers, found 1"),
        ({"layers": [3, 2]}, [], "found no repetition levels"),
        ({"layers": [3, 2]}, [b"", bytes(4)], "found no repetition levels"),
        ({"layers": [3, 2]}, [b"\x01\0\0\0", b""], "found levels of 1 rows"),
        ({"layers": [3, 2]}, [b"\0\0\x01\0\x01\0", b""], "found levels of 2 rows"),
        ({"layers": [3, 2]}, [b"\x01\0\x01\0", b"\0\0"], "definition levels: expected 2"),
        ({"layers": [3]}, [b"", b"\x02\0\0\0"], "definition levels: expected 0 to 1, found 2"),
        ({"layers": [3]}, [b"\x01\0\0\0", b""], "repetition levels: expected 0 to 0, found 1"),
        ({"layers": [3]}, [b"", b"\0\0\0"], "even number"),
        ({"layers": [3]}, [b"", b"\0\0"], "found 1 definition levels"),
        ({"layers": [1]}, [b""], "scalar of a constant page"),
        ({"layers": [1]}, [struct.pack("<II", 1, 5) + b"abcd"], "scalar of a constant page"),
        ({"layers": [1]}, [struct.pack("<I", 2**32 - 1)], "scalar of a constant page"),
        ({"layers": [1]}, [struct.pack("<IIII", 3, 0, 0, 0)], "scalar of a constant page"),
        ({"layers": [1]}, [struct.pack("<IIIii", 2, 8, 0, 0, 1)], "offsets of a constant"),
        ({"layers": [1]}, [struct.pack("<IIIii", 2, 8, 0, -1, 0)], "offsets of a constant"),
        ({"layers": [1]}, [struct.pack("<IIIi", 2, 4, 0, 0)], "offsets of a constant"),
        (
            {"layers": [3], "def_compression": FLAT16.to_wire(), "num_def_values": 2**60},
            [b"", bytes(4)],
            "definition levels: expected at most",
        ),
        (
            {"layers": [3], "def_compression": FLAT16.to_wire(), "num_def_values": 3},
            [b"", bytes(6)],
            "levels of a constant page: expected levels of 2 rows",
        ),
        (
            {"layers": [3, 2], "rep_compression": FLAT16.to_wire(), "num_rep_values": 2**60 + 2},
            [b"\x01\0\x01\0", b""],
            "repetition levels: expected at most",
        ),
        (
            {"layers": [3, 2], "rep_compression": FLAT16.to_wire(), "num_rep_values": 2**28},
            [b"\x01\0\x01\0", b""],
            "flat values",
        ),
        *(
            (
                {"layers": [3], "def_compression": fixed(level), "num_def_values": 2},
                [b"", b""],
                "definition levels: expected 2 numbers of 16 bits",
            )
            for level in (b"\x01", b"\x01\0\0\0")
        ),
    ],
)
def test_damaged_pages_are_reported(
    changes: dict[str, Any], buffers: list[bytes], message: str
) -> None:
    layout = pb.PageLayout(constant_layout=pb.ConstantLayout(**changes))
    with pytest.raises(FormatError, match=message):
        open_raw(layout, buffers, 2).read(0, 2)


@pytest.mark.parametrize("rows", [[-1], [5], [0, 5]])
def test_positions_beyond_the_page_are_refused(rows: list[int]) -> None:
    reader = reopen(encode_constant_page(Levels(None, None, NULLABLE), 5))
    with pytest.raises(RowIndexError, match="of a page of 5 rows"):
        reader.take(np.array(rows))
    with pytest.raises(RowIndexError, match="of a page of 5 rows"):
        reader.read(rows[0], 6)


def test_levels_beyond_the_layers_are_reported_with_their_place() -> None:
    page = encode_constant_page(Levels(None, u16(7), NULLABLE), 1)
    with pytest.raises(CorruptFileError, match=r"column 0, page 0"):
        reopen(page).read(0, 1)
