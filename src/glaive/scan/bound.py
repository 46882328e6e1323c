"""One fragment seen through a projection: its files side by side, deleted rows left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending, integer_array, pack_flags
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
"""Bytes of memory of a fragment beside its columns."""


class BoundFragment:
    """The columns of a projection, tied to the files of one fragment. Immutable.

    Row numbers are physical: deleted rows count. ``nbytes`` estimates the memory held at last.
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
        # What filters see: storage types. JSON is text in results only.
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
        self._made = columns if projection.plain else self.stored
        self.readers = readers
        self.mapped = all(reader.mapped for reader in readers)
        self.rows = fragment.physical_rows
        self.live = snapshot.live_rows(fragment)
        self.position = position
        self._system = SystemColumns(snapshot, position) if projection.system else None
        self.nbytes = _FRAGMENT_BYTES
        # With all columns in one file, its requests are joined.
        self._whole = whole

    @cached_property
    def cuts(self) -> NDArray[np.int64]:
        """Rows at which a page of any column begins, both ends included."""
        parts = [column.cuts() for column in self.columns]
        return ascending(np.concatenate([np.array([0, self.rows], np.int64), *parts]))

    @cached_property
    def unsized_cuts(self) -> NDArray[np.int64]:
        """The same of the column with most pages of those whose values may be of any size."""
        cuts = [column.cuts() for column in self.columns if not has_known_width(column.field.type)]
        return max(cuts, key=len, default=np.empty(0, np.int64))

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Live rows among ``start`` to ``stop``, one array per output."""
        sizes = self.projection.row_sizes
        checked = self.in_proportion(stop - start, len(self.columns))
        if self.live is not None and self.mapped and self.projection.plain:
            arrays = [checked(self.live.read(column, start, stop)) for column in self.columns]
            sizes.see_all(arrays)
            return arrays
        if self._whole is not None:
            arrays = self._whole.read(start, stop)
        else:
            arrays = [checked(column.read(start, stop)) for column in self._made]
        sizes.see_all(arrays)
        if self.live is not None:
            arrays = self.live.keep(start, stop, arrays)
        if self.projection.plain:
            return arrays
        # Nothing is computed of deleted rows: their values may be none that it exists for.
        rows = np.arange(start, stop) if self.live is None else self.live.among(start, stop)
        return self.outputs(arrays, rows)

    def in_proportion(self, rows: int, fields: int) -> Callable[[pa.Array], pa.Array]:
        """A check of the arrays of so many fields; see ``in_proportion`` of ``file.protocol``."""
        sized = () if self.projection.blob_contents else self.readers  # others are elsewhere
        return in_proportion(rows, fields, self.projection.row_sizes.most, sized)

    def expect(self, pattern: Literal["random", "sequential"]) -> None:
        """Tell the files how they will be read."""
        for reader in self.readers:
            reader.advise_pattern(pattern)

    def is_cold(self) -> bool:
        """Whether parts of the mapped files are not in memory, by a sample."""
        return any(isinstance(reader, MappedReader) and reader.is_cold() for reader in self.readers)

    def take(self, rows: NDArray[np.int64]) -> list[pa.Array]:
        """The rows at these physical positions, one array per output, in this order."""
        if self._whole is not None:
            arrays = self._whole.take(rows)
        else:
            arrays = [column.take(rows) for column in self._made]
        return arrays if self.projection.plain else self.outputs(arrays, rows)

    def prefetch(self, rows: NDArray[np.int64]) -> bool:
        """Have the system read what a take of these rows touches, if that is known."""
        return self._whole is not None and self._whole.prefetch(rows)

    def outputs(
        self, arrays: Sequence[pa.Array], rows: NDArray[np.int64], *, deleted: bool = False
    ) -> list[pa.Array]:
        """Columns of the result from the fields, as stored, that were read for ``rows``."""
        columns = self.lazy_columns(rows, lambda at: arrays[at], deleted=deleted)
        return [columns.output(output) for output in self.projection.outputs]

    def lazy_columns(
        self, rows: NDArray[np.int64], read: Callable[[int], Any], *, deleted: bool = False
    ) -> LazyColumns:
        """Physical rows, whose fields ``read`` gets; ``deleted`` as for :meth:`system`."""
        from glaive.scan.projection import LazyColumns

        system = partial(self.system, rows=rows, deleted=deleted)
        return LazyColumns(len(rows), read, system, self.logical)

    def logical(self, at: int, array: Any) -> Any:
        """A stored field in its logical type, which results have."""
        column = self.columns[at]
        if column is self.stored[at]:
            return array
        from glaive.arrow.extensions import to_type

        return to_type(array, column.field.type, f"column {column.field.name!r}")

    @property
    def system_columns(self) -> SystemColumns:
        """The columns that no file has; the projection must name one of them."""
        if self._system is None:
            raise ColumnNotFoundError("the projection has no system columns")
        return self._system

    def system(self, name: str, rows: NDArray[np.int64], *, deleted: bool = False) -> Any:
        """Values of a system column for physical rows; ``deleted`` ones lack id and address."""
        values = self.system_columns.of(name, rows)
        if deleted and self.live is not None and name in (ROW_ID, ROW_ADDRESS):
            there = pack_flags(~self.live.is_deleted(rows))
            return pa.Array.from_buffers(pa.uint64(), len(rows), [there, as_buffer(values)])
        return integer_array(values)


def bind_fragment(snapshot: Snapshot, position: int, projection: Projection) -> BoundFragment:
    """Open what a projection needs of a fragment.

    Raises
    ------
    DataFileMissingError
        A file that is needed does not exist; files that are not needed are not looked at.
    CorruptFileError
        A column has other rows than the fragment, or a column that is never null is nowhere.
    """
    fragment = snapshot.manifest.fragment(position)
    if len(fragment.files) == 1:
        entry = fragment.files[0]
        column_of = _columns(entry)
        if column_of.keys() >= projection.leaves:  # the usual case: all in one file
            if not projection.leaves:
                snapshot.check_rows(fragment)
            file = snapshot.open_file(entry)
            all_of_it = file.bind(projection.fields, column_of, fragment.physical_rows)
            columns = _with_blob_contents(snapshot, fragment, projection, all_of_it.columns)
            whole = None if projection.blob_contents else all_of_it
            bound = BoundFragment(
                snapshot, position, fragment, projection, columns, whole, [file.reader]
            )
            bound.nbytes += all_of_it.nbytes
            return bound
    return _bind_several(snapshot, position, projection)


def _bind_several(snapshot: Snapshot, position: int, projection: Projection) -> BoundFragment:
    """Bind columns that are in several files, or in none."""
    fragment = snapshot.manifest.fragment(position)
    homes: dict[int, int] = {}
    for at, entry in enumerate(fragment.files):
        for field_id in _columns(entry):
            # Damaged datasets of old releases list an id twice: the first file counts.
            homes.setdefault(field_id, at)
    by_file: dict[int, list[Field]] = {}
    parts: list[list[int]] = []
    for field in projection.fields:
        files = sorted({homes[leaf.id] for leaf in field.leaf_columns() if leaf.id in homes})
        if not files and not field.nullable:
            raise CorruptFileError(
                f"column {field.name!r} of fragment {fragment.id}",
                expected="values in one of its files, as it is never null",
                found="none",
                where=snapshot.manifest.where,
            )
        parts.append(files)
        for file in files:
            by_file.setdefault(file, []).append(_within(field, homes, file))
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
    """The columns, those of blobs as values where these are wanted."""
    if not projection.blob_contents:
        return list(columns)
    from glaive.scan.blob_values import BlobContentsColumn, LogicalColumn

    kind = LogicalColumn if projection.blobs == "logical" else BlobContentsColumn
    made: list[BoundColumn] = list(columns)
    for at in projection.blob_contents:
        made[at] = kind(columns[at], projection.fields[at], snapshot, fragment)
    return made


def _with_fields_read(fragment: Fragment, projection: Projection) -> Fragment:
    """The fragment, its files with those fields only that are read: there may be thousands."""
    wanted = {member.id for field in projection.fields for member in field.walk()}
    files = []
    for file in fragment.files:
        kept = [pair for pair in file.columns().items() if pair[0] in wanted]
        if not file.column_indices or len(kept) == len(file.fields):
            files.append(file)
            continue
        fields, columns = tuple(number for number, _ in kept), tuple(column for _, column in kept)
        files.append(replace(file, fields=fields, column_indices=columns))
    return replace(fragment, files=tuple(files))


def _columns(file: DataFile) -> dict[int, int]:
    """Column index by id of the fields that a file holds."""
    pairs = file.columns().items()
    return {field_id: column for field_id, column in pairs if column >= 0}


def _within(field: Field, homes: dict[int, int], file: int) -> Field:
    """The field with those leaves only that one file holds, or that no file holds."""
    if all(homes.get(leaf.id, file) == file for leaf in field.leaf_columns()):
        return field
    if field.logical_type != "struct":
        raise UnsupportedFeatureError(
            f"the parts of column {field.name!r} ({field.logical_type}) are spread over several "
            "data files, which this version of glaive reads for structs only"
        )
    kept = tuple(
        _within(child, homes, file)
        for child in field.children
        if any(homes.get(leaf.id) == file for leaf in child.leaf_columns())
    )
    return replace(field, children=kept)


class _NullColumn(BoundColumn):
    """A column that no file of the fragment has: it was added later."""

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
    """One struct of ``kind`` from structs with some of its members each.

    Null where all of them are; the members of one that is null, beside others, are null.
    """
    missing = [array.is_null() if array.null_count else None for array in arrays]
    nulls = reduce(_both, missing)
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


def _both(first: Any, second: Any) -> Any:
    """What is null in both; None: nothing is."""
    if first is None or second is None:
        return None
    import pyarrow.compute as pc

    return pc.and_(first, second)


# --- Pages of mapped files that a stream has passed, taken out of this process's memory -
# They stay in the system's cache, and views of them stay valid: who reads one maps its pages
# again, which costs about a microsecond for 64 KiB. Without this, a stream over files larger than
# memory would look as large as the files.

_STREAMED_BYTES: Final = 16 * 1024 * 1024
"""Decoded bytes after which pages are let go of.

The next scan must map them again, so this is a matter of memory against time.
"""

_KEPT_BYTES: Final = 48 * 1024 * 1024
"""Decoded bytes of a whole stream up to which it lets go of nothing: a column of numbers."""

_SEARCHED_BYTES: Final = 256 * 1024 * 1024
"""The same of rows that a search found: mapping single pages again costs more than reading them."""


class PassedPages:
    """What one stream has read of mapped files since it last let go of their pages.

    Parameters
    ----------
    expected
        Bytes that the stream decodes in all, about, if that is known.
    searched
        Single rows may be taken out of the pages.
    """

    __slots__ = ("_limit", "_readers", "_size")

    def __init__(self, expected: int | None = None, *, searched: bool = False) -> None:
        self._readers: dict[int, Sequence[RangeReader]] = {}  # not fragments, which hold more
        self._limit = _SEARCHED_BYTES if searched else _STREAMED_BYTES
        if expected is not None and expected <= _KEPT_BYTES:
            self._limit = max(self._limit, _KEPT_BYTES)
        self._size = 0

    def add(self, bound: BoundFragment, size: int) -> None:
        """Rows of a fragment were used, of ``size`` bytes, about; lets go of pages in time."""
        self._readers[bound.fragment.id] = bound.readers
        self._size += size
        if self._size >= self._limit:
            self.let_go()

    def let_go(self) -> None:
        """Take the pages of these fragments out of this process's memory; 20 us a file."""
        for readers in self._readers.values():
            for reader in readers:
                if reader.mapped:
                    reader.advise([ByteRange(0, reader.size)], "dontneed")
        self._readers.clear()
        self._size = 0
