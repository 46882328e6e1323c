"""The dataset as users see it: signatures and what they mean.

Every method takes its arguments apart and hands them on, with the opened version, to a function
that does the work and can be used and tested without this class. What few callers need is
imported when it is called, which keeps opening a dataset quick.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

import pyarrow as pa

from glaive.dataset.fragments.fragment import LanceFragment
from glaive.dataset.opening import find
from glaive.dataset.sampling import sample_positions, slice_length
from glaive.dataset.scanner import Scanner
from glaive.dataset.stats import LanceStats
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.dataset.versions.history import describe, describe_all, find_version
from glaive.dataset.versions.references import resolve
from glaive.dataset.versions.refs import Branches, Tags
from glaive.errors import GlaiveError, NotFoundError, UnsupportedFeatureError
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.io.access import AccessPolicy
from glaive.io.stats import IOStats
from glaive.io.store import ObjectStore
from glaive.scan.addresses import take_ids
from glaive.scan.keywords import HeadKeywords, ScanKeywords, shows_options
from glaive.scan.options import ScanOptions
from glaive.scan.projection import column_names
from glaive.scan.session import Session
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take
from glaive.table.load import open_latest
from glaive.table.manifest_store.protocol import ManifestStore
from glaive.table.root import CommitLock
from glaive.table.versions import latest, list_versions

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from glaive.dataset.commits.lance_operation import LanceOperation
    from glaive.dataset.commits.transactions import Transaction
    from glaive.dataset.compaction.optimize import DatasetOptimizer
    from glaive.dataset.interop import ArrowDataset, SqlQueryBuilder
    from glaive.dataset.merging.merge_insert import MergeInsertBuilder
    from glaive.dataset.metadata import Texts
    from glaive.dataset.versions.cleanup import CleanupExplanation, CleanupStats
    from glaive.dataset.versions.delta import DatasetDelta
    from glaive.dataset.versions.indices import IndexDescription
    from glaive.dataset.writing.base_paths import DatasetBasePath
    from glaive.scan.blobs.file import BlobFile

__all__ = ["LanceDataset"]

_COMMIT_TIMEOUT = timedelta(minutes=30)

_BY_POSITION = (
    "nearest",
    "batch_size",
    "batch_size_bytes",
    "batch_readahead",
    "fragment_readahead",
    "scan_in_order",
)
"""Options after ``offset`` that may be given by position, as pylance has them."""

Place = str | os.PathLike[str] | OpenDataset
"""Where a commit goes."""


class LanceDataset:
    """One version of a dataset. :func:`glaive.dataset` opens one and explains the parameters.

    Safe to share between threads; can be pickled, and is opened again at the same version.
    """

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
        if serialized_manifest is not None or namespace_client_managed_versioning:
            raise UnsupportedFeatureError(
                "LanceDataset: serialized_manifest and namespace_client_managed_versioning are not "
                "supported. Leave them out: the manifest is read from the dataset."
            )
        if namespace_client is not None or table_id is not None:
            from glaive.dataset.namespaces import located

            uri, storage_options = located(namespace_client, table_id, uri, storage_options)
        access = AccessPolicy.of(base_store_params, allow_external_blobs)
        store, manifest, place = find(
            uri, version, asof, storage_options, commit_lock, manifest_store, access
        )
        if session is None:
            session = Session(metadata_cache_size_bytes=metadata_cache_size_bytes)
        self._at = OpenedVersion.of(
            store,
            manifest,
            uri=place,
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
        session: Session | None = None,
        scan_defaults: Mapping[str, Any] | None = None,
    ) -> Self:
        """The version that a manifest describes; nothing is read."""
        opened = OpenedVersion.of(
            store,
            manifest,
            uri=uri,
            storage_options=storage_options,
            session=session,
            scan_defaults=scan_defaults,
        )
        return cls.holding(opened)

    @classmethod
    def holding(cls, opened: OpenedVersion) -> Self:
        """The dataset at an opened version; nothing is read."""
        dataset = cls.__new__(cls)
        dataset._at = opened  # noqa: SLF001  # of this class
        return dataset

    @property
    def opened(self) -> OpenedVersion:
        """The version this object is at, which stays what it is when the object moves on."""
        return self._at

    def move_to(self, manifest: Manifest) -> None:
        """Move this object to another version of its branch."""
        # One assignment: other threads see the old version or the new one.
        self._at = self._at.at(manifest)

    # ------------------------------------------------------------ what it consists of

    @property
    def uri(self) -> str:
        """Where the dataset lies, as it was opened."""
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
        """The version, ready to be read."""
        return self._at.snapshot

    @property
    def manifest(self) -> Manifest:
        """What the version consists of."""
        return self._at.manifest

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """Options of the object store, as they were given; ``None`` if none were."""
        return None if self.storage_options is None else dict(self.storage_options)

    def latest_storage_options(self) -> dict[str, str] | None:
        """The same: options do not change while a dataset is open."""
        return self.initial_storage_options

    def __repr__(self) -> str:
        return f"LanceDataset({GlaiveError.without_secrets(self.uri)!r}, version={self.version})"

    def __len__(self) -> int:
        return self.snapshot.num_rows

    def __copy__(self) -> Self:
        return self.holding(self._at)

    def __reduce__(self) -> tuple[object, ...]:
        place = (self.store, self.uri, self.version, self.storage_options)
        return (_reopen, (type(self), *place, self._at.scan_defaults))

    @property
    def schema(self) -> pa.Schema:
        """Columns as an Arrow schema; those of scans, where ``default_scan_options`` say."""
        if self._at.scan_defaults:
            return self.scanner().projected_schema
        return self.manifest.schema.presented()

    @property
    def lance_schema(self) -> LanceSchema:
        """Columns with their field ids."""
        return self.manifest.schema

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Metadata of the Arrow schema, as text."""
        return {k: v.decode("utf-8", "replace") for k, v in self.manifest.schema.metadata.items()}

    def session(self) -> Session:
        """What this dataset and others at hand share: the cache of opened files."""
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
        """Whether row ids stay the same when rows move."""
        return self.manifest.uses(Feature.STABLE_ROW_IDS)

    @property
    def max_field_id(self) -> int:
        """Highest field id of the schema."""
        return self.manifest.schema.max_field_id

    @property
    def has_index(self) -> bool:
        """Whether the version has indices."""
        return bool(self.manifest.indices)

    @property
    def metadata(self) -> dict[str, str]:
        """Free metadata of the table."""
        return dict(self.manifest.table_metadata)

    def config(self) -> dict[str, str]:
        """Configuration of the table."""
        return dict(self.manifest.config)

    @property
    def partition_expression(self) -> object:
        """Not offered: Lance datasets are not partitioned by expressions."""
        raise UnsupportedFeatureError(
            "partition_expression: Lance datasets are not partitioned by expressions"
        )

    @property
    def stats(self) -> LanceStats:
        """Figures about this version."""
        return LanceStats(self.snapshot)

    def io_stats_snapshot(self) -> IOStats:
        """What was read and written so far: operations and bytes.

        Counted by the store of the dataset, so its other versions are included. Files that
        another dataset of the session had opened before count there.
        """
        return self.store.counters.snapshot()

    def io_stats_incremental(self) -> IOStats:
        """What was read and written since the last call; counting starts again."""
        return self.store.counters.take()

    # ------------------------------------------------------------ reading

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream all rows to another Arrow library."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    @shows_options(*_BY_POSITION, "fragments", "index_segments", "full_text_query")
    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> Scanner:
        """Describe a scan; :class:`glaive.scan.options.ScanOptions` says what the options mean."""
        given: dict[str, Any] = {"columns": columns, "filter": filter, **options}
        given |= {"limit": limit, "offset": offset}
        defaults = self._at.scan_defaults.items()
        missing = {name: value for name, value in defaults if given.get(name) is None}
        return Scanner.of(self._at.views, **given | missing)

    @shows_options(*_BY_POSITION)
    def to_table(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> pa.Table:
        """Read into a table; options as for :meth:`scanner`."""
        return self.scanner(columns, filter, limit, offset, **options).to_table()

    @shows_options(*_BY_POSITION)
    def to_batches(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> Iterator[pa.RecordBatch]:
        """Stream record batches in bounded memory; options as for :meth:`scanner`."""
        return self.scanner(columns, filter, limit, offset, **options).to_batches()

    @shows_options(*(name for name in _BY_POSITION if name != "batch_size_bytes"))
    def to_pandas(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        *,
        blob_mode: str = "lazy",
        **kwargs: Any,
    ) -> Any:
        """Read into a pandas frame; options as for :meth:`scanner` and ``Table.to_pandas``.

        Blobs become files (``blob_mode="lazy"``), ``"bytes"`` or ``"descriptions"``.
        """
        options, kwargs = ScanOptions.split(kwargs)
        scanner = self.scanner(columns, filter, limit, offset, **options)
        return scanner.to_pandas(blob_mode=blob_mode, **kwargs)

    def take(
        self, indices: object, columns: Sequence[str] | Mapping[str, str] | None = None
    ) -> pa.Table:
        """Rows by position, 0 ≤ position < :meth:`count_rows`, in the order given.

        Positions may repeat. A position beyond the rows is a ``RowIndexError``. ``columns``
        are names or, as a mapping, SQL expressions.
        """
        return take(self._at.views.take(column_names(columns, pruning=True)), indices)

    def _take_rows(
        self,
        row_ids: object,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        *,
        ignore_deletions: bool = False,
    ) -> pa.Table:
        """Rows by ``_rowid``, in the order given, repeats allowed; pylance calls it by this name.

        Ids that no live row has are passed over; so are deleted rows, unless
        ``ignore_deletions``, which may return them.
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
        """Values of a blob column as files, in the order given.

        Exactly one of row ``ids``, row ``addresses`` and positions (``indices``) is given.
        Nulls are ``None``. Reads where the values are, none of their bytes.
        """
        from glaive.dataset.blobs.take import take_blobs

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
        """Row address and bytes of each value; rows as for :meth:`take_blobs`.

        Near values are read with one request. In the order given, unless ``preserve_order``
        is False: then by address. ``io_buffer_size`` has no effect.
        """
        from glaive.dataset.blobs.take import read_blobs

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
        """Parts of values: number of the request, row address, bytes.

        Requests are ``(row, offset, length)``, where ``selector`` says whether rows are
        ``"ids"``, ``"addresses"`` or ``"indices"``. Nulls give ``None``.
        """
        from glaive.dataset.blobs.take import read_ranges

        return read_ranges(self._at.views, blob_column, requests, selector)

    def head(self, num_rows: int, **options: Unpack[HeadKeywords]) -> pa.Table:
        """The first rows."""
        return self.to_table(limit=num_rows, **options)

    def slice(
        self, start: int, end: int, columns: Sequence[str] | Mapping[str, str] | None = None
    ) -> pa.Table:
        """Rows ``start`` to ``end``, as far as there are."""
        return self.to_table(columns, offset=start, limit=slice_length(start, end))

    def sample(
        self,
        num_rows: int,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        randomize_order: bool = True,
    ) -> pa.Table:
        """Random rows, each at most once; in dataset order unless ``randomize_order``."""
        rows = sample_positions(len(self), num_rows, randomize_order=randomize_order)
        return self.take(rows, columns)

    def to_pyarrow_dataset(self) -> ArrowDataset:
        """The dataset as engines take it that know those of Arrow, such as DuckDB and Polars.

        They ask it for the columns and rows that a query needs, and no others are read.
        """
        from glaive.dataset.interop import ArrowDataset

        return ArrowDataset(self)

    def sql(self, sql: str) -> SqlQueryBuilder:
        """A query by SQL over this version, called ``dataset`` in it; runs in DuckDB.

        ``dataset.sql("SELECT count(*) FROM dataset WHERE a > 5").build().to_batch_records()``
        """
        from glaive.dataset.interop import SqlQueryBuilder

        return SqlQueryBuilder(self, sql)

    def count_rows(self, filter: object = None) -> int:
        """Live rows, from the manifest alone."""
        if filter is None:
            return self.snapshot.num_rows
        return Scanner.of(self._at.views, filter=filter).count_rows()

    # ------------------------------------------------------------ fragments

    def fragment_ids(self) -> list[int]:
        """Ids of the fragments, in order."""
        ids: list[int] = self.manifest.fragment_ids.tolist()
        return ids

    def get_fragments(self, filter: object = None) -> list[LanceFragment]:
        """All fragments, in order. ``filter`` is there for the name only."""
        if filter is not None:
            raise UnsupportedFeatureError(
                "get_fragments: 'filter' is not supported. Leave it out, and filter the rows."
            )
        views = self._at.views
        return [LanceFragment.of(views, at) for at in range(views.snapshot.manifest.num_fragments)]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """The fragment with this id; ``None`` if the version has none such."""
        views = self._at.views
        try:
            return LanceFragment.of(views, views.snapshot.manifest.position_of(fragment_id))
        except NotFoundError:
            return None

    # ------------------------------------------------------------ changing rows

    def insert(self, data: object, *, mode: str = "append", **options: Any) -> None:
        """Write rows and move this object to the new version; options of ``write_dataset``."""
        from glaive.dataset.writing.rows import insert_rows

        self.move_to(insert_rows(self, data, mode, options).manifest)

    def delete(
        self,
        predicate: str | pc.Expression,
        *,
        conflict_retries: int = 10,
        retry_timeout: timedelta = timedelta(seconds=30),
    ) -> dict[str, int]:
        """Delete the rows that pass and move this object to the new version.

        Parameters
        ----------
        predicate
            A filter, as text or as a pyarrow expression.
        conflict_retries, retry_timeout
            How often, and for how long, it is done again when another writer changed the
            same rows.

        Returns
        -------
        dict
            ``num_deleted_rows``.

        Raises
        ------
        FilterError
            The filter is wrong; nothing was deleted.
        CommitConflictError, CommitContentionError
            Other writers were in the way; nothing was deleted.

        Notes
        -----
        Reads the columns of the filter; writes one small file per fragment with such rows.
        """
        from glaive.dataset.rows.delete import delete_where
        from glaive.dataset.rows.retry import with_retries

        limits: Any = {"conflict_retries": conflict_retries, "retry_timeout": retry_timeout}
        count = with_retries(self, lambda at: delete_where(at, predicate), **limits)
        return {"num_deleted_rows": count}

    def truncate_table(self) -> None:
        """Delete all rows and move this object to the new version; columns stay."""
        from glaive.dataset.rows.delete import truncate
        from glaive.dataset.rows.retry import with_retries

        with_retries(self, truncate)

    def update(
        self,
        updates: Mapping[str, str],
        where: str | pc.Expression | None = None,
        conflict_retries: int = 10,
        retry_timeout: timedelta = timedelta(seconds=30),
        data_storage_version: str | None = None,
    ) -> dict[str, int]:
        """Give the rows that pass new values and move this object to the new version.

        Parameters
        ----------
        updates
            Expressions over the old values, by column: ``{"price": "price * 2"}``.
        where
            A filter, as text or as a pyarrow expression; all rows when omitted.
        conflict_retries, retry_timeout
            As for :meth:`delete`.
        data_storage_version
            Format of the files with the rows; that of the dataset when omitted.

        Returns
        -------
        dict
            ``num_rows_updated``.

        Raises
        ------
        ColumnNotFoundError, FilterError, SchemaError
            A column does not exist, an expression is wrong, or gives values that the column
            cannot hold; nothing was changed.
        CommitConflictError, CommitContentionError
            Other writers were in the way; nothing was changed.

        Notes
        -----
        The rows are rewritten with all columns, at the end of the dataset.
        """
        from glaive.dataset.rows.retry import with_retries
        from glaive.dataset.rows.update import update_where

        limits: Any = {"conflict_retries": conflict_retries, "retry_timeout": retry_timeout}
        change = (updates, where, data_storage_version)
        count = with_retries(self, lambda at: update_where(at, *change), **limits)
        return {"num_rows_updated": count}

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Begin to say what a merge of other rows into these does.

        Parameters
        ----------
        on
            Columns to match by; the declared primary key when omitted.

        Raises
        ------
        ColumnNotFoundError
            A key column does not exist.
        """
        from glaive.dataset.merging.merge_insert import MergeInsertBuilder

        return MergeInsertBuilder(self, on)

    @property
    def optimize(self) -> DatasetOptimizer:
        """Keeps the dataset quick to read: ``compact_files``."""
        from glaive.dataset.compaction.optimize import DatasetOptimizer

        return DatasetOptimizer(self)

    # ------------------------------------------------------------ changing columns

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

        self.move_to(add_columns(self._at, transforms, read_columns, reader_schema, batch_size))

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Drop columns, or members of structs (``"s.x"``); moves to the new version.

        Files stay as they are until they are compacted and cleaned up.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            There is no such column, or none would be left.
        """
        from glaive.dataset.columns.alter_columns import drop_columns

        self.move_to(drop_columns(self._at, columns))

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

        self.move_to(alter_columns(self._at, alterations))

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

        self.move_to(merge_data(self._at, data_obj, left_on, right_on, schema))

    def replace_schema(self, schema: object) -> NoReturn:
        """Not offered: use :meth:`alter_columns` or :meth:`replace_schema_metadata`."""
        from glaive.errors import UnsupportedFeatureError

        raise UnsupportedFeatureError(
            "replace_schema: a schema cannot be replaced as a whole. Use add_columns, "
            "drop_columns and alter_columns, or replace_schema_metadata."
        )

    # ------------------------------------------------------------ indices

    def describe_indices(self) -> list[IndexDescription]:
        """All indices of this version, by name: type, fields, segments. Reads no index file."""
        from glaive.dataset.versions.indices import describe_indices

        return describe_indices(self.snapshot)

    def list_indices(self) -> list[dict[str, Any]]:
        """One dictionary for each segment: ``name``, ``type``, ``uuid``, ``fields``,
        ``version``, ``fragment_ids`` and ``base_id``.
        """
        from glaive.dataset.versions.indices import list_segments

        return list_segments(self.snapshot)

    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """As ``stats.index_stats``."""
        return self.stats.index_stats(index_name)

    def remap_row_addrs(self, addrs: pa.Array) -> pa.Array | None:
        """New addresses of rows that compactions moved, by the map they left for indices.

        Rows that are gone become null; addresses that the map does not know stay. ``None`` when
        the version has no such map: it is there after ``defer_index_remap``, for a while.
        """
        from glaive.dataset.versions.indices import remapped

        return remapped(self.snapshot, addrs)

    def drop_index(self, name: str) -> None:
        """Remove an index and move this object to the new version.

        Its files stay until old versions are cleaned up.

        Raises
        ------
        IndexNotFoundError
            There is no index of this name.
        """
        from glaive.dataset.versions.drop_index import drop_index

        self.move_to(drop_index(self._at, name))

    # ------------------------------------------------------------ versions

    def versions(self) -> list[dict[str, Any]]:
        """All versions, oldest first: number, local time and totals. One request each."""
        return describe_all(self.store)

    def get_version(self) -> dict[str, Any]:
        """Number, local time and totals of this version."""
        return describe(self.manifest)

    def checkout_version(self, version: int | str | tuple[str | None, int | None]) -> Self:
        """The dataset at another version; opened files are shared with this one.

        A number is a version of this branch, text is a tag, and a pair a branch and a version
        of it, ``None`` for the main branch and for the newest version.

        Raises
        ------
        VersionNotFoundError, RefNotFoundError
            There is no such version, tag or branch.
        """
        return self.holding(self._at.at_reference(resolve(self.store, self.manifest, version)))

    @property
    def tags(self) -> Tags:
        """Names for versions: ``list``, ``create``, ``update``, ``delete``, …"""
        return Tags(self)

    @property
    def branches(self) -> Branches:
        """Lines of versions beside the main one: ``list``, ``delete``, …"""
        return Branches(self)

    def version_refs(self) -> list[dict[str, int]]:
        """Numbers of all versions of this branch, oldest first. One listing."""
        return [{"version": entry.version} for entry in list_versions(self.store)]

    def checkout_latest(self) -> None:
        """Move this object to the newest version."""
        self.move_to(open_latest(self.store))

    def create_branch(
        self,
        branch: str,
        reference: int | str | tuple[str | None, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Begin a branch with a version, this one by default; returns it opened.

        References are those of :meth:`checkout_version`. The branch refers to the files of
        the version and has those of its own below ``tree/``.

        Raises
        ------
        RefExistsError
            There is a branch of this name.
        OptionError
            A branch cannot have this name.
        """
        from glaive.dataset.versions.clones import make_branch

        return self.holding(self._at.at_reference(make_branch(self._at, branch, reference)))

    def shallow_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: int | str | tuple[str | None, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Begin a dataset elsewhere that refers to the files of a version of this one.

        Raises
        ------
        DatasetExistsError
            There is a dataset already.
        """
        from glaive.dataset.versions.clones import clone_shallow

        options = self.storage_options if storage_options is None else storage_options
        target, made = clone_shallow(self._at, target_path, reference, options)
        return self.of(target, made, uri=os.fspath(target_path), storage_options=options)

    def deep_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: int | str | tuple[str | None, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Begin a dataset elsewhere with a copy of all files of a version of this one.

        Raises
        ------
        DatasetExistsError
            There is a dataset already.
        """
        from glaive.dataset.versions.clones import clone_deep

        options = self.storage_options if storage_options is None else storage_options
        target, made = clone_deep(self._at, target_path, reference, options)
        return self.of(target, made, uri=os.fspath(target_path), storage_options=options)

    def restore(self) -> None:
        """Make this version the newest one; those made since stay in the history.

        Raises
        ------
        UnsupportedFeatureError
            The dataset has been given something since that cannot be given up.
        """
        from glaive.dataset.versions.restore import restored

        self.move_to(restored(self.store, self.manifest))

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

        return compare_versions(self._at, compared_against, begin_version, end_version)

    # ------------------------------------------------------------ configuration and metadata

    def update_config(self, values: Texts, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's configuration, ``None`` removes one; returns all.

        With ``replace`` entries that are not given are removed.
        """
        from glaive.dataset.metadata import set_config

        self.move_to(set_config(self._at, values, replace=replace))
        return self.config()

    def delete_config_keys(self, keys: Sequence[str]) -> None:
        """Remove entries of the table's configuration."""
        self.update_config(dict.fromkeys(keys))

    def update_metadata(self, values: Texts, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's metadata; as :meth:`update_config`."""
        from glaive.dataset.metadata import set_metadata

        self.move_to(set_metadata(self._at, values, replace=replace))
        return self.metadata

    def update_schema_metadata(self, values: Texts, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the schema's metadata; as :meth:`update_config`."""
        from glaive.dataset.metadata import set_schema_metadata

        self.move_to(set_schema_metadata(self._at, values, replace=replace))
        return self.schema_metadata

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> None:
        """Set all entries of the schema's metadata."""
        self.update_schema_metadata(new_metadata, replace=True)

    def update_field_metadata(
        self, field_updates: Mapping[str, Texts], *, replace: bool = False
    ) -> None:
        """Set entries of the metadata of fields, by path; as :meth:`update_config`.

        Raises
        ------
        ColumnNotFoundError
            A field does not exist.
        """
        from glaive.dataset.metadata import set_field_metadata

        self.move_to(set_field_metadata(self._at, field_updates, replace=replace))

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> None:
        """Set all entries of the metadata of a field."""
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
    ) -> CleanupStats:
        """Remove old versions, and the files that no other version has.

        Parameters
        ----------
        older_than
            Only versions made longer ago; two weeks unless another argument says which.
        retain_versions
            Keep as many of the newest versions.
        delete_unverified
            Remove files that no version has, even those younger than a week. Only right
            when nobody is writing.
        error_if_tagged_old_versions
            Fail if a tag names a version that would go; otherwise it is kept.
        delete_rate_limit
            Files per second, at most.
        versions
            Only these versions.
        delete_concurrency
            Accepted; the store decides.

        Raises
        ------
        CleanupError
            A tag names a version that would go; nothing was removed.

        Notes
        -----
        This version, newer ones, and those that branches were made from always stay.
        Manifests go first: no version is ever left without its files. Nothing is deleted that no
        writer of datasets would have called so, nor behind a link that leads out of the root,
        unless the storage option ``delete_through_links`` is set; ``warnings`` of the result say
        what was left.
        """
        from glaive.dataset.versions.cleanup import clean_up
        from glaive.table.cleanup import CleanupPolicy

        given = (older_than, retain_versions, versions)
        policy = CleanupPolicy(*given, delete_unverified, error_if_tagged_old_versions)
        return clean_up(self._at, policy, delete_rate_limit)

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
        """What :meth:`cleanup_old_versions` would remove; removes nothing.

        ``delete_rate_limit`` has no effect; files are listed when ``include_files`` is set.
        """
        from glaive.dataset.versions.cleanup import explain
        from glaive.table.cleanup import CleanupPolicy

        given = (older_than, retain_versions, versions)
        policy = CleanupPolicy(*given, delete_unverified, error_if_tagged_old_versions)
        return explain(self._at, policy, include_files=include_files, max_files=max_files)

    # ------------------------------------------------------------ base paths

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

        self._at = add_bases(self._at, new_bases, transaction_properties)
        return self

    # ------------------------------------------------------------ files

    def all_files(self) -> pa.RecordBatchReader:
        """Stream the files below the root: ``base_uri``, ``path``, ``size_bytes``,
        ``last_modified`` (UTC). Those below base paths are not among them.
        """
        from glaive.dataset.versions.files import all_files

        return all_files(self._at)

    def tracked_files(
        self,
        *,
        min_version: int | None = None,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the files that versions consist of: ``version``, ``base_uri``, ``path``,
        ``type``. ``progress`` is told how many manifests were read, and of how many.
        """
        from glaive.dataset.versions.files import tracked_files

        return tracked_files(self._at, min_version, progress)

    def migrate_manifest_paths_v2(self) -> None:
        """Name the manifests so that the newest comes first in a listing.

        Must not run beside other writers; may be repeated.
        """
        from glaive.dataset.versions.files import migrate_manifest_names

        migrate_manifest_names(self.store)
        self.checkout_latest()

    @staticmethod
    def drop(
        base_uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        ignore_not_found: bool | None = None,
    ) -> None:
        """Delete a dataset and everything below its root.

        Links are deleted, not what they lead to, which is logged; with the storage option
        ``delete_through_links`` the files of the dataset that lie behind them go as well.

        Raises
        ------
        DatasetNotFoundError
            Nothing is there; no error with ``ignore_not_found``.
        OptionError
            There are files but no manifest that can be read: nothing was deleted.
        """
        from glaive.dataset.versions.files import drop_dataset

        drop_dataset(base_uri, storage_options, ignore_not_found=bool(ignore_not_found))

    # ------------------------------------------------------------ transactions

    @classmethod
    def commit(
        cls,
        base_uri: Place,
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
        **options: Any,
    ) -> Self:
        """Commit an operation whose files were written before; returns the new version.

        Parameters
        ----------
        base_uri
            The dataset: a place, or one that is opened.
        operation
            A ``LanceOperation``, or a ``Transaction`` with one.
        read_version
            The version the operation was made for; only Overwrite and Restore need none.
        commit_lock
            Called with the version; the context manager it returns is held meanwhile.
        storage_options
            Credentials and settings of the object store.
        enable_v2_manifest_paths, enable_stable_row_ids
            How a new dataset is made.
        detached
            Make a version outside the history, under a random number.
        max_retries
            Attempts after the first one.
        commit_message
            Kept with the version.
        commit_timeout
            No further attempt is begun after this time; ``None`` for no limit.
        base_store_params
            As :func:`glaive.dataset` takes them; a dataset given as ``base_uri`` keeps its own.
        namespace_client, table_id, namespace_client_managed_versioning
            Not supported here: the place says where the dataset is.

        Raises
        ------
        CommitConflictError
            Another writer changed the same thing since ``read_version``.
        CommitContentionError
            Other writers were first at every attempt.
        DatasetNotFoundError
            There is no dataset, and the operation creates none.
        OptionError
            The version is missing, or the operation is none; or an option does not exist.
        UnsupportedFeatureError
            An option is not supported.
        """
        from glaive.dataset.commits.place import CommitPlace, commit_options, refuse

        catalogue = (namespace_client, table_id, namespace_client_managed_versioning)
        refuse(cls.commit, options, catalogue)
        place = CommitPlace.of(base_uri, storage_options, commit_lock, base_store_params)
        kind = (enable_stable_row_ids, enable_v2_manifest_paths)
        limits = commit_options(max_retries, commit_timeout, detached, *kind)
        made = place.commit(operation, read_version, commit_message, limits)
        return cls.holding(place.at(made))

    @classmethod
    def commit_batch(
        cls,
        dest: Place,
        transactions: Sequence[Transaction],
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        commit_timeout: timedelta | None = _COMMIT_TIMEOUT,
        **options: Any,
    ) -> dict[str, Any]:
        """Commit several appends as one version; parameters as for :meth:`commit`.

        Returns ``dataset``, the new version, and ``merged``, the transaction it holds.

        Raises
        ------
        UnsupportedFeatureError
            One of them is no append.
        """
        from glaive.dataset.commits.place import CommitPlace, commit_options, refuse

        refuse(cls.commit_batch, options)
        place = CommitPlace.of(dest, storage_options, commit_lock, base_store_params)
        kind = (None, enable_v2_manifest_paths)
        limits = commit_options(max_retries, commit_timeout, detached, *kind)
        made, merged = place.commit_together(transactions, limits)
        return {"dataset": cls.holding(place.at(made)), "merged": merged}

    def read_transaction(self, version: int) -> Transaction | None:
        """What the commit of a version did; ``None`` if that is no longer known."""
        from glaive.dataset.commits.transactions import transaction_of

        return transaction_of(self._at, version)

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """What this version and those before it did, the newest first.

        ``None`` where that is no longer known. A listing, and two requests per version at most.
        """
        from glaive.dataset.commits.transactions import recent

        return recent(self._at, recent_transactions)


def _reopen(
    kind: type[LanceDataset],
    store: ObjectStore,
    uri: str,
    version: int,
    storage_options: Mapping[str, str] | None,
    scan_defaults: Mapping[str, Any],
) -> LanceDataset:
    return kind.of(
        store,
        find_version(store, version),
        uri=uri,
        storage_options=storage_options,
        scan_defaults=scan_defaults,
    )
