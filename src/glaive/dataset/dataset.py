"""The dataset as users see it: each method says what it does and hands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataset.fragment import LanceFragment
from glaive.dataset.history import describe, describe_all, find_version
from glaive.dataset.sampling import sample_positions, slice_options
from glaive.dataset.scanner import Scanner
from glaive.dataset.stats import LanceStats
from glaive.errors import NotFoundError, UnsupportedFeatureError
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.scan.options import ScanOptions
from glaive.scan.projection import column_names
from glaive.scan.session import Session
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take
from glaive.scan.view import Views
from glaive.table.load import open_latest, read_transaction
from glaive.table.versions import latest

if TYPE_CHECKING:
    from glaive.scan.blob_file import BlobFile

__all__ = ["LanceDataset"]


class LanceDataset:
    """One version of a dataset. Made by :func:`glaive.dataset` and :func:`glaive.write_dataset`.

    Safe to share between threads; can be pickled, and is opened again at the same version.
    """

    def __init__(
        self,
        store: ObjectStore,
        manifest: Manifest,
        *,
        uri: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        session: Session | None = None,
    ) -> None:
        self.uri = store.uri if uri is None else uri
        self.store = store
        self.storage_options = storage_options
        self._session = Session() if session is None else session
        self._open(manifest)

    def _open(self, manifest: Manifest) -> None:
        # One assignment: other threads see the old version or the new one.
        snapshot = Snapshot(self.store, manifest, self._session, self.storage_options)
        self._views = Views(snapshot)

    @property
    def snapshot(self) -> Snapshot:
        """The version, ready to be read."""
        return self._views.snapshot

    @property
    def manifest(self) -> Manifest:
        """What the version consists of."""
        return self._views.snapshot.manifest

    def _at(self, manifest: Manifest) -> LanceDataset:
        """The dataset at another version, with the same opened files."""
        return LanceDataset(
            self.store,
            manifest,
            uri=self.uri,
            storage_options=self.storage_options,
            session=self._session,
        )

    def __repr__(self) -> str:
        return f"LanceDataset({self.uri!r}, version={self.version})"

    def __len__(self) -> int:
        return self.snapshot.num_rows

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.store, self.uri, self.version, self.storage_options))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream all rows to another Arrow library."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    # --------------------------------------------------------------- description

    @property
    def schema(self) -> pa.Schema:
        """Columns as an Arrow schema."""
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
        return self._session

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

    # ------------------------------------------------------------------ versions

    def versions(self) -> list[dict[str, Any]]:
        """All versions, oldest first: number, local time and totals. One request each."""
        return describe_all(self.store)

    def get_version(self) -> dict[str, Any]:
        """Number, local time and totals of this version."""
        return describe(self.manifest)

    def checkout_version(self, version: int | str) -> LanceDataset:
        """The dataset at another version; opened files are shared with this one."""
        return self._at(find_version(self.store, version, self.manifest.scheme))

    def checkout_latest(self) -> None:
        """Move this object to the newest version."""
        self._open(open_latest(self.store))

    def read_transaction(self, version: int) -> Transaction | None:
        """What the commit of a version did; ``None`` if that is no longer known."""
        manifest = self.checkout_version(version).manifest
        return read_transaction(self.store, manifest)

    # ------------------------------------------------------------------- reading

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> Scanner:
        """Describe a scan; the options are those of :class:`glaive.scan.options.ScanOptions`."""
        return Scanner.of(
            self._views, columns=columns, filter=filter, limit=limit, offset=offset, **options
        )

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> pa.Table:
        """Read into a table; options as for :meth:`scanner`."""
        return self.scanner(columns, filter, limit, offset, **options).to_table()

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Stream record batches in bounded memory; options as for :meth:`scanner`."""
        return self.scanner(columns, filter, limit, offset, **options).to_batches()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Read into a pandas frame; options as for :meth:`scanner` and ``Table.to_pandas``."""
        options, kwargs = ScanOptions.split(kwargs)
        return self.scanner(columns, filter, limit, offset, **options).to_pandas(**kwargs)

    def take(self, indices: object, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by position, 0 ≤ position < :meth:`count_rows`, in the order given.

        Positions may repeat. A position beyond the rows is a ``RowIndexError``.
        """
        return take(self._views.take(column_names(columns, pruning=True)), indices)

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
        from glaive.dataset.take_blobs import take_blobs

        rows = {"ids": ids, "addresses": addresses, "indices": indices}
        return take_blobs(self._views, blob_column, rows, buffer_size=buffer_size)

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
        from glaive.dataset.take_blobs import read_blobs

        rows = {"ids": ids, "addresses": addresses, "indices": indices}
        return read_blobs(self._views, blob_column, rows, in_order=preserve_order is not False)

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
        from glaive.dataset.take_blobs import read_ranges

        return read_ranges(self._views, blob_column, requests, selector)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return self.to_table(limit=num_rows, **options)

    def slice(self, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows ``start`` to ``end``, as far as there are."""
        return self.to_table(columns, **slice_options(start, end))

    def sample(
        self,
        num_rows: int,
        columns: Sequence[str] | None = None,
        randomize_order: bool = True,
    ) -> pa.Table:
        """Random rows, each at most once; in dataset order unless ``randomize_order``."""
        rows = sample_positions(len(self), num_rows, randomize_order=randomize_order)
        return self.take(rows, columns)

    def count_rows(self, filter: object = None) -> int:
        """Live rows, from the manifest alone."""
        if filter is None:
            return self.snapshot.num_rows
        return self.scanner(filter=filter).count_rows()

    # ----------------------------------------------------------------- fragments

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
        views = self._views
        return [LanceFragment(views, at) for at in range(views.snapshot.manifest.num_fragments)]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """The fragment with this id; ``None`` if the version has none such."""
        views = self._views
        try:
            return LanceFragment(views, views.snapshot.manifest.position_of(fragment_id))
        except NotFoundError:
            return None

    # ------------------------------------------------------------------- writing

    def insert(self, data: object, *, mode: str = "append", **options: Any) -> None:
        """Write rows and move this object to the new version; options of ``write_dataset``."""
        from glaive.dataset.open import write_dataset

        written = write_dataset(data, self, mode=mode, **options)
        self._open(written.manifest)


def _reopen(
    store: ObjectStore, uri: str, version: int, storage_options: Mapping[str, str] | None
) -> LanceDataset:
    manifest = find_version(store, version)
    return LanceDataset(store, manifest, uri=uri, storage_options=storage_options)
