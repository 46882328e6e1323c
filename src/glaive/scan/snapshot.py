"""One version of a dataset, ready to be read."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.config import settings
from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
from glaive.file.open import open_reader
from glaive.file.protocol import BoundColumn, FileReader
from glaive.format.fragment import DataFile, DeletionFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.paths import deletion_file_path
from glaive.io.cache import ByteCache
from glaive.io.checksums import Verification, verification, verification_asked
from glaive.io.store import IoCounters, ObjectStore
from glaive.kernels.compact import DeletionMask, compact_bits, compact_fixed, compact_variable
from glaive.kernels.strings import Strings
from glaive.table.root import locate_data_file, locate_in_base
from glaive.types import Flags, Int64s, Where

if TYPE_CHECKING:
    from glaive.format.deletions import DeletedRuns
    from glaive.format.pb import table_pb2
    from glaive.table.rowids import RowIdIndex


# --- The live rows of a fragment with a deletion file -----------------------------------

_SPARSE = 8
"""Rows for each live one from which on these are looked up rather than the others left out."""

_MAX_KEPT_ROWS = 1 << 24
"""Rows of the windows whose bits are kept: other columns, and the next scan, read the same ones."""


class LiveRows:
    """Which physical rows are there: made once per deletion file and shared.

    Deleted rows are kept as runs, of which a few bytes of a file may stand for millions of rows.

    Parameters
    ----------
    deleted
        The deleted rows.
    rows
        Physical rows of the fragment.
    """

    __slots__ = ("_deleted_before", "_kept", "_live_before", "_starts", "_windows", "rows")

    def __init__(self, deleted: DeletedRuns, rows: int) -> None:
        self.rows = rows
        self._starts = deleted.begins
        # Deleted rows before each run, and all of them.
        self._deleted_before = np.zeros(len(self._starts) + 1, np.int64)
        np.cumsum(deleted.ends - self._starts, out=self._deleted_before[1:])
        # Live rows before each run, after none: live row k stands behind the runs with at most k.
        self._live_before = np.zeros(len(self._starts) + 1, np.int64)
        np.subtract(self._starts, self._deleted_before[:-1], out=self._live_before[1:])
        # Bits of windows, not of all rows: how many these are, only the manifest says.
        self._windows: dict[tuple[int, int], DeletionMask] = {}
        self._kept = 0

    @property
    def count(self) -> int:
        """Live rows."""
        return self.rows - int(self._deleted_before[-1])

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes, about."""
        return min(self.rows, _MAX_KEPT_ROWS) // 8 + 3 * self._starts.nbytes

    def is_deleted(self, rows: Int64s) -> Flags:
        """Which of some physical rows are deleted; in any order, repeats allowed."""
        at = np.searchsorted(self._starts, rows, side="right")
        within: Flags = rows < self._stops_before(at)
        return within

    def deleted_before(self, rows: Int64s) -> Int64s:
        """How many rows before each of some physical rows are deleted."""
        at = np.searchsorted(self._starts, rows)
        behind = np.maximum(self._stops_before(at) - rows, 0)  # the row, in its run
        before: Int64s = self._deleted_before[at] - behind
        return before

    def deleted_between(self, start: int, stop: int) -> Int64s:
        """The deleted rows among physical rows ``start`` to ``stop``, ascending."""
        return _listed(*self.deleted_runs(start, stop))

    def deleted_runs(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """Where each run of deleted rows among rows ``start`` to ``stop`` begins and ends."""
        first, last = np.searchsorted(self._starts, (start, stop)).tolist()
        first -= start < stop and self._live_before[first] + self._deleted_before[first] > start
        begins = np.maximum(self._starts[first:last], start)
        ends = self._stops_before(np.arange(first + 1, last + 1))
        return begins, np.minimum(ends, stop)

    def _stops_before(self, at: Int64s) -> Int64s:
        """Where the run before each run ends; 0 before the first one."""
        stops: Int64s = self._live_before[at] + self._deleted_before[at]
        return stops

    def physical(self, live: Int64s) -> Int64s:
        """Physical offsets of the live rows numbered ``live``, 0 ≤ live < count."""
        at = np.searchsorted(self._live_before[1:], live, side="right")
        rows: Int64s = live + self._deleted_before[at]
        return rows

    def physical_run(self, start: int, stop: int) -> Int64s:
        """Physical offsets of the live rows from number ``start`` up to before ``stop``."""
        first, end = self.physical_range(start, stop)
        if end - first > _SPARSE * (stop - start):  # they lie far apart
            return self.physical(np.arange(start, stop))
        kept = np.ones(end - first, np.bool_)
        kept[self.deleted_between(first, end) - first] = False
        return np.flatnonzero(kept) + first

    def physical_range(self, start: int, stop: int) -> tuple[int, int]:
        """The physical rows from live row ``start`` up to before live row ``stop``."""
        if start >= stop:
            return 0, 0
        first, last = self.physical(np.array([start, stop - 1])).tolist()
        return first, last + 1

    def count_between(self, start: int, stop: int) -> int:
        """Live rows among physical rows ``start`` to ``stop``."""
        first, last = self.deleted_before(np.array((start, stop))).tolist()
        return int(stop - start - (last - first))

    def among(self, start: int, stop: int) -> Int64s:
        """The live rows among physical rows ``start`` to ``stop``."""
        return np.delete(np.arange(start, stop), self.deleted_between(start, stop) - start)

    def keep(self, start: int, stop: int, arrays: Sequence[pa.Array]) -> list[pa.Array]:
        """Drop the deleted rows from arrays of physical rows ``start`` to ``stop``.

        Without a copy where only rows at one end are deleted.
        """
        mask = self._deleted_in(start, stop)
        if isinstance(mask, tuple):
            first, last = mask
            return [array.slice(first - start, last - first) for array in arrays]
        return [without_deleted(array, mask) for array in arrays]

    def read(self, column: BoundColumn, start: int, stop: int) -> pa.Array:
        """Read physical rows ``start`` to ``stop`` of a column, the deleted ones left out."""
        mask = self._deleted_in(start, stop)
        if isinstance(mask, tuple):
            first, last = mask
            return column.read(first, last)
        array = column.read_live(start, stop, mask)
        return array if array is not None else without_deleted(column.read(start, stop), mask)

    def _deleted_in(self, start: int, stop: int) -> DeletionMask | tuple[int, int]:
        """The deleted rows of a range; or its live part, where that is one run."""
        window = self._windows.get((start, stop))
        if window is None:
            begins, ends = self.deleted_runs(start, stop)
            if len(begins) == 0:
                return start, stop
            if len(begins) == 1:
                begin, end = int(begins[0]), int(ends[0])
                if begin == start:
                    return end, stop
                if end == stop:
                    return start, begin
            window = DeletionMask(_listed(begins, ends), start, stop - start)
            window.bits()  # made before other threads see it
            self._kept += stop - start
            if self._kept > _MAX_KEPT_ROWS:
                self._windows.clear()
                self._kept = stop - start
            self._windows[start, stop] = window
        return window


def _listed(begins: Int64s, ends: Int64s) -> Int64s:
    """The rows of runs."""
    sizes = ends - begins
    count = int(sizes.sum())
    if count == len(begins):
        return begins
    return np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(count)


def without_deleted(array: Any, mask: DeletionMask) -> pa.Array:
    """The rows of an array that stay."""
    from glaive.arrow.build import offset_bits

    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, without_deleted(array.storage, mask))
    if pa.types.is_dictionary(kind):
        indices = without_deleted(array.indices, mask)
        return pa.DictionaryArray.from_arrays(
            indices, array.dictionary, ordered=kind.ordered, safe=False
        )
    text = offset_bits(kind)
    plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    known = text or ((plain or pa.types.is_fixed_size_binary(kind)) and kind.bit_width)
    validity, *parts = array.buffers()
    if not known or any(part is None for part in parts):
        bits, begin = mask.bits()
        buffers = [None, pa.py_buffer(bits.data)]
        flags: Any = pa.Array.from_buffers(pa.bool_(), mask.rows, buffers, 0, begin)
        filtered: pa.Array = array.filter(flags)
        return filtered
    first, rows = array.offset, len(array)
    bitmap = compact_bits(validity, first, mask) if array.null_count else None
    if text:
        width = text // 8
        ends = parts[0].slice(first * width, (rows + 1) * width)
        kept: list[Any] = list(compact_variable(Strings(ends, text, parts[1]), mask)[::2])
    elif pa.types.is_boolean(kind):
        kept = [compact_bits(parts[0], first, mask)]
    else:
        width = int(kind.bit_width) // 8
        kept = [compact_fixed(parts[0].slice(first * width, rows * width), width, mask)]
    nulls = -1 if bitmap is not None else 0
    return pa.Array.from_buffers(kind, mask.live, [bitmap, *kept], nulls)


# --- What datasets share: opened files and what was read of their metadata, within a budget
# Data files and deletion files never change, so a session outlives versions and may be shared
# between datasets. One cache keeps, under one budget of bytes:
#
# - opened files by path, what they are reached by (``ObjectStore.reached_by``), size and way of
#   reading: footers, and the end of files that were fetched;
# - fragments seen through a projection: metadata of the columns in it, chunk tables,
#   dictionaries, symbol tables;
# - deleted rows.
#
# A second cache, with a budget of its own, keeps opened indices and what searches read of them.
#
# Columns that no kept fragment has are let go: of a file of 10,000 columns those are kept that are
# read.
#
# The first part of a key says what the entry is good for: the path of a file or a directory, or a
# weak reference to the one who will ask for it. Where that is no longer there, the entry is let go
# when a dataset moves on to another version: a deleted file that is mapped would keep its space on
# the disk, and the maps of a process are limited, whatever the budget of bytes.

METADATA_CACHE_BYTES = 256 * 1024 * 1024
"""Default budget of a session."""

INDEX_CACHE_BYTES = 1024 * 1024 * 1024
"""Default budget for indices."""

APART_BYTES = 32 * 1024 * 1024
"""Budget of a scan that is kept apart: several windows of rows use one opened fragment."""

_ENTRIES_OF_A_MOVE = 16
"""Entries that a move to another version may look at: some 2 µs each."""

_MORE = 1.5
"""All are looked at, too, where there are so many times as many as there were left before."""


class IndexCache(ByteCache[Hashable, Any]):
    """Opened indices, and parts of them; counts the parts that were read."""

    __slots__ = ("loaded", "opened")

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self.opened = self.loaded = 0

    def part(self, key: Hashable, load: Callable[[], tuple[Any, int]], counters: IoCounters) -> Any:
        """What is kept of an index; a part is loaded where reads were counted meanwhile."""
        before = counters.reads

        found = self.get_or_load(key, load)
        self.loaded += counters.reads != before
        return found


class Session:
    """The cache that datasets share. Safe to share between threads.

    Parameters
    ----------
    index_cache_size_bytes
        Budget for indices in bytes, 1 GiB by default; 0 keeps none.
    metadata_cache_size_bytes
        Budget in bytes, 256 MiB by default; 0 keeps nothing. What a running scan still holds
        stays in memory when the cache lets go of it.
    index_cache_backend, metadata_cache_backend, store_registry
        Not supported.

    Raises
    ------
    OptionError
        A budget is negative.

    Examples
    --------
    >>> session = Session(metadata_cache_size_bytes=64 * 1024 * 1024)
    >>> session.size_bytes(), session.hits, session.misses
    (0, 0, 0)
    """

    __slots__ = ("_budget", "_left", "_moves", "cache", "comparing", "index_cache")

    def __init__(
        self,
        index_cache_size_bytes: int | None = None,
        metadata_cache_size_bytes: int | None = None,
        index_cache_backend: object = None,
        metadata_cache_backend: object = None,
        store_registry: object = None,
    ) -> None:
        given = (index_cache_backend, metadata_cache_backend, store_registry)
        if any(option is not None for option in given):
            raise UnsupportedFeatureError(
                "Session: other backends and store registries are not supported. Leave out "
                "index_cache_backend, metadata_cache_backend and store_registry."
            )
        for name, value in (
            ("index_cache_size_bytes", index_cache_size_bytes),
            ("metadata_cache_size_bytes", metadata_cache_size_bytes),
        ):
            if value is not None and value < 0:
                raise OptionError(f"Session: {name} must be a number of bytes, found {value!r}")
        budget = metadata_cache_size_bytes
        self._budget = METADATA_CACHE_BYTES if budget is None else budget
        self.cache: ByteCache[Hashable, Any] = ByteCache(self._budget)
        self._left = self._moves = 0
        self.comparing = False
        for_indices = index_cache_size_bytes
        self.index_cache = IndexCache(INDEX_CACHE_BYTES if for_indices is None else for_indices)

    def __repr__(self) -> str:
        cache = self.cache
        return (
            f"Session(metadata_cache_size_bytes={self._budget}, "
            f"index_cache_size_bytes={self.index_cache.budget}, size_bytes={self.size_bytes()}, "
            f"hits={cache.hits}, misses={cache.misses})"
        )

    # ------------------------------------------------------------------ figures

    def size_bytes(self) -> int:
        """Bytes of memory that are kept, as estimated when they came."""
        return self.cache.size + self.index_cache.size

    def index_cache_size_bytes(self) -> int:
        """Bytes of indices that are kept."""
        return self.index_cache.size

    @property
    def hits(self) -> int:
        """Lookups that found something."""
        return self.cache.hits

    @property
    def misses(self) -> int:
        """Lookups that found nothing."""
        return self.cache.misses

    def is_same_as(self, other: Session) -> bool:
        """Whether both share one cache."""
        return self.cache is other.cache

    def clear(self) -> None:
        """Let go of everything that is not in use."""
        self.cache.clear()
        self.index_cache.clear()

    # ------------------------------------------------------------------ contents

    def apart(self, *, comparing: bool = False, shares_indices: bool = True) -> Session:
        """A small session for one scan, which leaves this one as it is, except for its indices.

        One that is ``comparing`` compares all files that have checksums, if nobody said otherwise:
        what is read to be written again gets new ones, which damage would agree with.
        """
        session = Session(APART_BYTES, APART_BYTES)
        session.comparing = comparing
        if shares_indices:
            session.index_cache = self.index_cache
        return session

    def verification(self, store: ObjectStore, unasked: Verification) -> Verification:
        """What is compared in a store; ``unasked`` is for one that is comparing."""
        return verification(store, unasked if self.comparing else None)

    def open_file(self, store: ObjectStore, path: str, size: int | None) -> FileReader:
        """Open a data file, or find it opened."""

        def load() -> tuple[FileReader, int]:
            file = open_reader(store, path, size=size, verify=verify)
            return file, file.nbytes

        # Parts of buffers that are not mapped would be fetched with the whole, and so again.
        verify = self.verification(store, "always" if store.is_local else "fetched")
        key = (store.full(path), store.reached_by, size, verify)
        found: FileReader = self.cache.get_or_load(key, load)
        return found

    def moved(self) -> None:
        """Note that a dataset moved to another version; at times, let go of what is useless.

        All entries are looked at once there were moves or new entries enough to pay for it.
        """
        self._moves += 1
        entries = len(self.cache) + len(self.index_cache)
        if self._moves * _ENTRIES_OF_A_MOVE < entries < self._left * _MORE:
            return
        self.cache.discard(_is_useless)
        self.index_cache.discard(_is_useless)
        self._moves, self._left = 0, len(self.cache) + len(self.index_cache)

    def keep(self, key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
        """What is kept under a key, else what ``load`` returns, with its size in bytes."""
        return self.cache.get_or_load(key, load)

    def keep_index(self, key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
        """The same for what belongs to an index."""
        return self.index_cache.get_or_load(key, load)


def _is_useless(key: Hashable) -> bool:
    """Whether what an entry is good for is no longer there; nothing is known of other stores."""
    while isinstance(key, tuple):
        key = key[0]
    if isinstance(key, weakref.ref):
        return key() is None
    is_local = isinstance(key, str) and key.startswith("/")
    return is_local and not os.path.lexists(str(key))


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
        from glaive.format.rowids import are_range
        from glaive.table.rowids import RowIdIndex, load_lineage

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

    def open_file(self, file: DataFile) -> FileReader:
        """Open a data file of this version."""
        store, path = locate_data_file(self.store, self.manifest, file)
        return self.session.open_file(store, path, file.size)

    def check_rows(self, fragment: Fragment) -> None:
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
            found = self.open_file(file).num_rows
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
