"""Rows of several columns taken at once: the values, levels and texts of which chunks were made."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack import InlineBitpacking, OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.rle import RunLength
from glaive.kernels.chunks import assemble_chunks
from glaive.kernels.fsst import SymbolTable, encode_strings
from glaive.kernels.records import LevelPage
from glaive.kernels.row_takes import (
    CODES,
    RUNS,
    STRINGS,
    RowColumns,
    RowItems,
    RowPages,
    TakenRows,
    join_symbols,
    take_rows,
)
from glaive.kernels.strings import Strings

LEVELS: list[tuple[ValueEncoding, int, int, int]] = [
    (Flat(16), 1, 16, 1),
    (OutOfLineBitpacking(16, 1), 2, 1, 1),
    (OutOfLineBitpacking(16, 2), 2, 2, 3),
    (InlineBitpacking(16), 3, 16, 3),
    (RunLength(16), 4, 16, 1),
]
"""Encodings of levels, their numbers and widths for the kernel, and the highest level."""

VALUES = ["bits", "plain", "packed", "runs", "wide", "text", "codes", "items", "wide items"]
WORDS = [b"", b"a", b"column", b"columns of rows", b"\xff\xfe of bytes", b"of a row and more " * 40]
TABLES = [SymbolTable((b"col", b"umn", b" of ", b"row")), SymbolTable((b"column", b"s", b"row "))]


class Sample:
    """Pages of random values, the column that they are taken as, and what is in it."""

    def __init__(self, seed: int, values: str, level: int | None, width: int) -> None:
        rng = np.random.default_rng(seed)
        most = 1024 if values in ("packed", "items", "wide items") or level == 3 else 1500
        chunks = [int(rng.integers(1, 4)) for _ in range(int(rng.integers(1, 4)))]
        shift = 6 if rng.random() < 0.5 else -1
        counts = rng.integers(1, most + 1, sum(chunks))
        self.first_chunks = np.append(0, np.cumsum(chunks))
        if shift >= 0:
            counts[:] = 1 << shift
            counts[self.first_chunks[1:] - 1] = rng.integers(1, 1 << shift, len(chunks))
        total = int(counts.sum())
        page_of_value = np.repeat(np.repeat(np.arange(len(chunks)), chunks), counts)
        bits = {"bits": 1, "plain": 16, "packed": 32, "wide": 24 * width // 8}.get(values, width)
        forms = {"bits": 1, "plain": 1, "wide": 1, "runs": RUNS, "text": STRINGS, "codes": CODES}
        form = forms.get(values, 3)
        self.symbols = join_symbols([TABLES[n % 2] for n in range(len(chunks))])
        self.items: RowItems | None = None
        self.expected: list[Any]
        if form >= STRINGS:
            chosen = rng.integers(0, len(WORDS), total)
            self.expected = [WORDS[number] for number in chosen]
            as_codes = values == "codes"
            pieces = [_texts(self.expected, page_of_value, counts, width, as_codes=as_codes)]
        else:
            top = {"bits": 2, "runs": 3}.get(values, len(WORDS) if "items" in values else 1000)
            words = np.repeat(rng.integers(0, top, total), 300 if values == "runs" else 1)[:total]
            self.expected = words.tolist()
            pieces = _words(words, counts, bits, form)
        if form == 3 and "items" in values:
            wide = [number.to_bytes(width // 8 + 1, "little") for number in range(len(WORDS))]
            self.expected = [(WORDS if values == "items" else wide)[number] for number in words]
            chunk_count = len(counts)
            bases = len(WORDS) * rng.integers(0, 2, chunk_count)
            limits = np.full(chunk_count, len(WORDS))
            count, data = 2 * len(WORDS), pa.py_buffer(b"".join(wide * 2))
            self.items = RowItems(data, width + 8, None, count, bases, limits)
            if values == "items":
                offsets, _, data = _strings(WORDS * 2, width)
                self.items = RowItems(data, width, offsets, count, bases, limits)
        encoded, definition, def_width, max_def = [], 0, 0, 0
        self.levels = np.zeros(total, np.uint16)
        if level is not None:
            codec, definition, def_width, max_def = LEVELS[level]
            # Where a chunk has many runs of levels, its rows are left to the general path.
            share = rng.choice([0.0, 0.02, 0.02 if definition == 4 else 0.5])
            self.levels = rng.integers(1, max_def + 1, total) * (rng.random(total) < share)
            self.levels = self.levels.astype(np.uint16)
            blocks = codec.encode_blocks(
                FixedWidth(pa.py_buffer(self.levels.tobytes()), 16, total), counts
            )
            encoded = [(blocks.data, blocks.sizes)]
        data, sizes = assemble_chunks(counts, encoded, pieces, value_width=4)
        self.nullable = level is not None and max_def == 1
        self.page = LevelPage(
            rep=0, rep_width=0, definition=definition, def_width=def_width, value_buffers=1,
            value_width=4, max_rep=0, visible_max=0, max_def=max_def, null_item=int(self.nullable),
            values=form, value_bits=bits,
        )  # fmt: skip
        self.pages = RowPages(
            pa.py_buffer(np.asarray(data).tobytes()), np.cumsum(sizes) - sizes, sizes,
            np.append(0, np.cumsum(counts)), counts, self.first_chunks, shift, self.page,
            self.symbols if values == "codes" else None, self.items,
        )  # fmt: skip
        self.total = total

    def check(self, taken: TakenRows, at: int, rows: NDArray[np.int64]) -> None:
        """Compare a column of a result with the rows."""
        memory, count = taken.memory, len(rows)
        values, size, offsets, validity, nulls, levels = taken.parts[at]
        wanted = [self.expected[row] for row in rows]
        bits = self.pages.text_bits
        if bits:
            ends = np.frombuffer(memory, f"<i{bits // 8}", count + 1, offsets).tolist()
            text = memory.slice(values, size).to_pybytes()
            assert ends[-1] == size
            assert [text[a:b] for a, b in pairwise(ends)] == wanted
        else:
            raw, width = memory.slice(values, size), self.pages.value_bits
            if self.items is not None:
                wanted = [int.from_bytes(item, "little") for item in wanted]
            assert _unpacked(raw, width, count) == wanted
        here = self.levels[rows]
        assert (levels >= 0) == (self.page.definition > 0 and not self.nullable)
        if levels >= 0:
            assert np.array_equal(np.frombuffer(memory, "<u2", count, levels), here)
        if self.nullable:
            assert nulls == np.count_nonzero(here)
            assert (validity >= 0) == (nulls > 0)
            if nulls:
                valid = _unpacked(memory.slice(validity, (count + 7) // 8), 1, count)
                assert valid == (here == 0).tolist()


def _strings(texts: list[bytes], bits: int) -> Strings:
    ends = np.append(0, np.cumsum([len(text) for text in texts])).astype(f"<i{bits // 8}")
    return Strings(pa.py_buffer(ends.tobytes()), bits, pa.py_buffer(b"".join(texts)))


def _texts(
    texts: list[Any],
    page: NDArray[np.int64],
    counts: NDArray[np.int64],
    bits: int,
    *,
    as_codes: bool,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Chunks of strings, in the codes of their page."""
    data, sizes, first = [], [], 0
    for count in counts.tolist():
        strings = _strings(texts[first : first + count], bits)
        if as_codes:
            strings = encode_strings(TABLES[page[first] % 2], strings, count)
        offsets, _, text = strings
        ends = np.frombuffer(offsets, f"<i{strings.offset_bits // 8}", count + 1)
        head = (count + 1) * bits // 8
        piece = (ends - ends[0] + head).astype(f"<u{bits // 8}").tobytes()
        piece += text.to_pybytes()[ends[0] : ends[-1]]
        data.append(piece)
        sizes.append(len(piece))
        first += count
    return np.frombuffer(b"".join(data), np.uint8), np.array(sizes)


def _words(
    words: NDArray[np.int64], counts: NDArray[np.int64], bits: int, form: int
) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Chunks of words, of bits, or of wider values; runs have two parts in each chunk."""
    codec: ValueEncoding = InlineBitpacking(bits) if form == 3 else Flat(bits)
    if form == RUNS:
        codec = RunLength(bits)
    parts: list[list[bytes]] = [[] for _ in range(codec.num_buffers)]
    first = 0
    for count in counts.tolist():
        part = words[first : first + count].tolist()
        raw = b"".join(word.to_bytes(bits // 8, "little") for word in part if bits > 1)
        if bits == 1:
            raw = np.packbits(np.array(part, np.uint8), bitorder="little").tobytes()
        block = FixedWidth(pa.py_buffer(raw), bits, count)
        encoded = codec.encode_blocks(block, np.array([count]))
        data = np.asarray(encoded.data)[: int(encoded.sizes.sum())].tobytes()
        if form == RUNS:
            head = int.from_bytes(data[:8], "little")
            parts[1].append(data[8 + head :])
            data = data[8 : 8 + head]
        parts[0].append(data)
        first += count
    return [
        (np.frombuffer(b"".join(own), np.uint8), np.array([len(one) for one in own]))
        for own in parts
    ]


def _unpacked(memory: pa.Buffer, bits: int, count: int) -> list[int]:
    if bits == 1:
        flags = np.unpackbits(np.frombuffer(memory, np.uint8), bitorder="little")
        return [int(flag) for flag in flags[:count]]
    raw, width = memory.to_pybytes(), bits // 8
    return [int.from_bytes(raw[at * width : (at + 1) * width], "little") for at in range(count)]


SAMPLES = st.builds(
    Sample,
    st.integers(0, 2**32),
    st.sampled_from(VALUES),
    st.sampled_from([None, *range(len(LEVELS))]),
    st.sampled_from([32, 64]),
)


def taken(columns: list[RowPages], rows: NDArray[np.int64]) -> TakenRows:
    result = take_rows(RowColumns(columns), rows)
    assert result is not None
    return result


@given(samples=st.lists(SAMPLES, min_size=1, max_size=3), seed=st.integers(0, 2**32))
def test_rows_taken_at_once_are_those_of_the_chunks(samples: list[Sample], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, min(sample.total for sample in samples), int(rng.integers(1, 100)))
    result = taken([sample.pages for sample in samples], rows)
    for at, sample in enumerate(samples):
        sample.check(result, at, rows)


@pytest.mark.parametrize("values", VALUES)
def test_rows_of_a_page_are_counted_from_its_first_row(values: str) -> None:
    sample = Sample(7, values, 1, 32)
    rows = np.arange(sample.total)[::-1]
    result = taken([replace(sample.pages, first_row=1000)], rows + 1000)
    sample.check(result, 0, rows)


@pytest.mark.parametrize("values", ["plain", "packed", "runs"])
def test_numbers_of_missing_items_are_left_to_the_general_path(values: str) -> None:
    sample = Sample(11, values, None, 32)
    rows, top = np.arange(sample.total), max(sample.expected)
    good = taken([replace(sample.pages, limit=top + 1)], rows)
    sample.check(good, 0, rows)
    assert take_rows(RowColumns([replace(sample.pages, limit=top)]), rows) is None


@pytest.mark.parametrize("row", [-1, 2**40, -(2**63), 2**63 - 1])
def test_a_row_of_no_page_is_left_to_the_general_path(row: int) -> None:
    sample = Sample(3, "plain", None, 32)
    assert take_rows(RowColumns([sample.pages]), np.array([0, row])) is None


def test_longer_texts_than_those_before_find_room() -> None:
    texts: list[Any] = [b"a", b"b" * 100_000]
    piece, sizes = _texts(texts, np.zeros(2, np.int64), np.array([2]), 32, as_codes=False)
    data, sizes = assemble_chunks(np.array([2]), [], [(piece, sizes)], value_width=4)
    page = Sample(0, "text", None, 32).page
    pages = RowPages(
        pa.py_buffer(np.asarray(data).tobytes()), np.array([0]), sizes, np.array([0, 2]),
        np.array([2]), np.array([0, 1]), -1, page,
    )  # fmt: skip
    columns = RowColumns([pages])
    for rows in ([0], [0, 0], [1, 0, 1]):
        result = take_rows(columns, np.array(rows))
        assert result is not None
        assert result.parts[0][1] == len(b"".join([texts[row] for row in rows]))
    assert columns.estimated_bytes(1000) < 1 << 18  # three rows tell nothing of a thousand
    take_rows(columns, np.ones(20, np.int64))
    assert columns.estimated_bytes(1000) > 1 << 24
    short = take_rows(columns, np.zeros(1000, np.int64))
    assert short is not None
    assert short.memory.size < 1 << 18  # what it has no use for is not kept


@given(sample=SAMPLES, seed=st.integers(0, 2**32))
def test_damaged_chunks_are_left_to_the_general_path_or_read_within_their_memory(
    sample: Sample, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    damaged = np.frombuffer(sample.pages.data, np.uint8).copy()
    at = rng.integers(0, len(damaged), 8)
    damaged[at] = rng.integers(0, 256, 8)
    damaged[rng.integers(0, min(16, len(damaged)))] = 255
    pages = replace(sample.pages, data=pa.py_buffer(damaged.tobytes()))
    rows = rng.integers(0, sample.total, 20)
    result = take_rows(RowColumns([pages]), rows)
    if result is not None:
        values, size, *_ = result.parts[0]
        assert 0 <= values <= values + size <= result.memory.size


def test_arrays_that_contradict_each_other_are_refused() -> None:
    pages = Sample(5, "codes", 1, 32).pages
    wrong = [
        {"counts": pages.counts[1:]},
        {"firsts": pages.firsts[:-1]},
        {"symbols": None},
        {"first_chunks": pages.first_chunks + 1},
        {"first_chunks": np.array([0])},
        {"sizes": pages.sizes[1:]},
    ]
    for change in wrong:
        with pytest.raises(ValueError, match=r"."):
            replace(pages, **change)
