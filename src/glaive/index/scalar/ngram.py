"""NGRAM: for each trigram, the set of rows that contain it.

Specification: "NGRAM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.index.address_map import Addresses, AddressMap
from glaive.index.protocol import IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.scalar.rowsets import remap_sets
from glaive.index.segment import Segment, SegmentWriter

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["NGram"]

POSTINGS = "ngram_postings.lance"

_HIGHEST = 2**64 - 1
"""No row has this address: its fragment would be the last of 2^32."""


@index_kind
class NGram(IndexKind):
    """A set of rows per trigram."""

    name: ClassVar[str] = "ngram"
    newest: ClassVar[int] = 0
    marker: ClassVar[str] = POSTINGS

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the sets; trigrams without surviving rows keep an empty set."""
        file = segment.open(POSTINGS)
        file.check(tokens=pa.uint32(), posting_list=pa.binary())
        rows = file.read(["tokens", "posting_list"])
        file.check_present(rows["posting_list"])
        stored: Any = rows["posting_list"].to_pylist()
        remapped = _remap(stored, address_map, file.path)
        lists = pa.chunked_array([pa.array(remapped, pa.binary())])
        out.write(POSTINGS, pa.table([rows["tokens"], lists], schema=rows.schema))
        return RebuiltSegment()


def _remap(sets: Sequence[bytes], address_map: AddressMap, where: str) -> list[bytes]:
    """The sets with new addresses; only bits of rewritten fragments become address arrays."""
    from pyroaring import BitMap64

    rewritten, known = BitMap64(), BitMap64()
    for fragment in address_map.rewritten:
        first = fragment << 32
        rewritten.add_range(first, min(first + (1 << 32), _HIGHEST))
        known.add_range(first, first + address_map.rows_of(fragment))
    rest: list[BitMap64] = []

    def relocated() -> Iterator[Addresses]:
        for row_set in sets:
            bitmap = _decode(row_set, where)
            rest.append(bitmap - rewritten)
            yield np.asarray((bitmap & known).to_array(), dtype=np.uint64)

    serialized_sets = []
    for at, addresses in enumerate(remap_sets(relocated(), address_map)):
        serialized: bytes = (rest[at] | BitMap64(addresses)).serialize()
        serialized_sets.append(serialized)
    return serialized_sets


def _decode(data: bytes, where: str) -> BitMap64:
    from pyroaring import BitMap64

    try:
        return BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise CorruptFileError(
            "rows of a trigram", expected="a 64-bit roaring bitmap", found=str(error), where=where
        ) from error
