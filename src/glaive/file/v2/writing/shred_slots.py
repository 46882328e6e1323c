"""Shredding into leaves with the slots of every layer: sparse structure, no levels.

Lists have a slot in the next layer for each item, fixed-size lists of structs as many as their
dimension, null or not; structs have one per slot. What is below a null struct or fixed-size
list is null, and null lists have no items.

Specification: "Sparse structure" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.build import validity_flags
from glaive.arrow.dictionaries import tidy_dictionary
from glaive.dataclass import dataclass
from glaive.encodings.levels import repdef
from glaive.encodings.writing.sparse import SlotLayer
from glaive.file.v2.reading.columns import Node
from glaive.file.v2.writing.shred import list_items, refuse_nulls
from glaive.types import Flags

__all__ = ["SlottedLeaf", "shred_slots"]


@dataclass(frozen=True, slots=True)
class SlottedLeaf:
    """One leaf: a value for each inner-most slot, null or not, and the layers, outer-most first.

    ``rows`` counts entries where fixed-size lists of structs multiply them.
    """

    node: Node
    values: pa.Array
    layers: tuple[SlotLayer, ...]
    rows: int

    def item_levels(self) -> repdef.Levels | None:
        """The levels, where there are no lists; None where there are."""
        if any(layer.lengths is not None for layer in self.layers):
            return None
        entries = repdef.start(self.rows // self.node.entries_per_row)
        for layer in self.layers:
            entries = repdef.add_items(entries, layer.flags)
            entries = repdef.multiply(entries, layer.size or 1)
        return repdef.to_levels(entries)


def shred_slots(node: Node, array: pa.Array) -> Iterator[SlottedLeaf]:
    """Shred one top-level array into its leaves, depth first.

    Raises
    ------
    SchemaError
        A struct without members is null.
    """
    return _shred(node, array, (), None, len(array))


def _shred(
    node: Node, array: Any, outside: tuple[SlotLayer, ...], alive: Flags | None, rows: int
) -> Iterator[SlottedLeaf]:
    """``alive`` flags the slots without a null above them, up to the outer list."""
    flags = validity_flags(array)
    if node.kind == "empty":
        refuse_nulls(node, flags if flags is None or alive is None else flags | ~alive)
        flags = None
    elif pa.types.is_null(array.type):
        flags = np.zeros(len(array), np.bool_)
    # What is below a null is null: pylance ignores the validity of a struct for its members.
    flags = alive if flags is None else flags if alive is None else flags & alive
    if node.kind in ("leaf", "empty"):
        if pa.types.is_dictionary(array.type):
            array = tidy_dictionary(array)
        layers = (*outside, SlotLayer(flags))
        yield SlottedLeaf(node, array, layers, rows * node.entries_per_row)
        return
    if node.kind == "struct":
        if all(leaf.kind == "empty" for leaf in node.leaves()):
            refuse_nulls(node, flags)
        for at, child in enumerate(node.children):
            yield from _shred(child, array.field(at), (*outside, SlotLayer(flags)), flags, rows)
        return
    if node.kind == "fixed":
        size = node.sizes[0]
        items = array.values.slice(array.offset * size, len(array) * size)
        below = None if flags is None else flags.repeat(size)
        layer = SlotLayer(flags, size=size)
        yield from _shred(node.children[0], items, (*outside, layer), below, rows)
        return
    offsets = np.asarray(array.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    items = list_items(array).slice(offsets[0], offsets[-1] - offsets[0])
    if flags is not None:
        if lengths[~flags].any():
            items = items.filter(pa.array(np.repeat(flags, lengths)))
        lengths = np.where(flags, lengths, 0)
    layer = SlotLayer(flags, lengths)
    yield from _shred(node.children[0], items, (*outside, layer), None, rows)
