"""Compute new columns of a fragment from its live rows, and write them.

Values are computed for live rows only, so that an expression cannot fail at a deleted row. The
file has values for all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.dataset.columns.column_files import (
    WINDOW,
    physical_rows,
    spread_rows,
    write_column_file,
)
from glaive.dataset.writing.source import Rows, batches_of
from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import SystemColumns
from glaive.scan.views import BoundProjection

__all__ = ["Batches", "Shares", "live_batches", "write_changed", "write_live"]

Batches = Iterator[tuple[int, pa.RecordBatch]]
"""First physical row of a window, and its live rows."""


class Shares:
    """A stream of rows, split by the number of rows of each fragment."""

    __slots__ = ("_rest", "_rows", "_seen", "_wanted")

    def __init__(self, rows: Iterator[Rows], wanted: int) -> None:
        self._rows = batches_of(rows)
        self._wanted = wanted
        self._seen = 0
        self._rest: pa.RecordBatch | None = None

    def _next(self) -> pa.RecordBatch | None:
        batch, self._rest = self._rest, None
        return next(self._rows, None) if batch is None else batch

    def take(self, count: int) -> Iterator[pa.RecordBatch]:
        """The next ``count`` rows."""
        while count:
            batch = self._next()
            if batch is None:
                raise SchemaError(
                    "new columns: Stream ended before producing values for all rows in dataset: "
                    f"expected {self._wanted} rows, one for each live row, found {self._seen}"
                )
            part = batch.slice(0, count)
            if part.num_rows < batch.num_rows:
                self._rest = batch.slice(count)
            count -= part.num_rows
            self._seen += part.num_rows
            yield part

    def end(self) -> None:
        """Refuse further rows."""
        while (batch := self._next()) is not None:
            if batch.num_rows:
                raise SchemaError(
                    "new columns: Stream produced more values than expected for dataset: "
                    f"expected {self._wanted} rows, one for each live row, found more"
                )


def write_live(
    snapshot: Snapshot, position: int, columns: LanceSchema, rows: Iterator[pa.RecordBatch]
) -> DataFile | None:
    """Write the new columns of a fragment from the values of its live rows.

    ``None`` where all rows are deleted.
    """
    fragment = snapshot.manifest.fragment(position)
    live = snapshot.live_rows(fragment)
    if not fragment.physical_rows or (live is not None and not live.count):
        for _ in rows:
            pass
        return None
    spread = spread_rows(rows, live, fragment.physical_rows)
    return write_column_file(snapshot, fragment, columns, spread)


def write_changed(
    snapshot: Snapshot,
    position: int,
    columns: LanceSchema,
    view: BoundProjection,
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> DataFile | None:
    """Write columns of a fragment that a function computes from the live rows of a view."""
    batches = live_batches(snapshot, view, position, ())
    return write_live(snapshot, position, columns, (change(batch) for _, batch in batches))


def _windows(
    view: BoundProjection, position: int, rows: int, window: int | None
) -> Iterator[tuple[int, int, list[Any]]]:
    """Ranges of physical rows, and their columns; shorter if values are large."""
    if not view.schema.names:
        step = window or WINDOW
        for start in range(0, rows, step):
            yield start, min(start + step, rows), []
        return
    stop = 0
    for batch in physical_rows(view, position, window=window):
        start, stop = stop, stop + batch.num_rows
        yield start, stop, batch.columns


def live_batches(
    snapshot: Snapshot,
    view: BoundProjection,
    position: int,
    system: Sequence[str],
    window: int | None = None,
) -> Batches:
    """Windows of a fragment without the deleted rows: first physical row, and the rows.

    Without a number of rows for ``window``, wide rows make shorter ones.
    A view without columns gives batches with the right number of rows.
    """
    fragment = snapshot.manifest.fragment(position)
    if not view.schema.names:
        snapshot.check_rows(fragment)
    live = snapshot.live_rows(fragment)
    extra = SystemColumns(snapshot, position) if system else None
    for start, stop, columns in _windows(view, position, fragment.physical_rows, window):
        arrays = list(columns)
        names = list(view.schema.names)
        if extra is not None:
            rows = np.arange(start, stop, dtype=np.int64)
            arrays += [pa.array(extra.of(name, rows)) for name in system]
            names += system
        if not arrays:
            arrays, names = [pa.nulls(stop - start)], [""]
        if live is not None:
            arrays = live.keep(start, stop, arrays)
        if len(arrays[0]):
            yield start, pa.RecordBatch.from_arrays(arrays, names=names)
