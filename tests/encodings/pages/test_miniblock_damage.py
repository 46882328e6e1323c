"""Mini-block pages that cannot be written, and damaged ones that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.encodings.pages.mini_samples import (
    ANY_LIST,
    ITEM,
    LAYERS,
    LIST,
    Chopped,
    Storage,
    entries_of,
    flat_page,
    flatten,
    make_sample,
    write,
)

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.levels import Layer, Leaf, Levels
from glaive.encodings.miniblock.writer import encode_mini_page
from glaive.encodings.protocol import EncodedPage, Fetch
from glaive.errors import CorruptFileError, RowIndexError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb

# ------------------------------------------------------------------ limits of the layout


@pytest.mark.spec("mb-12")
def test_more_levels_than_a_chunk_can_count_are_not_written() -> None:
    definition = np.full(66_000, 2, np.uint16)
    rep = np.ones(66_000, np.uint16)
    definition[0] = 0
    values = FixedWidth(pa.py_buffer(bytes(8)), 64, 1)
    layers = (ITEM, ANY_LIST)
    for large in (False, True):
        assert (
            encode_mini_page(
                values,
                Chopped(4),
                Levels(rep, definition, layers),
                66_000,
                large_chunks=large,
                level_runs=large,
            )
            is None
        )


def test_chunks_over_32_kib_are_written_in_large_chunks_only() -> None:
    sample = make_sample((ITEM,), 8192, 1, 0, 0)
    assert (
        encode_mini_page(
            sample.block,
            Chopped(4096),
            Levels(None, None, (ITEM,)),
            8192,
            large_chunks=False,
            level_runs=False,
        )
        is None
    )
    storage = Storage()
    page = storage.open(write(sample, Chopped(4096), large=True), mapped=True)
    assert entries_of(storage.run_fetch(page.read(0, 8192))) == flatten(sample.rows)


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
    damaged = rewritten(flat_page(100), **fields)
    with pytest.raises(CorruptFileError, match=message):
        Storage().open(damaged, mapped=True).read(0, 100)


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
    steps: list[Callable[[], Fetch[Leaf] | Leaf]] = [
        lambda: reader.read(0, rows),
        lambda: reader.read(rows // 3, rows // 2),
        lambda: reader.take(np.array([rows - 1, 0, rows // 2])),
        lambda: reader.take(np.array([rows // 2])),
    ]
    for step in steps:
        try:
            leaf = storage.run_fetch(step())
        except CorruptFileError:
            continue
        found = entries_of(leaf)  # Of a shape, it compares the counts.
        assert leaf.shape is not None or leaf.entries == len(found)
