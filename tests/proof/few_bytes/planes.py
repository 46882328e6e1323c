"""Pages of 2.3: a structural plane, dense or sparse, and a value plane."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.proof.few_bytes.chunks import Kind, chunked, values_of
from tests.proof.few_bytes.draws import Draws, Impossible, Steps, equal
from tests.proof.few_bytes.pages import Page, Shape, full_zip, group_of, mini_blocks
from tests.proof.few_bytes.sequences import has_payload, numbers

from glaive.format.pb import encodings21_pb2 as pb
from glaive.format.pb import encodings23_pb2 as pb23

__all__ = ["planar_page_of"]

MOST_SLOTS = 2**32 - 1


def planar_page_of(draw: Draws, shape: Shape) -> Page:
    """Any page of a column."""
    return draw.of([_sparse, _sparse, _sparse, _dense])(draw, shape)


def _dense(draw: Draws, shape: Shape) -> Page:
    message = pb23.PlanarLayout()
    layers = message.structure.dense.layers
    if draw.chance(0.6):
        blocks = pb.MiniBlockLayout()
        page = mini_blocks(draw, shape, blocks, 4)
        values = message.values.chunked
        for name in ("value_compression", "dictionary"):
            if blocks.HasField(name):
                getattr(values, name).CopyFrom(getattr(blocks, name))
        values.num_dictionary_items = blocks.num_dictionary_items
        values.num_buffers, values.num_items = blocks.num_buffers, blocks.num_items
        values.levels.SetInParent()
        for name in ("rep_compression", "def_compression"):
            if blocks.HasField(name):
                getattr(values.levels, name).CopyFrom(getattr(blocks, name))
        values.levels.repetition_index_depth = blocks.repetition_index_depth
        layers.extend(blocks.layers)
    else:
        entries = pb.FullZipLayout()
        page = full_zip(draw, shape, entries)
        message.values.zipped.levels.bits_def = entries.bits_def
        _copy_width(entries, message.values.zipped)
        layers.extend(entries.layers)
    return page._replace(message=message)


def _copy_width(inner: Any, values: Any) -> None:
    values.value_compression.CopyFrom(inner.value_compression)
    values.num_items, values.num_visible_items = inner.num_items, inner.num_visible_items
    name = inner.WhichOneof("details")
    setattr(values, name, getattr(inner, name))


def _validity(draw: Draws, layer: Any, slots: int, structure: list[bytes], nulls: str) -> int:
    """Fill a ``SparseValiditySet``; returns how many slots are valid."""
    if nulls == "none":
        meaning, count = 1, 0
    elif nulls == "all":
        meaning, count = 2, 0
    else:
        meaning = draw.of([1, 2])
        count = draw.of(
            [slots, max(0, slots - 1), slots // 2, min(slots, 2**28), min(slots, 2**21), 1]
        )
    layer.meaning, layer.num_positions = meaning, count
    step = draw.of([1, max(1, slots // max(count, 1))])
    how, data = numbers(draw, Steps(0, step, count), 64)
    layer.positions.CopyFrom(how)
    if has_payload(how):
        structure.append(data)
    return slots - count if meaning == 1 else count


def _sparse(draw: Draws, shape: Shape) -> Page:
    message = pb23.PlanarLayout()
    layers = message.structure.sparse.layers
    structure: list[bytes] = []
    around = list(reversed(shape.around))
    rows = draw.of([1, 3, 20, draw.many(4, 31), draw.many(20, 31)])
    group = group_of(shape)
    slots, valid = rows, rows
    for one in around:
        nulls = draw.of(["none", "none", "some", "all"])
        layer = layers.add()
        if one == "list":
            part = layer.list
            lists = draw.of([slots, slots, max(1, slots // 2), min(slots, 3), 0])
            each = draw.of([1, 1, 2, draw.many(0, 16)]) if lists else 0
            if lists * each > MOST_SLOTS:
                each = 1
            part.num_child_slots = lists * each
            part.num_non_empty_positions = lists
            how, data = numbers(
                draw, Steps(0, draw.of([1, max(1, slots // max(1, lists))]), lists), 64
            )
            part.non_empty_positions.CopyFrom(how)
            if has_payload(how):
                structure.append(data)
            how, data = numbers(draw, equal(each, lists), 64)
            part.counts.CopyFrom(how)
            if has_payload(how):
                structure.append(data)
            _validity(draw, part.validity, slots, structure, draw.of(["none", nulls]))
            slots = valid = lists * each
        elif isinstance(one, int):
            layer.fixed_size_list.dimension = one
            valid = _validity(draw, layer.fixed_size_list.validity, slots, structure, nulls) * one
            slots *= one
        else:
            valid = min(valid, _validity(draw, layer.validity, slots, structure, nulls))
    valid = min(
        valid,
        _validity(draw, layers.add().validity, slots, structure, draw.of(["none", "some", "all"])),
    )
    buffers = _Plane(draw, shape.leaf, message.values, slots, valid).buffers()
    return Page(message, [*buffers, *structure], rows * group, rows)


class _Plane(NamedTuple):
    """The values of so many slots, of which some are valid."""

    draw: Draws
    leaf: Kind
    values: Any
    slots: int
    valid: int

    def buffers(self) -> list[bytes]:
        """Any plane; its message is in ``values``."""
        ways = [self.equal, self.nothing, self.indexed, self.indexed, self.zipped, self.chunked]
        return self.draw.of(ways)()

    def equal(self) -> list[bytes]:
        size = max(1, self.leaf.bits * max(1, self.leaf.size) // 8)
        self.values.constant.scalar = bytes(size)[:32]
        return []

    def nothing(self) -> list[bytes]:
        self.values.no_values.SetInParent()
        return []

    def indexed(self) -> list[bytes]:
        how, data = numbers(self.draw, equal(0, self.slots), 32)
        self.values.indexed.indices.CopyFrom(how)
        return [data] * has_payload(how) + self.entries(self.values.indexed.items, None)

    def zipped(self) -> list[bytes]:
        return self.entries(self.values.zipped, self.valid)

    def entries(self, message: Any, count: int | None) -> list[bytes]:
        """Full-zip entries without levels."""
        inner = pb.FullZipLayout()
        page = full_zip(self.draw, Shape(self.leaf), inner, count)
        if inner.bits_def:
            raise Impossible
        _copy_width(inner, message)
        return page.buffers

    def chunked(self) -> list[bytes]:
        chunks, each = max(1, self.slots >> 15), min(self.slots, 1 << 15)
        if chunks > 5000 or each * chunks != self.slots:
            raise Impossible
        made = chunked(values_of(self.draw, self.leaf, each), each, chunks, 4)
        self.values.chunked.value_compression.CopyFrom(made.values)
        self.values.chunked.num_buffers = made.num_buffers
        return made.buffers
