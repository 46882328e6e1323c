"""Blob columns: locate and read the values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import flag_array, number_array, pack_flags
from glaive.arrow.chunked import as_numpy, with_items
from glaive.arrow.conditions import filled
from glaive.config import USUAL_RATIO, settings
from glaive.dataclass import dataclass
from glaive.encodings.protocol import join_buffers
from glaive.errors import (
    AccessError,
    CorruptFileError,
    DataFileMissingError,
    GlaiveError,
    LimitError,
    ObjectNotFoundError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.file.blobs import BlobReference
from glaive.file.protocol import BoundColumn
from glaive.format.blobs import (
    DESCRIPTION,
    EXTERNAL,
    INLINE,
    NULL_POSITION,
    OWN_FILE,
    PACKED_FILE,
    as_binary,
    has_blobs_v2,
    logical,
)
from glaive.format.field import Field
from glaive.format.fragment import DataFile, Fragment
from glaive.format.paths import blob_file_path, blob_folder
from glaive.io.pool import ordered_map
from glaive.io.store import ObjectStore, RangeReader
from glaive.scan.snapshot import Snapshot
from glaive.table.externals import ExternalValues, refuse_link_out
from glaive.table.root import BaseLocations, locate_data_file
from glaive.types import ByteRange, as_buffer

# --- Locations of blob values, and bulk reads -------------------------------------------
# Specification: "Where values lie" in ``docs/format/blobs.md``.

_BASE_PATHS = "locations of base paths"
"""Key in the memo of a snapshot: base paths are parsed once for all data files."""


@dataclass(frozen=True, slots=True)
class BlobLocation:
    """``size`` bytes of an object from ``offset`` on; to its end if the size is ``None``.

    ``shared`` is an opened reader of the object, if there is one. ``own`` is False for
    objects outside the dataset: several values may then share the same bytes.
    ``link`` says why the object may only be read: copies of a link out of the dataset are refused.
    """

    store: ObjectStore
    path: str
    offset: int
    size: int | None
    own: bool = True
    shared: RangeReader | None = field(default=None, compare=False)
    link: str | None = field(default=None, compare=False)


def open_location(location: BlobLocation) -> RangeReader:
    """Open the object that holds a value, or return its shared reader.

    Raises
    ------
    DataFileMissingError
        The object does not exist. Some stores only notice on the first read.
    """
    if location.shared is not None:
        return location.shared
    try:
        return location.store.open(location.path)
    except ObjectNotFoundError as error:
        raise _missing(location) from error


def read_locations(locations: Sequence[BlobLocation | None]) -> list[pa.Buffer | None]:
    """Read the values of different rows, in order; return ``None`` for a location ``None``.

    Near values in one object take one request. Remote objects are read concurrently.

    Raises
    ------
    DataFileMissingError
        An object does not exist; the message names it.
    CorruptFileError
        An object ends within a value, or values overlap.
    LimitError
        Values that share bytes of an external object are too large together.
    """
    buffers: list[pa.Buffer | None] = [None] * len(locations)
    groups: dict[tuple[str, str], list[int]] = {}
    for at, location in enumerate(locations):
        if location is not None:
            if location.size == 0:
                buffers[at] = pa.py_buffer(b"")
            else:
                groups.setdefault((location.store.uri, location.path), []).append(at)

    def read(rows: list[int]) -> list[pa.Buffer]:
        group = [location for row in rows if (location := locations[row]) is not None]
        return _read_object(group)

    parts = list(groups.values())
    if len(parts) > 1 and not _is_local(locations[parts[0][0]]):
        answers = list(ordered_map(read, parts, workers=settings.io_concurrency))
    else:
        answers = list(map(read, parts))
    for rows, answer in zip(parts, answers, strict=True):
        for row, buffer in zip(rows, answer, strict=True):
            buffers[row] = buffer
    return buffers


def refuse_links(locations: Iterable[BlobLocation | None]) -> None:
    """Raise if a blob file is a symlink out of the dataset, before rows are rewritten.

    Rewriting would copy the target of the link into the dataset.

    Raises
    ------
    AccessError
        A blob file is such a link. No value was read.
    """
    for at in locations:
        if at is not None and at.link is not None:
            full = at.store.full(at.path)
            raise AccessError(f"{full} holds values of a blob column, but {at.link}")


def _is_local(location: BlobLocation | None) -> bool:
    return location is not None and open_location(location).mapped


def _read_object(locations: Sequence[BlobLocation]) -> list[pa.Buffer]:
    first = locations[0]
    try:
        if any(location.size is None for location in locations):
            whole = first.store.get(first.path)
            values = [_cut(whole, location) for location in locations]
            _check_shared(values, lambda: whole.size, first)
            return values
        ranges = [ByteRange(location.offset, location.size or 0) for location in locations]
        reader = open_location(first)
        if first.own:
            _check_disjoint(ranges, first)
        else:
            _check_shared(ranges, lambda: reader.size, first)
        return reader.read(ranges)
    except ObjectNotFoundError as error:
        raise _missing(first) from error


def _check_shared(
    values: Sequence[ByteRange] | Sequence[pa.Buffer],
    size: Callable[[], int],
    location: BlobLocation,
) -> None:
    """Raise if values that share an object are together many times as large as the object.

    Rows may share an image. In an untrusted dataset, a few bytes could decode to any size.
    """
    total, limit = sum(value.size for value in values), settings.max_decoded_bytes_per_page
    if total > limit and total > USUAL_RATIO * (held := size()):
        raise LimitError(
            f"{location.store.full(location.path)} has {held} bytes, but its {len(values)} values "
            f"have {total} bytes; at most {limit} are read at once. Read fewer rows at a "
            "time. If you trust the dataset, raise the limit "
            "GLAIVE_MAX_DECODED_BYTES_PER_PAGE."
        )


def _cut(whole: pa.Buffer, location: BlobLocation) -> pa.Buffer:
    size = whole.size - location.offset if location.size is None else location.size
    if size < 0 or location.offset + size > whole.size:
        raise CorruptFileError(
            "blob",
            expected=f"bytes within 0..{whole.size}",
            found=f"{size} bytes at {location.offset}",
            where=location.store.full(location.path),
        )
    return whole.slice(location.offset, size)


def _check_disjoint(ranges: Iterable[ByteRange], location: BlobLocation) -> None:
    """Raise if values overlap: damaged descriptions could require any amount of memory."""
    end = 0
    for extent in sorted(ranges):
        if extent.offset < end:
            raise CorruptFileError(
                "blobs of one file",
                expected=f"no value before {end}, where another one ends",
                found=f"{extent.size} bytes at {extent.offset}",
                where=location.store.full(location.path),
            )
        end = extent.end


def _missing(location: BlobLocation) -> DataFileMissingError:
    return DataFileMissingError(
        f"{location.store.full(location.path)}, which holds values of a blob column, does not "
        "exist. Restore it, or read a version of the dataset that does not need it."
    )


def find_blob_file(fragment: Fragment, column: Field) -> DataFile | None:
    """Return the data file of a fragment that has a column, or ``None``."""
    return next((file for file in fragment.files if column.id in file.columns()), None)


class BlobHome:
    """A data file with blob descriptions of a column, which it resolves to locations."""

    def __init__(self, snapshot: Snapshot, file: DataFile, column: str) -> None:
        self._snapshot = snapshot
        self._file = file
        self._column = column
        self._store, self._path = locate_data_file(snapshot.store, snapshot.manifest, file)
        self._readers: dict[int, tuple[RangeReader, str | None]] = {}
        self._external_values: ExternalValues | None = None

    def locations(self, descriptions: Any) -> list[BlobLocation | None]:
        """Return the location of each value; ``None`` for nulls.

        Raises
        ------
        CorruptFileError
            A value lies outside of the data file.
        UnsupportedFeatureError
            A value has an unknown kind.
        AccessError
            A value lies outside of the dataset, directly or through a symlink, and the caller has
            not allowed it.
        """
        if not pa.types.is_struct(descriptions.type):
            raise CorruptFileError(
                f"blobs of column {self._column!r}",
                expected="descriptions, as files from 2.0 on have",
                found=f"values of type {descriptions.type}",
                where=self._store.full(self._path),
            )
        rows = len(descriptions)
        valid = as_numpy(descriptions.is_valid())
        names = [field.name for field in descriptions.type]
        columns = [filled(descriptions.field(at), 0) for at in range(min(len(names), 4))]
        numbers = [as_numpy(column) for column in columns]
        if descriptions.type == DESCRIPTION:
            positions, sizes = numbers
            # Format 2.0 marks nulls in this way only.
            valid = valid & ((sizes > 0) | (positions != NULL_POSITION))
            kinds = np.full(rows, INLINE, np.uint8)
            ids, uris = np.zeros(rows, np.uint32), [""] * rows
        else:
            kinds, positions, sizes, ids = numbers
            uris = self._uris(descriptions) if (kinds >= EXTERNAL).any() else [""] * rows
        self._check_inline(valid & (kinds == INLINE) & (sizes > 0), positions, sizes)
        columns = [column.tolist() for column in (kinds, positions, sizes, ids)]
        table = zip(*columns, uris, strict=True)
        flags = valid.tolist()
        return [
            self._location(*row) if flag else None for flag, row in zip(flags, table, strict=True)
        ]

    def references(
        self, descriptions: Any, rows: NDArray[np.bool_]
    ) -> Iterator[tuple[int, BlobReference]]:
        """Yield the references of rows with external values, from descriptions."""
        numbers = [as_numpy(filled(descriptions.field(at), 0)).tolist() for at in (1, 2, 3)]
        uris = self._uris(descriptions)
        for row in rows.nonzero()[0].tolist():
            position, size, base_id = (column[row] for column in numbers)
            yield row, BlobReference(position, size, base_id, uris[row])

    def total_bytes(self) -> float:
        """Return the bytes of the data file and its blob files, an upper bound of all values.

        Infinite if unknown: web servers list no files. Takes one listing.
        """
        blob_files = sum(meta.size for meta in self._store.list(blob_folder(self._path)))
        if not blob_files and not self._store.is_local:
            return math.inf
        return float(self._data_reader().size + blob_files)

    def exists(self, description: Any) -> bool:
        """Return whether an external value may be read and its object is large enough.

        Takes one request.
        """
        try:
            (location,) = self.locations(description)
            if location is None or location.size is None:
                return True
            return location.offset + location.size <= open_location(location).size
        except GlaiveError:  # reading the value raises the error again
            return False

    def _uris(self, descriptions: Any) -> list[str]:
        try:
            uris: list[str] = filled(descriptions.field(4), "").to_pylist()
        except UnicodeDecodeError as error:
            raise self._bad_uri(str(error)) from None
        return uris

    def _bad_uri(self, found: str) -> CorruptFileError:
        return CorruptFileError(
            "URI of a blob",
            expected="an absolute URI, or a path below a base path",
            found=found,
            where=self._store.full(self._path),
        )

    def _check_inline(self, here: Any, positions: Any, sizes: Any) -> None:
        if not here.any():
            return
        reader = self._data_reader()
        end = np.uint64(reader.size)
        wrong = here & ((sizes > end) | (positions > end - np.minimum(sizes, end)))
        if wrong.any():
            at = int(wrong.argmax())
            raise CorruptFileError(
                "blob",
                expected=f"bytes within 0..{end}",
                found=f"{sizes[at]} bytes at {positions[at]}",
                where=reader.path,
            )

    def _data_reader(self) -> RangeReader:
        return self._snapshot.open_file(self._file).reader

    def _location(
        self, kind: int, position: int, size: int, blob_id: int, uri: str
    ) -> BlobLocation:
        if size == 0 and kind != EXTERNAL:
            return BlobLocation(self._store, self._path, 0, 0)
        if kind == INLINE:
            return BlobLocation(self._store, self._path, position, size, shared=self._data_reader())
        if kind in (PACKED_FILE, OWN_FILE):
            path = blob_file_path(self._path, blob_id)
            if kind == OWN_FILE:
                link = self._refuse_link(path)
                return BlobLocation(self._store, path, 0, size, link=link)
            known = self._readers.get(blob_id)
            if known is None:
                link = self._refuse_link(path)
                known = open_location(BlobLocation(self._store, path, 0, None)), link
                self._readers[blob_id] = known
            shared, link = known
            return BlobLocation(self._store, path, position, size, shared=shared, link=link)
        if kind == EXTERNAL:
            if not uri or not (blob_id or "://" in uri):
                raise self._bad_uri(repr(uri))
            store, path = self._external(blob_id, uri)
            return BlobLocation(store, path, position, size or None, own=False)
        raise UnsupportedFeatureError(
            f"a blob has the unknown kind {kind} (in {self._store.full(self._path)}); glaive reads "
            "kinds 0 to 3. A newer Lance probably wrote the file: upgrade glaive."
        )

    def _refuse_link(self, path: str) -> str | None:
        """Raise if a blob file is a symlink to any other file of this machine."""
        home, branch = self._snapshot.store, self._snapshot.manifest.wire.branch or None
        return refuse_link_out(home, branch, self._store, path, f"column {self._column!r}")

    def _external(self, base_id: int, uri: str) -> tuple[ObjectStore, str]:
        """Return store and path of a value below a base path or at an absolute URI."""
        if self._external_values is None:
            snapshot = self._snapshot
            bases = snapshot.memo.get(_BASE_PATHS)
            if bases is None:
                bases = BaseLocations(snapshot.store.uri, snapshot.manifest)
                snapshot.memo[_BASE_PATHS] = bases
            self._external_values = ExternalValues(snapshot.store, snapshot.manifest, bases)
        what = f"column {self._column!r}: the URI of a value"
        if base_id:
            return self._external_values.below_base(base_id, uri, what)
        return self._external_values.locate(uri, what)


# --- Columns of blob values -------------------------------------------------------------
# The file reader returns values of version 1 blobs; these classes read values of version 2 blobs
# from several files. Rewritten rows keep references to external values instead of the values:
# a rewrite must not copy external data into the dataset.

_SAMPLED_ROWS = 64 * 1024
"""Maximum rows whose sizes are sampled before values are fetched."""

_ASSUMED_BYTES = 1 << 20
"""Assumed size of a value that is a whole external object: few are read at a time."""


class BlobContentsColumn(BoundColumn):
    """A top-level field with blob values in place of descriptions (a ``BoundColumn``)."""

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
        """Mean bytes of a value, by the descriptions of all rows or of a sample."""
        rows = self.num_rows
        if rows <= _SAMPLED_ROWS:
            array = self._inner.read(0, rows)
        else:
            array = self._inner.take(np.linspace(0, rows - 1, _SAMPLED_ROWS).astype(np.int64))
        return max(1, int(self._content_bytes(self._column, array) // max(1, len(array))))

    def cuts(self) -> NDArray[np.int64]:
        """Return the row numbers at which pages begin."""
        return self._inner.cuts()

    def read(self, start: int, stop: int) -> Any:
        """Read rows ``start`` to ``stop``."""
        array = self._inner.read(start, stop)
        return self._resolve(self._column, array, self._column.name)

    def take(self, rows: NDArray[np.int64]) -> Any:
        """Take rows by position; positions may repeat."""
        # Read each row once: repeated rows would look like overlapping values.
        different, positions = np.unique(rows, return_inverse=True)
        if len(different) < len(rows):
            return self.take(different).take(number_array(positions))
        return self._resolve(self._column, self._inner.take(rows), self._column.name)

    plan_read = read
    plan_take = take

    def _content_bytes(self, field: Field, array: Any) -> float:
        """Estimate the bytes of all blobs at or below a field, from the descriptions."""
        if field.is_blob_v2:
            return self._blob_bytes(field, array.drop_null())
        if not has_blobs_v2(field):
            return 0.0
        struct = field.logical_type == "struct"
        members = array.flatten() if struct else [array.flatten()]
        pairs = zip(field.children, members, strict=True)
        return sum(self._content_bytes(child, member) for child, member in pairs)

    def _blob_bytes(self, field: Field, present: Any) -> float:
        """Estimate the bytes of the blobs of a field, which determine the rows of windows.

        A large estimate is verified with a listing, and one request for external values.
        """
        sizes = as_numpy(present.field("size"))
        external = as_numpy(present.field("kind")) == EXTERNAL
        sizes = np.where(external & (sizes == 0), _ASSUMED_BYTES, sizes)
        own, outside = (float(sizes[part].sum(dtype=np.float64)) for part in (~external, external))
        outside = outside if self._fetches_external else 0.0
        home = self._home(field, self._column.name)
        if home is None:
            return 0.0
        limit = settings.max_decoded_bytes_per_page
        if own > limit:
            own = min(own, home.total_bytes())
        if outside > limit:
            largest = int(np.where(external, sizes, 0).argmax())
            outside = outside if home.exists(present.slice(largest, 1)) else 0.0
        return own + outside

    _fetches_external = True
    """Whether external values become part of the column."""

    def _resolve(self, field: Field, array: Any, path: str) -> Any:
        """Replace the descriptions at or below a field with values."""
        if field.is_blob_v2:
            return self._values(field, array, path)
        if not has_blobs_v2(field):
            return array
        kind: Any = self._result(field).arrow_type
        if field.logical_type == "struct":
            # ``flatten`` makes descriptions in null structs null.
            members = [
                self._resolve(child, member, f"{path}.{child.name}")
                for child, member in zip(field.children, array.flatten(), strict=True)
            ]
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
        if field.logical_type in ("list", "list.struct", "large_list", "large_list.struct"):
            (item,) = field.children
            return with_items(array, self._resolve(item, array.flatten(), path), kind)
        raise SchemaError(
            f"column {field.name!r}: blobs within {field.logical_type} are read as descriptions "
            "only. Leave out blob_handling='all_binary'."
        )

    def _values(self, field: Field, descriptions: Any, path: str) -> Any:
        rows = len(descriptions)
        home = self._home(field, path)
        if home is None or not rows:
            return pa.nulls(rows, pa.large_binary())
        return _binary(read_locations(home.locations(descriptions)))

    def _home(self, field: Field, path: str) -> BlobHome | None:
        """Return the data file with the descriptions of a blob column, or ``None``."""
        file = find_blob_file(self._fragment, field)
        return None if file is None else BlobHome(self._snapshot, file, path)


class LogicalColumn(BlobContentsColumn):
    """A column of blob values with references to external values, for rows to rewrite."""

    _result = staticmethod(logical)
    _fetches_external = False

    def _values(self, field: Field, descriptions: Any, path: str) -> Any:
        rows = len(descriptions)
        kind: Any = self._result(field).arrow_type
        home = self._home(field, path)
        if home is None or not rows:
            return pa.nulls(rows, kind)
        valid = as_numpy(descriptions.is_valid())
        external = valid & (as_numpy(filled(descriptions.field(0), 0)) == EXTERNAL)
        buffers: list[pa.Buffer | None] = [None] * rows
        selected = (~external).nonzero()[0]
        locations = home.locations(
            descriptions.take(number_array(selected)) if external.any() else descriptions
        )
        refuse_links(locations)
        for row, buffer in zip(selected.tolist(), read_locations(locations), strict=True):
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
        mask = None if valid.all() else flag_array(~valid)
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _binary(buffers: list[pa.Buffer | None]) -> Any:
    """Join values into one array."""
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
