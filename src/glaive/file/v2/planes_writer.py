"""Write a 2.3 file: the values of 2.2, in pages of a structural plane and a value plane.

Specification: ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from glaive.encodings.protocol import EncodedPage
from glaive.encodings.writing.planes import encode_planar_page, encode_sparse_page
from glaive.errors import GlaiveError
from glaive.file.v2.columns import Node
from glaive.file.v2.shred import SlottedLeaf, shred, shred_slots
from glaive.file.v2.writer import Columns, FileV2Writer, Symbols

_MIN_SPARSE_ROWS = 65_536
_MIN_ROWS_PER_ITEM = 64
"""So many lists with so few items get no levels: no chunk could hold them."""


class PlanesWriter(FileV2Writer):
    """A 2.3 file being written (a ``FileWriter``)."""

    page_url: ClassVar[str] = "/lance.encodings23.PlanarLayout"
    keeps_dictionaries: ClassVar[bool] = False

    def _encode_rows(self, node: Node, array: pa.Array, symbols: Symbols) -> Iterator[Columns]:
        """One page per leaf: where levels do not fit a page, sparse structure does."""
        encode = self._from_slots if self._has_slots(node, array) else self._from_levels
        pages = []
        for leaf, page in encode(node, array, symbols):
            if leaf.column is None:
                raise GlaiveError(f"leaf {leaf.name!r} of {self._where} has no column")
            pages.append((leaf.column, page))
        yield pages

    def _has_slots(self, node: Node, array: Any) -> bool:
        """Whether levels cannot express the structure, or would be far more than the items."""
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
    """Whether a leaf is in lists as well as in fixed-size lists of structs."""
    return any(leaf.layers) and any(size is not None for size in sizes)


def _fixed_sizes(
    node: Node, outside: tuple[int | None, ...]
) -> Iterator[tuple[Node, tuple[int | None, ...]]]:
    """Each leaf with the fixed-size lists around it, inner-most first; None for other layers."""
    here = (node.sizes[0] if node.kind == "fixed" else None, *outside)
    if not node.children:
        yield node, here
    for child in node.children:
        yield from _fixed_sizes(child, here)
