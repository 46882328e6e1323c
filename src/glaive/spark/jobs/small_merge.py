"""The task of a small merge: it gets all rows of the source, and finds the rows that they change.

Where a merge takes whole rows by equal keys, this saves Spark a join, whose plan has to be made,
compiled and run over every column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.chunked import join_column
from glaive.dataclass import dataclass
from glaive.dataset.merging.matches import SourceKeys, find_matches
from glaive.scan.metrics import Meter
from glaive.spark.jobs.merge_rows import (
    ADDRESS,
    CLAUSE,
    ROW_ID,
    MergedRows,
    MergeRows,
    RowClause,
)
from glaive.spark.jobs.worker import RowTask
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.version import OpenedVersion

__all__ = ["KEY", "MAX_SOURCE_BYTES", "SmallMerge", "possible_keys"]

KEY: Final = "__glaive_key_"
"""Columns of the source with keys, by number."""

MAX_SOURCE_BYTES: Final = 64 << 20
"""Bytes of a source that one task holds."""


@dataclass(frozen=True)
class SmallMerge(RowTask):
    """Merge the rows of a source into a version.

    Parameters
    ----------
    read_version
        The version.
    fields
        The columns of the table that the columns :data:`KEY` are equal to.
    clauses
        By number.
    matched, unmatched
        Number of the clause for rows of the source that match, and for those that do not; ``None``
        if there is none.
    primary_key
        Columns of the primary key if the merge is by it, else none.
    """

    read_version: int
    fields: tuple[pa.Field[Any], ...]
    clauses: tuple[RowClause, ...]
    matched: int | None
    unmatched: int | None
    primary_key: tuple[str, ...] = ()

    def execute(self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]) -> MergedRows | None:
        """Write new files, uncommitted; ``None``, and nothing, if the source is too large.

        Memory: the source twice, and 40 bytes for each of its rows.
        """
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in rows:
            held.append(batch)
            size += batch.nbytes
            if size > MAX_SOURCE_BYTES:
                return None
        task = MergeRows(self.read_version, self.clauses, self.primary_key)
        if not held:
            return task.execute(dataset, iter(()))
        opened = dataset.opened
        if opened.manifest.version != self.read_version:
            opened = opened.at(self.read_version)
        return task.execute(dataset, self._changes(opened, pa.Table.from_batches(held)))

    def _changes(self, opened: OpenedVersion, source: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows that change something, as :class:`MergeRows` gets them."""
        columns = [source.column(f"{KEY}{at}") for at in range(len(self.fields))]
        possible, keys = possible_keys(columns, self.fields)
        positions = np.flatnonzero(possible)
        values = source.drop_columns([f"{KEY}{at}" for at in range(len(self.fields))])
        found, addresses, ids = _pairs(opened, self.fields, keys)
        found = positions[found]
        if self.matched is not None:
            yield from _numbered(values, self.matched, found, addresses, ids)
        if self.unmatched is not None:
            others = np.ones(source.num_rows, np.bool_)
            others[found] = False
            yield from _numbered(values, self.unmatched, np.flatnonzero(others))


def possible_keys(
    columns: Sequence[Any], fields: Sequence[pa.Field[Any]]
) -> tuple[NDArray[np.bool_], list[pa.Array[Any]]]:
    """Which rows have keys that columns can have, and these keys in the types of the columns.

    Parameters
    ----------
    columns
        Chunked, of equal length: integers for a column of integers, texts for texts, days for days.
    fields
        The columns of a table.

    Returns
    -------
    numpy.ndarray
        Shape ``(rows,)``: whether no part of the key is null, or out of range.
    list
        One array for each field, of these rows.
    """
    possible: Any = pa.scalar(True)
    cast = []
    for column, field in zip(columns, fields, strict=True):
        possible = pc.and_(possible, pc.is_valid(column))
        fitted: Any = column
        if pa.types.is_integer(field.type) and column.type != field.type:
            zero: Any = 0
            fitted = column.cast(field.type, safe=False)
            back: Any = fitted.cast(column.type, safe=False)
            same: Any = pc.equal(back, column)
            # A number below 0 may come back from an unsigned one.
            signs: Any = pc.equal(pc.less(fitted, zero), pc.less(column, zero))
            possible = pc.and_(possible, pc.fill_null(pc.and_(same, signs), False))
        else:
            fitted = column.cast(field.type)
        cast.append(fitted)
    mask: Any = join_column(possible)
    return mask.to_numpy(zero_copy_only=False), [join_column(c.filter(mask)) for c in cast]


def _pairs(
    opened: OpenedVersion, fields: Sequence[pa.Field[Any]], columns: Sequence[pa.Array[Any]]
) -> tuple[Int64s, NDArray[np.uint64], NDArray[np.uint64]]:
    """Rows of the keys and addresses and ids of rows of the table that have them, as pairs."""
    keys = SourceKeys([field.name for field in fields], columns)
    found = find_matches(opened, keys, Meter()).in_order_of_source(keys.rows)
    if not keys.repeated.any():
        return found.source, found.addresses, found.ids
    # The table's rows are known by the first row with their key.
    first = keys.first_rows
    starts = np.searchsorted(found.source, first, side="left")
    counts = np.searchsorted(found.source, first, side="right") - starts
    rows = np.repeat(np.arange(keys.rows), counts)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(starts, counts) + np.arange(len(rows)) - before
    return rows, found.addresses[at], found.ids[at]


def _numbered(
    values: pa.Table,
    clause: int,
    rows: Int64s,
    addresses: NDArray[np.uint64] | None = None,
    ids: NDArray[np.uint64] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of the source with the number of a clause, and what they match."""
    if not len(rows):
        return
    nothing = pa.nulls(len(rows), pa.int64())
    positions: Any = pa.array(rows)
    columns = {
        **{name: values.column(name).take(positions) for name in values.column_names},
        CLAUSE: pa.array(np.full(len(rows), clause, np.int32)),
        ADDRESS: nothing if addresses is None else pa.array(addresses.view(np.int64)),
        ROW_ID: nothing if ids is None else pa.array(ids.view(np.int64)),
    }
    yield from pa.table(columns).combine_chunks().to_batches()
