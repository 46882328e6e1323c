"""Fragments as values that users construct, change and send.

They have pylance's names and are converted to those of :mod:`glaive.format.fragment` when they
are committed; their JSON is compatible with pylance's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from glaive.dataclass import dataclass
from glaive.dataset.deprecations import warn_deprecated
from glaive.dataset.fragments.data_files import DataFile, DeletionFile, checked_integer
from glaive.dataset.fragments.overlays import DataOverlayFile
from glaive.dataset.fragments.row_ids import RowDatasetVersionMeta, RowIdMeta
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format import fragment as stored
from glaive.format.limits import MAX_FRAGMENT_ID, MAX_FRAGMENT_ROWS

__all__ = ["FragmentMetadata", "checked_fragments", "stored_fragments"]


@dataclass
class FragmentMetadata:
    """One fragment.

    Parameters
    ----------
    id
        Identity within the dataset; the commit assigns it to new fragments.
    files
        Data files; each holds some columns of all rows.
    physical_rows
        Rows in the files, deleted ones included.
    deletion_file
        Absent when no row is deleted.
    row_id_meta
        Stable row ids, made by :class:`glaive.fragment.RowIdSequence`.
    created_at_version_meta, last_updated_at_version_meta
        Versions of the rows; computed by commits.
    overlays
        Files that replace values of single rows; glaive cannot commit any.
    """

    id: int
    files: list[DataFile]
    physical_rows: int
    deletion_file: DeletionFile | None = None
    row_id_meta: RowIdMeta | None = None
    created_at_version_meta: RowDatasetVersionMeta | None = None
    last_updated_at_version_meta: RowDatasetVersionMeta | None = None
    overlays: list[DataOverlayFile] = field(default_factory=list)

    @classmethod
    def of(cls, fragment: stored.Fragment | FragmentMetadata) -> FragmentMetadata:
        """Convert from the manifest representation."""
        if isinstance(fragment, FragmentMetadata):
            return fragment
        deletions, ids = fragment.deletion_file, fragment.row_ids
        return cls(
            fragment.id,
            [DataFile.of(file) for file in fragment.files],
            fragment.physical_rows,
            None if deletions is None else DeletionFile.of(deletions),
            RowIdMeta(ids) if ids is not None or fragment.row_ids_in_column else None,
            _versions(fragment.created_at, in_column=fragment.created_at_in_column),
            _versions(fragment.updated_at, in_column=fragment.updated_at_in_column),
        )

    def to_stored(self) -> stored.Fragment:
        """Convert to the manifest representation.

        Raises
        ------
        OptionError
            A part of it has a wrong type, or a number is out of range.
        UnsupportedFeatureError
            It has overlays.
        """
        if self.overlays:
            raise UnsupportedFeatureError(
                f"fragment {self.id}: this version of glaive does not commit data overlays"
            )
        files: list[Any] = list(self.files)
        wrong = [file for file in files if not isinstance(file, DataFile | stored.DataFile)]
        if wrong:
            raise OptionError(f"files of fragment {self.id}: expected DataFile, found {wrong[0]!r}")
        deletions: Any = self.deletion_file
        if not isinstance(deletions, DeletionFile | stored.DeletionFile | None):
            raise OptionError(
                f"deletion_file of fragment {self.id}: expected DeletionFile, found "
                f"{deletions!r:.60}"
            )
        ids, created = self.row_id_meta, self.created_at_version_meta
        updated = self.last_updated_at_version_meta
        fragment = f"of fragment {self.id!r:.40}"
        rows = checked_integer(self.physical_rows, f"physical_rows {fragment}", MAX_FRAGMENT_ROWS)
        deleted = None if deletions is None else DeletionFile.of(deletions).to_stored()
        if deleted is not None and deleted.rows is not None and rows:  # 0 is an unknown number
            checked_integer(deleted.rows, f"num_deleted_rows {fragment}", rows)
        return stored.Fragment(
            id=checked_integer(self.id, "id of a fragment", MAX_FRAGMENT_ID),
            files=tuple(DataFile.of(file).to_stored() for file in files),
            physical_rows=rows,
            deletion_file=deleted,
            row_ids=None if ids is None else ids.inline,
            row_ids_in_column=ids is not None and ids.inline is None,
            created_at=None if created is None else created.inline,
            created_at_in_column=created is not None and created.inline is None,
            updated_at=None if updated is None else updated.inline,
            updated_at_in_column=updated is not None and updated.inline is None,
        )

    def data_files(self) -> list[DataFile]:
        """Same as ``files``, which replaces it."""
        warn_deprecated("FragmentMetadata.data_files is deprecated. Use .files instead.")
        return self.files

    @property
    def num_deletions(self) -> int | None:
        """Deleted rows; ``None`` if only the deletion file has their number."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Live rows."""
        return self.physical_rows - (self.num_deletions or 0)

    def to_json(self) -> dict[str, Any]:
        """Convert to values that JSON can represent, compatible with pylance."""
        deletions, ids = self.deletion_file, self.row_id_meta
        created, updated = self.created_at_version_meta, self.last_updated_at_version_meta
        return {
            "id": self.id,
            "files": [DataFile.of(file).to_json() for file in self.files],
            "overlays": [overlay.to_json() for overlay in self.overlays],
            "physical_rows": self.physical_rows,
            "deletion_file": None if deletions is None else DeletionFile.of(deletions).asdict(),
            "row_id_meta": None if ids is None else ids.asdict(),
            "created_at_version_meta": None if created is None else created.asdict(),
            "last_updated_at_version_meta": None if updated is None else updated.asdict(),
        }

    @staticmethod
    def from_json(json_data: str | Mapping[str, Any]) -> FragmentMetadata:
        """Decode the output of :meth:`to_json`, as a string or as values.

        Raises
        ------
        OptionError
            The argument is no such output.
        """
        try:
            values = json.loads(json_data) if isinstance(json_data, str) else json_data
            deletions, ids = values.get("deletion_file"), values.get("row_id_meta")
            return FragmentMetadata(
                id=values["id"],
                files=[DataFile(**file) for file in values["files"]],
                physical_rows=values["physical_rows"],
                deletion_file=None if deletions is None else DeletionFile(**deletions),
                row_id_meta=None if ids is None else RowIdMeta.from_dict(ids),
                created_at_version_meta=_read_versions(values.get("created_at_version_meta")),
                last_updated_at_version_meta=_read_versions(
                    values.get("last_updated_at_version_meta")
                ),
                overlays=[_overlay(overlay) for overlay in values.get("overlays") or ()],
            )
        except (RecursionError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise OptionError(
                f"expected the output of to_json(), found {json_data!r:.80} ({error})"
            ) from error


def _versions(wire: bytes | None, *, in_column: bool) -> RowDatasetVersionMeta | None:
    return RowDatasetVersionMeta(wire) if wire is not None or in_column else None


def _read_versions(values: Any) -> RowDatasetVersionMeta | None:
    return None if values is None else RowDatasetVersionMeta.from_json(json.dumps(values))


def _overlay(values: Mapping[str, Any]) -> DataOverlayFile:
    file = DataFile(**values["data_file"])
    return DataOverlayFile(file, values["offsets"], values.get("committed_version"))


def checked_fragments(given: Any, name: str) -> list[FragmentMetadata]:
    """The argument as a list of fragments.

    Raises
    ------
    OptionError
        It is no list, or an item is no fragment.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise OptionError(
            f"fragments must be list[FragmentMetadata], got {type(given)}: {name}: expected a list "
            f"of FragmentMetadata, found {given!r:.60}"
        )
    fragments = list(given)
    for fragment in fragments:
        if not isinstance(fragment, FragmentMetadata | stored.Fragment):
            raise OptionError(
                f"fragments must be list[FragmentMetadata], got {type(fragment)}: {name}: expected "
                f"FragmentMetadata, found {fragment!r:.60}"
            )
    return [FragmentMetadata.of(fragment) for fragment in fragments]


def stored_fragments(given: Iterable[Any], name: str) -> tuple[stored.Fragment, ...]:
    """The argument in the manifest representation; errors as :func:`checked_fragments`."""
    return tuple(fragment.to_stored() for fragment in checked_fragments(given, name))
