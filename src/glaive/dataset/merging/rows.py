"""Carry out a merge: match keys, evaluate conditions, write rows and deletions.

The source is in memory. Of the dataset the key columns are read; other columns only where a
condition needs them, or the source lacks them, and of rows that match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_batches, join_column, take_rows
from glaive.dataset.merging.clauses import MergeClauses
from glaive.dataset.merging.inserted_keys import inserted_keys
from glaive.dataset.merging.matches import Matches, find_matches
from glaive.dataset.merging.matching import SourceKeys
from glaive.dataset.merging.old_values import holds, is_whole, padded_rows, updated_rows
from glaive.dataset.merging.source import check_source
from glaive.dataset.rows.found_rows import delete_rows, offsets_by_fragment, rows_where
from glaive.dataset.rows.moved_rows import write_moved
from glaive.dataset.writing.conform import conform
from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.scan.addresses import find_rows
from glaive.scan.metrics import Meter
from glaive.table.operations.update import Update

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["merge"]

Addresses = NDArray[np.uint64]
Int64s = NDArray[np.int64]


def merge(
    dataset: OpenedVersion, clauses: MergeClauses, source: pa.Table, meter: Meter | None = None
) -> tuple[Update, dict[str, int]]:
    """Write what a merge needs; returns the operation to commit, and the counts.

    See ``MergeInsertBuilder.execute`` for errors and cost. A meter learns what it did.
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
            f"a row with {keys.text(int(matches.source[0]))} is there already, and "
            f"when_matched_fail() says there must be none ({len(matches.source)} rows match)"
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
    gone, unmatched = _gone(dataset, clauses, matches, changed)
    inserted = None
    if clauses.insert:
        inserted = _unknown(keys, matches.source)
    with meter.step("write"):
        new = _written(dataset, clauses, fits, rows, changed, inserted)
    with meter.step("delete"):
        deleted = delete_rows(dataset, offsets_by_fragment(gone))
    meter.count("files_written", sum(len(fragment.files) for fragment in new))
    operation = Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=tuple(new),
        fields_touched=tuple(sorted(field.id for field in schema.walk())),
        inserted_rows=inserted_keys(schema, clauses, rows, inserted),
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
            f"{keys.text(int(twice[0]))}. Leave one row per key in the source."
        )


def _unknown(keys: SourceKeys, matched: Int64s) -> NDArray[np.bool_]:
    """Source rows whose key no row of the dataset has."""
    found = np.ones(keys.rows, np.bool_)
    found[matched] = False
    if keys.repeated.any():  # of several with one key, the first was matched
        first = keys.first_rows
        known = first >= 0
        found[known] = found[first[known]]
    return found


def _gone(
    dataset: OpenedVersion, clauses: MergeClauses, matches: Matches, changed: Matches
) -> tuple[Addresses, int]:
    """Addresses of rows that are deleted where they are, and how many of them match nothing."""
    if not clauses.delete_by_source:
        return changed.addresses, 0
    if matches.positions is not None:
        gone = np.ones(dataset.snapshot.num_rows, np.bool_)
        gone[matches.positions] = False
        count = int(np.count_nonzero(gone))
        gone[changed.positions] = True
        places = find_rows(dataset.snapshot, "indices", np.flatnonzero(gone))
        return places.addresses, count
    rows = rows_where(dataset, clauses.by_source_condition)
    passing = [
        offsets.astype(np.uint64) + np.uint64(fragment_id << 32)
        for fragment_id, offsets in rows.items()
    ]
    found = np.concatenate([np.empty(0, np.uint64), *passing])
    others = np.setdiff1d(found, matches.addresses, assume_unique=True)
    return np.concatenate([changed.addresses, others]), len(others)


def _written(
    dataset: OpenedVersion,
    clauses: MergeClauses,
    fits: LanceSchema,
    rows: pa.Table,
    changed: Matches,
    inserted: NDArray[np.bool_] | None,
) -> list[Fragment]:
    """New fragments with the changed rows, then the inserted ones."""
    schema = dataset.manifest.schema
    used = len(changed.source) if clauses.update else 0
    fresh = 0 if inserted is None else int(np.count_nonzero(inserted))
    if not used + fresh:
        return []
    bases = [base.name or base.path for base in dataset.manifest.wire.base_paths]
    options = clauses.options(bases)
    stable = dataset.manifest.uses(Feature.STABLE_ROW_IDS)
    if not stable and is_whole(fits, schema):
        order = np.concatenate(
            [
                np.sort(changed.source) if used else np.empty(0, np.int64),
                np.flatnonzero(inserted) if inserted is not None else np.empty(0, np.int64),
            ]
        )
        as_it_is = len(order) == len(rows) and bool((order[1:] > order[:-1]).all())
        written = rows if as_it_is else take_rows(rows, order)
        return write_moved(dataset, [written], [], options)
    pieces, ids = [], []
    if used:
        changed = changed.in_order_of_source(len(rows))
        pieces.append(updated_rows(dataset, fits, rows, changed))
        ids.append(changed.ids)
    if inserted is not None and fresh:
        pieces.append(padded_rows(rows.filter(pa.array(inserted)), schema))
    return write_moved(dataset, pieces, ids, options)
