"""Writing files of format 2.x."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.build import validity_flags
from glaive.arrow.chunked import tidy_dictionary
from glaive.dataclass import dataclass
from glaive.encodings import levels as repdef
from glaive.errors import SchemaError
from glaive.file.v2.columns import Node
from glaive.types import Flags

# --- Shredding: nested Arrow arrays become leaves with levels ---------------------------
# Shredding goes from the row inward and ends with one :class:`Shredded` per leaf; the reverse is
# in :mod:`glaive.file.v2.columns`.
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
