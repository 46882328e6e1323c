"""Columns of blobs as the values themselves, which lie in several files.

Blobs of the first kind come as values from the reader of their data file; here are those of
the second kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import as_buffer, pack_flags
from glaive.encodings.row_runs import join_buffers
from glaive.errors import SchemaError
from glaive.file.protocol import BoundColumn, Searchable
from glaive.format.blobs import as_binary, has_blobs_v2
from glaive.format.field import Field
from glaive.format.fragment import Fragment
from glaive.scan.blob_place import BlobHome, read_places
from glaive.scan.snapshot import Snapshot

__all__ = ["PayloadColumn"]


class PayloadColumn(Searchable):
    """A top-level field with its blobs as values (a ``BoundColumn``)."""

    def __init__(
        self, inner: BoundColumn, column: Field, snapshot: Snapshot, fragment: Fragment
    ) -> None:
        self._inner = inner
        self._column = column
        self._snapshot = snapshot
        self._fragment = fragment
        self.field = as_binary(column).to_arrow()
        self.num_rows = inner.num_rows

    def cuts(self) -> NDArray[np.int64]:
        """Row numbers at which pages begin."""
        return self._inner.cuts()

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop``."""
        return self._resolve(self._column, self._inner.read(start, stop), distinct=True)

    def take(self, rows: NDArray[np.int64]) -> Any:
        """The rows at these positions."""
        distinct = len(np.unique(rows)) == len(rows)
        return self._resolve(self._column, self._inner.take(rows), distinct=distinct)

    plan_read = read
    plan_take = take

    def _resolve(self, field: Field, array: Any, *, distinct: bool) -> Any:
        """Values in place of the descriptions at or below a field."""
        if field.is_blob_v2:
            return self._values(field, array, distinct=distinct)
        if not has_blobs_v2(field):
            return array
        kind: Any = as_binary(field).arrow_type
        if field.logical_type == "struct":
            # Flattened: descriptions in null structs mean nothing.
            members = [
                self._resolve(child, member, distinct=distinct)
                for child, member in zip(field.children, array.flatten(), strict=True)
            ]
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
        if field.logical_type in ("list", "list.struct", "large_list", "large_list.struct"):
            items = self._resolve(field.children[0], array.flatten(), distinct=distinct)
            wide = field.logical_type.startswith("large")
            lengths = np.asarray(array.value_lengths().fill_null(0))
            offsets = np.zeros(len(array) + 1, np.int64 if wide else np.int32)
            np.cumsum(lengths, out=offsets[1:])
            mask = array.is_null() if array.null_count else None
            make = pa.LargeListArray if wide else pa.ListArray
            return make.from_arrays(pa.array(offsets), items, type=kind, mask=mask)
        raise SchemaError(
            f"column {field.name!r}: blobs within {field.logical_type} are read as descriptions "
            "only; leave out blob_handling='all_binary'"
        )

    def _values(self, field: Field, descriptions: Any, *, distinct: bool) -> Any:
        rows = len(descriptions)
        file = next((one for one in self._fragment.files if field.id in one.columns()), None)
        if file is None or not rows:
            return pa.nulls(rows, pa.large_binary())
        home = BlobHome(self._snapshot, file)
        buffers = read_places(home.places(descriptions), distinct=distinct)
        sizes = [0 if buffer is None else buffer.size for buffer in buffers]
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        filled = [buffer for buffer in buffers if buffer is not None and buffer.size]
        data = join_buffers(filled) if filled else pa.py_buffer(b"")
        valid = np.fromiter((buffer is not None for buffer in buffers), np.bool_, rows)
        nulls = rows - int(np.count_nonzero(valid))
        validity = pack_flags(valid) if nulls else None
        parts = [validity, as_buffer(offsets), data]
        return pa.Array.from_buffers(pa.large_binary(), rows, parts, nulls)
