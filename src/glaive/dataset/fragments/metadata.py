"""Fragments as values that users make, change and send.

They have pylance's names, and are turned into those of :mod:`glaive.format.fragment` when they
are committed; JSON goes between both libraries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from glaive.dataset.fragments.data_files import DataFile, DeletionFile, whole_number
from glaive.dataset.fragments.overlays import DataOverlayFile
from glaive.dataset.fragments.row_ids import RowDatasetVersionMeta, RowIdMeta
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format import fragment as stored
from glaive.format.limits import MAX_FRAGMENT_ID, MAX_FRAGMENT_ROWS

__all__ = [
    "FragmentMetadata",
    "checked_fragments",
    "stored_fragments",
]


@dataclass
class FragmentMetadata:
    """One fragment.

    Parameters
    ----------
    id
        Identity within the dataset; for new ones the commit gives it.
    files
        Data files: each holds other columns of all rows.
    physical_rows
        Rows in the files, deleted ones included.
    deletion_file
        Absent when no row is deleted.
    row_id_meta
        Stable row ids, made by :class:`glaive.fragment.RowIdSequence`.
    created_at_version_meta, last_updated_at_version_meta
        Versions of the rows; commits work them out.
    overlays
        Files with other values for single rows; glaive cannot commit any.
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
        """From a fragment of a manifest."""
        if isinstance(fragment, FragmentMetadata):
            return fragment
        gone = fragment.deletion_file
        ids, made, changed = fragment.row_ids, fragment.created_at, fragment.updated_at
        row_ids = RowIdMeta(ids) if ids is not None or fragment.row_ids_in_column else None
        return cls(
            fragment.id,
            [DataFile.of(file) for file in fragment.files],
            fragment.physical_rows,
            None if gone is None else DeletionFile.of(gone),
            row_ids,
            _versions(made, in_column=fragment.created_at_in_column),
            _versions(changed, in_column=fragment.updated_at_in_column),
        )

    def to_stored(self) -> stored.Fragment:
        """The fragment as manifests have it.

        Raises
        ------
        OptionError
            A part of it is of another kind, or a number is none that a manifest can hold.
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
        gone: Any = self.deletion_file
        if not isinstance(gone, DeletionFile | stored.DeletionFile | None):
            raise OptionError(f"deletion_file of fragment {self.id}: found {gone!r:.60}")
        ids, made = self.row_id_meta, self.created_at_version_meta
        changed = self.last_updated_at_version_meta
        rows = f"physical_rows of fragment {self.id!r:.40}"
        return stored.Fragment(
            id=whole_number(self.id, "id of a fragment", MAX_FRAGMENT_ID),
            files=tuple(DataFile.of(file).to_stored() for file in files),
            physical_rows=whole_number(self.physical_rows, rows, MAX_FRAGMENT_ROWS),
            deletion_file=None if gone is None else DeletionFile.of(gone).to_stored(),
            row_ids=None if ids is None else ids.inline,
            row_ids_in_column=ids is not None and ids.inline is None,
            created_at=None if made is None else made.inline,
            created_at_in_column=made is not None and made.inline is None,
            updated_at=None if changed is None else changed.inline,
            updated_at_in_column=changed is not None and changed.inline is None,
        )

    def data_files(self) -> list[DataFile]:
        """The data files."""
        return self.files

    @property
    def num_deletions(self) -> int | None:
        """Deleted rows; ``None`` when only the deletion file tells."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Rows that are not deleted."""
        return self.physical_rows - (self.num_deletions or 0)

    def to_json(self) -> dict[str, Any]:
        """As values that JSON has, in the form pylance reads."""
        gone, ids = self.deletion_file, self.row_id_meta
        made, changed = self.created_at_version_meta, self.last_updated_at_version_meta
        return {
            "id": self.id,
            "files": [DataFile.of(file).to_json() for file in self.files],
            "overlays": [overlay.to_json() for overlay in self.overlays],
            "physical_rows": self.physical_rows,
            "deletion_file": None if gone is None else DeletionFile.of(gone).asdict(),
            "row_id_meta": None if ids is None else ids.asdict(),
            "created_at_version_meta": None if made is None else made.asdict(),
            "last_updated_at_version_meta": None if changed is None else changed.asdict(),
        }

    @staticmethod
    def from_json(json_data: str | Mapping[str, Any]) -> FragmentMetadata:
        """Read what :meth:`to_json` gave, as text or as values.

        Raises
        ------
        OptionError
            It is nothing of the kind.
        """
        try:
            found = json.loads(json_data) if isinstance(json_data, str) else json_data
            gone, ids = found.get("deletion_file"), found.get("row_id_meta")
            made = found.get("created_at_version_meta")
            changed = found.get("last_updated_at_version_meta")
            return FragmentMetadata(
                id=found["id"],
                files=[DataFile(**file) for file in found["files"]],
                physical_rows=found["physical_rows"],
                deletion_file=None if gone is None else DeletionFile(**gone),
                row_id_meta=None if ids is None else RowIdMeta.from_dict(ids),
                created_at_version_meta=_read_versions(made),
                last_updated_at_version_meta=_read_versions(changed),
                overlays=[_overlay(one) for one in found.get("overlays") or ()],
            )
        except (RecursionError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise OptionError(
                f"expected a fragment as to_json() gives it, found {json_data!r:.80} ({error})"
            ) from error


def _versions(wire: bytes | None, *, in_column: bool) -> RowDatasetVersionMeta | None:
    return RowDatasetVersionMeta(wire) if wire is not None or in_column else None


def _read_versions(found: Any) -> RowDatasetVersionMeta | None:
    return None if found is None else RowDatasetVersionMeta.from_json(json.dumps(found))


def _overlay(found: Mapping[str, Any]) -> DataOverlayFile:
    file = DataFile(**found["data_file"])
    return DataOverlayFile(file, found["offsets"], found.get("committed_version"))


def checked_fragments(given: Any, what: str) -> list[FragmentMetadata]:
    """Fragments that users made, as a list.

    Raises
    ------
    OptionError
        One of them is none.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise OptionError(f"{what}: expected a list of FragmentMetadata, found {given!r:.60}")
    found = list(given)
    for one in found:
        if not isinstance(one, FragmentMetadata | stored.Fragment):
            raise OptionError(f"{what}: expected FragmentMetadata, found {one!r:.60}")
    return [FragmentMetadata.of(one) for one in found]


def stored_fragments(given: Iterable[Any], what: str) -> tuple[stored.Fragment, ...]:
    """Fragments that users made, as manifests have them; errors as :func:`checked_fragments`."""
    return tuple(fragment.to_stored() for fragment in checked_fragments(given, what))
