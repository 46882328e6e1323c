"""JSON: an index of another kind over the values at a path of JSON documents.

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
    """The files are those of the other kind."""

    name: ClassVar[str] = "json"
    newest: ClassVar[int] = 0

    def remap(
        self, segment: Segment, moved: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Have the other kind do it."""
        kind = kind_by_files(segment.sizes())
        if kind is None:
            raise CorruptFileError(
                "index over a path",
                expected="the files of an index over single values",
                found=f"{sorted(segment.sizes())}",
                where=segment.where,
            )
        return kind.remap(segment, moved, out)
