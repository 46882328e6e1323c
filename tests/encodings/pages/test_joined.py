"""Pages of a list column read as one: the same rows, and the damaged page is named."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.encodings.pages.mini_samples import (
    EMPTY_LIST,
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

from glaive.arrow.blocks import Dictionary, FixedWidth
from glaive.encodings.miniblock.writer import encode_mini_page
from glaive.encodings.protocol import EncodedPage, Layer, Leaf, PageBytes, PageReader
from glaive.encodings.registry import open_page
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError
from glaive.file.v2.reading.bound import Column
from glaive.testing import Tier, force_tier
from glaive.types import ByteRange, Where

LAYERS = [(ITEM, LIST), (NULLABLE, EMPTY_LIST), (ITEM, EMPTY_LIST, NULLABLE, EMPTY_LIST)]


def mapped(pages: list[EncodedPage]) -> list[PageReader]:
    """Open pages that lie behind each other in one piece of memory."""
    data, places = b"", []
    for page in pages:
        ranges = []
        for buffer in page.buffers:
            data += bytes(-len(data) % 64)
            ranges.append(ByteRange(len(data), len(memoryview(buffer).cast("B"))))
            data += bytes(memoryview(buffer))
        places.append(tuple(ranges))
    base = pa.py_buffer(data)
    readers = []
    for number, (page, ranges_of) in enumerate(zip(pages, places, strict=True)):
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
    st.sampled_from(["numpy", "numba"]),
    st.data(),
)
@settings(max_examples=40)
def test_joined_pages_have_the_rows_of_all(
    layers: tuple[Layer, ...], sizes: list[int], large: bool, tier: Tier, data: st.DataObject
) -> None:
    made = samples(layers, sizes)
    rows = [row for sample in made for row in sample.rows]
    with force_tier(tier):
        # Level encodings depend on the levels: pages of one column mostly agree, not always.
        one = column([write(sample, Chopped(64), large=large) for sample in made])
        assert one.rows == len(rows)
        for page, start in zip(one.pages, one.starts, strict=False):
            mine = rows[start : start + page.rows]
            assert entries_of(leaf_of(page.read(0, page.rows))) == flatten(mine)
            first = data.draw(st.integers(0, page.rows))
            last = data.draw(st.integers(first, page.rows))
            assert entries_of(leaf_of(page.read(first, last))) == flatten(mine[first:last])
            picked = data.draw(st.lists(st.integers(0, page.rows - 1), max_size=20))
            taken = leaf_of(page.take(np.array(picked, np.int64)))
            assert entries_of(taken) == flatten([mine[row] for row in picked])


def test_pages_encoded_alike_are_joined_and_others_are_not() -> None:
    alike = [write(sample, Chopped(64), large=False) for sample in samples((ITEM, LIST), [300] * 3)]
    other = write(samples((ITEM, EMPTY_LIST), [300])[0], Chopped(64), large=False)
    assert len(column(alike).pages) == 1
    assert len(column([*alike[:2], other, alike[2]]).pages) == 3


def test_pages_without_lists_stay_apart() -> None:
    flat = [write(sample, Chopped(64), large=False) for sample in samples((NULLABLE,), [300] * 2)]
    assert len(column(flat).pages) == 2


@pytest.mark.parametrize("tier", ["numpy", "numba"])
def test_dictionaries_of_joined_pages_are_kept_apart(tier: Tier) -> None:
    pages, expected = [], []
    for number in range(3):
        sample = make_sample((ITEM, LIST), 500, number, 0.3, 0)
        items = np.arange(4 + number, dtype="<u8") + 100 * number
        indices = (np.arange(500) % (4 + number)).astype("<u4")
        page = encode_mini_page(
            FixedWidth(pa.py_buffer(indices), 32, 500),
            InlineBitpacking(32),
            sample.rep,
            None,
            sample.layers,
            len(sample.rows),
            dictionary=(FixedWidth(pa.py_buffer(items), 64, len(items)), Flat(64)),
            large_chunks=False,
            level_runs=False,
        )
        assert page is not None
        pages.append(page)
        expected += items[indices].tolist()
    one = column(pages)
    assert len(one.pages) == 1
    with force_tier(tier):
        leaf = leaf_of(one.pages[0].read(0, one.rows))
        assert isinstance(leaf.values, Dictionary)
        assert [value for _, _, value in entries_of(leaf)] == expected
        every = leaf_of(one.pages[0].take(np.arange(one.rows)))
        assert [value for _, _, value in entries_of(every)] == expected


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_page_among_joined_ones_is_named(which: int) -> None:
    pages = [write(sample, Chopped(64), large=False) for sample in samples((ITEM, LIST), [300] * 3)]
    raw = bytearray(bytes(memoryview(pages[1].buffers[which])))
    raw[0] ^= 0x7F
    pages[1].buffers[which] = bytes(raw)
    one = column(pages)
    assert len(one.pages) == 1
    with pytest.raises(CorruptFileError, match="page 1"):
        one.pages[0].read(0, one.rows)
    with pytest.raises(CorruptFileError, match="page 1"):
        one.pages[0].take(np.arange(one.rows))
