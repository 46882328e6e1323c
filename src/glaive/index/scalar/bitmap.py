"""BITMAP: the rows of each distinct value as a set.

Specification: "BITMAP" in ``docs/format/indices.md``.
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

__all__ = ["Bitmap", "remap_bitmaps"]

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
        self, segment: Segment, moved: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the sets, without values that no row has any more."""
        return remap_bitmaps(segment, moved, out)


def remap_bitmaps(segment: Segment, moved: AddressMap, out: SegmentWriter) -> RebuiltSegment:
    """Rebuild the sets of a segment, and that of rows whose list is null if it has one."""
    lookup = segment.open(LOOKUP)
    lookup.check(keys=None, bitmaps=pa.binary())
    rows = lookup.read(["keys", "bitmaps"])
    lookup.check_present(rows["bitmaps"])
    sets: Any = rows["bitmaps"].to_pylist()
    found = remap_rowsets(sets, moved, lookup.path)
    left = np.flatnonzero([one is not None for one in found])
    keys = rows["keys"] if len(left) == len(found) else rows["keys"].take(left)
    bitmaps = pa.chunked_array([pa.array([found[at] for at in left], pa.binary())])
    schema = pa.schema([rows.schema.field("keys"), rows.schema.field("bitmaps")])
    out.write(
        LOOKUP,
        pa.table([keys, bitmaps], schema=schema),
        metadata={
            **_kept(lookup),
            STATS: f'{{"num_bitmaps":{len(left)}}}',
        },
        buffers=_nulls(lookup, moved),
    )
    return RebuiltSegment()


def _kept(lookup: IndexFile) -> dict[str, str]:
    return {key: value for key, value in lookup.metadata.items() if key != NULLS}


def _nulls(lookup: IndexFile, moved: AddressMap) -> dict[str, bytes]:
    """The set of rows whose list is null, if the file has one."""
    if NULLS not in lookup.metadata:
        return {}
    data = lookup.buffer(lookup.number(NULLS)).to_pybytes()
    (left,) = remap_rowsets([data], moved, lookup.path)
    return {NULLS: encode_rowset(np.empty(0, np.uint64)) if left is None else left}
