"""Fragments in manifests and transactions: rows, data files, deletions.

These values are created on demand from the wire message, as a manifest can have many fragments.

Specification: "Fragments and data files" in ``docs/format``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final, Self, TypeVar, overload

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.format.wire import MAX_FRAGMENT_ID, MAX_FRAGMENT_ROWS, check_file_name, parse
from glaive.types import FormatVersion, Int64s

TOMBSTONE = -2
"""Replaces a field id if the data of the column is now in another file."""


LEGACY = FormatVersion(0, 1)
"""Entries of files in this version list only fields."""

_VERSIONS = {
    text: FormatVersion(*map(int, text.split("."))) for text in ("0.1", "2.0", "2.1", "2.2", "2.3")
}

_TRANSACTION = "the transaction"
"""Source of uncommitted fragments, for messages."""


def storage_version(major: int, minor: int) -> FormatVersion:
    """Format version from the numbers in a data file entry, including old ones of 2.0 and 0.1."""
    if (major, minor) == (0, 3):
        return FormatVersion(2, 0)
    return FormatVersion(0, 1) if major == 0 else FormatVersion(major, minor)


def known_version(text: str, where: object) -> FormatVersion:
    """Return the format version that a manifest names for new data files.

    Raises
    ------
    UnsupportedFeatureError
        The version is unknown.
    """
    known = _VERSIONS.get(text)
    if known is None:
        raise UnsupportedFeatureError(
            f"unknown data storage version {text!r} (in {where}); this reader knows "
            f"{', '.join(_VERSIONS)}. The dataset was probably written by a newer Lance: upgrade "
            "glaive."
        )
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One data file of a fragment: some columns of all its rows.

    Parameters
    ----------
    path
        Relative to ``data/`` of the base.
    fields
        Field ids in the file; -2 for columns that were replaced.
    column_indices
        Physical column of each field, or -1; empty in 0.1 files.
    version
        Format version of the file.
    size
        Bytes, if known.
    base_id
        Base path of the file; ``None`` for the dataset itself.
    """

    path: str
    fields: tuple[int, ...]
    column_indices: tuple[int, ...]
    version: FormatVersion
    size: int | None = None
    base_id: int | None = None

    def columns(self) -> dict[int, int]:
        """Return the physical column by field id; in 0.1 files ids count from the lowest one.

        Raises
        ------
        CorruptFileError
            The numbers of columns and fields differ, or one field has two columns.
        """
        if not self.column_indices and self.version == LEGACY:
            lowest = min((field for field in self.fields if field >= 0), default=0)
            return {field: field - lowest for field in self.fields if field >= 0}
        columns = {field_id: column for field_id, column in self._pairs() if field_id >= 0}
        if len(columns) < len(self.fields):  # some are tombstones, or the same
            counts = Counter(field for field in self.fields if field >= 0)
            for field, times in counts.most_common(1):
                if times > 1:
                    raise CorruptFileError(
                        "fields of a data file",
                        expected="each once",
                        found=f"field {field} {times} times",
                        where=self.path,
                    )
        return columns

    def column_of(self, field_id: int) -> int | None:
        """Return a field's physical column, also of hidden fields; ``None`` if the file lacks it.

        Errors as for :meth:`columns`.
        """
        if field_id not in self.fields:
            return None
        return next((column for candidate, column in self._pairs() if candidate == field_id), None)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        if len(self.fields) != len(self.column_indices):
            raise CorruptFileError(
                "columns of a data file",
                expected=f"{len(self.fields)}, one per field",
                found=f"{len(self.column_indices)}",
                where=self.path,
            )
        return zip(self.fields, self.column_indices, strict=True)

    @classmethod
    def from_wire(cls, wire: table_pb2.DataFile, where: object = _TRANSACTION) -> DataFile:
        """Read the wire message.

        Raises
        ------
        CorruptFileError
            Its path leads out of the folder of data files.
        """
        check_file_name(wire.path, "path of a data file", where)
        return cls(
            path=wire.path,
            fields=tuple(wire.fields),
            column_indices=tuple(wire.column_indices),
            version=storage_version(wire.file_major_version, wire.file_minor_version),
            size=wire.file_size_bytes or None,
            base_id=wire.base_id if wire.HasField("base_id") else None,
        )

    def to_wire(self) -> table_pb2.DataFile:
        """Make the wire message."""
        version = self.version
        return table_pb2.DataFile(
            path=self.path,
            fields=self.fields,
            column_indices=self.column_indices,
            file_major_version=version.major,
            file_minor_version=2 if version == FormatVersion(0, 1) else version.minor,
            file_size_bytes=self.size or 0,
            base_id=self.base_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionFile:
    """The deleted rows of a fragment.

    Parameters
    ----------
    bitmap
        Whether the file is a roaring bitmap; otherwise an Arrow file.
    read_version, number
        Parts of the file's name.
    rows
        Number of deleted rows; ``None`` in old datasets.
    base_id
        Base path of the file; ``None`` for the dataset itself.
    checksum
        Of all bytes of the file; ``None`` if it is unknown.
    """

    bitmap: bool
    read_version: int
    number: int
    rows: int | None
    base_id: int | None = None
    checksum: int | None = None

    @classmethod
    def from_wire(cls, wire: table_pb2.DeletionFile) -> DeletionFile:
        """Read the wire message."""
        return cls(
            bitmap=wire.file_type == table_pb2.DeletionFile.BITMAP,
            read_version=wire.read_version,
            number=wire.id,
            rows=wire.num_deleted_rows or None,
            base_id=wire.base_id if wire.HasField("base_id") else None,
            checksum=wire.checksum if wire.HasField("checksum") else None,
        )

    def to_wire(self) -> table_pb2.DeletionFile:
        """Make the wire message."""
        kinds = table_pb2.DeletionFile
        return kinds(
            file_type=kinds.BITMAP if self.bitmap else kinds.ARROW_ARRAY,
            read_version=self.read_version,
            id=self.number,
            num_deleted_rows=self.rows or 0,
            base_id=self.base_id,
            checksum=self.checksum,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A horizontal part of a dataset.

    Parameters
    ----------
    id
        Identity within the dataset; 0 in transactions if the commit assigns it.
    files
        Data files; each live column is in at most one of them.
    physical_rows
        Rows in the files, including deleted rows.
    deletion_file
        Absent when all rows are live.
    row_ids
        Stable row ids in wire format, if the dataset has them.
    row_ids_in_column
        Whether the stable row ids are in the hidden column of field -3 instead.
    updated_at, created_at
        Versions that last updated and created the rows, in wire format.
    updated_at_in_column, created_at_in_column
        Whether those versions are in the hidden columns of fields -5 and -4 instead.
    """

    id: int = 0
    files: tuple[DataFile, ...]
    physical_rows: int
    deletion_file: DeletionFile | None = None
    row_ids: bytes | None = None
    row_ids_in_column: bool = False
    updated_at: bytes | None = None
    created_at: bytes | None = None
    updated_at_in_column: bool = False
    created_at_in_column: bool = False

    @property
    def num_deletions(self) -> int | None:
        """Deleted rows; ``None`` if only the deletion file has their number."""
        return 0 if self.deletion_file is None else self.deletion_file.rows

    @classmethod
    def from_wire(cls, wire: table_pb2.DataFragment, where: object = _TRANSACTION) -> Fragment:
        """Read the wire message; errors as for :func:`check_fragment`."""
        _check_numbers(wire, where)
        deleted = wire.HasField("deletion_file")
        return cls(
            id=wire.id,
            files=tuple([DataFile.from_wire(file, where) for file in wire.files]),
            physical_rows=wire.physical_rows,
            deletion_file=DeletionFile.from_wire(wire.deletion_file) if deleted else None,
            row_ids=wire.inline_row_ids or None,
            row_ids_in_column=wire.HasField("column_row_ids"),
            updated_at=wire.inline_last_updated_at_versions or None,
            created_at=wire.inline_created_at_versions or None,
            updated_at_in_column=wire.HasField("column_last_updated_at_versions"),
            created_at_in_column=wire.HasField("column_created_at_versions"),
        )

    def to_wire(self) -> table_pb2.DataFragment:
        """Make the wire message."""
        wire = table_pb2.DataFragment(
            id=self.id,
            files=[file.to_wire() for file in self.files],
            physical_rows=self.physical_rows,
        )
        if self.deletion_file is not None:
            wire.deletion_file.CopyFrom(self.deletion_file.to_wire())
        if self.row_ids is not None:
            wire.inline_row_ids = self.row_ids
        if self.row_ids_in_column:
            wire.column_row_ids.SetInParent()
        if self.updated_at is not None:
            wire.inline_last_updated_at_versions = self.updated_at
        if self.created_at is not None:
            wire.inline_created_at_versions = self.created_at
        if self.updated_at_in_column:
            wire.column_last_updated_at_versions.SetInParent()
        if self.created_at_in_column:
            wire.column_created_at_versions.SetInParent()
        return wire


class SingleFile(NamedTuple):
    """The only data file of a fragment, in the dataset's own folder of data files.

    Parameters
    ----------
    path, size
        Its path below the dataset, checked, and its bytes according to the manifest.
    rows
        Physical rows of the fragment.
    has_deletions
        Whether some of them are deleted.
    layout
        Format version, field ids and their columns: the same for files with a common layout.
    """

    path: str
    size: int
    rows: int
    has_deletions: bool
    layout: tuple[FormatVersion, tuple[int, ...], tuple[int, ...]]

    @classmethod
    def of(cls, fragment: Fragment, max_size: int) -> SingleFile | None:
        """Return the only file of a fragment, if it has one of at most a size, or ``None``.

        Return ``None`` too if its name is unusual; the code that opens the file reports that.
        """
        if len(fragment.files) != 1:
            return None
        file = fragment.files[0]
        size = file.size
        if size is None or size > max_size or file.base_id is not None:
            return None
        if not file.path.endswith(".lance"):
            return None
        return cls(
            data_file_path(file.path),
            size,
            fragment.physical_rows,
            fragment.deletion_file is not None,
            (file.version, file.fields, file.column_indices),
        )


def check_fragment(wire: table_pb2.DataFragment, where: object) -> None:
    """Check the message of a fragment.

    Raises
    ------
    CorruptFileError
        Its id or row count exceeds the range of row addresses. Or it has more deleted rows than
        rows, or the path of a file leads out of the data folder.
    """
    _check_numbers(wire, where)
    for file in wire.files:
        check_file_name(file.path, "path of a data file", where)


def _check_numbers(wire: table_pb2.DataFragment, where: object) -> None:
    number, rows = wire.id, wire.physical_rows
    if number > MAX_FRAGMENT_ID or rows > MAX_FRAGMENT_ROWS:
        raise CorruptFileError(
            "fragment",
            expected="an id below 2^32, and at most 2^32 rows",
            found=f"id {number}, {rows} rows",
            where=where,
        )
    if wire.HasField("deletion_file"):
        deleted = wire.deletion_file.num_deleted_rows
        if 0 < rows < deleted:  # releases up to 0.7 omitted the rows
            raise CorruptFileError(
                f"deleted rows of fragment {number}",
                expected=f"at most {rows}, its rows",
                found=f"{deleted}",
                where=where,
            )


# --- Numbers of all fragments of a manifest, read all at once ---------------------------
#
# Protobuf merges repeated occurrences of a message field. Parsed as a message whose numbers are
# lists, all fragments become one message, so a single parse yields the list of their ids. Zeros
# are omitted on the wire. If that makes a list too short, a marker is inserted before each
# fragment: it identifies the fragments that omit a number.
#
# Specification: "Fragments and data files" in ``docs/format``.

M = TypeVar("M", bound=Message)
_MARK: Final = 2**64 - 1
_PART: Final = 1 << 11
"""Fragments whose messages are copied at a time."""


class FragmentColumns:
    """Columns of the fragments of one manifest, computed on first use.

    Parameters
    ----------
    wire
        The manifest, read-only.
    where
        Full path of the manifest, for messages.
    raw
        The bytes of ``wire``, if available; released after first use.
    all_rows
        Whether row counts are physical rows. Manifests that name no writer may have live rows for
        fragments with a deletion file.
    """

    def __init__(
        self,
        wire: table_pb2.ManifestOutline,
        where: str,
        raw: memoryview | None = None,
        *,
        all_rows: bool = True,
    ) -> None:
        self._wire = wire
        self._all_rows = all_rows
        self._where = where
        self._raw = raw

    def __len__(self) -> int:
        return len(self._wire.fragments)

    @cached_property
    def _merged(self) -> table_pb2.FragmentColumns:
        raw = self._raw
        if raw is None:  # the whole message: a copy of the fragments alone would cost more
            raw = memoryview(self._wire.SerializeToString())
        columns = self._parse(table_pb2.ManifestColumns(), raw)
        self._raw = None
        return columns.fragments

    @cached_property
    def ids(self) -> Int64s:
        """Id of each fragment, below 2^32. Shape ``(fragments,)``."""
        return self._within(self._numbers("id", self._merged.id), MAX_FRAGMENT_ID)

    @cached_property
    def physical_rows(self) -> Int64s:
        """Physical rows of each fragment, at most 2^32; 0 if unknown."""
        rows = self._numbers("physical_rows", self._merged.physical_rows)
        return self._within(rows, MAX_FRAGMENT_ROWS)

    @property
    def rows_known(self) -> bool:
        """Whether the manifest has the physical rows of each fragment."""
        merged = self._merged
        are_physical = self._all_rows or not merged.deletion_file
        return are_physical and len(merged.physical_rows) == len(self)

    @property
    def unknown_rows(self) -> Int64s:
        """Positions of the fragments whose physical rows are only in their data files."""
        unknown = self.physical_rows == 0
        if not self._all_rows:
            unknown |= self.deleted_rows != 0
        return np.flatnonzero(unknown)

    @cached_property
    def deleted_rows(self) -> Int64s:
        """Deleted rows of each fragment; -1 if only the deletion file has their number.

        At most its physical rows, if known.
        """
        if not len(self._merged.deletion_file):
            return np.zeros(len(self), np.int64)
        deleted, rows = self._deleted_rows(), self.physical_rows
        wrong = ((deleted > rows) & (rows > 0)).nonzero()[0]
        if len(wrong) and self._all_rows:
            raise CorruptFileError(
                f"deleted rows of fragment {self.ids[wrong[0]]}",
                expected=f"at most {rows[wrong[0]]}, its rows",
                found=f"{deleted[wrong[0]]}",
                where=self._where,
            )
        return deleted

    def _deleted_rows(self) -> Int64s:
        marked = table_pb2.DeletionColumns()
        marked.deletion_file.num_deleted_rows.append(_MARK)
        columns, found = [], 0
        for part in self._parts():
            raw = _between(part, marked)
            numbers = self._parse(table_pb2.DeletionColumns(), raw).deletion_file.num_deleted_rows
            columns.append(self._marked(numbers, len(part)))
            found += len(numbers)
        deleted = np.concatenate(columns)
        # A stored 0 means the same as an omitted number.
        stated = int((deleted > 0).sum())
        if stated == len(self._merged.deletion_file) == found - len(self):
            return deleted
        fragments = (self._parse(table_pb2.DataFragment(), raw) for raw in self._wire.fragments)
        return self._column(map(deleted_by, fragments))

    def count_rows(self) -> int | None:
        """Return the number of live rows; ``None`` if the manifest of an old dataset lacks it."""
        merged = self._merged
        if not merged.deletion_file and self.rows_known:
            total = sum(merged.physical_rows)
            # Only if the total exceeds the limit, a fragment can exceed it.
            return total if total <= MAX_FRAGMENT_ROWS else int(self.physical_rows.sum())
        physical, deleted = self.physical_rows, self.deleted_rows
        if len(deleted) and (int(deleted.min()) < 0 or int(physical.min()) == 0):
            return None
        return int(physical.sum()) - int(deleted.sum())

    @property
    def file_count(self) -> int:
        """Data files of all fragments."""
        return len(self._merged.files.path)

    @property
    def deletion_file_count(self) -> int:
        """Deletion files of all fragments."""
        return len(self._merged.deletion_file)

    @property
    def file_bytes(self) -> int:
        """Total bytes of data files of known size."""
        return sum(self._merged.files.file_size_bytes)

    @cached_property
    def data_bytes(self) -> NDArray[np.float64]:
        """Bytes of the data files of each fragment; files of unknown size count as 0."""
        return np.concatenate([np.zeros(0), *map(self._data_bytes, self._parts())])

    def _data_bytes(self, fragments: Sequence[bytes]) -> NDArray[np.float64]:
        marked = table_pb2.FragmentColumns()
        marked.files.file_size_bytes.append(_MARK)
        columns = self._parse(table_pb2.FragmentColumns(), _between(fragments, marked))
        sizes = columns.files.file_size_bytes
        flat = np.fromiter(sizes, np.uint64, len(sizes))
        is_marker = flat == np.uint64(_MARK)
        if int(is_marker.sum()) != len(fragments):  # a file claims to be as large as the marker
            parsed = (self._parse(table_pb2.DataFragment(), raw) for raw in fragments)
            totals = (sum(file.file_size_bytes for file in one.files) for one in parsed)
            return np.fromiter(totals, np.float64, len(fragments))
        owner = is_marker.cumsum() - 1
        # Floats: sums of the sizes that files claim may overflow integers.
        known = flat[~is_marker].astype(np.float64)
        return np.bincount(owner[~is_marker], known, len(fragments)).astype(np.float64)

    def since(self, position: int) -> FragmentColumns:
        """Return the columns of the fragments from a list position on."""
        rest = table_pb2.ManifestOutline(fragments=self._wire.fragments[position:])
        return FragmentColumns(rest, self._where)

    @property
    def any_deleted(self) -> bool:
        """Whether a fragment has a deletion file."""
        return bool(self._merged.deletion_file)

    @property
    def any_lineage_in_files(self) -> bool:
        """Whether a fragment has row lineage in hidden columns of its files."""
        merged = self._merged
        return bool(
            merged.column_row_ids
            or merged.column_last_updated_at_versions
            or merged.column_created_at_versions
        )

    @property
    def row_ids(self) -> list[bytes] | None:
        """Row ids of each fragment in wire format; ``None`` unless all have them inline."""
        sequences = self._merged.inline_row_ids
        return list(sequences) if len(sequences) == len(self) else None

    def row_ids_at(self, position: int) -> bytes | None:
        """Return the row ids of one fragment in wire format; ``None`` if they are in its files."""
        fragment = self._parse(table_pb2.DataFragment(), self._wire.fragments[position])
        return None if fragment.HasField("column_row_ids") else fragment.inline_row_ids

    @cached_property
    def _alone(self) -> tuple[Int64s, Int64s, Int64s | None, Sequence[bytes] | None]:
        """Columns whose numbers fragments have in their own messages, too."""
        merged = self._merged
        deleted = self.deleted_rows if merged.deletion_file else None
        row_ids = merged.inline_row_ids
        known = len(row_ids) == len(self)
        return self.ids, self.physical_rows, deleted, row_ids if known else None

    def check_same(
        self, position: int, number: int, rows: int, deleted: int, row_ids: bytes
    ) -> None:
        """Check that a fragment has the numbers of its columns here.

        A number that occurs twice, or as another kind of field, stands for itself in its own
        message. Here it could stand for the number of another fragment.

        Raises
        ------
        CorruptFileError
            Its numbers differ.
        """
        ids, all_rows, all_deleted, all_row_ids = self._alone
        if (
            ids[position] != number
            or all_rows[position] != rows
            or (all_deleted is not None and all_deleted[position] != deleted)
            or (all_row_ids is not None and all_row_ids[position] != row_ids)
        ):
            raise CorruptFileError(
                f"fragment {number}",
                expected="an id, numbers of rows and row ids that are there once each, as numbers",
                found="some twice, or in another form",
                where=self._where,
            )

    # ----------------------------------------------------------------- parsing

    def _numbers(self, name: str, merged: Any) -> Int64s:
        if len(merged) == len(self):
            return self._column(merged)
        if len(merged) == len(self) - 1:
            first = self._parse(table_pb2.DataFragment(), self._wire.fragments[0])
            if not getattr(first, name):  # usually the list starts with fragment 0
                return self._column(chain((0,), merged))
        marked = table_pb2.FragmentColumns()
        getattr(marked, name).append(_MARK)
        parts = [np.zeros(0, np.int64)]
        for part in self._parts():
            columns = self._parse(table_pb2.FragmentColumns(), _between(part, marked))
            parts.append(self._marked(getattr(columns, name), len(part)))
        return np.concatenate(parts)

    def _parts(self) -> Iterator[Sequence[bytes]]:
        """Yield the messages of some fragments at a time, where copies of all would be large."""
        fragments = self._wire.fragments
        return (fragments[at : at + _PART] for at in range(0, len(self), _PART))

    def _within(self, numbers: Int64s, limit: int) -> Int64s:
        if len(numbers) and int(numbers.max()) > limit:
            raise self._range_error()
        return numbers

    def _marked(self, numbers: Any, count: int) -> Int64s:
        """Return the number after each marker: 0 if it is missing, the last of several."""
        flat = np.fromiter(numbers, np.uint64, len(numbers))
        is_marker = flat == np.uint64(_MARK)
        if int(is_marker.sum()) != count:
            raise self._range_error()
        owner = is_marker.cumsum() - 1
        column = np.zeros(count, np.uint64)
        column[owner[~is_marker]] = flat[~is_marker]
        if len(column) and int(column.max()) >= 2**63:
            raise self._range_error()
        return column.view(np.int64)

    def _column(self, values: Iterable[int]) -> Int64s:
        try:
            return np.fromiter(values, np.int64, len(self))
        except OverflowError as error:
            raise self._range_error() from error

    def _parse(self, message: M, raw: bytes | memoryview) -> M:
        return parse(message, raw, "fragments", self._where)

    def _range_error(self) -> CorruptFileError:
        return CorruptFileError(
            "fragments",
            expected="ids below 2^32, and at most 2^32 rows each",
            found="more",
            where=self._where,
        )


def deleted_by(fragment: table_pb2.DataFragment) -> int:
    """Return a fragment's number of deleted rows; -1 if only the deletion file has it."""
    if not fragment.HasField("deletion_file"):
        return 0
    number: int = fragment.deletion_file.num_deleted_rows
    return number or -1


def _between(fragments: Sequence[bytes], mark: Any) -> bytes:
    """Return the messages of fragments, each preceded by a marker."""
    marker: bytes = mark.SerializeToString()
    return marker + marker.join(fragments) if fragments else b""


# --- Lists of fragments in wire format: a million need a tenth of the memory of their values
#
# Tasks send such lists, and operations keep them. A :class:`Fragment` is made when a caller asks
# for it.
#
# Specification: "Fragments and data files" in ``docs/format``.

"""Source of uncommitted fragments, for messages."""


class FragmentList(Sequence[Fragment]):
    """Fragments in wire format, a sequence of values; can be pickled.

    Parameters
    ----------
    packed
        Messages of fragments.
    """

    __slots__ = ("_ids", "_wire")

    def __init__(self, packed: Iterable[bytes] = ()) -> None:
        self._ids: Int64s | None = None
        self._wire = table_pb2.ManifestOutline()
        self._wire.fragments.extend(packed)

    @classmethod
    def of(cls, fragments: Iterable[Fragment]) -> Self:
        """Return the list of the same fragments."""
        return fragments if isinstance(fragments, cls) else cls(packed_of(fragments))

    @classmethod
    def joined(cls, parts: Iterable[Iterable[Fragment]]) -> Self:
        """Return the fragments of several lists."""
        return cls(packed for part in parts for packed in packed_of(part))

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return the list from what its pickle holds."""
        made = cls()
        parse(made._wire, data, "fragments", _TRANSACTION)
        return made

    @property
    def packed(self) -> Sequence[bytes]:
        """The messages, as they lie."""
        return self._wire.fragments

    @property
    def ids(self) -> Int64s:
        """Id of each fragment; shape ``(fragments,)``."""
        if self._ids is None:
            self._ids = FragmentColumns(self._wire, _TRANSACTION).ids
        return self._ids

    @property
    def physical_rows(self) -> Int64s:
        """Physical rows of each fragment; shape ``(fragments,)``."""
        return FragmentColumns(self._wire, _TRANSACTION).physical_rows

    @property
    def deleted_rows(self) -> Int64s:
        """Deleted rows of each; -1 if only the deletion file has their number."""
        return FragmentColumns(self._wire, _TRANSACTION).deleted_rows

    @property
    def row_count(self) -> int:
        """Physical rows of all fragments."""
        return int(self.physical_rows.sum())

    @property
    def file_count(self) -> int:
        """Data files and deletion files of all fragments."""
        columns = FragmentColumns(self._wire, _TRANSACTION)
        return columns.file_count + columns.deletion_file_count

    def messages(self) -> Iterator[table_pb2.DataFragment]:
        """Yield a new copy of each message, checked.

        Raises
        ------
        CorruptFileError
            As for :func:`glaive.format.fragment.check_fragment`, or one is invalid.
        """
        for packed in self._wire.fragments:
            message = parse(table_pb2.DataFragment(), packed, "fragment", _TRANSACTION)
            check_fragment(message, _TRANSACTION)
            yield message

    def __len__(self) -> int:
        return len(self._wire.fragments)

    @overload
    def __getitem__(self, at: int) -> Fragment: ...
    @overload
    def __getitem__(self, at: slice) -> FragmentList: ...
    def __getitem__(self, at: int | slice) -> Fragment | FragmentList:
        if isinstance(at, slice):
            return FragmentList(self._wire.fragments[at])
        return _value_of(self._wire.fragments[at])

    def __iter__(self) -> Iterator[Fragment]:
        return map(_value_of, self._wire.fragments)

    def __repr__(self) -> str:
        return f"FragmentList(<{len(self)} fragments>)"

    def __reduce__(self) -> tuple[Any, ...]:
        return FragmentList.read, (self._wire.SerializeToString(),)


def _value_of(packed: bytes) -> Fragment:
    return Fragment.from_wire(parse(table_pb2.DataFragment(), packed, "fragment", _TRANSACTION))


def packed_of(fragments: Iterable[Fragment]) -> Iterable[bytes]:
    """Return the messages of fragments, as they lie."""
    if isinstance(fragments, FragmentList):
        return fragments.packed
    return (fragment.to_wire().SerializeToString() for fragment in fragments)


def messages_of(fragments: Iterable[Fragment]) -> Iterator[table_pb2.DataFragment]:
    """Yield a new message of each fragment; errors as for :meth:`FragmentList.messages`."""
    if isinstance(fragments, FragmentList):
        return fragments.messages()
    return (fragment.to_wire() for fragment in fragments)


def ids_of(fragments: Iterable[Fragment]) -> list[int]:
    """Return the ids of fragments."""
    if isinstance(fragments, FragmentList):
        ids: list[int] = fragments.ids.tolist()
        return ids
    return [fragment.id for fragment in fragments]


def ids_and_rows(fragments: Sequence[Fragment]) -> Int64s:
    """Return the ids and physical rows of fragments; shape ``(2, fragments)``."""
    if isinstance(fragments, FragmentList):
        return np.stack([fragments.ids, fragments.physical_rows])
    pairs = [(fragment.id, fragment.physical_rows) for fragment in fragments]
    return np.array(pairs, np.int64).reshape(-1, 2).T


def file_versions(fragments: Iterable[Fragment]) -> set[FormatVersion]:
    """Format versions of all data files."""
    if not isinstance(fragments, FragmentList):
        return {file.version for fragment in fragments for file in fragment.files}
    numbers = {
        (file.file_major_version, file.file_minor_version)
        for message in fragments.messages()
        for file in message.files
    }
    return {storage_version(*number) for number in numbers}


def encode_lists(by_number: Mapping[int, Iterable[Fragment]]) -> bytes:
    """Return the part of the message of an operation: its lists, in the fields of these numbers."""
    lists = table_pb2.FragmentLists()
    names = ("first", "second", "third")
    for number, fragments in by_number.items():
        getattr(lists, names[number - 1]).extend(packed_of(fragments))
    return lists.SerializeToString()


def packed_fragments(fragments: Iterable[Fragment]) -> tuple[bytes, ...]:
    """Return fragments as bytes, for other processes."""
    return tuple(packed_of(fragments))


def unpacked_fragments(packed: Iterable[bytes], where: object) -> FragmentList:
    """Return the fragments from the bytes of :func:`packed_fragments`.

    Raises
    ------
    CorruptFileError
        They are other bytes.
    """

    def checked() -> Iterator[bytes]:
        for data in packed:
            check_fragment(parse(table_pb2.DataFragment(), data, "fragment", where), where)
            yield data

    return FragmentList(checked())
