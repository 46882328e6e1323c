"""Datasets in other engines: as a pyarrow dataset.

DuckDB and Polars push the columns and the filter of a query down to a
:class:`pyarrow.dataset.Dataset`. :class:`ArrowDataset` is a subclass that scans the Lance dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow.fs import LocalFileSystem

from glaive.dataset.scanner import Scanner
from glaive.errors import UnsupportedFeatureError
from glaive.scan.options import ScanKeywords
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take_from

_OF_ARROW = ("cache_metadata", "fragment_scan_options", "memory_pool", "use_threads")
"""Options of pyarrow scanners that are ignored."""


_STAND_IN = "a Lance dataset, which Arrow's own scanner cannot read\0"
"""In place of a path: appears in errors if Arrow bypasses the methods below.

No file has a null character in its name: Arrow would read one in the working directory.
"""


class ScannedDataset(Protocol):
    """The methods of a dataset that this module uses."""

    @property
    def snapshot(self) -> Snapshot:
        """The version as scans read it."""

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
        """Rows by position."""


class ArrowDataset(pads.FileSystemDataset):
    """One version of a dataset for other engines; returned by ``to_pyarrow_dataset``.

    Scans take the options of ``dataset.scanner``; options that only pyarrow has are ignored.

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
        # Without a fragment, Arrow would dereference a null pointer.
        filesystem, file_format = LocalFileSystem(), pads.IpcFileFormat()
        fragment = file_format.make_fragment(_STAND_IN, filesystem=filesystem)
        super().__init__([fragment], self.schema, file_format, filesystem)

    def __reduce__(self) -> tuple[object, ...]:
        return ArrowDataset, (self._opened, self._options, self._filter)

    @property
    def schema(self) -> pa.Schema:
        """Schema of scans without a projection."""
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
        options = {name: value for name, value in options.items() if name not in _OF_ARROW}
        if columns is not None:  # they include row ids and addresses if those are wanted
            columns = dict(columns) if isinstance(columns, Mapping) else list(columns)
            kept = {k: v for k, v in self._options.items() if k not in _ADDED}
        else:
            kept = self._options
        return self._opened.scanner(columns, filter, **(kept | options))

    def to_table(self, *args: Any, **options: Any) -> pa.Table:
        """Read into a table; arguments as for :meth:`scanner`."""
        return self.scanner(*args, **options).to_table()

    def to_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Stream record batches; arguments as for :meth:`scanner`."""
        return self.scanner(*args, **options).to_batches()

    def head(self, num_rows: int, *args: Any, **options: Any) -> pa.Table:
        """The first rows; arguments as for :meth:`scanner`."""
        return self.scanner(*args, limit=num_rows, **options).to_table()

    def count_rows(self, *args: Any, **options: Any) -> int:
        """Number of rows; arguments as for :meth:`scanner`."""
        return self.scanner(*args, **options).count_rows()

    def filter(self, expression: pc.Expression) -> ArrowDataset:
        """The dataset with a filter."""
        both = expression if self._filter is None else self._filter & expression
        return ArrowDataset(self._opened, self._options, both)

    def take(self, indices: Any, *args: Any, **options: Any) -> pa.Table:
        """Rows by position among those that pass the filter; arguments as for :meth:`scanner`."""
        if self._filter is None and not self._options and not args:
            columns = options.pop("columns", None)
            if not options:
                return self._opened.take(indices, columns)
        return take_from(self.to_table(*args, **options), indices)

    def sort_by(self, sorting: Any, **options: Any) -> pads.InMemoryDataset:
        """All rows, sorted, in memory; arguments as in pyarrow."""
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
        """Not supported: Arrow cannot read the files of Lance fragments."""
        raise UnsupportedFeatureError(
            "get_fragments: Arrow cannot read the fragments of a Lance dataset. Use "
            "LanceDataset.get_fragments, or scan"
        )

    _get_fragments = get_fragments

    def replace_schema(self, schema: pa.Schema) -> None:
        """Not supported: cast the result of a scan instead."""
        raise UnsupportedFeatureError(
            "replace_schema: a Lance dataset has one schema. Cast the result of a scan instead"
        )


def _table(given: Any) -> pa.Table:
    table: pa.Table = given if isinstance(given, pa.Table) else given.to_table()
    return table


def _in_memory(table: pa.Table) -> pads.InMemoryDataset:
    return pads.InMemoryDataset(table)  # type: ignore[call-arg]  # missing in the stubs


_ADDED = ("with_row_id", "with_row_address")
