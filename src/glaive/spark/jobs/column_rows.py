"""Tasks that get values for rows of whole fragments, and write them as columns of these.

The rows of a partition are sorted by address, so that one fragment after the other is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.columns.added_files import AddedFiles
from glaive.dataset.columns.column_files import write_column_file
from glaive.dataset.columns.merge_data import taken_rows
from glaive.dataset.columns.new_columns import grow
from glaive.dataset.merging.columns import replace_in_fragments
from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.writing.conform import conform as as_stored
from glaive.errors import SchemaError
from glaive.format.fragment import DataFile, Fragment
from glaive.format.fragment_list import FragmentList
from glaive.format.rowids import check_at_once
from glaive.spark.assignable import stored_types
from glaive.spark.cast import conform
from glaive.spark.jobs.merge_rows import ADDRESS
from glaive.spark.jobs.worker import RowTask
from glaive.table.operations.update import encode_offsets

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.version import OpenedVersion

__all__ = [
    "CollectRows",
    "FillColumns",
    "ReplaceColumns",
    "ReplacedColumns",
    "at_version",
    "by_fragment",
    "complete",
]


@dataclass(frozen=True)
class CollectRows(RowTask):
    """Collect the addresses of a frame as a set of rows."""

    def execute(
        self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]
    ) -> RowsByFragment:  # tasks get it
        """The rows; nothing is written."""
        found = RowsByFragment()
        for batch in rows:
            found.add(batch.column(ADDRESS).to_numpy().astype(np.uint64))
        return found


@dataclass(frozen=True)
class FillColumns(RowTask):
    """Write new columns: values for some rows, nulls for the others.

    Parameters
    ----------
    columns
        The new columns, all nullable.
    """

    read_version: int
    columns: pa.Schema

    def execute(self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]) -> AddedFiles:
        """Write a file for each fragment with rows, uncommitted.

        Memory: the new values of one fragment.
        """
        opened = at_version(dataset, self.read_version)
        snapshot, manifest = opened.snapshot, opened.manifest
        added = grow(manifest, self.columns).added
        written: dict[int, DataFile] = {}
        for fragment_id, offsets, values in by_fragment(rows, self.columns):
            position = manifest.position_of(fragment_id)
            fragment = manifest.fragment(position)
            check_at_once(fragment.physical_rows, manifest.where)
            at = np.full(fragment.physical_rows, -1, np.int64)
            at[offsets] = np.arange(len(offsets))
            written[position] = write_column_file(snapshot, fragment, added, taken_rows(values, at))
        return AddedFiles.of(written)


@dataclass(frozen=True, slots=True)
class ReplacedColumns:
    """Fragments with new files for some columns, and which of their rows got values.

    ``changed`` are these rows, as :func:`glaive.table.operations.update.encode_offsets` made them.
    """

    updated: FragmentList
    changed: bytes
    count: int


@dataclass(frozen=True)
class ReplaceColumns(RowTask):
    """Write existing columns again, with new values for some rows."""

    read_version: int
    names: tuple[str, ...]

    def execute(self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]) -> ReplacedColumns:
        """Write a file for each fragment with rows, uncommitted.

        Memory: the new values of one fragment.
        """
        opened = at_version(dataset, self.read_version)
        columns = opened.manifest.schema.project(self.names)
        updated: list[Fragment] = []
        changed: dict[int, bytes] = {}
        count = 0
        for fragment_id, offsets, values in by_fragment(rows, stored_types(columns)):
            addresses = offsets.astype(np.uint64) | np.uint64(fragment_id << 32)
            order = np.arange(len(offsets))
            stored: Any = as_stored(values, columns.to_arrow())  # JSON beside the values that stay
            part = replace_in_fragments(opened, columns, stored, addresses, order)
            updated += part.updated
            changed |= part.changed_offsets
            count += len(offsets)
        return ReplacedColumns(FragmentList.of(updated), encode_offsets(changed), count)


def at_version(dataset: LanceDataset, version: int) -> OpenedVersion:
    """The version that a task was made for."""
    opened = dataset.opened
    return opened if opened.manifest.version == version else opened.at(version)


def by_fragment(
    rows: Iterator[pa.RecordBatch], columns: pa.Schema
) -> Iterator[tuple[int, Any, pa.Table]]:
    """Fragments with offsets, ascending, and values of rows that come sorted by address.

    Raises
    ------
    SchemaError
        Two rows have the same address, or a value does not fit its column.
    """
    current = -1
    offsets: list[Any] = []
    values: list[pa.RecordBatch] = []
    for batch in rows:
        addresses: Any = batch.column(ADDRESS).to_numpy()
        fragments = addresses >> 32
        bounds = [0, *(np.flatnonzero(np.diff(fragments)) + 1).tolist(), len(addresses)]
        for start, stop in pairwise(bounds):
            if start == stop:
                continue
            if fragments[start] != current:
                if values:
                    yield current, *complete(offsets, values, current)
                current, offsets, values = int(fragments[start]), [], []
            offsets.append(addresses[start:stop] & 0xFFFFFFFF)
            values.append(conform(batch.slice(start, stop - start), columns, writing=True))
    if values:
        yield current, *complete(offsets, values, current)


def complete(
    offsets: list[Any], values: list[pa.RecordBatch], fragment_id: int
) -> tuple[Any, pa.Table]:
    """The rows of one fragment, each of which has one value."""
    joined = np.concatenate(offsets)
    if (joined[1:] <= joined[:-1]).any():
        at = int(joined[np.flatnonzero(joined[1:] <= joined[:-1])[0]])
        raise SchemaError(
            f"several rows of the frame have the key of row {at} of fragment {fragment_id}. Remove "
            "them from the frame, such as with dropDuplicates; nothing was changed"
        )
    return joined, pa.Table.from_batches(values)
