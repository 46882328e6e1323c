"""JSON: a BTREE or another scalar index over the values at one path of JSON documents.

Specification: "JSON" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

from glaive.errors import CorruptFileError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import IndexKind, RebuiltSegment
from glaive.index.registry import index_kind, kind_by_files
from glaive.index.segment import Segment, SegmentWriter

__all__ = ["JsonPath"]


@index_kind
class JsonPath(IndexKind):
    """Delegates to the kind of index that its files belong to."""

    name: ClassVar[str] = "json"
    newest: ClassVar[int] = 0

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the segment as the other kind does."""
        kind = kind_by_files(segment.sizes())
        if kind is None:
            raise CorruptFileError(
                "JSON index",
                expected="the files of a scalar index",
                found=f"{sorted(segment.sizes())}",
                where=segment.where,
            )
        return kind.remap(segment, address_map, out)
