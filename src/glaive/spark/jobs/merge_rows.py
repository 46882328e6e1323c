"""The task of a merge: it gets the rows of the source that change something, and writes them.

Spark joins the source with keys and row addresses of the dataset; columns that an update keeps are
read from the files here, by address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_column
from glaive.dataclass import dataclass
from glaive.dataset.merging.inserted_keys import InsertedKeys
from glaive.dataset.merging.old_values import OldValues, padded_rows
from glaive.dataset.rows.relocated_rows import RelocatedIds, with_ids
from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.writing.fragments import FragmentWriter
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import plan_write
from glaive.errors import SchemaError
from glaive.format.flags import Feature
from glaive.format.fragment_list import FragmentList
from glaive.spark.assignable import stored_types
from glaive.spark.cast import conform
from glaive.spark.jobs.worker import RowTask

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.version import OpenedVersion

__all__ = [
    "ADDRESS",
    "CLAUSE",
    "ROW_ID",
    "VALUE",
    "MergeRows",
    "MergedRows",
    "RowClause",
    "refuse_reserved",
]

_RESERVED: Final = "__glaive_"

CLAUSE: Final = "__glaive_clause"
"""Column of the joined frame: the number of the clause that applies to a row."""

ADDRESS: Final = "__glaive_address"
"""Column: the address of the row of the dataset; null if it is to be inserted."""

ROW_ID: Final = "__glaive_row_id"
"""Column: the id of that row, where ids are stable."""


VALUE: Final = "__glaive_value_"
"""How columns begin that have further values of a column of the table, of other types."""


def refuse_reserved(names: Iterable[str], where: str) -> None:
    """Refuse columns that Spark would take for those that joins add; it ignores case.

    Raises
    ------
    SchemaError
        There is one.
    """
    taken = next((name for name in names if name.lower().startswith(_RESERVED)), None)
    if taken is not None:
        raise SchemaError(f"{where} has a column {taken!r}: names like it are reserved. Rename it")


@dataclass(frozen=True, slots=True)
class RowClause:
    """What a clause does with its rows.

    Parameters
    ----------
    columns
        Those that get values of the frame.
    sent
        The columns of the frame that have these values; none: those of the same names.
    """

    action: Literal["update", "delete", "insert"]
    columns: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()

    def fields(self, rows: pa.Schema) -> pa.Schema:
        """The fields of the frame for these columns, with the names of the columns."""
        named = zip(self.columns, self.sent or self.columns, strict=True)
        return pa.schema([rows.field(sent).with_name(name) for name, sent in named])


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRows:
    """What a task wrote.

    Parameters
    ----------
    updated, inserted
        New fragments; those of updated rows have their ids, if these are stable.
    old
        Rows of the dataset that were updated or deleted.
    counts
        Rows by action.
    repeated
        Address of a row that was changed twice, if there is one.
    keys
        The inserted keys, if the merge is by the primary key.
    """

    updated: FragmentList
    inserted: FragmentList
    old: RowsByFragment
    counts: dict[str, int]
    repeated: int | None
    keys: InsertedKeys | None = None


@dataclass(frozen=True)
class MergeRows(RowTask):
    """Write the rows of a partition of the joined frame.

    Parameters
    ----------
    read_version
        The version that was joined.
    clauses
        By their numbers in the column :data:`CLAUSE`.
    primary_key
        Columns of the primary key if the merge is by it, else none.
    """

    read_version: int
    clauses: tuple[RowClause, ...]
    primary_key: tuple[str, ...] = ()

    def execute(self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]) -> MergedRows:
        """Write new files; nothing is committed."""
        opened = dataset.opened
        if opened.manifest.version != self.read_version:
            opened = opened.at(self.read_version)
        run = _Run.of(opened, self.clauses, self.primary_key)
        try:
            for batch in rows:
                run.add(batch)
            return run.finish()
        except BaseException:
            run.updated.discard()
            run.inserted.discard()
            raise


@dataclass(slots=True)
class _Run:
    opened: OpenedVersion
    clauses: tuple[RowClause, ...]
    updated: FragmentWriter
    inserted: FragmentWriter
    ids: RelocatedIds
    primary_key: tuple[str, ...]
    keys: InsertedKeys | None
    old: dict[int, OldValues] = field(default_factory=dict)
    addresses: list[NDArray[np.uint64]] = field(default_factory=list)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("update", "delete", "insert"), 0)
    )

    @classmethod
    def of(
        cls, opened: OpenedVersion, clauses: tuple[RowClause, ...], primary_key: tuple[str, ...]
    ) -> _Run:
        manifest = opened.manifest
        options = WriteOptions(mode="append", compression="balanced")
        plan = plan_write(opened.store, manifest.schema, options, manifest)
        ids = RelocatedIds(kept=manifest.uses(Feature.STABLE_ROW_IDS))
        keys = InsertedKeys.of(manifest.schema, primary_key)
        writers = FragmentWriter(plan), FragmentWriter(plan)
        return cls(opened, clauses, *writers, ids, primary_key, keys)

    def add(self, batch: pa.RecordBatch) -> None:
        numbers: Any = batch.column(CLAUSE).to_numpy()
        for number in np.unique(numbers).tolist():
            part: Any = batch
            if not (numbers == number).all():
                part = batch.filter(pa.array(numbers == number))
            clause = self.clauses[number]
            self.counts[clause.action] += part.num_rows
            if clause.action == "insert":
                table = padded_rows(self._values(part, clause), self.opened.manifest.schema)
                self.inserted.write(table)
                if self.keys is not None:
                    self.keys.add([join_column(table.column(name)) for name in self.primary_key])
                continue
            addresses = part.column(ADDRESS).to_numpy().astype(np.uint64)
            self.addresses.append(addresses)
            if clause.action == "update":
                if self.ids.kept:
                    self.ids.add(part.column(ROW_ID).to_numpy().astype(np.uint64))
                self.updated.write(self._kept(number, self._values(part, clause), addresses))

    def _values(self, part: pa.RecordBatch, clause: RowClause) -> pa.Table:
        """The columns that the frame brings, with the types of the dataset."""
        schema = stored_types(self.opened.manifest.schema)
        wanted = pa.schema([schema.field(name) for name in clause.columns])
        brought = part.select(list(clause.sent or clause.columns))
        named = brought.rename_columns(list(clause.columns))
        return pa.Table.from_batches([conform(named, wanted, writing=True)])

    def _kept(self, number: int, new: pa.Table, addresses: NDArray[np.uint64]) -> pa.Table:
        """The rows with the columns that the clause leaves as they are."""
        names = self.opened.manifest.schema.names
        kept = [name for name in names if name not in self.clauses[number].columns]
        if not kept:
            return new
        if number not in self.old:
            self.old[number] = OldValues(self.opened, kept)
        for column in (old := self.old[number].take(addresses)).schema:
            new = new.append_column(column, old.column(column.name))
        return new

    def finish(self) -> MergedRows:
        updated = [part for part in self.updated.finish() if part.physical_rows]
        inserted = [part for part in self.inserted.finish() if part.physical_rows]
        rows, repeated = RowsByFragment(), None
        if self.addresses:
            unique, times = np.unique(np.concatenate(self.addresses), return_counts=True)
            rows.add(unique)
            repeated = next(iter(unique[times > 1].tolist()), None)
        return MergedRows(
            updated=FragmentList.of(with_ids(updated, self.ids)),
            inserted=FragmentList.of(replace(part, row_ids=None) for part in inserted),
            old=rows,
            counts=self.counts,
            repeated=repeated,
            keys=self.keys,
        )
