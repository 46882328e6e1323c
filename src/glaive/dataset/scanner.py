"""A scan that can be run: as a table, as batches, as a reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from glaive.compat.absent import refuse_members
from glaive.compat.refusals import REFUSED_MEMBERS
from glaive.dataset.arrow_classes import class_for_arrow
from glaive.scan.options import ScanOptions
from glaive.scan.ready import ready_scan
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.dataset.frames import BlobMode
    from glaive.scan.query import Query
    from glaive.scan.ranked import RankedScan

__all__ = ["LanceScanner", "Scanner"]


@refuse_members(REFUSED_MEMBERS)
class Scanner:
    """One scan; can be run several times. Returned by ``dataset.scanner(...)``."""

    __class__ = class_for_arrow("Scanner")

    def __init__(self, views: Views, options: ScanOptions | Mapping[str, Any]) -> None:
        self._views = views
        self._given = options
        self._query: Query | RankedScan
        if isinstance(options, ScanOptions):
            self._query = ready_scan(views, options)
        else:
            from glaive.scan.nearest.repeated import search_with

            self._query = search_with(views, options)

    @cached_property
    def _options(self) -> ScanOptions:
        """Checked options: of a search like one before only where somebody asks for them."""
        given = self._given
        return given if isinstance(given, ScanOptions) else ScanOptions.of(**given)

    @classmethod
    def of(cls, views: Views, **options: Any) -> Scanner:
        """Check the options of a scan and resolve its columns, filter and order."""
        columns, condition = options.get("columns"), options.get("filter")
        if isinstance(condition, str) or isinstance(columns, Mapping):
            from glaive.expr.names import check_column_texts

            computed = columns.values() if isinstance(columns, Mapping) else ()
            check_column_texts(views.snapshot.manifest.schema, condition, *computed, warn=True)
        nearest = options.get("nearest")
        if nearest is None:
            return cls(views, ScanOptions.of(**options))
        if type(nearest) is dict:
            # A copy, as callers go on with their own for the next search, and with its array.
            nearest = {**nearest}
            if nearest.get("q") is not None:
                from glaive.scan.nearest.options import query_vectors

                nearest["q"] = query_vectors(nearest["q"]).copy()
        return cls(views, {**options, "nearest": nearest})

    def __repr__(self) -> str:
        manifest = self._views.snapshot.manifest
        columns = ", ".join(self._query.schema.names)
        return f"Scanner(version={manifest.version}, columns=[{columns}])"

    def _repr_html_(self) -> str:
        from glaive.dataset.notebook_views import scanner_html

        return scanner_html(self.projected_schema, self.explain_plan())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a scan cannot be pickled: pickle the dataset, and make the scan there")

    @property
    def projected_schema(self) -> pa.Schema:
        """Schema of the result."""
        return self._query.schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._views.snapshot.manifest.schema.logical_schema()

    def to_table(self) -> pa.Table:
        """Read everything. Columns keep the pages of the files as chunks."""
        return self._query.table()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the result in bounded memory; stopping early stops reading."""
        return self._query.batches()

    scan_batches = to_batches

    def to_reader(self) -> pa.RecordBatchReader:
        """Stream the result as an Arrow reader, which may go to DuckDB or another library.

        A decimal of more digits than its type has, or a time that no day has, ends it with a
        :class:`CorruptFileError`.
        """
        from glaive.arrow.invalid_values import check_numbers, has_checked_numbers
        from glaive.arrow.struct_offsets import cut_members, nests_structs

        schema, batches = self._query.schema, self.to_batches()
        if nests_structs(schema):
            batches = map(cut_members, batches)
        if any(has_checked_numbers(field.type) for field in schema):
            batches = map(check_numbers, batches)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_pandas(self, *, blob_mode: BlobMode = "lazy", **kwargs: Any) -> Any:
        """Read everything into a pandas frame; arguments are those of ``Table.to_pandas``.

        Blobs become files (``blob_mode="lazy"``), ``"bytes"`` or ``"descriptions"``.
        """
        from glaive.dataset.frames import to_frame

        return to_frame(self._views, self._options, blob_mode, kwargs)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows of the result."""
        limit = num_rows if self._options.limit is None else min(num_rows, self._options.limit)
        checked = ScanOptions.of(limit=limit)
        return ready_scan(self._views, replace(self._options, limit=checked.limit)).table()

    def count_rows(self) -> int:
        """Number of rows. Reads only what the filter needs; without a filter, nothing."""
        return ready_scan(self._views, self._options, counting=True).count()

    def explain_plan(self, verbose: bool = False) -> str:
        """The steps of the scan as text; ``verbose`` adds one line per fragment."""
        from glaive.scan.explain import explain

        return explain(self._query, verbose=verbose)

    def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and report rows, bytes, requests and seconds of each step.

        With ``count_rows``, run it as a count.
        """
        from glaive.scan.explain import analyze

        return analyze(self._views, self._options, counting=count_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream to another Arrow library."""
        reader: Any = self.to_reader()
        capsule: object = reader.__arrow_c_stream__(requested_schema)
        return capsule


LanceScanner = Scanner
"""pylance's name."""
