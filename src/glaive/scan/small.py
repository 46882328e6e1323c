"""Read many small fragments as one.

A file of a few rows costs far more to open than to decode; see :mod:`glaive.file.v2.small_files`.
The reader of single files handles special cases and damage, and says what is wrong. The meter
counts these fallbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property, lru_cache, partial
from itertools import accumulate, pairwise
from math import inf
from typing import Any, Final, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import NUMPY_TYPES, distinct, number_array
from glaive.arrow.chunked import (
    concat_arrays,
    has_dictionary,
    join_batches,
    take_values,
    tidy_dictionary,
    with_items,
)
from glaive.dataclass import dataclass
from glaive.errors import CapacityError, FilterError, FormatError, ObjectNotFoundError, SchemaError
from glaive.file.protocol import TAKEN_SHARE, BoundColumn, in_proportion
from glaive.file.v2.reader import PagedColumns
from glaive.file.v2.small_files import MAX_BYTES, BulkReadError, SmallBatch, suits_bulk_reads
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment, SingleFile
from glaive.format.manifest import Feature
from glaive.format.wire import DecodeError
from glaive.io.mapped import have_sizes, map_many
from glaive.io.pool import gather
from glaive.io.store import read_many
from glaive.kernels.compact import DeletionMask
from glaive.scan.filter_search import Chunk, Late, RowSelection, Search, Selection, fields_of
from glaive.scan.options import Meter
from glaive.scan.plan import FragmentRows, plan_all
from glaive.scan.projection import (
    Computed,
    LazyColumns,
    Output,
    SystemColumns,
    column_key,
    is_address,
)
from glaive.scan.run.parts import ColumnChunks, FragmentWindows, ScanPart
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.snapshot import Snapshot, without_deleted
from glaive.scan.views import MIN_SMALL_FILES, NEVER, BoundProjection
from glaive.types import Int64s

# --- Small files of compatible layout: which they are, and their columns ----------------

T = TypeVar("T")

_MAX_SMALL_BYTES: Final = 2 * 1024 * 1024
"""Maximum bytes of a small file; opening a file costs as much as decoding about a megabyte."""


def has_columns(source: BoundProjection, file: SingleFile) -> bool:
    """Return whether a file has all columns of a projection."""
    _, fields, columns = file.layout
    if not len(fields) == len(columns) == len(set(fields)):
        return False
    stored = {field for field, column in zip(fields, columns, strict=True) if column >= 0}
    return source.projection.leaves <= stored


def read_files(
    source: BoundProjection, files: Sequence[SingleFile], *, mapped: bool = False
) -> SmallBatch:
    """Read files of one layout, or map them if they are ``mapped`` and not tiny on average.

    Raises
    ------
    BulkReadError
        The files must be read one by one.
    ObjectNotFoundError
        A file is missing.
    """
    snapshot = source.snapshot
    store = snapshot.store
    verify = snapshot.session.verification(store, "fetched")
    if verify == "always":
        raise BulkReadError("files are compared with their checksums")
    paths, sizes = [file.path for file in files], [file.size for file in files]
    mapped = mapped and sum(sizes) > MAX_BYTES * len(sizes)
    objects = (map_many(store, paths, sizes) if mapped else None) or read_many(store, paths, sizes)
    if objects is None:
        raise BulkReadError("a file has another size than the manifest says")
    return SmallBatch(objects, [file.rows for file in files], verify=verify != "never")


def bind_files(source: BoundProjection, files: Sequence[SingleFile]) -> PagedColumns:
    """Bind the columns of files as the columns of one file; errors as of :func:`read_files`."""
    return read_files(source, files).bind(source.projection.fields, _columns_of(files))


def _columns_of(files: Sequence[SingleFile]) -> dict[int, int]:
    _, fields, columns = files[0].layout
    return dict(zip(fields, columns, strict=True))


def in_bulk(meter: Meter, what: str, fragments: int, read: Callable[[], T]) -> T | None:
    """Return the result of ``read``; if it fails, count a fallback and return ``None``."""
    error: Exception
    try:
        result = read()
        if fragments:
            meter.count("fragments_read_in_bulk", fragments)
        return result
    except BulkReadError as refused:
        reason, error = str(refused), refused
    except ObjectNotFoundError as missing:
        reason, error = "a file is missing", missing
    except CapacityError as full:
        reason, error = "values beyond one array", full
    except (FormatError, SchemaError, DecodeError) as damage:
        reason, error = "a file is damaged, or of an unknown kind", damage
    except FilterError as failed:  # possibly at a deleted row
        reason, error = "the filter failed at some row", failed
    meter.fallback(what, reason, error)
    return None


# --- Runs of many small fragments in a plan, read as one --------------------------------

R = TypeVar("R")

_MAX_RUN_FRAGMENTS: Final = 1024
"""Maximum fragments read at a time."""

_READ_SHARE: Final = 4
"""Kept fragments are decoded once takes or filters have read from a quarter of them, in all."""

_VALUE_SHARE: Final = 64
"""Filters must also have taken one value for so many rows."""

_MAX_PIECES: Final = 16
_MIN_PIECES_BYTES: Final = 256 * 1024
"""Maximum pieces of a kept column, and bytes below which its pieces are joined at once."""

_STORED_BYTES: Final = 8 * 1024 * 1024
_DECODED_BYTES: Final = 64 * 1024 * 1024
"""Approximate bytes read at a time, on disk and decoded: a few bytes on disk can decode to any
number of rows."""

_READ_BYTES: Final = 256 * 1024
"""Average bytes of a file above which kept files are mapped instead of read."""

_DECODED_FILES_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of all small files of a version whose decoded columns are kept."""

_ITEM_SHARE: Final = 4
"""Values of a kept column for each item that its dictionary may have."""

_PART_BYTES: Final = 512
"""Approximate bytes of memory of the plan of one fragment."""

_VALUE_BYTES: Final = 8
"""Bytes of a value of a system column."""


@dataclass  # derived values are cached in ``__dict__``
class SmallFragments:
    """All rows of adjacent fragments in small files of one layout (a ``ScanPart``)."""

    ranges: Sequence[FragmentRows]
    files: Sequence[SingleFile]
    kept_bytes: float = inf
    """Bytes of all small files of the version; infinite if the session keeps no columns of it."""
    number: int = 0
    """Number of the run in its plan."""
    _live: NDArray[np.bool_] | None = field(default=None, init=False)

    @cached_property
    def starts(self) -> list[int]:
        """First row of each fragment, counted over all fragments, and the total."""
        return list(accumulate((file.rows for file in self.files), initial=0))

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files."""
        return tuple(file.path for file in self.files)

    @cached_property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files)

    @property
    def is_kept(self) -> bool:
        """Whether the session keeps decoded columns for the next scan."""
        return self.kept_bytes <= _DECODED_FILES_BYTES

    @property
    def holds_files(self) -> bool:
        """Whether the session keeps the files, too."""
        return self.kept_bytes <= _KEPT_BYTES

    @cached_property
    def is_mapped(self) -> bool:
        """Whether files are mapped, not read."""
        return not self.holds_files or self.size > _READ_BYTES * len(self.files)

    @cached_property
    def has_deletions(self) -> bool:
        """Whether any of the fragments has deleted rows."""
        return any(file.has_deletions for file in self.files)

    @property
    def _windows(self) -> FragmentWindows:
        return FragmentWindows(self.ranges)

    def batches(self, run: ScanRun) -> Iterator[pa.RecordBatch]:
        """See :class:`ScanPart`. Memory holds all rows."""
        chunks = self._in_bulk(run)
        if chunks is None:
            yield from self._windows.batches(run)
            return
        table = _as_table(run.source, chunks)
        whole = join_batches(table)
        first = 0
        for count in self._live_counts(run.source):
            if count and len(whole) == 1:
                yield whole[0].slice(first, count)
            elif count:
                yield from join_batches(table.slice(first, count))
            first += count

    def tables(self, run: ScanRun) -> Iterator[pa.RecordBatch | pa.Table]:
        """See :class:`ScanPart`. All rows make one table."""
        chunks = self._in_bulk(run)
        if chunks is None:
            yield from self._windows.tables(run)
        else:
            yield _as_table(run.source, chunks)

    def columns(self, run: ScanRun) -> Iterable[ColumnChunks]:
        """See :class:`ScanPart`."""
        chunks = self._in_bulk(run)
        return self._windows.columns(run) if chunks is None else enumerate(chunks)

    def filter(
        self,
        search: Search,
        work: Callable[[Selection], R],
        *,
        stream: bool = False,
        window_rows: int | None = None,
    ) -> Iterator[R]:
        """See :class:`ScanPart`. All rows make one selection."""
        run = search.run

        def select() -> list[R]:
            selection = _SmallSelection.of(self, search)
            run.meter.count("fragments_scanned", len(self.ranges))
            run.meter.count("rows_scanned", self.starts[-1])
            return [work(selection)] if selection.count else []

        what = "filtered scan of small fragments"
        results = in_bulk(run.meter, what, len(self.ranges), select)
        if results is not None:
            yield from results
            return
        yield from self._windows.filter(search, work, stream=stream, window_rows=window_rows)

    def arrays(self, source: BoundProjection) -> list[pa.Array]:
        """Read an array of each field, with deleted rows; raise as :func:`read_files`."""
        columns = SmallColumns(self, source)
        fields = range(len(source.projection.fields))
        if not all(map(columns.are_kept, fields)):
            _ = columns.batch  # read before threads ask for it
        return gather(columns.read, fields)

    def live_flags(self, source: BoundProjection) -> NDArray[np.bool_]:
        """Return one flag per physical row: whether it is live."""
        if self._live is not None:
            return self._live
        flags = np.ones(self.starts[-1], np.bool_)
        snapshot = source.snapshot
        for rows, file, first in zip(self.ranges, self.files, self.starts, strict=False):
            if file.has_deletions:
                live = snapshot.live_rows(snapshot.manifest.fragment(rows.position))
                if live is not None:
                    flags[first + live.deleted_between(0, live.rows)] = False
        self._live = flags if self.is_kept else None
        return flags

    def _in_bulk(self, run: ScanRun) -> list[list[pa.Array]] | None:
        """Read the live rows of each field; return ``None`` if files must be read one by one."""

        def read() -> list[list[pa.Array]]:
            arrays = self.arrays(run.source)
            if self.has_deletions:
                deleted = (~self.live_flags(run.source)).nonzero()[0]
                mask = DeletionMask(deleted, 0, self.starts[-1])
                arrays = [without_deleted(array, mask) for array in arrays]
            return [[array] for array in arrays]

        return in_bulk(run.meter, "scan of small fragments", len(self.ranges), read)

    def _live_counts(self, source: BoundProjection) -> list[int]:
        """Count the live rows of each fragment."""
        counts: list[int]
        if not self.has_deletions:
            counts = [file.rows for file in self.files]
        else:
            flags = self.live_flags(source)
            counts = np.add.reduceat(flags, self.starts[:-1], dtype=np.int64).tolist()
        return counts


@dataclass(slots=True, eq=False)
class KeptColumn:
    """A decoded column of small fragments. Later versions use the rows of the files they share."""

    part: SmallFragments | None = None
    pieces: Sequence[pa.Array] = ()
    taken: int = 0
    """Values that filters have taken so far."""

    def of_first(self, paths: Sequence[str]) -> tuple[list[pa.Array], int]:
        """Return the rows of the first files, up to an unknown file, and the number of files."""
        if self.part is None:
            return [], 0
        number_of = {path: number for number, path in enumerate(self.part.paths)}
        runs: list[list[int]] = []
        count = 0
        for number in map(number_of.get, paths):
            if number is None:
                break
            if runs and runs[-1][1] == number:
                runs[-1][1] += 1
            else:
                runs.append([number, number + 1])
            count += 1
        starts, whole = self.part.starts, pa.chunked_array(self.pieces)
        pieces = [one for first, stop in runs for one in whole[starts[first] : starts[stop]].chunks]
        if sum(map(len, pieces)) < len(whole) and has_dictionary(whole.type):
            # Dictionaries must not fill with values of deleted files. Maps are decoded again.
            if not can_be_tidied(whole.type):
                return [], 0
            pieces = [_read_only(tidied(one)) if _has_many_items(one) else one for one in pieces]
        return pieces, count


def can_be_tidied(kind: pa.DataType) -> bool:
    """Return whether :func:`tidied` reaches all values of a type."""
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return all(can_be_tidied(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_fixed_size_list(kind):
        return not pa.types.is_nested(kind.value_type) and not has_dictionary(kind)
    return not pa.types.is_nested(kind) or pa.types.is_dictionary(kind)


def _has_many_items(array: Any) -> bool:
    """Return whether a dictionary within the array has many items for its values."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        most = min(len(array) // _ITEM_SHARE, np.iinfo(NUMPY_TYPES[kind.index_type]).max // 2)
        return len(array.dictionary) > most
    if pa.types.is_struct(kind):
        return any(_has_many_items(array.field(at)) for at in range(kind.num_fields))
    return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _has_many_items(
        array.values
    )


def tidied(array: Any) -> Any:
    """Return the values as files have them: none below nulls, and no unused items.

    The index type of a dictionary may keep unused items.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return tidy_dictionary(array, drop_unused=True)
    if not pa.types.is_nested(kind) or pa.types.is_fixed_size_list(kind) or not kind.num_fields:
        return array
    if pa.types.is_struct(kind):
        mask: Any = array.is_null() if array.null_count else None
        members = [*map(tidied, array.flatten())]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
    return with_items(array, tidied(array.flatten()), kind)


def _read_only(array: pa.Array) -> pa.Array:
    """Return an array in imported memory: users of a result must not change the next one."""
    table = pa.table([array], names=[""])
    columns: Any = pa.RecordBatchReader.from_stream(table).read_all().columns
    imported: pa.Array = columns[0].chunk(0)
    return imported


@dataclass(frozen=True)  # derived values are cached in ``__dict__``
class SmallColumns:
    """Stored columns of small fragments, with deleted rows. Errors are as of :func:`read_files`.

    The session keeps the columns of kept fragments once all their rows are read: for small pages,
    decoding takes far longer than copying rows. The next version decodes only its new files.
    """

    part: SmallFragments
    source: BoundProjection

    @cached_property
    def batch(self) -> SmallBatch:
        """The bytes of all files."""
        part = self.part

        def load() -> tuple[SmallBatch, int]:
            return read_files(self.source, part.files, mapped=part.is_mapped), part.size

        return self.source.kept(self._key, load) if self._are_held else load()[0]

    def _bound(self, at: int, rows: int) -> tuple[BoundColumn, Callable[[pa.Array], pa.Array]]:
        """Return a column of all files, and a check of arrays of so many rows."""
        projection = self.source.projection

        def load() -> tuple[PagedColumns, int]:
            fields = projection.fields[at : at + 1]
            columns = self.batch.bind(fields, _columns_of(self.part.files))
            return columns, columns.nbytes

        name = f"{self._key}, pages {at}"
        bound = self.source.kept(name, load) if self._are_held else load()[0]
        width = projection.row_sizes.max_width
        check = in_proportion(rows, len(projection.fields), width, [bound.reader])
        return bound.columns[0], check

    @cached_property
    def _key(self) -> str:
        first, last = self.part.ranges[0].position, self.part.ranges[-1].position
        return f"fragments {first} to {last}"

    def are_kept(self, at: int) -> bool:
        """Return whether the session has all rows of a field."""
        kept = self._kept(at).part if self.part.is_kept else None
        return kept is not None and kept.paths == self.part.paths

    def read(self, at: int) -> pa.Array:
        """Return all rows of a field, by its number in the projection."""
        part = self.part
        if not part.is_kept:
            return self.decode(at)
        kept = self._kept(at)
        pieces = self._pieces(at, kept)
        if len(pieces) > 1:
            pieces = self._keep(at, kept, [_read_only(concat_arrays(pieces))])
        return pieces[0]

    def _pieces(self, at: int, kept: KeptColumn) -> Sequence[pa.Array]:
        """Return all rows of a field in pieces, the last of them with the rows of new files."""
        part = self.part
        if kept.part and kept.part.paths == part.paths:
            return kept.pieces
        pieces, count = kept.of_first(part.paths)
        if count < len(part.files):
            pieces = [*pieces, _read_only(self._after(count).decode(at))]
        return self._keep(at, kept, pieces)

    def _keep(self, at: int, kept: KeptColumn, pieces: Sequence[pa.Array]) -> Sequence[pa.Array]:
        size = sum(piece.nbytes for piece in pieces)
        if len(pieces) > (1 if size < _MIN_PIECES_BYTES else _MAX_PIECES):
            first = 0 if size < _MIN_PIECES_BYTES else _first_short([*map(len, pieces)])
            pieces = [*pieces[:first], _read_only(concat_arrays(pieces[first:]))]
        kept = KeptColumn(self.part, pieces, kept.taken)
        self.source.snapshot.session.cache.put(self._key_of(at), kept, size)
        return pieces

    def _after(self, first: int) -> SmallColumns:
        """Return the columns of the files from ``first`` on."""
        part = self.part
        if not first:
            return self
        return SmallColumns(SmallFragments(part.ranges[first:], part.files[first:]), self.source)

    def _key_of(self, at: int) -> Hashable:
        """Return the key of a column in the session, in all versions that begin with its files."""
        place = self.source.snapshot.cache_key()
        return (*place, self.part.number, *self.source.projection.field_keys[at])

    def _kept(self, at: int) -> KeptColumn:
        cache = self.source.snapshot.session.cache
        kept: KeptColumn = cache.get_or_load(self._key_of(at), lambda: (KeptColumn(), _PART_BYTES))
        return kept if kept.part is None or self._are_whole else KeptColumn()

    @cached_property
    def _are_whole(self) -> bool:
        """Whether mapped files still have their sizes, so that views of them may be used."""
        store, sizes = self.source.snapshot.store, [file.size for file in self.part.files]
        return max(sizes) <= MAX_BYTES or have_sizes(store, self.part.paths, sizes)

    @property
    def _are_held(self) -> bool:
        return self.part.holds_files and self._are_whole

    def narrowed(self, rows: Int64s) -> tuple[SmallColumns, Int64s]:
        """Return the columns of the files of these rows, and the rows as rows of these columns.

        Files that the session holds stay as they are: later reads need all of them.
        """
        part = self.part
        file = np.searchsorted(part.starts, rows, side="right") - 1
        files: list[int] = distinct(file).tolist()
        if part.holds_files or len(files) > len(part.files) // 2:
            return self, rows
        ranges = [part.ranges[at] for at in files]
        hit = SmallFragments(ranges, [part.files[at] for at in files])
        columns = SmallColumns(hit, self.source)
        first = np.zeros(len(part.files), np.int64)
        first[files] = columns.part.starts[:-1]
        return columns, rows - np.array(part.starts)[file] + first[file]

    def take_kept(self, at: int, rows: Int64s) -> pa.Array | None:
        """Return some rows of a field, if its rows are kept, or filters have taken enough of them.

        Filters decode a column only if the session holds its files: other files would be read.
        """
        part = self.part
        if not part.is_kept:
            return None
        kept = self._kept(at)
        kept.taken += len(rows)
        is_read = part.holds_files and kept.taken * _READ_SHARE >= len(part.files)
        is_worth = is_read and kept.taken * _VALUE_SHARE >= part.starts[-1]
        if not is_worth and (kept.part is None or kept.part.paths[0] != part.paths[0]):
            return None
        return _take_pieces(self._pieces(at, kept), rows)

    def take(self, at: int, rows: Int64s) -> pa.Array:
        """Return some rows of a field."""
        column, checked = self._bound(at, len(rows))
        return checked(column.take(rows))

    def decode(self, at: int) -> pa.Array:
        """Return all rows of a field, decoded anew."""
        if len(self.part.files) >= MIN_SMALL_FILES:
            rows = self.part.starts[-1]
            column, checked = self._bound(at, rows)
            return checked(column.read(0, rows))
        source, pieces = self.source, []
        key, snapshot = source.projection.field_keys[at], source.snapshot
        for own, file in zip(self.part.ranges, self.part.files, strict=True):
            kept = snapshot.session.cache.get(_written_key(file, snapshot)) or {}
            piece = None if source.projection.has_extension_types else kept.pop(key, None)
            pieces.append(read_singly(source, [own], at) if piece is None else piece)
        array: pa.Array = concat_arrays(pieces)
        return array


def _first_short(rows: Sequence[int]) -> int:
    """Return the first piece to join: each piece before it has over twice the rows that follow."""
    first = len(rows) - 1
    while first and rows[first - 1] <= 2 * sum(rows[first:]):
        first -= 1
    return first


def _take_pieces(pieces: Sequence[pa.Array], rows: Int64s) -> pa.Array:
    """Take ascending rows of arrays in a row."""
    taken, first = [], 0
    for piece in pieces:
        own = rows[slice(*rows.searchsorted((first, first + len(piece))))]
        if len(own):
            taken.append(take_values(piece, own - first))
        first += len(piece)
    joined: pa.Array = concat_arrays(taken or [pieces[0][:0]])
    return joined


def read_singly(source: BoundProjection, ranges: Sequence[FragmentRows], at: int) -> pa.Array:
    """Return a stored field of whole fragments, with deleted rows, read one by one."""
    array: pa.Array = concat_arrays(
        [source.fragment(own.position).stored[at].read(own.start, own.stop) for own in ranges]
    )
    return array


# --- Rows of small files that this session wrote: the next version does not read them ---


def keep_written(
    snapshot: Snapshot, fragment: Fragment, schema: LanceSchema, rows: pa.Table
) -> None:
    """Keep the rows of a new file, with all columns of ``schema``, for reads of later versions."""
    file, store = SingleFile.of(fragment, _MAX_SMALL_BYTES), snapshot.store
    verify = snapshot.session.verification(store, "fetched")
    if file is None or not store.is_local or verify == "always":
        return
    columns = _kept_columns(schema)
    arrays = [concat_arrays(rows.column(at).chunks) for at, _ in columns]
    copies = _copied([*map(tidied, arrays)])
    kept = dict(zip((key for _, key in columns), copies, strict=True))
    size = sum(array.nbytes for array in copies)
    snapshot.session.cache.put(_written_key(file, snapshot), kept, size)


@lru_cache(maxsize=64)  # repeated updates have the same schema
def _kept_columns(schema: LanceSchema) -> Sequence[tuple[int, Hashable]]:
    """Return the columns whose written rows can be kept, and their keys."""
    return [
        (at, column_key(field))
        for at, field in enumerate(schema.fields)
        if suits_bulk_reads([field]) and can_be_tidied(field.to_arrow().type)
    ]


def _written_key(file: SingleFile, snapshot: Snapshot) -> Hashable:
    return (snapshot.store.full(file.path), *snapshot.cache_key(), "written")


@dataclass(frozen=True)  # derived values are cached in ``__dict__``
class _SmallSelection:
    """Live rows of small fragments that passed a filter (a ``Selection``): one flag per row."""

    part: SmallFragments
    source: BoundProjection
    columns: SmallColumns
    decoded: LazyColumns
    flags: NDArray[np.bool_]

    @classmethod
    def of(cls, part: SmallFragments, search: Search) -> _SmallSelection:
        """Read columns of the filter and apply it; raise as :func:`read_files`."""
        source = search.run.source
        columns = SmallColumns(part, source)

        def system(name: str) -> Any:
            return _system_column(part, source, np.arange(part.starts[-1]), name)

        # The caller excludes projections with extension types.
        decoded = LazyColumns(part.starts[-1], columns.read, system, lambda _, array: array)
        flags = search.passing(decoded)
        if part.has_deletions:
            flags = flags & part.live_flags(source)
        return cls(part, source, columns, decoded, flags)

    @cached_property
    def count(self) -> int:
        """Rows that passed."""
        return int(np.count_nonzero(self.flags))

    @cached_property
    def _hit(self) -> tuple[SmallColumns, Int64s]:
        """Columns of the files that have selected rows, and the rows in them."""
        return self.columns.narrowed(self.flags.nonzero()[0])

    def chunks(self, outputs: Sequence[Output | Computed], *, late: Late) -> list[Chunk]:
        """Return the columns of the selected rows, in one chunk. Few rows are taken."""
        # Compute expressions of passing rows only: values of other rows may raise.
        selected = RowSelection(0, len(self.flags), flags=self.flags)

        def system(name: str) -> Any:
            return _system_column(self.part, self.source, selected.rows, name)

        passing = self.decoded.picked(self.count, selected.pick, system)
        unread = [at for at in fields_of(outputs) if not self.decoded.has(at)]
        if self.count > TAKEN_SHARE * len(self.flags):
            gather(self.decoded.field, unread)
            return [[passing.output(output) for output in outputs]]
        for at in unread:
            array = self.columns.take_kept(at, selected.rows)
            if array is None:
                columns, rows = self._hit
                array = columns.take(at, rows)
            passing.put(at, array)
        return [[passing.output(output) for output in outputs]]

    def row_ranges(self) -> Iterator[tuple[int, Int64s]]:
        """Yield the id of each fragment and its selected rows."""
        rows, starts = self.flags.nonzero()[0], self.part.starts
        cuts = rows.searchsorted(starts).tolist()
        ids = self.source.snapshot.manifest.fragment_ids
        for at, (first, last) in enumerate(pairwise(cuts)):
            if first < last:
                yield int(ids[self.part.ranges[at].position]), rows[first:last] - starts[at]


def _system_column(part: SmallFragments, source: BoundProjection, rows: Int64s, name: str) -> Any:
    """Return a system column of ascending rows."""
    snapshot, cuts = source.snapshot, rows.searchsorted(part.starts)
    positions = [each.position for each in part.ranges]
    if is_address(name, stable=snapshot.manifest.uses(Feature.STABLE_ROW_IDS)):
        bases = (snapshot.manifest.fragment_ids[positions] << 32) - part.starts[:-1]
        return number_array((rows + bases.repeat(np.diff(cuts))).view(np.uint64))
    parts = [
        SystemColumns(snapshot, position).of(name, rows[first:stop] - start)
        for position, start, (first, stop) in zip(
            positions, part.starts, pairwise(cuts.tolist()), strict=False
        )
    ]
    return number_array(np.concatenate(parts))


def _as_table(source: BoundProjection, chunks: Sequence[list[pa.Array]]) -> pa.Table:
    arrays: list[Any] = [own[0] for own in chunks]
    return pa.Table.from_arrays(arrays, schema=source.schema)


def cut_into_parts(run: ScanRun, ranges: Sequence[FragmentRows]) -> Sequence[ScanPart]:
    """Cut a plan into runs of small fragments and the ranges between them."""
    projection = run.source.projection
    special = projection.has_extension_types or projection.blob_contents
    suits = not special and suits_bulk_reads(projection.fields)
    if len(ranges) < MIN_SMALL_FILES or not suits or not run.is_mapped(ranges):
        return [FragmentWindows(ranges)]
    if ranges is not run.source.snapshot.memo.get(plan_all):
        return _cut(run.source, ranges)
    load = partial(_cut, run.source, ranges, are_all=True)
    return run.source.kept("parts", lambda: (load(), _PART_BYTES * len(ranges)))


def _cut(
    source: BoundProjection, ranges: Sequence[FragmentRows], *, are_all: bool = False
) -> Sequence[ScanPart]:
    """Cut a plan; of all rows, few small files are kept after they are read."""
    projection = source.projection
    fragment = source.snapshot.manifest.fragment
    small_files = [SingleFile.of(fragment(rows.position), _MAX_SMALL_BYTES) for rows in ranges]
    size = sum(file.size for file in small_files if file) if are_all else inf
    width = projection.value_bytes + _VALUE_BYTES * len(projection.system)
    max_rows = _DECODED_BYTES // max(_VALUE_BYTES, width)
    parts: list[ScanPart] = []
    first, at, end = 0, 0, len(ranges)
    while at < end:
        files = _run_of_files(source, ranges, small_files, at, max_rows)
        if len(files) >= MIN_SMALL_FILES:
            if first < at:
                parts.append(FragmentWindows(ranges[first:at]))
            first = at + len(files)
            parts.append(SmallFragments(ranges[at:first], files))
        at += max(1, len(files))
    if first < end:
        parts.append(FragmentWindows(ranges[first:]))
    for number, part in enumerate(part for part in parts if isinstance(part, SmallFragments)):
        part.number, part.kept_bytes = number, size
    return parts


def _run_of_files(
    source: BoundProjection,
    ranges: Sequence[FragmentRows],
    small_files: Sequence[SingleFile | None],
    start: int,
    max_rows: int,
) -> list[SingleFile]:
    """Return the small files of the longest run that begins at range ``start``."""
    files: list[SingleFile] = []
    size = rows = 0
    run = slice(start, start + _MAX_RUN_FRAGMENTS)
    for (_, first, stop), file in zip(ranges[run], small_files[run], strict=True):
        if file is None or first or stop != file.rows:
            break
        if not (file.layout == files[0].layout if files else has_columns(source, file)):
            break
        size += file.size
        rows += file.rows
        if files and (size > _STORED_BYTES or rows > max_rows):
            break
        files.append(file)
    return files


# --- Takes from many small fragments ----------------------------------------------------
# Opening even a small file costs far more than finding a row in it. The first takes from small
# files read them fully, in bulk; see :mod:`glaive.file.v2.small_files`. Once takes have read a
# sixteenth of the fragments, a take keeps all files of a small version as one. glaive decodes kept
# files once takes have cost about as much time as decoding.

_KEPT_BYTES: Final = 16 * 1024 * 1024
_KEPT_FILES: Final = 4096
"""Maximum bytes, on disk and decoded, and number of files that are kept as one."""

_DICTIONARY_BYTES: Final = 4 * _KEPT_BYTES
"""Maximum bytes on disk of files with dictionaries: glaive keeps equal dictionaries once."""

_BYTES_PER_TAKE: Final = 1024 * 1024
_DECODED_PER_READ: Final = 128 * 1024
"""Bytes of files that takes keep, for each take, and decode, for each read of a fragment."""

_ROWS_PER_READ: Final = 16
"""Rows that a take finds in the time of opening a fragment, about."""

_SAMPLED_ROWS: Final = 1024
"""Rows that are decoded first, where a fragment has more, to estimate the bytes of all rows."""


@dataclass(slots=True, eq=False)
class KeptFiles:
    """The files of a small version, as one file.

    Parameters
    ----------
    numbers
        Position of each file's fragment in the manifest.
    first_row, rows
        Number of the first row of each fragment, -1 for other fragments, and its rows. By position
        in the manifest.
    columns
        Columns of the projection; ``None`` if the files are opened one by one.
    reads
        Reads until glaive decodes all columns: each fragment of a take counts, and each 16 rows.
    """

    numbers: list[int]
    first_row: Int64s
    rows: Int64s
    columns: PagedColumns | None
    reads: int

    def take(
        self, source: BoundProjection, fragment: Int64s, row: Int64s, meter: Meter
    ) -> list[tuple[Int64s, list[pa.Array]]]:
        """Take the rows of kept fragments; see :func:`take_small`."""
        first = self.first_row[fragment]
        chosen = ((first >= 0) & (row >= 0) & (row < self.rows[fragment])).nonzero()[0]
        if not len(chosen):
            return []
        rows = first[chosen] + row[chosen]
        if self.reads > 0:
            self.reads -= len(distinct(fragment[chosen])) + len(chosen) // _ROWS_PER_READ
        if self.reads <= 0:
            arrays = source.kept("decoded files", partial(self._decoded, source, meter))
            if arrays:
                return [(chosen, [take_values(array, rows) for array in arrays])]
        return [] if self.columns is None else [(chosen, self.columns.take(rows))]

    def _decoded(self, source: BoundProjection, meter: Meter) -> tuple[list[pa.Array], int]:
        """Return copies of all columns and their bytes; no columns if they are too large."""
        arrays = in_bulk(meter, "keep columns of takes", 0, partial(self._read, source)) or []
        size = sum(array.nbytes for array in arrays)
        if not 0 < size <= _KEPT_BYTES:
            return [], _PART_BYTES
        return _copied(arrays), size

    def _read(self, source: BoundProjection) -> list[pa.Array]:
        total = int(self.rows.sum())
        if self.columns is not None:
            return self.columns.read(0, total)
        first = source.fragment(self.numbers[0])
        if first.rows > _SAMPLED_ROWS:
            first.expect("random")
            size = sum(column.read(0, _SAMPLED_ROWS).nbytes for column in first.stored)
            if size * total > _KEPT_BYTES * _SAMPLED_ROWS:
                return []
        ranges = [FragmentRows(at, 0, int(self.rows[at])) for at in self.numbers]
        pieces = []
        for part in _cut(source, ranges):
            if isinstance(part, SmallFragments):
                pieces.append(part.arrays(source))
                continue
            for own in part.ranges:
                source.fragment(own.position).expect("random")  # raises if a file was truncated
            read = partial(read_singly, source, part.ranges)
            pieces.append(gather(read, range(len(source.projection.fields))))
        return [concat_arrays(list(arrays)) for arrays in zip(*pieces, strict=True)]


def _copied(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """Return copies of arrays: a file that is mapped can become shorter."""
    batch = pa.record_batch(arrays, [str(at) for at in range(len(arrays))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    copy = pa.py_buffer(memoryview(sink.getvalue()).toreadonly())  # results share dictionaries
    return pa.ipc.open_stream(copy).read_next_batch().columns


def _keep_files(source: BoundProjection, meter: Meter) -> tuple[KeptFiles | Literal[False], int]:
    """Keep all files of a version; also return the bytes that they and their columns take.

    Where the files are large, takes must have read more often first.
    """
    total = source.snapshot.manifest.num_fragments
    numbers: list[int] = []
    files: list[SingleFile] = []
    has_dictionaries = any(
        has_dictionary(field.to_arrow().type) for field in source.projection.fields
    )
    most = _DICTIONARY_BYTES if has_dictionaries else _KEPT_BYTES
    if total <= _KEPT_FILES:
        numbers, files = _usual_files(source, range(total), most)
    size = sum(file.size for file in files)
    weight = 16 * total
    few = size <= most <= source.snapshot.session.cache.budget // 4
    known, source.kept_after = source.kept_after, NEVER
    if not files or not few:
        return False, _PART_BYTES
    is_small = len(files) >= MIN_SMALL_FILES and max(file.size for file in files) <= MAX_BYTES
    is_read_whole = is_small and size <= _KEPT_BYTES
    needed = max(known, size // _BYTES_PER_TAKE) if is_read_whole else known
    if needed > known:
        source.kept_after = needed
        return False, _PART_BYTES
    columns = None
    if is_read_whole:
        read = partial(bind_files, source, files)
        columns = in_bulk(meter, "take from small fragments", len(files), read)
        if columns is None:
            return False, _PART_BYTES
        weight += 2 * size
    source.kept_after = needed
    first_row, rows = np.full(total, -1, np.int64), np.zeros(total, np.int64)
    rows[numbers] = [file.rows for file in files]
    first_row[numbers] = rows[numbers].cumsum() - rows[numbers]
    reads = max(len(files) // _READ_SHARE, size // _DECODED_PER_READ)
    return KeptFiles(numbers, first_row, rows, columns, reads), weight


def _usual_files(
    source: BoundProjection, positions: Iterable[int], most: int = MAX_BYTES
) -> tuple[list[int], list[SingleFile]]:
    """Return the fragments in files of one layout and at most ``most`` bytes, and the files."""
    numbers: list[int] = []
    files: list[SingleFile] = []
    for position in positions:
        file = SingleFile.of(source.snapshot.manifest.fragment(position), most)
        if file is None:
            continue
        if file.layout == files[0].layout if files else has_columns(source, file):
            numbers.append(position)
            files.append(file)
    return numbers, files


def take_small(
    source: BoundProjection, positions: Int64s, fragment: Int64s, row: Int64s, meter: Meter
) -> list[tuple[Int64s, list[pa.Array]]]:
    """Take the live rows in small files that are still unread.

    Parameters
    ----------
    positions
        The distinct values of ``fragment``, ascending.
    fragment, row
        Position of the fragment in the manifest, and physical row in it, of each row.

    Returns
    -------
    list of pairs
        Indices of rows, ascending, and their values of each column. Empty if all rows must be
        taken in another way.
    """
    projection, snapshot = source.projection, source.snapshot
    special = not projection.plain or projection.has_extension_types or projection.blob_contents
    # In remote stores, the caller makes the requests concurrently.
    usual = not special and snapshot.store.is_local and suits_bulk_reads(projection.fields)
    if not usual:
        source.kept_after = NEVER
        return []
    if source.keeps_files:
        kept = source.kept(
            f"files after {source.kept_after} takes", partial(_keep_files, source, meter)
        )
        if kept:
            taking = partial(kept.take, source, fragment, row, meter)
            done = in_bulk(meter, "take from small fragments", 0, taking)
            if done:
                return done
    numbers, files = _usual_files(source, filter(source.is_unopened, positions.tolist()))
    if len(files) < MIN_SMALL_FILES:
        return []
    file_of = np.full(source.snapshot.manifest.num_fragments, -1, np.int64)
    file_of[numbers] = np.arange(len(files))
    number = file_of[fragment]
    taken = []
    batch_of: Any = np.cumsum([file.size for file in files]) // _STORED_BYTES
    cuts = [0, *(np.diff(batch_of).nonzero()[0] + 1).tolist(), len(files)]
    for first, last in pairwise(cuts):
        chosen = ((number >= first) & (number < last)).nonzero()[0]
        work = partial(_take, source, files[first:last], number[chosen] - first, row[chosen])
        arrays = in_bulk(meter, "take from small fragments", last - first, work)
        if arrays is not None:
            taken.append((chosen, arrays))
    return taken


def _take(
    source: BoundProjection, files: list[SingleFile], file: Int64s, row: Int64s
) -> list[pa.Array]:
    """Take row ``row[i]`` of file ``file[i]``."""
    counts = np.array([each.rows for each in files])
    if bool((row >= counts[file]).any()) or int(row.min()) < 0:
        raise BulkReadError("a row is beyond its file")
    return bind_files(source, files).take((counts.cumsum() - counts)[file] + row)
