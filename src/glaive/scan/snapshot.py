"""One version of a dataset, ready to be read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glaive.config import settings
from glaive.errors import CorruptFileError
from glaive.file.protocol import FileReader
from glaive.format.fragment import DataFile, DeletionFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.paths import deletion_file_path
from glaive.io.checksums import verification_asked
from glaive.io.store import ObjectStore
from glaive.scan.session import Session
from glaive.table.bases import locate_data_file, locate_in_base
from glaive.types import Int64s, Where

if TYPE_CHECKING:
    from glaive.format.pb import table_pb2
    from glaive.scan.deletions import LiveRows
    from glaive.table.rowids import RowIdIndex

__all__ = ["MOST_UNCHECKED", "MOST_UNSEEN", "Snapshot"]

_parts_of = attrgetter(*DeletionFile.__slots__)
"""What tells one deletion file from another, as a tuple."""

_FEW = 8
"""Fragments that are looked up one by one."""

MOST_UNCHECKED = 1 << 22
"""Rows of a fragment up to which its deleted rows are listed before a data file is looked at."""

_MUCH = 1 << 40
"""Bytes of data files from which on a manifest is not taken at its word."""

MOST_UNSEEN = 1 << 26
"""Rows without any file, of which all columns are null: only the manifest says how many."""


class Snapshot:
    """One version: manifest, store and session. Safe to share between threads."""

    def __init__(self, store: ObjectStore, manifest: Manifest, session: Session) -> None:
        self.store = store
        self.manifest = manifest
        self.session = session
        # What planning worked out once, by the name of who needs it again.
        self.memo: dict[Hashable, Any] = {}
        self._position_of: dict[int, int] = {}  # of fragments that single rows were in

    def apart(self, *, comparing: bool = False, shares_indices: bool = True) -> Snapshot:
        """The same version with a session of its own; see :meth:`Session.apart`."""
        session = self.session.apart(comparing=comparing, shares_indices=shares_indices)
        return Snapshot(self.store, self.manifest, session)

    def kept_under(self, base_id: int | None = None) -> tuple[str, bytes]:
        """Where the root or a base path is, what it is reached by, and what is compared there.

        For keys of the session: other versions may call another place by the same id, and other
        datasets may compare more of the same bytes.

        Raises
        ------
        AccessError
            The caller has not allowed the base path.
        CorruptFileError
            There is no such base path.
        """
        place = locate_in_base(self.store, self.manifest, "", base_id)[0]
        return place.uri, place.reached_by + repr(verification_asked(place)).encode()

    def place_of_index(self, entry: table_pb2.IndexMetadata) -> tuple[str, bytes]:
        """The same of the root or base path that has the files of an index."""
        return self.kept_under(entry.base_id if entry.HasField("base_id") else None)

    # ------------------------------------------------------------------ rows

    @cached_property
    def live_counts(self) -> NDArray[np.int64]:
        """Live rows of each fragment, in list order."""
        manifest = self.manifest
        deleted = manifest.deleted_rows
        if len(deleted) and int(deleted.min()) < 0:  # old datasets: the file tells
            deleted = deleted.copy()
            for position in np.flatnonzero(deleted < 0).tolist():
                live = self.live_rows(manifest.fragment(position))
                deleted[position] = 0 if live is None else live.rows - live.count
        return manifest.physical_rows - deleted

    @cached_property
    def row_starts(self) -> NDArray[np.int64]:
        """Live rows before each fragment, and their total as the last entry."""
        counts = self.live_counts
        starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        # A sum beyond 2^63 has become negative.
        if len(counts) and (int(counts.min()) < 0 or bool((starts[1:] < starts[:-1]).any())):
            raise CorruptFileError(
                "fragments",
                expected="at most as many deleted as physical rows, below 2^63 in all",
                found=f"live rows {counts.tolist()[:10]}",
                where=self.manifest.where,
            )
        return starts

    @cached_property
    def row_start_list(self) -> list[int]:
        """``row_starts`` as Python numbers: quicker for single rows."""
        starts: list[int] = self.row_starts.tolist()
        return starts

    @cached_property
    def num_rows(self) -> int:
        """Live rows."""
        return int(self.row_starts[-1])

    @cached_property
    def row_id_index(self) -> RowIdIndex:
        """Where rows are by stable row id."""
        from glaive.encodings.compression import check_decoded
        from glaive.format.row_id_segments import are_range
        from glaive.table.lineage import load_lineage
        from glaive.table.rowids import RowIdIndex

        manifest, held, stored = self.manifest, 0, 0
        waiting: list[DataFile] = []

        def column(position: int) -> NDArray[np.uint64]:
            nonlocal held, stored
            fragment = manifest.fragment(position)
            ids = load_lineage(self.store, manifest, fragment, "row_ids").all(manifest.where)
            # The index keeps those of all fragments, for which files may have a few bytes.
            held += 0 if are_range(ids) else ids.nbytes
            waiting.extend(fragment.files)
            if held > settings.max_decoded_bytes_per_page:
                # Files are asked for their sizes: those in a manifest may be any numbers.
                stored += sum(self.open_file(file).reader.size for file in waiting)
                waiting.clear()
                check_decoded(held, stored, Where(manifest.where, name="_rowid"))
            return ids

        return RowIdIndex(self.manifest, column)

    # ------------------------------------------------------------------ files

    def file_bytes(self) -> int:
        """Bytes of all data files, as the manifest states; tasks are made by them.

        From 1 TiB on one request: for the size of the file that is said to have most.

        Raises
        ------
        CorruptFileError
            This file has another size.
        """
        columns = self.manifest.columns
        total = columns.file_bytes
        if total < _MUCH:
            return total
        files = self.manifest.fragment(int(columns.data_bytes.argmax())).files
        largest = max(files, key=lambda file: file.size or 0)
        store, path = locate_data_file(self.store, self.manifest, largest)
        found = store.head(path).size
        if found != largest.size:
            raise CorruptFileError(
                "size of a data file",
                expected=f"{found} bytes, as {store.full(path)} has",
                found=f"{largest.size}",
                where=self.manifest.where,
            )
        return total

    def open_file(self, file: DataFile, *, prefetch: bool = False) -> FileReader:
        """Open a data file of this version.

        With ``prefetch`` a mapped file is read by prefetched ranges, which is quicker where
        it is not in memory.
        """
        store, path = locate_data_file(self.store, self.manifest, file)
        return self.session.open_file(store, path, file.size, prefetch=prefetch)

    def check_rows(self, fragment: Fragment, *, prefetch: bool = False) -> None:
        """See that a fragment has the rows its files have, before memory is taken for them.

        For those who read none of its columns; reading one makes sure of it. Opens a file of
        the fragment, which the session keeps.

        Raises
        ------
        CorruptFileError
            The manifest says another number of rows; or the fragment has no file, and there are
            more than :data:`MOST_UNSEEN` rows in such fragments.
        """
        for file in fragment.files:
            found = self.open_file(file, prefetch=prefetch).num_rows
            if found != fragment.physical_rows:
                raise CorruptFileError(
                    f"rows of fragment {fragment.id}",
                    expected=f"{found}, as its file {file.path} has",
                    found=f"{fragment.physical_rows}",
                    where=self.manifest.where,
                )
            return
        if self._unseen_rows > MOST_UNSEEN:
            raise CorruptFileError(
                "rows of fragments without files",
                expected=f"at most {MOST_UNSEEN}",
                found=f"{self._unseen_rows}",
                where=self.manifest.where,
            )

    @cached_property
    def _unseen_rows(self) -> int:
        """Rows of the fragments that have no data file."""
        return sum(
            fragment.physical_rows for fragment in self.manifest.fragments() if not fragment.files
        )

    def live_rows(self, fragment: Fragment) -> LiveRows | None:
        """Which rows of a fragment are live; ``None`` when all are."""
        file = fragment.deletion_file
        if file is None:
            return None
        from glaive.scan.deletions import LiveRows
        from glaive.table.deletions import load_deleted_runs

        def load() -> tuple[LiveRows, int]:
            if fragment.physical_rows > MOST_UNCHECKED:
                self.check_rows(fragment)
            deleted = load_deleted_runs(self.store, self.manifest, fragment)
            live = LiveRows(deleted, fragment.physical_rows)
            return live, live.nbytes

        root, reached_by = self.kept_under(file.base_id)
        number, rows = fragment.id, fragment.physical_rows
        path = deletion_file_path(number, file.read_version, file.number, bitmap=file.bitmap)
        # Damaged fragments with other rows may have the same file.
        key = (f"{root}/{path}", reached_by, number, rows, *_parts_of(file))
        live: LiveRows = self.session.keep(key, load)
        return live

    def places_of(self, addresses: NDArray[np.uint64]) -> tuple[Int64s, Int64s]:
        """Position of the fragment, and physical row, of addresses in fragments that there are."""
        if len(addresses) == 1:
            fragment, row = divmod(addresses.item(), 1 << 32)
            position = self._position_of.get(fragment)
            if position is None:
                position = self._position_of[fragment] = self.manifest.position_of(fragment)
            return np.array([position]), np.array([row])
        fragments = (addresses >> np.uint64(32)).astype(np.int64)
        rows = (addresses & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        ids, positions = self._positions_by_id
        at = ids.searchsorted(fragments)
        known = ids.take(at, mode="clip") == fragments if len(ids) else np.zeros(len(at), np.bool_)
        if not known.all():
            self.manifest.position_of(fragments[~known].item(0))  # which raises
        return positions[at], rows

    @cached_property
    def _positions_by_id(self) -> tuple[Int64s, Int64s]:
        """Ids of the fragments, ascending, and the position of each in the list."""
        ids = self.manifest.fragment_ids
        positions = ids.argsort(kind="stable")
        return ids[positions], positions

    @cached_property
    def has_ascending_ids(self) -> bool:
        """Whether ids of fragments ascend, so that no two are the same."""
        ids = self.manifest.fragment_ids
        return bool((ids[1:] > ids[:-1]).all())

    def positions_of(self, fragment_ids: Sequence[int] | None) -> Sequence[int]:
        """Positions in the list of the fragments with these ids; all when ``None``.

        Raises
        ------
        FragmentNotFoundError
            There is no fragment with one of them.
        UnsupportedFeatureError
            Two fragments have one of them.
        """
        if fragment_ids is None:
            return range(self.manifest.num_fragments)
        if not self.has_ascending_ids:
            from glaive.table.fragment_ids import refuse_shared_ids

            refuse_shared_ids(self.manifest, fragment_ids)
        find = self.manifest.position_of
        if len(fragment_ids) < _FEW:
            return [find(one) for one in fragment_ids]
        known = self.manifest.fragment_ids[::-1].tolist()
        places = dict(zip(known, range(len(known) - 1, -1, -1), strict=True))
        return [places[one] if one in places else find(one) for one in fragment_ids]
