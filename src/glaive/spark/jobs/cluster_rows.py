"""Tasks that cluster rows: one reads fragments and cuts them into parts, one writes a part.

Between them rows pass through Spark as Arrow streams in binary columns, with exactly their types;
Spark moves them by the number of their part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.chunked import take_rows
from glaive.dataclass import dataclass
from glaive.dataset.scanner import Scanner
from glaive.dataset.writing.fragments import FragmentWriter
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import plan_write
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList
from glaive.format.rowids import encode_row_ids, encode_versions, version_runs
from glaive.scan.options import TO_WRITE_AGAIN, ScanOptions
from glaive.scan.system_columns import CREATED_AT, ROW_ID, UPDATED_AT
from glaive.scan.views import Views
from glaive.spark.jobs.column_rows import at_version
from glaive.spark.jobs.curves import Curve
from glaive.spark.jobs.worker import RowTask

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["PARTS", "PARTS_DDL", "CutRows", "Cuts", "WritePart"]

PARTS: Final[dict[str, pa.DataType]] = {"part": pa.int32(), "rows": pa.binary()}
"""Columns between the tasks: the number of the part, and an Arrow stream."""

PARTS_DDL: Final = "part int, rows binary"

_NUMBER: Final = "__glaive_number"
"""The last column while rows are moved; a column of the dataset may have this name, too."""

_LINEAGE: Final = (ROW_ID, CREATED_AT, UPDATED_AT)
_HELD_BYTES: Final = 128 << 20
"""Rows that a task holds before it sends them on."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where rows are cut into parts.

    Parameters
    ----------
    curve
        The order of rows.
    numbers
        Numbers along the curve at which parts begin, ascending.
    """

    curve: Curve
    numbers: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class CutRows:
    """Read fragments, and cut their rows into parts.

    Parameters
    ----------
    fragment_ids
        The fragments.
    """

    read_version: int
    fragment_ids: tuple[int, ...]

    def rows(self, dataset: LanceDataset, shared: Cuts) -> Iterator[pa.RecordBatch]:
        """Parts of rows, as :data:`PARTS`."""
        opened = at_version(dataset, self.read_version)
        stable = opened.manifest.uses(Feature.STABLE_ROW_IDS)
        columns = [*opened.manifest.schema.names, *(_LINEAGE if stable else ())]
        reading = ScanOptions.of(columns=columns, fragments=self.fragment_ids, use_cache=False)
        reading = replace(reading, blob_handling=TO_WRITE_AGAIN)
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in Scanner(Views(opened.snapshot), reading).to_batches():
            numbers = pa.array(shared.curve.numbers(batch))
            held.append(batch.append_column(_NUMBER, numbers))
            size += batch.nbytes
            if size >= _HELD_BYTES:
                yield from _parts(held, shared.numbers)
                held, size = [], 0
        if held:
            yield from _parts(held, shared.numbers)


def _parts(held: list[pa.RecordBatch], cuts: NDArray[np.uint64]) -> Iterator[pa.RecordBatch]:
    """Rows by part, as :data:`PARTS`."""
    table = pa.Table.from_batches(held)
    numbers = table.column(table.num_columns - 1).to_numpy()
    parts = np.searchsorted(cuts, numbers, side="right")
    order = np.argsort(parts, kind="stable")
    starts = np.flatnonzero(np.diff(parts[order], prepend=-1))
    stops = [*starts[1:].tolist(), len(order)]
    for start, stop in zip(starts.tolist(), stops, strict=True):
        rows = take_rows(table, order[start:stop], distinct=True)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        number = int(parts[order[start]])
        yield pa.record_batch([[number], [sink.getvalue().to_pybytes()]], schema=pa.schema(PARTS))


@dataclass(frozen=True)
class WritePart(RowTask):
    """Write the rows of one part, sorted. Memory: these rows, twice.

    Parameters
    ----------
    max_rows
        Rows of a new fragment, at most.
    """

    read_version: int
    curve: Curve
    max_rows: int

    def execute(
        self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]
    ) -> tuple[int, FragmentList]:
        """The number of the part, and its new fragments, uncommitted."""
        opened = at_version(dataset, self.read_version)
        part, tables = -1, []
        for batch in rows:
            for number, stream in zip(*batch.to_pydict().values(), strict=True):
                part = number
                tables.append(pa.ipc.open_stream(stream).read_all())
        if not tables:
            return part, FragmentList()
        table = self._sorted(pa.concat_tables(tables))
        manifest = opened.manifest
        options = WriteOptions(
            mode="append", max_rows_per_file=self.max_rows, compression="balanced"
        )
        writer = FragmentWriter(plan_write(opened.store, manifest.schema, options, manifest))
        try:
            writer.write(table.select(manifest.schema.names))
            new = [fragment for fragment in writer.finish() if fragment.physical_rows]
        except BaseException:
            writer.discard()
            raise
        if manifest.uses(Feature.STABLE_ROW_IDS):
            new = _with_lineage(new, table)
        return part, FragmentList.of(new)

    def _sorted(self, numbered: pa.Table) -> pa.Table:
        """The rows, without their numbers."""
        last = numbered.num_columns - 1
        table: Any = numbered.remove_column(last)
        if len(self.curve.columns) == 1 and _is_sortable(table.column(self.curve.columns[0])):
            column = table.column(self.curve.columns[0])
            order: Any = pc.array_sort_indices(column, null_placement="at_start")
            positions = order.to_numpy().astype(np.int64)
        else:
            positions = np.argsort(numbered.column(last).to_numpy(), kind="stable")
        return take_rows(table, positions, distinct=True)


def _is_sortable(column: Any) -> bool:
    kind = column.type
    return not isinstance(kind, pa.BaseExtensionType) and not pa.types.is_dictionary(kind)


def _with_lineage(new: list[Fragment], table: pa.Table) -> list[Fragment]:
    """Fragments with the ids and versions of their rows."""
    ids, created, updated = (table.column(name).to_numpy() for name in _LINEAGE)
    numbered, start = [], 0
    for fragment in new:
        stop = start + fragment.physical_rows
        numbered.append(
            replace(
                fragment,
                row_ids=encode_row_ids(ids[start:stop]),
                created_at=encode_versions(list(version_runs(created[start:stop]))),
                updated_at=encode_versions(list(version_runs(updated[start:stop]))),
            )
        )
        start = stop
    return numbered
