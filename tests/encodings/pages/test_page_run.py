"""Pages read as one: the same rows, and the damaged page is named."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.encodings.pages.mini_samples import (
    EMPTY_LIST,
    HERE,
    ITEM,
    LIST,
    NULLABLE,
    Chopped,
    Sample,
    entries_of,
    flatten,
    make_sample,
    write,
)

from glaive.arrow.blocks import Dictionary, FixedWidth, Variable
from glaive.arrow.build import block_from_array, expand, to_array
from glaive.encodings.levels import Layer, Leaf, Levels
from glaive.encodings.miniblock.writer import EncodedItems, encode_mini_page
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, PageBytes, PageParts, PageReader, ValueEncoding
from glaive.encodings.registry import open_page
from glaive.encodings.values.bitpack import InlineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.variable import Variable as Plain
from glaive.errors import CorruptFileError, RowIndexError
from glaive.file.v2.columns import Column
from glaive.kernels.fsst import train_symbols
from glaive.kernels.strings import Strings
from glaive.types import ByteRange, Where

LAYERS = [(ITEM, LIST), (NULLABLE, EMPTY_LIST), (ITEM, EMPTY_LIST, NULLABLE, EMPTY_LIST)]


def mapped(pages: list[EncodedPage]) -> list[PageReader]:
    """Open pages that are adjacent in one buffer."""
    data, page_ranges = b"", []
    for page in pages:
        ranges = []
        for buffer in page.buffers:
            data += bytes(-len(data) % 64)
            ranges.append(ByteRange(len(data), len(memoryview(buffer).cast("B"))))
            data += bytes(memoryview(buffer))
        page_ranges.append(tuple(ranges))
    base = pa.py_buffer(data)
    readers = []
    for number, (page, ranges_of) in enumerate(zip(pages, page_ranges, strict=True)):
        at_hand = [base.slice(part.offset, part.size) for part in ranges_of]
        where = Where("test.lance", 0, "c", number)
        readers.append(open_page(page.layout, PageBytes(ranges_of, at_hand, page.rows, where)))
    return readers


def samples(layers: tuple[Layer, ...], sizes: list[int]) -> list[Sample]:
    return [make_sample(layers, size, seed, 0.3, 0.3) for seed, size in enumerate(sizes)]


def column(pages: list[EncodedPage]) -> Column:
    return Column(mapped(pages), Where("test.lance", 0, "c"))


def leaf_of(step: object) -> Leaf:
    assert isinstance(step, Leaf)
    return step


@given(
    st.sampled_from(LAYERS),
    st.lists(st.integers(1, 700), min_size=2, max_size=5),
    st.booleans(),
    st.data(),
)
@settings(max_examples=40)
def test_joined_pages_have_the_rows_of_all(
    layers: tuple[Layer, ...], sizes: list[int], large: bool, data: st.DataObject
) -> None:
    made = samples(layers, sizes)
    rows = [row for sample in made for row in sample.rows]
    # Level encodings depend on the levels: pages of one column mostly agree, not always.
    joined = column([write(sample, Chopped(64), large=large) for sample in made])
    assert joined.rows == len(rows)
    for page, start in zip(joined.pages, joined.starts, strict=False):
        mine = rows[start : start + page.rows]
        assert entries_of(leaf_of(page.read(0, page.rows))) == flatten(mine)
        first = data.draw(st.integers(0, page.rows))
        last = data.draw(st.integers(first, page.rows))
        assert entries_of(leaf_of(page.read(first, last))) == flatten(mine[first:last])
        selected = data.draw(st.lists(st.integers(0, page.rows - 1), max_size=20))
        taken = leaf_of(page.take(np.array(selected, np.int64)))
        assert entries_of(taken) == flatten([mine[row] for row in selected])


def test_only_pages_with_equal_encodings_are_joined() -> None:
    compatible = [
        write(sample, Chopped(64), large=False) for sample in samples((ITEM, LIST), [300] * 3)
    ]
    other = write(samples((ITEM, EMPTY_LIST), [300])[0], Chopped(64), large=False)
    assert len(column(compatible).pages) == 1
    assert len(column([*compatible[:2], other, compatible[2]]).pages) == 3


def test_pages_without_lists_stay_apart() -> None:
    flat = [write(sample, Chopped(64), large=False) for sample in samples((NULLABLE,), [300] * 2)]
    assert len(column(flat).pages) == 2


def test_joined_pages_read_values_of_their_own_dictionaries() -> None:
    pages, expected = [], []
    for number in range(3):
        sample = make_sample((ITEM, LIST), 500, number, 0.3, 0)
        items = np.arange(4 + number, dtype="<u8") + 100 * number
        indices = (np.arange(500) % (4 + number)).astype("<u4")
        page = encode_mini_page(
            FixedWidth(pa.py_buffer(indices), 32, 500),
            InlineBitpacking(32),
            Levels(sample.rep, None, sample.layers),
            len(sample.rows),
            dictionary=EncodedItems.of(FixedWidth(pa.py_buffer(items), 64, len(items)), Flat(64)),
            large_chunks=False,
            level_runs=False,
        )
        assert page is not None
        pages.append(page)
        expected += items[indices].tolist()
    joined = column(pages)
    assert len(joined.pages) == 1
    leaf = leaf_of(joined.pages[0].read(0, joined.rows))
    assert [value for _, _, value in entries_of(leaf)] == expected
    every = leaf_of(joined.pages[0].take(np.arange(joined.rows)))
    assert [value for _, _, value in entries_of(every)] == expected


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_page_among_joined_ones_is_named(which: int) -> None:
    pages = [write(sample, Chopped(64), large=False) for sample in samples((ITEM, LIST), [300] * 3)]
    raw = bytearray(bytes(memoryview(pages[1].buffers[which])))
    raw[0] ^= 0x7F
    pages[1].buffers[which] = bytes(raw)
    joined = column(pages)
    assert len(joined.pages) == 1
    with pytest.raises(CorruptFileError, match="page 1"):
        joined.pages[0].read(0, joined.rows)
    with pytest.raises(CorruptFileError, match="page 1"):
        joined.pages[0].take(np.arange(joined.rows))


# ---------------------------------------------------------------------- pages of many files


def in_one_buffer(pages: list[EncodedPage]) -> PageParts[Any]:
    """Pages of files that lie behind each other, as nobody opened them."""
    data, bases, readers = b"", [], []
    for number, page in enumerate(pages):
        data += bytes(-len(data) % 64)
        bases.append(len(data))
        ranges = []
        for buffer in page.buffers:
            data += bytes(-len(data) % 8)
            ranges.append(ByteRange(len(data) - bases[-1], len(memoryview(buffer).cast("B"))))
            data += bytes(memoryview(buffer))
        where = Where(f"{number}.lance", 0, "c", 0)
        readers.append(open_page(page.layout, PageBytes(tuple(ranges), None, page.rows, where)))
    ranges = np.array([reader.page.ranges for reader in readers], np.int64)  # type: ignore[attr-defined, assignment]  # of these layouts
    return PageParts(
        readers,
        np.arange(len(readers)),
        pa.py_buffer(data),
        ranges[:, :, 0] + np.array(bases)[:, None],
        ranges[:, :, 1],
        Where("many files"),
        lambda page: Where(f"{page}.lance", 0, "c", 0),
    )


def run_of(pages: list[EncodedPage]) -> PageReader:
    parts = in_one_buffer(pages)
    signatures = {page.page_signature() for page in parts.pages}
    assert len(signatures) == 1
    signature = signatures.pop()
    assert signature is not None
    return signature.join(parts)


def check_rows(run: PageReader, expected: list[Any], kind: pa.DataType) -> None:
    """Ranges and positions of rows across the borders of pages, and single rows."""

    def values(step: object) -> list[Any]:
        leaf = leaf_of(step)
        assert leaf.values is not None
        block = leaf.values
        block = expand(block) if isinstance(block, Dictionary) else block
        array: Any = to_array(block, kind, leaf.validity, leaf.null_count, HERE)
        return list(array.to_pylist())

    assert run.rows == len(expected)
    assert values(run.read(0, run.rows)) == expected
    rng = np.random.default_rng(len(expected))
    for _ in range(10):
        first, last = np.sort(rng.choice(run.rows + 1, 2, replace=False)).tolist()
        assert values(run.read(first, last)) == expected[first:last]
        rows = rng.integers(0, run.rows, 30)
        assert values(run.take(rows)) == [expected[row] for row in rows]
        assert values(run.take(rows[:1])) == [expected[rows[0]]]


def mini_page(
    values: pa.Array, encoding: ValueEncoding, items: pa.Array | None = None
) -> EncodedPage:
    block, dictionary = block_from_array(values), None
    if items is not None:
        dictionary = EncodedItems.of(block_from_array(items), Flat(64))
    page = encode_mini_page(
        block,
        encoding,
        Levels(None, None, (ITEM,)),
        len(values),
        dictionary=dictionary,
        large_chunks=False,
        level_runs=False,
    )
    assert page is not None
    return page


def test_pages_of_many_files_are_one_page() -> None:
    numbers = [np.arange(size) * 7 for size in (1, 3000, 2, 1025)]
    pages = [mini_page(pa.array(part, pa.int64()), InlineBitpacking(64)) for part in numbers]
    check_rows(run_of(pages), np.concatenate(numbers).tolist(), pa.int64())


@pytest.mark.parametrize("files", [1, 3])
def test_dictionaries_of_many_files_are_kept_apart(files: int) -> None:
    pages, expected = [], []
    for number in range(files):
        items = np.arange(40 + number) + 100 * number
        indices = np.arange(2500 - number) % (40 + number)
        encoding = InlineBitpacking(32)
        pages.append(mini_page(pa.array(indices, pa.uint32()), encoding, pa.array(items)))
        expected += items[indices].tolist()
    check_rows(run_of(pages), expected, pa.int64())


def test_text_of_many_files_is_decoded_with_the_symbols_of_each() -> None:
    pages, expected = [], []
    for word in ("ananas", "banana", "cherry"):
        strings = [f"{word} {number % 17} {word}" for number in range(900)]
        block = block_from_array(pa.array(strings, pa.large_string()))
        assert isinstance(block, Variable)
        sample = Strings(block.offsets, block.offset_bits, block.data)
        pages.append(mini_page(pa.array(strings), Fsst(train_symbols(sample), Plain())))
        expected += strings
    check_rows(run_of(pages), expected, pa.string())


def test_lists_of_text_are_decoded_with_the_symbols_of_each_page() -> None:
    """pylance trains symbols for each page; its list columns have many pages."""
    pages, expected = [], []
    for number, word in enumerate(("ananas", "banana", "cherry")):
        strings = [f"{word} {at % 17} {word}" for at in range(900)]
        block = block_from_array(pa.array(strings, pa.large_string()))
        assert isinstance(block, Variable)
        encoding = Fsst(train_symbols(Strings(block.offsets, 64, block.data)), Plain())
        sample = make_sample((ITEM, LIST), 900, number, 0.3, 0)
        levels = Levels(sample.rep, None, sample.layers)
        text = block_from_array(pa.array(strings))
        page = encode_mini_page(
            text, encoding, levels, len(sample.rows), large_chunks=False, level_runs=False
        )
        assert page is not None
        pages.append(page)
        starts = np.flatnonzero(sample.rep)
        ends = [*starts[1:].tolist(), 900]
        expected += [strings[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
    (joined,) = column(pages).pages
    assert joined.rows == len(expected)

    def values(step: object) -> list[Any]:
        block = leaf_of(step).values
        assert block is not None
        return list(to_array(block, pa.string(), None, 0, HERE).to_pylist())

    assert values(joined.read(0, joined.rows)) == list(chain(*expected))
    rng = np.random.default_rng(1)
    for _ in range(10):
        first, last = np.sort(rng.choice(joined.rows + 1, 2, replace=False)).tolist()
        assert values(joined.read(first, last)) == list(chain(*expected[first:last]))
        rows = rng.integers(0, joined.rows, 30)
        assert values(joined.take(rows)) == list(chain(*(expected[row] for row in rows)))


def test_plain_wide_values_of_many_files_are_one_page() -> None:
    pages, expected = [], []
    for size in (3, 1, 5):
        numbers = np.arange(size, dtype=np.int64) + 10 * size
        block = FixedWidth(pa.py_buffer(numbers), 64, size)
        pages.append(encode_full_zip_page(block, Flat(64), Levels(None, None, (ITEM,)), size))
        expected += numbers.tolist()
    check_rows(run_of(pages), expected, pa.int64())
    with pytest.raises(RowIndexError, match="rows 0 to 9 of pages of 9 rows"):
        run_of(pages).take(np.array([0, 9]))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_damaged_one_of_many_files_is_named(which: int) -> None:
    items = pa.array(np.arange(7))
    indices = pa.array(np.arange(900) % 7, pa.uint32())
    pages = [mini_page(indices, InlineBitpacking(32), items) for _ in range(3)]
    raw = bytearray(bytes(memoryview(pages[1].buffers[which])))
    raw[2 * (which == 1)] ^= 0x7F  # of a chunk: the size of its values
    pages[1].buffers[which] = bytes(raw[:-8]) if which == 2 else bytes(raw)
    with pytest.raises(CorruptFileError, match=r"1\.lance"):
        run_of(pages).read(0, 2700)
    with pytest.raises(CorruptFileError, match=r"1\.lance"):
        run_of(pages).take(np.arange(2700))
