"""Fragments, data files and deletion files as values that users make, keep and send.

They are those of :mod:`glaive.format.fragment`, made and shown as pylance does: with
positional arguments, and as JSON that both libraries read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Self

from glaive.errors import OptionError
from glaive.format import fragment as stored
from glaive.types import FormatVersion

__all__ = ["DataFile", "DeletionFile", "FragmentMetadata"]


class DataFile(stored.DataFile):
    """One data file: path below ``data``, field ids, and the column of each.

    ``version`` and ``size`` may be given instead of the numbers of the format version and
    ``file_size_bytes``.
    """

    __slots__ = ()

    def __init__(
        self,
        path: str,
        fields: Sequence[int],
        column_indices: Sequence[int] | None = None,
        file_major_version: int = 0,
        file_minor_version: int = 0,
        file_size_bytes: int | None = None,
        base_id: int | None = None,
        *,
        version: FormatVersion | None = None,
        size: int | None = None,
    ) -> None:
        if version is None:
            version = stored.storage_version(file_major_version, file_minor_version)
        super().__init__(
            path=path,
            fields=tuple(fields),
            column_indices=tuple(column_indices or ()),
            version=version,
            size=file_size_bytes if size is None else size,
            base_id=base_id,
        )

    def field_ids(self) -> list[int]:
        """Ids of the fields in the file."""
        return list(self.fields)

    @property
    def file_size_bytes(self) -> int | None:
        """Bytes, when known."""
        return self.size

    @property
    def file_major_version(self) -> int:
        """First number of the format version."""
        return int(self.to_wire().file_major_version)

    @property
    def file_minor_version(self) -> int:
        """Second number of the format version."""
        return int(self.to_wire().file_minor_version)

    @classmethod
    def of(cls, file: stored.DataFile) -> DataFile:
        """The same file with the names of this class."""
        return file if isinstance(file, cls) else cls(**_facts(file))

    def to_json(self) -> dict[str, Any]:
        """As values that JSON has."""
        return {
            "fields": list(self.fields),
            "column_indices": list(self.column_indices),
            "file_major_version": self.file_major_version,
            "file_minor_version": self.file_minor_version,
            "file_size_bytes": self.size,
            "base_id": self.base_id,
            "path": self.path,
        }


class DeletionFile(stored.DeletionFile):
    """Which rows of a fragment are deleted: ``file_type`` is ``"array"`` or ``"bitmap"``."""

    __slots__ = ()

    def __init__(
        self,
        read_version: int,
        id: int | None = None,
        file_type: str = "array",
        num_deleted_rows: int | None = None,
        base_id: int | None = None,
        *,
        bitmap: bool | None = None,
        number: int | None = None,
        rows: int | None = None,
    ) -> None:
        if file_type not in ("array", "bitmap"):
            raise OptionError(f"file_type: expected 'array' or 'bitmap', found {file_type!r}")
        super().__init__(
            bitmap=file_type == "bitmap" if bitmap is None else bitmap,
            read_version=read_version,
            number=(id or 0) if number is None else number,
            rows=num_deleted_rows if rows is None else rows,
            base_id=base_id,
        )

    @property
    def id(self) -> int:
        """Number in the file's name."""
        return self.number

    @property
    def file_type(self) -> str:
        """``"array"`` or ``"bitmap"``."""
        return "bitmap" if self.bitmap else "array"

    @property
    def num_deleted_rows(self) -> int | None:
        """Deleted rows, when known."""
        return self.rows

    @classmethod
    def of(cls, file: stored.DeletionFile) -> DeletionFile:
        """The same file with the names of this class."""
        return file if isinstance(file, cls) else cls(**_facts(file))

    def asdict(self) -> dict[str, Any]:
        """As values that JSON has."""
        return {
            "read_version": self.read_version,
            "id": self.number,
            "file_type": self.file_type,
            "num_deleted_rows": self.rows,
            "base_id": self.base_id,
        }


class FragmentMetadata(stored.Fragment):
    """One fragment: id, files, rows, and which of them are deleted.

    Stable row ids and versions of rows are kept in their wire form.
    """

    __slots__ = ()

    def __init__(
        self,
        id: int = 0,
        files: Iterable[stored.DataFile] = (),
        physical_rows: int = 0,
        deletion_file: stored.DeletionFile | None = None,
        row_ids: bytes | None = None,
        created_at: bytes | None = None,
        updated_at: bytes | None = None,
        *,
        row_ids_in_column: bool = False,
        updated_at_in_column: bool = False,
        created_at_in_column: bool = False,
    ) -> None:
        super().__init__(
            id=id,
            files=tuple(map(DataFile.of, files)),
            physical_rows=physical_rows,
            deletion_file=None if deletion_file is None else DeletionFile.of(deletion_file),
            row_ids=row_ids,
            created_at=created_at,
            updated_at=updated_at,
            row_ids_in_column=row_ids_in_column,
            updated_at_in_column=updated_at_in_column,
            created_at_in_column=created_at_in_column,
        )

    @classmethod
    def of(cls, fragment: stored.Fragment) -> FragmentMetadata:
        """The same fragment with the names of this class."""
        return fragment if isinstance(fragment, cls) else cls(**_facts(fragment))

    def data_files(self) -> list[stored.DataFile]:
        """The data files."""
        return list(self.files)

    @property
    def num_rows(self) -> int:
        """Rows that are not deleted."""
        return self.physical_rows - (self.num_deletions or 0)

    def to_json(self) -> dict[str, Any]:
        """As values that JSON has, in the form pylance reads."""
        gone = self.deletion_file
        return {
            "id": self.id,
            "files": [DataFile.of(file).to_json() for file in self.files],
            "overlays": [],
            "physical_rows": self.physical_rows,
            "deletion_file": None if gone is None else DeletionFile.of(gone).asdict(),
            "row_id_meta": _sequence("Inline", self.row_ids),
            "created_at_version_meta": _sequence("inline", self.created_at),
            "last_updated_at_version_meta": _sequence("inline", self.updated_at),
        }

    @classmethod
    def from_json(cls, json_data: str | Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` gave, as text or as values.

        Raises
        ------
        OptionError
            It is nothing of the kind.
        """
        try:
            found = json.loads(json_data) if isinstance(json_data, str) else json_data
            gone = found.get("deletion_file")
            return cls(
                id=found["id"],
                files=[DataFile(**file) for file in found["files"]],
                physical_rows=found["physical_rows"],
                deletion_file=None if gone is None else DeletionFile(**gone),
                row_ids=_bytes_of(found.get("row_id_meta")),
                created_at=_bytes_of(found.get("created_at_version_meta")),
                updated_at=_bytes_of(found.get("last_updated_at_version_meta")),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise OptionError(
                f"expected a fragment as to_json() gives it, found {json_data!r:.80} ({error})"
            ) from error


def _facts(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _sequence(key: str, content: bytes | None) -> dict[str, list[int]] | None:
    return None if content is None else {key: list(content)}


def _bytes_of(content: Mapping[str, Sequence[int]] | None) -> bytes | None:
    if content is None:
        return None
    ((key, value),) = content.items()
    if key.lower() != "inline":
        raise ValueError(f"row ids or versions that are not inline: {key}")
    return bytes(value)
