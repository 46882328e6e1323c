"""Pages of 2.1 to 2.3: a layout around encodings that need few bytes, in every slot that it has."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tests.proof.few_bytes.chunks import Kind, chunked, values_of
from tests.proof.few_bytes.draws import Draws, Impossible, Runs, Wanted, equal
from tests.proof.few_bytes.sequences import MOST_BYTES, flat, numbers, texts

from glaive.format.pb import encodings21_pb2 as pb

__all__ = ["Page", "Shape", "full_zip", "group_of", "mini_blocks", "page_of"]

ITEM, LIST, NULLABLE, NULL_LIST, EMPTY_LIST, ANY_LIST = range(1, 7)
_LISTS = (LIST, NULL_LIST, EMPTY_LIST, ANY_LIST)


class Shape(NamedTuple):
    """A column: its leaf, and what is around that, inner-most first.

    ``around`` has ``"item"``, ``"list"``, or the size of a list of fixed size.
    """

    leaf: Kind
    around: tuple[str | int, ...] = ()


class Page(NamedTuple):
    """Message, buffers, entries of the page and its rows in the file."""

    message: Any
    buffers: list[bytes]
    length: int
    rows: int
    story: str = ""


def page_of(draw: Draws, shape: Shape, version: str) -> Page:
    """Any page of a column of 2.1 or 2.2."""
    layout = pb.PageLayout()
    way = draw.of(["constant", "chunks", "chunks", "zipped"])
    if way == "constant":
        page = _constant(draw, shape, layout.constant_layout)
    elif way == "chunks":
        word = 2 if version == "2.1" else 4
        layout.mini_block_layout.has_large_chunk = word == 4
        page = mini_blocks(draw, shape, layout.mini_block_layout, word)
    else:
        page = full_zip(draw, shape, layout.full_zip_layout)
    return page._replace(message=layout)


# ------------------------------------------------------------------ levels


class _Levels(NamedTuple):
    layers: list[int]
    rows: int
    entries: int
    visible: int
    rep: Wanted | None
    definition: Wanted | None


def group_of(shape: Shape) -> int:
    return int(np.prod([int(one) for one in shape.around if isinstance(one, int)] or [1]))


def _levels(draw: Draws, shape: Shape, entries: int, *, few_rows: bool) -> _Levels:
    """Layers of a column, and levels of so many entries that runs describe."""
    lists = sum(one == "list" for one in shape.around)
    kinds = [_LISTS if one == "list" else (ITEM, ITEM, NULLABLE) for one in shape.around]
    layers = [draw.of(some) for some in [(ITEM, NULLABLE), *kinds]]
    top = sum({ITEM: 0, LIST: 0, ANY_LIST: 2}.get(layer, 1) for layer in layers)
    inside = layers[
        : next((at for at, layer in enumerate(layers) if layer in (2, 4, 5, 6)), len(layers))
    ]
    seen = sum({ITEM: 0}.get(layer, 1) for layer in inside)
    level = draw.of([0, 0, draw.of(range(top + 1))])
    rep: Wanted | None = None
    rows = entries
    if lists:
        if few_rows:
            rows = draw.of([1, 2, 3, 20])
            if entries % rows or entries == rows:
                rows = 1
            runs = [(lists, 1), (draw.of(range(lists)), entries // rows - 1)]
            rep = Runs(tuple(runs * rows)) if entries > 1 else equal(lists, 1)
            level = min(level, seen)
        else:
            rep = equal(lists, entries)
    definition = equal(level, entries) if top and draw.chance(0.9) else None
    visible = entries if definition is None or level <= seen else 0
    return _Levels(layers, rows, entries, visible, rep, definition)


def _raw(levels: Wanted | None) -> bytes:
    if levels is None:
        return b""
    if levels.count > MOST_BYTES // 2:
        raise Impossible
    return levels.listed().astype("<u2").tobytes()


# ------------------------------------------------------------------ 2.1 and 2.2


def _constant(draw: Draws, shape: Shape, message: Any) -> Page:
    group = group_of(shape)
    entries = draw.of([draw.many(4, 40), draw.many(16, 27)]) * group
    levels = _levels(draw, shape, entries, few_rows=draw.chance(0.5))
    message.layers.extend(levels.layers)
    buffers: list[bytes] = []
    scalar = draw.of(["none", "inline", "buffer"])
    leaf = shape.leaf
    if scalar == "inline" and not leaf.is_text:
        message.inline_value = bytes(max(1, leaf.bits * max(1, leaf.size) // 8))[:32]
    elif scalar == "buffer":
        word = leaf.bits // 8 or 1
        if leaf.is_text:
            size = draw.of([0, 5, 15_000])
            ends = np.array([0, size], f"<i{word}").tobytes()
            buffers = [np.array([2, len(ends), size], "<u4").tobytes() + ends + b"x" * size]
        else:
            value = bytes(max(1, word * max(1, leaf.size)))[:MOST_BYTES]
            buffers = [np.array([1, len(value)], "<u4").tobytes() + value]
    if levels.rep is not None or draw.chance(0.5):
        both = []
        for name, wanted in (("rep", levels.rep), ("def", levels.definition)):
            if wanted is None or draw.chance(0.15):
                both.append(_raw(wanted))
                continue
            how, data = numbers(draw, wanted, 16)
            getattr(message, f"{name}_compression").CopyFrom(how)
            setattr(message, f"num_{name}_values", wanted.count)
            both.append(data)
        buffers += both
    return Page(message, buffers, levels.rows, levels.rows // group)


def _chunk_levels(draw: Draws, shape: Shape, each: int) -> tuple[Any, list[Any], list[bytes]]:
    levels = _levels(draw, shape, each, few_rows=False)
    if levels.visible != each:
        raise Impossible
    both = [levels.rep, levels.definition]
    how = [None if one is None else numbers(draw, one, 16, 2) for one in both]
    return levels, how, [part[1] for part in how if part is not None]


def mini_blocks(draw: Draws, shape: Shape, message: Any, word: int) -> Page:
    """Chunks with levels; ``message`` is a ``MiniBlockLayout``."""
    group = group_of(shape)
    each, chunks = 1 << draw.of([1, 4, 10, 12, 14, 15, 15, 15]), draw.of([1, 1, 2, 30, 400])
    has_dictionary = draw.chance(0.4)
    value = values_of(draw, Kind(draw.of([8, 16, 32])) if has_dictionary else shape.leaf, each)
    levels, how, level_bytes = _chunk_levels(draw, shape, each)
    made = chunked(value, each, chunks, word, level_bytes, each if level_bytes else 0)
    message.value_compression.CopyFrom(made.values)
    message.num_buffers, message.num_items = made.num_buffers, made.items
    message.layers.extend(levels.layers)
    buffers = made.buffers
    if how[0] is not None:
        message.rep_compression.CopyFrom(how[0][0])
        message.repetition_index_depth = 1
    if how[1] is not None:
        message.def_compression.CopyFrom(how[1][0])
    if has_dictionary:
        items = draw.of([1, 1, 3, 65_536, draw.many(4, 31)])
        encoding, data = _items(draw, shape.leaf, items)
        message.dictionary.CopyFrom(encoding)
        message.num_dictionary_items = items
        buffers.append(data)
    if how[0] is not None:
        buffers.append(np.array([each, 0] * chunks, "<u8").tobytes())
    if made.items % group:
        raise Impossible
    return Page(message, buffers, made.items, made.items // group)


def _items(draw: Draws, leaf: Kind, items: int) -> tuple[pb.CompressiveEncoding, bytes]:
    if leaf.is_text:
        return texts(draw, draw.of([0, 1, 1000]), items, leaf.bits)
    if leaf.size and leaf.inner is not None:
        size, inner = leaf.size, leaf.inner
        if draw.chance(0.5):
            values = pb.CompressiveEncoding(constant=pb.Constant())
            bits = 0
        else:
            values, bits = flat(inner.bits), inner.bits
        if items * size * bits > 8 * MOST_BYTES:
            raise Impossible
        lists = pb.FixedSizeList(items_per_value=size, values=values)
        return pb.CompressiveEncoding(fixed_size_list=lists), bytes(items * size * bits // 8)
    if leaf.bits == 1:
        raise Impossible
    return numbers(draw, equal(0, items), leaf.bits)


def full_zip(draw: Draws, shape: Shape, message: Any, count: int | None = None) -> Page:
    """Full-zip entries: all rows of one size, or texts; ``count`` of them if it is given."""
    leaf, group = shape.leaf, group_of(shape)
    if any(one == "list" for one in shape.around):
        raise Impossible
    if leaf.is_text:
        rows = draw.of([1, 100, 9000]) if count is None else count
        if rows * (leaf.bits // 8 + 5) > 3 * MOST_BYTES:
            raise Impossible
        levels = _levels(draw, shape, rows, few_rows=False)
        message.bits_per_offset = leaf.bits
        message.value_compression.variable.offsets.CopyFrom(flat(leaf.bits))
        stride = (1 if levels.definition is not None else 0) + leaf.bits // 8
        data = bytes(stride * rows)
        buffers = [data, (np.arange(rows + 1) * stride).astype("<u4").tobytes()]
        message.bits_def = 1 if levels.definition is not None else 0
    else:
        bits = 0 if draw.chance(0.5) and leaf.size else leaf.bits * max(1, leaf.size)
        rows = draw.of([1, 100, draw.many(10, 31)])
        if count is not None:
            rows = count
        elif bits:
            rows = min(rows, max(1, MOST_BYTES * 8 // bits))
        levels = _levels(draw, shape, rows, few_rows=False)
        message.bits_per_value = bits
        if leaf.size:
            lists = message.value_compression.fixed_size_list
            lists.items_per_value = leaf.size
            if bits:
                lists.values.CopyFrom(flat(leaf.bits))
            else:
                lists.values.constant.SetInParent()
        else:
            message.value_compression.CopyFrom(flat(max(8, leaf.bits)))
        control = levels.definition is not None and draw.chance(0.6)
        message.bits_def = 1 if control else 0
        if (control + bits // 8) * rows > 3 * MOST_BYTES:
            raise Impossible
        buffers = [bytes((control + bits // 8) * rows)]
    message.num_items = message.num_visible_items = rows
    message.layers.extend(levels.layers)
    if rows % group:
        raise Impossible
    return Page(message, buffers, rows, rows // group)
