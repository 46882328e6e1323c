"""``LanceDataset``: public signatures and their documentation.

Its methods are thin: each delegates, with the opened version, to a function that can be used and
tested alone. Rarely used modules are imported when needed, which keeps opening a
dataset fast.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from threading import RLock
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

import pyarrow as pa

from glaive.compat.absent import REFUSED_MEMBERS, refuse_members
from glaive.dataset.keywords import (
    FileKeywords,
    IndexKeywords,
    InsertKeywords,
    ScalarKeywords,
    TargetKeywords,
    VectorKeywords,
    WriteKeywords,
)
from glaive.dataset.pylance_members import ArrowNamed, PylanceMembers, class_for_arrow
from glaive.dataset.version import (
    OpenDataset,
    OpenedVersion,
    describe,
    describe_all,
    find,
    version_of_manifest,
    warn_deprecated,
)
from glaive.errors import GlaiveError, UnsupportedFeatureError
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Feature, Manifest
from glaive.io.access import AccessPolicy
from glaive.io.store import IOStats, ObjectStore
from glaive.options import shows
from glaive.process import fork_safe
from glaive.scan.options import HeadKeywords, ScanKeywords, ScanOptions, shows_options
from glaive.scan.projection import column_names
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.take import take, take_ids
from glaive.table.manifest_store import ManifestStore
from glaive.table.root import CommitLock
from glaive.table.versions import latest, list_versions

if TYPE_CHECKING:
    from uuid import UUID

    import pyarrow.compute as pc

    from glaive.dataset.change_feed import ChangeFeed, DatasetDelta
    from glaive.dataset.cleanup import CleanupExplanation, CleanupStats
    from glaive.dataset.fragment import LanceFragment
    from glaive.dataset.fragment_metadata import Bitmap
    from glaive.dataset.indexing.create import IndexConfig
    from glaive.dataset.indexing.describe import IndexDescription
    from glaive.dataset.indexing.task import IndexProgress
    from glaive.dataset.indexing.vector_models import IvfModel
    from glaive.dataset.interop import ArrowDataset, SqlQueryBuilder
    from glaive.dataset.lance_operation import Index, LanceOperation
    from glaive.dataset.maintenance import DatasetOptimizer
    from glaive.dataset.merging.merge_insert import MergeInsertBuilder
    from glaive.dataset.refs import Branches, Tags
    from glaive.dataset.scanner import BlobMode, Scanner
    from glaive.dataset.stats import LanceStats
    from glaive.dataset.tasks import StringUpdates
    from glaive.dataset.transactions import Transaction
    from glaive.dataset.writing.plan import DatasetBasePath, Mode
    from glaive.scan.blob_files import BlobFile
    from glaive.scan.text_queries import DocumentGranularity


_COMMIT_TIMEOUT = timedelta(minutes=30)

_MOVING = fork_safe(RLock())
"""Lock, held while a dataset moves from one version to another."""

_BY_POSITION = (
    "nearest",
    "batch_size",
    "batch_size_bytes",
    "batch_readahead",
    "fragment_readahead",
    "scan_in_order",
)
"""Options after ``offset`` that may be given by position, as in pylance."""

Target = str | os.PathLike[str] | OpenDataset
"""The target of a commit."""


@refuse_members(REFUSED_MEMBERS)
class LanceDataset(PylanceMembers, ArrowNamed):
    """One version of a dataset. :func:`glaive.dataset` opens one and explains the parameters.

    Threads can share it. You can pickle it: unpickling opens the same version again.
    """

    __class__ = class_for_arrow("Dataset")

    def __init__(
        self,
        uri: str | os.PathLike[str] | None,
        version: int | str | tuple[str | None, int | None] | None = None,
        block_size: int | None = None,
        index_cache_size: int | None = None,
        metadata_cache_size: int | None = None,
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, str] | None = None,
        serialized_manifest: bytes | None = None,
        default_scan_options: Mapping[str, Any] | None = None,
        metadata_cache_size_bytes: int | None = None,
        index_cache_size_bytes: int | None = None,
        read_params: Mapping[str, Any] | None = None,
        session: Session | None = None,
        namespace_client: Any = None,
        table_id: Sequence[str] | None = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        *,
        asof: object = None,
        manifest_store: ManifestStore | str | None = None,
        allow_external_blobs: bool | Sequence[str] | None = None,
    ) -> None:
        if serialized_manifest is not None and version is None:
            version = version_of_manifest(serialized_manifest)
        if namespace_client is not None or table_id is not None:
            from glaive.table.manifest_registers import find_table

            found = find_table(namespace_client, table_id, uri, storage_options, manifest_store)
            uri, storage_options = found.uri, found.storage_options
            manifest_store = found.manifest_store or manifest_store
        access = AccessPolicy.of(base_store_params, allow_external_blobs)
        store, manifest, uri = find(
            uri, version, asof, storage_options, commit_lock, manifest_store, access
        )
        if session is None:
            session = Session(index_cache_size_bytes, metadata_cache_size_bytes)
        self._at = OpenedVersion.of(
            store,
            manifest,
            uri=uri,
            storage_options=storage_options,
            session=session,
            scan_defaults=default_scan_options,
        )

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        manifest: Manifest,
        *,
        uri: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the version that a manifest describes, from memory."""
        place: Any = {"uri": uri, "storage_options": storage_options}
        return cls.holding(OpenedVersion.of(store, manifest, **place))

    @classmethod
    def holding(cls, opened: OpenedVersion) -> Self:
        """Return the dataset at an opened version, from memory."""
        dataset = cls.__new__(cls)
        dataset._at = opened  # noqa: SLF001  # of this class
        return dataset

    @property
    def opened(self) -> OpenedVersion:
        """The version of this object now; the value stays at it when the object moves on."""
        return self._at

    def move_to(self, manifest: Manifest) -> None:
        """Move this object to another version of its branch, unless it is at a later version."""
        moved = self._at.at(manifest)
        # Threads that share this object may arrive in another order than they made versions.
        with _MOVING:
            while not (at := self._at).is_after(manifest) and at is not moved:
                if self._at is at:  # a signal handler may have moved it meanwhile
                    self._at = moved
        moved.session.moved()

    def reset_to(self, manifest: Manifest) -> None:
        """Move this object to another version of its branch, even an earlier version."""
        with _MOVING:
            self._at = self._at.at(manifest)
        self._at.session.moved()

    # ------------------------------------------------------------ properties

    @property
    def uri(self) -> str:
        """URI with which the dataset was opened."""
        return self._at.uri

    @property
    def store(self) -> ObjectStore:
        """The root of the dataset."""
        return self._at.store

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """Options of the object store, as they were given."""
        return self._at.storage_options

    @property
    def snapshot(self) -> Snapshot:
        """The version as scans read it."""
        return self._at.snapshot

    @property
    def manifest(self) -> Manifest:
        """The manifest of the version."""
        return self._at.manifest

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """Options of the object store, as given; ``None`` by default."""
        return None if self.storage_options is None else dict(self.storage_options)

    def latest_storage_options(self) -> dict[str, str] | None:
        """Return ``initial_storage_options``: options are fixed while a dataset is open."""
        return self.initial_storage_options

    def __repr__(self) -> str:
        return f"LanceDataset({GlaiveError.without_secrets(self.uri)!r}, version={self.version})"

    def _repr_html_(self) -> str:
        from glaive.dataset.stats import dataset_html

        return dataset_html(self.snapshot, self.uri)

    def __len__(self) -> int:
        return self.snapshot.num_rows

    def __copy__(self) -> Self:
        return self.holding(self._at)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self).holding, (self._at,))

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema. With ``default_scan_options``, the schema of scans."""
        if self._at.scan_defaults:
            return self.scanner().projected_schema
        return self.manifest.schema.logical_schema()

    @property
    def lance_schema(self) -> LanceSchema:
        """Schema with field ids."""
        return self.manifest.schema

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Metadata of the Arrow schema, as strings."""
        return {k: v.decode("utf-8", "replace") for k, v in self.manifest.schema.metadata.items()}

    def session(self) -> Session:
        """Return the cache of opened files, which datasets can share."""
        return self._at.session

    @property
    def version(self) -> int:
        """Number of this version."""
        return self.manifest.version

    @property
    def latest_version(self) -> int:
        """Number of the newest version. One listing."""
        return latest(self.store).version

    @property
    def data_storage_version(self) -> str:
        """Format version of new data files, such as ``"2.2"``."""
        return str(self.manifest.data_format)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their ids when they move to other fragments."""
        return self.manifest.uses(Feature.STABLE_ROW_IDS)

    @property
    def max_field_id(self) -> int:
        """Highest field id of the schema and of data files. Files keep ids of dropped columns."""
        from glaive.dataset.columns.column_files import first_new_id

        return first_new_id(self.manifest) - 1

    @property
    def has_index(self) -> bool:
        """Whether the version has indices."""
        return bool(self.manifest.indices)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the table."""
        return dict(self.manifest.table_metadata)

    def config(self) -> dict[str, str]:
        """Configuration of the table."""
        return dict(self.manifest.config)

    @property
    def partition_expression(self) -> object:
        """Raise an error: Lance datasets have no partitions by expressions."""
        raise UnsupportedFeatureError(
            "partition_expression: partitioning not yet supported: Lance datasets are not "
            "partitioned by expressions"
        )

    @property
    def stats(self) -> LanceStats:
        """Statistics of this version."""
        from glaive.dataset.stats import LanceStats

        return LanceStats(self.snapshot)

    def io_stats_snapshot(self) -> IOStats:
        """Return the operations and bytes read and written so far.

        The store of the dataset counts them for all versions. A read of a file that another dataset
        of the session opened counts in the store of that dataset.
        """
        return self.store.counters.snapshot()

    def io_stats_incremental(self) -> IOStats:
        """Return operations and bytes since the last call; reset the counters."""
        return self.store.counters.take()

    # ------------------------------------------------------------ reading

    @shows_options(positional=(*_BY_POSITION, "fragments", "index_segments", "full_text_query"))
    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> Scanner:
        """Describe a scan."""
        from glaive.dataset.scanner import Scanner

        given = {"columns": columns, "filter": filter, "limit": limit, "offset": offset, **options}
        return Scanner.of(self._at.views, **self._at.with_scan_defaults(given))

    @shows_options(positional=_BY_POSITION)
    def to_table(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> pa.Table:
        """Read into a table."""
        if options.get("nearest") is None:
            return self.scanner(columns, filter, limit, offset, **options).to_table()
        from glaive.scan.ready import search_with

        given = {"columns": columns, "filter": filter, "limit": limit, "offset": offset, **options}
        return search_with(self._at.views, self._at.with_scan_defaults(given)).table()

    @shows_options(positional=_BY_POSITION)
    def to_batches(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> Iterator[pa.RecordBatch]:
        """Stream record batches in bounded memory."""
        return self.scanner(columns, filter, limit, offset, **options).to_batches()

    @shows_options(positional=_BY_POSITION)
    def to_numpy_batches(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> Iterator[dict[str, Any]]:
        """Stream batches as NumPy arrays by column, for NumPy, JAX and other libraries.

        Arrays in Arrow's own representation share Arrow's memory and are read-only.

        - Nulls make numbers NaN (integers become ``float64``) and times NaT.
        - Fixed-size lists of numbers have two dimensions. Tensors keep their shape.
        - Structs become dictionaries.
        - Strings, lists and other values become arrays of objects.
        """
        from glaive.dataset.scanner import batch_arrays

        return map(batch_arrays, self.to_batches(columns, filter, limit, offset, **options))

    @shows_options(positional=[name for name in _BY_POSITION if name != "batch_size_bytes"])
    def to_pandas(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        *,
        blob_mode: BlobMode = "lazy",
        **kwargs: Any,
    ) -> Any:
        """Read into a pandas frame; ``kwargs`` go to ``pyarrow.Table.to_pandas``.

        ``blob_mode`` is the form of blobs: files (``"lazy"``), ``"bytes"`` or ``"descriptions"``.
        """
        options, kwargs = ScanOptions.split(kwargs)
        scanner = self.scanner(columns, filter, limit, offset, **options)
        return scanner.to_pandas(blob_mode=blob_mode, **kwargs)

    def take(
        self, indices: object, columns: Sequence[str] | Mapping[str, str] | None = None
    ) -> pa.Table:
        """Return rows by position, in the order given.

        Parameters
        ----------
        indices
            Positions among live rows, from 0 to :meth:`count_rows` - 1: a list, a NumPy array or an
            Arrow array of integers. Positions may repeat.
        columns
            Column paths, or a mapping of names to SQL expressions; default: all columns.

        Raises
        ------
        RowIndexError
            A position is out of range.
        ColumnNotFoundError
            A column is unknown.
        """
        return take(self._at.views.take(column_names(columns, pruning=True)), indices)

    def _take_rows(
        self,
        row_ids: object,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        *,
        ignore_deletions: bool = False,
    ) -> pa.Table:
        """Return rows by ``_rowid``, in the order given; ids may repeat. The name is pylance's.

        Ids of deleted or unknown rows are skipped. With ``ignore_deletions``, deleted rows are
        returned as well, while their data exists.
        """
        view = self._at.views.take(column_names(columns, pruning=True))
        return take_ids(view, row_ids, deleted=ignore_deletions)

    def take_blobs(
        self,
        blob_column: str,
        ids: object = None,
        addresses: object = None,
        indices: object = None,
        *,
        buffer_size: int = 0,
    ) -> list[BlobFile | None]:
        """Return values of a blob column as files, in the order given.

        Reads the blob descriptors only. Give exactly one of ``ids``, ``addresses`` and ``indices``.

        Parameters
        ----------
        blob_column
            Path of the column.
        ids, addresses, indices
            Row ids, row addresses, or positions among live rows.
        buffer_size
            Bytes to read ahead in sequential reads; 0 reads only the bytes requested.

        Returns
        -------
        list of BlobFile
            A seekable file per row; ``None`` for nulls.

        Raises
        ------
        SchemaError, ColumnNotFoundError
            The column is unknown, or is not a blob column.
        RowIndexError
            A row is missing.
        """
        from glaive.dataset.blobs import take_blobs

        rows = {"ids": ids, "addresses": addresses, "indices": indices}
        return take_blobs(self._at.views, blob_column, rows, buffer_size=buffer_size)

    def read_blobs(
        self,
        blob_column: str,
        ids: object = None,
        addresses: object = None,
        indices: object = None,
        *,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
    ) -> list[tuple[int, bytes | None]]:
        """Return row address and bytes of each value of a blob column.

        Adjacent values are read with one request. Give exactly one of ``ids``, ``addresses`` and
        ``indices``.

        Parameters
        ----------
        blob_column
            Path of the column.
        ids, addresses, indices
            Row ids, row addresses, or positions among live rows.
        io_buffer_size
            Ignored.
        preserve_order
            ``False`` returns values by address; otherwise they are in the order given.

        Raises
        ------
        SchemaError, ColumnNotFoundError
            The column is unknown, or is not a blob column.
        RowIndexError
            A row is missing.
        """
        from glaive.dataset.blobs import read_blobs

        rows = {"ids": ids, "addresses": addresses, "indices": indices}
        return read_blobs(self._at.views, blob_column, rows, in_order=preserve_order is not False)

    def read_blob_ranges(
        self,
        blob_column: str,
        requests: Sequence[tuple[int, int, int]],
        *,
        selector: str,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
    ) -> list[tuple[int, int, bytes | None]]:
        """Read parts of values of a blob column.

        Parameters
        ----------
        blob_column
            Path of the column.
        requests
            Triples ``(row, offset, length)``; offset and length in bytes.
        selector
            Whether rows are ``"ids"``, ``"addresses"`` or ``"indices"``.
        io_buffer_size, preserve_order
            Ignored: parts are in the order of the requests.

        Returns
        -------
        list of tuple
            Number of the request, row address, and bytes; ``None`` for nulls.
        """
        from glaive.dataset.blobs import read_ranges

        return read_ranges(self._at.views, blob_column, requests, selector)

    @shows(HeadKeywords, ScanOptions, leave_out=["limit"])
    def head(self, num_rows: int, **options: Unpack[HeadKeywords]) -> pa.Table:
        """Return the first rows.

        Parameters
        ----------
        num_rows
            Maximum number of rows.
        """
        return self.to_table(limit=num_rows, **options)

    def slice(
        self, start: int, end: int, columns: Sequence[str] | Mapping[str, str] | None = None
    ) -> pa.Table:
        """Return a range of rows.

        Parameters
        ----------
        start, end
            First and last (exclusive) position among live rows.
        columns
            Column paths, or a mapping of names to SQL expressions; default: all columns.

        Raises
        ------
        OptionError
            ``start`` is negative, or ``end`` is smaller than ``start``.
        """
        from glaive.dataset.stats import slice_length

        return self.to_table(columns, offset=start, limit=slice_length(start, end))

    def sample(
        self,
        num_rows: int,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        randomize_order: bool = True,
    ) -> pa.Table:
        """Return random rows, each at most once.

        Parameters
        ----------
        num_rows
            Number of rows, at most :meth:`count_rows`.
        columns
            Column paths, or a mapping of names to SQL expressions; default: all columns.
        randomize_order
            ``False`` returns the rows in the order of the dataset.

        Raises
        ------
        OptionError
            ``num_rows`` is negative, or larger than the number of rows.
        """
        from glaive.dataset.stats import sample_positions

        rows = sample_positions(len(self), num_rows, randomize_order=randomize_order)
        return self.take(rows, columns)

    def to_pyarrow_dataset(self) -> ArrowDataset:
        """Return a ``pyarrow.dataset.Dataset``, for engines such as DuckDB and Polars.

        Engines push down projections and filters, so only the needed data is read. The result stays
        at this version when this object moves on: a query may begin several scans.
        """
        from glaive.dataset.interop import ArrowDataset

        return ArrowDataset(self.holding(self.opened))

    def sql(self, sql: str) -> SqlQueryBuilder:
        """Return an SQL query over this version; DataFusion runs it.

        Parameters
        ----------
        sql
            A ``SELECT`` statement. This dataset is the table ``dataset``.

        Examples
        --------
        >>> query = dataset.sql("SELECT count(*) FROM dataset WHERE a > 5")
        >>> batches = query.build().to_batch_records()
        """
        from glaive.dataset.interop import SqlQueryBuilder

        return SqlQueryBuilder(self.holding(self.opened), sql)

    @shows(ScanKeywords, ScanOptions)
    def count_rows(self, filter: object = None, **options: Unpack[ScanKeywords]) -> int:
        """Count live rows: by the manifest alone, or by a scan if a filter or option is given.

        Returns
        -------
        int
            The number of rows that are not deleted and pass the filter.
        """
        if filter is None and not options:
            return self.snapshot.num_rows
        return self.scanner(filter=filter, **options).count_rows()

    # ------------------------------------------------------------ fragments

    def fragment_ids(self) -> Bitmap:
        """Return the ids of the fragments, in order."""
        from glaive.dataset.fragment_metadata import Bitmap

        return Bitmap(self.manifest.fragment_ids.tolist())

    def get_fragments(self, filter: object = None) -> list[LanceFragment]:
        """Return all fragments, in order. ``filter`` is not supported."""
        from glaive.dataset.fragment import all_fragments

        return all_fragments(self._at.views, filter)

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """Return a fragment; ``None`` if it is missing.

        Parameters
        ----------
        fragment_id
            Id of the fragment. Ids differ from positions after a deletion or compaction.
        """
        from glaive.dataset.fragment import fragment_with_id

        return fragment_with_id(self._at.views, fragment_id)

    # ------------------------------------------------------------ changing rows

    @shows(InsertKeywords, FileKeywords, WriteKeywords, TargetKeywords, InsertKeywords)
    def insert(
        self, data: object, *, mode: Mode = "append", **options: Unpack[InsertKeywords]
    ) -> None:
        """Write rows and move this object to the new version.

        Parameters
        ----------
        data
            Rows in any form that :func:`glaive.write_dataset` accepts.
        mode
            ``"append"`` adds the rows; ``"overwrite"`` makes a version with these rows only.

        Raises
        ------
        SchemaError
            The rows do not match the schema.
        """
        from glaive.dataset.writing.rows import write_rows

        self.move_to(write_rows(data, self, mode, options).manifest)

    def delete(
        self,
        predicate: str | pc.Expression,
        *,
        conflict_retries: int = 10,
        retry_timeout: timedelta = timedelta(seconds=30),
        progress: bool | None = None,
    ) -> dict[str, int]:
        """Delete the matching rows and move this object to the new version.

        Parameters
        ----------
        predicate
            A filter, as an SQL string or a pyarrow expression.
        conflict_retries, retry_timeout
            How often, and for how long, to retry after another writer changed the same rows.
        progress
            Show the number of rows found on a line of the terminal.

        Returns
        -------
        dict
            ``num_deleted_rows``.

        Raises
        ------
        FilterError
            The filter is invalid; the dataset is unchanged.
        CommitConflictError, CommitContentionError
            Another writer changed the same rows, or every retry lost the race. The dataset
            is unchanged.

        Notes
        -----
        Reads the columns of the filter; writes one small file per affected fragment.
        """
        from glaive.dataset.monitoring import showing
        from glaive.dataset.rows import delete_where, with_retries

        limits: Any = {"conflict_retries": conflict_retries, "retry_timeout": retry_timeout}
        with showing(progress, "delete"):
            count = with_retries(self, lambda at: delete_where(at, predicate), **limits)
        return {"num_deleted_rows": count}

    def truncate_table(self) -> None:
        """Delete all rows and move this object to the new version; columns stay."""
        from glaive.dataset.rows import truncate, with_retries

        with_retries(self, truncate)

    def update(
        self,
        updates: Mapping[str, str],
        where: str | pc.Expression | None = None,
        conflict_retries: int = 10,
        retry_timeout: timedelta = timedelta(seconds=30),
        data_storage_version: str | None = None,
        *,
        progress: bool | None = None,
    ) -> dict[str, int]:
        """Update the matching rows and move this object to the new version.

        Parameters
        ----------
        updates
            Expressions over the old values, by column: ``{"price": "price * 2"}``.
        where
            A filter, as an SQL string or a pyarrow expression; default: all rows.
        conflict_retries, retry_timeout
            As for :meth:`delete`.
        data_storage_version
            Format of the new files; default: the format of the dataset.
        progress
            Show the number of rewritten rows on a line of the terminal.

        Returns
        -------
        dict
            ``num_rows_updated``.

        Raises
        ------
        ColumnNotFoundError, FilterError, SchemaError
            A column is unknown, an expression is invalid, or its values have another type than
            the column. The dataset is unchanged.
        CommitConflictError, CommitContentionError
            As for :meth:`delete`; the dataset is unchanged.

        Notes
        -----
        glaive writes the new rows with all columns at the end of the dataset.
        """
        from glaive.dataset.monitoring import showing
        from glaive.dataset.rows import update_where, with_retries

        limits: Any = {"conflict_retries": conflict_retries, "retry_timeout": retry_timeout}
        change = (updates, where, data_storage_version)
        with showing(progress, "update"):
            count = with_retries(self, lambda at: update_where(at, *change), **limits)
        return {"num_rows_updated": count}

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Begin a merge of other rows into this dataset (upsert); ``execute`` runs it.

        Parameters
        ----------
        on
            Columns to match by; default: the declared primary key.

        Raises
        ------
        ColumnNotFoundError
            A key column is unknown.

        Examples
        --------
        >>> merge = dataset.merge_insert("id").when_matched_update_all()
        >>> counts = merge.when_not_matched_insert_all().execute(rows)
        """
        from glaive.dataset.merging.merge_insert import MergeInsertBuilder

        return MergeInsertBuilder(self, on)

    @property
    def optimize(self) -> DatasetOptimizer:
        """Maintenance operations such as ``compact_files``."""
        from glaive.dataset.maintenance import DatasetOptimizer

        return DatasetOptimizer(self)

    # ------------------------------------------------------------ changing columns

    def add_columns(
        self,
        transforms: Any,
        read_columns: Sequence[str] | None = None,
        reader_schema: pa.Schema | None = None,
        batch_size: int | None = None,
        *,
        progress: bool | None = None,
    ) -> None:
        """Add columns and move this object to the new version.

        Parameters
        ----------
        transforms
            Any of:

            - SQL expressions by name of the new column: ``{"b": "a * 2"}``.
            - A function over record batches, preferably made by :func:`glaive.batch_udf`.
            - Rows with the new columns only, in any writable form: one for each row of the dataset,
              in order.
            - A field, a list of fields or a schema, for columns of nulls. Only the schema changes.
              From format 2.2 on a struct may add members to an existing struct.
        read_columns
            Input columns of a function; may include ``_rowid`` and ``_rowaddr``; default: all
            columns.
        reader_schema
            Schema of ``transforms``, for rows that lack one.
        batch_size
            Maximum rows per call of a function; default: ``LANCE_DEFAULT_BATCH_SIZE``, or 8192.
        progress
            Show the number of rows on a line of the terminal.

        Raises
        ------
        SchemaError
            A name is taken, or the number or type of values differs.
        FilterError, ColumnNotFoundError, OptionError
            An expression is invalid, a column is unknown, or the type of ``transforms`` is
            wrong.
        CommitConflictError
            Another writer changed the dataset concurrently.

        Notes
        -----
        glaive writes one file per fragment with the new columns only. It computes expressions for
        several fragments in parallel.
        """
        from glaive.dataset.columns.add_columns import add_columns
        from glaive.dataset.monitoring import showing

        with showing(progress, "add columns"):
            made = add_columns(self._at, transforms, read_columns, reader_schema, batch_size)
        self.move_to(made)

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Drop columns and move this object to the new version.

        The data stays in the files until they are compacted and cleaned up.

        Parameters
        ----------
        columns
            Paths of columns; ``"s.x"`` drops a member of a struct.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            The column is unknown, or it is the last column. Rows are clustered by it.
        """
        from glaive.dataset.columns.alter_columns import drop_columns

        self.move_to(drop_columns(self._at, columns))

    def alter_columns(self, *alterations: Mapping[str, Any]) -> None:
        """Change names, types or nullability of columns; moves to the new version.

        Parameters
        ----------
        alterations
            Dictionaries with the ``path`` of a column, ``"s.x"`` for a member, and any of
            ``name``, ``data_type`` and ``nullable``. For a top-level column also ``default``, an
            expression for rows that lack it, and ``generated``, an expression that computes it.
            ``None`` removes these two.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError
            The path is unknown, or the name is taken. A type or a value cannot be cast. A
            column to be made non-nullable has nulls. A column to be cast has an index. A row has
            another value than ``generated`` computes.
        CommitConflictError
            Another writer changed the dataset concurrently.

        Notes
        -----
        A change of a name or of nullability only changes the schema. If rows are clustered by the
        column, a second version renames it in ``glaive.cluster_by``. glaive reads a column to make
        it non-nullable. A new type writes one file per fragment.
        """
        from glaive.dataset.columns.alter_columns import alter_columns

        self.move_to(alter_columns(self._at, alterations))

    def add_constraint(self, name: str, expression: str) -> None:
        """Add a ``CHECK`` constraint, and move to the new version.

        Parameters
        ----------
        name
            Name of the constraint, for messages and :meth:`drop_constraint`.
        expression
            A filter over the columns: ``"price > 0"``. All writers of glaive refuse rows for which
            it is false. Nulls pass, as in SQL.

        Raises
        ------
        SchemaError
            A row of the dataset breaks the constraint.
        FilterError, OptionError
            The expression is invalid, or the name is taken.

        Notes
        -----
        Reads the columns of the expression. The configuration stores it under
        ``glaive.constraints.<name>``.
        """
        from glaive.dataset.columns.alter_columns import add_constraint

        add_constraint(self, name, expression)

    def drop_constraint(self, name: str, *, ignore_not_found: bool = False) -> None:
        """Remove a ``CHECK`` constraint and move this object to the new version.

        Parameters
        ----------
        name
            Name that the constraint was added with.
        ignore_not_found
            Return without an error if the constraint is missing.

        Raises
        ------
        OptionError
            The dataset lacks the constraint.
        """
        from glaive.dataset.columns.alter_columns import drop_constraint
        from glaive.table.configuration import CONSTRAINT

        if not ignore_not_found or CONSTRAINT + name in self.config():
            self.move_to(drop_constraint(self._at, name))

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
            The key and the new columns. Rows of the dataset without a match get nulls. If several
            rows match, the last one is used.
        left_on, right_on
            Key columns of the dataset and of the table. The key of the dataset may be ``_rowid`` or
            ``_rowaddr``.
        schema
            Schema of ``data_obj``, for rows that lack one.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            A key is unknown, keys differ in type, or a name is taken.
        CommitConflictError
            Another writer changed the dataset concurrently.

        Notes
        -----
        Holds the table and the key of all rows in memory.
        """
        from glaive.dataset.columns.add_columns import merge_data

        self.move_to(merge_data(self._at, data_obj, left_on, right_on, schema))

    def replace_schema(self, schema: object) -> NoReturn:
        """Raise an error: use :meth:`alter_columns` or :meth:`replace_schema_metadata`."""
        raise UnsupportedFeatureError(
            "Cannot replace the schema of a dataset as a whole. Use add_columns, "
            "drop_columns and alter_columns, or replace_schema_metadata."
        )

    # ------------------------------------------------------------ indices

    def describe_indices(self) -> list[IndexDescription]:
        """Describe all indices of this version: type, fields, segments. Reads only manifests."""
        from glaive.dataset.indexing.describe import describe_indices

        return describe_indices(self.snapshot)

    def list_indices(self) -> list[dict[str, Any]]:
        """Return a dictionary per index segment. Deprecated: use :meth:`describe_indices`.

        Returns
        -------
        list of dict
            ``name``, ``type``, ``uuid``, ``fields``, ``version``, ``fragment_ids`` and ``base_id``.
        """
        from glaive.dataset.indexing.describe import list_segments

        warn_deprecated(
            "The 'list_indices' method is deprecated. It may be removed in a future version. "
            "Use describe_indices() instead."
        )
        return list_segments(self.snapshot)

    def index_statistics(
        self, index_name: str, recall_queries: int | None = None
    ) -> dict[str, Any]:
        """Return ``stats.index_stats(…)``. Deprecated: use :attr:`stats`."""
        warn_deprecated(
            "LanceDataset.index_statistics() is deprecated, "
            "use LanceDataset.stats.index_stats() instead"
        )
        return self.stats.index_stats(index_name, recall_queries)

    def remap_row_addrs(self, addrs: pa.Array) -> pa.Array | None:
        """Map addresses of rows that compactions moved to the new addresses.

        Parameters
        ----------
        addrs
            Row addresses, ``uint64``.

        Returns
        -------
        pyarrow.Array
            Addresses of deleted rows are null; addresses that the stored table lacks stay. ``None``
            if the version has no table: only compactions with ``defer_index_remap`` store one.
        """
        from glaive.dataset.indexing.describe import remapped

        return remapped(self.snapshot, addrs)

    @shows(ScalarKeywords, ScalarKeywords)
    def create_scalar_index(
        self,
        column: str,
        index_type: str | IndexConfig,
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        fragment_ids: list[int] | None = None,
        index_uuid: str | None = None,
        progress_callback: Callable[[IndexProgress], object] | None = None,
        format_version: int | str | None = None,
        document_granularity: DocumentGranularity | str = "row",
        progress: bool | None = None,
        **parameters: Unpack[ScalarKeywords],
    ) -> None:
        """Build an index for filters or full-text search; move this object to the new version.

        Parameters
        ----------
        column
            Path of the column.
        index_type
            ``BTREE``, ``BITMAP``, ``LABEL_LIST``, ``NGRAM``, ``ZONEMAP``, ``BLOOMFILTER``,
            ``RTREE``, ``INVERTED`` (or ``FTS``), or an :class:`glaive.indices.IndexConfig`.
        name
            Default: the path with ``_idx``.
        replace
            Replace an index of this name; otherwise an existing name is an error.
        train
            With ``False`` glaive indexes the rows when you call ``optimize_indices``.
        fragment_ids
            Fragments to index; default: all.
        index_uuid
            Id of the segment; default: random. If you give ``fragment_ids`` as well, commit an
            index with this id yourself. Several workers may write parts of
            a full-text index under one id; see :meth:`merge_index_metadata`.
        progress_callback
            Called with the number of rows read so far.
        progress
            Show the number of rows read on a line of the terminal.
        format_version, document_granularity
            For full-text indices: format 1, 2 or 3, and whether a row or each element of its list
            is a document.

        Raises
        ------
        ColumnNotFoundError, OptionError
            The column or a parameter is wrong.
        UnsupportedFeatureError
            The kind cannot index values of this type.
        CommitConflictError
            Another writer rewrote the fragments meanwhile. The dataset is unchanged.

        Notes
        -----
        Reads the column once. Uses at most ``memory_limit`` bytes of memory; more
        data goes to temporary files.
        """
        from glaive.dataset.indexing.create import create_index, index_task, text_parameters
        from glaive.dataset.monitoring import showing

        given = text_parameters(parameters, format_version, document_granularity)
        task = index_task(self._at, column, index_type, name, given, fragment_ids, index_uuid)
        options: Any = {"replaces": replace, "train": train, "progress": progress_callback}
        with showing(progress, f"index {column}"):
            self.move_to(create_index(self._at, task, **options))

    @shows(IndexKeywords, VectorKeywords)
    def create_index(
        self,
        column: str | list[str],
        index_type: str | IndexConfig,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        pq_codebook: Any = None,
        num_sub_vectors: int | None = None,
        accelerator: Any = None,
        index_cache_size: int | None = None,
        shuffle_partition_batches: int | None = None,
        shuffle_partition_concurrency: int | None = None,
        ivf_centroids_file: str | None = None,
        precomputed_partition_dataset: str | None = None,
        storage_options: dict[str, str] | None = None,
        filter_nan: bool = True,
        train: bool = True,
        fragment_ids: list[int] | None = None,
        index_uuid: str | None = None,
        *,
        target_partition_size: int | None = None,
        streaming_sample_rate: int | None = None,
        streaming_coreset_rate: int | None = None,
        streaming_refine_passes: int | None = None,
        skip_transpose: bool = False,
        progress_callback: Callable[[IndexProgress], object] | None = None,
        progress: bool | None = None,
        **parameters: Unpack[IndexKeywords],
    ) -> LanceDataset:
        """Build an index for vector search; move this object to the new version and return it.

        Parameters
        ----------
        column
            Path of a column of fixed-size lists of numbers (vectors), or of lists of vectors.
        index_type
            ``IVF_FLAT``, ``IVF_SQ``, ``IVF_PQ``, ``IVF_RQ``, ``IVF_HNSW_FLAT``,
            ``IVF_HNSW_SQ`` or ``IVF_HNSW_PQ``; or a kind of :meth:`create_scalar_index`,
            such as ``BTREE`` or ``FTS``.
        metric
            ``L2``, ``cosine``, ``dot`` or ``hamming``.
        name, replace, train, fragment_ids, index_uuid, progress_callback, progress
            As for :meth:`create_scalar_index`.
        num_partitions, target_partition_size
            Number of partitions, or of vectors per partition; the default depends on the kind.
        ivf_centroids, ivf_centroids_file, pq_codebook
            Models to use instead of trained models: NumPy or Arrow arrays, or a NumPy file.
        num_sub_vectors
            Number of parts of a vector. Each part gets one code. Required for kinds with ``PQ``,
            unless you give ``recall``.
        accelerator
            Device on which torch trains the partitions, such as ``cuda``; default: the CPU.
        precomputed_partition_dataset
            URI of a dataset with columns ``row_id`` and ``partition``.
        skip_transpose
            Store product codes row by row.
        index_cache_size, shuffle_partition_batches, shuffle_partition_concurrency, storage_options
            Accepted and ignored.
        filter_nan, streaming_sample_rate, streaming_coreset_rate, streaming_refine_passes
            Accepted and ignored. glaive indexes only vectors of finite values.

        Raises
        ------
        ColumnNotFoundError, OptionError, UnsupportedFeatureError, CommitConflictError
            As for :meth:`create_scalar_index`.
        """
        from glaive.dataset.monitoring import showing

        arguments = locals()
        from glaive.dataset.indexing.create import create_index, vector_task

        task = vector_task(self._at, arguments)
        options: Any = {"replaces": replace, "train": train, "progress": progress_callback}
        with showing(progress, f"index {task.column}"):
            self.move_to(create_index(self._at, task, **options))
        return self

    @shows(IndexKeywords, create_index, VectorKeywords)
    def create_index_uncommitted(
        self,
        column: str | list[str],
        index_type: str | IndexConfig,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        pq_codebook: Any = None,
        num_sub_vectors: int | None = None,
        accelerator: Any = None,
        index_cache_size: int | None = None,
        shuffle_partition_batches: int | None = None,
        shuffle_partition_concurrency: int | None = None,
        ivf_centroids_file: str | None = None,
        precomputed_partition_dataset: str | None = None,
        storage_options: dict[str, str] | None = None,
        filter_nan: bool = True,
        train: bool = True,
        fragment_ids: list[int] | None = None,
        index_uuid: str | None = None,
        *,
        target_partition_size: int | None = None,
        streaming_sample_rate: int | None = None,
        streaming_coreset_rate: int | None = None,
        streaming_refine_passes: int | None = None,
        skip_transpose: bool = False,
        **parameters: Unpack[IndexKeywords],
    ) -> Index:
        """Write one segment of an index over some fragments; commit it later.

        Use it to build an index with several workers; see :meth:`commit_existing_index_segments`.
        :meth:`create_index` explains the parameters.

        Raises
        ------
        ColumnNotFoundError, OptionError, UnsupportedFeatureError
            As for :meth:`create_scalar_index`.
        """
        arguments = locals()
        from glaive.dataset.indexing.create import create_segment, vector_task

        task = vector_task(self._at, arguments)
        return create_segment(self._at, task, replaces=replace, train=train)

    def merge_existing_index_segments(self, segments: Sequence[Index]) -> Index:
        """Write one segment with the rows of others; commit it later.

        Parameters
        ----------
        segments
            Segments of one kind and column that cover different fragments.

        Raises
        ------
        OptionError
            The segments differ in kind or column, two cover one fragment, or the list is empty.
        UnsupportedFeatureError
            The kind cannot merge segments, as each segment has its own model.
        """
        from glaive.dataset.indexing.create import merge_existing

        return merge_existing(self._at, segments)

    def commit_existing_index_segments(
        self, index_name: str, column: str, segments: Sequence[Index]
    ) -> LanceDataset:
        """Commit segments as one index; move this object to the new version and return it.

        Segments that the index already has stay, unless the new ones cover their fragments.

        Parameters
        ----------
        index_name
            Name of the index.
        column
            Path of the indexed column.
        segments
            Segments that were written without a commit.

        Raises
        ------
        OptionError
            Segments overlap or index another column. Or the commit would remove the index of
            some fragments. Or an index of this name has segments of another column or kind.
        CommitConflictError
            Another writer rewrote the fragments meanwhile.
        """
        from glaive.dataset.indexing.create import commit_segments

        self.move_to(commit_segments(self._at, index_name, column, segments))
        return self

    def merge_index_metadata(
        self,
        index_uuid: str,
        index_type: str,
        batch_readhead: int | None = None,
        progress_callback: Callable[[IndexProgress], object] | None = None,
    ) -> None:
        """Merge the parts of a full-text index that workers wrote under one id into one segment.

        Then commit a ``LanceOperation.CreateIndex`` with an index of this id. For other
        kinds call :meth:`merge_existing_index_segments`.

        Parameters
        ----------
        index_uuid
            The id given to :meth:`create_scalar_index`.
        index_type
            ``INVERTED``.
        batch_readhead
            Accepted and ignored.
        progress_callback
            Called at the start and at the end.

        Raises
        ------
        OptionError
            Parts under this id are missing, or the kind is wrong.
        UnsupportedFeatureError
            The parts were built with different parameters.
        """
        from glaive.dataset.indexing.create import merge_parts

        merge_parts(self._at, index_uuid, index_type, progress_callback)

    def get_ivf_model(self, index_name: str) -> IvfModel:
        """Return centroids and metric of a vector index, from its first segment.

        Parameters
        ----------
        index_name
            Name of the index.

        Raises
        ------
        IndexNotFoundError
            The index is missing.
        OptionError
            The index is not a vector index, or is empty.
        """
        from glaive.dataset.indexing.vector_models import ivf_model

        return ivf_model(self.snapshot, index_name)

    def centroids(self, *, index_name: str | None = None, column: str | None = None) -> pa.Array:
        """Return the centroids of a vector index.

        Parameters
        ----------
        index_name
            Name of the index.
        column
            Path of a column; its first vector index answers. Give one of the two.

        Returns
        -------
        pyarrow.FixedSizeListArray
            One vector for each partition.

        Raises
        ------
        IndexNotFoundError
            The index is missing.
        OptionError
            Name and column are missing, or the index is not a vector index.
        """
        from glaive.dataset.indexing.vector_models import ivf_model, vector_index_on

        if index_name is None:
            index_name = vector_index_on(self.snapshot, column)
        return ivf_model(self.snapshot, index_name).centroids

    def prewarm_index(
        self,
        name: str,
        *,
        with_position: bool = False,
        index_segments: Iterable[str | UUID] | None = None,
    ) -> None:
        """Open an index and read all that searches need, if the session's cache has room.

        Parameters
        ----------
        name
            Name of the index.
        with_position
            Accepted for full-text indices. glaive reads positions with the posting lists anyway.
        index_segments
            Ids of the segments to read; default: all.

        Raises
        ------
        IndexNotFoundError
            The index is missing.
        OptionError
            The index lacks such a segment; or ``with_position`` is set and it is not a full-text
            index.
        """
        from glaive.dataset.indexing.describe import prewarm_index

        prewarm_index(self.snapshot, name, index_segments, with_position=with_position)

    def drop_index(self, name: str) -> None:
        """Remove an index and move this object to the new version.

        The files of the index stay until old versions are cleaned up.

        Parameters
        ----------
        name
            Name of the index, as in :meth:`describe_indices`.

        Raises
        ------
        IndexNotFoundError
            The index is missing.
        """
        from glaive.dataset.indexing.describe import drop_index

        self.move_to(drop_index(self._at, name))

    # ------------------------------------------------------------ versions

    def versions(self) -> list[dict[str, Any]]:
        """Return number, local time and totals of all versions, oldest first. One request each."""
        from glaive.dataset.stats import VersionList

        return VersionList(describe_all(self.store))

    def get_version(self) -> dict[str, Any]:
        """Return number, local time and totals of this version."""
        return describe(self.manifest)

    def checkout_version(self, version: int | str | tuple[str | None, int | None]) -> Self:
        """Return the dataset at another version; both share opened files.

        Parameters
        ----------
        version
            A version of this branch (integer), a tag (string), or a pair of branch and version.
            ``None`` in a pair is the main branch, or the newest version.

        Raises
        ------
        VersionNotFoundError, RefNotFoundError
            The version, tag or branch is missing.
        """
        from glaive.table.refs import resolve

        return self.holding(self._at.at_reference(resolve(self.store, self.manifest, version)))

    @property
    def tags(self) -> Tags:
        """Tags, which name versions: ``list``, ``create``, ``update``, ``delete``, …"""
        from glaive.dataset.refs import Tags

        return Tags(self)

    @property
    def branches(self) -> Branches:
        """Branches: ``list``, ``delete``, …"""
        from glaive.dataset.refs import Branches

        return Branches(self)

    def version_refs(self) -> list[dict[str, int]]:
        """Return the numbers of all versions of this branch, oldest first. One listing."""
        return [{"version": entry.version} for entry in list_versions(self.store)]

    def checkout_latest(self) -> None:
        """Move this object to the newest version."""
        at = self._at
        newest = at.at_latest()
        if at.is_after(newest.manifest):  # another dataset replaced this one
            self.reset_to(newest.manifest)
        else:
            self.move_to(newest.manifest)

    def create_branch(
        self,
        branch: str,
        reference: int | str | tuple[str | None, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a branch from a version and open it.

        The branch refers to the files of the version. New files go below ``tree/``.

        Parameters
        ----------
        branch
            Name of the new branch: letters, digits, ``.``, ``-``, ``_`` and ``/``.
        reference
            A version of this branch, a tag, or a pair of branch and version, as for
            :meth:`checkout_version`; default: this version.
        storage_options
            Options of the store for the opened branch; default: the options of this dataset.

        Raises
        ------
        RefExistsError
            A branch of this name exists.
        OptionError
            The name is invalid.
        """
        from glaive.dataset.refs import make_branch

        return self.holding(self._at.at_reference(make_branch(self._at, branch, reference)))

    def shallow_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: int | str | tuple[str | None, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a dataset that refers to the files of a version of this one.

        Parameters
        ----------
        target_path
            Path or URI of the new dataset.
        reference
            A version of this branch, a tag, or a pair of branch and version, as for
            :meth:`checkout_version`; default: this version.
        storage_options
            Options of the store of the target; default: the options of this dataset.

        Returns
        -------
        LanceDataset
            The new dataset. It needs the files of this dataset, so do not clean up that version.

        Raises
        ------
        DatasetExistsError
            A dataset exists at the target.
        """
        from glaive.dataset.refs import clone_shallow

        options = self.storage_options if storage_options is None else storage_options
        target, made = clone_shallow(self._at, target_path, reference, options)
        return self.of(target, made, uri=os.fspath(target_path), storage_options=options)

    def deep_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: int | str | tuple[str | None, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a dataset with a copy of all files of a version of this one.

        Parameters
        ----------
        target_path
            Path or URI of the new dataset.
        reference
            A version of this branch, a tag, or a pair of branch and version, as for
            :meth:`checkout_version`; default: this version.
        storage_options
            Options of the store of the target; default: the options of this dataset.

        Returns
        -------
        LanceDataset
            The new dataset.

        Raises
        ------
        DatasetExistsError
            A dataset exists at the target.
        """
        from glaive.dataset.refs import clone_deep

        options = self.storage_options if storage_options is None else storage_options
        target, made = clone_deep(self._at, target_path, reference, options)
        return self.of(target, made, uri=os.fspath(target_path), storage_options=options)

    def restore(self) -> None:
        """Make this version the newest one; later versions stay in the history.

        Raises
        ------
        UnsupportedFeatureError
            A later version introduced a feature that cannot be undone.
        CommitConflictError
            Another dataset has replaced this dataset.
        """
        from glaive.dataset.tasks import commit_operation
        from glaive.table.load import check_not_replaced
        from glaive.table.operations.overwrite import Restore

        check_not_replaced(self.store, self.manifest)
        newest = self._at.at_latest()
        self.move_to(commit_operation(newest, Restore(self.version)))

    def validate(self) -> None:
        """Check that the manifest of this version matches its files.

        Raises
        ------
        CorruptFileError, DataFileMissingError
            A file is damaged or missing; the message names it.

        Notes
        -----
        Opens every data file and reads every deletion file, but skips values.
        """
        from glaive.dataset.validate import validate_version

        validate_version(self.snapshot)

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> DatasetDelta:
        """Return the changes since a version, or between two: rows and transactions.

        Give either ``compared_against``, or both ``begin_version`` and ``end_version``.

        Parameters
        ----------
        compared_against
            Version to compare this version with.
        begin_version, end_version
            The first (exclusive) and the last (inclusive) version.

        Raises
        ------
        OptionError
            Both or none are given.
        VersionNotFoundError
            ``compared_against`` is newer than this version.
        """
        from glaive.dataset.change_feed import compare_versions

        return compare_versions(self._at, compared_against, begin_version, end_version)

    def changes(
        self,
        start_version: int,
        end_version: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        preimages: bool = True,
        net: bool = False,
        batch_size: int | None = None,
    ) -> ChangeFeed:
        """Read the rows that versions inserted, updated and deleted: a change feed.

        Parameters
        ----------
        start_version, end_version
            The first and the last version whose changes are read, both inclusive; default of the
            last: this version.
        columns
            Columns of the dataset, including system columns such as ``_rowid``; default: all. Rows
            of versions that lack a column have nulls in it.
        preimages
            Whether to read the old values of updated rows as well.
        net
            Compare the last version with the version before the first, instead of each version
            with the version before it. ``_commit_version`` is then the last version.
        batch_size
            Rows per batch; default: at most 32,768 rows and about 8 MiB.

        Returns
        -------
        ChangeFeed
            Columns of the dataset, then ``_change_type`` (``insert``, ``delete``,
            ``update_preimage``, ``update_postimage``), ``_commit_version`` (int64) and
            ``_commit_timestamp`` (microseconds, UTC).

        Raises
        ------
        OptionError
            A version is of another dataset, or the range is empty.
        VersionNotFoundError
            A version, or the version before the first, was cleaned up. The message names the
            oldest version you can use.
        UnsupportedFeatureError
            You asked for net changes across a compaction, without stable row ids.
        SchemaError
            A value cannot be converted to the type that its column has in the last version.

        Notes
        -----
        Compactions, index builds, and changes of schema or settings keep all rows. Without stable
        row ids an updated row counts as deleted and inserted, unless its columns were rewritten in
        place. glaive reads the manifest of each version and the metadata of changed fragments. From
        data files it reads changed rows only.
        """
        from glaive.dataset.change_feed import change_feed

        versions = (start_version, end_version)
        given: dict[str, Any] = {"columns": columns, "batch_size": batch_size}
        return change_feed(self._at, *versions, preimages=preimages, net=net, **given)

    # ------------------------------------------------------------ configuration and metadata

    def update_config(self, values: StringUpdates, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's configuration; return all entries.

        Parameters
        ----------
        values
            Strings by key; ``None`` removes an entry.
        replace
            Remove all other entries.

        Raises
        ------
        OptionError
            A key or value is not a string.
        """
        from glaive.dataset.tasks import set_entries

        self.move_to(set_entries(self._at, "config", values, replace=replace))
        return self.config()

    def delete_config_keys(self, keys: Sequence[str]) -> None:
        """Remove entries of the table's configuration.

        Parameters
        ----------
        keys
            Keys to remove; a string is one key. Missing keys are ignored.
        """
        self.update_config(dict.fromkeys([keys] if isinstance(keys, str) else keys))

    def update_metadata(self, values: StringUpdates, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's metadata; return all entries.

        Parameters
        ----------
        values
            Strings by key; ``None`` removes an entry.
        replace
            Remove all other entries, except entries that identify commits of streams and jobs.
        """
        from glaive.dataset.tasks import set_entries

        self.move_to(set_entries(self._at, "table_metadata", values, replace=replace))
        return self.metadata

    def update_schema_metadata(
        self, values: StringUpdates, *, replace: bool = False
    ) -> dict[str, str]:
        """Set entries of the schema's metadata; return all entries.

        Parameters
        ----------
        values
            Strings by key; ``None`` removes an entry.
        replace
            Remove all other entries.
        """
        from glaive.dataset.tasks import set_entries

        self.move_to(set_entries(self._at, "schema_metadata", values, replace=replace))
        return self.schema_metadata

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> None:
        """Set all entries of the schema's metadata. Deprecated: use ``update_schema_metadata``."""
        warn_deprecated(
            "replace_schema_metadata is deprecated. "
            "Use update_schema_metadata(metadata, replace=True) instead."
        )
        self.update_schema_metadata(new_metadata, replace=True)

    def update_field_metadata(
        self, field_updates: Mapping[str, StringUpdates], *, replace: bool | Collection[str] = False
    ) -> None:
        """Set entries of the metadata of fields.

        Parameters
        ----------
        field_updates
            For each path of a field, strings by key; ``None`` removes an entry.
        replace
            Remove all other entries of these fields; a collection of paths selects some of them.

        Raises
        ------
        ColumnNotFoundError
            A field is unknown.
        SchemaError
            The entries declare the primary key, and a log (MemWAL) finds rows by that key.
        """
        from glaive.dataset.tasks import set_field_metadata

        self.move_to(set_field_metadata(self._at, field_updates, replace=replace))

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> None:
        """Set all entries of the metadata of a field. Deprecated: use ``update_field_metadata``."""
        warn_deprecated(
            "replace_field_metadata is deprecated. "
            "Use update_field_metadata with field paths and replace=True instead."
        )
        self.update_field_metadata({field_name: new_metadata}, replace=True)

    # ------------------------------------------------------------ clean-up

    def cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: Sequence[int] | None = None,
        delete_concurrency: int | None = None,
        progress: bool | None = None,
    ) -> CleanupStats:
        """Delete old versions, and the files that only they use.

        Parameters
        ----------
        older_than
            Minimum age of versions to delete; default: two weeks, unless another argument
            selects versions.
        retain_versions
            Number of newest versions to keep.
        delete_unverified
            Also delete unused files that are younger than a week. This is safe only while nobody
            writes.
        error_if_tagged_old_versions
            Raise if a version to be deleted has a tag; otherwise keep the version.
        delete_rate_limit
            Maximum files per second.
        versions
            Delete only these versions.
        delete_concurrency
            At least 1; otherwise ignored, as the store decides.
        progress
            Show the number of deleted files on a line of the terminal.

        Raises
        ------
        CleanupError
            A version to be deleted has a tag. All files stay.
        OptionError
            An argument is wrong.

        Notes
        -----
        glaive keeps this version, newer versions, and versions where branches start. It deletes
        manifests first, so that every version has its files. It keeps files with names that Lance
        writers never use. It also keeps files in symlinked folders that lead out of the root,
        unless the storage option ``delete_through_links`` is set. ``warnings`` of the result lists
        the files kept.
        """
        from glaive.dataset.cleanup import clean_up
        from glaive.dataset.monitoring import showing
        from glaive.table.cleanup import CleanupPolicy

        given = (older_than, retain_versions, versions)
        policy = CleanupPolicy(*given, delete_unverified, error_if_tagged_old_versions)
        with showing(progress, "clean up", unit="files"):
            return clean_up(self._at, policy, delete_rate_limit, delete_concurrency)

    def explain_cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: Sequence[int] | None = None,
        include_files: bool = False,
        max_files: int = 1000,
    ) -> CleanupExplanation:
        """Return what :meth:`cleanup_old_versions` would delete, which documents the other
        parameters.

        Parameters
        ----------
        delete_rate_limit
            Ignored.
        include_files
            List the files.
        max_files
            Maximum number of listed files.
        """
        from glaive.dataset.cleanup import explain
        from glaive.table.cleanup import CleanupPolicy

        given = (older_than, retain_versions, versions)
        policy = CleanupPolicy(*given, delete_unverified, error_if_tagged_old_versions)
        return explain(self._at, policy, include_files=include_files, max_files=max_files)

    # ------------------------------------------------------------ base paths

    def base_paths(self) -> dict[int, DatasetBasePath]:
        """Return other locations of files of this version, by id."""
        from glaive.dataset.writing.plan import base_paths_of

        return base_paths_of(self.manifest)

    def add_bases(
        self,
        new_bases: Sequence[DatasetBasePath],
        transaction_properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Register base paths, move to the new version, and return this object.

        Parameters
        ----------
        new_bases
            Base paths: other locations where data files may be.
        transaction_properties
            Strings to store with the transaction.

        Raises
        ------
        OptionError
            A base path with this id, name or path exists already.
        """
        from glaive.dataset.writing.rows import add_bases

        self._at = add_bases(self._at, new_bases, transaction_properties)
        return self

    # ------------------------------------------------------------ files

    def all_files(self) -> pa.RecordBatchReader:
        """Stream the files below the root; base paths are left out.

        Returns
        -------
        pyarrow.RecordBatchReader
            Columns ``base_uri``, ``path``, ``size_bytes`` and ``last_modified`` (UTC).
        """
        from glaive.dataset.cleanup import all_files

        return all_files(self._at)

    def tracked_files(
        self,
        *,
        min_version: int | None = None,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the files that versions use: ``version``, ``base_uri``, ``path``, ``type``.

        Parameters
        ----------
        min_version
            Oldest version to read; default: all versions.
        progress
            Function that is called with the number of manifests read and their total.
        """
        from glaive.dataset.cleanup import tracked_files

        return tracked_files(self._at, min_version, progress)

    def migrate_manifest_paths_v2(self) -> None:
        """Rename the manifests so that the newest comes first in a listing.

        Stop other writers meanwhile. You can repeat the call. If another library was
        stopped in the middle and the newest version does not open, open a version by number and
        call this.
        """
        from glaive.dataset.cleanup import migrate_manifest_names

        migrate_manifest_names(self.store)
        self.checkout_latest()

    @staticmethod
    def drop(
        base_uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        ignore_not_found: bool | None = None,
    ) -> None:
        """Delete a dataset and everything below its root.

        Symlinks are deleted; their targets are kept and logged. With the storage option
        ``delete_through_links``, files of the dataset in symlinked folders are deleted as well.

        Parameters
        ----------
        base_uri
            Path or URI of the dataset.
        storage_options
            Options of its store.
        ignore_not_found
            Return without an error if the dataset is missing.

        Raises
        ------
        DatasetNotFoundError
            The dataset is missing.
        OptionError
            Files exist, but a readable manifest is missing. All files stay.
        """
        from glaive.dataset.cleanup import drop_dataset

        drop_dataset(base_uri, storage_options, ignore_not_found=bool(ignore_not_found))

    # ------------------------------------------------------------ transactions

    @classmethod
    def commit(
        cls,
        base_uri: Target,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        *,
        commit_message: str | None = None,
        enable_stable_row_ids: bool | None = None,
        namespace_client: Any = None,
        table_id: Sequence[str] | None = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        commit_timeout: timedelta | None = _COMMIT_TIMEOUT,
    ) -> Self:
        """Commit an operation whose files are already written; return the new version.

        Parameters
        ----------
        base_uri
            The dataset: a URI, or an opened dataset.
        operation
            A ``LanceOperation``, or a ``Transaction`` with one.
        read_version
            The version the operation was made for; optional for Overwrite and Restore.
        commit_lock
            Called with the version. Returns a context manager, which is held during the commit.
        storage_options
            Credentials and settings of the object store.
        enable_v2_manifest_paths, enable_stable_row_ids
            Options for a new dataset.
        detached
            Create a version outside the history, with a random number.
        max_retries
            Number of attempts after the first.
        commit_message
            Stored with the version.
        commit_timeout
            The last attempt starts before this time; ``None``: no limit.
        base_store_params
            See :func:`glaive.dataset`. An opened dataset as ``base_uri`` keeps its own.
        namespace_client, table_id
            The table of a catalogue that lies at ``base_uri``. glaive uses its credentials, and the
            catalogue allots the version if it manages versions. An opened dataset keeps its own.
        namespace_client_managed_versioning
            Ignored: the catalogue says whether it manages versions.

        Raises
        ------
        CommitConflictError
            Another writer committed a conflicting change after ``read_version``.
        CommitContentionError
            Every attempt lost the race against other writers.
        DatasetNotFoundError
            The dataset is missing, and the operation requires one.
        OptionError
            The version is missing, the operation is invalid, or an option is unknown.
        UnsupportedFeatureError
            An option is unsupported.
        """
        from glaive.dataset.transactions import CommitTarget, commit_options

        place = (base_uri, storage_options, commit_lock, base_store_params)
        target = CommitTarget.of(*place, (namespace_client, table_id))
        features = (enable_stable_row_ids, enable_v2_manifest_paths)
        limits = commit_options(max_retries, commit_timeout, detached, *features)
        manifest = target.commit(operation, read_version, commit_message, limits)
        return cls.holding(target.at(manifest))

    @classmethod
    def commit_batch(
        cls,
        dest: Target,
        transactions: Sequence[Transaction],
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        commit_timeout: timedelta | None = _COMMIT_TIMEOUT,
    ) -> dict[str, Any]:
        """Commit several appends as one version; :meth:`commit` explains the parameters.

        Returns a dictionary: ``dataset`` is the new version, ``merged`` its transaction.

        Raises
        ------
        UnsupportedFeatureError
            A transaction is not an append.
        """
        from glaive.dataset.transactions import CommitTarget, commit_options

        target = CommitTarget.of(dest, storage_options, commit_lock, base_store_params)
        features = (None, enable_v2_manifest_paths)
        limits = commit_options(max_retries, commit_timeout, detached, *features)
        manifest, merged = target.commit_appends(transactions, limits)
        return {"dataset": cls.holding(target.at(manifest)), "merged": merged}

    def read_transaction(self, version: int) -> Transaction | None:
        """Return the transaction of a version; ``None`` if it is unavailable.

        Parameters
        ----------
        version
            Number of the version in this branch.
        """
        from glaive.dataset.transactions import transaction_of

        return transaction_of(self._at, version)

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return the transactions of this version and earlier versions, newest first.

        An unknown transaction is ``None``. Makes one listing and at most two requests per version.

        Parameters
        ----------
        recent_transactions
            Maximum number of transactions.
        """
        from glaive.dataset.transactions import recent

        return recent(self._at, recent_transactions)
