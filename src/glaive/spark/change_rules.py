"""The rules of a feed of changes, and how a commit applies a feed without Spark.

A sequence orders the changes of a row, so that late and repeated changes have no effect. The keys
and sequences of deletes are rows of a second dataset inside the directory of the table. So a late
change of a deleted row has no effect, either. The deletes are committed first. If the process ends
between both commits, applying the same changes again has the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.chunked import one_array, take_rows
from glaive.config import settings
from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.merging.rows import OldValues, merge, merged_numbers
from glaive.dataset.merging.source import MergeClauses, SourceKeys, find_matches, read_rows
from glaive.dataset.rows import RowsByFragment, with_retries
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import JOB, commit_operation
from glaive.dataset.version import OpenedVersion
from glaive.dataset.write import write_dataset
from glaive.dataset.writing.conform import conform
from glaive.dataset.writing.fragments import discard_fragments
from glaive.dataset.writing.plan import WritePlan, staged_rows
from glaive.errors import ColumnNotFoundError, DatasetNotFoundError, OptionError, SchemaError
from glaive.expr.compare import distinct
from glaive.expr.filters import bind_filter
from glaive.format.fields import LanceSchema
from glaive.format.fragment import FragmentList
from glaive.format.manifest import Manifest
from glaive.options import one_of
from glaive.scan.options import Meter
from glaive.spark.types import columns_in, matching
from glaive.table.load import open_latest
from glaive.table.named_jobs import CommitMarks

if TYPE_CHECKING:
    from pyspark.sql import Column

VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
IS_CURRENT: Final = "is_current"
HISTORY: Final = (VALID_FROM, VALID_TO, IS_CURRENT)
"""Columns of a history (``scd=2``): first and end sequence of a row, and whether it is the last."""

DELETED_KEYS: Final = "_deleted_keys"
"""Dataset of the deletes inside the directory of a table or branch."""

SEQUENCE: Final = "__change_sequence"
_KIND: Final = "__change_kind"
_ADDRESS: Final = "__change_address"
_ROW, _CHANGE, _DELETE = range(3)
"""Kinds of events. Events of a key with equal sequences take effect in this order."""

NULL: Final = (
    "applyChanges: a change has a null in {}, which identifies or orders it. Leave such changes out"
)


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """How to apply changes; ``LanceTable.applyChanges`` explains the parameters."""

    keys: tuple[str, ...]
    sequence_by: str
    delete_where: str | Column | None
    ignore_null_updates: bool
    scd: Literal[1, 2]
    columns: tuple[str, ...] | None

    def __post_init__(self) -> None:
        one_of(1, 2).check("scd", self.scd)
        if not self.keys:
            raise OptionError("keys: expected a column, found none. Name what identifies a row")
        if self.ignore_null_updates and self.scd == 2:
            raise OptionError(
                "ignore_null_updates: a history (scd=2) keeps the nulls of a change. Leave it out"
            )

    def order_column(self) -> str:
        """Return the column of the table that orders its rows."""
        return VALID_FROM if self.scd == 2 else self.sequence_by

    def columns_set(self, dataset: LanceDataset, given: Sequence[str]) -> list[str]:
        """Return the columns that the changes set, as the table spells them.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            The table lacks a column.
        """
        names = dataset.lance_schema.names
        own = HISTORY if self.scd == 2 else (self.sequence_by,)
        for name in own:
            if name not in names:
                kind = "boolean" if name == IS_CURRENT else "the type of the sequence"
                raise SchemaError(
                    f"applyChanges with scd={self.scd}: {dataset.uri} lacks the column {name!r}. "
                    f"Add it, with {kind}: it keeps the order of the changes"
                )
        for name in (*self.keys, *(self.columns or ())):
            if name not in names:
                raise ColumnNotFoundError.among(name, names, where=dataset.uri)
        if self.columns is not None:
            return list(dict.fromkeys([*self.keys, *self.columns, *own]))
        only = columns_in(str(self.delete_where).lower(), given, "delete_where")
        known = matching(given, names)
        unknown = [
            name
            for name in given
            if name not in known.values() and name not in only and name != self.sequence_by
        ]
        if unknown:
            raise ColumnNotFoundError(
                f"applyChanges: {dataset.uri} lacks the columns {', '.join(unknown)} of the "
                "source. Add them, or name the columns to set in columns"
            )
        return list(dict.fromkeys([*known, *own]))

    def commit(
        self, storage: Mapping[str, str], plan: WritePlan, fragments: FragmentList
    ) -> Manifest:
        """Apply the changes that tasks wrote to files as one version, then remove the files.

        Memory: the changes, and the rows of the table with their keys.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            See :meth:`LanceTable.applyChanges`. Or a change has a null in a key or its sequence.
        """
        newest = open_latest(plan.store)
        dataset = LanceDataset.of(plan.store, newest, storage_options=storage)
        staged = Scanner.of(staged_rows(plan, fragments, newest.wire.base_paths)).to_table()
        changes = self._events_of(dataset, staged, plan.schema)
        deletes = Deletes(dataset, self)
        ends = changes.filter(pc.field(_KIND) == _DELETE).select([*self.keys, SEQUENCE])
        if ends.num_rows:
            merge = deletes.made().merge_insert(ends.column_names).when_not_matched_insert_all()
            merge.execute(ends.group_by(ends.column_names).aggregate([]))
        apply = partial(self._applied, changes, deletes, plan.options.transaction_properties)
        with_retries(dataset, apply)
        discard_fragments(plan, fragments)
        return dataset.manifest

    def _events_of(self, dataset: LanceDataset, staged: pa.Table, schema: LanceSchema) -> pa.Table:
        """Return changes with the types of the table, their sequences and kinds."""
        given, arrow = staged.column_names, dataset.lance_schema.to_arrow()
        spelled = matching(given, self.columns_set(dataset, given))
        found = {**spelled, **matching(given, [self.sequence_by])}
        for name in (*self.keys, self.sequence_by):
            if name not in found:
                raise ColumnNotFoundError.among(name, given, where="the source")
            if staged[found[name]].null_count:
                raise SchemaError(NULL.format(name))
        own = HISTORY if self.scd == 2 else (self.sequence_by,)
        names = list(dict.fromkeys([*self.keys, *(name for name in spelled if name not in own)]))
        kinds = pa.array(np.full(staged.num_rows, _CHANGE))
        if self.delete_where is not None:
            bound = bind_filter(str(self.delete_where), schema)
            masks = [bound.mask(batch) for batch in staged.to_batches()]
            kinds = pc.if_else(pa.chunked_array(masks), _DELETE, _CHANGE)
        columns = [staged[found[name]] for name in (*names, self.sequence_by)]
        order = arrow.field(self.order_column()).with_name(SEQUENCE)
        fields = [*(arrow.field(name).with_nullable(True) for name in names), order]
        rows = pa.Table.from_arrays(columns, [field.name for field in fields])
        typed: Any = conform(rows, pa.schema(fields))
        made: pa.Table = typed.append_column(_KIND, kinds)
        return made

    def _applied(
        self, changes: pa.Table, deletes: Deletes, properties: Mapping[str, str], at: OpenedVersion
    ) -> tuple[Manifest, None]:
        """Commit the rows that changes make of a version."""
        if CommitMarks.of(properties).are_applied(at.manifest):
            return at.manifest, None
        order, names = self.order_column(), changes.column_names[:-2]
        kept = list(dict.fromkeys([*names, order, *(HISTORY[:2] if self.scd == 2 else ())]))
        events = [
            self._rows_of(at, changes, kept, order, _ROW),
            changes.filter(pc.field(_KIND) == _CHANGE),
        ]
        known = deletes.opened()
        if known is not None:
            columns = [*self.keys, SEQUENCE]
            events.append(self._rows_of(known.opened, changes, columns, SEQUENCE, _DELETE))
        joined = pa.concat_tables(events, promote_options="default")
        removed = RowsByFragment()
        new = (self._newest_of if self.scd == 1 else self._history_of)(joined, names, removed)
        if not (new.num_rows or removed):
            return at.manifest, None
        on = (*self.keys, VALID_FROM) if self.scd == 2 else self.keys
        clauses = MergeClauses(on=on, update=True, insert=True)
        with read_rows(new, None, at, clauses, settings.memory_limit) as source:
            operation, counts = merge(at, clauses, source, deleted=removed)
        marked = {**properties, **merged_numbers(at, counts)}
        return commit_operation(at, operation, properties=marked, once=JOB), None

    def _rows_of(
        self, at: OpenedVersion, changes: pa.Table, columns: list[str], order: str, kind: int
    ) -> pa.Table:
        """Return the rows of a version with keys of the changes, as events."""
        keys = SourceKeys(self.keys, [one_array(changes[name]) for name in self.keys])
        addresses = find_matches(at, keys, Meter()).addresses
        rows = OldValues(at, columns).take(addresses)
        if order != SEQUENCE:
            rows = rows.append_column(SEQUENCE, rows[order])
        kinds = pa.array(np.full(len(addresses), kind))
        return rows.append_column(_KIND, kinds).append_column(_ADDRESS, pa.array(addresses))

    def _in_order(self, events: pa.Table) -> tuple[pa.Table, Any, Any]:
        """Return events by key and sequence, their kinds, and which are the first of their key.

        A change with the sequence of a row or of another change is left out.
        """
        keys = SourceKeys(self.keys, [one_array(events[name]) for name in self.keys]).first_rows
        # A row without a sequence is older than all changes.
        ranks = {"key": keys, "known": events[SEQUENCE].is_valid()}
        ranks |= {"sequence": events[SEQUENCE], "kind": events[_KIND]}
        ascending: Any = [(name, "ascending") for name in ranks]
        order = pc.sort_indices(pa.table(ranks), ascending).to_numpy()
        events, keys = take_rows(events, order), keys[order]
        sequence, kind = one_array(events[SEQUENCE]), events[_KIND].to_numpy()
        differs = distinct(sequence[1:], sequence[:-1]).to_numpy(zero_copy_only=False)
        first = np.append(True, keys[1:] != keys[:-1])
        kept = first | np.append(True, differs) | (kind != _CHANGE)
        return events.filter(kept), kind[kept], first[kept]

    def _newest_of(self, events: pa.Table, names: list[str], removed: RowsByFragment) -> pa.Table:
        """Return the newest values of changed rows; add deleted rows to ``removed``."""
        events, kind, first = self._in_order(events)
        starts, at = np.flatnonzero(first), np.arange(len(kind))
        key = np.cumsum(first) - 1

        def last(mask: Any) -> Any:
            return np.maximum.reduceat(np.where(mask, at, -1), starts)

        before, newest = last(kind != _CHANGE), last(kind == _CHANGE)
        changed = newest > before
        deleted = ~changed & (kind[before] == _DELETE)
        removed.add(events[_ADDRESS].filter((kind == _ROW) & deleted[key]).to_numpy())
        rows = take_rows(events, newest[changed])
        if not self.ignore_null_updates:
            return rows.select(names).append_column(self.sequence_by, rows[SEQUENCE])
        counts = (at > before[key]) | ((at == before[key]) & (kind == _ROW))
        for name in names:
            held = counts & one_array(events[name]).is_valid().to_numpy(zero_copy_only=False)
            values = take_rows(events.select([name]), last(held)[changed])[name]
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        return rows.select(names).append_column(self.sequence_by, rows[SEQUENCE])

    def _history_of(self, events: pa.Table, names: list[str], _: RowsByFragment) -> pa.Table:
        """Return new rows of a history, and rows with another end."""
        events, kind, first = self._in_order(events)
        following = np.where(np.append(first[1:], True), -1, np.arange(1, len(kind) + 1))
        until = one_array(take_rows(events.select([SEQUENCE]), following)[SEQUENCE])
        moved = distinct(until, one_array(events[VALID_TO])).to_numpy(zero_copy_only=False)
        known = one_array(events[SEQUENCE]).is_valid().to_numpy(zero_copy_only=False)
        rows = events.select(names).append_column(VALID_FROM, events[SEQUENCE])
        rows = rows.append_column(VALID_TO, until).append_column(IS_CURRENT, until.is_null())
        return rows.filter((kind == _CHANGE) | ((kind == _ROW) & known & moved))


class Deletes:
    """The dataset with keys and sequences of deletes."""

    def __init__(self, dataset: LanceDataset, rules: ChangeRules) -> None:
        self._storage = dict(dataset.storage_options or {})
        self._uri = f"{dataset.uri.rstrip('/')}/{DELETED_KEYS}"
        schema = dataset.schema
        order = schema.field(rules.order_column())
        kept = [schema.field(name) for name in rules.keys]
        self.schema = pa.schema([*kept, order.with_name(SEQUENCE)])

    def opened(self) -> LanceDataset | None:
        """Return the dataset at its newest version; ``None`` before the first delete."""
        from glaive.dataset.open import dataset

        try:
            return dataset(self._uri, storage_options=self._storage or None)
        except DatasetNotFoundError:
            return None

    def made(self) -> LanceDataset:
        """Return the dataset, which is made now if it is missing."""
        return self.opened() or write_dataset(
            self.schema.empty_table(), self._uri, storage_options=self._storage or None
        )
