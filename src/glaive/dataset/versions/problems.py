"""What is wrong with a version: each fragment and each index by itself, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from glaive.arrow.validation import damaged_text
from glaive.dataclass import dataclass
from glaive.dataset.versions.validate import (
    Place,
    check_fragment_ids,
    check_index,
    check_row_ids,
    check_schema,
    validate_fragment,
)
from glaive.errors import CorruptFileError, GlaiveError, UnsupportedFeatureError
from glaive.file.files import compare_file
from glaive.format.paths import INDICES, index_file_path
from glaive.format.pb import table_pb2
from glaive.index.protocol import kind_of
from glaive.index.segment import IndexFile, Segment
from glaive.io.checksums import checksum_function
from glaive.io.store import ObjectStore
from glaive.scan.snapshot import Snapshot
from glaive.table.deletions import load_deleted_runs
from glaive.table.load import load_again
from glaive.table.root import locate_data_file

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


# --- Compare the files of a version with their checksums --------------------------------


def compare_manifest(snapshot: Snapshot) -> None:
    """Read the manifest of a version again, and compare it with its checksum, if it has one.

    Raises
    ------
    CorruptFileError
        It differs.
    """
    if checksum_function() is not None:  # otherwise nobody can compare it
        manifest = snapshot.manifest
        load_again(snapshot.store, manifest.version, manifest.scheme, verify=True)


def compare_fragment(snapshot: Snapshot, position: int, compared: set[str]) -> int:
    """Read the files of a fragment that have checksums, and compare them.

    Parameters
    ----------
    compared
        Files that were compared before and are left out; those that are compared now are added.

    Returns
    -------
    int
        Bytes of data files that were compared.

    Raises
    ------
    CorruptFileError
        A file differs; the message says which one, and which column and page of it.
    DataFileMissingError
        A file is missing.
    """
    if checksum_function() is None:
        return 0
    manifest = snapshot.manifest
    fragment = manifest.fragment(position)
    if manifest.deleted_rows[position]:
        load_deleted_runs(snapshot.store, manifest, fragment, verify=True)
    files = [(*locate_data_file(snapshot.store, manifest, one), one.size) for one in fragment.files]
    return sum(_compare_once(store, path, size, compared) for store, path, size in files)


def compare_segment(snapshot: Snapshot, index: table_pb2.IndexMetadata, compared: set[str]) -> int:
    """The same for the files of a segment of an index; of those in other base paths, none."""
    if checksum_function() is None or index.HasField("base_id"):
        return 0
    folder, where = f"{INDICES}/{UUID(bytes=index.uuid.uuid)}", snapshot.manifest.where
    if {part.path for part in index.files} == {"index.idx"}:
        return 0  # a vector index of old releases, in a layout of its own
    parts = [part for part in index.files if part.path.endswith((".lance", ".idx"))]
    files = [(index_file_path(folder, one.path, where=where), one.size_bytes) for one in parts]
    return sum(_compare_once(snapshot.store, *one, compared) for one in files)


def _compare_once(store: ObjectStore, path: str, size: int | None, compared: set[str]) -> int:
    full = store.full(path)
    if full in compared:
        return 0
    count = compare_file(store, path, size=size or None) or 0
    compared.add(full)
    return count


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a version.

    Parameters
    ----------
    message
        What is wrong, and where.
    fragment
        The id of the fragment whose files are damaged or missing.
    index
        The name of the index whose files are; no rows are lost then.
    """

    message: str
    fragment: int | None = None
    index: str | None = None


class VersionCheck:
    """Finds what is wrong with versions of a dataset; files that several of them use are read once.

    Parameters
    ----------
    deep
        Decode all values: those of rows, and those of files of indices.
    """

    def __init__(self, *, deep: bool) -> None:
        self._deep = deep
        self._compared: set[str] = set()
        self._decoded: dict[Hashable, str | None] = {}
        self._segments: dict[bytes, Problem | None] = {}

    def problems(self, dataset: LanceDataset, number: int) -> list[Problem]:
        """All that is wrong with version ``number``; nothing if it is sound."""
        try:
            version = dataset.checkout_version(number)
            snapshot = version.snapshot
            check_schema(snapshot)
            check_fragment_ids(snapshot)
            compare_manifest(snapshot)
            indices = snapshot.manifest.indices
        except GlaiveError as error:
            return [Problem(str(error))]
        found = [*self._of_fragments(version)]
        found += [problem for entry in indices if (problem := self._of_index(snapshot, entry))]
        return found

    def _of_fragments(self, version: LanceDataset) -> Iterator[Problem]:
        snapshot, row_ids = version.snapshot, []
        parsed: set[Place] = set()
        columns = _columns_of(version) if self._deep else None
        for position, fragment_id in enumerate(snapshot.manifest.fragment_ids.tolist()):

            def check(position: int = position) -> None:
                row_ids.append(validate_fragment(snapshot, position, parsed))
                compare_fragment(snapshot, position, self._compared)

            message = _error_of(check)
            if message is None and self._deep:
                message = self._problem_of_rows(version, position, columns)
            if message is not None:
                yield Problem(message, fragment=fragment_id)
        message = _error_of(lambda: check_row_ids(snapshot, row_ids))
        if message is not None:
            yield Problem(message)

    def _problem_of_rows(
        self, version: LanceDataset, position: int, columns: Hashable
    ) -> str | None:
        """What is wrong with the rows of a fragment; found once for those with the same files."""
        fragment = version.snapshot.manifest.fragment(position)
        rows = columns, replace(fragment, id=0)
        if rows not in self._decoded:
            self._decoded[rows] = _error_of(lambda: _decode_rows(version, fragment.id))
        return self._decoded[rows]

    def _of_index(self, snapshot: Snapshot, entry: table_pb2.IndexMetadata) -> Problem | None:
        message = _error_of(lambda: check_index(snapshot, entry))
        if message is not None:
            return Problem(message, index=entry.name)
        uuid = entry.uuid.uuid
        if uuid not in self._segments:
            message = _error_of(lambda: self._read_segment(snapshot, entry))
            self._segments[uuid] = None if message is None else Problem(message, index=entry.name)
        return self._segments[uuid]

    def _read_segment(self, snapshot: Snapshot, entry: table_pb2.IndexMetadata) -> None:
        compare_segment(snapshot, entry, self._compared)
        segment = Segment.of(snapshot.store, snapshot.manifest, entry)
        kind = kind_of(entry, segment.sizes(), snapshot.manifest.schema)
        if kind is None:  # of a newer version, or of somebody else: it is not ours to judge
            return
        try:
            kind.open(segment)
        except UnsupportedFeatureError:
            return
        # One file holds all of a vector index of old releases, in a layout of its own.
        if self._deep and set(segment.sizes()) != {"index.idx"}:
            for name in segment.sizes():
                if name.endswith((".lance", ".idx")):
                    _decode_file(segment.open(name))


def _columns_of(version: LanceDataset) -> Hashable:
    """What the rows of a fragment depend on besides its own message: places, and fields."""
    wire = version.manifest.wire
    parts = [part.SerializeToString() for part in [*wire.fields, *wire.base_paths]]
    return version.snapshot.store.full(""), *parts


def _decode_rows(version: LanceDataset, fragment_id: int) -> None:
    fragment = version.get_fragment(fragment_id)
    if fragment is None:
        return
    found, counted = 0, fragment.count_rows()
    for batch in fragment.to_batches():
        found += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            damaged = damaged_text(column)
            if damaged is not None:
                raise CorruptFileError(
                    f"texts of column {name!r} in fragment {fragment_id}",
                    expected="UTF-8",
                    found=damaged,
                    where=version.manifest.where,
                )
    if found != counted:
        raise CorruptFileError(
            f"rows of fragment {fragment_id}",
            expected=f"{counted}",
            found=f"{found}",
            where=version.manifest.where,
        )


def _decode_file(file: IndexFile) -> None:
    for _ in file.windows(file.schema.names):
        pass


def _error_of(check: Callable[[], object]) -> str | None:
    """What a check says that fails."""
    try:
        check()
    except GlaiveError as error:
        return str(error)
    return None
