"""Mini-block pages for tests: random entries, chunks of any size, storage that counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Dictionary, FixedWidth
from glaive.encodings.levels import Layer, Leaf, Levels, Slots, level_limits, level_plan
from glaive.encodings.miniblock.writer import encode_mini_page
from glaive.encodings.protocol import (
    EncodedChunks,
    EncodedPage,
    Fetch,
    PageBytes,
    PageReader,
    ValueEncoding,
)
from glaive.encodings.registry import open_page
from glaive.format.pb import encodings21_pb2 as pb
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
    (NULLABLE, ANY_LIST, ITEM),
    (NULLABLE, ITEM, ANY_LIST),
    (NULLABLE, NULLABLE, ANY_LIST, NULLABLE),
    (NULLABLE, ANY_LIST, NULL_LIST),
    (ITEM, ANY_LIST, ITEM, ANY_LIST, NULLABLE),
]

Entry = tuple[int, int, int | None]


@dataclass
class Storage:
    """The bytes of pages; counts the requests."""

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

    def run_fetch(self, step: Fetch[Leaf] | Leaf) -> Leaf:
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
    if rep is not None:
        # What goes on within the innermost list is an item of it, and has a value.
        beginning = rng.integers(1, limits.max_rep + 1, entries).astype(np.uint16)
        # Nothing goes on within a list that is null or empty.
        goes_on = visible & np.append(True, visible[:-1])
        rep = np.where(goes_on | (rep > 0), rep, beginning)
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
        Levels(sample.rep, sample.definition, sample.layers),
        len(sample.rows),
        large_chunks=large,
        level_runs=large,
    )
    assert page is not None
    return page


def entries_of(leaf: Leaf) -> list[Entry]:
    if leaf.shape is not None:
        return _entries_of_shape(leaf, leaf.shape)
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


def _entries_of_shape(leaf: Leaf, shape: Sequence[Slots]) -> list[Entry]:
    """The entries that a page without levels would have with them."""
    items, plan = shape[0], level_plan(leaf.layers)
    at_list = next((at for at, slots in enumerate(shape) if slots.offsets is not None), None)
    if at_list is None:
        return _entries_of_structs(leaf, shape)
    lists = shape[at_list]
    assert lists.offsets is not None
    assert len(shape) == len(leaf.layers)
    for at, slots in enumerate(shape[1:], 1):
        assert slots.count == (items.count if at < at_list else leaf.rows)
        assert at == at_list or slots.validity is None
    assert len(lists.offsets) == leaf.rows + 1 == lists.count + 1
    assert lists.offsets[0] == 0
    assert lists.offsets[-1] == items.count == leaf.entries
    values = [] if leaf.values is None else numbers(leaf.values)
    assert len(values) == items.count
    null_item, (null_list, empty_list) = plan[0][0], plan[at_list]
    found: list[Entry] = []
    of_items = _valid(items)
    for row, present in enumerate(_valid(lists)):
        first, end = int(lists.offsets[row]), int(lists.offsets[row + 1])
        if first == end:
            found.append((1, empty_list if present else null_list, None))
        for at in range(first, end):
            level = 0 if of_items[at] else null_item
            found.append((int(at == first), level, values[at]))
    return found


def _entries_of_structs(leaf: Leaf, shape: Sequence[Slots]) -> list[Entry]:
    """The same without lists: the level of a row is that of its outer-most null."""
    levels = [0] * leaf.rows
    for slots, (null, _) in zip(shape, level_plan(leaf.layers), strict=True):
        assert slots.count == leaf.rows == leaf.entries
        levels = [
            level if present else null for level, present in zip(levels, _valid(slots), strict=True)
        ]
    values: list[Any] = [None] * leaf.rows if leaf.values is None else numbers(leaf.values)
    return [(0, level, value) for level, value in zip(levels, values, strict=True)]


def _valid(slots: Slots) -> list[bool]:
    if slots.validity is None:
        assert not slots.null_count
        return [True] * slots.count
    bits = np.unpackbits(np.frombuffer(slots.validity, np.uint8), bitorder="little")
    valid = bits[: slots.count].astype(bool)
    assert slots.null_count == slots.count - valid.sum()
    return valid.tolist()


def numbers(block: Block) -> list[int]:
    if isinstance(block, Dictionary):
        items = numbers(block.items)
        return [items[index] for index in numbers(block.indices)]
    assert isinstance(block, FixedWidth)
    return np.frombuffer(block.values, f"<u{block.bits // 8}", block.count).tolist()


def flatten(rows: list[list[Entry]]) -> list[Entry]:
    return [entry for row in rows for entry in row]


def flat_page(rows: int) -> EncodedPage:
    return write(make_sample((NULLABLE,), rows, 7, 0, 0.1), Chopped(512), large=True)
