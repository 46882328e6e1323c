"""Writing files of format 2.x."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.build import validity_flags
from glaive.arrow.chunked import tidy_dictionary
from glaive.dataclass import dataclass
from glaive.encodings import levels
from glaive.encodings import levels as repdef
from glaive.encodings.writing.planes import SlotLayer
from glaive.errors import SchemaError
from glaive.file.v2.columns import Node
from glaive.types import Flags

# --- Shredding: nested Arrow arrays become leaves with levels ---------------------------
# Shredding goes from the row inward and ends with one :class:`Shredded` per leaf; the reverse is
# in :mod:`glaive.file.v2.unshred`.
#
# Specification: "Levels" in ``docs/format/levels.md``.


@dataclass(frozen=True, slots=True)
class Shredded:
    """One leaf of a shredded array: its visible values and their levels.

    ``rows`` counts entries where fixed-size lists of structs multiply them.
    """

    node: Node
    values: pa.Array
    levels: repdef.Levels
    rows: int


def shred(node: Node, array: pa.Array) -> list[Shredded]:
    """Shred one top-level array into its leaves, depth first.

    Raises
    ------
    SchemaError
        A struct without members is null.
    """
    leaves: list[Shredded] = []
    if node.kind == "empty":
        refuse_nulls(node, validity_flags(array))
    _shred(node, array, repdef.start(len(array)), leaves, len(array))
    return leaves


def _shred(
    node: Node, array: Any, entries: repdef.Entries, leaves: list[Shredded], rows: int
) -> None:
    if node.kind in ("leaf", "empty"):
        if pa.types.is_dictionary(array.type):
            array = tidy_dictionary(array)
        valid = validity_flags(array) if node.kind == "leaf" else None
        if node.kind == "empty" or pa.types.is_null(array.type):
            valid = np.zeros(len(array), np.bool_)
        if entries.layers:
            levels = repdef.to_levels(repdef.add_items(entries, valid))
        else:
            levels = repdef.flat_levels(valid)
        leaves.append(Shredded(node, array, levels, rows * node.entries_per_row))
        return
    inside = entries
    if node.kind in ("struct", "fixed"):
        inside = repdef.add_items(entries, validity_flags(array))
    if node.kind == "fixed":
        size = node.sizes[0]
        items = array.values.slice(array.offset * size, len(array) * size)
        _shred(node.children[0], items, repdef.multiply(inside, size), leaves, rows)
        return
    if node.kind == "struct":
        if all(leaf.kind == "empty" for leaf in node.leaves()):
            refuse_nulls(node, validity_flags(array))
        for at, child in enumerate(node.children):
            member = array.field(at)
            if child.kind == "empty":
                flags, outside = validity_flags(member), validity_flags(array)
                refuse_nulls(child, flags if flags is None or outside is None else flags | ~outside)
            _shred(child, member, inside, leaves, rows)
        return
    offsets = np.asarray(array.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    items = list_items(array).slice(offsets[0], offsets[-1] - offsets[0])
    inside, keep = repdef.add_lists(entries, lengths, validity_flags(array))
    if keep is not None:
        items = items.filter(pa.array(np.repeat(keep, lengths)))
    _shred(node.children[0], items, inside, leaves, rows)


def refuse_nulls(node: Node, valid: Flags | None) -> None:
    """Refuse null structs without a leaf that has values: no column stores their validity.

    Raises
    ------
    SchemaError
        Not all are valid.
    """
    if valid is not None and not valid.all():
        raise SchemaError(
            f"column {node.name!r} is a struct without members and has "
            f"{len(valid) - int(np.count_nonzero(valid))} nulls, which files cannot store. "
            "Drop the column, or give the struct a member."
        )


def list_items(array: Any) -> Any:
    """The items of all lists of an array, or the entries of its maps; ignores its offset."""
    if isinstance(array, pa.MapArray):
        entries = array.type
        return pa.StructArray.from_arrays(
            [array.keys, array.items], fields=[entries.key_field, entries.item_field]
        )
    return array.values


# --- Shredding into leaves with the slots of every layer: sparse structure, no levels ---
# Lists have a slot in the next layer for each item, fixed-size lists of structs as many as their
# dimension, null or not; structs have one per slot. What is below a null struct or fixed-size list
# is null, and null lists have no items.
#
# Specification: "Sparse structure" in ``docs/format/planes.md``.


@dataclass(frozen=True, slots=True)
class SlottedLeaf:
    """One leaf: a value for each inner-most slot, null or not, and the layers, outer-most first.

    ``rows`` counts entries where fixed-size lists of structs multiply them.
    """

    node: Node
    values: pa.Array
    layers: tuple[SlotLayer, ...]
    rows: int

    def item_levels(self) -> levels.Levels | None:
        """The levels, where there are no lists; None where there are."""
        if any(layer.lengths is not None for layer in self.layers):
            return None
        entries = levels.start(self.rows // self.node.entries_per_row)
        for layer in self.layers:
            entries = levels.add_items(entries, layer.flags)
            entries = levels.multiply(entries, layer.size or 1)
        return levels.to_levels(entries)


def shred_slots(node: Node, array: pa.Array) -> Iterator[SlottedLeaf]:
    """Shred one top-level array into its leaves, depth first.

    Raises
    ------
    SchemaError
        A struct without members is null.
    """
    return _shred_with_slots(node, array, (), None, len(array))


def _shred_with_slots(
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
            yield from _shred_with_slots(
                child, array.field(at), (*outside, SlotLayer(flags)), flags, rows
            )
        return
    if node.kind == "fixed":
        size = node.sizes[0]
        items = array.values.slice(array.offset * size, len(array) * size)
        below = None if flags is None else flags.repeat(size)
        layer = SlotLayer(flags, size=size)
        yield from _shred_with_slots(node.children[0], items, (*outside, layer), below, rows)
        return
    offsets = np.asarray(array.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    items = list_items(array).slice(offsets[0], offsets[-1] - offsets[0])
    if flags is not None:
        if lengths[~flags].any():
            items = items.filter(pa.array(np.repeat(flags, lengths)))
        lengths = np.where(flags, lengths, 0)
    layer = SlotLayer(flags, lengths)
    yield from _shred_with_slots(node.children[0], items, (*outside, layer), None, rows)
