"""Existing values of matched rows: for the condition of a merge, and those it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import integer_array
from glaive.arrow.capacity import in_parts
from glaive.arrow.chunked import one_array, take_rows
from glaive.dataset.merging.matches import Matches
from glaive.dataset.merging.partial_members import is_partial, keep_members
from glaive.expr.filters import Filter, bind_filter
from glaive.format.fields import LanceSchema
from glaive.scan.addresses import find_rows
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID
from glaive.scan.take import take_physical
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["bind_condition", "holds", "is_complete", "kept_columns", "padded_rows", "updated_rows"]

Addresses = NDArray[np.uint64]

_SYSTEM: Final = pa.field(ROW_ID, pa.uint64()), pa.field(ROW_ADDRESS, pa.uint64())
"""System columns of the target."""


def bind_condition(schema: LanceSchema, source: pa.Schema, condition: str) -> Filter:
    """A condition over the columns of ``source`` and ``target``.

    Raises
    ------
    FilterError
        It is invalid; the message says what and where.
    """
    sides = pa.schema(
        [
            pa.field("source", pa.struct(list(source))),
            pa.field("target", pa.struct([*schema.to_arrow(), *_SYSTEM])),
        ]
    )
    return bind_filter(condition, LanceSchema.from_arrow(sides))


def holds(
    dataset: OpenedVersion, condition: str, matches: Matches, rows: pa.Table
) -> NDArray[np.bool_]:
    """The matches for which the condition over ``source`` and ``target`` holds."""
    bound = bind_condition(dataset.manifest.schema, rows.schema, condition)
    numbers = np.arange(len(matches.source))

    def work(start: int, stop: int) -> NDArray[np.bool_]:
        return _holds(dataset, bound, matches.only(numbers[start:stop]), rows)

    return np.concatenate([*in_parts(work, 0, len(numbers))])


def _holds(
    dataset: OpenedVersion, bound: Filter, matches: Matches, rows: pa.Table
) -> NDArray[np.bool_]:
    needed = {path.split(".")[1] for path in bound.columns if path.startswith("target.")}
    stored = sorted(needed - {field.name for field in _SYSTEM})
    old: Any = _take(dataset, stored, matches.addresses) if stored else None
    columns = {name: one_array(old.column(name)) for name in stored}
    for field, numbers in zip(_SYSTEM, (matches.ids, matches.addresses), strict=True):
        if field.name in needed:
            columns[field.name] = integer_array(numbers)
    used = sorted({path.split(".")[1] for path in bound.columns if path.startswith("source.")})
    new = take_rows(rows.select(used), matches.source)
    batch = pa.RecordBatch.from_arrays(
        [
            _struct({name: one_array(new.column(name)) for name in used}, len(matches.source)),
            _struct(columns, len(matches.source)),
        ],
        names=["source", "target"],
    )
    mask: NDArray[np.bool_] = bound.mask(batch).to_numpy(zero_copy_only=False)
    return mask


def _struct(columns: Mapping[str, Any], rows: int) -> Any:
    if not columns:
        return pa.nulls(rows, pa.struct([]))
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def kept_columns(fits: LanceSchema, schema: LanceSchema) -> list[str]:
    """Columns that the source lacks, fully or in some members; updated rows keep their values."""
    given = {field.name: field.type for field in fits.to_arrow()}
    return [
        field.name
        for field in schema.to_arrow()
        if field.name not in given or is_partial(given[field.name], field.type)
    ]


def is_complete(fits: LanceSchema, schema: LanceSchema) -> bool:
    """Whether a source with these columns has all columns, and all of their members."""
    return not kept_columns(fits, schema)


def updated_rows(
    dataset: OpenedVersion,
    fits: LanceSchema,
    rows: pa.Table,
    changed: Matches,
) -> pa.Table:
    """The updated rows with all columns of the dataset."""
    new = take_rows(rows, changed.source)
    schema = dataset.manifest.schema
    whole = schema.to_arrow()
    missing = [name for name in schema.names if name not in fits.names]
    partial = [
        field.name for field in new.schema if is_partial(field.type, whole.field(field.name).type)
    ]
    if not (missing or partial):
        return new
    old = _take(dataset, [*missing, *partial], changed.addresses)
    for name in partial:
        kept = _with_members(new.column(name), old.column(name), name)
        at = new.schema.get_field_index(name)
        new = new.set_column(at, new.schema.field(name).with_type(kept.type), kept)
    for name in missing:
        new = new.append_column(old.schema.field(name), old.column(name))
    return new


def _with_members(new: Any, old: Any, name: str) -> Any:
    """The new structs of a column, with members that only ``old`` has, in chunks."""

    def work(start: int, stop: int) -> Any:
        rows = stop - start
        parts = one_array(new.slice(start, rows)), one_array(old.slice(start, rows))
        return keep_members(*parts, name)

    return pa.chunked_array(list(in_parts(work, 0, len(new))))


def padded_rows(rows: pa.Table, schema: LanceSchema) -> pa.Table:
    """The rows, with nulls in the columns that they lack."""
    for field in schema.to_arrow():
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def _take(dataset: OpenedVersion, names: Sequence[str], addresses: Addresses) -> pa.Table:
    """Some columns of the rows at these addresses, as written."""
    snapshot = dataset.snapshot
    view = Views(snapshot).take(tuple(names), blobs="logical")
    selected = find_rows(snapshot, "addresses", addresses.astype(np.int64))
    return take_physical(view, selected.fragment, selected.row)
