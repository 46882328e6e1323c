"""A projection of one fragment: columns of all its files, live rows only."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from operator import is_
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending, number_array, pack_flags
from glaive.arrow.build import all_null
from glaive.arrow.chunked import has_known_width
from glaive.errors import ColumnNotFoundError, CorruptFileError, UnsupportedFeatureError
from glaive.file.protocol import BoundColumn, BoundColumns, in_proportion
from glaive.format.blobs import stored
from glaive.format.extension import extended
from glaive.format.field import Field
from glaive.format.fragment import DataFile, Fragment
from glaive.io.mapped import MappedReader
from glaive.io.store import RangeReader
from glaive.scan.projection import ROW_ADDRESS, ROW_ID, Projection, SystemColumns
from glaive.scan.snapshot import Snapshot
from glaive.types import ByteRange, as_buffer

if TYPE_CHECKING:
    from glaive.scan.projection import LazyColumns


_FRAGMENT_BYTES = 2048
"""Bytes of memory of a fragment, excluding its columns."""

THREADED_ROWS: Final = 16 * 1024
"""Minimum rows for a take on threads: with fewer, the interpreter lock makes threads wait."""


class BoundFragment:
    """The columns of a projection, bound to the files of one fragment. Immutable.

    Row numbers are physical: deleted rows count. ``nbytes`` estimates the memory held.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        position: int,
        fragment: Fragment,
        projection: Projection,
        columns: Sequence[BoundColumn],
        whole: BoundColumns | None,
        readers: Sequence[RangeReader],
    ) -> None:
        # Filters read storage types. JSON becomes a string in results only.
        self.stored = columns
        if projection.has_extension_types:
            from glaive.file.files import ExtensionColumns, as_extension

            logical = extended(pa.schema([column.field for column in columns]))
            if whole is not None and projection.plain:
                whole = ExtensionColumns(whole, logical)
            columns = [
                as_extension(column, field) for column, field in zip(columns, logical, strict=True)
            ]
        self.fragment = _with_fields_read(fragment, projection)
        self.projection = projection
        self.columns = columns
        self._read_columns = columns if projection.plain else self.stored
        self.readers = readers
        self.mapped = all(reader.mapped for reader in readers)
        self.rows = fragment.physical_rows
        self.live = snapshot.live_rows(fragment)
        self.position = position
        self._system = SystemColumns(snapshot, position) if projection.system else None
        self.nbytes = _FRAGMENT_BYTES
        # If all columns are in one file, their requests are joined.
        self._whole = whole

    @cached_property
    def cuts(self) -> NDArray[np.int64]:
        """Rows at which a page of any column begins, both ends included."""
        parts = [column.cuts() for column in self.columns]
        return ascending(np.concatenate([np.array([0, self.rows], np.int64), *parts]))

    @cached_property
    def unsized_cuts(self) -> NDArray[np.int64]:
        """Page starts of the column with most pages, among columns of variable width."""
        cuts = [column.cuts() for column in self.columns if not has_known_width(column.field.type)]
        return max(cuts, key=len, default=np.empty(0, np.int64))

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Read the live rows among ``start`` to ``stop``, one array per output."""
        sizes = self.projection.row_sizes
        checked = self.in_proportion(stop - start, len(self.columns))
        if self.live is not None and self.mapped and self.projection.plain:
            arrays = [checked(self.live.read(column, start, stop)) for column in self.columns]
            sizes.measure_all(arrays)
            return arrays
        if self._whole is not None:
            arrays = self._whole.read(start, stop)
        else:
            arrays = [checked(column.read(start, stop)) for column in self._read_columns]
        sizes.measure_all(arrays)
        if self.live is not None:
            arrays = self.live.keep(start, stop, arrays)
        if self.projection.plain:
            return arrays
        # Compute expressions of live rows only: values of deleted rows may raise.
        rows = np.arange(start, stop) if self.live is None else self.live.among(start, stop)
        return self.outputs(arrays, rows)

    def in_proportion(self, rows: int, fields: int) -> Callable[[pa.Array], pa.Array]:
        """Return a size check for arrays of ``fields`` fields; see ``file.protocol``."""
        sized = () if self.projection.blob_contents else self.readers  # blobs are in other files
        return in_proportion(rows, fields, self.projection.row_sizes.max_width, sized)

    def expect(self, pattern: Literal["random", "sequential"]) -> None:
        """Tell the files how they will be read."""
        for reader in self.readers:
            reader.advise_pattern(pattern)

    def is_cold(self) -> bool:
        """Return whether parts of the mapped files are on disk only, by a sample."""
        return any(isinstance(reader, MappedReader) and reader.is_cold() for reader in self.readers)

    def take(self, rows: NDArray[np.int64]) -> list[pa.Array]:
        """Take rows by physical position, in the order given; return one array per output."""
        if self._whole is not None:
            arrays = self._whole.take(rows)
        else:
            arrays = [column.take(rows) for column in self._read_columns]
        return arrays if self.projection.plain else self.outputs(arrays, rows)

    def prefetch(self, rows: NDArray[np.int64]) -> bool:
        """Have the system read the pages that a take of these rows needs, if they are known."""
        return self._whole is not None and self._whole.prefetch(rows)

    def outputs(
        self, arrays: Sequence[pa.Array], rows: NDArray[np.int64], *, deleted: bool = False
    ) -> list[pa.Array]:
        """Compute the columns of the result from the stored fields read for ``rows``."""
        columns = self.lazy_columns(rows, lambda at: arrays[at], deleted=deleted)
        return [columns.output(output) for output in self.projection.outputs]

    def lazy_columns(
        self, rows: NDArray[np.int64], read: Callable[[int], Any], *, deleted: bool = False
    ) -> LazyColumns:
        """Return physical rows whose fields ``read`` reads on demand.

        ``deleted`` means the same as for :meth:`system`.
        """
        from glaive.scan.projection import LazyColumns

        system = partial(self.system, rows=rows, deleted=deleted)
        return LazyColumns(len(rows), read, system, self.logical)

    def logical(self, at: int, array: Any) -> Any:
        """Convert a stored field to its logical type, which results have."""
        column = self.columns[at]
        if column is self.stored[at]:
            return array
        from glaive.arrow.extensions import to_type

        return to_type(array, column.field.type, f"column {column.field.name!r}")

    @property
    def system_columns(self) -> SystemColumns:
        """The computed columns; the projection must name one."""
        if self._system is None:
            raise ColumnNotFoundError("the projection has no system columns. Add one to it.")
        return self._system

    def system(self, name: str, rows: NDArray[np.int64], *, deleted: bool = False) -> Any:
        """Return a system column for physical rows.

        With ``deleted``, ids and addresses of deleted rows are null.
        """
        values = self.system_columns.of(name, rows)
        if deleted and self.live is not None and name in (ROW_ID, ROW_ADDRESS):
            there = pack_flags(~self.live.is_deleted(rows))
            return pa.Array.from_buffers(pa.uint64(), len(rows), [there, as_buffer(values)])
        return number_array(values)


def bind_fragment(snapshot: Snapshot, position: int, projection: Projection) -> BoundFragment:
    """Open the files of a fragment that a projection needs.

    Raises
    ------
    DataFileMissingError
        A needed file is missing. Other files stay unchecked.
    CorruptFileError
        A column has a different number of rows than the fragment. Or all files lack a required
        column.
    """
    fragment = snapshot.manifest.fragment(position)
    if len(fragment.files) == 1:
        entry = fragment.files[0]
        column_of = _columns(entry)
        if column_of.keys() >= projection.leaves:  # the usual case: one file has all columns
            if not projection.leaves:
                snapshot.check_rows(fragment)
            file, rows = snapshot.open_file(entry), fragment.physical_rows

            def load() -> tuple[BoundColumns, int]:
                bound = file.bind(projection.fields, column_of, rows)
                return bound, bound.nbytes

            # Later versions bind the same columns of the file.
            opened = (file.reader.path, weakref.ref(file))
            key = (*opened, projection.read_as, entry.fields, entry.column_indices, rows)
            in_file: BoundColumns = snapshot.session.cache.get_or_load(key, load)
            columns = _with_blob_contents(snapshot, fragment, projection, in_file.columns)
            whole = None if projection.blob_contents else in_file
            readers = [file.reader]
            return BoundFragment(snapshot, position, fragment, projection, columns, whole, readers)
    return _bind_several(snapshot, position, projection)


def _bind_several(snapshot: Snapshot, position: int, projection: Projection) -> BoundFragment:
    """Bind columns that are in several files or are missing."""
    fragment = snapshot.manifest.fragment(position)
    file_of: dict[int, int] = {}
    for at, entry in enumerate(fragment.files):
        for field_id in _columns(entry):
            # Datasets that old releases damaged list an id twice: the first file counts.
            file_of.setdefault(field_id, at)
    by_file: dict[int, list[Field]] = {}
    parts: list[list[int]] = []
    for field in projection.fields:
        files = sorted({file_of[leaf.id] for leaf in field.leaf_columns() if leaf.id in file_of})
        if not files and not field.nullable:
            raise CorruptFileError(
                f"column {field.name!r} of fragment {fragment.id}",
                expected="values in one of its files, as it is never null",
                found="none",
                where=snapshot.manifest.where,
            )
        parts.append(files)
        for file in files:
            by_file.setdefault(file, []).append(_part_in_file(field, file_of, file))
    bound_of: dict[int, BoundColumns] = {}
    readers: list[RangeReader] = []
    for at, fields in by_file.items():
        entry = fragment.files[at]
        reader = snapshot.open_file(entry)
        bound_of[at] = reader.bind(fields, _columns(entry), fragment.physical_rows)
        readers.append(reader.reader)
    if not bound_of:
        snapshot.check_rows(fragment)
    remaining = {at: iter(columns.columns) for at, columns in bound_of.items()}
    columns: list[BoundColumn] = []
    for field, files in zip(projection.fields, parts, strict=True):
        pieces = [next(remaining[at]) for at in files]
        if not pieces:
            columns.append(_NullColumn(stored(field).to_arrow(), fragment.physical_rows))
        elif len(pieces) == 1:
            columns.append(pieces[0])
        else:
            columns.append(_SplitStruct(field.to_arrow(), pieces))
    columns = _with_blob_contents(snapshot, fragment, projection, columns)
    single = len(bound_of) == 1 and all(parts) and not projection.blob_contents
    whole = next(iter(bound_of.values())) if single else None
    bound = BoundFragment(snapshot, position, fragment, projection, columns, whole, readers)
    bound.nbytes += sum(parts.nbytes for parts in bound_of.values())
    return bound


def _with_blob_contents(
    snapshot: Snapshot, fragment: Fragment, projection: Projection, columns: Sequence[BoundColumn]
) -> list[BoundColumn]:
    """Return the columns, with blob values in place of descriptions where the projection asks."""
    if not projection.blob_contents:
        return list(columns)
    from glaive.scan.blob_values import BlobContentsColumn, LogicalColumn

    kind = LogicalColumn if projection.blobs == "logical" else BlobContentsColumn
    made: list[BoundColumn] = list(columns)
    for at in projection.blob_contents:
        made[at] = kind(columns[at], projection.fields[at], snapshot, fragment)
    return made


def _with_fields_read(fragment: Fragment, projection: Projection) -> Fragment:
    """Return the fragment with only the fields to read: there may be thousands."""
    files = []
    for file in fragment.files:
        kept = [pair for pair in file.columns().items() if pair[0] in projection.field_ids]
        if not file.column_indices or len(kept) == len(file.fields):
            files.append(file)
            continue
        fields, columns = tuple(number for number, _ in kept), tuple(column for _, column in kept)
        files.append(replace(file, fields=fields, column_indices=columns))
    if all(map(is_, files, fragment.files)):
        return fragment
    return replace(fragment, files=tuple(files))


def _columns(file: DataFile) -> dict[int, int]:
    """Return the column index by field id of a file."""
    pairs = file.columns().items()
    return {field_id: column for field_id, column in pairs if column >= 0}


def _part_in_file(field: Field, file_of: dict[int, int], file: int) -> Field:
    """Return the field with only the leaves in one file, or missing in all files."""
    if all(file_of.get(leaf.id, file) == file for leaf in field.leaf_columns()):
        return field
    if field.logical_type != "struct":
        raise UnsupportedFeatureError(
            f"column {field.name!r} ({field.logical_type}) has its parts in several data files, "
            "which glaive reads for structs only. Leave out the column, or upgrade glaive."
        )
    kept = tuple(
        _part_in_file(child, file_of, file)
        for child in field.children
        if any(file_of.get(leaf.id) == file for leaf in child.leaf_columns())
    )
    return replace(field, children=kept)


class _NullColumn(BoundColumn):
    """A column that was added later: all null in this fragment."""

    def __init__(self, field: pa.Field, rows: int) -> None:
        self.field = field
        self.num_rows = rows

    def cuts(self) -> NDArray[np.int64]:
        return np.array([0, self.num_rows], np.int64)

    def read(self, start: int, stop: int) -> Any:
        return all_null(self.field.type, stop - start)

    def take(self, rows: NDArray[np.int64]) -> Any:
        return all_null(self.field.type, len(rows))

    plan_read = read
    plan_take = take


class _SplitStruct(BoundColumn):
    """A struct whose members are in several files."""

    def __init__(self, field: pa.Field, pieces: Sequence[BoundColumn]) -> None:
        self.field = field
        self.pieces = pieces
        self.num_rows = pieces[0].num_rows

    def cuts(self) -> NDArray[np.int64]:
        return ascending(np.concatenate([piece.cuts() for piece in self.pieces]))

    def read(self, start: int, stop: int) -> Any:
        return _merge(self.field.type, [piece.read(start, stop) for piece in self.pieces])

    def take(self, rows: NDArray[np.int64]) -> Any:
        return _merge(self.field.type, [piece.take(rows) for piece in self.pieces])

    plan_read = read
    plan_take = take


def _merge(kind: Any, arrays: Sequence[Any]) -> Any:
    """Merge structs with some members each into one struct of ``kind``.

    A merged value is null where all parts are null. Where only one part is null, its members are.
    """
    missing = [array.is_null() if array.null_count else None for array in arrays]
    nulls = reduce(_null_in_both, missing)
    found: dict[str, list[Any]] = {}
    for array in arrays:
        for member, part in zip(array.type, array.flatten(), strict=True):
            found.setdefault(member.name, []).append(part)
    members = []
    for member in kind:
        parts = found.get(member.name)
        if parts is None:
            members.append(all_null(member.type, len(arrays[0])))
        else:
            members.append(parts[0] if len(parts) == 1 else _merge(member.type, parts))
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=nulls)


def _null_in_both(first: Any, second: Any) -> Any:
    """Return which rows are null in both; ``None`` if all have values."""
    if first is None or second is None:
        return None
    import pyarrow.compute as pc

    return pc.and_(first, second)


# --- Unmapping pages that a stream has read ---------------------------------------------
# The pages stay in the system's cache and views stay valid. Reading a view maps its pages again,
# at about a microsecond for 64 KiB. Otherwise the resident size of a process that streams files
# would grow to the size of the files.

_UNMAP_BYTES: Final = 16 * 1024 * 1024
"""Decoded bytes between two times that a stream unmaps pages.

The next scan must map them again: a smaller limit saves memory and costs time.
"""

_MAX_MAPPED_BYTES: Final = 48 * 1024 * 1024
"""Decoded bytes of a whole stream up to which it keeps all pages, as for a column of numbers."""

_SEARCH_UNMAP_BYTES: Final = 256 * 1024 * 1024
"""The limit for rows that a search found: mapping single pages again costs more than reading."""


class PassedPages:
    """The mapped files that a stream has read since it last unmapped their pages.

    Parameters
    ----------
    expected
        Approximate bytes that the stream decodes in all, if known.
    searched
        The stream may take single rows of pages.
    """

    __slots__ = ("_limit", "_readers", "_size")

    def __init__(self, expected: int | None = None, *, searched: bool = False) -> None:
        self._readers: dict[int, Sequence[RangeReader]] = {}  # a fragment would hold more memory
        self._limit = _SEARCH_UNMAP_BYTES if searched else _UNMAP_BYTES
        if expected is not None and expected <= _MAX_MAPPED_BYTES:
            self._limit = max(self._limit, _MAX_MAPPED_BYTES)
        self._size = 0

    def add(self, bound: BoundFragment, size: int) -> None:
        """Record that the stream used about ``size`` bytes of a fragment; unmap at the limit."""
        self._readers[bound.fragment.id] = bound.readers
        self._size += size
        if self._size >= self._limit:
            self.release()

    def release(self) -> None:
        """Unmap the pages of these fragments from this process, in about 20 us a file."""
        for readers in self._readers.values():
            for reader in readers:
                if reader.mapped:
                    reader.advise([ByteRange(0, reader.size)], "dontneed")
        self._readers.clear()
        self._size = 0
