"""MINHASHLSH: signatures of strings, and which strings share a band of their signatures.

Specification: "MINHASHLSH" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from glaive.index.address_map import AddressMap
from glaive.index.protocol import IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.segment import Segment, SegmentWriter

__all__ = ["MinHash"]

SIGNATURES = "signatures.lance"
BANDS = "bands.lance"
COUNT = "minhash_lsh_num_docs"
PAGE_ROWS = "minhash_lsh_page_rows"
PAGE_TABLE = "minhash_lsh_page_table_buffer"
_PAGE_ROWS = 4096


@index_kind
class MinHash(IndexKind):
    """Strings by the bands of their signatures."""

    name: ClassVar[str] = "minhashlsh"
    newest: ClassVar[int] = 0
    marker: ClassVar[str] = SIGNATURES

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the signatures of surviving rows, and the bands with their new numbers."""
        signatures = segment.open(SIGNATURES)
        signatures.check(_rowid=pa.uint64(), signature=None)
        rows = signatures.read()
        signatures.check_present(rows["_rowid"])
        surviving, kept = address_map.remap_rows(rows, "_rowid")
        out.write(SIGNATURES, surviving)

        file = segment.open(BANDS)
        file.check(band_key=pa.uint64(), doc_id=pa.uint32())
        bands = file.read(["band_key", "doc_id"])
        for column in bands.columns:
            file.check_present(column)
        numbers = bands["doc_id"].to_numpy()
        if len(numbers) and int(numbers.max()) >= len(kept):
            expected = f"a number below {len(kept)}"
            raise file.corrupt("document of a band", expected, f"{numbers.max()}")
        remaining = np.flatnonzero(kept[numbers])
        keys = bands["band_key"].to_numpy()[remaining]
        renumbered = (np.cumsum(kept) - 1).astype(np.uint32)[numbers[remaining]]
        per_page = file.number(PAGE_ROWS, _PAGE_ROWS, least=1)
        lasts = keys[np.minimum(np.arange(0, len(keys), per_page) + per_page, len(keys)) - 1]
        metadata = {key: value for key, value in file.metadata.items() if key != PAGE_TABLE}
        out.write(
            BANDS,
            pa.table([pa.array(keys), pa.array(renumbered)], schema=bands.schema),
            metadata={**metadata, COUNT: str(surviving.num_rows)},
            buffers={PAGE_TABLE: lasts.astype("<u8").tobytes()},
        )
        return RebuiltSegment()
