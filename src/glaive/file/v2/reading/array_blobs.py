"""Blobs of format 2.0: values outside of pages.

The pages of a blob column are packed structs of two ``u64``: position in the file and size. A
null has position 1, an empty value position 0, both size 0.

Specification: "Blobs" in ``docs/format/arrays.md``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import pack_flags
from glaive.arrow.build import all_null, validity_flags
from glaive.encodings.array_protocol import Outlet
from glaive.encodings.arrays.flat import Flat
from glaive.encodings.arrays.nullable import Nullable
from glaive.encodings.arrays.packed_struct import PackedStruct
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.pages.blob import value_ranges
from glaive.encodings.protocol import EncodedPage
from glaive.encodings.row_ranges import join_buffers
from glaive.file.v2.reading.array_fields import NodeReader, Step
from glaive.file.v2.writing.blob_values import BlobValues
from glaive.file.v2.writing.pending_blobs import PendingBlobs
from glaive.format.blobs import DESCRIPTION, NULL_POSITION
from glaive.memory import as_buffer
from glaive.types import Flags, Int64s, Where

__all__ = ["BLOB_COLUMN", "BlobReader", "pending_array_page"]

BLOB_COLUMN: Final = bytes.fromhex("1a040a020a00")
"""``ColumnEncoding{blob: {inner: {values}}}``"""

_VALUES: Final = pa.large_binary()


class BlobReader:
    """A blob column: descriptors, then the bytes they point to."""

    def __init__(self, inner: NodeReader, end: int, where: Where) -> None:
        self._inner = inner
        self._end = end
        self._where = where
        self.rows = inner.rows

    def cuts(self) -> set[int]:
        """Rows at which pages of descriptors begin."""
        return self._inner.cuts()

    def read(self, start: int, stop: int) -> Step:
        """Read descriptors, then all blobs at once."""
        if start == stop:
            return all_null(_VALUES, 0)
        return and_then(self._inner.read(start, stop), partial(self._fetch, None))

    def take(self, rows: Int64s) -> Step:
        """Take descriptors, then their blobs."""
        if not len(rows):
            return all_null(_VALUES, 0)
        return and_then(self._inner.take(rows), partial(self._fetch, np.asarray(rows)))

    def _fetch(self, rows: Int64s | None, descriptors: Any) -> Step:
        # No writer makes descriptors null, but a page may: those are nulls, too.
        given = np.asarray(descriptors.is_valid())
        positions, sizes = (
            np.where(given, np.asarray(descriptors.field(at).fill_null(0)), np.uint64(0))
            for at in range(2)
        )
        ranges = value_ranges(positions, sizes, self._end, self._where, rows)
        valid = given & ((sizes > 0) | (positions != NULL_POSITION))
        build = partial(self._array, sizes.astype(np.int64), valid)
        return Fetch(ranges, build) if ranges else build([])

    def _array(self, sizes: Int64s, valid: Flags, buffers: list[pa.Buffer]) -> Any:
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        data = join_buffers(buffers) if buffers else pa.py_buffer(b"")
        nulls = len(valid) - int(np.count_nonzero(valid))
        validity = pack_flags(valid) if nulls else None
        parts = [validity, as_buffer(offsets), data]
        return pa.Array.from_buffers(_VALUES, len(sizes), parts, nulls)


def pending_array_page(array: Any) -> PendingBlobs:
    """A page of blobs of format 2.0."""
    valid = validity_flags(array)
    layout: Any = None
    describe = partial(_describe, valid)
    return PendingBlobs(layout, [], len(array), BlobValues.of(array, valid), describe)


def _describe(valid: Flags | None, positions: Int64s, sizes: Int64s) -> EncodedPage:
    table = np.stack((np.where(sizes > 0, positions, 0), sizes), axis=1).astype(np.uint64)
    if valid is not None:
        table[~valid, 0] = NULL_POSITION
    word = pa.uint64()
    members = [Nullable(word, None, Flat(word, 64, 0)) for _ in range(2)]
    columns = [as_buffer(np.ascontiguousarray(table[:, at])) for at in range(2)]
    out = Outlet()
    packed = PackedStruct.write(DESCRIPTION, members, columns, len(table), out)
    layout: Any = packed.to_wire()
    return EncodedPage(layout, out.buffers, len(table))
