"""Reading a dataset: scans, takes, blobs, fragments. Each method hands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataset.fragments.fragment import LanceFragment
from glaive.dataset.opened import OpenedVersion
from glaive.dataset.sampling import sample_positions, slice_options
from glaive.dataset.scanner import Scanner
from glaive.errors import NotFoundError, UnsupportedFeatureError
from glaive.scan.addresses import take_ids
from glaive.scan.options import ScanOptions, shows_options
from glaive.scan.projection import column_names
from glaive.scan.take import take

if TYPE_CHECKING:
    from glaive.dataset.interop import ArrowDataset, SqlQueryBuilder
    from glaive.scan.blobs.file import BlobFile

__all__ = ["Reading"]


_MORE = (
    "nearest",
    "batch_size",
    "batch_size_bytes",
    "batch_readahead",
    "fragment_readahead",
    "scan_in_order",
)
"""Options after ``offset`` that may be given by position, as pylance has them."""


class Reading(OpenedVersion):
    """The part of ``LanceDataset`` that reads."""

    @property
    def schema(self) -> pa.Schema:
        """Columns as an Arrow schema; those of scans, where ``default_scan_options`` say."""
        if self._scan_defaults:
            return self.scanner().projected_schema
        return super().schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream all rows to another Arrow library."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    @shows_options(*_MORE, "fragments", "index_segments", "full_text_query")
    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> Scanner:
        """Describe a scan; :class:`glaive.scan.options.ScanOptions` says what the options mean."""
        options |= {"columns": columns, "filter": filter, "limit": limit, "offset": offset}
        for name, value in self._scan_defaults.items():
            if options.get(name) is None:
                options[name] = value
        return Scanner.of(self._views, **options)

    @shows_options(*_MORE)
    def to_table(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> pa.Table:
        """Read into a table; options as for :meth:`scanner`."""
        return self.scanner(columns, filter, limit, offset, **options).to_table()

    @shows_options(*_MORE)
    def to_batches(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Stream record batches in bounded memory; options as for :meth:`scanner`."""
        return self.scanner(columns, filter, limit, offset, **options).to_batches()

    @shows_options(*(name for name in _MORE if name != "batch_size_bytes"))
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
        return take(self._views.take(column_names(columns, pruning=True)), indices)

    def _take_rows(
        self,
        row_ids: object,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        *,
        ignore_deletions: bool = False,
    ) -> pa.Table:
        """Rows by ``_rowid``, in the order given, repeats allowed.

        Ids that no live row has are passed over; so are deleted rows, unless
        ``ignore_deletions``, which may return them.
        """
        view = self._views.take(column_names(columns, pruning=True))
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
        from glaive.dataset.blobs.take import read_blobs

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
        from glaive.dataset.blobs.take import read_ranges

        return read_ranges(self._views, blob_column, requests, selector)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return self.to_table(limit=num_rows, **options)

    def slice(
        self, start: int, end: int, columns: Sequence[str] | Mapping[str, str] | None = None
    ) -> pa.Table:
        """Rows ``start`` to ``end``, as far as there are."""
        return self.to_table(columns, **slice_options(start, end))

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
        return Scanner.of(self._views, filter=filter).count_rows()

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
        return [LanceFragment.of(views, at) for at in range(views.snapshot.manifest.num_fragments)]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """The fragment with this id; ``None`` if the version has none such."""
        views = self._views
        try:
            return LanceFragment.of(views, views.snapshot.manifest.position_of(fragment_id))
        except NotFoundError:
            return None
