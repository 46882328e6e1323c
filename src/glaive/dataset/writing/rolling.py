"""Write a stream of rows into data files of limited size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from glaive.dataset.fragments.data_files import DataFile
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.progress_line import note_rows
from glaive.dataset.writing.plan import WritePlan
from glaive.dataset.writing.progress import NumberedProgress
from glaive.dataset.writing.source import Rows
from glaive.errors import StoreError, UnsupportedFeatureError
from glaive.events import FILES, emit
from glaive.file.open import create_writer
from glaive.file.protocol import FileWriter, WrittenFile
from glaive.forks import Origin
from glaive.format import fragment as stored
from glaive.format.blobs import has_blobs_v2
from glaive.format.fragment import Fragment
from glaive.format.names import is_blob_file_name
from glaive.format.paths import blob_folder, new_data_file_name
from glaive.io.new_files import NewFiles
from glaive.io.store import ObjectStore

__all__ = ["RollingWriter", "blob_files", "discard_fragments"]


_PART_BYTES: Final = 8 * 1024 * 1024
"""Bytes of rows, at least, between two looks at the size of a file: about a page."""


class RollingWriter:
    """Write rows, starting a new file whenever what is written of the current one exceeds a limit.

    Pages that wait in memory do not count, as in pylance: a small limit makes no tiny files.
    """

    def __init__(self, plan: WritePlan) -> None:
        self.plan, self.options = plan, plan.options
        self.fragments: list[Fragment] = []
        self._origin = Origin()
        self._dictionaries = dict(plan.dictionaries)  # the writer adds those of new columns
        self._location = plan.locations[0]
        self._writer: FileWriter | None = None
        self._name = ""
        self._rows = 0

    def write(self, rows: Rows) -> None:
        """Append rows; may finish the current file and start others."""
        start = 0
        while start < rows.num_rows:
            writer = self._writer or self._start_file()
            for part in self._parts(rows, start):
                writer.write(part)
                self._rows += part.num_rows
                start += part.num_rows
                note_rows(part.num_rows)
                if self._is_full(writer):
                    self.close()
                    break

    def _parts(self, rows: Rows, start: int) -> Iterator[Rows]:
        """Rows from ``start`` on that fit the current file, in parts of limited size."""
        stop = min(rows.num_rows, start + self._max_rows - self._rows)
        budget = max(self.options.max_bytes_per_file, _PART_BYTES)
        step = stop - start
        # The buffer size is an upper bound and cheap to compute.
        if rows.get_total_buffer_size() > budget and rows.nbytes > budget:
            step = min(step, max(1, budget * rows.num_rows // rows.nbytes))
        if step == rows.num_rows:
            yield rows
            return
        for first in range(start, stop, step):
            yield rows.slice(first, min(step, stop - first))

    def _start_file(self) -> FileWriter:
        plan = self.plan
        self._name = new_data_file_name()
        self._location = location = plan.locations[len(self.fragments) % len(plan.locations)]
        if location.base_id is not None and any(map(has_blobs_v2, plan.schema.fields)):
            raise UnsupportedFeatureError(
                "target_bases: files with blob columns must be in the dataset's own root"
            )
        writer = self._writer = create_writer(
            NewFiles(location.store),
            location.path_of(self._name),
            plan.schema,
            plan.version,
            encoding_options=plan.encoding_options,
            dictionaries=self._dictionaries,
            blobs=plan.blobs,
            rows_per_batch=self.options.max_rows_per_group,
            page_bytes=self.options.page_bytes(len(plan.schema.fields)),
            checksums=plan.checksums,
        )
        self._rows = 0
        if self.options.progress is not None:
            self.options.progress.begin(self._begun(self.options.progress))
        return writer

    def _begun(self, progress: object) -> FragmentMetadata:
        """The fragment of a started file, which is named where the fragment has an id."""
        begun = FragmentMetadata(0, [], None)  # type: ignore[arg-type]  # not known, as in pylance
        if isinstance(progress, NumberedProgress):
            version = map(int, self.plan.version.split("."))
            begun.files.append(DataFile(self._name, [], [], *version))
        return begun

    @property
    def _max_rows(self) -> int:
        """Maximum rows of the current file."""
        full, limit = self.options.full_files, self.options.max_rows_per_file
        return limit if full is None or len(self.fragments) < full else max(1, limit - 1)

    def _is_full(self, writer: FileWriter) -> bool:
        return self._rows >= self._max_rows or writer.position >= self.options.max_bytes_per_file

    def close(self) -> None:
        """Finish the current file, if there is one."""
        if self._writer is None:
            return
        written = self._writer.finish()
        self._writer = None
        emit(FILES, mode="create", type="data", path=self._name)
        fragment = _fragment(self._name, written, self._location.base_id)
        self.fragments.append(fragment)
        if self.options.progress is not None:
            self.options.progress.complete(FragmentMetadata.of(fragment))

    def discard(self) -> None:
        """Remove all written files; in a fork of the process that writes, none."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        if self._origin.is_here:
            discard_fragments(self.plan, self.fragments)


def discard_fragments(plan: WritePlan, fragments: Iterable[Fragment], *, own: bool = True) -> None:
    """Remove files that no version refers to, if that is possible.

    Behind links, only files of this run (``own``).
    """
    files = [file for fragment in fragments for file in fragment.files]
    for location in plan.locations:
        paths = [location.path_of(file.path) for file in files if file.base_id == location.base_id]
        if any(map(has_blobs_v2, plan.schema.fields)):
            paths += blob_files(location.store, paths)
        location.store.discard(paths, own=own)


def blob_files(store: ObjectStore, data_files: Iterable[str]) -> list[str]:
    """Paths of the files of blobs beside data files; none if they cannot be listed.

    No writer makes a folder that is a link: it leads to one of somebody else, or of another file.
    """
    folders = map(blob_folder, data_files)
    try:
        own = [folder for folder in folders if not store.is_link(folder)]
        found = [meta.path for folder in own for meta in store.list(folder)]
    except StoreError:
        return []
    return [path for path in found if is_blob_file_name(path.rpartition("/")[2])]


def _fragment(name: str, written: WrittenFile, base_id: int | None) -> Fragment:
    file = stored.DataFile(
        path=name,
        fields=tuple(written.fields),
        column_indices=tuple(written.column_indices),
        version=written.version,
        size=written.size,
        base_id=base_id,
    )
    return Fragment(files=(file,), physical_rows=written.rows)
