"""Many small fragments read as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import integer_array, pack_flags
from glaive.arrow.chunked import concat_arrays, join_batches
from glaive.arrow.widths import value_bytes
from glaive.dataclass import dataclass
from glaive.errors import CapacityError, FilterError, FormatError, ObjectNotFoundError, SchemaError
from glaive.file.v2.small_files import (
    BULK_VERSIONS,
    MAX_BYTES,
    BulkReadError,
    read_small_files,
    suits_bulk_reads,
)
from glaive.format.fragment import SingleFile
from glaive.format.wire import DecodeError
from glaive.named_tuple import NamedTuple
from glaive.scan.filter.search import Chunk, Late, Search, Selection
from glaive.scan.options import Meter
from glaive.scan.plan import AllRows, FragmentRows
from glaive.scan.projection import Computed, LazyColumns, Output, SystemColumns
from glaive.scan.run.parts import MIN_RUN_FRAGMENTS, ColumnChunks, FragmentWindows, ScanPart
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import BoundProjection
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.file.v2.small_files import SmallBatch


# --- Small files of compatible layout: which they are, and their bytes read in bulk -----
# A file of a few rows costs far more to open than to decode; see
# :mod:`glaive.file.v2.small_files`. Whatever is out of the ordinary, damage included, is left to
# the reader of single files, which says what is wrong and where; how often is counted.

T = TypeVar("T")

_MAX_BYTES_READ_WHOLE: Final = 512 * 1024
"""Bytes of a file that counts as small when all of its columns are read."""


def small_file(source: BoundProjection, position: int) -> SingleFile | None:
    """The only file of a fragment, if it is small and of a format that is read in bulk."""
    file = source.snapshot.manifest.single_file(position, _MAX_BYTES_READ_WHOLE)
    if file is None or file.layout[0] not in BULK_VERSIONS:
        return None
    if file.size > MAX_BYTES:
        columns = sum(column >= 0 for column in file.layout[2])
        return file if len(source.projection.leaves) == columns else None
    return file


def has_columns(source: BoundProjection, file: SingleFile) -> bool:
    """Whether a file has all columns of a projection."""
    _, fields, columns = file.layout
    if not len(fields) == len(columns) == len(set(fields)):
        return False
    stored = {field for field, column in zip(fields, columns, strict=True) if column >= 0}
    return source.projection.leaves <= stored


def column_of(file: SingleFile) -> dict[int, int]:
    """Column of each field of a file."""
    _, fields, columns = file.layout
    return dict(zip(fields, columns, strict=True))


def read_batch(snapshot: Snapshot, files: Sequence[SingleFile]) -> SmallBatch:
    """Read files of a version, which have one layout, into one buffer.

    Raises
    ------
    BulkReadError
        They have to be read one by one.
    ObjectNotFoundError
        One of them is missing.
    """
    store = snapshot.store
    # Whole files are fetched here, so that all of those with checksums is compared.
    verify = snapshot.session.verification(store, "fetched")
    if verify == "always":
        raise BulkReadError("files are compared with their checksums")
    # Here and not above: takes ask for small files where there are none.
    from glaive.file.v2.small_files import SmallBatch
    from glaive.io.store import read_many

    objects = read_many(store, [file.path for file in files], [file.size for file in files])
    if objects is None:
        raise BulkReadError("a file has another size than the manifest says")
    batch = SmallBatch.of(objects, [file.rows for file in files])
    if verify == "fetched":
        batch.expect_checksums(objects.sizes)
    return batch


def in_bulk(meter: Meter, what: str, fragments: int, read: Callable[[], T]) -> T | None:
    """What ``read`` returns; None, and counted, where files have to be read one by one."""
    error: Exception
    try:
        result = read()
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
    except FilterError as failed:  # perhaps at a deleted row
        reason, error = "the filter failed at some row", failed
    meter.fallback(what, reason, error)
    return None


# --- Runs of many small fragments in a plan, read as one --------------------------------

R = TypeVar("R")

_MAX_RUN_FRAGMENTS: Final = 1024
"""Fragments that are read at a time."""

_MAX_PROJECTIONS: Final = 16
"""Projections for which the parts of a plan of all rows are kept; beyond, all are let go."""


class _Capacity(NamedTuple):
    """Bytes on disk, and bytes decoded, about, that are read at a time.

    Both, as a few bytes on disk can stand for any number of rows.
    """

    stored: int
    decoded: int


_USUAL: Final = _Capacity(8 * 1024 * 1024, 64 * 1024 * 1024)
_LARGE: Final = _Capacity(16 * 1024 * 1024, 32 * 1024 * 1024)
"""For those who keep as much waiting anyway: more files, of fewer rows."""

_NUMBER: Final = 8
"""Bytes of a value of a system column."""


@dataclass(frozen=True)  # no slots: derived values are cached on the instance
class SmallFragments:
    """Neighbouring fragments, all rows of each, in small files of one layout (a ``ScanPart``)."""

    ranges: Sequence[FragmentRows]
    files: Sequence[SingleFile]

    @cached_property
    def starts(self) -> list[int]:
        """First row of each fragment, counted through all of them; and the row behind the last."""
        return list(accumulate((file.rows for file in self.files), initial=0))

    @cached_property
    def has_deletions(self) -> bool:
        """Whether rows are deleted in some of the fragments."""
        return any(file.has_deletions for file in self.files)

    @property
    def _one_by_one(self) -> FragmentWindows:
        return FragmentWindows(self.ranges)

    def batches(self, run: ScanRun) -> Iterator[pa.RecordBatch]:
        """See :class:`ScanPart`. Memory: that of all rows."""
        chunks = self._in_bulk(run)
        if chunks is None:
            yield from self._one_by_one.batches(run)
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

    def tables(
        self, run: ScanRun, *, keep_dictionaries: bool
    ) -> Iterator[pa.RecordBatch | pa.Table]:
        """See :class:`ScanPart`: one table."""
        chunks = self._in_bulk(run, keep_dictionaries=keep_dictionaries)
        if chunks is None:
            yield from self._one_by_one.tables(run, keep_dictionaries=keep_dictionaries)
        else:
            yield _as_table(run.source, chunks)

    def columns(self, run: ScanRun) -> Iterable[ColumnChunks]:
        """See :class:`ScanPart`."""
        chunks = self._in_bulk(run)
        return self._one_by_one.columns(run) if chunks is None else enumerate(chunks)

    def filter(
        self,
        search: Search,
        work: Callable[[Selection], R],
        *,
        stream: bool = False,
        window_rows: int | None = None,
    ) -> Iterator[R]:
        """See :class:`ScanPart`: one selection out of all rows."""
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
        yield from self._one_by_one.filter(search, work, stream=stream, window_rows=window_rows)

    def chunks(
        self, source: BoundProjection, *, keep_dictionaries: bool = False
    ) -> list[list[pa.Array]]:
        """Chunks of each field, deleted rows included; errors as :func:`read_small_files`."""
        batch = read_batch(source.snapshot, self.files)
        columns = column_of(self.files[0])
        fields = source.projection.fields
        return read_small_files(batch, fields, columns, keep_dictionaries=keep_dictionaries)

    def live_flags(self, source: BoundProjection) -> NDArray[np.bool_]:
        """One flag per physical row: whether it is not deleted."""
        flags = np.ones(self.starts[-1], np.bool_)
        snapshot = source.snapshot
        for rows, file, first in zip(self.ranges, self.files, self.starts, strict=False):
            if file.has_deletions:
                live = snapshot.live_rows(snapshot.manifest.fragment(rows.position))
                if live is not None:
                    flags[first + live.deleted_between(0, live.rows)] = False
        return flags

    def _in_bulk(
        self, run: ScanRun, *, keep_dictionaries: bool = False
    ) -> list[list[pa.Array]] | None:
        """Chunks of each field, live rows only; None where files have to be read one by one."""

        def read() -> list[list[pa.Array]]:
            chunks = self.chunks(run.source, keep_dictionaries=keep_dictionaries)
            if not self.has_deletions:
                return chunks
            mask = _mask(self.live_flags(run.source))
            return [pa.chunked_array(arrays).filter(mask).chunks for arrays in chunks]

        return in_bulk(run.meter, "scan of small fragments", len(self.ranges), read)

    def _live_counts(self, source: BoundProjection) -> list[int]:
        """Live rows of each fragment."""
        counts: list[int]
        if not self.has_deletions:
            counts = [file.rows for file in self.files]
        else:
            flags = self.live_flags(source)
            counts = np.add.reduceat(flags, self.starts[:-1], dtype=np.int64).tolist()
        return counts


@dataclass(frozen=True)  # no slots: derived values are cached on the instance
class _SmallSelection:
    """Live rows of small fragments that passed a filter (a ``Selection``): one flag per row."""

    part: SmallFragments
    source: BoundProjection
    decoded: LazyColumns
    flags: NDArray[np.bool_]

    @classmethod
    def of(cls, part: SmallFragments, search: Search) -> _SmallSelection:
        """Read the fragments and search them; errors as :func:`read_small_files`."""
        source = search.run.source
        arrays = [concat_arrays(chunks) for chunks in part.chunks(source)]

        def system(name: str) -> Any:
            parts = [
                SystemColumns(source.snapshot, rows.position).of(
                    name, np.arange(rows.stop, dtype=np.int64)
                )
                for rows in part.ranges
            ]
            return integer_array(np.concatenate(parts))

        # Projections with extension types are never read this way.
        decoded = LazyColumns(part.starts[-1], arrays.__getitem__, system, lambda _, array: array)
        flags = search.passing(decoded)
        return cls(
            part, source, decoded, flags & part.live_flags(source) if part.has_deletions else flags
        )

    @cached_property
    def count(self) -> int:
        """Rows that passed."""
        return int(np.count_nonzero(self.flags))

    def chunks(self, outputs: Sequence[Output | Computed], *, late: Late) -> list[Chunk]:
        """Their columns, in one chunk."""
        # Values are computed of the rows that pass: others may be none they exist for.
        passing = self.decoded.filtered(_mask(self.flags))
        return [[passing.output(output) for output in outputs]]

    def row_ranges(self) -> Iterator[tuple[int, Int64s]]:
        """Id of each fragment, and its selected rows."""
        rows, starts = np.flatnonzero(self.flags), self.part.starts
        cuts = np.searchsorted(rows, starts).tolist()
        ids = self.source.snapshot.manifest.fragment_ids
        for at, (first, last) in enumerate(pairwise(cuts)):
            if first < last:
                yield int(ids[self.part.ranges[at].position]), rows[first:last] - starts[at]


def _mask(flags: NDArray[np.bool_]) -> Any:
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pack_flags(flags)])


def _as_table(source: BoundProjection, chunks: Sequence[list[pa.Array]]) -> pa.Table:
    """A table; the arrays say what types the columns have, as some may keep dictionaries."""
    fields = [
        field.with_type(arrays[0].type) if arrays else field
        for field, arrays in zip(source.schema, chunks, strict=True)
    ]
    columns = [
        pa.chunked_array(arrays, field.type) for arrays, field in zip(chunks, fields, strict=True)
    ]
    metadata: Any = source.schema.metadata
    schema = pa.schema(fields, metadata)
    return pa.Table.from_arrays(columns, schema=schema)


def cut_into_parts(
    run: ScanRun, ranges: Sequence[FragmentRows], *, large: bool = False
) -> Sequence[ScanPart]:
    """Cut a plan into runs of small fragments and the ranges between them.

    With ``large``, runs are as long as memory of a few pages allows.
    """
    projection = run.source.projection
    special = projection.has_extension_types or projection.blob_contents
    suits = not special and suits_bulk_reads(projection.fields)
    if len(ranges) < MIN_RUN_FRAGMENTS or not suits or not run.is_mapped(ranges):
        return [FragmentWindows(ranges)]
    if large or not isinstance(ranges, AllRows):  # hardly cut that way again
        return list(_cut(run.source, ranges, _LARGE if large else _USUAL))
    parts = ranges.parts.get(projection.leaves)
    if parts is None:
        if len(ranges.parts) >= _MAX_PROJECTIONS:
            ranges.parts.clear()
        parts = ranges.parts[projection.leaves] = list(_cut(run.source, ranges, _USUAL))
    return parts


def _cut(
    source: BoundProjection, ranges: Sequence[FragmentRows], capacity: _Capacity
) -> Iterator[ScanPart]:
    projection = source.projection
    width = sum(value_bytes(field.to_arrow().type) for field in projection.fields)
    width = max(_NUMBER, width + _NUMBER * len(projection.system))
    max_rows = capacity.decoded // width
    first, at, end = 0, 0, len(ranges)
    while at < end:
        files = _run_of_files(source, ranges, at, capacity.stored, max_rows)
        if len(files) >= MIN_RUN_FRAGMENTS:
            if first < at:
                yield FragmentWindows(ranges[first:at])
            first = at + len(files)
            yield SmallFragments(ranges[at:first], files)
        at += max(1, len(files))
    if first < end:
        yield FragmentWindows(ranges[first:])


def _run_of_files(
    source: BoundProjection,
    ranges: Sequence[FragmentRows],
    start: int,
    max_bytes: int,
    max_rows: int,
) -> list[SingleFile]:
    """The small files of the longest run from a range on."""
    files: list[SingleFile] = []
    size = rows = 0
    for position, first, stop in ranges[start : start + _MAX_RUN_FRAGMENTS]:
        file = small_file(source, position)
        if file is None or first or stop != file.rows:
            break
        if not (file.layout == files[0].layout if files else has_columns(source, file)):
            break
        size += file.size
        rows += file.rows
        if files and (size > max_bytes or rows > max_rows):
            break
        files.append(file)
    return files


# --- Rows out of many small fragments at once -------------------------------------------
# Opening a file, even a small one, costs far more than finding a row in it. The small files
# that a take meets for the first time are read whole, in bulk; see
# :mod:`glaive.file.v2.small_files`. Those it meets again are opened, and stay so.

_MIN_FILES: Final = 4
"""Small files that are worth reading in bulk."""

_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes read at a time."""


def take_small(
    source: BoundProjection, positions: Int64s, fragment: Int64s, row: Int64s, meter: Meter
) -> list[tuple[Int64s, list[pa.Array]]]:
    """Those of some rows, none of them deleted, that are in small files not met before.

    Parameters
    ----------
    positions
        The distinct ones of ``fragment``, ascending.
    fragment, row
        Position of the fragment in the list, and physical row in it, of each row.

    Returns
    -------
    list of pairs
        Numbers of rows, ascending, and for these rows the values of each column. Empty where
        no rows are taken this way.
    """
    projection, snapshot = source.projection, source.snapshot
    special = not projection.plain or projection.has_extension_types or projection.blob_contents
    # In other stores requests wait for each other unless they are made side by side.
    if special or not snapshot.store.is_local:
        return []
    if len(positions) < _MIN_FILES or not suits_bulk_reads(projection.fields):
        return []
    numbers: list[int] = []
    files: list[SingleFile] = []
    for at, position in enumerate(positions.tolist()):
        file = small_file(source, position) if source.meets(position) else None
        if file is None or file.has_deletions or file.size > MAX_BYTES:
            continue
        if file.layout == files[0].layout if files else has_columns(source, file):
            numbers.append(at)
            files.append(file)
    if len(files) < _MIN_FILES:
        return []
    taken, number = [], np.searchsorted(positions, fragment)
    batch_of: Any = np.cumsum([file.size for file in files]) // _MAX_BATCH_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(batch_of)) + 1).tolist(), len(files)]
    for first, last in pairwise(cuts):
        file_number = np.full(len(positions), -1, np.int64)
        file_number[numbers[first:last]] = np.arange(last - first)
        file_of = file_number[number]
        chosen = np.flatnonzero(file_of >= 0)
        arrays = _take(source, files[first:last], file_of[chosen], row[chosen], meter)
        if arrays is not None:
            taken.append((chosen, arrays))
    return taken


def _take(
    source: BoundProjection, files: list[SingleFile], file: Int64s, row: Int64s, meter: Meter
) -> list[pa.Array] | None:
    """Row ``row[i]`` of file ``file[i]``; None where they have to be read file by file."""
    # Here and not above: takes from few fragments do not load it.
    from glaive.file.v2.small_files import take_small_files

    def take() -> list[pa.Array]:
        rows = np.array([each.rows for each in files])
        if bool((row >= rows[file]).any()) or int(row.min()) < 0:
            raise BulkReadError("a row is beyond its file")
        batch = read_batch(source.snapshot, files)
        fields = source.projection.fields
        return take_small_files(batch, fields, column_of(files[0]), file, row)

    return in_bulk(meter, "take from small fragments", len(files), take)
