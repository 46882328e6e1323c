"""Tasks of a merge: they get the rows of the source that change rows, and write them.

Spark joins the source with keys and row addresses of the dataset. Tasks read the columns that an
update keeps from the files, by address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_column
from glaive.arrow.conditions import python_rows
from glaive.dataclass import dataclass
from glaive.dataset.columns.add_columns import AddedFiles, taken_rows
from glaive.dataset.columns.column_files import grow, write_column_file
from glaive.dataset.merging.rows import (
    OldValues,
    merge,
    padded_rows,
    relocating,
    replace_in_fragments,
)
from glaive.dataset.merging.source import (
    InsertedKeys,
    Matches,
    MergeClauses,
    MergeSource,
    SourceKeys,
    find_matches,
)
from glaive.dataset.rows import RelocatedIds, RowsByFragment, delete_in_tasks, with_ids
from glaive.dataset.tasks import FragmentRange, RowTask, commit_operation, opened_at
from glaive.dataset.writing.conform import conform as as_stored
from glaive.dataset.writing.fragments import FragmentWriter
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.dataset.writing.rules import numbered
from glaive.errors import SchemaError
from glaive.format.fragment import DataFile, Fragment, FragmentList
from glaive.format.manifest import Feature
from glaive.format.rowids import check_at_once
from glaive.scan.options import Meter
from glaive.scan.take import find_rows, take_physical
from glaive.spark.cast import conform
from glaive.spark.frame import BATCH_ROWS
from glaive.spark.types import refuse_unassignable, spark_arrow_schema, stored_types
from glaive.spark.writer import partition_id
from glaive.table.configuration import GENERATED, Rules
from glaive.table.operations.update import Update, encode_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest


_RESERVED: Final = "__glaive_"

CLAUSE: Final = "__glaive_clause"
"""Column of the joined frame: the number of the clause that applies to a row."""

ADDRESS: Final = "__glaive_address"
"""Column: the address of the row of the dataset; null for rows to insert."""

ROW_ID: Final = "__glaive_row_id"
"""Column: the id of that row, if ids are stable."""


VALUE: Final = "__glaive_value_"
"""Prefix of columns with further values of a column of the table, of other types."""


def refuse_reserved(names: Iterable[str], where: str) -> None:
    """Refuse columns that Spark would confuse with columns that joins add; Spark ignores case.

    Raises
    ------
    SchemaError
        A column has such a name.
    """
    taken = next((name for name in names if name.lower().startswith(_RESERVED)), None)
    if taken is not None:
        raise SchemaError(f"{where} has a column {taken!r}: names like it are reserved. Rename it")


@dataclass(frozen=True, slots=True)
class RowClause:
    """The action of a clause.

    Parameters
    ----------
    columns
        Columns that get values of the frame.
    sent
        The columns of the frame with these values; empty: columns of the same names.
    """

    action: Literal["update", "delete", "insert"]
    columns: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()

    def fields(self, rows: pa.Schema) -> pa.Schema:
        """Return the fields of the frame for these columns, with the names of the columns."""
        named = zip(self.columns, self.sent or self.columns, strict=True)
        return pa.schema([rows.field(sent).with_name(name) for name, sent in named])


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRows:
    """The result of a task.

    Parameters
    ----------
    updated, inserted
        New fragments. Fragments of updated rows have their stable ids, if any.
    old
        Rows of the dataset that were updated or deleted.
    counts
        Number of rows by action.
    repeated
        Address of a row that was changed twice, if any.
    keys
        The inserted keys, for a merge by the primary key.
    task
        The number of the task in Spark. It decides on the numbers of inserted rows.
    """

    updated: FragmentList
    inserted: FragmentList
    old: RowsByFragment
    counts: dict[str, int]
    repeated: int | None
    keys: InsertedKeys | None = None
    task: int = 0


@dataclass(frozen=True)
class MergeRows(RowTask):
    """Write the rows of a partition of the joined frame.

    Parameters
    ----------
    read_version
        The version of the join.
    clauses
        Clauses, by their numbers in the column :data:`CLAUSE`.
    primary_key
        Columns of the primary key for a merge by it, else empty.
    """

    read_version: int
    clauses: tuple[RowClause, ...]
    primary_key: tuple[str, ...] = ()

    def execute(self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]) -> MergedRows:
        """Write new files and leave the commit to the driver."""
        run = _Run(opened_at(dataset, self.read_version), self)
        try:
            for batch in rows:
                run.add(batch)
            return run.finish()
        except BaseException:
            run.updated.discard()
            run.inserted.discard()
            raise


class _Run:
    """The files that a task has written so far."""

    def __init__(self, opened: OpenedVersion, task: MergeRows) -> None:
        manifest = opened.manifest
        options = WriteOptions(mode="append", compression="balanced")
        plan = plan_write(opened.store, manifest.schema, options, manifest)
        self.opened, self.clauses, self.primary_key = opened, task.clauses, task.primary_key
        self.updated = FragmentWriter(plan.for_moved_rows())
        self.inserted = FragmentWriter(plan.for_task(partition_id()))
        self.ids = RelocatedIds(kept=manifest.uses(Feature.STABLE_ROW_IDS))
        self.keys = InsertedKeys.of(manifest.schema, task.primary_key)
        self.old: dict[int, OldValues] = {}
        self.addresses: list[NDArray[np.uint64]] = []
        self.counts = dict.fromkeys(("update", "delete", "insert"), 0)

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
        """Return the columns that the frame has, with the types of the dataset."""
        schema = stored_types(self.opened.manifest.schema)
        wanted = pa.schema([schema.field(name) for name in clause.columns])
        brought = part.select(list(clause.sent or clause.columns))
        named = brought.rename_columns(list(clause.columns))
        return pa.Table.from_batches([conform(named, wanted, writing=True)])

    def _kept(self, number: int, new: pa.Table, addresses: NDArray[np.uint64]) -> pa.Table:
        """Return the rows with the columns that the clause keeps."""
        fields, given = self.opened.manifest.schema.fields, self.clauses[number].columns
        stored = [one.name for one in fields if GENERATED not in one.metadata]
        kept = [name for name in stored if name not in given]
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
            task=partition_id() or 0,
        )


# --- Tasks that find the rows of a table with a key of a merge's source -----------------
# They look keys up while decoding key columns, and use statistics and indices. So only rows that
# match pass through Spark.


@dataclass(frozen=True, slots=True)
class MatchTask:
    """Find the rows of some fragments that have a key of the source; can be pickled.

    Parameters
    ----------
    fragments
        The fragments to search.
    schema
        Schema of the rows: columns of the table, :data:`ADDRESS`, perhaps :data:`ROW_ID`.
    """

    fragments: FragmentRange
    schema: pa.Schema

    def rows(self, dataset: LanceDataset, shared: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows; ``shared`` has the keys, in columns named like the table's.

        Memory: the keys, and 24 bytes per match.
        """
        opened = self.fragments.opened(dataset)
        columns = [column.combine_chunks() for column in shared.columns]
        keys = SourceKeys(shared.column_names, columns)
        ids = self.fragments.ids(opened)
        found = find_matches(opened, keys, Meter(), fragments=ids)
        for start in range(0, len(found.source), BATCH_ROWS):
            part = found.only(slice(start, start + BATCH_ROWS))
            yield self._batch(opened, keys, part)

    def _batch(self, opened: OpenedVersion, keys: SourceKeys, part: Matches) -> pa.RecordBatch:
        """Return rows: key columns come from the source, as they are equal; others are read."""
        given = dict(zip(keys.names, keys.columns, strict=True))
        rows: Any = pa.array(part.source)
        arrays = {name: column.take(rows) for name, column in given.items()}
        others = [n for n in self.schema.names if n not in (*given, ADDRESS, ROW_ID)]
        if others:
            read = OldValues(opened, others).take(part.addresses)
            arrays |= {name: read.column(name).combine_chunks() for name in others}
        arrays[ADDRESS] = pa.array(part.addresses.view(np.int64))
        arrays[ROW_ID] = pa.array(part.ids.view(np.int64))
        batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
        return conform(batch, self.schema, writing=False)


# --- The task of a small merge: it gets all rows of the source, and merges as one process does
#
# For a merge of whole rows by equal keys, this saves Spark a join. Spark would have to plan and
# compile the join, and run it over every column.

MAX_SOURCE_BYTES: Final = 64 << 20
"""Maximum bytes of a source that one task holds."""


@dataclass(frozen=True)
class SmallMerge(RowTask):
    """Merge the rows of a source, which has some columns of the table, into a version."""

    read_version: int
    columns: tuple[str, ...]
    clauses: MergeClauses

    def execute(
        self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]
    ) -> tuple[Update, dict[str, int]] | None:
        """Write new files; return the operation to commit and the counts.

        Memory: the source twice, and about a hundred bytes for each of its rows.

        Returns
        -------
        tuple or None
            ``None``, before it writes files, if the source is too large or has a fault, which a
            join reports.
        """
        opened = opened_at(dataset, self.read_version)
        columns = opened.manifest.schema.project(self.columns)
        stored = stored_types(columns)
        held: list[pa.RecordBatch] = []
        size = 0
        try:
            for batch in rows:
                held.append(conform(batch, stored, writing=True))
                size += batch.nbytes
                if size > MAX_SOURCE_BYTES:
                    return None
            source: Any = as_stored(pa.Table.from_batches(held, stored), columns.to_arrow())
            with MergeSource(source, 4 * MAX_SOURCE_BYTES) as given:
                return merge(opened, self.clauses, given)
        except SchemaError:
            return None


# --- Tasks that get values for rows of whole fragments, and write them as columns -------
# The rows of a partition are sorted by address, so that one fragment after the other is complete.


@dataclass(frozen=True)
class CollectRows(RowTask):
    """Collect the addresses of a frame as a set of rows."""

    def execute(
        self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]
    ) -> RowsByFragment:  # tasks get it
        """Return the rows."""
        found = RowsByFragment()
        for batch in rows:
            found.add(batch.column(ADDRESS).to_numpy().astype(np.uint64))
        return found


@dataclass(frozen=True)
class FillColumns(RowTask):
    """Write new columns: values for some rows, nulls for the other rows.

    Parameters
    ----------
    columns
        The new columns, all nullable.
    """

    read_version: int
    columns: pa.Schema

    def execute(self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]) -> AddedFiles:
        """Write a file for each fragment with rows and leave the commit to the driver.

        Memory: the new values of one fragment.
        """
        opened = opened_at(dataset, self.read_version)
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
    """Fragments with new files for some columns, and their rows with new values.

    ``changed`` are these rows, encoded by :func:`glaive.table.operations.update.encode_offsets`.
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
        """Write a file for each fragment with rows and leave the commit to the driver.

        Memory: the new values of one fragment.
        """
        opened = opened_at(dataset, self.read_version)
        columns = opened.manifest.schema.project(self.names)
        updated: list[Fragment] = []
        changed: dict[int, bytes] = {}
        count = 0
        for fragment_id, offsets, values in by_fragment(rows, stored_types(columns)):
            addresses = offsets.astype(np.uint64) | np.uint64(fragment_id << 32)
            order = np.arange(len(offsets))
            stored: Any = as_stored(values, columns.to_arrow())  # JSON as in the kept values
            part = replace_in_fragments(opened, columns, stored, addresses, order)
            updated += part.updated
            changed |= part.changed_offsets
            count += len(offsets)
        return ReplacedColumns(FragmentList.of(updated), encode_offsets(changed), count)


def by_fragment(
    rows: Iterator[pa.RecordBatch], columns: pa.Schema
) -> Iterator[tuple[int, Any, pa.Table]]:
    """Yield fragments with ascending offsets and values; rows come sorted by address.

    Raises
    ------
    SchemaError
        Two rows have the same address, or a value is invalid in its column.
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
    """Return the rows of one fragment; each must have one value."""
    joined = np.concatenate(offsets)
    if (joined[1:] <= joined[:-1]).any():
        at = int(joined[np.flatnonzero(joined[1:] <= joined[:-1])[0]])
        raise SchemaError(
            f"several rows of the frame have the key of row {at} of fragment {fragment_id}. Remove "
            "them from the frame, such as with dropDuplicates; nothing was changed"
        )
    return joined, pa.Table.from_batches(values)


# --- Run the tasks of a merge on their frame, and commit their results -------------------


def written_rows(
    opened: OpenedVersion, rows: DataFrame, task: MergeRows, job: Job
) -> list[MergedRows]:
    """Run the task of a merge on each partition of a frame, which writes files for a commit.

    Parameters
    ----------
    rows
        Rows for the task, with values in the columns that its clauses name.

    Returns
    -------
    list
        The result of the task for each partition, in any order.

    Raises
    ------
    SchemaError
        The type of a column has no cast to the stored type.
    """
    runner: Any = job.runner  # runs tasks in a Spark session
    stored = stored_types(opened.manifest.schema)
    sent = spark_arrow_schema(rows.schema)
    for clause in task.clauses:
        named = pa.schema([stored.field(name) for name in clause.columns])
        refuse_unassignable(clause.fields(sent), named, where=opened.uri)
    parts: list[MergedRows] = runner.run_on_rows(opened, rows, task)
    return parts


def commit_merge(
    opened: OpenedVersion, parts: Sequence[MergedRows], clauses: Sequence[RowClause], job: Job
) -> tuple[Manifest, None]:
    """Commit the results of tasks.

    Parameters
    ----------
    clauses
        Clauses by number.

    Raises
    ------
    SchemaError
        A row is changed twice.
    """
    rows = RowsByFragment()
    only_deletes = all(clause.action == "delete" for clause in clauses)
    for part in parts:
        repeated = part.repeated
        old = RowsByFragment()
        old.add_all(part.old)  # the set of the result stays packed
        if repeated is None:
            repeated = rows.first_common(old)
        if repeated is not None and not only_deletes:
            raise SchemaError(
                f"several rows of the source change the row {_describe_row(opened, repeated)}. "
                'Remove them from the source, or use onDuplicateSource("last", by=column); '
                "nothing was changed"
            )
        rows.add_all(old)
    deleted = delete_in_tasks(opened, rows, job)
    del rows  # some hundred bytes per fragment
    updated = sum(part.counts["update"] for part in parts)
    counts = {
        "num_inserted_rows": sum(part.counts["insert"] for part in parts),
        "num_updated_rows": updated,
        "num_deleted_rows": deleted.count - updated,
    }
    keys = _inserted_keys(parts)
    new = FragmentList.joined([*(p.updated for p in parts), *(p.inserted for p in parts)])
    operation = relocating(opened, deleted, new, keys)
    properties, inserted = job.recording(**counts), [part.inserted.row_count for part in parts]
    if any(inserted):
        rules = Rules.of_version(opened.manifest)
        tasks = 1 + max(part.task for part in parts)  # tasks without rows may give no result
        properties |= numbered(rules, inserted, tasks=tasks)
    return commit_operation(opened, operation, properties=properties, once=job.once), None


def _inserted_keys(parts: Sequence[MergedRows]) -> InsertedKeys | None:
    """Return all inserted keys; ``None`` if the dataset lacks a primary key."""
    found = [part.keys for part in parts if part.keys is not None]
    for keys in found[1:]:
        found[0].add_all(keys)
    return found[0] if found else None


def _describe_row(opened: OpenedVersion, address: int) -> str:
    """Describe the row at an address by its first columns."""
    names = opened.manifest.schema.names[:3]
    found = find_rows(opened.snapshot, "addresses", [address])
    view = opened.views.take(tuple(names))
    (row,) = python_rows(take_physical(view, found.fragment, found.row))
    values = ", ".join(f"{name} = {value!r:.60}" for name, value in row.items())
    return f"with {values}"
