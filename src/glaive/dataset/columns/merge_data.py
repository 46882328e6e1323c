"""``merge`` and ``update_columns``: columns from a table, joined by a key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_batches, take_rows
from glaive.dataset.columns.add_columns import commit_columns
from glaive.dataset.columns.column_files import (
    WINDOW,
    for_each,
    physical_rows,
    replace_files,
    replaced_values,
    view_of,
    write_column_file,
)
from glaive.dataset.columns.joined import Lookup
from glaive.dataset.columns.live_columns import write_live
from glaive.dataset.columns.new_columns import Grown, grow
from glaive.dataset.writing.conform import conform, match_schema
from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile, Fragment
from glaive.format.manifest import Manifest
from glaive.scan.snapshot import Snapshot
from glaive.table.bitmaps import bitmap_of

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["merge_data", "merge_into_fragment", "update_columns"]


def merge_data(
    dataset: OpenedVersion,
    data: object,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> Manifest:
    """Commit new columns from a table, joined by a key; see ``LanceDataset.merge``."""
    snapshot = dataset.snapshot
    lookup = Lookup.of(snapshot, data, left_on, right_on, schema)
    positions = range(snapshot.manifest.num_fragments)
    grown, files = _write(snapshot, lookup, positions)
    return commit_columns(dataset, grown, files)


def merge_into_fragment(
    snapshot: Snapshot,
    position: int,
    data: object,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, Grown]:
    """The same for one fragment, uncommitted; also returns the resulting schema."""
    lookup = Lookup.of(snapshot, data, left_on, right_on, schema)
    grown, files = _write(snapshot, lookup, (position,))
    fragment = snapshot.manifest.fragment(position)
    more = [files[position]] if position in files else []
    return replace(fragment, files=(*fragment.files, *more)), grown


def _write(
    snapshot: Snapshot, lookup: Lookup, positions: Sequence[int]
) -> tuple[Grown, dict[int, DataFile]]:
    columns = lookup.columns
    taken = [name for name in columns.names if name in snapshot.manifest.schema.names]
    if taken:
        raise SchemaError(
            f"column {taken[0]!r} exists in the dataset and in the rows to be joined. Rename or "
            "drop one of the two; to change its values, use update_columns or merge_insert."
        )
    grown = grow(snapshot.manifest, columns)
    matched = dict(zip(positions, lookup.find(snapshot, positions), strict=True))
    strict = [column.name for column in columns if not column.nullable]
    missing = sum(int((rows < 0).sum()) for rows in matched.values())
    if strict and missing:
        raise SchemaError(
            f"column {strict[0]!r} is not nullable, but {missing} rows of the dataset have no "
            "match in the joined rows. Make it nullable."
        )
    values = lookup.rows.select(columns.names)

    def write(position: int) -> DataFile | None:
        return write_live(snapshot, position, grown.added, _taken(values, matched[position]))

    return grown, for_each(snapshot, write, positions=positions)


def _taken(values: pa.Table, rows: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The rows at these positions, nulls for -1."""
    for start in range(0, len(rows), WINDOW):
        yield from join_batches(take_rows(values, rows[start : start + WINDOW]))


def update_columns(
    snapshot: Snapshot,
    position: int,
    data: object,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, list[int], bytes]:
    """One fragment with values of a table for rows with the same key, uncommitted.

    Returns
    -------
    tuple
        The fragment; ids of the rewritten fields; and the physical rows that got values, as a
        roaring bitmap in the portable layout.
    """
    manifest = snapshot.manifest
    lookup = Lookup.of(snapshot, data, left_on, right_on, schema)
    columns = _columns_of(lookup, snapshot)
    fragment = manifest.fragment(position)
    (rows,) = lookup.find(snapshot, (position,))
    live = snapshot.live_rows(fragment)
    offsets = np.flatnonzero(rows >= 0)
    offsets = offsets if live is None else live.physical(offsets)
    wanted = take_rows(lookup.rows.select(columns.names), rows[rows >= 0])
    values: Any = conform(wanted, columns.to_arrow())
    view = view_of(snapshot, [f"`{name}`" for name in columns.names])
    batches = replaced_values(physical_rows(view, position), offsets, values)
    file = write_column_file(snapshot, fragment, columns, batches)
    matched = bitmap_of(offsets.astype(np.uint32))
    return replace_files(fragment, file), list(file.fields), matched


def _columns_of(lookup: Lookup, snapshot: Snapshot) -> LanceSchema:
    """The columns of the dataset for which a table has complete values."""
    schema = snapshot.manifest.schema
    known = [name for name in lookup.columns.names if name in schema.names]
    part = schema.project([f"`{name}`" for name in known])
    if match_schema(lookup.columns, part, where=snapshot.store.uri) != part:
        raise SchemaError("update_columns: the rows lack members of structs; give complete columns")
    return part
