"""Write a 2.3 file: the values of 2.2, in pages of a structural plane and a value plane.

Specification: ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import flag_array
from glaive.arrow.build import validity_flags
from glaive.arrow.chunked import tidy_dictionary
from glaive.dataclass import dataclass
from glaive.encodings import levels as repdef
from glaive.encodings.protocol import EncodedPage
from glaive.encodings.writing.planes import SlotLayer, encode_planar_page, encode_sparse_page
from glaive.errors import GlaiveError
from glaive.file.v2.columns import Node
from glaive.file.v2.writer import Columns, FileV2Writer, Symbols, list_parts, refuse_nulls, shred
from glaive.types import Flags

# --- Shredding into leaves with the slots of every layer: sparse structure instead of levels
#
# Lists have a slot in the next layer for each item. Fixed-size lists of structs have as many as
# their dimension, null or not; structs have one per slot. Everything below a null struct or
# fixed-size list is null, and null lists are empty.
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

    def item_levels(self) -> repdef.Levels | None:
        """Return the levels of a column outside of lists; ``None`` for others."""
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
        An empty struct is null.
    """
    return _shred_with_slots(node, array, (), None, len(array))


def _shred_with_slots(
    node: Node, array: Any, outside: tuple[SlotLayer, ...], alive: Flags | None, rows: int
) -> Iterator[SlottedLeaf]:
    """Shred an array; ``alive`` flags slots below valid values, up to the outer list."""
    flags = validity_flags(array)
    if node.kind == "empty":
        refuse_nulls(node, flags if flags is None or alive is None else flags | ~alive)
        flags = None
    elif pa.types.is_null(array.type):
        flags = np.zeros(len(array), np.bool_)
    # Everything below a null is null: pylance ignores a struct's validity for its members.
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
    lengths, items = list_parts(array)
    if flags is not None:
        if lengths[~flags].any():
            items = items.filter(flag_array(flags.repeat(lengths)))
        lengths = np.where(flags, lengths, 0)
    layer = SlotLayer(flags, lengths)
    yield from _shred_with_slots(node.children[0], items, (*outside, layer), None, rows)


# --- The writer -------------------------------------------------------------------------

_MIN_SPARSE_ROWS = 65_536
_MIN_ROWS_PER_ITEM = 64
"""So many lists with so few items get no levels: no chunk could hold them."""


class PlanesWriter(FileV2Writer):
    """A 2.3 file being written (a ``FileWriter``)."""

    page_url: ClassVar[str] = "/lance.encodings23.PlanarLayout"
    keeps_dictionaries: ClassVar[bool] = False

    def _encode_rows(self, node: Node, array: pa.Array, symbols: Symbols) -> Iterator[Columns]:
        """Yield one page per leaf: where levels do not fit a page, sparse structure does."""
        encode = self._from_slots if self._has_slots(node, array) else self._from_levels
        pages = []
        for leaf, page in encode(node, array, symbols):
            if leaf.column is None:
                raise GlaiveError(f"leaf {leaf.name!r} of {self._where} has no column")
            pages.append((leaf.column, page))
        yield pages

    def _has_slots(self, node: Node, array: Any) -> bool:
        """Return whether levels cannot express the structure, or would far outnumber the items."""
        if any(_mixes_lists(leaf, sizes) for leaf, sizes in _fixed_sizes(node, ())):
            return True
        if node.kind not in ("list", "map") or len(array) < _MIN_SPARSE_ROWS:
            return False
        items = array.offsets[-1].as_py() - array.offsets[0].as_py()
        return items * _MIN_ROWS_PER_ITEM <= len(array) and all(
            self._wanted[leaf.field.id].structural_encoding in (None, "sparse")
            for leaf in node.leaves()
        )

    def _from_levels(
        self, node: Node, array: pa.Array, symbols: Symbols
    ) -> Iterator[tuple[Node, EncodedPage]]:
        leaves = zip(shred(node, array), _fixed_sizes(node, ()), strict=True)
        for leaf, (_, sizes) in leaves:
            field = leaf.node.field.id
            page = encode_planar_page(
                leaf.values,
                leaf.levels,
                leaf.rows,
                self._profile,
                self._wanted[field],
                sizes,
                symbols.get(field),
            )
            yield leaf.node, page

    def _from_slots(
        self, node: Node, array: pa.Array, symbols: Symbols
    ) -> Iterator[tuple[Node, EncodedPage]]:
        for leaf in shred_slots(node, array):
            yield leaf.node, self._encode_slots(leaf, symbols)

    def _encode_slots(self, leaf: SlottedLeaf, symbols: Symbols) -> EncodedPage:
        field = leaf.node.field.id
        wanted, shared = self._wanted[field], symbols.get(field)
        levels = leaf.item_levels()
        if levels is None:
            return encode_sparse_page(
                leaf.values, leaf.layers, leaf.rows, self._profile, wanted, shared
            )
        sizes = [layer.size for layer in reversed(leaf.layers)]
        return encode_planar_page(
            leaf.values, levels, leaf.rows, self._profile, wanted, sizes, shared
        )


def _mixes_lists(leaf: Node, sizes: tuple[int | None, ...]) -> bool:
    """Return whether a leaf is in lists as well as in fixed-size lists of structs."""
    return any(leaf.layers) and any(size is not None for size in sizes)


def _fixed_sizes(
    node: Node, outside: tuple[int | None, ...]
) -> Iterator[tuple[Node, tuple[int | None, ...]]]:
    """Yield each leaf with the fixed-size lists around it, inner-most first, if any."""
    here = (node.sizes[0] if node.kind == "fixed" else None, *outside)
    if not node.children:
        yield node, here
    for child in node.children:
        yield from _fixed_sizes(child, here)
