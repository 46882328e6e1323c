"""Write a stream of rows into as many data files as its options ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.source import Rows
from glaive.dataset.writing.target_bases import DataPlace
from glaive.errors import StoreError, UnsupportedFeatureError
from glaive.file.open import create_writer
from glaive.file.protocol import FileWriter, WrittenFile
from glaive.format.blobs import has_blobs_v2
from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile, Fragment
from glaive.format.paths import blob_folder, new_data_file_name
from glaive.io.new_files import NewFiles
from glaive.io.store import ObjectStore

__all__ = ["RollingWriter"]


class RollingWriter:
    """Writes rows, beginning a new file whenever the one before is full."""

    def __init__(
        self, store: ObjectStore, schema: LanceSchema, options: WriteOptions, version: str | None
    ) -> None:
        self.store, self.schema, self.options, self.version = store, schema, options, version
        self.fragments: list[Fragment] = []
        self.dictionaries: dict[int, pa.Array] = {}
        self.places: tuple[DataPlace, ...] = (DataPlace(store),)
        self._place = self.places[0]
        self._writer: FileWriter | None = None
        self._name = ""
        self._rows = 0

    def write(self, rows: Rows) -> None:
        """Append rows; they may end the current file and begin others."""
        start = 0
        while start < rows.num_rows:
            writer = self._writer or self._begin()
            for piece in self._pieces(rows, start):
                writer.write(piece)
                self._rows += piece.num_rows
                start += piece.num_rows
                if self._full(writer):
                    self.close()
                    break

    def _pieces(self, rows: Rows, start: int) -> Iterator[Rows]:
        """Rows from ``start`` on, in pieces that do not overfill the current file."""
        rest = rows.num_rows - start
        room = self._most_rows - self._rows
        budget = self.options.max_bytes_per_file
        step = min(rest, room)
        # The buffers are an upper bound, and cheap to add up.
        if rows.get_total_buffer_size() > budget and rows.nbytes > budget:
            step = min(step, max(1, budget * rows.num_rows // rows.nbytes))
        if step == rows.num_rows:
            yield rows
            return
        for at in range(start, start + min(rest, room), step):
            yield rows.slice(at, min(step, start + min(rest, room) - at))

    def _begin(self) -> FileWriter:
        self._name = new_data_file_name()
        self._place = place = self.places[len(self.fragments) % len(self.places)]
        if place.base_id is not None and any(map(has_blobs_v2, self.schema.fields)):
            raise UnsupportedFeatureError(
                "target_bases: files with blob columns must lie in the dataset's own place"
            )
        writer = self._writer = create_writer(
            NewFiles(place.store),
            place.path_of(self._name),
            self.schema,
            self.version,
            encoding_options=self.options.encoding_options,
            dictionaries=self.dictionaries,
            blobs=self.options.blobs,
            rows_per_batch=self.options.max_rows_per_group,
            page_bytes=self.options.page_bytes(len(self.schema.fields)),
        )
        self._rows = 0
        if self.options.progress is not None:
            self.options.progress.begin(FragmentMetadata(0, [], 0))
        return writer

    @property
    def _most_rows(self) -> int:
        """Rows that the current file takes."""
        full, most = self.options.full_files, self.options.max_rows_per_file
        return most if full is None or len(self.fragments) < full else max(1, most - 1)

    def _full(self, writer: FileWriter) -> bool:
        return self._rows >= self._most_rows or writer.position >= self.options.max_bytes_per_file

    def close(self) -> None:
        """Finish the current file, if there is one."""
        if self._writer is None:
            return
        written = self._writer.finish()
        self._writer = None
        fragment = _fragment(self._name, written, self._place.base_id)
        self.fragments.append(fragment)
        if self.options.progress is not None:
            self.options.progress.complete(FragmentMetadata.of(fragment))

    def discard(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        for place in self.places:
            mine = [file for one in self.fragments for file in one.files]
            self._remove(place, [one.path for one in mine if one.base_id == place.base_id])

    def _remove(self, place: DataPlace, names: list[str]) -> None:
        paths = [place.path_of(name) for name in names]
        with suppress(StoreError):
            if any(map(has_blobs_v2, self.schema.fields)):
                folders = [blob_folder(path) for path in paths]
                paths += [one.path for folder in folders for one in place.store.walk(folder)]
            place.store.discard(paths)


def _fragment(name: str, written: WrittenFile, base_id: int | None) -> Fragment:
    file = DataFile(
        path=name,
        fields=tuple(written.fields),
        column_indices=tuple(written.column_indices),
        version=written.version,
        size=written.size,
        base_id=base_id,
    )
    return Fragment(files=(file,), physical_rows=written.rows)
