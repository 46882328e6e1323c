"""Blob columns: descriptors, values, and files over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import pack_flags
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

# --- Where the value of a blob column lies, and reading many at once --------------------
# Specification: "Where values lie" in ``docs/format/blobs.md``.

_PLACES = "places of base paths"
"""In the memo of a snapshot: base paths are parsed once, not for each data file."""


@dataclass(frozen=True, slots=True)
class BlobLocation:
    """``size`` bytes of an object from ``offset`` on; all of it where the size is None.

    ``shared`` is an opened reader of the object, if there is one. ``own`` is False for
    objects that are not the dataset's: several values may then lie in the same bytes.
    ``link`` says why the object may be read, but not copied: it is a link out of the dataset.
    """

    store: ObjectStore
    path: str
    offset: int
    size: int | None
    own: bool = True
    shared: RangeReader | None = field(default=None, compare=False)
    link: str | None = field(default=None, compare=False)


def open_location(location: BlobLocation) -> RangeReader:
    """A reader of the object that a value lies in.

    Raises
    ------
    DataFileMissingError
        There is no such object, as far as opening tells.
    """
    if location.shared is not None:
        return location.shared
    try:
        return location.store.open(location.path)
    except ObjectNotFoundError as error:
        raise _missing(location) from error


def read_locations(locations: Sequence[BlobLocation | None]) -> list[pa.Buffer | None]:
    """The bytes of the values of different rows, in order; None where there is none.

    Values in one object are read in bulk: near ones with one request. Objects are read side
    by side, unless they are local.

    Raises
    ------
    DataFileMissingError
        An object is not there; the message names it.
    CorruptFileError
        An object ends before a value does, or values overlap.
    UnsupportedFeatureError
        Values of other objects have the same bytes, and are too large together.
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
    """Refuse values in files beside data files that are links out of the root.

    For rows that are written again: what lies behind such a link would become part of the dataset.

    Raises
    ------
    AccessError
        There is such a link; nothing was read.
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
            _check_apart(ranges, first)
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
    """Refuse values that are many times as large together as the object that they lie in.

    Rows may name the same image, but few bytes of a stranger could stand for any amount of memory.
    """
    total, most = sum(value.size for value in values), settings.max_decoded_bytes_per_page
    if total > most and total > USUAL_RATIO * (held := size()):
        raise LimitError(
            f"{location.store.full(location.path)} has {held} bytes, and {len(values)} values that "
            f"lie in it are {total} bytes; at most {most} are read at once. Read fewer rows at a "
            "time, or, if the dataset is trusted, allow more: set "
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


def _check_apart(ranges: Iterable[ByteRange], location: BlobLocation) -> None:
    """Refuse values that overlap: a damaged table of them could ask for any amount of memory."""
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


class BlobHome:
    """A data file with descriptions of blobs of a column: turns these into locations."""

    def __init__(self, snapshot: Snapshot, file: DataFile, column: str) -> None:
        self._snapshot = snapshot
        self._file = file
        self._column = column
        self._store, self._path = locate_data_file(snapshot.store, snapshot.manifest, file)
        self._readers: dict[int, tuple[RangeReader, str | None]] = {}
        self._elsewhere: ExternalValues | None = None

    def locations(self, descriptions: Any) -> list[BlobLocation | None]:
        """The location of each value; None for nulls.

        Raises
        ------
        CorruptFileError
            A value lies outside of the data file.
        UnsupportedFeatureError
            A value is kept in a way this reader does not know.
        AccessError
            A value lies outside of the dataset, or behind a link that leads out of it, and the
            caller has to allow reading it.
        """
        if not pa.types.is_struct(descriptions.type):
            raise CorruptFileError(
                f"blobs of column {self._column!r}",
                expected="descriptions, as files from 2.0 on have",
                found=f"values of type {descriptions.type}",
                where=self._store.full(self._path),
            )
        rows = len(descriptions)
        valid = np.asarray(descriptions.is_valid())
        names = [field.name for field in descriptions.type]
        columns = [descriptions.field(at).fill_null(0) for at in range(min(len(names), 4))]
        numbers = [np.asarray(column) for column in columns]
        if descriptions.type == DESCRIPTION:
            positions, sizes = numbers
            # Format 2.0 has no other nulls.
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
        """Where the values of these rows lie, all of them elsewhere; nothing is opened."""
        numbers = [np.asarray(descriptions.field(at).fill_null(0)).tolist() for at in (1, 2, 3)]
        uris = self._uris(descriptions)
        for row in np.flatnonzero(rows).tolist():
            position, size, base_id = (column[row] for column in numbers)
            yield row, BlobReference(position, size, base_id, uris[row])

    def held_bytes(self) -> float:
        """Bytes of the data file and of the blob files beside it: no values are more.

        Infinite where that is unknown: web servers list nothing. One listing.
        """
        beside = sum(meta.size for meta in self._store.list(blob_folder(self._path)))
        if not beside and not self._store.is_local:
            return math.inf
        return float(self._data_reader().size + beside)

    def is_there(self, description: Any) -> bool:
        """Whether an external value may be read, and its object has so many bytes. One request."""
        try:
            (location,) = self.locations(description)
            if location is None or location.size is None:
                return True
            return location.offset + location.size <= open_location(location).size
        except GlaiveError:  # reading the value says what is wrong
            return False

    def _uris(self, descriptions: Any) -> list[str]:
        try:
            uris: list[str] = descriptions.field(4).fill_null("").to_pylist()
        except UnicodeDecodeError as error:
            raise self._no_uri(str(error)) from None
        return uris

    def _no_uri(self, found: str) -> CorruptFileError:
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
                raise self._no_uri(repr(uri))
            store, path = self._external(blob_id, uri)
            return BlobLocation(store, path, position, size or None, own=False)
        raise UnsupportedFeatureError(
            f"a blob of kind {kind} (in {self._store.full(self._path)}); this reader knows 0 to 3. "
            "The file was probably written by a newer Lance: upgrade glaive."
        )

    def _refuse_link(self, path: str) -> str | None:
        """Refuse a file of values that is a link to any other file of this machine."""
        home, branch = self._snapshot.store, self._snapshot.manifest.wire.branch or None
        return refuse_link_out(home, branch, self._store, path, f"column {self._column!r}")

    def _external(self, base_id: int, uri: str) -> tuple[ObjectStore, str]:
        """Store and path of a value that lies below a base path, or has an absolute URI."""
        if self._elsewhere is None:
            snapshot = self._snapshot
            places = snapshot.memo.get(_PLACES)
            if places is None:
                places = BaseLocations(snapshot.store.uri, snapshot.manifest)
                snapshot.memo[_PLACES] = places
            self._elsewhere = ExternalValues(snapshot.store, snapshot.manifest, places)
        what = f"column {self._column!r}: the URI of a value"
        if base_id:
            return self._elsewhere.below_base(base_id, uri, what)
        return self._elsewhere.locate(uri, what)


# --- Columns of blobs as the values themselves, which lie in several files --------------
# Blobs of the first kind come as values from the reader of their data file; here are those of the
# second kind. Rows that are written again have references in place of the values that lie
# elsewhere: those are nobody's to fetch by the way.

_SAMPLED_ROWS = 64 * 1024
"""Rows of which sizes are looked at, at most, before values are fetched."""

_UNKNOWN_BYTES = 1 << 20
"""Taken for the size of a value that is a whole object elsewhere: few are read at a time."""


class BlobContentsColumn(BoundColumn):
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
