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

from glaive.arrow.blocks import distinct
from glaive.arrow.chunked import as_numpy
from glaive.config import settings
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.file.open import open_reader
from glaive.file.protocol import BoundColumn, FileReader
from glaive.format.fragment import DataFile, DeletionFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.paths import deletion_file_path
from glaive.io.cache import ByteCache
from glaive.io.checksums import Verification, verification, verification_setting
from glaive.io.store import IoCounters, ObjectStore
from glaive.kernels.compact import DeletionMask, compact_bits, compact_fixed
from glaive.options import SIZE
from glaive.table.root import locate_data_file, locate_in_base
from glaive.types import Flags, Int64s, Where

if TYPE_CHECKING:
    from glaive.format.deletions import DeletedRuns
    from glaive.format.pb import table_pb2
    from glaive.table.rowids import RowIdIndex


# --- The live rows of a fragment with a deletion file -----------------------------------

_MAX_KEPT_ROWS = 1 << 24
"""Rows of the windows whose masks are cached for other columns and the next scan."""


class LiveRows:
    """The live rows of a fragment, loaded once per deletion file and shared.

    Deleted rows are kept as runs: a few bytes of a file may decode to millions of rows.

    Parameters
    ----------
    deleted
        The deleted rows: runs, or ascending rows.
    rows
        Physical rows of the fragment.
    """

    def __init__(self, deleted: DeletedRuns | NDArray[np.uint32], rows: int) -> None:
        self.rows, self._deleted = rows, deleted
        self._listed = deleted if isinstance(deleted, np.ndarray) else None
        # Masks of windows: a false row count in the manifest could be huge.
        self._windows: dict[tuple[int, int], DeletionMask] = {}
        self._kept = 0
        runs = len(deleted[0] if self._listed is None else self._listed)  # at most
        self.nbytes = min(rows, _MAX_KEPT_ROWS) // 8 + 24 * runs
        """Approximate bytes of memory held."""

    @cached_property
    def _runs(self) -> tuple[Int64s, Int64s, Int64s]:
        """First row of each run; deleted rows before each, and their total; live rows before each.

        The live rows follow a 0: live row k follows the runs whose number is ≤ k.
        """
        from glaive.format.deletions import DeletedRuns

        starts, ends = self._deleted if self._listed is None else DeletedRuns.of(self._listed)
        before, live = np.zeros((2, len(starts) + 1), np.int64)
        (ends - starts).cumsum(out=before[1:])
        np.subtract(starts, before[:-1], out=live[1:])
        return starts, before, live

    @property
    def count(self) -> int:
        """Number of live rows."""
        return self.rows - int(self._runs[1][-1])

    def is_deleted(self, rows: Int64s) -> Flags:
        """Return which physical rows are deleted; rows may repeat, in any order."""
        at = self._runs[0].searchsorted(rows, side="right")
        within: Flags = rows < self._stops_before(at)
        return within

    def deleted_before(self, rows: Int64s) -> Int64s:
        """Count the deleted rows before each of some physical rows."""
        at = self._runs[0].searchsorted(rows)
        from_row = np.maximum(self._stops_before(at) - rows, 0)  # of its run, from the row on
        before: Int64s = self._runs[1][at] - from_row
        return before

    def deleted_between(self, start: int, stop: int) -> Int64s:
        """Return the deleted rows among physical rows ``start`` to ``stop``, ascending."""
        if self._listed is not None and start == 0 and stop == self.rows:
            return self._listed.astype(np.int64)
        return _listed(*self.deleted_runs(start, stop))

    def deleted_runs(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """Return the begins and ends of the deleted runs in rows ``start`` to ``stop``."""
        starts, before, live = self._runs
        first, last = starts.searchsorted((start, stop)).tolist()
        first -= start < stop and live[first] + before[first] > start
        begins = np.maximum(starts[first:last], start)
        ends = self._stops_before(np.arange(first + 1, last + 1))
        return begins, np.minimum(ends, stop)

    def _stops_before(self, at: Int64s) -> Int64s:
        """Return where the previous run ends, for each run; 0 for the first."""
        stops: Int64s = self._runs[2][at] + self._runs[1][at]
        return stops

    def physical(self, live: Int64s) -> Int64s:
        """Map numbers of live rows, 0 ≤ live < count, to physical rows."""
        at = self._runs[2][1:].searchsorted(live, side="right")
        rows: Int64s = live + self._runs[1][at]
        return rows

    def physical_range(self, start: int, stop: int) -> tuple[int, int]:
        """Return the physical range that spans the live rows ``start`` to ``stop``."""
        if start >= stop:
            return 0, 0
        first, last = self.physical(np.array([start, stop - 1])).tolist()
        return first, last + 1

    def count_between(self, start: int, stop: int) -> int:
        """Count the live rows among physical rows ``start`` to ``stop``."""
        first, last = self.deleted_before(np.array((start, stop))).tolist()
        return int(stop - start - (last - first))

    def among(self, start: int, stop: int) -> Int64s:
        """Return the live rows among physical rows ``start`` to ``stop``."""
        return np.delete(np.arange(start, stop), self.deleted_between(start, stop) - start)

    def keep(self, start: int, stop: int, arrays: Sequence[pa.Array]) -> list[pa.Array]:
        """Drop the deleted rows from arrays of physical rows ``start`` to ``stop``.

        Return slices if only rows at one end are deleted.
        """
        mask = self._deleted_in(start, stop)
        if isinstance(mask, tuple):
            first, last = mask
            return [array.slice(first - start, last - first) for array in arrays]
        return [without_deleted(array, mask) for array in arrays]

    def read(self, column: BoundColumn, start: int, stop: int) -> pa.Array:
        """Read the live rows of a column among physical rows ``start`` to ``stop``."""
        mask = self._deleted_in(start, stop)
        if isinstance(mask, tuple):
            first, last = mask
            return column.read(first, last)
        return without_deleted(column.read(start, stop), mask)

    def _deleted_in(self, start: int, stop: int) -> DeletionMask | tuple[int, int]:
        """Return the mask of deleted rows of a range; or its live range, if that is one run."""
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
            window.bits()  # computed before other threads see it
            self._kept += stop - start
            if self._kept > _MAX_KEPT_ROWS:
                self._windows.clear()
                self._kept = stop - start
            self._windows[start, stop] = window
        return window


def _listed(begins: Int64s, ends: Int64s) -> Int64s:
    """List the rows of runs."""
    sizes = ends - begins
    ends = sizes.cumsum()
    count = int(ends[-1]) if len(ends) else 0
    if count == len(begins):
        return begins
    return (begins - (ends - sizes)).repeat(sizes) + np.arange(count)


def without_deleted(array: Any, mask: DeletionMask) -> pa.Array:
    """Return the live rows of an array."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, without_deleted(array.storage, mask))
    if pa.types.is_dictionary(kind):
        indices = without_deleted(array.indices, mask)
        return pa.DictionaryArray.from_arrays(
            indices, array.dictionary, ordered=kind.ordered, safe=False
        )
    validity, *parts = array.buffers()
    first, rows = array.offset, len(array)
    bitmap = compact_bits(validity, first, mask) if validity and array.null_count else None
    nulls = -1 if bitmap is not None else 0
    if pa.types.is_struct(kind):
        members: Any = [without_deleted(array.field(at), mask) for at in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, mask.live, [bitmap], nulls, children=members)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        ends = as_numpy(array.offsets)
        at = mask.numbers - mask.base
        gone = (ends[at + 1] > ends[at]).nonzero()[0]
        low, high = int(ends[0]), int(ends[-1])
        items = _listed(ends[at[gone]].astype(np.int64), ends[at[gone] + 1].astype(np.int64))
        offsets = np.zeros(mask.live + 1, ends.dtype)
        np.diff(ends)[mask.mask()].cumsum(out=offsets[1:])
        item_mask = DeletionMask(items, low, high - low)
        child: Any = without_deleted(array.values.slice(low, high - low), item_mask)
        kept: list[Any] = [bitmap, pa.py_buffer(offsets.data)]
        return pa.Array.from_buffers(kind, mask.live, kept, nulls, children=[child])
    words = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    known = (words or pa.types.is_fixed_size_binary(kind)) and kind.bit_width
    if not known or any(part is None for part in parts):
        bits, begin = mask.bits()
        buffers = [None, pa.py_buffer(bits.data)]
        flags: Any = pa.Array.from_buffers(pa.bool_(), mask.rows, buffers, 0, begin)
        filtered: pa.Array = array.filter(flags)
        return filtered
    if pa.types.is_boolean(kind):
        kept = [compact_bits(parts[0], first, mask)]
    else:
        width = int(kind.bit_width) // 8
        kept = [compact_fixed(parts[0].slice(first * width, rows * width), width, mask)]
    return pa.Array.from_buffers(kind, mask.live, [bitmap, *kept], nulls)


# --- The session: caches that datasets share --------------------------------------------
#
# Data files and deletion files are immutable, so a session outlives versions and datasets may
# share it. One cache holds, within a budget of bytes:
#
# - opened files: footers, and the end of fetched files. The key has the path, the access
#   (``ObjectStore.reached_by``), the size and the verification.
# - Fragments of a projection: metadata of its columns, chunk tables, dictionaries, symbol tables.
# - Deleted rows.
#
# A second cache, with its own budget, holds opened indices and the parts that searches read.
#
# The cache drops columns that no cached fragment has: of a file of 10,000 columns it holds the
# columns in use.
#
# The first part of a key is the owner of the entry: a path, or a weak reference to an object. When
# a dataset moves to another version, the session drops entries whose owner is gone. A deleted file
# that is mapped would keep its space on the disk. The maps of a process are limited, too.

METADATA_CACHE_BYTES = 256 * 1024 * 1024
"""Default budget of a session in bytes."""

INDEX_CACHE_BYTES = 1024 * 1024 * 1024
"""Default budget for indices in bytes."""

PRIVATE_BYTES = 32 * 1024 * 1024
"""Budget of a scan with a private session: several windows use one opened fragment."""

_ENTRIES_PER_MOVE = 16
"""Entries that the session may check per move to another version, at about 2 µs each."""

_CHECK_GROWTH = 1.5
"""Growth of the number of entries, since the last check, that causes the next check."""


class IndexCache(ByteCache[Hashable, Any]):
    """A cache of opened indices and their parts that counts loaded parts."""

    __slots__ = ("loaded", "opened")

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self.opened = self.loaded = 0

    def part(self, key: Hashable, load: Callable[[], tuple[Any, int]], counters: IoCounters) -> Any:
        """Return a cached part of an index; count it as loaded if that took reads."""
        before = counters.reads

        found = self.get_or_load(key, load)
        self.loaded += counters.reads != before
        return found


class Session:
    """A cache of opened files, metadata and indices that datasets share. Thread-safe.

    Parameters
    ----------
    index_cache_size_bytes
        Budget for indices in bytes, 1 GiB by default. 0 disables the cache of indices.
    metadata_cache_size_bytes
        Budget for opened files and metadata in bytes, 256 MiB by default. 0 disables their cache.
        Entries that a running scan uses stay in memory after the cache drops them.
    index_cache_backend, metadata_cache_backend, store_registry
        Unsupported.

    Raises
    ------
    OptionError
        A budget is negative, or not an integer.

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
        SIZE.check("index_cache_size_bytes", index_cache_size_bytes)
        SIZE.check("metadata_cache_size_bytes", metadata_cache_size_bytes)
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
        """Return the estimated bytes of memory in the caches."""
        return self.cache.size + self.index_cache.size

    def index_cache_size_bytes(self) -> int:
        """Return the estimated bytes of indices in the cache."""
        return self.index_cache.size

    @property
    def hits(self) -> int:
        """Number of lookups that found an entry."""
        return self.cache.hits

    @property
    def misses(self) -> int:
        """Number of lookups of missing entries."""
        return self.cache.misses

    def is_same_as(self, other: Session) -> bool:
        """Return whether both sessions share one cache.

        Parameters
        ----------
        other
            The other session.
        """
        return self.cache is other.cache

    def clear(self) -> None:
        """Drop all cached entries. Entries in use stay in memory until their user ends."""
        self.cache.clear()
        self.index_cache.clear()

    # ------------------------------------------------------------------ contents

    def private(self, *, comparing: bool = False, shares_indices: bool = True) -> Session:
        """Return a small private session for one scan; by default it shares the index cache.

        With ``comparing``, the scan verifies all files that have checksums, unless the caller set
        another verification. Rewritten rows get new checksums, which would confirm damaged values.
        """
        session = Session(PRIVATE_BYTES, PRIVATE_BYTES)
        session.comparing = comparing
        if shares_indices:
            session.index_cache = self.index_cache
        return session

    def verification(self, store: ObjectStore, default: Verification) -> Verification:
        """Return the verification for a store: by default ``default`` if the session compares."""
        return verification(store, default if self.comparing else None)

    def open_file(self, store: ObjectStore, path: str, size: int | None) -> FileReader:
        """Open a data file, or return the cached reader."""

        def load() -> tuple[FileReader, int]:
            file = open_reader(store, path, size=size, verify=verify)
            return file, file.nbytes

        # Verifying parts of fetched buffers would fetch whole buffers again.
        verify = self.verification(store, "always" if store.is_local else "fetched")
        key = (store.full(path), store.reached_by, size, verify)
        found: FileReader = self.cache.get_or_load(key, load)
        found.reader.read([])  # refuses a mapped file that was truncated since
        return found

    def moved(self) -> None:
        """Record that a dataset moved to another version; sometimes drop stale entries.

        A check reads all entries, so it runs only after enough moves or new entries.
        """
        self._moves += 1
        entries = len(self.cache) + len(self.index_cache)
        if self._moves * _ENTRIES_PER_MOVE < entries < self._left * _CHECK_GROWTH:
            return
        self.cache.discard(_is_stale)
        self.index_cache.discard(_is_stale)
        self._moves, self._left = 0, len(self.cache) + len(self.index_cache)


def _is_stale(key: Hashable) -> bool:
    """Return whether the owner of an entry is gone; files in remote stores stay unchecked."""
    while isinstance(key, tuple):
        key = key[0]
    if isinstance(key, weakref.ref):
        return key() is None
    is_local = isinstance(key, str) and key.startswith("/")
    return is_local and not os.path.lexists(str(key))


_fields_of = attrgetter(*DeletionFile.__slots__)
"""Return the fields of a deletion file as a tuple, for keys."""

_MIN_DICT_LOOKUPS = 8
"""Minimum fragments for which a lookup builds a dictionary of ids."""

MAX_UNCHECKED_ROWS = 1 << 22
"""Maximum rows of a fragment whose deleted rows load before a data file confirms the count."""

_MAX_UNVERIFIED_BYTES = 1 << 40
"""Bytes of data files above which the size of a file is verified."""

MAX_FILELESS_ROWS = 1 << 26
"""Maximum rows in fragments without data files: only the manifest states their number."""


class Snapshot:
    """One version of a dataset: manifest, store and session. Thread-safe."""

    def __init__(self, store: ObjectStore, manifest: Manifest, session: Session) -> None:
        self.store = store
        self.manifest = manifest
        self.session = session
        # Results of planning that later scans use again.
        self.memo: dict[Hashable, Any] = {}

    def private(self, *, comparing: bool = False, shares_indices: bool = True) -> Snapshot:
        """Return the same version with a private session; see :meth:`Session.private`."""
        session = self.session.private(comparing=comparing, shares_indices=shares_indices)
        return Snapshot(self.store, self.manifest, session)

    def cache_key(self, base_id: int | None = None) -> tuple[str, bytes]:
        """Return URI, access and verification of the root or a base path, for cache keys.

        Another version may use the same id for a different base path. Another dataset may verify
        more of the same bytes.

        Raises
        ------
        AccessError
            The caller has not allowed the base path.
        CorruptFileError
            The base path is missing in the manifest.
        """
        known = (base_id, settings.verify)
        if known not in self.memo:
            place = locate_in_base(self.store, self.manifest, "", base_id)[0]
            access = place.reached_by + repr(verification_setting(place)).encode()
            self.memo[known] = place.uri, access
        uri, access = self.memo[known]
        return uri, access

    def place_of_index(self, entry: table_pb2.IndexMetadata) -> tuple[str, bytes]:
        """Return the key parts of the root or base path that has the files of an index."""
        return self.cache_key(entry.base_id if entry.HasField("base_id") else None)

    # ------------------------------------------------------------------ rows

    @cached_property
    def live_counts(self) -> NDArray[np.int64]:
        """Live rows of each fragment, in list order."""
        manifest = self.manifest
        deleted = manifest.deleted_rows
        if len(deleted) and int(deleted.min()) < 0:  # old datasets: only the file has it
            deleted = deleted.copy()
            for position in (deleted < 0).nonzero()[0].tolist():
                live = self.live_rows(manifest.fragment(position))
                deleted[position] = 0 if live is None else live.rows - live.count
        return manifest.physical_rows - deleted

    @cached_property
    def row_starts(self) -> NDArray[np.int64]:
        """Live rows before each fragment, and their total as the last entry."""
        counts = self.live_counts
        starts = np.zeros(len(counts) + 1, np.int64)
        counts.cumsum(out=starts[1:])
        # A sum beyond 2^63 wraps to a negative number.
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
        """``row_starts`` as Python integers: faster for single rows."""
        starts: list[int] = self.row_starts.tolist()
        return starts

    @cached_property
    def num_rows(self) -> int:
        """Number of live rows."""
        return int(self.row_starts[-1])

    @cached_property
    def row_id_index(self) -> RowIdIndex:
        """The index from stable row ids to rows."""
        from glaive.encodings.compression import check_decoded
        from glaive.format.rowids import are_range
        from glaive.table.rowids import RowIdIndex, load_lineage

        manifest, held, stored = self.manifest, 0, 0
        waiting: list[DataFile] = []

        def column(position: int) -> NDArray[np.uint64]:
            nonlocal held, stored
            fragment = manifest.fragment(position)
            ids = load_lineage(self.store, manifest, fragment, "row_ids").all(manifest.where)
            # The index holds the ids of all fragments; a few bytes of a file may encode many ids.
            held += 0 if are_range(ids) else ids.nbytes
            waiting.extend(fragment.files)
            if held > settings.max_decoded_bytes_per_page:
                # Read the sizes from the files: sizes in a manifest may be false.
                stored += sum(self.open_file(file).reader.size for file in waiting)
                waiting.clear()
                check_decoded(held, stored, Where(manifest.where, name="_rowid"))
            return ids

        return RowIdIndex(self.manifest, column)

    # ------------------------------------------------------------------ files

    def file_bytes(self) -> int:
        """Return the bytes of all data files, as the manifest states; they determine tasks.

        From 1 TiB on, one request verifies the size of the file that the manifest calls largest.

        Raises
        ------
        CorruptFileError
            This file has another size.
        """
        columns = self.manifest.columns
        total = columns.file_bytes
        if total < _MAX_UNVERIFIED_BYTES:
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
        """Check the row count of a fragment against a file, before memory is allocated for rows.

        Call this if you skip all columns of the fragment: reading a column checks the count. The
        session keeps the file open.

        Raises
        ------
        CorruptFileError
            The manifest states another number of rows. Or the fragment lacks files, and fileless
            fragments have more than :data:`MAX_FILELESS_ROWS` rows.
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
        if self._fileless_rows > MAX_FILELESS_ROWS:
            raise CorruptFileError(
                "rows of fragments without files",
                expected=f"at most {MAX_FILELESS_ROWS}",
                found=f"{self._fileless_rows}",
                where=self.manifest.where,
            )

    @cached_property
    def _fileless_rows(self) -> int:
        """Rows of the fileless fragments."""
        return sum(
            fragment.physical_rows for fragment in self.manifest.fragments() if not fragment.files
        )

    def live_rows(self, fragment: Fragment) -> LiveRows | None:
        """Return which rows of a fragment are live; ``None`` when all are."""
        file = fragment.deletion_file
        if file is None:
            return None
        from glaive.table.deletions import load_deleted_runs

        def load() -> tuple[LiveRows, int]:
            if fragment.physical_rows > MAX_UNCHECKED_ROWS:
                self.check_rows(fragment)
            deleted = load_deleted_runs(self.store, self.manifest, fragment)
            live = LiveRows(deleted, fragment.physical_rows)
            return live, live.nbytes

        live: LiveRows = self.session.cache.get_or_load(self._key_of(fragment, file), load)
        return live

    def _key_of(self, fragment: Fragment, file: DeletionFile) -> Hashable:
        root, reached_by = self.cache_key(file.base_id)
        number, rows = fragment.id, fragment.physical_rows
        path = deletion_file_path(number, file.read_version, file.number, bitmap=file.bitmap)
        # A damaged manifest may give one file to fragments with different numbers of rows.
        return (f"{root}/{path}", reached_by, number, rows, *_fields_of(file))

    def add_deletions(
        self, fragment: Fragment, offsets: NDArray[np.integer]
    ) -> tuple[Fragment | None, NDArray[np.uint32]]:
        """Delete rows; see :func:`glaive.table.deletions.add_deletions`. Keep what is deleted."""
        from glaive.format.deletions import MAX_DELETED_ROWS
        from glaive.table.deletions import add_deletions

        live, before, gone = self.live_rows(fragment), None, fragment.num_deletions
        if live and (live.rows - live.count if gone is None else gone) <= MAX_DELETED_ROWS:
            before = live.deleted_between(0, live.rows).astype(np.uint32)
        changed, added, every = add_deletions(self.store, self.manifest, fragment, offsets, before)
        if changed is not None and changed.deletion_file is not None and len(added):
            known = LiveRows(every, fragment.physical_rows)
            key = self._key_of(changed, changed.deletion_file)
            self.session.cache.put(key, known, known.nbytes)
        return changed, added

    def places_of(self, addresses: NDArray[np.uint64]) -> tuple[Int64s, Int64s]:
        """Return fragment position and physical row of addresses; raise for unknown fragments."""
        fragments = (addresses >> np.uint64(32)).astype(np.int64)
        rows = (addresses & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        positions = self.positions_by_id(fragments)
        if len(positions) and int(positions.min()) < 0:
            self.manifest.position_of(fragments[positions < 0].item(0))  # which raises
        return positions, rows

    def positions_by_id(self, fragments: Int64s) -> Int64s:
        """Return the position of each fragment by its id; -1 for unknown ids."""
        ids, positions = self._positions_by_id
        if not len(ids):
            return np.full(len(fragments), -1, np.int64)
        at = ids.searchsorted(fragments)
        known = ids.take(at, mode="clip") == fragments
        return np.where(known, positions.take(at, mode="clip"), -1)

    def are_live(self, positions: Int64s, rows: Int64s) -> Flags | None:
        """Return which physical rows are live, by positions of fragments; ``None`` if all are."""
        kept: Flags | None = None
        touched = positions if len(positions) == 1 else distinct(positions)
        for position in touched[self.manifest.deleted_rows[touched] != 0].tolist():
            live = self.live_rows(self.manifest.fragment(position))
            if live is not None:
                selected = positions == position
                kept = np.ones(len(rows), np.bool_) if kept is None else kept
                kept[selected] = ~live.is_deleted(rows[selected])
        return kept

    @cached_property
    def _positions_by_id(self) -> tuple[Int64s, Int64s]:
        """Ids of the fragments, ascending, and the position of each in the list."""
        ids = self.manifest.fragment_ids
        positions = ids.argsort(kind="stable")
        return ids[positions], positions

    @cached_property
    def has_ascending_ids(self) -> bool:
        """Whether ids of fragments ascend, so that all are distinct."""
        ids = self.manifest.fragment_ids
        return bool((ids[1:] > ids[:-1]).all())

    def positions_of(self, fragment_ids: Sequence[int] | None) -> Sequence[int]:
        """Return the positions of fragments by id in the manifest's list; all when ``None``.

        Raises
        ------
        FragmentNotFoundError
            A fragment does not exist.
        UnsupportedFeatureError
            Two fragments have the same id.
        """
        if fragment_ids is None:
            return range(self.manifest.num_fragments)
        if not self.has_ascending_ids:
            from glaive.table.fragment_ids import refuse_shared_ids

            refuse_shared_ids(self.manifest, fragment_ids)
        find = self.manifest.position_of
        if len(fragment_ids) < _MIN_DICT_LOOKUPS:
            return [find(one) for one in fragment_ids]
        known = self.manifest.fragment_ids[::-1].tolist()
        places = dict(zip(known, range(len(known) - 1, -1, -1), strict=True))
        return [places[one] if one in places else find(one) for one in fragment_ids]
