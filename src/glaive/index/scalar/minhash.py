"""MINHASHLSH: signatures of texts, and which texts share a part of one.

Specification: "MINHASHLSH" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.rows_left import rows_left
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
    """Texts by parts of their signatures."""

    name: ClassVar[str] = "minhashlsh"
    newest: ClassVar[int] = 0
    marker: ClassVar[str] = SIGNATURES

    def remap(
        self, segment: Segment, moved: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Write the remaining texts, and their bands with the texts renumbered."""
        texts = segment.open(SIGNATURES)
        texts.check(_rowid=pa.uint64(), signature=None)
        rows = texts.read()
        texts.check_present(rows["_rowid"])
        left, kept = rows_left(rows, "_rowid", moved)
        out.write(SIGNATURES, left)

        file = segment.open(BANDS)
        file.check(band_key=pa.uint64(), doc_id=pa.uint32())
        bands = file.read(["band_key", "doc_id"])
        for column in bands.columns:
            file.check_present(column)
        numbers = bands["doc_id"].to_numpy()
        if len(numbers) and int(numbers.max()) >= len(kept):
            raise CorruptFileError(
                "text of a band",
                expected=f"a number below {len(kept)}",
                found=f"{numbers.max()}",
                where=file.path,
            )
        held = np.flatnonzero(kept[numbers])
        keys = bands["band_key"].to_numpy()[held]
        renumbered = (np.cumsum(kept) - 1).astype(np.uint32)[numbers[held]]
        per_page = file.number(PAGE_ROWS, _PAGE_ROWS, least=1)
        lasts = keys[np.minimum(np.arange(0, len(keys), per_page) + per_page, len(keys)) - 1]
        metadata = {key: value for key, value in file.metadata.items() if key != PAGE_TABLE}
        out.write(
            BANDS,
            pa.table([pa.array(keys), pa.array(renumbered)], schema=bands.schema),
            metadata={**metadata, COUNT: str(left.num_rows)},
            buffers={PAGE_TABLE: lasts.astype("<u8").tobytes()},
        )
        return RebuiltSegment()
