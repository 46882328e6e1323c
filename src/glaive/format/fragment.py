"""Fragments in manifests and transactions: rows, data files, deletions.

These values are created on demand from the wire message, as a manifest can have many fragments.

Specification: "Fragments and data files" in ``docs/format``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.limits import (
    MAX_FRAGMENT_ID,
    MAX_FRAGMENT_ROWS,
    check_file_name,
    is_file_name,
)
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.named_tuple import NamedTuple
from glaive.types import FormatVersion

__all__ = [
    "LEGACY",
    "TOMBSTONE",
    "DataFile",
    "DeletionFile",
    "Fragment",
    "SingleFile",
    "check_fragment",
    "known_version",
    "storage_version",
]

TOMBSTONE = -2
"""Replaces a field id if the data of the column is now in another file."""


LEGACY = FormatVersion(0, 1)
"""Entries of files in this version list fields, but not columns."""

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
    """The format version that a manifest names for new data files.

    Raises
    ------
    UnsupportedFeatureError
        This reader does not know it.
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
        Physical column of each field, -1 for none; empty in 0.1 files.
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
        """Physical column by field id; in 0.1 files ids count from the lowest one.

        Raises
        ------
        CorruptFileError
            There are not as many columns as fields, or two for one field.
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
        """Physical column of a field, including hidden ones; ``None`` if it is not in the file.

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
        Of all bytes of the file; ``None`` if it is not known.
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
        Rows in the files, deleted ones included.
    deletion_file
        Absent when no row is deleted.
    row_ids
        Stable row ids in wire format, if the dataset has them.
    row_ids_in_column
        Whether the stable row ids are in the hidden column of field -3 instead.
    updated_at, created_at
        Versions in which rows were last updated and created, in wire format.
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
    def from_wire(cls, wire: table_pb2.DataFragment, max_size: int) -> SingleFile | None:
        """The file of a fragment; None unless it has a single such file of at most a size.

        None too if its name leads elsewhere, or is none of a data file: whoever opens it reports
        that.
        """
        if len(wire.files) != 1:
            return None
        file = wire.files[0]
        if not 0 < file.file_size_bytes <= max_size or file.HasField("base_id"):
            return None
        if not (is_file_name(file.path) and file.path.endswith(".lance")):
            return None
        version = storage_version(file.file_major_version, file.file_minor_version)
        return cls(
            data_file_path(file.path),
            file.file_size_bytes,
            wire.physical_rows,
            wire.HasField("deletion_file"),
            (version, tuple(file.fields), tuple(file.column_indices)),
        )


def check_fragment(wire: table_pb2.DataFragment, where: object) -> None:
    """Check the message of a fragment.

    Raises
    ------
    CorruptFileError
        Its id or row count exceeds the range of row addresses, it has more deleted rows than
        rows, or the path of a file leads out of the folder of data files.
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
