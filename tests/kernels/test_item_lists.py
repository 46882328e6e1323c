"""Lists without their levels: the same as levels that are resolved one layer after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import force_tier

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack import InlineBitpacking, OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.rle import RunLength
from glaive.kernels.chunks import assemble_chunks
from glaive.kernels.levels import resolve_lists, validity_from_levels
from glaive.kernels.list_takes import ListPage, take_item_lists
from glaive.kernels.records import LevelPage

PLAIN, PACKED, INLINE, RUNS = (
    Flat(16),
    OutOfLineBitpacking(16, 1),
    InlineBitpacking(16),
    RunLength(16),
)
FORMS: list[tuple[ValueEncoding, int, int, int]] = [
    (PLAIN, 1, 16, 3000),
    (PACKED, 2, 1, 3000),
    (OutOfLineBitpacking(16, 2), 2, 2, 3000),
    (INLINE, 3, 16, 1024),
    (RUNS, 4, 16, 3000),
]

LEVELS = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 1, 1)]
"""Levels of a null item, a null list and an empty list: which of the three a page has."""

VALUES: list[ValueEncoding] = [Flat(16), InlineBitpacking(16)]


class Sample:
    """Chunks of random lists, and the table that goes with them."""

    def __init__(
        self, seed: int, rep_form: int, def_form: int, kinds: tuple[int, int, int], values: int
    ) -> None:
        rng = np.random.default_rng(seed)
        null_item, null_list, _ = (sum(kinds[: at + 1]) * kind for at, kind in enumerate(kinds))
        max_def = sum(kinds)
        if max_def > 1 and def_form == 1:
            def_form = 2
        chunks = int(rng.integers(1, 6))
        has_def = max_def > 0
        most = min(FORMS[rep_form][3], FORMS[def_form][3] if has_def else 3000, 1024)
        levels = rng.integers(1, most + 1, chunks)
        total = int(levels.sum())
        self.rep = (rng.random(total) < rng.choice([0.02, 0.3, 0.9])).astype(np.uint16)
        self.rep[0] = 1
        self.definition = rng.choice([0, 0, 0, 0, *range(max_def + 1)], total).astype(np.uint16)
        hidden = self.definition > null_item
        # An entry without a value is a list of its own.
        self.rep[hidden] = 1
        self.rep[1:][hidden[:-1]] = 1
        ends = np.cumsum(levels)
        self.firsts, self.visible = ends - levels, ~hidden
        begins = np.flatnonzero(self.rep)
        self.begins = np.append(begins, total)
        row_starts = np.searchsorted(begins, np.append(self.firsts, total)).astype(np.int64)
        enters = np.append(self.rep[self.firsts] == 0, False)
        counts = np.diff(np.append(0, np.cumsum(self.visible))[ends], prepend=0)
        self.items = rng.integers(0, 1000, int(counts.sum())).astype(np.uint16)
        pieces = [encode(self.rep, levels, FORMS[rep_form][0])]
        if has_def:
            pieces.append(encode(self.definition, levels, FORMS[def_form][0]))
        codec = VALUES[values]
        encoded = encode(self.items, counts, codec)
        self.data, self.sizes = assemble_chunks(levels, pieces, [encoded], value_width=2)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.counts, self.row_starts, self.enters = counts, row_starts, enters
        self.page = LevelPage(
            rep=FORMS[rep_form][1],
            rep_width=FORMS[rep_form][2],
            definition=FORMS[def_form][1] if has_def else 0,
            def_width=FORMS[def_form][2] if has_def else 0,
            value_buffers=1,
            value_width=2,
            max_rep=1,
            visible_max=null_item,
            max_def=max_def,
            null_list=null_list,
            null_item=null_item,
            values=(1, 3)[values],
            value_bits=16,
        )

    def expected(self, entries: NDArray[np.int64]) -> tuple[list[object], ...]:
        """Offsets and validity of the lists of these entries, by the kernels' references."""
        rep, definition, page = self.rep[entries], self.definition[entries], self.page
        with force_tier("numpy"):
            lists = resolve_lists(
                rep, definition, visible_max=page.visible_max, resolved_max=page.max_def,
                slot_max=65535, null_level=page.null_list, offset_bits=32, outer=False,
            )  # fmt: skip
            valid, nulls, _ = validity_from_levels(
                definition[definition <= page.visible_max] if len(entries) else definition,
                slot_max=65535, null_level=page.null_item or 65535,
            )  # fmt: skip
        assert lists is not None
        return (
            np.frombuffer(lists.offsets, np.int32).tolist(),
            [bits(lists.validity, lists.slots), lists.null_count],
            [bits(valid, lists.visible), nulls],
        )


def encode(
    levels: NDArray[np.uint16], counts: NDArray[np.int64], codec: ValueEncoding
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    block = FixedWidth(pa.py_buffer(levels.tobytes()), 16, len(levels))
    encoded = codec.encode_blocks(block, counts)
    return encoded.data, encoded.sizes


def bits(bitmap: pa.Buffer | None, count: int) -> list[int]:
    if bitmap is None:
        return [1] * count
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")[:count].tolist()


SAMPLES = st.builds(
    Sample,
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 3, 4]),
    st.integers(0, len(FORMS) - 1),
    st.sampled_from(LEVELS),
    st.sampled_from([0, 1]),
)


@given(SAMPLES, st.data())
def test_rows_are_taken_in_any_order(sample: Sample, data: st.DataObject) -> None:
    rows = st.integers(0, int(sample.row_starts[-1]) - 1)
    wanted = np.array(data.draw(st.lists(rows, min_size=1, max_size=40)))
    order = np.argsort(wanted)
    chunks = ListPage(sample.sizes, sample.counts, sample.row_starts, sample.enters, sample.page)
    ascending = bool((wanted[1:] >= wanted[:-1]).all())
    back = None if ascending and data.draw(st.booleans()) else order
    taken = take_item_lists(sample.data, sample.starts, chunks, wanted[order], back)
    assert taken is not None
    entries = np.concatenate(
        [np.arange(sample.begins[row], sample.begins[row + 1]) for row in wanted]
    )
    offsets, of_lists, of_items = sample.expected(entries)
    assert np.frombuffer(taken.offsets, np.int32).tolist() == offsets
    assert [bits(taken.list_validity, len(wanted)), taken.null_lists] == of_lists
    assert [bits(taken.item_validity, taken.items), taken.null_items] == of_items
    position = np.cumsum(sample.visible) - 1
    values = position[entries[sample.visible[entries]]]
    before = np.cumsum(sample.counts) - sample.counts
    np.testing.assert_array_equal(before[taken.ids[taken.slots]] + taken.positions, values)
    assert taken.values is not None
    np.testing.assert_array_equal(np.frombuffer(taken.values, np.uint16), sample.items[values])
    chunks = replace(chunks, page=sample.page._replace(values=0))
    taken = take_item_lists(sample.data, sample.starts, chunks, wanted[order], back)
    assert taken is not None
    begins, ends = sample.starts[taken.ids], (sample.starts + sample.sizes)[taken.ids]
    assert (taken.starts[0] > begins).all()
    assert (taken.starts[0] + taken.sizes[0] <= ends).all()


@pytest.mark.spec("rel-23")
@given(SAMPLES)
def test_buffers_of_taken_lists_end_with_the_last_item(sample: Sample) -> None:
    chunks = ListPage(sample.sizes, sample.counts, sample.row_starts, sample.enters, sample.page)
    for order in (None, np.array([0])):
        taken = take_item_lists(sample.data, sample.starts, chunks, np.array([0]), order)
        assert taken is not None
        assert taken.item_validity is None or taken.item_validity.size == (taken.items + 7) // 8


def test_a_row_over_many_chunks_is_taken() -> None:
    chunks = 40
    levels = np.full(chunks, 1000)
    rep = np.zeros(levels.sum(), np.uint16)
    rep[[0, 500]] = 1
    items = np.arange(len(rep)).astype(np.uint16)
    pieces = [encode(rep, levels, RUNS)]
    data, sizes = assemble_chunks(levels, pieces, [encode(items, levels, INLINE)], value_width=2)
    row_starts = np.array([0, *[2] * chunks])
    enters = np.array([False, *[True] * (chunks - 1), False])
    page = LevelPage(
        rep=4, rep_width=16, definition=0, def_width=0, value_buffers=1, value_width=2, max_rep=1,
        visible_max=0, max_def=0, values=3, value_bits=16,
    )  # fmt: skip
    starts = np.cumsum(sizes) - sizes
    table = ListPage(sizes, levels, row_starts, enters, page)
    taken = take_item_lists(data, starts, table, np.array([0, 1]), np.array([1, 0]))
    assert taken is not None
    found = 1000 * taken.ids[taken.slots] + taken.positions
    expected = np.concatenate([np.arange(500, len(items)), np.arange(500)])
    np.testing.assert_array_equal(found, expected)
    assert taken.values is not None
    np.testing.assert_array_equal(np.frombuffer(taken.values, np.uint16), items[expected])


DAMAGE = ["rows", "count", "enters", "size", "level", "start", "width"]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_chunks_are_left_to_the_general_path(damage: str) -> None:
    sample = Sample(1, 0, 0, (1, 1, 1), 1)
    data, table = (
        sample.data,
        ListPage(sample.sizes, sample.counts, sample.row_starts, sample.enters, sample.page),
    )
    starts, sizes, counts = (a.copy() for a in (sample.starts, sample.sizes, sample.counts))
    row_starts, enters = sample.row_starts.copy(), sample.enters.copy()
    if damage == "rows":
        row_starts[1:] -= 1
    elif damage == "count":
        counts[0] -= 1
    elif damage == "enters":
        enters[0] = True
    elif damage == "size":
        sizes[0] = 8
    elif damage == "start":
        starts[0] = data.size
    else:
        damaged = bytearray(data.to_pybytes())
        unread = replace(table, page=sample.page._replace(values=0))
        row = take_item_lists(data, starts, unread, np.array([0]))
        assert row is not None
        at = 16 if damage == "level" else int(row.starts[0, 0])  # a value takes at most 16 bits
        damaged[at : at + 2] = b"\xff\xff"
        data = pa.py_buffer(bytes(damaged))
    table = replace(table, sizes=sizes, counts=counts, row_starts=row_starts, enters=enters)
    taken = take_item_lists(data, starts, table, np.array([0]))
    assert taken is None
