"""Data files and deletion files as values that users construct, change and send."""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Self

from glaive.dataclass import dataclass
from glaive.dataset.deprecations import warn_deprecated
from glaive.errors import CorruptFileError, OptionError
from glaive.format import fragment as stored
from glaive.format.limits import MAX_FIELD_ID, is_file_name
from glaive.format.paths import deletion_file_path
from glaive.types import FormatVersion, integer_of

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset

__all__ = ["DataFile", "DeletionFile", "FilePath", "checked_integer"]

_KINDS = ("array", "bitmap")
_MAX_32 = 2**32 - 1
_MAX_64 = 2**64 - 1


def checked_integer(value: object, name: str, highest: int, lowest: int = 0) -> int:
    """The value as an integer within bounds.

    Raises
    ------
    OptionError
        It is no integer, or out of bounds.
    """
    number = integer_of(value)
    if number is None or not lowest <= number <= highest:
        raise OptionError(
            f"{name}: expected an integer from {lowest} to {highest}, found {value!r:.60}"
        )
    return number


def _optional(value: object, name: str, highest: int) -> int | None:
    return None if value is None else checked_integer(value, name, highest)


class FilePath(str):
    """A path that may also be called: older clients of pylance write ``file.path()``."""

    __slots__ = ()

    def __call__(self) -> str:
        """The path."""
        warn_deprecated("DataFile.path() is deprecated, use DataFile.path instead")
        return str(self)

    def __reduce__(self) -> tuple[object, ...]:
        return FilePath, (str(self),)


@dataclass
class DataFile:
    """One data file.

    Parameters
    ----------
    path
        Below ``data``; ends in ``.lance``.
    fields
        Ids of the fields in it; -2 for columns that were replaced.
    column_indices
        Column of each field; empty in files of format 0.1.
    file_major_version, file_minor_version
        Format version.
    file_size_bytes
        Bytes, if known.
    base_id
        Base path of the file; ``None`` for the dataset itself.
    """

    path: str
    fields: list[int]
    column_indices: list[int] = field(default_factory=list)
    file_major_version: int = 0
    file_minor_version: int = 0
    file_size_bytes: int | None = None
    base_id: int | None = None

    def __repr__(self) -> str:
        based = "" if self.base_id is None else f", base_id={self.base_id}"
        return (
            f"DataFile(path={str(self.path)!r}, fields={self.fields}, "
            f"column_indices={self.column_indices}, file_major_version={self.file_major_version}, "
            f"file_minor_version={self.file_minor_version}, "
            f"file_size_bytes={self.file_size_bytes}{based})"
        )

    def __post_init__(self) -> None:
        self.path = FilePath(self.path)
        self.fields, self.column_indices = list(self.fields), list(self.column_indices or ())

    @classmethod
    def create(cls, dataset: OpenDataset, path: str, *, base_id: int | None = None) -> DataFile:
        """Describe an existing file; its columns are found by name.

        Parameters
        ----------
        path
            Below ``data``, or below the base path.

        Raises
        ------
        DataFileMissingError, SchemaError
            The file is missing, or has columns that the dataset lacks.
        """
        from glaive.dataset.fragments.described import described_file

        return cls.of(described_file(dataset.opened.snapshot, path, base_id))

    def field_ids(self) -> list[int]:
        """Same as ``fields``, which replaces it."""
        warn_deprecated("DataFile.field_ids is deprecated, use DataFile.fields instead")
        return self.fields

    @property
    def version(self) -> FormatVersion:
        """Format version."""
        return stored.storage_version(self.file_major_version, self.file_minor_version)

    @classmethod
    def of(cls, file: stored.DataFile | DataFile) -> DataFile:
        """Convert from the manifest representation."""
        if isinstance(file, DataFile):
            return file
        wire = file.to_wire()
        return cls(
            file.path,
            list(file.fields),
            list(file.column_indices),
            wire.file_major_version,
            wire.file_minor_version,
            file.size,
            file.base_id,
        )

    def to_stored(self) -> stored.DataFile:
        """Convert to the manifest representation.

        Raises
        ------
        OptionError
            A number or the path is invalid, or there is not one column for each field.
        """
        path = str(self.path)
        name = f"data file {path!r:.60}"
        if not (is_file_name(path) and path.endswith(".lance")):  # no other one is opened
            raise OptionError(
                f"{name}: expected a path below the folder of data files that ends in .lance"
            )
        fields, columns = (
            tuple(
                checked_integer(number, f"{attribute} of {name}", MAX_FIELD_ID, -MAX_FIELD_ID)
                for number in getattr(self, attribute)
            )
            for attribute in ("fields", "column_indices")
        )
        major, minor = (
            checked_integer(number, f"format version of {name}", _MAX_32)
            for number in (self.file_major_version, self.file_minor_version)
        )
        file = stored.DataFile(
            path=path,
            fields=fields,
            column_indices=columns,
            version=stored.storage_version(major, minor),
            size=_optional(self.file_size_bytes, f"size of {name}", _MAX_64),
            base_id=_optional(self.base_id, f"base_id of {name}", _MAX_32),
        )
        try:
            file.columns()  # no version with this file could be read
        except CorruptFileError as error:
            raise OptionError(
                f"{name}: {error.what}: expected {error.expected}, found {error.found}"
            ) from None
        return file

    def to_json(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        values = asdict(self)
        return values | {"path": str(values.pop("path"))}


@dataclass
class DeletionFile:
    """The deleted rows of a fragment.

    Parameters
    ----------
    read_version, id
        Parts of the file's name.
    file_type
        ``"array"`` or ``"bitmap"``.
    num_deleted_rows
        Deleted rows, if known.
    base_id
        Base path of the file; ``None`` for the dataset itself.
    """

    read_version: int
    id: int
    file_type: str
    num_deleted_rows: int | None
    base_id: int | None = None

    def __post_init__(self) -> None:
        if self.file_type not in _KINDS:
            raise OptionError(f"file_type: expected 'array' or 'bitmap', found {self.file_type!r}")

    def __repr__(self) -> str:
        return f"DeletionFile(type={self.file_type!r}, num_deleted_rows={self.num_deleted_rows})"

    @classmethod
    def of(cls, file: stored.DeletionFile | DeletionFile) -> DeletionFile:
        """Convert from the manifest representation."""
        if isinstance(file, DeletionFile):
            return file
        return cls(file.read_version, file.number, _KINDS[file.bitmap], file.rows, file.base_id)

    def to_stored(self) -> stored.DeletionFile:
        """Convert to the manifest representation.

        Raises
        ------
        OptionError
            A number is out of range.
        """
        owner = "of a deletion file"
        return stored.DeletionFile(
            bitmap=self.file_type == "bitmap",
            read_version=checked_integer(self.read_version, f"read_version {owner}", _MAX_64),
            number=checked_integer(self.id, f"id {owner}", _MAX_64),
            rows=_optional(self.num_deleted_rows, f"num_deleted_rows {owner}", _MAX_64),
            base_id=_optional(self.base_id, f"base_id {owner}", _MAX_32),
        )

    def path(self, fragment_id: int, base_uri: str | None = None) -> str:
        """Path within the dataset, or below ``base_uri``."""
        bitmap = self.file_type == "bitmap"
        path = deletion_file_path(fragment_id, self.read_version, self.id, bitmap=bitmap)
        return path if base_uri is None else f"{base_uri.rstrip('/')}/{path}"

    def asdict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        return asdict(self)

    def json(self) -> str:
        """Encode as JSON."""
        return json.dumps(self.asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Decode the output of :meth:`json`.

        Raises
        ------
        OptionError
            The text is no such output.
        """
        from json import loads

        try:
            return cls(**loads(json))
        except (RecursionError, TypeError, ValueError) as error:
            raise OptionError(f"expected a deletion file, found {json!r:.80} ({error})") from error
