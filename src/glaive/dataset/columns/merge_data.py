"""``merge`` and ``update_columns``: columns from a table, joined by a key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.chunked import join_batches, join_column, take_rows
from glaive.dataclass import dataclass
from glaive.dataset.columns.add_columns import commit_columns
from glaive.dataset.columns.added_files import AddedFiles
from glaive.dataset.columns.column_files import (
    WINDOW,
    for_each,
    physical_rows,
    replace_files,
    replaced_values,
    view_of,
    write_column_file,
)
from glaive.dataset.columns.live_columns import write_live
from glaive.dataset.columns.new_columns import Grown, grow
from glaive.dataset.writing.conform import conform, match_schema
from glaive.dataset.writing.source import batches_of, read_source
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.format.bitmaps import bitmap_of
from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.rowids import check_at_once
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, SystemColumns

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["merge_data", "merge_into_fragment", "taken_rows", "update_columns"]

_SYSTEM = (ROW_ID, ROW_ADDRESS)


def merge_data(
    dataset: OpenedVersion,
    data: object,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> Manifest:
    """Commit new columns from a table, joined by a key; see ``LanceDataset.merge``."""
    snapshot = dataset.snapshot
    lookup = _Lookup.of(snapshot, data, left_on, right_on, schema)
    positions = range(snapshot.manifest.num_fragments)
    grown, files = _write(snapshot, lookup, positions)
    return commit_columns(dataset, grown, AddedFiles.of(files))


def merge_into_fragment(
    snapshot: Snapshot,
    position: int,
    data: object,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, Grown]:
    """The same for one fragment, uncommitted; also returns the resulting schema."""
    lookup = _Lookup.of(snapshot, data, left_on, right_on, schema)
    grown, files = _write(snapshot, lookup, (position,))
    fragment = snapshot.manifest.fragment(position)
    more = [files[position]] if position in files else []
    return replace(fragment, files=(*fragment.files, *more)), grown


def _write(
    snapshot: Snapshot, lookup: _Lookup, positions: Sequence[int]
) -> tuple[Grown, dict[int, DataFile]]:
    columns = lookup.columns
    taken = [name for name in columns.names if name in snapshot.manifest.schema.by_name]
    if taken:
        raise SchemaError(
            f"Column {taken[0]} exists in both sides of the dataset: column {taken[0]!r} exists in "
            "the dataset and in the rows to be joined. Rename or drop one of the two; to change "
            "its values, use update_columns or merge_insert."
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
        return write_live(snapshot, position, grown.added, taken_rows(values, matched[position]))

    return grown, for_each(snapshot, write, positions=positions)


def taken_rows(values: pa.Table, rows: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The rows at these positions, nulls for -1, in windows."""
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
    lookup = _Lookup.of(snapshot, data, left_on, right_on, schema)
    columns = _columns_of(lookup, snapshot)
    fragment = manifest.fragment(position)
    (rows,) = lookup.find(snapshot, (position,))
    live = snapshot.live_rows(fragment)
    offsets = np.flatnonzero(rows >= 0)
    offsets = offsets if live is None else live.physical(offsets)
    wanted = take_rows(lookup.rows.select(columns.names), rows[rows >= 0])
    values: Any = conform(wanted, columns.to_arrow())
    view = view_of(snapshot, columns.names)
    batches = replaced_values(physical_rows(view, position), offsets, values)
    file = write_column_file(snapshot, fragment, columns, batches)
    matched = bitmap_of(offsets.astype(np.uint32))
    return replace_files(fragment, file), list(file.fields), matched


def _columns_of(lookup: _Lookup, snapshot: Snapshot) -> LanceSchema:
    """The columns of the dataset for which a table has complete values."""
    schema = snapshot.manifest.schema
    known = [name for name in lookup.columns.names if name in schema.by_name]
    for name in lookup.columns.names:
        if name not in schema.by_name:
            raise SchemaError(
                f"update_columns: Column {name} in right side fragment does not exist in left side "
                "fragment: it replaces values of columns that are there. add_columns makes new ones"
            )
    part = schema.project(known)
    if match_schema(lookup.columns, part, where=snapshot.store.uri) != part:
        raise SchemaError("update_columns: the rows lack members of structs; give complete columns")
    return part


@dataclass(frozen=True, slots=True)
class _Lookup:
    """The right side of a left join by a key, and the key column of the dataset."""

    rows: pa.Table
    left: str
    right: str

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        data: object,
        left_on: str,
        right_on: str | None,
        schema: pa.Schema | None,
    ) -> _Lookup:
        """Read the rows, all into memory, and check the keys."""
        right = left_on if right_on is None else right_on
        kind, rows = read_source(data, schema)
        if left_on not in snapshot.manifest.schema.names and left_on not in _SYSTEM:
            names = [*snapshot.manifest.schema.names, *_SYSTEM]
            raise ColumnNotFoundError.among(left_on, names, where="the left side dataset")
        if right not in kind.names:
            raise ColumnNotFoundError.among(right, kind.names, where="the rows to be joined")
        if len(kind.names) < 2:
            raise OptionError(
                f"the rows to be joined have no column but the key {right!r}; expected columns to "
                "take values from"
            )
        wanted = (
            pa.uint64()
            if left_on in _SYSTEM
            else snapshot.manifest.schema.to_arrow().field(left_on).type
        )
        key_type = kind.field(right).type
        if not key_type.equals(wanted):
            raise SchemaError(
                f"Index column type mismatch: key column {right!r} is {key_type}, but "
                f"{left_on!r} of the dataset is {wanted}. Cast it first."
            )
        joined = join_batches(pa.Table.from_batches(list(batches_of(rows)), kind))
        table = pa.Table.from_batches(joined, kind)
        return cls(table, left_on, right)

    @property
    def columns(self) -> pa.Schema:
        """The columns to take values from."""
        return pa.schema([field for field in self.rows.schema if field.name != self.right])

    def find(self, snapshot: Snapshot, positions: Sequence[int]) -> list[NDArray[np.int64]]:
        """The matching row for each live row of the fragments, -1 for none.

        Of several rows with the same key the last one is used; null is a key like any other.
        """
        keys: Any = join_column(self.rows.column(self.right))
        backwards = keys[::-1]
        parts = [self._keys_of(snapshot, position) for position in positions]
        try:
            cast = [chunk.cast(keys.type) for part in parts for chunk in part]
            chunks = pa.chunked_array(cast, keys.type)
            at: Any = pc.index_in(chunks, value_set=backwards)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaError(
                f"key column {self.left!r} of type {keys.type} cannot be joined by: {error}"
            ) from error
        matched = at.fill_null(-1).to_numpy().astype(np.int64)
        rows = np.where(matched < 0, -1, len(keys) - 1 - matched)
        ends = np.cumsum([sum(map(len, part)) for part in parts])
        return np.split(rows, ends[:-1]) if parts else []

    def _keys_of(self, snapshot: Snapshot, position: int) -> list[Any]:
        """Values of the key for the live rows of a fragment."""
        fragment = snapshot.manifest.fragment(position)
        if self.left in _SYSTEM:
            snapshot.check_rows(fragment)
            check_at_once(fragment.physical_rows, snapshot.manifest.where)
            live = snapshot.live_rows(fragment)
            if live is None:
                rows = np.arange(fragment.physical_rows)
            else:
                rows = live.physical_run(0, live.count)
            return [pa.array(SystemColumns(snapshot, position).of(self.left, rows))]
        view = view_of(snapshot, [self.left])
        kept = snapshot.live_rows(fragment)
        arrays, start = [], 0
        for batch in physical_rows(view, position):
            array: Any = batch.column(0)
            stop = start + len(array)
            arrays.append(array if kept is None else kept.keep(start, stop, [array])[0])
            start = stop
        return arrays
