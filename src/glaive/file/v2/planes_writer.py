"""Write a 2.3 file: what 2.2 writes, in pages of a structural plane and a value plane.

Specification: ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from glaive.encodings.choose_planes import encode_planar_page
from glaive.encodings.protocol import EncodedPage
from glaive.errors import GlaiveError
from glaive.file.v2.columns import Node
from glaive.file.v2.shred import shred
from glaive.file.v2.writer import FileV2Writer

__all__ = ["PlanesWriter"]


class PlanesWriter(FileV2Writer):
    """A 2.3 file being written (a ``FileWriter``)."""

    page_url: ClassVar[str] = "/lance.encodings23.PlanarLayout"

    def _encode_rows(self, node: Node, array: pa.Array) -> Iterator[list[tuple[int, EncodedPage]]]:
        """One page per leaf: what levels cannot say in a page, sparse structure can."""
        pages = []
        for leaf, sizes in zip(shred(node, array), _fixed_sizes(node, ()), strict=True):
            if leaf.node.column is None:
                raise GlaiveError(f"leaf {leaf.node.name!r} of {self._where} has no column")
            wanted = self._wanted[leaf.node.field.id]
            page = encode_planar_page(
                leaf.values, leaf.levels, leaf.rows, self._options, wanted, sizes
            )
            pages.append((leaf.node.column, page))
        yield pages


def _fixed_sizes(node: Node, outside: tuple[int | None, ...]) -> Iterator[tuple[int | None, ...]]:
    """Sizes of fixed-size lists around each leaf, inner-most first; None for other layers."""
    here = (node.sizes[0] if node.kind == "fixed" else None, *outside)
    if not node.children:
        yield here
    for child in node.children:
        yield from _fixed_sizes(child, here)
