"""Datasets in other engines: as a pyarrow dataset, and in SQL.

DuckDB and Polars push the columns and the filter of a query down to a
:class:`pyarrow.dataset.Dataset`. :class:`ArrowDataset` is a subclass that scans the Lance dataset.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow.fs import LocalFileSystem

from glaive.dataset.scanner import Scanner
from glaive.errors import (
    FormatError,
    GlaiveError,
    MissingDependencyError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.scan.options import ScanKeywords
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take_from

_IGNORED_OPTIONS = ("cache_metadata", "fragment_scan_options", "memory_pool", "use_threads")
"""Options of pyarrow scanners that are ignored."""


_NO_DATA = "a Lance dataset, which Arrow's own scanner cannot read\0"
"""Used as a path: appears in errors if Arrow bypasses the methods below. The null character keeps
Arrow from reading a file of this name in the working directory."""


class ScannedDataset(Protocol):
    """The methods of a dataset that this module uses."""

    @property
    def snapshot(self) -> Snapshot:
        """The version, as a snapshot for scans."""

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> Scanner:
        """Describe a scan."""

    def take(self, indices: object, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows by position."""


class ArrowDataset(pads.FileSystemDataset):
    """One version of a dataset for other engines; returned by ``to_pyarrow_dataset``.

    Scans take the options of ``dataset.scanner`` and ignore options that only pyarrow has.

    Parameters
    ----------
    opened
        The version.
    options
        Options of all scans, such as ``with_row_id``.
    expression
        Filter of all scans.
    """

    def __init__(
        self,
        opened: ScannedDataset,
        options: Mapping[str, Any] | None = None,
        expression: pc.Expression | None = None,
    ) -> None:
        self._opened = opened
        self._options = dict(options or {})
        self._filter = expression
        self._schema = opened.scanner(**self._options).projected_schema
        # For an empty list Arrow would dereference a null pointer.
        filesystem, file_format = LocalFileSystem(), pads.IpcFileFormat()
        fragment = file_format.make_fragment(_NO_DATA, filesystem=filesystem)
        super().__init__([fragment], self.schema, file_format, filesystem)

    def __reduce__(self) -> tuple[object, ...]:
        return ArrowDataset, (self._opened, self._options, self._filter)

    @property
    def schema(self) -> pa.Schema:
        """Schema of scans of all columns."""
        return self._schema

    @property
    def partition_expression(self) -> pc.Expression:
        """Always true."""
        return pc.scalar(True)

    def scanner(  # type: ignore[override]  # returns our scanner, which has the same methods
        self,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> Scanner:
        """Describe a scan."""
        if self._filter is not None:
            filter = self._filter if filter is None else self._filter & filter
        options = {name: value for name, value in options.items() if name not in _IGNORED_OPTIONS}
        if columns is not None:  # these include row ids and addresses if the engine wants them
            columns = dict(columns) if isinstance(columns, Mapping) else list(columns)
            kept = {k: v for k, v in self._options.items() if k not in _ADDED}
        else:
            kept = self._options
        return self._opened.scanner(columns, filter, **(kept | options))

    def to_table(self, *args: Any, **options: Any) -> pa.Table:
        """Read into a table; :meth:`scanner` explains the arguments."""
        return self.scanner(*args, **options).to_table()

    def to_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Stream record batches; :meth:`scanner` explains the arguments."""
        return self.scanner(*args, **options).to_batches()

    def head(self, num_rows: int, *args: Any, **options: Any) -> pa.Table:
        """Return the first rows; :meth:`scanner` explains the arguments."""
        return self.scanner(*args, limit=num_rows, **options).to_table()

    def count_rows(self, *args: Any, **options: Any) -> int:
        """Count rows; :meth:`scanner` explains the arguments."""
        return self.scanner(*args, **options).count_rows()

    def filter(self, expression: pc.Expression) -> ArrowDataset:
        """Return the dataset with a filter."""
        both = expression if self._filter is None else self._filter & expression
        return ArrowDataset(self._opened, self._options, both)

    def take(self, indices: Any, *args: Any, **options: Any) -> pa.Table:
        """Return rows by position among rows that pass the filter; arguments as :meth:`scanner`."""
        if self._filter is None and not self._options and not args:
            columns = options.pop("columns", None)
            if not options:
                return self._opened.take(indices, columns)
        return take_from(self.to_table(*args, **options), indices)

    def sort_by(self, sorting: Any, **options: Any) -> pads.InMemoryDataset:
        """Sort all rows in memory; arguments as in pyarrow."""
        table = self.to_table()
        keys: Any = [(sorting, "ascending")] if isinstance(sorting, str) else sorting
        order = pc.sort_indices(table, options=pc.SortOptions(keys, **options))
        return _in_memory(take_from(table, order))

    def join(
        self, right_dataset: Any, keys: Any, *args: Any, **options: Any
    ) -> pads.InMemoryDataset:
        """Join with another dataset or table, in memory; options as in pyarrow."""
        return _in_memory(self.to_table().join(_table(right_dataset), keys, *args, **options))

    def join_asof(
        self, right_dataset: Any, on: str, by: Any, tolerance: int, *args: Any, **options: Any
    ) -> pads.InMemoryDataset:
        """Join on the nearest key, in memory; options as in pyarrow."""
        right = _table(right_dataset)
        return _in_memory(self.to_table().join_asof(right, on, by, tolerance, *args, **options))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:
        """Raise an error: Arrow cannot read the files of Lance fragments."""
        raise UnsupportedFeatureError(
            "get_fragments: Arrow cannot read the fragments of a Lance dataset. Use "
            "LanceDataset.get_fragments, or scan"
        )

    _get_fragments = get_fragments

    def replace_schema(self, schema: pa.Schema) -> None:
        """Raise an error: cast the result of a scan instead."""
        raise UnsupportedFeatureError(
            "replace_schema: a Lance dataset has one schema. Cast the result of a scan instead"
        )


def _table(given: Any) -> pa.Table:
    table: pa.Table = given if isinstance(given, pa.Table) else given.to_table()
    return table


def _in_memory(table: pa.Table) -> pads.InMemoryDataset:
    return pads.InMemoryDataset(table)  # type: ignore[call-arg]  # missing in the stubs


_ADDED = ("with_row_id", "with_row_address")


# --- SQL queries, run by DataFusion, as in pylance --------------------------------------


class _QueriedDataset(ArrowDataset):
    """A dataset for DataFusion, which scans its only fragment."""

    def __init__(
        self, table: ArrowDataset, failures: list[GlaiveError], scans: list[Scanner]
    ) -> None:
        made: Any = table.__reduce__()[1]
        super().__init__(*made)
        self._failures, self._scans = failures, scans

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:
        """Return the dataset itself as its only fragment."""
        return iter([self])

    _get_fragments = get_fragments

    def scanner(  # type: ignore[override]  # which has the methods that DataFusion calls
        self, schema: object = None, **options: Any
    ) -> _QueriedScan:
        """Describe a scan; arguments as for the dataset."""
        with _noted(self._failures):
            scan = super().scanner(**options)
        if "batch_size" not in options:  # a step of the plan that has not run yet
            self._scans.append(scan)
        return _QueriedScan(scan, self._failures)


class _QueriedScan:
    def __init__(self, scan: Scanner, failures: list[GlaiveError]) -> None:
        self.projected_schema = scan.projected_schema
        self._scan, self._failures = scan, failures

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        with _noted(self._failures):
            for batch in self._scan.to_reader():
                try:
                    batch.validate(full=True)  # DataFusion trusts strings to be UTF-8
                except pa.ArrowInvalid as error:
                    raise FormatError(f"sql: {error}") from error
                yield batch


@contextmanager
def _noted(failures: list[GlaiveError]) -> Iterator[None]:
    try:
        yield
    except GlaiveError as error:
        failures.append(error)
        raise


class SqlQueryBuilder:
    """Builder of an SQL query; returned by ``dataset.sql``. Methods change and return it."""

    def __init__(self, opened: ScannedDataset, sql: str) -> None:
        self._opened = opened
        self._sql = sql
        self._table = "dataset"
        self._batch_size = 8192
        self._options: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"SqlQueryBuilder({self._sql!r}, table_name={self._table!r})"

    def table_name(self, table_name: str) -> SqlQueryBuilder:
        """Set the name of the dataset in the query; default: ``dataset``."""
        self._table = table_name
        return self

    def with_row_id(self, with_row_id: bool = True) -> SqlQueryBuilder:
        """Add a column ``_rowid``."""
        self._options["with_row_id"] = with_row_id
        return self

    def with_row_addr(self, with_row_addr: bool = True) -> SqlQueryBuilder:
        """Add a column ``_rowaddr``."""
        self._options["with_row_address"] = with_row_addr
        return self

    def blob_handling(self, blob_handling: str) -> SqlQueryBuilder:
        """Set how blob columns are returned; see ``ScanOptions``."""
        self._options["blob_handling"] = blob_handling
        return self

    def batch_size(self, batch_size: int) -> SqlQueryBuilder:
        """Set the approximate number of rows per batch of the result."""
        self._batch_size = batch_size
        return self

    def batch_size_bytes(self, batch_size_bytes: int) -> SqlQueryBuilder:
        """Set the approximate number of bytes per batch read."""
        self._options["batch_size_bytes"] = batch_size_bytes
        return self

    def build(self) -> SqlQuery:
        """Return the query, ready to run."""
        table = ArrowDataset(self._opened, self._options)
        return SqlQuery(self._sql, {self._table: table}, self._batch_size)


class SqlQuery:
    """An SQL query. Each run reads the datasets again.

    Parameters
    ----------
    sql
        SQL in DataFusion's dialect.
    tables
        pyarrow datasets and tables, by name in the query.
    batch_size
        Approximate rows per batch of the result.
    """

    def __init__(self, sql: str, tables: Mapping[str, Any], batch_size: int) -> None:
        self._sql = sql
        self._tables = tables
        self._batch_size = batch_size

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """Run the query; return the result in batches."""
        return list(self.to_stream_reader())

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """Run the query and stream the result.

        Raises
        ------
        MissingDependencyError
            DataFusion is missing.
        OptionError
            The query is invalid, or fails for some rows.
        """
        try:
            import datafusion
        except ImportError as error:
            raise MissingDependencyError(
                f'sql: queries run in DataFusion ({error}). Install it: pip install "glaive[sql]"'
            ) from error
        config = datafusion.SessionConfig().with_batch_size(self._batch_size)
        runtime = datafusion.RuntimeEnvBuilder().with_disk_manager_os()
        # A query spills beyond most of the memory of the machine.
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 4 // 5
        session = datafusion.SessionContext(config, runtime.with_fair_spill_pool(memory))
        only_reads = datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False)
        failures: list[GlaiveError] = []
        scans: list[Scanner] = []
        with _translated(failures):
            for name, table in self._tables.items():
                if isinstance(table, ArrowDataset):
                    session.register_dataset(name, _QueriedDataset(table, failures, scans))
                elif isinstance(table, pads.Dataset):
                    session.register_dataset(name, table)
                else:
                    session.from_arrow(table, name=name)
            frame = session.sql_with_options(self._sql, only_reads.with_allow_statements(False))
            # Before optimisation, literals may have other types than their columns.
            frame = session.create_dataframe_from_logical_plan(frame.optimized_logical_plan())
            schema, stream = frame.schema(), frame.execute_stream()

        def rows() -> Iterator[pa.RecordBatch]:
            with _translated(failures):
                for batch in stream:
                    yield batch.to_pyarrow().cast(schema)

        reader = pa.RecordBatchReader.from_batches(schema, rows())
        explains = schema.names == ["plan_type", "plan"]
        return _with_scans(reader.read_all(), scans) if explains else reader


def _with_scans(explained: pa.Table, scans: Sequence[Scanner]) -> pa.RecordBatchReader:
    """Return the plan of a query, with the plans of its scans below it."""
    kinds, plans = (list(map(str, column.to_pylist())) for column in explained.columns)
    for scan in scans:
        plans[-1] += scan.explain_plan() if len(kinds) > 1 else scan.analyze_plan()
    return pa.table({"plan_type": kinds, "plan": plans}).to_reader()


@contextmanager
def _translated(failures: list[GlaiveError]) -> Iterator[None]:
    """Raise the error of reading a table, if any, or else DataFusion's message."""
    try:
        yield
    except GlaiveError:
        raise
    except BaseException as error:
        # A panic of DataFusion is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if failures:
            # The traceback of an error holds the list, which must be freed by hand.
            found = failures[0]
            failures.clear()
            raise found from None
        raise OptionError(
            f"sql: {f'{error}'.rstrip('.'):.1000}. The table is named dataset."
        ) from None
