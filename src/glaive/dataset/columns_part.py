"""Changing the columns of a dataset. Each method hands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa

from glaive.dataset.opened import OpenedVersion

if TYPE_CHECKING:
    from glaive.dataset.versions.delta import DatasetDelta
    from glaive.dataset.writing.base_paths import DatasetBasePath

__all__ = ["ChangingColumns"]


class ChangingColumns(OpenedVersion):
    """The part of ``LanceDataset`` that adds, drops and alters columns."""

    def add_columns(
        self,
        transforms: Any,
        read_columns: Sequence[str] | None = None,
        reader_schema: pa.Schema | None = None,
        batch_size: int | None = None,
    ) -> None:
        """Add columns and move this object to the new version.

        Parameters
        ----------
        transforms
            One of: SQL expressions by the names of the new columns, ``{"b": "a * 2"}``; a
            function over record batches, best made by :func:`glaive.batch_udf`; rows with the
            new columns alone, one for each row of the dataset in order, as whatever can be
            written; or a field, a list of fields or a schema: columns without values, which
            write no files. From format 2.2 on a struct may bring new members for one that
            is there.
        read_columns
            What a function is given; all columns when omitted. ``_rowid`` and ``_rowaddr``
            may be among them.
        reader_schema
            Names and types of rows that have none.
        batch_size
            Rows a function is given at once, at most: 8192 when omitted.

        Raises
        ------
        SchemaError
            A name is taken, or there are more, fewer or other values than needed.
        FilterError, ColumnNotFoundError, OptionError
            An expression is wrong, a column does not exist, or the argument is none of these.
        CommitConflictError
            Another writer changed the dataset meanwhile; nothing was changed.

        Notes
        -----
        Writes one file per fragment with the new columns alone, several fragments at once for
        expressions.
        """
        from glaive.dataset.columns.add_columns import add_columns

        self.move_to(add_columns(self, transforms, read_columns, reader_schema, batch_size))

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Drop columns, or members of structs (``"s.x"``); moves to the new version.

        Files stay as they are until they are compacted and cleaned up.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            There is no such column, or none would be left.
        """
        from glaive.dataset.columns.alter_columns import drop_columns

        self.move_to(drop_columns(self, columns))

    def alter_columns(self, *alterations: Mapping[str, Any]) -> None:
        """Change names, types or nullability of columns; moves to the new version.

        Parameters
        ----------
        alterations
            Dictionaries with the ``path`` of a column, ``"s.x"`` for a member, and any of
            ``name``, ``data_type`` and ``nullable``.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError
            There is no such column; a name is taken; a type or a value cannot be cast; a
            column to be never null has nulls; a column to be cast has an index.
        CommitConflictError
            Another writer changed the dataset meanwhile; nothing was changed.

        Notes
        -----
        Names and nullability are changes of the schema alone; to make a column never null,
        it is read. Another type writes one file per fragment.
        """
        from glaive.dataset.columns.alter_columns import alter_columns

        self.move_to(alter_columns(self, alterations))

    def merge(
        self,
        data_obj: object,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        """Add the columns of a table, joined by a key, and move to the new version.

        Parameters
        ----------
        data_obj
            The key and the new columns. Rows without a partner are passed over; rows of the
            dataset without one get nulls; of several partners the last one counts.
        left_on, right_on
            Names of the key in the dataset and in the table; ``_rowid`` and ``_rowaddr`` may be
            keys of the dataset.
        schema
            Of the table, where it has none.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            A key does not exist, keys differ in type, or a name is taken.
        CommitConflictError
            Another writer changed the dataset meanwhile; nothing was changed.

        Notes
        -----
        Holds the table and the key of all rows in memory.
        """
        from glaive.dataset.columns.merge_data import merge_data

        self.move_to(merge_data(self, data_obj, left_on, right_on, schema))

    def replace_schema(self, schema: object) -> NoReturn:
        """Not offered: use :meth:`alter_columns` or :meth:`replace_schema_metadata`."""
        from glaive.errors import UnsupportedFeatureError

        raise UnsupportedFeatureError(
            "replace_schema: a schema cannot be replaced as a whole. Use add_columns, "
            "drop_columns and alter_columns, or replace_schema_metadata."
        )

    # ----------------------------------------------------------------- versions

    def validate(self) -> None:
        """Check what the manifest says of this version against its files.

        Raises
        ------
        CorruptFileError, DataFileMissingError
            Something does not fit or is missing; the message names it.

        Notes
        -----
        Opens every data file and reads every deletion file, but no values.
        """
        from glaive.dataset.versions.validate import validate_version

        validate_version(self.snapshot)

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> DatasetDelta:
        """What changed since a version, or between two: rows and transactions.

        ``compared_against`` is the version this one is compared with; else the changes are
        those after ``begin_version`` up to ``end_version``.
        """
        from glaive.dataset.versions.delta import compare_versions

        return compare_versions(self, compared_against, begin_version, end_version)

    # ----------------------------------------------------------------- bases

    def base_paths(self) -> dict[int, DatasetBasePath]:
        """Further places where files of this version may lie, by id."""
        from glaive.dataset.writing.base_paths import base_paths_of

        return base_paths_of(self.manifest)

    def add_bases(
        self,
        new_bases: Sequence[DatasetBasePath],
        transaction_properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Register base paths, move to the new version, and return this object.

        Raises
        ------
        OptionError
            A base of this id, name or path is there already.
        """
        from glaive.dataset.writing.bases import add_bases

        self.store, made = add_bases(self, new_bases, transaction_properties)
        self.move_to(made)
        return self
