"""Carry out a merge: match keys, evaluate conditions, write rows and deletions.

The source is in memory. Of the dataset the key columns are read first; other columns only of
rows that match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataset.merging.clauses import MergeClauses, primary_key
from glaive.dataset.merging.matching import SourceKeys
from glaive.dataset.merging.partial_members import is_partial, keep_members
from glaive.dataset.rows.found_rows import delete_rows, offsets_by_fragment, rows_where
from glaive.dataset.rows.moved_rows import write_moved
from glaive.dataset.scanner import Scanner
from glaive.dataset.writing.conform import conform, match_schema
from glaive.dataset.writing.source import read_source
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.expr.filters import bind_filter
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature
from glaive.scan.addresses import RowPlaces, find_rows
from glaive.scan.system import ROW_ID, SystemColumns
from glaive.scan.take import take_physical
from glaive.scan.view import Views
from glaive.table.key_filter import hash_words, key_filter
from glaive.table.operations.update import Update

if TYPE_CHECKING:
    from glaive.dataset.opened import OpenedVersion

__all__ = ["merge", "read_rows"]

Addresses = NDArray[np.uint64]
Int64s = NDArray[np.int64]


def read_rows(data: object, schema: pa.Schema | None) -> pa.Table:
    """The source of a merge, in memory."""
    found, rows = read_source(data, schema)
    pieces = [one if isinstance(one, pa.Table) else pa.Table.from_batches([one]) for one in rows]
    return pa.concat_tables(pieces) if pieces else found.empty_table()


@dataclass(frozen=True, slots=True)
class _Matches:
    """Rows of the dataset that match: address, source row, row id; and addresses of the rest."""

    addresses: Addresses
    source: Int64s
    ids: Addresses
    others: Addresses

    def only(self, kept: NDArray[np.bool_] | Int64s) -> _Matches:
        """Those that a mask or numbers pick."""
        return _Matches(self.addresses[kept], self.source[kept], self.ids[kept], self.others)


def merge(
    dataset: OpenedVersion, clauses: MergeClauses, source: pa.Table
) -> tuple[Update, dict[str, int]]:
    """Write what a merge needs; returns the operation to commit, and the counts.

    See ``MergeInsertBuilder.execute`` for errors and cost.
    """
    if clauses.does_nothing:
        raise OptionError(
            "the merge does nothing: say what becomes of rows that match or do not, such as "
            "when_matched_update_all() and when_not_matched_insert_all()"
        )
    schema = dataset.manifest.schema
    fits = _check_source(schema, source.schema, clauses, where=dataset.uri)
    rows: Any = conform(source, fits.to_arrow())
    rows = rows.combine_chunks()
    keys = SourceKeys(clauses.on, [_whole(rows.column(name)) for name in clauses.on])
    matches = _match(dataset, clauses, keys)
    if clauses.fail and len(matches.source):
        raise SchemaError(
            f"a row with {keys.text(int(matches.source[0]))} is there already, and "
            f"when_matched_fail() says there must be none ({len(matches.source)} rows match)"
        )
    matched_source = np.zeros(len(rows), np.bool_)
    matched_source[matches.source] = True
    if clauses.update or clauses.delete:
        _refuse_ambiguous(keys, matches.source)
    changed = matches
    if clauses.update and clauses.update_condition is not None:
        changed = matches.only(_holds(dataset, clauses.update_condition, matches, rows))
    if not (clauses.update or clauses.delete):
        changed = matches.only(np.zeros(len(matches.source), np.bool_))
    by_source = _unmatched(dataset, clauses, matches)
    if clauses.mode == "rewrite_columns":
        from glaive.dataset.merging.columns import replace_matched

        return replace_matched(dataset, clauses, fits, rows, changed.addresses, changed.source)
    if clauses.update:  # in the order of the source
        order = np.argsort(changed.source, kind="stable")
        changed = changed.only(order)
    updated = _updated(dataset, fits, rows, changed) if clauses.update else None
    inserted = None
    if clauses.insert:
        fresh = ~(matched_source | _known(keys, matched_source))
        inserted = _padded(rows.filter(pa.array(fresh)), schema)
    pieces = [one for one in (updated, inserted) if one is not None and one.num_rows]
    ids = [changed.ids] if updated is not None and len(changed.ids) else []
    new = write_moved(dataset, pieces, ids, clauses.data_storage_version) if pieces else []
    gone = np.concatenate([changed.addresses, by_source])
    deleted = delete_rows(dataset, offsets_by_fragment(gone))
    operation = Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=tuple(new),
        fields_touched=tuple(sorted(one.id for one in schema.walk())),
        inserted_rows=_inserted_keys(schema, clauses, inserted),
        affected=deleted.affected,
    )
    return operation, {
        "num_inserted_rows": 0 if inserted is None else inserted.num_rows,
        "num_updated_rows": len(changed.source) if clauses.update else 0,
        "num_deleted_rows": len(by_source) + (len(changed.source) if clauses.delete else 0),
    }


def _check_source(
    schema: LanceSchema, source: pa.Schema, clauses: MergeClauses, *, where: str
) -> LanceSchema:
    """The columns of the dataset that the source has."""
    for name in clauses.on:
        if name not in source.names:
            raise ColumnNotFoundError.among(name, source.names, where="the source of the merge")
    unknown = [name for name in source.names if name not in schema.names]
    if unknown:
        raise SchemaError(
            f"the source has columns that {where} does not have: {', '.join(unknown)}. "
            f"Columns of the dataset: {', '.join(schema.names)}"
        )
    present = LanceSchema(
        tuple(one for one in schema.fields if one.name in source.names), schema.metadata
    )
    if clauses.insert:
        missing = [
            one.name for one in schema.fields if one.name not in source.names and not one.nullable
        ]
        if missing:
            raise SchemaError(
                f"the source lacks columns that are never null: {', '.join(missing)}; rows "
                "without them cannot be inserted"
            )
    return match_schema(source, present, where=where)


def _match(dataset: OpenedVersion, clauses: MergeClauses, keys: SourceKeys) -> _Matches:
    """Look the keys of all rows up among those of the source."""
    snapshot = dataset.snapshot
    scanner = Scanner.of(Views(snapshot), columns=list(clauses.on), batch_size=_BATCH)
    found: list[tuple[Int64s, Int64s]] = []
    start = 0
    for batch in scanner.to_batches():
        hits, rows = keys.matches([batch.column(name) for name in clauses.on])
        if len(hits):
            found.append((hits + start, rows))
        start += batch.num_rows
    empty = np.empty(0, np.int64)
    numbers = np.concatenate([one[0] for one in found]) if found else empty
    source = np.concatenate([one[1] for one in found]) if found else empty
    places = find_rows(snapshot, "indices", numbers)
    others = np.empty(0, np.uint64)
    if clauses.delete_by_source and clauses.by_source_condition is None:
        missed = np.ones(start, np.bool_)
        missed[numbers] = False
        others = find_rows(snapshot, "indices", np.flatnonzero(missed)).addresses
    return _Matches(places.addresses, source, _ids(places), others)


_BATCH = 64 * 1024
"""Rows looked up at a time: what they need stays in the processor's cache."""


def _ids(places: RowPlaces) -> Addresses:
    """Row ids of these rows."""
    if not places.snapshot.manifest.uses(Feature.STABLE_ROW_IDS):
        return places.addresses
    ids = np.empty(len(places), np.uint64)
    for position, here in places.by_fragment():
        ids[here] = SystemColumns(places.snapshot, position).of(ROW_ID, places.row[here])
    return ids


def _refuse_ambiguous(keys: SourceKeys, matched: Int64s) -> None:
    repeated = keys.repeated
    twice = matched[repeated[matched]]
    if len(twice):
        raise SchemaError(
            f"several rows of the source match the same row of the dataset: those with "
            f"{keys.text(int(twice[0]))}. Leave one row per key in the source."
        )


def _known(keys: SourceKeys, matched: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Source rows whose key matched by way of an earlier row with the same key."""
    if not keys.repeated.any():
        return np.zeros(len(matched), np.bool_)
    first = keys.first_rows()
    found = np.zeros(len(matched), np.bool_)
    known = first >= 0
    found[known] = matched[first[known]]
    return found


def _holds(
    dataset: OpenedVersion, condition: str, matches: _Matches, rows: pa.Table
) -> NDArray[np.bool_]:
    """For which pairs of rows the condition over ``source`` and ``target`` holds."""
    target = dataset.manifest.schema.to_arrow()
    sides = pa.schema(
        [
            pa.field("source", pa.struct(list(rows.schema))),
            pa.field("target", pa.struct(list(target))),
        ]
    )
    bound = bind_filter(condition, LanceSchema.from_arrow(sides))
    needed = sorted({path.split(".")[1] for path in bound.columns if path.startswith("target.")})
    old = _take(dataset, needed, matches.addresses) if needed else None
    numbers: Any = pa.array(matches.source)
    new = rows.take(numbers)
    batch = pa.RecordBatch.from_arrays(
        [
            _struct(new, new.schema.names, len(matches.source)),
            _struct(old, needed, len(matches.source)),
        ],
        names=["source", "target"],
    )
    mask: NDArray[np.bool_] = bound.mask(batch).to_numpy(zero_copy_only=False)
    return mask


def _struct(table: pa.Table | None, names: Sequence[str], rows: int) -> Any:
    if table is None or not names:
        return pa.nulls(rows, pa.struct([]))
    arrays = [_whole(table.column(name)) for name in names]
    return pa.StructArray.from_arrays(arrays, names=list(names))


def _unmatched(dataset: OpenedVersion, clauses: MergeClauses, matches: _Matches) -> Addresses:
    """Addresses of rows that match nothing and are to be deleted."""
    if not clauses.delete_by_source:
        return np.empty(0, np.uint64)
    if clauses.by_source_condition is None:
        return matches.others
    rows = rows_where(dataset, clauses.by_source_condition)
    if not rows:
        return np.empty(0, np.uint64)
    passing = np.concatenate(
        [offsets.astype(np.uint64) + np.uint64(one << 32) for one, offsets in rows.items()]
    )
    return np.setdiff1d(passing, matches.addresses, assume_unique=True)


def _updated(
    dataset: OpenedVersion,
    fits: LanceSchema,
    rows: pa.Table,
    changed: _Matches,
) -> pa.Table:
    """The changed rows with all columns of the dataset."""
    numbers: Any = pa.array(changed.source)
    new = rows.take(numbers)
    if len(changed.source) == 0:
        return new
    schema = dataset.manifest.schema
    whole = schema.to_arrow()
    missing = [name for name in schema.names if name not in fits.names]
    partial = [one.name for one in new.schema if is_partial(one.type, whole.field(one.name).type)]
    if not (missing or partial):
        return new
    old = _take(dataset, [*missing, *partial], changed.addresses)
    for name in partial:
        kept = keep_members(_whole(new.column(name)), _whole(old.column(name)), name)
        at = new.schema.get_field_index(name)
        new = new.set_column(at, new.schema.field(name).with_type(kept.type), kept)
    for name in missing:
        new = new.append_column(old.schema.field(name), old.column(name))
    return new


def _padded(rows: pa.Table, schema: LanceSchema) -> pa.Table:
    """The rows with nulls in the columns that they lack."""
    for field in schema.to_arrow():
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def _take(dataset: OpenedVersion, names: Sequence[str], addresses: Addresses) -> pa.Table:
    """Some columns of the rows at these addresses, blobs as their values."""
    snapshot = dataset.snapshot
    view = Views(snapshot).take(tuple(names), blobs="values")
    places = find_rows(snapshot, "addresses", addresses.astype(np.int64))
    return take_physical(view, places.fragment, places.row)


def _whole(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _inserted_keys(schema: LanceSchema, clauses: MergeClauses, inserted: pa.Table | None) -> Any:
    """What tells other writers which keys were inserted, if the keys are the primary key."""
    if inserted is None or not inserted.num_rows or primary_key(schema) != clauses.on:
        return None
    if len(clauses.on) > 1:
        return None
    column = _whole(inserted.column(clauses.on[0]))
    if column.null_count or not pa.types.is_integer(column.type) or column.type.bit_width < 32:
        return None
    signed = pa.types.is_signed_integer(column.type)
    words = column.cast(pa.int64() if signed else pa.uint64()).to_numpy().view(np.uint64)
    ids = [schema.find(name)[-1].id for name in clauses.on]
    return key_filter(ids, hash_words(words))
