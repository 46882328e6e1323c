"""NGRAM: the rows of each run of three letters as a set.

Specification: "NGRAM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.index.address_map import Addresses, AddressMap
from glaive.index.protocol import IndexKind, Remade
from glaive.index.registry import index_kind
from glaive.index.scalar.rowsets import remap_sets
from glaive.index.segment import Segment, SegmentWriter

__all__ = ["NGram"]

POSTINGS = "ngram_postings.lance"


@index_kind
class NGram(IndexKind):
    """A set of rows per run of three letters."""

    name: ClassVar[str] = "ngram"
    newest: ClassVar[int] = 0
    marker: ClassVar[str] = POSTINGS

    def remap(self, segment: Segment, moved: AddressMap, out: SegmentWriter) -> Remade | None:
        """Write the sets anew; runs that no row has any more keep an empty one."""
        file = segment.open(POSTINGS)
        file.check(tokens=pa.uint32(), posting_list=pa.binary())
        rows = file.read(["tokens", "posting_list"])
        file.check_present(rows["posting_list"])
        stored: Any = rows["posting_list"].to_pylist()
        sets = (_decode(one, file.path) for one in stored)
        found = [_encode(one) for one in remap_sets(sets, moved)]
        lists = pa.chunked_array([pa.array(found, pa.binary())])
        out.write(POSTINGS, pa.table([rows["tokens"], lists], schema=rows.schema))
        return Remade()


def _decode(data: bytes, where: str) -> Addresses:
    from pyroaring import BitMap64

    try:
        bitmap = BitMap64.deserialize(data)
        if len(bitmap) <= _MOST:
            return np.asarray(bitmap.to_array(), dtype=np.uint64)
    except (ValueError, IndexError) as error:
        raise CorruptFileError(
            "rows of a trigram", expected="a 64-bit roaring bitmap", found=str(error), where=where
        ) from error
    raise CorruptFileError(
        "rows of a trigram", expected=f"at most {_MOST}", found=f"{len(bitmap)}", where=where
    )


_MOST = 1 << 28
"""Rows taken out of one bitmap: few bytes can stand for billions."""


def _encode(addresses: Addresses) -> bytes:
    from pyroaring import BitMap64

    serialized: bytes = BitMap64(addresses).serialize()
    return serialized
