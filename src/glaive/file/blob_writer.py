"""Blob files that belong to a data file: packed files with many values, or one per value.

Specification: "Where values lie" in ``docs/format/blobs.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import flag_array, number_array
from glaive.arrow.build import validity_flags
from glaive.arrow.chunked import as_numpy, with_items
from glaive.errors import OptionError, SchemaError
from glaive.file.blobs import BlobOptions, BlobReference, BlobThresholds, BlobValues
from glaive.format.blobs import (
    DESCRIPTOR,
    EXTERNAL,
    INLINE,
    OWN_FILE,
    PACKED_FILE,
    has_blobs_v2,
    stored,
)
from glaive.format.field import Field
from glaive.format.paths import BLOB_IDS, blob_file_path, blob_folder, is_blob_file_name
from glaive.format.wire import is_file_name
from glaive.io.location import LOCAL_SCHEMES, path_of_file_uri
from glaive.io.store import ObjectStore, Sink
from glaive.io.wrapped import AlignedSink, NewFiles
from glaive.process import Origin
from glaive.types import ByteRange, Flags, Int64s, as_buffer


class BlobFiles:
    """The blob files of one data file. They become visible with that file.

    A data file whose name a user chose may replace another file. The blob files of the replaced
    file stay until then, and the new blob files have other ids.
    """

    def __init__(self, store: ObjectStore, data_file: str) -> None:
        self._store = store
        self._data_file = data_file
        self._ids: Iterator[int] | None = None
        self._origin = Origin()
        self._replaced: list[str] = []
        self._done: list[str] = []
        self._pack: AlignedSink | None = None
        self._pack_id = 0

    def put_packed(self, values: BlobValues, limit: int) -> tuple[Int64s, Int64s]:
        """Append values to the packed file, and to new ones when it would exceed ``limit``.

        Returns the id of the file of each value, and the position in it.
        """
        count = len(values.sizes)
        numbers, positions = np.zeros(count, np.int64), np.zeros(count, np.int64)
        ends = values.sizes.cumsum()
        first = 0
        while first < count:
            before = int(ends[first - 1]) if first else 0
            if self._pack is not None:
                stop = self._fitting(ends, before, limit)
                if stop <= first:
                    self._finish_pack()
            if self._pack is None:
                self._pack_id = self._next_id()
                self._pack = AlignedSink(self._begin(self._pack_id))
                stop = max(first + 1, self._fitting(ends, before, limit))
            positions[first:stop] = ends[first:stop] - values.sizes[first:stop]
            positions[first:stop] += self._pack.position - before
            numbers[first:stop] = self._pack_id
            self._pack.write(values.part(first, stop).joined())
            first = stop
        return numbers, positions

    def _fitting(self, ends: Int64s, before: int, limit: int) -> int:
        """Return the number of the first value that exceeds the packed file."""
        used = 0 if self._pack is None else self._pack.position
        return int(ends.searchsorted(before + limit - used, "right"))

    def put_alone(self, value: pa.Buffer) -> int:
        """Write a file for one value; returns its id."""
        number = self._next_id()
        sink = self._begin(number)
        try:
            sink.write([value])
            sink.finish()
        except BaseException:
            sink.abort()
            raise
        return number

    def finish(self) -> None:
        """Make what was written visible."""
        self._finish_pack()

    def published(self) -> None:
        """Remove the files of a data file that this one took the place of, if that is possible."""
        # A folder that is a link may be the folder of another file.
        if self._replaced and not self._store.is_link(blob_folder(self._data_file)):
            self._store.discard(self._replaced, own=False)
        self._replaced = []

    def abort(self) -> None:
        """Discard the files, as far as possible."""
        if self._pack is not None:
            self._pack.abort()
            self._pack = None
        if self._origin.is_this_process:
            self._store.discard(self._done)

    def _next_id(self) -> int:
        """Return an unused id. One listing, unless the name of the data file is new."""
        if self._ids is None:
            if not isinstance(self._store, NewFiles):
                found = [meta.path for meta in self._store.list(blob_folder(self._data_file))]
                self._replaced = [
                    path for path in found if is_blob_file_name(path.rpartition("/")[2])
                ]
            taken = frozenset(self._replaced)
            numbers = range(1, BLOB_IDS)
            self._ids = (
                number
                for number in numbers
                if not taken or blob_file_path(self._data_file, number) not in taken
            )
        return next(self._ids)

    def _begin(self, number: int) -> Sink:
        path = blob_file_path(self._data_file, number)
        self._done.append(path)
        return self._store.create(path)

    def _finish_pack(self) -> None:
        if self._pack is not None:
            self._pack.finish()
            self._pack = None


# --- Write the values of blob v2 columns, and build their descriptors -------------------
#
# Values are written immediately, before the pages with descriptors: small ones into the data file,
# larger ones into blob files next to it. Values given by URI are referred to, or copied.
#
# Specification: "Where values lie" in ``docs/format/blobs.md``.

_LISTS = ("list", "list.struct", "large_list", "large_list.struct")


class BlobWriter:
    """The blobs of one data file."""

    def __init__(self, sink: AlignedSink, files: BlobFiles, options: BlobOptions) -> None:
        self._sink = sink
        self._files = files
        self._options = options

    def describe(self, field: Field, array: Any, path: str) -> Any:
        """Write the blobs at or below a field; returns the array with descriptors instead.

        Raises
        ------
        SchemaError
            A value has both bytes and a URI, or lacks both; or the URI is refused.
        """
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if field.is_blob_v2:
            return self._describe(field, array, path)
        if not has_blobs_v2(field):
            return array
        mask = array.is_null() if array.null_count else None
        if field.logical_type == "struct":
            # Flattened: values in null structs are null.
            children = [
                self.describe(child, member, f"{path}.{child.name}")
                for child, member in zip(field.children, array.flatten(), strict=True)
            ]
            inner = [stored(child).to_arrow() for child in field.children]
            return pa.StructArray.from_arrays(children, fields=inner, mask=mask)
        if field.logical_type in _LISTS:
            (item,) = field.children
            items = self.describe(item, array.flatten(), f"{path}.{item.name}")
            return with_items(array, items, stored(field).arrow_type)
        raise SchemaError(
            f"column {path!r}: blobs are not supported within {field.logical_type}; use a list or "
            "struct"
        )

    def finish(self) -> None:
        """Make the blob files visible."""
        self._files.finish()

    def published(self) -> None:
        """Remove the blob files of a data file that this one took the place of."""
        self._files.published()

    def abort(self) -> None:
        """Discard the blob files."""
        self._files.abort()

    # ------------------------------------------------------------------ values

    def _describe(self, field: Field, array: Any, path: str) -> Any:
        rows = len(array)
        flags = validity_flags(array)
        valid = np.ones(rows, np.bool_) if flags is None else flags
        given, uris = array.field("data"), array.field("uri")
        has_data, has_uri = (as_numpy(part.is_valid()) for part in (given, uris))
        wrong = valid & (has_data == has_uri)
        if wrong.any():
            at = int(wrong.argmax())
            given_parts = "both" if has_data[at] else "neither"
            raise SchemaError(
                f"column {path!r}, row {at} of a batch: expected either data or a uri, found "
                f"{given_parts}. Give one of them, or None for a null."
            )
        values = BlobValues.of(given, valid & has_data)
        fetched: dict[int, pa.Buffer] = {}
        table = _Table(rows)
        external = (valid & has_uri).nonzero()[0]
        own = np.ones(rows, np.bool_)
        if len(external):
            own[external] = False
            external_uris = uris.take(number_array(external)).to_pylist()
            external, external_uris = _keep_references(table, external, external_uris)
        if len(external):
            ranges = _ranges(array, external, path)
            if self._options.external == "ingest":
                own[external] = True
                for row, uri, part in zip(external.tolist(), external_uris, ranges, strict=True):
                    fetched[row] = self._fetch(uri, part)
            else:
                self._refer(table, external, external_uris, ranges, path)
        limits = BlobThresholds.of(field, self._options)
        self._write_values(table, values, fetched, valid & own, limits)
        return table.build(None if flags is None else ~valid)

    def _write_values(
        self,
        table: _Table,
        values: BlobValues,
        fetched: Mapping[int, pa.Buffer],
        here: Flags,
        limits: BlobThresholds,
    ) -> None:
        """Write values, or what was fetched instead; ``here`` are the rows that have one."""
        sizes = values.sizes.astype(np.uint64)
        is_given = np.ones(len(sizes), np.bool_)
        for row, value in fetched.items():
            sizes[row], is_given[row] = value.size, False
        alone = here & (sizes > limits.own_file)
        packed = here & ~alone & (sizes > limits.inline)
        table.size[here] = sizes[here]
        inline = here & ~alone & ~packed & (sizes > 0)
        rows = (inline & is_given).nonzero()[0]
        table.position[rows] = values.take(rows).write(self._sink)
        rows = (inline & ~is_given).nonzero()[0]
        written = self._sink.write_aligned([fetched[row] for row in rows.tolist()])
        table.position[rows] = [part.offset for part in written]
        table.kind[alone], table.kind[packed] = OWN_FILE, PACKED_FILE
        rows = (packed | alone).nonzero()[0]
        joined = packed[rows] & is_given[rows]  # adjacent values are put at once
        for part in np.split(rows, (~(joined[1:] & joined[:-1])).nonzero()[0] + 1):
            if not len(part):
                continue
            row = int(part[0])
            some = values.take(part) if is_given[row] else BlobValues.only(fetched[row])
            if alone[row]:
                table.blob_id[row] = self._files.put_alone(some[0])
            else:
                put = self._files.put_packed(some, limits.pack_file)
                table.blob_id[part], table.position[part] = put

    def _refer(
        self,
        table: _Table,
        rows: Int64s,
        uris: list[str],
        ranges: list[ByteRange | None],
        path: str,
    ) -> None:
        table.kind[rows] = EXTERNAL
        for row, uri, part in zip(rows.tolist(), uris, ranges, strict=True):
            table.blob_id[row], table.uri[row] = self._below_base(uri, path)
            if part is not None:
                table.position[row], table.size[row] = part

    def _below_base(self, uri: str, path: str) -> tuple[int, str]:
        """Return the id of the base above a URI and the rest of the URI; else 0 and the URI."""
        location = _canonical(uri)
        for number, base in self._options.bases.items():
            root = _canonical(base).rstrip("/") + "/"
            if location.startswith(root) and is_file_name(location[len(root) :]):
                return number, location[len(root) :]
        if not self._options.outside_bases:
            raise SchemaError(
                f"column {path!r}: {uri!r} is below no base path of the dataset. Pass "
                "allow_external_blob_outside_bases=True to refer to it anyway, or "
                "external_blob_mode='ingest' to copy it."
            )
        if "://" not in uri:
            raise SchemaError(
                f"column {path!r}: expected an absolute URI such as file:///data/x, found {uri!r}"
            )
        return 0, uri

    def _fetch(self, uri: str, part: ByteRange | None) -> pa.Buffer:
        store, name = self._options.opener(uri)
        return store.get(name) if part is None else store.open(name).read([part])[0]


class _Table:
    """Descriptors of a batch, column by column."""

    def __init__(self, rows: int) -> None:
        self.kind = np.full(rows, INLINE, np.uint8)
        self.position = np.zeros(rows, np.uint64)
        self.size = np.zeros(rows, np.uint64)
        self.blob_id = np.zeros(rows, np.uint32)
        self.uri: dict[int, str] = {}

    def build(self, null: Flags | None) -> Any:
        columns: list[Any] = [self.kind, self.position, self.size, self.blob_id]
        arrays: list[Any] = [number_array(column) for column in columns]
        arrays.append(self._uris())
        mask = None if null is None else flag_array(null)
        return pa.StructArray.from_arrays(arrays, fields=list(DESCRIPTOR), mask=mask)

    def _uris(self) -> Any:
        rows = len(self.kind)
        if self.uri:
            return pa.array([self.uri.get(row, "") for row in range(rows)], pa.string())
        offsets = as_buffer(np.zeros(rows + 1, np.int32))
        return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(b"")])


def _keep_references(table: _Table, rows: Int64s, uris: list[str]) -> tuple[Int64s, list[str]]:
    """Restore the descriptors of values that are references; returns the other values."""
    new = np.ones(len(rows), np.bool_)
    for at, (row, text) in enumerate(zip(rows.tolist(), uris, strict=True)):
        reference = BlobReference.of_text(text)
        if reference is not None:
            new[at] = False
            table.kind[row] = EXTERNAL
            table.position[row], table.size[row] = reference.position, reference.size
            table.blob_id[row], table.uri[row] = reference.base_id, reference.uri
    return rows[new], [text for text, flag in zip(uris, new.tolist(), strict=True) if flag]


def _ranges(array: Any, rows: Int64s, path: str) -> list[ByteRange | None]:
    """Return the range of the object that each row refers to; ``None`` for the whole object."""
    if array.type.num_fields < len(DESCRIPTOR) - 1:
        return [None] * len(rows)
    at = number_array(rows)
    starts, sizes = (array.field(name).take(at).to_pylist() for name in ("position", "size"))
    parts: list[ByteRange | None] = []
    for start, size in zip(starts, sizes, strict=True):
        if (start is None) != (size is None) or size == 0:
            raise SchemaError(
                f"column {path!r}: a part of a uri needs a position and a size above 0, found "
                f"position {start}, size {size}"
            )
        parts.append(None if start is None else ByteRange(start, size))
    return parts


def _canonical(location: str) -> str:
    """Return a path or file URI as an absolute path, any other URI unchanged."""
    if "://" not in location:
        return PurePath(location).as_posix()
    if location.partition("://")[0].lower() not in LOCAL_SCHEMES:
        return location
    try:
        return path_of_file_uri(location)
    except OptionError:  # no URI, as reading it will report
        return location
