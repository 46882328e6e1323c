"""``LanceFragment``: one fragment of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from glaive.dataset.arrow_classes import class_for_arrow
from glaive.dataset.fragments.changes import FragmentChanges
from glaive.dataset.fragments.data_files import DataFile
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.scanner import Scanner
from glaive.errors import (
    NotFoundError,
    OptionError,
    OptionRangeError,
    RowIndexError,
    UnsupportedFeatureError,
)
from glaive.file.positions import positions
from glaive.format.paths import deletion_file_path
from glaive.io.store import ObjectStore
from glaive.scan.keywords import FragmentScanKeywords, HeadKeywords, shows_options
from glaive.scan.options import ScanOptions
from glaive.scan.projection import Columns, column_names
from glaive.scan.session import Session
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ADDRESS
from glaive.scan.take import take
from glaive.scan.views import Views
from glaive.types import VersionIdentity, integer_of

if TYPE_CHECKING:
    from glaive.dataset.fragments.inner import InnerFragment
    from glaive.dataset.frames import BlobMode
    from glaive.dataset.version import OpenDataset

__all__ = ["FragmentSession", "LanceFragment", "all_fragments", "fragment_with_id"]


class LanceFragment(FragmentChanges):
    """A horizontal part of one version of a dataset; returned by ``dataset.get_fragments()``.

    It stays at that version when the dataset moves to another one.
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
        from glaive.dataset.notebook_views import fragment_html

        return fragment_html(self)

    def __reduce__(self) -> tuple[object, ...]:
        at = self._views.snapshot
        return (_reopen, (type(self), at.store, at.manifest.identity, self.fragment_id))

    @property
    def _ds(self) -> SimpleNamespace:
        """What clients read of the dataset in pylance's fragments: Hugging Face its schema."""
        manifest = self._views.snapshot.manifest
        return SimpleNamespace(schema=manifest.schema.logical_schema(), version=manifest.version)

    @property
    def _fragment(self) -> InnerFragment:
        """The fragment, with the methods of pylance's inner one."""
        from glaive.dataset.fragments.inner import InnerFragment

        return InnerFragment(self)

    @property
    def metadata(self) -> FragmentMetadata:
        """Id, files and deletions, for use in a ``LanceOperation``."""
        return FragmentMetadata.of(self._stored)

    @property
    def fragment_id(self) -> int:
        """Identity within the dataset."""
        return self._stored.id

    @property
    def schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._views.snapshot.manifest.schema.logical_schema()

    @property
    def physical_schema(self) -> pa.Schema:
        """Schema of the columns in its files; columns of the dataset that they lack are null."""
        schema = self._views.snapshot.manifest.schema
        stored = {number for file in self._stored.files for number in file.fields}
        there = [
            top.name for top in schema.fields if any(field.id in stored for field in top.walk())
        ]
        return pa.schema([schema.logical_schema().field(name) for name in there])

    @property
    def partition_expression(self) -> object:
        """Not offered: Lance datasets are not partitioned by expressions."""
        raise UnsupportedFeatureError(
            "partition_expression: Not implemented yet for LanceFragment: Lance datasets are not "
            "partitioned by expressions"
        )

    @property
    def physical_rows(self) -> int:
        """Rows in the files, deleted ones included."""
        return self._stored.physical_rows

    @property
    def num_deletions(self) -> int:
        """Deleted rows."""
        return self.physical_rows - self._live()

    def _live(self) -> int:
        return int(self._views.snapshot.live_counts[self._position])

    def data_files(self) -> list[DataFile]:
        """The files that hold the fragment's columns."""
        return [DataFile.of(file) for file in self._stored.files]

    def deletion_file(self) -> str | None:
        """Path of the deletion file within the dataset; ``None`` if no row is deleted."""
        file = self._stored.deletion_file
        if file is None:
            return None
        return deletion_file_path(
            self.fragment_id, file.read_version, file.number, bitmap=file.bitmap
        )

    def count_rows(self, filter: object = None) -> int:
        """Number of live rows: from the manifest alone, or by a scan with a filter."""
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
        """Describe a scan of this fragment; options as for ``dataset.scanner``."""
        options["fragments"] = (self.fragment_id,)
        return Scanner.of(self._views, columns=columns, filter=filter, **options)

    @shows_options(
        "limit",
        "offset",
        "with_row_id",
        "with_row_address",
        "blob_handling",
        "order_by",
        "use_scalar_index",
        "io_buffer_size",
        "late_materialization",
        "include_deleted_rows",
        "batch_size_bytes",
        "strict_batch_size",
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
        "limit",
        "offset",
        "batch_size",
        "with_row_id",
        "with_row_address",
        "blob_mode",
        "order_by",
    )
    def to_pandas(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        *,
        blob_mode: BlobMode = "lazy",
        **kwargs: Any,
    ) -> Any:
        """Read into a pandas frame; options as for :meth:`scanner` and ``Table.to_pandas``.

        Blobs become files (``blob_mode="lazy"``), ``"bytes"`` or ``"descriptions"``.
        """
        options, kwargs = ScanOptions.split(kwargs)
        return self.scanner(columns, filter, **options).to_pandas(blob_mode=blob_mode, **kwargs)

    def head(self, num_rows: int, **options: Unpack[HeadKeywords]) -> pa.Table:
        """The first live rows."""
        return self.to_table(limit=num_rows, **options)

    def take(
        self, indices: object, columns: Sequence[str] | Mapping[str, str] | None = None
    ) -> pa.Table:
        """Rows by position among the live rows of this fragment, in the order given.

        Blob columns are returned as bytes, not as descriptors, as in pylance.
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
        """Prepare repeated takes of the same columns, optionally with ``_rowaddr``."""
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
        """Rows by position among the live rows of the fragment, in the order given."""
        return self._fragment.take(indices, self._columns)


def all_fragments(views: Views, filter: object = None) -> list[LanceFragment]:
    """All fragments of a version, in order.

    Raises
    ------
    UnsupportedFeatureError
        A filter is given.
    """
    if filter is not None:
        raise UnsupportedFeatureError(
            "get_fragments() does not support filter yet. Leave it out, and filter the rows."
        )
    return [LanceFragment.of(views, at) for at in range(views.snapshot.manifest.num_fragments)]


def fragment_with_id(views: Views, fragment_id: int) -> LanceFragment | None:
    """A fragment of a version; None if there is none with this id.

    Raises
    ------
    OptionError, OptionRangeError
        The id is no integer, or is negative.
    """
    number = integer_of(fragment_id)
    if number is None:
        raise OptionError(f"fragment_id: expected an integer, found {fragment_id!r:.60}")
    if number < 0:
        raise OptionRangeError(f"fragment_id: expected a number ≥ 0, found {fragment_id}")
    try:
        return LanceFragment.of(views, views.snapshot.manifest.position_of(number))
    except NotFoundError:
        return None


def _reopen(kind: Any, store: ObjectStore, identity: VersionIdentity, fragment_id: int) -> Any:
    from glaive.table.replaced import open_same

    manifest = open_same(store, identity)
    views = Views(Snapshot(store, manifest, Session()))
    return kind.of(views, manifest.position_of(fragment_id))
