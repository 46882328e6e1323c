"""Run a merge: match keys, evaluate conditions, write rows and deletions.

The source is in memory. The key columns of the dataset are read; other columns only for matched
rows, if a condition needs them or the source lacks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_batches, join_column, take_rows
from glaive.dataset.merging.clauses import MergeClauses, primary_key
from glaive.dataset.merging.matches import Matches, SourceKeys, find_matches
from glaive.dataset.merging.old_values import holds, is_complete, padded_rows, updated_rows
from glaive.dataset.merging.source import check_source
from glaive.dataset.rows.relocated_rows import write_relocated
from glaive.dataset.rows.selected_rows import delete_rows, offsets_by_fragment, rows_where
from glaive.dataset.writing.conform import conform
from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.scan.addresses import find_rows
from glaive.scan.metrics import Meter
from glaive.table.key_filter import hash_keys, key_filter
from glaive.table.operations.update import Update
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["merge"]

Addresses = NDArray[np.uint64]


def merge(
    dataset: OpenedVersion, clauses: MergeClauses, source: pa.Table, meter: Meter | None = None
) -> tuple[Update, dict[str, int]]:
    """Write the files of a merge; returns the operation to commit, and the counts.

    See ``MergeInsertBuilder.execute`` for errors and cost. ``meter`` records times and counts.
    """
    meter = meter or Meter()
    schema = dataset.manifest.schema
    fits = check_source(schema, source.schema, clauses, where=dataset.uri)
    rows: Any = conform(source, fits.to_arrow())
    rows = pa.Table.from_batches(join_batches(rows), rows.schema)
    keys = SourceKeys(clauses.on, [join_column(rows.column(name)) for name in clauses.on])
    with meter.step("match"):
        everything = clauses.delete_by_source and clauses.by_source_condition is None
        matches = find_matches(dataset, keys, positions=everything, meter=meter)
    meter.count("rows_matched", len(matches.source))
    if clauses.fail and len(matches.source):
        raise SchemaError(
            f"a row with {keys.text(int(matches.source[0]))} exists already, which "
            f"when_matched_fail() forbids ({len(matches.source)} rows match)"
        )
    if clauses.update or clauses.delete:
        _refuse_ambiguous(keys, matches.source)
    changed = matches
    if clauses.update and clauses.update_condition is not None:
        with meter.step("condition"):
            changed = matches.only(holds(dataset, clauses.update_condition, matches, rows))
    if not (clauses.update or clauses.delete):
        changed = matches.only(np.zeros(len(matches.source), np.bool_))
    if clauses.mode == "rewrite_columns":
        from glaive.dataset.merging.columns import replace_matched

        return replace_matched(dataset, clauses, fits, rows, changed.addresses, changed.source)
    deleted_addresses, unmatched = _deleted_addresses(dataset, clauses, matches, changed)
    inserted = _unmatched(keys, matches.source) if clauses.insert else None
    with meter.step("write"):
        new = _written(dataset, clauses, fits, rows, changed, inserted)
    with meter.step("delete"):
        deleted = delete_rows(dataset, offsets_by_fragment(deleted_addresses))
    meter.count("files_written", sum(len(fragment.files) for fragment in new))
    operation = Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=tuple(new),
        fields_touched=tuple(sorted(field.id for field in schema.walk())),
        inserted_rows=_inserted_keys(schema, clauses, rows, inserted),
        affected=deleted.affected,
    )
    return operation, {
        "num_inserted_rows": 0 if inserted is None else int(np.count_nonzero(inserted)),
        "num_updated_rows": len(changed.source) if clauses.update else 0,
        "num_deleted_rows": unmatched + (len(changed.source) if clauses.delete else 0),
    }


def _refuse_ambiguous(keys: SourceKeys, matched: Int64s) -> None:
    repeated = keys.repeated
    twice = matched[repeated[matched]]
    if len(twice):
        raise SchemaError(
            f"several rows of the source match the same row of the dataset: those with "
            f"{keys.text(int(twice[0]))}. Keep one row per key in the source."
        )


def _unmatched(keys: SourceKeys, matched: Int64s) -> NDArray[np.bool_]:
    """Source rows whose key no row of the dataset has."""
    unmatched = np.ones(keys.rows, np.bool_)
    unmatched[matched] = False
    if keys.repeated.any():  # of rows with the same key, only the first was matched
        first = keys.first_rows
        known = first >= 0
        unmatched[known] = unmatched[first[known]]
    return unmatched


def _inserted_keys(
    schema: LanceSchema, clauses: MergeClauses, rows: pa.Table, inserted: NDArray[np.bool_] | None
) -> Any:
    """The filter of inserted keys for other writers, if the keys are the primary key."""
    if inserted is None or not inserted.any() or primary_key(schema) != clauses.on:
        return None
    mask = pa.array(inserted)
    hashes = hash_keys([join_column(rows.column(name)).filter(mask) for name in clauses.on])
    if hashes is None:
        return None
    return key_filter([schema.find(name)[-1].id for name in clauses.on], hashes)


def _deleted_addresses(
    dataset: OpenedVersion, clauses: MergeClauses, matches: Matches, changed: Matches
) -> tuple[Addresses, int]:
    """Addresses of the rows to delete, and how many of them are unmatched."""
    if not clauses.delete_by_source:
        return changed.addresses, 0
    if matches.positions is not None:
        deleted = np.ones(dataset.snapshot.num_rows, np.bool_)
        deleted[matches.positions] = False
        count = int(np.count_nonzero(deleted))
        deleted[changed.positions] = True
        located = find_rows(dataset.snapshot, "indices", np.flatnonzero(deleted))
        return located.addresses, count
    rows = rows_where(dataset, clauses.by_source_condition)
    passing = [
        offsets.astype(np.uint64) + np.uint64(fragment_id << 32)
        for fragment_id, offsets in rows.items()
    ]
    selected = np.concatenate([np.empty(0, np.uint64), *passing])
    unmatched = np.setdiff1d(selected, matches.addresses, assume_unique=True)
    return np.concatenate([changed.addresses, unmatched]), len(unmatched)


def _written(
    dataset: OpenedVersion,
    clauses: MergeClauses,
    fits: LanceSchema,
    rows: pa.Table,
    changed: Matches,
    inserted: NDArray[np.bool_] | None,
) -> list[Fragment]:
    """New fragments with the updated rows, then the inserted ones."""
    schema = dataset.manifest.schema
    num_updated = len(changed.source) if clauses.update else 0
    num_inserted = 0 if inserted is None else int(np.count_nonzero(inserted))
    if not num_updated + num_inserted:
        return []
    bases = [base.name or base.path for base in dataset.manifest.wire.base_paths]
    options = clauses.options(bases)
    stable = dataset.manifest.uses(Feature.STABLE_ROW_IDS)
    if not stable and is_complete(fits, schema):
        order = np.concatenate(
            [
                np.sort(changed.source) if num_updated else np.empty(0, np.int64),
                np.flatnonzero(inserted) if inserted is not None else np.empty(0, np.int64),
            ]
        )
        in_order = len(order) == len(rows) and bool((order[1:] > order[:-1]).all())
        written = rows if in_order else take_rows(rows, order)
        return write_relocated(dataset, [written], [], options)
    parts, ids = [], []
    if num_updated:
        changed = changed.in_order_of_source(len(rows))
        parts.append(updated_rows(dataset, fits, rows, changed))
        ids.append(changed.ids)
    if inserted is not None and num_inserted:
        parts.append(padded_rows(rows.filter(pa.array(inserted)), schema))
    return write_relocated(dataset, parts, ids, options)
