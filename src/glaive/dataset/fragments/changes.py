"""Uncommitted changes of one fragment: new columns, new values, deletions.

Each method returns arguments of a ``LanceOperation``; nothing changes until that is committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.errors import RowIndexError
from glaive.file.positions import positions
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment
from glaive.scan.session import Session
from glaive.scan.views import Views

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from glaive.dataset.version import OpenDataset
    from glaive.dataset.writing.options import Mode

__all__ = ["FragmentChanges"]


class FragmentChanges:
    """The methods of ``LanceFragment`` that prepare changes for a commit."""

    _views: Views
    _position: int
    _stored: Fragment

    @classmethod
    def of(cls, views: Views, position: int) -> Self:
        """The fragment at a position in the list of a version."""
        fragment = cls.__new__(cls)
        fragment._bind(views, position)  # noqa: SLF001  # of this class
        return fragment

    def _bind(self, views: Views, position: int) -> None:
        self._views, self._position = views, position
        self._stored = views.snapshot.manifest.fragment(position)

    @staticmethod
    def create(
        dataset_uri: str | os.PathLike[str] | OpenDataset,
        data: object,
        fragment_id: int | None = None,
        schema: pa.Schema | None = None,
        max_rows_per_group: int | None = 1024,
        progress: Any = None,
        mode: Mode = "append",
        *,
        data_storage_version: str | None = None,
        use_legacy_format: bool | None = None,
        storage_options: Mapping[str, str] | None = None,
        namespace_client: Any = None,
        table_id: Sequence[str] | None = None,
        session: Session | None = None,
        **options: Any,
    ) -> FragmentMetadata:
        """Write all rows into one file; the parameters are those of ``write_fragments``.

        Raises
        ------
        SchemaError
            The rows do not fit the dataset, or there are none.
        """
        from glaive.dataset.fragments.files import create_fragment

        given = {
            "max_rows_per_group": max_rows_per_group,
            "progress": progress,
            "data_storage_version": data_storage_version,
            "use_legacy_format": use_legacy_format,
            "storage_options": storage_options,
            "namespace_client": namespace_client,
            "table_id": table_id,
            "session": session,
            **options,
        }
        return create_fragment(dataset_uri, data, fragment_id, schema, mode, given)

    @staticmethod
    def create_from_file(filename: str, dataset: OpenDataset, fragment_id: int) -> FragmentMetadata:
        """Describe a file below ``data`` as a fragment; its columns are found by name.

        Raises
        ------
        DataFileMissingError, SchemaError
            The file is missing, or has other columns than the dataset.
        """
        from glaive.dataset.fragments.files import fragment_of_file

        return fragment_of_file(dataset.opened.snapshot, filename, fragment_id)

    def merge_columns(
        self,
        value_func: Any,
        columns: Sequence[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Add columns to this fragment; parameters as for ``LanceDataset.add_columns``.

        Returns the fragment with an additional file, and the resulting schema, for
        ``LanceOperation.Merge``.
        """
        from glaive.dataset.columns.add_columns import make_columns

        given = (value_func, columns, reader_schema, batch_size)
        made, grown = make_columns(self._views.snapshot, self._position, *given)
        return FragmentMetadata.of(made), grown.schema

    def merge(
        self,
        data_obj: object,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Add the columns of a table, joined by a key; as ``LanceDataset.merge``.

        Returns the fragment with an additional file, and the resulting schema, for
        ``LanceOperation.Merge``.
        """
        from glaive.dataset.columns.merge_data import merge_into_fragment

        given = (data_obj, left_on, right_on, schema)
        made, grown = merge_into_fragment(self._views.snapshot, self._position, *given)
        return FragmentMetadata.of(made), grown.schema

    def update_columns(
        self,
        data_obj: object,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: bool = False,
    ) -> tuple[FragmentMetadata, list[int]] | tuple[FragmentMetadata, list[int], bytes]:
        """Replace values of columns in the rows whose key is in a table; other rows keep theirs.

        Parameters
        ----------
        data_obj
            The key, and complete columns of the dataset; of rows with the same key the last wins.
        left_on, right_on
            Key columns here, which may be ``_rowid`` or ``_rowaddr``, and in the table.
        schema
            Schema of the table if it has none.
        with_offsets
            Also return the physical rows that matched, as roaring bitmap bytes.

        Returns
        -------
        tuple
            The fragment, and ids of the rewritten fields, for ``LanceOperation.Update``.

        Notes
        -----
        Writes one file with the columns for all rows of the fragment.
        """
        from glaive.dataset.columns.merge_data import update_columns

        given = (data_obj, left_on, right_on, schema)
        made, fields, offsets = update_columns(self._views.snapshot, self._position, *given)
        fragment = FragmentMetadata.of(made)
        return (fragment, fields, offsets) if with_offsets else (fragment, fields)

    def delete(self, predicate: str | pc.Expression) -> FragmentMetadata | None:
        """Delete the matching rows; returns the fragment with a new deletion file.

        ``None`` if no row remains; the unchanged fragment if none matches.
        """
        from glaive.dataset.scanner import Scanner
        from glaive.expr.names import check_column_texts
        from glaive.scan.system_columns import ROW_ADDRESS, refuse_taken

        schema = self._views.snapshot.manifest.schema
        check_column_texts(schema, predicate)
        refuse_taken(schema, ROW_ADDRESS)
        only = (self._stored.id,)
        scanner = Scanner.of(self._views, columns=[ROW_ADDRESS], filter=predicate, fragments=only)
        addresses = scanner.to_table().column(ROW_ADDRESS).to_numpy()
        return self._deleted(addresses.astype(np.uint32))

    def delete_rows(self, offsets: Iterable[int]) -> FragmentMetadata | None:
        """The same for physical rows, 0 ≤ offset < ``physical_rows``, in any order.

        Raises
        ------
        RowIndexError
            There is no such row.
        OptionError
            Something given is no integer.
        """
        given: Any = offsets
        if isinstance(given, Iterable) and not isinstance(given, Sequence):
            given = given if hasattr(given, "__array__") else list(given)
        rows = self._stored.physical_rows
        wanted = positions(given, rows)
        wrong = wanted[(wanted < 0) | (wanted >= rows)]
        if len(wrong):
            raise RowIndexError(
                f"offset {wrong[0]} is out of range: fragment {self._stored.id} has {rows} rows, "
                "counted from 0"
            )
        return self._deleted(wanted)

    def _deleted(self, offsets: np.ndarray[Any, Any]) -> FragmentMetadata | None:
        from glaive.table.deletions import add_deletions

        snapshot = self._views.snapshot
        made, _ = add_deletions(snapshot.store, snapshot.manifest, self._stored, offsets)
        return None if made is None else FragmentMetadata.of(made)

    def validate(self) -> None:
        """Check that the manifest of this fragment matches its files.

        Raises
        ------
        CorruptFileError, DataFileMissingError
            Something does not match or is missing; the message says what.
        """
        from glaive.dataset.versions.validate import validate_fragment

        validate_fragment(self._views.snapshot, self._position)
