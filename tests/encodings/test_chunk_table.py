"""Chunk words and the repetition index."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.encodings.miniblock.layout import (
    ChunkTable,
    PageClaims,
    RowIndex,
    chunk_words,
    repetition_index,
)
from glaive.errors import CorruptFileError
from glaive.kernels.row_takes import locate_values
from glaive.types import Int64s, Where

HERE = Where("test.lance")


Page = tuple[bytes, int, int]
"""Chunk words, bytes of all chunks, values."""


def tables_of(
    pages: list[Page], word_bytes: int, indices: list[tuple[bytes, int]] | None = None
) -> ChunkTable:
    """The table of pages whose chunks lie 1,000,000 bytes apart; indices with their rows."""
    words, sizes, num_items = zip(*pages, strict=True)
    index, rows = zip(*(indices or [(b"", 0)] * len(pages)), strict=True)
    claims = PageClaims(
        word_sizes=np.array([*map(len, words)]),
        index_sizes=np.array([*map(len, index)]),
        starts=1_000_000 * np.arange(len(pages)),
        sizes=np.array(sizes),
        num_items=np.array(num_items),
        rows=np.array(rows),
        where_of=lambda page: replace(HERE, page=page),
    )
    given = None if indices is None else pa.py_buffer(b"".join(index))
    return ChunkTable.of_pages(pa.py_buffer(b"".join(words)), word_bytes, claims, given)


def table_of(words: bytes, word_bytes: int, size: int, num_items: int) -> ChunkTable:
    return tables_of([(words, size, num_items)], word_bytes)


def chunks_of(table: ChunkTable, values: Int64s) -> Int64s:
    """The chunk of each value."""
    found = locate_values(values, table.firsts, table.pages, table.shift)
    return found.ids[found.slots]


def page_of(chunks: int) -> Page:
    words = chunk_words(np.full(chunks, 1024), np.full(chunks, 64), 2)
    return words.tobytes(), 64 * chunks, 1024 * chunks


def index_of(pairs: list[tuple[int, int]]) -> bytes:
    return np.array(pairs, "<u8").tobytes()


def with_rows(pairs: list[tuple[int, int]], rows: int) -> RowIndex:
    table = tables_of([page_of(len(pairs))], 2, [(index_of(pairs), rows)])
    assert table.rows is not None
    return table.rows


@pytest.mark.spec("mb-2", "mb-3", "mb-5")
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4096)), max_size=20),
    st.integers(0, 5000),
    st.integers(1, 4096),
    st.sampled_from([2, 4]),
)
def test_words_say_where_chunks_and_values_lie(
    chunks: list[tuple[int, int]], last: int, last_words: int, width: int
) -> None:
    counts = np.array([*(1 << log for log, _ in chunks), last])
    sizes = np.array([*(8 * words for _, words in chunks), 8 * last_words])
    words = chunk_words(counts, sizes, width)
    assert words.itemsize == width
    table = table_of(words.tobytes(), width, int(sizes.sum()), int(counts.sum()))
    np.testing.assert_array_equal(table.counts, counts)
    np.testing.assert_array_equal(table.sizes, sizes)
    np.testing.assert_array_equal(table.offsets, np.cumsum([0, *sizes]))
    values = np.arange(counts.sum())
    expected = np.repeat(np.arange(len(counts)), counts)
    np.testing.assert_array_equal(chunks_of(table, values), expected)
    for value in values[:: max(1, len(values) // 20)].tolist():
        assert table.find_one(value) == expected[value]


@pytest.mark.spec("mb-4", "mb-5", "mb-6")
@pytest.mark.parametrize(
    ("words", "size", "num_items", "message"),
    [
        ([], 0, 0, "at least one chunk"),
        ([0x30], 40, 3, "40 bytes in all, found 32"),
        ([0x30, 0x30], 64, 3, "3 values in chunks"),
        ([0x31, 0x30], 64, 1, "found 2 values before the last"),
        ([0x31, 0x32], 64, 5, "5 values in chunks"),
        ([0x30], 32, 1 << 40, "values in chunks"),
    ],
)
def test_words_that_cannot_be_right_are_refused(
    words: list[int], size: int, num_items: int, message: str
) -> None:
    with pytest.raises(CorruptFileError, match=message):
        table_of(np.array(words, "<u2").tobytes(), 2, size, num_items)


def test_half_a_word_is_refused() -> None:
    with pytest.raises(CorruptFileError, match="a multiple of 2 bytes, found 3"):
        table_of(b"\x30\0\0", 2, 32, 3)


@pytest.mark.spec("mb-5")
def test_the_last_word_may_have_the_right_logarithm() -> None:
    assert table_of(b"\x31\0\x32\0", 2, 64, 6).counts.tolist() == [2, 4]


@pytest.mark.spec("mb-rep-1", "mb-rep-3")
def test_the_example_of_the_specification() -> None:
    lengths = [*[700] * 5, 0, *[10] * 3]
    rep = np.concatenate([[1, *[0] * max(length - 1, 0)] for length in lengths])
    # The empty row has an entry and no value: chunks of 1,024 values end one entry later
    # behind it.
    cuts = np.array([0, 1024, 2048, 3072, len(rep)])
    index = repetition_index(rep.astype(np.uint16), cuts, 1)
    assert index.reshape(-1, 2).tolist() == [[1, 324], [1, 648], [2, 272], [5, 0]]


@pytest.mark.spec("mb-rep-2", "mb-rep-4")
@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.data())
def test_rows_are_found_in_all_chunks_that_hold_them(
    lengths: list[int], data: st.DataObject
) -> None:
    total = sum(lengths)
    inner = data.draw(st.sets(st.integers(1, total), max_size=12)) - {total}
    cuts = np.array([0, *sorted(inner), total])
    rep = np.zeros(total, np.uint16)
    ends = np.cumsum(lengths)
    rep[ends - lengths] = 2
    pairs = [(int(a), int(b)) for a, b in repetition_index(rep, cuts, 2).reshape(-1, 2)]
    index = with_rows(pairs, len(lengths))
    first = data.draw(st.integers(0, len(lengths) - 1))
    last = data.draw(st.integers(first, len(lengths) - 1))
    begin, end = index.chunks_of(first, last)
    start, stop = ends[first] - lengths[first], ends[last]
    assert cuts[begin] <= start < cuts[begin + 1]
    assert cuts[end - 1] < stop <= cuts[end]


@pytest.mark.spec("mb-rep-2")
@pytest.mark.parametrize(
    ("pairs", "rows", "message"),
    [
        ([(1, 0), (2, 0)], 4, "expected 4 rows, found 3"),
        ([(1, 5), (0, 7)], 2, "none unfinished in the end"),
        ([(2**64 - 1, 0), (3, 0)], 2, "with at most 2 rows"),
        ([(0, 5), (0, 0)], 0, "expected 0 rows, found 0 rows, at least -1"),
        ([(65_537, 0), (0, 0)], 65_537, "with at most 65536 rows"),
        ([(1, 0)], 2**62, "at most 65535 rows per chunk"),
    ],
)
def test_an_index_that_cannot_be_right_is_refused(
    pairs: list[tuple[int, int]], rows: int, message: str
) -> None:
    with pytest.raises(CorruptFileError, match=message):
        with_rows(pairs, rows)


def test_an_index_of_another_length_is_refused() -> None:
    with pytest.raises(CorruptFileError, match="16 bytes for each of 1 chunks, found 8"):
        tables_of([page_of(1)], 2, [(bytes(8), 1)])


def test_chunks_of_several_pages_are_found_by_values_and_rows_of_all() -> None:
    pairs = [[(3, 0), (2, 0)], [(1, 7), (1, 0)], [(4, 0)]]
    indices = [(index_of(chunks), rows) for chunks, rows in zip(pairs, (5, 2, 4), strict=True)]
    table = tables_of([page_of(2), page_of(2), page_of(1)], 2, indices)
    assert table.offsets.tolist() == [0, 64, 1_000_000, 1_000_064, 2_000_000, 2_000_064]
    assert chunks_of(table, np.array([0, 1024, 2048, 4096, 5119])).tolist() == [0, 1, 2, 4, 4]
    assert table.rows is not None
    assert table.rows.starts.tolist() == [0, 3, 5, 7, 7, 11]
    assert table.rows.enters.tolist() == [False, False, False, True, False, False]


@pytest.mark.parametrize(
    ("damaged", "index", "message"),
    [
        ((b"", 0, 0), [], "at least one chunk"),
        ((b"\x30", 32, 3), [(3, 0)], "a multiple of 2 bytes, found 1 bytes"),
        ((b"\x30\0", 40, 3), [(3, 0)], "40 bytes in all, found 32"),
        ((b"\x30\0\x30\0", 64, 3), [(3, 0), (0, 0)], "3 values in chunks"),
        ((b"\x30\0", 32, 1 << 62), [(3, 0)], "values in chunks"),
        ((b"\x30\0", 32, 3), [(3, 0), (0, 0)], "16 bytes for each of 1 chunks, found 32"),
        ((b"\x30\0", 32, 3), [(3, 1)], "none unfinished in the end"),
        ((b"\x30\0", 32, 3), [(2**64 - 1, 0)], "with at most 3 rows"),
        ((b"\x30\0", 32, 3), [(2, 0)], "expected 3 rows, found 2 rows"),
    ],
)
def test_the_damaged_one_of_several_pages_is_named(
    damaged: Page, index: list[tuple[int, int]], message: str
) -> None:
    pages, right = [page_of(2), damaged, page_of(1)], index_of([(3, 0)])
    indices = [(index_of([(2, 0), (1, 0)]), 3), (index_of(index), 3), (right, 3)]
    with pytest.raises(CorruptFileError, match=message) as caught:
        tables_of(pages, 2, indices)
    assert "page 1" in str(caught.value)
