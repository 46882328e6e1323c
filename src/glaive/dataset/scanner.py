"""A scan that was described and can be run: as a table, as batches, as a reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from glaive.scan.execute import read_table, stream
from glaive.scan.options import ScanOptions
from glaive.scan.plan import plan_scan
from glaive.scan.view import View, Views

__all__ = ["Scanner"]


class Scanner:
    """One scan; may be run several times. Made by ``dataset.scanner(...)``."""

    __slots__ = ("_options", "_view")

    def __init__(self, view: View, options: ScanOptions) -> None:
        self._view = view
        self._options = options

    @classmethod
    def of(cls, views: Views, **options: Any) -> Scanner:
        """Check the options of a scan and work out its projection."""
        checked = ScanOptions.of(**options)
        if not checked.use_cache:
            views = Views(views.snapshot.apart())
        view = views.scan(
            checked.columns,
            with_row_id=checked.with_row_id,
            with_row_address=checked.with_row_address,
            blobs=checked.blobs,
        )
        return cls(view, checked)

    @property
    def projected_schema(self) -> pa.Schema:
        """Schema of the result."""
        return self._view.schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._view.snapshot.manifest.schema.presented()

    def to_table(self) -> pa.Table:
        """Read everything. Columns keep the pages of the files as chunks."""
        return read_table(self._view, self._options)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the result in bounded memory; stopping early stops reading."""
        return stream(self._view, self._options)

    scan_batches = to_batches

    def to_reader(self) -> pa.RecordBatchReader:
        """Stream the result as an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self._view.schema, self.to_batches())

    def to_pandas(self, *, blob_mode: str = "lazy", **kwargs: Any) -> Any:
        """Read everything into a pandas frame; arguments are those of ``Table.to_pandas``.

        Blobs become files (``blob_mode="lazy"``), ``"bytes"`` or ``"descriptions"``.
        """
        from glaive.dataset.frames import to_frame

        return to_frame(Views(self._view.snapshot), self._options, blob_mode, kwargs)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows of the result."""
        limit = num_rows if self._options.limit is None else min(num_rows, self._options.limit)
        checked = ScanOptions.of(limit=limit)
        return read_table(self._view, replace(self._options, limit=checked.limit))

    def count_rows(self) -> int:
        """Rows of the result, without reading any."""
        return plan_scan(self._view.snapshot, self._options).rows

    def explain_plan(self, verbose: bool = False) -> str:
        """The plan as text: one line per fragment when ``verbose``."""
        plan = plan_scan(self._view.snapshot, self._options)
        columns = ", ".join(self._view.schema.names)
        lines = [f"scan {plan.rows} rows of {len(plan.ranges)} fragments: {columns}"]
        if verbose:
            lines += [f"  fragment {one.position}: {one.start}..{one.stop}" for one in plan.ranges]
        return "\n".join(lines)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream to another Arrow library."""
        reader: Any = self.to_reader()
        capsule: object = reader.__arrow_c_stream__(requested_schema)
        return capsule
