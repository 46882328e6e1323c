"""``ScannerBuilder``: the options of a scan, one call each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypedDict

import pyarrow as pa

from glaive.errors import OptionError
from glaive.scan.options import ScanOptions

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.scanner import Scanner
    from glaive.dataset.transactions import Transaction
    from glaive.scan.nearest.options import MinHashQuery


class ScannerBuilder:
    """Options of a scan; each method sets one and returns the builder.

    :class:`glaive.scan.options.ScanOptions` explains them. Each method checks its option
    (``OptionError``); :meth:`to_scanner` checks their combination. ``dataset.scanner(...)`` takes
    the same options in one call.

    Parameters
    ----------
    ds
        The dataset to scan. Its ``default_scan_options`` apply unless you set an option.
    """

    def __init__(self, ds: LanceDataset) -> None:
        self.ds = ds
        self._options: dict[str, Any] = {}

    def _set(self, **options: Any) -> Self:
        ScanOptions.of(**options)
        self._options = self._options | options
        return self

    def apply_defaults(self, default_opts: Mapping[str, Any]) -> Self:
        """Set missing options."""
        chosen = self._options
        self._set(**default_opts)
        self._options |= chosen
        return self

    def batch_size(self, batch_size: int) -> Self:
        """Set the number of rows per batch."""
        return self._set(batch_size=batch_size)

    def batch_size_bytes(self, batch_size_bytes: int) -> Self:
        """Set the approximate number of bytes per batch."""
        return self._set(batch_size_bytes=batch_size_bytes)

    def io_buffer_size(self, io_buffer_size: int) -> Self:
        """Set the maximum number of bytes to fetch ahead."""
        return self._set(io_buffer_size=io_buffer_size)

    def batch_readahead(self, nbatches: int | None = None) -> Self:
        """Set the number of batches to read ahead."""
        return self._set(batch_readahead=nbatches)

    def fragment_readahead(self, nfragments: int | None = None) -> Self:
        """Set the number of fragments to read ahead."""
        return self._set(fragment_readahead=nfragments)

    def scan_in_order(self, scan_in_order: bool = True) -> Self:
        """Choose whether batches come in the order of the rows."""
        return self._set(scan_in_order=scan_in_order)

    def limit(self, n: int | None = None) -> Self:
        """Set the maximum number of rows."""
        return self._set(limit=n)

    def offset(self, n: int | None = None) -> Self:
        """Set the number of rows to skip."""
        return self._set(offset=n)

    def columns(self, cols: Sequence[str] | Mapping[str, str] | None = None) -> Self:
        """Set the columns: names, or a mapping from names to expressions."""
        return self._set(columns=cols)

    def filter(self, filter: object) -> Self:
        """Set the filter: an SQL string or a pyarrow expression."""
        return self._set(filter=filter)

    def row_addr_prefilter(
        self, allowlist: bytes | None = None, blocklist: bytes | None = None
    ) -> Self:
        """Set the row addresses that a search may find, or must skip (serialised bitmaps)."""
        return self._set(row_addr_allowlist=allowlist, row_addr_blocklist=blocklist)

    def prefilter(self, prefilter: bool) -> Self:
        """Choose whether the filter applies before a search."""
        return self._set(prefilter=prefilter)

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Choose whether to return a column ``_rowid``."""
        return self._set(with_row_id=with_row_id)

    def with_row_address(self, with_row_address: bool = True) -> Self:
        """Choose whether to return a column ``_rowaddr``."""
        return self._set(with_row_address=with_row_address)

    def late_materialization(self, late_materialization: bool | Sequence[str]) -> Self:
        """Set the columns to read only for rows that pass the filter."""
        return self._set(late_materialization=late_materialization)

    def blob_handling(self, blob_handling: str | None) -> Self:
        """Set how blob columns are returned."""
        return self._set(blob_handling=blob_handling)

    def minhash_search(self, query: MinHashQuery) -> Self:
        """Search for the rows whose strings are most similar to a string, with a MINHASHLSH
        index.
        """
        return self._set(nearest=query)

    def use_stats(self, use_stats: bool = True) -> Self:
        """Choose whether statistics prune pages."""
        return self._set(use_stats=use_stats)

    def use_scalar_index(self, use_scalar_index: bool = True) -> Self:
        """Choose whether indices may answer the filter."""
        return self._set(use_scalar_index=use_scalar_index)

    def with_fragments(self, fragments: Iterable[object] | None) -> Self:
        """Set the fragments to scan; None: all."""
        return self._set(fragments=None if fragments is None else list(fragments))

    def with_index_segments(self, index_segments: Iterable[object] | None) -> Self:
        """Set the segments of an index to search; None: all."""
        return self._set(index_segments=index_segments)

    def nearest(
        self,
        column: str,
        q: object,
        k: int | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        refine_factor: int | None = None,
        use_index: bool = True,
        ef: int | None = None,
        query_parallelism: int | None = None,
        approx_mode: str = "normal",
        distance_range: tuple[float | None, float | None] | None = None,
        search_effort: float | None = None,
    ) -> Self:
        """Search for nearest vectors; ``nearest`` of ``scanner`` explains the options."""
        if not isinstance(column, str):
            raise OptionError(f"nearest: expected the name of a column, found {column!r:.60}")
        from glaive.scan.nearest.options import query_vectors

        given = {
            "column": column,
            "q": None if q is None else query_vectors(q).copy(),  # the caller may write to it
            "k": k,
            "metric": metric,
            "nprobes": nprobes,
            "minimum_nprobes": minimum_nprobes,
            "maximum_nprobes": maximum_nprobes,
            "refine_factor": refine_factor,
            "use_index": use_index,
            "ef": ef,
            "query_parallelism": query_parallelism,
            "approx_mode": approx_mode,
            "distance_range": distance_range,
            "search_effort": search_effort,
        }
        return self._set(nearest={name: it for name, it in given.items() if it is not None})

    def fast_search(self, flag: bool) -> Self:
        """Choose whether to search only rows that the index covers."""
        return self._set(fast_search=flag)

    def include_deleted_rows(self, flag: bool) -> Self:
        """Choose whether to return deleted rows as well."""
        return self._set(include_deleted_rows=flag)

    def full_text_search(self, query: object, columns: Sequence[str] | None = None) -> Self:
        """Search strings: words, or a query of :mod:`glaive.query`."""
        if columns is not None:
            query = {"query": query, "columns": list(columns)}
        return self._set(full_text_query=query)

    def scan_stats_callback(self, callback: Callable[..., object]) -> Self:
        """Call a function with the statistics when the scan ends."""
        return self._set(scan_stats_callback=callback)

    def strict_batch_size(self, strict_batch_size: bool = False) -> Self:
        """Choose whether all batches except the last have ``batch_size`` rows."""
        return self._set(strict_batch_size=strict_batch_size)

    def order_by(self, orderings: Sequence[Any] | None) -> Self:
        """Set the columns to sort by."""
        return self._set(order_by=orderings)

    def disable_scoring_autoprojection(self, disable: bool = True) -> Self:
        """Choose whether to return scores and distances only if you name them."""
        return self._set(disable_scoring_autoprojection=disable)

    def substrait_aggregate(self, aggregate: bytes) -> Self:
        """Set aggregates, as a Substrait plan."""
        return self._set(aggregate=aggregate)

    def to_scanner(self) -> Scanner:
        """Return the scan.

        Raises
        ------
        OptionError, FilterError, ColumnNotFoundError
            An option has an invalid value.
        """
        return self.ds.scanner(**self._options)


# --- Dictionaries that methods of datasets take and return, for annotations -------------
# At run time they are plain dictionaries with these keys.


class AlterColumn(TypedDict, total=False):
    """A change of ``alter_columns``."""

    path: str
    name: str | None
    nullable: bool | None
    data_type: pa.DataType | None


class AutoCleanupConfig(TypedDict):
    """``auto_cleanup_options`` of ``write_dataset``: commits between clean-ups, seconds to keep."""

    interval: int
    older_than_seconds: int


class Branch(TypedDict):
    """An entry of ``branches.list()``."""

    parent_branch: str | None
    branch_identifier: list[tuple[int, str]]
    parent_version: int
    create_at: int
    manifest_size: int
    metadata: dict[str, str]


class BulkCommitResult(TypedDict):
    """The result of ``commit_batch``."""

    dataset: LanceDataset
    merged: Transaction


class DatasetStats(TypedDict):
    """The result of ``stats.dataset_stats()``."""

    num_deleted_rows: int
    num_fragments: int
    num_small_files: int


class DeleteResult(TypedDict):
    """The result of ``delete``."""

    num_deleted_rows: int


class ExecuteResult(TypedDict):
    """The result of a merge."""

    num_inserted_rows: int
    num_updated_rows: int
    num_deleted_rows: int


class IndexInformation(TypedDict):
    """An entry of ``list_indices()``."""

    name: str
    type: str
    uuid: str
    fields: list[str]
    version: int
    fragment_ids: set[int]
    base_id: int | None


class Tag(TypedDict):
    """An entry of ``tags.list()``."""

    branch: str | None
    version: int
    created_at: datetime | None
    updated_at: datetime | None
    manifest_size: int
    metadata: dict[str, str]


class UpdateResult(TypedDict):
    """The result of ``update``."""

    num_rows_updated: int


class Version(TypedDict):
    """An entry of ``versions()``."""

    version: int
    timestamp: datetime
    metadata: dict[str, Any]


class VersionRef(TypedDict):
    """An entry of ``version_refs()``."""

    version: int
