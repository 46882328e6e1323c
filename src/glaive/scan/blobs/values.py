"""Columns of blobs as the values themselves, which lie in several files.

Blobs of the first kind come as values from the reader of their data file; here are those of
the second kind. Rows that are written again have references in place of the values that lie
elsewhere: those are nobody's to fetch by the way.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import pack_flags
from glaive.config import settings
from glaive.encodings.row_ranges import join_buffers
from glaive.errors import SchemaError
from glaive.file.protocol import BoundColumn, Searchable
from glaive.format.blobs import EXTERNAL, as_binary, has_blobs_v2, logical
from glaive.format.field import Field
from glaive.format.fragment import Fragment
from glaive.memory import as_buffer
from glaive.scan.blobs.location import BlobHome, read_locations, refuse_links
from glaive.scan.snapshot import Snapshot

__all__ = ["BlobContentsColumn", "LogicalColumn"]

_SAMPLED_ROWS = 64 * 1024
"""Rows of which sizes are looked at, at most, before values are fetched."""

_UNKNOWN_BYTES = 1 << 20
"""Taken for the size of a value that is a whole object elsewhere: few are read at a time."""


class BlobContentsColumn(Searchable):
    """A top-level field with its blobs as values (a ``BoundColumn``)."""

    _result = staticmethod(as_binary)

    def __init__(
        self, inner: BoundColumn, column: Field, snapshot: Snapshot, fragment: Fragment
    ) -> None:
        self._inner = inner
        self._column = column
        self._snapshot = snapshot
        self._fragment = fragment
        self.field = self._result(column).to_arrow()
        self.num_rows = inner.num_rows

    @cached_property
    def value_bytes(self) -> int:
        """Mean bytes of a value, by the descriptions of all rows or of some thousands."""
        rows = self.num_rows
        if rows <= _SAMPLED_ROWS:
            array = self._inner.read(0, rows)
        else:
            array = self._inner.take(np.linspace(0, rows - 1, _SAMPLED_ROWS).astype(np.int64))
        return max(1, int(self._content_bytes(self._column, array) // max(1, len(array))))

    def cuts(self) -> NDArray[np.int64]:
        """Row numbers at which pages begin."""
        return self._inner.cuts()

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop``."""
        array = self._inner.read(start, stop)
        return self._resolve(self._column, array, self._column.name)

    def take(self, rows: NDArray[np.int64]) -> Any:
        """The rows at these positions."""
        # Values of different rows do not overlap: of rows that are there twice, they look as if.
        different, places = np.unique(rows, return_inverse=True)
        if len(different) < len(rows):
            return self.take(different).take(pa.array(places))
        return self._resolve(self._column, self._inner.take(rows), self._column.name)

    plan_read = read
    plan_take = take

    def _content_bytes(self, field: Field, array: Any) -> float:
        """Bytes of all blobs at or below a field, as the descriptions say: about, if wrong."""
        if field.is_blob_v2:
            return self._blob_bytes(field, array.drop_null())
        if not has_blobs_v2(field):
            return 0.0
        struct = field.logical_type == "struct"
        members = array.flatten() if struct else [array.flatten()]
        pairs = zip(field.children, members, strict=True)
        return sum(self._content_bytes(child, member) for child, member in pairs)

    def _blob_bytes(self, field: Field, present: Any) -> float:
        """The same of the blobs of a field: windows have fewer rows, the more this is.

        What is said to be much is compared with the files: a listing, and one request if values
        lie elsewhere.
        """
        sizes = np.asarray(present.field("size"))
        external = np.asarray(present.field("kind")) == EXTERNAL
        sizes = np.where(external & (sizes == 0), _UNKNOWN_BYTES, sizes)
        own, far = (float(sizes[part].sum(dtype=np.float64)) for part in (~external, external))
        far = far if self._fetches_external else 0.0
        home = self._home(field, self._column.name)
        if home is None:
            return 0.0
        most = settings.max_decoded_bytes_per_page
        if own > most:
            own = min(own, home.held_bytes())
        if far > most:
            largest = int(np.where(external, sizes, 0).argmax())
            far = far if home.is_there(present.slice(largest, 1)) else 0.0
        return own + far

    _fetches_external = True
    """Whether values that lie elsewhere become part of the column."""

    def _resolve(self, field: Field, array: Any, path: str) -> Any:
        """Values in place of the descriptions at or below a field."""
        if field.is_blob_v2:
            return self._values(field, array, path)
        if not has_blobs_v2(field):
            return array
        kind: Any = self._result(field).arrow_type
        if field.logical_type == "struct":
            # Flattened: descriptions in null structs mean nothing.
            members = [
                self._resolve(child, member, f"{path}.{child.name}")
                for child, member in zip(field.children, array.flatten(), strict=True)
            ]
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
        if field.logical_type in ("list", "list.struct", "large_list", "large_list.struct"):
            (item,) = field.children
            items = self._resolve(item, array.flatten(), path)
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

    def _values(self, field: Field, descriptions: Any, path: str) -> Any:
        rows = len(descriptions)
        home = self._home(field, path)
        if home is None or not rows:
            return pa.nulls(rows, pa.large_binary())
        return _binary(read_locations(home.locations(descriptions)))

    def _home(self, field: Field, path: str) -> BlobHome | None:
        """The data file with the descriptions of a blob column; None if no file has it."""
        file = next((data for data in self._fragment.files if field.id in data.columns()), None)
        return None if file is None else BlobHome(self._snapshot, file, path)


class LogicalColumn(BlobContentsColumn):
    """The same with values that lie elsewhere as references: rows to be written again."""

    _result = staticmethod(logical)
    _fetches_external = False

    def _values(self, field: Field, descriptions: Any, path: str) -> Any:
        rows = len(descriptions)
        kind: Any = self._result(field).arrow_type
        home = self._home(field, path)
        if home is None or not rows:
            return pa.nulls(rows, kind)
        valid = np.asarray(descriptions.is_valid())
        external = valid & (np.asarray(descriptions.field(0).fill_null(0)) == EXTERNAL)
        buffers: list[pa.Buffer | None] = [None] * rows
        here = np.flatnonzero(~external)
        locations = home.locations(
            descriptions.take(pa.array(here)) if external.any() else descriptions
        )
        refuse_links(locations)
        for row, buffer in zip(here.tolist(), read_locations(locations), strict=True):
            buffers[row] = buffer
        members: dict[str, Any] = {"data": _binary(buffers)}
        if external.any():
            uris: list[str | None] = [None] * rows
            for row, reference in home.references(descriptions, external):
                uris[row] = reference.to_text()
            members["uri"] = pa.array(uris, pa.string())
        columns = [
            members[part.name] if part.name in members else pa.nulls(rows, part.type)
            for part in kind
        ]
        mask = None if valid.all() else pa.array(~valid)
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _binary(buffers: list[pa.Buffer | None]) -> Any:
    """One array of these values."""
    rows = len(buffers)
    sizes = [0 if buffer is None else buffer.size for buffer in buffers]
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    filled = [buffer for buffer in buffers if buffer is not None and buffer.size]
    data = join_buffers(filled) if filled else pa.py_buffer(b"")
    valid = np.fromiter((buffer is not None for buffer in buffers), np.bool_, rows)
    nulls = rows - int(np.count_nonzero(valid))
    validity = pack_flags(valid) if nulls else None
    return pa.Array.from_buffers(
        pa.large_binary(), rows, [validity, as_buffer(offsets), data], nulls
    )
