"""Blob files beside a data file: packed files with many values, or one per value.

Specification: "Where values lie" in ``docs/format/blobs.md``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from glaive.file.v2.writing.blob_values import BlobValues
from glaive.forks import Origin
from glaive.format.names import is_blob_file_name
from glaive.format.paths import blob_file_path, blob_folder
from glaive.io.new_files import NewFiles
from glaive.io.sink import AlignedSink
from glaive.io.store import ObjectStore, Sink
from glaive.types import Int64s

__all__ = ["BlobFiles"]

_NAMED_IDS = 1 << 32


class BlobFiles:
    """The blob files of one data file. Nothing refers to them before that file is visible.

    A data file whose name a user chose may take the place of another one. The blob files of that
    one stay until then: those of the new one have other ids.
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
        ends = np.cumsum(values.sizes)
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
        """The number of the first value that the packed file has no room for."""
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
        # A folder that is a link may be that of another file.
        if self._replaced and not self._store.is_link(blob_folder(self._data_file)):
            self._store.discard(self._replaced, own=False)
        self._replaced = []

    def abort(self) -> None:
        """Discard the files, as far as possible."""
        if self._pack is not None:
            self._pack.abort()
            self._pack = None
        if self._origin.is_here:
            self._store.discard(self._done)

    def _next_id(self) -> int:
        """An id that no file has. One listing, unless the name of the data file is a new one."""
        if self._ids is None:
            if not isinstance(self._store, NewFiles):
                found = [meta.path for meta in self._store.list(blob_folder(self._data_file))]
                self._replaced = [
                    path for path in found if is_blob_file_name(path.rpartition("/")[2])
                ]
            taken = frozenset(self._replaced)
            numbers = range(1, _NAMED_IDS)
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
