"""``LanceFragment``: one fragment of a dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import pyarrow as pa

from glaive.dataset.fragment_metadata import DataFile, FragmentMetadata, file_of, opened_file
from glaive.dataset.keywords import FileKeywords, FragmentKeywords, shows_file_options
from glaive.dataset.pylance_members import class_for_arrow
from glaive.dataset.scanner import Scanner
from glaive.dataset.transactions import write_fragments
from glaive.dataset.writing.conform import match_schema
from glaive.dataset.writing.fragments import FragmentWriteProgress, NumberedProgress
from glaive.errors import (
    NotFoundError,
    OptionError,
    RowIndexError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.file.protocol import positions
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment
from glaive.format.paths import deletion_file_path
from glaive.io.store import ObjectStore
from glaive.options import integer, shows
from glaive.scan.options import FragmentScanKeywords, HeadKeywords, ScanOptions, shows_options
from glaive.scan.projection import ROW_ADDRESS, Columns, column_names, refuse_reserved_names
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.take import take
from glaive.scan.views import Views
from glaive.types import VersionIdentity

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from glaive.dataset.scanner import BlobMode
    from glaive.dataset.version import OpenDataset


# --- ``LanceFragment._fragment``: what clients of pylance read from its inner fragment ----


class InnerFragment:
    """A fragment whose id, schema and metadata are methods. Other attributes are the fragment's."""

    def __init__(self, fragment: Any) -> None:
        self._outer = fragment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)

    def __repr__(self) -> str:
        return repr(self._outer)

    def __reduce__(self) -> tuple[object, ...]:
        return InnerFragment, (self._outer,)

    def id(self) -> int:
        """Return the id within the dataset."""
        return int(self._outer.fragment_id)

    def schema(self) -> pa.Schema:
        """Return the schema of the dataset."""
        schema: pa.Schema = self._outer.schema
        return schema

    def metadata(self) -> FragmentMetadata:
        """Return id, files and deletions."""
        found: FragmentMetadata = self._outer.metadata
        return found


# --- Uncommitted fragments from rows, or from an existing file --------------------------

_UNLIMITED = 2**62
"""Limit of rows and bytes: larger than any file."""


def create_fragment(
    place: str | os.PathLike[str] | OpenDataset,
    data: object,
    fragment_id: int | None,
    schema: pa.Schema | None,
    mode: Any,
    options: Mapping[str, Any],
) -> FragmentMetadata:
    """Write all rows into one file.

    ``create`` acts as ``overwrite``: the fragment may have another schema than an existing dataset.
    """
    number = integer(0).check("fragment_id", fragment_id or 0)
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(progress := given.get("progress"), FragmentWriteProgress):
        given["progress"] = NumberedProgress(progress, number)
    made: Any = write_fragments(
        data,
        place,
        schema,
        mode="overwrite" if mode == "create" else mode,
        max_rows_per_file=_UNLIMITED,
        max_bytes_per_file=_UNLIMITED,
        **given,
    )
    if not made:
        raise SchemaError("create: expected rows for a fragment, found none")
    first: FragmentMetadata = made[0]
    if not any(file.fields for file in first.files):
        raise SchemaError("create: the rows have no columns. Give them at least one")
    return replace(first, id=number)


def fragment_of_file(snapshot: Snapshot, name: str, fragment_id: int) -> FragmentMetadata:
    """Describe a data file as a fragment; columns are matched by name."""
    schema = snapshot.manifest.schema
    reader = opened_file(snapshot, name, None)
    match_schema(reader.schema.to_arrow(), schema, where=snapshot.store.uri)
    file = DataFile.of(file_of(reader, name, schema, None))
    return FragmentMetadata(fragment_id, [file], reader.num_rows)


# --- Uncommitted changes of one fragment: new columns, new values, deletions ------------
# Each method returns arguments of a ``LanceOperation``, which you commit.


class FragmentChanges:
    """The methods of ``LanceFragment`` that prepare changes for a commit."""

    _views: Views
    _position: int
    _stored: Fragment

    @classmethod
    def of(cls, views: Views, position: int) -> Self:
        """Return the fragment at a position in the list of a version."""
        fragment = cls.__new__(cls)
        fragment._bind(views, position)  # noqa: SLF001  # of this class
        return fragment

    def _bind(self, views: Views, position: int) -> None:
        self._views, self._position = views, position
        self._stored = views.snapshot.manifest.fragment(position)

    @staticmethod
    @shows_file_options(
        FragmentKeywords,
        FileKeywords,
        FragmentKeywords,
        positional=("max_rows_per_group", "progress", "mode"),
        max_rows_per_group=1024,
        mode="append",
    )
    def create(
        dataset_uri: str | os.PathLike[str] | OpenDataset,
        data: object,
        fragment_id: int | None = None,
        schema: pa.Schema | None = None,
        **options: Unpack[FragmentKeywords],
    ) -> FragmentMetadata:
        """Write all rows into one file; ``write_fragments`` explains the parameters.

        Raises
        ------
        SchemaError
            The rows are invalid for the dataset, or the input is empty.
        """
        mode = options.pop("mode", "append")
        return create_fragment(dataset_uri, data, fragment_id, schema, mode, options)

    @staticmethod
    def create_from_file(filename: str, dataset: OpenDataset, fragment_id: int) -> FragmentMetadata:
        """Describe a file below ``data`` as a fragment; columns are matched by name.

        Raises
        ------
        DataFileMissingError, SchemaError
            The file is missing, or has columns that the dataset lacks.
        """
        return fragment_of_file(dataset.opened.snapshot, filename, fragment_id)

    def merge_columns(
        self,
        value_func: Any,
        columns: Sequence[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Add columns to this fragment; ``LanceDataset.add_columns`` explains the parameters.

        Returns the fragment with an additional file, and the new schema, for
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
        """Add the columns of a table, joined by a key; see ``LanceDataset.merge``.

        Returns the fragment with an additional file, and the new schema, for
        ``LanceOperation.Merge``.
        """
        from glaive.dataset.columns.add_columns import merge_into_fragment

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
        """Replace values of columns in the rows whose key is in a table. Other rows keep their
        values.

        Parameters
        ----------
        data_obj
            The key, and complete columns of the dataset. Of rows with the same key the last wins.
        left_on, right_on
            Key columns of this fragment (may be ``_rowid`` or ``_rowaddr``) and of the table.
        schema
            Schema of ``data_obj``, for rows that lack one.
        with_offsets
            Also return the physical rows that matched, as bytes of a roaring bitmap.

        Returns
        -------
        tuple
            The fragment, and ids of the rewritten fields, for ``LanceOperation.Update``.

        Notes
        -----
        Writes one file with the columns for all rows of the fragment.
        """
        from glaive.dataset.columns.add_columns import update_columns

        given = (data_obj, left_on, right_on, schema)
        made, fields, offsets = update_columns(self._views.snapshot, self._position, *given)
        fragment = FragmentMetadata.of(made)
        return (fragment, fields, offsets) if with_offsets else (fragment, fields)

    def delete(self, predicate: str | pc.Expression) -> FragmentMetadata | None:
        """Delete the matching rows; return the fragment with a new deletion file.

        Returns ``None`` if all rows are deleted, and an equal fragment if all rows stay.
        """
        from glaive.expr.bind import check_column_texts

        schema = self._views.snapshot.manifest.schema
        check_column_texts(schema, predicate)
        refuse_reserved_names(schema, ROW_ADDRESS)
        only = (self._stored.id,)
        scanner = Scanner.of(self._views, columns=[ROW_ADDRESS], filter=predicate, fragments=only)
        addresses = scanner.to_table().column(ROW_ADDRESS).to_numpy()
        return self._deleted(addresses.astype(np.uint32))

    def delete_rows(self, offsets: Iterable[int]) -> FragmentMetadata | None:
        """Delete physical rows, 0 ≤ offset < ``physical_rows``, in any order; see :meth:`delete`.

        Raises
        ------
        RowIndexError
            The row is missing.
        OptionError
            A value is not an integer.
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
        made, _ = self._views.snapshot.add_deletions(self._stored, offsets)
        return None if made is None else FragmentMetadata.of(made)

    def validate(self) -> None:
        """Check that the manifest of this fragment matches its files.

        Raises
        ------
        CorruptFileError, DataFileMissingError
            A file is damaged or missing; the message names it.
        """
        from glaive.dataset.validate import validate_fragment

        validate_fragment(self._views.snapshot, self._position)


class LanceFragment(FragmentChanges):
    """A horizontal part of one version of a dataset; returned by ``dataset.get_fragments()``.

    The fragment stays at that version when the dataset moves on.
    """

    __class__ = class_for_arrow("Fragment")

    def __init__(self, dataset: OpenDataset, fragment_id: int | None) -> None:
        if fragment_id is None:
            raise OptionError("fragment_id: expected the id of a fragment, found None")
        snapshot = dataset.opened.snapshot
        self._bind(Views(snapshot), snapshot.manifest.position_of(fragment_id))

    def __repr__(self) -> str:
        files = [file.path for file in self._stored.files]
        deleted = self.deletion_file()
        also = f", deletion_file={deleted!r}" if deleted else ""
        return f"LanceFileFragment(id={self.fragment_id}, data_files={files}{also})"

    def _repr_html_(self) -> str:
        from glaive.dataset.stats import fragment_html

        return fragment_html(self)

    def __reduce__(self) -> tuple[object, ...]:
        at = self._views.snapshot
        return (_reopen, (type(self), at.store, at.manifest.identity, self.fragment_id))

    @property
    def _ds(self) -> SimpleNamespace:
        """The attributes that clients read from pylance's fragments: Hugging Face reads the
        schema.
        """
        manifest = self._views.snapshot.manifest
        return SimpleNamespace(schema=manifest.schema.logical_schema(), version=manifest.version)

    @property
    def _fragment(self) -> InnerFragment:
        """The fragment, with the methods of pylance's inner fragment."""
        return InnerFragment(self)

    @property
    def metadata(self) -> FragmentMetadata:
        """Id, files and deletions, for use in a ``LanceOperation``."""
        return FragmentMetadata.of(self._stored)

    @property
    def fragment_id(self) -> int:
        """Id within the dataset."""
        return self._stored.id

    @property
    def schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._views.snapshot.manifest.schema.logical_schema()

    @property
    def physical_schema(self) -> pa.Schema:
        """Schema of the columns in its files, which may lack columns of the dataset."""
        schema = self._views.snapshot.manifest.schema
        stored = {number for file in self._stored.files for number in file.fields}
        there = [
            top.name for top in schema.fields if any(field.id in stored for field in top.walk())
        ]
        return pa.schema([schema.logical_schema().field(name) for name in there])

    @property
    def partition_expression(self) -> object:
        """Raise an error: Lance datasets have no partitions by expressions."""
        raise UnsupportedFeatureError(
            "partition_expression: Not implemented yet for LanceFragment: Lance datasets are not "
            "partitioned by expressions"
        )

    @property
    def physical_rows(self) -> int:
        """Number of rows in the files, including deleted rows."""
        return self._stored.physical_rows

    @property
    def num_deletions(self) -> int:
        """Number of deleted rows."""
        return self.physical_rows - self._live()

    def _live(self) -> int:
        return int(self._views.snapshot.live_counts[self._position])

    def data_files(self) -> list[DataFile]:
        """Return the files that hold the fragment's columns."""
        return [DataFile.of(file) for file in self._stored.files]

    def deletion_file(self) -> str | None:
        """Return the path of the deletion file within the dataset, or ``None``.

        It is ``None`` if all rows are live.
        """
        file = self._stored.deletion_file
        if file is None:
            return None
        return deletion_file_path(
            self.fragment_id, file.read_version, file.number, bitmap=file.bitmap
        )

    def count_rows(self, filter: object = None) -> int:
        """Count live rows: from the manifest alone, or by a scan with a filter.

        Parameters
        ----------
        filter
            Condition on the rows to count, as for :meth:`glaive.LanceDataset.to_table`.
        """
        if filter is None and self._views.snapshot.has_ascending_ids:
            return self._live()
        return self.scanner(filter=filter).count_rows()

    @shows_options()
    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        **options: Unpack[FragmentScanKeywords],
    ) -> Scanner:
        """Describe a scan of this fragment."""
        options["fragments"] = (self.fragment_id,)
        return Scanner.of(self._views, columns=columns, filter=filter, **options)

    @shows_options(
        positional=[
            *("limit", "offset", "with_row_id", "with_row_address", "blob_handling", "order_by"),
            *("use_scalar_index", "io_buffer_size", "late_materialization"),
            *("include_deleted_rows", "batch_size_bytes", "strict_batch_size"),
        ]
    )
    def to_table(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        **options: Unpack[FragmentScanKeywords],
    ) -> pa.Table:
        """Read the fragment into a table."""
        return self.scanner(columns, filter, **options).to_table()

    @shows_options()
    def to_batches(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        **options: Unpack[FragmentScanKeywords],
    ) -> Iterator[pa.RecordBatch]:
        """Stream the fragment in batches."""
        return self.scanner(columns, filter, **options).to_batches()

    @shows_options(
        positional=[
            *("limit", "offset", "batch_size", "with_row_id", "with_row_address", "blob_mode"),
            "order_by",
        ]
    )
    def to_pandas(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        *,
        blob_mode: BlobMode = "lazy",
        **kwargs: Any,
    ) -> Any:
        """Read into a pandas frame; ``kwargs`` go to ``pyarrow.Table.to_pandas``.

        ``blob_mode`` is the form of blobs: files (``"lazy"``), ``"bytes"`` or ``"descriptions"``.
        """
        options, kwargs = ScanOptions.split(kwargs)
        return self.scanner(columns, filter, **options).to_pandas(blob_mode=blob_mode, **kwargs)

    @shows(HeadKeywords, ScanOptions, leave_out=["limit"])
    def head(self, num_rows: int, **options: Unpack[HeadKeywords]) -> pa.Table:
        """Return the first live rows.

        Parameters
        ----------
        num_rows
            Maximum number of rows.
        """
        return self.to_table(limit=num_rows, **options)

    def take(
        self, indices: object, columns: Sequence[str] | Mapping[str, str] | None = None
    ) -> pa.Table:
        """Return rows by position among the live rows of this fragment, in the order given.

        Blob columns are returned as bytes, as in pylance.

        Parameters
        ----------
        indices
            Positions from 0 to :meth:`count_rows` - 1. They may repeat.
        columns
            Column paths, or a mapping of names to SQL expressions; default: all columns.

        Raises
        ------
        RowIndexError
            A position is out of range.
        """
        live = self._live()
        rows = positions(indices, live)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < live:
            wrong = next(row for row in rows.tolist() if not 0 <= row < live)
            raise RowIndexError(
                f"Invalid read params: row position {wrong} is out of range: fragment "
                f"{self.fragment_id} has {live} rows, counted from 0"
            )
        first = np.int64(self._views.snapshot.row_starts[self._position])
        view = self._views.take(column_names(columns, pruning=True), blobs="values")
        return take(view, rows + first)

    def open_session(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        with_row_address: bool | None = None,
    ) -> FragmentSession:
        """Prepare repeated takes of the same columns.

        Parameters
        ----------
        columns
            Column paths, or a mapping of names to SQL expressions; default: all columns.
        with_row_address
            Append the column ``_rowaddr``.
        """
        wanted = column_names(columns, pruning=True)
        if with_row_address:
            names = self.schema.names if wanted is None else list(wanted)
            if names and not isinstance(names[0], str):
                raise OptionError(
                    "with_row_address: with expressions, add a column '_rowaddr' to them instead"
                )
            wanted = (*names, ROW_ADDRESS)
        return FragmentSession(self, wanted)


class FragmentSession:
    """Takes rows of one fragment; returned by ``LanceFragment.open_session``."""

    __slots__ = ("_columns", "_fragment")

    def __init__(self, fragment: LanceFragment, columns: Columns | None) -> None:
        self._fragment = fragment
        self._columns: Any = None if columns is None else list(columns)

    def take(self, indices: object) -> pa.Table:
        """Return rows by position among the live rows of the fragment, in the order given."""
        return self._fragment.take(indices, self._columns)


def all_fragments(views: Views, filter: object = None) -> list[LanceFragment]:
    """Return all fragments of a version, in order.

    Raises
    ------
    UnsupportedFeatureError
        You gave a filter.
    """
    if filter is not None:
        raise UnsupportedFeatureError(
            "get_fragments() does not support filter yet. Leave it out, and filter the rows."
        )
    return [LanceFragment.of(views, at) for at in range(views.snapshot.manifest.num_fragments)]


def fragment_with_id(views: Views, fragment_id: int) -> LanceFragment | None:
    """Return a fragment of a version; None if the id is unknown.

    Raises
    ------
    OptionError, OptionRangeError
        The id is negative or not an integer.
    """
    number = integer(0).check("fragment_id", fragment_id)
    try:
        return LanceFragment.of(views, views.snapshot.manifest.position_of(number))
    except NotFoundError:
        return None


def _reopen(kind: Any, store: ObjectStore, identity: VersionIdentity, fragment_id: int) -> Any:
    from glaive.table.load import open_same

    manifest = open_same(store, identity)
    views = Views(Snapshot(store, manifest, Session()))
    return kind.of(views, manifest.position_of(fragment_id))
