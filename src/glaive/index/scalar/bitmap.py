"""BITMAP and LABEL_LIST: for each distinct value or list item, the set of rows that have it.

Specification: "BITMAP" and "LABEL_LIST" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.index.address_map import AddressMap
from glaive.index.protocol import IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.scalar.rowsets import encode_rowset, remap_rowsets
from glaive.index.segment import IndexFile, Segment, SegmentWriter

__all__ = ["Bitmap", "LabelList"]

LOOKUP = "bitmap_page_lookup.lance"
STATS = "lance:index_stats"
NULLS = "lance:label_list_nulls"


@index_kind
class Bitmap(IndexKind):
    """A set of rows per value."""

    name: ClassVar[str] = "bitmap"
    newest: ClassVar[int] = 0
    marker: ClassVar[str] = LOOKUP

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the sets; keys without surviving rows are left out."""
        lookup = segment.open(LOOKUP)
        lookup.check(keys=None, bitmaps=pa.binary())
        rows = lookup.read(["keys", "bitmaps"])
        lookup.check_present(rows["bitmaps"])
        sets: Any = rows["bitmaps"].to_pylist()
        remapped = remap_rowsets(sets, address_map, lookup.path)
        surviving = np.flatnonzero([row_set is not None for row_set in remapped])
        keys = rows["keys"] if len(surviving) == len(remapped) else rows["keys"].take(surviving)
        bitmaps = pa.chunked_array([pa.array([remapped[at] for at in surviving], pa.binary())])
        schema = pa.schema([rows.schema.field("keys"), rows.schema.field("bitmaps")])
        metadata = {key: value for key, value in lookup.metadata.items() if key != NULLS}
        out.write(
            LOOKUP,
            pa.table([keys, bitmaps], schema=schema),
            metadata={**metadata, STATS: f'{{"num_bitmaps":{len(surviving)}}}'},
            buffers=_nulls(lookup, address_map),
        )
        return RebuiltSegment()


@index_kind
class LabelList(Bitmap):
    """A set of rows per list item, and the set of rows with a null list."""

    name: ClassVar[str] = "labellist"
    newest: ClassVar[int] = 1
    marker: ClassVar[str] = ""


def _nulls(lookup: IndexFile, address_map: AddressMap) -> dict[str, bytes]:
    """The set of rows with a null list, if the file has one."""
    if NULLS not in lookup.metadata:
        return {}
    data = lookup.buffer(lookup.number(NULLS)).to_pybytes()
    (null_rows,) = remap_rowsets([data], address_map, lookup.path)
    return {NULLS: encode_rowset(np.empty(0, np.uint64)) if null_rows is None else null_rows}
