"""BTREE: all values with their rows, sorted by value, in pages; and the bounds of each page.

Specification: "BTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from glaive.errors import UnsupportedFeatureError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.segment import IndexFile, Segment, SegmentWriter

__all__ = ["BTree"]

PAGES = "page_data.lance"
LOOKUP = "page_lookup.lance"
_PAGE_ROWS = 4096


@index_kind
class BTree(IndexKind):
    """Sorted values."""

    name: ClassVar[str] = "btree"
    newest: ClassVar[int] = 1
    marker: ClassVar[str] = LOOKUP

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the pages without deleted rows, and their bounds."""
        lookup = segment.open(LOOKUP)
        if lookup.metadata.get("range_partitioned", "false") != "false":
            raise UnsupportedFeatureError(
                f"{lookup.path}: this version of glaive does not rebuild range-partitioned "
                "B-trees; drop the index, compact, and create it again"
            )
        per_page = lookup.number("batch_size", _PAGE_ROWS, least=1)
        pages = segment.open(PAGES)
        pages.check(values=None, ids=pa.uint64())
        rows = pages.read(["values", "ids"])
        pages.check_present(rows["ids"])
        surviving, _ = address_map.remap_rows(rows, "ids")
        kind = pages.schema.field("values").type
        lookup.check(min=kind, max=kind, null_count=pa.uint32(), page_idx=pa.uint32())
        out.write(PAGES, surviving)
        out.write(LOOKUP, _bounds(surviving["values"], per_page, lookup), metadata=lookup.metadata)
        return RebuiltSegment()


def _bounds(values: pa.ChunkedArray, per_page: int, lookup: IndexFile) -> pa.Table:
    """First value, last value and number of nulls of each page."""
    starts = np.arange(0, len(values), per_page)
    stops = np.minimum(starts + per_page, len(values)) - 1
    nulls = np.zeros(len(starts), np.uint32)
    if values.null_count:
        absent = values.is_null().to_numpy().astype(np.uint32)
        nulls = np.add.reduceat(absent, starts, dtype=np.uint32)
    columns = {
        "min": values.take(starts),
        "max": values.take(stops),
        "null_count": pa.array(nulls),
        "page_idx": pa.array(np.arange(len(starts), dtype=np.uint32)),
    }
    schema = pa.schema([lookup.schema.field(name) for name in columns])
    return pa.table(list(columns.values()), schema=schema)
