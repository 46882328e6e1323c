"""Data files and deletion files as values that users make, change and send."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any, Self

from glaive.errors import OptionError
from glaive.format import fragment as stored
from glaive.format.limits import MAX_FIELD_ID, is_file_name
from glaive.format.paths import deletion_file_path
from glaive.types import FormatVersion

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset

__all__ = ["DataFile", "DeletionFile", "whole_number"]

_KINDS = ("array", "bitmap")
_MAX_32 = 2**32 - 1
_MAX_64 = 2**64 - 1


def whole_number(value: object, what: str, most: int, least: int = 0) -> int:
    """A number as manifests can hold it.

    Raises
    ------
    OptionError
        It is none, or too small or too large.
    """
    number = None if isinstance(value, bool) or not hasattr(value, "__index__") else index(value)
    if number is None or not least <= number <= most:
        raise OptionError(
            f"{what}: expected an integer from {least} to {most}, found {value!r:.60}"
        )
    return number


def _optional(value: object, what: str, most: int) -> int | None:
    return None if value is None else whole_number(value, what, most)


@dataclass
class DataFile:
    """One data file.

    Parameters
    ----------
    path
        Below ``data``.
    fields
        Ids of the fields in it; -2 for columns that were replaced.
    column_indices
        Column of each field; none in files of format 0.1.
    file_major_version, file_minor_version
        Format version.
    file_size_bytes
        Bytes, when known.
    base_id
        Base path that holds the file; this dataset when absent.
    """

    path: str
    fields: list[int]
    column_indices: list[int] = field(default_factory=list)
    file_major_version: int = 0
    file_minor_version: int = 0
    file_size_bytes: int | None = None
    base_id: int | None = None

    def __post_init__(self) -> None:
        self.fields, self.column_indices = list(self.fields), list(self.column_indices or ())

    @classmethod
    def create(cls, dataset: OpenDataset, path: str, *, base_id: int | None = None) -> DataFile:
        """Describe a file that is there; its columns are found by name.

        Parameters
        ----------
        path
            Below ``data``, or below the base path.

        Raises
        ------
        DataFileMissingError, SchemaError
            It is not there, or has columns that the dataset has not.
        """
        from glaive.dataset.fragments.described import described_file

        return cls.of(described_file(dataset.opened.snapshot, path, base_id))

    def field_ids(self) -> list[int]:
        """Ids of the fields in the file."""
        return self.fields

    @property
    def version(self) -> FormatVersion:
        """Format version."""
        return stored.storage_version(self.file_major_version, self.file_minor_version)

    @classmethod
    def of(cls, file: stored.DataFile | DataFile) -> DataFile:
        """From a file of a manifest."""
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
        """The file as manifests have it.

        Raises
        ------
        OptionError
            A number, or the path, is none that a manifest can hold.
        """
        path = str(self.path)
        what = f"data file {path!r:.60}"
        if not is_file_name(path):
            raise OptionError(f"{what}: expected a path below the folder of data files")
        numbers = {
            name: tuple(
                whole_number(number, f"{name} of {what}", MAX_FIELD_ID, -MAX_FIELD_ID)
                for number in given
            )
            for name, given in (("fields", self.fields), ("column_indices", self.column_indices))
        }
        major, minor = (
            whole_number(number, f"format version of {what}", _MAX_32)
            for number in (self.file_major_version, self.file_minor_version)
        )
        return stored.DataFile(
            path=path,
            fields=numbers["fields"],
            column_indices=numbers["column_indices"],
            version=stored.storage_version(major, minor),
            size=_optional(self.file_size_bytes, f"size of {what}", _MAX_64),
            base_id=_optional(self.base_id, f"base_id of {what}", _MAX_32),
        )

    def to_json(self) -> dict[str, Any]:
        """As values that JSON has."""
        return {
            "fields": list(self.fields),
            "column_indices": list(self.column_indices),
            "file_major_version": self.file_major_version,
            "file_minor_version": self.file_minor_version,
            "file_size_bytes": self.file_size_bytes,
            "base_id": self.base_id,
            "path": self.path,
        }


@dataclass
class DeletionFile:
    """Which rows of a fragment are deleted.

    Parameters
    ----------
    read_version, id
        Parts of the file's name.
    file_type
        ``"array"`` or ``"bitmap"``.
    num_deleted_rows
        Deleted rows, when known.
    base_id
        Base path that holds the file; this dataset when absent.
    """

    read_version: int
    id: int
    file_type: str
    num_deleted_rows: int | None
    base_id: int | None = None

    def __post_init__(self) -> None:
        if self.file_type not in _KINDS:
            raise OptionError(f"file_type: expected 'array' or 'bitmap', found {self.file_type!r}")

    @classmethod
    def of(cls, file: stored.DeletionFile | DeletionFile) -> DeletionFile:
        """From a file of a manifest."""
        if isinstance(file, DeletionFile):
            return file
        return cls(file.read_version, file.number, _KINDS[file.bitmap], file.rows, file.base_id)

    def to_stored(self) -> stored.DeletionFile:
        """The file as manifests have it.

        Raises
        ------
        OptionError
            A number is none that a manifest can hold.
        """
        what = "of a deletion file"
        return stored.DeletionFile(
            bitmap=self.file_type == "bitmap",
            read_version=whole_number(self.read_version, f"read_version {what}", _MAX_64),
            number=whole_number(self.id, f"id {what}", _MAX_64),
            rows=_optional(self.num_deleted_rows, f"num_deleted_rows {what}", _MAX_64),
            base_id=_optional(self.base_id, f"base_id {what}", _MAX_32),
        )

    def path(self, fragment_id: int, base_uri: str | None = None) -> str:
        """Path within the dataset, or below ``base_uri``."""
        bitmap = self.file_type == "bitmap"
        path = deletion_file_path(fragment_id, self.read_version, self.id, bitmap=bitmap)
        return path if base_uri is None else f"{base_uri.rstrip('/')}/{path}"

    def asdict(self) -> dict[str, Any]:
        """As values that JSON has."""
        return {
            "read_version": self.read_version,
            "id": self.id,
            "file_type": self.file_type,
            "num_deleted_rows": self.num_deleted_rows,
            "base_id": self.base_id,
        }

    def json(self) -> str:
        """As JSON."""
        return json.dumps(self.asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Read what :meth:`json` gave.

        Raises
        ------
        OptionError
            It is nothing of the kind.
        """
        from json import loads

        try:
            return cls(**loads(json))
        except (TypeError, ValueError) as error:
            raise OptionError(f"expected a deletion file, found {json!r:.80} ({error})") from error
