"""``dataset.changes``: the rows that versions inserted, updated and deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.capacity import in_parts
from glaive.arrow.widths import total_width
from glaive.dataset.changes.columns import CHANGE_COLUMNS, ColumnHistory, Source, fitted, sources
from glaive.dataset.changes.commits import CommitSummary, check_range, commits
from glaive.dataset.changes.plan import plan_commit, plan_net
from glaive.dataset.changes.rows import changed_rows
from glaive.dataset.changes.task import ChangeTask
from glaive.dataset.changes.task_list import ChangeTasks
from glaive.errors import OptionError, SchemaError
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.scan.projection import column_names, project
from glaive.scan.system_columns import SYSTEM_COLUMNS
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection
from glaive.table.replaced import check_not_replaced
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["ChangeFeed", "ChangeReader", "change_feed"]

_KEPT_VERSIONS: Final = 4
"""Versions that stay opened: neighbouring tasks are of the same two."""

_BATCH_BYTES: Final = 8 << 20
_BATCH_ROWS: Final = 32 * 1024


class ChangeReader:
    """Reads tasks of a change feed. Can be made in any process that can open the dataset.

    Parameters
    ----------
    dataset
        A version of the dataset.
    schema
        The schema that the feed has; default: that of ``dataset``.
    columns
        Columns of the dataset, and system columns; default: all of the dataset.
    preimages
        Whether updated rows are also read as they were before.
    batch_size
        Rows of a batch; default: at most 32,768, and about 8 MiB.

    Raises
    ------
    OptionError
        ``columns`` is no list of names.
    ColumnNotFoundError
        A column does not exist.
    SchemaError
        The dataset has a column with the name of one that the feed adds.
    """

    def __init__(
        self,
        dataset: OpenedVersion,
        columns: Sequence[str] | None = None,
        *,
        schema: LanceSchema | None = None,
        preimages: bool = True,
        batch_size: int | None = None,
    ) -> None:
        if isinstance(columns, Mapping):
            raise OptionError("columns: a change feed has columns of the dataset, no expressions")
        names: Any = column_names(columns)
        self._dataset = dataset
        self._wanted = dataset.manifest.schema if schema is None else schema
        self._names: tuple[str, ...] = names or tuple(self._wanted.names)
        rows: Any = (
            dataset.views.take(self._names).schema
            if schema is None
            else project(schema, self._names, nested=True).schema
        )
        taken = [name for name in CHANGE_COLUMNS.names if name in rows.names]
        if taken:
            raise SchemaError(
                f"{dataset.uri} has a column {taken[0]!r}, as the change feed. Select other columns"
            )
        self._columns = [_column(self._wanted, name) for name in self._names]
        # A version without some column has nulls in it.
        fields = [
            field if field.name in SYSTEM_COLUMNS else field.with_nullable(True) for field in rows
        ]
        self.schema = pa.schema([*fields, *CHANGE_COLUMNS])
        """Columns of the dataset, then those that say what became of a row."""
        self._fields = fields
        self._preimages = preimages
        width = max(1.0, total_width(field.type for field in fields).total)
        self._batch_size = batch_size or max(64, min(_BATCH_ROWS, int(_BATCH_BYTES / width)))
        self._versions: dict[int, OpenedVersion] = {}
        self._sources: tuple[tuple[int, frozenset[int] | None], list[Source]] | None = None

    def read(self, task: ChangeTask) -> Iterator[pa.RecordBatch]:
        """The changed rows of a task in batches, in the order of the fragment."""
        here = self._version(task.read_version)
        there = None if task.compared_version is None else self._version(task.compared_version)
        other = None if there is None else there.snapshot
        rows, updated = changed_rows(task, here.snapshot, other)
        if not task.after and not self._preimages:
            rows, updated = rows[~updated], updated[~updated]
        if not len(rows):
            return
        manifest = here.manifest
        stored = self._sources_of(manifest, task.others)
        view = here.views.take(
            tuple(dict.fromkeys(one.name for one in stored if one.name is not None))
        )
        position = manifest.position_of(task.fragment_id)
        for start in range(0, len(rows), self._batch_size):
            part = rows[start : start + self._batch_size]
            taken = _taken(view, position, part)
            columns = [
                pa.nulls(len(part), field.type)
                if name is None
                else fitted(taken.column(name), field, members, manifest.where)
                for (name, members), field in zip(stored, self._fields, strict=True)
            ]
            columns += _described(task, updated[start : start + len(part)])
            table = pa.Table.from_arrays(columns, schema=self.schema)
            yield from table.combine_chunks().to_batches()

    def _sources_of(self, manifest: Manifest, others: frozenset[int] | None) -> list[Source]:
        """Those of the columns; tasks of one version come one after the other."""
        key = (manifest.version, others)
        if self._sources is None or self._sources[0] != key:
            found = sources(
                self._columns, self._wanted, manifest.schema, others=others, where=manifest.where
            )
            self._sources = (key, found)
        return self._sources[1]

    def _version(self, version: int) -> OpenedVersion:
        opened = self._versions.get(version)
        if opened is None:
            while len(self._versions) >= _KEPT_VERSIONS:
                del self._versions[next(iter(self._versions))]
            opened = self._dataset.at(version)
            self._versions[version] = opened
        return opened


class ChangeFeed:
    """Changed rows of a range of versions; returned by ``dataset.changes``.

    Rows come version by version, the old ones before the new ones. :attr:`tasks` can be sent to
    other processes, where :class:`ChangeReader` reads them.
    """

    def __init__(self, reader: ChangeReader, tasks: ChangeTasks) -> None:
        self._reader = reader
        self.tasks = tasks
        """The parts that can be read apart, in order."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the dataset, then those of ``CHANGE_COLUMNS``."""
        return self._reader.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the changed rows; the next task is read when its first batch is asked for."""
        for task in self.tasks:
            yield from self._reader.read(task)

    def to_reader(self) -> pa.RecordBatchReader:
        """The same as a reader of Arrow."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """All changed rows, in memory."""
        return self.to_reader().read_all()

    @cached_property
    def estimated_rows(self) -> int:
        """Number of changed rows, from the manifests: exact for whole fragments, else a bound."""
        return self.tasks.rows


def _column(schema: LanceSchema, name: str) -> str:
    """The name of the column that users name; an ``OptionError`` for members of columns."""
    if name in SYSTEM_COLUMNS:
        return name
    column, *members = schema.find(name)
    if members:
        raise OptionError(f"columns: {name!r} is a part of {column.name!r}. Select all of it")
    return column.name


def _taken(view: BoundProjection, position: int, rows: Int64s) -> pa.Table:
    """Rows of a fragment, ascending; as a scan reads them where they are all of a range."""
    if view.projection.outputs:
        bound = view.fragment(position)
        start, stop = int(rows[0]), int(rows[-1]) + 1
        live = stop - start if bound.live is None else bound.live.count_between(start, stop)
        if live == len(rows):
            parts = [
                pa.RecordBatch.from_arrays(arrays, schema=view.schema)
                for arrays in in_parts(bound.read, start, stop)
            ]
            return pa.Table.from_batches(parts, view.schema)
    return take_physical(view, np.full(len(rows), position, np.int64), rows)


def change_feed(
    dataset: OpenedVersion,
    start_version: int,
    end_version: int | None,
    *,
    preimages: bool,
    net: bool,
    **reading: Any,
) -> ChangeFeed:
    """Plan the feed of a range of versions; see ``LanceDataset.changes``.

    ``reading`` are further parameters of :class:`ChangeReader`.
    """
    newest = dataset.manifest
    start, end = check_range(start_version, end_version, newest.version)
    # Its versions would be compared with those of another dataset.
    check_not_replaced(dataset.store, newest)
    first: Manifest | None = None
    last = newest
    planned: list[ChangeTasks] = []
    passed: list[CommitSummary] = []
    columns = ColumnHistory()
    for commit in commits(dataset.store, newest, start, end):
        # Manifests are let go of as the next ones are read: each lists all fragments.
        if net and not passed:
            first = commit.before
        last = commit.after
        passed.append(commit.summary)
        columns.add(commit)
        if not net:
            planned.append(plan_commit(commit, columns.replaced(commit.before, commit.after)))
    reference = dataset if end == newest.version else dataset.at(last)
    reader = ChangeReader(reference, preimages=preimages, **reading)
    if net:
        tasks = plan_net(first, last, passed, columns.replaced(first, last))
    else:
        tasks = ChangeTasks.joined(planned)
    return ChangeFeed(reader, tasks.knowing_fields(partial(columns.others, reference=last.version)))


def _described(task: ChangeTask, updated: np.ndarray[Any, np.dtype[np.bool_]]) -> list[Any]:
    """The columns that say what became of the rows of one batch."""
    kinds = ("insert", "update_postimage") if task.after else ("delete", "update_preimage")
    indices: Any = pa.array(updated.view(np.int8))
    types = pa.DictionaryArray.from_arrays(indices, pa.array(kinds)).cast(pa.string())
    rows = len(updated)
    return [
        types,
        _repeated(task.commit_version, 1, rows),
        _repeated(task.commit_timestamp, 2, rows),
    ]


def _repeated(value: object, column: int, rows: int) -> Any:
    scalar: Any = pa.scalar(value, CHANGE_COLUMNS.types[column])
    return pa.repeat(scalar, rows)
