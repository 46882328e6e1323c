"""RTREE: bounding boxes of geometries, in a tree.

Specification: "Kinds that are not rebuilt" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

from glaive.index.protocol import IndexKind
from glaive.index.registry import index_kind

__all__ = ["RTree"]


@index_kind
class RTree(IndexKind):
    """Bounding boxes. No reader rebuilds them for relocated rows."""

    name: ClassVar[str] = "rtree"
    newest: ClassVar[int] = 0
