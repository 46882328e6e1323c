"""Vector indices of all kinds: IVF with plain vectors or codes, also with graphs.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from glaive.format.pb import table_pb2
from glaive.index.protocol import (
    BuiltSegment,
    IndexKind,
    IndexSource,
    OpenedIndex,
    RebuiltSegment,
    index_kind,
)
from glaive.index.row_sets import AddressMap
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.vector import CODES, INDEX


@index_kind
class VectorIndex(IndexKind):
    """Rows by partition with their codes, and optionally graphs over the rows."""

    name: ClassVar[str] = "vector"
    newest: ClassVar[int] = 2
    answers_filters: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = (INDEX,)

    def open(self, segment: Segment) -> OpenedIndex:
        """Read centroids, and the codebook, bounds or rotation of the codes."""
        from glaive.index.vector.opened import open_vector_index

        return open_vector_index(segment)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Remove deleted rows from their partitions and graphs; the model stays the same."""
        from glaive.index.vector.index_writer import remap_vector_index

        return remap_vector_index(segment, address_map, out)

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Train a model and write the vectors of a source; see :meth:`IndexKind.build`."""
        from glaive.index.vector.index_writer import build_index
        from glaive.index.vector.parameters import parse_parameters

        return build_index(source, parse_parameters(parameters, source.field), out)

    def details(self, entry: table_pb2.IndexMetadata) -> dict[str, Any]:
        """Return metric, codes, graph and build parameters."""
        from glaive.index.vector.parameters import details_by_name

        return details_by_name(entry.index_details.value, f"details of index {entry.name!r}")

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """Return the ``create_index`` options of a segment."""
        if not segment.sizes():
            from glaive.index.vector.parameters import options_of

            return options_of(segment.entry.index_details.value, segment.where)
        if not segment.has(CODES):
            from glaive.index.vector.opened import legacy_options

            return legacy_options(segment)
        from glaive.index.vector.index_writer import StoredIndex

        return StoredIndex(segment).options()

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return statistics about partitions, centroids and codes."""
        from glaive.index.vector.index_writer import StoredIndex

        return StoredIndex(segment).statistics()

    def extend(self, segment: Segment, source: IndexSource, out: SegmentWriter) -> BuiltSegment:
        """Encode rows with the model of a segment."""
        from glaive.index.vector.index_writer import extend_index

        return extend_index(segment, source, out)

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Write one segment with the model of others; see :meth:`IndexKind.merge`."""
        from glaive.index.vector.index_writer import merge_indices

        return merge_indices(segments, source, out)
