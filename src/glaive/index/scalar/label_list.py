"""LABEL_LIST: the rows of each distinct item of lists as a set.

Specification: "LABEL_LIST" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

from glaive.index.address_map import AddressMap
from glaive.index.protocol import IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.scalar.bitmap import remap_bitmaps
from glaive.index.segment import Segment, SegmentWriter

__all__ = ["LabelList"]


@index_kind
class LabelList(IndexKind):
    """A set of rows per item."""

    name: ClassVar[str] = "labellist"
    newest: ClassVar[int] = 1

    def remap(
        self, segment: Segment, moved: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the sets, without items that no row has any more."""
        return remap_bitmaps(segment, moved, out)
