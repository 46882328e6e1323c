"""Blobs of format 2.0: values that lie on their own in the file, outside of pages.

The pages of a blob column are packed structs of two ``u64``: position in the file and size. A
null has position 1, an empty value position 0, both size 0.

Specification: "Blobs" in ``docs/format/arrays.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import as_buffer, pack_flags
from glaive.arrow.build import all_null, validity_flags
from glaive.encodings.array_protocol import Outlet
from glaive.encodings.arrays.flat import Flat
from glaive.encodings.arrays.nullable import Nullable
from glaive.encodings.arrays.packed_struct import PackedStruct
from glaive.encodings.plan import chain
from glaive.encodings.protocol import EncodedPage, Fetch
from glaive.encodings.row_runs import join_buffers
from glaive.errors import CorruptFileError
from glaive.file.v2.array_fields import NodeReader, Rows, Step
from glaive.format.fields import Field
from glaive.types import ByteRange, Where

__all__ = ["BLOB_COLUMN", "DESCRIPTION", "BlobReader", "PendingBlobs", "is_blob"]

DESCRIPTION: Final = pa.struct([("position", pa.uint64()), ("size", pa.uint64())])
"""What the pages of a blob column hold."""

BLOB_COLUMN: Final = bytes.fromhex("1a040a020a00")
"""``ColumnEncoding{blob: {inner: {values}}}``"""

_NULL: Final = 1


def is_blob(column: Field) -> bool:
    """Whether a column's metadata asks for its values to lie outside of pages."""
    return column.logical_type == "large_binary" and column.option("lance-encoding:blob") == "true"


class BlobReader:
    """A blob column: descriptions, then the bytes they point to."""

    def __init__(self, inner: NodeReader, kind: pa.DataType, end: int, where: Where) -> None:
        self._inner = inner
        self._kind = kind
        self._end = end
        self._where = where
        self.rows = inner.rows

    def cuts(self) -> set[int]:
        """Rows at which pages of descriptions begin."""
        return self._inner.cuts()

    def read(self, start: int, stop: int) -> Step:
        """Read descriptions, then all blobs at once."""
        if start == stop:
            return all_null(self._kind, 0)
        return chain(self._inner.read(start, stop), self._fetch)

    def take(self, rows: Rows) -> Step:
        """Take descriptions, then their blobs."""
        if not len(rows):
            return all_null(self._kind, 0)
        return chain(self._inner.take(rows), self._fetch)

    def _fetch(self, descriptions: Any) -> Step:
        positions, sizes = (np.asarray(descriptions.field(at)) for at in range(2))
        end = np.uint64(self._end)
        # Positions far out are cut off first: the sum below must not wrap around.
        wrong = (sizes > 0) & (
            (sizes > end) | (positions > end) | (np.minimum(positions, end) + sizes > end)
        )
        if wrong.any():
            at = int(wrong.argmax())
            raise CorruptFileError(
                "blob",
                expected=f"bytes within 0..{self._end}",
                found=f"{sizes[at]} bytes at {positions[at]}",
                where=self._where,
            )
        valid = (sizes > 0) | (positions != _NULL)
        filled = np.flatnonzero(sizes)
        ranges = list(map(ByteRange, positions[filled].tolist(), sizes[filled].tolist()))
        build = partial(self._array, sizes.astype(np.int64), valid)
        return Fetch(ranges, build) if ranges else build([])

    def _array(
        self, sizes: NDArray[np.int64], valid: NDArray[np.bool_], buffers: list[pa.Buffer]
    ) -> Any:
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        data = join_buffers(buffers) if buffers else pa.py_buffer(b"")
        nulls = len(valid) - int(np.count_nonzero(valid))
        validity = pack_flags(valid) if nulls else None
        parts = [validity, as_buffer(offsets), data]
        made = pa.Array.from_buffers(pa.large_binary(), len(sizes), parts, nulls)
        return made if made.type == self._kind else made.cast(self._kind)


@dataclass(slots=True)
class PendingBlobs(EncodedPage):
    """A page of blobs whose positions are known only when they are written.

    ``values`` has one buffer per row, empty ones included.
    """

    values: list[pa.Buffer] = field(default_factory=list)
    valid: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, array: Any) -> PendingBlobs:
        """Cut an array into its values, without a copy."""
        wide = array if array.type == pa.large_binary() else array.cast(pa.large_binary())
        _, offsets, data = wide.buffers()
        ends = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
        valid = validity_flags(wide)
        sizes = np.diff(ends)
        if valid is not None:
            sizes = sizes * valid
        pieces = zip(ends[:-1].tolist(), sizes.tolist(), strict=True)
        empty = pa.py_buffer(b"")
        buffers = [data.slice(at, size) if size else empty for at, size in pieces]
        layout: Any = None
        return cls(layout, [], len(wide), buffers, valid)

    def described(self, places: list[ByteRange]) -> EncodedPage:
        """The page of descriptions, once every value has its place."""
        table = np.array([place if place.size else (0, 0) for place in places], np.uint64)
        if self.valid is not None:
            table[~self.valid, 0] = _NULL
        table = table.reshape(-1, 2)
        word = pa.uint64()
        members = [Nullable(word, None, Flat(word, 64, 0)) for _ in range(2)]
        columns = [as_buffer(np.ascontiguousarray(table[:, at])) for at in range(2)]
        out = Outlet()
        packed = PackedStruct.write(DESCRIPTION, members, columns, self.rows, out)
        layout: Any = packed.to_wire()
        return EncodedPage(layout, out.buffers, self.rows)
